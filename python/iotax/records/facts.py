"""How a trial came about, as far as anybody knew: what analysis may read beside the measurement.

"Unknown" is legal everywhere: results from elsewhere say little, and an analysis says what it cannot do with them.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from iotax.records.base import Record

Kind: TypeAlias = Literal["hardware", "software", "loop", "none", "unknown"]
"""`hardware`: adapters do the transport. `software`: a processor does. `loop`: no transport at all, calls within one
kernel. `none`: no protocol."""


class Carrier(Record):
    """What does a protocol's transport in this lab, and what usually does."""

    kind: Kind = "unknown"
    usual: Kind = "unknown"
    """Where the protocol is in use."""
    name: str = ""
    """As a sentence names it: "software FCoE"."""

    @property
    def emulated(self) -> bool:
        """The lab's differs from the usual one, so that CPU, latency and throughput are the emulation's too."""
        return "unknown" not in (self.kind, self.usual) and self.kind != self.usual


class Link(Record):
    """What lies between initiator and target."""

    kind: Literal["none", "loopback", "virtual", "network", "simulated", "unknown"] = "unknown"
    rate_bits_per_s: int | None = None
    """As the lab limits it; None: not limited, or not known."""
    delay_ns: int | None = None
    mtu: int | None = None
    paths: int | None = None
    encryption: str | None = None
    """What encrypts it, as its kernels confirmed; None: nothing, or not known."""


class Facts(Record):
    """Of one trial."""

    lab: str = "unknown"
    protocol: str = "unknown"
    """What the initiator spoke; `local`: none."""
    stack: Literal["user", "kernel", "unknown"] = "unknown"
    """Where the initiator's path runs. `kernel`: its threads and interrupts work for it outside the load process."""
    target_stack: Literal["user", "kernel", "unknown"] = "unknown"
    """Where the target's runs."""
    served: Literal["lab", "elsewhere", "nobody", "unknown"] = "unknown"
    """Who serves. `lab`: a target whose CPU the lab reads. `nobody`: local, with no target that could cost anything."""
    shared: Literal["machine", "hypervisor", "nothing", "unknown"] = "unknown"
    """What initiator and target share: one machine, a hypervisor under two, or nothing."""
    carrier: Carrier = Carrier()
    link: Link = Link()
    clock: Literal["time", "instructions", "virtual", "unknown"] = "unknown"
    """What the durations count: a guest may count instructions instead of time; a simulation has a time of its own."""
    threads: int | None = None
    """Of the load; of each client's, where there are several."""
    clients: int | None = None
    """Hosts that ran the load at once; None where only one could."""
    volumes: int | None = None
    """That the clients had, one each; None where they shared one, or where that is unknown."""
    target_threads: int | None = None
    polling: Literal["never", "auto", "always", "unknown"] = "unknown"
    """How both sides waited; where they looked for news, their processors were busy without work, too."""
    warmup_ns: int | None = None
    """Load before the window, discarded."""

    @property
    def simulated(self) -> bool:
        """Nothing of it was measured on a machine."""
        return self.lab == "sim"
