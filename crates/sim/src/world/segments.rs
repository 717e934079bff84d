//! Streams whose segments may be lost: lost bytes arrive after they are sent again, and later bytes wait for them.

use iotax_proto::Instant;

use super::{Event, World};
use crate::{
    link::{Frames, NEVER, PipeId, Side, Way},
    tcp::{Acknowledged, Missed, Tcp},
};

/// The outcome of a send.
struct Carriage {
    /// When the bytes that are not lost arrive, and when the sender knows it.
    arrives: Instant,
    known: Instant,
    lost_bytes: usize,
    /// Segments that arrive and were sent after the first lost one.
    behind: u32,
}

impl World {
    /// TCP's state for each direction of a connection that a host makes, if its link loses anything.
    pub(super) fn tcp_of(&self, host: usize) -> Option<Box<Tcp>> {
        let link = &self.nics[self.hosts[host].nic].link;
        let segment_bytes = link.loss.and(link.frames).map(Frames::segment_bytes)?;
        Some(Box::new(Tcp::new(segment_bytes)))
    }

    /// Sends a packet that is in its queue: its bytes, and their end in the stream.
    pub(super) fn send_segments(&mut self, id: PipeId, side: Side, way: Option<Way>, (bytes, end): (usize, u64)) {
        let Some(carriage) = self.carry_segments(id, side, way, bytes) else { return };
        let arrives = self.in_order(id, side, carriage.arrives);
        let now = self.now;
        let Some(pipe) = self.pipe(id) else { return };
        let flow = pipe.flow(side);
        let packet = flow.packets.iter_mut().rev().find(|packet| packet.end == end);
        if carriage.lost_bytes == 0 {
            if let Some(packet) = packet {
                packet.due = arrives;
            }
            self.events.push(arrives, Event::Arrive { pipe: id, to: side.other(), bytes: bytes as u32 });
        } else {
            if let Some(packet) = packet {
                (packet.due, packet.is_awaited) = (NEVER, false);
            }
            self.lose(id, side, (carriage.lost_bytes, end), now);
        }
        let whole_bytes = bytes - carriage.lost_bytes;
        if whole_bytes > 0 {
            let what = Acknowledged { end, bytes: whole_bytes, behind: carriage.behind, sent_at: now };
            self.events.push(carriage.known, Event::Acknowledged { pipe: id, side, what });
        }
    }

    pub(super) fn acknowledged(&mut self, id: PipeId, side: Side, what: Acknowledged) {
        let now = self.now;
        let Some(tcp) = self.pipe(id).and_then(|pipe| pipe.flow(side).tcp.as_mut()) else { return };
        let again = tcp.acknowledged(now, what);
        let suspected: Vec<_> = tcp.suspected(now).collect();
        if let Some((end, bytes)) = again {
            self.fill(id, side, end, bytes);
        }
        for (end, due) in suspected {
            self.events.push(due, Event::Missed { pipe: id, side, end });
        }
        self.send_on(id, side);
    }

    /// Records a hole: `bytes` of the packet that ends at `end` are lost; it was sent at `sent_at`.
    pub(super) fn lose(&mut self, id: PipeId, side: Side, (bytes, end): (usize, u64), sent_at: Instant) {
        let now = self.now;
        let Some(tcp) = self.pipe(id).and_then(|pipe| pipe.flow(side).tcp.as_mut()) else { return };
        tcp.lose(end, bytes);
        let (until, asks_at) = (sent_at + tcp.timeout(), tcp.asks_at());
        self.events.push(until.max(now), Event::TimedOut { pipe: id, side, end });
        if let Some(asks_at) = asks_at {
            self.events.push(asks_at.max(now), Event::Missed { pipe: id, side, end });
        }
    }

    /// Sends a hole again if it is now considered lost before its timeout.
    pub(super) fn missed(&mut self, id: PipeId, side: Side, end: u64) {
        let now = self.now;
        let Some(tcp) = self.pipe(id).and_then(|pipe| pipe.flow(side).tcp.as_mut()) else { return };
        match tcp.missed(now, end) {
            Missed::Over => {}
            Missed::Later(due) => self.events.push(due, Event::Missed { pipe: id, side, end }),
            Missed::Send(end, bytes) => self.fill(id, side, end, bytes),
        }
    }

    /// The timeout of a hole, unless it was sent again.
    pub(super) fn timed_out(&mut self, id: PipeId, side: Side, end: u64) {
        let Some(pipe) = self.pipe(id) else { return };
        let host = pipe.end(side).host;
        let Some(bytes) = pipe.flow(side).tcp.as_mut().and_then(|tcp| tcp.timed_out(end)) else { return };
        let nic = self.hosts[host].nic;
        self.nics[nic].carried.timeouts += 1;
        self.fill(id, side, end, bytes);
    }

    pub(super) fn filled(&mut self, id: PipeId, side: Side, end: u64) {
        let Some(tcp) = self.pipe(id).and_then(|pipe| pipe.flow(side).tcp.as_mut()) else { return };
        tcp.filled(end);
        let before: Vec<_> = std::iter::from_fn(|| tcp.passed_by(end)).collect();
        for (end, bytes) in before {
            self.fill(id, side, end, bytes);
        }
        self.send_on(id, side);
    }

    /// Whether what has arrived waits for earlier lost bytes: their retransmission then delivers both.
    pub(super) fn is_held(&mut self, event: &Event) -> bool {
        let Event::Arrive { pipe, to, .. } = event else { return false };
        let now = self.now;
        let Some(pipe) = self.pipe(*pipe) else { return false };
        pipe.flow(to.other()).packets.front().is_some_and(|packet| packet.due > now)
    }

    /// Sends a hole again.
    fn fill(&mut self, id: PipeId, side: Side, end: u64, bytes: usize) {
        let way = self.next_way(id, side);
        if self.is_switched() {
            return self.ship_hole(id, side, way, (bytes, end));
        }
        let Some(carriage) = self.carry_segments(id, side, way, bytes) else { return };
        let now = self.now;
        let Some(pipe) = self.pipe(id) else { return };
        let host = pipe.end(side).host;
        let flow = pipe.flow(side);
        // Bytes sent later by another way do not overtake it.
        flow.arrives = flow.arrives.max(carriage.arrives);
        let Some(tcp) = &mut flow.tcp else { return };
        if carriage.lost_bytes > 0 {
            let until = now + tcp.timeout();
            return self.events.push(until, Event::TimedOut { pipe: id, side, end });
        }
        tcp.will_arrive(end);
        self.events.push(carriage.known, Event::Filled { pipe: id, side, end });
        self.charge_bytes(host, bytes);
        self.bring(id, side, end, carriage.arrives);
    }

    /// The packet that ends at `end` is complete at `whole_at`, and so are those behind it, up to the next incomplete
    /// one.
    pub(super) fn bring(&mut self, id: PipeId, side: Side, end: u64, whole_at: Instant) {
        let Some(slot) = self.pipes.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation) else {
            return;
        };
        let Some(pipe) = slot.pipe.as_mut() else { return };
        let packets = &mut pipe.flow(side).packets;
        let Some(at) = packets.iter().position(|packet| packet.end == end) else { return };
        let before = packets.iter().take(at).map(|packet| packet.due).max().unwrap_or(Instant(0));
        packets[at].due = whole_at;
        if before == NEVER {
            return;
        }
        let mut time = before;
        for packet in packets.iter_mut().skip(at).take_while(|packet| packet.due != NEVER) {
            let is_coming = std::mem::replace(&mut packet.is_awaited, true) && packet.due >= time;
            time = time.max(packet.due);
            packet.due = time;
            if !is_coming {
                let bytes = packet.bytes.len() as u32;
                self.events.push(time, Event::Arrive { pipe: id, to: side.other(), bytes });
            }
        }
    }

    /// Returns `None` if the other end does not exist yet.
    fn carry_segments(&mut self, id: PipeId, side: Side, way: Option<Way>, bytes: usize) -> Option<Carriage> {
        let pipe = self.pipe(id)?;
        let (from, to) = (pipe.end(side).host, pipe.end(side.other()).host);
        let (near, far) = self.ports(from, to, way, side);
        let far = far?;
        let link = &self.nics[near].link;
        let (per_million, segment) = (u64::from(link.loss?.per_million), link.frames?.segment_bytes());
        let now = self.work_now(from);
        let at = self.nics[near].send(now, bytes);
        let segments = bytes.div_ceil(segment);
        let fit = segments - self.nics[far].overflow(at, bytes).div_ceil(segment).min(segments);
        let (mut lost_bytes, mut lost, mut behind) = (0, 0, 0);
        for index in 0..segments {
            if index >= fit || per_million > 0 && self.random.below(1_000_000) < per_million {
                lost_bytes += segment.min(bytes - index * segment);
                lost += 1;
            } else if lost > 0 {
                behind += 1;
            }
        }
        self.nics[near].carried.lost += lost;
        let arrives = self.nics[far].receive(at, bytes - lost_bytes);
        let known = arrives + self.nics[far].link.latency;
        Some(Carriage { arrives, known, lost_bytes, behind })
    }
}
