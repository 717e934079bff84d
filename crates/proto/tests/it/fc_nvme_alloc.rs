//! In the steady state, neither side allocates memory on the path of an I/O.
#![allow(clippy::unwrap_used)]

use std::rc::Rc;

use crate::counted::{Local, NOW, Pair, Volume};
use iotax_proto::{
    UnitId,
    fc_nvme::{
        Port, PortName,
        initiator::{self, Session},
        target_side::{Config, Connection, FcNvmeBackend, LoginGrant, LoginRefusal, Logins},
    },
    nvme::{
        Admission, Namespace, NvmeBackend, Refusal, Subsystem, SubsystemConfig, fabrics::host::SessionConfig,
        subsystem::DiscoveryLog,
    },
};

struct Export {
    subsystem: Rc<Local<Subsystem>>,
    logins: Rc<Local<Logins>>,
}

impl NvmeBackend for Volume<Export> {
    fn subsystem(&mut self, _subnqn: &str, _hostnqn: &str) -> Result<Admission, Refusal> {
        Ok(Admission { subsystem: self.export.subsystem.clone(), auth: None, address: [127, 0, 0, 1].into(), port: 1 })
    }

    fn random(&mut self, bytes: &mut [u8]) {
        bytes.fill(0);
    }

    fn notify_others(&mut self) {}

    fn discovery_log(&self, _hostnqn: &str) -> DiscoveryLog {
        DiscoveryLog::default()
    }
}

impl FcNvmeBackend for Volume<Export> {
    fn port_login(&mut self, _initiator: PortName, target: PortName) -> Result<LoginGrant, LoginRefusal> {
        Ok(LoginGrant {
            logins: self.export.logins.clone(),
            node_name: target,
            address: [127, 0, 0, 1].into(),
            device: (),
        })
    }
}

#[test]
fn reads_and_writes_allocate_nothing() {
    let mut subsystem = Subsystem::new(SubsystemConfig::new("nqn.s"));
    let (nguid, uuid, eui64) = ([1; 16], [2; 16], [3; 8]);
    subsystem.put_namespace(Namespace { nsid: 1, unit: UnitId(1), nguid, uuid, eui64 });
    let volume = Volume::new(Export { subsystem: Local::new(subsystem), logins: Local::new(Logins::default()) });
    // Small bursts and few credits, so that sequences wait and writes take several bursts.
    let port = Port { credit: 16, ..Port::new(PortName(1), PortName(1)) };
    let target = Connection::new(NOW, Config { port, burst_len: 16384, ..Config::default() });
    let config = SessionConfig::new("nqn.s", "nqn.h", [7; 16]);
    let session = Session::new(NOW, initiator::Config::new(port, PortName(2), config));
    Pair::new(session, target, volume).ready().assert_nothing_is_allocated();
}
