"""The same study with more hosts, another link, a trunk between switches, another MTU or faster media."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from iotax.labs.sim.lab import paths_used
from iotax.study import Settings, Study
from iotax.study.sim import Sim
from iotax.trial import TrialResult
from iotax.units import format_bit_rate

INITIATORS, TARGET = "initiators' CPU", "target's CPU"
LINK, INITIATOR_LINKS, TARGET_LINK = "link", "initiators' links", "target's link"
TRUNK = "trunk"
INTERCONNECT = "interconnect"
MEDIA = "media"
LUNS, ADAPTERS, CREDITS, TRUNK_CREDITS = "LUNs' queues", "adapters' queues", "credits", "trunk's credits"
BUSIEST = "busiest port"


@dataclass(frozen=True)
class Change:
    """The changes; None means unchanged."""

    hosts: float | None = None
    """So many times as many."""
    link_rate: int | None = None
    """Bit/s."""
    mtu: int | None = None
    media: float | None = None
    """So many times as fast."""
    trunk_rate: int | None = None
    """Bit/s of a trunk between two switches, clients at one and targets at the other."""

    @property
    def words(self) -> str:
        """ "hosts ×2, link 25Gbit"."""
        parts = [
            f"hosts ×{self.hosts:g}" if self.hosts else "",
            f"link {format_bit_rate(self.link_rate)}" if self.link_rate else "",
            f"MTU {self.mtu}" if self.mtu else "",
            f"media {self.media:g}× as fast" if self.media else "",
            f"trunk {format_bit_rate(self.trunk_rate)}" if self.trunk_rate else "",
        ]
        return ", ".join(part for part in parts if part)

    def reason_against(self, study: Study) -> str:
        """Why the study cannot have the change; empty if it can."""
        lab = study.lab.sim
        if lab is None:
            return f"{study.name} runs in the {study.lab.name} lab; what-if is of studies with `lab: sim`"
        if study.search is not None:
            return f"{study.name} searches for a load; what-if is of a study whose loads are given"
        if self.media and lab.media is None:
            return f"the volume of {study.name} is memory, which takes no time: there are no media to be faster"
        if self.hosts and lab.zones is not None:
            return f"the zones of {study.name} name each of its clients; what-if has no zone for others"
        counts = {level.value for level in study.levels().get("clients", ())} or {study.load.clients or 1}
        if self.hosts and any(float(count) * self.hosts != round(float(count) * self.hosts) for count in counts):
            return f"{self.hosts:g} times the hosts is not a whole number of hosts"
        paths = {level.value for level in study.levels().get("paths", ())} or {study.topology.paths}
        if self.trunk_rate and any(int(count) > lab.target_ports for count in paths):
            return (
                f"each path of {study.name} needs a switch and a target port of its own; say `target_ports:` under sim"
            )
        return ""

    def of_study(self, study: Study) -> Study:
        lab = study.lab.sim
        if lab is None or lab.media is None or not self.media:
            return study
        media = lab.media.faster(self.media)
        changed = study.lab.model_copy(update={"sim": lab.model_copy(update={"media": media})})
        return study.model_copy(update={"lab": changed})

    def of_settings(self, settings: Settings) -> Settings:
        topology: dict[str, Any] = {"link_rate": self.link_rate, "mtu": self.mtu}
        topology = {name: value for name, value in topology.items() if value}
        load = {"clients": round((settings.load.clients or 1) * self.hosts)} if self.hosts else {}
        lab = settings.sim
        if lab is not None and self.trunk_rate:
            lab = lab.model_copy(update={"switches": 2, "trunk_rate": self.trunk_rate})
        return replace(
            settings,
            load=settings.load.model_copy(update=load),
            topology=settings.topology.model_copy(update=topology),
            sim=lab,
        )


def utilisation(result: TrialResult, settings: Settings, lab: Sim) -> dict[str, float]:
    """Resource → busy share in the window. Processors that no thread can use do not count. Ports of one side carry the
    same as those of the other: the busier side stands for both."""
    work, window_ns = result.simulated, result.window.duration_ns
    assert work is not None, "a simulated trial"
    machines = settings.load.clients or 1
    threads = min(lab.cores, lab.vms * settings.load.threads) * machines
    found = {
        INITIATORS: (result.cpu_ns("initiator") or 0) / (window_ns * threads),
        TARGET: (result.cpu_ns("target") or 0)
        / (window_ns * min(lab.target_cores, lab.threads) * lab.controllers_there),
    }
    if work.controllers:
        # The busier controller holds its clients back.
        busiest_ns = max(each.busy_ns for each in work.controllers)
        found[TARGET] = busiest_ns / (window_ns * min(lab.target_cores, lab.threads))
        if lab.paths_to != "owner":
            found[INTERCONNECT] = max(each.interconnect_ns for each in work.controllers) / window_ns
    ports = settings.topology.paths_used
    initiators = max(work.initiators.sent_ns, work.initiators.received_ns) / (window_ns * machines * ports)
    target = max(work.target.sent_ns, work.target.received_ns) / (window_ns * lab.controllers_there * lab.target_ports)
    busier = INITIATOR_LINKS if initiators > target else TARGET_LINK
    found[LINK if machines == 1 else busier] = max(initiators, target)
    if work.trunks is not None:
        lanes = work.trunks.to_targets, work.trunks.to_initiators
        found[TRUNK] = max(lane.busy_ns for lane in lanes) / (window_ns * ports)
    if lab.media is not None and work.media_busy_ns is not None:
        found[MEDIA] = work.media_busy_ns / (window_ns * lab.media.servers * lab.controllers)
    return found


def held(result: TrialResult, settings: Settings, lab: Sim) -> dict[str, float]:
    """Queues and credits → the share of the window in which they hold I/Os back. Bounded queues are as busy as their
    places are taken. Credits count while ports of the side that waits more send or wait for one; for a trunk, its
    direction that waits more. If zones load ports unequally, one of them may be full while others are not."""
    work, window_ns = result.simulated, result.window.duration_ns
    assert work is not None, "a simulated trial"
    machines, ports = settings.load.clients or 1, settings.topology.paths_used
    found: dict[str, float] = {}
    depth = settings.topology.queue_depth
    if depth is not None and work.luns_busy_ns is not None:
        found[LUNS] = work.luns_busy_ns / (window_ns * machines * lab.luns * depth * paths_used(settings))
    if lab.adapter_depth is not None and work.adapters_busy_ns is not None:
        found[ADAPTERS] = work.adapters_busy_ns / (window_ns * machines * lab.adapter_depth * ports)
    if work.trunks is not None:
        lane = max((work.trunks.to_targets, work.trunks.to_initiators), key=lambda each: each.credits_ns)
        if lane.credits_ns:
            found[TRUNK_CREDITS] = (lane.busy_ns + lane.credits_ns) / (window_ns * ports)
    if lab.credits is not None:
        sides = (work.initiators, machines * ports), (work.target, lab.controllers_there * lab.target_ports)
        waiting, links = max(sides, key=lambda side: side[0].credits_ns / side[1])
        if waiting.credits_ns:
            found[CREDITS] = (waiting.sent_ns + waiting.credits_ns) / (window_ns * links)
    busiest = max(work.initiators.busiest_port_ns or 0, work.target.busiest_port_ns or 0)
    if busiest:
        found[BUSIEST] = busiest / window_ns
    return found
