//! The in-memory file system behind an NFS export: a tree with POSIX access rights in which one or more files are
//! volumes.
//!
//! Ordinary files hold their data on the heap, up to a limit. A volume file's data are on its volume, and its
//! attributes are accessible without the tree, because every READ and WRITE needs them. Times are passed in, and
//! nothing here locks.

mod data;
mod directory;
mod inode;
mod names;
mod rights;
mod volume_file;

#[cfg(test)]
mod tests;

pub use data::TreeUnit;
pub use volume_file::VolumeFile;

use std::{collections::BTreeMap, sync::Arc};

use iotax_proto::{
    Allocation, Geometry, UnitError, UnitId,
    nfs::common::{Attributes, ExportId, FileError, FileId, MAX_IO_BYTES, MAX_NAME_LEN, OpenFile, Time},
    rpc::Credentials,
};

use data::{Data, Unfreed};
use directory::Directory;
use inode::{Content, Inode, Owner};

/// Number of an inode within its tree. Numbers are never reused, so stale references to a removed file find nothing.
type Number = u32;

const ROOT: Number = 1;
const FIRST_VOLUME: Number = 2;
const FIRST_ORDINARY: Number = 1 << 16;
/// Generation of the root and the volumes.
const LASTING: u32 = FileId::LASTING;

/// Bytes of heap counted per inode or directory entry, in addition to its name and data.
const INODE_COST: u64 = 256;
const ENTRY_COST: u64 = 160;

/// Number of chunks of removed files that are freed at a time, between other work.
const FREED_AT_ONCE: usize = 16;

/// Maximum number of links to a file.
const MAX_LINKS: u32 = 32_000;
/// Maximum number of directories above one that gets a subdirectory: RENAME must check all of them while the tree is
/// locked.
const MAX_DEPTH: u32 = 1024;

/// Limits on the size of a tree.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Heap for data, names and inodes of ordinary files, in bytes.
    pub bytes: u64,
    pub files: u64,
    /// Largest size of an ordinary file in bytes; holes count.
    pub file_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 1 << 30, files: 1 << 20, file_bytes: 1 << 40 }
    }
}

/// The files of one export.
#[derive(Debug)]
pub struct Tree {
    export: ExportId,
    /// Generation of ordinary files: handles from before a restart find none of them.
    generation: u32,
    limits: Limits,
    inodes: BTreeMap<Number, Inode>,
    next: Number,
    /// Bytes of heap, without those that are still to be freed.
    used_bytes: u64,
    unfreed: Unfreed,
    volumes: Vec<Arc<VolumeFile>>,
}

impl Tree {
    /// An empty tree whose root everyone may write to. `generation` must differ from one start of the server to the
    /// next, and must not be zero.
    pub fn new(export: ExportId, generation: u32, limits: Limits, time: Time) -> Self {
        assert!(generation != LASTING, "zero is the generation of what outlasts the server");
        let owner = Owner { mode: 0o1777, uid: 0, gid: 0 };
        let root = Inode::new(Content::Directory(Directory::new(ROOT)), owner, time);
        Self {
            export,
            generation,
            limits,
            inodes: BTreeMap::from([(ROOT, root)]),
            next: FIRST_ORDINARY,
            used_bytes: 0,
            unfreed: Unfreed::default(),
            volumes: Vec::new(),
        }
    }

    /// Adds a volume to the root directory. If the calls are in the same order at every start, the file handles are the
    /// same.
    pub fn add_volume(
        &mut self,
        name: &str,
        unit: UnitId,
        size_bytes: u64,
        read_only: bool,
        time: Time,
    ) -> Arc<VolumeFile> {
        assert!(!name.is_empty() && name.len() <= MAX_NAME_LEN && !name.contains('/'), "a name for a file");
        let number = FIRST_VOLUME + self.volumes.len() as Number;
        assert!(number < FIRST_ORDINARY, "fewer volumes than numbers kept for them");
        let file = Arc::new(VolumeFile::new(self.export, number, unit, size_bytes, read_only, time));
        let inode = Inode::new(Content::Volume(Arc::clone(&file)), Owner { mode: 0, uid: 0, gid: 0 }, time);
        self.inodes.insert(number, inode);
        let root = self.inodes.get_mut(&ROOT).and_then(Inode::directory_mut).expect("the root is a directory");
        assert!(root.insert(name.as_bytes(), number), "no other volume of that name");
        self.volumes.push(Arc::clone(&file));
        file
    }

    /// Opens a file for READ, WRITE or COMMIT. For volume files, `VolumeFile::open` does the same without the tree.
    pub fn open(&self, file: FileId, who: &Credentials, write: bool) -> Result<OpenFile, FileError> {
        let inode = self.inode(file)?;
        if let Content::Volume(volume) = &inode.content {
            return volume.open(who, write);
        }
        let attributes = self.attributes_of(file.number as Number, inode);
        rights::check_io(&attributes, who, write)?;
        let unit = TreeUnit { export: self.export, number: file.number as Number };
        Ok(OpenFile { unit: unit.into(), attributes, is_ordinary: true })
    }

    /// Geometry of an ordinary file.
    pub fn geometry(&self, number: Number) -> Option<Geometry> {
        self.inodes.get(&number)?.data()?;
        let max_io_bytes = MAX_IO_BYTES;
        Some(Geometry { size_bytes: self.limits.file_bytes, block_size: 1, max_io_bytes, read_only: false })
    }

    /// Reads up to `len` bytes of an ordinary file; fewer at its end.
    pub fn read(&mut self, number: Number, offset: u64, len: u32, time: Time) -> Result<Vec<u8>, UnitError> {
        let inode = self.inodes.get_mut(&number).ok_or(UnitError::NoUnit)?;
        inode.accessed = time;
        Ok(inode.data().ok_or(UnitError::NoUnit)?.read(offset, len))
    }

    /// Writes to an ordinary file, all or nothing.
    pub fn write(&mut self, number: Number, offset: u64, bytes: &[u8], time: Time) -> Result<(), UnitError> {
        self.grow(number, offset, bytes.len() as u64, time, |data, _| data.write(offset, bytes))
    }

    /// Allocates `offset..offset + len` of an ordinary file, and extends it if it is shorter.
    pub fn allocate(&mut self, number: Number, offset: u64, len: u64, time: Time) -> Result<(), UnitError> {
        self.grow(number, offset, len, time, |data, end| data.allocate(offset, end))
    }

    /// Charges an ordinary file for `offset..offset + len`, and calls `change` with its data and the end of the range.
    fn grow(
        &mut self,
        number: Number,
        offset: u64,
        len: u64,
        time: Time,
        change: impl FnOnce(&mut Data, u64),
    ) -> Result<(), UnitError> {
        let end = offset.checked_add(len).filter(|end| *end <= self.limits.file_bytes).ok_or(UnitError::OutOfRange)?;
        if len > self.limits.bytes {
            return Err(UnitError::NoSpace);
        }
        let inode = self.inodes.get_mut(&number).ok_or(UnitError::NoUnit)?;
        let data = inode.data_mut().ok_or(UnitError::NoUnit)?;
        let growth = data.growth(offset, end);
        if !make_room(self.limits.bytes, self.used_bytes + growth, &mut self.unfreed) {
            return Err(UnitError::NoSpace);
        }
        change(data, end);
        self.used_bytes += growth;
        inode.touch(time);
        Ok(())
    }

    /// Makes `offset..offset + len` of an ordinary file a hole; its size does not change.
    pub fn punch(&mut self, number: Number, offset: u64, len: u64, time: Time) -> Result<(), UnitError> {
        let end = offset.checked_add(len).ok_or(UnitError::OutOfRange)?;
        let inode = self.inodes.get_mut(&number).ok_or(UnitError::NoUnit)?;
        let data = inode.data_mut().ok_or(UnitError::NoUnit)?;
        let before = data.used();
        let cut = data.punch(offset, end);
        self.used_bytes -= before - data.used();
        self.unfreed.add(cut);
        inode.touch(time);
        Ok(())
    }

    /// Whether an ordinary file's bytes from `offset` on are allocated.
    pub fn allocation(&self, number: Number, offset: u64) -> Option<Allocation> {
        Some(self.inodes.get(&number)?.data()?.allocation(offset))
    }

    /// Whether data of removed or truncated files remain: then call `free_some` repeatedly.
    pub fn has_remains(&self) -> bool {
        !self.unfreed.is_empty()
    }

    /// Frees a bounded part of these data, about 1 MiB.
    pub fn free_some(&mut self) {
        for _ in 0..FREED_AT_ONCE {
            self.unfreed.free_one();
        }
    }

    /// Bytes of heap that count against the limit. Data that are still to be freed do not: they are freed when their
    /// space is needed.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    fn inode(&self, file: FileId) -> Result<&Inode, FileError> {
        self.inodes.get(&self.number(file)?).ok_or(FileError::Stale)
    }

    fn inode_mut(&mut self, file: FileId) -> Result<&mut Inode, FileError> {
        let number = self.number(file)?;
        self.inodes.get_mut(&number).ok_or(FileError::Stale)
    }

    fn number(&self, file: FileId) -> Result<Number, FileError> {
        let number = Number::try_from(file.number).map_err(|_| FileError::BadHandle)?;
        if file.generation == self.generation_of(number) { Ok(number) } else { Err(FileError::Stale) }
    }

    fn id(&self, number: Number) -> FileId {
        FileId { number: u64::from(number), generation: self.generation_of(number) }
    }

    fn generation_of(&self, number: Number) -> u32 {
        if number < FIRST_ORDINARY { LASTING } else { self.generation }
    }

    fn attributes_of(&self, number: Number, inode: &Inode) -> Attributes {
        inode.attributes(self.export, number)
    }

    /// Counts `inodes` inodes and `more` bytes against the limits, or fails if there is no space.
    fn charge(&mut self, inodes: u64, more: u64) -> Result<(), FileError> {
        let bytes = self.used_bytes + inodes * INODE_COST + more;
        let is_one_too_many = self.inodes.len() as u64 + inodes > self.limits.files;
        if is_one_too_many || !make_room(self.limits.bytes, bytes, &mut self.unfreed) {
            return Err(FileError::NoSpace);
        }
        self.used_bytes = bytes;
        Ok(())
    }
}

/// Frees as many remaining data as necessary for `bytes` in use; false if `bytes` exceed the limit. The work is
/// bounded, because the growth of one call is.
fn make_room(limit: u64, bytes: u64, unfreed: &mut Unfreed) -> bool {
    while bytes + unfreed.used() > limit && !unfreed.is_empty() {
        unfreed.free_one();
    }
    bytes <= limit
}

fn entry_cost(name: &[u8]) -> u64 {
    ENTRY_COST + name.len() as u64
}
