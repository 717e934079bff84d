//! Two threads of one server: an operation that aborts commands on the other thread is answered when they have ended
//! there.

use std::{
    net::SocketAddr,
    rc::Rc,
    sync::{Arc, mpsc},
};

use iotax_node::{
    ConnId, Input, ListenerId, Node, Output, Server, ServerConfig, ServerNode,
    server::{Export, ExportOptions, Protocol, Squash, plan_portals},
    volume::{Media, VolumeSpec},
};
use iotax_proto::{
    Instant, Transmit,
    iscsi::pdu::{
        Bhs, DataOut, Fragment, Framer, LoginRequest, LoginResponse, R2t, ScsiCommand, ScsiResponse, Sender,
        TaskManagement, TaskManagementResponse, TaskTag, TransferTag,
        control::{LoginStatus, function, function_response, stage},
    },
    scsi::status,
};

use crate::support::Heap;

const SIZE: usize = 1 << 20;
const CONN: ConnId = ConnId(0);

fn server() -> Arc<Server> {
    server_of(Protocol::Iscsi)
}

fn server_of(protocol: Protocol) -> Arc<Server> {
    let listen = SocketAddr::from(([127, 0, 0, 1], 3260));
    let exports = vec![Export {
        protocol,
        volume: 0,
        read_only: false,
        listen,
        groups: None,
        portmap: None,
        squash: Squash::None,
        options: ExportOptions::default(),
    }];
    Server::new(ServerConfig {
        volumes: vec![VolumeSpec::new("v0", SIZE as u64, Media::Memory)],
        portals: plan_portals(&exports).expect("a plan"),
        exports,
        started_unix_ns: 1,
        secret: [1; 32],
        connections_max: 8,
        has_frame_crc: true,
    })
}

/// A thread's node with one session, and its initiator.
struct Thread {
    node: ServerNode,
    memory: Rc<Heap>,
    sender: Sender,
    framer: Framer,
    now: Instant,
    cmd_sn: u32,
}

impl Thread {
    /// Logs in as the initiator port with this number.
    fn new(server: &Arc<Server>, number: u8) -> Self {
        let mut thread = Self::connected(server, number);
        thread.ask_login(server, number);
        thread.logged_in();
        thread
    }

    fn connected(server: &Arc<Server>, number: u8) -> Self {
        let memory = Heap::new(SIZE);
        let region: Rc<dyn iotax_proto::Region> = memory.clone();
        let allocate = Box::new(|len| Some(Heap::new(len) as _));
        let mut node = ServerNode::new(Arc::clone(server), number.into(), &mut |_| Rc::clone(&region), allocate, None);
        let (now, peer) = (Instant(1), SocketAddr::from(([127, 0, 0, 1], 50_000)));
        node.handle(now, Input::Accepted { conn: CONN, listener: ListenerId(0), peer });
        let (sender, framer) = (Sender::default(), Framer::new(1 << 20));
        Self { node, memory, sender, framer, now, cmd_sn: 1 }
    }

    fn ask_login(&mut self, server: &Server, number: u8) {
        let target = server.endpoint(0).split('/').nth(3).expect("a name").to_owned();
        let request = LoginRequest {
            immediate: true,
            transit: true,
            csg: stage::OPERATIONAL,
            nsg: stage::FULL_FEATURE,
            isid: [0x80, 0, 0, 0, 0, number],
            cmd_sn: self.cmd_sn,
            ..LoginRequest::default()
        };
        let keys = format!("InitiatorName=iqn.2026-11.x:i\0TargetName={target}\0InitialR2T=Yes\0ImmediateData=No\0");
        self.send(request.encode(), keys.as_bytes());
    }

    fn logged_in(&mut self) {
        let [response] = self.answers()[..] else { panic!("one response") };
        assert_eq!(LoginResponse::parse(&response).status, LoginStatus::SUCCESS);
        // The unit attention of power on.
        assert_ne!(self.test_unit_ready(), status::GOOD);
        assert_eq!(self.test_unit_ready(), status::GOOD);
    }

    fn send(&mut self, bhs: Bhs, data: &[u8]) {
        let mut transmit = Transmit::default();
        self.sender.bytes(&mut transmit, bhs, data);
        self.node.handle(self.now, Input::Received { conn: CONN, bytes: &transmit.take_bytes() });
    }

    fn answers(&mut self) -> Vec<Bhs> {
        let bytes = self.node.transmit(CONN).expect("a connection").take_bytes();
        let (mut input, mut answers) = (&bytes[..], Vec::new());
        while let Some(step) = self.framer.next(&mut input).expect("PDUs") {
            if let Fragment::Header(bhs) = step {
                answers.push(bhs);
            }
        }
        answers
    }

    fn command(&mut self, command: ScsiCommand) {
        self.cmd_sn += 1;
        self.send(ScsiCommand { last: true, cmd_sn: self.cmd_sn - 1, ..command }.encode(), &[]);
    }

    fn test_unit_ready(&mut self) -> u8 {
        self.command(ScsiCommand { itt: TaskTag(7), ..ScsiCommand::default() });
        let [response] = self.answers()[..] else { panic!("one response") };
        ScsiResponse::parse(&response).status
    }

    /// Begins a write of one block. Returns its TTT.
    fn begin_write(&mut self) -> TransferTag {
        let mut write = ScsiCommand { write: true, itt: TaskTag(8), expected_data_len: 512, ..ScsiCommand::default() };
        (write.cdb[0], write.cdb[8]) = (0x2a, 1);
        self.command(write);
        let [r2t] = self.answers()[..] else { panic!("one R2T") };
        R2t::parse(&r2t).ttt
    }

    fn reset(&mut self) {
        let request = TaskManagement {
            immediate: true,
            last: true,
            itt: TaskTag(9),
            cmd_sn: self.cmd_sn,
            function: function::LOGICAL_UNIT_RESET,
            referenced_itt: TaskTag::RESERVED,
            ..TaskManagement::default()
        };
        self.send(request.encode(), &[]);
    }

    fn timer(&mut self) {
        self.now = self.node.poll_timeout().expect("a deadline");
        self.node.handle(self.now, Input::Timer);
    }
}

#[test]
fn reset_is_answered_when_the_other_thread_has_ended_its_commands() {
    let server = server();
    let (wake, woken) = mpsc::channel();
    server.wake_with(move || wake.send(()).expect("somebody listens"));
    let (occupied, is_occupied) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    let (ended, has_ended) = mpsc::channel();
    std::thread::scope(|scope| {
        let shared = &server;
        scope.spawn(move || {
            let mut other = Thread::new(shared, 2);
            let ttt = other.begin_write();
            occupied.send(()).expect("the other");
            woken.recv().expect("it is woken");
            goes_on.recv().expect("the other");
            other.node.handle(other.now, Input::Woken);
            ended.send(()).expect("the other");
            other.send(DataOut { last: true, itt: TaskTag(8), ttt, ..DataOut::default() }.encode(), &[9; 512]);
            assert!(other.answers().is_empty());
            assert_eq!(other.memory.bytes()[..512], [0; 512]);
            assert_eq!(other.test_unit_ready(), status::CHECK_CONDITION);
        });
        let mut one = Thread::new(&server, 1);
        is_occupied.recv().expect("the other");
        one.reset();
        for _ in 0..100 {
            assert!(one.answers().is_empty(), "the write on the other thread has not ended");
            one.timer();
        }
        go_on.send(()).expect("the other");
        has_ended.recv().expect("the other");
        one.timer();
        let [response] = one.answers()[..] else { panic!("one response") };
        assert_eq!(TaskManagementResponse::parse(&response).response, function_response::COMPLETE);
    });
}

#[test]
fn login_is_answered_when_the_session_that_it_replaces_has_ended_on_its_thread() {
    let server = server();
    let mut old = Thread::new(&server, 1);
    let ttt = old.begin_write();
    let mut new = Thread::connected(&server, 1);
    new.ask_login(&server, 1);
    for _ in 0..100 {
        assert!(new.answers().is_empty(), "the older session has not ended");
        new.timer();
    }
    let data = DataOut { last: true, itt: TaskTag(8), ttt, ..DataOut::default() };
    old.send(data.encode(), &[9; 512]);
    assert_eq!(old.memory.bytes()[..512], [0; 512], "its write comes too late");
    new.timer();
    new.logged_in();
}

/// A driver keeps a connection as long as its last reply cannot be sent.
#[test]
fn login_does_not_wait_for_a_connection_that_only_flushes() {
    let server = server();
    let mut old = Thread::new(&server, 1);
    old.begin_write();
    let mut too_long = ScsiCommand { cmd_sn: old.cmd_sn, ..ScsiCommand::default() }.encode();
    too_long.0[5..8].fill(0xff);
    old.node.handle(old.now, Input::Received { conn: CONN, bytes: &too_long.0 });
    assert!(matches!(old.node.poll_output(), Some(Output::Close { .. })), "the peer broke the protocol");
    let mut new = Thread::connected(&server, 1);
    new.ask_login(&server, 1);
    new.logged_in();
}

/// A call that needs no credentials: NULL (RFC 1813 §3.3.0), in one record.
fn null_call() -> Vec<u8> {
    let words = [7, 0, 2, 100_003, 3, 0, 0, 0, 0, 0_u32];
    let record = (words.len() as u32 * 4) | 1 << 31;
    std::iter::once(record).chain(words).flat_map(u32::to_be_bytes).collect()
}

#[test]
fn calls_of_a_client_that_is_back_wait_until_its_older_connection_has_ended_on_its_thread() {
    let server = server_of(Protocol::Nfs3);
    let mut old = Thread::connected(&server, 1);
    let mut new = Thread::connected(&server, 2);
    let call = null_call();
    new.node.handle(new.now, Input::Received { conn: CONN, bytes: &call });
    for _ in 0..100 {
        assert!(new.node.transmit(CONN).expect("a connection").is_empty(), "the older connection has not ended");
        new.timer();
    }
    old.node.handle(old.now, Input::Woken);
    assert!(matches!(old.node.poll_output(), Some(Output::Close { .. })), "another took its place");
    new.timer();
    new.timer();
    assert!(!new.node.transmit(CONN).expect("a connection").is_empty());
}

#[test]
fn a_client_is_given_up_where_its_older_connection_does_not_end() {
    let server = server_of(Protocol::Nfs3);
    let _old = Thread::connected(&server, 1);
    let mut new = Thread::connected(&server, 2);
    while new.now < Instant(3_000_000_000) {
        if matches!(new.node.poll_output(), Some(Output::Close { .. })) {
            assert!(new.now >= Instant(2_000_000_000));
            return;
        }
        new.timer();
    }
    panic!("it waits for ever");
}
