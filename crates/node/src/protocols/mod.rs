//! The protocols. A new one is its state machines in `iotax-proto`, a module here that says what [`Definition`] asks, and a row below.
//! `toy` is one that tests add.

mod definition;
mod describe;
pub mod iscsi;
pub mod nfs3;
pub mod nvme_tcp;
mod table;
#[cfg(test)]
mod toy;

use std::{fmt, net::SocketAddr};

use iotax_proto::{
    Initiator, Instant, IoId, Payload, Target, Transmit, UnitError, Violation, nvme::auth::Worked, rpc::Portmapper,
};

use crate::{
    failure::Failure,
    fs::Tree,
    load::{
        Facts,
        connector::{Settings, Workers},
        link::Control,
        local::{DiskInitiator, MemoryInitiator},
    },
    server::{Guarded, ServerBackend, ServerConfig},
};
pub use definition::{About, Definition};
pub use describe::{Describe, Digests};

table::protocols! {
    Nfs3 in nfs3,
    Iscsi in iscsi,
    NvmeTcp in nvme_tcp,
    #[cfg(test)]
    Toy in toy,
}

impl Protocol {
    /// In documents and on the command line.
    pub fn name(self) -> &'static str {
        self.about().name
    }

    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|protocol| protocol.name() == name)
    }
}
