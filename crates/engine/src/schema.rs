//! `iotax-engine schema`: prints the JSON Schema of documents and events.

use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Value, json};

use crate::document::{
    Event, LoadDocument, PerformDocument, ServeCommand, ServeDocument, SessionCommand, SessionDocument,
    SimulateDocument,
};

pub(crate) fn all() -> Value {
    let schema = |make: fn(SchemaGenerator) -> schemars::Schema| make(SchemaSettings::draft2020_12().into_generator());
    json!({
        "serve": schema(SchemaGenerator::into_root_schema_for::<ServeDocument>),
        "command": schema(SchemaGenerator::into_root_schema_for::<ServeCommand>),
        "load": schema(SchemaGenerator::into_root_schema_for::<LoadDocument>),
        "session": schema(SchemaGenerator::into_root_schema_for::<SessionDocument>),
        "session_command": schema(SchemaGenerator::into_root_schema_for::<SessionCommand>),
        "perform": schema(SchemaGenerator::into_root_schema_for::<PerformDocument>),
        "simulate": schema(SchemaGenerator::into_root_schema_for::<SimulateDocument>),
        "event": schema(SchemaGenerator::into_root_schema_for::<Event>),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checked_in_schema_is_that_of_the_code() {
        let checked_in = include_str!("../../../schema/engine.schema.json");
        assert_eq!(checked_in.trim_end(), format!("{:#}", all()), "regenerate it: make schema");
    }
}
