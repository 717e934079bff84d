"""Credentials per label: two arrays with two secrets in one study."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from faked import FakeEngine
from iotax.cli.app import app
from iotax.labs.load import options
from iotax.study import Study
from iotax.study.endpoint import parse_endpoint
from iotax.study.read import read_study
from iotax.study.source import StudyError

A = "iscsi://a/iqn.2001-05.org.example:vol1/0"
B = "nvme-tcp://b/nqn.2014-08.org.example:vol1?ns=1"
C = "nfs://c/export/file"
STUDY = f"""\
name: arrays
question: Which array?
volume: {{size: 1MiB}}
factors:
  protocol:
    one: {{protocol: "{A}", chap: {{user: ann, secret_file: /run/ann}}, initiator: iqn.2001-05.org.example:one}}
    two: {{protocol: "{A}", chap: {{user: bob, secret_env: BOB}}}}
    plain: "{A}"
    nvme: {{protocol: "{B}", dhchap: {{secret_file: /run/host}}, initiator: nqn.2014-08.org.example:host}}
    filer: {{protocol: "{C}", uid: 1000, gid: 100}}
load: {{runtime: 10ms, warmup: 0s}}
connection: {{chap: {{user: all, secret_file: /run/all}}}}
design: {{replicates: 1}}
baseline: {{protocol: plain}}
"""


def asked(label: str) -> dict[str, Any]:
    found = options(read_study("s.yaml", STUDY, Path("/")).settings({"protocol": label}))
    return {name: value for name, value in found.items() if not name.endswith("_digest")}


def test_each_label_connects_with_its_own_credentials() -> None:
    assert asked("one") == {
        "chap": {"user": "ann", "secret_file": "/run/ann"},
        "initiator": "iqn.2001-05.org.example:one",
    }
    assert asked("two") == {"chap": {"user": "bob", "secret_env": "BOB"}}
    assert asked("plain") == {"chap": {"user": "all", "secret_file": "/run/all"}}
    assert asked("nvme") == {"dhchap": {"secret_file": "/run/host"}, "initiator": "nqn.2014-08.org.example:host"}
    assert asked("filer") == {"uid": 1000, "gid": 100}


def test_credentials_of_labels_survive_the_notebook() -> None:
    study = read_study("s.yaml", STUDY, Path("/"))
    kept = Study.model_validate_json(study.model_dump_json())
    assert (kept, kept.digest()) == (study, study.digest())
    assert kept.setups()["two"]["chap"].user == "bob"


def test_users_of_nfs_are_a_factor_too() -> None:
    text = STUDY.replace("  protocol:\n", "  uid: [0, 65534]\n  protocol:\n").replace("uid: 1000, ", "")
    study = read_study("s.yaml", text, Path("/"))
    assert options(study.settings({"protocol": "filer", "uid": 65534})) == {"uid": 65534, "gid": 100}


def test_an_endpoint_is_checked_with_the_credentials_of_every_label(
    engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(STUDY)
    engine.endpoints({each: {"size_bytes": 1 << 30, "holds": "zeros"} for each in (A, B, C)})
    done = CliRunner().invoke(app, ["check", "s.yaml"])
    assert done.exit_code == 0, done.output
    for label in ("one", "two", "plain"):
        assert f"ok {label} ({A})" in done.output
    users = [each["options"]["chap"]["user"] for each in engine.documents("load", task="check", endpoint=A)]
    assert sorted(users) == ["all", "ann", "bob"]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("uid: 1000", "chap: {user: x, secret_file: /y}", "s.yaml:10:46: factors.protocol.filer.chap: nfs3 has no "
         "chap; it belongs to iscsi"),
        ("uid: 1000", "uid: -1", "factors.protocol.filer.uid: found -1: 0 is the least"),
        ("uid: 1000", "mtu: 9000", "factors.protocol.filer.mtu: the loopback lab has no network to shape"),
        ("uid: 1000", "usr: 1", "factors.protocol.filer.usr: unknown name"),
        ("secret_env: BOB", "secret: open", "factors.protocol.two.chap.secret: unknown name"),
        (f'protocol: "{C}"', "protocol: nfs9", "factors.protocol.filer.protocol: unknown protocol 'nfs9'"),
        (f'protocol: "{C}"', 'protocol: "nfs://c"', "factors.protocol.filer.protocol: 'nfs://c'"),
        ("volume:", "lab: vm\nvolume:", "factors.protocol.two.chap: the guests' targets ask for no login"),
    ],
)  # fmt: skip
def test_credentials_that_mean_nothing_are_refused(before: str, after: str, said: str) -> None:
    assert before in STUDY
    with pytest.raises(StudyError) as caught:
        read_study("s.yaml", STUDY.replace(before, after), Path("/"))
    assert said in str(caught.value)
    assert "open" not in str(caught.value)


def test_a_relative_secret_file_is_beside_the_study(tmp_path: Path) -> None:
    """This holds wherever credentials may be given, and in any current folder."""
    text = STUDY.replace("/run/ann", "ann").replace("/run/host", "keys/host").replace("/run/all", "all")
    study = read_study("s", text, tmp_path)
    found = [study.connection.chap, *(each.get("chap") or each.get("dhchap") for each in study.setups().values())]
    files = {each.secret_file for each in found if each is not None}
    assert files == {None, *(str(tmp_path / name) for name in ("ann", "keys/host", "all"))}


@pytest.mark.parametrize(
    ("target", "instead"),
    [
        ("iscsi://admin%s3cret@127.0.0.1:9/iqn.2003-01.org.example:disk/0", "chap: {user: NAME, secret_file: FILE}"),
        ("iscsi://admin:s3cret@127.0.0.1/iqn.2003-01.org.example:disk/0", "chap: {user: NAME, secret_file: FILE}"),
        ("iscsi://admin:s3cret@127.0.0.1:notaport/iqn.2003-01.org.example:disk/0", "chap: {user: NAME"),
        ("iscsi://admin%s3cret/iqn.2003-01.org.example:disk/0", "chap: {user: NAME"),
        ("nvme-tcp://u:s3cret@h/nqn.2014-08.org.example:v?ns=1", "dhchap: {secret_file: FILE}"),
        ("nfs://u:s3cret@h/vol/data", "`uid:` and `gid:`"),
        ("kernel:iscsi://u%s3cret@h/iqn.2003-01.org.example:disk/0", "chap: {user: NAME"),
    ],
)
def test_a_secret_in_an_address_is_refused_and_never_printed(tmp_path: Path, iotax, target: str, instead: str) -> None:
    """iotax would resolve it as a host name, and print it in every report."""
    text = "name: a\nfactors: {protocol: {x: '%s', y: iscsi}}\nbaseline: {protocol: y}\n"
    (tmp_path / "s.yaml").write_text(text.replace("%s", target, 1))
    for words in (("check", "s.yaml"), ("plan", "s.yaml"), ("vs", target, "iscsi")):
        said = iotax(*words, code=2).output
        assert "a user or a secret stands before the host, where it would be printed" in said
        assert instead in said and "s3cret" not in said and "admin" not in said


def test_an_ipv6_zone_is_no_secret() -> None:
    assert parse_endpoint("nfs://[fe80::1%eth0]/vol/data").protocol == "nfs3"


def test_a_version_of_nfs_names_what_supports_it() -> None:
    for word in ("version", "vers", "nfsvers"):
        with pytest.raises(
            ValueError, match=r"NFSv4\.1 is nfs41://HOST/EXPORT/FILE, .*kernel:nfs://HOST/EXPORT/FILE\?vers=4\.2"
        ):
            parse_endpoint(f"nfs://h/vol/data?{word}=4.1")
