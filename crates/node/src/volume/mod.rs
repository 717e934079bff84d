//! Volumes: the storage behind units, the same for every protocol.
//!
//! - [`VolumeSpec`] describes a volume to all threads of a server; [`Volumes`] is one thread's view of them.
//! - [`Operations`] carries out the operations of one connection: at once in memory, through the driver on a disk,
//!   later if media are modelled or a delay is configured. README.md beside this file describes what is staged and what
//!   is atomic.

mod buffers;
mod claims;
mod disk;
mod disks;
mod long;
mod memory;
mod model;
mod modelled;
mod operations;
mod state;
mod units;

use std::{rc::Rc, sync::Arc};

use iotax_proto::Region;

use crate::{
    node::DiskId,
    pattern::{BLOCK_BYTES, Pool, Stamp},
};

pub use buffers::{Allocate, Buffers};
pub(crate) use claims::Claims;
pub use disks::{DiskRequest, Disks};
pub use model::{Access, Collecting, MediaModel, MediaQueue, Parity, STRIPE_BYTES, Shape, Spindles};
pub use modelled::{ModelledMedia, ModelledWork};
pub use operations::Operations;
pub use units::{Volumes, unit_of};

/// Maximum size of one I/O over any protocol: NFSv3's usual maximum, and more than is usual for block protocols.
pub const MAX_IO_BYTES: u32 = 1 << 20;
/// Block size of the block protocols, unless the media's is larger.
pub const BLOCK_SIZE: u32 = 512;

/// A volume as every thread of a server knows it.
#[derive(Clone, Debug)]
pub struct VolumeSpec {
    pub name: String,
    pub size_bytes: u64,
    pub media: Media,
    /// Makes memory behave like other media.
    pub model: Option<ModelledMedia>,
    /// A known cost added to each operation: a delay, and CPU time.
    pub delay_ns: u64,
    pub burn_ns: u64,
    /// The claims on its blocks.
    pub(crate) claims: Arc<Claims>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    Memory,
    /// A file or a block device that the driver was given, and its block size in bytes.
    Disk {
        disk: DiskId,
        block_size: u32,
    },
    /// Reads return zeros, writes are dropped.
    Null,
}

impl VolumeSpec {
    pub fn new(name: impl Into<String>, size_bytes: u64, media: Media) -> Self {
        Self { name: name.into(), size_bytes, media, model: None, delay_ns: 0, burn_ns: 0, claims: Claims::new() }
    }
}

/// Returns a thread's own handle of the memory of volume `index`, which threads share.
pub type RegionOf<'a> = dyn FnMut(usize) -> Rc<dyn Region> + 'a;

/// Spends this many nanoseconds of CPU; the engine implements it.
pub type Burn = Rc<dyn Fn(u64)>;

/// Writes the pattern over `offset..offset + len` of a memory volume, as writer 0 of `run`. Threads may share the work.
pub fn fill(region: &dyn Region, pool: &Pool, offset: u64, len: u64, run: u64) {
    const PIECE: usize = 64 << 10;
    let mut piece = vec![0; PIECE];
    let end = (offset + len) - (offset + len) % BLOCK_BYTES as u64;
    for at in (offset..end).step_by(PIECE) {
        let piece = &mut piece[..PIECE.min((end - at) as usize)];
        pool.fill(piece, at, Stamp { run, writer: 0, sequence: 0 });
        region.copy_in(at as usize, piece);
    }
}
