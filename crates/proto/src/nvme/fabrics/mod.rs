//! NVMe over Fabrics without its transports: what both sides of a connection do once capsules pass. See README.md beside this
//! file. Numbers of sections are those of NVMe base 2.1.

pub mod controller;
pub mod host;

use crate::Payload;

/// Data that go with a command or answer one.
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
