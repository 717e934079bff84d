//! One thread's view of a server's volumes, by the numbers that protocols use for them.

use std::{
    cell::Cell,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use iotax_proto::{Geometry, Instant, Region, UnitError, UnitId};

use super::{BLOCK_SIZE, Burn, MAX_IO_BYTES, Media, RegionOf, VolumeSpec, claims::Claimant};
use crate::sync::AtomicBool;

/// A unit that may not be written, beside the writable unit of the same volume.
const READ_ONLY: u64 = 1 << 32;
/// Bytes of memory that a thread searches for zeros at most at one instant, and per second: it takes a few
/// milliseconds.
const LOOK_BYTES: u64 = 16 << 20;
/// What each further command may still search, so that its answer is useful.
const LOOK_LEAST_BYTES: u64 = 16 << 10;

/// The unit that an export makes of volume `index`.
pub fn unit_of(index: usize, read_only: bool) -> UnitId {
    UnitId(index as u64 | if read_only { READ_ONLY } else { 0 })
}

pub struct Volumes {
    pub(super) all: Vec<Volume>,
    burn: Option<Burn>,
    /// Set when a claim is granted that an operation of this thread waits for.
    granted: Arc<AtomicBool>,
    /// Bytes of memory searched for zeros, and when.
    looked: Cell<(Instant, u64)>,
}

pub(super) struct Volume {
    pub(super) spec: VolumeSpec,
    pub(super) store: Store,
    pub(super) claimant: Rc<Claimant>,
    /// Whether its operations complete only when its media or its delay allow it.
    pub(super) tells_later: bool,
    geometry: Geometry,
}

pub(super) enum Store {
    Memory(Rc<dyn Region>),
    Disk,
    /// Zeros for reads.
    Null(Rc<dyn Region>),
}

impl Volumes {
    pub fn new(specs: &[VolumeSpec], region_of: &mut RegionOf<'_>, burn: Option<Burn>) -> Self {
        let granted = Arc::new(AtomicBool::new(false));
        let volume = |(index, spec): (usize, &VolumeSpec)| {
            let block_size = match spec.media {
                Media::Disk { block_size, .. } => block_size.max(BLOCK_SIZE),
                Media::Memory | Media::Null => BLOCK_SIZE,
            };
            let store = match spec.media {
                Media::Memory => {
                    let region = region_of(index);
                    assert!(region.len() as u64 >= spec.size_bytes, "a region smaller than its volume");
                    Store::Memory(region)
                }
                Media::Disk { .. } => Store::Disk,
                Media::Null => Store::Null(Rc::new(Zeros)),
            };
            let size_bytes = spec.size_bytes - spec.size_bytes % u64::from(block_size);
            let geometry = Geometry { size_bytes, block_size, max_io_bytes: MAX_IO_BYTES, read_only: false };
            let claimant = Claimant::new(Arc::clone(&spec.claims), Arc::clone(&granted));
            let tells_later = spec.model.is_some() || spec.delay_ns > 0;
            Volume { spec: spec.clone(), store, claimant, tells_later, geometry }
        };
        Self { all: specs.iter().enumerate().map(volume).collect(), burn, granted, looked: Cell::default() }
    }

    pub fn geometry(&self, unit: UnitId) -> Option<Geometry> {
        let (index, read_only) = split(unit);
        Some(Geometry { read_only, ..self.all.get(index)?.geometry.clone() })
    }

    /// Whether a claim was granted since the last call. If so, look at the operations of `Disks::take_barred`.
    #[inline]
    pub fn take_granted(&self) -> bool {
        self.granted.load(Ordering::Relaxed) && self.granted.swap(false, Ordering::SeqCst)
    }

    /// The volume behind a unit. Fails if `offset..offset + len` is not inside it, or if it `writes` and the unit is
    /// read-only.
    pub(super) fn find(&self, unit: UnitId, offset: u64, len: u64, writes: bool) -> Result<usize, UnitError> {
        let (index, read_only) = split(unit);
        let volume = self.all.get(index).ok_or(UnitError::NoUnit)?;
        if writes && read_only {
            return Err(UnitError::ReadOnly);
        }
        let inside = offset.checked_add(len).is_some_and(|end| end <= volume.geometry.size_bytes);
        if inside { Ok(index) } else { Err(UnitError::OutOfRange) }
    }

    /// How many bytes of memory a command may search for zeros now.
    pub(super) fn may_look(&self, now: Instant) -> u64 {
        let (at, looked) = self.looked.get();
        let regained = u128::from(LOOK_BYTES) * now.since(at).as_nanos() / Duration::from_secs(1).as_nanos();
        // A time too short for one byte is not lost: it adds up.
        if regained > 0 {
            self.looked.set((now, looked.saturating_sub(u64::try_from(regained).unwrap_or(u64::MAX))));
        }
        LOOK_BYTES.saturating_sub(self.looked.get().1).max(LOOK_LEAST_BYTES)
    }

    /// Records that `bytes` were searched at the instant of the last `may_look`.
    pub(super) fn looked(&self, bytes: u64) {
        let (at, before) = self.looked.get();
        self.looked.set((at, (before + bytes).min(LOOK_BYTES)));
    }

    #[inline]
    pub(super) fn burn(&self, volume: usize) {
        let cost_ns = self.all[volume].spec.burn_ns;
        if cost_ns > 0
            && let Some(burn) = &self.burn
        {
            burn(cost_ns);
        }
    }
}

impl Volume {
    /// Block size of the disk, bytes; 1 for other media.
    pub(super) fn disk_block_size(&self) -> u32 {
        match self.spec.media {
            Media::Disk { block_size, .. } => block_size,
            Media::Memory | Media::Null => 1,
        }
    }
}

fn split(unit: UnitId) -> (usize, bool) {
    ((unit.0 & !READ_ONLY) as usize, unit.0 & READ_ONLY != 0)
}

/// The data of a null volume.
struct Zeros;

static ZEROS: [u8; MAX_IO_BYTES as usize] = [0; MAX_IO_BYTES as usize];

impl Region for Zeros {
    fn len(&self) -> usize {
        ZEROS.len()
    }

    fn copy_out(&self, _: usize, into: &mut [u8]) {
        into.fill(0);
    }

    fn copy_in(&self, _: usize, _: &[u8]) {}

    fn address(&self, offset: usize) -> Option<*const u8> {
        Some(ZEROS[offset..].as_ptr())
    }
}

impl std::fmt::Debug for Volumes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.all.iter().map(|volume| &volume.spec)).finish()
    }
}
