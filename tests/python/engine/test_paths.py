"""A load over several portals of one volume, of which one falls silent."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine_process import completed, events, ready, started

MIB = 1 << 20
WITH_ACCESS = ("iscsi", "nvme-tcp")
PROTOCOLS = (*WITH_ACCESS, "nfs4.1")


class Served:
    """A server of one volume with two portals for each protocol."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.portals: list[dict[str, Any]] = ready(process)["portals"]

    def addresses(self, protocol: str) -> list[str]:
        return [each["address"] for each in self.portals if each["protocol"] == protocol]

    def endpoint(self, protocol: str) -> str:
        first = next(each for each in self.portals if each["protocol"] == protocol)
        endpoint: str = first["endpoint"]
        return endpoint.replace(first["address"], ",".join(self.addresses(protocol)))

    def command(self, command: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def silence(self, address: str, silent: bool) -> None:
        command = {"command": "silence", "portal": address, "silent": silent}
        assert self.command(command) == {"event": "silenced", "portal": address, "silent": silent}

    def set_access(self, address: str, state: str) -> None:
        command = {"command": "access", "portal": address, "state": state}
        assert self.command(command) == {"event": "access", "portal": address, "state": state}


@contextmanager
def served(engine: Path, size_bytes: int = 8 * MIB, **iscsi: str) -> Iterator[Served]:
    options = {"iscsi": iscsi}
    document = {
        "volumes": [{"name": "v0", "media": "memory", "size_bytes": size_bytes, "fill": "pattern", "seed": 1}],
        "exports": [
            {"protocol": each, "listen": "127.0.0.1:0", "volume": "v0"} | options.get(each, {})
            for each in (*PROTOCOLS, *PROTOCOLS)
        ],
    }
    with started(engine, "serve", document) as process:
        yield Served(process)
        assert process.stdin
        process.stdin.close()


def load(endpoint: str, runtime_ns: int, **options: object) -> dict[str, Any]:
    return {
        "task": "run",
        "endpoint": endpoint,
        "options": options,
        "workers": 2,
        "outstanding": 4,
        "read_percent": 50,
        "verify": True,
        "filled": True,
        "runtime_ns": runtime_ns,
    }


def result_of(told: list[dict[str, Any]]) -> dict[str, Any]:
    assert told[-1]["event"] == "result", told[-1]
    assert (told[-1]["checks"]["errors"], told[-1]["verify"]["wrong_blocks"]) == (0, 0)
    return told[-1]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("policy", "even"), [("fixed", False), ("round-robin", True), ("queue-depth", False)])
def test_policy_decides_which_paths_carry_the_load(real_engine: Path, protocol: str, policy: str, even: bool) -> None:
    with served(real_engine) as server:
        told = completed(real_engine, load(server.endpoint(protocol), 500_000_000, path_policy=policy))
        paths = result_of([told])["paths"]
    assert (paths["policy"], paths["even"]) == (policy, even)
    assert [each["name"] for each in paths["used"]] == server.addresses(protocol)
    first, second = (each["ios"] for each in paths["used"])
    if policy == "fixed":
        assert first > 0 and second == 0
    else:
        assert first > 0 and second > 0
    if even:
        assert abs(first - second) <= 8, "each worker takes turns"
    assert [(each["losses"], each["lost"], each["down_ns"]) for each in paths["used"]] == [(0, 0, 0)] * 2


def test_what_is_read_back_is_no_work_of_the_paths(real_engine: Path) -> None:
    with served(real_engine) as server:
        asked = load(server.endpoint("nvme-tcp"), 1_000_000_000, path_policy="round-robin")
        alone = {"workers": 1, "outstanding": 1, "block_size_bytes": 4096, "read_percent": 0, "read_back": True}
        told = result_of(events(real_engine, asked | alone))
    read_back = told["verify"]["read_back_blocks"] * 512 // 4096
    written = sum(each["ios"] for each in told["paths"]["used"])
    # One or two writes may complete outside the window.
    assert 0 <= written - told["write"]["ios"] < read_back


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.slow
def test_load_goes_on_over_the_other_path_and_returns(real_engine: Path, protocol: str) -> None:
    with served(real_engine) as server:
        asked = load(server.endpoint(protocol), 8_000_000_000, keep_alive_ns=1_000_000_000)
        with started(real_engine, "load", asked) as process:
            assert process.stdout
            told = []
            for line in process.stdout:
                told.append(json.loads(line))
                if told[-1]["event"] == "started":
                    time.sleep(0.5)
                    server.silence(server.addresses(protocol)[0], silent=True)
                    time.sleep(3)
                    server.silence(server.addresses(protocol)[0], silent=False)
        result = result_of(told)
    first, second = result["paths"]["used"]
    assert first["losses"] >= 1 and first["lost"] > 0 and second["ios"] > 0, "it was in use, and the other carried on"
    assert first["down_ns"] > 0
    assert result["gaps"]["longest_ns"] >= 400_000_000, "nothing was noticed at once"


def test_portal_that_is_silent_from_the_start_is_named(real_engine: Path) -> None:
    with served(real_engine) as server:
        silent = server.addresses("iscsi")[1]
        server.silence(silent, silent=True)
        told = events(real_engine, load(server.endpoint("iscsi"), 500_000_000, keep_alive_ns=500_000_000))
    assert told[-1]["event"] == "error"
    assert told[-1]["where"].endswith(f"portal {silent}")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_portals_of_different_volumes_are_refused(real_engine: Path, protocol: str) -> None:
    with served(real_engine) as one, served(real_engine, 16 * MIB) as other:
        mixed = one.endpoint(protocol).replace(one.addresses(protocol)[1], other.addresses(protocol)[0])
        told = events(real_engine, load(mixed, 500_000_000))
    assert (told[-1]["event"], told[-1]["kind"]) == ("error", "wrong_kind")
    assert "its portals lead to different units" in told[-1]["message"]


def test_options_of_paths_need_several_portals(real_engine: Path) -> None:
    with served(real_engine) as server:
        endpoint = server.endpoint("iscsi").replace("," + server.addresses("iscsi")[1], "")
        for name, value in (("path_policy", "fixed"), ("path_retry", "at-once")):
            told = events(real_engine, load(endpoint, 500_000_000, **{name: value}))
            assert (told[-1]["kind"], told[-1]["where"]) == ("usage", f"options.{name}")


def test_portal_that_does_not_exist_cannot_be_silenced(real_engine: Path) -> None:
    with served(real_engine) as server:
        answer = server.command({"command": "silence", "portal": "127.0.0.1:1", "silent": True})
    assert (answer["event"], answer["kind"], answer["where"]) == ("error", "usage", "portal")


def test_portal_that_reports_no_access_states_has_none_to_set(real_engine: Path) -> None:
    with served(real_engine) as server:
        for address, said in (
            (server.addresses("iscsi")[0], "its target has one portal group; say `portal_groups: each` in its exports"),
            ("127.0.0.1:1", "there is no portal 127.0.0.1:1"),
        ):
            answer = server.command({"command": "access", "portal": address, "state": "inaccessible"})
            assert (answer["event"], answer["kind"], answer["where"]) == ("error", "usage", "portal")
            assert answer["message"] == said


@pytest.mark.parametrize(
    ("exports", "where", "said"),
    [
        ([{"protocol": "nvme-tcp", "portal_groups": "each"}], "exports.portal_groups", "have no such option"),
        (
            [{"protocol": "iscsi", "portal_groups": "each"}, {"protocol": "iscsi"}],
            "exports",
            "must have the same options",
        ),
    ],
)
def test_portal_groups_are_refused_where_they_have_no_meaning(
    real_engine: Path, exports: list[dict[str, str]], where: str, said: str
) -> None:
    document = {
        "volumes": [{"name": "v0", "media": "null", "size_bytes": MIB}],
        "exports": [{"listen": "127.0.0.1:0", "volume": "v0"} | each for each in exports],
    }
    told = events(real_engine, document, "serve")
    assert (told[-1]["event"], told[-1]["kind"], told[-1]["where"]) == ("error", "usage", where)
    assert said in told[-1]["message"]


@pytest.mark.parametrize("protocol", WITH_ACCESS)
def test_load_uses_the_paths_with_the_best_access_state(real_engine: Path, protocol: str) -> None:
    with served(real_engine, portal_groups="each") as server:
        first, second = server.addresses(protocol)
        for states, carriers in (
            (("non-optimized", "optimized"), [second]),
            (("non-optimized", "inaccessible"), [first]),
            (("non-optimized", "non-optimized"), [first, second]),
        ):
            for address, state in zip((first, second), states, strict=True):
                server.set_access(address, state)
            told = completed(real_engine, load(server.endpoint(protocol), 500_000_000, path_policy="round-robin"))
            used = result_of([told])["paths"]["used"]
            assert [each["name"] for each in used if each["ios"]] == carriers, states
            assert [each["refused"] for each in used] == [0, 0], "known before the first I/O"


def test_load_without_any_access_from_the_start_names_the_paths(real_engine: Path) -> None:
    with served(real_engine, portal_groups="each") as server:
        for address in server.addresses("iscsi"):
            server.set_access(address, "inaccessible")
        told = events(real_engine, load(server.endpoint("iscsi"), 500_000_000))
    assert told[-1]["event"] == "error"
    for address in server.addresses("iscsi"):
        assert f"the target gives no access over the path to {address}" in told[-1]["message"]


@pytest.mark.parametrize("protocol", WITH_ACCESS)
def test_load_leaves_a_path_that_becomes_inaccessible_and_returns(real_engine: Path, protocol: str) -> None:
    with served(real_engine, portal_groups="each") as server:
        first = server.addresses(protocol)[0]
        asked = load(server.endpoint(protocol), 4_000_000_000, keep_alive_ns=60_000_000_000)
        with started(real_engine, "load", asked) as process:
            assert process.stdout
            told = []
            for line in process.stdout:
                told.append(json.loads(line))
                if told[-1]["event"] == "started":
                    for _ in range(10):
                        server.set_access(first, "inaccessible")
                        time.sleep(0.1)
                        server.set_access(first, "optimized")
                        time.sleep(0.1)
        used = result_of(told)["paths"]["used"]
    assert all(each["ios"] > 0 and each["losses"] == 0 for each in used)
    # Each time, at most what was under way on it: two workers with four I/Os.
    assert (used[0]["refused"] <= 10 * 8, used[1]["refused"]) == (True, 0)


def test_session_counts_the_work_of_each_path(real_engine: Path) -> None:
    with served(real_engine) as server:
        loads = [
            {"id": each, "load": load(server.endpoint(each), 500_000_000, path_policy="round-robin")}
            for each in PROTOCOLS
        ]
        document = {"loads": loads, "rounds": [[0, 1, 2], [2, 1, 0]], "settle_ns": 20_000_000, "slice_ns": 500_000_000}
        told = events(real_engine, document, "session")
    results = [each for each in told if each["event"] == "result"]
    assert [each["id"] for each in results] == [*PROTOCOLS]
    for each in results:
        used = each["paths"]["used"]
        assert all(path["ios"] > 0 for path in used)
        assert sum(path["ios"] for path in used) >= sum(part["ios"] for part in each["slices"])
