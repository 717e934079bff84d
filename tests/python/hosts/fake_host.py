"""A host whose kernel and commands are made of files: sysfs, procfs, nvme, iscsiadm, mount and sudo that keep a log."""

from __future__ import annotations

import subprocess
from pathlib import Path

_COMMANDS = {
    "id": 'if [ "$*" = -u ]; then cat "$FAKE/uid"; else exec /usr/bin/id "$@"; fi',
    # `-n` first, as the lab says it; a rule names what it allows.
    "sudo": '[ "$1" = -n ] && shift; list=; [ "$1" = -l ] && { list=1; shift; }\n'
    'grep -qx "${1##*/}" "$FAKE/sudoers" || { echo "sudo: a password is required" >&2; exit 1; }\n'
    '[ -z "$list" ] || exit 0\nexec "$@"',
    "nvme": """
nqn() { while [ $# -gt 0 ]; do [ "$1" = -n ] && echo "$2"; shift; done; }
controller=$SYSFS/class/nvme/nvme7 block=$SYSFS/block/nvme7n1
case "$1" in
connect)
    [ ! -e "$FAKE/refuse" ] || { cat "$FAKE/refuse" >&2; exit 1; }
    mkdir -p $controller $block/device
    nqn "$@" | tee $controller/subsysnqn >$block/device/subsysnqn
    echo 3 >$controller/queue_count; echo "An array   " >$controller/model
    echo "traddr=10.0.0.5,trsvcid=4420" >$controller/address
    echo 1 >$block/nsid; cat "$FAKE/wwid" >$block/wwid ;;
disconnect) [ -n "$(nqn "$@")" ] && rm -r $controller $block ;;
esac""",
    "iscsiadm": """
shift 2
iqn=$2 op=
for word in "$@"; do case "$word" in --login | --logout) op=$word ;; new | update | delete) op=$word ;; esac; done
record=$FAKE/records/$iqn session=$SYSFS/class/iscsi_session/session3
case "$op" in
new) mkdir -p $record ;;
delete) rm -r $record ;;
--login)
    [ ! -e "$FAKE/refuse" ] || { cat "$FAKE/refuse" >&2; exit 19; }
    connection=$session/device/connection3:0/iscsi_connection/connection3:0
    mkdir -p $connection $session/device/target5:0:0/5:0:0:2/block/sdq $SYSFS/block/sdq/device $SYSFS/block/sdq/holders
    echo $iqn >$session/targetname; echo 1 >$connection/header_digest; echo 0 >$connection/data_digest
    cat "$FAKE/wwid" >$SYSFS/block/sdq/device/wwid ;;
--logout) rm -r $session $SYSFS/block/sdq ;;
update) : ;;
*) [ -d $record ] ;;
esac""",
    "mount": """
for folder in "$@"; do from=$into into=$folder; done
[ ! -e "$FAKE/refuse" ] || { cat "$FAKE/refuse" >&2; exit 32; }
# The same files, by links: a mount copies nothing.
cp -rl "$FAKE/export/." $into
echo "$from $into nfs4 rw 0 0" >>$PROCFS/self/mounts
cat >>$PROCFS/self/mountstats <<END
device $from mounted on $into with fstype nfs4 statvers=1.1
	opts:	rw,vers=4.1,rsize=1048576,wsize=1048576,hard,proto=tcp,nconnect=2
	xprt:	tcp 0 1
	xprt:	tcp 0 1
device proc mounted on /proc with fstype proc
END""",
    "umount": """
for folder in "$@"; do :; done
[ ! -e "$FAKE/busy" ] || { echo "umount: $folder: target is busy" >&2; exit 32; }
grep -v " $folder " $PROCFS/self/mounts >$FAKE/rest; cat $FAKE/rest >$PROCFS/self/mounts; : >$PROCFS/self/mountstats
rm -r "$folder"/*""",
    "modprobe": "",
}  # fmt: skip


class FakeHost:
    """Below `folder`: bin, sys, proc, home, the export of an NFS server, and `log` of what was run."""

    def __init__(self, folder: Path, *, uid: int = 1000) -> None:
        self.folder, self.home = folder, folder / "home"
        for name in ("bin", "sys/class/nvme", "sys/block", "proc/self", "proc/sys/kernel/random", "home", "export"):
            (folder / name).mkdir(parents=True)
        for name in ("mounts", "mountstats"):
            (folder / "proc" / "self" / name).touch()
        (folder / "proc/sys/kernel/random/boot_id").write_text("b0071d\n")
        (folder / "uid").write_text(f"{uid}\n")
        self.allow(*_COMMANDS)
        self.wwid("uuid.1234")
        for name, script in _COMMANDS.items():
            program = folder / "bin" / name
            program.write_text(f'#!/bin/sh\n[ {name} = id ] || echo "{name} $*" >>"$FAKE/log"\n{script}\n')
            program.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "FAKE": str(self.folder),
            "SYSFS": str(self.folder / "sys"),
            "PROCFS": str(self.folder / "proc"),
            "HOME": str(self.home),
            "PATH": f"{self.folder / 'bin'}:/usr/bin:/bin",
            "WAIT_S": "1",
        }

    @property
    def journal(self) -> list[Path]:
        return sorted(self.home.glob(".cache/iotax/path-*"))

    @property
    def log(self) -> list[str]:
        log = self.folder / "log"
        return log.read_text().splitlines() if log.exists() else []

    def allow(self, *commands: str) -> None:
        """What sudo lets run."""
        (self.folder / "sudoers").write_text("".join(f"{each}\n" for each in commands))

    def wwid(self, text: str) -> None:
        """Of what a target shows from now on."""
        (self.folder / "wwid").write_text(f"{text}\n")

    def refuse(self, said: str) -> None:
        """What every command says that fails to connect from now on."""
        (self.folder / "refuse").write_text(f"{said}\n")

    def remove(self, command: str) -> None:
        (self.folder / "bin" / command).unlink()

    def run(self, script: Path, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", script, *words], env=self.environment, capture_output=True, text=True, check=False, timeout=60
        )
