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

/// Where the server of most worlds is.
const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const PORT: u16 = 4000;
/// Of all clients together; one address may have a quarter of them.
const CONNECTIONS_MAX: usize = 65_536;

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

/// What a server serves.
#[derive(Clone, Copy, Debug)]
pub struct Volume {
    pub size_bytes: u64,
    pub store: Store,
    /// What each operation is made to wait, and what it costs in CPU, where a virtual processor counts it.
    pub delay_ns: u64,
    pub burn_ns: u64,
}

/// The description of a server, from which it is made anew after a crash.
pub struct Exporter {
    address: SocketAddr,
    protocol: Protocol,
    volume: Volume,
    pub hosts: Vec<HostId>,
    nodes: Vec<Rc<RefCell<ServerNode>>>,
    server: Arc<Server>,
    wake_flag: Arc<AtomicBool>,
    /// Of a volume of memory.
    memory: Rc<dyn Region>,
    /// CPU time that each thread's volume was asked to spend, for a virtual processor to charge.
    burnt_ns: Vec<Rc<Cell<u64>>>,
}

impl Exporter {
    /// Puts a server on `threads` hosts that share a link.
    pub fn start(
        world: &mut World,
        link: usize,
        protocol: Protocol,
        volume: Volume,
        threads: usize,
        started_unix_ns: u64,
    ) -> Self {
        Self::start_at(world, ADDRESS, link, protocol, volume, threads, started_unix_ns)
    }

    /// The same at an address of its own, where there are several servers.
    pub fn start_at(
        world: &mut World,
        address: IpAddr,
        link: usize,
        protocol: Protocol,
        volume: Volume,
        threads: usize,
        started_unix_ns: u64,
    ) -> Self {
        let address = SocketAddr::new(address, PORT);
        let wake_flag = Arc::new(AtomicBool::new(false));
        let server = server(address, protocol, volume, started_unix_ns, &wake_flag);
        let mut exporter = Self {
            address,
            protocol,
            volume,
            hosts: Vec::new(),
            nodes: Vec::new(),
            server,
            wake_flag,
            memory: HeapRegion::new(0),
            burnt_ns: (0..threads).map(|_| Rc::new(Cell::new(0))).collect(),
        };
        exporter.nodes = exporter.make_nodes(threads);
        let disks = match volume.store {
            Store::Disk { disk, .. } => vec![disk],
            Store::Memory => Vec::new(),
        };
        for node in &exporter.nodes {
            exporter.hosts.push(world.add_host(node.clone(), address.ip(), None, link, disks.clone()));
        }
        world.listen(address, ListenerId(0), &exporter.hosts);
        world.add_wake_flag(Arc::clone(&exporter.wake_flag), &exporter.hosts);
        exporter
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn endpoint(&self) -> Endpoint {
        Endpoint::parse(&self.server.endpoint(0)).expect("an endpoint that the server names")
    }

    /// After its hosts crashed: begins anew, at another time of its clock.
    pub fn restart(&mut self, world: &mut World, started_unix_ns: u64) {
        self.server = server(self.address, self.protocol, self.volume, started_unix_ns, &self.wake_flag);
        self.nodes = self.make_nodes(self.hosts.len());
        for (host, node) in self.hosts.iter().zip(&self.nodes) {
            world.restart(*host, node.clone());
        }
    }

    pub fn nodes(&self) -> &[Rc<RefCell<ServerNode>>] {
        &self.nodes
    }

    /// What a volume of memory holds.
    pub fn memory(&self) -> &Rc<dyn Region> {
        &self.memory
    }

    /// CPU time that a thread's volume was asked to spend so far.
    pub fn burnt_ns(&self, thread: usize) -> Rc<Cell<u64>> {
        Rc::clone(&self.burnt_ns[thread])
    }

    fn make_nodes(&mut self, threads: usize) -> Vec<Rc<RefCell<ServerNode>>> {
        self.memory = match self.volume.store {
            Store::Memory => HeapRegion::new(self.volume.size_bytes as usize),
            Store::Disk { .. } => HeapRegion::new(0),
        };
        let memory = &self.memory;
        let node = |thread| {
            let allocate = Box::new(|len| Some(HeapRegion::new(len) as Rc<dyn Region>));
            let burnt_ns: Rc<Cell<u64>> = Rc::clone(&self.burnt_ns[thread]);
            let burn = Rc::new(move |ns: u64| burnt_ns.set(burnt_ns.get() + ns));
            let server = Arc::clone(&self.server);
            let node = ServerNode::new(server, thread as u64, &mut |_| Rc::clone(memory), allocate, Some(burn));
            Rc::new(RefCell::new(node))
        };
        (0..threads).map(node).collect()
    }
}

fn server(
    listen: SocketAddr,
    protocol: Protocol,
    described: Volume,
    started_unix_ns: u64,
    wake_flag: &Arc<AtomicBool>,
) -> Arc<Server> {
    let media = match described.store {
        Store::Memory => Media::Memory,
        Store::Disk { block_size, .. } => Media::Disk { disk: DiskId(0), block_size },
    };
    let export =
        Export { protocol, volume: 0, read_only: false, listen, groups: None, portmap: None, squash: Squash::None };
    let portals = plan_portals(std::slice::from_ref(&export)).expect("one export has a plan");
    let mut volume = VolumeSpec::new("v0", described.size_bytes, media);
    (volume.delay_ns, volume.burn_ns) = (described.delay_ns, described.burn_ns);
    let server = Server::new(ServerConfig {
        volumes: vec![volume],
        exports: vec![export],
        portals,
        started_unix_ns,
        secret: [7; 32],
        connections_max: CONNECTIONS_MAX,
    });
    let wake_flag = Arc::clone(wake_flag);
    server.wake_with(move || wake_flag.store(true, Ordering::Relaxed));
    server
}

impl std::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Exporter({:?}, {} threads)", self.protocol, self.hosts.len())
    }
}
