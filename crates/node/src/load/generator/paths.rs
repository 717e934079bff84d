//! Several paths to the unit, one for each portal: opens them, and opens a path again when it is lost.

use std::time::Duration;

use iotax_proto::{Geometry, InitiatorEvents, Instant, IoError, Tag, Transmit, Violation};

use super::{
    super::{
        config::{Facts, LoadConfig},
        connector::{self, ConnectionConfig},
        endpoint::Endpoint,
        fan::{AfterLoss, Fan, Lateness, PathCounts},
        link::{Control, ControlStep, Link},
        trouble,
        worker::Worker,
    },
    ControlLink, LoadNode, Phase, earlier,
};
use crate::{
    access::Access,
    failure::{Failure, FailureKind},
    node::{CloseReason, ConnId},
    protocols::AnyInitiator,
};

/// How long a path may take to open.
const DIAL_TIME: Duration = Duration::from_secs(5);
/// Pause before the next attempt.
const REDIAL_PAUSE: Duration = Duration::from_millis(500);
/// How long sessions may take to log out that were only needed to end earlier ones.
const LEAVE_TIME: Duration = Duration::from_secs(1);
/// With more workers, initiator ports on several paths would have the same names.
const WORKERS_MAX: u32 = 8192;

/// Creates the control for the initiator ports of a path, through the portal with a number.
type Dial = Box<dyn Fn(usize, usize) -> Result<Box<dyn Control<AnyInitiator>>, Failure>>;

pub(super) struct Paths {
    dial: Dial,
    all: Vec<Path>,
    /// Number of connections of a path: its control, and one per worker.
    slots: usize,
    retries_at_once: bool,
    /// The unit as the first paths found it.
    unit: Unit,
    /// Work of the paths in the run, once its blocks are read back.
    pub(super) of_run: Vec<PathCounts>,
}

/// A unit, as far as it is known.
#[derive(Debug, Default)]
struct Unit {
    geometry: Option<Geometry>,
    identity: Option<Vec<(&'static str, String)>>,
}

struct Path {
    /// Its portal, for messages.
    portal: String,
    stage: Stage,
    control: Option<ControlLink>,
    /// As the workers know it, while it is up; `None` if the target does not say it.
    access: Option<Access>,
    lateness: Lateness,
    /// Links that carry no I/O: not yet, or because they only end those of a lost path.
    fresh: Vec<Fresh>,
    /// Which of its two sets of connections it uses. The other set may still be closing.
    set: usize,
    after_loss: Option<AfterLoss>,
    /// When its lost writes may be sent again, if time alone decides.
    release_at: Option<Instant>,
    /// The last attempt went through another path's portal and failed.
    detour_failed: bool,
    down_since: Option<Instant>,
    losses: u64,
    down: Duration,
    /// Why it is down.
    why: Option<Failure>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It has no connections and is opened at this time.
    Down {
        dial_at: Instant,
    },
    /// It opens through the portal with this number: its own, or that of another path.
    Dialling {
        through: usize,
        until: Instant,
    },
    Up,
    /// Sessions that ended those of the lost path log out.
    Leaving {
        until: Instant,
    },
}

struct Fresh {
    initiator: AnyInitiator,
    news: News,
}

/// Events of a link that carries no I/O.
#[derive(Default)]
struct News {
    geometry: Option<Geometry>,
    /// The target says how the unit can be accessed, perhaps not at all.
    knows_access: bool,
    closed: bool,
}

/// What happened to a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathReport {
    pub portal: String,
    /// How often it was lost.
    pub losses: u64,
    /// How long it was down.
    pub down: Duration,
    pub counts: PathCounts,
}

impl PathReport {
    /// Adds that of another thread.
    pub fn merge(&mut self, other: &Self) {
        self.losses = self.losses.max(other.losses);
        self.down = self.down.max(other.down);
        self.counts.merge(other.counts);
    }
}

impl Path {
    fn new(portal: &str) -> Self {
        Self {
            portal: portal.to_owned(),
            stage: Stage::Down { dial_at: Instant(0) },
            control: None,
            access: None,
            lateness: Lateness::default(),
            fresh: Vec::new(),
            set: 0,
            after_loss: None,
            release_at: None,
            detour_failed: false,
            down_since: None,
            losses: 0,
            down: Duration::ZERO,
            why: None,
        }
    }

    fn is_up(&self) -> bool {
        self.stage == Stage::Up
    }

    /// Counts the time since it was lost, if it was.
    fn ends_down(&mut self, now: Instant) {
        self.down += self.down_since.take().map_or(Duration::ZERO, |since| now.since(since));
    }
}

impl Paths {
    fn conn(&self, path: usize, slot: usize) -> ConnId {
        let set = 2 * path + self.all[path].set;
        ConnId(((set + 1) * self.slots + slot) as u32)
    }

    /// Queues the connections over which a worker has bytes to send.
    #[cold]
    #[inline(never)]
    pub(super) fn send(&self, index: usize, worker: &mut Worker, to_send: &mut Vec<ConnId>) {
        worker.each_path_to_send(|path| to_send.push(self.conn(path, index + 1)));
    }

    /// Path and slot of a connection that is in use; `None` for those of a path before it was lost.
    fn place(&self, conn: ConnId) -> Option<(usize, usize)> {
        let set = (conn.0 as usize / self.slots).checked_sub(1)?;
        let path = set / 2;
        (self.all.get(path)?.set == set % 2).then_some((path, conn.0 as usize % self.slots))
    }
}

impl LoadNode {
    /// Prepares the paths to the endpoint's portals. They open at the first input.
    #[cold]
    #[inline(never)]
    pub(super) fn add_paths(
        &mut self,
        config: &LoadConfig,
        endpoint: &Endpoint,
        connection: &ConnectionConfig,
    ) -> Result<(), Failure> {
        if config.workers > WORKERS_MAX {
            return Err(Failure::usage(format!("at most {WORKERS_MAX} over several paths"), "workers"));
        }
        let portals = endpoint.unit.portals();
        let slots = config.own_workers as usize + 1;
        let (depth, _) = self.transfer();
        for _ in 0..config.own_workers {
            let fan = Fan::new(portals.len(), connection.policy, depth, connection.ignores_access);
            self.workers.push(Worker::new(Link { initiator: AnyInitiator::Fan(Box::new(fan)), to: None }, depth));
            self.timeouts.push(None);
        }
        // The last timeout is that of the paths.
        self.timeouts.push(Some(Instant(0)));
        self.connections.open.resize(slots * (2 * portals.len() + 1), false);
        let retries_at_once = connection.retries_at_once;
        let (endpoint, connection, config) = (endpoint.clone(), connection.clone(), config.clone());
        self.paths = Some(Box::new(Paths {
            all: portals.iter().map(|portal| Path::new(&portal.text)).collect(),
            dial: Box::new(move |path, portal| connector::path_control(&endpoint, &connection, &config, path, portal)),
            slots,
            retries_at_once,
            unit: Unit::default(),
            of_run: Vec::new(),
        }));
        Ok(())
    }

    /// What happened to each path, if there are several. What is read back after the run is not among its work.
    pub fn path_reports(&self) -> Vec<PathReport> {
        let Some(paths) = &self.paths else { return Vec::new() };
        let report = |(index, path): (usize, &Path)| {
            let counts = paths.of_run.get(index).copied().unwrap_or_else(|| self.path_counts(index));
            PathReport { portal: path.portal.clone(), losses: path.losses, down: path.down, counts }
        };
        paths.all.iter().enumerate().map(report).collect()
    }

    fn path_counts(&self, path: usize) -> PathCounts {
        let mut counts = PathCounts::default();
        let of_workers = self.workers.iter().filter_map(|worker| Some(worker.fan()?.counts(path)));
        of_workers.for_each(|of_worker| counts.merge(of_worker));
        counts
    }

    /// The run is over: from now on, the paths only read back.
    pub(super) fn keep_path_counts(&mut self) {
        let all = self.paths.as_ref().map_or(0, |paths| paths.all.len());
        let of_run = (0..all).map(|index| self.path_counts(index)).collect();
        if let Some(paths) = &mut self.paths {
            paths.of_run = of_run;
        }
    }

    /// The facts of the first path that is up.
    #[cold]
    #[inline(never)]
    pub(super) fn path_facts(&self) -> Facts {
        let Some(paths) = &self.paths else { return Facts::default() };
        let up = paths.all.iter().enumerate().find(|(_, path)| path.is_up());
        let Some((index, path)) = up else { return Facts::default() };
        let mut facts = path.control.as_ref().map(|link| link.control.facts()).unwrap_or_default();
        if let Some(own) = self.workers.first().and_then(|worker| Some(worker.fan()?.initiator(index)?.facts())) {
            facts.identity.extend(own.identity);
            facts.negotiated.extend(own.negotiated);
        }
        facts.negotiated.push(("paths", paths.all.len().to_string()));
        facts
    }

    /// Which paths are down and why, or not accessible, for a message; empty if all can be used.
    pub(super) fn paths_down(&self) -> String {
        let said = self.paths.iter().flat_map(|paths| paths.all.iter().enumerate()).map(|(index, path)| {
            if path.is_up() {
                let mut fans = self.workers.iter().filter_map(Worker::fan);
                let is_refused = fans.any(|fan| fan.access(index) == Some(Access::Inaccessible));
                let text = format!("; the target gives no access over the path to {}", path.portal);
                return if is_refused { text } else { String::new() };
            }
            let why = path.why.as_ref().map_or("it has not opened", |failure| failure.message.as_str());
            format!("; the path to {} is down: {why}", path.portal)
        });
        said.collect()
    }

    // ---------------------------------------------------------------------------------------------------------- events

    #[cold]
    #[inline(never)]
    pub(super) fn path_received(&mut self, now: Instant, conn: ConnId, bytes: &[u8]) {
        let Some(paths) = &mut self.paths else { return };
        let Some((path, slot)) = paths.place(conn) else { return };
        let at = &mut paths.all[path];
        let received = match slot.checked_sub(1) {
            None => at.control.as_mut().map_or(Ok(()), |link| {
                at.lateness.heard();
                link.receive(now, bytes)
            }),
            Some(worker) => match at.fresh.get_mut(worker) {
                Some(fresh) => fresh.initiator.get().receive(now, bytes, &mut fresh.news),
                None => self.workers[worker].receive_over(path, now, bytes, self.recorder.as_mut()),
            },
        };
        match received {
            Ok(()) => {
                if let Some(worker) = slot.checked_sub(1) {
                    let news = self.workers[worker].take_news(path);
                    if news.is_refused {
                        self.check_access(now, path);
                    }
                    if let Some(geometry) = news.found {
                        self.compare_unit(path, Some(&geometry), None);
                    }
                    self.turn(now, worker);
                }
                self.step_path(now, path);
            }
            Err(violation) => self.path_broke(now, path, &violation),
        }
        self.schedule_paths();
    }

    #[cold]
    #[inline(never)]
    pub(super) fn path_closed(&mut self, now: Instant, conn: ConnId, reason: &CloseReason) {
        let Some(paths) = &mut self.paths else { return };
        let Some((path, slot)) = paths.place(conn) else { return self.step_paths(now) };
        let at = &mut paths.all[path];
        let is_closing = self.phase == Phase::Closing;
        let stage = at.stage;
        match slot.checked_sub(1) {
            None => {
                let Some(link) = &mut at.control else { return };
                if let Some(to) = link.next.take() {
                    self.connections.connect(conn, to);
                } else if is_closing {
                    at.control = None;
                } else if link.control.needs_connection() {
                    self.path_lost(now, path, trouble::closed(reason, stage != Stage::Up, &self.place));
                }
            }
            Some(worker) => match (stage, at.fresh.get_mut(worker)) {
                (Stage::Leaving { .. }, Some(fresh)) => fresh.news.closed = true,
                (Stage::Up, _) if is_closing => self.workers[worker].path_ended(path),
                (Stage::Up | Stage::Dialling { .. }, _) => {
                    self.path_lost(now, path, trouble::closed(reason, stage != Stage::Up, &self.place));
                }
                _ => {}
            },
        }
        self.step_paths(now);
    }

    /// A path's connection is established, or the first input came.
    #[cold]
    #[inline(never)]
    pub(super) fn step_paths(&mut self, now: Instant) {
        let count = self.paths.as_ref().map_or(0, |paths| paths.all.len());
        for path in 0..count {
            self.step_path(now, path);
        }
        self.schedule_paths();
    }

    #[cold]
    #[inline(never)]
    pub(super) fn paths_timer(&mut self, now: Instant) {
        let count = self.paths.as_ref().map_or(0, |paths| paths.all.len());
        for worker in 0..self.workers.len() {
            while let Some((path, violation)) = self.workers[worker].take_failed_path() {
                self.path_broke(now, path, &violation);
            }
        }
        for path in 0..count {
            self.path_timer(now, path);
        }
        self.step_paths(now);
    }

    fn path_timer(&mut self, now: Instant, path: usize) {
        let Some(paths) = &mut self.paths else { return };
        let at = &mut paths.all[path];
        let mut broken = None;
        if let Some(link) = &mut at.control
            && link.control.poll_timeout().is_some_and(|due| due <= now && at.lateness.is_over(now, due))
        {
            broken = link.handle_timeout(now).err();
        }
        for Fresh { initiator, news } in &mut at.fresh {
            if initiator.poll_timeout().is_some_and(|due| due <= now) {
                broken = initiator.get().handle_timeout(now, news).err().or(broken);
            }
        }
        if let Some(violation) = broken {
            return self.path_broke(now, path, &violation);
        }
        if let Stage::Dialling { until, .. } = at.stage
            && until <= now
        {
            let message = format!("it did not open within {} s", DIAL_TIME.as_secs());
            return self.path_lost(now, path, Failure::new(FailureKind::Unreachable, message, self.place.clone()));
        }
        if at.release_at.take_if(|due| *due <= now).is_some() {
            self.release_writes(now, path);
        }
    }

    // ----------------------------------------------------------------------------------------------------------- steps

    /// The target refused an I/O of a path: nobody uses it until it is known to be accessible.
    fn check_access(&mut self, now: Instant, path: usize) {
        let Some(paths) = &mut self.paths else { return };
        if let Some(link) = &mut paths.all[path].control {
            link.to_ask = true;
            link.control.check_access(now);
        }
        self.follow_access(now, path);
    }

    /// Tells the workers how the unit can be accessed over a path that is up, if that has changed.
    fn follow_access(&mut self, now: Instant, path: usize) {
        let Some(paths) = &mut self.paths else { return };
        let at = &mut paths.all[path];
        let Some(access) = at.control.as_ref().and_then(|link| link.control.access()).filter(|_| at.is_up()) else {
            return;
        };
        if at.access.replace(access) != Some(access) {
            self.workers.iter_mut().for_each(|worker| worker.set_access(path, now, access));
            self.turn_all(now);
        }
    }

    /// Moves a path through its stages as far as possible.
    fn step_path(&mut self, now: Instant, path: usize) {
        while self.step_path_once(now, path) {}
        self.follow_access(now, path);
        let Some(paths) = &mut self.paths else { return };
        for slot in 0..paths.all[path].fresh.len() {
            if !paths.all[path].fresh[slot].initiator.get().transmit().is_empty() {
                let conn = paths.conn(path, slot + 1);
                self.connections.to_send.push(conn);
            }
        }
    }

    /// Whether there may be another step.
    fn step_path_once(&mut self, now: Instant, path: usize) -> bool {
        let Some(paths) = &self.paths else { return false };
        let at = &paths.all[path];
        match at.stage {
            Stage::Down { dial_at } => {
                let dials = self.dials() && dial_at <= now && !self.has_connections(path);
                dials && self.dial(now, path)
            }
            Stage::Dialling { through, .. } => {
                if self.step_path_control(now, path) {
                    return true;
                }
                let Some(paths) = &self.paths else { return false };
                let fresh = &paths.all[path].fresh;
                let is_open = |each: &Fresh| each.news.geometry.is_some() || each.news.knows_access;
                let opened = fresh.len() == self.workers.len() && fresh.iter().all(is_open);
                opened && self.opened(now, path, through)
            }
            Stage::Up => self.step_path_control(now, path),
            Stage::Leaving { until } => {
                if until > now && at.fresh.iter().any(|fresh| !fresh.news.closed) {
                    return false;
                }
                self.leave(path);
                self.set_stage(path, Stage::Down { dial_at: now });
                true
            }
        }
    }

    fn dial(&mut self, now: Instant, path: usize) -> bool {
        let through = self.portal_for(path);
        let Some(paths) = &mut self.paths else { return false };
        let dialled = (paths.dial)(path, through);
        match dialled {
            Ok(control) => {
                let at = &mut paths.all[path];
                at.control = Some(ControlLink::new(control));
                at.stage = Stage::Dialling { through, until: now + DIAL_TIME };
            }
            Err(failure) => self.path_lost(now, path, failure),
        }
        true
    }

    /// The portal through which a path is opened: its own, or that of another path of the same portal group if writes
    /// wait for a login that ends the lost sessions.
    fn portal_for(&self, path: usize) -> usize {
        let Some(paths) = &self.paths else { return path };
        let at = &paths.all[path];
        let waits = self.workers.iter().any(|worker| worker.fan().is_some_and(|fan| fan.holds(path)));
        let Some(AfterLoss::Login { group: Some(group) }) = at.after_loss.filter(|_| waits && !at.detour_failed) else {
            return path;
        };
        let leads_there =
            |other: &Path| other.is_up() && other.after_loss == Some(AfterLoss::Login { group: Some(group) });
        paths.all.iter().position(leads_there).unwrap_or(path)
    }

    /// Whether its control may have another step.
    fn step_path_control(&mut self, now: Instant, path: usize) -> bool {
        let Some(paths) = &mut self.paths else { return false };
        let (conn, first) = (paths.conn(path, 0), paths.conn(path, 1));
        let at = &mut paths.all[path];
        let Some(link) = at.control.as_mut().filter(|link| link.to_ask) else { return false };
        match link.step(now, conn, &mut self.connections) {
            ControlStep::Wait => return false,
            ControlStep::Connect(_) => {}
            ControlStep::Open(links) => {
                for (worker, Link { initiator, to }) in (0..).zip(links) {
                    at.fresh.push(Fresh { initiator, news: News::default() });
                    if let Some(to) = to {
                        self.connections.connect(ConnId(first.0 + worker), to);
                    }
                }
            }
            ControlStep::Failed(failure) => self.path_lost(now, path, failure),
            ControlStep::Closed => at.control = None,
        }
        true
    }

    /// All links of a path are ready.
    fn opened(&mut self, now: Instant, path: usize, through: usize) -> bool {
        let Some(paths) = &mut self.paths else { return false };
        let at = &mut paths.all[path];
        let mut identity = at.control.as_ref().map(|link| link.control.facts().identity).unwrap_or_default();
        let Some(first) = at.fresh.first() else { return false };
        identity.extend(first.initiator.facts().identity);
        let after_loss = first.initiator.after_loss();
        let geometry = at.fresh.iter().find_map(|fresh| fresh.news.geometry.clone());
        if !self.compare_unit(path, geometry.as_ref(), Some(identity)) {
            return false;
        }
        let Some(paths) = &mut self.paths else { return false };
        let at = &mut paths.all[path];
        let ends_lost = matches!(after_loss, Some(AfterLoss::Login { .. })) && at.after_loss == after_loss;
        if through == path {
            at.after_loss = after_loss;
            at.stage = Stage::Up;
            at.detour_failed = false;
            at.why = None;
            at.ends_down(now);
            at.access = at.control.as_ref().and_then(|link| link.control.access());
            let (fresh, access) = (std::mem::take(&mut at.fresh), at.access);
            for (worker, fresh) in self.workers.iter_mut().zip(fresh) {
                worker.attach(path, now, fresh.initiator, access);
            }
        } else {
            at.stage = Stage::Leaving { until: now + LEAVE_TIME };
            at.fresh.iter_mut().for_each(|fresh| fresh.initiator.get().close(now));
        }
        if ends_lost {
            self.release_writes(now, path);
        }
        self.set_unit();
        self.turn_all(now);
        true
    }

    /// Gives the workers the unit, once all paths are up and one of them has found its size.
    fn set_unit(&mut self) {
        let Some(paths) = self.paths.as_ref().filter(|_| self.phase == Phase::Opening) else { return };
        if let Some(geometry) = paths.unit.geometry.as_ref().filter(|_| paths.all.iter().all(Path::is_up)) {
            self.workers.iter_mut().for_each(|worker| worker.state.geometry = Some(geometry.clone()));
        }
    }

    /// Compares the unit that a path leads to with that of the others. If it is another one, the load fails: false. A path
    /// without access may not have found its size yet.
    fn compare_unit(
        &mut self,
        path: usize,
        geometry: Option<&Geometry>,
        identity: Option<Vec<(&'static str, String)>>,
    ) -> bool {
        let Some(paths) = &mut self.paths else { return false };
        let found = Unit { geometry: geometry.cloned(), identity };
        if !found.fits(&paths.unit) {
            let message = format!(
                "its portals lead to different units: {} through {}, and {} before",
                found.describe(),
                paths.all[path].portal,
                paths.unit.describe()
            );
            self.fail(Failure::new(FailureKind::WrongKind, message, self.place.clone()));
            return false;
        }
        paths.unit.learn(found);
        self.set_unit();
        true
    }

    /// Nothing more of what the path carried before it was lost is executed.
    fn release_writes(&mut self, now: Instant, path: usize) {
        self.workers.iter_mut().for_each(|worker| worker.release(path, now));
        self.turn_all(now);
    }

    // ------------------------------------------------------------------------------------------------------------ ends

    fn path_broke(&mut self, now: Instant, path: usize, violation: &Violation) {
        self.path_lost(now, path, trouble::violation(violation, &self.place));
    }

    /// A path ended, or did not open. The load goes on over the others, and the path is opened again.
    fn path_lost(&mut self, now: Instant, path: usize, failure: Failure) {
        let Some(paths) = &mut self.paths else { return };
        let at = &mut paths.all[path];
        if matches!(self.phase, Phase::Closing | Phase::Finished) {
            self.workers.iter_mut().for_each(|worker| worker.path_ended(path));
            return self.leave(path);
        }
        let broke_rules = matches!(failure.kind, FailureKind::Protocol | FailureKind::Usage | FailureKind::Internal);
        if self.phase == Phase::Opening || broke_rules {
            let place = format!("{}, portal {}", failure.place, at.portal);
            return self.fail(Failure { place, ..failure });
        }
        at.why = Some(failure);
        let was_up = at.is_up();
        if was_up {
            at.losses += 1;
            at.down_since = Some(now);
            at.release_at = match at.after_loss {
                Some(AfterLoss::Time(quiet_after)) => Some(now + quiet_after),
                Some(AfterLoss::Login { .. }) | None => None,
            };
        } else if let Stage::Dialling { through, .. } = at.stage {
            at.detour_failed = through != path;
        }
        self.leave(path);
        let dial_at = if was_up { now } else { now + REDIAL_PAUSE };
        self.set_stage(path, Stage::Down { dial_at });
        if was_up {
            self.workers.iter_mut().for_each(|worker| worker.lose(path, now));
            if self.paths.as_ref().is_some_and(|paths| paths.retries_at_once) {
                self.workers.iter_mut().for_each(|worker| worker.release(path, now));
            }
            self.turn_all(now);
        }
    }

    /// Drops all connections of a path, and uses its other set from now on.
    fn leave(&mut self, path: usize) {
        let Some(paths) = &mut self.paths else { return };
        for slot in 0..paths.slots {
            self.connections.close(paths.conn(path, slot));
        }
        let at = &mut paths.all[path];
        at.set ^= 1;
        at.lateness.heard();
        at.control = None;
        at.fresh.clear();
    }

    /// Ends the paths in order, once the workers' links are closed. Whether all have ended.
    #[cold]
    #[inline(never)]
    pub(super) fn close_paths(&mut self, now: Instant) -> bool {
        let Some(paths) = &self.paths else { return true };
        let count = paths.all.len();
        for worker in &mut self.workers {
            worker.state.closed |= worker.fan().is_some_and(Fan::is_closed);
        }
        let links_closed = self.workers.iter().all(|worker| worker.state.closed);
        for path in (0..count).filter(|_| links_closed) {
            let Some(paths) = &mut self.paths else { break };
            (1..paths.slots).for_each(|slot| self.connections.close(paths.conn(path, slot)));
            let at = &mut paths.all[path];
            at.ends_down(now);
            if let Some(link) = at.control.as_mut().filter(|link| !link.closing) {
                link.close(now);
            }
            if at.is_up() {
                while self.step_path_control(now, path) {}
            } else {
                at.control = None;
            }
        }
        self.paths.as_ref().is_none_or(|paths| paths.all.iter().all(|path| path.control.is_none()))
    }

    // --------------------------------------------------------------------------------------------------------- helpers

    #[cold]
    #[inline(never)]
    pub(super) fn path_transmit(&mut self, conn: ConnId) -> Option<&mut Transmit> {
        let paths = self.paths.as_mut()?;
        let (path, slot) = paths.place(conn)?;
        let at = &mut paths.all[path];
        let Some(worker) = slot.checked_sub(1) else {
            return at.control.as_mut()?.transmit();
        };
        match at.fresh.get_mut(worker) {
            Some(fresh) => Some(fresh.initiator.get().transmit()),
            None => self.workers.get_mut(worker)?.transmit_over(path),
        }
    }

    fn turn_all(&mut self, now: Instant) {
        (0..self.workers.len()).for_each(|index| self.turn(now, index));
    }

    fn set_stage(&mut self, path: usize, stage: Stage) {
        if let Some(paths) = &mut self.paths {
            paths.all[path].stage = stage;
        }
    }

    /// Whether connections of the set that the path uses next are still open.
    fn has_connections(&self, path: usize) -> bool {
        let Some(paths) = &self.paths else { return false };
        (0..paths.slots).any(|slot| self.connections.is_open(paths.conn(path, slot)))
    }

    /// Whether lost paths are opened again.
    fn dials(&self) -> bool {
        !matches!(self.phase, Phase::Closing | Phase::Finished)
    }

    /// Updates when the paths need the time.
    fn schedule_paths(&mut self) {
        let Some(paths) = &self.paths else { return };
        let dials = self.dials();
        let due = paths.all.iter().enumerate().map(|(index, path)| {
            let stage = match path.stage {
                Stage::Down { dial_at } => (dials && !self.has_connections(index)).then_some(dial_at),
                Stage::Dialling { until, .. } | Stage::Leaving { until } => Some(until),
                Stage::Up => None,
            };
            let control = path.control.as_ref().and_then(|link| path.lateness.due(link.control.poll_timeout()));
            let fresh = path.fresh.iter().filter_map(|fresh| fresh.initiator.poll_timeout()).min();
            [stage, control, fresh, path.release_at].into_iter().fold(None, earlier)
        });
        let due = due.fold(None, earlier).filter(|_| self.phase != Phase::Finished);
        if let Some(last) = self.timeouts.last_mut() {
            *last = due;
        }
    }
}

impl Unit {
    /// Whether both may be the same.
    fn fits(&self, other: &Self) -> bool {
        fn fits<T: PartialEq>(one: Option<&T>, other: Option<&T>) -> bool {
            one.is_none() || other.is_none() || one == other
        }
        fits(self.geometry.as_ref(), other.geometry.as_ref()) && fits(self.identity.as_ref(), other.identity.as_ref())
    }

    fn learn(&mut self, found: Self) {
        self.geometry = found.geometry.or(self.geometry.take());
        self.identity = found.identity.or(self.identity.take());
    }

    fn describe(&self) -> String {
        let size =
            self.geometry.as_ref().map_or("unknown size".to_owned(), |found| format!("{} bytes", found.size_bytes));
        let serial = self.identity.iter().flatten().find(|(name, _)| matches!(*name, "serial" | "server"));
        let (name, serial) = serial.map_or(("serial", "none"), |(name, serial)| (*name, serial));
        format!("{size}, {name} number {serial}")
    }
}

impl InitiatorEvents for News {
    fn ready(&mut self, _: Instant, geometry: &Geometry) {
        self.geometry = Some(geometry.clone());
    }

    fn data(&mut self, _: Tag, _: u32, _: &[u8]) {}

    fn complete(&mut self, _: Instant, _: Tag, _: Result<(), IoError>) {}

    fn closed(&mut self, _: Instant) {
        self.closed = true;
    }

    fn access_known(&mut self, _: Instant) {
        self.knows_access = true;
    }
}
