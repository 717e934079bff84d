//! NVMe/TCP.

mod connector;
mod options;
mod service;

pub use options::Options;

use iotax_proto::{
    Instant,
    nvme::{QueueId, auth::Worked},
    nvme_tcp::{IoQueue, TargetConfig, TargetQueue, decode::Stream},
};
use service::Common;

use super::{
    About, Definition, Describe, Digests,
    definition::cut_off,
    nvm_subsystem::{NvmSubsystem, namespace},
};
use crate::{
    failure::Failure,
    load::{
        AfterLoss,
        link::Control,
        settings::{Settings, Workers},
    },
    server::{ServerBackend, ServerConfig},
};

const PORT: u16 = 4420;

#[derive(Debug)]
pub struct NvmeTcp;

/// The unit of `nvme-tcp://HOST[:PORT]/NQN?ns=N`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    pub port: u16,
    pub nqn: String,
    pub nsid: u32,
}

impl Definition for NvmeTcp {
    const ABOUT: About = About {
        name: "nvme-tcp",
        title: "NVMe/TCP",
        scheme: "nvme-tcp",
        form: "nvme-tcp://HOST[:PORT][,HOST…]/NQN?ns=N",
        common_options: &["initiator", "keep_alive_ns", "header_digest", "data_digest"],
        has_paths: true,
        is_multipath: true,
        rpc_programs: &[],
    };

    type Unit = Unit;
    type Options = Options;
    type Initiator = IoQueue;

    fn parse(port: Option<u16>, path: &str, query: Option<&str>) -> Result<Unit, String> {
        let (nqn, nsid) = namespace(path, query)?;
        Ok(Unit { port: port.unwrap_or(PORT), nqn, nsid })
    }

    fn control(
        unit: &Unit,
        settings: &Settings,
        options: &Options,
        workers: Workers,
        endpoint: &str,
    ) -> Result<Box<dyn Control<Self::Initiator>>, Failure> {
        Ok(Box::new(connector::Controller::new(unit, settings, options, workers, endpoint)?))
    }

    fn after_loss(queue: &IoQueue) -> Option<AfterLoss> {
        Some(AfterLoss::Time(queue.quiet_after()))
    }

    type Target = TargetQueue;
    type Exported = NvmSubsystem;
    type ExportOptions = ();
    type Common = Common;

    fn common(_: &ServerConfig) -> Common {
        Common::new()
    }

    fn accept(now: Instant, _: &ServerBackend) -> TargetQueue {
        TargetQueue::new(now, TargetConfig::default())
    }

    fn worked(target: &mut TargetQueue, now: Instant, worked: Worked, backend: &mut ServerBackend) {
        target.worked(now, worked, backend);
    }

    /// True for an admin queue.
    #[inline]
    fn carries_no_io(target: &TargetQueue) -> bool {
        target.qid() == Some(QueueId::ADMIN)
    }

    fn describe(_: Digests) -> Box<dyn Describe> {
        Box::new(Stream::default())
    }
}

impl Describe for Stream {
    /// A stream's Connect shows whether it carries admin or I/O commands.
    fn begin_stream(&mut self) {
        *self = Self::default();
    }

    fn describe(&mut self, bytes: &[u8]) -> Result<(usize, String), String> {
        Self::describe(self, bytes).map_err(|violation| violation.to_string())?.ok_or_else(|| cut_off(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_understood_or_say_what_is_missing() {
        let unit = NvmeTcp::parse(Some(1), "nqn.2026-11.io.iotax:v0", Some("ns=1"));
        assert_eq!(unit, Ok(Unit { port: 1, nqn: "nqn.2026-11.io.iotax:v0".to_owned(), nsid: 1 }));
        for (path, query, says) in [
            ("nqn.x", None, "add ?ns=1"),
            ("nqn.x", Some("ns=0"), "not a namespace"),
            ("nqn.x", Some("nsid=1"), "only ?ns=N"),
            ("x", Some("ns=1"), "not an NVMe qualified name"),
        ] {
            assert!(NvmeTcp::parse(None, path, query).is_err_and(|message| message.contains(says)), "{path}");
        }
    }
}
