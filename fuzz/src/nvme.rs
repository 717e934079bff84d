//! Fuzzes a connected NVMe/TCP I/O queue and a connected admin queue.

use iotax_proto::{
    Initiator, Instant, Target,
    nvme::auth::{DhGroup, Entropy, Host, HostConfig, Policy, Secret},
    nvme_tcp::{AdminQueue, IoQueue, TargetConfig, TargetQueue},
};

use crate::{
    nvme_support::{BLOCK, Cut, Pair, Recorder, Server, admin, connect_config, connect_with, io},
    peers::{assert_each_once, feed_initiator, feed_target, ios, pieces, reserves, submit},
};

fn config() -> TargetConfig {
    TargetConfig { in_capsule_bytes: BLOCK as u32, max_h2c_data_bytes: 4096, ..TargetConfig::default() }
}

fn connected(server: &mut Server) -> (Pair<AdminQueue>, Pair<IoQueue>) {
    let session = admin(server, &connect_config(), &config(), Cut::Never);
    let controller = session.host.controller().expect("ready").clone();
    let pair = io(server, &connect_config(), &controller, 1, &config(), Cut::Never);
    (session, pair)
}

const SECRET: &str = "DHHC-1:01:MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWYOtVl3:";

fn host(group: Option<DhGroup>) -> HostConfig {
    let secret = Secret::parse(SECRET).expect("a secret");
    HostConfig { secret: secret.clone(), controller: Some(secret), hash: None, group, entropy: Entropy([1; 32]) }
}

/// A server that requires authentication.
fn guarded() -> Server {
    let HostConfig { secret, controller, hash, group, .. } = host(Some(DhGroup::Null));
    let mut server = Server::new();
    server.auth = Some(Policy { secret, controller, hash, group });
    server
}

/// A new connection to a server that requires authentication.
fn guarded_target(data: &[u8]) {
    let mut server = guarded();
    let mut target = TargetQueue::new(Instant(0), config());
    feed(&mut target, &mut server, data);
    assert_eq!(server.subsystem.0.borrow().controller_count(), 0, "no controller is left behind");
}

/// The bytes that a host sends until it is authenticated.
pub fn authentication_stream() -> Vec<u8> {
    let config = connect_with(|session| session.auth = Some(host(None)));
    admin(&mut guarded(), &config, &TargetConfig::default(), Cut::Never).to_target
}

/// Gives a host the authentication messages of a controller.
pub fn authenticate(data: &[u8]) {
    let mut host = Host::new(host(None), "nqn.h", "nqn.s", iotax_proto::nvme::QueueId(0));
    for piece in pieces(data) {
        if host.received(piece).is_err() {
            break;
        }
    }
}

/// The first byte selects the target: an admin queue if odd, an unauthenticated connection if 2, else an I/O queue.
pub fn target(data: &[u8]) {
    if let [2, data @ ..] = data {
        return guarded_target(data);
    }
    let mut server = Server::new();
    let (mut session, mut pair) = connected(&mut server);
    let (which, data) = data.split_first().unwrap_or((&0, &[]));
    let target = if which % 2 == 1 { &mut session.target } else { &mut pair.target };
    feed(target, &mut server, data);
    session.target.disconnected(Instant(2), &mut server);
    pair.target.disconnected(Instant(2), &mut server);
    assert_eq!(server.outstanding(), 0, "everything outstanding was aborted");
}

fn feed(target: &mut TargetQueue, server: &mut Server, data: &[u8]) {
    server.in_place = true;
    feed_target(target, server, data, |server| std::mem::take(&mut server.queued));
}

pub fn initiator(data: &[u8]) {
    let mut server = Server::new();
    let (_session, mut pair) = connected(&mut server);
    submit(&mut pair.host, pair.now, ios());
    let mut events = Recorder::default();
    feed_initiator(&mut pair.host, pair.now, &mut events, data);
    assert_each_once(events.completions.iter().map(|(tag, _)| *tag), ios().len());
}

/// The bytes that host and controller send during these I/Os.
pub fn streams() -> (Vec<u8>, Vec<u8>) {
    let mut server = Server::new();
    let (_session, mut pair) = connected(&mut server);
    pair.to_target.clear();
    pair.to_host.clear();
    for ios in [&ios()[..], &reserves()] {
        submit(&mut pair.host, pair.now, ios.iter().cloned());
        pair.run(&mut server).expect("no violation");
    }
    (pair.to_target, pair.to_host)
}

/// The bytes that a host sends to an admin queue after Connect.
pub fn admin_stream() -> Vec<u8> {
    let mut server = Server::new();
    let mut session = admin(&mut server, &connect_config(), &config(), Cut::Never);
    session.host.close(session.now);
    session.run_until(&mut server, |pair| pair.events.is_closed).expect("shut down");
    // Without ICReq, and Connect's capsule with its data.
    session.to_target.split_off(128 + 72 + 1024)
}
