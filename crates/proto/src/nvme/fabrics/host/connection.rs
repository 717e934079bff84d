//! What a transport gives a host: its connection carries capsules.

use alloc::vec::Vec;

use super::SessionConfig;
use crate::{
    Transmit, Violation, ViolationKind,
    nvme::{
        CommandId, ControllerId, Cqe, QueueId, Sqe,
        command::{Connect, ConnectData, Sgl},
    },
};

/// Sends commands other than I/O, one at a time.
pub trait Capsules {
    /// Sends a command with `data` in its capsule; the controller gives `reads` bytes. The last one was answered.
    fn send(&mut self, sqe: &Sqe, data: &[u8], reads: u32);
}

/// A connection of an admin queue.
pub trait Connection: Capsules {
    /// Takes bytes off the front until there is something to tell; `None` when more are needed.
    fn receive(&mut self, bytes: &mut &[u8]) -> Result<Option<ConnectionEvent>, Violation>;
    fn transmit(&mut self) -> &mut Transmit;
}

/// What a connection tells.
#[derive(Debug)]
pub enum ConnectionEvent {
    /// Capsules may be sent from now on.
    Open,
    Answer(Answer),
}

/// The answer to the command outstanding.
#[derive(Debug)]
pub struct Answer {
    pub cqe: Cqe,
    /// All that was asked for, where the command succeeded.
    pub data: Vec<u8>,
}

/// Sends Connect for queue `qid` with the command identifier `cid`.
pub(super) fn connect(
    capsules: &mut impl Capsules,
    config: &SessionConfig,
    cntlid: Option<ControllerId>,
    qid: QueueId,
    sq_size: u16,
    cid: CommandId,
) {
    let connect = Connect {
        record_format: 0,
        qid,
        sq_size,
        disable_sq_flow_control: config.disable_sq_flow_control,
        keep_alive_ms: if qid == QueueId::ADMIN {
            u32::try_from(config.keep_alive.as_millis()).unwrap_or(u32::MAX)
        } else {
            0
        },
    };
    let data = ConnectData {
        host_id: config.host_id,
        cntlid: cntlid.unwrap_or(ControllerId::ANY),
        subnqn: config.subnqn.clone(),
        hostnqn: config.hostnqn.clone(),
    };
    let mut sqe: Sqe = connect.sqe(cid);
    sqe.set_sgl(Sgl::InCapsule { offset: 0, len: ConnectData::LEN as u32 });
    capsules.send(&sqe, &data.encode(), 0);
}

/// The controller did not answer in time.
pub(super) fn timed_out(rule: &'static str) -> Violation {
    Violation::new(ViolationKind::TimedOut, rule)
}
