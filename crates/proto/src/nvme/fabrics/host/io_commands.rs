//! I/Os as commands of one namespace.

use crate::{
    Geometry, Io, Misuse, Payload,
    nvme::{
        CommandId, Sqe,
        command::nvm,
        identify::{ONCS_DATASET_MANAGEMENT, ONCS_RESERVATIONS, ONCS_WRITE_ZEROES},
        io, reserve,
    },
};

use super::ControllerInfo;

/// Blocks of one command: NLB has 16 bits and is 0's based.
const MAX_BLOCKS: u64 = 1 << 16;

/// The namespace that a queue's I/Os are for.
#[derive(Clone, Debug)]
pub struct IoCommands {
    nsid: u32,
    block_shift: u8,
    optional_commands: u16,
    geometry: Geometry,
}

/// What a command moves between host and controller.
#[derive(Debug)]
pub enum DataTransfer {
    Nothing,
    /// So many bytes to the host.
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

    /// The controller knows the command.
    pub fn is_supported(&self, io: &Io) -> bool {
        let optional = match io {
            Io::Read { .. } | Io::Write { .. } | Io::Flush => return true,
            Io::WriteZeroes { .. } => ONCS_WRITE_ZEROES,
            Io::Unmap { .. } => ONCS_DATASET_MANAGEMENT,
            Io::Reserve(_) => ONCS_RESERVATIONS,
        };
        self.optional_commands & optional != 0
    }

    /// The command of an I/O, but for where its data are, which its transport says.
    #[allow(clippy::inline_always)] // 50 instructions of a read; whether `inline` is heeded hangs on what else is compiled.
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

    /// First block and count of a byte range; `None` where it is unaligned, empty or outside the namespace.
    #[inline]
    fn blocks(&self, offset: u64, len: u64) -> Option<(u64, u32)> {
        let mask = (1_u64 << self.block_shift) - 1;
        let end = offset.checked_add(len)?;
        let is_in_range = len > 0 && (offset | len) & mask == 0 && end <= self.geometry.size_bytes;
        is_in_range.then(|| (offset >> self.block_shift, (len >> self.block_shift) as u32))
    }

    /// As `blocks`, for a command whose block count has 16 bits.
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
