//! The target's side of FCP: login, then commands until logout or loss of the connection. Also the names of SCSI ports
//! (TransportID: SPC-5 §7.6.4.2).

mod connection;
mod image;

use alloc::{format, rc::Rc, vec::Vec};
use core::time::Duration;

use super::{Port, PortName};
use crate::{
    Shared, fc,
    scsi::{Device, Ports, ScsiBackend, Transport},
};

pub use connection::Connection;

pub use crate::fc::{LoginRefusal, Logins};

/// The functions of the server that an FCP target needs in addition to those of SCSI.
pub trait FcpBackend: ScsiBackend {
    /// Whether `initiator` may log in to `target`, and what it may use.
    fn login(&mut self, initiator: PortName, target: PortName) -> Result<LoginGrant, LoginRefusal>;
}

/// The objects that an image pair may use.
pub type LoginGrant = fc::LoginGrant<Rc<dyn Shared<Device>>>;

/// Settings of a connection.
#[derive(Clone, Debug)]
pub struct Config {
    /// The limits of our port. Its names are those of the port that the initiator logs in to.
    pub port: Port,
    /// Maximum outstanding commands, 1 to 1024. Further ones get TASK SET FULL. It limits the `IoId`s.
    pub tasks: u16,
    /// Maximum bytes that one `FCP_XFER_RDY` requests.
    pub burst_len: u32,
    /// Maximum time from the start of the connection to the end of its login.
    pub login_timeout: Duration,
    /// The connection ends if the initiator is silent for this time.
    pub silence: Duration,
    /// Whether frames carry a CRC, which is checked. A driver that never damages data does not need it.
    pub has_crc: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            port: Port::new(PortName(0), PortName(0)),
            tasks: 1024,
            burst_len: 1 << 20,
            login_timeout: Duration::from_secs(15),
            silence: Duration::from_secs(60),
            has_crc: true,
        }
    }
}

/// The protocol identifier of Fibre Channel, and FCP-4 without a version. Its functions: abort task (by ABTS), abort task
/// set, clear task set, LU reset, target reset.
const TRANSPORT: Transport =
    Transport { protocol_identifier: 0, version_descriptor: 0x0a40, functions: [0b1101_1010, 0] };

fn ports(initiator: PortName, target: PortName, node: PortName) -> Ports {
    let mut initiator_id: Vec<u8> = alloc::vec![0; 24];
    initiator_id[8..16].copy_from_slice(&initiator.0.to_be_bytes());
    Ports {
        initiator: format!("naa.{initiator}"),
        initiator_id,
        target: format!("naa.{target}"),
        target_device: format!("naa.{node}"),
        relative_target_port: 1,
        transport: TRANSPORT,
    }
}
