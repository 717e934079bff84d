//! A trial: the world of one seed, with clients and a server, first with faults and then without, and the findings of
//! the checkers.

use std::{cell::RefCell, net::IpAddr, rc::Rc, time::Duration};

use iotax_node::{Input, Protocol, ServerNode, seeded::SeededRng};

use crate::{
    agent::{Agent, Character},
    board::{Board, Counts, Phase, SharedBoard},
    disk::{Disk, Media, SECTOR},
    link::{Frames, Link, Side},
    names::{self, Names},
    options::{Canary, Fault, Options},
    server::{Exporter, Store, Volume},
    world::{HostId, World, WorldStep},
};

const SIZE: usize = 256 << 10;
/// Maximum virtual time of the safety phase.
const SAFETY_TIME: Duration = Duration::from_secs(400);
/// After faults stop, all clients must be done within this time.
const LIVENESS_TIME: Duration = Duration::from_secs(120);
/// Then the server must have nothing left of any client within this time.
const QUIET_TIME: Duration = Duration::from_secs(10);
/// Maximum number of events of a trial; more of them mean that it never ends.
const EVENTS_MAX: u64 = 3_000_000;
/// Port of the client that changes names.
const NAMES_PORT: u16 = 700;
/// An afternoon in November 2026.
const STARTED_UNIX_NS: u64 = 1_795_000_000_000_000_000;

/// The result of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub findings: Vec<String>,
    /// Equal if the same events happened at the same times.
    pub trace: u64,
    pub events: u64,
    pub counts: Counts,
    pub faults: u64,
    pub virtual_ns: u64,
}

/// Runs a trial to its end.
pub fn run(options: &Options) -> Report {
    let mut trial = Trial::new(options);
    trial.safety();
    trial.liveness();
    trial.end()
}

struct Trial<'a> {
    options: &'a Options,
    world: World,
    board: SharedBoard,
    server: Exporter,
    server_is_up: bool,
    disk: Option<usize>,
    links: [usize; 2],
    agents: Vec<(HostId, Rc<RefCell<Agent>>)>,
    names: Option<(HostId, Rc<RefCell<Names>>)>,
    /// One for each fault, so that faults do not influence each other's random numbers.
    random: Vec<SeededRng>,
    /// Connections whose remaining disk operations may still end; see `EXPIRE`.
    expiring: Vec<(usize, u64)>,
    longest: Duration,
    faults: u64,
    events: u64,
}

/// Numbers of scheduled calls.
const RESTART: u64 = 1_000;
const AGENT_BACK: u64 = 2_000;
const EXPIRE: u64 = 1_000_000;

impl<'a> Trial<'a> {
    fn new(options: &'a Options) -> Self {
        let mut world = World::new(options.seed);
        let mut random = SeededRng::new(options.seed, "trial", 0);
        let link = Link {
            latency: Duration::from_micros(5 + random.below(200)),
            rate_bytes_per_s: [None, Some(125_000_000), Some(1_250_000_000)][random.below(3) as usize],
            window_bytes: [4096, 65_536, 1 << 20][random.below(3) as usize],
            piece_bytes: [16, 200, 1460, 9000][random.below(4) as usize],
            splits: true,
            frames: None,
            credits: None,
            coalesce: Duration::ZERO,
            loss: None,
        };
        let link = if options.has(Fault::Split) { link } else { Link { piece_bytes: 32 << 10, splits: false, ..link } };
        let links = [world.add_link(link.clone()), world.add_link(link)];
        let disk = (options.block_size > 0).then(|| {
            let mut media = Media {
                errors: if options.has(Fault::MediaError) { 30 } else { 0 },
                full: if options.has(Fault::DiskFull) { 50 } else { 0 },
                ..Media::default()
            };
            if options.has(Fault::SlowMedia) {
                media.model.slow_chance = 30;
                media.model.slow = Duration::from_millis(1 + random.below(3_000));
            }
            world.add_disk(Disk::new(SIZE, media, options.seed))
        });
        let longest = disk.map_or(Duration::ZERO, |disk| world.disk_mut(disk).longest());
        let store = disk.map_or(Store::Memory, |disk| Store::Disk { disk, block_size: options.block_size });
        let delay_ns = if random.below(4) == 0 { random.below(300_000) } else { 0 };
        let volume = Volume { size_bytes: SIZE as u64, store, delay_ns, burn_ns: 0 };
        let threads = options.threads as usize;
        let server = Exporter::start(&mut world, links[1], options.protocol, volume, threads, STARTED_UNIX_NS);
        let board = Board::new(SIZE / SECTOR, disk.is_none());
        board.borrow_mut().registers_hosts = matches!(options.protocol, Protocol::NvmeTcp | Protocol::FcNvme);
        let mut agents = Vec::new();
        let cluster: Vec<usize> = (0..options.agents as usize).map(|index| server.hosts.len() + index).collect();
        for index in 0..options.agents {
            let character = Character {
                host: server.hosts.len() + index as usize,
                workers: options.workers,
                depth: options.depth,
                pause: Duration::from_micros(50 + random.below(2_000)),
                seed: options.seed,
                cluster: if options.reserves { cluster.clone() } else { Vec::new() },
            };
            let agent = Agent::new(character, server.endpoint(0), Rc::clone(&board));
            let agent = Rc::new(RefCell::new(agent));
            let host = world.add_host(agent.clone(), IpAddr::from([10, 2, 0, index as u8]), None, links[0], Vec::new());
            world.settle(host);
            agents.push((host, agent));
        }
        let names = options.names.then(|| {
            let forgets = options.canary == Some(Canary::ForgottenCall);
            let speech = names::speech(options.protocol);
            let node = Names::new(server.address(), Rc::clone(&board), options.seed, speech, forgets);
            let node = Rc::new(RefCell::new(node));
            // Over NFSv3, the server recognizes resent calls by the client's address and port.
            let port = Some(NAMES_PORT);
            let host = world.add_host(node.clone(), IpAddr::from([10, 3, 0, 1]), port, links[0], Vec::new());
            world.settle(host);
            (host, node)
        });
        match options.canary {
            Some(Canary::DroppedFlush) => world.flushes_dropped = 300,
            Some(Canary::WrongTag) => world.reads_swapped = 50,
            Some(Canary::StaleReservation) => board.borrow_mut().forgets_preemptions = true,
            Some(Canary::ForgottenCall) | None => {}
        }
        let mut trial = Self {
            options,
            world,
            board,
            server,
            server_is_up: true,
            disk,
            links,
            agents,
            names,
            random: (0..Fault::ALL.len() as u64).map(|fault| SeededRng::new(options.seed, "fault", fault)).collect(),
            expiring: Vec::new(),
            longest,
            faults: 0,
            events: 0,
        };
        for (index, _) in Fault::ALL.iter().enumerate() {
            trial.plan(index);
        }
        trial
    }

    // ---------------------------------------------------------------------------------------------------------- phases

    fn safety(&mut self) {
        let limit = self.world.now() + SAFETY_TIME;
        while self.world.now() < limit && self.board.borrow().counts.submitted < self.options.commands {
            if !self.step() {
                break;
            }
        }
    }

    fn liveness(&mut self) {
        self.board.borrow_mut().phase = Phase::Liveness;
        for link in self.links {
            let link = self.world.link_mut(link);
            (link.piece_bytes, link.splits) = (32 << 10, false);
            (link.window_bytes, link.credits) = (link.window_bytes.max(4096), None);
        }
        if let Some(disk) = self.disk {
            self.world.disk_mut(disk).media = Media::default();
        }
        if !self.server_is_up {
            self.restart_server();
        }
        for index in 0..self.agents.len() {
            self.agent_back(index);
        }
        self.world.heal();
        let limit = self.world.now() + LIVENESS_TIME;
        let hosts = self.agents.iter().map(|(host, _)| *host);
        for host in hosts.chain(self.names.as_ref().map(|(host, _)| *host)).collect::<Vec<_>>() {
            self.world.tell(host, Input::Timer);
        }
        while !self.all_are_done() && self.world.now() < limit && self.step() {}
        if !self.board.borrow().findings.is_empty() {
            return;
        }
        let names = self.names.as_ref().map(|(_, names)| names.borrow());
        for names in names.iter().filter(|names| !names.is_done()) {
            self.board.borrow_mut().find(format!("{LIVENESS_TIME:?} after the last fault, {}", names.standing()));
        }
        for (_, agent) in self.agents.iter().filter(|(_, agent)| !agent.borrow().is_done()) {
            let standing = agent.borrow().standing();
            self.board.borrow_mut().find(format!("{LIVENESS_TIME:?} after the last fault, {standing}"));
        }
    }

    fn all_are_done(&self) -> bool {
        let names = self.names.as_ref().is_none_or(|(_, names)| names.borrow().is_done());
        names && self.agents.iter().all(|(_, agent)| agent.borrow().is_done())
    }

    fn end(mut self) -> Report {
        let limit = self.world.now() + QUIET_TIME;
        let count = |of: fn(&ServerNode) -> usize, server: &Exporter| {
            server.nodes().iter().map(|node| of(&node.borrow())).sum::<usize>()
        };
        let open = |server: &Exporter| count(ServerNode::connections, server);
        let operations = |server: &Exporter| count(ServerNode::operations, server);
        while open(&self.server) + operations(&self.server) > 0 && self.world.now() < limit && self.step() {}
        let mut board = self.board.borrow_mut();
        if board.findings.is_empty() {
            let left = open(&self.server);
            if left > 0 {
                board.find(format!("{left} connections are left at the server, whose clients have gone"));
            }
            let counts = board.counts;
            if counts.submitted != counts.done + counts.failed + counts.lost + counts.fenced {
                board.find(format!("commands were begun and not ended, or ended twice: {counts:?}"));
            }
            let given = self.disk.map_or(0, |disk| {
                let disk = self.world.disk_mut(disk);
                disk.errors_given + disk.full_given
            });
            if counts.failed > given {
                board.find(format!("{} commands failed, and the disk gave {given} errors", counts.failed));
            }
            let operations = operations(&self.server);
            if left == 0 && operations > 0 {
                board.find(format!("{operations} operations are left at the server, and no connection"));
            }
        }
        let (findings, counts) = (std::mem::take(&mut board.findings), board.counts);
        drop(board);
        Report {
            findings,
            trace: self.world.trace.hash(),
            events: self.events,
            counts,
            faults: self.faults,
            virtual_ns: self.world.now().0,
        }
    }

    /// Executes one event. Returns false if there is none, or if there are findings.
    fn step(&mut self) -> bool {
        self.events += 1;
        if self.events > EVENTS_MAX {
            self.board.borrow_mut().find(format!("{EVENTS_MAX} events, and no end"));
            return false;
        }
        match self.world.step() {
            Some(WorldStep::Happened) => {}
            Some(WorldStep::Call(number)) => self.called(number),
            None => return false,
        }
        for (host, connect) in self.world.take_left() {
            self.expiring.push((host.0, connect));
            let number = EXPIRE + self.expiring.len() as u64 - 1;
            self.world.call_at(self.world.now() + self.longest, number);
        }
        self.read_notices();
        self.board.borrow().findings.is_empty()
    }

    fn called(&mut self, number: u64) {
        match number {
            EXPIRE.. => {
                let connection = self.expiring[(number - EXPIRE) as usize];
                let board = &mut *self.board.borrow_mut();
                board.register.connection_is_over(connection);
                board.fence.over(|lost| lost == connection);
            }
            AGENT_BACK.. => self.agent_back((number - AGENT_BACK) as usize),
            RESTART => self.restart_server(),
            fault => {
                if self.board.borrow().phase == Phase::Safety {
                    self.strike(fault as usize);
                    self.plan(fault as usize);
                }
            }
        }
    }

    /// The server reports why it ended a connection. The reason must never be a protocol violation by a client.
    fn read_notices(&mut self) {
        for node in self.server.nodes() {
            while let Some(notice) = node.borrow_mut().poll_notice() {
                let broken = ["Malformed", "Misbehaved", "Unsupported"];
                // The host cannot know yet that its admin queue is gone.
                let is_excused =
                    notice.text.ends_with("the controller was reset or has ended, and with it its I/O queues");
                if broken.iter().any(|kind| notice.text.starts_with(kind)) && !is_excused {
                    self.board.borrow_mut().find(format!("the server says of {}: {}", notice.peer, notice.text));
                }
            }
        }
    }

    // ---------------------------------------------------------------------------------------------------------- faults

    /// Schedules the next fault of this kind.
    fn plan(&mut self, index: usize) {
        let (fault, _) = Fault::ALL[index];
        let mean_ms = match fault {
            Fault::Split | Fault::MediaError | Fault::SlowMedia | Fault::DiskFull => return,
            Fault::PathFlap => 50,
            Fault::Reset | Fault::HalfClose => 30,
            Fault::Stall | Fault::ClockStep => 60,
            Fault::Vanish | Fault::InitiatorCrash => 80,
            Fault::Crash | Fault::PowerLoss | Fault::LoginStorm | Fault::Starve => 100,
        };
        if self.options.has(fault) {
            let after = Duration::from_nanos(self.random[index].below(2 * mean_ms * 1_000_000));
            self.world.call_at(self.world.now() + after, index as u64);
        }
    }

    fn strike(&mut self, index: usize) {
        let (fault, _) = Fault::ALL[index];
        self.faults += 1;
        let random = &mut self.random[index];
        let mut some = |bound_us: u64| Duration::from_micros(random.below(bound_us));
        match fault {
            Fault::Split | Fault::MediaError | Fault::SlowMedia | Fault::DiskFull => {}
            Fault::LoginStorm => {
                for pipe in self.world.connections() {
                    self.world.reset(pipe, [some(1_000), some(1_000)]);
                }
            }
            Fault::PathFlap => {
                let away = some(20_000);
                for pipe in self.world.connections() {
                    for side in Side::BOTH {
                        self.world.stall(pipe, side, away);
                    }
                }
            }
            Fault::Starve => {
                // From now on, each flow may have at most this many bytes and one piece in flight, and each Fibre
                // Channel port this many frames. The next fault of this kind changes that.
                let window_bytes = [1, 100, 4096, 65_536][self.random[index].below(4) as usize];
                let credits = [Some(1), Some(2), Some(8), None][self.random[index].below(4) as usize];
                let has_credits = matches!(self.options.protocol, Protocol::Fcp | Protocol::FcNvme);
                for link in self.links {
                    let link = self.world.link_mut(link);
                    link.window_bytes = window_bytes;
                    if has_credits {
                        (link.frames, link.credits) = (Some(Frames::FIBRE_CHANNEL), credits);
                    }
                }
            }
            Fault::Crash | Fault::PowerLoss => {
                let (news, down) = (some(20_000), some(200_000));
                self.crash_server(news, down, fault == Fault::PowerLoss);
            }
            Fault::ClockStep => {
                let by = some(8_000_000);
                let hosts: Vec<_> =
                    self.agents.iter().map(|(host, _)| *host).chain(self.server.hosts.clone()).collect();
                let host = hosts[self.random[index].below(hosts.len() as u64) as usize];
                self.world.jump(host, by);
            }
            Fault::InitiatorCrash => {
                let (news, down) = (some(30_000_000), some(100_000));
                let which = self.random[index].below(self.agents.len() as u64) as usize;
                let (host, agent) = &self.agents[which];
                agent.borrow_mut().crash(self.world.now());
                self.world.crash(*host, news);
                self.world.call_at(self.world.now() + down, AGENT_BACK + which as u64);
            }
            Fault::Reset | Fault::Stall | Fault::HalfClose | Fault::Vanish => {
                // A stall is either short, or longer than any timeout.
                let (soon, soon_too, late) = (some(5_000), some(5_000), some(60_000_000));
                let long = if self.random[index].below(8) == 0 { Duration::from_secs(200) } else { late / 1000 };
                let connections = self.world.connections();
                if connections.is_empty() {
                    return;
                }
                let pipe = connections[self.random[index].below(connections.len() as u64) as usize];
                let side = Side::BOTH[self.random[index].below(2) as usize];
                match fault {
                    Fault::Reset => self.world.reset(pipe, [soon, soon_too]),
                    Fault::Stall => self.world.stall(pipe, side, long),
                    Fault::HalfClose => self.world.half_close(pipe, side),
                    _ => self.world.reset(pipe, [soon, late]),
                }
            }
        }
    }

    fn crash_server(&mut self, news: Duration, down: Duration, power: bool) {
        if !self.server_is_up {
            return;
        }
        self.server_is_up = false;
        for host in self.server.hosts.clone() {
            self.world.crash(host, news);
        }
        if let Some(disk) = self.disk {
            self.world.disk_mut(disk).crash(power);
        }
        let board = &mut *self.board.borrow_mut();
        board.register.crash(power);
        board.fence.server_crashed();
        if let Some((host, names)) = &self.names {
            names.borrow_mut().server_crashed();
            self.world.settle(*host);
        }
        self.world.call_at(self.world.now() + down, RESTART);
    }

    fn restart_server(&mut self) {
        if std::mem::replace(&mut self.server_is_up, true) {
            return;
        }
        // Its clock may have been set meanwhile, even backwards.
        let step_ns = self.random[0].below(7_200_000_000_000);
        let started_unix_ns = STARTED_UNIX_NS + self.world.now().0 + step_ns - 3_600_000_000_000;
        self.server.restart(&mut self.world, started_unix_ns);
    }

    fn agent_back(&mut self, index: usize) {
        let (host, agent) = self.agents[index].clone();
        self.world.come_back(host, agent);
    }
}

/// Finds the smallest options with which a trial still fails: it removes faults one by one, and then reduces everything
/// else.
pub fn minimise(options: &Options) -> Options {
    let fails = |options: &Options| !run(options).findings.is_empty();
    let mut least = options.clone();
    for fault in options.faults.clone() {
        let fewer =
            Options { faults: least.faults.iter().copied().filter(|each| *each != fault).collect(), ..least.clone() };
        if fails(&fewer) {
            least = fewer;
        }
    }
    let smaller: [fn(&mut Options); 6] = [
        |options| options.reserves = false,
        |options| options.agents = 1,
        |options| options.workers = 1,
        |options| options.depth = 1,
        |options| options.threads = 1,
        |options| options.commands /= 4,
    ];
    for make in smaller {
        let mut fewer = least.clone();
        make(&mut fewer);
        if fewer != least && fails(&fewer) {
            least = fewer;
        }
    }
    least
}
