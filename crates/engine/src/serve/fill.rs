//! The data pattern over a whole volume, so that reads can be verified from the first on.

use std::{fs::File, os::unix::fs::FileExt as _};

use iotax_node::{
    failure::{Failure, FailureKind},
    load::{
        Content,
        pattern::{Pool, Stamp},
        verify::classify,
    },
    volume,
};
use iotax_runtime::{disk::Disk, memory::SharedRegion};

use super::volumes::{OpenVolume, Store};
use crate::failure;

const PIECE_BYTES: u64 = 1 << 20;

pub(super) fn fill(volume: &OpenVolume) -> Result<(), Failure> {
    let pool = Pool::default();
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

/// Refuses to write over what iotax did not write.
fn fill_disk(disk: &Disk, pool: &Pool, size_bytes: u64, run: u64) -> Result<(), Failure> {
    let place = disk.path().display().to_string();
    let fail = |error: std::io::Error| failure::io(&error, &place);
    // Through the page cache: buffers need no alignment.
    let file = File::options().read(true).write(true).open(disk.path()).map_err(fail)?;
    let mut piece = vec![0; PIECE_BYTES as usize];
    let pieces = || (0..size_bytes).step_by(PIECE_BYTES as usize);
    for offset in pieces() {
        let piece = &mut piece[..PIECE_BYTES.min(size_bytes - offset) as usize];
        file.read_exact_at(piece, offset).map_err(fail)?;
        if let Content::Foreign { at, what } = classify(pool, piece, offset) {
            let message = format!("holds {what} at byte {at}: name another file, or remove this one");
            return Err(Failure::new(FailureKind::ForeignData, message, place.clone()));
        }
    }
    for offset in pieces() {
        let piece = &mut piece[..PIECE_BYTES.min(size_bytes - offset) as usize];
        let blocks = piece.len() - piece.len() % 512;
        pool.fill(&mut piece[..blocks], offset, Stamp { run, writer: 0, sequence: 0 });
        file.write_all_at(&piece[..blocks], offset).map_err(fail)?;
    }
    file.sync_data().map_err(fail)
}
