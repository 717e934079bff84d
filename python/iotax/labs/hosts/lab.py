"""Trials on real hosts: loads on the initiators, servers or observers on the targets, one window on all of them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from iotax.design import Plan
from iotax.design.plan import HOST_TURN_NS, trial_seed
from iotax.design.rounds import session_of, session_rounds
from iotax.engine import engine_version
from iotax.labs.base import CheckItem, Closing, Lab, LabUnusable, Outcome, Progress, Step, TrialFailed, Worked
from iotax.labs.events import blamed
from iotax.labs.hosts.beside import Beside, Member
from iotax.labs.hosts.happens import Happens, disturbing, happens_of, left_undone
from iotax.labs.hosts.hooks import Hooks
from iotax.labs.hosts.hypervisors import Hypervisors
from iotax.labs.hosts.intervals import Intervals, SessionNews
from iotax.labs.hosts.measure import Answer, Hear, Job, compare_clocks, each_of, measure
from iotax.labs.hosts.merge import (
    HostSeries,
    Observed,
    Part,
    cpu_series,
    initiator_cpu,
    merged,
    target_cpu,
    worker_cpu,
    worker_said,
)
from iotax.labs.hosts.moved import moved
from iotax.labs.hosts.reach import Reach, untried
from iotax.labs.hosts.secrets import handed_over
from iotax.labs.hosts.survey import Asked, Survey, with_companions
from iotax.labs.hosts.turns import SERVER, HostSession, Told
from iotax.labs.hosts.volumes import Reached, Volumes
from iotax.labs.load import SAMPLE_NS, Permission, after_s, of_client, run_document
from iotax.labs.media import done_by, with_media
from iotax.labs.outcomes import malformed
from iotax.labs.server import serve_document
from iotax.labs.turns import Session, Station
from iotax.places import LEASE_NS, Binary, HostFault, Task
from iotax.places.host import HostPlace
from iotax.places.waiting import wait_for
from iotax.protocols import portal
from iotax.records import CpuRole, CpuTime, CpuUse
from iotax.study import Settings, Study
from iotax.study.connection import Polling
from iotax.study.facts import planned_facts
from iotax.study.hosts import CLIENT, Hosts, Moment
from iotax.study.model import Volume
from iotax.trial import Background, Connected, LevelValue, ModelledMedia, Trial, TrialResult
from iotax.units import counted, format_size

_BACKGROUND_NS = 1_000_000_000
_BACKGROUND_ESXI_NS = 10_000_000_000
"""esxtop has a row every 2 s."""
_SERVE_S = 60.0
_ENDING_S = 1.0
_ANSWER_S = 10.0
"""The end of a server may be noticed this much later than the failures it causes."""
_APPEAR_S = 30.0
"""How long a disk may take to appear after the command that attaches it."""
_LOST = frozenset({"lost", "unreachable", "silent", "died"})
"""Kinds of failure of a host that can be gone."""
_FILL_BYTES_PER_S = 20 << 20
"""Slower than this on filling or reading a volume, a host counts as hung."""
_COLLECTED_AFTER = 100_000
"""New objects, until some are looked through for cycles."""


@dataclass(frozen=True)
class _Serving:
    """The engine on a target that serves."""

    agent: Task
    volume: Volume
    polling: Polling
    pid: int
    endpoints: Mapping[str, str]


@contextlib.contextmanager
def _seldom_collected() -> Generator[None]:
    """Messages of hundreds of hosts are many small objects without cycles. Searching them for cycles takes a sixth of
    the time that a trial takes besides its window, and keeps hosts waiting while their clocks are compared."""
    before = gc.get_threshold()
    gc.set_threshold(_COLLECTED_AFTER, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


class HostsLab(Lab):
    """`destroy` holds the endpoints whose data the user gave away, as the study names them."""

    def __init__(self, study: Study, plan: Plan, program: Path, destroy: frozenset[str] = frozenset()) -> None:
        assert study.lab.hosts is not None, "a study of this lab"
        self.study = study
        self._spec: Hosts = study.lab.hosts
        self._binary = Binary(program)
        design = study.design
        self._together = design.slices is not None and "protocol" not in design.hard_to_change
        """Whether several paths of a host's kernel are up side by side."""
        self._reached_by = Reach(self._spec, self._told)
        place, over_ssh = self._reached_by.place, self._reached_by.over_ssh
        self._initiators = [self._reached_by.initiator(host) for host in self._spec.initiator_hosts()]
        self._targets = [place(host) for host in self._spec.target_hosts()]
        self._hypervisors = Hypervisors(
            [place(host) for host in self._spec.hypervisor_hosts() if host.kind == "linux"],
            [over_ssh(host) for host in self._spec.hypervisor_hosts() if host.kind == "esxi"],
            {host.name: self._spec.guests_of(host) for host in self._spec.hypervisor_hosts()},
        )
        self._virtual = self._spec.virtual()
        treatments = [trial.treatment for trial in plan.trials]
        settings = [study.settings(treatment) for treatment in treatments]

        async def enter(wanted: Settings) -> None:
            await self._hooks.enter(next(at for at, each in zip(treatments, settings, strict=True) if each is wanted))

        self.absent = self._absent = dict[str, str]()
        self._volumes = Volumes(
            settings,
            self._initiators,
            self._absent,
            self._binary,
            destroy,
            enter,
            together=self._together,
        )
        mine: dict[str, HostPlace] = {each.name: each for each in [*self._places(), *self._hypervisors.esxi]}
        others = [self._spec.hook_host(hook) for hook in self._spec.hooks]
        mine |= {host.name: over_ssh(host) for host in others if host.name not in mine}
        self._hooks = Hooks(study, self._spec, mine, lambda: self._volumes.paths.rest(self._present()))
        self._block = 0
        """The block whose hooks have run; 0 for none."""
        self._plot: list[LevelValue] = []
        """The levels of hard-to-change factors in the latest session."""
        self._prepared = False
        self._serving: _Serving | None = None
        self._left: list[str] = []
        """What could not be taken down at the end."""
        self._background: dict[str, tuple[int, int]] = {}
        """Host → busy and window of the block under way, ns."""

    def check(self) -> list[CheckItem]:
        found = wait_for(self._check_hosts())
        if any(each.kind == "error" for each in found):
            return found
        volumes = wait_for(self._volumes.check(lambda _: None, commands=False))
        if self._hooks.bring:
            said = "Commands of the study may bring it: `iotax check` does not run them; `iotax run` does, and looks"
            volumes = [
                replace(each, kind="warning", message=f"{each.message}. {said}") if each.kind == "error" else each
                for each in volumes
            ]
        return [*found, *disturbing(self.study, "warning"), *volumes, *self._joined()]

    def connect(self) -> None:
        """Connects to every host and copies the engine there. Raises HostFault."""
        wait_for(self._connect())

    def survey(self) -> list[Survey]:
        """A row for each host, including the idle load of a Dask worker there."""

        async def work() -> list[Survey]:
            roles = self._roles()
            return await with_companions(roles, await self._reached_by.survey(roles, self._binary))

        return wait_for(work())

    def clean(self) -> dict[str, str]:
        """Takes down paths that were left and removes copied engines: host → outcome."""
        return wait_for(self._clean())

    def prepare(self, progress: Progress) -> None:
        self.tell = lambda said: progress(Step(said))
        progress(Step(f"connecting to {counted(len(self._places()), 'host')}"))
        findings = [*([] if self.may_disturb else disturbing(self.study, "refused")), *wait_for(self._check_hosts())]
        if any(each.kind in ("error", "refused") for each in findings):
            raise LabUnusable(findings)
        try:
            # First, since a LUN may have to be mapped before anybody can look at it.
            wait_for(self._hooks.run("before study"))
            self._prepared = True
            if self._hooks.bring:
                self._volumes.paths.appear_s = _APPEAR_S
            findings += wait_for(self._volumes.check(progress))
            findings += self._joined()
            if any(each.kind in ("error", "refused") for each in findings):
                raise LabUnusable(findings)
            wait_for(self._volumes.fill(progress))
        except HostFault as fault:
            raise LabUnusable([CheckItem("error", fault.host, fault.message)]) from fault

    def volumes(self) -> list[str]:
        return self._volumes.endpoints()

    def fill(self, endpoint: str, progress: Progress) -> Worked:
        del progress
        return self._worked(self._volumes.fill_all(endpoint))

    def overwrite(self, endpoint: str, number: int, progress: Progress) -> Worked:
        del progress
        seed = self.study.design.seed + number * len(self._initiators)
        return self._worked(self._volumes.overwrite_all(endpoint, seed, self._spec.driver))

    def _worked(self, work: Coroutine[Any, Any, Worked]) -> Worked:
        try:
            return wait_for(work)
        except HostFault as fault:
            raise _failed(fault) from fault
        except ValidationError as error:
            raise TrialFailed(malformed(error)) from error

    def environment(self) -> dict[str, Any]:
        surveyed = wait_for(self._reached_by.survey(self._roles(), self._binary))
        found: dict[str, Any] = {
            "hosts": {each.host: {"kernel": each.kernel, "cores": each.cores} for each in surveyed}
        }
        # The one that measures, which need not be the one of this machine.
        if version := engine_version(self._binary.path):
            found |= {"engine": version, "engine_path": str(self._binary.path)}
        return found

    def background(self, block: int) -> Background | None:
        self._enter(block)
        if self.study.design.slices is not None:
            # A session has slices without load, with everything connected.
            return None
        jobs = [Job(place, self._binary.remote) for place in [*self._present(), *self._targets]]
        started_ns = time.time_ns()
        runtime_ns = _BACKGROUND_ESXI_NS if self._hypervisors.esxi else _BACKGROUND_NS
        answers = self._measured(jobs, warmup_ns=0, runtime_ns=runtime_ns, sample_ns=runtime_ns)
        parts: list[CpuTime] = []
        for answer in answers:
            observed = Observed.model_validate(answer.observed)
            if answer.host in self._hypervisors:
                parts += self._hypervisors.linux_cpu(answer.host, observed, None)
            else:
                parts += target_cpu(answer.host, observed, 1, None, virtual=answer.host in self._virtual)
            own_ns = sum(part.own_ns for part in parts if part.host == answer.host and part.layer != "process")
            self._background[answer.host] = (own_ns, observed.window["duration_ns"])
        if self._hypervisors.esxi:
            first = answers[0]
            began_ns = Observed.model_validate(first.observed).window["start_unix_ns"] - first.offset.ahead_ns
            for part in self._esxi_cpu(began_ns, runtime_ns, _spent_by_guests(parts)):
                parts.append(part.model_copy(update={"background_ns": None}))
                self._background[part.host] = (part.own_ns, runtime_ns)
        return Background(block=block, started_unix_ns=started_ns, duration_ns=runtime_ns, cpu=CpuUse(parts))

    def run(self, trial: Trial, progress: Progress) -> Outcome:
        self.tell = lambda said: progress(Step(said))
        self._enter(trial.block)
        self._told_to(self._hooks.enter(trial.treatment))
        self._hook("before trial", trial)
        try:
            outcome = self._run(trial, progress)
        except TrialFailed as failed:
            # What the user's commands set up is undone after a failure, too.
            said = self._hooks.take()
            with contextlib.suppress(TrialFailed):
                self._hook("after trial", trial)
            log = "\n".join([*said, *self._hooks.take(), failed.log])
            raise TrialFailed(failed.reason, log, failed.connected, failed.kind, failed.host) from failed
        self._hook("after trial", trial)
        return replace(outcome, log="\n".join([*self._hooks.take(), outcome.log]))

    @_seldom_collected()
    def _run(self, trial: Trial, progress: Progress) -> Outcome:
        settings = self.study.settings(trial.treatment)
        clients = self._clients(settings)
        left_out = tuple(place.name for place in clients if place.name in self._absent)
        taking_part = [(index, place) for index, place in enumerate(clients) if place.name not in self._absent]
        places = [place for _, place in taking_part]
        if not places:
            raise TrialFailed(f"all of its clients are lost: {', '.join(left_out)}", kind="missing")
        try:
            reached = wait_for(self._reach(settings, [index for index, _ in taking_part], progress))
            before = wait_for(self._modelled(settings))
        except HostFault as fault:
            raise _failed(fault) from fault
        progress(Step(f"measuring {trial.id} on {counted(len(places), 'host')}"))
        seed = trial_seed(self.study, trial)
        beside = self._volumes.beside(settings)
        happens = happens_of(self.study, trial, self._places(), self._binary.remote)
        jobs = [
            Job(place, self._binary.remote)
            if beside
            else self._load_job(place, settings, each, index, seed, events=happens is not None)
            for (index, place), each in zip(taking_part, reached, strict=True)
        ]
        for index, place in enumerate(self._targets):
            serves = index == 0 and self._serving is not None and settings.endpoint.embedded
            watched = {"target": self._serving.pid} if serves and self._serving else {}
            jobs.append(Job(place, self._binary.remote, watch_pids=watched))
        try:
            if beside is not None:
                sharing = self._sharing(settings)
                members = [
                    Member(place, each.attached, index, sharing)
                    for (index, place), each in zip(taking_part, reached, strict=True)
                    if each.attached
                ]
                answers = self._measured_beside(beside, settings, members, seed, jobs)
            else:
                heard = Intervals([place.name for place in places], self._observed(settings, jobs), progress)
                answers = self._measured(jobs, heard.hear, happens, **_window(settings))
            after = wait_for(self._modelled(settings))
        except HostFault as fault:
            raise _failed(fault) from fault
        except TrialFailed as failed:
            ending = wait_for(self._server_ending()) if settings.endpoint.embedded else ""
            if not ending:
                raise
            raise TrialFailed(f"{ending}; then {failed.reason}", failed.log, failed.connected) from failed
        outcome = with_media(self._outcome(settings, answers, reached), before, after)
        told = {"left_out": left_out, "events": happens.told() if happens else ()}
        return replace(outcome, result=outcome.result.model_copy(update=told))

    @_seldom_collected()
    def run_rounds(self, trials: Sequence[Trial], progress: Progress) -> list[Outcome]:
        """One session: every path of every host is connected, and each host keeps the schedule by its own clock."""
        slices = self.study.design.slices
        assert slices is not None, "only a study by rounds has sessions"
        self.tell = lambda said: progress(Step(said))
        self._enter(trials[0].block)
        self._enter_plot(trials[0])
        some = {trial.id: self.study.settings(trial.treatment) for trial in trials}
        embedded = next((each for each in some.values() if each.endpoint.embedded), None)
        try:
            stations, reached = wait_for(self._stations(trials, progress))
            before = wait_for(self._modelled(embedded)) if embedded else None
            rounds = session_rounds(self.study, trials, trials[0].block)
            session = Session(list(some), rounds, slices, stations, HOST_TURN_NS)
            progress(Step(f"measuring {counted(len(trials), 'treatment')} in turns"))
            answers = wait_for(self._in_turns(session, progress))
            after = wait_for(self._modelled(embedded)) if embedded else None
        except HostFault as fault:
            ending = wait_for(self._server_ending()) if embedded else ""
            raise TrialFailed(
                f"{ending}; then {fault}" if ending else str(fault), kind=fault.kind, host=fault.host
            ) from fault
        taken = HostSession(session, answers, [place.name for place in self._targets])
        said = self._hooks.take()
        found = []
        for name, settings in some.items():
            outcome = self._outcome_of(taken, name, settings, reached[name][0])
            outcome = replace(outcome, log="\n".join([*said, outcome.log]))
            found.append(with_media(outcome, before, after) if settings.endpoint.embedded else outcome)
        return found

    def _enter_plot(self, trial: Trial) -> None:
        """Runs the commands of its levels; takes down paths of another whole plot. Raises TrialFailed."""
        _, *plot = session_of(self.study, trial)
        if plot != self._plot:
            self._told_to(self._volumes.paths.rest(self._present()))
        self._plot = plot
        self._told_to(self._hooks.enter(trial.treatment))

    async def _stations(
        self, trials: Sequence[Trial], progress: Progress
    ) -> tuple[list[Station], dict[str, list[Reached]]]:
        """An engine for each host; a second one where some loads need root and others must not have it. Raises
        HostFault and TrialFailed."""
        loads: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
        secrets: dict[tuple[str, str], dict[str, str]] = {}
        reached: dict[str, list[Reached]] = {}
        for number, trial in enumerate(trials, 1):
            settings = self.study.settings(trial.treatment)
            clients = [(at, each) for at, each in enumerate(self._clients(settings)) if each.name not in self._absent]
            if not clients:
                raise TrialFailed(f"all clients of {trial.id} are lost", kind="missing")
            reached[trial.id] = await self._reach(settings, [index for index, _ in clients], progress)
            for (index, place), each in zip(clients, reached[trial.id], strict=True):
                load = self._load(settings, each, index, trial_seed(self.study, trial))
                at = place.name, each.program
                loads.setdefault(at, {})[trial.id], more = handed_over(place.name, load, number)
                secrets.setdefault(at, {}).update(more)
        places = {place.name: place for place in self._initiators}
        stations = [
            Station(places[name], program, of_host, secrets=secrets[name, program])
            for (name, program), of_host in loads.items()
        ]
        for index, place in enumerate(self._targets):
            watched = {SERVER: self._serving.pid} if index == 0 and self._serving is not None else {}
            stations.append(Station(place, self._binary.remote, watch_pids=watched))
        return stations, reached

    async def _in_turns(self, session: Session, progress: Progress) -> list[Answer]:
        """Raises HostFault and TrialFailed."""
        hosts = [Job(each.place, self._binary.remote) for each in session.stations]
        clients = {
            name: [each.place.name for each in session.stations if name in each.loads] for name in session.trials
        }
        grouped = self._reached_by.groups
        await self._connect()
        return await session.measure(
            SessionNews(clients, progress).hear, lambda ours: compare_clocks(hosts, ours, grouped), grouped
        )

    def _outcome_of(self, taken: HostSession, name: str, settings: Settings, reached: Reached) -> Outcome:
        """Raises TrialFailed."""
        facts = planned_facts(self.study, settings)
        told = Told(
            kernel=facts.stack == "kernel",
            threads=min(settings.load.threads, settings.load.workers),
            server_threads=self._spec.threads if settings.endpoint.embedded else None,
        )
        try:
            result, connected, log = taken.trial(name, told)
        except ValidationError as error:
            raise TrialFailed(malformed(error)) from error
        left_out = tuple(each.name for each in self._clients(settings) if each.name in self._absent)
        result = result.model_copy(update={"facts": facts, "left_out": left_out})
        if reached.facts is not None:
            # On a kernel's path the engine saw only a device.
            result = result.model_copy(update={"endpoint": settings.endpoint.uri})
            connected = connected.told(settings.endpoint.uri, reached.facts)
        return Outcome(result, connected, "\n".join(log))

    def answers(self, trial: Trial) -> bool:
        settings = self.study.settings(trial.treatment)
        try:
            wait_for(self._ask_all())
            if not settings.endpoint.embedded:
                wait_for(self._hooks.enter(trial.treatment))
                wait_for(self._volumes.answers(settings))
        except (HostFault, ValidationError):
            return False
        return True

    def leave_out(self, failed: TrialFailed) -> bool:
        """Initiators alone: without a target nothing can be reached or compared."""
        present = [place.name for place in self._present()]
        if not self.without_lost_hosts or failed.kind not in _LOST or failed.host not in present or len(present) == 1:
            return False
        self._absent[failed.host] = failed.reason
        return True

    def close(self) -> None:
        wait_for(self._leave())

    def closing(self) -> Closing:
        return Closing("\n".join(self._hooks.take()), tuple(self._left))

    def _joined(self) -> list[CheckItem]:
        """Paths that cannot be up side by side. Known once the volumes were looked at."""
        return self._volumes.joined() if self._together else []

    def _told(self, said: str) -> None:
        """Who hears it may change."""
        self.tell(said)

    def _enter(self, block: int) -> None:
        """Runs the commands between two blocks. Raises TrialFailed."""
        if block == self._block:
            return
        self._told_to(self._hooks.leave())
        if self._block:
            self._hook("after block")
        self._block = 0
        self._hook("before block")
        self._block = block

    def _esxi_cpu(self, start_unix_ns: int, window_ns: int, spent: Mapping[str, int]) -> list[CpuTime]:
        """`spent`: each guest's own CPU time over the window. Raises TrialFailed."""
        idle = {place.name: self._idle_ns(place.name, window_ns) for place in self._hypervisors.esxi}
        try:
            return self._hypervisors.esxi_cpu(start_unix_ns, start_unix_ns + window_ns, spent, idle)
        except HostFault as fault:
            raise _failed(fault) from fault

    def _hook(self, at: Moment, trial: Trial | None = None) -> None:
        """Raises TrialFailed with the commands' output."""
        self._told_to(self._hooks.run(at, trial.treatment if trial else None))

    def _told_to(self, hooks: Coroutine[Any, Any, None]) -> None:
        """Raises TrialFailed with the commands' output."""
        try:
            wait_for(hooks)
        except HostFault as fault:
            said = "\n".join(self._hooks.take())
            raise TrialFailed(str(fault), said, kind=fault.kind, host=fault.host) from fault

    def _places(self) -> list[HostPlace]:
        """Hosts with an engine."""
        return [*self._present(), *self._targets, *self._hypervisors.linux]

    def _present(self) -> list[HostPlace]:
        return [place for place in self._initiators if place.name not in self._absent]

    def _roles(self) -> list[tuple[str, HostPlace, Asked]]:
        asked = self._volumes.asked(self._targets[0].host if self._targets else None)
        initiators = [("initiator", place, asked) for place in self._initiators]
        # The way back is the same network's.
        peer = self._initiators[0].host
        back = Asked(peer=peer.data)
        others = [("target", place, back) for place in self._targets]
        others += [("hypervisor", place, Asked()) for place in self._hypervisors.linux]
        return initiators + others + [("esxi", place, Asked()) for place in self._hypervisors.esxi]

    def _clients(self, settings: Settings) -> list[HostPlace]:
        """Clients of the treatment, including lost ones: each keeps its place in the volume, or its own volume."""
        return self._initiators[: settings.load.clients or len(self._initiators)]

    async def _connect(self) -> None:
        await self._reached_by.install(self._places(), self._binary)

    async def _ask_all(self) -> None:
        """Whether each host still answers: a connection may stand long after its host is gone."""
        await each_of([place.run("true") for place in self._places()])

    async def _check_hosts(self) -> list[CheckItem]:
        found = [CheckItem("warning", "hosts", said)] if (said := untried(self._spec)) else []
        for each in await self._reached_by.survey(self._roles(), self._binary):
            if each.fault:
                failed = TrialFailed(each.fault, kind=each.fault_kind, host=each.host)
                kind, more = ("warning", "; trials go on without it") if self.leave_out(failed) else ("error", "")
                found.append(CheckItem(kind, each.host, f"{each.fault}{more}"))
                continue
            found += [
                CheckItem("error", each.host, f"{what}, and this study needs it there") for what in each.obstacles
            ]
            if each.clock is None:
                found.append(CheckItem("ok", each.host, f"{each.role}, {each.kernel}, read by esxtop"))
                continue
            ahead_ms, error_ms = each.clock.ahead_ns / 1e6, each.clock.error_ns / 1e6
            said = f"{each.role}, Linux {each.kernel}, {each.cores} cores, clock {ahead_ms:+.2f} ms ± {error_ms:.2f} ms"
            found.append(CheckItem("ok", each.host, said))
        return [*found, *await left_undone(self.study, self._places())]

    async def _reach(self, settings: Settings, clients: list[int], progress: Progress) -> list[Reached]:
        """The endpoint of each client's load."""
        if settings.endpoint.embedded:
            served = Reached(await self._served(settings, progress), self._binary.remote, Permission())
            return [served] * len(clients)
        if settings.endpoint.kernel:
            progress(Step(f"{settings.label}: the kernels connect"))
        return await each_of([self._volumes.reach(settings, index) for index in clients])

    async def _served(self, settings: Settings, progress: Progress) -> str:
        """The endpoint of our own server; one that is gone, or has another volume, is started."""
        serving = self._serving
        asked = settings.volume, settings.connection.polling
        if serving is None or not await serving.agent.alive() or (serving.volume, serving.polling) != asked:
            await self._end_server()
            progress(Step(f"starting the server on {self._targets[0].name}, {format_size(settings.volume.size)}"))
            self._serving = serving = await self._serve(*asked)
        return serving.endpoints[settings.endpoint.protocol]

    async def _serve(self, volume: Volume, polling: Polling) -> _Serving:
        place = self._targets[0]
        document = serve_document(
            volume,
            driver=self._spec.driver,
            threads=self._spec.threads,
            cpus=[],
            polling=polling,
            listen=portal(place.host.data, 0),
        )
        program = await place.install(self._binary)
        agent = await place.start(f"{program} serve", document | {"lease_ns": LEASE_NS})
        try:
            ready = await agent.expect("ready", _SERVE_S + volume.size / _FILL_BYTES_PER_S)
        except BaseException:
            await agent.end()
            raise
        endpoints = {portal["protocol"]: portal["endpoint"] for portal in ready["portals"]}
        return _Serving(agent, volume, polling, ready["pid"], endpoints)

    def _load_job(
        self, place: HostPlace, settings: Settings, reached: Reached, index: int, seed: int, *, events: bool
    ) -> Job:
        """Raises TrialFailed."""
        try:
            document, secrets = handed_over(place.name, self._load(settings, reached, index, seed, events=events))
        except HostFault as fault:
            raise _failed(fault) from fault
        return Job(place, reached.program, document, secrets=secrets)

    async def _modelled(self, settings: Settings) -> ModelledMedia | None:
        """Activity of our own server's media since it started, if they are modelled."""
        serving = self._serving
        if serving is None or not settings.endpoint.embedded or settings.volume.model is None:
            return None
        serving.agent.send({"command": "status"})
        return done_by(await serving.agent.expect("status", _ANSWER_S))

    def _load(
        self, settings: Settings, reached: Reached, index: int, seed: int, *, events: bool = False
    ) -> dict[str, Any]:
        document = run_document(
            settings,
            reached.endpoint,
            seed=seed,
            driver=self._spec.driver,
            cpus=[],
            watch_pids={},
            permission=reached.permission,
            events=events,
        )
        return of_client(document, settings, index, sharing=self._sharing(settings))

    def _sharing(self, settings: Settings) -> int:
        """Number of clients that share one volume in parts."""
        return 1 if CLIENT in settings.endpoint.uri else len(self._clients(settings))

    def _measured(
        self,
        jobs: list[Job],
        hear: Hear | None = None,
        happens: Happens | None = None,
        /,
        *,
        warmup_ns: int,
        runtime_ns: int,
        sample_ns: int,
    ) -> list[Answer]:
        """Raises TrialFailed."""

        async def work() -> list[Answer]:
            await self._connect()
            observers = await self._hypervisors.jobs(self._binary.remote)
            async with self._hypervisors.watched():
                return await measure(
                    [*jobs, *observers],
                    hear,
                    grouped=self._reached_by.groups,
                    warmup_ns=warmup_ns,
                    runtime_ns=runtime_ns,
                    sample_ns=sample_ns,
                    after_s=max((after_s(job.load) for job in jobs if job.load), default=0.0),
                    further=[happens] if happens else [],
                )

        try:
            return wait_for(work())
        except HostFault as fault:
            raise blamed(_failed(fault), begun=happens is not None and happens.begun) from fault

    def _measured_beside(
        self, beside: Beside, settings: Settings, members: Sequence[Member], seed: int, jobs: list[Job]
    ) -> list[Answer]:
        """Raises TrialFailed and HostFault; none of its programs runs then."""
        try:
            waiting = wait_for(beside.begin(settings, members, seed))
            jobs = [replace(job, release=waiting.get(job.place.name)) for job in jobs]
            answers = self._measured(jobs, beside.hear, **_window(settings))
            return wait_for(beside.results(settings, members, answers))
        except (HostFault, TrialFailed):
            wait_for(beside.stop(settings, members))
            raise

    def _outcome(self, settings: Settings, answers: list[Answer], reached: list[Reached]) -> Outcome:
        threads = min(settings.load.threads, settings.load.workers)
        facts = planned_facts(self.study, settings)
        parts, cpu, log, series = [], [], [], []
        try:
            for answer in answers:
                series.append(self._series_of(answer, kernel=facts.stack == "kernel"))
                log += [f"{answer.host}: {line}" for line in answer.log.splitlines()]
                log += moved(answer.host, answer.observed)
                if answer.beside is not None:
                    cpu.append(worker_cpu(answer.host, answer.beside, answer.observed["window"]["duration_ns"]))
                    log.append(worker_said(cpu[-1]))
                if answer.result is not None:
                    result = TrialResult.model_validate(answer.result)
                    parts.append(Part(answer.host, answer.offset, result))
                    idle_ns = self._idle_ns(answer.host, result.window.duration_ns)
                    kernel, virtual = facts.stack == "kernel", answer.host in self._virtual
                    cpu += initiator_cpu(answer.host, result, threads, idle_ns, kernel=kernel, virtual=virtual)
                else:
                    observed = Observed.model_validate(answer.observed)
                    idle_ns = self._idle_ns(answer.host, observed.window["duration_ns"])
                    if answer.host in self._hypervisors:
                        cpu += self._hypervisors.linux_cpu(answer.host, observed, idle_ns)
                    else:
                        virtual = answer.host in self._virtual
                        cpu += target_cpu(answer.host, observed, self._spec.threads, idle_ns, virtual=virtual)
            if parts:
                began_ns = min(part.started_ns for part in parts)
                window_ns = parts[0].result.window.duration_ns
                cpu += self._esxi_cpu(began_ns, window_ns, _spent_by_guests(cpu))
                series += self._hypervisors.esxi_series(began_ns, series)
            connected = Connected.model_validate(answers[0].connected)
        except ValidationError as error:
            raise TrialFailed(malformed(error)) from error
        silent = [part.host for part in parts if not part.result.ios and not part.result.idle]
        if silent:
            raise TrialFailed(
                f"no I/O completed within the measured window on {', '.join(silent)}", "\n".join(log), connected
            )
        over_time = {"facts": facts, "cpu_series": cpu_series(series)}
        result = merged(parts, CpuUse(cpu)).model_copy(update=over_time)
        if reached[0].facts is not None:
            # On a kernel's path the engine saw only a device.
            result = result.model_copy(update={"endpoint": settings.endpoint.uri})
            connected = connected.told(settings.endpoint.uri, reached[0].facts)
        return Outcome(result, connected, "\n".join(log))

    def _series_of(self, answer: Answer, *, kernel: bool) -> HostSeries:
        """Busy processors of its host over time, by role."""
        seconds = Observed.model_validate(answer.observed).cpu_series
        serves = any("target" in each.busy_ns for each in seconds)
        empty = self._empty_series(answer.host, loads=answer.result is not None, kernel=kernel, serves=serves)
        return replace(empty, seconds=seconds)

    def _observed(self, settings: Settings, jobs: Sequence[Job]) -> list[HostSeries]:
        """Busy processors of all hosts that report them during the measurement; esxtop's rows come too late."""
        kernel = planned_facts(self.study, settings).stack == "kernel"
        found = [
            self._empty_series(
                each.place.name, loads=each.load is not None, kernel=kernel, serves=bool(each.watch_pids)
            )
            for each in jobs
        ]
        return found + [self._empty_series(each.name, loads=False) for each in self._hypervisors.linux]

    def _empty_series(self, host: str, *, loads: bool, kernel: bool = False, serves: bool = False) -> HostSeries:
        """Which part of a host counts for which role, before any is known."""
        own: dict[CpuRole, str] = {}
        virtual, hypervisor = host in self._virtual, host in self._hypervisors
        if loads:
            own["initiator"] = "machine" if kernel else "observer"
        elif not hypervisor:
            own["target"] = "target" if serves else "machine"
        return HostSeries(host, (), own, virtual=virtual, hypervisor=hypervisor)

    def _idle_ns(self, host: str, window_ns: int) -> int | None:
        """The host's background over such a window; None if it was not measured."""
        if host not in self._background:
            return None
        busy_ns, over_ns = self._background[host]
        return round(busy_ns * window_ns / over_ns) if over_ns else None

    async def _clean(self) -> dict[str, str]:
        async def one(place: HostPlace) -> str:
            try:
                return await self._volumes.paths.clean(place) or "nothing there"
            except HostFault as fault:
                return fault.message

        said = await asyncio.gather(*map(one, self._places()))
        return dict(zip((place.name for place in self._places()), said, strict=True))

    async def _leave(self) -> None:
        if self._prepared:
            self._prepared = False
            run = self._hooks.run
            for end in (self._hooks.leave(), *([run("after block")] if self._block else []), run("after study")):
                try:
                    await end
                except HostFault as fault:
                    self._left.append(str(fault))
        self._left += await self._volumes.paths.close(self._initiators)
        await self._end_server()
        await asyncio.gather(*(place.close() for place in self._hooks.places.values()))
        await self._reached_by.close()

    async def _server_ending(self) -> str:
        """How the server ended; empty if it is running."""
        if self._serving is None:
            return ""
        try:
            await self._serving.agent.expect("stopped", _ENDING_S)
        except HostFault as fault:
            return "" if fault.kind == "silent" else f"the server on {fault}"
        return ""

    async def _end_server(self) -> None:
        if self._serving is not None:
            serving, self._serving = self._serving, None
            serving.agent.send({"command": "stop"})
            await serving.agent.end()


def _window(settings: Settings) -> dict[str, int]:
    load = settings.load
    return {"warmup_ns": load.warmup, "runtime_ns": load.runtime, "sample_ns": min(SAMPLE_NS, load.runtime)}


def _spent_by_guests(parts: Sequence[CpuTime]) -> dict[str, int]:
    """Guest → all that it spent over the window, user and system time, by its own clock."""
    return {part.host: part.busy_ns for part in parts if part.layer == "guest"}


def _failed(fault: HostFault) -> TrialFailed:
    return TrialFailed(str(fault), kind=fault.kind, host=fault.host)
