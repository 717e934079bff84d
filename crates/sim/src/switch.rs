//! Switches between ports. Each direction of a link is a lane that sends frames one after another. A frame that arrives
//! at a switch waits there, complete, until the next lane takes it. When it has left by the next lane, its buffer is
//! returned to the lane it came by (FC-FS-5, buffer-to-buffer flow control, hop by hop). If lanes have no credits, a
//! frame that finds no room in front of one is lost.
//!
//! This module knows no connections: it reports when, and how much of, what it was given has arrived.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    time::Duration,
};

use iotax_proto::Instant;
use slab::Slab;

use crate::link::{Frames, Link, PipeId, Side, Way};

/// The switches between the ports of a fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Switches {
    /// Each link connects one port to another.
    #[default]
    None,
    /// All ports are attached to one switch.
    One,
    /// Initiators are attached to one switch and targets to the other, with a trunk between them.
    Two(Trunk),
}

/// The link between two switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trunk {
    /// Rate in each direction; `None`: that of the other links.
    pub rate_bytes_per_s: Option<u64>,
    /// Buffer-to-buffer credits of each of its ends; `None`: those of the other links.
    pub credits: Option<u32>,
}

/// To which of two switches a port is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    Initiators,
    Targets,
}

/// Usage of one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneUse {
    pub busy_ns: u64,
    /// Time with frames to send but without credits.
    pub credits_ns: u64,
    /// Segments that found no room in front of it.
    pub lost: u64,
}

impl LaneUse {
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            busy_ns: self.busy_ns - before.busy_ns,
            credits_ns: self.credits_ns - before.credits_ns,
            lost: self.lost - before.lost,
        }
    }

    /// The sum of two lanes.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            busy_ns: self.busy_ns + other.busy_ns,
            credits_ns: self.credits_ns + other.credits_ns,
            lost: self.lost + other.lost,
        }
    }
}

/// Bytes of a connection that leave a port in one send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shipment {
    pub(crate) pipe: PipeId,
    pub(crate) side: Side,
    /// Their end in the stream.
    pub(crate) end: u64,
    /// 0 for the end of the stream, which takes no time and follows all earlier bytes.
    pub(crate) bytes: usize,
    /// They were lost before and are sent again.
    pub(crate) fills: bool,
    pub(crate) sent_at: Instant,
    /// The port that they leave.
    pub(crate) from: usize,
    pub(crate) way: Way,
}

/// All of a shipment has arrived or is lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shipped {
    pub(crate) shipment: Shipment,
    pub(crate) lost_bytes: usize,
    pub(crate) lost_segments: u64,
    /// Segments that arrived and were sent after the first lost one.
    pub(crate) behind: u32,
    /// Propagation delay from end to end.
    pub(crate) latency: Duration,
}

/// An event for the switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A shipment leaves its host.
    Leaves { shipment: u32 },
    /// A frame arrives at the other end of a lane.
    Comes(Frame),
    /// A lane may send its next frame.
    Goes { lane: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    shipment: u32,
    bytes: u32,
    /// Its index in its shipment.
    index: u16,
    /// Number of lanes that it has used.
    hops: u8,
    /// Drawn at random: it is lost before the first switch.
    is_lost: bool,
}

/// The lanes of one route from port to port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    lanes: [u32; 3],
    len: u8,
}

impl Route {
    fn lanes(&self) -> &[u32] {
        &self.lanes[..usize::from(self.len)]
    }
}

#[derive(Debug)]
struct UnderWay {
    shipment: Shipment,
    route: Route,
    frames_left: u32,
    lost_bytes: usize,
    lost_segments: u64,
    first_lost: Option<u16>,
    behind: u32,
    /// Its path has failed.
    is_dead: bool,
}

#[derive(Debug)]
struct Lane {
    link: Link,
    queue: VecDeque<Frame>,
    /// Bytes in the queue, with headers and without the frame that is being sent.
    queued_bytes: u64,
    free_at: Instant,
    /// Buffers at the other end that are in use with no known time of return, and the times when others are back.
    held: u32,
    returning: BinaryHeap<Reverse<Instant>>,
    /// Since when it has had frames to send but no credit.
    starves_since: Option<Instant>,
    goes_at: Option<Instant>,
    /// Bytes of shipments on this lane that have not arrived.
    pending_bytes: u64,
    used: LaneUse,
}

#[derive(Clone, Copy, Debug)]
struct Port {
    fabric: u32,
    edge: Edge,
    /// Lanes to the switch, and from it.
    up: u32,
    down: u32,
}

/// All fabrics of a world.
#[derive(Debug, Default)]
pub(crate) struct Switching {
    lanes: Vec<Lane>,
    /// Ports, by their numbers in the world.
    ports: Vec<Option<Port>>,
    /// The trunk's lanes, to the targets and back.
    fabrics: Vec<Option<[u32; 2]>>,
    under_way: Slab<UnderWay>,
    /// Events to be scheduled, until they are taken.
    pub(crate) steps: Vec<(Instant, Step)>,
}

impl Switching {
    // ---------------------------------------------------------------------------------------------------- construction

    /// Adds one switch, or two with a trunk if its link is given. Returns the fabric's number.
    pub(crate) fn add_fabric(&mut self, trunk: Option<Link>) -> usize {
        let trunk = trunk.map(|link| [0; 2].map(|_| self.add_lane(link.clone())));
        self.fabrics.push(trunk);
        self.fabrics.len() - 1
    }

    pub(crate) fn attach(&mut self, fabric: usize, edge: Edge, port: usize, link: &Link) {
        assert!(fabric < self.fabrics.len(), "a fabric of this world");
        let (up, down) = (self.add_lane(link.clone()), self.add_lane(link.clone()));
        if port >= self.ports.len() {
            self.ports.resize(port + 1, None);
        }
        self.ports[port] = Some(Port { fabric: fabric as u32, edge, up, down });
    }

    fn add_lane(&mut self, link: Link) -> u32 {
        self.lanes.push(Lane {
            link,
            queue: VecDeque::new(),
            queued_bytes: 0,
            free_at: Instant(0),
            held: 0,
            returning: BinaryHeap::new(),
            starves_since: None,
            goes_at: None,
            pending_bytes: 0,
            used: LaneUse::default(),
        });
        self.lanes.len() as u32 - 1
    }

    /// Whether any port is attached to a switch; then all are.
    pub(crate) fn is_used(&self) -> bool {
        !self.ports.is_empty()
    }

    /// Returns `None` if the ports are attached to different fabrics, or to none.
    pub(crate) fn route(&self, from: usize, to: usize) -> Option<Route> {
        let (from, to) = (self.port(from)?, self.port(to)?);
        if from.fabric != to.fabric {
            return None;
        }
        let trunk = self.fabrics[from.fabric as usize].filter(|_| from.edge != to.edge);
        Some(match trunk {
            Some([out, back]) => {
                let between = if from.edge == Edge::Initiators { out } else { back };
                Route { lanes: [from.up, between, to.down], len: 3 }
            }
            None => Route { lanes: [from.up, to.down, 0], len: 2 },
        })
    }

    fn port(&self, port: usize) -> Option<Port> {
        self.ports.get(port).copied().flatten()
    }

    pub(crate) fn latency(&self, route: Route) -> Duration {
        route.lanes().iter().map(|lane| self.lanes[*lane as usize].link.latency).sum()
    }

    // ----------------------------------------------------------------------------------------------------------- usage

    /// Usage of a port so far: sent and received.
    pub(crate) fn used_by(&self, port: usize, now: Instant) -> Option<[LaneUse; 2]> {
        self.port(port).map(|port| [port.up, port.down].map(|lane| self.used(lane, now)))
    }

    /// Usage of a fabric's trunk so far, to the targets and back; `None` without a trunk.
    pub(crate) fn trunk_used(&self, fabric: usize, now: Instant) -> Option<[LaneUse; 2]> {
        self.fabrics.get(fabric).copied().flatten().map(|lanes| lanes.map(|lane| self.used(lane, now)))
    }

    fn used(&self, lane: u32, now: Instant) -> LaneUse {
        let lane = &self.lanes[lane as usize];
        let starves_ns = lane.starves_since.map_or(0, |since| now.since(since).as_nanos() as u64);
        LaneUse { credits_ns: lane.used.credits_ns + starves_ns, ..lane.used }
    }

    /// Bytes pending on the busiest lane between two ports.
    pub(crate) fn pending_bytes(&self, from: usize, to: usize) -> u64 {
        let lanes = self.route(from, to).map(|route| route.lanes().iter().map(|lane| self.pending(*lane)).max());
        lanes.flatten().unwrap_or(0)
    }

    fn pending(&self, lane: u32) -> u64 {
        self.lanes[lane as usize].pending_bytes
    }

    // ---------------------------------------------------------------------------------------------------------- events

    /// Adds a shipment. `Step::Leaves` with the returned number must follow.
    pub(crate) fn ship(&mut self, shipment: Shipment, route: Route) -> u32 {
        for lane in route.lanes() {
            self.lanes[*lane as usize].pending_bytes += shipment.bytes as u64;
        }
        let under_way = UnderWay {
            shipment,
            route,
            frames_left: 0,
            lost_bytes: 0,
            lost_segments: 0,
            first_lost: None,
            behind: 0,
            is_dead: false,
        };
        self.under_way.insert(under_way) as u32
    }

    /// Random losses per million segments of a shipment.
    pub(crate) fn lost_per_million(&self, number: u32) -> u64 {
        let first = self.under_way.get(number as usize).map(|under_way| under_way.route.lanes[0]);
        let loss = first.and_then(|lane| self.lanes[lane as usize].link.loss);
        loss.map_or(0, |loss| u64::from(loss.per_million))
    }

    /// Divides a shipment into frames. `draws` determines for each in order whether it is lost.
    pub(crate) fn leaves(&mut self, number: u32, now: Instant, mut draws: impl FnMut() -> bool) {
        let Some(under_way) = self.under_way.get_mut(number as usize) else { return };
        let first = under_way.route.lanes[0];
        let lane = &mut self.lanes[first as usize];
        let frame_bytes = lane.link.frames.map_or(usize::MAX, Frames::segment_bytes);
        let mut left = under_way.shipment.bytes;
        loop {
            let bytes = left.min(frame_bytes);
            let index = under_way.frames_left.min(u32::from(u16::MAX)) as u16;
            let is_lost = bytes > 0 && draws();
            lane.take(Frame { shipment: number, bytes: bytes as u32, index, hops: 0, is_lost });
            under_way.frames_left += 1;
            left -= bytes;
            if left == 0 {
                break;
            }
        }
        self.go_on(first, now);
    }

    /// A frame arrives at the other end of a lane. The last frame of a shipment returns the shipment's result, unless
    /// its path has failed.
    pub(crate) fn comes(&mut self, frame: Frame, now: Instant) -> Option<Shipped> {
        let under_way = self.under_way.get(frame.shipment as usize)?;
        let lanes = under_way.route.lanes();
        let Some(next) = lanes.get(usize::from(frame.hops)).copied() else { return self.ended(frame, true) };
        let is_over = under_way.is_dead || frame.is_lost;
        let lane = &mut self.lanes[next as usize];
        if is_over || !lane.has_room(frame) {
            lane.used.lost += u64::from(!is_over);
            self.give_back(frame, now);
            return self.ended(frame, false);
        }
        lane.take(frame);
        self.go_on(next, now);
        None
    }

    pub(crate) fn goes(&mut self, number: u32, now: Instant) {
        let lane = &mut self.lanes[number as usize];
        if lane.goes_at == Some(now) {
            lane.goes_at = None;
        }
        self.go_on(number, now);
    }

    /// Shipments in flight through a failed port do not arrive; returns all of them.
    pub(crate) fn fail(&mut self, port: usize) -> Vec<Shipment> {
        let of_port = self.under_way.iter_mut().filter(|(_, each)| each.shipment.way.near == port && !each.is_dead);
        of_port
            .map(|(_, each)| {
                each.is_dead = true;
                each.shipment
            })
            .collect()
    }

    /// Sends the next frame of a lane, as soon as the lane is free and has a buffer at its other end.
    fn go_on(&mut self, number: u32, now: Instant) {
        let lane = &mut self.lanes[number as usize];
        let Some(frame) = lane.queue.front().copied() else { return };
        if lane.free_at > now {
            let at = lane.free_at;
            return self.go_on_at(number, at);
        }
        if frame.bytes > 0 && !lane.has_credit(now) {
            lane.starves_since.get_or_insert(now);
            if let Some(Reverse(back)) = lane.returning.peek().copied() {
                self.go_on_at(number, back);
            }
            return;
        }
        if let Some(since) = lane.starves_since.take() {
            lane.used.credits_ns += now.since(since).as_nanos() as u64;
        }
        lane.queue.pop_front();
        lane.queued_bytes -= lane.wire_bytes(frame);
        let takes_ns = lane.link.takes_ns(frame.bytes as usize);
        lane.used.busy_ns += takes_ns;
        lane.free_at = Instant(now.0 + takes_ns);
        let (free_at, latency, has_more) = (lane.free_at, lane.link.latency, !lane.queue.is_empty());
        let comes_at = free_at + latency;
        let gone = Frame { hops: frame.hops + 1, ..frame };
        let is_last = self
            .under_way
            .get(frame.shipment as usize)
            .is_none_or(|under_way| under_way.route.lanes().len() == usize::from(gone.hops));
        let lane = &mut self.lanes[number as usize];
        if lane.link.credits.is_some() && frame.bytes > 0 {
            // An end port returns the buffer at once; a switch returns it once the frame has left.
            if is_last {
                lane.returning.push(Reverse(comes_at + latency));
            } else {
                lane.held += 1;
            }
        }
        self.give_back(frame, free_at);
        self.steps.push((comes_at, Step::Comes(gone)));
        if has_more {
            self.go_on_at(number, free_at);
        }
    }

    /// A frame leaves its buffer at a switch; the buffer is returned to the lane that the frame came by.
    fn give_back(&mut self, frame: Frame, at: Instant) {
        if frame.hops == 0 || frame.bytes == 0 {
            return;
        }
        let under_way = self.under_way.get(frame.shipment as usize);
        let Some(before) = under_way.map(|under_way| under_way.route.lanes[usize::from(frame.hops) - 1]) else {
            return;
        };
        let lane = &mut self.lanes[before as usize];
        if lane.link.credits.is_none() {
            return;
        }
        let back = at + lane.link.latency;
        lane.held -= 1;
        lane.returning.push(Reverse(back));
        if lane.starves_since.is_some() {
            self.go_on_at(before, back);
        }
    }

    fn go_on_at(&mut self, number: u32, at: Instant) {
        let lane = &mut self.lanes[number as usize];
        if lane.goes_at.is_none_or(|goes_at| at < goes_at) {
            lane.goes_at = Some(at);
            self.steps.push((at, Step::Goes { lane: number }));
        }
    }

    fn ended(&mut self, frame: Frame, has_come: bool) -> Option<Shipped> {
        let under_way = self.under_way.get_mut(frame.shipment as usize)?;
        if !has_come {
            under_way.lost_bytes += frame.bytes as usize;
            under_way.lost_segments += 1;
            under_way.first_lost = Some(under_way.first_lost.map_or(frame.index, |first| first.min(frame.index)));
        } else if under_way.first_lost.is_some_and(|first| first < frame.index) {
            under_way.behind += 1;
        }
        under_way.frames_left -= 1;
        if under_way.frames_left > 0 {
            return None;
        }
        let under_way = self.under_way.remove(frame.shipment as usize);
        for lane in under_way.route.lanes() {
            self.lanes[*lane as usize].pending_bytes -= under_way.shipment.bytes as u64;
        }
        let latency = self.latency(under_way.route);
        let UnderWay { shipment, lost_bytes, lost_segments, behind, .. } = under_way;
        (!under_way.is_dead).then_some(Shipped { shipment, lost_bytes, lost_segments, behind, latency })
    }
}

impl Lane {
    fn take(&mut self, frame: Frame) {
        self.queued_bytes += self.wire_bytes(frame);
        self.queue.push_back(frame);
    }

    /// Tail drop, if its link has a limited buffer.
    fn has_room(&self, frame: Frame) -> bool {
        let buffer = self.link.loss.and_then(|loss| loss.buffer_bytes);
        frame.bytes == 0 || buffer.is_none_or(|buffer| self.queued_bytes + self.wire_bytes(frame) <= buffer)
    }

    fn has_credit(&mut self, now: Instant) -> bool {
        let Some(credits) = self.link.credits else { return true };
        while self.returning.peek().is_some_and(|Reverse(back)| *back <= now) {
            self.returning.pop();
        }
        self.held as usize + self.returning.len() < credits as usize
    }

    fn wire_bytes(&self, frame: Frame) -> u64 {
        self.link.wire_bytes(frame.bytes as usize)
    }
}

#[cfg(test)]
mod tests;
