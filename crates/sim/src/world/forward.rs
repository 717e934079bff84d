//! Ways through a controller that does not serve the volume: it forwards bytes over an interconnect to its partner,
//! which does, and the replies back. Its threads receive and send these bytes like any others, at the same cost. Both
//! controllers also pay for each message over the interconnect.
//!
//! A packet of a connection with any such way is due when its last step determines it, as with a fabric.

use iotax_proto::Instant;

use super::{Event, HostId, World};
use crate::link::{PipeId, Side, Way};

/// A controller's means of forwarding.
#[derive(Debug)]
pub(super) struct Forwarder {
    /// Its threads and its partner's. Bytes for a thread of the partner are forwarded by the thread with the same
    /// number, so connections are distributed equally over both.
    hosts: Vec<usize>,
    partners_hosts: Vec<usize>,
    /// The interconnect: its own port, and its partner's.
    own: usize,
    partners: usize,
    /// Cost of each message, for both controllers.
    message_ns: u64,
    /// Bytes forwarded so far, in both directions.
    bytes: u64,
}

/// Bytes that a controller forwards.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forwarded {
    pub(super) pipe: PipeId,
    pub(super) side: Side,
    pub(super) way: Way,
    pub(super) bytes: usize,
    /// Their end in the stream.
    pub(super) end: u64,
}

impl World {
    /// Adds a forwarder: a controller's threads and its partner's, the ports of the interconnect at each, and what a
    /// message costs each of them. Returns its number, which ways refer to.
    pub fn add_forwarder(&mut self, threads: [&[HostId]; 2], [own, partners]: [usize; 2], message_ns: u64) -> u32 {
        let [hosts, partners_hosts] = threads.map(|threads| threads.iter().map(|host| host.0).collect());
        self.forwarders.push(Forwarder { hosts, partners_hosts, own, partners, message_ns, bytes: 0 });
        self.forwarders.len() as u32 - 1
    }

    /// Bytes that a controller has forwarded so far, in both directions.
    pub fn forwarded(&self, forwarder: u32) -> u64 {
        self.forwarders[forwarder as usize].bytes
    }

    /// Sends a packet of a connection that has a way through a forwarder, if there are no switches.
    pub(super) fn send_forwarded(&mut self, id: PipeId, side: Side, way: Option<Way>, (bytes, end): (usize, u64)) {
        let (Some(way), Some(pipe)) = (way, self.pipe(id)) else { return };
        let (from, to) = (pipe.end(side).host, pipe.end(side.other()).host);
        let forwarded = Forwarded { pipe: id, side, way, bytes, end };
        if way.by.is_some() && side == Side::Server {
            return self.cross_back(from, forwarded);
        }
        let arrives = self.carry(from, to, Some(way), side, bytes);
        if way.by.is_some() {
            self.comes_to_forwarder(forwarded, arrives);
        } else {
            self.bring(id, side, end, arrives);
        }
    }

    /// Data from the partner cross the interconnect first.
    pub(super) fn cross_back(&mut self, from: usize, forwarded: Forwarded) {
        self.charge_crossing(from, forwarded.way.by, forwarded.bytes);
        self.events.push(self.work_now(from), Event::Crosses(Box::new(forwarded)));
    }

    pub(super) fn comes_to_forwarder(&mut self, forwarded: Forwarded, at: Instant) {
        let (Some(by), Some(pipe)) = (forwarded.way.by, self.pipe(forwarded.pipe)) else { return };
        let serving = pipe.end(Side::Server).host;
        let Forwarder { hosts, partners_hosts, .. } = &self.forwarders[by as usize];
        let number = partners_hosts.iter().position(|host| *host == serving).unwrap_or(0);
        let host = hosts[number % hosts.len()];
        self.events.push(at, Event::Forward { host, forwarded: Box::new(forwarded) });
    }

    /// A controller's thread has bytes to forward.
    pub(super) fn forward(&mut self, host: usize, forwarded: Forwarded) {
        let Forwarded { pipe: id, side, way, bytes, end } = forwarded;
        self.trace.event(self.now, b'f', host as u64, bytes as u64);
        self.charge_received(host, bytes);
        self.charge_send(host);
        self.charge_bytes(host, bytes);
        self.charge_crossing(host, way.by, bytes);
        if let Some(by) = way.by {
            self.forwarders[by as usize].bytes += bytes as u64;
        }
        let now = self.work_now(host);
        match side {
            // Not before it has done the earlier work of its turn, because other threads send in between.
            Side::Client => self.events.push(now, Event::Crosses(Box::new(forwarded))),
            Side::Server if self.is_switched() => self.ship_by(id, side, way, (bytes, end), false, now),
            Side::Server => self.events.push(now, Event::Leaves(Box::new(forwarded))),
        }
    }

    pub(super) fn crosses(&mut self, forwarded: Forwarded) {
        let Forwarded { pipe: id, side, way, bytes, end } = forwarded;
        let Some(by) = way.by else { return };
        let Forwarder { own, partners, .. } = self.forwarders[by as usize];
        let from = if side == Side::Client { own } else { partners };
        let arrives = self.nics[from].send(self.now, bytes);
        if side == Side::Server {
            return self.comes_to_forwarder(forwarded, arrives);
        }
        let packets = self.pipe(id).map(|pipe| &mut pipe.flow(side).packets);
        if let Some(packet) = packets.and_then(|packets| packets.iter_mut().find(|packet| packet.end == end)) {
            packet.crossed = way.by;
        }
        self.bring(id, side, end, arrives);
    }

    pub(super) fn leaves(&mut self, Forwarded { pipe: id, side, way, bytes, end }: Forwarded) {
        let Some(server) = self.pipe(id).map(|pipe| pipe.end(Side::Server).host) else { return };
        let arrives = self.carry(server, server, Some(way), side, bytes);
        self.bring(id, side, end, arrives);
    }

    /// Charges a controller for a message over the interconnect, sent or received. The end of a stream costs nothing.
    pub(super) fn charge_crossing(&mut self, host: usize, by: Option<u32>, bytes: usize) {
        if let Some(by) = by.filter(|_| bytes > 0) {
            self.charge(host, self.forwarders[by as usize].message_ns);
        }
    }
}
