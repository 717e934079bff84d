"""Secrets of kernel paths on hosts: sent to the host, visible to no other user, removed afterwards."""

from __future__ import annotations

import asyncio
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

from iotax.labs.hosts.paths import Paths, words
from iotax.labs.hosts.secrets import NoSecret, carried
from iotax.places import Binary, HostFault
from iotax.places.ssh import SshHost
from iotax.study import Study
from iotax.study.hosts import Host
from iotax.study.rules import broken_rules

from .fake_host import DATABASES, FakeHost

SCRIPT = Path(str(resources.files("iotax.labs.hosts") / "remote" / "paths.sh"))
NQN, IQN = "nqn.2014-08.org.example:vol", "iqn.2001-05.org.example:vol"
NVME = f"kernel:nvme-tcp://10.0.0.5/{NQN}?ns=1&queues=2"
FC_NVME = f"kernel:fc-nvme://50060e8012345678/{NQN}?ns=1"
ISCSI = f"kernel:iscsi://10.0.0.5/{IQN}/2"
KEY, OTHER_KEY = f"DHHC-1:00:{'k' * 48}:", f"DHHC-1:01:{'o' * 48}:"
CHAP = {"chap": {"user": "joe", "secret_env": "JOE", "mutual": {"user": "array", "secret_env": "ARRAY"}}}
DHCHAP = {"dhchap": {"secret_env": "KEY", "controller": {"secret_env": "OTHER"}}}
SECRETS = {"JOE": "a-secret-of-joe # x", "ARRAY": "a-secret-of-it", "KEY": KEY, "OTHER": OTHER_KEY}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


def study(uri: str, connection: dict[str, Any], lab: Any = None) -> Study:
    return Study.model_validate(
        {
            "name": "x",
            "question": "?",
            "lab": lab or {"hosts": {"initiators": ["h1"]}},
            "volume": {"size": "8MiB"},
            "factors": {"protocol": {"a": uri}},
            "baseline": {"protocol": "a"},
            "connection": connection,
        }
    )


def up(host: FakeHost, uri: str, connection: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    settings = study(uri, connection).settings({"protocol": "a"})
    return host.run(SCRIPT, "up", "secrets=stdin", *words(uri, settings), given=carried(uri, settings))


def hidden(host: FakeHost, done: subprocess.CompletedProcess[str]) -> None:
    """Asserts that no secret is in an argument, in the output or in the journal."""
    seen = "\n".join([*host.log, done.stdout, done.stderr, *(each.read_text() for each in host.journal)])
    assert not any(secret in seen for secret in SECRETS.values())


def test_chap_stands_in_the_record_of_the_path_and_goes_with_it(host: FakeHost) -> None:
    done = up(host, ISCSI, CHAP)
    assert done.returncode == 0, done.stderr
    hidden(host, done)
    record = host.folder / "records" / IQN / "10.0.0.5,3260"
    assert record.read_text().splitlines() == [
        "node.session.auth.password = a-secret-of-joe # x",
        "node.session.auth.password_in = a-secret-of-it",
    ]
    said = "\n".join(host.log)
    for name, value in {"authmethod": "CHAP", "username": "joe", "username_in": "array"}.items():
        assert f"-o update -n node.session.auth.{name} -v {value}" in said
    assert said.index("tee -a") < said.index("--login")
    assert host.run(SCRIPT, "down").returncode == 0
    assert not record.exists()


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize(("kept", "other"), [DATABASES, DATABASES[::-1]])
def test_chap_stands_where_the_hosts_open_iscsi_looks_and_is_gone_after_a_crash_too(
    host: FakeHost, kept: str, other: str, tells: bool
) -> None:
    host.keeps_records(kept, tells=tells)
    # An earlier open-iscsi left its folder.
    stale = host.folder / other / IQN
    stale.mkdir(parents=True)
    assert up(host, ISCSI, CHAP).returncode == 0
    record = host.folder / kept / IQN / "10.0.0.5,3260"
    assert "password = a-secret-of-joe # x" in record.read_text()
    assert not any(secret in each.read_text() for each in stale.iterdir() for secret in SECRETS.values())
    # The process that brought the path up is gone; the next one finds the path in the journal.
    assert len(host.journal) == 1
    assert host.run(SCRIPT, "clean").stdout == f"DOWN iscsi {IQN}\n"
    assert not record.parent.exists()
    assert host.journal == []
    assert not (host.folder / "sys/class/iscsi_session/session3").exists()


def test_chap_beside_a_record_of_somebody_else_is_refused(host: FakeHost) -> None:
    (host.folder / "records" / IQN).mkdir(parents=True)
    done = up(host, ISCSI, CHAP)
    assert done.stderr.startswith("usage open-iscsi has a record")
    assert list((host.folder / "records" / IQN).iterdir()) == []


def test_a_record_that_takes_no_secret_fails_before_the_login_and_says_nothing_of_it(host: FakeHost) -> None:
    host.add("tee", "cat; exit 1")
    done = up(host, ISCSI, CHAP)
    assert done.stderr.startswith("missing the record of ")
    hidden(host, done)
    assert not any("--login" in line for line in host.log)
    assert host.journal == []


def test_nvme_secrets_go_to_the_kernels_own_file_and_the_path_comes_down(host: FakeHost) -> None:
    host.nvme_names("nqn.2014-08.org.example:host", "4c4c4544")
    done = up(host, NVME, DHCHAP | {"header_digest": True})
    assert done.returncode == 0, done.stderr
    hidden(host, done)
    assert (host.folder / "nvme-fabrics").read_text() == (
        f"transport=tcp,traddr=10.0.0.5,trsvcid=4420,nqn={NQN},hostnqn=nqn.2014-08.org.example:host,hostid=4c4c4544,"
        f"nr_io_queues=2,hdr_digest,dhchap_secret={KEY},dhchap_ctrl_secret={OTHER_KEY}"
    )
    assert "DEVICE=/dev/nvme7n1" in done.stdout
    assert host.run(SCRIPT, "down").stdout == f"DOWN nvme-tcp {NQN}\n"
    assert host.journal == []


def test_nvme_secrets_go_over_fibre_channel_as_over_tcp(host: FakeHost) -> None:
    host.nvme_names("nqn.2014-08.org.example:host", "4c4c4544")
    # `tee` acts for the kernel's NVMe connect here, not for the sysfs of a fake FC host.
    connects = (host.folder / "bin" / "tee").read_text()
    host.fibre_channel("50060e8012345678", 7)
    (host.folder / "bin" / "tee").write_text(connects)
    for place, name in {"fc_remote_ports/rport-5:0-0": "0x5006", "fc_host/host5": "0x2000"}.items():
        host.write(f"class/{place}/node_name", name)
    host.write("class/fc_host/host5/port_name", "0x1000")
    done = up(host, FC_NVME, DHCHAP)
    assert done.returncode == 0, done.stderr
    hidden(host, done)
    assert (host.folder / "nvme-fabrics").read_text() == (
        f"transport=fc,traddr=nn-0x5006:pn-0x50060e8012345678,host_traddr=nn-0x2000:pn-0x1000,nqn={NQN},"
        f"hostnqn=nqn.2014-08.org.example:host,hostid=4c4c4544,dhchap_secret={KEY},dhchap_ctrl_secret={OTHER_KEY}"
    )
    assert not any(line.startswith("nvme connect -t") for line in host.log)
    assert host.run(SCRIPT, "down").stdout == f"DOWN fc-nvme {NQN}\n"
    assert host.journal == []


def test_a_host_without_a_name_of_its_own_proves_nothing(host: FakeHost) -> None:
    done = up(host, NVME, DHCHAP)
    assert done.stderr.startswith("missing a controller knows the secret of a host by its NQN")


def test_a_refused_login_over_nvme_says_nothing_of_the_secret(host: FakeHost) -> None:
    host.nvme_names("nqn.2014-08.org.example:host", "")
    host.add("tee", 'cat; echo "tee: /dev/nvme-fabrics: Operation not permitted" >&2; exit 1')
    done = up(host, NVME, DHCHAP)
    assert done.returncode != 0
    assert "with dhchap: tee: /dev/nvme-fabrics: Operation not permitted" in done.stderr
    hidden(host, done)
    assert host.journal == []


@pytest.mark.parametrize(
    ("uri", "connection", "said"),
    [
        (ISCSI, {"chap": {"user": "joe", "secret_env": "NOBODY"}}, "chap: the environment of iotax has no NOBODY"),
        (ISCSI, {"chap": {"user": "joe", "secret_file": "/no/such"}}, "chap: /no/such: No such file or directory"),
        (ISCSI, {"chap": {"user": "joe"}}, "either `secret_file` or `secret_env`"),
        (ISCSI, {"chap": {"user": "j\nx", "secret_env": "JOE"}}, "chap user: it holds what is not a character"),
        (ISCSI, {"chap": {"user": "j", "secret_env": "JOE", "mutual": {"user": "a", "secret_env": "JOE"}}}, "the same"),
        (ISCSI, {"chap": {"user": "joe", "secret_env": "SHORT"}}, "at least 12 characters"),
        (NVME, {"dhchap": {"secret_env": "JOE"}}, "not of the form `DHHC-1:…:`"),
        (NVME, {"dhchap": {"secret_env": "KEY", "hash": "sha256"}}, "leave `hash` and `dh_group` out"),
    ],
)
def test_a_secret_that_cannot_be_had_is_told_by_its_place_and_not_shown(
    uri: str, connection: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHORT", "short")
    with pytest.raises(NoSecret) as refused:
        carried(uri, study(uri, connection).settings({"protocol": "a"}))
    assert said in str(refused.value)
    assert not any(secret in str(refused.value) for secret in (*SECRETS.values(), "short "))


def test_a_secret_comes_from_a_file_without_its_last_newline(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    asked = study(NVME, {"dhchap": {"secret_file": str(tmp_path / "key")}})
    assert carried(NVME, asked.settings({"protocol": "a"})) == f"dhchap_secret={KEY}\n"


class Told(SshHost):
    """A host that records what it receives, and reports one device."""

    def __init__(self) -> None:
        super().__init__(Host(name="h1"), asyncio.Semaphore(1))
        self.told: list[tuple[str, str]] = []

    async def run(self, command: str, *, given: str = "", within_s: float = 0.0) -> str:
        self.told.append((command, given))
        return "DEVICE=/dev/sdq\nFACT queues=2\n"


def test_a_secret_goes_by_standard_input_and_in_no_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def kept(*_: object) -> None:
        """Does nothing: another test covers the process that holds the lease."""

    monkeypatch.setattr(Paths, "_keep", kept)
    place, paths = Told(), Paths(Binary(tmp_path / "engine"))
    joe = study(ISCSI, CHAP).settings({"protocol": "a"})
    nobody = study(ISCSI, {}).settings({"protocol": "a"})
    for settings in (joe, joe, nobody):
        asyncio.run(paths.up(place, ISCSI, settings))
    # Only two calls: the path with the same secret was up already.
    (first, given), (second, nothing) = place.told
    assert "secrets=stdin" in first and "chap_secret=a-secret-of-joe # x\n" in given
    assert "secrets=stdin" not in second and nothing == ""
    assert not any(secret in first for secret in SECRETS.values())


def test_a_missing_secret_names_host_and_endpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JOE")
    settings = study(ISCSI, CHAP).settings({"protocol": "a"})
    with pytest.raises(HostFault, match=r"h1: kernel:iscsi://.*: chap: the environment of iotax has no JOE"):
        asyncio.run(Paths(Binary(tmp_path / "engine")).up(Told(), ISCSI, settings))


TLS = {"ca": "ca.pem", "cert": "me.pem", "key": "key.pem"}


@pytest.mark.parametrize(
    ("uri", "connection", "cluster", "said"),
    [
        (ISCSI, CHAP, None, ""),
        (ISCSI.removeprefix("kernel:"), CHAP, None, ""),
        (ISCSI, CHAP, {"scheduler": "tls://10.0.0.1:8786", "tls": TLS}, ""),
        (ISCSI, CHAP, {"scheduler": "tcp://10.0.0.1:8786"}, "whoever sees the network would read the secret"),
        (FC_NVME, DHCHAP, None, ""),
        (FC_NVME, CHAP, None, "no protocol of this study has a chap"),
        # FC-NVMe with the engine's own frames has no such login.
        ("fc-nvme://10.0.0.5/2100000000000001/nqn.x?ns=1", DHCHAP, None, "no protocol of this study has a dhchap"),
    ],
)
def test_secrets_go_where_they_mean_something_and_nobody_reads_them(
    uri: str, connection: dict[str, Any], cluster: Any, said: str
) -> None:
    lab = {"hosts": {"initiators": ["h1"]} | ({"cluster": cluster} if cluster else {})}
    found = [reason for place, reason in broken_rules(study(uri, connection, lab)) if place[0] == "connection"]
    assert all(said in reason for reason in found)
    assert bool(found) == bool(said)
