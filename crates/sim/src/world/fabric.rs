//! Connections through switches: packets are shipped through a fabric, and take their place in the stream once they
//! have arrived completely. The fabric determines when a packet of such a stream is due.

use iotax_proto::Instant;

use super::{Event, World, forward::Forwarded};
use crate::{
    link::{Link, Packet, PipeId, Side, Way},
    piece::Piece,
    switch::{Edge, LaneUse, Shipment, Shipped, Step, Trunk},
    tcp::Acknowledged,
};

impl World {
    /// Adds a switch, or two with a trunk, whose link is like `link` except for what `trunk` specifies. Returns the
    /// fabric's number.
    pub fn add_fabric(&mut self, link: &Link, trunk: Option<Trunk>) -> usize {
        self.switching.add_fabric(trunk.map(|trunk| Link {
            rate_bytes_per_s: trunk.rate_bytes_per_s.or(link.rate_bytes_per_s),
            credits: trunk.credits.or(link.credits),
            ..link.clone()
        }))
    }

    /// Attaches a link to a switch. In a world with switches, all connections use ways between links of one fabric.
    pub fn attach(&mut self, fabric: usize, edge: Edge, link: usize) {
        self.switching.attach(fabric, edge, link, &self.nics[link].link);
    }

    /// Usage of a fabric's trunk so far, to the targets and back; `None` without a trunk.
    pub fn trunk_used(&self, fabric: usize) -> Option<[LaneUse; 2]> {
        self.switching.trunk_used(fabric, self.now)
    }

    pub(super) fn is_switched(&self) -> bool {
        self.switching.is_used()
    }

    /// Sends a packet that is in its queue: its bytes, and their end in the stream. If its way has failed and no host
    /// knows yet, it is lost.
    pub(super) fn ship(&mut self, id: PipeId, side: Side, way: Option<Way>, (bytes, end): (usize, u64)) {
        let Some(way) = way else { return };
        let Some(host) = self.pipe(id).map(|pipe| pipe.end(side).host) else { return };
        if way.by.is_some() && side == Side::Server {
            return self.cross_back(host, Forwarded { pipe: id, side, way, bytes, end });
        }
        let is_lost = self.nics[way.near].is_down && !self.nics[way.near].is_avoided;
        let Some(pipe) = self.pipe(id) else { return };
        let packet = pipe.flow(side).packets.iter_mut().rev().find(|packet| packet.end == end);
        if let Some(packet) = packet {
            (packet.by, packet.is_lost) = (Some(way.near), is_lost);
        }
        if !is_lost {
            let sent_at = self.work_now(host);
            self.ship_by(id, side, way, (bytes, end), false, sent_at);
        }
    }

    /// Sends a hole again.
    pub(super) fn ship_hole(&mut self, id: PipeId, side: Side, way: Option<Way>, (bytes, end): (usize, u64)) {
        let Some(way) = way else { return };
        if self.nics[way.near].is_down {
            let sent_at = self.now;
            return self.lost_again(id, side, end, sent_at);
        }
        let Some(pipe) = self.pipe(id) else { return };
        let host = pipe.end(side).host;
        if let Some(tcp) = &mut pipe.flow(side).tcp {
            tcp.will_arrive(end);
        }
        self.charge_bytes(host, bytes);
        let sent_at = self.work_now(host);
        self.ship_by(id, side, way, (bytes, end), true, sent_at);
    }

    pub(super) fn ship_by(
        &mut self,
        id: PipeId,
        side: Side,
        way: Way,
        (bytes, end): (usize, u64),
        fills: bool,
        sent_at: Instant,
    ) {
        let (from, to) = if side == Side::Client { (way.near, way.far) } else { (way.far, way.near) };
        let Some(route) = self.switching.route(from, to) else {
            panic!("a way from port {from} to port {to}, which no fabric joins");
        };
        let shipment = Shipment { pipe: id, side, end, bytes, fills, sent_at, from, way };
        let number = self.switching.ship(shipment, route);
        if sent_at > self.now {
            self.events.push(sent_at, Event::Switch(Step::Leaves { shipment: number }));
        } else {
            self.switch(Step::Leaves { shipment: number });
        }
    }

    pub(super) fn switch(&mut self, step: Step) {
        let now = self.now;
        let shipped = match step {
            Step::Leaves { shipment } => {
                let (switching, random) = (&mut self.switching, &mut self.random);
                let per_million = switching.lost_per_million(shipment);
                switching.leaves(shipment, now, || per_million > 0 && random.below(1_000_000) < per_million);
                None
            }
            Step::Comes(frame) => self.switching.comes(frame, now),
            Step::Goes { lane } => {
                self.switching.goes(lane, now);
                None
            }
        };
        for (at, step) in self.switching.steps.drain(..) {
            self.events.push(at, Event::Switch(step));
        }
        if let Some(shipped) = shipped {
            self.shipped(shipped);
        }
    }

    fn shipped(&mut self, shipped: Shipped) {
        let Shipped { shipment, lost_bytes, lost_segments, behind, latency } = shipped;
        let Shipment { pipe: id, side, end, bytes, fills, sent_at, from, way } = shipment;
        let now = self.now;
        self.nics[from].carried.lost += lost_segments;
        let Some(pipe) = self.pipe(id) else { return };
        let is_whole = lost_bytes == 0;
        if pipe.flow(side).tcp.is_some() {
            if fills && is_whole {
                self.events.push(now + latency, Event::Filled { pipe: id, side, end });
            } else if fills {
                return self.lost_again(id, side, end, sent_at);
            } else if !is_whole {
                self.lose(id, side, (lost_bytes, end), sent_at);
            }
            let whole_bytes = bytes - lost_bytes;
            if !fills && whole_bytes > 0 {
                let what = Acknowledged { end, bytes: whole_bytes, behind, sent_at };
                self.events.push(now + latency, Event::Acknowledged { pipe: id, side, what });
            }
        }
        if is_whole && way.by.is_some() && side == Side::Client {
            self.comes_to_forwarder(Forwarded { pipe: id, side, way, bytes, end }, now);
        } else if is_whole {
            self.bring(id, side, end, now);
        }
    }

    /// A retransmission is lost again: only a timeout detects it.
    fn lost_again(&mut self, id: PipeId, side: Side, end: u64, sent_at: Instant) {
        let now = self.now;
        let Some(tcp) = self.pipe(id).and_then(|pipe| pipe.flow(side).tcp.as_mut()) else { return };
        tcp.lost_again(end);
        let until = (sent_at + tcp.timeout()).max(now);
        self.events.push(until, Event::TimedOut { pipe: id, side, end });
    }

    /// The end of a stream is a packet without bytes.
    pub(super) fn ship_end(&mut self, id: PipeId, side: Side) {
        let way = self.next_way(id, side);
        let Some(pipe) = self.pipe(id) else { return };
        let flow = pipe.flow(side);
        flow.cut = true;
        flow.packets.push_back(Packet::through_fabric(Piece::default(), u64::MAX));
        if self.is_switched() {
            self.ship(id, side, way, (0, u64::MAX));
        } else {
            self.send_forwarded(id, side, way, (0, u64::MAX));
        }
    }

    /// A port has failed: its data in flight are lost.
    pub(super) fn lose_shipments(&mut self, port: usize) {
        for Shipment { pipe: id, side, end, fills, sent_at, .. } in self.switching.fail(port) {
            if fills {
                self.lost_again(id, side, end, sent_at);
                continue;
            }
            let Some(pipe) = self.pipe(id) else { continue };
            if let Some(packet) = pipe.flow(side).packets.iter_mut().find(|packet| packet.end == end) {
                packet.is_lost = true;
            }
        }
    }

    /// Sends lost packets again by another way.
    pub(super) fn ship_again(&mut self, id: PipeId, side: Side) {
        let Some(pipe) = self.pipe(id) else { return };
        let lost = pipe.flow(side).packets.iter().filter(|packet| packet.is_lost);
        let lost: Vec<_> = lost.map(|packet| (packet.by, (packet.bytes.len(), packet.end))).collect();
        for (by, packet) in lost {
            if by.is_some_and(|by| !self.nics[by].is_avoided) {
                continue;
            }
            let way = self.next_way(id, side);
            self.ship(id, side, way, packet);
        }
    }
}
