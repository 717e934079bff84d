//! File handles of this target: export and file, so that a handle leads to its file without a search.

use super::backend::{ExportId, FileId};
use crate::{nfs3::types::FileHandle, wire::Reader};

/// Tells our handles from others' and from later layouts.
const MAGIC: u32 = 0x696f_7401;
const LEN: usize = 20;

pub(super) fn encode(export: ExportId, file: FileId) -> FileHandle {
    let mut bytes = [0; LEN];
    bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&export.to_be_bytes());
    bytes[8..12].copy_from_slice(&file.generation.to_be_bytes());
    bytes[12..].copy_from_slice(&file.number.to_be_bytes());
    FileHandle::new(&bytes).expect("shorter than the longest handle")
}

/// `None` for what is no handle of ours.
pub(super) fn decode(handle: &FileHandle) -> Option<(ExportId, FileId)> {
    let mut reader = Reader::new(handle.bytes());
    if reader.u32_be().ok()? != MAGIC {
        return None;
    }
    let export = reader.u32_be().ok()?;
    let generation = reader.u32_be().ok()?;
    let number = reader.u64_be().ok()?;
    (reader.remaining() == 0).then_some((export, FileId { number, generation }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_leads_back_to_its_file_and_others_lead_nowhere() {
        let file = FileId { number: 1 << 40, generation: 7 };
        let handle = encode(3, file);
        assert_eq!(decode(&handle), Some((3, file)));
        let bytes = handle.bytes();
        for len in 0..bytes.len() {
            assert_eq!(decode(&FileHandle::new(&bytes[..len]).expect("a handle")), None);
        }
        let mut longer = bytes.to_vec();
        longer.push(0);
        assert_eq!(decode(&FileHandle::new(&longer).expect("a handle")), None);
    }
}
