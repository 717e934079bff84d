//! NVMe over Fabrics, independent of the transport: what host and controller do on a connection that carries capsules.
//! See README.md in this folder. Section numbers are those of NVMe base 2.1.

pub mod controller;
pub mod host;

use crate::Payload;

/// Data of a command or its answer.
#[derive(Debug)]
pub enum Data<'a> {
    None,
    Payload(Payload),
    Bytes(&'a [u8]),
}

impl Data<'_> {
    pub fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Payload(payload) => payload.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
