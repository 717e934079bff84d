//! What an I/O queue does beside I/O: Connect, authentication, Disconnect.

use alloc::boxed::Box;
use core::fmt;

use super::{
    Answer, Capsules, ControllerInfo, SessionConfig,
    authenticate::{Authentication, Next},
    connection,
};
use crate::{
    Violation,
    nvme::{CommandId, ControllerId, QueueId, Sqe, command::fabrics},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connect,
    Authenticate,
    Ready,
    Disconnect,
    Closed,
}

/// What came of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlOutcome {
    /// Another command was sent.
    Wait,
    Ready,
    Closed,
}

/// The commands of an I/O queue that are not I/O, one at a time, with one command identifier for all.
pub struct IoControl {
    stage: Stage,
    qid: QueueId,
    cntlid: ControllerId,
    cid: CommandId,
    has_disconnect: bool,
    /// Under way in the stage of that name.
    authentication: Option<Box<Authentication>>,
}

impl IoControl {
    /// For queue `qid` (1 to `controller.io_queues`); `cid` is above those of I/Os, and says how many there may be.
    pub fn new(controller: &ControllerInfo, qid: QueueId, cid: CommandId) -> Self {
        assert!((1..=controller.io_queues).contains(&qid.0), "the controller did not grant this queue");
        Self {
            stage: Stage::Connect,
            qid,
            cntlid: controller.cntlid,
            cid,
            has_disconnect: controller.has_disconnect,
            authentication: None,
        }
    }

    pub fn qid(&self) -> QueueId {
        self.qid
    }

    /// Sends Connect.
    pub fn connect(&mut self, config: &SessionConfig, capsules: &mut impl Capsules) {
        // 0's based: one entry more than I/Os, so that a full queue still shows as one.
        connection::connect(capsules, config, Some(self.cntlid), self.qid, self.cid.0, self.cid);
    }

    /// The command outstanding was answered.
    pub fn on_answer(
        &mut self,
        config: &SessionConfig,
        answer: &Answer,
        capsules: &mut impl Capsules,
    ) -> Result<ControlOutcome, Violation> {
        let status = answer.cqe.status;
        match self.stage {
            Stage::Connect if status.is_success() => {
                match Authentication::asked_for(answer.cqe.result, config, self.qid)? {
                    None => Ok(self.ready()),
                    Some(authentication) => {
                        authentication.begin(capsules, self.cid);
                        self.authentication = Some(authentication);
                        self.stage = Stage::Authenticate;
                        Ok(ControlOutcome::Wait)
                    }
                }
            }
            Stage::Connect => Err(Violation::refused(status.refusal(), status.name())),
            Stage::Authenticate => {
                let authentication = self.authentication.as_mut().expect("the stage has it");
                match authentication.proceed(capsules, self.cid, status, &answer.data)? {
                    Next::Wait => Ok(ControlOutcome::Wait),
                    Next::Done(_) => Ok(self.ready()),
                }
            }
            Stage::Ready | Stage::Disconnect | Stage::Closed => {
                self.stage = Stage::Closed;
                Ok(ControlOutcome::Closed)
            }
        }
    }

    /// Sends Disconnect (NVMe base 2.1 §6.4); false where the controller knows no such command.
    pub fn disconnect(&mut self, capsules: &mut impl Capsules) -> bool {
        if self.has_disconnect {
            self.stage = Stage::Disconnect;
            capsules.send(&Sqe::fabrics(fabrics::DISCONNECT, self.cid), &[], 0);
        }
        self.has_disconnect
    }

    fn ready(&mut self) -> ControlOutcome {
        self.authentication = None;
        self.stage = Stage::Ready;
        ControlOutcome::Ready
    }
}

impl fmt::Debug for IoControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoControl").field("qid", &self.qid).field("stage", &self.stage).finish_non_exhaustive()
    }
}
