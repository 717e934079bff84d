//! Fills a whole volume with the data pattern, so that reads can be verified from the start.

use std::os::unix::fs::FileExt as _;

use iotax_node::{
    failure::Failure,
    pattern::{Pool, Stamp},
    volume,
};
use iotax_runtime::{disk::Disk, memory::SharedRegion};

use super::volumes::{OpenVolume, Store};
use crate::failure;

const PIECE_BYTES: u64 = 1 << 20;

pub(super) fn fill(volume: &OpenVolume) -> Result<(), Failure> {
    let pool = Pool::new(volume.spec.data.reduction()?);
    match &volume.store {
        Store::Memory(memory) => fill_memory(memory, &pool, volume.size_bytes(), volume.spec.seed),
        Store::Disk(disk) => fill_disk(disk, &pool, volume.size_bytes(), volume.spec.seed)?,
        Store::Null => {}
    }
    Ok(())
}

/// All cores share the work.
fn fill_memory(memory: &SharedRegion, pool: &Pool, size_bytes: u64, run: u64) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let share = size_bytes.div_ceil(threads).next_multiple_of(PIECE_BYTES);
    std::thread::scope(|scope| {
        for start in (0..size_bytes).step_by(share as usize) {
            let len = share.min(size_bytes - start);
            scope.spawn(move || volume::fill(memory, pool, start, len, run));
        }
    });
}

/// The contents were judged when the disk was opened, and it has been held since.
fn fill_disk(disk: &Disk, pool: &Pool, size_bytes: u64, run: u64) -> Result<(), Failure> {
    let place = disk.path().display().to_string();
    let fail = |error: std::io::Error| failure::io(&error, &place);
    let file = disk.buffered().map_err(fail)?;
    let mut piece = vec![0; PIECE_BYTES as usize];
    for offset in (0..size_bytes).step_by(PIECE_BYTES as usize) {
        let piece = &mut piece[..PIECE_BYTES.min(size_bytes - offset) as usize];
        let blocks = piece.len() - piece.len() % 512;
        pool.fill(&mut piece[..blocks], offset, Stamp { run, writer: 0, sequence: 0 });
        file.write_all_at(&piece[..blocks], offset).map_err(fail)?;
    }
    file.sync_data().map_err(fail)
}
