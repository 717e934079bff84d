//! Data of an I/O, referenced by region and range instead of copied.

use alloc::{rc::Rc, vec::Vec};
use core::{
    cell::{Ref, RefCell},
    fmt,
};

/// Memory that holds data of I/Os: a volume, a load generator's write buffers, a staging buffer.
///
/// Methods take `&self`: threads may share a region, and protocols leave the result of overlapping I/Os undefined.
/// Offsets are bytes from the start of the region. A range outside it is a bug of the caller and may panic.
pub trait Region {
    fn len(&self) -> usize;
    fn copy_out(&self, offset: usize, into: &mut [u8]);
    fn copy_in(&self, offset: usize, from: &[u8]);
    /// Address of byte `offset`, for a driver that sends or receives in place; `None` if bytes have no stable address.
    fn address(&self, offset: usize) -> Option<*const u8>;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A range of a region. Cloning and slicing copy no data.
#[derive(Clone)]
pub struct Payload {
    region: Rc<dyn Region>,
    offset: usize,
    len: usize,
}

impl Payload {
    pub fn new(region: Rc<dyn Region>, offset: usize, len: usize) -> Self {
        assert!(offset.checked_add(len).is_some_and(|end| end <= region.len()), "payload outside its region");
        Self { region, offset, len }
    }

    /// Creates a payload that owns its bytes. For control data and tests, not for the path of an I/O.
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        Self { region: Rc::new(HeapRegion(RefCell::new(bytes))), offset: 0, len }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[must_use]
    pub fn slice(&self, offset: usize, len: usize) -> Self {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "slice outside its payload");
        Self { region: Rc::clone(&self.region), offset: self.offset + offset, len }
    }

    pub fn copy_out(&self, offset: usize, into: &mut [u8]) {
        assert!(offset + into.len() <= self.len, "copy outside its payload");
        self.region.copy_out(self.offset + offset, into);
    }

    pub fn copy_in(&self, offset: usize, from: &[u8]) {
        assert!(offset + from.len() <= self.len, "copy outside its payload");
        self.region.copy_in(self.offset + offset, from);
    }

    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = alloc::vec![0; self.len];
        self.copy_out(0, &mut bytes);
        bytes
    }

    /// Whether the payload refers to this region.
    pub fn is_of(&self, region: &Rc<dyn Region>) -> bool {
        Rc::ptr_eq(&self.region, region)
    }

    /// Address of the first byte, for a driver that sends or receives in place.
    pub fn address(&self) -> Option<*const u8> {
        self.region.address(self.offset)
    }

    /// Calls `visit` with the payload's bytes in order, in pieces that are small enough for the stack. For digests.
    pub fn for_each_piece(&self, mut visit: impl FnMut(&[u8])) {
        let mut piece = [0; 1024];
        let mut done = 0;
        while done < self.len {
            let len = piece.len().min(self.len - done);
            self.copy_out(done, &mut piece[..len]);
            visit(&piece[..len]);
            done += len;
        }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes at {})", self.len, self.offset)
    }
}

/// A region on the heap, for use by one thread.
#[derive(Debug)]
pub struct HeapRegion(RefCell<Vec<u8>>);

impl HeapRegion {
    /// A region of zeros.
    pub fn new(len: usize) -> Rc<Self> {
        Rc::new(Self(RefCell::new(alloc::vec![0; len])))
    }

    pub fn bytes(&self) -> Ref<'_, Vec<u8>> {
        self.0.borrow()
    }

    /// Truncates the region or extends it with zeros. Earlier addresses become invalid.
    pub fn resize(&self, len: usize) {
        self.0.borrow_mut().resize(len, 0);
    }
}

impl Region for HeapRegion {
    fn len(&self) -> usize {
        self.0.borrow().len()
    }

    fn copy_out(&self, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.0.borrow()[offset..offset + into.len()]);
    }

    fn copy_in(&self, offset: usize, from: &[u8]) {
        self.0.borrow_mut()[offset..offset + from.len()].copy_from_slice(from);
    }

    fn address(&self, offset: usize) -> Option<*const u8> {
        Some(self.0.borrow()[offset..].as_ptr())
    }
}
