"""Studies of the hosts lab: what is refused before any host is contacted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from iotax.design import plan
from iotax.labs.load import options
from iotax.study import Study
from iotax.study.facts import planned_facts
from iotax.study.read import load_study, read_study
from iotax.study.rules import broken_rules
from iotax.study.source import StudyError

ROOT = Path(__file__).resolve().parents[3]
TARGET = {"name": "t", "address": "10.0.0.5"}


def study(hosts: dict[str, Any], **more: Any) -> Study:
    document: dict[str, Any] = {
        "name": "x",
        "question": "?",
        "lab": {"hosts": hosts},
        "volume": {"size": "8MiB"},
        "factors": {"protocol": ["iscsi", "nvme-tcp"]},
        "baseline": {"protocol": "iscsi"},
    }
    return Study.model_validate(document | more)


def broken(of: Study) -> list[str]:
    return [reason for _, reason in broken_rules(of)]


def test_names_and_descriptions_of_hosts_mean_the_same() -> None:
    given = study({"initiators": ["h1", {"name": "h2", "user": "joe", "via": "gate"}], "targets": [TARGET]})
    assert broken(given) == []
    assert given.lab.name == "hosts"
    assert given.lab.hosts is not None
    assert [(host.name, host.user) for host in given.lab.hosts.hosts()] == [("h1", None), ("h2", "joe"), ("t", None)]


@pytest.mark.parametrize(
    ("hosts", "more", "said"),
    [
        ({"initiators": ["h1"]}, {}, "an embedded protocol needs a host that serves it"),
        ({"initiators": ["h1"], "targets": ["storage"]}, {}, "say the IP address on which the first one serves"),
        ({"initiators": ["h1", "h1"], "targets": [TARGET]}, {}, "h1 is named twice"),
        (
            {"initiators": ["h1"], "targets": [TARGET]},
            {"load": {"clients": 2}},
            "2 clients, but the lab has 1 initiators",
        ),
        (
            {"initiators": ["h1"], "targets": [TARGET]},
            {"factors": {"protocol": ["local", "iscsi"]}},
            "the hosts lab has no volume without a protocol",
        ),
    ],
)
def test_what_cannot_run_is_refused_with_its_reason(hosts: dict[str, Any], more: dict[str, Any], said: str) -> None:
    assert any(said in reason for reason in broken(study(hosts, **more)))


NVME, ISCSI = "kernel:nvme-tcp://10.0.0.5/nqn.x?ns=1", "kernel:iscsi://10.0.0.5/iqn.x/0"
IN_TURNS: dict[str, Any] = {
    "design": {"sessions": 2, "rounds": 4},
    "factors": {"protocol": {"a": NVME, "b": ISCSI}},
    "baseline": {"protocol": "a"},
}
HOOK = {"host": "h1", "run": "true"}


@pytest.mark.parametrize(
    ("hosts", "more", "said"),
    [
        (
            {},
            {"factors": IN_TURNS["factors"] | {"mtu": [1500, 9000]}},
            "one way: mtu has 2 levels; say `hard_to_change: [mtu]`",
        ),
        ({}, {"factors": {"protocol": {"a": NVME, "b": f"{NVME}&queues=2"}}}, "connects nqn.x once, for nvme-tcp"),
        ({"hooks": [HOOK | {"at": "before trial"}]}, {}, "a session has no before trial"),
        (
            {"hooks": [HOOK | {"at": "before level", "levels": {"protocol": "b"}}]},
            {},
            "say `hard_to_change: [protocol]`",
        ),
        ({"hypervisors": ["hv"]}, {}, "a hypervisor is read over runs"),
        ({}, {"load": {"generator": "pgbench", "oltp": {}, "workers": 2}}, "a database starts anew for each trial"),
        ({}, {"load": {"generator": "fio", "verify": False}}, "fio starts anew for each trial"),
        (
            {"targets": [TARGET]},
            {
                "factors": {"protocol": ["iscsi", "nvme-tcp"], "size": ["8MiB", "16MiB"]},
                "baseline": {"protocol": "iscsi"},
            },
            "share the server of the lab",
        ),
        ({}, {"search": {"percentile": 99, "latency_max": "2ms"}}, "runs on loopback only"),
    ],
)
def test_what_a_session_on_hosts_cannot_hold_is_refused(hosts: dict[str, Any], more: dict[str, Any], said: str) -> None:
    found = broken(study({"initiators": ["h1"]} | hosts, **IN_TURNS | more))
    assert any(said in reason for reason in found), found


@pytest.mark.parametrize(
    ("hosts", "more"),
    [
        ({}, {}),
        ({}, {"factors": {"protocol": {"a": NVME, "b": ISCSI}, "outstanding": [1, 8]}}),
        ({"hooks": [HOOK | {"at": "before block"}]}, {}),
        ({"initiators": ["h1", "h2"]}, {"factors": {"protocol": {"a": NVME, "b": ISCSI}, "clients": [1, 2]}}),
        # Levels that cannot be in force at the same time are whole plots, with a session for each level.
        (
            {},
            {
                "factors": IN_TURNS["factors"] | {"mtu": [1500, 9000]},
                "design": {"rounds": 4, "hard_to_change": ["mtu"]},
            },
        ),
        (
            {},
            {
                "factors": {"protocol": {"a": NVME, "b": f"{NVME}&queues=2"}, "outstanding": [1, 8]},
                "design": {"rounds": 4, "hard_to_change": ["protocol"]},
            },
        ),
        (
            {"hooks": [HOOK | {"at": "before level", "levels": {"protocol": "b"}}]},
            {
                "factors": {"protocol": {"a": NVME, "b": ISCSI}, "outstanding": [1, 8]},
                "design": {"rounds": 4, "hard_to_change": ["protocol"]},
            },
        ),
        # One file over two versions of NFS is not multipath.
        ({}, {"factors": {"protocol": {"a": "kernel:nfs://n/e/f?vers=3", "b": "kernel:nfs://n/e/f?vers=4.1"}}}),
    ],
)
def test_what_stands_side_by_side_on_hosts_is_measured_in_turns(hosts: dict[str, Any], more: dict[str, Any]) -> None:
    assert broken(study({"initiators": ["h1"]} | hosts, **IN_TURNS | more)) == []


def test_the_number_of_the_client_stands_in_endpoints_of_hosts_only() -> None:
    factors = {"protocol": {"a": "nfs://10.0.1.5/vol/data{client}", "b": "nvme-tcp://10.0.1.5/nqn.x?ns={client}"}}
    baseline = {"protocol": "a"}
    own = study({"initiators": ["h1", "h2"]}, factors=factors, baseline=baseline)
    assert broken(own) == []
    assert own.endpoints()["b"].uri.endswith("ns={client}")
    here = Study.model_validate(own.model_dump(mode="json") | {"lab": "loopback"})
    assert any("{client} numbers the initiators" in reason for reason in broken(here))


GUESTS = """\
name: x
question: "?"
lab: {lab}
volume: {{size: 8MiB}}
factors:
  protocol:
    NFS datastore: "guest-disk://{serial}"
    iSCSI datastore: "guest-disk://iscsi01"
baseline: {{protocol: NFS datastore}}
"""
ON_HOSTS = "{hosts: {initiators: [h1, h2]}}"


@pytest.mark.parametrize("lab", ["loopback", "vm", "sim"])
def test_other_labs_refuse_a_disk_by_its_serial_number_with_its_place(lab: str, tmp_path: Path) -> None:
    with pytest.raises(StudyError) as refused:
        read_study("x.yaml", GUESTS.format(lab=lab, serial="nfs01"), tmp_path)
    said = f"the {lab} lab finds no disk by its serial number; the initiators of `lab: {{hosts: …}}` do"
    assert f"x.yaml:7:5: factors.protocol.NFS datastore: {said}" in str(refused.value)
    assert str(refused.value).count("NFS datastore") == 1


@pytest.mark.parametrize(
    ("serial", "said"),
    [
        ("", "the serial number is missing; write guest-disk://SERIAL"),
        (
            "nfs01; reboot",
            "a serial number consists of letters, digits, the characters _ . + - and spaces between them",
        ),
        ("$(reboot)", "a serial number consists of letters"),
        (" nfs01", "a serial number consists of letters"),
        ("n" * 65, "the serial number has 65 characters; at most 64 are possible"),
    ],
)
def test_a_serial_number_that_no_hypervisor_gives_is_refused_with_its_place(
    serial: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(StudyError) as refused:
        read_study("x.yaml", GUESTS.format(lab=ON_HOSTS, serial=serial), tmp_path)
    assert "x.yaml:7:5: factors.protocol.NFS datastore" in str(refused.value)
    assert said in str(refused.value)


@pytest.mark.parametrize("generator", ["iotax", "fio"])
def test_a_disk_by_its_serial_number_takes_the_load_of_any_generator(generator: str) -> None:
    factors = {"protocol": {"a": "guest-disk://nfs01"}}
    load = {"generator": generator, "verify": False}
    assert broken(study({"initiators": ["h1"]}, factors=factors, load=load, baseline={"protocol": "a"})) == []


def test_databases_of_several_guests_need_a_disk_each() -> None:
    def said(serial: str) -> list[str]:
        factors = {"protocol": {"a": f"guest-disk://{serial}"}}
        load = {"generator": "pgbench", "oltp": {}, "workers": 2, "working_set": "1GiB"}
        more: dict[str, Any] = {"factors": factors, "load": load, "baseline": {"protocol": "a"}}
        return broken(study({"initiators": ["h1", "h2"]}, volume={"size": "4GiB"}, **more))

    assert any("each host has a database of its own; say {client}" in each for each in said("nfs01"))
    assert not any("{client}" in each for each in said("nfs0{client}"))


def test_the_lab_says_who_takes_part() -> None:
    from iotax.study.asked import asked

    said = str(list(asked(study({"initiators": ["h1", "h2"], "targets": [TARGET]}))))
    assert "hosts (initiators h1, h2; targets t; driver auto)" in said


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        ({"at": "before trial", "host": "h9", "run": "true"}, "the lab has no host h9; its hosts are h1, t"),
        ({"at": "before block", "host": "t", "run": "true", "levels": {"protocol": "iscsi"}}, "not of one treatment"),
        ({"at": "before level", "host": "t", "run": "true"}, "before level needs the levels that it belongs to"),
        ({"at": "after trial", "host": "t", "run": "true", "levels": {"protocol": "nfs3"}}, "nfs3 is not a level of"),
        ({"at": "after trial", "host": "t", "run": "true", "levels": {"mtu": 1}}, "not a factor of this study"),
    ],
)
def test_a_hook_names_a_host_and_levels_that_are_there(hook: dict[str, Any], said: str) -> None:
    assert any(said in reason for reason in broken(study({"initiators": ["h1"], "targets": [TARGET], "hooks": [hook]})))


def test_a_hook_may_run_on_a_host_that_takes_no_other_part() -> None:
    hook = {"at": "before block", "host": {"name": "array", "user": "admin"}, "run": "snap restore", "timeout": "5min"}
    given = study({"initiators": ["h1"], "targets": [TARGET], "hooks": [hook]})
    assert broken(given) == []
    assert given.lab.hosts is not None
    [found] = given.lab.hosts.hooks
    assert given.lab.hosts.hook_host(found).user == "admin"
    assert given.lab.hosts.hook_host(found.model_copy(update={"host": "t"})).address == "10.0.0.5"


STUDY = """\
name: x
question: "?"
lab: {{hosts: {hosts}}}
volume: {{size: 8MiB}}
factors: {{protocol: [iscsi, nvme-tcp]}}
baseline: {{protocol: iscsi}}
"""
INVENTORY = """\
initiators: [h1, {name: h2, user: joe}]
targets: [{name: t, address: 10.0.0.5}]
"""


@pytest.mark.parametrize("hosts", ["site.yaml", "{inventory: site.yaml}"])
def test_an_inventory_means_what_it_holds(tmp_path: Path, hosts: str) -> None:
    (tmp_path / "site.yaml").write_text(INVENTORY)
    lab = read_study("x", STUDY.format(hosts=hosts), tmp_path).lab.hosts
    assert lab is not None
    assert [host.name for host in lab.hosts()] == ["h1", "h2", "t"]


def test_a_study_says_something_of_its_own_beside_its_inventory(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(INVENTORY)
    hosts = "{inventory: site.yaml, initiators: [h7], hooks: [{at: before block, host: t, run: 'true'}]}"
    lab = read_study("x", STUDY.format(hosts=hosts), tmp_path).lab.hosts
    assert lab is not None
    assert [host.name for host in lab.hosts()] == ["h7", "t"]
    assert len(lab.hooks) == 1


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (None, "cannot be read: "),
        ("- h1", "an inventory is a mapping with `initiators:`"),
        ("initiators: [h1", "site.yaml:1"),
        ("initiators: []", "lab.hosts.initiators"),
    ],
)
def test_an_inventory_that_is_none_is_named(tmp_path: Path, written: str | None, said: str) -> None:
    if written is not None:
        (tmp_path / "site.yaml").write_text(written)
    with pytest.raises(StudyError) as refused:
        read_study("x.yaml", STUDY.format(hosts="site.yaml"), tmp_path)
    assert said in str(refused.value)
    assert "x.yaml:3" in str(refused.value)


INVENTORIES = ("site.yaml", "site-esxi.yaml", "site-kvm.yaml")
EXAMPLES = sorted(each for each in (ROOT / "examples" / "hosts").glob("*.yaml") if each.name not in INVENTORIES)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_can_be_planned_on_their_inventory(path: Path) -> None:
    given, _ = load_study(str(path))
    assert given.lab.hosts is not None
    clients = {given.settings(trial.treatment).load.clients for trial in plan(given).trials}
    # The OLTP study varies the clients; every other study uses all its hosts.
    assert max(clients) == len(given.lab.hosts.initiators)
    assert (given.factors.clients is not None) == (len(clients) > 1)
    trials = plan(given).trials
    stacks = {planned_facts(given, given.settings(trial.treatment)).stack for trial in trials}
    assert stacks == {"kernel"}
    # Each host has its own unit, by its number or as a device of the host.
    uris = {given.settings(trial.treatment).endpoint.uri for trial in trials}
    assert all("{client}" in uri or uri.startswith("local:/dev/disk/by-id/") for uri in uris)


def test_there_is_an_example_for_every_published_study_of_hosts_and_every_hypervisor() -> None:
    assert [path.stem for path in EXAMPLES] == [
        "fcp-or-fc-nvme-database",
        "fcp-or-fc-nvme",
        "ip-or-fc",
        "kubevirt",
        "libvirt-one-disk",
        "libvirt",
        "nfs-or-fc-cpu",
        "nfs-or-iscsi",
        "proxmox",
        "tr-3808",
    ]


def test_the_studies_of_the_guides_are_well_formed(tmp_path: Path) -> None:
    guides = [ROOT / "docs" / "guide" / f"{name}.md" for name in ("hosts", "hosts-clusters", "hosts-paths")]
    whole, *parts = [
        yaml.safe_load(block)
        for guide in guides
        for block in re.findall(r"```yaml\n(.*?)```", guide.read_text(), re.DOTALL)
    ]
    assert len(parts) > 6
    for part in parts:
        own = part if {"lab", "factors"} & set(part) else {"lab": {"hosts": part}}
        hosts = {**whole["lab"]["hosts"], **own.get("lab", {}).get("hosts", {})}
        devices = {"FC": "/dev/x", "b": "/dev/y"}
        protocols = own.get("factors", whole["factors"]).get("protocol", devices)
        if "hooks" in hosts or "steady_state" in own:
            protocols = devices
        given = {**whole, **own, "lab": {"hosts": hosts}, "factors": {"protocol": protocols}}
        given["baseline"] = {"protocol": next(iter(protocols))}
        assert read_study("guide.yaml", yaml.safe_dump(given), tmp_path).lab.hosts is not None


def test_hosts_use_several_portals_of_an_endpoint_by_the_study_s_policy() -> None:
    more: dict[str, Any] = {
        "factors": {"protocol": {"array": "iscsi://10.0.0.5,10.0.1.5/iqn.2026-11.x:y/0"}},
        "baseline": {"protocol": "array"},
    }
    given = study({"initiators": ["h1"]}, **more, topology={"path_policy": "round-robin"})
    assert broken(given) == []
    assert options(given.settings({"protocol": "array"}))["path_policy"] == "round-robin"
    refused = study({"initiators": ["h1"]}, **more, topology={"path_policy": "numa"})
    assert broken(refused) == ["iotax's own initiators have fixed, round-robin, queue-depth"]
