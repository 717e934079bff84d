"""The settings on which the two ends of a connection agreed, with a record for each kind of protocol. Unreported ones
are None.

The engine and the kernels report them as words with the names of the standards (docs/reference/engine.md), as did
notebooks of earlier versions. `understood` makes records of words, and `words` words of a record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, ValidationError

from iotax.records.base import Record


@dataclass(frozen=True)
class _Term:
    """The words of a field."""

    names: tuple[str, ...]
    """The first is how we say it, the others how kernels do."""
    no: str = ""
    yes: str = ""


def _digest(said: Any) -> Any:
    return {"CRC32C": True, "None": False}.get(said, said)


_Count: TypeAlias = int | None
_Text: TypeAlias = str | None
_Flag: TypeAlias = bool | None
_Digest: TypeAlias = Annotated[bool | None, BeforeValidator(_digest)]
_YES = {"no": "No", "yes": "Yes"}
_CRC = {"no": "None", "yes": "CRC32C"}
_TRUE = {"no": "false", "yes": "true"}


class Agreed(Record):
    """Fields of all kinds."""

    def words(self) -> dict[str, str]:
        """Name → value, both as in the standard, for all known fields."""
        found = {}
        for name, term in _terms(type(self)).items():
            value = getattr(self, name)
            if value is not None:
                found[term.names[0]] = (term.yes if value else term.no) if isinstance(value, bool) else str(value)
        return found


class IscsiAgreed(Agreed):
    """RFC 7143 §13."""

    protocol: Literal["iscsi"] = "iscsi"
    header_digest: Annotated[_Digest, _Term(("HeaderDigest", "header_digest"), **_CRC)] = None
    data_digest: Annotated[_Digest, _Term(("DataDigest", "data_digest"), **_CRC)] = None
    immediate_data: Annotated[_Flag, _Term(("ImmediateData",), **_YES)] = None
    initial_r2t: Annotated[_Flag, _Term(("InitialR2T",), **_YES)] = None
    first_burst_bytes: Annotated[_Count, _Term(("FirstBurstLength",))] = None
    max_burst_bytes: Annotated[_Count, _Term(("MaxBurstLength",))] = None
    max_outstanding_r2t: Annotated[_Count, _Term(("MaxOutstandingR2T",))] = None
    max_segment_bytes: Annotated[_Count, _Term(("MaxRecvDataSegmentLength",))] = None
    """Limit of the initiator; the next is that of the target."""
    target_max_segment_bytes: Annotated[_Count, _Term(("MaxRecvDataSegmentLength of the target",))] = None
    authentication: Annotated[_Text, _Term(("AuthMethod",))] = None


class NvmeAgreed(Agreed):
    """Fields for any fabric; the digests and `max_h2c_data_bytes` are TCP's (NVMe/TCP 1.1 §3.6.2.3)."""

    protocol: Literal["nvme"] = "nvme"
    controller_id: Annotated[_Count, _Term(("cntlid",))] = None
    header_digest: Annotated[_Flag, _Term(("header_digest",), **_TRUE)] = None
    data_digest: Annotated[_Flag, _Term(("data_digest",), **_TRUE)] = None
    max_h2c_data_bytes: Annotated[_Count, _Term(("maxh2cdata_bytes",))] = None
    in_capsule_bytes: Annotated[_Count, _Term(("in_capsule_bytes",))] = None
    """Data within a command's capsule: IOCCSZ without the command."""
    max_transfer_bytes: Annotated[_Count, _Term(("max_transfer_bytes",))] = None
    """MDTS."""
    io_queues: Annotated[_Count, _Term(("io_queues", "queues"))] = None
    queue_entries: Annotated[_Count, _Term(("queue_entries",))] = None
    keep_alive_ms: Annotated[_Count, _Term(("keep_alive_ms",))] = None
    authentication: Annotated[_Text, _Term(("authentication",))] = None


class NfsAgreed(Agreed):
    """The `max` and `preferred` are what the server offered (FSINFO, RFC 1813 §3.3.19); `read_bytes` and `write_bytes`
    what a kernel's mount uses (rsize and wsize)."""

    protocol: Literal["nfs"] = "nfs"
    version: Annotated[_Text, _Term(("version", "vers"))] = None
    stability: Annotated[_Text, _Term(("stability",))] = None
    """Stability of writes: unstable, or as stable as the server makes them."""
    port: Annotated[_Count, _Term(("port",))] = None
    mount_port: Annotated[_Count, _Term(("mount_port",))] = None
    read_max_bytes: Annotated[_Count, _Term(("rtmax",))] = None
    read_preferred_bytes: Annotated[_Count, _Term(("rtpref",))] = None
    write_max_bytes: Annotated[_Count, _Term(("wtmax",))] = None
    write_preferred_bytes: Annotated[_Count, _Term(("wtpref",))] = None
    listing_preferred_bytes: Annotated[_Count, _Term(("dtpref",))] = None
    read_bytes: Annotated[_Count, _Term(("rsize",))] = None
    write_bytes: Annotated[_Count, _Term(("wsize",))] = None
    connections: Annotated[_Count, _Term(("nconnect",))] = None


class NothingAgreed(Agreed):
    """A connection whose protocol has no such settings, or of which nothing was reported."""

    protocol: Literal["unknown"] = "unknown"


Negotiated: TypeAlias = Annotated[IscsiAgreed | NvmeAgreed | NfsAgreed | NothingAgreed, Field(discriminator="protocol")]
_KINDS: tuple[type[IscsiAgreed | NvmeAgreed | NfsAgreed], ...] = (IscsiAgreed, NvmeAgreed, NfsAgreed)


def understood(words: Mapping[str, str]) -> tuple[Negotiated, dict[str, str]]:
    """The settings, and words that are not settings or have unexpected values. The kind that knows most of the words is
    taken; digests alone, which two kinds know, are iSCSI's, since NVMe always reports the number of queues."""
    said = {name: value for name, value in words.items() if value}
    kind = max(_KINDS, key=lambda each: len(said.keys() & _names(each).keys()))
    names = _names(kind)
    known = {name for name in said if name in names}
    try:
        agreed = kind.model_validate({names[name]: said[name] for name in known})
    except ValidationError as error:
        wrong = {each["loc"][0] for each in error.errors()}
        known = {name for name in known if names[name] not in wrong}
        agreed = kind.model_validate({names[name]: said[name] for name in known})
    return (agreed if known else NothingAgreed()), {name: said[name] for name in said if name not in known}


def _terms(kind: type[Agreed]) -> dict[str, _Term]:
    """Field → its words."""
    found = {}
    for name, field in kind.model_fields.items():
        for term in field.metadata:
            if isinstance(term, _Term):
                found[name] = term
    return found


def _names(kind: type[Agreed]) -> dict[str, str]:
    """Each name that a field has → the field."""
    return {said: name for name, term in _terms(kind).items() for said in term.names}
