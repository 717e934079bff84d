//! The interface of a protocol to the server and the load generator.

use std::fmt;

use iotax_proto::{Initiator, Instant, Target, nvme::auth::Worked};

use crate::{
    access::Access,
    failure::Failure,
    fs::Tree,
    load::{
        AfterLoss, Facts,
        link::Control,
        settings::{Settings, Workers},
    },
    server::{Guarded, ServerBackend, ServerConfig},
};

/// Constants of a protocol.
#[derive(Debug)]
pub struct About {
    /// Its name in documents and on the command line.
    pub name: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// The scheme of its endpoints, before `://`.
    pub scheme: &'static str,
    /// The form of its endpoints, for people.
    pub form: &'static str,
    /// The options of `Settings` that it supports, by their names in documents.
    pub common_options: &'static [&'static str],
    /// Its endpoints may name several portals, which are paths to one unit.
    pub has_paths: bool,
    /// The same view of a volume at several portals is one target with several paths.
    pub is_multipath: bool,
    /// RPC programs and versions whose port a portmapper reports.
    pub rpc_programs: &'static [(u32, u32)],
}

/// Options of a connection or of an export.
pub trait Given: Clone + fmt::Debug + Default {
    /// The options that are set, by their names in documents.
    fn given(&self) -> Vec<&'static str>;
}

/// No options.
impl Given for () {
    fn given(&self) -> Vec<&'static str> {
        Vec::new()
    }
}

/// An export of a protocol; clones refer to the same one.
pub trait ExportedUnit: Clone + fmt::Debug + Send + Sync {
    /// `index` is that of the export in `config`.
    fn new(config: &ServerConfig, index: usize) -> Self;
    /// What follows the address in its endpoint for a load.
    fn path(&self) -> String;
    /// Its files, if it exports files.
    fn tree(&self) -> Option<&Guarded<Tree>> {
        None
    }
    /// Sets how it can be accessed through a portal. The error says why it cannot report that.
    fn set_access(&self, _port: u16, _access: Access) -> Result<(), &'static str> {
        Err("the portal's protocol reports no access states")
    }
}

/// A protocol. Most protocols need only the methods without a default.
pub trait Definition {
    const ABOUT: About;

    // The load generator's side.

    /// The part of an endpoint behind the host.
    type Unit: Clone + fmt::Debug + PartialEq + Eq;
    /// Connection options that only this protocol has.
    type Options: Given;
    /// A worker's connection to the unit.
    type Initiator: Initiator + 'static;

    /// Parses the part of an endpoint behind its host. The error describes what is wrong and what to write.
    fn parse(port: Option<u16>, path: &str, query: Option<&str>) -> Result<Self::Unit, String>;
    /// Creates the control that opens the links of one thread's workers. `endpoint` names the unit in failures.
    fn control(
        unit: &Self::Unit,
        settings: &Settings,
        options: &Self::Options,
        workers: Workers,
        endpoint: &str,
    ) -> Result<Box<dyn Control<Self::Initiator>>, Failure>;
    /// When nothing of a connection is executed any more after it was lost; `None` unless `About::has_paths`.
    fn after_loss(_initiator: &Self::Initiator) -> Option<AfterLoss> {
        None
    }
    /// How the unit can be accessed over a worker's own connection; `None` if the target does not report it there.
    fn access(_initiator: &Self::Initiator) -> Option<Access> {
        None
    }
    /// Asks for the access again, because it may have changed.
    fn check_access(_initiator: &mut Self::Initiator, _now: Instant) {}
    /// What a worker's own connection found and negotiated, in addition to `Control::facts`.
    fn facts(_initiator: &Self::Initiator) -> Facts {
        Facts::default()
    }

    // The server's side.

    /// The server's side of one connection.
    type Target: Target<ServerBackend>;
    type Exported: ExportedUnit;
    /// Options that only exports of this protocol have.
    type ExportOptions: Given + PartialEq;
    /// State that all its exports and portals share.
    type Common: fmt::Debug + Send + Sync;

    fn common(config: &ServerConfig) -> Self::Common;
    fn accept(now: Instant, backend: &ServerBackend) -> Self::Target;
    /// Arithmetic that the connection requested is done.
    fn worked(_target: &mut Self::Target, _now: Instant, _worked: Worked, _backend: &mut ServerBackend) {}
    /// Whether the connection will carry no I/O.
    fn carries_no_io(_target: &Self::Target) -> bool {
        false
    }

    // `decode`

    /// Creates a decoder that describes the PDUs of such connections.
    fn describe(digests: super::Digests) -> Box<dyn Describe>;
}

/// Digests that a connection negotiated, which its PDUs do not show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    pub header: bool,
    pub data: bool,
}

/// Describes one PDU after the other; it remembers earlier ones.
pub trait Describe {
    /// The following bytes belong to another direction or connection.
    fn begin_stream(&mut self) {}
    /// The length of the PDU at the front of `bytes` and its description, or the reason why there is none.
    fn describe(&mut self, bytes: &[u8]) -> Result<(usize, String), String>;
}

pub(super) fn cut_off(bytes: &[u8]) -> String {
    format!("{} bytes of a PDU that is cut off", bytes.len())
}

/// The value of the only key that the query may have.
pub(super) fn number<T: std::str::FromStr>(query: Option<&str>, key: &str) -> Result<Option<T>, String> {
    let Some(query) = query else { return Ok(None) };
    let value = query
        .strip_prefix(key)
        .and_then(|rest| rest.strip_prefix('='))
        .ok_or_else(|| format!("'?{query}' is not understood: only ?{key}=N"))?;
    value.parse().map(Some).map_err(|_| format!("'{value}' is not a number for {key}"))
}

pub(super) fn no_query(query: Option<&str>) -> Result<(), String> {
    query.map_or(Ok(()), |query| Err(format!("'?{query}' is not understood here")))
}
