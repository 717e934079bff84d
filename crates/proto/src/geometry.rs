//! The shape of what both sides speak of.

/// What is being read and written: a namespace, a LUN, a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub size_bytes: u64,
    /// Smallest unit of addressing in bytes; 1 for a file.
    pub block_size: u32,
    /// Most bytes that one `Io` may carry to this target.
    pub max_io_bytes: u32,
    pub read_only: bool,
}
