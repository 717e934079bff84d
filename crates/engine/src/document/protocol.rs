//! Names of protocols, from the table of `iotax_node::protocols`.

use std::borrow::Cow;

use iotax_node::Protocol;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WireProtocol(pub(crate) Protocol);

pub(crate) fn names() -> Vec<&'static str> {
    Protocol::ALL.iter().map(|protocol| protocol.name()).collect()
}

impl Serialize for WireProtocol {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name())
    }
}

impl<'de> Deserialize<'de> for WireProtocol {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = Cow::<str>::deserialize(deserializer)?;
        let unknown = || D::Error::custom(format!("unknown protocol `{name}`: one of {}", names().join(", ")));
        Protocol::of_name(&name).map(Self).ok_or_else(unknown)
    }
}

impl JsonSchema for WireProtocol {
    fn schema_name() -> Cow<'static, str> {
        "WireProtocol".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": names() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_protocol_is_read_by_the_name_that_is_written() {
        for protocol in Protocol::ALL.iter().copied().map(WireProtocol) {
            let text = serde_json::to_string(&protocol).unwrap();
            assert_eq!(serde_json::from_str::<WireProtocol>(&text).unwrap(), protocol);
        }
        let error = serde_json::from_str::<WireProtocol>("\"ftp\"").unwrap_err();
        assert!(error.to_string().contains("unknown protocol `ftp`: one of nfs3, iscsi"), "{error}");
    }
}
