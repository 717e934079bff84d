//! `iotax-engine schema`: the JSON Schema of what goes in and what comes out.

use std::io::Write as _;

use iotax_node::failure::Failure;
use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::json;

use crate::{
    document::{Event, LoadDocument, ServeCommand, ServeDocument},
    failure,
};

pub(crate) fn run() -> Result<(), Failure> {
    let schema = |make: fn(SchemaGenerator) -> schemars::Schema| make(SchemaSettings::draft2020_12().into_generator());
    let all = json!({
        "serve": schema(SchemaGenerator::into_root_schema_for::<ServeDocument>),
        "command": schema(SchemaGenerator::into_root_schema_for::<ServeCommand>),
        "load": schema(SchemaGenerator::into_root_schema_for::<LoadDocument>),
        "event": schema(SchemaGenerator::into_root_schema_for::<Event>),
    });
    writeln!(std::io::stdout(), "{all:#}").map_err(|error| failure::io(&error, "standard output"))
}
