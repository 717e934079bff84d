//! The engine's interface as types: documents in, events out. docs/reference/engine.md describes each field.

mod event;
mod load;
mod media;
mod protocol;
mod serve;
mod session;
mod simulate;

pub(crate) use event::*;
pub(crate) use load::*;
pub(crate) use media::*;
pub(crate) use protocol::WireProtocol;
pub(crate) use serve::*;
pub(crate) use session::*;
pub(crate) use simulate::*;

use std::path::PathBuf;

use iotax_node::failure::Failure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::failure;

/// Which way of doing I/O a driver takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DriverChoice {
    /// `io_uring`, or epoll where `io_uring` is refused
    #[default]
    Auto,
    IoUring,
    Epoll,
}

/// How a thread waits when there is nothing to do. Looking takes a processor and spares the time of a sleep and a wake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Polling {
    /// It sleeps
    #[default]
    Never,
    /// It looks for up to 100 µs while news comes that soon, and sleeps where it does not
    Auto,
    /// It looks for as long as it runs
    Always,
}

/// Identifies a file or a block device of this machine while it is held open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Identity {
    /// Of a file the device number of its file system, of a block device its own
    pub(crate) device: u64,
    /// 0 for a block device
    pub(crate) inode: u64,
}

/// CHAP: the initiator's user and secret, and the target's where both must prove themselves.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChapSpec {
    pub(crate) user: String,
    /// A file that holds the secret
    pub(crate) secret_file: Option<PathBuf>,
    /// An environment variable that holds the secret
    pub(crate) secret_env: Option<String>,
    pub(crate) mutual: Option<CredentialsSpec>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CredentialsSpec {
    pub(crate) user: String,
    pub(crate) secret_file: Option<PathBuf>,
    pub(crate) secret_env: Option<String>,
}

/// DH-HMAC-CHAP: the host's secret, and the controller's where both must prove themselves.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DhChapSpec {
    /// A file that holds the secret, `DHHC-1:…:`
    pub(crate) secret_file: Option<PathBuf>,
    /// An environment variable that holds the secret
    pub(crate) secret_env: Option<String>,
    pub(crate) controller: Option<SecretSpec>,
    /// The only hash allowed; absent: any
    pub(crate) hash: Option<HashSpec>,
    /// The only Diffie-Hellman group allowed; absent: any
    pub(crate) dh_group: Option<DhGroupSpec>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SecretSpec {
    pub(crate) secret_file: Option<PathBuf>,
    pub(crate) secret_env: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HashSpec {
    Sha256,
    Sha384,
    Sha512,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
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

/// Each has a ring or an epoll descriptor, and an eventfd, of its own.
const THREADS_MAX: usize = 1024;

/// Whether there may be so many threads, and the processors to pin them to are this process's.
pub(crate) fn check_threads(threads: usize, cpus: &[usize]) -> Result<(), Failure> {
    if threads > THREADS_MAX {
        return Err(Failure::usage(format!("must be at most {THREADS_MAX}"), "threads"));
    }
    let usable = iotax_runtime::cpu::usable_cpus().map_err(|error| failure::io(&error, "cpus"))?;
    match cpus.iter().find(|cpu| !usable.contains(cpu)) {
        Some(cpu) => {
            Err(Failure::usage(format!("processor {cpu} is none that this process may use: {usable:?}"), "cpus"))
        }
        None => Ok(()),
    }
}
