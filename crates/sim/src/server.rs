//! A server of one volume by one protocol, on one or several threads, which can crash and start again.

use std::{
    cell::{Cell, RefCell},
    net::{IpAddr, SocketAddr},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use iotax_node::{
    DiskId, ListenerId, Server, ServerConfig, ServerNode,
    load::Endpoint,
    server::{Export, Protocol, Squash, plan_portals},
    volume::{Media, VolumeSpec},
};
use iotax_proto::{HeapRegion, Region};

use crate::world::{HostId, World};

/// Where the servers of all worlds are.
const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const PORT: u16 = 4000;
const CONNECTIONS_MAX: usize = 512;

/// What a volume is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    Memory,
    /// A disk of the world, and what it addresses by, bytes.
    Disk {
        disk: usize,
        block_size: u32,
    },
}

/// The description of a server, from which it is made anew after a crash.
#[derive(Debug)]
pub struct Exporter {
    protocol: Protocol,
    size_bytes: u64,
    store: Store,
    /// What each operation is made to wait.
    delay_ns: u64,
    pub hosts: Vec<HostId>,
    nodes: Vec<Rc<RefCell<ServerNode>>>,
    server: Arc<Server>,
    bell: Arc<AtomicBool>,
    /// CPU time that the volume was asked to spend, for a virtual processor to charge.
    pub burnt_ns: Rc<Cell<u64>>,
}

impl Exporter {
    /// Puts a server on `threads` hosts that share a link.
    pub fn start(
        world: &mut World,
        link: usize,
        protocol: Protocol,
        (size_bytes, store, delay_ns): (u64, Store, u64),
        threads: usize,
        started_unix_ns: u64,
    ) -> Self {
        let bell = Arc::new(AtomicBool::new(false));
        let burnt_ns = Rc::new(Cell::new(0));
        let server = server(protocol, (size_bytes, store, delay_ns), started_unix_ns, &bell);
        let mut exporter = Self {
            protocol,
            size_bytes,
            store,
            delay_ns,
            hosts: Vec::new(),
            nodes: Vec::new(),
            server,
            bell,
            burnt_ns,
        };
        exporter.nodes = exporter.make_nodes(threads);
        let disks = match store {
            Store::Disk { disk, .. } => vec![disk],
            Store::Memory => Vec::new(),
        };
        for node in &exporter.nodes {
            exporter.hosts.push(world.add_host(node.clone(), ADDRESS, None, link, disks.clone()));
        }
        world.listen(SocketAddr::new(ADDRESS, PORT), ListenerId(0), &exporter.hosts);
        world.add_bell(Arc::clone(&exporter.bell), &exporter.hosts);
        exporter
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(ADDRESS, PORT)
    }

    pub fn endpoint(&self) -> Endpoint {
        Endpoint::parse(&self.server.endpoint(0)).expect("an endpoint that the server names")
    }

    /// After its hosts crashed: begins anew, at another time of its clock.
    pub fn restart(&mut self, world: &mut World, started_unix_ns: u64) {
        self.server = server(self.protocol, (self.size_bytes, self.store, self.delay_ns), started_unix_ns, &self.bell);
        self.nodes = self.make_nodes(self.hosts.len());
        for (host, node) in self.hosts.iter().zip(&self.nodes) {
            world.restart(*host, node.clone());
        }
    }

    pub fn nodes(&self) -> &[Rc<RefCell<ServerNode>>] {
        &self.nodes
    }

    fn make_nodes(&self, threads: usize) -> Vec<Rc<RefCell<ServerNode>>> {
        let memory: Rc<dyn Region> = match self.store {
            Store::Memory => HeapRegion::new(self.size_bytes as usize),
            Store::Disk { .. } => HeapRegion::new(0),
        };
        let node = |thread| {
            let allocate = Box::new(|len| Some(HeapRegion::new(len) as Rc<dyn Region>));
            let burnt_ns = Rc::clone(&self.burnt_ns);
            let burn = Rc::new(move |ns| burnt_ns.set(burnt_ns.get() + ns));
            let server = Arc::clone(&self.server);
            let node = ServerNode::new(server, thread as u64, &mut |_| Rc::clone(&memory), allocate, Some(burn));
            Rc::new(RefCell::new(node))
        };
        (0..threads).map(node).collect()
    }
}

fn server(
    protocol: Protocol,
    (size_bytes, store, delay_ns): (u64, Store, u64),
    started_unix_ns: u64,
    bell: &Arc<AtomicBool>,
) -> Arc<Server> {
    let media = match store {
        Store::Memory => Media::Memory,
        Store::Disk { block_size, .. } => Media::Disk { disk: DiskId(0), block_size },
    };
    let export = Export {
        protocol,
        volume: 0,
        read_only: false,
        listen: SocketAddr::new(ADDRESS, PORT),
        groups: None,
        portmap: None,
        squash: Squash::None,
    };
    let portals = plan_portals(std::slice::from_ref(&export)).expect("one export has a plan");
    let mut volume = VolumeSpec::new("v0", size_bytes, media);
    volume.delay_ns = delay_ns;
    let server = Server::new(ServerConfig {
        volumes: vec![volume],
        exports: vec![export],
        portals,
        started_unix_ns,
        secret: [7; 32],
        connections_max: CONNECTIONS_MAX,
    });
    let bell = Arc::clone(bell);
    server.wake_with(move || bell.store(true, Ordering::Relaxed));
    server
}
