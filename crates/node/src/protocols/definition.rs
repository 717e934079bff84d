//! All that the server and the load generator ask of a protocol.

use std::{fmt, net::SocketAddr};

use iotax_proto::{Initiator, Instant, Target, nvme::auth::Worked};

use super::Describe;
use crate::{
    failure::Failure,
    fs::Tree,
    load::{
        Facts,
        link::Control,
        settings::{Settings, Workers},
    },
    server::{Guarded, ServerBackend, ServerConfig},
};

/// What there is to know of a protocol before it is spoken.
#[derive(Debug)]
pub struct About {
    /// In documents and on the command line.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    /// Of its endpoints: what stands before `://`.
    pub scheme: &'static str,
    /// An endpoint, for people.
    pub form: &'static str,
    /// Those of `Settings` that it knows, as documents name them.
    pub common_options: &'static [&'static str],
    /// The same view of a volume at several portals is one target with several paths.
    pub is_multipath: bool,
    /// RPC programs and versions whose port a portmapper tells.
    pub rpc_programs: &'static [(u32, u32)],
}

/// Options of a connection.
pub trait Given: Clone + fmt::Debug + Default {
    /// Those that are set, as documents name them.
    fn given(&self) -> Vec<&'static str>;
}

/// No options.
impl Given for () {
    fn given(&self) -> Vec<&'static str> {
        Vec::new()
    }
}

/// A protocol. What has a default is what most protocols have nothing to say to.
pub trait Definition {
    const ABOUT: About;

    // The load generator's side.

    /// What an endpoint names behind the host.
    type Unit: Clone + fmt::Debug + PartialEq + Eq;
    /// What a connection of this protocol alone may be asked for.
    type Options: Given;
    /// A worker's way to the unit.
    type Initiator: Initiator + 'static;

    /// The part of an endpoint behind its host, or what is wrong with it and what to write.
    fn parse(port: Option<u16>, path: &str, query: Option<&str>) -> Result<Self::Unit, String>;
    /// What opens the links of one thread's workers. `endpoint` names the unit in failures.
    fn control(
        unit: &Self::Unit,
        settings: &Settings,
        options: &Self::Options,
        workers: Workers,
        endpoint: &str,
    ) -> Result<Box<dyn Control<Self::Initiator>>, Failure>;
    /// What a worker's own connection found and agreed on, beside what `Control::facts` tells.
    fn facts(_initiator: &Self::Initiator) -> Facts {
        Facts::default()
    }

    // The server's side.

    /// One connection.
    type Target: Target<ServerBackend>;
    /// What an export shows; clones show the same.
    type Exported: Clone + fmt::Debug + Send + Sync;
    /// What all its exports and portals share.
    type Common: fmt::Debug + Send + Sync;

    fn common(config: &ServerConfig) -> Self::Common;
    /// `index` is the export's in `config`.
    fn export(config: &ServerConfig, index: usize) -> Self::Exported;
    /// Where a load finds the export.
    fn endpoint(exported: &Self::Exported, address: SocketAddr) -> String;
    /// The export's files, where it shows files.
    fn tree(_exported: &Self::Exported) -> Option<&Guarded<Tree>> {
        None
    }
    fn accept(now: Instant, backend: &ServerBackend) -> Self::Target;
    /// Does to the connection what others asked for (`Notifier`).
    fn handle_notification(_target: &mut Self::Target, _now: Instant, _backend: &mut ServerBackend) {}
    /// Arithmetic that the connection asked for is done.
    fn worked(_target: &mut Self::Target, _now: Instant, _worked: Worked, _backend: &mut ServerBackend) {}
    /// The connection will carry no I/O.
    fn carries_no_io(_target: &Self::Target) -> bool {
        false
    }

    // `decode`

    /// Puts what such connections carried into words.
    fn describe(digests: super::Digests) -> Box<dyn Describe>;
}
