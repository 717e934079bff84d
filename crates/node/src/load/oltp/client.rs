//! A client: it runs one transaction after another, with one I/O at a time.

use iotax_proto::{Instant, Io, IoError, Payload};

use super::{
    super::{
        ledger::Wrong,
        pacing::{Arrived, Pacer, Schedule},
        recorder::{Completion, Recorder},
        stream::Direction,
        verify::ReadCheck,
    },
    Database, Fault,
    layout::{Change, Plan},
    log::{COMMIT_BYTES, ROW_BYTES, Step},
    page_buffers::Found,
};
use crate::seeded::SeededRng;

#[derive(Debug)]
pub(super) struct Client {
    pacer: Pacer,
    random: SeededRng,
    plan: Plan,
    state: State,
    pub(super) wait: Wait,
    /// Number of its wait among all waits, which shows who has waited longest.
    waits_since: u64,
    under_way: Option<UnderWay>,
    check: ReadCheck,
    /// Buffer for its writes of the log.
    buffer: Payload,
    intended: Instant,
    submitted: Instant,
    idle_since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// It needs the page with this index in its plan next.
    Touching(usize),
    /// It waits until the log is durable up to this position.
    Committing(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Nothing,
    /// Another client reads this page.
    Page(u64),
    /// Every page that could be evicted must be written first.
    Frame,
    Branch(u64),
    /// Another client writes the log.
    Log,
}

#[derive(Clone, Copy, Debug)]
enum UnderWay {
    Read { page: u64 },
    Log { page: u64, count: u64, sequence: u64 },
    Flush,
}

impl Client {
    pub(super) fn new(pacer: Pacer, random: SeededRng, buffer: Payload) -> Self {
        Self {
            pacer,
            random,
            plan: Plan::default(),
            state: State::Idle,
            wait: Wait::Nothing,
            waits_since: 0,
            under_way: None,
            check: ReadCheck::default(),
            buffer,
            intended: Instant(0),
            submitted: Instant(0),
            idle_since: Instant(0),
        }
    }

    pub(super) fn begin(&mut self, schedule: Schedule) {
        self.pacer.begin(schedule);
        (self.state, self.wait, self.under_way) = (State::Idle, Wait::Nothing, None);
        self.idle_since = schedule.warmup_start;
    }

    pub(super) fn collect(&mut self, now: Instant) {
        let slots = self.slots();
        self.pacer.collect(now, slots);
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.pacer.next_due().filter(|_| self.state == State::Idle)
    }

    pub(super) fn finish(&mut self) -> Option<Arrived> {
        let slots = self.slots();
        self.pacer.finish(slots)
    }

    fn slots(&self) -> usize {
        usize::from(self.state == State::Idle)
    }
}

impl Database {
    /// Continues a client's transaction until it needs an I/O; `None` if it waits for another client, or for its time.
    pub(super) fn advance(&mut self, index: usize, now: Instant) -> Option<Io> {
        if self.clients[index].under_way.is_some() {
            return None;
        }
        self.clients[index].wait = Wait::Nothing;
        loop {
            match self.clients[index].state {
                State::Idle => self.start(index, now)?,
                State::Touching(at) if at == self.clients[index].plan.touches.len() => {
                    let position = self.log.insert(COMMIT_BYTES);
                    self.clients[index].state = State::Committing(position);
                }
                State::Touching(at) => match self.touch(index, at) {
                    Ok(()) => self.clients[index].state = State::Touching(at + 1),
                    Err(Blocked::Reads(page)) => return Some(self.read(index, page)),
                    Err(Blocked::Waits(wait)) => return self.wait(index, wait),
                },
                State::Committing(_) => {
                    let Some(step) = self.log.lead(index, self.log_io_pages) else {
                        return self.wait(index, Wait::Log);
                    };
                    return Some(self.commit(index, step));
                }
            }
        }
    }

    fn start(&mut self, index: usize, now: Instant) -> Option<()> {
        let client = &mut self.clients[index];
        client.intended = client.pacer.take(now)?;
        client.submitted = now;
        self.layout.draw(&mut client.random, &mut self.rows, &mut client.plan);
        client.state = State::Touching(0);
        self.active += 1;
        Some(())
    }

    fn wait(&mut self, index: usize, wait: Wait) -> Option<Io> {
        self.waits += 1;
        let client = &mut self.clients[index];
        (client.wait, client.waits_since) = (wait, self.waits);
        None
    }

    /// Reads or changes a page in memory. The client holds the branch's row from its change to the commit.
    fn touch(&mut self, index: usize, at: usize) -> Result<(), Blocked> {
        let (plan, page_bytes) = (&self.clients[index].plan, u64::from(self.page_bytes));
        let (touch, branch, locks) = (plan.touches[at], plan.branch, plan.locks_at == at);
        if locks && *self.branches[branch as usize].get_or_insert(index) != index {
            return Err(Blocked::Waits(Wait::Branch(branch)));
        }
        match self.buffers.find(touch.page) {
            Found::Here => {}
            Found::Loading => return Err(Blocked::Waits(Wait::Page(touch.page))),
            Found::Absent if !self.buffers.admit(touch.page) => {
                self.wake(self.clients.len());
                return Err(Blocked::Waits(Wait::Frame));
            }
            Found::Absent if touch.change == Change::New => self.buffers.loaded(touch.page),
            Found::Absent => return Err(Blocked::Reads(touch.page)),
        }
        if touch.change != Change::None {
            let image = self.buffers.first_change(touch.page, self.writer.checkpoint());
            // A new page needs no image: the log contains all of it.
            let whole = if image && touch.change == Change::Row { page_bytes } else { 0 };
            let position = self.log.insert(ROW_BYTES + whole);
            self.buffers.change(touch.page, position);
        }
        Ok(())
    }

    fn read(&mut self, index: usize, page: u64) -> Io {
        let (offset, len) = (self.offset(page), self.page_bytes);
        let client = &mut self.clients[index];
        client.under_way = Some(UnderWay::Read { page });
        client.check.begin(offset, len);
        if self.buffers.soon_to_go(self.log.flushed()).is_some() {
            self.wake(self.clients.len());
        }
        Io::Read { offset, len }
    }

    fn commit(&mut self, index: usize, step: Step) -> Io {
        match step {
            Step::Flush => {
                self.clients[index].under_way = Some(UnderWay::Flush);
                Io::Flush
            }
            Step::Write { page, count } => {
                let page = self.layout.pages + page;
                let (offset, len) = (self.offset(page), count as usize * self.page_bytes as usize);
                let data = self.clients[index].buffer.slice(0, len);
                let sequence = self.stamp(&data, index as u64, offset);
                self.clients[index].under_way = Some(UnderWay::Log { page, count, sequence });
                Io::Write { offset, data, durable: false }
            }
        }
    }

    pub(super) fn data(&mut self, index: usize, at: u32, bytes: &[u8]) -> Result<(), Wrong> {
        match self.clients.get_mut(index) {
            Some(client) if self.verify => {
                let fed = client.check.feed(&self.pool, &self.ledger, &mut self.tally, at, bytes);
                fed.inspect_err(|_| self.tally.wrong_blocks += 1)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn begin_again(&mut self, index: usize) {
        if let Some(client) = self.clients.get_mut(index) {
            client.check.begin_again();
        }
    }

    /// A client's I/O is done; transactions that end with it are recorded.
    pub(super) fn completed(
        &mut self,
        index: usize,
        now: Instant,
        result: Result<(), IoError>,
        recorder: Option<&mut Recorder>,
    ) -> Result<(), Fault> {
        let Some(done) = self.clients[index].under_way.take() else { return Ok(()) };
        let (counts, page_bytes) = (self.in_window(now), u64::from(self.page_bytes));
        match (done, result) {
            // A target without a write cache may not have a flush command.
            (UnderWay::Flush, Ok(()) | Err(IoError::Unsupported)) => {
                self.counts.flushes += u64::from(counts);
                self.log.flush_done();
                if let Some(recorder) = recorder {
                    self.end_transactions(now, recorder);
                }
                Ok(())
            }
            (UnderWay::Flush, Err(error)) => Err(Fault::Failed(error, None)),
            (UnderWay::Read { page } | UnderWay::Log { page, .. }, Err(error)) => {
                Err(Fault::Failed(error, Some(self.offset(page))))
            }
            (UnderWay::Read { page }, Ok(())) => {
                if self.verify {
                    self.clients[index].check.finish().map_err(Fault::Wrong)?;
                }
                self.buffers.loaded(page);
                self.counts.reads += u64::from(counts);
                self.counts.read_bytes += if counts { page_bytes } else { 0 };
                self.wake_waiting(Wait::Page(page));
                Ok(())
            }
            (UnderWay::Log { page, count, sequence }, Ok(())) => {
                for page in page..page + count {
                    self.ledger.written(self.offset(page), sequence);
                }
                self.log.written(count);
                if counts {
                    self.counts.writes += 1;
                    self.counts.write_bytes += count * page_bytes;
                    self.counts.log_writes += 1;
                    self.counts.log_write_bytes += count * page_bytes;
                }
                Ok(())
            }
        }
    }

    /// Ends all transactions whose commit is durable now; one of the other clients writes the log next.
    fn end_transactions(&mut self, now: Instant, recorder: &mut Recorder) {
        let flushed = self.log.flushed();
        let mut next = None;
        for index in 0..self.clients.len() {
            match self.clients[index].state {
                State::Committing(position) if position <= flushed => self.end(index, now, recorder),
                State::Committing(_) => next = next.or(Some(index)),
                State::Idle | State::Touching(_) => {}
            }
        }
        if let Some(index) = next {
            self.wake(index);
        }
        // Pages whose changes are durable now may be written.
        self.wake(self.clients.len());
    }

    fn end(&mut self, index: usize, now: Instant, recorder: &mut Recorder) {
        let client = &mut self.clients[index];
        recorder.complete(Completion {
            stream: 0,
            direction: Direction::Read,
            bytes: 0,
            intended: client.intended,
            possible: client.intended.max(client.idle_since),
            submitted: client.submitted,
            completed: now,
        });
        (client.state, client.wait, client.idle_since) = (State::Idle, Wait::Nothing, now);
        let branch = client.plan.branch;
        self.active -= 1;
        self.wake(index);
        let waiting = (0..self.clients.len()).filter(|each| self.clients[*each].wait == Wait::Branch(branch));
        let first = waiting.min_by_key(|each| self.clients[*each].waits_since);
        self.branches[branch as usize] = first;
        if let Some(first) = first {
            self.wake(first);
        }
    }
}

/// Why a transaction cannot continue at once.
enum Blocked {
    Reads(u64),
    Waits(Wait),
}
