//! The admin queue of a session: learns what I/O queues need, then sends keep-alives.

use alloc::boxed::Box;
use core::{fmt, mem, time::Duration};

use super::{
    Answer, Connection, ControllerInfo, SessionConfig,
    admin_channel::{AdminChannel, Event},
};
use crate::{
    Geometry, Initiator, InitiatorEvents, Instant, Io, Misuse, Refusal, Tag, Transmit, Violation,
    nvme::{
        AnaState, CommandId, Sqe, ana_log,
        command::{admin, feature},
        identify::{self, ControllerFields, NamespaceFields, cns},
        property,
    },
};

/// Limit of one transfer if the controller has no MDTS.
const MAX_TRANSFER_WITHOUT_MDTS_BYTES: u32 = 1 << 20;
/// NLB has 16 bits and is 0's based.
const MAX_BLOCKS: u64 = 1 << 16;
/// 1 GiB: larger transfers bring nothing, even if the controller allows them.
const MAX_TRANSFER_SHIFT: u32 = 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    BringUp,
    QueueCount,
    ActiveNamespaces,
    Namespace,
    /// Events of ANA changes are enabled.
    Events,
    /// The ANA state is read for the first time.
    Access,
    Ready,
    Closed,
}

/// The ANA state of the namespace, once it is watched.
#[derive(Clone, Copy, Debug)]
struct Watch {
    group: u32,
    /// `Change` while it is not known.
    state: AnaState,
    /// When to read the log, if there is a reason.
    read_at: Option<Instant>,
    /// The log is being read.
    is_reading: bool,
    last_read: Instant,
    /// An event request is outstanding.
    requested: bool,
}

/// Pause between two reads of the ANA log, so that a controller cannot keep its host busy with events or refusals.
const READ_PAUSE: Duration = Duration::from_millis(50);

/// The admin queue as an `Initiator`. It carries no I/O, so its credits are 0.
pub struct AdminQueue<C> {
    channel: AdminChannel<C>,
    stage: Stage,
    fields: Option<Box<ControllerFields>>,
    io_queues: u16,
    nsid: u32,
    info: Option<ControllerInfo>,
    watch: Option<Watch>,
    keep_alive_at: Option<Instant>,
    /// When to report `closed`, if there is no controller to shut down.
    closes_at: Option<Instant>,
}

impl<C: Connection> AdminQueue<C> {
    /// Creates the queue on a connection that was just opened.
    pub fn on(now: Instant, connection: C, config: SessionConfig) -> Self {
        Self {
            nsid: config.nsid.unwrap_or(0),
            channel: AdminChannel::new(now, connection, config),
            stage: Stage::BringUp,
            fields: None,
            io_queues: 0,
            info: None,
            watch: None,
            keep_alive_at: None,
            closes_at: None,
        }
    }

    /// The parameters that I/O queues need, once `ready` was reported.
    pub fn controller(&self) -> Option<&ControllerInfo> {
        self.info.as_ref()
    }

    /// The ANA state of the namespace as far as it is known: `Change` until it is read. `None` if it is not watched, or the
    /// controller does not report it and its changes.
    pub fn access(&self) -> Option<AnaState> {
        self.watch.map(|watch| watch.state)
    }

    /// Reads the ANA state again, because the controller refused an I/O. Until it is known, it is `Change`.
    pub fn check_access(&mut self, now: Instant) {
        if let Some(watch) = &mut self.watch {
            watch.state = AnaState::Change;
            watch.ask(now);
            self.read_access_if_due(now);
        }
    }

    pub fn connection(&self) -> &C {
        self.channel.connection()
    }

    /// The connection, for a transport that carries more than this queue on it.
    pub fn connection_mut(&mut self) -> &mut C {
        self.channel.connection_mut()
    }

    fn on_event(&mut self, now: Instant, event: Event, events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        match event {
            Event::Up(fields) => self.on_up(now, fields),
            Event::Notice(is_event) => {
                if let Some(watch) = &mut self.watch {
                    watch.requested = false;
                    if is_event {
                        watch.ask(now);
                    }
                }
                self.read_access_if_due(now);
                Ok(())
            }
            Event::Reply(Answer { cqe, .. }) if !cqe.status.is_success() => {
                Err(Violation::refused(cqe.status.refusal(), cqe.status.name()))
            }
            Event::Reply(Answer { cqe, data }) => self.on_reply(now, cqe.result, &data, events),
            Event::Down => {
                self.stage = Stage::Closed;
                self.keep_alive_at = None;
                events.closed(now);
                Ok(())
            }
        }
    }

    fn on_up(&mut self, now: Instant, fields: Box<ControllerFields>) -> Result<(), Violation> {
        if !fields.has_sgl || fields.in_capsule_offset != 0 {
            return Err(unsupported!(
                "NVMe base 2.1 §5.1.13.2.1: the controller has no SGLs, or an in-capsule data offset"
            ));
        }
        self.fields = Some(fields);
        self.stage = Stage::QueueCount;
        let count = u32::from(self.channel.config().io_queues.max(1) - 1);
        let mut sqe = Sqe::new(admin::SET_FEATURES, CommandId(0), 0);
        sqe.set_cdw(10, u32::from(feature::QUEUE_COUNT));
        sqe.set_cdw(11, count | count << 16);
        self.channel.submit(now, sqe, 0);
        Ok(())
    }

    fn on_reply(
        &mut self,
        now: Instant,
        result: u64,
        data: &[u8],
        events: &mut dyn InitiatorEvents,
    ) -> Result<(), Violation> {
        match self.stage {
            Stage::QueueCount => {
                let granted = (result as u16).min((result >> 16) as u16).saturating_add(1);
                self.io_queues = granted.min(self.channel.config().io_queues.max(1));
                if self.nsid == 0 {
                    self.identify(now, Stage::ActiveNamespaces, cns::ACTIVE_NAMESPACES);
                } else {
                    self.identify(now, Stage::Namespace, cns::NAMESPACE);
                }
            }
            Stage::ActiveNamespaces => {
                self.nsid = data.first_chunk().and_then(identify::first_active).ok_or(NO_NAMESPACE)?;
                self.identify(now, Stage::Namespace, cns::NAMESPACE);
            }
            Stage::Namespace => {
                let namespace = data.first_chunk().and_then(identify::parse_namespace).ok_or(NO_NAMESPACE)?;
                self.info = Some(self.info(&namespace)?);
                let fields = self.fields.as_deref().ok_or(NO_NAMESPACE)?;
                let has_events = fields.optional_events & identify::OAES_ANA != 0;
                if fields.ana_groups == 0 || !has_events || !self.channel.config().watches_access {
                    self.set_ready(now, events);
                } else {
                    self.watch = Some(Watch::new(now, namespace.ana_group));
                    self.stage = Stage::Events;
                    let mut sqe = Sqe::new(admin::SET_FEATURES, CommandId(0), 0);
                    sqe.set_cdw(10, u32::from(feature::ASYNC_EVENT_CONFIG));
                    sqe.set_cdw(11, identify::OAES_ANA);
                    self.channel.submit(now, sqe, 0);
                }
            }
            Stage::Events => self.read_access(now, Stage::Access),
            Stage::Access => {
                self.on_access(now, data)?;
                self.set_ready(now, events);
            }
            Stage::Ready => {
                if self.watch.is_some_and(|watch| watch.is_reading) {
                    self.on_access(now, data)?;
                }
                self.read_access_if_due(now);
            }
            Stage::BringUp | Stage::Closed => {}
        }
        Ok(())
    }

    fn set_ready(&mut self, now: Instant, events: &mut dyn InitiatorEvents) {
        if let Some(info) = &self.info {
            events.ready(now, &info.geometry);
        }
        self.stage = Stage::Ready;
        self.schedule_keep_alive(now);
    }

    /// Sends the command that reads the ANA log.
    fn read_access(&mut self, now: Instant, stage: Stage) {
        let groups = self.fields.as_deref().map_or(0, |fields| fields.ana_groups);
        let Some(watch) = &mut self.watch else { return };
        self.stage = stage;
        (watch.is_reading, watch.read_at, watch.last_read) = (true, None, now);
        let (sqe, len) = ana_log::read(groups);
        self.channel.submit(now, sqe, len);
    }

    fn read_access_if_due(&mut self, now: Instant) {
        let is_due = self.watch.and_then(|watch| watch.read_at).is_some_and(|at| at <= now);
        if is_due && self.stage == Stage::Ready && self.channel.is_idle() {
            self.read_access(now, Stage::Ready);
            self.hurry(now);
        }
    }

    /// Processes the ANA log, and requests an event of the next change.
    fn on_access(&mut self, now: Instant, log: &[u8]) -> Result<(), Violation> {
        let Some(watch) = &mut self.watch else { return Ok(()) };
        watch.is_reading = false;
        let state = ana_log::find(log, watch.group).ok_or(unsupported!(
            "NVMe base 2.1 §5.1.12.1.13: the ANA log has no state of the namespace's group, or more groups than are read"
        ))?;
        // The answer may be older than the reason to read the log again.
        if watch.read_at.is_none() {
            watch.state = state;
        }
        // A transition ends within a limited time (NVMe base 2.1 §8.1.1.8).
        if state == AnaState::Change {
            watch.ask(now);
        }
        if !mem::replace(&mut watch.requested, true) {
            self.channel.request_event();
        }
        Ok(())
    }

    /// A command that is sent beside the keep-alives must be answered like these.
    fn hurry(&mut self, now: Instant) {
        let keep_alive = self.channel.config().keep_alive;
        if keep_alive > Duration::ZERO {
            self.channel.hurry(now, keep_alive / 2);
        }
    }

    fn identify(&mut self, now: Instant, stage: Stage, selector: u8) {
        self.stage = stage;
        let nsid = if stage == Stage::ActiveNamespaces { 0 } else { self.nsid };
        let mut sqe = Sqe::new(admin::IDENTIFY, CommandId(0), nsid);
        sqe.set_cdw(10, u32::from(selector));
        self.channel.submit(now, sqe, identify::LEN as u32);
    }

    fn info(&self, namespace: &NamespaceFields) -> Result<ControllerInfo, Violation> {
        let fields = self.fields.as_deref().ok_or(NO_NAMESPACE)?;
        if namespace.blocks == 0 {
            return Err(NO_NAMESPACE);
        }
        if namespace.metadata_bytes != 0 || !(9..=16).contains(&namespace.block_shift) {
            return Err(unsupported!(
                "iotax limit: the namespace's format has metadata, or blocks that are not 512 bytes to 64 KiB long"
            ));
        }
        let cap = self.channel.cap();
        let mdts = match fields.mdts {
            0 => MAX_TRANSFER_WITHOUT_MDTS_BYTES,
            mdts => 1 << (property::min_page_size_bytes(cap).ilog2() + u32::from(mdts)).min(MAX_TRANSFER_SHIFT),
        };
        let max_transfer_bytes = mdts.min(u32::try_from(MAX_BLOCKS << namespace.block_shift).unwrap_or(u32::MAX));
        let max_outstanding = if fields.max_outstanding == 0 { u16::MAX } else { fields.max_outstanding };
        let size_bytes = namespace.blocks.checked_mul(1 << namespace.block_shift).ok_or(NO_NAMESPACE)?;
        Ok(ControllerInfo {
            cntlid: fields.cntlid,
            authentication: self.channel.agreed(),
            serial: fields.serial.clone(),
            model: fields.model.clone(),
            firmware: fields.firmware.clone(),
            io_queues: self.io_queues,
            in_capsule_bytes: fields.in_capsule_bytes,
            max_transfer_bytes,
            max_sq_size: property::max_sq_size(cap).min(max_outstanding),
            optional_commands: fields.optional_commands,
            has_disconnect: fields.has_disconnect,
            quiet_after: (if fields.counts_traffic { 3 } else { 2 }) * self.channel.config().keep_alive
                + Duration::from_millis(fields.quiesce_ms.into()),
            nsid: self.nsid,
            block_shift: namespace.block_shift,
            nguid: namespace.nguid,
            geometry: Geometry {
                size_bytes,
                block_size: 1 << namespace.block_shift,
                max_io_bytes: max_transfer_bytes,
                read_only: namespace.read_only,
            },
        })
    }

    /// Schedules the next keep-alive. Two are sent per timeout, so that one late command does no harm.
    fn schedule_keep_alive(&mut self, now: Instant) {
        let interval = self.channel.config().keep_alive / 2;
        self.keep_alive_at = (interval > Duration::ZERO).then(|| now + interval);
    }
}

impl Watch {
    fn new(now: Instant, group: u32) -> Self {
        Self { group, state: AnaState::Change, read_at: None, is_reading: false, last_read: now, requested: false }
    }

    /// The log is to be read, soon.
    fn ask(&mut self, now: Instant) {
        let at = now.max(self.last_read + READ_PAUSE);
        self.read_at = Some(self.read_at.map_or(at, |known| known.min(at)));
    }
}

const NO_NAMESPACE: Violation =
    Violation::refused(Refusal::NotFound, "the controller has no such namespace, or none that is active");

impl<C: Connection> Initiator for AdminQueue<C> {
    fn receive(&mut self, now: Instant, mut bytes: &[u8], events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        while let Some(event) = self.channel.receive(now, &mut bytes)? {
            self.on_event(now, event, events)?;
        }
        Ok(())
    }

    fn credits(&self) -> usize {
        0
    }

    fn submit(&mut self, _now: Instant, _tag: Tag, _io: Io) -> Result<(), Misuse> {
        Err(Misuse::NoCredit)
    }

    fn transmit(&mut self) -> &mut Transmit {
        self.channel.transmit()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let read_at = self.watch.and_then(|watch| watch.read_at);
        let read_at = read_at.filter(|_| self.stage == Stage::Ready && self.channel.is_idle());
        [self.channel.poll_timeout(), self.keep_alive_at, self.closes_at, read_at].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant, events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        if self.closes_at.take_if(|at| now >= *at).is_some() {
            self.stage = Stage::Closed;
            events.closed(now);
            return Ok(());
        }
        self.channel.handle_timeout(now)?;
        if self.keep_alive_at.is_some_and(|at| now >= at) {
            if self.channel.is_idle() {
                self.channel.submit(now, Sqe::new(admin::KEEP_ALIVE, CommandId(0), 0), 0);
                self.hurry(now);
            }
            self.schedule_keep_alive(now);
        }
        self.read_access_if_due(now);
        Ok(())
    }

    fn close(&mut self, now: Instant) {
        if self.stage == Stage::Closed {
            return;
        }
        if self.channel.is_up() {
            self.channel.shut_down(now);
        } else {
            self.closes_at = Some(now);
        }
    }

    fn disconnected(&mut self, _now: Instant, _events: &mut dyn InitiatorEvents) {
        self.stage = Stage::Closed;
        self.keep_alive_at = None;
    }
}

impl<C> fmt::Debug for AdminQueue<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminQueue").field("stage", &self.stage).finish_non_exhaustive()
    }
}
