//! An OLTP-shaped load: transactions of dependent reads, each of which ends with a durable commit, on a database
//! without page contents.
//!
//! Each client is a worker with a connection of its own and one I/O under way at a time. One more worker writes pages
//! back, in checkpoints and ahead of the clock sweep. All of them share a `Database`, which belongs to one thread.

mod client;
mod layout;
mod log;
mod page_buffers;
mod writer;

use std::{cell::RefCell, rc::Rc, time::Duration};

use iotax_proto::{Instant, Io, IoError, Payload, Tag};

use self::{
    client::{Client, Wait},
    layout::{Layout, Rows},
    log::Log,
    page_buffers::Buffers,
    writer::Writer,
};
use super::{
    addresses::Zone,
    ledger::{Ledger, Wrong},
    pacing::{Arrived, Pacer, Schedule, Share},
    recorder::{OltpCounts, Recorder},
    verify::Tally,
};
use crate::{failure::Failure, pattern::Pool, seeded::SeededRng};

/// Maximum number of page writes that the writer has under way.
pub(super) const WRITER_DEPTH: u32 = 8;
/// Maximum size of one write of the log.
const LOG_IO_BYTES: u32 = 128 << 10;
/// Maximum number of pages of a database: it stores 12 bytes per page.
const PAGES_MAX: u64 = 1 << 24;
/// Its writer number in the data that it writes.
const LEDGER_WRITER: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OltpConfig {
    /// Memory for the database's page buffers.
    pub memory_bytes: u64,
    /// Time from the start of one checkpoint to the start of the next.
    pub checkpoint: Duration,
}

impl OltpConfig {
    pub(super) fn check(&self, page_bytes: u32) -> Result<(), Failure> {
        for (holds, message, field) in [
            (!self.checkpoint.is_zero(), "must be more than 0", "oltp.checkpoint_ns"),
            (self.memory_bytes >= u64::from(page_bytes) * 64, "must be at least 64 pages", "oltp.memory_bytes"),
            (page_bytes <= LOG_IO_BYTES, "must be at most 128 KiB of a page", "block_size_bytes"),
        ] {
            if !holds {
                return Err(Failure::usage(message, field));
            }
        }
        Ok(())
    }
}

/// Size of the largest I/O of a database with pages of this size: a write of the log.
pub(super) fn io_bytes_max(page_bytes: u32) -> u32 {
    LOG_IO_BYTES / page_bytes.max(1) * page_bytes
}

/// The parameters of a database.
pub(super) struct Plan {
    pub(super) config: OltpConfig,
    pub(super) page_bytes: u32,
    /// The working set, in pages.
    pub(super) zone: Zone,
    pub(super) clients: u32,
    /// Maximum size of one I/O on the unit.
    pub(super) max_io_bytes: u32,
    pub(super) run: u64,
    pub(super) verify: bool,
    pub(super) pool: Rc<Pool>,
}

#[derive(Debug)]
pub(super) struct Database {
    page_bytes: u32,
    log_io_pages: u64,
    zone: Zone,
    layout: Layout,
    buffers: Buffers,
    log: Log,
    clients: Vec<Client>,
    writer: Writer,
    /// Branch → the client whose transaction holds its row.
    branches: Vec<Option<usize>>,
    rows: Rows,
    waits: u64,
    ledger: Ledger,
    pool: Rc<Pool>,
    verify: bool,
    schedule: Option<Schedule>,
    pub(super) tally: Tally,
    counts: OltpCounts,
    /// Transactions under way now.
    active: u32,
    /// Workers that may continue although they had no event of their own.
    wakes: Vec<usize>,
}

/// Why an I/O ends the run.
#[derive(Debug)]
pub(super) enum Fault {
    Failed(IoError, Option<u64>),
    Wrong(Wrong),
}

impl Database {
    /// The error is the minimum and the maximum size in bytes.
    pub(super) fn new(plan: Plan) -> Result<Self, (u64, u64)> {
        let page = u64::from(plan.page_bytes);
        let bounds = (layout::PAGES_MIN * page, PAGES_MAX * page);
        let layout = Layout::of(plan.zone.blocks).filter(|_| plan.zone.blocks <= PAGES_MAX).ok_or(bounds)?;
        let frames = (plan.config.memory_bytes / page).min(layout.pages);
        let blocks = if plan.verify { plan.zone.blocks } else { 0 };
        let counts =
            OltpCounts { size_bytes: layout.pages * page, memory_bytes: frames * page, ..OltpCounts::default() };
        Ok(Self {
            page_bytes: plan.page_bytes,
            log_io_pages: u64::from(LOG_IO_BYTES.min(plan.max_io_bytes) / plan.page_bytes).max(1),
            zone: plan.zone,
            buffers: Buffers::new(layout.pages, frames),
            log: Log::new(page, layout.log_pages),
            clients: Vec::with_capacity(plan.clients as usize),
            writer: Writer::new(plan.config.checkpoint),
            branches: vec![None; layout.branches as usize],
            rows: Rows::default(),
            waits: 0,
            ledger: Ledger::new(plan.run, LEDGER_WRITER, plan.zone.offset, blocks, page),
            pool: plan.pool,
            verify: plan.verify,
            schedule: None,
            tally: Tally::default(),
            counts,
            active: 0,
            wakes: Vec::new(),
            layout,
        })
    }

    pub(super) fn add_client(&mut self, pacer: Pacer, seed: u64, buffer: Payload) {
        let number = self.clients.len() as u64;
        self.prepare(&buffer, number);
        self.clients.push(Client::new(pacer, SeededRng::new(seed, "oltp", number), buffer));
    }

    pub(super) fn set_writer(&mut self, buffers: Vec<Payload>) {
        for (tag, buffer) in (0_u64..).zip(&buffers) {
            self.prepare(buffer, WRITER_BUFFERS + tag);
        }
        self.writer.give(buffers);
    }

    fn prepare(&self, buffer: &Payload, number: u64) {
        let mut bytes = vec![0; buffer.len()];
        self.pool.prepare(&mut bytes, number);
        buffer.copy_in(0, &bytes);
    }

    /// Prepares for another slice: its writes have another run number.
    pub(super) fn renew(&mut self, run: u64) {
        self.ledger.renew(run);
        self.tally = Tally::default();
    }

    /// Begins the load, with the pages that are still in the buffers.
    pub(super) fn begin(&mut self, schedule: Schedule) {
        self.schedule = Some(schedule);
        self.counts = OltpCounts {
            size_bytes: self.counts.size_bytes,
            memory_bytes: self.counts.memory_bytes,
            ..OltpCounts::default()
        };
        self.log.reset();
        self.branches.fill(None);
        self.wakes.clear();
        self.active = 0;
        for client in &mut self.clients {
            client.begin(schedule);
        }
        self.writer.begin(schedule.warmup_start);
    }

    pub(super) fn counts(&self) -> OltpCounts {
        self.counts
    }

    pub(super) fn active(&self) -> u32 {
        self.active
    }

    /// A worker that needs a turn.
    pub(super) fn take_wake(&mut self) -> Option<usize> {
        self.wakes.pop()
    }

    fn is_writer(&self, worker: usize) -> bool {
        worker == self.clients.len()
    }

    fn offset(&self, page: u64) -> u64 {
        self.zone.offset + page * u64::from(self.page_bytes)
    }

    fn in_window(&self, now: Instant) -> bool {
        self.schedule.is_some_and(|schedule| (schedule.start..schedule.end).contains(&now))
    }

    fn wake(&mut self, worker: usize) {
        if !self.wakes.contains(&worker) {
            self.wakes.push(worker);
        }
    }

    fn wake_waiting(&mut self, wait: Wait) {
        for index in 0..self.clients.len() {
            if self.clients[index].wait == wait {
                self.wake(index);
            }
        }
    }

    /// Stamps the data of one write and returns its sequence number in the ledger.
    fn stamp(&mut self, buffer: &Payload, number: u64, offset: u64) -> u64 {
        let stamp = self.ledger.issue();
        for (at, header) in self.pool.headers(number, buffer.len(), offset, stamp) {
            buffer.copy_in(at, &header);
        }
        stamp.sequence
    }
}

/// Distinguishes the writer's buffer numbers from those of the clients.
const WRITER_BUFFERS: u64 = 1 << 32;

/// One worker of the load: a client, or the writer behind them.
pub(super) struct OltpTask {
    database: Rc<RefCell<Database>>,
    worker: usize,
}

/// Methods that every turn calls are cold, so that they stay out of the I/O path of other loads.
impl OltpTask {
    pub(super) fn new(database: Rc<RefCell<Database>>, worker: usize) -> Self {
        Self { database, worker }
    }

    /// See `Pacer::collect`: a client can begin a transaction when it has none.
    #[cold]
    pub(super) fn collect(&mut self, now: Instant) {
        let mut database = self.database.borrow_mut();
        if let Some(client) = database.clients.get_mut(self.worker) {
            client.collect(now);
        }
    }

    #[cold]
    pub(super) fn next(&mut self, now: Instant, tag: Tag) -> Option<Io> {
        let mut database = self.database.borrow_mut();
        if database.is_writer(self.worker) { database.write_back(now, tag) } else { database.advance(self.worker, now) }
    }

    #[cold]
    pub(super) fn next_due(&self) -> Option<Instant> {
        let database = self.database.borrow();
        match database.clients.get(self.worker) {
            Some(client) => client.next_due(),
            None => database.writer.next_due(),
        }
    }

    pub(super) fn data(&mut self, at: u32, bytes: &[u8]) -> Result<(), Wrong> {
        self.database.borrow_mut().data(self.worker, at, bytes)
    }

    /// The client's read is sent again.
    pub(super) fn begin_again(&mut self) {
        self.database.borrow_mut().begin_again(self.worker);
    }

    pub(super) fn complete(
        &mut self,
        now: Instant,
        tag: Tag,
        result: Result<(), IoError>,
        recorder: Option<&mut Recorder>,
    ) -> Result<(), Fault> {
        let mut database = self.database.borrow_mut();
        if database.is_writer(self.worker) {
            database.wrote_back(now, tag, result)
        } else {
            database.completed(self.worker, now, result, recorder)
        }
    }

    /// Arrivals of an open loop.
    pub(super) fn finish(&mut self) -> Option<Arrived> {
        self.database.borrow_mut().clients.get_mut(self.worker)?.finish()
    }
}

/// Part of an open loop's arrivals: all clients have equal parts.
pub(super) fn share(client: u32, clients: u32) -> Share {
    Share { part: 1.0 / f64::from(clients), phase: f64::from(client) / f64::from(clients) }
}

impl std::fmt::Debug for OltpTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OltpTask({})", self.worker)
    }
}
