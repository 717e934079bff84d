//! Connections between hosts of the world: they are established, used and ended here.

use std::{net::SocketAddr, time::Duration};

use iotax_node::{CloseReason, ConnId, Input};
use iotax_proto::Instant;

use super::{CLOSE_TIMEOUT, ECONNREFUSED, ECONNRESET, Event, HostId, PipeSlot, SYN_AGAIN, World};
use crate::{
    link::{End, EndState, Flow, Packet, Pipe, PipeId, Side, Way},
    piece::Piece,
    tcp::Acknowledged,
};

impl World {
    pub(super) fn pipe(&mut self, id: PipeId) -> Option<&mut Pipe> {
        let slot = &mut self.pipes[id.slot as usize];
        if slot.generation == id.generation { slot.pipe.as_mut() } else { None }
    }

    pub(super) fn conn(&self, host: usize, conn: ConnId) -> Option<(PipeId, Side)> {
        self.hosts[host].conns.get(conn.0 as usize).copied().flatten()
    }

    pub(super) fn set_conn(&mut self, host: usize, conn: ConnId, to: Option<(PipeId, Side)>) {
        let conns = &mut self.hosts[host].conns;
        let index = conn.0 as usize;
        if index >= conns.len() {
            conns.resize(index + 1, None);
        }
        conns[index] = to;
    }

    pub(super) fn latency_of(&mut self, pipe: PipeId, side: Side) -> Duration {
        let Some(pipe) = self.pipe(pipe) else { return Duration::ZERO };
        let (host, way) = (pipe.end(side).host, pipe.ways.all.first().copied());
        if let Some(route) = way.and_then(|way| self.switching.route(way.near, way.far)) {
            return self.switching.latency(route);
        }
        self.nics[self.hosts[host].nic].link.latency
    }

    pub(super) fn connect(&mut self, host: usize, conn: ConnId, to: SocketAddr) {
        let client = End { host, conn, state: EndState::Connecting };
        let server = End { host: usize::MAX, conn: ConnId(u32::MAX), state: EndState::Connecting };
        self.hosts[host].connects += 1;
        let connect = self.hosts[host].connects;
        let ways = self.hosts[host].ways.towards(to.ip());
        let flows = Side::BOTH.map(|_| Flow { tcp: self.tcp_of(host), ..Flow::default() });
        let pipe = Pipe { to, connect, ways, ends: [client, server], flows };
        let slot = self.free_pipes.pop().unwrap_or_else(|| {
            self.pipes.push(PipeSlot { generation: 0, pipe: None });
            self.pipes.len() as u32 - 1
        });
        self.pipes[slot as usize].pipe = Some(pipe);
        let id = PipeId { slot, generation: self.pipes[slot as usize].generation };
        self.set_conn(host, conn, Some((id, Side::Client)));
        let at = self.now + self.latency_of(id, Side::Client);
        self.events.push(at, Event::Accept { pipe: id, to });
    }

    pub(super) fn accept(&mut self, id: PipeId, to: SocketAddr) {
        let Some(pipe) = self.pipe(id) else { return };
        let client = *pipe.end(Side::Client);
        if client.state == EndState::Gone {
            return self.forget(id, Side::Server);
        }
        if let Some(earlier) = self.earlier_of(id) {
            // The accepting end challenges the request, is reset, and accepts the request when it is repeated.
            self.end(earlier, Side::Server, CloseReason::Failed(ECONNRESET));
            return self.events.push(self.now + SYN_AGAIN, Event::Accept { pipe: id, to });
        }
        let listener = self.listeners.iter_mut().position(|listener| listener.address == to);
        let found = listener.and_then(|index| {
            let listener = &mut self.listeners[index];
            listener.accepted += 1;
            let host = listener.hosts[listener.accepted % listener.hosts.len()];
            self.hosts[host].node.is_some().then_some((host, listener.id))
        });
        let Some((host, listener)) = found else {
            self.forget(id, Side::Server);
            let at = self.now + self.latency_of(id, Side::Client);
            let reason = CloseReason::Failed(ECONNREFUSED);
            return self.events.push(at, Event::End { pipe: id, side: Side::Client, reason });
        };
        let conns = &self.hosts[host].conns;
        let conn = ConnId(conns.iter().position(Option::is_none).unwrap_or(conns.len()) as u32);
        let Some(pipe) = self.pipe(id) else { return };
        *pipe.end_mut(Side::Server) = End { host, conn, state: EndState::Open };
        self.set_conn(host, conn, Some((id, Side::Server)));
        let from = &self.hosts[client.host];
        let port = from.port.unwrap_or(20_000 + ((id.slot * 97 + id.generation) % 40_000) as u16);
        let peer = SocketAddr::new(from.address, port);
        self.trace.event(self.now, b'a', host as u64, u64::from(conn.0));
        let at = self.now + self.latency_of(id, Side::Server);
        self.events.push(at, Event::Established { pipe: id });
        self.handle(host, Input::Accepted { conn, listener, peer });
    }

    /// The earlier connection from the same port that the accepting end still has: there cannot be two (RFC 9293
    /// §3.10.7.4, RFC 5961 §4). Data in flight there never arrive.
    pub(super) fn earlier_of(&self, id: PipeId) -> Option<PipeId> {
        let host = self.pipes[id.slot as usize].pipe.as_ref()?.end(Side::Client).host;
        self.hosts[host].port?;
        let stands = |pipe: &Pipe| {
            let server = pipe.end(Side::Server);
            pipe.end(Side::Client).host == host && server.host != usize::MAX && server.state != EndState::Gone
        };
        let index = self.pipes.iter().position(|slot| slot.pipe.as_ref().is_some_and(stands))?;
        Some(PipeId { slot: index as u32, generation: self.pipes[index].generation })
    }

    pub(super) fn established(&mut self, id: PipeId) {
        let Some(pipe) = self.pipe(id) else { return };
        let end = pipe.end_mut(Side::Client);
        if end.state != EndState::Connecting {
            return;
        }
        end.state = EndState::Open;
        let (host, conn) = (end.host, end.conn);
        pipe.flow(Side::Client).dirty = true;
        self.trace.event(self.now, b'c', host as u64, u64::from(conn.0));
        self.handle(host, Input::Connected { conn });
        self.flush(id, Side::Client, false);
    }

    /// Sends what an end has queued, as far as the window allows, or `all` of it.
    pub(super) fn flush(&mut self, id: PipeId, side: Side, all: bool) {
        let Some(pipe) = self.pipe(id) else { return };
        let end = *pipe.end(side);
        if end.state == EndState::Connecting || end.state == EndState::Gone || !pipe.flow(side).dirty {
            return;
        }
        let Some(node) = self.hosts[end.host].node.clone() else { return };
        let mut node = node.borrow_mut();
        let Some(transmit) = node.transmit(end.conn) else { return };
        let (now, is_switched) = (self.now, self.is_switched());
        let nic = &mut self.nics[self.hosts[end.host].nic];
        let slot = &mut self.pipes[id.slot as usize];
        let Some(pipe) = slot.pipe.as_mut() else { return };
        if pipe.flow(side).cut {
            transmit.clear();
        }
        let other = pipe.end(side.other()).host;
        let (forwards, waits) = (pipe.ways.forwards, is_switched || pipe.ways.forwards);
        let mut sent = std::mem::take(&mut self.sent);
        let flow = pipe.flow(side);
        while !transmit.is_empty() && (all || flow.in_flight_bytes < nic.link.window_bytes) {
            let count = transmit.len().min(nic.piece(&mut self.random));
            let count = match &mut flow.tcp {
                Some(tcp) if !all => tcp.room(count),
                _ => count,
            };
            if count == 0 {
                break;
            }
            let bytes = self.spare.take_front(transmit, count, &self.staying);
            flow.in_flight_bytes += count;
            flow.sent_bytes += count as u64;
            let end = flow.sent_bytes;
            if let Some(tcp) = &mut flow.tcp {
                tcp.send(now, count);
            }
            flow.packets.push_back(if waits { Packet::through_fabric(bytes, end) } else { Packet::new(bytes, end) });
            sent.push((count, end));
        }
        flow.dirty = !transmit.is_empty();
        let loses = flow.tcp.is_some();
        drop(node);
        if !sent.is_empty() {
            self.charge_send(end.host);
        }
        let way = self.next_way(id, side);
        let lost_until = if waits { None } else { self.goes_by(id, side, way, sent.len()) };
        for (count, at) in sent.drain(..) {
            self.charge_bytes(end.host, count);
            if is_switched {
                self.ship(id, side, way, (count, at));
                continue;
            }
            if forwards {
                self.send_forwarded(id, side, way, (count, at));
                continue;
            }
            if loses && lost_until.is_none() {
                self.send_segments(id, side, way, (count, at));
                continue;
            }
            if let Some(known) = lost_until.filter(|_| loses) {
                // Multipath software sends it again, whatever TCP's windows are.
                let what = Acknowledged { end: at, bytes: count, behind: 0, sent_at: self.now };
                self.events.push(known, Event::Acknowledged { pipe: id, side, what });
            }
            let arrives = lost_until.unwrap_or_else(|| self.carry(end.host, other, way, side, count));
            let arrives = self.in_order(id, side, arrives);
            self.events.push(arrives, Event::Arrive { pipe: id, to: side.other(), bytes: count as u32 });
        }
        self.sent = sent;
    }

    /// Lets the last `count` packets use a way. If that way has failed and no host knows yet, they are lost; then
    /// returns when this will be known.
    fn goes_by(&mut self, id: PipeId, side: Side, way: Option<Way>, count: usize) -> Option<Instant> {
        let Way { near, .. } = way?;
        let is_lost = self.nics[near].is_down && !self.nics[near].is_avoided;
        let known = self.nics[near].known_at;
        let flow = self.pipe(id)?.flow(side);
        for packet in flow.packets.iter_mut().rev().take(count) {
            (packet.by, packet.is_lost) = (Some(near), is_lost);
        }
        if !is_lost || count == 0 {
            return None;
        }
        flow.stalled_until = flow.stalled_until.max(known);
        Some(known)
    }

    /// The ports that bytes leave by and arrive at.
    pub(super) fn ports(&self, from: usize, to: usize, way: Option<Way>, side: Side) -> (usize, Option<usize>) {
        match (way, side) {
            (Some(Way { near, far, .. }), Side::Client) => (near, Some(far)),
            (Some(Way { near, far, .. }), Side::Server) => (far, Some(near)),
            (None, _) => (self.hosts[from].nic, self.hosts.get(to).map(|host| host.nic)),
        }
    }

    /// When bytes that a host sends now have all arrived at another.
    pub(super) fn carry(&mut self, from: usize, to: usize, way: Option<Way>, side: Side, bytes: usize) -> Instant {
        let now = self.work_now(from);
        let (near, far) = self.ports(from, to, way, side);
        match far {
            Some(far) if far != near => match self.nics.get_disjoint_mut([near, far]) {
                Ok([near, far]) => near.send_to(far, now, bytes),
                Err(_) => now,
            },
            Some(far) => {
                let arrives = self.nics[near].send(now, bytes);
                self.nics[far].receive(arrives, bytes)
            }
            None => self.nics[near].send(now, bytes),
        }
    }

    /// On a connection with several ways, bytes wait for earlier ones.
    pub(super) fn in_order(&mut self, id: PipeId, side: Side, arrives: Instant) -> Instant {
        match self.pipe(id) {
            Some(pipe) if pipe.ways.all.len() > 1 => {
                let flow = pipe.flow(side);
                flow.arrives = flow.arrives.max(arrives);
                flow.arrives
            }
            _ => arrives,
        }
    }

    /// Sends the end of the stream, which follows all earlier bytes.
    fn send_end(&mut self, id: PipeId, side: Side) {
        if self.is_switched() || self.pipe(id).is_some_and(|pipe| pipe.ways.forwards) {
            return self.ship_end(id, side);
        }
        let Some(pipe) = self.pipe(id) else { return };
        let (from, to) = (pipe.end(side).host, pipe.end(side.other()).host);
        let way = self.next_way(id, side);
        let arrives = self.carry(from, to, way, side, 0);
        let arrives = self.in_order(id, side, arrives);
        self.end_arrives(id, side, arrives);
    }

    /// The stream from `side` ends; the other side learns of it at `arrives`.
    pub(super) fn end_arrives(&mut self, id: PipeId, side: Side, arrives: Instant) {
        if let Some(pipe) = self.pipe(id) {
            let flow = pipe.flow(side);
            flow.cut = true;
            flow.packets.push_back(Packet::new(Piece::default(), u64::MAX));
            self.events.push(arrives, Event::Arrive { pipe: id, to: side.other(), bytes: 0 });
        }
    }

    pub(super) fn close(&mut self, id: PipeId, side: Side) {
        self.flush_all(id, side);
        let Some(pipe) = self.pipe(id) else { return };
        let end = pipe.end_mut(side);
        let was = end.state;
        end.state = EndState::Closing;
        let timeout = match was {
            EndState::Open => CLOSE_TIMEOUT,
            // The connection was never established.
            EndState::Connecting => Duration::ZERO,
            EndState::Closing | EndState::Gone => return,
        };
        self.send_end(id, side);
        self.events.push(self.now + timeout, Event::End { pipe: id, side, reason: CloseReason::Ended });
    }

    pub(super) fn flush_all(&mut self, id: PipeId, side: Side) {
        if let Some(pipe) = self.pipe(id) {
            pipe.flow(side).dirty = true;
            self.flush(id, side, true);
        }
    }

    pub(super) fn arrive(&mut self, id: PipeId, to: Side) {
        let now = self.now;
        let Some(pipe) = self.pipe(id) else { return };
        let end = *pipe.end(to);
        let flow = pipe.flow(to.other());
        // The first packet may be lost, if a thread has just taken those before it. Its retransmission causes this
        // event again.
        if flow.packets.front().is_none_or(|packet| packet.due > now) {
            return;
        }
        if flow.stalled_until > now {
            let until = flow.stalled_until;
            return self.events.push(until, Event::Arrive { pipe: id, to, bytes: 0 });
        }
        let wants = || {
            let node = self.hosts[end.host].node.as_ref();
            node.is_some_and(|node| node.borrow().wants_receive(end.conn))
        };
        if end.state == EndState::Open && !wants() {
            if let Some(pipe) = self.pipe(id) {
                pipe.flow(to.other()).refused += 1;
            }
            if !self.hosts[end.host].paused.contains(&end.conn) {
                self.hosts[end.host].paused.push(end.conn);
            }
            return;
        }
        let Some(pipe) = self.pipe(id) else { return };
        let flow = pipe.flow(to.other());
        let Some(Packet { bytes: piece, crossed, .. }) = flow.packets.pop_front() else { return };
        flow.in_flight_bytes -= piece.len();
        if crossed.is_some() {
            self.charge_crossing(end.host, crossed, piece.len());
        }
        let mut whole = std::mem::take(&mut self.arrived);
        let bytes = piece.bytes(&mut whole);
        let ends = bytes.is_empty();
        self.trace.event(now, b'r', end.host as u64, u64::from(end.conn.0) << 32 | bytes.len() as u64);
        self.trace.bytes(bytes);
        match end.state {
            EndState::Open if ends => {
                self.flush_all(id, to);
                self.send_end(id, to);
                self.end(id, to, CloseReason::Ended);
            }
            EndState::Open => self.deliver(end.host, end.conn, bytes),
            EndState::Closing if ends => self.end(id, to, CloseReason::Ended),
            EndState::Closing | EndState::Connecting => {}
            EndState::Gone => {
                if !ends {
                    let after = self.latency_of(id, to.other());
                    self.end_after(id, to.other(), after);
                }
            }
        }
        self.arrived = whole;
        self.spare.give_back(piece);
        self.send_on(id, to.other());
    }

    /// Sends again, because there may be room for more of what an end has queued.
    pub(super) fn send_on(&mut self, id: PipeId, side: Side) {
        let Some(pipe) = self.pipe(id) else { return };
        let sender = pipe.end(side).host;
        if !pipe.flow(side).dirty || sender == usize::MAX {
            return;
        }
        self.flush(id, side, false);
        if let Some(node) = self.hosts[sender].node.clone() {
            // Sending may have made room.
            self.ask_paused(sender, &node);
            self.arm(sender);
        }
    }

    pub(super) fn end_after(&mut self, pipe: PipeId, side: Side, after: Duration) {
        let reason = CloseReason::Failed(ECONNRESET);
        self.events.push(self.now + after, Event::End { pipe, side, reason });
    }

    /// Ends the connection for one end and informs its node.
    pub(super) fn end(&mut self, id: PipeId, side: Side, reason: CloseReason) {
        let Some(pipe) = self.pipe(id) else { return };
        let end = *pipe.end(side);
        if end.state == EndState::Gone || end.host == usize::MAX {
            return;
        }
        // A requested close is done, whatever ended the connection.
        let reason = if end.state == EndState::Closing { CloseReason::Ended } else { reason };
        self.set_conn(end.host, end.conn, None);
        self.hosts[end.host].paused.retain(|conn| *conn != end.conn);
        self.forget(id, side);
        self.trace.event(self.now, b'e', end.host as u64, u64::from(end.conn.0));
        self.handle(end.host, Input::Closed { conn: end.conn, reason });
    }

    /// One end no longer has the connection.
    pub(super) fn forget(&mut self, id: PipeId, side: Side) {
        let Some(pipe) = self.pipe(id) else { return };
        pipe.end_mut(side).state = EndState::Gone;
        let (is_gone, from) = (pipe.is_gone(), (HostId(pipe.end(Side::Client).host), pipe.connect));
        if side == Side::Server {
            self.left.push(from);
        }
        if is_gone {
            let slot = &mut self.pipes[id.slot as usize];
            slot.pipe = None;
            slot.generation += 1;
            self.free_pipes.push(id.slot);
        }
    }

    /// Loses a random last part of the data in flight from `side`, and everything after it.
    pub(super) fn cut(&mut self, id: PipeId, side: Side) {
        let Some(waiting) = self.pipe(id).map(|pipe| pipe.flow(side).packets.len() as u64) else { return };
        let kept = self.random.below(waiting + 1) as usize;
        let Some(pipe) = self.pipe(id) else { return };
        let flow = pipe.flow(side);
        flow.cut = true;
        for packet in flow.packets.drain(kept..) {
            flow.in_flight_bytes -= packet.bytes.len();
        }
        // The last packet that arrives may end at any byte.
        let Some(len) = flow.packets.back().map(|packet| packet.bytes.len()).filter(|len| *len > 1) else { return };
        let left = self.random.below(len as u64 - 1) as usize + 1;
        if let Some(pipe) = self.pipe(id) {
            let flow = pipe.flow(side);
            flow.in_flight_bytes -= len - left;
            if let Some(last) = flow.packets.back_mut() {
                last.bytes.truncate(left);
            }
        }
    }
}
