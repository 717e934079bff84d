//! Handshake, Connect, admin commands, events, timers and discovery.

use std::time::Duration;

use crate::nvme_support::{
    Cut, HOSTNQN, Pair, SUBNQN, Server, connect_config, connect_with, io,
    raw::{HOST_ID, Raw, capsule, connect, connect_data, h2c_data, ic_req},
};
use iotax_proto::{
    Initiator, Instant, Refusal, Target, ViolationKind,
    nvme::{
        CommandId, ControllerId, DISCOVERY_NQN, QueueId, Sqe, Status, SubsystemConfig,
        command::{Connect, ConnectData, Sgl, admin, fabrics, feature, log_id},
        identify::{self, cns},
        log::GetLogPage,
        property,
    },
    nvme_tcp::{
        AdminQueue, Discovery, TargetConfig, TargetQueue,
        pdu::{Fes, Header},
    },
};

fn set_feature(id: u8, value: u32) -> Sqe {
    let mut sqe = Sqe::new(admin::SET_FEATURES, CommandId(2), 0);
    sqe.set_cdw(10, u32::from(id));
    sqe.set_cdw(11, value);
    sqe
}

fn get_feature(id: u8, select: u32) -> Sqe {
    let mut sqe = Sqe::new(admin::GET_FEATURES, CommandId(2), 0);
    sqe.set_cdw(10, u32::from(id) | select << 8);
    sqe
}

fn identify_command(selector: u8, nsid: u32) -> Sqe {
    let mut sqe = Sqe::new(admin::IDENTIFY, CommandId(2), nsid);
    sqe.set_cdw(10, u32::from(selector));
    sqe.set_sgl(Sgl::Transport { len: identify::LEN as u32 });
    sqe
}

fn log_command(id: u8, len: u32, offset: u64) -> Sqe {
    let mut sqe = GetLogPage::sqe(id, len, offset, CommandId(2));
    sqe.set_sgl(Sgl::Transport { len });
    sqe
}

fn property_set(value: u32) -> Sqe {
    let mut sqe = Sqe::fabrics(fabrics::PROPERTY_SET, CommandId(2));
    sqe.set_cdw(11, property::CC);
    sqe.set_cdw(12, value);
    sqe
}

fn property_get(offset: u32) -> Sqe {
    let mut sqe = Sqe::fabrics(fabrics::PROPERTY_GET, CommandId(2));
    sqe.0[40] = u8::from(offset == property::CAP);
    sqe.set_cdw(11, offset);
    sqe
}

fn queue() -> (Server, Raw, ControllerId) {
    let mut server = Server::new();
    let (raw, cntlid) = Raw::admin(&mut server, &TargetConfig::default());
    (server, raw, cntlid)
}

// ----------------------------------------------------------------------------------------------------------- handshake

#[test]
fn handshake_offers_what_the_configuration_allows() {
    let config = TargetConfig {
        digests: iotax_proto::nvme_tcp::pdu::Digests { header: true, data: false },
        max_h2c_data_bytes: 65_536,
        ..TargetConfig::default()
    };
    let mut server = Server::new();
    let mut raw = Raw::new(&config);
    let answers = raw.send(&mut server, &ic_req(0, 3)).expect("handshake");
    let Header::IcResp(resp) = answers[0].header else { panic!("no ICResp") };
    assert_eq!((resp.format_version, resp.controller_alignment, resp.max_h2c_data), (0, 0, 65_536));
    assert_eq!((resp.digests.header, resp.digests.data), (true, false));
}

#[test]
fn handshake_out_of_order_or_of_another_version_ends_the_connection() {
    let mut server = Server::new();
    let early = capsule(&connect(QueueId::ADMIN, 31).sqe(CommandId(0)), &[]);
    let (term, _) = Raw::new(&TargetConfig::default()).send_fatal(&mut server, &early);
    assert_eq!(term.status, Fes::SequenceError as u16);

    let mut version = ic_req(0, 0);
    version[8] = 1;
    let (term, violation) = Raw::new(&TargetConfig::default()).send_fatal(&mut server, &version);
    assert_eq!((term.status, term.information), (Fes::UnsupportedParameter as u16, 8));
    assert_eq!(violation.kind, ViolationKind::Unsupported);

    let (term, _) = Raw::new(&TargetConfig::default()).send_fatal(&mut server, &ic_req(32, 0));
    assert_eq!((term.status, term.information), (Fes::InvalidHeaderField as u16, 10));

    let mut raw = Raw::open(&mut server, &TargetConfig::default());
    let (term, _) = raw.send_fatal(&mut server, &ic_req(0, 0));
    assert_eq!(term.status, Fes::SequenceError as u16);
}

#[test]
fn host_alignment_pads_the_data() {
    let mut server = Server::new();
    let mut raw = Raw::new(&TargetConfig::default());
    raw.send(&mut server, &ic_req(15, 0)).expect("handshake");
    assert!(
        raw.connect(&mut server, &connect(QueueId::ADMIN, 31), &connect_data(ControllerId::ANY)).status.is_success()
    );
    assert!(raw.status(&mut server, &property_set(property::CC_ENABLE)).is_success());
    raw.target.receive(raw.now, &capsule(&identify_command(cns::CONTROLLER, 0), &[]), &mut server).expect("stands");
    let bytes = Target::<Server>::transmit(&mut raw.target).take_bytes();
    assert_eq!((bytes[3], bytes.len()), (64, 64 + identify::LEN + 24));
    assert_eq!(bytes[24..64], [0; 40]);
}

#[test]
fn peer_that_does_not_connect_in_time_is_given_up() {
    let mut server = Server::new();
    let mut target = TargetQueue::new(Instant(0), TargetConfig::default());
    let due = Target::<Server>::poll_timeout(&target).expect("a timer");
    assert_eq!(due, Instant(0) + Duration::from_secs(10));
    let violation = target.handle_timeout(due, &mut server).expect_err("given up");
    assert_eq!(violation.kind, ViolationKind::TimedOut);
    assert!(Target::<Server>::is_closing(&target));
}

// ------------------------------------------------------------------------------------------------------------- connect

#[test]
fn connect_refuses_with_the_field_at_fault() {
    let host = |nqn: &str| ConnectData { hostnqn: nqn.into(), ..connect_data(ControllerId::ANY) };
    let right = connect_data(ControllerId::ANY);
    let cases = [
        (
            Connect { record_format: 1, ..connect(QueueId::ADMIN, 31) },
            right.clone(),
            Status::CONNECT_INCOMPATIBLE_FORMAT,
            0,
        ),
        (connect(QueueId::ADMIN, 0), right.clone(), Status::CONNECT_INVALID_PARAMETERS, 44),
        (connect(QueueId::ADMIN, 128), right.clone(), Status::CONNECT_INVALID_PARAMETERS, 44),
        (connect(QueueId::ADMIN, 31), connect_data(ControllerId(5)), Status::CONNECT_INVALID_PARAMETERS, 1 << 16 | 16),
        (connect(QueueId(1), 31), connect_data(ControllerId(5)), Status::CONNECT_INVALID_PARAMETERS, 1 << 16 | 16),
        (connect(QueueId::ADMIN, 31), host("nqn.stranger"), Status::CONNECT_INVALID_HOST, 0),
        (
            connect(QueueId::ADMIN, 31),
            ConnectData { subnqn: "nqn.other".into(), ..right.clone() },
            Status::CONNECT_INVALID_PARAMETERS,
            1 << 16 | 256,
        ),
        (
            connect(QueueId(1), 31),
            ConnectData { subnqn: DISCOVERY_NQN.into(), ..connect_data(ControllerId(1)) },
            Status::CONNECT_INVALID_PARAMETERS,
            1 << 16 | 16,
        ),
    ];
    for (command, data, status, result) in cases {
        let mut server = Server::new();
        let mut raw = Raw::open(&mut server, &TargetConfig::default());
        let cqe = raw.connect(&mut server, &command, &data);
        assert_eq!((cqe.status.code(), cqe.result), (status.code(), result), "{command:?} {data:?}");
        assert!(Target::<Server>::is_closing(&raw.target));
        assert_eq!(server.subsystem.0.borrow().controller_count(), 0);
    }
}

#[test]
fn io_queue_connects_once_to_a_granted_identifier_of_an_enabled_controller_of_its_host() {
    let mut server = Server::new();
    let config = TargetConfig::default();
    let (mut admin, cntlid) = Raw::admin(&mut server, &config);
    assert_eq!(
        admin.one(&mut server, &set_feature(feature::QUEUE_COUNT, 1 | 1 << 16), &[]).response().result,
        1 | 1 << 16
    );
    let mut attempt = |command: Connect, data: ConnectData| {
        let mut raw = Raw::open(&mut server, &config);
        let cqe = raw.connect(&mut server, &command, &data);
        (raw, cqe.status.code(), cqe.result, cqe.sq_head)
    };
    let (_kept, status, result, sq_head) = attempt(connect(QueueId(1), 7), connect_data(cntlid));
    assert_eq!((status, result, sq_head), (0, u64::from(cntlid.0), 0xffff));
    assert_eq!(attempt(connect(QueueId(1), 7), connect_data(cntlid)).1, Status::INVALID_QUEUE.code());
    assert_eq!(attempt(connect(QueueId(3), 7), connect_data(cntlid)).2, 42);
    let other = ConnectData { host_id: [1; 16], ..connect_data(cntlid) };
    assert_eq!(attempt(connect(QueueId(2), 7), other).2, 1 << 16);
    let other = ConnectData { hostnqn: "nqn.other".into(), ..connect_data(cntlid) };
    assert_eq!(attempt(connect(QueueId(2), 7), other).2, 1 << 16 | 512);
    assert_eq!(admin.status(&mut server, &set_feature(feature::QUEUE_COUNT, 0)).code(), Status::SEQUENCE_ERROR.code());
    assert!(admin.status(&mut server, &property_set(0)).is_success());
    let mut raw = Raw::open(&mut server, &config);
    let cqe = raw.connect(&mut server, &connect(QueueId(2), 7), &connect_data(cntlid));
    assert_eq!(cqe.status.code(), Status::SEQUENCE_ERROR.code());
}

#[test]
fn connect_data_may_come_after_an_r2t() {
    let mut server = Server::new();
    let mut raw = Raw::open(&mut server, &TargetConfig::default());
    let mut sqe = connect(QueueId::ADMIN, 31).sqe(CommandId(4));
    sqe.set_sgl(Sgl::Transport { len: 1024 });
    let r2t = raw.one(&mut server, &sqe, &[]).r2t();
    let data = connect_data(ControllerId::ANY).encode();
    let answers = raw.send(&mut server, &h2c_data(CommandId(4), r2t.ttag, 0, true, &data)).expect("stands");
    assert_eq!(answers[0].status(), 0);
}

#[test]
fn only_connect_may_come_first() {
    let mut server = Server::new();
    let mut raw = Raw::open(&mut server, &TargetConfig::default());
    assert_eq!(raw.status(&mut server, &property_get(property::CAP)).code(), Status::SEQUENCE_ERROR.code());
    assert!(
        raw.connect(&mut server, &connect(QueueId::ADMIN, 31), &connect_data(ControllerId::ANY)).status.is_success()
    );
    assert_eq!(
        raw.status(&mut server, &connect(QueueId::ADMIN, 31).sqe(CommandId(0))).code(),
        Status::SEQUENCE_ERROR.code()
    );
    assert_eq!(
        raw.status(&mut server, &Sqe::new(admin::KEEP_ALIVE, CommandId(1), 0)).code(),
        Status::SEQUENCE_ERROR.code()
    );
}

#[test]
fn allowed_hosts_and_controller_limit_are_kept() {
    let mut server = Server::with_config(SubsystemConfig {
        allowed_hosts: Some(vec![HOSTNQN.into()]),
        max_controllers: 1,
        ..SubsystemConfig::new(SUBNQN)
    });
    let mut raw = Raw::open(&mut server, &TargetConfig::default());
    let data = ConnectData { hostnqn: "nqn.other".into(), ..connect_data(ControllerId::ANY) };
    assert_eq!(
        raw.connect(&mut server, &connect(QueueId::ADMIN, 31), &data).status.code(),
        Status::CONNECT_INVALID_HOST.code()
    );
    let (_kept, _) = Raw::admin(&mut server, &TargetConfig::default());
    let mut raw = Raw::open(&mut server, &TargetConfig::default());
    let cqe = raw.connect(&mut server, &connect(QueueId::ADMIN, 31), &connect_data(ControllerId::ANY));
    assert_eq!(cqe.status, Status::CONNECT_CONTROLLER_BUSY, "which may be tried again");
}

// ------------------------------------------------------------------------------------------------ properties, identify

#[test]
fn properties_follow_enable_reset_and_shutdown() {
    let mut server = Server::new();
    let mut raw = Raw::open(&mut server, &TargetConfig::default());
    assert!(
        raw.connect(&mut server, &connect(QueueId::ADMIN, 31), &connect_data(ControllerId::ANY)).status.is_success()
    );
    let mut get = |raw: &mut Raw, offset| raw.one(&mut server, &property_get(offset), &[]).response().result;
    let cap = get(&mut raw, property::CAP);
    assert_eq!((property::max_sq_size(cap), cap >> 37 & 1, property::min_page_size_bytes(cap)), (1023, 1, 4096));
    assert_eq!(get(&mut raw, property::VS), 0x0002_0100);
    assert_eq!(get(&mut raw, property::CSTS), 0);
    let mut set = |raw: &mut Raw, value| {
        assert!(raw.status(&mut server, &property_set(value)).is_success());
        (
            raw.one(&mut server, &property_get(property::CC), &[]).response().result as u32,
            raw.one(&mut server, &property_get(property::CSTS), &[]).response().result as u32,
        )
    };
    let enabled = property::CC_ENABLE | property::CC_ENTRY_SIZES;
    assert_eq!(set(&mut raw, enabled), (enabled, 1));
    let down = enabled | property::CC_SHUTDOWN_NORMAL;
    assert_eq!(set(&mut raw, down), (down, 1 | property::CSTS_SHUTDOWN_COMPLETE));
    assert_eq!(set(&mut raw, 0), (0, 0));
    assert_eq!(raw.status(&mut server, &property_get(0x1234)).code(), Status::INVALID_FIELD.code());
    let mut wide = property_get(property::CSTS);
    wide.0[40] = 1;
    assert_eq!(raw.status(&mut server, &wide).code(), Status::INVALID_FIELD.code());
}

#[test]
fn identify_answers_what_a_kernel_asks() {
    let (mut server, mut raw, cntlid) = queue();
    let controller = raw.data(&mut server, &identify_command(cns::CONTROLLER, 0));
    let fields = identify::parse_controller(controller.first_chunk().expect("4096 bytes"));
    assert_eq!((fields.cntlid, fields.in_capsule_bytes, fields.max_outstanding), (cntlid, 65_536, 1024));
    assert_eq!(&controller[768..768 + SUBNQN.len()], SUBNQN.as_bytes());
    let namespace = raw.data(&mut server, &identify_command(cns::NAMESPACE, 1));
    let fields = identify::parse_namespace(namespace.first_chunk().expect("4096 bytes")).expect("a format");
    assert_eq!((fields.blocks, fields.block_shift), (256, 9));
    assert_eq!(raw.data(&mut server, &identify_command(cns::NAMESPACE, 2)), [0; 4096]);
    assert_eq!(raw.data(&mut server, &identify_command(cns::ACTIVE_NAMESPACES, 0))[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    let descriptors = raw.data(&mut server, &identify_command(cns::NAMESPACE_DESCRIPTORS, 1));
    assert_eq!(descriptors[..5], [1, 8, 0, 0, 0x33]);
    assert_eq!(descriptors[12..17], [2, 16, 0, 0, 0x11]);
    assert_eq!(descriptors[32..37], [3, 16, 0, 0, 0x22]);
    assert_eq!(descriptors[52..58], [4, 1, 0, 0, 0, 0]);
    assert_eq!(raw.data(&mut server, &identify_command(cns::CONTROLLER_OF_COMMAND_SET, 0)), [0; 4096]);
    assert_eq!(raw.data(&mut server, &identify_command(cns::NAMESPACE_INDEPENDENT, 1))[14], 1);
    let refused = [
        (identify_command(cns::NAMESPACE, 0), Status::INVALID_NAMESPACE),
        (identify_command(cns::NAMESPACE_DESCRIPTORS, 2), Status::INVALID_NAMESPACE),
        (identify_command(cns::ACTIVE_NAMESPACES, 0xffff_fffe), Status::INVALID_NAMESPACE),
        (identify_command(0x7f, 1), Status::INVALID_FIELD),
    ];
    for (sqe, status) in refused {
        assert_eq!(raw.status(&mut server, &sqe).code(), status.code());
    }
    let mut short = identify_command(cns::CONTROLLER, 0);
    short.set_sgl(Sgl::Transport { len: 512 });
    assert_eq!(raw.status(&mut server, &short).code(), Status::SGL_LENGTH_INVALID.code());
}

// ------------------------------------------------------------------------------------------------- features, log pages

#[test]
fn features_are_set_and_read_back() {
    let (mut server, mut raw, _) = queue();
    let mut ask = |sqe: &Sqe| {
        let cqe = raw.one(&mut server, sqe, &[]).response();
        (cqe.status.code(), cqe.result)
    };
    assert_eq!(ask(&set_feature(feature::QUEUE_COUNT, 0x01f4_01f4)), (0, 0x007f_007f));
    assert_eq!(ask(&get_feature(feature::QUEUE_COUNT, 0)), (0, 0x007f_007f));
    assert_eq!(ask(&set_feature(feature::QUEUE_COUNT, 0xffff)).0, Status::INVALID_FIELD.code());
    assert_eq!(ask(&set_feature(feature::KEEP_ALIVE_TIMER, 1234)), (0, 0));
    assert_eq!(ask(&get_feature(feature::KEEP_ALIVE_TIMER, 0)), (0, 1300));
    assert_eq!(ask(&get_feature(feature::KEEP_ALIVE_TIMER, 3)), (0, 4));
    assert_eq!(ask(&set_feature(feature::ASYNC_EVENT_CONFIG, 0x100)), (0, 0));
    assert_eq!(ask(&get_feature(feature::ASYNC_EVENT_CONFIG, 0)), (0, 0x100));
    assert_eq!(ask(&set_feature(feature::VOLATILE_WRITE_CACHE, 0)).0, Status::FEATURE_NOT_CHANGEABLE.code());
    assert_eq!(ask(&set_feature(feature::HOST_IDENTIFIER, 1)).0, Status::SEQUENCE_ERROR.code());
    assert_eq!(ask(&set_feature(0x7e, 1)).0, Status::INVALID_FIELD.code());
    let mut save = set_feature(feature::KEEP_ALIVE_TIMER, 1);
    save.set_cdw(10, 1 << 31 | u32::from(feature::KEEP_ALIVE_TIMER));
    assert_eq!(ask(&save).0, Status::FEATURE_NOT_SAVEABLE.code());
    let mut host_id = get_feature(feature::HOST_IDENTIFIER, 0);
    host_id.set_cdw(11, 1);
    host_id.set_sgl(Sgl::Transport { len: 16 });
    assert_eq!(raw.data(&mut server, &host_id), HOST_ID);
}

#[test]
fn log_pages_have_their_sizes_and_offsets() {
    let (mut server, mut raw, _) = queue();
    assert_eq!(raw.data(&mut server, &log_command(log_id::SMART, 512, 0))[3], 100);
    assert_eq!(raw.data(&mut server, &log_command(log_id::ERROR, 64, 0)), [0; 64]);
    assert_eq!(raw.data(&mut server, &log_command(log_id::FIRMWARE, 512, 0))[..9], [1, 0, 0, 0, 0, 0, 0, 0, b'1']);
    let commands = raw.data(&mut server, &log_command(log_id::COMMANDS, 4096, 0));
    assert_eq!((commands[4 * 6], commands[1024 + 4], commands[1024 + 4 * 3]), (1, 3, 0));
    let ana = raw.data(&mut server, &log_command(log_id::ANA, 56, 0));
    assert_eq!((ana[8], ana[16], ana[20], ana[32], ana[48]), (1, 1, 1, 1, 1));
    assert_eq!(raw.data(&mut server, &log_command(log_id::ANA, 8, 48)), [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(raw.data(&mut server, &log_command(log_id::SUPPORTED, 1024, 0))[4 * 2], 1);
    let refused = [
        (log_command(log_id::DISCOVERY, 1024, 0), Status::INVALID_LOG_PAGE),
        (log_command(0xc0, 512, 0), Status::INVALID_LOG_PAGE),
        (log_command(log_id::SMART, 512, 516), Status::INVALID_FIELD),
        (log_command(log_id::SMART, 512, 2), Status::INVALID_FIELD),
        (log_command(log_id::SMART, 2 << 20, 0), Status::INVALID_FIELD),
    ];
    for (sqe, status) in refused {
        assert_eq!(raw.status(&mut server, &sqe).code(), status.code());
    }
}

// -------------------------------------------------------------------------------------------------------------- events

fn event_request(cid: CommandId) -> Vec<u8> {
    capsule(&Sqe::new(admin::ASYNC_EVENT, cid, 0), &[])
}

fn add_namespace(server: &Server, nsid: u32) {
    let mut subsystem = server.subsystem.0.borrow_mut();
    let mut namespace = subsystem.namespaces()[0].clone();
    namespace.nsid = nsid;
    subsystem.put_namespace(namespace);
}

#[test]
fn change_of_namespaces_is_told_once_until_the_log_is_read() {
    let (mut server, mut raw, _) = queue();
    assert!(raw.status(&mut server, &set_feature(feature::ASYNC_EVENT_CONFIG, 0x100)).is_success());
    for cid in [20, 21] {
        assert!(raw.send(&mut server, &event_request(CommandId(cid))).expect("stands").is_empty());
    }
    add_namespace(&server, 5);
    let due = Target::<Server>::poll_timeout(&raw.target).expect("events are looked for");
    raw.target.handle_timeout(due, &mut server).expect("stands");
    let told = raw.answers();
    assert_eq!((told.len(), told[0].response().cid, told[0].response().result), (1, CommandId(20), 0x0004_0002));
    add_namespace(&server, 6);
    raw.target.handle_timeout(due + Duration::from_secs(1), &mut server).expect("stands");
    assert!(raw.answers().is_empty(), "the log was not read");
    let answers =
        raw.send(&mut server, &capsule(&log_command(log_id::CHANGED_NAMESPACES, 4096, 0), &[])).expect("stands");
    assert_eq!(answers[0].data[..8], [5, 0, 0, 0, 6, 0, 0, 0]);
    assert_eq!(answers.last().expect("the second event").response().cid, CommandId(21));
}

#[test]
fn event_requests_are_limited_and_can_be_aborted() {
    let (mut server, mut raw, _) = queue();
    for cid in 20..24 {
        assert!(raw.send(&mut server, &event_request(CommandId(cid))).expect("stands").is_empty());
    }
    let refused = raw.send(&mut server, &event_request(CommandId(24))).expect("stands");
    assert_eq!(refused[0].status(), Status::AER_LIMIT_EXCEEDED.code());
    let mut abort = Sqe::new(admin::ABORT, CommandId(30), 0);
    abort.set_cdw(10, 22 << 16);
    let answers = raw.send(&mut server, &capsule(&abort, &[])).expect("stands");
    assert_eq!((answers[0].response().cid, answers[0].status()), (CommandId(22), Status::ABORT_REQUESTED.code()));
    assert_eq!((answers[1].response().cid, answers[1].response().result), (CommandId(30), 0));
    assert_eq!(raw.one(&mut server, &abort, &[]).response().result, 1, "there is no such command any more");
    assert!(raw.send(&mut server, &event_request(CommandId(22))).expect("stands").is_empty());
}

#[test]
fn identifier_of_an_event_request_may_be_used_again_and_the_request_is_forgotten() {
    let (mut server, mut raw, _) = queue();
    assert!(raw.status(&mut server, &set_feature(feature::ASYNC_EVENT_CONFIG, 0x100)).is_success());
    assert!(raw.send(&mut server, &event_request(CommandId(20))).expect("stands").is_empty());
    let mut get = property_get(property::CC);
    get.set_cid(CommandId(20));
    let answer = raw.one(&mut server, &get, &[]).response();
    assert!(answer.status.is_success() && answer.result as u32 & property::CC_ENABLE != 0, "{answer:?}");
    add_namespace(&server, 5);
    raw.target.handle_timeout(Instant(10_000_000_000), &mut server).expect("stands");
    assert!(raw.answers().is_empty(), "nothing is told to a command that was answered");
    assert!(
        raw.send(&mut server, &event_request(CommandId(20))).expect("stands").len() == 1,
        "the next is told at once"
    );
}

#[test]
fn admin_queue_and_other_io_queues_outlive_an_io_queue() {
    let (mut server, mut admin, cntlid) = queue();
    let mut first = Raw::io(&mut server, &TargetConfig::default(), cntlid, QueueId(1));
    let mut second = Raw::io(&mut server, &TargetConfig::default(), cntlid, QueueId(2));
    for (what, lost) in [("without a word", 0), ("by a fault", 1), ("by Disconnect", 2)] {
        match lost {
            0 => first.target.disconnected(Instant(5), &mut server),
            1 => _ = first.send_fatal(&mut server, &[0xff; 200]),
            _ => assert!(first.status(&mut server, &Sqe::fabrics(fabrics::DISCONNECT, CommandId(3))).is_success()),
        }
        let due = Instant(2_000_000_000);
        second.target.handle_timeout(due, &mut server).expect("the other queue stands");
        admin.target.handle_timeout(due, &mut server).expect("the admin queue stands");
        assert!(
            second.status(&mut server, &Sqe::new(0, CommandId(9), 1)).is_success(),
            "{what}: flush on the other queue"
        );
        assert!(admin.status(&mut server, &property_get(property::CC)).is_success(), "{what}");
        first = Raw::io(&mut server, &TargetConfig::default(), cntlid, QueueId(1));
    }
}

#[test]
fn host_without_a_name_comes_in_where_every_host_does() {
    for (allowed, is_in) in [(None, true), (Some(vec![HOSTNQN.to_owned()]), false)] {
        let config = SubsystemConfig { allowed_hosts: allowed, ..SubsystemConfig::new(SUBNQN) };
        let mut server = Server::with_config(config);
        let mut raw = Raw::open(&mut server, &TargetConfig::default());
        let data = ConnectData { hostnqn: String::new(), ..connect_data(ControllerId::ANY) };
        let status = raw.connect(&mut server, &connect(QueueId::ADMIN, 31), &data).status;
        assert_eq!(status.is_success(), is_in, "{status:?}");
    }
}

fn csts(server: &mut Server, admin: &mut Raw) -> u32 {
    admin.one(server, &property_get(property::CSTS), &[]).response().result as u32
}

#[test]
fn a_reset_or_shut_down_controller_says_so_when_its_io_queues_have_ended() {
    for (value, before, after) in [
        (0, property::CSTS_READY, 0),
        (
            property::CC_SHUTDOWN_NORMAL,
            property::CSTS_READY | property::CSTS_SHUTDOWN_PROCESSING,
            property::CSTS_SHUTDOWN_COMPLETE,
        ),
    ] {
        let (mut server, mut admin, cntlid) = queue();
        let mut io = Raw::io(&mut server, &TargetConfig::default(), cntlid, QueueId(1));
        assert!(admin.status(&mut server, &property_set(value)).is_success());
        assert_eq!(csts(&mut server, &mut admin), before, "the I/O queue on its thread has not heard of it");
        assert!(server.port.notified > 0);
        io.target.handle_notification(io.now, &mut server);
        assert!(Target::<Server>::is_closing(&io.target));
        assert_eq!(csts(&mut server, &mut admin), after);
    }
}

#[test]
fn a_controller_gets_ready_when_queues_of_its_hosts_ended_controllers_are_over() {
    let (mut server, mut first, cntlid) = queue();
    let mut io = Raw::io(&mut server, &TargetConfig::default(), cntlid, QueueId(1));
    Target::<Server>::disconnected(&mut first.target, first.now, &mut server);
    let (mut second, cntlid) = Raw::admin(&mut server, &TargetConfig::default());
    assert_eq!(csts(&mut server, &mut second), 0);
    let mut early = Raw::open(&mut server, &TargetConfig::default());
    let refused = early.connect(&mut server, &connect(QueueId(1), 7), &connect_data(cntlid));
    assert_eq!(refused.status.code(), Status::SEQUENCE_ERROR.code());
    io.target.handle_notification(io.now, &mut server);
    assert_eq!(csts(&mut server, &mut second), property::CSTS_READY);
    Raw::io(&mut server, &TargetConfig::default(), cntlid, QueueId(1));
}

#[test]
fn reset_forgets_event_requests() {
    let (mut server, mut raw, _) = queue();
    assert!(raw.send(&mut server, &event_request(CommandId(20))).expect("stands").is_empty());
    assert!(raw.status(&mut server, &property_set(0)).is_success());
    assert!(raw.status(&mut server, &property_set(property::CC_ENABLE)).is_success());
    assert!(raw.send(&mut server, &event_request(CommandId(20))).expect("stands").is_empty());
}

// -------------------------------------------------------------------------------------------------------------- timers

#[test]
fn silent_host_loses_its_controller() {
    let mut server = Server::new();
    let mut raw = Raw::open(&mut server, &TargetConfig::default());
    let command = Connect { keep_alive_ms: 500, ..connect(QueueId::ADMIN, 31) };
    assert!(raw.connect(&mut server, &command, &connect_data(ControllerId::ANY)).status.is_success());
    assert!(raw.status(&mut server, &property_set(property::CC_ENABLE)).is_success());
    raw.now = Instant(400_000_000);
    assert!(raw.status(&mut server, &Sqe::new(admin::KEEP_ALIVE, CommandId(1), 0)).is_success());
    assert_eq!(Target::<Server>::poll_timeout(&raw.target), Some(Instant(900_000_000)));
    let violation = raw.target.handle_timeout(Instant(900_000_000), &mut server).expect_err("given up");
    assert_eq!(violation.kind, ViolationKind::TimedOut);
    assert_eq!(server.subsystem.0.borrow().controller_count(), 0);
}

#[test]
fn idle_session_keeps_itself_alive_and_shuts_down_in_order() {
    let mut server = Server::new();
    let config = connect_with(|session| (session.keep_alive, session.io_queues) = (Duration::from_secs(1), 3));
    let target = TargetConfig::default();
    let mut session = crate::nvme_support::admin(&mut server, &config, &target, Cut::Never);
    let controller = session.host.controller().expect("ready").clone();
    assert_eq!(controller.io_queues, 3);
    let queues: Vec<_> = (1..=3).map(|qid| io(&mut server, &config, &controller, qid, &target, Cut::Never)).collect();
    assert!(queues.iter().all(|queue| queue.host.credits() == 8));
    session.run_until(&mut server, |pair| pair.now > Instant(60_000_000_000)).expect("a minute of silence");
    assert_eq!(server.subsystem.0.borrow().controller_count(), 1);
    session.host.close(session.now);
    session.run_until(&mut server, |pair| pair.events.is_closed).expect("shut down");
    session.target.disconnected(session.now, &mut server);
    assert_eq!(server.subsystem.0.borrow().controller_count(), 0);
}

#[test]
fn initiator_gives_up_a_silent_controller() {
    let mut host = AdminQueue::new(Instant(0), connect_config());
    let mut events = crate::nvme_support::Recorder::default();
    let due = host.poll_timeout().expect("a timer");
    let violation = host.handle_timeout(due, &mut events).expect_err("given up");
    assert_eq!(violation.kind, ViolationKind::TimedOut);
}

#[test]
fn close_during_set_up_ends_in_order() {
    for steps in 0..12 {
        let mut server = Server::new();
        let mut pair = Pair::new(AdminQueue::new(Instant(0), connect_config()), &TargetConfig::default(), Cut::Never);
        for _ in 0..steps {
            let bytes = pair.host.transmit().take_bytes();
            pair.target.receive(pair.now, &bytes, &mut server).expect("stands");
            let bytes = Target::<Server>::transmit(&mut pair.target).take_bytes();
            pair.host.receive(pair.now, &bytes, &mut pair.events).expect("stands");
        }
        pair.host.close(pair.now);
        pair.run_until(&mut server, |pair| pair.events.is_closed).expect("closed");
    }
}

#[test]
fn refusals_reach_the_caller_of_the_initiator() {
    let cases = [
        (connect_with(|session| session.subnqn = "nqn.other".into()), Refusal::NotFound, "parameters"),
        (connect_with(|session| session.hostnqn = "nqn.stranger".into()), Refusal::Denied, "not allowed"),
        (connect_with(|session| session.nsid = Some(3)), Refusal::NotFound, "namespace"),
    ];
    for (config, refusal, word) in cases {
        let mut server = Server::new();
        let mut pair = Pair::new(AdminQueue::new(Instant(0), config), &TargetConfig::default(), Cut::Never);
        let violation = pair.run(&mut server).expect_err("refused");
        assert_eq!(violation.kind, ViolationKind::Refused(refusal));
        assert!(violation.text().contains(word), "{violation}");
    }
}

// ----------------------------------------------------------------------------------------------------------- discovery

#[test]
fn discovery_fetches_the_whole_log() {
    let mut server = Server::new();
    let mut host = Discovery::new(Instant(0), connect_config());
    let mut target = TargetQueue::new(Instant(0), TargetConfig::default());
    while !host.is_closed() {
        let bytes = host.transmit().take_bytes();
        target.receive(Instant(0), &bytes, &mut server).expect("stands");
        let bytes = Target::<Server>::transmit(&mut target).take_bytes();
        host.receive(Instant(0), &bytes).expect("stands");
    }
    assert_eq!(host.log().as_ref(), Some(&server.log));
}

#[test]
fn discovery_controller_is_no_io_controller() {
    let mut server = Server::new();
    let mut raw = Raw::open(&mut server, &TargetConfig::default());
    let data = ConnectData { subnqn: DISCOVERY_NQN.into(), ..connect_data(ControllerId::ANY) };
    assert!(raw.connect(&mut server, &connect(QueueId::ADMIN, 31), &data).status.is_success());
    assert!(raw.status(&mut server, &property_set(property::CC_ENABLE)).is_success());
    let controller = raw.data(&mut server, &identify_command(cns::CONTROLLER, 0));
    assert_eq!((controller[111], &controller[1792..1796]), (2, &[0; 4][..]));
    assert_eq!(raw.status(&mut server, &identify_command(cns::NAMESPACE, 1)).code(), Status::INVALID_FIELD.code());
    assert_eq!(raw.status(&mut server, &set_feature(feature::QUEUE_COUNT, 0)).code(), Status::INVALID_FIELD.code());
    let due = Target::<Server>::poll_timeout(&raw.target).expect("an activity timer");
    assert_eq!(due, Instant(0) + Duration::from_secs(120));

    assert!(raw.status(&mut server, &set_feature(feature::ASYNC_EVENT_CONFIG, 1 << 31)).is_success());
    assert!(raw.send(&mut server, &event_request(CommandId(9))).expect("stands").is_empty());
    server.discovery.0.borrow_mut().announce();
    raw.target.handle_timeout(Instant(1_000_000_000), &mut server).expect("stands");
    assert_eq!(raw.answers()[0].response().result, 0x0070_f002);
}
