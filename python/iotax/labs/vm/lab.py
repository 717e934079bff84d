"""The lab of virtual machines: a kernel that serves a volume, and kernels, mostly one, that do I/O to it.

The machines stay up from trial to trial; a change of protocol takes the old one down and brings the new one up, and
whatever cannot be taken down cleanly is ended with its machines. The volume is one file in the storage guest's memory
behind every protocol, put back from a copy before each trial or block as the study says, with all caches dropped.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iotax.design import Plan
from iotax.design.plan import trial_seed
from iotax.design.rounds import session_of, session_rounds
from iotax.engine import EngineError
from iotax.labs.base import CheckItem, Lab, LabUnusable, Outcome, Progress, Step, TrialFailed
from iotax.labs.generators import generator_of
from iotax.labs.load import SAMPLE_NS, run_document, run_load, run_task, steps
from iotax.labs.media import data_document, done_by, with_media
from iotax.labs.outcomes import Timeouts
from iotax.labs.vm import accelerator, clients, database, datastore, fio, initiators, preflight, recipe, topology, turns
from iotax.labs.vm.counters import Clocks, Idle, LoadCost, Reading, with_guests
from iotax.labs.vm.datastore import Datastore
from iotax.labs.vm.encryption import Links, apart
from iotax.labs.vm.events import with_events
from iotax.labs.vm.fault import VmFault
from iotax.labs.vm.guests import Guest, Guests, Role, StepFailed
from iotax.labs.vm.image import Image, build
from iotax.labs.vm.plugin import cannot_build
from iotax.labs.vm.profiling import Profiling
from iotax.labs.vm.qemu import Accelerator, Clock, require_qemu
from iotax.protocols import without_transport
from iotax.records import CpuTime, CpuUse, Facts, Profile
from iotax.records.cpu import Role as CpuPart
from iotax.study import Settings, Study
from iotax.study.events import happenings
from iotax.study.facts import planned_facts
from iotax.trial import Background, Connected, ModelledMedia, PathUse, Trial, TrialResult
from iotax.units import counted

_VOLUME = "/volume/data"
"""The first one's file; the number of another, from 1, follows it."""
_BACKGROUND_S = 2.0
"""Clocks are read in ticks of 10 ms: half a percent of this."""
_INTERVALS = 10
"""Of a client's window at least: they tell when all of them worked."""
_SILENCE_S = 45.0
"""How long an emulated engine on a busy host may say nothing."""
_ROLES: tuple[Role, ...] = ("initiator", "storage")


@dataclass(frozen=True)
class _Connected:
    """The protocol that is up, with all that shapes it, and the path that the load uses."""

    protocol: str
    environment: str
    paths: tuple[str, ...]
    """Of the volume in each initiator; alone where the target stands, if that is the load's guest."""
    datastore: bool = False
    """Attached by the hypervisor."""
    daemons: tuple[int, ...] = ()
    """In each initiator, the process that serves the load a virtual disk above the kernel's path, if there is one."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What took effect of the topology, as the initiator's kernel says."""


class VmLab(Lab):
    def __init__(self, study: Study, plan: Plan, program: Path) -> None:
        assert study.lab.vm is not None
        self._study, self._program, self._vm = study, program, study.lab.vm
        self._settings = {trial.id: study.settings(trial.treatment) for trial in plan.trials}
        self._images: dict[str, Image] = {}
        """By the release of their kernel, as the study names it."""
        self._clients = preflight.clients_of(list(self._settings.values()))
        """The most initiator guests that a trial asks for: so many boot."""
        self._volumes = max(settings.volumes for settings in self._settings.values())
        """The most volumes that a trial asks for: so many stand in the storage guest."""
        self._kernels = next(iter(self._settings.values())).topology.kernels
        """Of the guests that are up, or come up next."""
        self._accelerator: Accelerator = "tcg"
        self._clock: Clock = "host"
        self._variables: dict[str, str] = {}
        """With which QEMU finds its own initiators."""
        self._told: dict[str, Any] = {}
        self._guests: Guests | None = None
        self._profiling = Profiling()
        self._datastore: Datastore | None = None
        self._encryption: Links | None = None
        self._up: _Connected | None = None
        self._filled: dict[Role, int] = {}
        """The block for which each guest's volume was put back last; 0 where it is new."""
        self._model_filled: int | None = None
        """The same of the media that are a model; None where their server is new."""
        self._idle_cores: dict[Role, float] = dict.fromkeys(_ROLES, 0.0)
        """What each guest spends when it has nothing to do."""
        self._idle_kernels = self._kernels
        """For which kernels that was measured."""
        self._idle_clients: list[tuple[float, float]] = []
        """The same of each initiator, and of the hypervisor below it."""
        self._session: tuple[tuple[str, ...], dict[str, _Connected]] | None = None
        """In a design by rounds: the trials of the session that is up, and what is connected, by protocol."""
        self._sessions: dict[int, list[Trial]] = {}
        """Of such a design the first one of each block."""
        if study.design.slices is not None:
            for (block, *_), session in itertools.groupby(plan.trials, lambda trial: session_of(study, trial)):
                self._sessions.setdefault(int(block), list(session))

    def check(self) -> list[CheckItem]:
        found = preflight.findings(list(self._settings.values()), self._kept_bytes())
        drivers = self._hypervisors_initiators()
        if drivers and not any(each.kind == "error" for each in found):
            found.append(initiators.finding(drivers))
        if self._vm.profile and (reason := cannot_build()):
            found.append(CheckItem("warning", "profile", f"no layers and functions are counted: {reason}"))
        reasons = {self._obstacle(each) or datastore.ports_taken(each) for each in self._settings.values()}
        return found + [
            CheckItem("warning", "some trials", f"will fail: {reason}") for reason in sorted(filter(None, reasons))
        ]

    def prepare(self, progress: Progress) -> None:
        try:
            version = require_qemu()
            preflight.require_memory(self._kept_bytes(), self._clients)
            preflight.require_tls(list(self._settings.values()))
            for release in preflight.releases(list(self._settings.values())):
                contents = preflight.contents(list(self._settings.values()), release)
                self._images[release] = build(self._program, lambda text: progress(Step(text)), contents=contents)
            progress(Step("choosing the accelerator"))
            self._accelerator, why = accelerator.choose(
                self._images[self._kernels.initiator], self._wanted_accelerator(), version
            )
            # Of guests that count instructions, each has a clock of its own: several share no window and no schedule.
            alone = self._vm.cpus == 1 and self._clients == 1 and (not self._sessions or self._vm.guests == 1)
            emulated = self._vm.clock == "auto" and self._accelerator == "tcg"
            # An event takes real time.
            icount = self._vm.clock == "icount" or (emulated and alone and not self._study.events)
            self._clock = "icount" if icount else "host"
            self._told = {
                "lab": "vm",
                "qemu": version,
                "accelerator": why,
                "clock": self._clock,
                "guest_kernel": ", ".join(image.release for image in self._images.values()),
                "guest_packages": {
                    name: version for image in self._images.values() for name, version in image.packages.items()
                },
            }
            for reason in dict.fromkeys(filter(None, map(self._absence, self._settings.values()))):
                progress(Step(reason))
            if drivers := self._hypervisors_initiators():
                self._variables = initiators.environment(drivers, version, lambda text: progress(Step(text)))
            if self._vm.profile:
                self._profiling.prepare(version, progress, cache_lines=self._vm.profile == "memory")
            if not self._sessions:
                self._boot(progress)
        except VmFault as fault:
            raise LabUnusable([CheckItem("error", fault.subject, _with_console(fault))]) from fault

    def environment(self) -> dict[str, Any]:
        return self._told

    def background(self, block: int) -> Background:
        if self._sessions:
            # With every path connected: what they spend by themselves is of the background.
            self._bring_up(self._sessions[block], lambda _: None)
        started_unix_ns = time.time_ns()
        duration_ns = self._measure_idle()
        guests = [
            CpuTime(
                host=f"{guest.name} guest",
                role="both" if self._vm.guests == 1 else "initiator",
                layer="guest",
                busy_ns=round(idle_cores * duration_ns),
                window_ns=duration_ns,
                processors=self._vm.cpus,
            )
            for guest, (idle_cores, _) in zip(self._running().initiators, self._idle_clients, strict=True)
        ]
        return Background(block=block, started_unix_ns=started_unix_ns, duration_ns=duration_ns, cpu=CpuUse(guests))

    def _measure_idle(self) -> int:
        """What the guests spend now that nobody asks anything of them; how long it took."""
        try:
            storage, initiators = self._running()["storage"], self._running().initiators
            guests = [storage, *initiators]
            before, around = [self._read(each) for each in guests], [each.hypervisor() for each in initiators]
            time.sleep(_BACKGROUND_S)
            after, later = [self._read(each) for each in guests], [each.hypervisor() for each in initiators]
        except VmFault as fault:
            raise self._failed(fault) from fault
        idle = [_cores(early, late) for early, late in zip(before, after, strict=True)]
        hypervisors = [_cores(early, late) for early, late in zip(around, later, strict=True)]
        self._idle_cores = {"storage": idle[0], "initiator": idle[1]}
        self._idle_clients = list(zip(idle[1:], hypervisors, strict=True))
        self._idle_kernels = self._kernels
        return max(1, before[1].wall_ns(after[1]))

    def run(self, trial: Trial, progress: Progress) -> Outcome:
        settings = self._study.settings(trial.treatment)
        if reason := self._obstacle(settings):
            raise TrialFailed(reason)
        try:
            if self._guests is None or not self._guests.alive() or self._kernels != settings.topology.kernels:
                self._kernels = settings.topology.kernels
                self._boot(progress)
            if self._idle_kernels != self._kernels:
                progress(Step("measuring what an idle guest spends"))
                self._measure_idle()
            return self._run(trial, settings, progress)
        except TrialFailed as failed:
            self._give_up()
            raise TrialFailed(failed.reason, failed.log, failed.connected) from failed
        except EngineError as fault:
            raise self._failed(fault) from fault

    def run_rounds(self, trials: Sequence[Trial], progress: Progress) -> list[Outcome]:
        """One session: guests boot anew, every path is connected, and each treatment has its slices."""
        slices = self._study.design.slices
        assert slices is not None, "only a study by rounds has sessions"
        try:
            connected = self._bring_up(trials, progress)
            guests = self._running()
            for role in _ROLES:
                guests[role].run("caches_drop")
            session = turns.Session(
                {trial.id: self._load_of(trial, connected) for trial in trials},
                session_rounds(self._study, trials, trials[0].block),
                slices,
                guests["storage"] if self._vm.guests > 1 else None,
                self._vm.cpus,
            )
            progress(Step(f"measuring {counted(len(trials), 'treatment')} in turns"))
            with self._watched(*connected.values()):
                measured = session.measure(progress)
        except TrialFailed as failed:
            self._give_up()
            raise TrialFailed(failed.reason, failed.log, failed.connected) from failed
        except EngineError as fault:
            raise self._failed(fault) from fault
        self.close()
        found = []
        for trial in trials:
            settings, of = self._study.settings(trial.treatment), measured[trial.id]
            update = {"endpoint": _endpoint(settings), "facts": self._facts(settings)}
            said = self._describe(of.connected, settings, connected[settings.endpoint.protocol])
            found.append(Outcome(of.result.model_copy(update=update), said, ""))
        return found

    def _load_of(self, trial: Trial, connected: Mapping[str, _Connected]) -> turns.Load:
        settings = self._study.settings(trial.treatment)
        protocol = settings.endpoint.protocol
        endpoint = f"local:{connected[protocol].paths[0]}"
        seed = trial_seed(self._study, trial)
        document = run_document(settings, endpoint, seed=seed, driver="auto", cpus=[], watch_pids={})
        role = self._load_guest(protocol)
        return turns.Load(
            # The storage is the lab's own.
            document | {"options": {}, "destroy": endpoint},
            self._running()[role],
            role,
            local=protocol == "local",
            both_ends=self._in_one_guest(protocol),
        )

    def _bring_up(self, trials: Sequence[Trial], progress: Progress) -> dict[str, _Connected]:
        """New guests with all that these trials need connected, or those that are up for them. Raises TrialFailed."""
        ids = tuple(trial.id for trial in trials)
        if self._session is not None and self._session[0] == ids and self._guests is not None and self._guests.alive():
            return self._session[1]
        some = [self._study.settings(trial.treatment) for trial in trials]
        if reason := next(filter(None, map(self._obstacle, some)), None):
            raise TrialFailed(reason)
        try:
            self._kernels = some[0].topology.kernels
            self._boot(progress)
            connected: dict[str, _Connected] = {}
            for settings in some:
                if settings.endpoint.protocol not in connected:
                    up, wrong = self._brought_up(settings, progress)
                    if wrong:
                        raise StepFailed(0, "; ".join(dict.fromkeys(wrong)))
                    connected[settings.endpoint.protocol] = up
        except EngineError as fault:
            raise self._failed(fault) from fault
        self._session = ids, connected
        return connected

    def close(self) -> None:
        self._profiling.close()
        if self._guests is not None:
            self._guests.close()
        self._guests, self._datastore, self._encryption, self._up, self._session = None, None, None, None, None
        self._filled.clear()

    def _run(self, trial: Trial, settings: Settings, progress: Progress) -> Outcome:
        if generator_of(settings).database:
            return self._run_database(trial, settings, progress)
        if self._study.events:
            # What an earlier run's event left behind is not this one's to bear.
            self._disconnect(progress)
        cached = self._up is not None and settings.topology.disk_cache != "none"
        if cached and self._restore_due(trial, settings):
            # What the page cache still holds must not reach the restored volume.
            self._disconnect(progress)
        connected = self._connect(settings, progress)
        self._restore(trial, settings, progress)
        before = self._modelled(settings)
        several = settings.load.clients is not None and settings.endpoint.protocol != "local"
        by_fio = generator_of(settings).guest_program is not None
        run = self._run_fio if by_fio else self._run_clients if several else self._run_load
        with self._watched(connected):
            outcome = run(trial, settings, progress)
        return with_media(outcome, before, self._modelled(settings))

    def _run_load(self, trial: Trial, settings: Settings, progress: Progress) -> Outcome:
        connected = self._connect(settings, progress)
        guests = self._running()
        for role in _ROLES:
            guests[role].run("caches_drop")
        seed = trial_seed(self._study, trial)
        watched = datastore.watched(next(iter(connected.daemons), None))
        to_happen = happenings(self._study.events, self._study.design.seed, trial.block, trial.replicate)
        endpoint = f"local:{connected.paths[0]}"
        document = run_document(
            settings, endpoint, seed=seed, driver="auto", cpus=[], watch_pids=watched, events=bool(to_happen)
        )
        # The storage is the lab's own.
        document |= {"options": {}, "destroy": document["endpoint"]}
        protocol = settings.endpoint.protocol
        role = self._load_guest(protocol)
        target: Role | None = None if self._in_one_guest(protocol) or protocol == "local" else "storage"
        self._profiling.learn(settings.topology.target, *filter(None, (role, target)))
        used, moved = self._path_uses(connected), self._bytes(connected)
        with self._profiling.counting(target):
            before = self._read(guests["storage"])
            around = guests["initiator"].hypervisor()
            with self._profiling.counting(role):
                ran = with_events(
                    to_happen,
                    guests,
                    guests[role],
                    lambda starts: run_load(
                        self._program,
                        document,
                        progress,
                        timeouts=_timeouts(document),
                        place=guests[role].port,
                        starts=starts,
                    ),
                    f"{connected.environment}step {protocol}",
                )
            later = guests["initiator"].hypervisor()
            after = self._read(guests["storage"])
        moved = self._bytes(connected) - moved
        target_ns = LoadCost(before, after, moved).cpu_ns(ran.result.moved_bytes, self._idle_cores["storage"])
        hypervisor_ns = LoadCost(around, later, moved).cpu_ns(ran.result.moved_bytes, self._idle_clients[0][1])
        result = with_guests(
            ran.result.model_copy(update={"endpoint": _endpoint(settings), "facts": self._facts(settings)}),
            load_guest=role,
            processors=self._vm.cpus,
            idle_cores=self._idle_cores[role],
            both_ends=protocol != "local" and self._in_one_guest(protocol),
            target_ns=target_ns,
            hypervisor_ns=hypervisor_ns,
        )
        paths = topology.paths_used(settings, used, self._path_uses(connected))
        result = result.model_copy(update={"paths": paths, "profile": self._profiles(result, settings, moved)})
        return Outcome(result, self._describe(ran.connected, settings), "")

    def _profiles(self, result: TrialResult, settings: Settings, moved: int) -> tuple[Profile, ...]:
        """Of the window that has just ended. A target of its own is counted over the whole load, as its CPU is."""
        protocol = settings.endpoint.protocol
        local, together = protocol == "local", self._in_one_guest(protocol)
        parts: list[tuple[Role, CpuPart, float]] = [
            (self._load_guest(protocol), "both" if together and not local else "initiator", result.ios)
        ]
        if not together and not local:
            parts.append(("storage", "target", result.ios * moved / result.moved_bytes))
        return self._profiling.profiles(parts, settings.topology.target)

    def _run_clients(self, trial: Trial, settings: Settings, progress: Progress) -> Outcome:
        connected = self._connect(settings, progress)
        guests = self._running()
        initiators = list(zip(guests.initiators, connected.paths, self._idle_clients, strict=False))
        for guest in [guests["storage"], *(guest for guest, _, _ in initiators)]:
            guest.run("caches_drop")
        run = clients.Run(
            [
                clients.Client(guest, path, *idle, daemon=daemon)
                for (guest, path, idle), daemon in itertools.zip_longest(initiators, connected.daemons)
            ],
            guests["storage"],
            self._idle_cores["storage"],
            self._vm.cpus,
        )
        progress(Step(f"measuring {trial.id} in {counted(len(initiators), 'initiator guest')}"))
        seed, sample_ns = trial_seed(self._study, trial), min(SAMPLE_NS, settings.load.runtime // _INTERVALS)
        result, said = run.measure(settings, seed=seed, sample_ns=sample_ns, progress=progress)
        result = result.model_copy(update={"endpoint": _endpoint(settings), "facts": self._facts(settings)})
        return Outcome(result, self._describe(said, settings), "")

    def _run_fio(self, trial: Trial, settings: Settings, progress: Progress) -> Outcome:
        connected, protocol = self._connect(settings, progress), settings.endpoint.protocol
        guests = self._running()
        for role in _ROLES:
            guests[role].run("caches_drop")
        progress(Step(f"measuring {trial.id}"))
        role, used = self._load_guest(protocol), self._path_uses(connected)
        run = fio.Run(
            guests,
            role,
            connected.paths[0],
            next(iter(connected.daemons), None),
            both_ends=protocol != "local" and self._in_one_guest(protocol),
            local=protocol == "local",
            cpus=self._vm.cpus,
            idle=self._idle(role),
        )
        result = run.measure(settings, seed=trial_seed(self._study, trial), endpoint=_endpoint(settings))
        paths = topology.paths_used(settings, used, self._path_uses(connected))
        result = result.model_copy(update={"facts": self._facts(settings), "paths": paths})
        return Outcome(result, self._describe(None, settings), "")

    def _idle(self, role: Role) -> Idle:
        """Where the load is in this guest."""
        return Idle(self._idle_cores[role], self._idle_cores["storage"], self._idle_clients[0][1])

    def _run_database(self, trial: Trial, settings: Settings, progress: Progress) -> Outcome:
        protocol = settings.endpoint.protocol
        target = self._target_guest(protocol)
        if target not in self._filled:
            self._make_volume(protocol, settings, progress)
            self._filled[target] = trial.block
        elif self._restore_due(trial, settings):
            self._disconnect(progress)  # over NFS the target has the file system mounted
            self._make_volume(protocol, settings, progress)
            self._restore(trial, settings, progress)
        connected = self._connect(settings, progress)
        guests = self._running()
        for guest in (guests["storage"], *guests.initiators[: len(connected.paths)]):
            guest.run("caches_drop")
        local = protocol == "local"
        in_storage = self._load_guest(protocol) == "storage"
        loaded = [guests["storage"]] if in_storage else guests.initiators[: len(connected.paths)]
        idle = [(self._idle_cores["storage"], self._idle_clients[0][1])] if in_storage else self._idle_clients
        progress(Step("PostgreSQL and pgbench"))
        run = database.Run(
            [
                database.Host(guest, path, *spent)
                for guest, path, spent in zip(loaded, connected.paths, idle, strict=False)
            ],
            guests["storage"],
            self._idle_cores["storage"],
            both_ends=not local and self._in_one_guest(protocol),
            local=local,
            cpus=self._vm.cpus,
        )
        with self._watched(connected):
            result = run.measure(settings, seed=trial_seed(self._study, trial), endpoint=_endpoint(settings))
        return Outcome(result.model_copy(update={"facts": self._facts(settings)}), self._describe(None, settings), "")

    def _facts(self, settings: Settings) -> Facts:
        clock = "instructions" if self._clock == "icount" else "time"
        return planned_facts(self._study, settings).model_copy(update={"clock": clock})

    def _modelled(self, settings: Settings) -> ModelledMedia | None:
        """What the media of our own server did since it started, where they are a model."""
        if settings.volume.model is None or self._up is None:
            return None
        guest = self._running()[self._target_guest(self._up.protocol)]
        [status] = guest.run(f"{self._up.environment}step {self._up.protocol} media_status")
        return done_by(json.loads(status))

    def _bytes(self, connected: _Connected) -> int:
        """What the initiator's kernel has read and written on the device so far."""
        if connected.protocol == "local":
            return 0
        return self._running()["initiator"].bytes(connected.paths[0])

    def _watched(self, *connected: _Connected) -> contextlib.AbstractContextManager[None]:
        """Fails where data pass by what should encrypt them."""
        if self._encryption is None:
            return contextlib.nullcontext()
        return self._encryption.watched(list(zip(*(each.paths for each in connected), strict=True)))

    def _path_uses(self, connected: _Connected) -> dict[str, PathUse]:
        if connected.datastore:
            return {}
        return topology.path_uses(self._running()["initiator"].run(f"paths_of {connected.protocol}"))

    def _connect(self, settings: Settings, progress: Progress) -> _Connected:
        """The protocol of these settings, up; another one is taken down first."""
        protocol, environment = settings.endpoint.protocol, self._environment(settings)
        if self._up is not None and (self._up.protocol, self._up.environment) == (protocol, environment):
            return self._up
        self._disconnect(progress)
        self._up, wrong = self._brought_up(settings, progress)
        if wrong:
            raise StepFailed(0, "; ".join(dict.fromkeys(wrong)))
        return self._up

    def _brought_up(self, settings: Settings, progress: Progress) -> tuple[_Connected, list[str]]:
        """The protocol of these settings, beside whatever is up; and what is not as was asked for."""
        protocol, environment = settings.endpoint.protocol, self._environment(settings)
        guests = self._running()
        self._make_volume(protocol, settings, progress)
        if protocol == "local":
            return _Connected(protocol, environment, (_VOLUME,)), []
        progress(Step(f"connecting {protocol}"))
        self._encryption = self._encryption or Links(guests, guests[self._target_guest(protocol)])
        self._encryption.encrypt(settings, environment)
        guests[self._target_guest(protocol)].run(f"{environment}step {protocol} target_up")
        self._model_filled = None
        if settings.topology.by_hypervisor:
            path, facts = self._datastore_of(guests).attach(settings, environment)
            wrong = topology.mismatches(settings, facts, topology.OF_A_DISK)
            return _Connected(protocol, environment, (path,), datastore=True, facts=facts), wrong
        served = guests[self._target_guest(protocol)].run(f"{environment}target_facts {protocol}")
        initiators = guests.initiators[: settings.load.clients or 1]
        paths, daemons, facts, wrong = [], [], {}, []
        for guest, own in zip(initiators, topology.of_clients(environment, len(initiators)), strict=True):
            said = guest.run(f"{own}step {protocol} initiator_up")
            path = next((line.removeprefix("DEVICE=") for line in said if line.startswith("DEVICE=")), "")
            if not path:
                raise StepFailed(0, f"{protocol} came up but named no device")
            if settings.topology.attach == "vduse":
                path, daemon = datastore.above(guest, own, path)
                daemons.append(daemon)
            paths.append(path)
            found = topology.facts_of(guest.run(f"{own}facts_of {protocol}") + served)
            wrong += topology.mismatches(settings, found)
            facts = facts or found
        return _Connected(protocol, environment, tuple(paths), daemons=tuple(daemons), facts=facts), wrong

    def _environment(self, settings: Settings) -> str:
        """As the guests' scripts read it. What is up beside others may need a link or names of its own."""
        own = apart(settings, self._vm.guests, self._settings.values())
        own += "EVENTS=1; " if self._study.events else ""
        return ("TURNS=1; " if self._sessions else "") + own + topology.environment(settings, self._vm.guests)

    def _disconnect(self, progress: Progress) -> None:
        """Where the protocol does not go cleanly, its guests go."""
        up, self._up = self._up, None
        if up is None or up.protocol == "local":
            return
        guests = self._running()
        try:
            if up.datastore:
                self._datastore_of(guests).detach()
            else:
                initiators = guests.initiators[: len(up.paths)]
                for guest, own in zip(initiators, topology.of_clients(up.environment, len(up.paths)), strict=True):
                    if up.daemons:
                        datastore.away_from(guest)
                    guest.run(f"{own}step {up.protocol} initiator_down")
            guests[self._target_guest(up.protocol)].run(f"{up.environment}step {up.protocol} target_down")
            if self._encryption is not None:
                self._encryption.end()
        except (StepFailed, VmFault):
            self.close()
            self._boot(progress)

    def _datastore_of(self, guests: Guests) -> Datastore:
        self._datastore = self._datastore or Datastore(guests)
        return self._datastore

    def _obstacle(self, settings: Settings) -> str | None:
        """Why these settings cannot run in this lab; None where they can."""
        return self._absence(settings) or datastore.obstacle(
            settings, self._vm.guests, self._unavailable(settings.topology.kernels.storage)
        )

    def _absence(self, settings: Settings) -> str | None:
        """What these settings need and their image has not; None where it has all."""
        asked, vduse = settings.topology, [recipe.VDUSE] if settings.topology.attach == "vduse" else []
        for name in (settings.endpoint.protocol, asked.target, asked.encryption, settings.load.generator, *vduse):
            for release in asked.kernels:
                if reason := self._unavailable(release).get(name):
                    return f"{name} is not available: {reason}"
        return None

    def _unavailable(self, release: str) -> Mapping[str, str]:
        """Parts that the image with this kernel lacks, with the reason; empty before it is built."""
        image = self._images.get(release)
        return image.unavailable if image else {}

    def _hypervisors_initiators(self) -> list[str]:
        """The block drivers of QEMU that the study needs."""
        able = [each for each in self._settings.values() if not self._obstacle(each)]
        return sorted({datastore.DRIVERS[each.endpoint.protocol] for each in able if each.topology.by_hypervisor})

    def _make_volume(self, protocol: str, settings: Settings, progress: Progress) -> None:
        """The volumes' files in the guest that serves them, with the pattern and a copy to restore them from."""
        role = self._target_guest(protocol)
        if role in self._filled or settings.volume.model:
            return  # modelled media stand in the server that is iotax's own
        size_bytes, volumes = self._volume_bytes(), self._volumes if role == "storage" else 1
        guest = self._running()[role]
        guest.run(f"volume_up {size_bytes} {volumes}")
        if generator_of(settings).database:
            progress(Step("laying out the database"))
            database.build(guest, settings, volumes)
        elif settings.volume.fill == "pattern":
            for number in range(volumes):
                endpoint = f"local:{_VOLUME}{number or ''}"
                document = {"task": "fill", "endpoint": endpoint, "working_set_bytes": size_bytes, "destroy": endpoint}
                document |= data_document(settings.volume)
                step = steps("writing the pattern", progress)
                run_task(self._program, document, "filled", step, place=guest.port, silence_s=_SILENCE_S)
        if settings.volume.fill == "pattern" and settings.volume.refill != "never":
            guest.run(f"volume_keep {volumes * size_bytes}")
        self._filled[role] = 0

    def _restore(self, trial: Trial, settings: Settings, progress: Progress) -> None:
        if settings.volume.model:
            self._restore_modelled(trial, settings, progress)
        elif self._restore_due(trial, settings):
            role = self._target_guest(settings.endpoint.protocol)
            progress(Step("restoring the volume"))
            self._running()[role].run("volume_restore")
            self._filled[role] = trial.block

    def _restore_modelled(self, trial: Trial, settings: Settings, progress: Progress) -> None:
        """By the server that has them, which wrote the pattern when it started."""
        filled, self._model_filled = self._model_filled, trial.block
        once = settings.volume.refill == "never" or settings.volume.fill != "pattern"
        if filled is None or once or (settings.volume.refill == "block" and filled == trial.block):
            return
        assert self._up is not None
        progress(Step("restoring the volume"))
        guest = self._running()[self._target_guest(self._up.protocol)]
        guest.run(f"{self._up.environment}step {self._up.protocol} media_fill")

    def _restore_due(self, trial: Trial, settings: Settings) -> bool:
        if settings.volume.refill == "never" or settings.volume.fill != "pattern":
            return False
        # A trial that is tried again starts from a clean volume too.
        return (
            settings.volume.refill == "trial"
            or self._filled[self._target_guest(settings.endpoint.protocol)] != trial.block
        )

    def _boot(self, progress: Progress) -> None:
        self.close()
        guests = counted(1 + self._clients, "guest")
        progress(Step(f"booting {guests}"))
        kept = 2 if self._study.volume.refill != "never" else 1
        for again in (True, False):
            try:
                self._guests = Guests(
                    self._images[self._kernels.initiator],
                    accelerator=self._accelerator,
                    clock=self._clock,
                    volume_bytes=kept * self._kept_bytes(),
                    links=self._links(),
                    cpus=self._vm.cpus,
                    clients=self._clients,
                    environment=self._variables,
                    plugin=self._profiling.plugin,
                    storage_image=self._images[self._kernels.storage],
                )
                self._profiling.booted(self._guests)
                return
            except VmFault as fault:
                # Seen on hosts with far more work than processors: a guest that never gets through its boot.
                if not again or fault.console_panicked:
                    raise
                progress(Step(f"booting {guests} once more"))

    def _links(self) -> int:
        links = max(settings.topology.paths for settings in self._settings.values())
        fcp = any(settings.endpoint.protocol == "fcp" for settings in self._settings.values())
        # Its frames need another MTU than the others' link has.
        return links + bool(fcp and self._sessions and self._vm.guests > 1)

    def _running(self) -> Guests:
        if self._guests is None:
            raise VmFault("guests", "no guest is up")
        return self._guests

    def _failed(self, fault: EngineError) -> TrialFailed:
        self._give_up()
        return TrialFailed(str(fault), fault.log)

    def _give_up(self) -> None:
        """What failed may have left anything behind: the guests are ended, the next trial boots new ones."""
        with contextlib.suppress(OSError):
            self.close()

    def _read(self, guest: Guest) -> Reading:
        return Reading.parse(guest.counters(), self._vm.cpus)

    def _describe(self, connected: Connected | None, settings: Settings, up: _Connected | None = None) -> Connected:
        """`up` is what the load used, the only path that is up where nothing is said."""
        facts = {"load_in": f"{self._load_guest(settings.endpoint.protocol)} guest"}
        if up := up or self._up:
            facts |= {"device": up.paths[0], **up.facts}
        if self._profiling.missing:
            facts["profile"] = f"none: {self._profiling.missing}"
        if settings.topology.attach == "vduse":
            facts["attached_by"] = "QEMU's storage daemon, through VDUSE"
        elif settings.topology.by_hypervisor:
            facts["attached_by"] = f"QEMU's {datastore.DRIVERS[settings.endpoint.protocol]} driver"
        return (connected or Connected()).told(_endpoint(settings), facts)

    def _in_one_guest(self, protocol: str) -> bool:
        return self._vm.guests == 1 or protocol in without_transport()

    def _target_guest(self, protocol: str) -> Role:
        return "initiator" if self._in_one_guest(protocol) else "storage"

    def _load_guest(self, protocol: str) -> Role:
        return self._target_guest(protocol) if protocol == "local" else "initiator"

    def _volume_bytes(self) -> int:
        return max(settings.volume.size for settings in self._settings.values())

    def _kept_bytes(self) -> int:
        """Of all volumes together, with one of modelled media, if any are."""
        modelled = any(settings.volume.model for settings in self._settings.values())
        return (self._volumes + modelled) * self._volume_bytes()

    def _wanted_accelerator(self) -> str:
        # Counting instructions needs the emulator.
        return "tcg" if self._vm.clock == "icount" else self._vm.accelerator


def _cores(before: Clocks, after: Clocks) -> float:
    """Busy on average between two readings."""
    return before.busy_ns(after) / max(1, before.wall_ns(after))


def _timeouts(document: Mapping[str, Any]) -> Timeouts:
    """A guest's clock may be slower than ours, by as much as its processor."""
    runs_s = (document["warmup_ns"] + document["runtime_ns"]) / 1e9
    return Timeouts(None, connect_s=_SILENCE_S + runs_s, silence_s=_SILENCE_S)


def _endpoint(settings: Settings) -> str:
    """As the notebook keeps it. `local:` marks I/O without a protocol, whose path is the guest's own."""
    protocol = settings.endpoint.protocol
    return f"local:{_VOLUME}" if protocol == "local" else f"vm:{protocol}"


def _with_console(fault: VmFault) -> str:
    return f"{fault.message}\n{fault.console}" if fault.console else fault.message
