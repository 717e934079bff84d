"""Paths of a host's kernel: the script that runs on the host, tested on a fake host."""

from __future__ import annotations

import shutil
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

from iotax.labs.hosts.paths import attached_of, mismatches, words
from iotax.places import HostFault
from iotax.study import Study
from iotax.study.endpoint import parse_endpoint
from iotax.study.rules import broken_rules
from waits import wait_for

from .fake_host import FakeHost

SCRIPT = Path(str(resources.files("iotax.labs.hosts") / "remote" / "paths.sh"))
NQN, IQN = "nqn.2014-08.org.example:vol", "iqn.2001-05.org.example:vol"
NVME = f"kernel:nvme-tcp://10.0.0.5/{NQN}?ns=1"
ISCSI = f"kernel:iscsi://10.0.0.5/{IQN}/2"
NFS = "kernel:nfs://10.0.0.5/export/data?vers=4.1&nconnect=2"


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    made = FakeHost(tmp_path)
    (made.folder / "export" / "data").write_text("zeros")
    return made


def study(uri: str, **more: Any) -> Study:
    document: dict[str, Any] = {
        "name": "x",
        "question": "?",
        "lab": {"hosts": {"initiators": ["h1", "h2"]}},
        "volume": {"size": "8MiB"},
        "factors": {"protocol": {"a": uri}},
        "baseline": {"protocol": "a"},
    }
    return Study.model_validate(document | more)


def up(host: FakeHost, uri: str, **more: Any):
    given = study(uri, **more)
    settings = given.settings({"protocol": "a"})
    done = host.run(SCRIPT, "up", *words(uri, settings))
    return done, settings


@pytest.mark.parametrize(
    ("uri", "device", "identity", "facts"),
    [
        (NVME, "/dev/nvme7n1", "uuid.1234", {"queues": "2", "model": "An array"}),
        (ISCSI, "/dev/sdq", "uuid.1234", {"header_digest": "on", "data_digest": "off"}),
        (NFS, "mount/data", "10.0.0.5:/export/data inode", {"vers": "4.1", "nconnect": "2", "rsize": "1048576"}),
    ],
)
def test_a_path_comes_up_says_what_took_effect_and_goes(
    host: FakeHost, uri: str, device: str, identity: str, facts: dict[str, str]
) -> None:
    done, _ = up(host, uri)
    assert done.returncode == 0, done.stderr
    attached = attached_of("h1", done.stdout)
    assert attached.device.endswith(device)
    assert attached.identity.startswith(identity)
    assert facts.items() <= attached.facts.items()
    assert len(host.journal) == 1
    down = host.run(SCRIPT, "down")
    assert (down.returncode, down.stdout[:5]) == (0, "DOWN ")
    assert host.journal == []
    assert not list((host.folder / "sys").rglob("*vol*"))
    assert list((host.folder / "sys" / "block").iterdir()) == []
    assert (host.folder / "proc/self/mounts").read_text() == ""
    # Sessions of others are left alone.
    assert not any("logoutall" in line or "disconnect-all" in line for line in host.log)
    # A second `down` does nothing.
    before = len(host.log)
    assert host.run(SCRIPT, "down").stdout == ""
    assert len(host.log) == before


def test_what_a_study_asks_for_reaches_the_commands(host: FakeHost) -> None:
    connection = {"header_digest": True}
    up(host, f"{NVME}&queues=2", connection=connection)
    up(host, ISCSI, connection=connection)
    up(host, "kernel:nfs://[fe80::1]:2050/a/b/data?vers=3&nconnect=4")
    said = "\n".join(host.log)
    assert f"nvme connect -t tcp -a 10.0.0.5 -s 4420 -n {NQN} -i 2 --hdr-digest\n" in said
    assert "-n node.conn[0].iscsi.HeaderDigest -v CRC32C" in said
    assert "-n node.conn[0].iscsi.DataDigest -v None" in said
    assert "vers=3,proto=tcp,port=2050,hard,noatime,nosuid,nodev,noexec,nconnect=4,nolock [fe80::1]:/a/b " in said
    # Each path went down before the next one came up, and every command ran through sudo.
    assert [line for line in host.log if line.startswith("sudo")].count(f"sudo -n nvme disconnect -n {NQN}") == 1


def test_paths_in_slots_stay_side_by_side_and_all_of_them_go(host: FakeHost) -> None:
    mounts = host.folder / "proc/self/mounts"
    for number, uri in enumerate((NVME, ISCSI, NFS), 1):
        done = host.run(SCRIPT, "up", f"slot={number}", *words(uri, study(uri).settings({"protocol": "a"})))
        assert done.returncode == 0, done.stderr
    assert [entry.name[-2:] for entry in host.journal] == [".1", ".2", ".3"]
    assert {entry.name for entry in (host.folder / "sys/block").iterdir()} == {"nvme7n1", "sdq"}
    assert "/.cache/iotax/mount-3 " in mounts.read_text()
    # A path that is requested again replaces only the path in its slot.
    again = host.run(SCRIPT, "up", "slot=2", *words(ISCSI, study(ISCSI).settings({"protocol": "a"})))
    assert again.returncode == 0, again.stderr
    assert len(host.journal) == 3
    down = host.run(SCRIPT, "down")
    assert sorted(line.split()[1] for line in down.stdout.splitlines()) == ["iscsi", "nfs", "nvme-tcp"]
    assert (host.journal, mounts.read_text(), list((host.folder / "sys/block").iterdir())) == ([], "", [])


def test_a_path_in_a_slot_that_stays_keeps_no_other_one_up(host: FakeHost) -> None:
    for number, uri in enumerate((NFS, NVME), 1):
        host.run(SCRIPT, "up", f"slot={number}", *words(uri, study(uri).settings({"protocol": "a"})))
    (host.folder / "busy").touch()
    done = host.run(SCRIPT, "down")
    assert done.returncode != 0
    assert "target is busy" in done.stderr
    assert [entry.name[-2:] for entry in host.journal] == [".1"]
    assert list((host.folder / "sys/block").iterdir()) == []


@pytest.mark.parametrize("uri", [NVME, ISCSI])
def test_what_others_have_connected_is_neither_used_nor_taken_down(host: FakeHost, uri: str) -> None:
    up(host, uri)
    host.journal[0].unlink()  # now iotax does not own the path
    done, _ = up(host, uri)
    assert done.stderr.startswith("in_use ")
    assert "not by iotax" in done.stderr
    host.run(SCRIPT, "down")
    assert list((host.folder / "sys" / "block").iterdir()) != []


def test_a_record_of_open_iscsi_that_was_there_stays_as_it_was(host: FakeHost) -> None:
    record = host.folder / "records" / IQN
    record.mkdir(parents=True)
    assert up(host, ISCSI)[0].returncode == 0
    host.run(SCRIPT, "down")
    assert record.exists()
    assert not any(" update " in line or " new" in line for line in host.log)
    done, _ = up(host, ISCSI, connection={"data_digest": True})
    assert done.stderr.startswith("usage open-iscsi has a record")


@pytest.mark.parametrize(
    ("uri", "said", "kind"),
    [
        (NVME, "Failed to write to /dev/nvme-fabrics: Connection refused", "unreachable"),
        (ISCSI, "iscsiadm: initiator reported error (24 - iSCSI login failed due to authorization failure)", "denied"),
        (NFS, "mount.nfs: access denied by server while mounting 10.0.0.5:/export", "denied"),
    ],
)
def test_what_does_not_come_up_leaves_nothing_and_says_why(host: FakeHost, uri: str, said: str, kind: str) -> None:
    host.refuse(said)
    done, _ = up(host, uri)
    assert done.returncode != 0
    assert done.stderr.startswith(f"{kind} ")
    assert said in done.stderr
    assert host.journal == []
    assert list((host.folder / "records").glob("*")) == []


@pytest.mark.parametrize(("uri", "command"), [(NVME, "nvme"), (ISCSI, "iscsiadm"), (NFS, "mount")])
def test_a_command_that_is_missing_or_forbidden_is_named(host: FakeHost, uri: str, command: str) -> None:
    host.allow("umount", "modprobe")
    assert up(host, uri)[0].stderr.startswith(f"denied sudo -n {command} is refused on this host: sudo: a password")
    assert host.journal == []
    if command == "mount":  # every host has mount
        return
    host.remove(command)
    assert up(host, uri)[0].stderr.startswith(f"missing {command} is not installed")


def test_root_needs_no_sudo(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, uid=0)
    host.remove("sudo")
    assert up(host, NVME)[0].returncode == 0


def test_a_busy_mount_is_left_by_force_and_stays_in_the_journal_where_that_fails(host: FakeHost) -> None:
    up(host, NFS)
    (host.folder / "busy").touch()
    assert host.run(SCRIPT, "down").stderr.startswith("unreachable unmounting")
    assert len(host.journal) == 1
    assert any(line.startswith("umount -f -l ") for line in host.log)
    (host.folder / "busy").unlink()
    host.run(SCRIPT, "down")
    assert host.journal == []


def test_entries_of_an_earlier_boot_are_forgotten_and_take_nothing_down(host: FakeHost) -> None:
    up(host, NVME)
    (host.folder / "proc/sys/kernel/random/boot_id").write_text("another\n")
    host.run(SCRIPT, "down")
    assert host.journal == []
    assert not any("disconnect" in line for line in host.log)


def kept(host: FakeHost) -> subprocess.Popen[str]:
    """A study at work on the host, until its standard input ends."""
    engine = host.folder / "bin" / "engine"
    engine.write_text("#!/bin/sh\necho at work\nexec cat\n")
    engine.chmod(0o755)
    keeper = subprocess.Popen(
        ["/bin/sh", SCRIPT, "keep", engine],
        env=host.environment | {"WAIT_S": "600"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert keeper.stdout
    assert keeper.stdout.readline() == "at work\n"
    return keeper


def test_what_is_still_being_made_when_a_study_is_cut_off_goes_too(host: FakeHost) -> None:
    """The connection of a controller that is killed ends, but not the script that makes a path."""
    mount = host.folder / "bin" / "mount"
    slow = mount.read_text().replace("\n", '\necho >"$FAKE/mounting"; until [ -e "$FAKE/go" ]; do sleep 0.1; done\n', 1)
    mount.write_text(slow)
    with kept(host) as keeper:
        asked = words(NFS, study(NFS).settings({"protocol": "a"}))
        making = subprocess.Popen(
            ["/bin/sh", SCRIPT, "up", *asked],
            env=host.environment | {"WAIT_S": "600"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        wait_for((host.folder / "mounting").exists, "the mount to begin")
        assert keeper.stdin
        keeper.stdin.close()
        (host.folder / "go").touch()
        said, _ = making.communicate(timeout=600)
        assert "DEVICE=" in said
        keeper.wait(timeout=600)
    assert host.journal == []
    assert (host.folder / "proc/self/mounts").read_text() == ""


def test_nothing_is_made_for_a_study_that_has_ended(host: FakeHost) -> None:
    with kept(host) as keeper:
        assert up(host, NFS)[0].returncode == 0
        keeper.communicate("", timeout=600)
    assert host.journal == []
    late, _ = up(host, NFS)
    assert (late.returncode, late.stderr) == (1, "in_use the study that wants this of the host has ended there\n")
    assert host.journal == []
    assert host.run(SCRIPT, "clean").returncode == 0
    assert list(host.home.glob(".cache/iotax/*")) == []


def test_a_record_of_ours_outlives_no_boot(host: FakeHost) -> None:
    assert up(host, ISCSI)[0].returncode == 0
    record = host.folder / "records" / IQN
    shutil.rmtree(host.folder / "sys/class/iscsi_session")
    (host.folder / "proc/sys/kernel/random/boot_id").write_text("b0072d\n")
    assert record.exists()
    assert host.run(SCRIPT, "clean").returncode == 0
    assert not record.exists()
    assert host.journal == []


def test_a_record_of_ours_by_which_somebody_is_logged_in_stays_and_is_told(host: FakeHost) -> None:
    assert up(host, ISCSI)[0].returncode == 0
    record = host.folder / "records" / IQN
    (host.folder / "proc/sys/kernel/random/boot_id").write_text("b0072d\n")
    done = host.run(SCRIPT, "clean")
    assert (done.returncode, record.exists(), len(host.journal)) == (0, True, 1)
    assert done.stdout.startswith(f"LEFT open-iscsi's record of {IQN}")
    assert f"iscsiadm -m node -T {IQN} --logout" in done.stdout
    assert not any("--logout" in line for line in host.log)
    # Once the sessions are gone, the record is removed too.
    shutil.rmtree(host.folder / "sys/class/iscsi_session")
    assert host.run(SCRIPT, "clean").stdout == ""
    assert not record.exists()
    assert host.journal == []


def test_a_journal_that_cannot_be_written_keeps_the_path_from_coming_up(host: FakeHost) -> None:
    (host.home / ".cache").write_text("no folder")
    assert up(host, NVME)[0].stderr.splitlines()[-1].startswith("disk_full ")
    assert not any("connect" in line for line in host.log)


def test_what_did_not_take_effect_is_found() -> None:
    settings = study(f"{NVME}&queues=8", connection={"data_digest": True}).settings({"protocol": "a"})
    found = mismatches(f"{NVME}&queues=8", settings, {"queues": "2", "data_digest": "on"})
    assert found == ["queues is 2, 8 was asked for"]
    plain = study(NFS).settings({"protocol": "a"})
    assert mismatches(NFS, plain, {"vers": "4.0"}) == [
        "vers is 4.0, 4.1 was asked for",
        "nconnect is not to be found, 2 was asked for",
    ]
    with pytest.raises(HostFault, match="named no device"):
        attached_of("h1", "FACT queues=2\n")


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("kernel:nfs://h/export/file?vers=5", "vers=5 is none of"),
        ("kernel:nfs://h/export/file?nconnect=17", "nconnect is not a number from 1 to 16"),
        ("kernel:nfs://h/export", "the export or the file is missing"),
        ("kernel:iscsi://h/vol/0", "is not an iSCSI name"),
        ("kernel:nvme-tcp://h/nqn.x", "the namespace is missing"),
        ("kernel:nvme-tcp://h/nqn.x?ns=1&queues=0", "queues is not a number"),
        ("kernel:nfs://h/a b/$(reboot)", "characters"),
        ("kernel:nfs://h/export/../../etc/passwd", "characters"),
        ("kernel:smb://h/x", "kernel:smb:// is not a protocol|smb:// is not a protocol"),
    ],
)
def test_an_endpoint_that_no_kernel_can_have_is_refused(target: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_endpoint(target)


def test_a_kernels_path_names_its_protocol_and_its_stack() -> None:
    assert [parse_endpoint(each).protocol for each in (NVME, ISCSI, NFS)] == ["nvme-tcp", "iscsi", "nfs4.1"]
    assert parse_endpoint("kernel:nfs://h/e/f").protocol == "nfs4.2"
    assert all(parse_endpoint(each).kernel for each in (NVME, ISCSI, NFS))
    assert not parse_endpoint(NVME.removeprefix("kernel:")).kernel


def test_what_only_iotaxs_own_initiators_know_is_refused_beside_a_kernels_path() -> None:
    reasons = [reason for _, reason in broken_rules(study(NVME, connection={"polling": "auto"}))]
    assert any("the kernel's initiator is as its host configures it" in each for each in reasons)
    elsewhere = study(NVME).model_copy(update={"lab": Study.model_fields["lab"].get_default(call_default_factory=True)})
    assert any("a path of the kernel's own is made" in reason for _, reason in broken_rules(elsewhere))
