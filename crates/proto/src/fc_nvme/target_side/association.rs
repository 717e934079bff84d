//! An association (FC-NVMe-2): the admin queue and the I/O queue of a controller, and their exchanges.

use super::{
    Config, FcNvmeBackend,
    lane::{Exchange, Exchanges, Lane, LaneState, Way},
};
use crate::{
    Ending, Endings, Instant, IoId, Payload, UnitError, Violation,
    fc::{Header, Link, OxId, RxId, frame::f_ctl},
    fc_nvme::{
        AssociationId, Command, ConnectionId,
        iu::result,
        ls::{Answer, Rejection},
    },
    nvme::{
        Cqe, QueueId, Status, auth,
        fabrics::controller::{Destination, Queue},
    },
};

pub(super) struct Association {
    pub(super) id: AssociationId,
    config: Config,
    exchanges: Exchanges,
    admin: Lane,
    io: Option<Lane>,
    /// The connection of an I/O queue that has ended. Commands for it may still be on their way.
    ended: Option<ConnectionId>,
}

/// A frame of data from a host, and the command that it belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inbound {
    ox_id: OxId,
    is_io: bool,
    destination: Destination,
    len: u32,
    is_last: bool,
}

impl Association {
    /// Creates an association with its admin queue. `number` distinguishes it from others of this login.
    pub(super) fn new(now: Instant, config: &Config, number: u32, ersp_ratio: u16) -> Self {
        let id = AssociationId(u64::from(number) << 16);
        let state = LaneState::new(ConnectionId(id.0), false, ersp_ratio, config.burst_len);
        Self {
            id,
            config: config.clone(),
            exchanges: Exchanges::default(),
            admin: Lane { queue: Queue::new(now, config.queue()), state },
            io: None,
            ended: None,
        }
    }

    /// The connection of the admin queue.
    pub(super) fn connection(&self) -> ConnectionId {
        self.admin.state.connection
    }

    /// Create I/O Connection. There is one I/O queue. It requires that the admin queue is connected and its host has
    /// authenticated itself.
    pub(super) fn create_connection(&mut self, now: Instant, qid: QueueId, ersp_ratio: u16) -> Answer {
        if self.admin.queue.qid() != Some(QueueId::ADMIN) || qid == QueueId::ADMIN {
            return Answer::Rejected(Rejection::LOGICAL_ERROR);
        }
        if self.io.is_some() {
            return Answer::Rejected(Rejection::INSUFFICIENT_RESOURCES);
        }
        let connection = ConnectionId(self.id.0 | u64::from(qid.0));
        let state = LaneState::new(connection, true, ersp_ratio, self.config.burst_len);
        self.io = Some(Lane { queue: Queue::new(now, self.config.queue()), state });
        Answer::Connection(connection)
    }

    /// Whether the controller has ended: rejected, disconnected or timed out.
    pub(super) fn is_over(&self) -> bool {
        self.admin.queue.is_closing()
    }

    /// Processes an `NVMe_CMND`.
    #[inline]
    pub(super) fn command<B: FcNvmeBackend>(
        &mut self,
        now: Instant,
        header: &Header,
        unit: &[u8],
        link: &mut Link,
        backend: &mut B,
    ) -> Result<(), Violation> {
        let command = Command::parse(unit)?;
        let ox_id = header.ox_id;
        let (exchanges, sqe) = (&mut self.exchanges, &command.sqe);
        let lane = if command.connection == self.admin.state.connection {
            &mut self.admin
        } else {
            let lane = self.io.as_mut().filter(|lane| lane.state.connection == command.connection);
            match lane {
                Some(lane) => lane,
                None if self.ended == Some(command.connection) => return Ok(()),
                None => return Err(misbehaved!("FC-NVMe-2 NVMe_CMND: an NVMe_CMND of no connection").at(68)),
            }
        };
        if command.csn != lane.state.csn {
            return Err(misbehaved!("FC-NVMe-2 NVMe_CMND: an NVMe_CMND is missing before this CSN").at(76));
        }
        lane.state.csn = lane.state.csn.wrapping_add(1);
        if exchanges.get(ox_id).is_some() {
            return Err(misbehaved!("FC-FS-5 OX_ID: an OX_ID of an open exchange").at(48));
        }
        let cid = sqe.cid();
        let refuse = |result, status: Status| (result, Cqe { result: 0, sq_head: 0, cid, status });
        let refused = if !command.is_consistent() || command.is_io != lane.state.is_io {
            Some(refuse(result::INVALID_FIELD, Status::INVALID_FIELD.do_not_retry()))
        } else if lane.state.is_outstanding(cid, exchanges) {
            // NVMe base 2.1 §4.2.3.1: Command ID Conflict. The queue answers by CID, which belongs to another exchange.
            Some(refuse(result::SUCCESS, Status::ID_CONFLICT.do_not_retry()))
        } else {
            None
        };
        if let Some((result, cqe)) = refused {
            lane.state.extended(link, (ox_id, RxId::UNASSIGNED), result, 0, cqe);
            return Ok(());
        }
        let (is_io, is_fabrics) = (lane.state.is_io, sqe.is_fabrics());
        let exchange = Exchange { is_io, is_fabrics, cid, data_len: command.data_len, ..Exchange::default() };
        lane.state.open(ox_id, exchange, exchanges);
        let mut way = Way { link, exchanges, lane: &mut lane.state };
        // No data come with the command; they are requested.
        lane.queue.on_command(now, sqe, 0, &mut way, backend).map_err(Violation::misbehaved)?;
        if is_io && lane.queue.is_closing() {
            self.end_io(link, backend);
        }
        Ok(())
    }

    /// Checks the header of a frame of data. `None` if the data must be dropped because their command was aborted
    /// meanwhile.
    #[inline]
    pub(super) fn data_begin(&mut self, header: &Header, len: u32) -> Result<Option<Inbound>, Violation> {
        let ox_id = header.ox_id;
        let Some(exchange) = self.exchanges.get(ox_id).filter(|exchange| exchange.rx_id == header.rx_id) else {
            return Ok(None);
        };
        if !exchange.collect.begin(header, len) {
            return Err(misbehaved!("FC-FS-5 SEQ_CNT: a frame of a sequence is missing").at(46));
        }
        if exchange.collect.fault().is_some() {
            return Err(misbehaved!("FC-NVMe-2 NVMe_DATA: NVMe_DATA that no NVMe_XFER_RDY asked for").at(52));
        }
        let (is_io, cid, RxId(slot)) = (exchange.is_io, exchange.cid, exchange.rx_id);
        let Some(lane) = self.lane(is_io) else { return Ok(None) };
        if lane.queue.solicited(slot).is_none_or(|asked| asked.cid() != cid) {
            return Err(misbehaved!("FC-NVMe-2 NVMe_DATA: NVMe_DATA of a command that takes none").at(48));
        }
        let destination = lane.queue.destination(slot);
        Ok(Some(Inbound { ox_id, is_io, destination, len, is_last: header.has(f_ctl::END_SEQUENCE) }))
    }

    #[inline]
    pub(super) fn data<B: FcNvmeBackend>(&mut self, inbound: Inbound, bytes: &[u8], backend: &mut B) {
        if let Some(lane) = self.lane(inbound.is_io) {
            lane.queue.on_data(inbound.destination, bytes, backend);
        }
    }

    /// Processes the end of a frame of data.
    #[inline]
    pub(super) fn data_end<B: FcNvmeBackend>(
        &mut self,
        now: Instant,
        inbound: Inbound,
        link: &mut Link,
        backend: &mut B,
    ) -> Result<(), Violation> {
        let Inbound { ox_id, is_io, destination, len, is_last } = inbound;
        let Some(exchange) = self.exchanges.get(ox_id) else { return Ok(()) };
        exchange.collect.end(len, is_last);
        if exchange.collect.fault().is_some() {
            return Err(misbehaved!("FC-NVMe-2 NVMe_DATA: less NVMe_DATA than NVMe_XFER_RDY asked for").at(52));
        }
        if !is_last {
            return Ok(());
        }
        let is_over = exchange.collect.is_over();
        let exchanges = &mut self.exchanges;
        let Some(lane) = (if is_io { self.io.as_mut() } else { Some(&mut self.admin) }) else { return Ok(()) };
        let mut way = Way { link, exchanges, lane: &mut lane.state };
        if is_over {
            lane.queue.on_data_end(now, destination, true, &mut way, backend);
        } else {
            way.ask_on(ox_id);
        }
        if is_io && lane.queue.is_closing() {
            self.end_io(link, backend);
        }
        Ok(())
    }

    /// Completes an operation of the backend. All of them belong to the I/O queue.
    pub(super) fn complete(&mut self, id: IoId, result: Result<Option<Payload>, UnitError>, link: &mut Link) {
        if let Some(lane) = &mut self.io {
            let mut way = Way { link, exchanges: &mut self.exchanges, lane: &mut lane.state };
            lane.queue.complete(id, result, &mut way);
        }
    }

    /// Continues when the work that a queue requested is done.
    pub(super) fn worked<B: FcNvmeBackend>(
        &mut self,
        now: Instant,
        worked: auth::Worked,
        link: &mut Link,
        backend: &mut B,
    ) {
        // If there is an I/O queue, the admin queue has no more work of this kind.
        let lane = self.io.as_mut().unwrap_or(&mut self.admin);
        let mut way = Way { link, exchanges: &mut self.exchanges, lane: &mut lane.state };
        lane.queue.worked(now, worked, &mut way, backend);
        self.end_io_if_over(link, backend);
    }

    /// Applies what other hosts did to the I/O queue.
    pub(super) fn handle_notification<B: FcNvmeBackend>(&mut self, now: Instant, link: &mut Link, backend: &mut B) {
        if let Some(lane) = &mut self.io {
            let mut way = Way { link, exchanges: &mut self.exchanges, lane: &mut lane.state };
            lane.queue.handle_notification(now, &mut way, backend);
        }
        self.end_io_if_over(link, backend);
    }

    /// Aborts an exchange for the initiator: its command ends without an answer. False if the exchange is not open. The
    /// caller must drop what has not been sent of it.
    pub(super) fn abort<B: FcNvmeBackend>(
        &mut self,
        ox_id: OxId,
        rx_id: RxId,
        endings: &mut Endings,
        backend: &mut B,
    ) -> bool {
        let is_meant = |exchange: &&mut Exchange| rx_id == RxId::UNASSIGNED || rx_id == exchange.rx_id;
        let Some(exchange) = self.exchanges.get(ox_id).filter(is_meant) else { return false };
        exchange.is_open = false;
        let (is_io, cid) = (exchange.is_io, exchange.cid);
        let own = Ending::default();
        endings.add(&own);
        if let Some(lane) = self.lane(is_io) {
            lane.queue.abort(cid, own, backend);
        }
        true
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let io = self.io.as_ref().and_then(|lane| lane.queue.poll_timeout());
        [self.admin.queue.poll_timeout(), io].into_iter().flatten().min()
    }

    pub(super) fn handle_timeout<B: FcNvmeBackend>(
        &mut self,
        now: Instant,
        link: &mut Link,
        backend: &mut B,
    ) -> Result<(), Violation> {
        let is_due = |lane: &Lane| lane.queue.poll_timeout().is_some_and(|due| due <= now);
        if is_due(&self.admin) {
            let mut way = Way { link, exchanges: &mut self.exchanges, lane: &mut self.admin.state };
            self.admin.queue.handle_timeout(now, &mut way, backend)?;
        }
        if let Some(lane) = self.io.as_mut().filter(|lane| is_due(lane)) {
            let mut way = Way { link, exchanges: &mut self.exchanges, lane: &mut lane.state };
            // The I/O queue ends by itself: its controller was reset, or its host did not connect it in time.
            if lane.queue.handle_timeout(now, &mut way, backend).is_err() {
                self.end_io(link, backend);
            }
        }
        self.end_io_if_over(link, backend);
        Ok(())
    }

    fn end_io_if_over<B: FcNvmeBackend>(&mut self, link: &mut Link, backend: &mut B) {
        if self.io.as_ref().is_some_and(|lane| lane.queue.is_closing()) {
            self.end_io(link, backend);
        }
    }

    /// Ends the association. Open exchanges are not answered, and outstanding operations are aborted.
    pub(super) fn end<B: FcNvmeBackend>(&mut self, link: &mut Link, backend: &mut B) {
        while let Some(ox_id) = self.exchanges.any() {
            self.exchanges.close(ox_id);
            link.forget(ox_id);
        }
        if let Some(mut lane) = self.io.take() {
            lane.queue.end(backend);
        }
        self.admin.queue.end(backend);
    }

    /// Ends the I/O queue after it was disconnected or rejected.
    #[cold]
    fn end_io<B: FcNvmeBackend>(&mut self, link: &mut Link, backend: &mut B) {
        while let Some(ox_id) = self.exchanges.any_of(true) {
            self.exchanges.close(ox_id);
            link.forget(ox_id);
        }
        if let Some(mut lane) = self.io.take() {
            lane.queue.end(backend);
            self.ended = Some(lane.state.connection);
        }
    }

    #[inline]
    fn lane(&mut self, is_io: bool) -> Option<&mut Lane> {
        if is_io { self.io.as_mut() } else { Some(&mut self.admin) }
    }
}
