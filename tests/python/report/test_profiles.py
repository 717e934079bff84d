"""Instruction profiles in the terminal, on the page and in JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from command_line import ran
from documented_keys import documented
from iotax.analysis import StudyData, summarise
from iotax.analysis.change import changes
from iotax.analysis.profile import cell_profiles
from iotax.cli.profile import print_profiles
from iotax.labs.vm import layers
from iotax.records import Call, Profile
from iotax.records.cpu import Role
from iotax.report.charts import families_used, flame_graphs, instructions
from iotax.report.page import Page
from iotax.soundness import unsound
from iotax.trial import TrialResult
from iotax.wording.profile import FAMILIES
from report.factory import Simulation, study, write_notebook

LAYERS = {
    "nfs3": {"NFS, RPC": {"rpc_run_task [sunrpc]": 3000}, "TCP/IP": {"tcp_ack": 1500, "tcp_v4_rcv": 500}},
    "iscsi": {"transport": {"iscsi_tcp_recv_skb [libiscsi_tcp]": 4000}, "TCP/IP": {"tcp_ack": 1000}},
    "local": {"copies": {"memcpy": 700}},
}
"""Instructions per I/O."""


def profile(protocol: str, ios: int, host: str, role: Role, times: int = 1) -> Profile:
    layers = {
        layer: {name: times * count * ios for name, count in own.items()} for layer, own in LAYERS[protocol].items()
    }
    calls = [Call(caller=-1, layer="scheduling, wake-ups", function="worker_thread", instructions=0)]
    calls += [
        Call(caller=0, layer=layer, function=name, instructions=count)
        for layer, own in layers.items()
        for name, count in own.items()
    ]
    copied = {"TCP/IP": {"tcp_ack": times * 4096 * ios}}
    return Profile(host=host, role=role, ios=ios, layers=layers, calls=tuple(calls), copied_bytes=copied)


def profiled(*, apart: bool) -> StudyData:
    """Initiator and target in separate guests if `apart`, else in one guest."""
    data = Simulation().data(study(factors={"protocol": ["iscsi", "nfs3", "local"], "outstanding": [8]}))
    attempts = []
    for each in data.attempts:
        assert each.result is not None
        protocol, ios = str(each.trial.treatment["protocol"]), each.result.ios
        role: Role = "initiator" if apart or protocol == "local" else "both"
        found = [profile(protocol, ios, "initiator guest", role)]
        if apart and protocol != "local":
            found.append(profile(protocol, 2 * ios, "storage guest", "target", times=2))
        result = each.result.model_copy(update={"profile": tuple(found)})
        attempts.append(each.model_copy(update={"result": result}))
    return replace(data, attempts=attempts)


def test_a_profile_is_a_mean_over_runs_for_each_io() -> None:
    found = {each.arm: each for each in cell_profiles(summarise(profiled(apart=False)).cells)}
    nfs = found["nfs3"]
    assert nfs.instructions == pytest.approx(5000)
    assert nfs.layers == {"NFS, RPC": pytest.approx(3000), "TCP/IP": pytest.approx(2000)}
    assert [name for _, name in nfs.functions] == ["rpc_run_task [sunrpc]", "tcp_ack", "tcp_v4_rcv"]
    assert (found["local"].role, nfs.role) == ("initiator", "both")


def test_a_target_of_its_own_is_divided_by_the_ios_it_was_counted_over() -> None:
    found = [each for each in cell_profiles(summarise(profiled(apart=True)).cells) if each.arm == "iscsi"]
    assert [(each.role, each.instructions) for each in found] == [
        ("initiator", pytest.approx(5000)),
        ("target", pytest.approx(10_000)),
    ]


def printed(data: StudyData, width: int) -> str:
    out = io.StringIO()
    print_profiles(Console(file=out, width=width), summarise(data))
    return out.getvalue()


def test_a_terminal_has_a_table_with_the_largest_layer_first() -> None:
    said = printed(profiled(apart=False), 80)
    assert "Instructions per I/O by layer, initiator and target together, outstanding 8:" in said
    rows = [line.split() for line in said.splitlines()]
    assert ["iSCSI", "NFSv3", "Local"] in rows
    assert rows.index(["transport", "4,000", "0", "0"]) < rows.index(["TCP/IP", "1,000", "2,000", "0"])
    assert ["all", "5,000", "5,000", "700"] in rows
    assert "NFSv3: rpc_run_task [sunrpc] 3,000, tcp_ack 1,500, tcp_v4_rcv 500" in said
    assert "copies weigh more than on a processor" in said
    apart = printed(profiled(apart=True), 80)
    assert "by layer, initiator, outstanding 8:" in apart
    assert "by layer, target, outstanding 8:" in apart


def test_a_table_that_is_too_wide_is_divided_and_no_figure_is_cut() -> None:
    narrow = printed(profiled(apart=False), 24)
    tables = narrow.partition("Largest")[0].splitlines()
    assert max(map(len, tables)) <= 24
    assert narrow.count("transport ") == 3
    assert "5,000" in narrow
    assert printed(Simulation().data(study()), 80) == ""


def test_a_page_has_the_same_figures_with_their_shares() -> None:
    summary = summarise(profiled(apart=False))
    page = Page(summary, "n.iotax").html()
    assert "<h3>Instructions by layer, initiator and target together, outstanding 8</h3>" in page
    assert '<td class="num ">4,000<small>80.0 %</small></td>' in page
    assert "rpc_run_task [sunrpc]<small>NFS, RPC</small>" in page
    plain = summarise(Simulation().data(study()))
    assert "Instructions by layer" not in Page(plain, "n.iotax").html()


def test_each_bar_is_stacked_by_groups_of_layers_on_one_scale() -> None:
    assert sorted(layer for own in FAMILIES.values() for layer in own) == sorted(layers.LAYERS)
    summary = summarise(profiled(apart=True))
    initiator, target = instructions(summary)
    assert [each.title for each in (initiator, target)] == ["Initiator, outstanding 8", "Target, outstanding 8"]
    assert "NFSv3: Storage protocol and target 3,000, TCP/IP, network 2,000" in initiator.description
    assert "Storage protocol and target 6,000, TCP/IP, network 4,000" in target.description
    scales = [each.draw(400)["layer"][0]["encoding"]["x"]["scale"]["domain"] for each in (initiator, target)]
    assert scales[0] == scales[1] == [0.0, pytest.approx(12_720)]
    assert [name for name, _ in families_used(summary)] == [
        "Storage protocol and target", "TCP/IP, network", "Copies, checksums, crypto",
    ]  # fmt: skip
    page = Page(summary, "n.iotax").html()
    assert "<h3>Where the instructions go</h3>" in page
    assert instructions(summarise(Simulation().data(study()))) == []


def test_a_flame_graph_has_a_box_for_each_function_above_its_caller() -> None:
    summary = summarise(profiled(apart=True))
    drawn = flame_graphs(summary)
    assert [each.title for each in drawn] == [
        "iSCSI, initiator, outstanding 8",
        "NFSv3, initiator, outstanding 8",
        "Local, initiator, outstanding 8",
        "iSCSI, target, outstanding 8",
        "NFSv3, target, outstanding 8",
    ]
    assert "Widest: worker_thread 5,000, rpc_run_task [sunrpc] 3,000" in drawn[1].description
    bars = drawn[1].draw(1000)["layer"][0]["data"]["values"]
    assert [(bar["x"], bar["x2"], int(bar["y"]), bar["part"]) for bar in bars] == [
        (0.0, pytest.approx(5000), 0, "Scheduling, locks, interrupts"),
        (0.0, pytest.approx(3000), 1, "Storage protocol and target"),
        (pytest.approx(3000), pytest.approx(4500), 1, "TCP/IP, network"),
        (pytest.approx(4500), pytest.approx(5000), 1, "TCP/IP, network"),
    ]
    assert bars[1]["say"] == "rpc_run_task [sunrpc]: 3,000 instructions, 60.0 %, NFS, RPC"
    texts = [each["text"] for each in drawn[1].draw(120)["layer"][1]["data"]["values"]]
    assert texts[0] == "worker_thread"
    assert texts[1].endswith("…")
    page = Page(summary, "n.iotax").html()
    assert "<summary>Calls, as flame graphs</summary>" in page
    assert flame_graphs(summarise(Simulation().data(study()))) == []


def test_bytes_copied_stand_below_the_instructions() -> None:
    data = profiled(apart=False)
    rows = [line.split() for line in printed(data, 80).splitlines()]
    assert ["bytes", "copied", "4,096", "4,096", "4,096"] in rows
    summary = summarise(data)
    page = Page(summary, "n.iotax").html()
    assert "<summary>Memory</summary>" in page
    assert "Cache lines" not in page.partition("<summary>Memory</summary>")[2].partition("<p")[0]


def test_the_json_has_every_function(tmp_path: Path) -> None:
    notebook = write_notebook(tmp_path / "n.iotax", profiled(apart=True))
    done = ran("show", notebook, "--json")
    document: dict[str, Any] = json.loads(done.stdout)
    assert documented()["show"] >= {"profiles"}
    profiles: list[Mapping[str, Any]] = document["profiles"]
    [target] = [each for each in profiles if (each["arm"], each["role"]) == ("nfs3", "target")]
    assert (target["host"], target["instructions_per_io"]) == ("storage guest", pytest.approx(10_000))
    assert target["layers"] == {"NFS, RPC": pytest.approx(6000), "TCP/IP": pytest.approx(4000)}
    assert target["functions"][0] == {
        "layer": "NFS, RPC",
        "function": "rpc_run_task [sunrpc]",
        "instructions_per_io": pytest.approx(6000),
    }
    assert target["calls"][:2] == [
        {
            "caller": None,
            "layer": "scheduling, wake-ups",
            "function": "worker_thread",
            "instructions_per_io": pytest.approx(10_000),
        },
        {
            "caller": 0,
            "layer": "NFS, RPC",
            "function": "rpc_run_task [sunrpc]",
            "instructions_per_io": pytest.approx(6000),
        },
    ]
    assert target["copied_bytes"] == [
        {"layer": "TCP/IP", "function": "tcp_ack", "copied_bytes_per_io": pytest.approx(8192)}
    ]
    assert target["cache_lines"] == []


@pytest.mark.parametrize(
    "wrong",
    [
        Profile(host="g", role="both", ios=-1.0),
        Profile(host="g", role="both", ios=1, layers={"a": {"f": -5}}),
        Profile(host="g", role="both", ios=1, copied_bytes={"a": {"f": -5}}),
        Profile(host="g", role="both", ios=1, calls=(Call(caller=-1, layer="a", function="f", instructions=-1),)),
        # A caller that comes later could form a loop.
        Profile(host="g", role="both", ios=1, calls=(Call(caller=0, layer="a", function="f", instructions=1),)),
    ],
)
def test_a_strangers_profile_with_figures_of_no_measurement_is_named(wrong: Profile) -> None:
    result = profiled(apart=False).attempts[0].result
    assert isinstance(result, TrialResult)
    assert unsound(result) == ""
    assert unsound(result.model_copy(update={"profile": (wrong,)})).startswith("profile[0]")


def after(data: StudyData, *, scatter: bool) -> StudyData:
    """The same runs, but an iSCSI I/O takes 2,000 more instructions in one function, and 100 in a new one. It copies
    256 bytes more."""
    attempts = []
    for number, each in enumerate(data.attempts):
        assert each.result is not None
        if each.trial.treatment["protocol"] == "iscsi":
            [found] = each.result.profile
            ios = each.result.ios
            layers = {layer: dict(own) for layer, own in found.layers.items()}
            layers["TCP/IP"]["tcp_ack"] += ios * (2000 + (number if scatter else 0))
            layers["copies"] = {"memcpy": 100 * ios}
            copied = {"TCP/IP": {"tcp_ack": (4096 + 256) * ios}}
            profile = found.model_copy(update={"layers": layers, "copied_bytes": copied})
            result = each.result.model_copy(update={"profile": (profile,)})
            attempts.append(each.model_copy(update={"result": result}))
        else:
            attempts.append(each)
    return replace(data, attempts=attempts)


def test_functions_are_ranked_by_what_they_changed() -> None:
    old = profiled(apart=False)
    found = {each.treatment: each for each in changes(old, after(old, scatter=True), 2.0).profiles}
    iscsi = next(each for name, each in found.items() if "iscsi" in name)
    more, new = iscsi.functions[:2]
    assert (more.layer, more.function, more.before) == ("TCP/IP", "tcp_ack", pytest.approx(1000))
    assert more.low is not None and more.high is not None
    assert 1900 < more.low < more.more < more.high < 2100
    assert (new.function, new.before, new.after) == ("memcpy", 0.0, pytest.approx(100))
    assert [each.layer for each in iscsi.layers] == ["TCP/IP", "copies", "transport"]
    assert iscsi.total.more == pytest.approx(sum(each.more for each in iscsi.functions))
    others = [one for name, each in found.items() if "iscsi" not in name for one in each.functions]
    assert others
    assert {one.more for one in others} == {0.0}


def test_compare_names_the_functions_on_the_terminal_and_in_the_json(tmp_path: Path) -> None:
    old = profiled(apart=False)
    before, later = (
        write_notebook(tmp_path / f"{name}.iotax", data)
        for name, data in (("before", old), ("after", after(old, scatter=False)))
    )
    # Only these figures of the second notebook differ.
    brief, long = ran("compare", before, later), ran("compare", before, later, "--long")
    assert "iSCSI · 8: 5,000 → 7,100 instructions per I/O, +2,100 [+2,100, +2,100]" in brief.stdout
    assert "most in TCP/IP +2,000; copies +100" in brief.stdout
    assert "tcp_ack" in long.stdout
    assert "copies" in long.stdout
    assert "of 100 unchanged functions, about 5 seem to" in long.stdout
    assert "emulator counts each step of a string instruction" in long.stdout
    assert "Copies count more than on a processor" in brief.stdout
    document = json.loads(ran("compare", before, later, "--json").stdout)
    [iscsi] = [each for each in document["profiles"] if "iscsi" in each["treatment"]]
    assert (iscsi["before"], iscsi["after"]) == (pytest.approx(5000), pytest.approx(7100))
    assert iscsi["functions"][0]["function"] == "tcp_ack"
    assert iscsi["functions"][0]["difference"] == pytest.approx(2000)


def test_compare_has_the_bytes_copied_and_what_they_include(tmp_path: Path) -> None:
    old = profiled(apart=False)
    before, later = (
        write_notebook(tmp_path / f"{name}.iotax", data)
        for name, data in (("before", old), ("after", after(old, scatter=False)))
    )
    said = ran("compare", before, later, "--long").stdout
    assert ["Bytes", "copied", "4,096", "4,352", "+256", "[+256,", "+256]"] in [
        line.split() for line in said.splitlines()
    ]
    assert "Copies within programs" in said
    document = json.loads(ran("compare", before, later, "--json").stdout)
    [iscsi] = [each for each in document["profiles"] if "iscsi" in each["treatment"]]
    assert list(iscsi["memory"]) == ["copied_bytes"], "cache lines were not counted"
    assert iscsi["memory"]["copied_bytes"]["difference"] == pytest.approx(256)
    for name in ("page.html", "page.md"):
        ran("compare", before, later, "--output", str(tmp_path / name))
        assert "Bytes copied" in (tmp_path / name).read_text()


def test_what_one_side_did_not_count_is_not_compared() -> None:
    old = profiled(apart=False)
    attempts = []
    for each in old.attempts:
        assert each.result is not None
        plain = tuple(one.model_copy(update={"copied_bytes": {}}) for one in each.result.profile)
        attempts.append(each.model_copy(update={"result": each.result.model_copy(update={"profile": plain})}))
    found = changes(old, replace(old, attempts=attempts), 2.0).profiles
    assert found
    assert all(each.memory == {} for each in found)


def test_two_levels_of_one_run_are_compared_by_function(tmp_path: Path) -> None:
    notebook = write_notebook(tmp_path / "n.iotax", profiled(apart=False))
    document = json.loads(ran("compare", "iscsi", "nfs3", notebook, "--json").stdout)
    [only] = document["profiles"]
    assert only["functions"][0]["function"] == "iscsi_tcp_recv_skb [libiscsi_tcp]"
    assert only["functions"][0]["difference"] == pytest.approx(-4000)


def test_a_page_shows_layers_functions_and_calls_of_both_sides(tmp_path: Path) -> None:
    notebook = write_notebook(tmp_path / "n.iotax", profiled(apart=False))
    ran("compare", "iscsi", "nfs3", notebook, "--output", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert "<h2>Where the instructions go</h2>" in page
    assert 'aria-label="Instructions per I/O by layer. outstanding 8: 5,000 → 5,000 instructions per I/O, 0' in page
    functions = page.partition("functions that changed most</summary>")[2].partition("</details>")[0]
    assert functions.index("iscsi_tcp_recv_skb [libiscsi_tcp]") < functions.index("tcp_v4_rcv")
    before, after = page.split('<svg class="flame"')[1:]
    assert "Calls of an I/O, iscsi" in before
    assert "Calls of an I/O, nfs3" in after
    # Each side shows its own calls, with the difference from the other side.
    gone = "iscsi_tcp_recv_skb [libiscsi_tcp]: 4,000 → 0 instructions per I/O; transport"
    new = "rpc_run_task [sunrpc]: 0 → 3,000 instructions per I/O; NFS, RPC"
    assert (gone in before, gone in after, new in before, new in after) == (True, False, False, True)
    assert 'class="less2" x="0.0"' in before
    assert 'class="more2" x="0.0"' in after
    assert all("tcp_ack: 1,000 → 1,500 instructions per I/O; TCP/IP" in side for side in (before, after))


def test_a_pull_request_folds_layers_and_functions(tmp_path: Path) -> None:
    notebook = write_notebook(tmp_path / "n.iotax", profiled(apart=False))
    ran("compare", "iscsi", "nfs3", notebook, "--output", str(tmp_path / "page.md"))
    text = (tmp_path / "page.md").read_text()
    assert "<details><summary>outstanding 8: 5,000 → 5,000 instructions per I/O" in text
    assert "| iscsi\\_tcp\\_recv\\_skb \\[libiscsi\\_tcp\\] | 4,000 | 0 | −4,000" in text
