//! Links, and connections over them: TCP as its user sees it, two reliable streams of bytes that arrive in pieces of
//! any size.

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    rc::Rc,
    time::Duration,
};

use iotax_node::{ConnId, seeded::SeededRng};
use iotax_proto::{Instant, fc::frame};

use crate::{piece::Piece, tcp::Tcp};

/// The link of a host's port. Sends of several connections leave in turn.
#[derive(Clone, Debug)]
pub struct Link {
    /// Propagation delay from one end to the other.
    pub latency: Duration,
    /// `None`: unlimited.
    pub rate_bytes_per_s: Option<u64>,
    /// Maximum bytes of a connection in flight in one direction.
    pub window_bytes: usize,
    /// Maximum bytes that arrive at once.
    pub piece_bytes: usize,
    /// Pieces have random sizes up to that maximum.
    pub splits: bool,
    /// For a port: sends are divided into frames, and sends of several hosts to it arrive one after another. `None`:
    /// there is no framing overhead, and nothing waits to be received.
    pub frames: Option<Frames>,
    /// Buffer-to-buffer credits of a Fibre Channel port (FC-FS-5): maximum number of frames sent whose buffers the
    /// other end has not returned. `None`: unlimited.
    pub credits: Option<u32>,
    /// Interrupt coalescing: a thread whose work takes time handles all arrivals together, this long after the first of
    /// them.
    pub coalesce: Duration,
    /// For Ethernet, what is lost in flight. Connections then have TCP's windows and retransmit. `None`: nothing is
    /// lost.
    pub loss: Option<Loss>,
}

/// What an Ethernet port loses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Number of segments lost at random, per million.
    pub per_million: u32,
    /// Size of the buffer in front of the port; segments beyond it are lost. `None`: unlimited.
    pub buffer_bytes: Option<u64>,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            latency: Duration::from_micros(10),
            rate_bytes_per_s: None,
            window_bytes: 4 << 20,
            piece_bytes: 32 << 10,
            splits: false,
            frames: None,
            credits: None,
            coalesce: Duration::ZERO,
            loss: None,
        }
    }
}

/// IPv4 and TCP with time stamps (RFC 791, RFC 9293, RFC 7323), inside the MTU.
const HEADER_BYTES: u32 = 52;
/// Preamble, Ethernet header, frame check sequence and inter-packet gap (IEEE 802.3), outside it.
const FRAME_BYTES: u32 = 38;

impl Link {
    /// Bytes on the wire of a single send, including headers.
    pub(crate) fn wire_bytes(&self, bytes: usize) -> u64 {
        bytes as u64 + self.frames.map_or(0, |frames| frames.of(bytes) * u64::from(frames.around_bytes))
    }

    /// Transmission time of a single send.
    pub(crate) fn takes_ns(&self, bytes: usize) -> u64 {
        let Some(rate) = self.rate_bytes_per_s else { return 0 };
        let byte_ns = u128::from(self.wire_bytes(bytes)) * 1_000_000_000;
        byte_ns.div_ceil(u128::from(rate.max(1))) as u64
    }
}

/// Tag of IEEE 802.1Q.
const TAG_BYTES: u32 = 4;

/// How the bytes of a send are divided into frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames {
    /// Bytes of a connection's stream in a full frame.
    stream_bytes: u32,
    /// Additional bytes of each frame.
    around_bytes: u32,
}

impl Frames {
    /// Fibre Channel frames in the encapsulation of RFC 3643 that the stream carries. Its 28 bytes stand for the six
    /// words of primitive signals between frames (FC-FS-5), and for the difference in length of the delimiters.
    pub const FIBRE_CHANNEL: Self =
        Self { stream_bytes: (frame::BEFORE_DATA + frame::DATA_LEN_MAX + frame::BEHIND_DATA) as u32, around_bytes: 0 };

    /// TCP segments over Ethernet, each with its headers.
    #[must_use]
    pub fn ethernet(mtu_bytes: u32) -> Self {
        Self { stream_bytes: mtu_bytes.saturating_sub(HEADER_BYTES).max(1), around_bytes: HEADER_BYTES + FRAME_BYTES }
    }

    /// The same, each with a VLAN tag (IEEE 802.1Q).
    #[must_use]
    pub fn tagged(self) -> Self {
        Self { around_bytes: self.around_bytes + TAG_BYTES, ..self }
    }

    #[cfg(test)]
    pub(crate) fn of_bytes(stream_bytes: u32) -> Self {
        Self { stream_bytes, around_bytes: 0 }
    }

    pub(crate) fn segment_bytes(self) -> usize {
        self.stream_bytes as usize
    }

    /// Number of frames of a single send.
    pub(crate) fn of(self, bytes: usize) -> u64 {
        (bytes as u64).div_ceil(u64::from(self.stream_bytes))
    }
}

/// Busy times of a link, in each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    pub sent_ns: u64,
    pub received_ns: u64,
    /// Time with frames to send but without credits.
    pub credits_ns: u64,
    /// Lost segments that it had sent, and how often a connection waited for its timeout to detect a loss.
    pub lost: u64,
    pub timeouts: u64,
}

impl Carried {
    /// The sum of two links.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            sent_ns: self.sent_ns + other.sent_ns,
            received_ns: self.received_ns + other.received_ns,
            credits_ns: self.credits_ns + other.credits_ns,
            lost: self.lost + other.lost,
            timeouts: self.timeouts + other.timeouts,
        }
    }

    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            sent_ns: self.sent_ns - before.sent_ns,
            received_ns: self.received_ns - before.received_ns,
            credits_ns: self.credits_ns - before.credits_ns,
            lost: self.lost - before.lost,
            timeouts: self.timeouts - before.timeouts,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Nic {
    pub(crate) link: Link,
    pub(crate) carried: Carried,
    /// When all that it was given will have been sent.
    free_at: Instant,
    /// When all that others sent to it will have arrived.
    received_at: Instant,
    /// When the buffers of frames that it sent are returned; at most as many as it has credits.
    buffers_back: VecDeque<Instant>,
    /// The port is down. Its hosts know this from `known_at` on, and then use another.
    pub(crate) is_down: bool,
    pub(crate) known_at: Instant,
    pub(crate) is_avoided: bool,
}

impl Nic {
    pub(crate) fn new(link: Link) -> Self {
        Self {
            link,
            carried: Carried::default(),
            free_at: Instant(0),
            received_at: Instant(0),
            buffers_back: VecDeque::new(),
            is_down: false,
            known_at: Instant(0),
            is_avoided: false,
        }
    }

    /// When all that it was given will have been sent.
    pub(crate) fn sent_at(&self) -> Instant {
        self.free_at
    }

    pub(crate) fn received_at(&self) -> Instant {
        self.received_at
    }

    /// When bytes given now arrive at another port; frame by frame if credits are counted.
    pub(crate) fn send_to(&mut self, far: &mut Self, now: Instant, bytes: usize) -> Instant {
        let (Some(credits), Some(frames)) = (self.link.credits, self.link.frames) else {
            let arrives = self.send(now, bytes);
            return far.receive(arrives, bytes);
        };
        let mut left = bytes;
        loop {
            let frame = left.min(frames.stream_bytes as usize);
            let begins = self.with_credit(credits, now, frame);
            let sent = self.send(begins, frame);
            let arrives = far.receive(sent, frame);
            if frame > 0 {
                self.buffers_back.push_back(arrives + self.link.latency);
            }
            left -= frame;
            if left == 0 {
                return arrives;
            }
        }
    }

    /// When there is a credit for one more frame.
    fn with_credit(&mut self, credits: u32, now: Instant, frame: usize) -> Instant {
        if frame == 0 || self.buffers_back.len() < credits as usize {
            return now;
        }
        let able = self.free_at.max(now);
        let back = self.buffers_back.pop_front().map_or(able, |back| back.max(able));
        self.carried.credits_ns += back.since(able).as_nanos() as u64;
        back
    }

    /// When bytes given now arrive at the other end.
    pub(crate) fn send(&mut self, now: Instant, bytes: usize) -> Instant {
        let begins = self.free_at.max(now);
        let takes_ns = self.link.takes_ns(bytes);
        self.carried.sent_ns += takes_ns;
        self.free_at = Instant(begins.0 + takes_ns);
        self.free_at + self.link.latency
    }

    /// How many of the bytes that would arrive at `at` find no room; these are the last of them.
    pub(crate) fn overflow(&self, at: Instant, bytes: usize) -> usize {
        let buffer = self.link.loss.and_then(|loss| loss.buffer_bytes);
        let (Some(buffer), Some(rate)) = (buffer, self.link.rate_bytes_per_s) else { return 0 };
        let waits_ns = (self.received_at.0 + self.link.takes_ns(bytes)).saturating_sub(at.0);
        let waits_bytes = (u128::from(waits_ns) * u128::from(rate) / 1_000_000_000) as u64;
        bytes.min(waits_bytes.saturating_sub(buffer) as usize)
    }

    /// When all of the bytes that would arrive at `at` are received, behind those of other senders.
    pub(crate) fn receive(&mut self, at: Instant, bytes: usize) -> Instant {
        if self.link.frames.is_none() {
            return at;
        }
        let takes_ns = self.link.takes_ns(bytes);
        self.carried.received_ns += takes_ns;
        self.received_at = at.max(Instant(self.received_at.0 + takes_ns));
        self.received_at
    }

    pub(crate) fn piece(&self, random: &mut SeededRng) -> usize {
        let most = self.link.piece_bytes.max(1);
        if self.link.splits { random.below(most as u64) as usize + 1 } else { most }
    }
}

/// Identifies a connection as long as either end has it; never reused for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PipeId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// The end that connected, or the one that accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Client,
    Server,
}

impl Side {
    pub const BOTH: [Self; 2] = [Self::Client, Self::Server];

    #[must_use]
    pub fn other(self) -> Self {
        Self::BOTH[1 - self as usize]
    }
}

#[derive(Debug)]
pub(crate) struct Pipe {
    /// Where it leads.
    pub(crate) to: SocketAddr,
    /// Number of this connect among those of its host.
    pub(crate) connect: u64,
    /// The ports that it uses; empty: those of its hosts.
    pub(crate) ways: Rc<Ways>,
    pub(crate) ends: [End; 2],
    /// From the end with the same index to the other.
    pub(crate) flows: [Flow; 2],
}

/// How a connection chooses among several ways for each send. A way that is known to have failed is not used while
/// there is another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The first way.
    #[default]
    First,
    /// Each way in turn.
    InTurn,
    /// The way that will be idle first.
    Shortest,
    /// Each way for [`LONG_TURN`] sends of the connecting end, and replies by the same way. If ways differ in speed,
    /// data on one way rarely wait for earlier data on another. Connections start with different ways in turn.
    InLongTurns,
}

/// The ways of a host's connections; none: from its own link to the other's.
#[derive(Clone, Debug, Default)]
pub struct Ways {
    pub(crate) all: Vec<Way>,
    pub(crate) choice: Choice,
    /// Whether any of them leads through a forwarder.
    pub(crate) forwards: bool,
    /// The address to which each of them leads; empty: each leads to every address.
    portals: Vec<IpAddr>,
}

impl Ways {
    /// Every connection has all these ways.
    pub fn new(all: Vec<Way>, choice: Choice) -> Self {
        let forwards = all.iter().any(|way| way.by.is_some());
        Self { all, choice, forwards, portals: Vec::new() }
    }

    /// Each connection has the ways that lead to its address.
    pub fn to_portals(ways: impl IntoIterator<Item = (IpAddr, Way)>) -> Self {
        let (portals, all) = ways.into_iter().unzip();
        Self { portals, ..Self::new(all, Choice::First) }
    }

    /// Those of a connection to an address.
    pub(crate) fn towards(self: &Rc<Self>, address: IpAddr) -> Rc<Self> {
        if self.portals.is_empty() {
            return Rc::clone(self);
        }
        let ways = self.portals.iter().zip(&self.all).filter(|(portal, _)| **portal == address);
        Rc::new(Self::new(ways.map(|(_, way)| *way).collect(), self.choice))
    }
}

/// Default number of I/Os that the round-robin policy of a widespread hypervisor sends on one path before the next
/// (VMware knowledge base 2069356).
pub(crate) const LONG_TURN: usize = 1000;

/// A way from a port of the connecting end to a port of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    pub near: usize,
    pub far: usize,
    /// The forwarder that has the port `far`, if that port is not of the other end itself.
    pub by: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) host: usize,
    pub(crate) conn: ConnId,
    pub(crate) state: EndState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndState {
    Connecting,
    Open,
    /// Its node has requested the close; bytes that still arrive are discarded.
    Closing,
    Gone,
}

#[derive(Debug, Default)]
pub(crate) struct Flow {
    pub(crate) packets: VecDeque<Packet>,
    pub(crate) in_flight_bytes: usize,
    /// Bytes of the stream sent so far.
    pub(crate) sent_bytes: u64,
    /// Index of the way after the one used last; with `Choice::InLongTurns`, the number of sends.
    pub(crate) sends: usize,
    /// When the last bytes sent arrive: bytes on another way do not overtake them.
    pub(crate) arrives: Instant,
    /// Nothing arrives before this.
    pub(crate) stalled_until: Instant,
    /// The node reported bytes to send, and its queue has not been found empty since.
    pub(crate) dirty: bool,
    /// Anything sent from now on is lost.
    pub(crate) cut: bool,
    /// Packets that arrived and that the receiver does not accept yet.
    pub(crate) refused: u32,
    /// If segments may be lost.
    pub(crate) tcp: Option<Box<Tcp>>,
}

/// Bytes of a stream; without any, the end of the stream.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) bytes: Piece,
    /// The port of the connecting end that it uses.
    pub(crate) by: Option<usize>,
    /// It must be sent again by another port.
    pub(crate) is_lost: bool,
    /// Its end in the stream, and when all of it has arrived; `NEVER` while a part is lost or in a fabric.
    pub(crate) end: u64,
    pub(crate) due: Instant,
    /// An event delivers it, or came while earlier bytes were missing.
    pub(crate) is_awaited: bool,
    /// The forwarder over whose interconnect it reaches the serving controller.
    pub(crate) crossed: Option<u32>,
}

impl Packet {
    pub(crate) fn new(bytes: Piece, end: u64) -> Self {
        Self { bytes, by: None, is_lost: false, end, due: Instant(0), is_awaited: true, crossed: None }
    }

    /// A packet whose arrival its fabric determines.
    pub(crate) fn through_fabric(bytes: Piece, end: u64) -> Self {
        Self { due: NEVER, is_awaited: false, ..Self::new(bytes, end) }
    }
}

/// Due time of a packet of which a part was lost, or that is in a fabric.
pub(crate) const NEVER: Instant = Instant(u64::MAX);

impl Pipe {
    pub(crate) fn end(&self, side: Side) -> &End {
        &self.ends[side as usize]
    }

    pub(crate) fn end_mut(&mut self, side: Side) -> &mut End {
        &mut self.ends[side as usize]
    }

    pub(crate) fn flow(&mut self, from: Side) -> &mut Flow {
        &mut self.flows[from as usize]
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.ends.iter().all(|end| end.state == EndState::Gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_link_sends_waits_for_what_it_sent_before() {
        let link =
            Link { latency: Duration::from_nanos(100), rate_bytes_per_s: Some(1_000_000_000), ..Link::default() };
        let mut nic = Nic::new(link);
        assert_eq!(nic.send(Instant(0), 50), Instant(150));
        assert_eq!(nic.send(Instant(10), 50), Instant(200));
        assert_eq!(nic.send(Instant(1000), 50), Instant(1150));
    }

    #[test]
    fn ethernet_carries_headers_and_brings_what_several_send_in_turn() {
        let rate = Some(1_000_000_000);
        let link = Link {
            latency: Duration::ZERO,
            rate_bytes_per_s: rate,
            frames: Some(Frames::ethernet(1500)),
            ..Link::default()
        };
        let (mut one, mut other, mut to) = (Nic::new(link.clone()), Nic::new(link.clone()), Nic::new(link));
        // 1,448 bytes fill a frame of 1,538.
        assert_eq!(one.send(Instant(0), 2 * 1448), Instant(2 * 1538));
        assert_eq!(to.receive(Instant(2 * 1538), 2 * 1448), Instant(2 * 1538));
        let second = other.send(Instant(0), 2 * 1448);
        assert_eq!(to.receive(second, 2 * 1448), Instant(4 * 1538));
    }

    #[test]
    fn fibre_channel_takes_what_its_encapsulated_frames_are() {
        let rate = Some(1_000_000_000);
        let link = Link {
            latency: Duration::ZERO,
            rate_bytes_per_s: rate,
            frames: Some(Frames::FIBRE_CHANNEL),
            ..Link::default()
        };
        let full = frame::BEFORE_DATA + 2112 + frame::BEHIND_DATA;
        assert_eq!((Frames::FIBRE_CHANNEL.of(full), Frames::FIBRE_CHANNEL.of(full + 1)), (1, 2));
        assert_eq!(Nic::new(link).send(Instant(0), full), Instant(full as u64));
    }
}
