//! PDUs in words: `iotax-engine decode`.

/// What a connection negotiated and its PDUs do not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    pub header: bool,
    pub data: bool,
}

/// One PDU after the other in words, with what earlier ones said in mind.
pub trait Describe {
    /// What follows are the bytes of another direction or connection.
    fn begin_stream(&mut self) {}
    /// The length of the PDU at the front of `bytes` and what it says; or why there is none.
    fn describe(&mut self, bytes: &[u8]) -> Result<(usize, String), String>;
}

pub(super) fn cut_off(bytes: &[u8]) -> String {
    format!("{} bytes of a PDU that is cut off", bytes.len())
}
