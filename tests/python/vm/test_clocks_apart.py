"""Emulated guests whose clocks drift apart, as on a busy host: neither must take the other for lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from iotax.labs.vm.guests import Guest, Guests

_READ = "dd if={} of=/dev/null bs=4k count=4 iflag=direct 2>&1"


@contextmanager
def _stopped(guest: Guest) -> Iterator[None]:
    """Stops the guest's processor and clock."""
    guest.monitor.execute("stop", timeout_s=20)
    yield
    guest.monitor.execute("cont", timeout_s=20)


def _passes(guest: Guest, seconds: int) -> None:
    """Waits by the guest's own clock."""
    guest.run(f"sleep {seconds}", timeout_s=10 * seconds)


@pytest.mark.parametrize("server", ["", "SERVER=iotax; "], ids=["nvmet", "iotax"])
def test_an_nvme_target_does_not_give_up_an_initiator_whose_clock_is_behind(guests: Guests, server: str) -> None:
    initiator, storage = guests["initiator"], guests["storage"]
    storage.run(f"volume_up {16 << 20}")
    storage.run(f"{server}step nvme-tcp target_up")
    initiator.run(f"{server}step nvme-tcp initiator_up")
    with _stopped(initiator):
        _passes(storage, 8)  # Linux's default keep-alive timeout is 5 s
    initiator.run(_READ.format("/dev/nvme0n1"))
    assert initiator.run("dmesg | grep -c 'error recovery' || true") == ["0"]


@pytest.mark.long
def test_a_disk_over_fcp_stays_while_a_port_is_taken_for_gone(guests: Guests) -> None:
    initiator, storage = guests["initiator"], guests["storage"]
    storage.run(f"volume_up {16 << 20}")
    storage.run("step fcp target_up")
    initiator.run("step fcp initiator_up")
    for behind, ahead in ((initiator, storage), (storage, initiator)):
        initiator.run(f"({_READ.format('/dev/sda')}) >/run/read 2>&1 3>&- &")
        with _stopped(behind):
            _passes(ahead, 45)  # a VN2VN port is removed after 20 s, and a SCSI command times out after 30 s
        initiator.run("wait_for() { grep -q 'records out' /run/read; }; until_true 60 wait_for", timeout_s=200)
        initiator.run(_READ.format("/dev/sda"))
