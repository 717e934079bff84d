//! In the steady state, neither side allocates memory on the path of an I/O.
#![allow(clippy::unwrap_used)]

use std::rc::Rc;

use crate::counted::{Local, NOW, Pair, Volume};
use iotax_proto::{
    UnitId,
    fcp::{
        Port, PortName,
        initiator::{self, Session},
        target_side::{Config, Connection, FcpBackend, LoginGrant, LoginRefusal, Logins},
    },
    scsi::{Device, Identity, LogicalUnit, ScsiBackend},
};

struct Export {
    device: Rc<Local<Device>>,
    logins: Rc<Local<Logins>>,
}

impl ScsiBackend for Volume<Export> {
    fn notify_others(&mut self) {}
}

impl FcpBackend for Volume<Export> {
    fn login(&mut self, _initiator: PortName, target: PortName) -> Result<LoginGrant, LoginRefusal> {
        Ok(LoginGrant {
            device: self.export.device.clone(),
            logins: self.export.logins.clone(),
            node_name: target,
            address: [127, 0, 0, 1].into(),
        })
    }
}

#[test]
fn reads_and_writes_allocate_nothing() {
    let device = Local::new(Device::new(Identity::default(), [LogicalUnit::new(0, UnitId(1), "1")]));
    let volume = Volume::new(Export { device, logins: Local::new(Logins::default()) });
    // Small bursts and few credits, so that sequences wait and writes take several bursts.
    let port = Port { credit: 16, ..Port::new(PortName(1), PortName(1)) };
    let target = Connection::new(NOW, Config { port, burst_len: 16384, ..Config::default() });
    let session = Session::new(NOW, initiator::Config::new(port, PortName(2), 0));
    Pair::new(session, target, volume).ready().assert_nothing_is_allocated();
}
