"""Cache lines that threads of the target share: from samples of valgrind's output, and from a real server."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from bench.process import FailedError
from bench.sharing import Trace, measure, volume_in

pytestmark = pytest.mark.slow

TWO_THREADS = """\
==7== Lackey, an example Valgrind tool
--7--   SCHED[2]:  acquired lock (VG_(client_syscall)[async])
I  04001000,3
 L 1ffe000000,8
 S 00005000,8
 M 00006000,4
--7--   SCHED[2]: releasing lock (VG_(client_syscall)[async])
--7--   SCHED[3]:  acquired lock (VG_(client_syscall)[async])
I  04001000,3
I  04001003,2
 L 00005010,8
 S 00007000,8
 L 1ffe000000,8
 L 0000503e,4
"""


def test_a_line_that_one_thread_writes_and_another_reads_is_shared() -> None:
    trace = Trace()
    trace.follow(TWO_THREADS.splitlines())
    assert trace.instructions == {2: 1, 3: 2}
    assert trace.moves() == {0x5000 >> 6: 2}, "not what both only read, nor what one has for itself"


def test_a_line_moves_no_more_often_than_it_is_written_or_touched() -> None:
    once = Trace(thread=1)
    once.follow([" S 00005000,8"])
    once.thread = 2
    once.follow([" L 00005000,8"] * 100)
    assert once.moves() == {0x140: 2}
    often = Trace(thread=1)
    often.follow([" M 00005000,8"] * 100)
    often.thread = 2
    often.follow([" L 00005000,8"])
    assert often.moves() == {0x140: 101}


def test_an_access_across_two_lines_touches_both() -> None:
    trace = Trace(thread=1)
    trace.follow([" S 0000503e,4"])
    assert trace.touched == {0x140: {1: 1}, 0x141: {1: 1}}


def test_what_is_left_out_is_not_followed() -> None:
    trace = Trace(left_out=range(0x5000, 0x6000))
    trace.follow(TWO_THREADS.splitlines())
    assert trace.moves() == {}
    assert 0x7000 >> 6 in trace.touched


def test_the_volume_is_found_among_a_process_s_mappings() -> None:
    volume = "7f0000000000-7f0001000000 rw-s 00000000 00:01 9 /memfd:iotax-v0 (deleted)\n"
    ring = "7f0002000000-7f0002001000 rw-s 00000000 00:01 9 /memfd:ring (deleted)\n"
    assert volume_in(ring + volume) == range(0x7F0000000000, 0x7F0001000000)
    with pytest.raises(FailedError, match="0 memory files"):
        volume_in(ring)


@pytest.mark.parametrize(
    ("protocol", "direction", "media"),
    [("nvme-tcp", "write", "file"), ("iscsi", "write", "file"), ("nfs3", "read", "memory")],
)
def test_threads_of_the_target_share_next_to_nothing_on_the_path_of_an_io(
    protocol: str, direction: str, media: str, available: Callable[[], AbstractContextManager[None]]
) -> None:
    with available():
        # A busy machine completes few I/Os in a short window.
        for window_s in (2.0, 8.0, 32.0):
            found = measure(protocol, direction, 2, window_s, media)
            if found.ios > 50:
                break
    assert found.threads == 2
    assert found.ios > 50
    assert found.moves < 1
