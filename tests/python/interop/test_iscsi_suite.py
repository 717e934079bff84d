"""libiscsi's conformance suite against iotax's iSCSI target, compared with conformance/iscsi-test-cu.expected.

The default is Debian's suite. IOTAX_ISCSI_TEST_CU names the program of libiscsi's master instead;
conformance/iscsi-test-cu-master.expected lists the verdicts that differ.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from needed import program

from .conftest import ROOT

pytestmark = pytest.mark.slow

EXPECTED = ROOT / "conformance" / "iscsi-test-cu.expected"
MASTER = os.environ.get("IOTAX_ISCSI_TEST_CU")
MASTER_EXPECTED = EXPECTED.with_name("iscsi-test-cu-master.expected")
# Only in master: hangs forever, as the expectations say.
HANGS = "iSCSISendTargets.Invalid"
# Kinds of logical unit for the suite, which tests different things on each.
UNITS = ("memory", "file", "read-only")
Serve = Callable[[dict[str, Any]], dict[str, Any]]


def expectations() -> dict[str, dict[str, str]]:
    """Test → the expected verdict for each kind of unit."""
    expected: dict[str, dict[str, str]] = {}
    lines = EXPECTED.read_text().splitlines() + (MASTER_EXPECTED.read_text().splitlines() if MASTER else [])
    for line in lines:
        words = line.partition("#")[0].split()
        if words:
            test, *verdicts = words
            assert len(verdicts) == len(UNITS), line
            expected[test] = dict(zip(UNITS, verdicts, strict=True))
    return expected


def verdicts(output: str) -> dict[str, str]:
    """Test → `pass`, `fail` if an assertion failed, `skip` if the test skipped itself."""
    found: dict[str, str] = {}
    suite, test, skipped = "", "", False
    # A test's output starts on the line that names it.
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


def suite(words: list[str], **environment: str) -> str:
    """The program's output."""
    path = MASTER or program("iscsi-test-cu", "libiscsi-bin")
    everything = os.environ | environment
    ended = subprocess.run([path, *words], capture_output=True, text=True, timeout=600, check=False, env=everything)
    return ended.stdout


def families(unit: str) -> list[str]:
    """Names to pass to --test: all tests at once. Master's run family by family, without the test that hangs."""
    if unit == "read-only":
        return ["ALL.ReadOnly"]
    if not MASTER:
        return ["ALL"]
    listed = [name.removeprefix("ALL.") for name in suite(["--list"]).split() if name.startswith("ALL.")]
    hanging = HANGS.partition(".")[0]
    whole = [name for name in listed if "." not in name and name != hanging]
    return [
        f"ALL.{name}" for name in whole + [name for name in listed if name.startswith(f"{hanging}.") and name != HANGS]
    ]


def run(unit: str, serve: Serve, directory: Path) -> dict[str, str]:
    volume: dict[str, Any] = {"name": "v0", "media": "memory", "size_bytes": 16 << 20}
    if unit == "file":
        volume |= {"media": "file", "path": str(directory / "v0.img")}
    export = {"protocol": "iscsi", "listen": "127.0.0.1:0", "volume": "v0", "read_only": unit == "read-only"}
    # The multipath tests need two paths: one portal twice, or two target port groups.
    exports = [export] if unit != "memory" else [export | {"portal_groups": "each"}] * 2
    # Two threads, so sessions also affect each other across threads.
    portals = serve({"threads": 2, "volumes": [volume], "exports": exports})["portals"]
    endpoints = [portals[0]["endpoint"], portals[-1]["endpoint"]]
    options = ["--dataloss", "--allow-sanitize", "--verbose"]
    return verdicts("".join(suite([*options, "--test", family, *endpoints]) for family in families(unit)))


@pytest.mark.parametrize("unit", ["memory", pytest.param("file", marks=pytest.mark.long), "read-only"])
def test_the_suite_ends_as_expected(unit: str, serve: Serve, tmp_path: Path) -> None:
    found = run(unit, serve, tmp_path)
    expected = {test: verdict[unit] for test, verdict in expectations().items() if verdict[unit] != "-"}
    wrong = {test: (found.get(test), verdict) for test, verdict in expected.items() if found.get(test) != verdict}
    assert not wrong, "test: (found, expected)"
    assert found.keys() == expected.keys(), "another version of the suite has other tests: add them"


# User names that look like binary values, but are used as they are: a name is not a binary value (RFC 7143 §6.1).
@pytest.mark.skipif(not MASTER, reason="Debian's suite has no tests of CHAP; IOTAX_ISCSI_TEST_CU names a newer one")
@pytest.mark.parametrize("user", ["load", "0x6c6f6164", "0bbG9hZA=="])
def test_the_suites_chap_tests_pass_with_chap(user: str, serve: Serve, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("open sesame, please\n")
    group = {"name": "lab", "initiators": ["127.0.0.0/8"], "chap": {"user": user, "secret_file": str(secret)}}
    export = {"protocol": "iscsi", "listen": "127.0.0.1:0", "volume": "v0", "groups": ["lab"]}
    volume = {"name": "v0", "media": "memory", "size_bytes": 16 << 20}
    endpoint = serve({"volumes": [volume], "exports": [export], "groups": [group]})["portals"][0]["endpoint"]
    login = {"LIBISCSI_CHAP_USERNAME": user, "LIBISCSI_CHAP_PASSWORD": "open sesame, please"}
    found = verdicts(suite(["--verbose", "--test", "ALL.iSCSICHAP", endpoint, endpoint], **login))
    wanted = dict.fromkeys(("Simple", "Invalid", "Base64", "Base64Oversize"), "pass")
    wanted |= {
        "HexName": "pass" if user.startswith("0x") else "skip",
        "Base64Name": "pass" if user.startswith("0b") else "skip",
    }
    assert found == {f"iSCSICHAP.{test}": verdict for test, verdict in wanted.items()}


def test_more_than_200_tests_pass_on_some_unit() -> None:
    assert sum("pass" in verdict.values() for verdict in expectations().values()) > 200
