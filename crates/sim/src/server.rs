//! A server of one volume, or of several at different addresses, over one protocol, on one or several threads. It can
//! crash and restart.

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
    Access, DiskId, ListenerId, Server, ServerConfig, ServerNode,
    load::Endpoint,
    server::{Export, ExportOptions, Protocol, Squash, plan_portals},
    volume::{Media, VolumeSpec},
};
use iotax_proto::{HeapRegion, Region};

use crate::{
    load::HAS_FRAME_CRC,
    world::{HostId, World},
};

/// Address of the server in most worlds.
const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const PORT: u16 = 4000;
/// For all clients together; one address may have a quarter of them.
const CONNECTIONS_MAX: usize = 65_536;

/// The storage of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    Memory,
    /// Memory whose contents nobody looks at: it reads as zeros. The simulator's own processor then has to fetch no data,
    /// which would take a third of an I/O's time.
    Blank,
    /// A disk of the world, and its block size in bytes.
    Disk {
        disk: usize,
        block_size: u32,
    },
}

struct Blank {
    len: usize,
}

impl Region for Blank {
    fn len(&self) -> usize {
        self.len
    }

    fn copy_out(&self, _offset: usize, into: &mut [u8]) {
        // In pieces for which the C library uses vectors; the instruction it uses for longer ones starts slowly.
        into.chunks_mut(1024).for_each(|piece| piece.fill(0));
    }

    fn copy_in(&self, _offset: usize, _from: &[u8]) {}

    fn address(&self, _offset: usize) -> Option<*const u8> {
        None
    }
}

/// A volume of a server.
#[derive(Clone, Copy, Debug)]
pub struct Volume {
    pub size_bytes: u64,
    pub store: Store,
    /// Added delay of each operation, and its added CPU time if a virtual processor counts it.
    pub delay_ns: u64,
    pub burn_ns: u64,
}

/// The description of a server, from which it is recreated after a crash.
pub struct Exporter {
    volumes: Vec<Volume>,
    /// Each portal, and the number of its volume.
    portals: Vec<(SocketAddr, usize)>,
    export: (Protocol, ExportOptions),
    pub hosts: Vec<HostId>,
    nodes: Vec<Rc<RefCell<ServerNode>>>,
    server: Arc<Server>,
    wake_flag: Arc<AtomicBool>,
    /// The memory of each memory volume.
    memories: Vec<Rc<dyn Region>>,
    /// CPU time that each thread's volume requested, to be charged by a virtual processor.
    burnt_ns: Vec<Rc<Cell<u64>>>,
}

impl Exporter {
    /// Starts a server on `threads` hosts that share a link.
    pub fn start(
        world: &mut World,
        link: usize,
        protocol: Protocol,
        volume: Volume,
        threads: usize,
        started_unix_ns: u64,
    ) -> Self {
        let export = (protocol, ExportOptions::default());
        Self::start_at(world, &[(vec![ADDRESS], volume)], link, export, threads, started_unix_ns)
    }

    /// Starts a server of several volumes, each with portals at addresses of its own.
    ///
    /// # Panics
    /// If there are no volumes.
    pub fn start_at(
        world: &mut World,
        volumes: &[(Vec<IpAddr>, Volume)],
        link: usize,
        export: (Protocol, ExportOptions),
        threads: usize,
        started_unix_ns: u64,
    ) -> Self {
        let numbered = volumes.iter().enumerate();
        let portals = numbered.flat_map(|(index, (addresses, _))| {
            addresses.iter().map(move |address| (SocketAddr::new(*address, PORT), index))
        });
        let portals: Vec<_> = portals.collect();
        let volumes: Vec<_> = volumes.iter().map(|(_, volume)| *volume).collect();
        let memories = volumes.iter().map(|volume| match volume.store {
            Store::Memory => HeapRegion::new(volume.size_bytes as usize) as Rc<dyn Region>,
            Store::Blank => Rc::new(Blank { len: volume.size_bytes as usize }) as Rc<dyn Region>,
            Store::Disk { .. } => HeapRegion::new(0) as Rc<dyn Region>,
        });
        let memories = memories.collect();
        let wake_flag = Arc::new(AtomicBool::new(false));
        let server = server(&volumes, &portals, &export, started_unix_ns, &wake_flag);
        let mut exporter = Self {
            volumes,
            portals,
            export,
            hosts: Vec::new(),
            nodes: Vec::new(),
            server,
            wake_flag,
            memories,
            burnt_ns: (0..threads).map(|_| Rc::new(Cell::new(0))).collect(),
        };
        exporter.nodes = exporter.make_nodes();
        let disks = exporter.volumes.iter().filter_map(|volume| match volume.store {
            Store::Disk { disk, .. } => Some(disk),
            Store::Memory | Store::Blank => None,
        });
        let disks: Vec<_> = disks.collect();
        let address = exporter.address().ip();
        for node in &exporter.nodes {
            exporter.hosts.push(world.add_host(node.clone(), address, None, link, disks.clone()));
        }
        for (index, (address, _)) in exporter.portals.iter().enumerate() {
            world.listen(*address, ListenerId(index as u32), &exporter.hosts);
        }
        world.add_wake_flag(Arc::clone(&exporter.wake_flag), &exporter.hosts);
        exporter
    }

    /// The address of its first volume.
    pub fn address(&self) -> SocketAddr {
        self.portals[0].0
    }

    /// The endpoint of one of its volumes, with all its portals.
    ///
    /// # Panics
    /// If there is no volume with that number.
    pub fn endpoint(&self, volume: usize) -> Endpoint {
        let portals = || self.portals.iter().enumerate().filter(|(_, (_, of))| *of == volume);
        let (export, (first, _)) = portals().next().expect("a volume with a portal");
        let all: Vec<String> = portals().map(|(_, (portal, _))| portal.to_string()).collect();
        let text = self.server.endpoint(export).replacen(&first.to_string(), &all.join(","), 1);
        Endpoint::parse(&text).expect("an endpoint that the server names")
    }

    /// Restarts the server after its hosts crashed, with another time of its clock. Its volumes hold what they held.
    pub fn restart(&mut self, world: &mut World, started_unix_ns: u64) {
        self.server = server(&self.volumes, &self.portals, &self.export, started_unix_ns, &self.wake_flag);
        self.nodes = self.make_nodes();
        for (host, node) in self.hosts.iter().zip(&self.nodes) {
            world.restart(*host, node.clone());
        }
    }

    /// Sets how the volume can be accessed at an address of the server.
    ///
    /// # Panics
    /// If there is no such address, or its protocol cannot report it.
    pub fn set_access(&self, address: IpAddr, access: Access) {
        self.server.set_access(SocketAddr::new(address, PORT), access).expect("a portal that reports its access");
    }

    /// Makes an address of the server fall silent, or answer again.
    ///
    /// # Panics
    /// If there is no such address.
    pub fn silence(&self, address: IpAddr, is_silent: bool) {
        assert!(self.server.silence(SocketAddr::new(address, PORT), is_silent), "no portal at {address}");
    }

    pub fn nodes(&self) -> &[Rc<RefCell<ServerNode>>] {
        &self.nodes
    }

    /// The contents of its memory volumes; empty for volumes on disks.
    pub fn memories(&self) -> &[Rc<dyn Region>] {
        &self.memories
    }

    /// CPU time that a thread's volume has requested so far.
    pub fn burnt_ns(&self, thread: usize) -> Rc<Cell<u64>> {
        Rc::clone(&self.burnt_ns[thread])
    }

    /// One per thread.
    fn make_nodes(&self) -> Vec<Rc<RefCell<ServerNode>>> {
        let node = |(burnt_ns, thread): (&Rc<Cell<u64>>, u64)| {
            let allocate = Box::new(|len| Some(HeapRegion::new(len) as Rc<dyn Region>));
            let burnt_ns = Rc::clone(burnt_ns);
            let burn = Rc::new(move |ns: u64| burnt_ns.set(burnt_ns.get() + ns));
            let server = Arc::clone(&self.server);
            let node =
                ServerNode::new(server, thread, &mut |volume| Rc::clone(&self.memories[volume]), allocate, Some(burn));
            Rc::new(RefCell::new(node))
        };
        self.burnt_ns.iter().zip(0..).map(node).collect()
    }
}

fn server(
    volumes: &[Volume],
    portals: &[(SocketAddr, usize)],
    (protocol, options): &(Protocol, ExportOptions),
    started_unix_ns: u64,
    wake_flag: &Arc<AtomicBool>,
) -> Arc<Server> {
    let export = |(listen, volume): &(SocketAddr, usize)| Export {
        protocol: *protocol,
        volume: *volume,
        read_only: false,
        listen: *listen,
        groups: None,
        portmap: None,
        squash: Squash::None,
        options: options.clone(),
    };
    let exports: Vec<_> = portals.iter().map(export).collect();
    let portals = plan_portals(&exports).expect("exports at addresses of their own have a plan");
    let mut disks = 0;
    let volumes = volumes.iter().enumerate().map(|(index, described)| {
        let media = match described.store {
            Store::Memory | Store::Blank => Media::Memory,
            Store::Disk { block_size, .. } => {
                disks += 1;
                Media::Disk { disk: DiskId(disks - 1), block_size }
            }
        };
        let mut volume = VolumeSpec::new(format!("v{index}"), described.size_bytes, media);
        (volume.delay_ns, volume.burn_ns) = (described.delay_ns, described.burn_ns);
        volume
    });
    let server = Server::new(ServerConfig {
        volumes: volumes.collect(),
        exports,
        portals,
        started_unix_ns,
        secret: [7; 32],
        connections_max: CONNECTIONS_MAX,
        has_frame_crc: HAS_FRAME_CRC,
    });
    let wake_flag = Arc::clone(wake_flag);
    server.wake_with(move || wake_flag.store(true, Ordering::Relaxed));
    server
}

impl std::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Exporter({:?}, {} threads)", self.export.0, self.hosts.len())
    }
}
