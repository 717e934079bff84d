"""libiscsi's conformance suite against our iSCSI target, compared with conformance/iscsi-test-cu.expected."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import ROOT, program

EXPECTED = ROOT / "conformance" / "iscsi-test-cu.expected"
# Kinds of unit that the suite is run on; it looks for different things on each.
UNITS = ("memory", "file", "read-only")
Serve = Callable[[dict[str, Any]], dict[str, Any]]


def expectations() -> dict[str, dict[str, str]]:
    """By test: the verdict expected on each kind of unit."""
    expected: dict[str, dict[str, str]] = {}
    for line in EXPECTED.read_text().splitlines():
        words = line.partition("#")[0].split()
        if words:
            test, *verdicts = words
            assert len(verdicts) == len(UNITS), line
            expected[test] = dict(zip(UNITS, verdicts, strict=True))
    return expected


def verdicts(output: str) -> dict[str, str]:
    """By test: `pass`, `fail` where an assertion failed, `skip` where the test itself said so."""
    found: dict[str, str] = {}
    suite, test, skipped = "", "", False
    # What a test says begins on the line that names it.
    for line in output.replace(" ...", " ...\n").splitlines():
        if heading := re.match(r"Suite: (\S+)", line):
            suite, test = heading[1], ""
        elif begun := re.match(r"  Test: (\S+) \.\.\.", line):
            test, skipped = f"{suite}.{begun[1]}", False
        elif test:
            skipped |= "[SKIPPED]" in line
            if line.startswith("passed"):
                found[test] = "skip" if skipped else "pass"
            elif line.startswith("FAILED"):
                found[test] = "fail"
    return found


def run(unit: str, serve: Serve, directory: Path) -> dict[str, str]:
    suite = program("iscsi-test-cu", "libiscsi-bin")
    volume: dict[str, Any] = {"name": "v0", "media": "memory", "size_bytes": 16 << 20}
    if unit == "file":
        volume |= {"media": "file", "path": str(directory / "v0.img")}
    export = {"protocol": "iscsi", "listen": "127.0.0.1:0", "volume": "v0", "read_only": unit == "read-only"}
    endpoint = serve({"volumes": [volume], "exports": [export]})["portals"][0]["endpoint"]
    family = "ALL.ReadOnly" if unit == "read-only" else "ALL"
    # The endpoint twice: its multipath tests want two paths.
    words = [suite, "--dataloss", "--allow-sanitize", "--verbose", "--test", family, endpoint, endpoint]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    return verdicts(ended.stdout)


@pytest.mark.parametrize("unit", UNITS)
def test_the_suite_ends_as_expected(unit: str, serve: Serve, tmp_path: Path) -> None:
    found = run(unit, serve, tmp_path)
    expected = {test: verdict[unit] for test, verdict in expectations().items() if verdict[unit] != "-"}
    wrong = {test: (found.get(test), verdict) for test, verdict in expected.items() if found.get(test) != verdict}
    assert not wrong, "test: (found, expected)"
    assert found.keys() == expected.keys(), "another version of the suite has other tests: add them"


def test_more_than_200_tests_pass_on_some_unit() -> None:
    assert sum("pass" in verdict.values() for verdict in expectations().values()) > 200
