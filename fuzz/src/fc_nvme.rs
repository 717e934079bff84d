//! Fuzzes FC-NVMe sessions with a connected I/O queue.

use crate::{
    fc_nvme_support::{Pair, config, target_config},
    frames::with_crcs,
    nvme_support::{Answers, Cut, Server},
    peers::{assert_each_once, feed_initiator, feed_target, ios, reserves, submit},
};

fn ready() -> Pair {
    Pair::ready(config(16, 512), target_config(16, 512, 8192), Server::new(), Cut::Never)
}

pub fn target(data: &[u8]) {
    let Pair { mut target, mut server, .. } = ready();
    if data.len() % 2 == 1 {
        server.answers = Answers::Later;
    }
    feed_target(&mut target, &mut server, &with_crcs(data), |server| std::mem::take(&mut server.queued));
    assert_eq!(server.outstanding(), 0, "everything outstanding was aborted");
    assert_eq!(server.subsystem.0.borrow().controller_count(), 0, "no controller is left behind");
}

pub fn initiator(data: &[u8]) {
    let mut pair = ready();
    submit(&mut pair.initiator, pair.now, ios());
    feed_initiator(&mut pair.initiator, pair.now, &mut pair.events, &with_crcs(data));
    assert_each_once(pair.events.completions.iter().map(|(tag, _)| *tag), ios().len());
}

/// The bytes that each side sends during these I/Os and an orderly end.
pub fn streams() -> (Vec<u8>, Vec<u8>) {
    let mut pair = ready();
    pair.to_target.clear();
    pair.to_initiator.clear();
    for ios in [&ios()[..], &reserves()] {
        submit(&mut pair.initiator, pair.now, ios.iter().cloned());
        pair.run().expect("no violation");
    }
    pair.close();
    (pair.to_target, pair.to_initiator)
}
