//! Logins: authentication, refusals, stages, reinstatement, discovery.
#![allow(clippy::unwrap_used)]

use iotax_proto::{
    Instant, Refusal, Target, Transmit, Violation, ViolationKind,
    iscsi::{
        Credentials, DigestWish, DiscoveredTarget, Wishes,
        initiator::{self, Chap, Discovery, Mutual},
        pdu::{
            LoginRequest, LoginResponse, SessionHandle, TaskTag,
            control::{LoginStatus, stage},
        },
        target_side::{AuthPolicy, Config, Connection, LoginRefusal},
    },
};

use crate::iscsi_support::{Cut, INITIATOR, MemoryBackend, Pair, Peer, TARGET, config};

fn credentials(name: &str, secret: &str) -> Credentials {
    Credentials { name: name.into(), secret: secret.as_bytes().to_vec().into() }
}

fn mutual(secret: &str) -> Mutual {
    Mutual { credentials: credentials("target", secret), identifier: 200, challenge: vec![0xa5; 16] }
}

/// The outcome of a login with these credentials.
fn chap_login(policy: AuthPolicy, chap: Option<Chap>) -> Result<(), Violation> {
    let backend = MemoryBackend { auth: policy, ..MemoryBackend::new(8192) };
    let config = initiator::Config { chap, ..config(Wishes::default()) };
    let mut pair = Pair::new(config, Config::default(), backend, Cut::Every(3));
    let outcome = pair.run();
    if outcome.is_ok() {
        pair.write(0, 0, &[1; 512]);
    }
    outcome
}

#[test]
fn chap_lets_in_who_knows_the_secret_and_nobody_else() {
    let policy = || AuthPolicy::Chap { initiator: credentials("user", "secret"), target: None };
    let chap = |name, secret| Some(Chap { initiator: credentials(name, secret), target: None });
    assert_eq!(chap_login(policy(), chap("user", "secret")), Ok(()));
    for wrong in [chap("user", "wrong"), chap("other", "secret"), None] {
        let refused = chap_login(policy(), wrong).unwrap_err();
        assert_eq!(
            (refused.kind, refused.text()),
            (ViolationKind::Refused(Refusal::Unauthenticated), "authentication failed")
        );
    }
    assert_eq!(chap_login(AuthPolicy::None, chap("user", "secret")), Ok(()), "None was offered too");
}

#[test]
fn mutual_chap_makes_the_target_prove_itself() {
    let policy = |target| AuthPolicy::Chap { initiator: credentials("user", "secret"), target };
    let chap = |target| Some(Chap { initiator: credentials("user", "secret"), target: Some(target) });
    let target = || Some(credentials("target", "other secret"));
    assert_eq!(chap_login(policy(target()), chap(mutual("other secret"))), Ok(()));
    let refused = chap_login(policy(target()), chap(mutual("wrong"))).unwrap_err();
    assert_eq!(refused.text(), "RFC 7143 §12.1.3: the target failed to authenticate itself");
    assert_eq!(
        chap_login(policy(None), chap(mutual("other secret"))).unwrap_err().kind,
        ViolationKind::Refused(Refusal::Unauthenticated)
    );
    assert_eq!(
        chap_login(AuthPolicy::None, chap(mutual("x"))).unwrap_err().kind,
        ViolationKind::Refused(Refusal::Unauthenticated)
    );
}

#[test]
fn a_challenge_sent_back_is_refused() {
    let policy = AuthPolicy::Chap { initiator: credentials("u", "s"), target: Some(credentials("t", "r")) };
    let mut peer = Peer::new(Config::default(), MemoryBackend { auth: policy, ..MemoryBackend::new(512) });
    let request = LoginRequest { transit: false, ..peer.login_request(stage::SECURITY, stage::SECURITY) };
    peer.say(request, &[("InitiatorName", INITIATOR), ("TargetName", TARGET), ("AuthMethod", "CHAP")]);
    let (_, text) = peer.say(request, &[("CHAP_A", "5")]);
    let value = |key: &str| text.split(' ').find_map(|pair| pair.strip_prefix(key)).unwrap().to_string();
    let (identifier, challenge) = (value("CHAP_I="), value("CHAP_C="));
    let keys = [("CHAP_N", "u"), ("CHAP_R", "0x00"), ("CHAP_I", &identifier), ("CHAP_C", &challenge)];
    let (response, text) = peer.say(request, &keys);
    assert_eq!((response.status, text.as_str()), (LoginStatus::AUTHENTICATION_FAILURE, ""));
}

#[test]
fn digests_that_only_one_side_wants_refuse_the_login() {
    let theirs = Wishes { header_digest: DigestWish::Never, ..Wishes::default() };
    let ours = Wishes { header_digest: DigestWish::Require, ..Wishes::default() };
    let target = Config { wishes: theirs, ..Config::default() };
    let mut pair = Pair::new(config(ours), target, MemoryBackend::new(512), Cut::Whole);
    assert_eq!(pair.run().unwrap_err().kind, ViolationKind::Refused(Refusal::Other));
}

/// The status of a login whose first request is changed by `request`.
fn status_of(request: impl FnOnce(&mut LoginRequest), keys: &[(&str, &str)]) -> LoginStatus {
    let mut peer = Peer::new(Config::default(), MemoryBackend::new(512));
    let mut first = peer.login_request(stage::OPERATIONAL, stage::FULL_FEATURE);
    request(&mut first);
    let (response, _) = peer.say(first, keys);
    let refused = response.status != LoginStatus::SUCCESS;
    assert_eq!(Target::<MemoryBackend>::is_closing(&peer.target), refused);
    response.status
}

#[test]
fn logins_that_cannot_be_are_refused_with_the_standards_status() {
    let names = [("InitiatorName", INITIATOR), ("TargetName", TARGET)];
    let with = |more: &[(&'static str, &'static str)]| [&names[..], more].concat();
    assert_eq!(status_of(|_| {}, &names), LoginStatus::SUCCESS);
    assert_eq!(status_of(|_| {}, &names[1..]), LoginStatus::MISSING_PARAMETER);
    assert_eq!(status_of(|_| {}, &names[..1]), LoginStatus::MISSING_PARAMETER);
    assert_eq!(status_of(|_| {}, &[names[0], ("TargetName", "iqn.x")]), LoginStatus::NOT_FOUND);
    assert_eq!(status_of(|_| {}, &with(&[("SessionType", "Odd")])), LoginStatus::SESSION_TYPE_NOT_SUPPORTED);
    assert_eq!(
        status_of(|_| {}, &with(&[("MaxBurstLength", "512"), ("MaxBurstLength", "512")])),
        LoginStatus::INITIATOR_ERROR
    );
    assert_eq!(status_of(|first| first.version_min = 1, &names), LoginStatus::UNSUPPORTED_VERSION);
    assert_eq!(status_of(|first| first.tsih = SessionHandle(9), &names), LoginStatus::SESSION_DOES_NOT_EXIST);
    assert_eq!(status_of(|first| first.nsg = 2, &names), LoginStatus::INITIATOR_ERROR);
    assert_eq!(status_of(|first| first.csg = 2, &names), LoginStatus::INITIATOR_ERROR);
    assert_eq!(status_of(|first| first.continued = true, &names), LoginStatus::INITIATOR_ERROR);
}

#[test]
fn the_server_decides_who_may_log_in() {
    for (refusal, status) in [
        (LoginRefusal::NotAuthorized, LoginStatus::AUTHORIZATION_FAILURE),
        (LoginRefusal::NoSuchTarget, LoginStatus::NOT_FOUND),
        (LoginRefusal::Unavailable, LoginStatus::SERVICE_UNAVAILABLE),
    ] {
        let backend = MemoryBackend { refusal: Some(refusal), ..MemoryBackend::new(512) };
        let (response, _) = Peer::new(Config::default(), backend).login(&[]);
        assert_eq!(response.status, status);
    }
}

#[test]
fn text_may_be_continued_over_requests() {
    let mut peer = Peer::new(Config::default(), MemoryBackend::new(512));
    let first = LoginRequest { continued: true, transit: false, ..peer.login_request(stage::OPERATIONAL, 1) };
    let (response, text) = peer.say(first, &[("InitiatorName", INITIATOR)]);
    assert_eq!((response.status, response.transit, text.as_str()), (LoginStatus::SUCCESS, false, ""));
    let last = peer.login_request(stage::OPERATIONAL, stage::FULL_FEATURE);
    let (response, text) = peer.say(last, &[("TargetName", TARGET), ("MaxConnections", "4"), ("X-odd", "1")]);
    assert!(response.transit);
    assert_eq!(text, "TargetPortalGroupTag=1 MaxConnections=1 X-odd=NotUnderstood MaxRecvDataSegmentLength=262144");
}

#[test]
fn a_login_of_too_much_text_is_refused() {
    let mut peer = Peer::new(Config::default(), MemoryBackend::new(512));
    let request = LoginRequest { continued: true, transit: false, ..peer.login_request(stage::OPERATIONAL, 1) };
    let long = "x".repeat(8000);
    for _ in 0..2 {
        assert_eq!(peer.say(request, &[("X-a", &long)]).0.status, LoginStatus::SUCCESS);
    }
    assert_eq!(peer.say(request, &[("X-a", &long)]).0.status, LoginStatus::INITIATOR_ERROR);
}

#[test]
fn a_login_without_end_is_refused() {
    let mut peer = Peer::new(Config::default(), MemoryBackend::new(512));
    let request = LoginRequest { transit: false, ..peer.login_request(stage::OPERATIONAL, 1) };
    assert_eq!(
        peer.say(request, &[("InitiatorName", INITIATOR), ("TargetName", TARGET)]).0.status,
        LoginStatus::SUCCESS
    );
    let ended = (0..1000).find(|_| peer.say(request, &[]).0.status != LoginStatus::SUCCESS);
    assert!(ended.is_some_and(|requests| requests < 100));
}

#[test]
fn anything_but_a_login_before_the_login_is_refused() {
    let mut peer = Peer::new(Config::default(), MemoryBackend::new(512));
    let read = peer.read_command(TaskTag(1), 1, 512);
    assert_eq!(peer.send(read.encode(), &[]).unwrap_err().kind, ViolationKind::Misbehaved);
}

#[test]
fn a_second_session_of_the_same_port_ends_the_first_and_begins_after_it() {
    let mut peer = Peer::logged_in(Config::default(), MemoryBackend::new(8192), &[]);
    peer.clear_attentions();
    peer.backend.queues = true;
    let read = peer.read_command(TaskTag(1), 1, 512);
    peer.send(read.encode(), &[]).unwrap();
    assert_eq!(peer.backend.open_operations(), 1);

    let other = beside(&peer.backend);
    let mut second = Peer::new(Config::default(), other);
    second.ask_login();
    assert!(second.answers().is_empty(), "the first session's command is under way");
    peer.target.handle_timeout(Instant(1), &mut peer.backend).unwrap();
    assert!(Target::<MemoryBackend>::is_closing(&peer.target));
    assert_eq!(peer.backend.open_operations(), 0);
    second.target.handle_timeout(Instant(1), &mut second.backend).unwrap();
    let [(response, _)] = &second.answers()[..] else { panic!("the login's answer") };
    assert_eq!(LoginResponse::parse(response).status, LoginStatus::SUCCESS);
    second.clear_attentions();
    assert!(!Target::<MemoryBackend>::is_closing(&second.target));

    // A login from another initiator port is a session of its own.
    let other = beside(&second.backend);
    let mut third = Peer::new(Config::default(), other);
    third.isid[5] = 10;
    assert_eq!(third.login(&[]).0.status, LoginStatus::SUCCESS);
    second.target.handle_timeout(Instant(1), &mut second.backend).unwrap();
    assert!(!Target::<MemoryBackend>::is_closing(&second.target));
}

/// The backend of another connection to the same target: it shares the device and the sessions.
fn beside(backend: &MemoryBackend) -> MemoryBackend {
    MemoryBackend { device: backend.device.clone(), sessions: backend.sessions.clone(), ..MemoryBackend::new(8192) }
}

#[test]
fn a_login_is_refused_where_the_session_before_it_does_not_end_and_so_is_the_next() {
    let first = Peer::logged_in(Config::default(), MemoryBackend::new(8192), &[]);
    for _ in 0..2 {
        let mut second = Peer::new(Config::default(), beside(&first.backend));
        second.ask_login();
        second.target.handle_timeout(Instant(1_999_999_999), &mut second.backend).unwrap();
        assert!(second.answers().is_empty());
        let refused = second.target.handle_timeout(Instant(2_000_000_000), &mut second.backend).unwrap_err();
        assert_eq!(refused.kind, ViolationKind::Refused(Refusal::Busy));
        let [(response, _)] = &second.answers()[..] else { panic!("the login's answer") };
        assert_eq!(LoginResponse::parse(response).status, LoginStatus::SERVICE_UNAVAILABLE);
    }
}

#[test]
fn a_login_waits_for_what_a_disk_still_does_for_the_session_before_it() {
    let mut first = Peer::logged_in(Config::default(), MemoryBackend::new(8192), &[]);
    first.clear_attentions();
    first.backend.queues = true;
    first.backend.lingering = Some(Vec::new());
    let read = first.read_command(TaskTag(1), 1, 512);
    first.send(read.encode(), &[]).unwrap();
    Target::<MemoryBackend>::disconnected(&mut first.target, first.now, &mut first.backend);
    let mut second = Peer::new(Config::default(), beside(&first.backend));
    second.ask_login();
    assert!(second.answers().is_empty());
    first.backend.lingering = None;
    second.target.handle_timeout(Instant(1), &mut second.backend).unwrap();
    assert_eq!(second.answers().len(), 1);
}

#[test]
fn nothing_may_come_before_the_answer_to_a_login_that_waits() {
    let first = Peer::logged_in(Config::default(), MemoryBackend::new(8192), &[]);
    let mut second = Peer::new(Config::default(), beside(&first.backend));
    second.ask_login();
    let read = second.read_command(TaskTag(1), 1, 512);
    assert_eq!(second.send(read.encode(), &[]).unwrap_err().kind, ViolationKind::Misbehaved);
}

/// Runs a discovery session whose bytes arrive in pieces of `step` bytes.
fn discover(mut backend: MemoryBackend, chap: Option<Chap>, step: usize) -> Result<Vec<DiscoveredTarget>, Violation> {
    let now = Instant(0);
    let config = initiator::Config { chap, ..initiator::Config::new(INITIATOR, "", 0) };
    let mut discovery = Discovery::new(now, &config);
    let mut target = Connection::new(now, Config::default());
    let take = |transmit: &mut Transmit| transmit.take_bytes();
    while discovery.targets().is_none() {
        let out = take(discovery.transmit());
        assert!(!out.is_empty(), "the discovery goes on");
        for piece in out.chunks(step) {
            target.receive(now, piece, &mut backend)?;
        }
        for piece in take(Target::<MemoryBackend>::transmit(&mut target)).chunks(step) {
            discovery.receive(piece)?;
        }
    }
    assert!(Target::<MemoryBackend>::is_closing(&target));
    Ok(discovery.targets().unwrap().to_vec())
}

#[test]
fn discovery_finds_few_and_many_targets() {
    for count in [0, 1, 500] {
        let targets: Vec<_> = (0..count)
            .map(|number| DiscoveredTarget {
                name: format!("iqn.2026-11.io.iotax:volume-{number}"),
                portals: vec![format!("192.0.2.1:{number},1"), format!("[2001:db8::1]:{number},2")],
            })
            .collect();
        for step in [1, 5, 1 << 20] {
            let backend = MemoryBackend { targets: targets.clone(), ..MemoryBackend::new(512) };
            assert_eq!(discover(backend, None, step), Ok(targets.clone()));
        }
    }
}

#[test]
fn discovery_may_need_authentication() {
    let backend = || MemoryBackend {
        discovery_auth: AuthPolicy::Chap { initiator: credentials("user", "secret"), target: None },
        ..MemoryBackend::new(512)
    };
    let chap = |secret| Some(Chap { initiator: credentials("user", secret), target: None });
    assert!(discover(backend(), chap("secret"), 10).is_ok());
    assert_eq!(
        discover(backend(), chap("wrong"), 10).unwrap_err().kind,
        ViolationKind::Refused(Refusal::Unauthenticated)
    );
    assert_eq!(discover(backend(), None, 10).unwrap_err().kind, ViolationKind::Refused(Refusal::Unauthenticated));
}
