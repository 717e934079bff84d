"""How a trial came about, as far as known: what analysis may read beside the measurement. "Unknown" is allowed
everywhere: external results say little, and an analysis says what it cannot do with them."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field

from iotax.records.base import Record

Kind: TypeAlias = Literal["hardware", "software", "loop", "none", "unknown"]
"""`hardware`: adapters do the transport. `software`: a processor does. `loop`: no transport at all, calls within one
kernel. `none`: no protocol."""


class Carrier(Record):
    """The implementation of a protocol's transport in this lab, and the usual one."""

    kind: Kind = "unknown"
    usual: Kind = "unknown"
    """The implementation in use elsewhere."""
    name: str = ""
    """The name in a sentence: "software FCoE"."""

    @property
    def emulated(self) -> bool:
        """The lab's differs from the usual one, so that CPU, latency and throughput are the emulation's too."""
        return "unknown" not in (self.kind, self.usual) and self.kind != self.usual


class Link(Record):
    """The path between initiator and target."""

    kind: Literal["none", "loopback", "virtual", "network", "simulated", "unknown"] = "unknown"
    rate_bits_per_s: int | None = None
    """The lab's limit; None if there is none or it is unknown."""
    delay_ns: int | None = None
    mtu: int | None = None
    paths: int | None = None
    encryption: str | None = None
    """The encryption confirmed by its kernels; None without encryption or if unknown."""


class Facts(Record):
    """Facts of one trial."""

    lab: str = "unknown"
    protocol: str = "unknown"
    """The initiator's protocol; `local`: none."""
    stack: Literal["user", "kernel", "unknown"] = "unknown"
    """The place of the initiator's path. `kernel`: its threads and interrupts work for it outside the load process."""
    target_stack: Literal["user", "kernel", "unknown"] = "unknown"
    """The place of the target's path."""
    served: Literal["lab", "elsewhere", "nobody", "unknown"] = "unknown"
    """The server. `lab`: a target whose CPU the lab reads. `nobody`: local, without a target."""
    shared: Literal["machine", "hypervisor", "nothing", "unknown"] = "unknown"
    """The part shared by initiator and target: one machine, a hypervisor under two, or nothing."""
    carrier: Carrier = Carrier()
    link: Link = Link()
    clock: Literal["time", "instructions", "virtual", "unknown"] = "unknown"
    """The unit of durations: a guest may count instructions instead of time; a simulation has its own time."""
    threads: int | None = None
    """Processors of the load, or of each client if there are several."""
    clients: int | None = None
    """Hosts that ran the load at once; None if only one could."""
    volumes: int | None = None
    """Volumes of the clients, one each; None if they shared one, or if unknown."""
    target_threads: int | None = None
    polling: Literal["never", "auto", "always", "unknown"] = "unknown"
    """How both sides waited; with polling, their processors were busy without work, too."""
    warmup_ns: int | None = None
    """Load before the window, discarded."""
    own_target_rate_iops: float | None = None
    """For an external target: the rate of the same load, as fast as it can, on iotax's own target on the load's
    machine, measured beforehand. Both share processors there, so the initiator can do at least this. None if it was not
    measured."""

    @property
    def simulated(self) -> bool:
        """Whether nothing of it was measured on a machine."""
        return self.lab == "sim"


class Origin(Record):
    """The origin of one imported result."""

    program: str
    """The program's usual name: fio, DiskSpd."""
    version: str = ""
    """Empty if the files do not say."""
    files: tuple[str, ...] = ()
    part: str = ""
    """The part of a file that holds several results."""
    start: Literal["said", "told", "guessed"] = "said"
    """The source of its time: the files, the user who imported them, or the files' own times."""
    loop: Literal["open", "closed", "unknown"] = "unknown"
    unit: str = "I/O"
    """What counts as one I/O: a database benchmark counts transactions."""
    settings: dict[str, str] = Field(default={})
    """Settings from the files, such as block_size."""
    notes: tuple[str, ...] = ()
    """Remarks on these figures, a sentence each."""


class Conditioning(Record):
    """One step that ended: a pass of filling in sequence, or a round of overwriting at random."""

    endpoint: str
    """The endpoint as in the study; with `{client}` it stands for the volumes of all hosts, which are worked on at
    once."""
    invocation: int
    """Steps of one invocation follow each other without a rest."""
    kind: Literal["fill", "round"]
    started_unix_ns: int
    duration_ns: int
    bytes: int
    """Written."""
    rate_iops: float | None = None
    """Rate of a round."""
