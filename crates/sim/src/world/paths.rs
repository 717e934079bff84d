//! Paths that fail and come back. Data in flight on a failed path are lost, and so is everything sent there until its
//! hosts know. They are then sent again on another path. Data that arrived meanwhile on other paths wait for them,
//! because a connection is one stream.

use iotax_proto::Instant;

use super::{Event, World};
use crate::link::{Choice, LONG_TURN, PipeId, Side, Way, Ways};

impl World {
    /// A port fails. Its hosts know it at `known`, when `avoid` must be called.
    pub fn fail(&mut self, port: usize, known: Instant) {
        (self.nics[port].is_down, self.nics[port].known_at) = (true, known);
        if self.is_switched() {
            return self.lose_shipments(port);
        }
        for id in self.all_pipes() {
            let Some(pipe) = self.pipe(id) else { continue };
            for side in Side::BOTH {
                let flow = pipe.flow(side);
                let mut loses = false;
                // Packets that were refused have already arrived.
                for packet in flow.packets.iter_mut().skip(flow.refused as usize) {
                    if packet.by == Some(port) {
                        (packet.is_lost, loses) = (true, true);
                    }
                }
                if loses {
                    flow.stalled_until = flow.stalled_until.max(known);
                }
            }
        }
    }

    /// Hosts know that a port has failed: what it lost is sent again.
    pub fn avoid(&mut self, port: usize) {
        self.nics[port].is_avoided = true;
        for id in self.all_pipes() {
            for side in Side::BOTH {
                self.send_again(id, side);
            }
        }
    }

    /// The port is back and is used.
    pub fn repair(&mut self, port: usize) {
        (self.nics[port].is_down, self.nics[port].is_avoided) = (false, false);
    }

    fn send_again(&mut self, id: PipeId, side: Side) {
        if self.is_switched() {
            return self.ship_again(id, side);
        }
        let Some(pipe) = self.pipe(id) else { return };
        let (from, to) = (pipe.end(side).host, pipe.end(side.other()).host);
        let lost = pipe.flow(side).packets.iter_mut().filter(|packet| packet.is_lost);
        let mut bytes = 0;
        for packet in lost {
            packet.is_lost = false;
            bytes += packet.bytes.len();
        }
        if bytes == 0 {
            return;
        }
        let way = self.next_way(id, side);
        let arrives = self.carry(from, to, way, side, bytes);
        if let Some(pipe) = self.pipe(id) {
            let flow = pipe.flow(side);
            flow.stalled_until = flow.stalled_until.max(arrives);
        }
    }

    fn all_pipes(&self) -> Vec<PipeId> {
        let ids = self.pipes.iter().enumerate().filter(|(_, slot)| slot.pipe.is_some());
        ids.map(|(index, slot)| PipeId { slot: index as u32, generation: slot.generation }).collect()
    }

    /// Until when arrived data wait for earlier lost data.
    pub(super) fn is_stalled(&mut self, event: &Event) -> Option<Instant> {
        let Event::Arrive { pipe, to, .. } = event else { return None };
        let now = self.now;
        let flow = self.pipe(*pipe)?.flow(to.other());
        (flow.stalled_until > now && !flow.packets.is_empty()).then_some(flow.stalled_until)
    }

    /// The way of an end's next bytes, as seen from the connecting end; `None`: the ports of its hosts.
    pub(super) fn next_way(&mut self, id: PipeId, side: Side) -> Option<Way> {
        let ways = std::rc::Rc::clone(&self.pipe(id)?.ways);
        let count = ways.all.len();
        if ways.choice == Choice::InLongTurns {
            return self.way_of_long_turn(id, side, &ways);
        }
        let sends = self.pipe(id)?.flow(side).sends;
        let usable = |at: &usize| !self.nics[ways.all[*at].near].is_avoided;
        let around = (0..count).map(|step| (sends + step) % count);
        let chosen = match ways.choice {
            Choice::First => (0..count).find(usable),
            Choice::InTurn | Choice::InLongTurns => around.clone().find(usable),
            Choice::Shortest => around.clone().filter(usable).min_by_key(|at| {
                let Way { near, far, .. } = ways.all[*at];
                let ports = if side == Side::Client { (near, far) } else { (far, near) };
                if self.is_switched() {
                    return Instant(self.switching.pending_bytes(ports.0, ports.1));
                }
                self.nics[ports.0].sent_at().max(self.nics[ports.1].received_at())
            }),
        };
        let way = *ways.all.get(chosen.unwrap_or(0))?;
        self.pipe(id)?.flow(side).sends = chosen.unwrap_or(0).wrapping_add(1);
        Some(way)
    }
    /// Ways in long turns do not fail.
    fn way_of_long_turn(&mut self, id: PipeId, side: Side, ways: &Ways) -> Option<Way> {
        let pipe = self.pipe(id)?;
        let first = pipe.end(Side::Client).host + pipe.connect as usize;
        let flow = pipe.flow(Side::Client);
        let turn = flow.sends / LONG_TURN;
        flow.sends += usize::from(side == Side::Client);
        ways.all.get((first + turn) % ways.all.len().max(1)).copied()
    }
}
