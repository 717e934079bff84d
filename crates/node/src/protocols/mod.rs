//! The protocols. A new protocol needs its state machines in `iotax-proto`, a module here that implements
//! [`Definition`], and a row below. Tests add the protocol `toy`.

mod any_control;
mod definition;
pub mod fc_nvme;
pub mod fcp;
mod fibre_channel;
mod file_export;
pub mod iscsi;
mod logical_unit;
pub mod nfs3;
pub mod nfs41;
mod nvm_subsystem;
pub mod nvme_tcp;
mod table;

#[cfg(test)]
mod toy;

use std::{fmt, net::SocketAddr};

use iotax_proto::{
    Initiator, InitiatorEvents, Instant, IoId, Payload, Tag, Target, Transmit, UnitError, Violation,
    nvme::auth::Worked, rpc::Portmapper,
};

use crate::{
    access::Access,
    failure::Failure,
    fs::Tree,
    load::{
        AfterLoss, Facts, Fan,
        link::Control,
        local::{DiskInitiator, MemoryInitiator},
        settings::{Settings, Workers},
    },
    node::{DiskId, DiskOp},
    server::{Guarded, ServerBackend, ServerConfig},
};
use any_control::any_control;
pub use definition::{About, Definition, ExportedUnit, Given};
pub use definition::{Describe, Digests};

table::protocols! {
    Nfs3 in nfs3,
    Iscsi in iscsi,
    NvmeTcp in nvme_tcp,
    Fcp in fcp,
    FcNvme in fc_nvme,
    Nfs41 in nfs41,
    #[cfg(test)]
    Toy in toy,
}

impl Protocol {
    /// Its name in documents and on the command line.
    pub fn name(self) -> &'static str {
        self.about().name
    }

    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|protocol| protocol.name() == name)
    }
}

impl AnyInitiator {
    pub fn poll_disk(&mut self) -> Option<(Tag, DiskId, DiskOp)> {
        match self {
            Self::Disk(initiator) => initiator.poll_disk(),
            _ => None,
        }
    }

    pub fn disk_done(&mut self, now: Instant, tag: Tag, result: Result<u32, i32>, events: &mut dyn InitiatorEvents) {
        if let Self::Disk(initiator) = self {
            initiator.disk_done(now, tag, result, events);
        }
    }
}
