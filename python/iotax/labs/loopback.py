"""The lab on this machine: a server process, a load process, loopback TCP between them, no root.

If the machine has enough processors, each process is pinned to its own. Endpoints that the study names are reached
without the server, by the same load process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from iotax.design import Plan
from iotax.design.plan import LEAD_IN_NS, trial_seed
from iotax.design.rounds import session_rounds
from iotax.engine import EngineError
from iotax.labs import guard, own_target
from iotax.labs.base import CheckItem, Lab, LabUnusable, Outcome, Progress, Step, TrialFailed, Worked
from iotax.labs.events import Act, Flapping, OwnTarget, Performer, freezes, performed, together
from iotax.labs.generators import GENERATORS, Job, generator_of
from iotax.labs.generators.base import PATTERN
from iotax.labs.guard import impossible
from iotax.labs.held import Holdings
from iotax.labs.load import (
    Checked,
    Permission,
    filling,
    overwriting,
    run_check,
    run_document,
    run_fill,
    run_idle,
    run_load,
    worked,
)
from iotax.labs.media import with_media
from iotax.labs.outcomes import Processors, recorded, usable
from iotax.labs.proc import memory_free_bytes
from iotax.labs.server import Server, Servers, one_server, serve_document, volume_uri
from iotax.labs.turns import run_session, session_document
from iotax.study import Settings, Study
from iotax.study.connection import Polling
from iotax.study.events import Happening, happenings
from iotax.study.facts import planned_facts
from iotax.study.model import Volume
from iotax.trial import Background, Trial, TrialResult
from iotax.units import format_size

_TRIED_BYTES = 16 << 20
"""Size of the volume on which `check` tries the server."""
_DYING_S = 0.5
"""A load may hear sooner than its parent that a server was killed."""
_SPARE_BYTES = 256 << 20
"""Memory left to everything else when a memory volume is made."""
_OWN_TARGET_PART = 10
"""Measuring the initiator on an own target takes at most the study's time divided by this, or one load of each
protocol."""


@dataclass(frozen=True)
class _State:
    """When and for what a volume was last filled: the block and the trial."""

    block: int = 0
    trial: str = ""
    content: str = PATTERN


class LoopbackLab(Lab):
    """`destroy` holds the endpoints whose data the user gave away, as the study names them."""

    def __init__(self, study: Study, plan: Plan, program: Path, destroy: frozenset[str] = frozenset()) -> None:
        self._study, self._plan, self._program, self._destroy = study, plan, program, destroy
        self._filled: dict[str, _State] = {}
        self._background: Background | None = None
        """The current block."""
        self._session = 0
        """The block of the latest session, where that went well."""
        self._held = Holdings()
        self._own_target = own_target.OwnTarget()
        self._foreign: set[str] = set()
        """File volumes that another program than the engine wrote through our own server."""
        self._servers = Servers(
            self._start_server,
            self._held,
            lambda uri: self._may_destroy(uri) or uri in self._foreign,
            together=study.design.slices is not None,
        )
        self._settings = {trial.id: study.settings(trial.treatment) for trial in plan.trials}
        threads_max = max(settings.load.threads for settings in self._settings.values())
        self.serve_cpus, self.load_cpus = share_cpus(
            sorted(os.sched_getaffinity(0)), study.lab.loopback.threads, threads_max
        )

    def check(self) -> list[CheckItem]:
        found = [*self._check_machine(), *self._check_generators(), *self._check_volumes(lambda _: None)]
        return [*found, *self._check_server(), *self._check_endpoints(lambda _: None)]

    def check_initiator(self, progress: Progress) -> list[CheckItem]:
        return own_target.explained(self._on_own_target(progress, own_target.LOADS_MAX))

    def prepare(self, progress: Progress) -> None:
        progress(Step("checking the lab"))
        findings = [*self._check_machine(), *self._check_generators(), *self._check_volumes(progress)]
        findings += [*self._hold_endpoints(), *self._check_endpoints(progress)]
        if any(each.kind in ("error", "refused") for each in findings):
            raise LabUnusable(findings)
        # The time is not the plan's, so it stays a small part of that.
        loads_max = self._plan.duration_max_ns // (_OWN_TARGET_PART * own_target.LOAD_NS)
        self._own_target = self._on_own_target(progress, loads_max)
        if self._embedded() and self._study.design.slices is None:
            progress(Step(f"starting the server, writing {format_size(self._study.volume.size)}"))
            try:
                self._serve(self._embedded()[0])
            except TrialFailed as failed:
                kind = "refused" if failed.kind in ("foreign_data", "in_use", "swapped") else "error"
                raise LabUnusable([CheckItem(kind, "server", failed.reason)]) from failed
        self._fill_endpoints(progress)

    def volumes(self) -> list[str]:
        external = self._external()
        floor = self._study.floor and self._study.endpoints()[self._study.floor].uri
        # The floor is behind all other endpoints.
        return [floor] if floor else list(external)

    def fill(self, endpoint: str, progress: Progress) -> Worked:
        settings, size_bytes = self._conditioned(endpoint)
        try:
            permission = self._permission(settings)
            run_fill(self._program, filling(settings, size_bytes), endpoint, permission=permission, progress=progress)
        except EngineError as error:
            raise TrialFailed(str(error), error.log, kind=error.kind) from error
        finally:
            self._held.touched(endpoint)
        return Worked(size_bytes)

    def overwrite(self, endpoint: str, number: int, progress: Progress) -> Worked:
        settings, size_bytes = self._conditioned(endpoint)
        document = run_document(
            overwriting(settings, size_bytes),
            endpoint,
            seed=self._study.design.seed + number,
            driver=self._study.lab.loopback.driver,
            cpus=self.load_cpus[:1],
            watch_pids={},
            permission=self._permission(settings),
        )
        try:
            return worked([run_load(self._program, document, progress).result])
        finally:
            self._held.touched(endpoint)

    def _conditioned(self, endpoint: str) -> tuple[Settings, int]:
        """Settings that lead there, and how much is preconditioned: all that any load uses."""
        largest = _largest(self._external()[endpoint])
        return largest, max(largest.preconditioned_bytes, largest.working_set_bytes)

    def background(self, block: int) -> Background:
        pids = self._servers.pids()
        # With several servers, none is *the* target.
        watched = {"target": pids[0]} if len(pids) == 1 else {}
        self._background = None
        self._background = run_idle(self._program, block, cpus=self.load_cpus, watch_pids=watched)
        return self._background

    def run(self, trial: Trial, progress: Progress) -> Outcome:
        settings = self._study.settings(trial.treatment)
        server: Server | None = None
        try:
            if settings.endpoint.embedded:
                server = self._serve(settings)
                target = server.endpoint(settings.endpoint.protocol)
            else:
                target = settings.endpoint.uri
                self._judge_again(settings, progress)
            self._refill(trial, settings, server, progress)
        except EngineError as error:
            raise TrialFailed(str(error), error.log, kind=error.kind) from error
        over_network = server is not None and settings.endpoint.protocol != "local"
        watch_pids = {"target": server.pid} if server and over_network else {}
        try:
            before = server.modelled() if server else None
            outcome = self._generate(trial, settings, target, watch_pids, progress)
            outcome = with_media(outcome, before, server.modelled() if server else None)
        except EngineError as error:
            raise TrialFailed(str(error), error.log, kind=error.kind) from error
        except TrialFailed as failed:
            if server is None or server.alive(_DYING_S if failed.away else 0.0):
                raise
            reason = f"{server.ending()}; the load then said: {failed.reason}"
            raise TrialFailed(reason, "\n".join((server.log, failed.log)), failed.connected) from failed
        finally:
            self._held.touched(target)
        if server is not None and not server.alive():
            raise TrialFailed(f"{server.ending()} during the trial", server.log, outcome.connected)
        return replace(outcome, result=self._recorded(outcome.result, settings))

    def _recorded(self, result: TrialResult, settings: Settings) -> TrialResult:
        """With its facts."""
        allowed = len(os.sched_getaffinity(0))
        load = settings.load
        threads = generator_of(settings).threads(load)
        facts = planned_facts(self._study, settings)
        processors = Processors(
            load=usable(threads, len(self.load_cpus[: load.threads]), allowed),
            target=usable(self._study.lab.loopback.threads, len(self.serve_cpus), allowed),
        )
        reached = self._own_target.of(settings)
        own = {"threads": threads, "own_target_rate_iops": reached and reached.rate_iops}
        return recorded(result, facts.model_copy(update=own), processors, self._background)

    def run_rounds(self, trials: Sequence[Trial], progress: Progress) -> list[Outcome]:
        """One session: all processes start afresh, on each other's processors compared with the session before. The
        sessions of one search for a knee share a block and its servers."""
        slices = self._study.design.slices
        assert slices is not None, "only a study by rounds has sessions"
        session = trials[0].block
        if session != self._session:
            self._servers.close()
        self._session = 0
        serve_cpus, load_cpus = self.serve_cpus, self.load_cpus
        if session % 2 == 0 and len(serve_cpus) == len(load_cpus):
            serve_cpus, load_cpus = load_cpus, serve_cpus
        loads: dict[str, dict[str, Any]] = {}
        served: dict[str, Server] = {}
        try:
            for trial in trials:
                settings = self._study.settings(trial.treatment)
                server = self._serve(settings, serve_cpus) if settings.endpoint.embedded else None
                self._judge_again(settings, progress)
                self._refill(trial, settings, server, progress)
                if server is not None:
                    served[trial.id] = server
                over_network = server is not None and settings.endpoint.protocol != "local"
                loads[trial.id] = run_document(
                    settings,
                    server.endpoint(settings.endpoint.protocol) if server else settings.endpoint.uri,
                    seed=trial_seed(self._study, trial),
                    driver=self._study.lab.loopback.driver,
                    cpus=load_cpus[: settings.load.threads],
                    watch_pids={"target": server.pid} if server and over_network else {},
                    permission=self._permission(settings),
                )
        except EngineError as error:
            raise TrialFailed(str(error), error.log, kind=error.kind) from error
        document = session_document(
            loads,
            session_rounds(self._study, trials, session),
            lead_in_ns=LEAD_IN_NS,
            settle_ns=slices.settle_ns,
            slice_ns=slices.slice_ns,
        )
        try:
            before = {server: server.modelled() for server in served.values()}
            outcomes = run_session(self._program, document, progress)
            after = {server: server.modelled() for server in before}
            outcomes |= {
                name: with_media(outcomes[name], before[server], after[server]) for name, server in served.items()
            }
        except EngineError as error:
            raise TrialFailed(str(error), error.log, kind=error.kind) from error
        except TrialFailed as failed:
            if (dead := self._servers.dead(_DYING_S if failed.away else 0.0)) is None:
                raise
            reason = f"{dead.ending()}; the load then said: {failed.reason}"
            raise TrialFailed(reason, "\n".join((dead.log, failed.log))) from failed
        finally:
            for uri in self._external():
                self._held.touched(uri)
        self._session = session
        return [
            replace(
                outcomes[trial.id],
                result=self._recorded(outcomes[trial.id].result, self._study.settings(trial.treatment)),
            )
            for trial in trials
        ]

    def _generate(
        self, trial: Trial, settings: Settings, target: str, watch_pids: dict[str, int], progress: Progress
    ) -> Outcome:
        generator = generator_of(settings)
        job = Job(
            settings,
            endpoint=target,
            reached=self._held.descriptor_path(target) or target,
            permission=self._permission(settings),
            seed=trial_seed(self._study, trial),
            driver=self._study.lab.loopback.driver,
            cpus=self.load_cpus[: settings.load.threads],
            watch_pids=watch_pids,
            program=self._program,
        )
        name = self._name(settings)
        state = self._filled.get(name, _State())
        needed = generator.needs(settings)
        if needed and state.content != needed:
            generator.lay_out(job, progress)
        content = needed or generator.leaves(settings) or state.content
        self._filled[name] = replace(state, content=content)
        if content != PATTERN and settings.endpoint.embedded:
            self._foreign.add(volume_uri(settings.volume))
        to_happen = happenings(self._study.events, self._study.design.seed, trial.block, trial.replicate)
        if not to_happen:
            return generator.run(job, progress)
        return performed(
            Performer(to_happen, self._acts(to_happen, settings, watch_pids["target"])),
            lambda starts: generator.run(replace(job, events=True, starts=starts), progress),
        )

    def _acts(self, to_happen: Sequence[Happening], settings: Settings, pid: int) -> dict[str, Act]:
        server = self._servers.of(settings)
        assert server is not None, "events are of the lab's own server"
        protocol = settings.endpoint.protocol
        own: dict[str, Act] = {}
        for each in to_happen:
            if each.do.kill is not None:
                own[each.do.words] = OwnTarget(server.kill)
            if not each.do.path:
                continue
            if each.do.access is not None:
                changes = [partial(server.set_access, protocol, path, each.do.access) for path in each.do.path]
            else:
                changes = [partial(server.silence, protocol, path) for path in each.do.path]
            act = together([OwnTarget(change) for change in changes])
            own[each.do.words] = Flapping(act, each.do.every) if each.do.every else act
        return {**freezes(to_happen, pid), **own}

    def close(self) -> None:
        self._held.close()
        self._servers.close()

    def answers(self, trial: Trial) -> bool:
        settings = self._study.settings(trial.treatment)
        if settings.endpoint.embedded:
            return True
        with contextlib.suppress(EngineError, ValidationError):
            run_check(self._program, settings, settings.endpoint.uri, lambda _: None, look_bytes=0)
            return True
        return False

    def _permission(self, settings: Settings) -> Permission:
        """Why the load may write to the endpoint of these settings."""
        if not settings.endpoint.embedded:
            uri = settings.endpoint.uri
            return Permission(self._held.identity(uri), destroy=self._may_destroy(uri))
        server = self._servers.of(settings) if settings.endpoint.protocol == "local" else None
        return Permission(server.identity if server else None)

    def _on_own_target(self, progress: Progress, loads_max: int) -> own_target.OwnTarget:
        others = sorted(os.sched_getaffinity(0) - {*self.load_cpus})
        labels = list(self._study.endpoints())
        return own_target.measure(
            self._program,
            sorted(self._settings.values(), key=lambda each: labels.index(each.label)),
            progress,
            driver=self._study.lab.loopback.driver,
            load_cpus=self.load_cpus,
            # Where the load has no processors of its own, neither has the target.
            serve_cpus=others if self.load_cpus else [],
            loads_max=min(loads_max, own_target.LOADS_MAX),
        )

    def _embedded(self) -> list[Settings]:
        return [each for each in self._settings.values() if each.endpoint.embedded]

    def _external(self) -> dict[str, list[Settings]]:
        """URI → the treatments that go there."""
        found: dict[str, list[Settings]] = {}
        for settings in self._settings.values():
            if not settings.endpoint.embedded:
                found.setdefault(settings.endpoint.uri, []).append(settings)
        return found

    def _serve(self, settings: Settings, cpus: list[int] | None = None) -> Server:
        return self._servers.serve(settings, self.serve_cpus if cpus is None else cpus)

    def _start_server(
        self, settings: Settings, *, cpus: list[int], expect: dict[str, int] | None, destroy: bool
    ) -> Server:
        document = serve_document(
            settings.volume,
            driver=self._study.lab.loopback.driver,
            threads=self._study.lab.loopback.threads,
            cpus=cpus,
            polling=settings.connection.polling,
            file_io=any(generator_of(each).foreign for each in self._settings.values()),
            expect=expect,
            destroy=destroy,
            paths=settings.topology.paths,
            reports_access=any(each.do.access is not None for each in self._study.events),
        )
        return Server(self._program, settings.volume, document, settings.topology.paths)

    def _refill(self, trial: Trial, settings: Settings, server: Server | None, progress: Progress) -> None:
        """Puts the pattern back where the study wants it, the same state before each block or trial, and where another
        generator's data have taken its place."""
        if settings.volume.fill != "pattern":
            return
        refill = settings.volume.refill
        due = _State(trial.block if refill != "never" else 0, trial.id if refill == "trial" else "")
        name = self._name(settings)
        # A server that was just started has filled its volume itself, and so has `prepare` an endpoint, but for the
        # first block's sake.
        state = self._filled.setdefault(name, due if server is not None or refill == "never" else _State())
        same_content = state.content == due.content or generator_of(settings).foreign
        if (state.block, state.trial) == (due.block, due.trial) and same_content:
            return
        progress(Step("restoring the volume"))
        if server is not None:
            server.fill()
        else:
            uri = settings.endpoint.uri
            run_fill(self._program, settings, uri, permission=self._permission(settings), progress=progress)
            self._held.touched(uri)
        self._filled[name] = due

    def _name(self, settings: Settings) -> str:
        """Identity of what is filled; it includes a server's pid, since another server has another volume."""
        if settings.endpoint.embedded and (server := self._servers.of(settings)) is not None:
            return f"server {server.pid}"
        return settings.endpoint.uri

    def _check_machine(self) -> list[CheckItem]:
        found: list[CheckItem] = []
        if self._embedded():
            pinned = f"server on processor {_list(self.serve_cpus)}, load on {_list(self.load_cpus)}"
            found.append(
                CheckItem("ok", "processors", pinned)
                if self.serve_cpus
                else CheckItem(
                    "warning", "processors", "too few for server and load to have their own; they will share"
                )
            )
        found += self._check_memory()
        return found

    def _check_memory(self) -> Iterator[CheckItem]:
        """Whether the memory volumes that stand at one time fit: in rounds all, else one after another."""
        servers: list[tuple[Volume, Polling, int]] = []
        for each in self._embedded():
            if each.volume.media in ("memory", "model") and one_server(each) not in servers:
                servers.append(one_server(each))
        together = self._study.design.slices is not None
        sizes = [volume.size for volume, _, _ in servers] or [0]
        needed, free_bytes = sum(sizes) if together else max(sizes), memory_free_bytes()
        if needed and free_bytes is not None and needed + _SPARE_BYTES > free_bytes:
            several = together and len(servers) > 1
            what = f"{len(servers)} memory volumes of {{}} in all do" if several else "a memory volume of {} does"
            yield CheckItem(
                "error",
                "memory",
                f"{what.format(format_size(needed))} not fit into the {free_bytes >> 20} MiB free; "
                "say a smaller `size:` under volume",
            )

    def _check_generators(self) -> Iterator[CheckItem]:
        for generator in GENERATORS.values():
            if asked := [each for each in self._settings.values() if generator_of(each) is generator]:
                yield from generator.check(asked, self._study.lab.loopback.driver)

    def _check_server(self) -> list[CheckItem]:
        """Brings the server up on a small volume and reaches it through each protocol of the study."""
        embedded = self._embedded()
        if not embedded:
            return []
        found: list[CheckItem] = []
        volume = embedded[0].volume
        if volume.media != "null":
            # File contents are checked separately; the protocols are the same for a memory volume.
            volume = volume.model_copy(update={"media": "memory", "path": None, "size": _TRIED_BYTES, "fill": "zeros"})
        document = serve_document(volume, driver=self._study.lab.loopback.driver, threads=1, cpus=[])
        try:
            server = Server(self._program, volume, document)
        except (EngineError, ValidationError) as error:
            return [CheckItem("error", "server", str(error))]
        with contextlib.closing(server):
            for protocol in dict.fromkeys(settings.endpoint.protocol for settings in embedded):
                asked = [each for each in embedded if each.endpoint.protocol == protocol]
                some = replace(asked[0], volume=volume, load=asked[0].load.model_copy(update={"working_set": None}))
                try:
                    checked = run_check(self._program, some, server.endpoint(protocol), lambda _: None)
                except (EngineError, ValidationError) as error:
                    found.append(CheckItem("error", protocol, str(error)))
                    continue
                reasons = {reason: None for each in asked for reason in self._impossible(each, checked)}
                found += [CheckItem("error", protocol, reason) for reason in reasons]
                if not reasons:
                    found.append(CheckItem("ok", protocol, "the embedded server answers"))
        return found

    def _impossible(self, settings: Settings, checked: Checked) -> Iterator[str]:
        # The file system places the blocks of a file volume; the small server here does not know them.
        return impossible(
            settings,
            max_io_bytes=checked.max_io_bytes,
            block_size_bytes=checked.block_size_bytes,
            memory_free_bytes=memory_free_bytes(),
        )

    def _check_volumes(self, progress: Progress) -> list[CheckItem]:
        """The owner of the data in file volumes, and whether there is room for new ones."""
        found: list[CheckItem] = []
        for volume in {each.volume.path: each.volume for each in self._embedded()}.values():
            if not (uri := volume_uri(volume)):
                continue
            destroy = self._may_destroy(uri)
            look_bytes = volume.size if destroy else None
            some = next(each for each in self._embedded() if each.volume.path == volume.path)
            try:
                checked = run_check(self._program, some, uri, progress, look_bytes=look_bytes, volume_bytes=volume.size)
            except EngineError as error:
                found.append(guard.explain_volume(uri.removeprefix("local:"), error))
            except ValidationError as error:
                found.append(
                    CheckItem("error", "volume", f"the engine's answer does not fit its own interface: {error}")
                )
            else:
                found.append(guard.judge_volume(uri.removeprefix("local:"), volume.size, checked, destroy=destroy))
        return found

    def _hold_endpoints(self) -> list[CheckItem]:
        """Local files and devices are this study's alone from here to its end."""
        found: list[CheckItem] = []
        writes = {uri: any(each.writes for each in asked) for uri, asked in self._external().items()}
        for uri in sorted(writes, key=lambda uri: not writes[uri]):
            try:
                self._held.hold(uri, writes=writes[uri])
            except EngineError as error:
                found.append(guard.explain(self._external()[uri][0].label, uri, error))
        return found

    def _judge_again(self, settings: Settings, progress: Progress) -> None:
        """Refuses a file that was replaced since its check; checks it again if it was written to. Raises
        EngineError."""
        uri = settings.endpoint.uri
        if not settings.writes or not self._held.changed(uri) or self._may_destroy(uri):
            return
        checked = run_check(self._program, settings, uri, progress, judged=self._held.identity(uri))
        if checked.holds == "foreign":
            at = f" at byte {checked.at_bytes}" if checked.at_bytes is not None else ""
            message = f"somebody wrote to it since the study began: it holds {checked.what or 'data'}{at}"
            raise EngineError("foreign_data", message, uri)
        self._held.touched(uri)

    def _check_endpoints(self, progress: Progress) -> list[CheckItem]:
        """Each once for every label that goes there, which may have credentials of its own."""
        found: list[CheckItem] = []
        for uri, every in self._external().items():
            for label in dict.fromkeys(each.label for each in every):
                found += self._check_endpoint(label, uri, [each for each in every if each.label == label], progress)
        return found

    def _check_endpoint(self, label: str, uri: str, every: list[Settings], progress: Progress) -> list[CheckItem]:
        """Checks every treatment of the endpoint; remarks that they share are given once."""
        largest = _largest(every)
        # If data may be overwritten, only their beginning is described.
        look_bytes = largest.working_set_bytes if self._may_destroy(uri) else None
        judged = self._held.identity(uri)
        try:
            checked = run_check(self._program, largest, uri, progress, judged=judged, look_bytes=look_bytes)
        except EngineError as error:
            return [guard.explain(label, uri, error)]
        except ValidationError as error:
            return [CheckItem("error", label, f"the engine's answer does not fit its own interface: {error}")]
        findings: list[CheckItem] = []
        for settings in every:
            destroy, free_bytes = self._may_destroy(uri), memory_free_bytes()
            for each in guard.judge(settings, label, uri, checked, destroy=destroy, memory_free_bytes=free_bytes):
                if each not in findings:
                    findings.append(each)
        bad = [each for each in findings if each.kind != "ok"]
        return bad or findings

    def _fill_endpoints(self, progress: Progress) -> None:
        """Writes the pattern if a treatment may read it: an earlier run may have left holes."""
        for uri, every in self._external().items():
            settings = _largest(every)
            # Preconditioning fills the volume, so it must not be filled sequentially afterwards.
            if settings.volume.fill != "pattern" or settings.precondition is not None:
                continue
            try:
                run_fill(self._program, settings, uri, permission=self._permission(settings), progress=progress)
                self._held.touched(uri)
            except EngineError as error:
                raise LabUnusable([guard.explain(settings.label, uri, error)]) from error

    def _may_destroy(self, uri: str) -> bool:
        return uri in self._destroy


def _largest(every: list[Settings]) -> Settings:
    return max(every, key=lambda settings: settings.working_set_bytes)


def share_cpus(usable: list[int], server: int, load: int) -> tuple[list[int], list[int]]:
    """Processors of their own for the server and the load; none for either where there are too few."""
    if server + load > len(usable):
        return [], []
    return usable[:server], usable[server : server + load]


def _list(cpus: list[int]) -> str:
    return ", ".join(map(str, cpus))
