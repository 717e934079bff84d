//! A client that survives its connections: it opens them as the load generator does, does random I/O, and reconnects
//! whenever it loses them.

mod worker;

use std::{collections::VecDeque, net::IpAddr, net::SocketAddr, time::Duration};

use iotax_node::{
    ConnId, Input, LoadConfig, Node, Output, Protocol, Randomness, RunConfig, TaskConfig,
    load::{
        Endpoint, Pacing,
        connector::{self, ConnectionConfig},
        link::{Control, ControlStep, Link},
    },
    pattern::Reduction,
    protocols::AnyInitiator,
    seeded::SeededRng,
};
use iotax_proto::{Instant, Transmit, Violation, ViolationKind};

use crate::{
    board::{Phase, SharedBoard},
    load::HAS_FRAME_CRC,
    options::is_of_files,
};
use worker::Worker;

/// Maximum pause before it reconnects.
const BACKOFF: Duration = Duration::from_millis(10);
/// How long the links may take to open before it starts over.
const OPEN_TIME: Duration = Duration::from_secs(20);
/// How long the links may take to close in order.
const CLOSE_TIME: Duration = Duration::from_secs(5);

/// On average, a member attempts the reservation once per so many turns if it may be free, and otherwise preempts
/// another client once per so many.
const HOLDS_ONCE_IN: u64 = 10;
const PREEMPTS_ONCE_IN: u64 = 60;

const CONTROL: ConnId = ConnId(0);

/// Parameters of an agent.
#[derive(Clone, Debug)]
pub(crate) struct Character {
    pub(crate) host: usize,
    pub(crate) workers: u32,
    pub(crate) depth: u32,
    /// Maximum pause between two I/Os.
    pub(crate) pause: Duration,
    pub(crate) seed: u64,
    /// Hosts of all clients if they share the unit by its reservation; otherwise empty.
    pub(crate) cluster: Vec<usize>,
}

pub(crate) struct Agent {
    character: Character,
    endpoint: Endpoint,
    board: SharedBoard,
    random: SeededRng,
    life: Life,
    control: Option<Box<dyn Control<AnyInitiator>>>,
    /// Address to which the control connection goes once it is closed.
    control_next: Option<SocketAddr>,
    control_closing: bool,
    workers: Vec<Worker>,
    /// The driver's connections by id, each with the number of its connect.
    open: Vec<Option<u64>>,
    connects: u64,
    outputs: VecDeque<Output>,
    to_send: Vec<ConnId>,
    /// Number of sectors that it has read in the liveness phase.
    looked: usize,
    flushed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// Without connections until this instant.
    Away(Instant),
    Opening(Instant),
    Up,
    /// Closes all connections, and then reconnects.
    Breaking,
    Leaving(Instant),
    Done,
}

impl Agent {
    pub(crate) fn new(character: Character, endpoint: Endpoint, board: SharedBoard) -> Self {
        Self {
            random: SeededRng::new(character.seed, "agent", character.host as u64),
            open: vec![None; character.workers as usize + 1],
            character,
            endpoint,
            board,
            life: Life::Away(Instant(0)),
            control: None,
            control_next: None,
            control_closing: false,
            workers: Vec::new(),
            connects: 0,
            outputs: VecDeque::new(),
            to_send: Vec::new(),
            looked: 0,
            flushed: false,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.life == Life::Done
    }

    /// Its state, for a report.
    pub(crate) fn standing(&self) -> String {
        let under_way: usize = self.workers.iter().map(Worker::under_way).sum();
        format!(
            "agent {} is {:?} with {under_way} commands under way, {} sectors read",
            self.character.host, self.life, self.looked
        )
    }

    /// Its host crashed: I/O under way is lost, and it keeps nothing but its identity.
    pub(crate) fn crash(&mut self, now: Instant) {
        self.lose_workers(now);
        self.open.fill(None);
        (self.control, self.control_next) = (None, None);
        self.outputs.clear();
        self.to_send.clear();
        (self.looked, self.flushed) = (0, false);
        self.life = Life::Away(now);
    }

    // ----------------------------------------------------------------------------------------------------- connections

    fn begin(&mut self, now: Instant) {
        let host = self.endpoint.unit.host().and_then(|host| host.parse::<IpAddr>().ok());
        let Some(server) = host else { return self.board.borrow_mut().find("an endpoint without an address") };
        let instance = self.character.host as u32 + 1;
        let mut connection = ConnectionConfig::new(server, instance, Randomness::new([instance as u8; 32]));
        connection.settings.has_frame_crc = HAS_FRAME_CRC;
        match connector::control(&self.endpoint, &connection, &self.load_config()) {
            Ok(control) => self.control = Some(control),
            Err(failure) => return self.board.borrow_mut().find(format!("no way to connect: {failure}")),
        }
        self.control_closing = false;
        self.life = Life::Opening(now + OPEN_TIME);
        self.step_control(now);
    }

    /// Only the number of connections and their depth are used.
    fn load_config(&self) -> LoadConfig {
        let run = RunConfig {
            outstanding: self.character.depth,
            block_size_bytes: 4096,
            read_percent: 50.0,
            random_percent: 100.0,
            streams: Vec::new(),
            shared: None,
            oltp: None,
            pacing: Pacing::Closed,
            warmup: Duration::ZERO,
            runtime: Duration::from_secs(1),
            sample: Duration::from_secs(1),
            count: None,
            seed: 1,
            verify: false,
            durable: false,
            flush_after: 0,
            filled: false,
            read_back: false,
        };
        LoadConfig {
            task: TaskConfig::Run(run),
            workers: self.character.workers,
            first_worker: 0,
            own_workers: self.character.workers,
            working_set_bytes: None,
            working_set_offset_bytes: 0,
            reduction: Reduction::default(),
            run: 1,
        }
    }

    fn connect(&mut self, conn: ConnId, to: SocketAddr) -> u64 {
        self.connects += 1;
        self.board.borrow_mut().counts.connects += 1;
        self.open[conn.0 as usize] = Some(self.connects);
        self.outputs.push_back(Output::Connect { conn, to });
        self.connects
    }

    fn close(&mut self, conn: ConnId) {
        if self.open[conn.0 as usize].is_some() {
            self.outputs.push_back(Output::Close { conn });
        }
    }

    fn step_control(&mut self, now: Instant) {
        let Some(control) = &mut self.control else { return };
        let step = control.step(now);
        if self.control_next.is_none() && !control.transmit().is_empty() {
            self.to_send.push(CONTROL);
        }
        match step {
            ControlStep::Wait => {}
            ControlStep::Connect(to) if self.open[0].is_some() => {
                self.control_next = Some(to);
                self.close(CONTROL);
            }
            ControlStep::Connect(to) => {
                self.connect(CONTROL, to);
            }
            ControlStep::Open(links) => {
                if !control.needs_connection() {
                    self.close(CONTROL);
                }
                self.open_workers(links);
            }
            // A server may have no room for it for some time.
            ControlStep::Failed(_) => self.break_down(now),
            ControlStep::Closed => {
                self.control = None;
                self.close(CONTROL);
            }
        }
    }

    fn open_workers(&mut self, links: Vec<Link<AnyInitiator>>) {
        for (index, link) in links.into_iter().enumerate() {
            let Some(to) = link.to else { continue };
            let connect = self.connect(ConnId(index as u32 + 1), to);
            let connection = (self.character.host, connect);
            let port = (self.character.host, if self.board.borrow().registers_hosts { 0 } else { index });
            self.workers.push(Worker::new(link.initiator, self.character.depth, connection, port));
        }
    }

    fn violated(&mut self, now: Instant, violation: &Violation) {
        if !matches!(violation.kind, ViolationKind::TimedOut | ViolationKind::Refused(_)) {
            self.board.borrow_mut().find(format!("the server breaks its protocol: {violation}"));
        }
        self.break_down(now);
    }

    /// Gives up all connections. I/O under way is lost.
    fn break_down(&mut self, now: Instant) {
        if matches!(self.life, Life::Done | Life::Breaking) {
            return;
        }
        self.lose_workers(now);
        (self.control, self.control_next) = (None, None);
        (self.looked, self.flushed) = (0, false);
        let was_leaving = matches!(self.life, Life::Leaving(_));
        self.life = Life::Breaking;
        for index in 0..self.open.len() {
            self.close(ConnId(index as u32));
        }
        self.broken(now);
        if was_leaving && !matches!(self.life, Life::Breaking) {
            self.life = Life::Done;
        }
    }

    fn lose_workers(&mut self, now: Instant) {
        for mut worker in std::mem::take(&mut self.workers) {
            worker.disconnected(now, &self.board);
        }
    }

    /// Continues once the driver has none of its connections.
    fn broken(&mut self, now: Instant) {
        if self.life == Life::Breaking && self.open.iter().all(Option::is_none) {
            let pause = self.random.below(BACKOFF.as_nanos() as u64);
            self.life = Life::Away(now + Duration::from_nanos(pause));
        }
    }

    fn closed(&mut self, now: Instant, conn: ConnId) {
        self.open[conn.0 as usize] = None;
        match self.life {
            Life::Breaking => return self.broken(now),
            Life::Leaving(_) if conn != CONTROL => {
                if self.workers.get(conn.0 as usize - 1).is_some_and(|worker| !worker.closed) {
                    self.break_down(now);
                }
                return;
            }
            Life::Away(_) | Life::Done => return,
            Life::Opening(_) | Life::Up | Life::Leaving(_) => {}
        }
        if conn == CONTROL {
            if let Some(to) = self.control_next.take() {
                self.connect(CONTROL, to);
                return;
            }
            if self.control.as_ref().is_none_or(|control| !control.needs_connection()) {
                return;
            }
        }
        self.break_down(now);
    }

    // ---------------------------------------------------------------------------------------------------------- a turn

    fn advance(&mut self, now: Instant) {
        self.step_control(now);
        match self.life {
            Life::Away(until) if until <= now => self.begin(now),
            Life::Opening(until) => {
                if self.workers.len() == self.character.workers as usize
                    && self.workers.iter().all(|worker| worker.is_ready)
                {
                    self.came_up();
                } else if until <= now {
                    self.break_down(now);
                }
            }
            Life::Leaving(until) => self.leave_on(now, until),
            Life::Away(_) | Life::Up | Life::Breaking | Life::Done => {}
        }
        if self.life == Life::Up {
            self.work(now);
        }
        for (index, worker) in self.workers.iter_mut().enumerate() {
            if !worker.transmit().is_empty() {
                self.to_send.push(ConnId(index as u32 + 1));
            }
        }
        if let Some(violation) = self.workers.iter_mut().find_map(|worker| worker.violation.take()) {
            self.violated(now, &violation);
        }
    }

    fn came_up(&mut self) {
        self.life = Life::Up;
        // A new session of an ISID ends the old one with its tasks (RFC 7143 §6.3.5); so does a login of a Fibre
        // Channel port.
        if self.replaces_sessions() {
            let board = &mut *self.board.borrow_mut();
            board.register.host_is_new(self.character.host);
            board.fence.over(|(host, _)| host == self.character.host);
        }
    }

    fn replaces_sessions(&self) -> bool {
        matches!(self.endpoint.unit.protocol(), Some(Protocol::Iscsi | Protocol::Fcp | Protocol::FcNvme))
    }

    fn work(&mut self, now: Instant) {
        let phase = self.board.borrow().phase;
        if !self.character.cluster.is_empty() && self.keeps_membership(now, phase) {
            return;
        }
        match phase {
            Phase::Safety => {
                let zeroes = !self.endpoint.unit.protocol().is_some_and(is_of_files);
                for worker in &mut self.workers {
                    worker.do_anything(now, &mut self.random, &self.board, self.character.pause, zeroes);
                }
            }
            Phase::Liveness => {
                let sectors = self.board.borrow().register.sectors();
                let worker = &mut self.workers[0];
                if !self.flushed
                    && let Some(flushed) = worker.flush_alone(now, &self.board)
                {
                    self.flushed = flushed;
                }
                if self.flushed && worker.look(now, &self.board, &mut self.looked) && self.looked >= sectors {
                    self.leave(now);
                }
            }
        }
    }

    /// Registers workers and reserves the unit before any other I/O. Returns true while any worker is not registered.
    fn keeps_membership(&mut self, now: Instant, phase: Phase) -> bool {
        let mut registers = false;
        for worker in self.workers.iter_mut().filter(|worker| !worker.is_member) {
            worker.register(now, &self.board);
            registers = true;
        }
        if registers || phase == Phase::Liveness {
            return registers;
        }
        let which = self.random.below(self.workers.len() as u64) as usize;
        let others: Vec<usize> =
            self.character.cluster.iter().copied().filter(|host| *host != self.character.host).collect();
        if !self.board.borrow().fence.is_held() {
            if self.random.below(HOLDS_ONCE_IN) == 0 {
                self.workers[which].reserve(now, None, &self.board);
            }
        } else if !others.is_empty() && self.random.below(PREEMPTS_ONCE_IN) == 0 {
            let other = others[self.random.below(others.len() as u64) as usize];
            self.workers[which].reserve(now, Some(other), &self.board);
        }
        false
    }

    fn leave(&mut self, now: Instant) {
        if self.workers.iter().any(|worker| worker.under_way() > 0) {
            return;
        }
        for worker in &mut self.workers {
            let (under_way, credits) = (worker.under_way(), worker.credits());
            if under_way != 0 || credits == 0 {
                self.board
                    .borrow_mut()
                    .find(format!("{under_way} tags and {credits} credits are left of an idle session"));
            }
            worker.close(now);
        }
        self.life = Life::Leaving(now + CLOSE_TIME);
    }

    fn leave_on(&mut self, now: Instant, until: Instant) {
        if until <= now {
            self.board.borrow_mut().find("an orderly end did not come");
            return self.break_down(now);
        }
        for index in 0..self.workers.len() {
            if self.workers[index].closed && !std::mem::replace(&mut self.workers[index].told, true) {
                self.close(ConnId(index as u32 + 1));
            }
        }
        if self.workers.iter().all(|worker| worker.closed)
            && let Some(control) = &mut self.control
            && !std::mem::replace(&mut self.control_closing, true)
        {
            control.close(now);
            self.step_control(now);
        }
        if self.workers.iter().all(|worker| worker.closed)
            && self.control.is_none()
            && self.open.iter().all(Option::is_none)
        {
            self.life = Life::Done;
        }
    }
}

impl Node for Agent {
    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Received { conn: CONTROL, bytes } => {
                if let Some(Err(violation)) = self.control.as_mut().map(|control| control.receive(now, bytes)) {
                    self.violated(now, &violation);
                }
            }
            Input::Received { conn, bytes } => {
                if let Some(worker) = self.workers.get_mut(conn.0 as usize - 1) {
                    worker.receive(now, bytes, &self.board);
                }
            }
            Input::Closed { conn, .. } => self.closed(now, conn),
            Input::Timer => {
                let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
                for worker in &mut self.workers {
                    worker.timer(now, &self.board);
                }
                if let Some(control) = self.control.as_mut().filter(|control| due(control.poll_timeout()))
                    && let Err(violation) = control.handle_timeout(now)
                {
                    self.violated(now, &violation);
                }
            }
            Input::Connected { .. }
            | Input::Accepted { .. }
            | Input::Placed { .. }
            | Input::DiskDone { .. }
            | Input::Woken => {}
        }
        self.advance(now);
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_transmit(&mut self) -> Option<ConnId> {
        self.to_send.pop()
    }

    fn transmit(&mut self, conn: ConnId) -> Option<&mut Transmit> {
        match (conn.0 as usize).checked_sub(1) {
            Some(index) => Some(self.workers.get_mut(index)?.transmit()),
            None if self.control_next.is_some() => None,
            None => Some(self.control.as_mut()?.transmit()),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let own = match self.life {
            Life::Away(until) | Life::Opening(until) | Life::Leaving(until) => Some(until),
            Life::Up | Life::Breaking | Life::Done => None,
        };
        let control = self.control.as_ref().and_then(|control| control.poll_timeout());
        let members = self.character.cluster.is_empty() || self.workers.iter().all(|worker| worker.is_member);
        let safety = members && self.life == Life::Up && self.board.borrow().phase == Phase::Safety;
        let workers = self.workers.iter().filter_map(|worker| worker.next_due(safety));
        own.into_iter().chain(control).chain(workers).min()
    }

    fn is_finished(&self) -> bool {
        self.is_done()
    }
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.standing())
    }
}
