//! The common parts of protocols over Fibre Channel. Here their frames are sent over a stream socket, without an
//! adapter or a fabric.

use iotax_proto::{
    Violation,
    fc::{Port, PortName},
};

use super::{Describe, definition::cut_off};

/// The port of FCIP.
pub(super) const PORT: u16 = 3225;

/// The port of a load's worker. Port and node names have the locally assigned format (NAA 3).
pub(super) fn initiator_port(instance: u32, worker: u32) -> Port {
    let name = |worker: u16| PortName(0x3010 << 48 | u64::from(instance) << 16 | u64::from(worker));
    Port::new(name(worker as u16 + 1), name(0))
}

/// Parses the WWPN of an endpoint. The error describes what is wrong with it.
pub(super) fn wwpn(text: &str) -> Result<PortName, String> {
    let is_name = text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let name = u64::from_str_radix(text, 16).ok().filter(|_| is_name);
    name.map(PortName).ok_or_else(|| format!("'{text}' is not a WWPN: 16 hexadecimal digits without colons"))
}

/// What a load negotiated with a target port.
pub(super) fn negotiated(target: &Port) -> Vec<(&'static str, String)> {
    vec![
        ("BB_Credit of the target", target.credit.to_string()),
        ("Receive Data Field Size of the target", target.frame_data_len.to_string()),
    ]
}

/// Length and description of the frame at the front of the bytes; `None` if it is incomplete.
type Described = Result<Option<(usize, String)>, Violation>;

/// A description of frames, each of which can be understood on its own.
pub(super) struct Frames(pub(super) fn(&[u8]) -> Described);

impl Describe for Frames {
    fn describe(&mut self, bytes: &[u8]) -> Result<(usize, String), String> {
        match self.0(bytes) {
            Ok(described) => described.ok_or_else(|| cut_off(bytes)),
            Err(violation) => Err(violation.to_string()),
        }
    }
}
