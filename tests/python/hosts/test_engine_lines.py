"""Engine output is parsed the same way for every connection. A line that is not an event ends a measurement."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from iotax.engine import EngineError, event_of
from iotax.places import HostFault
from iotax.places.ssh import Remote

NO_EVENTS = [b"Segmentation fault\n", b"[1, 2]\n", b'{"kind": "usage"}\n', b'{"event": 7}\n', b"\xff\xfe\n"]


class _Says:
    def __init__(self, line: bytes) -> None:
        self._line = line

    async def readuntil(self, separator: bytes) -> bytes:
        assert separator == b"\n"
        return self._line

    async def read(self, n: int) -> bytes:
        del n
        return b""


def heard_from_a_host(line: bytes) -> dict[str, Any]:
    async def hear() -> dict[str, Any]:
        process = SimpleNamespace(stdout=_Says(line), stderr=_Says(b""))
        return await Remote("h1", cast(Any, process), None).event(1.0)

    return asyncio.run(hear())


@pytest.mark.parametrize("line", NO_EVENTS)
def test_a_hosts_line_that_is_no_event_is_a_fault_of_that_host(line: bytes) -> None:
    with pytest.raises(HostFault, match="a line that is not an event") as fault:
        heard_from_a_host(line)
    assert fault.value.kind == "malformed"


def test_a_hosts_error_keeps_its_kind_and_place() -> None:
    with pytest.raises(HostFault, match=r"no such unit \(iscsi://h/x\)") as fault:
        heard_from_a_host(b'{"event":"error","kind":"not_found","message":"no such unit","where":"iscsi://h/x"}\n')
    assert fault.value.kind == "not_found"


def test_an_event_is_what_it_says() -> None:
    assert heard_from_a_host(b'{"event":"armed"}\n') == event_of(b'{"event":"armed"}') == {"event": "armed"}


@pytest.mark.parametrize("line", NO_EVENTS)
def test_a_line_that_is_no_event_is_no_event_anywhere(line: bytes) -> None:
    with pytest.raises(EngineError) as error:
        event_of(line)
    assert error.value.kind == "malformed"
