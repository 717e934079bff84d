//! Corrects the CRCs of Fibre Channel frames that the fuzzer generates, because it would never guess one.

use iotax_proto::wire::digest::crc32;

/// Size in bytes of the encapsulation's header and SOF; `BEHIND` is that of CRC and EOF.
const BEFORE: usize = 32;
const BEHIND: usize = 8;

/// The same bytes, with a correct CRC in each frame whose length is valid.
pub fn with_crcs(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    let mut at = 1;
    while let Some([high, low]) = bytes.get(at + 12..at + 14).and_then(<[u8]>::first_chunk) {
        let len = usize::from(u16::from_be_bytes([*high, *low]) & 0x3ff) * 4;
        let Some(frame) = bytes.get_mut(at..at + len).filter(|frame| frame.len() >= BEFORE + BEHIND) else { break };
        let end = frame.len() - BEHIND;
        let crc = crc32(&frame[BEFORE..end]);
        frame[end..end + 4].copy_from_slice(&crc.to_le_bytes());
        at += len;
    }
    bytes
}
