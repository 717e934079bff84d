//! A connection of an association (FC-NVMe-2: NVMeoFC connection): a queue of the controller, and how it answers. Also
//! the open exchanges by OX_ID, for which an initiator may use any of 65,536 values.

use alloc::boxed::Box;

use crate::{
    Payload, Transmit,
    fc::{
        Header, Link, OxId, RxId,
        frame::kind,
        sequence::{Collect, TransferReady, data_header},
    },
    fc_nvme::{
        ConnectionId, Extended,
        iu::{RESPONSE_LEN, response_header, result},
    },
    nvme::{
        CommandId, Cqe, Status,
        fabrics::{
            Data,
            controller::{Queue, Transport},
        },
    },
};

pub(super) struct Lane {
    pub(super) queue: Queue,
    pub(super) state: LaneState,
}

/// The state of a lane except its queue.
pub(super) struct LaneState {
    pub(super) connection: ConnectionId,
    pub(super) is_io: bool,
    /// CSN of the next command.
    pub(super) csn: u32,
    /// RSN of the next extended response.
    rsn: u32,
    /// At least one of this many responses is an extended one.
    ersp_ratio: u16,
    /// Number of short responses since the last extended one.
    short: u16,
    /// The OX_ID of each outstanding command, by CID.
    ox_ids: Pages<u16>,
    burst_len: u32,
}

impl LaneState {
    pub(super) fn new(connection: ConnectionId, is_io: bool, ersp_ratio: u16, burst_len: u32) -> Self {
        let (csn, rsn, short) = (0, 0, 0);
        let (ersp_ratio, burst_len) = (ersp_ratio.max(1), burst_len.max(4));
        Self { connection, is_io, csn, rsn, ersp_ratio, short, ox_ids: Pages::default(), burst_len }
    }

    /// The exchange of an outstanding command.
    #[inline]
    fn ox_id(&mut self, cid: CommandId, exchanges: &mut Exchanges) -> Option<OxId> {
        let ox_id = OxId(*self.ox_ids.get_mut(cid.0)?);
        let exchange = exchanges.get(ox_id)?;
        (exchange.cid == cid && exchange.is_io == self.is_io).then_some(ox_id)
    }

    #[inline]
    pub(super) fn is_outstanding(&mut self, cid: CommandId, exchanges: &mut Exchanges) -> bool {
        self.ox_id(cid, exchanges).is_some()
    }

    /// Opens an exchange for a command.
    #[inline]
    pub(super) fn open(&mut self, ox_id: OxId, exchange: Exchange, exchanges: &mut Exchanges) {
        *self.ox_ids.entry(exchange.cid.0) = ox_id.0;
        exchanges.open(ox_id, exchange);
    }

    /// Sends an `NVMe_ERSP`.
    pub(super) fn extended(&mut self, link: &mut Link, (ox_id, rx_id): (OxId, RxId), result: u8, moved: u32, cqe: Cqe) {
        let response = Extended { result, rsn: self.rsn, moved, cqe };
        (self.rsn, self.short) = (self.rsn.wrapping_add(1), 0);
        link.send(Header { ox_id, rx_id, ..Extended::header() }, &response.encode());
    }
}

/// The connection on which a lane's queue answers.
pub(super) struct Way<'a> {
    pub(super) link: &'a mut Link,
    pub(super) exchanges: &'a mut Exchanges,
    pub(super) lane: &'a mut LaneState,
}

impl Way<'_> {
    /// Requests the next burst of a command's data, if there is one.
    pub(super) fn ask_on(&mut self, ox_id: OxId) {
        let Some(exchange) = self.exchanges.get(ox_id) else { return };
        if let Some(ready) = exchange.collect.next_burst() {
            let header = Header { ox_id, rx_id: exchange.rx_id, ..TransferReady::header(kind::NVME) };
            self.link.send(header, &ready.encode());
        }
    }
}

impl Transport for Way<'_> {
    /// Sends an `NVMe_ERSP` if there is further information (FC-NVMe-2, NVMe_ERSP IU), otherwise an `NVMe_RSP`.
    #[inline]
    fn respond(&mut self, cqe: &Cqe) {
        // A command that was aborted with its exchange gets no answer.
        let Some(ox_id) = self.lane.ox_id(cqe.cid, self.exchanges) else { return };
        let Some(exchange) = self.exchanges.close(ox_id) else { return };
        let moved = exchange.sent + exchange.collect.got();
        let is_plain = cqe.status == Status::SUCCESS && cqe.result == 0 && moved == exchange.data_len;
        if is_plain && !exchange.is_fabrics && self.lane.short + 1 < self.lane.ersp_ratio {
            self.lane.short += 1;
            let header = Header { ox_id, rx_id: exchange.rx_id, ..response_header() };
            self.link.send(header, &[0; RESPONSE_LEN]);
        } else {
            self.lane.extended(self.link, (ox_id, exchange.rx_id), result::SUCCESS, moved, *cqe);
        }
    }

    fn dropped(&mut self, cid: CommandId) {
        if let Some(ox_id) = self.lane.ox_id(cid, self.exchanges) {
            self.exchanges.close(ox_id);
            self.link.forget(ox_id);
        }
    }

    #[inline]
    fn give(&mut self, cid: CommandId, is_success: bool, data: Data<'_>) {
        let Some(ox_id) = self.lane.ox_id(cid, self.exchanges) else { return };
        let Some(exchange) = self.exchanges.get(ox_id) else { return };
        exchange.sent = data.len() as u32;
        let header = Header { ox_id, rx_id: exchange.rx_id, ..data_header(kind::NVME, true) };
        match data {
            Data::None => {}
            Data::Payload(payload) => self.link.send_payload(header, payload),
            Data::Bytes(bytes) => self.link.send_payload(header, Payload::from_vec(bytes.to_vec())),
        }
        if is_success {
            self.respond(&Cqe { result: 0, sq_head: 0, cid, status: Status::SUCCESS });
        }
    }

    fn ask(&mut self, cid: CommandId, slot: u16, len: u32) {
        let Some(ox_id) = self.lane.ox_id(cid, self.exchanges) else { return };
        if let Some(exchange) = self.exchanges.get(ox_id) {
            exchange.rx_id = RxId(slot);
            exchange.collect = Collect::new(len, self.lane.burst_len);
        }
        self.ask_on(ox_id);
    }

    /// Does nothing, because no data come with a command.
    fn set_max_command_data(&mut self, _bytes: u32) {}

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.link.transmit
    }
}

/// The exchange of a command.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Exchange {
    pub(super) is_open: bool,
    /// Whether it belongs to the I/O queue.
    pub(super) is_io: bool,
    pub(super) cid: CommandId,
    /// The queue's slot, once data have been requested.
    pub(super) rx_id: RxId,
    /// Bytes that the command announced.
    pub(super) data_len: u32,
    /// Bytes of a read that were sent.
    pub(super) sent: u32,
    pub(super) collect: Collect,
    /// A fabrics command. Its answer always contains further information.
    pub(super) is_fabrics: bool,
}

#[derive(Debug, Default)]
pub(super) struct Exchanges {
    pages: Pages<Exchange>,
}

impl Exchanges {
    /// The exchange if it is open.
    #[inline]
    pub(super) fn get(&mut self, ox_id: OxId) -> Option<&mut Exchange> {
        self.pages.get_mut(ox_id.0).filter(|exchange| exchange.is_open)
    }

    /// Opens an exchange that is not open.
    #[inline]
    pub(super) fn open(&mut self, ox_id: OxId, exchange: Exchange) {
        *self.pages.entry(ox_id.0) = Exchange { is_open: true, ..exchange };
    }

    /// Closes and returns the exchange; `None` if it was not open.
    #[inline]
    pub(super) fn close(&mut self, ox_id: OxId) -> Option<Exchange> {
        let exchange = self.get(ox_id)?;
        exchange.is_open = false;
        Some(*exchange)
    }

    /// The OX_ID of any open exchange.
    pub(super) fn any(&self) -> Option<OxId> {
        self.pages.position(|exchange| exchange.is_open).map(OxId)
    }

    /// The OX_ID of any open exchange of the I/O queue, or of the admin queue.
    pub(super) fn any_of(&self, is_io: bool) -> Option<OxId> {
        self.pages.position(|exchange| exchange.is_open && exchange.is_io == is_io).map(OxId)
    }
}

/// Values per page. Initiators that number densely use few pages.
const PAGE: usize = 128;
const PAGES: usize = (1 << 16) / PAGE;

/// A value for each 16-bit number. It needs memory only for numbers that have been used, and no search.
#[derive(Debug)]
pub(super) struct Pages<T> {
    pages: Box<[Option<Box<[T; PAGE]>>]>,
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Self { pages: (0..PAGES).map(|_| None).collect() }
    }
}

impl<T: Copy + Default> Pages<T> {
    #[inline]
    pub(super) fn get_mut(&mut self, name: u16) -> Option<&mut T> {
        let page = self.pages[usize::from(name) / PAGE].as_mut()?;
        Some(&mut page[usize::from(name) % PAGE])
    }

    #[inline]
    pub(super) fn entry(&mut self, name: u16) -> &mut T {
        let page = self.pages[usize::from(name) / PAGE].get_or_insert_with(|| Box::new([T::default(); PAGE]));
        &mut page[usize::from(name) % PAGE]
    }

    fn position(&self, is_meant: impl Fn(&T) -> bool) -> Option<u16> {
        let pages = self.pages.iter().enumerate().filter_map(|(page, entries)| Some((page, entries.as_ref()?)));
        pages
            .flat_map(|(page, entries)| entries.iter().enumerate().map(move |(at, entry)| (page * PAGE + at, entry)))
            .find(|(_, entry)| is_meant(entry))
            .map(|(name, _)| name as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchanges_are_found_by_any_name_while_they_are_open() {
        let mut exchanges = Exchanges::default();
        for ox_id in [0, 127, 128, 0xffff] {
            assert!(exchanges.get(OxId(ox_id)).is_none());
            exchanges.open(OxId(ox_id), Exchange { cid: CommandId(ox_id), is_io: ox_id > 127, ..Exchange::default() });
            assert_eq!(exchanges.get(OxId(ox_id)).map(|exchange| exchange.cid), Some(CommandId(ox_id)));
        }
        assert_eq!((exchanges.any(), exchanges.any_of(true)), (Some(OxId(0)), Some(OxId(128))));
        assert!(exchanges.close(OxId(128)).is_some() && exchanges.close(OxId(128)).is_none());
        assert_eq!(exchanges.any_of(true), Some(OxId(0xffff)));
    }
}
