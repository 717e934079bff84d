//! The in-memory file system behind an NFS export: a tree with the rights of POSIX in which one or more files are volumes.
//!
//! Ordinary files hold their data on the heap, up to a limit; a volume file's data are on its volume, and its attributes
//! can be had without the tree, since every READ and WRITE needs them. Times are arguments, nothing here locks.

mod data;
mod directory;
mod inode;
mod names;
mod rights;
mod unit;
mod volume_file;

#[cfg(test)]
mod tests;

pub use unit::TreeUnit;
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

/// Number of an inode within its tree. Numbers are not used again, so that whatever still names a removed file finds nothing.
type Number = u32;

const ROOT: Number = 1;
const FIRST_VOLUME: Number = 2;
const FIRST_ORDINARY: Number = 1 << 16;
/// Generation of the root and the volumes.
const LASTING: u32 = FileId::LASTING;

/// Heap that an inode or a directory entry is charged with besides its name and data, in bytes.
const INODE_COST: u64 = 256;
const ENTRY_COST: u64 = 160;

/// Chunks of removed files that are freed between other work.
const FREED_AT_ONCE: usize = 16;

/// Most links to a file.
const MAX_LINKS: u32 = 32_000;
/// Most directories above one that gets another below it: what RENAME must look at while everybody waits for the tree.
const MAX_DEPTH: u32 = 1024;

/// What clients may make a tree grow to.
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
    /// Of ordinary files: handles from before a restart lead to none of them.
    generation: u32,
    limits: Limits,
    inodes: BTreeMap<Number, Inode>,
    next: Number,
    /// Of heap, without what remains of files.
    used_bytes: u64,
    unfreed: Unfreed,
    volumes: Vec<Arc<VolumeFile>>,
}

impl Tree {
    /// An empty tree whose root everybody may write to. `generation` differs from one start of the server to the next and
    /// is not zero.
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

    /// Puts a volume into the root directory. Called in the same order at every start, it gives files of the same handle.
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

    /// Finds a file for READ, WRITE or COMMIT. Volume files answer the same themselves, see `VolumeFile::open`.
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

    /// Of an ordinary file.
    pub fn geometry(&self, number: Number) -> Option<Geometry> {
        self.inodes.get(&number)?.data()?;
        let max_io_bytes = MAX_IO_BYTES;
        Some(Geometry { size_bytes: self.limits.file_bytes, block_size: 1, max_io_bytes, read_only: false })
    }

    /// Up to `len` bytes of an ordinary file; fewer at its end.
    pub fn read(&mut self, number: Number, offset: u64, len: u32, time: Time) -> Result<Vec<u8>, UnitError> {
        let inode = self.inodes.get_mut(&number).ok_or(UnitError::NoUnit)?;
        inode.accessed = time;
        Ok(inode.data().ok_or(UnitError::NoUnit)?.read(offset, len))
    }

    /// Writes to an ordinary file, all or nothing.
    pub fn write(&mut self, number: Number, offset: u64, bytes: &[u8], time: Time) -> Result<(), UnitError> {
        self.grow(number, offset, bytes.len() as u64, time, |data, _| data.write(offset, bytes))
    }

    /// Gives an ordinary file room for `offset..offset + len`, and makes it as long as that.
    pub fn allocate(&mut self, number: Number, offset: u64, len: u64, time: Time) -> Result<(), UnitError> {
        self.grow(number, offset, len, time, |data, end| data.allocate(offset, end))
    }

    /// Charges an ordinary file with what `offset..offset + len` takes, and calls `change` with its data and the end of that.
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

    /// Makes `offset..offset + len` of an ordinary file a hole; it stays as long as it is.
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

    /// How an ordinary file's bytes from `offset` on are held.
    pub fn allocation(&self, number: Number, offset: u64) -> Option<Allocation> {
        Some(self.inodes.get(&number)?.data()?.allocation(offset))
    }

    /// Whether something remains of files that were removed or cut: `free_some` is to be called again and again.
    pub fn has_remains(&self) -> bool {
        !self.unfreed.is_empty()
    }

    /// Frees a bounded part of that, about 1 MiB.
    pub fn free_some(&mut self) {
        for _ in 0..FREED_AT_ONCE {
            self.unfreed.free_one();
        }
    }

    /// Bytes of heap that count against the limit, but for what remains of files: that is freed where there is no other room.
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

    /// Makes room for an inode, an entry and `more` bytes, or says that there is none.
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

/// Frees as much of what remains as it takes to have `bytes` in use; false where that is too much. One call's growth is bounded,
/// and so is this.
fn make_room(limit: u64, bytes: u64, unfreed: &mut Unfreed) -> bool {
    while bytes + unfreed.used() > limit && !unfreed.is_empty() {
        unfreed.free_one();
    }
    bytes <= limit
}

fn entry_cost(name: &[u8]) -> u64 {
    ENTRY_COST + name.len() as u64
}
