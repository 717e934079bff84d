//! Peers of a server that send exactly the bytes of a test.

use std::net::SocketAddr;

use iotax_node::{ConnId, Input, ListenerId, Node, ServerNode};
use iotax_proto::{
    Instant,
    nfs::{
        self,
        common::FileHandle,
        mount::{self, PROGRAM as MOUNT_PROGRAM},
        v3::{self, Arguments, Results},
    },
    nvme::{
        CommandId, ControllerId, QueueId, Sqe,
        command::{Connect, ConnectData, Sgl, fabrics},
        log::GetLogPage,
        property,
    },
    rpc::{
        Credentials, Encoder,
        auth::Identity,
        message::{Xid, decode_reply, encode_call},
    },
    wire::Reader,
};

/// Maximum bytes that a driver receives at a time.
pub const RECEIVE_BYTES: usize = 128 << 10;

pub const VOLUME_NQN: &str = "nqn.2026-11.io.iotax:v0";

pub struct Peer<'a> {
    pub node: &'a mut ServerNode,
    pub conn: ConnId,
    pub now: Instant,
    /// Number of requests.
    pub sent: u32,
}

impl<'a> Peer<'a> {
    pub fn connect(node: &'a mut ServerNode, conn: u32, portal: u32) -> Self {
        let (conn, now) = (ConnId(conn), Instant(0));
        // Each peer has a different address.
        let peer = SocketAddr::from(([127, 0, 1, conn.0 as u8], 9999));
        node.handle(now, Input::Accepted { conn, listener: ListenerId(portal), peer });
        Self { node, conn, now, sent: 0 }
    }

    /// The peer of an earlier call.
    pub fn again(node: &'a mut ServerNode, conn: u32, sent: u32) -> Self {
        Self { node, conn: ConnId(conn), now: Instant(0), sent }
    }

    /// Sends, and returns the reply.
    pub fn say(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.node.handle(self.now, Input::Received { conn: self.conn, bytes });
        self.take_turns();
        self.node.transmit(self.conn).expect("open").take_bytes()
    }

    pub fn queued(&mut self) -> usize {
        self.node.transmit(self.conn).map_or(0, |transmit| transmit.len())
    }

    /// Sends requests without reading until no more are taken, or `requests` were sent. Returns the number sent.
    pub fn pour(&mut self, requests: usize, mut request: impl FnMut(u32) -> Vec<u8>) -> usize {
        let mut poured = 0;
        while poured < requests && self.node.wants_receive(self.conn) {
            let mut bytes = Vec::new();
            while bytes.len() < RECEIVE_BYTES && poured < requests {
                self.sent += 1;
                poured += 1;
                bytes.extend(request(self.sent));
            }
            self.node.handle(self.now, Input::Received { conn: self.conn, bytes: &bytes });
            self.take_turns();
        }
        poured
    }

    /// Handles everything that is due now.
    pub fn take_turns(&mut self) {
        while self.node.poll_timeout().is_some_and(|at| at <= self.now) {
            self.node.handle(self.now, Input::Timer);
        }
    }

    /// Reads everything, as if a driver sent it. Returns the number of bytes.
    pub fn read_all(&mut self) -> usize {
        let mut read = 0;
        loop {
            let count = self.queued();
            if let Some(transmit) = self.node.transmit(self.conn) {
                transmit.advance(count);
            }
            read += count;
            if self.node.poll_timeout().is_some_and(|at| at <= self.now) {
                self.node.handle(self.now, Input::Timer);
            }
            if self.queued() == 0 {
                return read;
            }
        }
    }
}

pub fn capsule(sqe: &Sqe, data: &[u8]) -> Vec<u8> {
    let data_offset = if data.is_empty() { 0 } else { 72 };
    [&[4, 0, 72, data_offset], &(72 + data.len() as u32).to_le_bytes()[..], &sqe.0, data].concat()
}

pub fn nvme_admin(peer: &mut Peer<'_>, subnqn: &str) -> ControllerId {
    peer.say(&[&[0, 0, 128, 0, 128, 0, 0, 0][..], &[0; 120]].concat());
    let cntlid = nvme_connect(peer, subnqn, QueueId::ADMIN, ControllerId::ANY);
    let mut enable = Sqe::fabrics(fabrics::PROPERTY_SET, CommandId(1));
    enable.set_cdw(11, property::CC);
    enable.set_cdw(12, property::CC_ENABLE | property::CC_ENTRY_SIZES);
    peer.say(&capsule(&enable, &[]));
    cntlid
}

pub fn nvme_connect(peer: &mut Peer<'_>, subnqn: &str, qid: QueueId, cntlid: ControllerId) -> ControllerId {
    let connect = Connect {
        record_format: 0,
        qid,
        sq_size: 31,
        disable_sq_flow_control: qid > QueueId::ADMIN,
        keep_alive_ms: 600_000,
    };
    let mut sqe = connect.sqe(CommandId(0));
    sqe.set_sgl(Sgl::InCapsule { offset: 0, len: ConnectData::LEN as u32 });
    let data = ConnectData { host_id: [9; 16], cntlid, subnqn: subnqn.into(), hostnqn: "nqn.2026-11.x:deaf".into() };
    let answer = peer.say(&capsule(&sqe, &data.encode()));
    assert_eq!(answer[22..24], [0, 0], "connected");
    ControllerId(u16::from_le_bytes([answer[8], answer[9]]))
}

pub fn log_page(id: u8) -> impl Fn(u32) -> Vec<u8> {
    move |number| {
        let mut sqe = GetLogPage::sqe(id, 1 << 20, 0, CommandId(number as u16 & 0x7fff));
        sqe.set_sgl(Sgl::Transport { len: 1 << 20 });
        capsule(&sqe, &[])
    }
}

/// A PDU; `from` contains the bytes from byte 8 on.
pub fn iscsi(opcode: u8, flags: u8, from: &[u8], data: &[u8]) -> Vec<u8> {
    let mut bhs = [0; 48];
    bhs[0] = opcode;
    bhs[1] = flags;
    bhs[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
    bhs[8..8 + from.len()].copy_from_slice(from);
    [&bhs[..], data, &[0; 3][..data.len().wrapping_neg() % 4]].concat()
}

pub fn iscsi_login(peer: &mut Peer<'_>) {
    let text =
        b"InitiatorName=iqn.2026-11.x:deaf\0TargetName=iqn.2026-11.io.iotax:v0\0MaxRecvDataSegmentLength=16776192\0";
    let isid = [0x80, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1];
    let answer = peer.say(&iscsi(0x43, 0x87, &isid, text));
    assert_eq!(answer[36], 0, "logged in");
    // The first command is answered by a unit attention.
    peer.sent += 1;
    peer.say(&command(&[0; 6])(peer.sent));
}

/// A command that reads up to 1 MiB; the first has CmdSN 1.
pub fn command(cdb: &'static [u8]) -> impl Fn(u32) -> Vec<u8> {
    move |number| {
        let mut from = vec![0; 8];
        from.extend(number.to_be_bytes());
        from.extend((1_u32 << 20).to_be_bytes());
        from.extend(number.to_be_bytes());
        from.extend([0; 4]);
        from.extend(cdb);
        iscsi(0x01, 0xc1, &from, &[])
    }
}

pub fn call(number: u32, program: u32, procedure: u32, arguments: impl FnOnce(&mut Encoder)) -> Vec<u8> {
    let identity = Identity::Sys { machine: "deaf".into(), credentials: Credentials::new(7, 7, &[]) };
    let mut call = Encoder::default();
    encode_call(call.begin_record(), Xid(number), program, v3::VERSION, procedure, &identity.encode());
    arguments(&mut call);
    call.end_record(0).to_vec()
}

pub fn nfs(number: u32, arguments: &Arguments<'_>) -> Vec<u8> {
    call(number, nfs::PROGRAM, arguments.procedure() as u32, |call| arguments.encode(call))
}

pub fn mounted(peer: &mut Peer<'_>) -> FileHandle {
    let reply = peer.say(&call(1, MOUNT_PROGRAM, 1, |call| _ = call.opaque(b"/v0")));
    let mut reader = Reader::new(&reply[4..]);
    decode_reply(&mut reader).expect("a reply").1.expect("success");
    mount::decode_mounted(&mut reader).expect("an answer").expect("mounted")
}

pub fn made(peer: &mut Peer<'_>, arguments: &Arguments<'_>) -> FileHandle {
    let reply = peer.say(&nfs(2, arguments));
    let mut reader = Reader::new(&reply[4..]);
    decode_reply(&mut reader).expect("a reply").1.expect("success");
    match Results::decode(arguments.procedure(), &mut reader).expect("results").expect("made") {
        Results::Create { object: Some(handle), .. } | Results::Lookup { object: handle, .. } => handle,
        other => panic!("{other:?}"),
    }
}
