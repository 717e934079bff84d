//! The target's side of FCP: login, then commands until logout or loss.
//!
//! Names of SCSI ports (SPC-5 §7.6.4.2 for the TransportID).

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

/// What an FCP target asks of the server behind it, beyond its volumes.
pub trait FcpBackend: ScsiBackend {
    /// Whether `initiator` may log in to `target`, and to what.
    fn login(&mut self, initiator: PortName, target: PortName) -> Result<LoginGrant, LoginRefusal>;
}

/// What an image pair works on.
pub type LoginGrant = fc::LoginGrant<Rc<dyn Shared<Device>>>;

/// Settings of a connection.
#[derive(Clone, Debug)]
pub struct Config {
    /// How much we take; its names are those of the port that is logged in to.
    pub port: Port,
    /// Commands that may be outstanding, 1 to 1024; more are answered TASK SET FULL. It bounds the `IoId`s.
    pub tasks: u16,
    /// Most bytes that one `FCP_XFER_RDY` asks for.
    pub burst_len: u32,
    /// Time from the connection's begin to the end of its login.
    pub login_timeout: Duration,
    /// An initiator silent for so long is given up.
    pub silence: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            port: Port::new(PortName(0), PortName(0)),
            tasks: 1024,
            burst_len: 1 << 20,
            login_timeout: Duration::from_secs(15),
            silence: Duration::from_secs(60),
        }
    }
}

/// Fibre Channel, and FCP-4 without a version.
const TRANSPORT: Transport = Transport { protocol_identifier: 0, version_descriptor: 0x0a40 };

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
