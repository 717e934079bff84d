//! An I/O as a command.

use super::{
    CdbBytes, persistent_reserve_out, read, synchronize_cache_10, unmap, unmap_parameters, write, write_same_16,
};
use crate::{Geometry, Io, Misuse, Payload};

#[derive(Debug)]
pub struct Job {
    pub cdb: CdbBytes,
    pub read_len: u32,
    pub data: Option<Payload>,
}

impl Job {
    /// `zero_block`: a block of zeros, for WRITE SAME.
    pub fn new(io: Io, geometry: &Geometry, zero_block: &Payload) -> Result<Self, Misuse> {
        let block_size = geometry.block_size;
        let blocks = |offset: u64, len: u64| {
            let end = offset.checked_add(len).ok_or(Misuse::BadRange)?;
            let aligned = (offset | len).is_multiple_of(block_size.into());
            if len == 0 || !aligned || end > geometry.size_bytes {
                return Err(Misuse::BadRange);
            }
            let count = u32::try_from(len / u64::from(block_size)).map_err(|_| Misuse::BadRange)?;
            Ok((offset / u64::from(block_size), count))
        };
        let fits = |len: usize| if len <= geometry.max_io_bytes as usize { Ok(()) } else { Err(Misuse::BadRange) };
        Ok(match io {
            Io::Read { offset, len } => {
                fits(len as usize)?;
                let (lba, count) = blocks(offset, len.into())?;
                Self { cdb: read(lba, count), read_len: len, data: None }
            }
            Io::Write { offset, data, durable } => {
                fits(data.len())?;
                let (lba, count) = blocks(offset, data.len() as u64)?;
                Self { cdb: write(lba, count, durable), read_len: 0, data: Some(data) }
            }
            Io::Flush => Self { cdb: synchronize_cache_10(), read_len: 0, data: None },
            Io::WriteZeroes { offset, len } => {
                let (lba, count) = blocks(offset, len.into())?;
                Self { cdb: write_same_16(lba, count, false), read_len: 0, data: Some(zero_block.clone()) }
            }
            Io::Unmap { offset, len } => {
                let range = blocks(offset, len.into())?;
                let list = unmap_parameters(&[range]);
                Self { cdb: unmap(list.len() as u16), read_len: 0, data: Some(Payload::from_vec(list)) }
            }
            Io::Reserve(reserve) => {
                let (cdb, list) = persistent_reserve_out(reserve);
                Self { cdb, read_len: 0, data: Some(Payload::from_vec(list)) }
            }
        })
    }
}
