//! The engine's interface as types: documents in, events out. docs/reference/engine.md describes each field.

mod event;
mod load;
mod media;
mod serve;
mod session;
mod simulate;

pub(crate) use event::*;
pub(crate) use load::*;
pub(crate) use media::*;
pub(crate) use serve::*;
pub(crate) use session::*;
pub(crate) use simulate::*;

use std::{borrow::Cow, path::PathBuf};

use iotax_node::{Protocol, failure::Failure};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::failure;

/// The kernel interface for I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DriverChoice {
    /// `io_uring`, or epoll if `io_uring` cannot be used
    #[default]
    Auto,
    IoUring,
    Epoll,
}

/// How a thread waits for events. Polling occupies a processor and saves the time of a sleep and a wake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Polling {
    /// Sleep
    #[default]
    Never,
    /// Poll for up to 100 µs as long as events arrive that soon; otherwise sleep
    Auto,
    /// Poll for as long as the thread runs
    Always,
}

/// Identifies a file or a block device of this machine while it is held open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Identity {
    /// Device number: that of a file's file system, or that of the block device itself
    pub(crate) device: u64,
    /// Inode number; 0 for a block device
    pub(crate) inode: u64,
}

/// CHAP: user and secret of the initiator, and those of the target if both must authenticate.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChapSpec {
    pub(crate) user: String,
    /// File with the secret
    pub(crate) secret_file: Option<PathBuf>,
    /// Environment variable with the secret
    pub(crate) secret_env: Option<String>,
    pub(crate) mutual: Option<CredentialsSpec>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CredentialsSpec {
    pub(crate) user: String,
    pub(crate) secret_file: Option<PathBuf>,
    pub(crate) secret_env: Option<String>,
}

/// DH-HMAC-CHAP: secret of the host, and that of the controller if both must authenticate.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DhChapSpec {
    /// File with the secret, in the form `DHHC-1:…:`
    pub(crate) secret_file: Option<PathBuf>,
    /// Environment variable with the secret
    pub(crate) secret_env: Option<String>,
    pub(crate) controller: Option<SecretSpec>,
    /// The only hash allowed; absent: any
    pub(crate) hash: Option<HashSpec>,
    /// The only Diffie-Hellman group allowed; absent: any
    pub(crate) dh_group: Option<DhGroupSpec>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SecretSpec {
    pub(crate) secret_file: Option<PathBuf>,
    pub(crate) secret_env: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HashSpec {
    Sha256,
    Sha384,
    Sha512,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DhGroupSpec {
    Null,
    Ffdhe2048,
    Ffdhe3072,
    Ffdhe4096,
    Ffdhe6144,
    Ffdhe8192,
}

impl From<Polling> for iotax_runtime::driver::Polling {
    fn from(polling: Polling) -> Self {
        match polling {
            Polling::Never => Self::Never,
            Polling::Auto => Self::Auto,
            Polling::Always => Self::Always,
        }
    }
}

impl From<DriverChoice> for iotax_runtime::DriverChoice {
    fn from(choice: DriverChoice) -> Self {
        match choice {
            DriverChoice::Auto => Self::Auto,
            DriverChoice::IoUring => Self::IoUring,
            DriverChoice::Epoll => Self::Epoll,
        }
    }
}

/// Each thread has its own ring or epoll descriptor, and an eventfd.
const THREADS_MAX: usize = 1024;

/// Rejects too many threads, and processors that this process may not use.
pub(crate) fn check_threads(threads: usize, cpus: &[usize]) -> Result<(), Failure> {
    if !(1..=THREADS_MAX).contains(&threads) {
        return Err(Failure::usage(format!("must be 1 to {THREADS_MAX}"), "threads"));
    }
    let usable = iotax_runtime::cpu::usable_cpus().map_err(|error| failure::io(&error, "cpus"))?;
    match cpus.iter().find(|cpu| !usable.contains(cpu)) {
        Some(cpu) => Err(Failure::usage(format!("this process may not use processor {cpu}, only {usable:?}"), "cpus")),
        None => Ok(()),
    }
}

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
