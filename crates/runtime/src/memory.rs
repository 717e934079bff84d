//! Memory as a region: shared by threads, by processes, and with the kernel, which sends and receives in place.

use std::{
    fmt, fs,
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
};

use iotax_proto::Region;
use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create},
    mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap},
};

#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    #[error(
        "a memory region of {wanted_bytes} bytes does not fit: {available_bytes} bytes are available; choose a smaller size"
    )]
    NotEnough { wanted_bytes: u64, available_bytes: u64 },
    #[error("a memory region cannot be empty")]
    Empty,
    #[error("{path} cannot be mapped: {source}")]
    Map { path: PathBuf, source: io::Error },
    #[error("the system refused a memory region of {wanted_bytes} bytes: {source}")]
    System { wanted_bytes: u64, source: io::Error },
}

/// Mapped memory. Clones share it, and it is unmapped with the last one. Page-aligned, so that direct I/O may use it.
#[derive(Clone)]
pub struct SharedRegion(Arc<Mapping>);

struct Mapping {
    base: *mut u8,
    len: usize,
    writable: bool,
    /// The memory's file, which other processes may map.
    file: Option<OwnedFd>,
}

// SAFETY: the mapping is plain memory that lives until the last handle is dropped. It is accessed only by copies
// through raw pointers, never by references, so threads (and other processes) that overlap see torn bytes at worst, as
// on any shared volume.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl SharedRegion {
    /// Zeroed memory that another process of this user may map by `path`. With `prefault`, all pages exist before this
    /// returns; otherwise they are created when first touched. Huge pages are used if enough of them are reserved
    /// (`vm.nr_hugepages`) and they fit the length: a random I/O misses the TLB on each 4 KiB page, but rarely on a 2
    /// MiB page.
    pub fn new(name: &str, len: usize, prefault: bool) -> Result<Self, MemoryError> {
        if len > 0
            && len.is_multiple_of(HUGE_PAGE_BYTES)
            && let Ok(region) = Self::in_file(name, len, prefault, MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB)
        {
            return Ok(region);
        }
        Self::plain(name, len, prefault)
    }

    /// As `new`, but never in huge pages: files of huge pages can be mapped, but not read and written.
    pub fn plain(name: &str, len: usize, prefault: bool) -> Result<Self, MemoryError> {
        check_available(len)?;
        Self::in_file(name, len, prefault, MemfdFlags::empty())
            .map_err(|error| MemoryError::System { wanted_bytes: len as u64, source: error.into() })
    }

    fn in_file(name: &str, len: usize, prefault: bool, pages: MemfdFlags) -> rustix::io::Result<Self> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | pages)?;
        ftruncate(&file, len as u64)?;
        // Processes that map it may rely on its size: if a file shrinks under a mapping, a process that reads there is
        // killed.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let region = Self::map(file, len, true)?;
        region.prepare(prefault)?;
        Ok(region)
    }

    /// Zeroed memory of this process only, for buffers.
    pub fn anonymous(len: usize, prefault: bool) -> Result<Self, MemoryError> {
        check_available(len)?;
        let system = |error: rustix::io::Errno| MemoryError::System { wanted_bytes: len as u64, source: error.into() };
        // SAFETY: a new mapping at an address of the system's choice overlaps nothing.
        let base =
            unsafe { mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) }
                .map_err(system)?;
        let region = Self(Arc::new(Mapping { base: base.cast(), len, writable: true, file: None }));
        region.prepare(prefault).map_err(system)?;
        Ok(region)
    }

    /// Maps another process's region by its `path`. A file that may shrink is refused: reading the missing part would
    /// kill the process.
    pub fn open(path: &Path, writable: bool) -> Result<Self, MemoryError> {
        let map_error = |source: io::Error| MemoryError::Map { path: path.to_owned(), source };
        let file = File::options().read(true).write(writable).open(path).map_err(map_error)?;
        if !fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
            return Err(map_error(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it may shrink while it is mapped; a memory file must be sealed against that (F_SEAL_SHRINK)",
            )));
        }
        let len = fstat(&file).map_err(|error| map_error(error.into()))?.st_size;
        let len = usize::try_from(len).unwrap_or(0);
        if len == 0 {
            return Err(map_error(io::Error::new(io::ErrorKind::InvalidInput, "it has no bytes to map")));
        }
        Self::map(file.into(), len, writable).map_err(|error| map_error(error.into()))
    }

    /// The path by which another process of this user reaches the memory while this process lives.
    pub fn path(&self) -> Option<PathBuf> {
        let file = self.0.file.as_ref()?;
        Some(PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())))
    }

    /// This memory as protocols use it; each thread has its own handle.
    pub fn region(&self) -> Rc<dyn Region> {
        Rc::new(self.clone())
    }

    fn map(file: OwnedFd, len: usize, writable: bool) -> rustix::io::Result<Self> {
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address of the system's choice overlaps nothing.
        let base = unsafe { mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, file.as_fd(), 0) }?;
        Ok(Self(Arc::new(Mapping { base: base.cast(), len, writable, file: Some(file) })))
    }

    fn prepare(&self, prefault: bool) -> rustix::io::Result<()> {
        let base = self.0.base.cast();
        // SAFETY: the range is this mapping's, and the advice changes no bytes. Kernels without huge pages refuse,
        // which does no harm.
        let _ = unsafe { madvise(base, self.0.len, Advice::LinuxHugepage) };
        if prefault { self.0.populate() } else { Ok(()) }
    }
}

impl Region for SharedRegion {
    fn len(&self) -> usize {
        self.0.len
    }

    #[inline]
    fn copy_out(&self, offset: usize, into: &mut [u8]) {
        self.0.check(offset, into.len());
        // SAFETY: the range lies inside the mapping, and `into` is other memory: no reference into the mapping can
        // exist.
        unsafe { self.0.base.add(offset).copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
    }

    #[inline]
    fn copy_in(&self, offset: usize, from: &[u8]) {
        self.0.check(offset, from.len());
        assert!(self.0.writable, "the region is mapped to be read");
        // SAFETY: the range lies inside the mapping, which is writable; `from` is other memory, as above.
        unsafe { self.0.base.add(offset).copy_from_nonoverlapping(from.as_ptr(), from.len()) };
    }

    #[inline]
    fn address(&self, offset: usize) -> Option<*const u8> {
        self.0.check(offset, 0);
        // SAFETY: the offset lies inside the mapping, or just behind it.
        Some(unsafe { self.0.base.add(offset) })
    }
}

const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Smaller shares are not worth a thread.
const POPULATE_SHARE_BYTES: usize = 32 << 20;

impl Mapping {
    /// Creates all pages. The kernel clears them, which takes longer than anything else before a server is ready, so
    /// all cores share the work.
    fn populate(&self) -> rustix::io::Result<()> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let share = self.len.div_ceil(cores).max(POPULATE_SHARE_BYTES).next_multiple_of(POPULATE_SHARE_BYTES);
        let populate = |start: usize| {
            let len = share.min(self.len - start);
            // SAFETY: the range is this mapping's, and populating it changes no bytes.
            unsafe { madvise(self.base.add(start).cast(), len, Advice::LinuxPopulateWrite) }
        };
        std::thread::scope(|scope| {
            let others: Vec<_> =
                (share..self.len).step_by(share).map(|start| scope.spawn(move || populate(start))).collect();
            let results = others.into_iter().map(|thread| thread.join().unwrap_or(Err(rustix::io::Errno::NOMEM)));
            results.fold(populate(0), rustix::io::Result::and)
        })
    }

    #[inline]
    fn check(&self, offset: usize, len: usize) {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "range outside the region");
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the last handle; base and length are those of the mmap call. If it fails, the memory stays
        // mapped.
        let _ = unsafe { munmap(self.base.cast(), self.len) };
    }
}

impl fmt::Debug for SharedRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedRegion({} bytes)", self.0.len)
    }
}

/// Checks that there is enough memory: the system grants it freely, and kills processes when they touch more than there
/// is.
fn check_available(len: usize) -> Result<(), MemoryError> {
    if len == 0 {
        return Err(MemoryError::Empty);
    }
    let available_bytes = available_bytes();
    if len as u64 > available_bytes {
        return Err(MemoryError::NotEnough { wanted_bytes: len as u64, available_bytes });
    }
    Ok(())
}

/// Bytes that the system, and this process's control group if it has one, can still provide.
pub fn available_bytes() -> u64 {
    let system = fs::read_to_string("/proc/meminfo").ok().and_then(|text| parse_available(&text)).unwrap_or(u64::MAX);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    system.min(left_in_groups(&groups, Path::new("/sys/fs/cgroup")))
}

/// The minimum that this process's control group and those above it leave (cgroups(7); version 2, and the memory
/// controller of version 1). A group's files may be hidden, as in a container that sees its own group as the root.
fn left_in_groups(groups: &str, root: &Path) -> u64 {
    let read = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let left = |hierarchy: &Path, group: &str, limit: &str, used: &str| {
        let group = hierarchy.join(group.trim_start_matches('/'));
        let group_and_above = group.ancestors().take_while(|path| path.starts_with(hierarchy));
        let each =
            group_and_above.filter_map(|path| Some(read(&path.join(limit))?.saturating_sub(read(&path.join(used))?)));
        each.min().unwrap_or(u64::MAX)
    };
    let lines = groups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, group) = rest.split_once(':')?;
        match controllers {
            "" => Some(left(root, group, "memory.max", "memory.current")),
            _ if controllers.split(',').any(|name| name == "memory") => {
                Some(left(&root.join("memory"), group, "memory.limit_in_bytes", "memory.usage_in_bytes"))
            }
            _ => None,
        }
    });
    lines.min().unwrap_or(u64::MAX)
}

fn parse_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_zeroed_and_gives_back_what_was_copied_in() {
        for region in
            [SharedRegion::new("test", 10_000, true).unwrap(), SharedRegion::anonymous(10_000, false).unwrap()]
        {
            let mut bytes = [1; 16];
            region.copy_out(9_984, &mut bytes);
            assert_eq!(bytes, [0; 16]);
            region.copy_in(9_984, b"0123456789abcdef");
            region.copy_out(9_990, &mut bytes[..10]);
            assert_eq!(&bytes[..10], b"6789abcdef");
            assert_eq!(region.address(0).unwrap() as usize % 4096, 0);
            assert_eq!(region.address(7).unwrap() as usize % 4096, 7);
        }
    }

    #[test]
    fn a_region_that_fits_huge_pages_is_the_same_with_and_without_them() {
        // Whether any are reserved depends on the system, and must make no difference to processes that map it.
        for (len, prefault) in [(4 << 20, true), (2 << 20, false), ((2 << 20) + 4096, true)] {
            let region = SharedRegion::new("test", len, prefault).unwrap();
            let other = SharedRegion::open(&region.path().unwrap(), true).unwrap();
            assert_eq!(other.len(), len);
            other.copy_in(len - 5, b"hello");
            let mut bytes = [1; 8];
            region.copy_out(len - 8, &mut bytes);
            assert_eq!(&bytes, b"\0\0\0hello");
        }
    }

    #[test]
    fn a_plain_region_is_read_and_written_as_a_file() {
        use std::os::unix::fs::FileExt;
        let region = SharedRegion::plain("test", 4 << 20, true).unwrap();
        let file = File::options().read(true).write(true).open(region.path().unwrap()).unwrap();
        file.write_all_at(b"hello", 4096).unwrap();
        let mut bytes = [0; 5];
        region.copy_out(4096, &mut bytes);
        assert_eq!(&bytes, b"hello");
    }

    #[test]
    fn another_mapping_of_the_same_path_sees_the_same_bytes() {
        let region = SharedRegion::new("test", 8192, false).unwrap();
        let path = region.path().unwrap();
        let other = SharedRegion::open(&path, true).unwrap();
        assert_eq!(other.len(), 8192);
        other.copy_in(5000, b"hello");
        let mut bytes = [0; 5];
        region.copy_out(5000, &mut bytes);
        assert_eq!(&bytes, b"hello");
        let error = File::options().write(true).open(&path).unwrap().set_len(4096).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_file_that_may_shrink_is_not_mapped() {
        let path = std::env::temp_dir().join(format!("iotax-unsealed-{}", std::process::id()));
        fs::write(&path, [7; 4096]).unwrap();
        let error = SharedRegion::open(&path, false).unwrap_err();
        fs::remove_file(&path).unwrap();
        assert!(error.to_string().contains("it may shrink while it is mapped"), "{error}");
    }

    #[test]
    fn threads_share_a_region() {
        let region = SharedRegion::new("test", 4096 * 4, false).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let region = region.clone();
                scope.spawn(move || region.copy_in(usize::from(thread) * 4096, &[thread + 1; 4096]));
            }
        });
        for thread in 0..4_u8 {
            let mut bytes = [0; 4096];
            region.copy_out(usize::from(thread) * 4096, &mut bytes);
            assert_eq!(bytes, [thread + 1; 4096]);
        }
    }

    #[test]
    #[should_panic(expected = "range outside the region")]
    fn a_copy_past_the_end_panics() {
        SharedRegion::anonymous(4096, false).unwrap().copy_in(4090, &[0; 7]);
    }

    #[test]
    #[should_panic(expected = "mapped to be read")]
    fn a_read_only_mapping_refuses_writes() {
        let region = SharedRegion::new("test", 4096, false).unwrap();
        SharedRegion::open(&region.path().unwrap(), false).unwrap().copy_in(0, &[1]);
    }

    #[test]
    fn too_much_memory_is_refused_in_words() {
        let error = SharedRegion::new("test", usize::MAX / 2, true).unwrap_err();
        assert!(matches!(error, MemoryError::NotEnough { .. }));
        assert!(error.to_string().contains("choose a smaller size"), "{error}");
        assert!(matches!(SharedRegion::anonymous(0, false), Err(MemoryError::Empty)));
    }

    #[test]
    fn the_tightest_of_the_groups_above_a_process_counts() {
        let root = std::env::temp_dir().join(format!("iotax-groups-{}", std::process::id()));
        let write = |group: &str, limit: &str, used: &str| {
            let at = root.join(group);
            fs::create_dir_all(&at).unwrap();
            fs::write(at.join("memory.max"), limit).unwrap();
            fs::write(at.join("memory.current"), used).unwrap();
        };
        write("slice", "1000\n", "300\n");
        write("slice/unit", "max\n", "200\n");
        assert_eq!(left_in_groups("0::/slice/unit\n", &root), 700);
        write("slice/unit", "500\n", "200\n");
        assert_eq!(left_in_groups("0::/slice/unit\n", &root), 300);
        assert_eq!(left_in_groups("0::/other\n", &root), u64::MAX);
        fs::create_dir_all(root.join("memory/old")).unwrap();
        fs::write(root.join("memory/old/memory.limit_in_bytes"), "90").unwrap();
        fs::write(root.join("memory/old/memory.usage_in_bytes"), "50").unwrap();
        assert_eq!(left_in_groups("3:cpu,memory:/old\n1:name=systemd:/x\n", &root), 40);
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn available_memory_is_read_from_meminfo() {
        let text = "MemTotal:       16316412 kB\nMemFree: 1 kB\nMemAvailable:   14000000 kB\nBuffers: 2 kB\n";
        assert_eq!(parse_available(text), Some(14_000_000 * 1024));
        assert_eq!(parse_available("MemTotal: 1 kB\n"), None);
        assert!(available_bytes() > 0);
    }
}
