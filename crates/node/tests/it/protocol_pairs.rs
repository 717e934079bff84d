//! Two clients of any two protocols write to one block of a disk at the same time: afterwards both writes are present.

use std::{
    net::SocketAddr,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::support::{Heap, perform, server::PROTOCOLS};
use iotax_node::{
    ConnId, DiskId, DiskOp, DiskToken, Input, ListenerId, Node, Output, Server, ServerConfig, ServerNode,
    server::{Export, ExportOptions, Protocol, Squash, plan_portals},
    volume::{Media, VolumeSpec},
};
use iotax_proto::{
    Geometry, Initiator, InitiatorEvents, Instant, Io, IoError, Payload, Tag, fc_nvme, fcp, iscsi,
    nfs::{common::Stability, v3, v41},
    nvme::{QueueId, fabrics::host::SessionConfig},
    nvme_tcp::{AdminQueue, ConnectConfig, IoQueue},
};

const NOW: Instant = Instant(5);
const SIZE: u64 = 1 << 20;
const BLOCK: usize = 4096;

#[derive(Default)]
struct News {
    is_ready: bool,
    done: Vec<Result<(), IoError>>,
}

impl InitiatorEvents for News {
    fn ready(&mut self, _: Instant, _: &Geometry) {
        self.is_ready = true;
    }
    fn data(&mut self, _: Tag, _: u32, _: &[u8]) {}
    fn complete(&mut self, _: Instant, _: Tag, result: Result<(), IoError>) {
        self.done.push(result);
    }
    fn closed(&mut self, _: Instant) {}
}

/// One connection of a client, to one thread of the server.
struct Client {
    initiator: Box<dyn Initiator>,
    thread: usize,
    conn: ConnId,
    news: News,
}

/// Which disk operation under way ends first.
#[derive(Clone, Copy, Debug)]
enum Order {
    Oldest,
    Latest,
}

/// A server of one volume on a disk, over every protocol, on two threads.
struct World {
    server: Arc<Server>,
    threads: Vec<ServerNode>,
    conns: u32,
    clients: Vec<Client>,
    disk: Rc<Heap>,
    asked: Vec<(usize, DiskToken, DiskOp)>,
    woken: Arc<AtomicBool>,
}

impl World {
    fn new() -> Self {
        let media = Media::Disk { disk: DiskId(0), block_size: BLOCK as u32 };
        let export = |(protocol, port): (&Protocol, u16)| Export {
            protocol: *protocol,
            volume: 0,
            read_only: false,
            listen: SocketAddr::from(([127, 0, 0, 1], port)),
            groups: None,
            portmap: None,
            squash: Squash::None,
            options: ExportOptions::default(),
        };
        let exports: Vec<_> = PROTOCOLS.iter().zip(40_001..).map(export).collect();
        let server = Server::new(ServerConfig {
            volumes: vec![VolumeSpec::new("v0", SIZE, media)],
            portals: plan_portals(&exports).expect("a plan"),
            exports,
            started_unix_ns: 1,
            secret: [1; 32],
            connections_max: 64,
            has_frame_crc: true,
        });
        let woken = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&woken);
        server.wake_with(move || flag.store(true, Ordering::SeqCst));
        let thread = |number| {
            let allocate = Box::new(|len| Some(Heap::new(len) as _));
            ServerNode::new(Arc::clone(&server), number, &mut |_| Heap::new(1), allocate, None)
        };
        let threads = vec![thread(0), thread(1)];
        let disk = Heap::new(SIZE as usize);
        Self { server, threads, conns: 0, clients: Vec::new(), disk, asked: Vec::new(), woken }
    }

    fn connect(&mut self, protocol: Protocol, thread: usize, initiator: Box<dyn Initiator>) -> usize {
        let listener = place_of(protocol);
        let (conn, peer) = (ConnId(self.conns), SocketAddr::from(([127, 0, 0, 1], 50_000 + self.conns as u16)));
        self.conns += 1;
        let listener = ListenerId(listener as u32);
        self.threads[thread].handle(NOW, Input::Accepted { conn, listener, peer });
        self.clients.push(Client { initiator, thread, conn, news: News::default() });
        self.pump();
        let index = self.clients.len() - 1;
        assert!(self.clients[index].news.is_ready, "{protocol:?} is not ready");
        index
    }

    fn client(&mut self, protocol: Protocol, thread: usize) -> usize {
        let endpoint = self.server.endpoint(place_of(protocol));
        let name = endpoint.split('/').nth(3).unwrap_or_default().split('?').next().unwrap_or_default().to_owned();
        match protocol {
            Protocol::Nfs3 => {
                let config = v3::initiator::Config {
                    export: format!("/{name}"),
                    file: "data".to_owned(),
                    stability: Stability::FileSync,
                    ..v3::initiator::Config::default()
                };
                self.connect(protocol, thread, Box::new(v3::initiator::Mount::new(NOW, config)))
            }
            Protocol::Nfs41 => {
                let config = v41::initiator::Config {
                    file: format!("/{name}/data"),
                    owner: self.conns.to_be_bytes().to_vec(),
                    stability: Stability::FileSync,
                    ..v41::initiator::Config::default()
                };
                self.connect(protocol, thread, Box::new(v41::initiator::Client::new(NOW, config)))
            }
            Protocol::Iscsi => {
                let mut config = iscsi::initiator::Config::new("iqn.2026-11.x:i", &name, 0);
                config.isid[5] = self.conns as u8;
                self.connect(protocol, thread, Box::new(iscsi::initiator::Session::new(NOW, config)))
            }
            Protocol::Fcp => {
                let target = u64::from_str_radix(&name, 16).expect("a WWPN");
                let port = fcp::Port::new(fcp::PortName(self.conns.into()), fcp::PortName(0));
                let config = fcp::initiator::Config::new(port, fcp::PortName(target), 0);
                self.connect(protocol, thread, Box::new(fcp::initiator::Session::new(NOW, config)))
            }
            Protocol::FcNvme => {
                let target = u64::from_str_radix(&name, 16).expect("a WWPN");
                let port = fcp::Port::new(fcp::PortName(self.conns.into()), fcp::PortName(0));
                let nqn = endpoint.split('/').nth(4).and_then(|last| last.split('?').next()).expect("an NQN");
                let session = SessionConfig::new(nqn, "nqn.2026-11.x:h", [self.conns as u8 + 1; 16]);
                let config = fc_nvme::initiator::Config::new(port, fcp::PortName(target), session);
                self.connect(protocol, thread, Box::new(fc_nvme::initiator::Session::new(NOW, config)))
            }
            Protocol::NvmeTcp => {
                let config = ConnectConfig::new(&*name, "nqn.2026-11.x:h", [self.conns as u8 + 1; 16]);
                let admin = self.connect_admin(thread, &config);
                self.connect(protocol, thread, Box::new(admin))
            }
        }
    }

    /// Opens the admin queue of a controller, which stays open. Returns its I/O queue.
    fn connect_admin(&mut self, thread: usize, config: &ConnectConfig) -> IoQueue {
        let listener = ListenerId(place_of(Protocol::NvmeTcp) as u32);
        let (conn, peer) = (ConnId(self.conns), SocketAddr::from(([127, 0, 0, 1], 50_000 + self.conns as u16)));
        self.conns += 1;
        let node = &mut self.threads[thread];
        node.handle(NOW, Input::Accepted { conn, listener, peer });
        let (mut admin, mut news) = (AdminQueue::new(NOW, config.clone()), News::default());
        for _ in 0..100 {
            let bytes = admin.transmit().take_bytes();
            if !bytes.is_empty() {
                node.handle(NOW, Input::Received { conn, bytes: &bytes });
            }
            let bytes = node.transmit(conn).expect("a connection").take_bytes();
            admin.receive(NOW, &bytes, &mut news).expect("an admin queue");
        }
        let info = admin.controller().expect("a controller");
        IoQueue::new(NOW, config, info, QueueId(1))
    }

    fn write(&mut self, client: usize, offset: u64, data: Vec<u8>) {
        let io = Io::Write { offset, data: Payload::from_vec(data), durable: false };
        self.clients[client].initiator.submit(NOW, 0, io).expect("credit");
        self.pump();
    }

    /// Exchanges bytes until nothing happens. Disk reads are executed at once, disk writes when they end.
    fn pump(&mut self) {
        for _ in 0..100 {
            for client in &mut self.clients {
                let node = &mut self.threads[client.thread];
                let bytes = client.initiator.transmit().take_bytes();
                if !bytes.is_empty() {
                    node.handle(NOW, Input::Received { conn: client.conn, bytes: &bytes });
                }
                let bytes = node.transmit(client.conn).expect("a connection").take_bytes();
                if !bytes.is_empty() {
                    client.initiator.receive(NOW, &bytes, &mut client.news).expect("a session");
                }
            }
            let woken = self.woken.swap(false, Ordering::SeqCst);
            for (index, node) in self.threads.iter_mut().enumerate() {
                if woken {
                    node.handle(NOW, Input::Woken);
                }
                if node.poll_timeout().is_some_and(|at| at <= NOW) {
                    node.handle(NOW, Input::Timer);
                }
                while let Some(output) = node.poll_output() {
                    let Output::Disk { token, op, .. } = output else { panic!("{output:?}") };
                    if matches!(op, DiskOp::Read { .. }) {
                        perform(&self.disk, &op).expect("a read");
                    }
                    self.asked.push((index, token, op));
                }
            }
        }
    }

    fn finish(&mut self, order: Order) {
        while !self.asked.is_empty() {
            let at = match order {
                Order::Oldest => 0,
                Order::Latest => self.asked.len() - 1,
            };
            let (thread, token, op) = self.asked.remove(at);
            let result = match &op {
                DiskOp::Read { into, .. } => Ok(into.len() as u32),
                op => perform(&self.disk, op),
            };
            self.threads[thread].handle(NOW, Input::DiskDone { token, result });
            self.pump();
        }
    }
}

/// Index of the protocol's export and listener.
fn place_of(protocol: Protocol) -> usize {
    PROTOCOLS.iter().position(|known| *known == protocol).expect("one of them")
}

/// The offset and data of a client's write. The second write never covers what only the first one covers.
fn write_of(protocol: Protocol, is_second: bool) -> (u64, Vec<u8>) {
    let value = if is_second { 2 } else { 1 };
    match protocol {
        // A part of the block.
        Protocol::Nfs3 | Protocol::Nfs41 if is_second => (700, vec![value; 100]),
        Protocol::Nfs3 | Protocol::Nfs41 => (100, vec![value; 100]),
        Protocol::Iscsi | Protocol::NvmeTcp | Protocol::Fcp | Protocol::FcNvme => (0, vec![value; BLOCK]),
    }
}

#[test]
fn writes_to_one_block_by_any_two_protocols_are_both_there() {
    for first in PROTOCOLS {
        for second in PROTOCOLS {
            for threads in [[0, 0], [0, 1]] {
                for order in [Order::Oldest, Order::Latest] {
                    let mut world = World::new();
                    let clients = [world.client(first, threads[0]), world.client(second, threads[1])];
                    let writes = [write_of(first, false), write_of(second, true)];
                    for (client, (offset, data)) in clients.into_iter().zip(&writes) {
                        world.write(client, *offset, data.clone());
                    }
                    world.finish(order);
                    let case = format!("{first:?} and {second:?} on threads {threads:?}, {order:?} first");
                    for client in clients {
                        assert_eq!(world.clients[client].news.done, [Ok(())], "{case}");
                    }
                    let bytes = world.disk.bytes();
                    for (index, (offset, data)) in writes.iter().enumerate() {
                        let (other_offset, other) = &writes[1 - index];
                        let range = *offset as usize..*offset as usize + data.len();
                        let others = *other_offset as usize..*other_offset as usize + other.len();
                        // Where both wrote, either value may be present; elsewhere only this one.
                        let right = range
                            .clone()
                            .all(|at| bytes[at] == data[0] || (others.contains(&at) && bytes[at] == other[0]));
                        assert!(right, "{case}: write {index} is lost");
                    }
                }
            }
        }
    }
}

#[test]
fn a_client_that_leaves_in_the_middle_of_its_write_holds_nobody_up() {
    for leaver in PROTOCOLS {
        let mut world = World::new();
        let (one, other) = (world.client(leaver, 0), world.client(Protocol::Nfs3, 1));
        let (offset, data) = write_of(leaver, false);
        world.write(one, offset, data);
        world.write(other, 700, vec![2; 100]);
        let conn = world.clients[one].conn;
        world.threads[0].handle(NOW, Input::Closed { conn, reason: iotax_node::CloseReason::Ended });
        world.clients.remove(one);
        world.finish(Order::Latest);
        assert_eq!(world.clients[0].news.done, [Ok(())], "{leaver:?}");
        assert_eq!(world.disk.bytes()[700..800], [2; 100]);
    }
}
