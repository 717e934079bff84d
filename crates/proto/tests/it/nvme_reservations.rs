//! Reservations with several hosts: which hosts are barred, which commands end, and which hosts are notified.

use std::time::Duration;

use crate::nvme_support::{
    Answers, BLOCK, Cut, Server,
    raw::{HOST_ID, Raw, capsule, connect, connect_data, h2c_data},
};
use iotax_proto::{
    Io, IoError, Refusal, Reserve, Target,
    nvme::{
        CommandId, ControllerId, QueueId, Sqe, Status,
        command::{ConnectData, NSID_ALL, Sgl, admin, feature, log_id, nvm},
        identify::{self, cns},
        io::{encode_range, set_deallocate_one},
        log::GetLogPage,
    },
    nvme_tcp::TargetConfig,
};

const OTHER_ID: [u8; 16] = [5; 16];
const KEY: u64 = 0x11;
const OTHER_KEY: u64 = 0x22;

const WRITE_EXCLUSIVE: u32 = 1;
const EXCLUSIVE_ACCESS: u32 = 2;
const WRITE_EXCLUSIVE_REGISTRANTS_ONLY: u32 = 3;

fn config() -> TargetConfig {
    TargetConfig { in_capsule_bytes: BLOCK as u32, ..TargetConfig::default() }
}

/// A host with an admin queue and an I/O queue.
struct Host {
    admin: Raw,
    io: Raw,
}

impl Host {
    fn new(server: &mut Server, id: [u8; 16]) -> Self {
        let (admin, cntlid) = connected(server, QueueId::ADMIN, ControllerId::ANY, id);
        let (io, _) = connected(server, QueueId(1), cntlid, id);
        Self { admin, io }
    }

    /// Sends a reservation command that is answered at once and returns its status.
    fn reserve(&mut self, server: &mut Server, opcode: u8, dword: u32, keys: &[u64]) -> u16 {
        let data = bytes(keys);
        self.io.one(server, &reserve(opcode, dword, data.len()), &data).status()
    }

    fn register(&mut self, server: &mut Server, key: u64) {
        assert_eq!(self.reserve(server, nvm::RESERVATION_REGISTER, 0, &[0, key]), 0);
    }

    fn acquire(&mut self, server: &mut Server, key: u64, kind: u32) -> u16 {
        self.reserve(server, nvm::RESERVATION_ACQUIRE, kind << 8, &[key, 0])
    }

    fn preempt(&mut self, server: &mut Server, key: u64, victim: u64) -> u16 {
        self.reserve(server, nvm::RESERVATION_ACQUIRE, 1 | WRITE_EXCLUSIVE_REGISTRANTS_ONLY << 8, &[key, victim])
    }

    /// Sends PREEMPT AND ABORT. Returns the statuses of the answers; there may be none yet.
    fn preempt_and_abort(&mut self, server: &mut Server, key: u64, victim: u64) -> Vec<u16> {
        let data = bytes(&[key, victim]);
        let sqe = reserve(nvm::RESERVATION_ACQUIRE, 2 | WRITE_EXCLUSIVE_REGISTRANTS_ONLY << 8, data.len());
        let answers = self.io.send(server, &capsule(&sqe, &data)).expect("stands");
        answers.iter().map(crate::nvme_support::raw::Pdu::status).collect()
    }

    fn report(&mut self, server: &mut Server, len: u32) -> Vec<u8> {
        self.io.data(server, &report(len, 1))
    }

    fn read(&mut self, server: &mut Server) -> u16 {
        let answer = &self.io.send(server, &capsule(&transfer(nvm::READ, 1), &[])).expect("stands")[0];
        if answer.data.is_empty() { answer.status() } else { 0 }
    }

    fn write(&mut self, server: &mut Server) -> u16 {
        let mut sqe = transfer(nvm::WRITE, 1);
        sqe.set_sgl(Sgl::InCapsule { offset: 0, len: BLOCK as u32 });
        self.io.one(server, &sqe, &[0x5a; BLOCK]).status()
    }

    /// Handles a notification of the server, as the driver does. Returns the statuses of the answers.
    fn notice(&mut self, server: &mut Server) -> Vec<u16> {
        self.io.target.handle_notification(self.io.now, server);
        self.io.answers().iter().map(crate::nvme_support::raw::Pdu::status).collect()
    }

    /// Reads the next page of the Reservation Notification log: log page count, type, number of pages left, namespace.
    fn notification(&mut self, server: &mut Server) -> (u8, u8, u8, u8) {
        let mut sqe = GetLogPage::sqe(log_id::RESERVATION_NOTIFICATION, 64, 0, CommandId(4));
        sqe.set_sgl(Sgl::Transport { len: 64 });
        let page = self.admin.data(server, &sqe);
        (page[0], page[8], page[9], page[12])
    }
}

fn connected(server: &mut Server, qid: QueueId, cntlid: ControllerId, host_id: [u8; 16]) -> (Raw, ControllerId) {
    let (mut raw, sq_size) = (Raw::open(server, &config()), if qid == QueueId::ADMIN { 31 } else { 7 });
    let data = ConnectData { host_id, ..connect_data(cntlid) };
    let cqe = raw.connect(server, &connect(qid, sq_size), &data);
    assert!(cqe.status.is_success(), "{cqe:?}");
    if qid == QueueId::ADMIN {
        raw.enable(server);
    }
    (raw, ControllerId(cqe.result as u16))
}

fn two_hosts() -> (Server, Host, Host) {
    let mut server = Server::new();
    let (mut one, mut other) = (Host::new(&mut server, HOST_ID), Host::new(&mut server, OTHER_ID));
    one.register(&mut server, KEY);
    other.register(&mut server, OTHER_KEY);
    (server, one, other)
}

fn bytes(keys: &[u64]) -> Vec<u8> {
    keys.iter().flat_map(|key| key.to_le_bytes()).collect()
}

fn reserve(opcode: u8, dword: u32, len: usize) -> Sqe {
    let mut sqe = Sqe::new(opcode, CommandId(9), 1);
    sqe.set_cdw(10, dword);
    sqe.set_sgl(Sgl::InCapsule { offset: 0, len: len as u32 });
    sqe
}

fn report(len: u32, extended: u32) -> Sqe {
    let mut sqe = Sqe::new(nvm::RESERVATION_REPORT, CommandId(9), 1);
    sqe.set_cdw(10, len / 4 - 1);
    sqe.set_cdw(11, extended);
    sqe.set_sgl(Sgl::Transport { len });
    sqe
}

fn transfer(opcode: u8, blocks: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode, CommandId(7), 1);
    sqe.set_range(0, blocks);
    sqe.set_sgl(Sgl::Transport { len: blocks * BLOCK as u32 });
    sqe
}

const CONFLICT: u16 = Status::RESERVATION_CONFLICT.code();
const PREEMPTED: u16 = Status::PREEMPTED.code();

#[test]
fn controller_says_what_it_knows_of_reservations() {
    let mut server = Server::new();
    let mut host = Host::new(&mut server, HOST_ID);
    let mut ask = |selector: u8, nsid: u32| {
        let mut sqe = Sqe::new(admin::IDENTIFY, CommandId(2), nsid);
        sqe.set_cdw(10, u32::from(selector));
        sqe.set_sgl(Sgl::Transport { len: identify::LEN as u32 });
        host.admin.data(&mut server, &sqe)
    };
    let controller = ask(cns::CONTROLLER, 0);
    assert_eq!((controller[520] >> 5 & 1, controller[96] & 1), (1, 1), "ONCS, and 128-bit host identifiers");
    assert_eq!((ask(cns::NAMESPACE, 1)[31], ask(cns::NAMESPACE_INDEPENDENT, 1)[2]), (0xfe, 0xfe));
}

#[test]
fn commands_that_a_reservation_bars_are_refused_and_others_are_not() {
    let (mut server, mut one, mut other) = two_hosts();
    assert_eq!((other.read(&mut server), other.write(&mut server)), (0, 0));
    assert_eq!(one.acquire(&mut server, KEY, WRITE_EXCLUSIVE), 0);
    assert_eq!((one.read(&mut server), one.write(&mut server)), (0, 0));
    assert_eq!((other.read(&mut server), other.write(&mut server)), (0, CONFLICT));
    for opcode in [nvm::FLUSH, nvm::WRITE_ZEROES, nvm::DATASET_MANAGEMENT] {
        assert_eq!(other.io.status(&mut server, &transfer(opcode, 1)).code(), CONFLICT, "{opcode:#x}");
    }
    assert_eq!(one.reserve(&mut server, nvm::RESERVATION_RELEASE, WRITE_EXCLUSIVE << 8, &[KEY]), 0);
    assert_eq!(one.acquire(&mut server, KEY, EXCLUSIVE_ACCESS), 0);
    assert_eq!((other.read(&mut server), other.write(&mut server)), (CONFLICT, CONFLICT));
    assert_eq!(other.io.status(&mut server, &transfer(nvm::COMPARE, 1)).code(), CONFLICT);
    // Two keys, as some hosts send them.
    assert_eq!(one.reserve(&mut server, nvm::RESERVATION_RELEASE, EXCLUSIVE_ACCESS << 8, &[KEY, 0]), 0);
    assert_eq!((other.read(&mut server), other.write(&mut server)), (0, 0));
}

#[test]
fn registration_is_the_hosts_whatever_its_connections() {
    let (mut server, mut one, mut other) = two_hosts();
    assert_eq!(one.acquire(&mut server, KEY, WRITE_EXCLUSIVE_REGISTRANTS_ONLY), 0);
    for raw in [&mut one.io, &mut one.admin] {
        raw.target.disconnected(raw.now, &mut server);
    }
    let mut again = Host::new(&mut server, HOST_ID);
    assert_eq!(again.write(&mut server), 0);
    let mut stranger = Host::new(&mut server, [3; 16]);
    assert_eq!((stranger.write(&mut server), other.write(&mut server)), (CONFLICT, 0));
    assert_eq!(again.reserve(&mut server, nvm::RESERVATION_RELEASE, WRITE_EXCLUSIVE_REGISTRANTS_ONLY << 8, &[KEY]), 0);
}

#[test]
fn report_tells_registrants_as_far_as_there_is_room() {
    let (mut server, mut one, _other) = two_hosts();
    one.acquire(&mut server, KEY, WRITE_EXCLUSIVE);
    let whole = one.report(&mut server, 4096);
    assert_eq!(whole[..7], [2, 0, 0, 0, 1, 2, 0]);
    assert_eq!((&whole[64..67], &whole[80..96]), (&[0xff, 0xff, 1][..], &HOST_ID[..]));
    assert_eq!((whole[128 + 2], whole[128 + 8], &whole[144..160]), (0, OTHER_KEY as u8, &OTHER_ID[..]));
    assert_eq!(whole[192..], [0; 4096 - 192]);
    assert_eq!(one.report(&mut server, 4), whole[..4]);
    let mut too_long = report(4096, 1);
    too_long.set_cdw(10, u32::MAX);
    for (sqe, status) in [
        (report(4096, 0), Status::HOST_ID_INCONSISTENT),
        (too_long, Status::INVALID_FIELD),
        (report(64, 1), Status::SUCCESS),
    ] {
        let answer = &one.io.send(&mut server, &capsule(&sqe, &[])).expect("stands")[0];
        assert_eq!(if answer.data.is_empty() { answer.status() } else { 0 }, status.code());
    }
}

#[test]
fn host_without_an_identifier_has_no_reservations() {
    let mut server = Server::new();
    let mut nobody = Host::new(&mut server, [0; 16]);
    let status = nobody.reserve(&mut server, nvm::RESERVATION_REGISTER, 0, &[0, KEY]);
    assert_eq!(status, Status::HOST_ID_INCONSISTENT.code());
}

#[test]
fn preempt_and_abort_ends_what_the_other_had_under_way_and_waits_for_it() {
    let (mut server, mut one, mut other) = two_hosts();
    one.acquire(&mut server, KEY, WRITE_EXCLUSIVE_REGISTRANTS_ONLY);
    // A write whose data the controller has requested, and a read that is queued.
    let r2t = other.io.one(&mut server, &transfer(nvm::WRITE, 2), &[]).r2t();
    server.answers = Answers::Later;
    let mut read = transfer(nvm::READ, 1);
    read.set_cid(CommandId(8));
    assert!(other.io.send(&mut server, &capsule(&read, &[])).expect("stands").is_empty());
    server.lingering = Some(Vec::new());
    assert_eq!(one.preempt_and_abort(&mut server, KEY, OTHER_KEY), []);
    assert_eq!(server.port.notified, 1);
    assert_eq!(other.notice(&mut server), [PREEMPTED], "the read");
    assert_eq!(one.notice(&mut server), [], "a disk is still at work");
    server.lingering = None;
    let due = Target::<Server>::poll_timeout(&one.io.target).expect("it looks soon");
    one.io.target.handle_timeout(due, &mut server).expect("stands");
    assert_eq!(one.io.answers()[0].status(), 0);
    // The controller discards the data of the write and then ends it.
    let data = h2c_data(CommandId(7), r2t.ttag, 0, true, &[0x77; 2 * BLOCK]);
    let before = server.volume.clone();
    assert_eq!(other.io.send(&mut server, &data).expect("stands")[0].status(), PREEMPTED);
    assert_eq!((server.volume == before, server.outstanding()), (true, 0));
    assert_eq!(other.write(&mut server), CONFLICT);
}

#[test]
fn preempt_and_abort_that_waits_too_long_fails() {
    let (mut server, mut one, mut other) = two_hosts();
    server.answers = Answers::Later;
    assert!(other.io.send(&mut server, &capsule(&transfer(nvm::READ, 1), &[])).expect("stands").is_empty());
    assert_eq!(one.preempt_and_abort(&mut server, KEY, OTHER_KEY), []);
    one.io.now = one.io.now + Duration::from_secs(2);
    one.io.target.handle_timeout(one.io.now, &mut server).expect("stands");
    assert_eq!(one.io.answers()[0].status(), Status::INTERNAL_ERROR.code());
    assert_eq!(other.notice(&mut server), [PREEMPTED], "the registration is gone all the same");
}

#[test]
fn queue_of_a_controller_that_has_ended_is_preempted_too() {
    let (mut server, mut one, mut other) = two_hosts();
    let r2t = other.io.one(&mut server, &transfer(nvm::WRITE, 2), &[]).r2t();
    other.admin.target.disconnected(other.admin.now, &mut server);
    assert_eq!(one.preempt_and_abort(&mut server, KEY, OTHER_KEY), []);
    assert_eq!(other.notice(&mut server), []);
    assert_eq!(one.notice(&mut server), [0]);
    let before = server.volume.clone();
    let data = h2c_data(CommandId(7), r2t.ttag, 0, true, &[0x77; 2 * BLOCK]);
    other.io.send(&mut server, &data).expect("stands");
    assert_eq!(server.volume, before);
}

#[test]
fn preempt_and_abort_waits_for_nothing_of_a_queue_that_is_lost() {
    let (mut server, mut one, mut other) = two_hosts();
    other.io.one(&mut server, &transfer(nvm::WRITE, 2), &[]).r2t();
    assert_eq!(one.preempt_and_abort(&mut server, KEY, OTHER_KEY), []);
    other.io.target.disconnected(other.io.now, &mut server);
    assert_eq!(one.notice(&mut server), [0]);
    assert_eq!(server.outstanding(), 0);
}

#[test]
fn ranges_that_come_after_a_preemption_are_refused() {
    let (mut server, mut one, mut other) = two_hosts();
    one.acquire(&mut server, KEY, WRITE_EXCLUSIVE_REGISTRANTS_ONLY);
    let mut sqe = transfer(nvm::DATASET_MANAGEMENT, 1);
    set_deallocate_one(&mut sqe);
    sqe.set_sgl(Sgl::Transport { len: 16 });
    let r2t = other.io.one(&mut server, &sqe, &[]).r2t();
    assert_eq!(one.preempt(&mut server, KEY, OTHER_KEY), 0);
    let data = h2c_data(CommandId(7), r2t.ttag, 0, true, &encode_range(0, 1));
    assert_eq!(other.io.send(&mut server, &data).expect("stands")[0].status(), CONFLICT);
}

#[test]
fn notices_are_told_in_their_log_and_by_events_unless_masked() {
    let (mut server, mut one, mut other) = two_hosts();
    one.acquire(&mut server, KEY, WRITE_EXCLUSIVE_REGISTRANTS_ONLY);
    assert_eq!(other.notification(&mut server), (0, 0, 0, 0), "there is none");
    let request = Sqe::new(admin::ASYNC_EVENT, CommandId(20), 0);
    assert!(other.admin.send(&mut server, &capsule(&request, &[])).expect("stands").is_empty());
    let released = WRITE_EXCLUSIVE_REGISTRANTS_ONLY << 8;
    assert_eq!(one.reserve(&mut server, nvm::RESERVATION_RELEASE, released, &[KEY]), 0);
    let due = Target::<Server>::poll_timeout(&other.admin.target).expect("events are looked for");
    other.admin.target.handle_timeout(due, &mut server).expect("stands");
    assert_eq!(other.admin.answers()[0].response().result, 0x0080_0006);
    assert_eq!(one.preempt(&mut server, KEY, OTHER_KEY), 0);
    assert_eq!(other.notification(&mut server), (1, 2, 1, 1), "reservation released, and one more");
    assert_eq!(other.notification(&mut server), (2, 1, 0, 1), "registration preempted");
    assert_eq!(one.notification(&mut server), (0, 0, 0, 0), "who did it knows");

    let set = |nsid: u32, mask: u32| {
        let mut sqe = Sqe::new(admin::SET_FEATURES, CommandId(2), nsid);
        sqe.set_cdw(10, feature::RESERVATION_NOTIFICATION_MASK.into());
        sqe.set_cdw(11, mask);
        sqe
    };
    assert_eq!(other.admin.status(&mut server, &set(9, 0)).code(), Status::INVALID_NAMESPACE.code());
    assert!(other.admin.status(&mut server, &set(NSID_ALL, 1 << 1)).is_success());
    let mut get = Sqe::new(admin::GET_FEATURES, CommandId(2), 1);
    get.set_cdw(10, feature::RESERVATION_NOTIFICATION_MASK.into());
    assert_eq!(other.admin.one(&mut server, &get, &[]).response().result, 1 << 1);
    other.register(&mut server, OTHER_KEY);
    assert_eq!(one.preempt(&mut server, KEY, OTHER_KEY), 0);
    assert_eq!(other.notification(&mut server), (0, 0, 0, 0));
    other.register(&mut server, OTHER_KEY);
    assert_eq!(one.reserve(&mut server, nvm::RESERVATION_RELEASE, 1, &[KEY]), 0);
    assert_eq!(other.notification(&mut server), (3, 3, 0, 1), "reservation preempted: all was cleared");
}

#[test]
fn reservations_are_no_change_of_namespaces() {
    let (mut server, mut one, mut other) = two_hosts();
    let mut wanted = Sqe::new(admin::SET_FEATURES, CommandId(2), 0);
    wanted.set_cdw(10, feature::ASYNC_EVENT_CONFIG.into());
    wanted.set_cdw(11, 0x100);
    assert!(other.admin.status(&mut server, &wanted).is_success());
    let request = Sqe::new(admin::ASYNC_EVENT, CommandId(20), 0);
    assert!(other.admin.send(&mut server, &capsule(&request, &[])).expect("stands").is_empty());
    assert_eq!(one.acquire(&mut server, KEY, WRITE_EXCLUSIVE), 0);
    let due = Target::<Server>::poll_timeout(&other.admin.target).expect("events are looked for");
    other.admin.target.handle_timeout(due, &mut server).expect("stands");
    assert!(other.admin.answers().is_empty());
}

#[test]
fn persistence_through_power_loss_is_declined() {
    let mut server = Server::new();
    let mut host = Host::new(&mut server, HOST_ID);
    let mut ask = |opcode: u8, value: u32| {
        let mut sqe = Sqe::new(opcode, CommandId(2), 1);
        sqe.set_cdw(10, feature::RESERVATION_PERSISTENCE.into());
        sqe.set_cdw(11, value);
        let cqe = host.admin.one(&mut server, &sqe, &[]).response();
        (cqe.status.code(), cqe.result)
    };
    assert_eq!(ask(admin::GET_FEATURES, 0), (0, 0));
    assert_eq!(ask(admin::SET_FEATURES, 0), (0, 0));
    assert_eq!(ask(admin::SET_FEATURES, 1).0, Status::INVALID_FIELD.code());
}

/// Two hosts of one subsystem over Fibre Channel, with the commands that our initiators send.
#[test]
fn host_that_is_fenced_over_fibre_channel_is_refused_until_it_registers() {
    use crate::fc_nvme_support::{Pair, config, target_config};
    let ready = |config, server| Pair::ready(config, target_config(8, 512, 512), server, Cut::Never);
    let mut one = ready(config(8, 512), Server::new());
    let mut server = Server::new();
    server.subsystem = one.server.subsystem.clone();
    let mut of_other = config(8, 512);
    of_other.session.host_id = OTHER_ID;
    let mut other = ready(of_other, server);
    let ok = Ok(Vec::new());
    assert_eq!(one.io(0, Io::Reserve(Reserve::Register { key: KEY })), ok);
    assert_eq!(other.io(0, Io::Reserve(Reserve::Register { key: OTHER_KEY })), ok);
    assert_eq!(one.io(0, Io::Reserve(Reserve::Hold { key: KEY })), ok);
    // A read that waits for the backend.
    other.server.answers = Answers::Later;
    other.initiator_submits(3, Io::Read { offset: 0, len: 512 });
    other.send().expect("stands");
    one.initiator_submits(1, Io::Reserve(Reserve::PreemptAndAbort { key: KEY, victim: OTHER_KEY }));
    one.run().expect("stands");
    assert!(one.events.completions.is_empty(), "it waits for the read");
    other.target.handle_notification(other.now, &mut other.server);
    other.run().expect("stands");
    assert_eq!(other.events.take(3), Err(IoError::Aborted));
    one.run_until(|pair| !pair.events.completions.is_empty()).expect("stands");
    assert_eq!(one.events.take(1), ok);
    other.server.answers = Answers::AtOnce;
    let refused = other.io(0, Io::Flush);
    assert!(matches!(refused, Err(IoError::Failed { refusal: Refusal::InUse, .. })), "{refused:?}");
    assert_eq!(other.io(0, Io::Reserve(Reserve::Register { key: OTHER_KEY })), ok);
    assert_eq!(other.io(0, Io::Flush), ok);
}
