//! Nodes for the drivers: an echo server, a client that checks the replies, and their common state of connections.
#![allow(dead_code, clippy::unwrap_used, reason = "shared by test programs that each use a part")]

use std::{
    collections::VecDeque, net::SocketAddr, rc::Rc, sync::mpsc::RecvTimeoutError, thread::JoinHandle, time::Duration,
};

use iotax_node::{CloseReason, ConnId, Input, Node, Output};
use iotax_proto::{Instant, Payload, Transmit};
use iotax_runtime::{
    Clock, Driver, DriverChoice, DriverConfig, Ended, Flow, Waker, driver::SocketOptions, driver::listen,
    memory::SharedRegion,
};

/// Runs each test over both drivers.
macro_rules! for_both_drivers {
    ($($name:ident),* $(,)?) => {
        mod epoll {
            $(#[test] fn $name() { super::$name(iotax_runtime::DriverChoice::Epoll); })*
        }
        mod io_uring {
            $(#[test] fn $name() {
                if $crate::support::has_io_uring() {
                    super::$name(iotax_runtime::DriverChoice::IoUring);
                }
            })*
        }
    };
}

/// Queues by connection, and notifications when they become non-empty: every node needs these.
#[derive(Default)]
pub(crate) struct Queues {
    queues: Vec<Transmit>,
    told: VecDeque<ConnId>,
}

impl Queues {
    pub(crate) fn of(&mut self, conn: ConnId) -> &mut Transmit {
        let index = conn.0 as usize;
        if self.queues.len() <= index {
            self.queues.resize_with(index + 1, Transmit::default);
        }
        &mut self.queues[index]
    }

    pub(crate) fn add(&mut self, conn: ConnId, add: impl FnOnce(&mut Transmit)) {
        let queue = self.of(conn);
        let was_empty = queue.is_empty();
        add(queue);
        if was_empty && !self.of(conn).is_empty() {
            self.told.push_back(conn);
        }
    }

    pub(crate) fn poll(&mut self) -> Option<ConnId> {
        self.told.pop_front()
    }

    pub(crate) fn len(&self, conn: ConnId) -> usize {
        self.queues.get(conn.0 as usize).map_or(0, Transmit::len)
    }
}

/// The byte at a position of a stream; it depends on both.
pub(crate) fn stream_byte(stream: u32, at: u64) -> u8 {
    let mixed = (at.wrapping_add(u64::from(stream) << 40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as u8
}

pub(crate) fn stream_bytes(stream: u32, at: u64, len: usize) -> Vec<u8> {
    (at..at + len as u64).map(|at| stream_byte(stream, at)).collect()
}

/// Returns the bytes it receives.
#[derive(Default)]
pub(crate) struct Echo {
    pub(crate) queues: Queues,
    outputs: VecDeque<Output>,
    pub(crate) accepted: usize,
    pub(crate) closed: Vec<CloseReason>,
    /// Replies in place from a shared region, if there is one, instead of from copies.
    region: Option<(Rc<dyn iotax_proto::Region>, usize)>,
    /// Limit of queued bytes of a connection; beyond it no more are received from it.
    queue_limit: usize,
    /// After this many bytes of a connection: reply, say goodbye and close.
    close_after: Option<u64>,
    received: Vec<u64>,
    /// In every period of this length, all bytes of a connection except the first `HEAD` have a place in this memory.
    places: Option<Payload>,
    pub(crate) placed_bytes: u64,
    /// Finished after this many connections have ended.
    until_closed: usize,
    /// The maximum number of bytes queued for a connection.
    pub(crate) most_queued: usize,
}

/// Bytes before those that have a place.
const HEAD: usize = 100;

pub(crate) const GOODBYE: &[u8] = b"goodbye";

impl Echo {
    pub(crate) fn new(until_closed: usize) -> Self {
        Self { queue_limit: 256 * 1024, until_closed, ..Self::default() }
    }

    pub(crate) fn queue_limit(mut self, bytes: usize) -> Self {
        self.queue_limit = bytes;
        self
    }

    pub(crate) fn close_after(mut self, bytes: u64) -> Self {
        self.close_after = Some(bytes);
        self
    }

    pub(crate) fn with_places(mut self, period: usize) -> Self {
        let region = SharedRegion::anonymous(period, false).unwrap().region();
        self.places = Some(Payload::new(region, 0, period));
        self
    }

    /// Sends the echo from a region of this size, used as a ring. It must be larger than the queue limit, or bytes are
    /// overwritten in flight.
    pub(crate) fn in_place(mut self, region_bytes: usize) -> Self {
        self.region = Some((SharedRegion::anonymous(region_bytes, false).unwrap().region(), 0));
        self
    }

    fn take(&mut self, conn: ConnId, bytes: &[u8]) {
        self.received[conn.0 as usize] += bytes.len() as u64;
        let region = &mut self.region;
        self.queues.add(conn, |queue| match region {
            None => queue.put(bytes),
            Some((region, at)) => {
                for piece in bytes.chunks(4096) {
                    if *at + piece.len() > region.len() {
                        *at = 0;
                    }
                    region.copy_in(*at, piece);
                    queue.payload(Payload::new(Rc::clone(region), *at, piece.len()));
                    *at += piece.len();
                }
            }
        });
        self.most_queued = self.most_queued.max(self.queues.len(conn));
        if self.close_after.is_some_and(|limit| self.received[conn.0 as usize] >= limit) {
            self.queues.add(conn, |queue| queue.put(GOODBYE));
            self.outputs.push_back(Output::Close { conn });
        }
    }
}

impl Node for Echo {
    fn handle(&mut self, _now: Instant, input: Input<'_>) {
        match input {
            Input::Accepted { conn, .. } => {
                self.accepted += 1;
                let index = conn.0 as usize;
                self.received.resize(self.received.len().max(index + 1), 0);
                self.received[index] = 0;
                self.queues.of(conn).clear();
            }
            Input::Received { conn, bytes } => self.take(conn, bytes),
            Input::Placed { conn, len } => {
                let place = self.place(conn, len).expect("it was named just before");
                self.placed_bytes += len as u64;
                self.take(conn, &place.slice(0, len).to_vec());
            }
            Input::Closed { reason, .. } => self.closed.push(reason),
            Input::Woken => {}
            Input::Connected { .. } | Input::DiskDone { .. } | Input::Timer => panic!("an echo asked for no {input:?}"),
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_transmit(&mut self) -> Option<ConnId> {
        self.queues.poll()
    }

    fn transmit(&mut self, conn: ConnId) -> Option<&mut Transmit> {
        Some(self.queues.of(conn))
    }

    fn wants_receive(&self, conn: ConnId) -> bool {
        self.queues.len(conn) < self.queue_limit
    }

    fn place(&mut self, conn: ConnId, at_least: usize) -> Option<Payload> {
        let places = self.places.as_ref()?;
        let at = usize::try_from(self.received[conn.0 as usize]).unwrap() % places.len();
        let left = places.len() - at;
        (at >= HEAD && left >= at_least).then(|| places.slice(at, left))
    }

    fn is_finished(&self) -> bool {
        self.until_closed > 0 && self.closed.len() >= self.until_closed
    }
}

/// Opens connections, sends a stream on each with a window of bytes in flight, and checks the replies.
pub(crate) struct Client {
    queues: Queues,
    outputs: VecDeque<Output>,
    streams: Vec<Stream>,
    burst: usize,
    total: u64,
    window: u64,
    /// Expected after the stream, before the end.
    pub(crate) goodbye: Vec<u8>,
    /// Closes when all bytes were echoed; otherwise waits for the server to close.
    pub(crate) closes: bool,
}

#[derive(Default)]
struct Stream {
    sent: u64,
    received: u64,
    goodbye: Vec<u8>,
    connected: bool,
    closed: Option<CloseReason>,
}

impl Client {
    pub(crate) fn new(to: SocketAddr, conns: u32, total: u64, burst: usize, window: u64) -> Self {
        Self {
            queues: Queues::default(),
            outputs: (0..conns).map(|conn| Output::Connect { conn: ConnId(conn), to }).collect(),
            streams: (0..conns).map(|_| Stream::default()).collect(),
            burst,
            total,
            window,
            goodbye: Vec::new(),
            closes: true,
        }
    }

    fn send(&mut self, conn: ConnId) {
        let stream = &mut self.streams[conn.0 as usize];
        while stream.sent < self.total && stream.sent - stream.received < self.window {
            let len = self.burst.min(usize::try_from(self.total - stream.sent).unwrap());
            let bytes = stream_bytes(conn.0, stream.sent, len);
            stream.sent += len as u64;
            self.queues.add(conn, |queue| queue.put(&bytes));
        }
    }

    pub(crate) fn reasons(&self) -> Vec<CloseReason> {
        self.streams.iter().filter_map(|stream| stream.closed.clone()).collect()
    }

    /// Whether every connection was established, returned everything, and ended in order.
    pub(crate) fn is_complete(&self) -> bool {
        self.streams.iter().all(|stream| {
            stream.connected
                && stream.received == self.total
                && stream.goodbye == self.goodbye
                && stream.closed == Some(CloseReason::Ended)
        })
    }
}

impl Node for Client {
    fn handle(&mut self, _now: Instant, input: Input<'_>) {
        match input {
            Input::Connected { conn } => {
                self.streams[conn.0 as usize].connected = true;
                self.send(conn);
            }
            Input::Received { conn, bytes } => {
                let stream = &mut self.streams[conn.0 as usize];
                for &byte in bytes {
                    if stream.received < self.total {
                        assert_eq!(byte, stream_byte(conn.0, stream.received), "{conn:?} at {}", stream.received);
                        stream.received += 1;
                    } else {
                        stream.goodbye.push(byte);
                    }
                }
                if stream.received == self.total && self.closes {
                    self.outputs.push_back(Output::Close { conn });
                }
                self.send(conn);
            }
            Input::Closed { conn, reason } => self.streams[conn.0 as usize].closed = Some(reason),
            Input::Woken => {}
            Input::Accepted { .. } | Input::Placed { .. } | Input::DiskDone { .. } | Input::Timer => {
                panic!("a client asked for no {input:?}")
            }
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_transmit(&mut self) -> Option<ConnId> {
        self.queues.poll()
    }

    fn transmit(&mut self, conn: ConnId) -> Option<&mut Transmit> {
        Some(self.queues.of(conn))
    }

    fn is_finished(&self) -> bool {
        self.streams.iter().all(|stream| stream.closed.is_some())
    }
}

/// Whether tests of io_uring can run; if not, prints the reason on standard error. If `CI` is true they must run.
pub(crate) fn has_io_uring() -> bool {
    match iotax_runtime::driver::choose(DriverChoice::IoUring) {
        Ok(_) => true,
        Err(error) if std::env::var("CI").is_ok_and(|ci| ci == "true") => panic!("{error}"),
        Err(error) => {
            eprintln!("skipped: {error}");
            false
        }
    }
}

pub(crate) fn config(choice: DriverChoice) -> DriverConfig {
    DriverConfig::new(choice, Clock::start()).unwrap()
}

/// A send buffer so small that sends are cut into pieces. (With a tiny receive buffer, the loopback itself stalls for
/// 40 ms at a time.)
pub(crate) const TINY: SocketOptions =
    SocketOptions { send_buffer_bytes: Some(4096), receive_buffer_bytes: Some(256 * 1024) };

/// A node on a separate thread, which can be stopped.
pub(crate) struct Server<R> {
    pub(crate) address: SocketAddr,
    pub(crate) waker: Waker,
    thread: JoinHandle<(Ended, R)>,
}

impl<R: Send + 'static> Server<R> {
    /// `result` selects what the test needs from the node at the end.
    pub(crate) fn start<N: Node>(
        choice: DriverChoice,
        socket: SocketOptions,
        node: impl FnOnce() -> N + Send + 'static,
        result: impl FnOnce(N) -> R + Send + 'static,
    ) -> Self {
        let listener = listen("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut config = config(choice);
        config.listeners.push(listener);
        config.socket = socket;
        let waker = config.waker.clone();
        let thread = std::thread::spawn(move || {
            let mut node = node();
            let ended = Driver::new(config).unwrap().run(&mut node, |_, _| Flow::Continue).unwrap();
            (ended, result(node))
        });
        Self { address, waker, thread }
    }

    pub(crate) fn join(self) -> (Ended, R) {
        self.thread.join().unwrap()
    }

    pub(crate) fn stop(self) -> R {
        self.waker.stop();
        let (ended, result) = self.join();
        assert_eq!(ended, Ended::Stopped);
        result
    }
}

/// Runs a node on this thread; fails the test if it does not finish in time.
pub(crate) fn run<N: Node>(config: DriverConfig, node: &mut N) {
    let waker = config.waker.clone();
    let (done, watch) = std::sync::mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        if watch.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
            waker.stop();
        }
    });
    let ended = Driver::new(config).unwrap().run(node, |_, _| Flow::Continue).unwrap();
    drop(done);
    watchdog.join().unwrap();
    assert_eq!(ended, Ended::Finished, "the node finished within a minute");
}
