//! From an endpoint to the links of its workers: what each protocol does before the first I/O.

use std::{net::IpAddr, time::Duration};

pub use super::settings::{Settings, Workers};
use super::{
    config::LoadConfig,
    endpoint::{Endpoint, Portal},
    fan::PathPolicy,
    link::Control,
};
use crate::{
    failure::Failure,
    protocols::{AnyInitiator, Options},
    random::Randomness,
};

/// The options of a load's connections: those common to all protocols, and those of a single one.
#[derive(Clone, Debug)]
pub struct ConnectionConfig {
    /// Those of the first portal.
    pub settings: Settings,
    pub options: Options,
    /// Addresses of the endpoint's other portals, in order.
    pub further: Vec<IpAddr>,
    pub policy: PathPolicy,
    /// Writes of a lost path are sent again at once, as Linux's NVMe initiator does, and not only when it is safe: a target that executes
    /// the first copy later can undo a newer write.
    pub retries_at_once: bool,
    /// A canary: paths are used although the target says that they are not accessible.
    pub ignores_access: bool,
}

/// If a connection with several paths has no `keep_alive`: a silent path is lost after this time.
const PATHS_KEEP_ALIVE: Duration = Duration::from_secs(5);

impl ConnectionConfig {
    pub fn new(address: IpAddr, instance: u32, randomness: Randomness) -> Self {
        Self {
            settings: Settings::new(address, instance, randomness),
            options: Options::default(),
            further: Vec::new(),
            policy: PathPolicy::default(),
            retries_at_once: false,
            ignores_access: false,
        }
    }
}

/// Creates the control that opens the links of one thread's workers to the endpoint's first portal.
pub fn control(
    endpoint: &Endpoint,
    connection: &ConnectionConfig,
    config: &LoadConfig,
) -> Result<Box<dyn Control<AnyInitiator>>, Failure> {
    path_control(endpoint, connection, config, 0, 0)
}

/// The same for the initiator ports of path `path`, through the portal with this number.
pub(super) fn path_control(
    endpoint: &Endpoint,
    connection: &ConnectionConfig,
    config: &LoadConfig,
    path: usize,
    portal: usize,
) -> Result<Box<dyn Control<AnyInitiator>>, Failure> {
    let Some(Portal { unit, .. }) = endpoint.unit.portals().get(portal) else {
        return Err(Failure::usage("a local unit has no connections", endpoint.text.clone()));
    };
    let ConnectionConfig { settings, options, further, .. } = connection;
    let about = unit.protocol().about();
    let unknown = settings.given().find(|name| !about.common_options.contains(name));
    if let Some(name) = unknown.or_else(|| options.given_to_others(unit.protocol())) {
        return Err(Failure::usage(format!("{} has no such option", about.title), format!("options.{name}")));
    }
    let mut settings = Settings { path: path as u32, has_paths: !further.is_empty(), ..settings.clone() };
    if let Some(address) = portal.checked_sub(1).and_then(|index| further.get(index)) {
        settings.address = *address;
    }
    if !further.is_empty() {
        settings.keep_alive.get_or_insert(PATHS_KEEP_ALIVE);
    }
    let workers =
        Workers { first: config.first_worker, count: config.own_workers, outstanding: config.task.outstanding() };
    unit.control(&settings, options, workers, &endpoint.text)
}
