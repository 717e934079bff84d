//! Processors of the hosts: threads take turns on the cores of their machine, and their work takes time.
//!
//! A thread with work waits for a core. It then takes all work that has arrived in one turn. Its replies leave when the
//! work before them in the turn is done. A thread without work sleeps. Waking it costs CPU time, more after a longer
//! sleep, and takes an additional delay in which no core is used. Work that arrives meanwhile is handled in the same
//! turn.

use std::{collections::VecDeque, time::Duration};

use iotax_proto::Instant;

use super::{Event, HostId, World, receive::Receive, stretch::Stretch};
use crate::link::Frames;

/// Costs of a thread's work, nanoseconds of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Waking it from sleep.
    pub wake: Wake,
    /// A turn, whatever is done in it.
    pub turn_ns: u64,
    /// Sending what one connection has, whatever its size.
    pub send_ns: u64,
    /// Each KiB received.
    pub kib_ns: u64,
    /// Each KiB sent.
    pub kib_sent_ns: u64,
    /// Each segment or frame received or sent, if the link has them.
    pub segment_ns: u64,
    /// Variation of turns: standard deviation of their times, in percent of their cost; 0 to 100.
    pub turn_cv_percent: u32,
}

/// Work of a machine's threads so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    pub spent_ns: u64,
    pub wakes: u64,
    /// Sum of how deep the woken threads slept: 1000 for each whose wake cost the maximum.
    pub wakes_deep_permille: u64,
    pub turns: u64,
    pub sends: u64,
    /// Bytes received and sent, and their segments.
    pub bytes: u64,
    pub segments: u64,
    /// The part of the bytes that was sent.
    pub sent_bytes: u64,
}

impl Work {
    /// The sum of two machines.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            spent_ns: self.spent_ns + other.spent_ns,
            wakes: self.wakes + other.wakes,
            wakes_deep_permille: self.wakes_deep_permille + other.wakes_deep_permille,
            turns: self.turns + other.turns,
            sends: self.sends + other.sends,
            bytes: self.bytes + other.bytes,
            segments: self.segments + other.segments,
            sent_bytes: self.sent_bytes + other.sent_bytes,
        }
    }

    /// The work since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            spent_ns: self.spent_ns - before.spent_ns,
            wakes: self.wakes - before.wakes,
            wakes_deep_permille: self.wakes_deep_permille - before.wakes_deep_permille,
            turns: self.turns - before.turns,
            sends: self.sends - before.sends,
            bytes: self.bytes - before.bytes,
            segments: self.segments - before.segments,
            sent_bytes: self.sent_bytes - before.sent_bytes,
        }
    }
}

/// CPU time that the I/Os of a node have cost in addition so far, nanoseconds.
pub type WorkAsked = Box<dyn Fn() -> u64>;

#[derive(Debug)]
pub(super) struct Machine {
    cores: usize,
    busy: usize,
    /// Threads with work that wait for a core.
    ready: VecDeque<usize>,
    /// Work of all its threads.
    work: Work,
}

pub(super) struct Thread {
    machine: usize,
    costs: Costs,
    stretch: Stretch,
    asked: WorkAsked,
    asked_before_ns: u64,
    /// Events that wait for an interrupt; events that arrived since its turn began; and events of its turn.
    held: Vec<Event>,
    waiting: Vec<Event>,
    taken: Vec<Event>,
    state: State,
    /// It is to be woken after a sleep of this length.
    slept: Option<Duration>,
    asleep_since: Instant,
    /// How far its turn has got.
    until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asleep,
    Ready,
    /// On a core, waking up.
    Waking,
    /// On a core, processing what it received.
    Receiving,
    /// The same, in the instant in which its node is called.
    Working,
    Ending,
}

impl World {
    /// Adds cores that threads of several hosts may share. Returns the machine's number.
    pub fn add_machine(&mut self, cores: usize) -> usize {
        self.machines.push(Machine { cores, busy: 0, ready: VecDeque::new(), work: Work::default() });
        self.machines.len() - 1
    }

    /// Runs a host's work on a machine, at a cost. Otherwise it takes no time.
    pub fn run_on(&mut self, host: HostId, machine: usize, costs: Costs, asked: WorkAsked) {
        let asked_before_ns = asked();
        self.hosts[host.0].thread = Some(Thread {
            machine,
            costs,
            stretch: Stretch::new(self.seed, host.0, costs.turn_cv_percent),
            asked,
            asked_before_ns,
            held: Vec::new(),
            waiting: Vec::new(),
            taken: Vec::new(),
            state: State::Asleep,
            slept: None,
            asleep_since: Instant(0),
            until: self.now,
        });
    }

    /// Work of a machine so far. A turn counts as soon as it begins, as far as its cost is known.
    pub fn work(&self, machine: usize) -> Work {
        self.machines[machine].work
    }

    /// The thread whose work an event is, if that takes time.
    pub(super) fn thread_of(&mut self, event: &Event) -> Option<usize> {
        let host = match event {
            Event::Timer { host, life, at } => self.is_due(*host, *life, *at).then_some(*host)?,
            Event::Disk { host, .. } | Event::Forward { host, .. } => *host,
            Event::Arrive { pipe, to, .. } => self.pipe(*pipe)?.end(*to).host,
            _ => return None,
        };
        self.hosts.get(host)?.thread.is_some().then_some(host)
    }

    /// Gives work to a thread, or to the adapter that will interrupt it.
    pub(super) fn queue(&mut self, host: usize, event: Event) {
        let coalesce = self.nics[self.hosts[host].nic].link.coalesce;
        if coalesce.is_zero() || !matches!(event, Event::Arrive { .. } | Event::Forward { .. }) {
            return self.come(host, event);
        }
        let Some(thread) = &mut self.hosts[host].thread else { return };
        thread.held.push(event);
        if thread.held.len() == 1 {
            self.events.push(self.now + coalesce, Event::Interrupt { host });
        }
    }

    pub(super) fn interrupt(&mut self, host: usize) {
        let Some(thread) = &mut self.hosts[host].thread else { return };
        let mut held = std::mem::take(&mut thread.held);
        for event in held.drain(..) {
            self.come(host, event);
        }
        if let Some(thread) = &mut self.hosts[host].thread {
            thread.held = held;
        }
    }

    fn come(&mut self, host: usize, event: Event) {
        let now = self.now;
        let Some(thread) = &mut self.hosts[host].thread else { return };
        thread.waiting.push(event);
        if thread.state == State::Asleep {
            let machine = thread.machine;
            (thread.state, thread.slept) = (State::Ready, Some(now.since(thread.asleep_since)));
            self.machines[machine].ready.push_back(host);
            self.give_cores(machine);
        }
    }

    fn give_cores(&mut self, machine: usize) {
        loop {
            let cores = &mut self.machines[machine];
            if cores.busy == cores.cores {
                break;
            }
            let Some(host) = cores.ready.pop_front() else { break };
            cores.busy += 1;
            self.begin_turn(host);
        }
    }

    fn begin_turn(&mut self, host: usize) {
        let Some(thread) = &mut self.hosts[host].thread else { return };
        let Some(slept) = thread.slept.take() else { return self.receive(host) };
        let waking = thread.costs.wake.after(slept);
        let work = &mut self.machines[thread.machine].work;
        work.wakes += 1;
        work.wakes_deep_permille += waking.deep_permille;
        work.spent_ns += waking.cost_ns;
        thread.state = State::Waking;
        self.events.push(self.now + Duration::from_nanos(waking.cost_ns + waking.delay_ns), Event::Awake { host });
    }

    /// The thread takes the work that has arrived by now.
    pub(super) fn receive(&mut self, host: usize) {
        let Some(thread) = &mut self.hosts[host].thread else { return };
        std::mem::swap(&mut thread.taken, &mut thread.waiting);
        thread.state = State::Receiving;
        thread.stretch.begin();
        let cost_ns = thread.stretch.of(thread.costs.turn_ns);
        let work = &mut self.machines[thread.machine].work;
        work.turns += 1;
        work.spent_ns += cost_ns;
        self.events.push(self.now + Duration::from_nanos(cost_ns), Event::Turn { host });
    }

    /// Gives what arrived to the node, one receive after another, and sends its replies.
    pub(super) fn turn(&mut self, host: usize) {
        let now = self.now;
        let Some(thread) = &mut self.hosts[host].thread else { return };
        (thread.state, thread.until) = (State::Working, now);
        let mut taken = std::mem::take(&mut thread.taken);
        let (mut receive, mut waited) = (Receive::default(), false);
        let mut events = taken.drain(..).peekable();
        while let Some(event) = events.next() {
            self.receives_more = receive.goes_on(&event, events.peek());
            waited |= self.receives_more;
            if let Event::Arrive { bytes, .. } = event {
                self.charge_received(host, bytes as usize);
            }
            self.happen(event);
        }
        drop(events);
        if waited {
            // The rest of a receive may find its connection gone, or a node that accepts no more. Replies that are due
            // must leave anyway.
            self.settle_host(host);
        }
        let Some(thread) = &mut self.hosts[host].thread else { return };
        (thread.state, thread.taken) = (State::Ending, taken);
        let until = thread.until;
        self.machines[thread.machine].work.spent_ns += until.0 - now.0;
        self.events.push(until, Event::TurnEnds { host });
    }

    pub(super) fn turn_ends(&mut self, host: usize) {
        let now = self.now;
        let Some(thread) = &mut self.hosts[host].thread else { return };
        let machine = thread.machine;
        self.machines[machine].busy -= 1;
        if thread.waiting.is_empty() {
            (thread.state, thread.asleep_since) = (State::Asleep, now);
        } else {
            thread.state = State::Ready;
            self.machines[machine].ready.push_back(host);
        }
        self.give_cores(machine);
    }

    /// How far a host's turn has got; now, if it has no turn.
    pub(super) fn work_now(&self, host: usize) -> Instant {
        match &self.hosts[host].thread {
            Some(thread) if thread.state == State::Working => thread.until,
            _ => self.now,
        }
    }

    /// Adds the CPU time of what the node did when it was called.
    pub(super) fn charge_work(&mut self, host: usize) {
        let Some(thread) = &mut self.hosts[host].thread else { return };
        let asked_ns = (thread.asked)();
        let cost_ns = asked_ns - std::mem::replace(&mut thread.asked_before_ns, asked_ns);
        self.charge(host, cost_ns);
    }

    pub(super) fn charge_send(&mut self, host: usize) {
        let Some(thread) = &self.hosts[host].thread else { return };
        let cost_ns = thread.costs.send_ns;
        self.machines[thread.machine].work.sends += 1;
        self.charge(host, cost_ns);
    }

    pub(super) fn charge_received(&mut self, host: usize, bytes: usize) {
        self.charge_moved(host, bytes, |costs| costs.kib_ns);
    }

    pub(super) fn charge_bytes(&mut self, host: usize, bytes: usize) {
        if let Some(thread) = &self.hosts[host].thread {
            self.machines[thread.machine].work.sent_bytes += bytes as u64;
        }
        self.charge_moved(host, bytes, |costs| costs.kib_sent_ns);
    }

    fn charge_moved(&mut self, host: usize, bytes: usize, kib_ns: fn(&Costs) -> u64) {
        let frames = self.nics[self.hosts[host].nic].link.frames;
        let Some(thread) = &self.hosts[host].thread else { return };
        let work = &mut self.machines[thread.machine].work;
        let cost_ns = thread.costs.of_bytes(bytes, kib_ns(&thread.costs), frames, work);
        self.charge(host, cost_ns);
    }

    /// Charges CPU time. Outside a turn, e.g. when a window opens, it takes a core's time without delaying anything.
    pub(super) fn charge(&mut self, host: usize, cost_ns: u64) {
        let Some(thread) = &mut self.hosts[host].thread else { return };
        if thread.state == State::Working {
            thread.until = Instant(thread.until.0 + thread.stretch.of(cost_ns));
        } else {
            self.machines[thread.machine].work.spent_ns += cost_ns;
        }
    }
}

impl Costs {
    /// The cost of these bytes, which it also adds to `work`.
    fn of_bytes(&self, bytes: usize, kib_ns: u64, frames: Option<Frames>, work: &mut Work) -> u64 {
        let segments = frames.map_or(0, |frames| frames.of(bytes));
        work.bytes += bytes as u64;
        work.segments += segments;
        bytes as u64 * kib_ns / 1024 + segments * self.segment_ns
    }
}

/// Waking from a longer sleep costs no more. Among 10, 30 and 50 µs this value fits best the costs of threads that took
/// turns over loopback sockets (docs/guide/simulator.md).
const DEEP: Duration = Duration::from_micros(30);

/// Cost of waking a thread. Between no sleep and `DEEP`, it grows linearly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wake {
    /// CPU time after a sleep of `DEEP` or longer.
    pub deep_ns: u64,
    /// CPU time if the thread has just fallen asleep.
    pub short_ns: u64,
    /// Additional delay without CPU use after a sleep of `DEEP` or longer; 0 if it has just fallen asleep.
    pub delay_ns: u64,
}

/// The cost of one wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waking {
    pub(super) cost_ns: u64,
    pub(super) delay_ns: u64,
    /// How deep the thread slept.
    pub(super) deep_permille: u64,
}

impl Wake {
    /// The same cost after any sleep.
    #[must_use]
    pub fn always(cost_ns: u64) -> Self {
        Self { deep_ns: cost_ns, short_ns: cost_ns, delay_ns: 0 }
    }

    pub(super) fn after(&self, slept: Duration) -> Waking {
        let deep_permille = (slept.as_nanos() * 1000 / DEEP.as_nanos()).min(1000) as u64;
        let cost_ns = (self.short_ns * (1000 - deep_permille) + self.deep_ns * deep_permille) / 1000;
        Waking { cost_ns, delay_ns: self.delay_ns * deep_permille / 1000, deep_permille }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waking_costs_more_the_longer_a_thread_slept_up_to_a_point() {
        let wake = Wake { deep_ns: 20_000, short_ns: 8_000, delay_ns: 6_000 };
        let after = |slept| {
            let waking = wake.after(slept);
            (waking.cost_ns, waking.delay_ns, waking.deep_permille)
        };
        assert_eq!(after(Duration::ZERO), (8_000, 0, 0));
        assert_eq!(after(DEEP / 2), (14_000, 3_000, 500));
        assert_eq!(after(DEEP), (20_000, 6_000, 1000));
        assert_eq!(after(DEEP * 1000), after(DEEP));
    }
}
