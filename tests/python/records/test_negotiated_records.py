"""Negotiated settings are one record per protocol, even if an engine, kernel or old notebook reported words."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from iotax.cli.show import connections
from iotax.notebook import Notebook
from iotax.records import IscsiAgreed, Negotiated, NfsAgreed, NothingAgreed, NvmeAgreed, understood
from iotax.trial import Connected

WORDS = Path(__file__).with_name("data") / "agreed_in_words.iotax.gz"
"""Written when notebooks stored negotiated settings as names and values; it has one run per protocol on one machine."""

GUEST = {
    "lab": "vm", "qemu": "8.2.0", "clock": "icount", "load_in": "initiator guest", "device": "/dev/nvme0n1",
    "mtu": "9000", "io_queues": "2", "header_digest": "on",
}  # fmt: skip
"""What notebooks of the vm lab stored in the same place."""


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    path = tmp_path / "words.iotax"
    path.write_bytes(gzip.decompress(WORDS.read_bytes()))
    return path


def test_an_earlier_notebooks_words_become_records(earlier: Path) -> None:
    with Notebook(earlier) as notebook:
        attempts = notebook.attempts()
    agreed = {each.trial.treatment["protocol"]: each.connected for each in attempts if each.status == "done"}
    assert set(agreed) == {"local", "nfs3", "iscsi", "nvme-tcp"}
    kinds = {name: type(each.negotiated) for name, each in agreed.items() if each}
    assert kinds == {"local": NothingAgreed, "nfs3": NfsAgreed, "iscsi": IscsiAgreed, "nvme-tcp": NvmeAgreed}
    assert not any(each.found for each in agreed.values() if each)
    iscsi, nvme, nfs = (agreed[name] for name in ("iscsi", "nvme-tcp", "nfs3"))
    assert iscsi is not None
    assert iscsi.negotiated == IscsiAgreed(
        header_digest=False,
        data_digest=False,
        immediate_data=True,
        initial_r2t=False,
        first_burst_bytes=1 << 18,
        max_burst_bytes=1 << 20,
        max_outstanding_r2t=4,
        max_segment_bytes=1 << 18,
        target_max_segment_bytes=1 << 18,
        authentication="None",
    )
    assert nvme is not None
    assert isinstance(nvme.negotiated, NvmeAgreed)
    assert (nvme.negotiated.max_h2c_data_bytes, nvme.negotiated.in_capsule_bytes) == (1 << 20, 1 << 16)
    assert nfs is not None
    assert isinstance(nfs.negotiated, NfsAgreed)
    assert (nfs.negotiated.version, nfs.negotiated.read_max_bytes) == ("3", 1 << 20)
    lines = connections(attempts)
    assert [line.partition(" ")[0] for line in lines] == ["nfs3", "iscsi", "nvme-tcp"]
    assert "HeaderDigest None, DataDigest None, ImmediateData Yes" in lines[1]


def test_what_a_guest_said_stands_beside_what_was_agreed() -> None:
    connected = Connected.model_validate({"endpoint": "vm:nvme-tcp", "negotiated": GUEST})
    assert connected.negotiated == NvmeAgreed(io_queues=2, header_digest=True)
    assert connected.found == {
        name: value for name, value in GUEST.items() if name not in ("io_queues", "header_digest")
    }
    assert connected.words == {**GUEST, "header_digest": "true"}


@pytest.mark.parametrize(
    ("words", "agreed"),
    [
        ({"header_digest": "on", "data_digest": "off"}, IscsiAgreed(header_digest=True, data_digest=False)),
        ({"queues": "4", "data_digest": "on"}, NvmeAgreed(io_queues=4, data_digest=True)),
        ({"vers": "4.1", "nconnect": "2"}, NfsAgreed(version="4.1", connections=2)),
        ({}, NothingAgreed()),
    ],
)
def test_a_kernels_words_are_understood(words: dict[str, str], agreed: Negotiated) -> None:
    assert understood(words) == (agreed, {})


def test_what_no_record_knows_and_what_is_no_value_stay_words() -> None:
    words = {"MaxBurstLength": "plenty", "FirstBurstLength": "4096", "Colour": "blue", "InitialR2T": ""}
    assert understood(words) == (IscsiAgreed(first_burst_bytes=4096), {"MaxBurstLength": "plenty", "Colour": "blue"})
    assert understood({"MaxBurstLength": "plenty"}) == (NothingAgreed(), {"MaxBurstLength": "plenty"})


@pytest.mark.parametrize("kind", [IscsiAgreed, NvmeAgreed, NfsAgreed])
def test_a_record_says_all_that_it_holds_and_is_understood_again(kind: Any) -> None:
    values: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        if name != "protocol":
            values[name] = True if "bool" in str(field.annotation) else 7 if "int" in str(field.annotation) else "text"
    record = kind(**values)
    assert len(record.words()) == len(values)
    assert understood(record.words()) == (record, {})


def test_a_record_is_read_as_it_was_written() -> None:
    connected = Connected(negotiated=NvmeAgreed(io_queues=3, header_digest=False), found={"device": "/dev/nvme0n1"})
    assert Connected.model_validate_json(connected.model_dump_json()) == connected
    assert Connected.model_validate_json(Connected().model_dump_json()) == Connected()


def test_levels_of_one_protocol_are_told_apart_where_they_agreed_on_something_else(earlier: Path) -> None:
    with Notebook(earlier) as notebook:
        [first] = [each for each in notebook.attempts() if each.trial.treatment["protocol"] == "nvme-tcp"][:1]
    assert first.connected is not None
    assert isinstance(first.connected.negotiated, NvmeAgreed)
    trial = first.trial.model_copy(update={"treatment": {**first.trial.treatment, "protocol": "NVMe, digests"}})
    again = first.model_copy(update={"trial": trial})
    assert [line.partition(" agreed: ")[0] for line in connections([first, again])] == ["nvme-tcp"]
    digests = first.connected.negotiated.model_copy(update={"header_digest": True})
    other = again.model_copy(update={"connected": first.connected.model_copy(update={"negotiated": digests})})
    lines = connections([first, other])
    assert [line.partition(" agreed: ")[0] for line in lines] == ["nvme-tcp", "NVMe, digests"]
    assert "header_digest true" in lines[1]
