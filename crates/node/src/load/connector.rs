//! From an endpoint to its workers' links: what each protocol asks and agrees on before the first I/O.

pub use super::settings::{Settings, Workers};
use super::{
    config::LoadConfig,
    endpoint::{Endpoint, Unit},
    link::Control,
};
use crate::{failure::Failure, protocols::AnyInitiator};

/// What opens the links of one thread's workers.
pub fn control(
    endpoint: &Endpoint,
    settings: &Settings,
    config: &LoadConfig,
) -> Result<Box<dyn Control<AnyInitiator>>, Failure> {
    let Unit::Remote { unit, .. } = &endpoint.unit else {
        return Err(Failure::usage("a local unit has no connections", endpoint.text.clone()));
    };
    let about = unit.protocol().about();
    if let Some(name) = settings.given().find(|name| !about.options.contains(name)) {
        return Err(Failure::usage(format!("{} has no such option", about.title), format!("options.{name}")));
    }
    let workers =
        Workers { first: config.first_worker, count: config.own_workers, outstanding: config.task.outstanding() };
    unit.control(settings, workers, &endpoint.text)
}
