//! I/Os as commands of one namespace, and the other commands of an I/O queue: Connect, authentication, Disconnect.

use alloc::boxed::Box;
use core::fmt;

use super::{
    Answer, Capsules, ControllerInfo, SessionConfig,
    admin_channel::{Authentication, Next},
};
use crate::{
    Geometry, Io, Misuse, Payload, Violation,
    nvme::{
        CommandId, ControllerId, QueueId, Sqe,
        command::{fabrics, nvm},
        fabrics::host,
        identify::{ONCS_DATASET_MANAGEMENT, ONCS_RESERVATIONS, ONCS_WRITE_ZEROES},
        io, reserve,
    },
};

/// Maximum blocks of one command: NLB has 16 bits and is 0's based.
const MAX_BLOCKS: u64 = 1 << 16;

/// The namespace of a queue's I/Os.
#[derive(Clone, Debug)]
pub struct IoCommands {
    nsid: u32,
    block_shift: u8,
    optional_commands: u16,
    geometry: Geometry,
}

/// The data that a command transfers.
#[derive(Debug)]
pub enum DataTransfer {
    Nothing,
    /// This many bytes to the host.
    In(u32),
    Out(Payload),
}

impl IoCommands {
    pub fn new(controller: &ControllerInfo) -> Self {
        Self {
            nsid: controller.nsid,
            block_shift: controller.block_shift,
            optional_commands: controller.optional_commands,
            geometry: controller.geometry.clone(),
        }
    }

    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Whether the controller supports the command.
    pub fn is_supported(&self, io: &Io) -> bool {
        let optional = match io {
            Io::Read { .. } | Io::Write { .. } | Io::Flush => return true,
            Io::WriteZeroes { .. } => ONCS_WRITE_ZEROES,
            Io::Unmap { .. } => ONCS_DATASET_MANAGEMENT,
            Io::Reserve(_) => ONCS_RESERVATIONS,
        };
        self.optional_commands & optional != 0
    }

    /// Encodes an I/O as a command. The transport fills in where its data are.
    #[allow(clippy::inline_always)] // saves 50 instructions per read; `inline` alone is not reliable.
    #[inline(always)]
    pub fn encode(&self, cid: CommandId, io: Io) -> Result<(Sqe, DataTransfer), Misuse> {
        let mut sqe = Sqe::new(nvm::READ, cid, self.nsid);
        let moves = match io {
            Io::Read { offset, len } => {
                self.check_len(u64::from(len))?;
                self.set_range(&mut sqe, offset, u64::from(len))?;
                DataTransfer::In(len)
            }
            Io::Write { offset, data, durable } => {
                self.check_len(data.len() as u64)?;
                self.set_range(&mut sqe, offset, data.len() as u64)?;
                sqe.0[0] = nvm::WRITE;
                if durable {
                    sqe.set_durable();
                }
                DataTransfer::Out(data)
            }
            Io::Flush => {
                sqe.0[0] = nvm::FLUSH;
                DataTransfer::Nothing
            }
            Io::WriteZeroes { offset, len } => {
                self.set_range(&mut sqe, offset, u64::from(len))?;
                sqe.0[0] = nvm::WRITE_ZEROES;
                DataTransfer::Nothing
            }
            Io::Unmap { offset, len } => {
                let (lba, blocks) = self.blocks(offset, u64::from(len)).ok_or(Misuse::BadRange)?;
                sqe.0[0] = nvm::DATASET_MANAGEMENT;
                io::set_deallocate_one(&mut sqe);
                DataTransfer::Out(Payload::from_vec(io::encode_range(lba, blocks).to_vec()))
            }
            Io::Reserve(asked) => {
                let (sqe, data) = reserve::command(cid, self.nsid, asked);
                return Ok((sqe, DataTransfer::Out(data)));
            }
        };
        Ok((sqe, moves))
    }

    /// First block and number of blocks of a byte range; `None` if it is unaligned, empty or outside the namespace.
    #[inline]
    fn blocks(&self, offset: u64, len: u64) -> Option<(u64, u32)> {
        let mask = (1_u64 << self.block_shift) - 1;
        let end = offset.checked_add(len)?;
        let is_in_range = len > 0 && (offset | len) & mask == 0 && end <= self.geometry.size_bytes;
        is_in_range.then(|| (offset >> self.block_shift, (len >> self.block_shift) as u32))
    }

    /// Like `blocks`, for a command with a 16-bit block count.
    #[inline]
    fn set_range(&self, sqe: &mut Sqe, offset: u64, len: u64) -> Result<(), Misuse> {
        match self.blocks(offset, len) {
            Some((lba, blocks)) if u64::from(blocks) <= MAX_BLOCKS => {
                sqe.set_range(lba, blocks);
                Ok(())
            }
            _ => Err(Misuse::BadRange),
        }
    }

    #[inline]
    fn check_len(&self, len: u64) -> Result<(), Misuse> {
        if len > u64::from(self.geometry.max_io_bytes) { Err(Misuse::BadRange) } else { Ok(()) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connect,
    Authenticate,
    Ready,
    Disconnect,
    Closed,
}

/// The result of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlOutcome {
    /// Another command was sent.
    Wait,
    Ready,
    Closed,
}

/// The commands of an I/O queue that are not I/O. They are sent one at a time, all with the same command identifier.
pub struct IoControl {
    stage: Stage,
    qid: QueueId,
    cntlid: ControllerId,
    cid: CommandId,
    has_disconnect: bool,
    /// Present in the stage of that name.
    authentication: Option<Box<Authentication>>,
}

impl IoControl {
    /// Creates the state of queue `qid` (1 to `controller.io_queues`). `cid` is above the identifiers of I/Os, so it is
    /// also their maximum number.
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
        // 0's based: one entry more than I/Os, because a full queue leaves one entry free.
        host::connect(capsules, config, Some(self.cntlid), self.qid, self.cid.0, self.cid);
    }

    /// Processes the answer to the outstanding command.
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

    /// Sends Disconnect (NVMe base 2.1 §6.4); returns false if the controller does not support it.
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
