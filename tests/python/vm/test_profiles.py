"""Profiles of guests: functions by instructions, what cannot be profiled, and real kernels with the plugin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from iotax.design import plan
from iotax.labs.base import CheckItem, Step
from iotax.labs.vm.counted import Code, Node, Symbols
from iotax.labs.vm.fault import VmFault
from iotax.labs.vm.image import Image
from iotax.labs.vm.lab import VmLab
from iotax.labs.vm.layers import LAYERS, UNNAMED, layer_of
from iotax.labs.vm.plugin import Plugin, counting_plugin
from iotax.labs.vm.programs import Program
from iotax.labs.vm.qemu import PROGRAM, Machine, arguments
from iotax.notebook import Notebook
from iotax.records import Profile
from iotax.study.read import read_study
from iotax.study.source import StudyError
from iotax.trial import TrialResult

from .fakes import write_program
from .needed import require
from .studies import start

KERNEL = 0xFFFFFFFF81000000
MODULE = 0xFFFFFFFFC0200000

STUDY = """\
name: profiles
question: Where do the instructions of an I/O go?
lab: {vm: {clock: icount, guests: GUESTS, profile: true}}
volume: {size: 4MiB, refill: block}
factors: {protocol: [PROTOCOLS]}
load: {read: 75%, outstanding: 8, warmup: 100ms, runtime: 500ms}
design: {replicates: 1}
baseline: {protocol: iscsi}
"""


def study(guests: int, protocols: str) -> str:
    return STUDY.replace("GUESTS", str(guests)).replace("PROTOCOLS", protocols)


def symbols() -> Symbols:
    return Symbols.parse(
        [
            f"{KERNEL:x} T __memcpy",
            f"{KERNEL:x} W memcpy",
            f"{KERNEL + 0x100:x} t tcp_ack.constprop.0",
            f"{KERNEL + 0x200:x} D jiffies",
            f"{KERNEL + 0x300:x} T show_stat",
            f"{MODULE:x} t nvme_tcp_queue_rq\t[nvme_tcp]",
        ]
    )


def test_an_address_belongs_to_the_function_before_it_under_its_plainest_name() -> None:
    named = symbols()
    assert named.at(KERNEL + 8) == ("memcpy", "")
    # A compiler's suffix does not change the function; data symbols are skipped.
    assert named.at(KERNEL + 0x208) == ("tcp_ack", "")
    assert named.at(MODULE + 8) == ("nvme_tcp_queue_rq", "nvme_tcp")
    assert (named.at(KERNEL - 1), named.at(MODULE + (8 << 20))) == (None, None)
    assert named.address_of("show_stat") == KERNEL + 0x300
    assert named.address_of("nvme_tcp_queue_rq") is None


def test_every_instruction_of_a_window_stands_in_one_layer() -> None:
    programs = tuple(
        Program.parse(line, named="tgtd", sources={})
        for line in (
            "MAP 1000 2000 00001000 tgtd /usr/sbin/tgtd",
            "MAP 3000 4000 00000000 sh /usr/bin/busybox",
            "MAP 5000 6000 00000000 qemu-storage-da -",
        )
    )
    code = Code(symbols(), programs, target="tgtd")
    spent = {
        KERNEL: 15,
        KERNEL + 0x100: 20,
        MODULE: 30,
        MODULE + (1 << 20): 1,
        0x1000: 40,
        0x3000: 2,
        0x5000: 3,
        0x6000: 50,
    }
    assert set(spent) <= set(code.begins())
    found = code.counted([Node(-1, address, count, 0, 0) for address, count in spent.items()])
    assert found.layers == {
        "copies": {"memcpy": 15},
        "TCP/IP": {"tcp_ack": 20},
        "transport": {"nvme_tcp_queue_rq [nvme_tcp]": 30},
        "unnamed": {"code without a symbol": 1},
        "target program": {"tgtd: tgtd": 40},
        "lab": {"sh: busybox": 2},
        "virtual disk": {"qemu-storage-da: -": 3},
        "load generator": {"iotax-engine": 50},
    }


def test_small_calls_are_counted_with_their_caller_and_copies_with_whoever_wanted_them() -> None:
    code = Code(symbols())
    nodes = [
        Node(-1, 0, 100, 0, 0),
        Node(0, MODULE, 800, 0, 7),
        Node(1, KERNEL, 99, 4096, 64),
        Node(1, KERNEL + 0x100, 1, 0, 0),
        Node(3, KERNEL, 0, 8, 0),
        Node(-1, KERNEL + 0x300, 1, 0, 0),
    ]
    found = code.counted(nodes)
    assert [(call.caller, call.function, call.instructions) for call in found.calls] == [
        (-1, "iotax-engine", 100),
        (0, "nvme_tcp_queue_rq [nvme_tcp]", 801),
        (1, "memcpy", 99),
        (-1, "others", 1),
    ]
    assert found.copied_bytes == {"transport": {"nvme_tcp_queue_rq [nvme_tcp]": 4096}, "TCP/IP": {"tcp_ack": 8}}
    assert found.cache_lines == {"transport": {"nvme_tcp_queue_rq [nvme_tcp]": 7}, "copies": {"memcpy": 64}}
    assert sum(call.instructions for call in found.calls) == sum(node.instructions for node in nodes)


def test_interrupts_and_new_threads_have_no_caller() -> None:
    lines = ["asm_sysvec_apic_timer_interrupt", "ret_from_fork", "ret_from_fork_asm", "asm_exc_page_fault", "tcp_ack"]
    code = Code(Symbols.parse(f"{KERNEL + at:x} T {name}" for at, name in enumerate(lines)))
    assert code.roots() == [KERNEL, KERNEL + 1, KERNEL + 2]


def test_copying_functions_of_either_kernel_are_known_by_name() -> None:
    names = [
        "__memcpy",
        "memcpy_orig",
        "memmove",
        "copy_user_enhanced_fast_string",
        "rep_movs_alternative",
        "copy_page",
    ]
    others = ["memset_orig", "copy_page_to_iter", "copy_user_highpage", "memcmp"]
    lines = [f"{KERNEL + at:x} T {name}" for at, name in enumerate(names + others)]
    code = Code(Symbols.parse([*lines, f"{MODULE:x} t memcpy\t[nvme]"]))
    assert code.copying() == [KERNEL + at for at in range(len(names))]


@pytest.mark.parametrize(
    ("name", "module", "layer"),
    [
        ("__x64_sys_io_uring_enter", "", "system calls, io_uring"),
        ("__filemap_get_folio", "", "VFS, page cache"),
        ("shmem_write_begin", "", "file systems"),
        ("blk_mq_submit_bio", "", "block layer"),
        ("scsi_queue_rq", "scsi_mod", "SCSI"),
        ("nvme_setup_cmd", "nvme_core", "NVMe"),
        ("nvme_tcp_recv_skb", "nvme_tcp", "transport"),
        ("nvmet_tcp_io_work", "nvmet_tcp", "NVMe target"),
        ("iscsit_allocate_cmd", "iscsi_target_mod", "SCSI target"),
        ("nfsd_dispatch", "nfsd", "NFS server"),
        ("rpc_run_task", "sunrpc", "NFS, RPC"),
        ("tcp_sendmsg_locked", "", "TCP/IP"),
        ("__alloc_skb", "", "network core, softirq"),
        ("copy_user_enhanced_fast_string", "", "copies"),
        ("csum_partial", "", "checksums, crypto"),
        ("xfrm_input", "", "encryption"),
        ("kernel_fpu_begin_mask", "", "encryption"),
        ("chacha_8block_xor_avx2", "chacha_x86_64", "encryption"),
        ("gcmaes_crypt_by_sg", "aesni_intel", "encryption"),
        ("wg_packet_rx_poll", "wireguard", "encryption"),
        ("__queue_work", "", "scheduling, wake-ups"),
        ("ktime_get", "", "interrupts, timers"),
        ("_raw_spin_lock_irqsave", "", "locks, RCU"),
        ("rb_erase", "", "data structures"),
        ("clear_page_erms", "", "memory management"),
        ("port_fops_write", "virtio_console", "lab"),
        ("frobnicate", "", "unnamed"),
    ],
)
def test_functions_stand_in_the_layer_of_their_subsystem(name: str, module: str, layer: str) -> None:
    assert layer_of(name, module) == layer
    assert layer in LAYERS


def test_a_machine_loads_the_plugin_from_any_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a,b"
    image = Image(tmp_path / "vmlinuz", tmp_path / "initramfs", "6.1.0", {}, {})
    machine = Machine("storage", 512 << 20, "tcg", "icount", plugin=Plugin(folder / "counter.so"))
    said = " ".join(arguments(machine, image, folder, folder))
    doubled = str(folder).replace(",", ",,")
    assert f"-plugin file={doubled}/counter.so,out={doubled}/storage.counts" in said


def test_what_has_no_profile_is_refused_with_the_reason(tmp_path: Path) -> None:
    def faults(now: str, then: str) -> str:
        text = study(1, "iscsi, nvme-tcp")
        assert now in text
        with pytest.raises(StudyError) as said:
            read_study("s.yaml", text.replace(now, then), tmp_path)
        return str(said.value)

    assert "lab.vm.profile: a profile counts instructions; say `clock: icount`" in faults("clock: icount, ", "")
    assert "not of rounds" in faults("replicates: 1", "sessions: 1, rounds: 4, slice: 500ms")
    assert "a profile is of one client" in faults("runtime: 500ms", "runtime: 500ms, clients: 2")
    assert "say `generator: iotax`" in faults("runtime: 500ms", "runtime: 500ms, generator: fio")


def test_without_a_compiler_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("IOTAX_CACHE", str(tmp_path / "cache"))
    with pytest.raises(VmFault, match="gcc is not there, to build QEMU's plugin; install the package gcc"):
        counting_plugin(PROGRAM, "7.2.0", lambda _: None)


def test_a_qemu_without_plugins_is_quoted(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require("cc")
    monkeypatch.setenv("IOTAX_CACHE", str(tmp_path / "cache"))
    write_program(programs / PROGRAM, "echo 'plugin interface not enabled in this build' >&2; exit 1")
    with pytest.raises(VmFault, match=r"does not take plugins \(plugin interface not enabled in this build\)"):
        counting_plugin(PROGRAM, "7.2.0", lambda _: None)
    # A QEMU that accepts only the second version of the interface gets it, and the built plugin is kept.
    accept = 'for word; do case "$word" in file=*) so="${word#file=}" ;; esac; done; so="${so%%,*}"'
    write_program(programs / PROGRAM, f"{accept}; [ -e {tmp_path}/first ] || {{ touch {tmp_path}/first; exit 1; }}")
    told: list[str] = []
    plugin = counting_plugin(PROGRAM, "9.2.0", told.append)
    assert plugin.file.read_bytes().startswith(b"\x7fELF")
    assert counting_plugin(PROGRAM, "9.2.0", told.append) == plugin
    assert told == ["building QEMU's plugin that counts instructions"]


def test_a_lab_that_cannot_profile_says_why_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("IOTAX_CACHE", str(tmp_path / "cache"))
    of = read_study("s.yaml", study(1, "iscsi, nvme-tcp"), tmp_path)
    lab = VmLab(of, plan(of), tmp_path / "engine")
    why = "gcc is not there, to build QEMU's plugin; install the package gcc"
    assert CheckItem("warning", "profile", f"no layers and functions are counted: {why}") in lab.check()
    told: list[Any] = []
    lab._profiling.prepare("7.2.0", told.append, cache_lines=False)
    assert told[-1] == Step(f"no profile: {why}")
    said = lab._describe(None, of.settings({"protocol": "iscsi"}))
    assert said.found["profile"] == f"none: {why}"


def run(folder: Path, engine: Path, text: str) -> dict[str, TrialResult]:
    """Runs a study with real kernels; protocol → result."""
    with start(folder, engine, text) as running:
        said, _ = running.communicate(timeout=1100)
    assert running.returncode == 0, said
    with Notebook(folder / "kernels.iotax") as notebook:
        attempts = notebook.attempts(1)
    return {str(each.trial.treatment["protocol"]): each.result for each in attempts if each.result is not None}


def callers(profile: Profile, function: str) -> str:
    """The most frequent callers of a function, outermost first."""
    found = [call for call in profile.calls if call.function.partition(" ")[0] == function]
    at, names = max(found, key=lambda call: call.instructions).caller, []
    while at >= 0:
        names.append(profile.calls[at].function)
        at = profile.calls[at].caller
    return " ".join(reversed(names))


def instructions_per_io(result: TrialResult) -> float:
    [guest] = [part for part in result.cpu if part.layer == "guest"]
    return guest.busy_ns / 4 / result.ios


def is_whole(profile: Profile, result: TrialResult) -> None:
    # The guest is always busy: its clock counts its instructions, and clocks are read slightly late.
    assert profile.instructions / profile.ios == pytest.approx(instructions_per_io(result), rel=0.005)
    unnamed = sum(profile.layers.get(UNNAMED, {}).values())
    assert unnamed < 0.05 * profile.instructions
    assert sum(call.instructions for call in profile.calls) == profile.instructions
    # Every I/O is copied at least once between the volume's pages and another buffer.
    copied = sum(sum(own.values()) for own in profile.copied_bytes.values())
    assert copied / profile.ios > 4000


@pytest.mark.parametrize(
    "protocols",
    [
        "local, iscsi, nvme-tcp",
        pytest.param("local, iscsi, nvme-tcp, nfs3, fcp, nvme-rdma, fc-nvme", marks=pytest.mark.long),
    ],
)
def test_real_kernels_are_profiled_and_cost_the_same(tmp_path: Path, engine: Path, protocols: str) -> None:
    require("cc")
    with_profile = run(tmp_path, engine, study(1, protocols))
    plain = tmp_path / "plain"
    plain.mkdir()
    without = run(plain, engine, study(1, "iscsi, nvme-tcp").replace(", profile: true", ""))
    assert set(with_profile) == set(protocols.split(", "))
    for protocol, result in with_profile.items():
        [profile] = result.profile
        assert (profile.host, profile.role) == ("initiator guest", "initiator" if protocol == "local" else "both")
        is_whole(profile, result)
    # The NVMe/TCP target runs in a kernel worker thread: work → the target's queue → TCP.
    [profile] = with_profile["nvme-tcp"].profile
    assert "worker_thread process_one_work nvmet_tcp_io_work [nvmet_tcp]" in callers(profile, "nvmet_tcp_try_recv_pdu")
    for protocol, result in without.items():
        assert not result.profile
        # Two boots differ by half a percent; 2 % is the margin of the studies that count instructions.
        assert instructions_per_io(with_profile[protocol]) == pytest.approx(instructions_per_io(result), rel=0.02)


def test_the_functions_of_a_target_that_is_a_program_are_named(tmp_path: Path, engine: Path) -> None:
    require("cc")
    asked = study(1, "").replace("{protocol: []}", "{protocol: {iscsi: {protocol: iscsi, target: iotax}}}")
    [profile] = run(tmp_path, engine, asked)["iscsi"].profile
    functions = profile.layers["target program"]
    assert max(functions.values()) < 0.25 * sum(functions.values())
    named = [name for name in functions if name.endswith(" [iotax-engine]") and not name.startswith("other code")]
    assert any("iotax_proto::iscsi::target_side" in name for name in named)
    assert sum(functions[name] for name in named) > 0.7 * sum(functions.values())
    # The load generator is the same program, but a process of its own.
    assert set(profile.layers["load generator"]) == {"iotax-engine"}


@pytest.mark.long
def test_initiator_and_target_of_two_guests_have_a_profile_each(tmp_path: Path, engine: Path) -> None:
    require("cc")
    results = run(tmp_path, engine, study(2, "local, iscsi"))
    [local] = results["local"].profile
    assert (local.host, local.role) == ("storage guest", "initiator")
    initiator, target = results["iscsi"].profile
    assert [(each.host, each.role) for each in (initiator, target)] == [
        ("initiator guest", "initiator"),
        ("storage guest", "target"),
    ]
    # The target's instructions and I/Os are counted from before the warm-up.
    assert target.ios > initiator.ios == results["iscsi"].ios
    assert "SCSI target" in target.layers
    assert "SCSI target" not in initiator.layers
    assert "load generator" in initiator.layers
