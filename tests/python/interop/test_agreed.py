"""What a load negotiated with its target, for each protocol, and how `iotax show` prints it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest

from iotax.cli.show import connections
from iotax.records import Facts
from iotax.trial import Attempt, Connected, Trial, TrialResult

Load = Callable[..., list[dict[str, Any]]]
Serve = Callable[[dict[str, Any]], dict[str, Any]]

ASKED: dict[str, dict[str, Any]] = {
    "nfs3": {},
    "iscsi": {"header_digest": True, "first_burst_bytes": 4096},
    "nvme-tcp": {"header_digest": True},
}
AGREED = {
    "nfs3": {"version": "3", "rtmax": "1048576", "wtmax": "1048576"},
    "iscsi": {"HeaderDigest": "CRC32C", "DataDigest": "None", "FirstBurstLength": "4096", "AuthMethod": "None"},
    "nvme-tcp": {
        "header_digest": "true",
        "data_digest": "false",
        "maxh2cdata_bytes": "1048576",
        "queue_entries": "8",
        "cntlid": "1",
        "authentication": "none",
    },
}
RECORDED: dict[str, dict[str, Any]] = {
    "nfs3": {"version": "3", "read_max_bytes": 1 << 20, "write_max_bytes": 1 << 20},
    "iscsi": {"header_digest": True, "data_digest": False, "first_burst_bytes": 4096},
    "nvme-tcp": {"header_digest": True, "data_digest": False, "max_h2c_data_bytes": 1 << 20, "queue_entries": 8},
}


@pytest.mark.parametrize("protocol", ASKED)
def test_a_load_says_what_was_agreed(protocol: str, serve: Serve, load: Load) -> None:
    volume = {"name": "v0", "media": "memory", "size_bytes": 8 << 20}
    export = {"protocol": protocol, "listen": "127.0.0.1:0", "volume": "v0"}
    endpoint = serve({"volumes": [volume], "exports": [export]})["portals"][0]["endpoint"]
    run = {"task": "run", "endpoint": endpoint, "options": ASKED[protocol], "outstanding": 7, "runtime_ns": 10_000_000}
    said, *_, measured = load(run)
    connected = Connected.model_validate(said)
    result = TrialResult.model_validate(measured).model_copy(update={"facts": Facts(protocol=protocol)})
    assert AGREED[protocol].items() <= connected.words.items(), connected.words
    assert not connected.found, "every word of the engine has its place in the record"
    for name, value in RECORDED[protocol].items():
        assert getattr(connected.negotiated, name) == value
    trial = Trial(id="t", study="s", treatment={}, block=1, replicate=1, order=1)
    ended: list[tuple[Literal["failed", "done"], Connected | None]] = [
        ("failed", None),
        ("done", connected),
        ("done", connected),
    ]
    attempts = [
        Attempt(
            trial=trial,
            number=number,
            status=status,
            reason="",
            started_unix_ns=0,
            ended_unix_ns=1,
            connected=each,
            result=result if status == "done" else None,
        )
        for number, (status, each) in enumerate(ended, 1)
    ]
    [line] = connections(attempts)
    assert line.startswith(f"{protocol} agreed: ")
    assert all(f"{name} {value}" in line for name, value in AGREED[protocol].items())
