//! Fibre Channel over a byte stream: frames, sequences, exchanges, logins and credits between two ports. There is
//! neither an adapter nor a fabric.

pub mod decode;
pub mod els;
pub mod exchanges;
pub mod frame;
pub mod framer;
pub mod lifetime;
pub mod link;
pub mod login;
pub mod responder;
pub mod sequence;

pub use self::frame::Special;
pub use self::lifetime::Silence;
pub use self::login::{LoginGrant, LoginRefusal, Logins, ProcessLogin};
pub use frame::{Header, OxId, PortId, PortName, RxId};
pub use framer::{Fragment, Framer};
pub use lifetime::Lifetime;
pub use link::Link;

/// The names and limits that a port states in its login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    pub port_name: PortName,
    pub node_name: PortName,
    /// BB_Credit: maximum frames on their way to the port, 1 to 32767.
    pub credit: u16,
    /// Maximum bytes of data in a frame to the port, 256 to 2112 in steps of four.
    pub frame_data_len: u16,
}

impl Port {
    pub fn new(port_name: PortName, node_name: PortName) -> Self {
        Self { port_name, node_name, credit: 256, frame_data_len: 2048 }
    }
}
