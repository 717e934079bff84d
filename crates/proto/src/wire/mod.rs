//! Byte handling for all protocols: payloads that are referenced instead of copied, a send queue, a reader, digests,
//! base64, and text of a peer that is safe to print. It depends on no protocol.

use alloc::string::String;

pub mod base64;
pub mod digest;
pub mod payload;
pub mod reader;
pub mod transmit;

pub use crate::wire;
pub use payload::{HeapRegion, Payload, Region};
pub use reader::{Reader, Short};
pub use transmit::{Chunk, Transmit};

/// Converts bytes to text. Replaces everything that is not UTF-8, and control characters that would affect a terminal
/// (ESC sequences, line ends).
pub fn printable(bytes: &[u8]) -> String {
    let replaced = |char: char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char };
    String::from_utf8_lossy(bytes).chars().map(replaced).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_replaced() {
        assert_eq!(printable(b"Disk 7\xc3\xbc"), "Disk 7\u{fc}");
        for hostile in [&b"a\x1b[2Jb"[..], b"a\rb", b"a\nb", b"a\x07b", b"a\x7fb", b"a\xc2\x9bb", b"a\xffb"] {
            let shown = printable(hostile);
            assert!(
                !shown.contains(char::is_control) && shown.starts_with("a\u{fffd}") && shown.ends_with('b'),
                "{shown:?}"
            );
        }
    }
}
