//! A hash of all events: equal hashes mean equal runs.

use iotax_proto::Instant;

/// Bytes at each end of a packet that are hashed: headers and the stamps of data, which determine the rest.
const EDGE_BYTES: usize = 64;

#[derive(Clone, Debug)]
pub struct Trace {
    hash: u64,
    events: u64,
}

impl Default for Trace {
    fn default() -> Self {
        Self { hash: 0x9e37_79b9_7f4a_7c15, events: 0 }
    }
}

impl Trace {
    /// Adds an event: its time, its kind, what it concerns, and a value.
    pub fn event(&mut self, at: Instant, kind: u8, who: u64, what: u64) {
        self.events += 1;
        self.mix(at.0 << 8 | u64::from(kind));
        self.mix(who);
        self.mix(what);
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.edge(&bytes[..bytes.len().min(EDGE_BYTES)]);
        if bytes.len() > EDGE_BYTES {
            self.edge(&bytes[bytes.len() - EDGE_BYTES..]);
        }
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }

    pub fn events(&self) -> u64 {
        self.events
    }

    fn edge(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.mix(u64::from_le_bytes(word));
        }
    }

    /// One step of FNV-1a over words, with the high bits rotated down.
    fn mix(&mut self, word: u64) {
        self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }
}
