//! The server alone: invalid and slow peers, limits, discovery, disks.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use crate::support::{
    Heap, Lab, RUN, load,
    server::{Bench, PROTOCOLS, SIZE, group},
};
use iotax_node::{
    Access, CloseReason, ConnId, Input, ListenerId, LoadNode, Node, Output, Randomness, Server, ServerConfig,
    ServerNode, TaskConfig,
    load::{Content, Endpoint, TaskOutcome, connector::ConnectionConfig},
    protocols::iscsi::{self as iscsi_options, PortalGroups},
    server::{Export, ExportOptions, NoAccess, Protocol, Service, plan_portals},
    volume::{Media, VolumeSpec},
};
use iotax_proto::{Geometry, Initiator, InitiatorEvents, Instant, Io, IoError, Tag, iscsi, nfs::v3, nvme_tcp};

/// A peer of the server that sends arbitrary bytes.
struct Peer<'a> {
    node: &'a mut ServerNode,
    conn: ConnId,
    now: Instant,
}

impl<'a> Peer<'a> {
    fn connect(node: &'a mut ServerNode, conn: u32, portal: u32) -> Self {
        Self::connect_from(node, conn, portal, 1)
    }

    fn connect_from(node: &'a mut ServerNode, conn: u32, portal: u32, host: u8) -> Self {
        let (conn, now) = (ConnId(conn), Instant(0));
        let peer = SocketAddr::from(([127, 0, 0, host], 9999 + conn.0 as u16));
        node.handle(now, Input::Accepted { conn, listener: ListenerId(portal), peer });
        Self { node, conn, now }
    }

    fn send(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.node.handle(self.now, Input::Received { conn: self.conn, bytes });
        self.node.transmit(self.conn).map(iotax_proto::Transmit::take_bytes).unwrap_or_default()
    }

    /// Whether the server requested that this connection is closed.
    fn is_closed(&mut self) -> bool {
        let mut closed = false;
        while let Some(output) = self.node.poll_output() {
            closed |= matches!(output, Output::Close { conn } if conn == self.conn);
        }
        closed
    }

    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.node.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.node.handle(self.now, Input::Timer);
        }
        self.now = end;
    }
}

/// Ignores events.
#[derive(Default)]
struct Unheeding {
    ready: bool,
}

impl InitiatorEvents for Unheeding {
    fn ready(&mut self, _: Instant, _: &Geometry) {
        self.ready = true;
    }

    fn data(&mut self, _: Tag, _: u32, _: &[u8]) {}

    fn complete(&mut self, _: Instant, _: Tag, _: Result<(), IoError>) {}

    fn closed(&mut self, _: Instant) {}
}

#[test]
fn any_bytes_close_at_most_their_own_connection() {
    for portal in 0..PROTOCOLS.len() as u32 {
        arbtest::arbtest(|input| {
            let mut bench = Bench::new();
            bench.fill();
            let mut peer = Peer::connect(&mut bench.node, 60, portal);
            for _ in 0..4 {
                let bytes: Vec<u8> = input.arbitrary()?;
                peer.send(&bytes);
            }
            // The test's driver does not know this connection.
            peer.is_closed();
            let checked = bench
                .task(PROTOCOLS[portal as usize], TaskConfig::Check { look_bytes: None })
                .expect("others notice nothing");
            assert!(matches!(checked, TaskOutcome::Checked { content: Content::Pattern, .. }));
            Ok(())
        })
        .budget_ms(300);
    }
}

#[test]
fn bytes_that_are_no_protocol_close_the_connection_and_say_why() {
    for portal in 0..PROTOCOLS.len() as u32 {
        let mut bench = Bench::new();
        let mut peer = Peer::connect(&mut bench.node, 0, portal);
        peer.send(&b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(40));
        assert!(peer.is_closed(), "portal {portal}");
        let notice = bench.node.poll_notice().expect("a reason");
        assert!(!notice.text.is_empty() && notice.peer.port() == 9999);
        bench.node.handle(Instant(1), Input::Closed { conn: ConnId(0), reason: CloseReason::Ended });
        assert_eq!(bench.node.connections(), 0);
    }
}

#[test]
fn peer_that_says_nothing_is_closed() {
    // NFS has no login, so a silent peer may stay longer.
    for (portal, short_s, long_s) in [(0, 350, 20), (1, 5, 20), (2, 5, 20)] {
        let mut bench = Bench::new();
        let mut peer = Peer::connect(&mut bench.node, 0, portal);
        peer.wait(Duration::from_secs(short_s));
        assert!(!peer.is_closed(), "portal {portal}: not yet");
        peer.wait(Duration::from_secs(long_s));
        assert!(peer.is_closed(), "portal {portal}");
    }
}

#[test]
fn connections_beyond_the_limit_are_closed_at_once() {
    let mut bench = Bench::new();
    for conn in 0..64 {
        assert!(!Peer::connect_from(&mut bench.node, conn, 0, conn as u8 + 1).is_closed());
    }
    assert!(Peer::connect_from(&mut bench.node, 64, 0, 99).is_closed());
    assert_eq!(bench.node.connections(), 64);
    bench.node.handle(Instant(1), Input::Closed { conn: ConnId(3), reason: CloseReason::Ended });
    assert!(!Peer::connect_from(&mut bench.node, 3, 0, 99).is_closed(), "there is room again");
}

#[test]
fn no_address_has_more_than_a_quarter_of_the_connections() {
    let mut bench = Bench::new();
    for conn in 0..16 {
        assert!(!Peer::connect_from(&mut bench.node, conn, 0, 1).is_closed());
    }
    assert!(Peer::connect_from(&mut bench.node, 16, 0, 1).is_closed());
    assert!(!Peer::connect_from(&mut bench.node, 17, 0, 2).is_closed(), "others have theirs");
    bench.node.handle(Instant(1), Input::Closed { conn: ConnId(3), reason: CloseReason::Ended });
    assert!(!Peer::connect_from(&mut bench.node, 3, 0, 1).is_closed(), "there is room again");
}

#[test]
fn nothing_more_is_read_from_a_peer_that_does_not_read() {
    let mut bench = Bench::new();
    let config = v3::initiator::Config {
        export: "/v0".into(),
        file: "data".into(),
        depth: 64,
        ..v3::initiator::Config::default()
    };
    let mut client = v3::initiator::Mount::new(Instant(0), config);
    let mut events = Unheeding::default();
    let mut peer = Peer::connect(&mut bench.node, 0, 0);
    while !events.ready {
        let call = client.transmit().take_bytes();
        let reply = peer.send(&call);
        client.receive(Instant(0), &reply, &mut events).expect("a mount");
    }
    for tag in 0..64 {
        client.submit(Instant(0), tag, Io::Read { offset: 0, len: 1 << 20 }).expect("credit");
    }
    let calls = client.transmit().take_bytes();
    let mut sent = 0;
    for call in calls.chunks(calls.len() / 64) {
        if !peer.node.wants_receive(peer.conn) {
            break;
        }
        peer.node.handle(Instant(0), Input::Received { conn: peer.conn, bytes: call });
        sent += 1;
    }
    assert!((16..20).contains(&sent), "{sent} reads of 1 MiB are taken");
    let queued = peer.node.transmit(peer.conn).expect("open");
    let count = queued.len();
    queued.advance(count);
    assert!(peer.node.wants_receive(peer.conn), "and more once it reads");
}

#[test]
fn discovery_shows_what_the_asker_may_reach() {
    for (members, shown) in [(None, 1), (Some("10.0.0.0/8"), 0), (Some("127.0.0.0/8"), 1)] {
        let mut bench = Bench::with(|_| {}, |export| export.groups = members.map(|member| group(&[member])));
        let portals: Vec<_> = bench.server.config().portals.iter().map(|portal| portal.address).collect();

        let config = iscsi::initiator::Config::new("iqn.2026-11.org.example:host", "", 0);
        let mut iscsi = iscsi::initiator::Discovery::new(Instant(0), &config);
        let mut peer = Peer::connect(&mut bench.node, 0, 1);
        while iscsi.targets().is_none() {
            let request = iscsi.transmit().take_bytes();
            assert!(!request.is_empty(), "the discovery goes on");
            let answer = peer.send(&request);
            iscsi.receive(&answer).expect("a discovery");
        }
        let targets = iscsi.targets().expect("done");
        assert_eq!(targets.len(), shown, "{members:?}");
        assert!(targets.iter().all(|target| target.name == "iqn.2026-11.io.iotax:v0"));

        let config = nvme_tcp::ConnectConfig::new("", "nqn.2026-11.org.example:host", [1; 16]);
        let mut nvme = nvme_tcp::Discovery::new(Instant(0), config);
        let mut peer = Peer::connect(&mut bench.node, 1, 2);
        while nvme.log().is_none() {
            let request = nvme.transmit().take_bytes();
            let answer = peer.send(&request);
            nvme.receive(Instant(0), &answer).expect("a discovery");
        }
        let entries = nvme.log().expect("done").entries;
        assert_eq!(entries.len(), shown, "{members:?}");
        for entry in entries {
            let address = format!("{}:{}", entry.traddr, entry.trsvcid);
            assert_eq!((entry.subnqn.as_str(), address), ("nqn.2026-11.io.iotax:v0", portals[2].to_string()));
        }
    }
}

#[test]
fn portals_of_a_target_are_one_portal_group_or_one_each() {
    for (portal_groups, tags, access) in [
        (
            None,
            [1, 1],
            Err(NoAccess::NotReported("its target has one portal group; say `portal_groups: each` in its exports")),
        ),
        (Some(PortalGroups::Each), [1, 2], Ok(())),
    ] {
        let export = |port| Export {
            protocol: Protocol::Iscsi,
            volume: 0,
            read_only: false,
            listen: SocketAddr::from(([127, 0, 0, 1], port)),
            groups: None,
            portmap: None,
            squash: iotax_node::server::Squash::None,
            options: ExportOptions {
                iscsi: iscsi_options::ExportOptions { portal_groups },
                ..ExportOptions::default()
            },
        };
        let exports = vec![export(3260), export(3261)];
        let server = Server::new(ServerConfig {
            volumes: vec![VolumeSpec::new("a", SIZE as u64, Media::Null)],
            portals: plan_portals(&exports).expect("a plan"),
            exports,
            started_unix_ns: 1,
            secret: [1; 32],
            connections_max: 8,
            has_frame_crc: true,
        });
        let portals: Vec<_> = server.config().portals.iter().map(|portal| portal.address).collect();
        let mut node =
            ServerNode::new(Arc::clone(&server), 0, &mut |_| Heap::new(1), Box::new(|len| Some(Heap::new(len))), None);
        let config = iscsi::initiator::Config::new("iqn.2026-11.org.example:host", "", 0);
        let mut discovery = iscsi::initiator::Discovery::new(Instant(0), &config);
        let mut peer = Peer::connect(&mut node, 0, 0);
        while discovery.targets().is_none() {
            let request = discovery.transmit().take_bytes();
            let answer = peer.send(&request);
            discovery.receive(&answer).expect("a discovery");
        }
        let expected: Vec<_> = portals.iter().zip(tags).map(|(address, tag)| format!("{address},{tag}")).collect();
        assert_eq!(discovery.targets().expect("done")[0].portals, expected);
        assert_eq!(server.set_access(portals[1], Access::NonOptimized), access);
        assert_eq!(server.set_access(([127, 0, 0, 1], 1).into(), Access::NonOptimized), Err(NoAccess::NoPortal));
    }
}

#[test]
fn options_of_exports_are_refused_where_they_have_no_meaning() {
    let export = |protocol, port: u16, portal_groups| Export {
        protocol,
        volume: 0,
        read_only: false,
        listen: SocketAddr::from(([127, 0, 0, 1], port)),
        groups: None,
        portmap: None,
        squash: iotax_node::server::Squash::None,
        options: ExportOptions { iscsi: iscsi_options::ExportOptions { portal_groups }, ..ExportOptions::default() },
    };
    let each = Some(PortalGroups::Each);
    let refused = |exports: &[Export]| plan_portals(exports).expect_err("no plan");
    let failure = refused(&[export(Protocol::NvmeTcp, 1, each)]);
    assert_eq!(
        (failure.message.as_str(), failure.place.as_str()),
        ("exports over NVMe/TCP have no such option", "exports.portal_groups")
    );
    let failure = refused(&[export(Protocol::Iscsi, 1, each), export(Protocol::Iscsi, 2, None)]);
    assert_eq!(failure.message, "the portals of one volume must have the same options");
    assert!(plan_portals(&[export(Protocol::Iscsi, 1, each), export(Protocol::NvmeTcp, 2, None)]).is_ok());
}

#[test]
fn portmapper_tells_where_nfs_and_mount_are() {
    let portmap = SocketAddr::from(([127, 0, 0, 1], 111));
    let mut bench =
        Bench::with(|_| {}, |export| export.portmap = (export.protocol == Protocol::Nfs3).then_some(portmap));
    assert!(bench.server.config().portals.iter().any(|portal| portal.service == Service::Portmap));
    bench.fill();
    for endpoint in ["nfs://127.0.0.1/v0/data", "nfs://127.0.0.1/v0/data?mountport=40001"] {
        let endpoint = Endpoint::parse(endpoint).expect("an endpoint");
        let load = bench.load(&endpoint, load(TaskConfig::Run(RUN), 2)).expect("config");
        let outcome = bench.drive(load, |_, _| {}).expect("right data");
        assert!(matches!(outcome, TaskOutcome::Run(measured) if measured.read.ios > 100));
        assert_eq!(bench.node.connections(), 0);
    }
}

#[test]
fn volume_on_a_disk_is_served_by_every_protocol() {
    for (protocol, block_size) in [
        (Protocol::Nfs3, 512),
        (Protocol::Nfs41, 512),
        (Protocol::Iscsi, 512),
        (Protocol::NvmeTcp, 4096),
        (Protocol::Fcp, 512),
        (Protocol::FcNvme, 4096),
    ] {
        let disk = Heap::new(SIZE);
        let media = Media::Disk { disk: iotax_node::DiskId(0), block_size };
        let mut bench = Bench::with(|volume| volume.media = media, |_| {});
        let endpoint = bench.endpoint(protocol);
        for task in [TaskConfig::Fill { destroy: false }, TaskConfig::Run(RUN), TaskConfig::Check { look_bytes: None }]
        {
            let load = bench.load(&endpoint, load(task, 1)).expect("config");
            let outcome = drive_on_disk(&mut bench, load, &disk);
            match outcome {
                TaskOutcome::Run(measured) => {
                    assert!(measured.read.ios > 100 && measured.verify.checked_blocks > 800, "{protocol:?}");
                    assert_eq!(measured.read.errors + measured.write.errors, 0, "{protocol:?}");
                }
                TaskOutcome::Filled { bytes } => assert_eq!(bytes, SIZE as u64),
                TaskOutcome::Checked { content, .. } => assert_eq!(content, Content::Pattern),
            }
        }
    }
}

fn drive_on_disk(bench: &mut Bench, mut load: LoadNode, disk: &std::rc::Rc<Heap>) -> TaskOutcome {
    let addresses: Vec<_> = bench.server.config().portals.iter().map(|portal| portal.address).collect();
    let mut lab = Lab::new(&mut load, Some(&mut bench.node), &addresses).disk(std::rc::Rc::clone(disk));
    lab.run_until(Instant(60_000_000_000), |load, now| {
        load.begin(now);
        false
    });
    lab.close_all();
    load.outcome().expect("ended").clone().expect("right data")
}

#[test]
fn volume_exported_twice_on_a_portal_is_mounted_by_whom_either_admits() {
    let listen = SocketAddr::from(([127, 0, 0, 1], 2049));
    let export = |members: &[&str], read_only| Export {
        protocol: Protocol::Nfs3,
        volume: 0,
        read_only,
        listen,
        groups: Some(group(members)),
        portmap: None,
        squash: iotax_node::server::Squash::None,
        options: iotax_node::server::ExportOptions::default(),
    };
    for order in [false, true] {
        let mut exports = vec![export(&["127.0.0.1"], false), export(&["127.0.0.2"], true)];
        if order {
            exports.reverse();
        }
        let server = Server::new(ServerConfig {
            volumes: vec![VolumeSpec::new("a", SIZE as u64, Media::Null)],
            portals: plan_portals(&exports).expect("a plan"),
            exports,
            started_unix_ns: 1,
            secret: [1; 32],
            connections_max: 8,
            has_frame_crc: true,
        });
        let mut node =
            ServerNode::new(Arc::clone(&server), 0, &mut |_| Heap::new(1), Box::new(|len| Some(Heap::new(len))), None);
        for (host, may_write) in [(1, Some(true)), (2, Some(false)), (3, None)] {
            let endpoint = Endpoint::parse(&server.endpoint(0)).expect("an endpoint");
            let connection = ConnectionConfig::new([127, 0, 0, 1].into(), 1, Randomness::new([2; 32]));
            let task = if may_write == Some(false) {
                TaskConfig::Check { look_bytes: None }
            } else {
                TaskConfig::Fill { destroy: true }
            };
            let config = load(task, 1);
            let mut load =
                LoadNode::remote(config, &endpoint, &connection, &mut crate::support::allocate).expect("config");
            let mut lab = Lab::new(&mut load, Some(&mut node), &[listen]);
            lab.peer = SocketAddr::from(([127, 0, 0, host], 700));
            lab.run_until(Instant(60_000_000_000), |_, _| false);
            assert_eq!(load.outcome().expect("ended").is_ok(), may_write.is_some(), "host {host}, {order}");
        }
    }
}

#[test]
fn exports_that_share_a_portal_are_told_apart_by_name() {
    let listen = SocketAddr::from(([127, 0, 0, 1], 3260));
    for protocol in PROTOCOLS {
        let export = |volume, read_only| Export {
            protocol,
            volume,
            read_only,
            listen,
            groups: None,
            portmap: None,
            squash: iotax_node::server::Squash::None,
            options: iotax_node::server::ExportOptions::default(),
        };
        let exports = vec![export(0, false), export(1, true)];
        let portals = plan_portals(&exports).expect("a plan");
        assert_eq!(portals.len(), 1);
        let volumes = ["a", "b"].map(|name| VolumeSpec::new(name, SIZE as u64, Media::Null)).to_vec();
        let server = Server::new(ServerConfig {
            volumes,
            exports,
            portals,
            started_unix_ns: 1,
            secret: [1; 32],
            connections_max: 8,
            has_frame_crc: true,
        });
        let mut node =
            ServerNode::new(Arc::clone(&server), 0, &mut |_| Heap::new(1), Box::new(|len| Some(Heap::new(len))), None);
        for (index, read_only) in [(0, false), (1, true)] {
            let endpoint = Endpoint::parse(&server.endpoint(index)).expect("an endpoint");
            let connection = ConnectionConfig::new([127, 0, 0, 1].into(), 1, Randomness::new([2; 32]));
            let config = load(TaskConfig::Fill { destroy: true }, 1);
            let mut load =
                LoadNode::remote(config, &endpoint, &connection, &mut crate::support::allocate).expect("config");
            Lab::new(&mut load, Some(&mut node), &[listen]).run_until(Instant(60_000_000_000), |_, _| false);
            assert_eq!(load.outcome().expect("ended").is_err(), read_only, "{protocol:?} {index}");
        }
    }
}
