"""A fake host: sysfs, procfs, nvme, iscsiadm, mount and sudo are files and scripts, which log each command."""

from __future__ import annotations

import subprocess
from pathlib import Path

_COMMANDS = {
    "id": 'if [ "$*" = -u ]; then cat "$FAKE/uid"; else exec /usr/bin/id "$@"; fi',
    # The lab passes `-n` first. The file `sudoers` lists the commands that sudo allows.
    "sudo": '[ "$1" = -n ] && shift; list=; [ "$1" = -l ] && { list=1; shift; }\n'
    'grep -qx "${1##*/}" "$FAKE/sudoers" || { echo "sudo: a password is required" >&2; exit 1; }\n'
    '[ -z "$list" ] || exit 0\nexec "$@"',
    "nvme": """
nqn() { while [ $# -gt 0 ]; do [ "$1" = -n ] && echo "$2"; shift; done; }
controller=$SYSFS/class/nvme/nvme7 block=$SYSFS/block/nvme7n1
case "$1" in
connect)
    [ ! -e "$FAKE/refuse" ] || { cat "$FAKE/refuse" >&2; exit 1; }
    subsystem=$SYSFS/class/nvme-subsystem/nvme-subsys7
    [ ! -e $controller ] || { mkdir ${controller}2; nqn "$@" >${controller}2/subsysnqn; exit 0; }
    mkdir -p $controller $block/device $subsystem
    nqn "$@" >$subsystem/subsysnqn; echo numa >$subsystem/iopolicy
    nqn "$@" >$controller/subsysnqn; nqn "$@" >$block/device/subsysnqn
    echo 3 >$controller/queue_count; echo "An array   " >$controller/model
    echo "traddr=10.0.0.5,trsvcid=4420" >$controller/address
    echo 1 >$block/nsid; cat "$FAKE/wwid" >$block/wwid ;;
disconnect) [ -n "$(nqn "$@")" ] && rm -rf $controller ${controller}2 $block $SYSFS/class/nvme-subsystem/* ;;
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
    echo 32 >$SYSFS/block/sdq/device/queue_depth; cat "$FAKE/wwid" >$SYSFS/block/sdq/device/wwid ;;
--logout) rm -r $session $SYSFS/block/sdq ;;
update) : ;;
*) cat $record/* 2>/dev/null | sed 's/=.*/= ********/'; [ -d $record ] ;;
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
    "tee": r"""
# The kernel connects by what is written there.
case "$*" in "$FABRICS")
    cat >"$FABRICS"
    exec nvme connect -n "$(sed 's/.*,nqn=\([^,]*\).*/\1/' "$FABRICS")" ;;
esac
exec /usr/bin/tee "$@"
""",
    "modprobe": "",
}  # fmt: skip

DATABASES = ("etc/iscsi/nodes", "var/lib/iscsi/nodes")
"""Folders of open-iscsi's records: Debian's and Red Hat's."""


class FakeHost:
    """A fake host below `folder`: bin, sys, proc, home, the NFS server's export, and a `log` of the commands run."""

    def __init__(self, folder: Path, *, uid: int = 1000) -> None:
        self.folder, self.home = folder, folder / "home"
        self._records = str(folder / "records")
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
            "WAIT_S": "5",
            "FABRICS": str(self.folder / "nvme-fabrics"),
            "NVME": str(self.folder / "etc-nvme"),
            "RECORDS": self._records,
        }

    @property
    def journal(self) -> list[Path]:
        return sorted(self.home.glob(".cache/iotax/path-*"))

    @property
    def log(self) -> list[str]:
        log = self.folder / "log"
        return log.read_text().splitlines() if log.exists() else []

    def allow(self, *commands: str) -> None:
        """Sets the commands that sudo allows."""
        (self.folder / "sudoers").write_text("".join(f"{each}\n" for each in commands))

    def wwid(self, text: str) -> None:
        """Sets the WWID that the target's volume reports from now on."""
        (self.folder / "wwid").write_text(f"{text}\n")

    def refuse(self, said: str) -> None:
        """From now on every connect command fails with this message."""
        (self.folder / "refuse").write_text(f"{said}\n")

    def add(self, command: str, script: str) -> None:
        """Adds a command to bin and allows it in sudoers."""
        program = self.folder / "bin" / command
        program.write_text(f'#!/bin/sh\necho "{command} $*" >>"$FAKE/log"\n{script}\n')
        program.chmod(0o755)
        with (self.folder / "sudoers").open("a") as sudoers:
            sudoers.write(f"{command}\n")

    def write(self, place: str, text: str) -> Path:
        """Writes a file below sysfs."""
        path = self.folder / "sys" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
        return path

    def network(self, *, mtu: int, beyond: int) -> Path:
        """Adds one interface. `beyond` is the largest frame that reaches the peer. Returns the file of its MTU."""
        set_mtu = "echo $6 >$SYSFS/class/net/$4/mtu"
        self.add("ip", f'case "$1" in -o) echo "$4 dev eth9 src 10.0.0.1" ;; link) {set_mtu} ;; esac')
        look = 'while [ $# -gt 1 ]; do [ "$1" = -s ] && size=$2; shift; done'
        self.add("ping", f'{look}; [ "${{size:-0}}" -le {beyond - 28} ]')
        return self.write("class/net/eth9/mtu", str(mtu))

    def multipath(self, disk: str) -> Path:
        """Puts dm-multipath with two paths above a disk. Returns the file that holds its table."""
        self.write(f"block/{disk}/holders/dm-3/dm/uuid", "mpath-3600")
        self.write("block/dm-3/dm/name", "mpatha")
        for path in ("sdq", "sdr"):
            (self.folder / "sys/block/dm-3/slaves" / path).mkdir(parents=True, exist_ok=True)
        script = """case "$1" in
table) cat "$FAKE/table" ;;
reload) echo "$4" >"$FAKE/loaded" ;;
resume) cat "$FAKE/loaded" >"$FAKE/table" ;;
esac"""
        self.add("dmsetup", script)
        table = self.folder / "table"
        table.write_text("0 16384 multipath 1 queue_if_no_path 1 alua 1 1 service-time 0 2 2 8:16 1 1 8:32 1 1\n")
        return table

    def fibre_channel(self, wwpn: str, lun: int | None) -> None:
        """Adds an FC host port and a target port that exposes `lun`. With None, LUN 7 appears after a rescan."""
        self.write("class/fc_host/host5/speed", "32 Gbit")
        self.write("class/fc_remote_ports/rport-5:0-0/port_name", f"0x{wwpn}")
        self.write("class/fc_remote_ports/rport-5:0-0/port_state", "Online")
        self.write("class/fc_transport/target5:0:0/port_name", f"0x{wwpn}")
        self.write("class/scsi_host/host5/scan", "")
        target = "class/fc_transport/target5:0:0/device"
        disk = f"$SYSFS/{target}/5:0:0:7/block/sdq"
        # A real kernel reacts to writes in sysfs; here `tee` does that.
        answers = f"""cat >"$1"
case "$1" in
*/scan) mkdir -p {disk} $SYSFS/block/sdq/device; echo naa.600a0980 >$SYSFS/block/sdq/device/wwid ;;
*/delete) rm -r {disk} $SYSFS/block/sdq ;;
esac"""
        self.add("tee", answers)
        if lun is not None:
            (self.folder / "sys" / target / f"5:0:0:{lun}/block/sdq").mkdir(parents=True)
            self.write("block/sdq/device/wwid", "naa.600a0980")

    def keeps_records(self, folder: str, *, tells: bool) -> None:
        """Sets the folder of open-iscsi's records (see DATABASES). `tells`: iscsiadm contains it, like a real one."""
        program = self.folder / "bin" / "iscsiadm"
        named = str(self.folder / folder) if tells else f"$FAKE/{folder}"
        program.write_text(program.read_text().replace("$FAKE/records", named))
        self._records = " ".join(str(self.folder / each) for each in DATABASES)

    def nvme_names(self, nqn: str, identity: str) -> None:
        """Sets the host's NQN and host identifier."""
        (self.folder / "etc-nvme").mkdir()
        (self.folder / "etc-nvme" / "hostnqn").write_text(f"{nqn}\n")
        (self.folder / "etc-nvme" / "hostid").write_text(identity)

    def remove(self, command: str) -> None:
        (self.folder / "bin" / command).unlink()

    def run(self, script: Path, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", script, *words],
            env=self.environment,
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
