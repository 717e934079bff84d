//! One controller as its admin queue sees it: executes admin and fabrics commands, and keeps features, events and the
//! keep-alive timer. The transport moves the bytes. State that other connections may see is in `Subsystem`.

use alloc::{collections::VecDeque, rc::Rc, vec, vec::Vec};
use core::{fmt, mem, net::IpAddr, time::Duration};

use super::{
    ControllerId, Namespace, NvmeBackend, QueueId, Sqe, Status, Subsystem,
    ana::PortAccess,
    ana_log,
    command::{CommandId, NSID_ALL, admin, fabrics, feature, log_id},
    identify::{self, ControllerLimits, MAX_ASYNC_EVENTS, cns},
    log::{self, GetLogPage},
    notifications::{Event, Events, Notifications},
    property,
    subsystem::{Generation, HostIdentity, with_subsystem},
};
use crate::{Endings, Instant, Shared, Violation};

/// A discovery controller without a keep-alive timeout ends after two minutes of silence (NVMe base 2.1 §3.1.3.3).
const DISCOVERY_ACTIVITY_TIMEOUT: Duration = Duration::from_secs(120);
/// How often a controller checks its subsystem for changes while event requests are outstanding.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Feature: volatile write cache enabled.
const CACHE_ENABLED: u32 = 1;

/// The outcome of an admin command.
#[derive(Debug, PartialEq, Eq)]
pub enum AdminOutcome {
    Done {
        result: u64,
        status: Status,
    },
    /// Successful, with data for the host.
    Data(Vec<u8>),
    /// An Asynchronous Event Request. It completes when an event occurs.
    Held,
}

impl AdminOutcome {
    const OK: Self = Self::result(0);

    const fn result(result: u64) -> Self {
        Self::Done { result, status: Status::SUCCESS }
    }
}

impl From<Status> for AdminOutcome {
    fn from(status: Status) -> Self {
        Self::Done { result: 0, status: status.do_not_retry() }
    }
}

/// The controller behind one admin queue.
pub struct AdminController {
    subsystem: Rc<dyn Shared<Subsystem>>,
    is_discovery: bool,
    cntlid: ControllerId,
    /// The port over which the host is connected.
    port: u16,
    host: HostIdentity,
    limits: ControllerLimits,
    generation: Generation,
    /// The generation number at the last check for changes.
    seen: u64,
    /// The subsystem's change count when `known` was copied.
    announced: u64,
    known: Vec<Namespace>,
    /// The state of the ANA group as of the last check.
    access: PortAccess,
    configuration: u32,
    /// CSTS.
    status: u32,
    /// The next value of CSTS. It takes effect when all operations of former I/O queues have ended.
    next_status: Option<(u32, Endings)>,
    keep_alive: Option<Duration>,
    keep_alive_ms: u32,
    last_activity: Instant,
    last_look: Instant,
    event_config: u32,
    io_queues: u16,
    events: Events,
    /// Withdrawn event requests, for `poll_released`.
    released: VecDeque<(CommandId, Option<Status>)>,
    changed: Vec<u32>,
}

impl AdminController {
    /// Creates a controller; `None` if the subsystem has its maximum. If the host `must_prove` its identity, call
    /// `prove` before anything else.
    pub fn connect(
        now: Instant,
        subsystem: Rc<dyn Shared<Subsystem>>,
        (host, from): (HostIdentity, (IpAddr, u16)),
        must_prove: bool,
        keep_alive_ms: u32,
        limits: ControllerLimits,
    ) -> Option<Self> {
        let (is_discovery, made, (known, announced, access), io_queues) = with_subsystem(&*subsystem, |subsystem| {
            let made = subsystem.create_controller(&host, from, must_prove);
            let known = (subsystem.namespaces().to_vec(), subsystem.announced(), subsystem.access(from.1));
            (subsystem.is_discovery(), made, known, subsystem.config().max_io_queues)
        });
        let (cntlid, generation) = made?;
        let mut controller = Self {
            seen: generation.get(),
            announced,
            subsystem,
            is_discovery,
            cntlid,
            port: from.1,
            host,
            limits,
            generation,
            known,
            access,
            configuration: 0,
            status: 0,
            next_status: None,
            keep_alive: None,
            keep_alive_ms: 0,
            last_activity: now,
            last_look: now,
            event_config: 0,
            io_queues,
            events: Events::default(),
            released: VecDeque::new(),
            changed: Vec::new(),
        };
        controller.set_keep_alive(keep_alive_ms);
        Some(controller)
    }

    pub fn cntlid(&self) -> ControllerId {
        self.cntlid
    }

    /// Notes that the host has authenticated itself; false if the subsystem has its maximum of controllers.
    pub fn prove(&mut self) -> bool {
        with_subsystem(&*self.subsystem, |subsystem| subsystem.prove_controller(self.cntlid))
    }

    /// Drops the event request `cid`, if there is one, because its host no longer expects an answer. Returns whether it
    /// existed.
    pub fn forget_event_request(&mut self, cid: CommandId) -> bool {
        let before = self.events.requests.len();
        self.events.requests.retain(|held| *held != cid);
        self.events.requests.len() < before
    }

    /// Restarts the keep-alive timer after activity of the host that did not go through `execute`.
    pub fn heard(&mut self, now: Instant) {
        self.last_activity = now;
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        let given_up = self.keep_alive.map(|keep_alive| self.last_activity + keep_alive);
        let look = (!self.events.requests.is_empty()).then(|| self.last_look + LOOK_INTERVAL);
        [given_up, look].into_iter().flatten().min()
    }

    /// Checks for changes to report; `Err` if the host was silent for longer than its keep-alive timeout.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), Violation> {
        self.last_look = now;
        self.look_for_changes();
        if self.keep_alive.is_some_and(|keep_alive| now >= self.last_activity + keep_alive) {
            self.status |= property::CSTS_FATAL;
            return Err(Violation::timed_out("NVMe base 2.1 §3.9.3: no Keep Alive command before the timeout"));
        }
        Ok(())
    }

    /// Returns the CID and result of an event request that can be completed now.
    pub fn poll_event(&mut self) -> Option<(CommandId, u64)> {
        self.events.poll()
    }

    /// Returns the CID of an event request that was withdrawn, and its status if it must be completed. Call this after
    /// `execute`, before sending its outcome.
    pub fn poll_released(&mut self) -> Option<(CommandId, Option<Status>)> {
        self.released.pop_front()
    }

    /// Abort (NVMe base 2.1 §5.1.1), which is best effort: only event requests are aborted.
    fn abort(&mut self, sqe: &Sqe) -> AdminOutcome {
        const NOT_ABORTED: u64 = 1;
        let (sqid, cid) = (QueueId(sqe.cdw(10) as u16), CommandId((sqe.cdw(10) >> 16) as u16));
        match self.events.requests.iter().position(|known| *known == cid).filter(|_| sqid == QueueId::ADMIN) {
            Some(at) => {
                self.events.requests.remove(at);
                self.released.push_back((cid, Some(Status::ABORT_REQUESTED)));
                AdminOutcome::OK
            }
            None => AdminOutcome::result(NOT_ABORTED),
        }
    }

    /// Ends the controller and its I/O queues.
    pub fn destroy(&mut self) {
        let cntlid = self.cntlid;
        with_subsystem(&*self.subsystem, |subsystem| subsystem.destroy_controller(cntlid));
    }

    /// Executes a command. No supported command takes data from the host.
    pub fn execute<B: NvmeBackend + ?Sized>(&mut self, now: Instant, sqe: &Sqe, backend: &mut B) -> AdminOutcome {
        self.last_activity = now;
        self.look_for_changes();
        self.settle_status();
        if sqe.is_fabrics() {
            return match sqe.fabrics_type() {
                fabrics::PROPERTY_GET => self.property_get(sqe),
                fabrics::PROPERTY_SET => self.property_set(sqe, backend),
                // A second Connect on the same queue (NVMe base 2.1 §6.3).
                fabrics::CONNECT => Status::SEQUENCE_ERROR.into(),
                // Disconnect is for I/O queues (NVMe base 2.1 §6.4).
                fabrics::DISCONNECT => Status::INVALID_QUEUE.into(),
                _ => Status::INVALID_FIELD.into(),
            };
        }
        if self.configuration & property::CC_ENABLE == 0 {
            return Status::SEQUENCE_ERROR.into();
        }
        match sqe.opcode() {
            admin::IDENTIFY => self.identify(sqe, backend),
            admin::GET_LOG_PAGE => self.get_log_page(sqe, backend),
            admin::SET_FEATURES => self.set_features(sqe),
            admin::GET_FEATURES => self.get_features(sqe),
            admin::KEEP_ALIVE => AdminOutcome::OK,
            admin::ASYNC_EVENT if self.events.requests.len() >= MAX_ASYNC_EVENTS => Status::AER_LIMIT_EXCEEDED.into(),
            admin::ASYNC_EVENT => {
                self.events.requests.push_back(sqe.cid());
                AdminOutcome::Held
            }
            admin::ABORT => self.abort(sqe),
            _ => Status::INVALID_OPCODE.into(),
        }
    }

    // ------------------------------------------------------------------------------------------------------ properties

    fn property_get(&self, sqe: &Sqe) -> AdminOutcome {
        let is_wide = sqe.0[40] & 7 == 1;
        match (sqe.cdw(11), is_wide) {
            (property::CAP, true) => AdminOutcome::result(property::capabilities(self.limits.max_queue_entries)),
            (property::VS, false) => AdminOutcome::result(u64::from(property::VERSION)),
            (property::CC, false) => AdminOutcome::result(u64::from(self.configuration)),
            (property::CSTS, false) => AdminOutcome::result(u64::from(self.status)),
            _ => Status::INVALID_FIELD.into(),
        }
    }

    fn property_set<B: NvmeBackend + ?Sized>(&mut self, sqe: &Sqe, backend: &mut B) -> AdminOutcome {
        if sqe.0[40] & 7 != 0 || sqe.cdw(11) != property::CC {
            return Status::INVALID_FIELD.into();
        }
        let (before, after) = (self.configuration, sqe.cdw(12));
        self.configuration = after;
        let (was_enabled, is_enabled) = (before & property::CC_ENABLE != 0, after & property::CC_ENABLE != 0);
        if was_enabled && !is_enabled {
            self.reset();
            // The controller's I/O queues on other threads must end now, not at their next periodic check.
            backend.notify_others();
        }
        let mut status = if is_enabled { property::CSTS_READY } else { 0 };
        let asks_shutdown = after & property::CC_SHUTDOWN_MASK != 0;
        if asks_shutdown {
            status |= property::CSTS_SHUTDOWN_COMPLETE;
            if before & property::CC_SHUTDOWN_MASK == 0 {
                self.status = self.status & !property::CSTS_SHUTDOWN_MASK | property::CSTS_SHUTDOWN_PROCESSING;
            }
        }
        let (cntlid, host) = (self.cntlid, &self.host);
        let endings = with_subsystem(&*self.subsystem, |subsystem| {
            let mut endings = subsystem.endings_of_controller(cntlid);
            if is_enabled {
                endings.append(subsystem.endings_of_host(host));
            }
            endings
        });
        self.next_status = Some((status, endings));
        self.settle_status();
        AdminOutcome::OK
    }

    /// Updates CSTS once no earlier I/O queue can still change data: neither the controller's own, nor those of ended
    /// controllers of the same host. Until then, ready, reset and shutdown are not reported; the host waits for CSTS
    /// (NVMe base 2.1 §3.5.4, §3.6, §3.7.2).
    fn settle_status(&mut self) {
        let Some((status, _)) = self.next_status.take_if(|(_, endings)| endings.are_over()) else { return };
        self.status = status;
        if status & property::CSTS_READY != 0 {
            let (cntlid, io_queues) = (self.cntlid, self.io_queues);
            with_subsystem(&*self.subsystem, |subsystem| subsystem.set_ready(cntlid, io_queues));
        }
    }

    /// Controller reset (NVMe base 2.1 §3.7.2): its I/O queues end, and features return to their defaults.
    fn reset(&mut self) {
        let cntlid = self.cntlid;
        let (generation, io_queues) = with_subsystem(&*self.subsystem, |subsystem| {
            (subsystem.reset_controller(cntlid), subsystem.config().max_io_queues)
        });
        self.generation = generation;
        self.io_queues = io_queues;
        self.event_config = 0;
        self.released.extend(self.events.reset().into_iter().map(|cid| (cid, None)));
        self.changed.clear();
    }

    // -------------------------------------------------------------------------------------------------------- identify

    fn identify<B: NvmeBackend + ?Sized>(&self, sqe: &Sqe, backend: &B) -> AdminOutcome {
        let selector = sqe.cdw(10) as u8;
        let command_set = (sqe.cdw(11) >> 24) as u8;
        if selector == cns::CONTROLLER {
            return AdminOutcome::Data(with_subsystem(&*self.subsystem, |subsystem| {
                identify::controller(subsystem.config(), self.is_discovery, self.cntlid, &self.limits)
            }));
        }
        if self.is_discovery {
            return Status::INVALID_FIELD.into();
        }
        let is_nvm = command_set == identify::CSI_NVM;
        match selector {
            cns::NAMESPACE => self.identify_one(sqe, backend, |namespace, geometry| {
                identify::namespace(namespace, geometry, self.access.state.refusal().is_none())
            }),
            cns::NAMESPACE_INDEPENDENT => {
                self.identify_one(sqe, backend, |_, geometry| identify::namespace_independent(geometry))
            }
            // CNS 05h: all fields that CNS 00h does not have are zero. CNS 06h: zeros, no limits beyond MDTS.
            cns::NAMESPACE_OF_COMMAND_SET if is_nvm => self.identify_one(sqe, backend, |_, _| vec![0; identify::LEN]),
            cns::CONTROLLER_OF_COMMAND_SET if is_nvm => AdminOutcome::Data(vec![0; identify::LEN]),
            cns::NAMESPACE_DESCRIPTORS => match self.namespace(sqe.nsid()) {
                Some(namespace) => AdminOutcome::Data(identify::namespace_descriptors(namespace)),
                None => Status::INVALID_NAMESPACE.into(),
            },
            cns::ACTIVE_NAMESPACES | cns::ACTIVE_NAMESPACES_OF_COMMAND_SET => {
                // FFFFFFFEh and FFFFFFFFh are not valid starts of a list (NVMe base 2.1 §5.1.13.2.2).
                if sqe.nsid() >= NSID_ALL - 1 {
                    return Status::INVALID_NAMESPACE.into();
                }
                if selector == cns::ACTIVE_NAMESPACES_OF_COMMAND_SET && !is_nvm {
                    return Status::INVALID_FIELD.into();
                }
                AdminOutcome::Data(identify::active_namespaces(&self.known, sqe.nsid()))
            }
            cns::COMMAND_SETS => AdminOutcome::Data(identify::command_sets()),
            _ => Status::INVALID_FIELD.into(),
        }
    }

    fn identify_one<B: NvmeBackend + ?Sized>(
        &self,
        sqe: &Sqe,
        backend: &B,
        describe: impl FnOnce(&Namespace, &crate::Geometry) -> Vec<u8>,
    ) -> AdminOutcome {
        let nsid = sqe.nsid();
        if nsid == 0 || nsid > super::subsystem::MAX_NSID {
            return Status::INVALID_NAMESPACE.into();
        }
        let namespace = self.namespace(nsid);
        let active = namespace.and_then(|namespace| Some((namespace, backend.geometry(namespace.unit)?)));
        // A valid NSID that is not active returns zeros (NVMe base 2.1 §5.1.13.2.1).
        AdminOutcome::Data(
            active.map_or_else(|| vec![0; identify::LEN], |(namespace, geometry)| describe(namespace, &geometry)),
        )
    }

    fn namespace(&self, nsid: u32) -> Option<&Namespace> {
        self.known.iter().find(|namespace| namespace.nsid == nsid)
    }

    // ------------------------------------------------------------------------------------------------------- log pages

    fn get_log_page<B: NvmeBackend + ?Sized>(&mut self, sqe: &Sqe, backend: &B) -> AdminOutcome {
        let asked = GetLogPage::parse(sqe);
        if asked.len > u64::from(self.limits.max_transfer_bytes) || asked.offset & 3 != 0 {
            return Status::INVALID_FIELD.into();
        }
        let page = match asked.id {
            log_id::SUPPORTED => log::supported(self.is_discovery),
            log_id::ERROR => log::error(),
            log_id::COMMANDS => log::commands(self.is_discovery),
            log_id::DISCOVERY if self.is_discovery => backend.discovery_log(&self.host.nqn).encode(),
            log_id::SMART if !self.is_discovery => log::smart(),
            log_id::FIRMWARE if !self.is_discovery => {
                with_subsystem(&*self.subsystem, |subsystem| log::firmware(subsystem.config()))
            }
            log_id::CHANGED_NAMESPACES if !self.is_discovery => {
                let page = log::changed_namespaces(&self.changed);
                // A host may read the list in pieces.
                let end = 4 * self.changed.len() as u64;
                if asked.offset <= end && end <= asked.offset.saturating_add(asked.len) {
                    self.changed.clear();
                }
                page
            }
            log_id::ANA if !self.is_discovery => {
                ana_log::encode(&self.known, self.announced, self.access, asked.specific & ana_log::GROUPS_ONLY != 0)
            }
            log_id::RESERVATION_NOTIFICATION if !self.is_discovery => {
                self.reservation_notification(asked.retain_event || asked.offset > 0)
            }
            _ => return Status::INVALID_LOG_PAGE.into(),
        };
        if asked.offset > page.len() as u64 {
            return Status::INVALID_FIELD.into();
        }
        if !asked.retain_event {
            self.events.read(asked.id);
        }
        let mut data = page;
        data.drain(..asked.offset as usize);
        data.resize(asked.len as usize, 0);
        AdminOutcome::Data(data)
    }

    // -------------------------------------------------------------------------------------------------------- features

    fn set_features(&mut self, sqe: &Sqe) -> AdminOutcome {
        const SAVE: u32 = 1 << 31;
        let value = sqe.cdw(11);
        if sqe.cdw(10) & SAVE != 0 {
            return Status::FEATURE_NOT_SAVEABLE.into();
        }
        if let Some(status) = self.refused_feature(sqe) {
            return AdminOutcome::Done { result: 0, status };
        }
        match sqe.cdw(10) as u8 {
            feature::QUEUE_COUNT if !self.is_discovery => self.set_queue_count(value),
            feature::ASYNC_EVENT_CONFIG => {
                self.event_config = value;
                AdminOutcome::OK
            }
            feature::KEEP_ALIVE_TIMER => {
                self.set_keep_alive(value);
                AdminOutcome::OK
            }
            feature::VOLATILE_WRITE_CACHE if value & 1 == CACHE_ENABLED => AdminOutcome::OK,
            feature::RESERVATION_NOTIFICATION_MASK if !self.is_discovery => {
                self.set_notification_mask(sqe.nsid(), value)
            }
            // Persistence is always off, so only a request to turn it off succeeds.
            feature::RESERVATION_PERSISTENCE if !self.is_discovery && value & 1 == 0 => {
                self.check_namespace(sqe.nsid())
            }
            // Connect has set the Host Identifier (NVMe base 2.1 §5.1.25.1.28).
            feature::HOST_IDENTIFIER => Status::SEQUENCE_ERROR.into(),
            feature::VOLATILE_WRITE_CACHE
            | feature::ARBITRATION
            | feature::POWER_MANAGEMENT
            | feature::TEMPERATURE_THRESHOLD
            | feature::ERROR_RECOVERY
            | feature::WRITE_ATOMICITY => Status::FEATURE_NOT_CHANGEABLE.into(),
            _ => Status::INVALID_FIELD.into(),
        }
    }

    /// Grants the requested number of I/O queues, up to the subsystem's limit; both numbers are 0's based.
    fn set_queue_count(&mut self, value: u32) -> AdminOutcome {
        let (submission, completion) = (value as u16, (value >> 16) as u16);
        if submission == u16::MAX || completion == u16::MAX {
            return Status::INVALID_FIELD.into();
        }
        let cntlid = self.cntlid;
        let granted = with_subsystem(&*self.subsystem, |subsystem| {
            if subsystem.has_io_queues(cntlid) {
                return None;
            }
            let granted = (submission.min(completion) + 1).min(subsystem.config().max_io_queues.max(1));
            subsystem.set_ready(cntlid, granted);
            Some(granted)
        });
        let Some(granted) = granted else {
            return Status::SEQUENCE_ERROR.into();
        };
        self.io_queues = granted;
        AdminOutcome::result(self.queue_count())
    }

    fn queue_count(&self) -> u64 {
        let count = u64::from(self.io_queues.saturating_sub(1));
        count | count << 16
    }

    fn get_features(&self, sqe: &Sqe) -> AdminOutcome {
        const CURRENT: u32 = 0;
        const DEFAULT: u32 = 1;
        const SAVED: u32 = 2;
        const CAPABILITIES: u32 = 3;
        const CHANGEABLE: u64 = 1 << 2;
        const NAMESPACE_SPECIFIC: u64 = 1 << 1;
        /// The 128-bit identifier. Fabrics have no shorter one.
        const EXTENDED: u32 = 1;
        let id = sqe.cdw(10) as u8;
        if let Some(status) = self.refused_feature(sqe) {
            return AdminOutcome::Done { result: 0, status };
        }
        let is_changeable = matches!(
            id,
            feature::QUEUE_COUNT
                | feature::ASYNC_EVENT_CONFIG
                | feature::KEEP_ALIVE_TIMER
                | feature::RESERVATION_NOTIFICATION_MASK
        );
        let current = match id {
            feature::QUEUE_COUNT if !self.is_discovery => self.queue_count(),
            feature::ASYNC_EVENT_CONFIG => u64::from(self.event_config),
            feature::KEEP_ALIVE_TIMER => u64::from(self.keep_alive_ms),
            feature::VOLATILE_WRITE_CACHE => u64::from(CACHE_ENABLED),
            feature::HOST_IDENTIFIER if sqe.cdw(11) & EXTENDED != 0 => {
                return AdminOutcome::Data(self.host.id.to_vec());
            }
            feature::RESERVATION_NOTIFICATION_MASK | feature::RESERVATION_PERSISTENCE
                if !self.is_discovery && self.namespace(sqe.nsid()).is_none() =>
            {
                return Status::INVALID_NAMESPACE.into();
            }
            feature::RESERVATION_NOTIFICATION_MASK if !self.is_discovery => {
                self.with_notifications(|notifications| u64::from(notifications.mask(sqe.nsid())))
            }
            feature::RESERVATION_PERSISTENCE if !self.is_discovery => 0,
            feature::ARBITRATION
            | feature::POWER_MANAGEMENT
            | feature::TEMPERATURE_THRESHOLD
            | feature::ERROR_RECOVERY
            | feature::WRITE_ATOMICITY => 0,
            _ => return Status::INVALID_FIELD.into(),
        };
        match sqe.cdw(10) >> 8 & 7 {
            DEFAULT | SAVED if is_changeable => AdminOutcome::OK,
            CURRENT | DEFAULT | SAVED => AdminOutcome::result(current),
            CAPABILITIES => {
                let of_namespace =
                    matches!(id, feature::RESERVATION_NOTIFICATION_MASK | feature::RESERVATION_PERSISTENCE);
                let changeable = if is_changeable { CHANGEABLE } else { 0 };
                AdminOutcome::result(changeable | if of_namespace { NAMESPACE_SPECIFIC } else { 0 })
            }
            _ => Status::INVALID_FIELD.into(),
        }
    }

    /// The status that refuses a feature of a namespace that is not accessible (NVMe base 2.1 §8.1.1.10).
    fn refused_feature(&self, sqe: &Sqe) -> Option<Status> {
        let (id, sets_all) = (sqe.cdw(10) as u8, sqe.opcode() == admin::SET_FEATURES && sqe.nsid() == NSID_ALL);
        let of_namespace = matches!(id, feature::RESERVATION_NOTIFICATION_MASK | feature::RESERVATION_PERSISTENCE);
        self.access.state.refusal().filter(|_| (of_namespace || sets_all) && !self.is_discovery)
    }

    fn set_keep_alive(&mut self, timeout_ms: u32) {
        const GRANULARITY_MS: u32 = 100;
        self.keep_alive_ms = timeout_ms.div_ceil(GRANULARITY_MS).saturating_mul(GRANULARITY_MS);
        self.keep_alive = match (self.keep_alive_ms, self.is_discovery) {
            (0, false) => None,
            (0, true) => Some(DISCOVERY_ACTIVITY_TIMEOUT),
            (timeout_ms, _) => Some(Duration::from_millis(u64::from(timeout_ms))),
        };
    }

    // ---------------------------------------------------------------------------------------------------------- events

    /// Checks for changes to report.
    pub(super) fn look_for_changes(&mut self) {
        let generation = self.generation.get();
        if generation == self.seen || generation == Generation::DEAD {
            return;
        }
        self.seen = generation;
        let (cntlid, port, before) = (self.cntlid, self.port, self.announced);
        let (changed, is_notified, access) = with_subsystem(&*self.subsystem, |subsystem| {
            let announced = subsystem.announced();
            let changed = (announced != before).then(|| (announced, subsystem.namespaces().to_vec()));
            let access = subsystem.access(port);
            let notifications = subsystem.notifications(cntlid);
            (changed, notifications.is_some_and(|notifications| !notifications.is_empty()), access)
        });
        if mem::replace(&mut self.access, access) != access && self.event_config & identify::OAES_ANA != 0 {
            self.events.raise(Event::AccessChanged);
        }
        if is_notified {
            self.events.raise(Event::ReservationNotified);
        }
        let Some((announced, namespaces)) = changed else { return };
        self.announced = announced;
        let differs = |from: &[Namespace], to: &[Namespace], changed: &mut Vec<u32>| {
            for namespace in from.iter().filter(|namespace| !to.contains(namespace)) {
                if !changed.contains(&namespace.nsid) {
                    changed.push(namespace.nsid);
                }
            }
        };
        if namespaces == self.known {
            // The list did not change, so the size of some namespace changed. It may be any of them.
            differs(&namespaces, &[], &mut self.changed);
        } else {
            differs(&self.known, &namespaces, &mut self.changed);
            differs(&namespaces, &self.known, &mut self.changed);
        }
        self.changed.sort_unstable();
        self.known = namespaces;
        let (event, wanted) = if self.is_discovery {
            (Event::DiscoveryChanged, identify::OAES_DISCOVERY)
        } else {
            (Event::NamespaceChanged, identify::OAES_NAMESPACE)
        };
        if self.event_config & wanted != 0 {
            self.events.raise(event);
        }
    }

    // --------------------------------------------------------------------------------------------------- notifications

    fn with_notifications<R: Default>(&self, use_them: impl FnOnce(&mut Notifications) -> R) -> R {
        with_subsystem(&*self.subsystem, |subsystem| subsystem.notifications(self.cntlid).map(use_them))
            .unwrap_or_default()
    }

    /// Reads the log page. If more pages remain, raises the event again.
    fn reservation_notification(&mut self, stays: bool) -> Vec<u8> {
        let (page, is_last) =
            self.with_notifications(|notifications| (notifications.read(stays), notifications.is_empty()));
        if is_last {
            self.events.withdraw(Event::ReservationNotified);
        } else {
            self.events.raise(Event::ReservationNotified);
        }
        page
    }

    /// Sets the mask of one namespace; NSID `FFFFFFFFh` means every namespace.
    fn set_notification_mask(&mut self, nsid: u32, mask: u32) -> AdminOutcome {
        let nsids: Vec<u32> =
            self.known.iter().map(|known| known.nsid).filter(|known| nsid == NSID_ALL || nsid == *known).collect();
        if nsids.is_empty() {
            return Status::INVALID_NAMESPACE.into();
        }
        self.with_notifications(|notifications| nsids.into_iter().for_each(|nsid| notifications.set_mask(nsid, mask)));
        AdminOutcome::OK
    }

    fn check_namespace(&self, nsid: u32) -> AdminOutcome {
        if nsid == NSID_ALL || self.namespace(nsid).is_some() {
            AdminOutcome::OK
        } else {
            Status::INVALID_NAMESPACE.into()
        }
    }
}

impl fmt::Debug for AdminController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminController")
            .field("cntlid", &self.cntlid)
            .field("host", &self.host.nqn)
            .finish_non_exhaustive()
    }
}
