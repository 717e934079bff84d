//! From an endpoint to the links of its workers: what each protocol does before the first I/O.

use std::net::IpAddr;

pub use super::settings::{Settings, Workers};
use super::{
    config::LoadConfig,
    endpoint::{Endpoint, Unit},
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
    pub settings: Settings,
    pub options: Options,
}

impl ConnectionConfig {
    pub fn new(address: IpAddr, instance: u32, randomness: Randomness) -> Self {
        Self { settings: Settings::new(address, instance, randomness), options: Options::default() }
    }
}

/// Creates the control that opens the links of one thread's workers.
pub fn control(
    endpoint: &Endpoint,
    connection: &ConnectionConfig,
    config: &LoadConfig,
) -> Result<Box<dyn Control<AnyInitiator>>, Failure> {
    let Unit::Remote { unit, .. } = &endpoint.unit else {
        return Err(Failure::usage("a local unit has no connections", endpoint.text.clone()));
    };
    let ConnectionConfig { settings, options } = connection;
    let about = unit.protocol().about();
    let unknown = settings.given().find(|name| !about.common_options.contains(name));
    if let Some(name) = unknown.or_else(|| options.given_to_others(unit.protocol())) {
        return Err(Failure::usage(format!("{} has no such option", about.title), format!("options.{name}")));
    }
    let workers =
        Workers { first: config.first_worker, count: config.own_workers, outstanding: config.task.outstanding() };
    unit.control(settings, options, workers, &endpoint.text)
}
