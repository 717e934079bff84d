//! Guarantees of both drivers for sockets: all bytes arrive in order with buffers of any size, and every end is
//! reported once.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::{
    collections::VecDeque,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::support::{Client, Echo, GOODBYE, Queues, Server, TINY, config, run, stream_bytes};
use iotax_node::{CloseReason, ConnId, Input, Node, Output};
use iotax_proto::{Instant, Transmit};
use iotax_runtime::{
    Driver, DriverChoice, DriverKind, Ended, Flow,
    driver::{Polling, SocketOptions},
};

for_both_drivers!(
    a_stream_comes_back_whole,
    tiny_buffers_cut_sends_and_lose_nothing,
    payloads_are_sent_in_place,
    bytes_that_have_a_place_are_received_there,
    a_peer_that_dies_within_a_place_is_told_of,
    many_connections_share_a_driver,
    a_full_queue_stops_receiving_until_it_drains,
    bytes_queued_before_a_close_are_sent,
    a_peer_that_does_not_read_is_given_up_in_bounded_time,
    a_refused_connection_is_told_with_its_reason,
    a_reset_is_told_with_its_reason,
    a_half_closed_peer_still_gets_its_answer,
    timers_never_come_early,
    commands_reach_the_node_and_stop_ends_the_run,
    connections_are_spread_over_drivers_in_turn,
    connections_that_carry_no_io_do_not_count_where_the_next_goes,
    connections_beyond_the_limit_are_closed,
    a_flood_does_not_starve_others,
    a_driver_that_goes_closes_connections_that_nobody_took,
    polling_finds_work,
);

/// Tests that measure this machine: they run alone, and again if they were disturbed (scripts/run-tests).
mod machine {
    use super::*;

    for_both_drivers!(
        timers_come_when_they_are_due,
        a_node_that_is_always_due_runs_without_sleeping,
        an_idle_driver_sleeps,
        polling_sleeps_where_there_is_no_work,
    );
}

fn echo(choice: DriverChoice, conns: u32, total: u64, burst: usize, window: u64, socket: SocketOptions) {
    let server = Server::start(choice, socket, move || Echo::new(conns as usize), |echo| (echo.accepted, echo.closed));
    let mut client = Client::new(server.address, conns, total, burst, window);
    let mut config = config(choice);
    config.socket = socket;
    run(config, &mut client);
    assert!(client.is_complete());
    let (ended, (accepted, closed)) = server.join();
    assert_eq!((ended, accepted), (Ended::Finished, conns as usize));
    assert_eq!(closed, vec![CloseReason::Ended; conns as usize]);
}

fn a_driver_that_goes_closes_connections_that_nobody_took(choice: DriverChoice) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut config = config(choice);
    config.listeners.push(listener);
    let driver = Driver::new(config).unwrap();
    let mut clients: Vec<_> = (0..8).map(|_| TcpStream::connect(address).unwrap()).collect();
    drop(driver);
    for client in &mut clients {
        client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        match client.read(&mut [0; 8]) {
            Ok(0) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            other => panic!("still open: {other:?}"),
        }
    }
}

fn a_stream_comes_back_whole(choice: DriverChoice) {
    echo(choice, 1, 20_000_000, 100_000, 1_000_000, SocketOptions::default());
    echo(choice, 1, 10_000, 1, 1, SocketOptions::default());
}

fn tiny_buffers_cut_sends_and_lose_nothing(choice: DriverChoice) {
    echo(choice, 2, 300_000, 50_000, 150_000, TINY);
}

fn payloads_are_sent_in_place(choice: DriverChoice) {
    for socket in [SocketOptions::default(), TINY] {
        let server = Server::start(choice, socket, || Echo::new(1).in_place(1 << 20), |echo| echo.closed);
        let mut client = Client::new(server.address, 1, 200_000, 70_000, 150_000);
        run(config(choice), &mut client);
        assert!(client.is_complete());
        assert_eq!(server.join().1, [CloseReason::Ended]);
    }
}

fn bytes_that_have_a_place_are_received_there(choice: DriverChoice) {
    // Sizes that are not worth a separate receive, that are, and that exceed one receive.
    for (period, some) in [(10_000, false), (40_000, true), (70_000, true), (300_000, true)] {
        for (conns, socket) in [(1, SocketOptions::default()), (7, SocketOptions::default()), (2, TINY)] {
            for queue_limit in [20_000, 2_000_000] {
                let node = move || Echo::new(conns as usize).with_places(period).queue_limit(queue_limit);
                let server = Server::start(choice, socket, node, |echo| (echo.closed, echo.placed_bytes));
                let mut client = Client::new(server.address, conns, 1_000_000, 90_000, 700_000);
                run(config(choice), &mut client);
                assert!(client.is_complete());
                let (closed, placed_bytes) = server.join().1;
                assert_eq!(closed, vec![CloseReason::Ended; conns as usize]);
                assert_eq!(placed_bytes > 0, some, "{placed_bytes} of {period}");
            }
        }
    }
}

fn a_peer_that_dies_within_a_place_is_told_of(choice: DriverChoice) {
    for resets in [false, true] {
        let server =
            Server::start(choice, SocketOptions::default(), || Echo::new(1).with_places(300_000), |echo| echo.closed);
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.write_all(&stream_bytes(0, 0, 1_000)).unwrap();
        // It has been echoed: the rest is now awaited in its place.
        stream.read_exact(&mut [0; 1_000]).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        if resets {
            socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        }
        drop(stream);
        let reason = if resets { CloseReason::Failed(libc::ECONNRESET) } else { CloseReason::Ended };
        assert_eq!(server.join().1, [reason]);
    }
}

fn many_connections_share_a_driver(choice: DriverChoice) {
    echo(choice, 200, 50_000, 3_000, 20_000, SocketOptions::default());
}

fn a_full_queue_stops_receiving_until_it_drains(choice: DriverChoice) {
    let server = Server::start(choice, TINY, || Echo::new(1).queue_limit(10_000), |echo| echo.most_queued);
    let mut stream = TcpStream::connect(server.address).unwrap();
    let sent = stream_bytes(0, 0, 4_000_000);
    let writer = std::thread::spawn({
        let mut stream = stream.try_clone().unwrap();
        let sent = sent.clone();
        move || stream.write_all(&sent).unwrap()
    });
    // Long enough for the server to fill its queue and go to sleep.
    std::thread::sleep(Duration::from_millis(100));
    let mut back = vec![0; sent.len()];
    stream.read_exact(&mut back).unwrap();
    assert!(back == sent);
    writer.join().unwrap();
    drop(stream);
    let (_, most_queued) = server.join();
    assert!(most_queued < 10_000 + 1_000_000, "{most_queued} bytes queued in spite of the node's limit");
}

fn bytes_queued_before_a_close_are_sent(choice: DriverChoice) {
    for socket in [SocketOptions::default(), TINY] {
        let total = 500_000;
        let node = move || Echo::new(1).queue_limit(1_000_000).close_after(total);
        let server = Server::start(choice, socket, node, |echo| echo.closed);
        let mut client = Client::new(server.address, 1, total, 50_000, total);
        client.goodbye = GOODBYE.to_vec();
        client.closes = false;
        run(config(choice), &mut client);
        assert!(client.is_complete());
        assert_eq!(server.join().1, [CloseReason::Ended]);
    }
}

fn a_peer_that_does_not_read_is_given_up_in_bounded_time(choice: DriverChoice) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut node = Scripted::connecting_to(listener.local_addr().unwrap());
    node.on_connected = Some(|node, conn| {
        node.queues.add(conn, |queue| queue.zeros(20_000_000));
        node.outputs.push_back(Output::Close { conn });
    });
    let mut config = config(choice);
    config.close_timeout = Duration::from_millis(200);
    let begun = std::time::Instant::now();
    run(config, &mut node);
    assert_eq!(node.closed, [CloseReason::Failed(libc::ETIMEDOUT)]);
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(200) && took < Duration::from_secs(60), "{took:?}");
}

fn a_refused_connection_is_told_with_its_reason(choice: DriverChoice) {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut node = Scripted::connecting_to(free);
    run(config(choice), &mut node);
    assert_eq!(node.closed, [CloseReason::Failed(libc::ECONNREFUSED)]);
}

fn a_reset_is_told_with_its_reason(choice: DriverChoice) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let peer = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    });
    let mut node = Scripted::connecting_to(address);
    run(config(choice), &mut node);
    peer.join().unwrap();
    assert_eq!(node.closed, [CloseReason::Failed(libc::ECONNRESET)]);
}

fn a_half_closed_peer_still_gets_its_answer(choice: DriverChoice) {
    let server = Server::start(choice, TINY, || Echo::new(1).queue_limit(2_000_000), |echo| echo.closed);
    let mut stream = TcpStream::connect(server.address).unwrap();
    let sent = stream_bytes(0, 0, 100_000);
    stream.write_all(&sent).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    assert!(back == sent);
    assert_eq!(server.join().1, [CloseReason::Ended]);
}

fn timers_never_come_early(choice: DriverChoice) {
    let mut node = Scripted { timer_period: Some(Duration::from_millis(2)), timers_left: 25, ..Scripted::default() };
    let begun = std::time::Instant::now();
    run(config(choice), &mut node);
    assert!(begun.elapsed() >= Duration::from_millis(48), "{:?}", begun.elapsed());
    assert_eq!(node.timer_lateness.len(), 25);
}

fn timers_come_when_they_are_due(choice: DriverChoice) {
    let mut node = Scripted { timer_period: Some(Duration::from_millis(2)), timers_left: 25, ..Scripted::default() };
    run(config(choice), &mut node);
    let mut late: Vec<_> = node.timer_lateness.clone();
    late.sort_unstable();
    assert!(late[12] < Duration::from_millis(2), "median {:?} late", late[12]);
}

fn a_node_that_is_always_due_runs_without_sleeping(choice: DriverChoice) {
    let mut node = Scripted { timer_period: Some(Duration::ZERO), timers_left: 200_000, ..Scripted::default() };
    let begun = std::time::Instant::now();
    run(config(choice), &mut node);
    assert_eq!(node.timer_lateness.len(), 200_000);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

fn commands_reach_the_node_and_stop_ends_the_run(choice: DriverChoice) {
    let (send, commands) = std::sync::mpsc::channel::<u32>();
    let config = config(choice);
    let waker = config.waker.clone();
    let driver = std::thread::spawn(move || {
        let mut node =
            Scripted { timer_period: Some(Duration::from_secs(3600)), timers_left: 2, ..Scripted::default() };
        let mut seen = Vec::new();
        let driver = Driver::new(config).unwrap();
        let ended = driver
            .run(&mut node, |_, _| {
                seen.extend(commands.try_iter());
                if seen.last() == Some(&999) { Flow::Stop } else { Flow::Continue }
            })
            .unwrap();
        (ended, seen)
    });
    for command in 0..1000 {
        send.send(command).unwrap();
        waker.wake();
        if command % 100 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert_eq!(driver.join().unwrap(), (Ended::Stopped, (0..1000).collect()));

    let server = Server::start(choice, TINY, || Echo::new(0), |echo| echo.accepted);
    let mut open = TcpStream::connect(server.address).unwrap();
    // The reply shows that the connection was accepted.
    open.write_all(b"!").unwrap();
    open.read_exact(&mut [0]).unwrap();
    assert_eq!(server.stop(), 1);
}

fn connections_are_spread_over_drivers_in_turn(choice: DriverChoice) {
    let listener = iotax_runtime::driver::listen("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut configs = [config(choice), config(choice), config(choice)];
    let wakers: Vec<_> = configs.iter().map(|config| config.waker.clone()).collect();
    configs[0].accept_to.clone_from(&wakers);
    configs[0].listeners.push(listener);
    let threads = configs.map(|config| {
        std::thread::spawn(move || {
            let mut node = Echo::new(0);
            Driver::new(config).unwrap().run(&mut node, |_, _| Flow::Continue).unwrap();
            node.accepted
        })
    });
    // One after another, and all stay open: a connection that has ended would make room for the next.
    let mut open = Vec::new();
    for _ in 0..12 {
        let mut stream = TcpStream::connect(address).unwrap();
        // A driver reports its load between two turns: the second reply arrives after the connection has been counted.
        for _ in 0..2 {
            stream.write_all(b"!").unwrap();
            stream.read_exact(&mut [0]).unwrap();
        }
        open.push(stream);
    }
    for waker in wakers {
        waker.stop();
    }
    for thread in threads {
        assert_eq!(thread.join().unwrap(), 4);
    }
}

fn connections_that_carry_no_io_do_not_count_where_the_next_goes(choice: DriverChoice) {
    let listener = iotax_runtime::driver::listen("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut configs = [config(choice), config(choice)];
    let wakers: Vec<_> = configs.iter().map(|config| config.waker.clone()).collect();
    configs[0].accept_to.clone_from(&wakers);
    configs[0].listeners.push(listener);
    let threads = configs.map(|config| {
        std::thread::spawn(move || {
            let mut node = Sorted::default();
            Driver::new(config).unwrap().run(&mut node, |_, _| Flow::Continue).unwrap();
            node.echo.accepted - node.idle
        })
    });
    // As NVMe hosts do: an admin queue, then an I/O queue.
    let mut streams = Vec::new();
    for kind in [ADMIN, b'q'].repeat(4) {
        let mut stream = TcpStream::connect(address).unwrap();
        // A driver reports its load between two turns: the second reply arrives after the first byte has been counted.
        for _ in 0..2 {
            stream.write_all(&[kind]).unwrap();
            stream.read_exact(&mut [0]).unwrap();
        }
        streams.push(stream);
    }
    for waker in wakers {
        waker.stop();
    }
    assert_eq!(threads.map(|thread| thread.join().unwrap()), [2, 2]);
}

const ADMIN: u8 = b'a';

/// An echo server whose connections carry no I/O if their first byte is `ADMIN`.
#[derive(Default)]
struct Sorted {
    echo: Echo,
    known: Vec<ConnId>,
    idle: usize,
}

impl Node for Sorted {
    fn handle(&mut self, now: Instant, input: Input<'_>) {
        if let Input::Received { conn, bytes } = &input
            && !self.known.contains(conn)
        {
            self.known.push(*conn);
            self.idle += usize::from(bytes[0] == ADMIN);
        }
        self.echo.handle(now, input);
    }

    fn idle_connections(&self) -> usize {
        self.idle
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.echo.poll_output()
    }

    fn poll_transmit(&mut self) -> Option<ConnId> {
        self.echo.poll_transmit()
    }

    fn transmit(&mut self, conn: ConnId) -> Option<&mut Transmit> {
        self.echo.transmit(conn)
    }

    fn is_finished(&self) -> bool {
        false
    }
}

fn connections_beyond_the_limit_are_closed(choice: DriverChoice) {
    let listener = iotax_runtime::driver::listen("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut config = config(choice);
    config.listeners.push(listener);
    config.max_connections = 2;
    let waker = config.waker.clone();
    let server = std::thread::spawn(move || {
        let mut node = Echo::new(0);
        Driver::new(config).unwrap().run(&mut node, |_, _| Flow::Continue).unwrap();
        node.accepted
    });
    let mut streams: Vec<_> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut byte = [0];
    assert_eq!(streams[2].read(&mut byte).unwrap(), 0, "the third is closed");
    for stream in &mut streams[..2] {
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut byte).unwrap();
    }
    waker.stop();
    assert_eq!(server.join().unwrap(), 2);
}

fn an_idle_driver_sleeps(choice: DriverChoice) {
    let (send, receive) = std::sync::mpsc::channel();
    let node = move || {
        send.send(ProcessorTime::of_this_thread()).unwrap();
        Echo::new(0).queue_limit(0)
    };
    let server = Server::start(choice, TINY, node, |echo| echo.accepted);
    let time = receive.recv().unwrap();
    // Bytes that the node never accepts, the end of a stream behind them, and an idle connection.
    let mut unwanted = TcpStream::connect(server.address).unwrap();
    unwanted.write_all(&vec![0; 100_000]).unwrap();
    unwanted.shutdown(std::net::Shutdown::Write).unwrap();
    let _standing = TcpStream::connect(server.address).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let before = time.read();
    std::thread::sleep(Duration::from_millis(300));
    let used = time.read().saturating_sub(before);
    assert!(used < Duration::from_millis(5), "{used:?} of processor time in 300 idle ms");
    assert_eq!(server.stop(), 2);
}

fn polling_finds_work(choice: DriverChoice) {
    let server = Server::start(choice, SocketOptions::default(), || Echo::new(1), |echo| echo.closed);
    let mut client = Client::new(server.address, 1, 100_000, 100, 100);
    let mut polling = config(choice);
    polling.polling = Polling::Auto;
    run(polling, &mut client);
    assert!(client.is_complete());
    assert_eq!(server.join().1, [CloseReason::Ended]);
}

fn polling_sleeps_where_there_is_no_work(choice: DriverChoice) {
    let mut node = Scripted { timer_period: Some(Duration::from_millis(5)), timers_left: 40, ..Scripted::default() };
    let mut waiting = config(choice);
    waiting.polling = Polling::Auto;
    let time = ProcessorTime::of_this_thread();
    let before = time.read();
    run(waiting, &mut node);
    let used = time.read().saturating_sub(before);
    assert!(used < Duration::from_millis(10), "{used:?} of processor time for 40 waits that were long");
}

/// A thread's processor clock, readable from another thread.
struct ProcessorTime(libc::clockid_t);

impl ProcessorTime {
    fn of_this_thread() -> Self {
        let mut clock = 0;
        // SAFETY: the thread is this one, and `clock` has room for the one value that the call writes.
        assert_eq!(unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) }, 0);
        Self(clock)
    }

    fn read(&self) -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` has room for the one value that the call writes.
        assert_eq!(unsafe { libc::clock_gettime(self.0, &raw mut time) }, 0);
        Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap())
    }
}

fn a_flood_does_not_starve_others(choice: DriverChoice) {
    let node = || Echo::new(0).queue_limit(usize::MAX);
    let server = Server::start(choice, SocketOptions::default(), node, |echo| echo.accepted);
    let address = server.address;
    let stop = Arc::new(AtomicBool::new(false));
    let (flowing, flows) = std::sync::mpsc::channel();
    let floods: Vec<_> = (0..2)
        .map(|_| {
            let stop = Arc::clone(&stop);
            let flowing = flowing.clone();
            std::thread::spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                let mut reader = stream.try_clone().unwrap();
                let drain = std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()).unwrap());
                let bytes = vec![1; 1 << 20];
                stream.write_all(&bytes).unwrap();
                flowing.send(()).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    stream.write_all(&bytes).unwrap();
                }
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                drain.join().unwrap()
            })
        })
        .collect();
    assert_eq!(flows.iter().take(2).count(), 2);
    let mut stream = TcpStream::connect(address).unwrap();
    let mut byte = [0];
    for round in 0..50 {
        stream.write_all(&[round]).unwrap();
        stream.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [round]);
    }
    stop.store(true, Ordering::Relaxed);
    for flood in floods {
        assert!(flood.join().unwrap() > 0);
    }
    assert_eq!(server.stop(), 3);
}

/// A node controlled by the test.
#[derive(Default)]
struct Scripted {
    queues: Queues,
    outputs: VecDeque<Output>,
    on_connected: Option<fn(&mut Self, ConnId)>,
    closed: Vec<CloseReason>,
    connects: bool,
    timer_period: Option<Duration>,
    timer_due: Instant,
    timers_left: usize,
    timer_lateness: Vec<Duration>,
}

impl Scripted {
    fn connecting_to(to: SocketAddr) -> Self {
        Self { outputs: [Output::Connect { conn: ConnId(0), to }].into(), connects: true, ..Self::default() }
    }
}

impl Node for Scripted {
    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Connected { conn } => {
                if let Some(act) = self.on_connected {
                    act(self, conn);
                }
            }
            Input::Closed { reason, .. } => self.closed.push(reason),
            Input::Timer => {
                assert!(now >= self.timer_due, "a timer came early");
                self.timer_lateness.push(now.since(self.timer_due));
                self.timers_left -= 1;
                self.timer_due = now + self.timer_period.unwrap();
            }
            Input::Woken => {}
            Input::Accepted { .. } | Input::Received { .. } | Input::Placed { .. } | Input::DiskDone { .. } => {
                panic!("unexpected {input:?}")
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

    fn poll_timeout(&self) -> Option<Instant> {
        (self.timers_left > 0).then_some(self.timer_due)
    }

    fn is_finished(&self) -> bool {
        if self.connects { !self.closed.is_empty() } else { self.timers_left == 0 }
    }
}

#[test]
fn the_driver_says_which_it_is() {
    assert_eq!(Driver::new(config(DriverChoice::Epoll)).unwrap().kind(), DriverKind::Epoll);
    assert_eq!("io_uring".parse::<DriverChoice>().unwrap(), DriverChoice::IoUring);
    let error = "kqueue".parse::<DriverChoice>().unwrap_err();
    assert_eq!(error.to_string(), "there is no driver \"kqueue\": use auto, io_uring or epoll");
}
