//! Text descriptions of PDUs, for `iotax-engine decode`.

/// Digests that a connection negotiated, which its PDUs do not show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    pub header: bool,
    pub data: bool,
}

/// Describes one PDU after the other; it remembers earlier ones.
pub trait Describe {
    /// The following bytes belong to another direction or connection.
    fn begin_stream(&mut self) {}
    /// The length of the PDU at the front of `bytes` and its description, or the reason why there is none.
    fn describe(&mut self, bytes: &[u8]) -> Result<(usize, String), String>;
}

pub(super) fn cut_off(bytes: &[u8]) -> String {
    format!("{} bytes of a PDU that is cut off", bytes.len())
}
