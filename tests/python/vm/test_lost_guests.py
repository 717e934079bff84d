"""Real guests that are overloaded at once, whose kernel refuses, stops answering or panics, or that lose their host."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from iotax.labs.vm.fault import VmFault
from iotax.labs.vm.guests import Guest, Guests, StepFailed
from iotax.labs.vm.image import ENGINE, Image
from iotax.labs.vm.qemu import Machine
from iotax.places.waiting import wait_for

from .studies import machines_of, with_machines_up
from .test_kernels import STUDY


def test_a_refusal_silence_and_a_panic_are_told_in_the_kernels_words(guests: Guests) -> None:
    initiator, storage = guests["initiator"], guests["storage"]
    storage.run(". /lab/net.sh; net_up 1")
    with pytest.raises(StepFailed, match=r"connect transport=tcp(.|\n)*kernel: .*failed to connect socket: -111"):
        initiator.run("step nvme-tcp initiator_up")
    assert initiator.run("echo still here") == ["still here"]

    os.kill(storage.pid, signal.SIGSTOP)
    with pytest.raises(
        VmFault, match=r"storage guest: was lost \(no answer in time\): the storage guest does not answer"
    ):
        storage.run("echo anybody", timeout_s=2)
    os.kill(storage.pid, signal.SIGCONT)

    with pytest.raises(VmFault, match="Kernel panic - not syncing: sysrq triggered crash") as caught:
        initiator.run("echo c >/proc/sysrq-trigger; sleep 60", timeout_s=30)
    assert "sysrq: Trigger a crash" in caught.value.console


def test_a_new_nfs_server_lets_nobody_wait_for_locks(guests: Guests) -> None:
    guests["storage"].run("volume_up 1048576; step nfs3 target_up")
    for ended in ("/proc/fs/lockd/nlm_end_grace", "/proc/fs/nfsd/v4_end_grace"):
        assert guests["storage"].run(f"head -c 1 {ended}") == ["Y"]


def test_each_of_many_scripts_runs_once_however_fast_they_come(image: Image, tmp_path: Path) -> None:
    guest = Guest(Machine("alone", 512 << 20, "tcg"), image, tmp_path)
    try:
        guest.boot(time.monotonic() + 120)
        for number in range(40):
            wait_for(guest.port.script(f"echo {number} >>/run/ran"))
        seen = guest.run("until_true 60 sh -c '[ $(cat /run/ran | wc -l) -ge 40 ]'; cat /run/ran", timeout_s=120)
        assert sorted(map(int, seen)) == list(range(40))
    finally:
        guest.close()


def test_a_load_ends_when_its_host_side_is_gone(image: Image, tmp_path: Path) -> None:
    guest = Guest(Machine("alone", 512 << 20, "tcg"), image, tmp_path)
    try:
        guest.boot(time.monotonic() + 120)
        guest.run(f"volume_up {1 << 20}; {ENGINE} --version")
        number = wait_for(
            guest.port.script("echo begun; while :; do dd if=/volume/data of=/dev/null bs=4k 2>/dev/null; done")
        )
        assert wait_for(guest.port.line(number, 60)) == "begun"
        wait_for(guest.port.close())
        deadline_s = time.monotonic() + 600
        while guest.alive() and time.monotonic() < deadline_s:
            time.sleep(0.1)
        assert not guest.alive()
    finally:
        guest.close()


def test_ctrl_c_leaves_no_machine_and_no_folder(engine: Path) -> None:
    with with_machines_up(engine, STUDY) as (folder, study):
        study.send_signal(signal.SIGINT)
        said, _ = study.communicate(timeout=180)
        assert "interrupted" in said
        assert machines_of(folder) == []
        assert list(folder.glob("iotax-vm-*")) == []
