//! In the steady state, neither side allocates memory on the path of an I/O.
#![allow(clippy::unwrap_used)]

use std::rc::Rc;

use crate::counted::{Local, NOW, Pair, Volume};
use iotax_proto::{
    UnitId,
    iscsi::{
        DiscoveredTarget, Wishes,
        initiator::{self, Session},
        target_side::{AuthPolicy, Config, Connection, IscsiBackend, LoginGrant, LoginRefusal, Sessions},
    },
    scsi::{Device, Identity, LogicalUnit, ScsiBackend},
};

struct Export {
    device: Rc<Local<Device>>,
    sessions: Rc<Local<Sessions>>,
}

impl ScsiBackend for Volume<Export> {
    fn notify_others(&mut self) {}
}

impl IscsiBackend for Volume<Export> {
    fn targets(&mut self, _initiator: &str) -> Vec<DiscoveredTarget> {
        Vec::new()
    }

    fn discovery_auth(&mut self, _initiator: &str) -> AuthPolicy {
        AuthPolicy::None
    }

    fn login(&mut self, _initiator: &str, _target: &str) -> Result<LoginGrant, LoginRefusal> {
        Ok(LoginGrant {
            device: self.export.device.clone(),
            sessions: self.export.sessions.clone(),
            portal_group_tag: 1,
            auth: AuthPolicy::None,
            address: [127, 0, 0, 1].into(),
        })
    }

    fn random(&mut self, _bytes: &mut [u8]) {}
}

#[test]
fn reads_and_writes_allocate_nothing() {
    let device = Local::new(Device::new(Identity::default(), [LogicalUnit::new(0, UnitId(1), "1")]));
    let volume = Volume::new(Export { device, sessions: Local::new(Sessions::default()) });
    // The bursts are small, so that the session has immediate, unsolicited and solicited data.
    let wishes =
        Wishes { first_burst_len: 8192, max_recv_segment_len: 4096, max_burst_len: 16384, ..Wishes::default() };
    let target = Connection::new(NOW, Config { wishes: wishes.clone(), ..Config::default() });
    let session = Session::new(NOW, initiator::Config { wishes, ..initiator::Config::new("iqn.a", "iqn.b", 0) });
    Pair::new(session, target, volume).ready().assert_nothing_is_allocated();
}
