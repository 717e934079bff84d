//! A server of one volume over every protocol, and loads on it.

use std::{cell::Cell, net::SocketAddr, rc::Rc, sync::Arc};

use iotax_node::{
    Failure, LoadNode, Randomness, Server, ServerConfig, ServerNode,
    load::{Endpoint, LoadConfig, Measured, RunConfig, TaskConfig, TaskOutcome, connector::ConnectionConfig},
    pattern::Pool,
    server::{Export, Group, Protocol, plan_portals},
    volume::{self, Media, VolumeSpec},
};
use iotax_proto::{Instant, Region};

use super::{DiskCounts, Heap, Lab, World, allocate, load};

pub const SIZE: usize = 4 << 20;
/// In the order of the table.
pub const PROTOCOLS: [Protocol; 6] =
    [Protocol::Nfs3, Protocol::Iscsi, Protocol::NvmeTcp, Protocol::Fcp, Protocol::FcNvme, Protocol::Nfs41];
const LIMIT: Instant = Instant(120_000_000_000);

pub struct Bench {
    pub server: Arc<Server>,
    pub node: ServerNode,
    pub memory: Rc<Heap>,
    pub world: World,
    /// The address from which loads connect.
    pub peer: SocketAddr,
    runs: Cell<u64>,
    /// The disk operations of the last load.
    pub asked: DiskCounts,
    /// CPU time that the volume requested to burn, ns.
    pub burnt_ns: Rc<Cell<u64>>,
}

impl Bench {
    pub fn new() -> Self {
        Self::with(|_| {}, |_| {})
    }

    pub fn with(tune: impl Fn(&mut VolumeSpec), export: impl Fn(&mut Export)) -> Self {
        let mut spec = VolumeSpec::new("v0", SIZE as u64, Media::Memory);
        tune(&mut spec);
        let exports: Vec<_> = Protocol::ALL
            .iter()
            .zip(40_001..)
            .map(|(protocol, port)| {
                let listen = SocketAddr::from(([127, 0, 0, 1], port));
                let mut made = Export {
                    protocol: *protocol,
                    volume: 0,
                    read_only: false,
                    listen,
                    groups: None,
                    portmap: None,
                    squash: iotax_node::server::Squash::None,
                    options: iotax_node::server::ExportOptions::default(),
                };
                export(&mut made);
                made
            })
            .collect();
        let portals = plan_portals(&exports).expect("a plan");
        let server = Server::new(ServerConfig {
            volumes: vec![spec],
            exports,
            portals,
            started_unix_ns: 1_700_000_000_000_000_000,
            secret: [11; 32],
            connections_max: 64,
            has_frame_crc: true,
        });
        let memory = Heap::new(SIZE);
        let region: Rc<dyn Region> = memory.clone();
        let burnt_ns = Rc::new(Cell::new(0));
        let counter = Rc::clone(&burnt_ns);
        let node = ServerNode::new(
            Arc::clone(&server),
            0,
            &mut |_| Rc::clone(&region),
            Box::new(|len| Some(Heap::new(len))),
            Some(Rc::new(move |ns| counter.set(counter.get() + ns))),
        );
        let peer = SocketAddr::from(([127, 0, 0, 1], 50_000));
        Self {
            server,
            node,
            memory,
            world: World::default(),
            peer,
            runs: Cell::new(100),
            asked: DiskCounts::default(),
            burnt_ns,
        }
    }

    pub fn endpoint(&self, protocol: Protocol) -> Endpoint {
        let index = Protocol::ALL.iter().position(|known| *known == protocol).expect("one of them");
        Endpoint::parse(&self.server.endpoint(index)).expect("an endpoint")
    }

    pub fn fill(&self) {
        volume::fill(&*self.memory, &Pool::default(), 0, SIZE as u64, 5);
    }

    pub fn load(&self, endpoint: &Endpoint, config: LoadConfig) -> Result<LoadNode, Failure> {
        self.load_as(endpoint, config, |_| {})
    }

    pub fn load_as(
        &self,
        endpoint: &Endpoint,
        config: LoadConfig,
        set: impl Fn(&mut ConnectionConfig),
    ) -> Result<LoadNode, Failure> {
        self.runs.set(self.runs.get() + 1);
        let config = LoadConfig { run: self.runs.get(), ..config };
        let mut connection = ConnectionConfig::new([127, 0, 0, 1].into(), 77, Randomness::new([12; 32]));
        set(&mut connection);
        LoadNode::remote(config, endpoint, &connection, &mut allocate)
    }

    /// Drives a load to its end; `each` is called before every step.
    pub fn drive(
        &mut self,
        load: LoadNode,
        mut each: impl FnMut(&mut LoadNode, Instant),
    ) -> Result<TaskOutcome, Failure> {
        let begun = |load: &mut LoadNode, now| {
            load.begin(now);
            each(load, now);
        };
        self.drive_session(load, begun).expect("an outcome")
    }

    /// The same for a load that `each` begins. A session that is released between slices has no outcome.
    pub fn drive_session(
        &mut self,
        mut load: LoadNode,
        mut each: impl FnMut(&mut LoadNode, Instant),
    ) -> Option<Result<TaskOutcome, Failure>> {
        let addresses: Vec<_> = self.server.config().portals.iter().map(|portal| portal.address).collect();
        let mut lab = Lab::new(&mut load, Some(&mut self.node), &addresses)
            .world(self.world.clone())
            .disk(Rc::clone(&self.memory));
        lab.peer = self.peer;
        let ended = lab.run_until(LIMIT, |load, now| {
            each(load, now);
            false
        });
        lab.close_all();
        self.asked = lab.asked;
        assert!(ended, "the load did not end: {load:?}");
        load.outcome().cloned()
    }

    pub fn run(&mut self, protocol: Protocol, config: RunConfig, workers: u32) -> Result<Measured, Failure> {
        let endpoint = self.endpoint(protocol);
        let load = self.load(&endpoint, load(TaskConfig::Run(config), workers))?;
        match self.drive(load, |_, _| {})? {
            TaskOutcome::Run(measured) => Ok(*measured),
            other => panic!("a run gave {other:?}"),
        }
    }

    pub fn task(&mut self, protocol: Protocol, task: TaskConfig) -> Result<TaskOutcome, Failure> {
        let endpoint = self.endpoint(protocol);
        let load = self.load(&endpoint, load(task, 1))?;
        self.drive(load, |_, _| {})
    }
}

pub fn group(members: &[&str]) -> Vec<Group> {
    let members: Vec<_> = members.iter().map(|member| (*member).to_owned()).collect();
    vec![Group::new("lab", &members).expect("a group")]
}
