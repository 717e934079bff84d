"""Instruction counts in a guest with several processors: the parts that need no guest."""

from __future__ import annotations

import pytest

from bench import in_guest
from bench.process import UnavailableError


def test_versions_of_qemu_are_read_by_their_numbers() -> None:
    assert in_guest.version_of("7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)") < in_guest.QEMU_MIN
    assert in_guest.version_of("10.0.2 (Debian 1:10.0.2+ds-2)") > in_guest.QEMU_MIN
    with pytest.raises(UnavailableError, match="says no version: unknown"):
        in_guest.version_of("unknown")


def test_a_qemu_that_starts_one_processor_is_refused_before_a_guest_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_guest, "require_qemu", lambda: "7.2.22 (Debian)")
    with pytest.raises(UnavailableError, match=r"QEMU 7.2.22 \(Debian\) starts one processor"), in_guest.guest_of(4):
        pytest.fail("it was made")
