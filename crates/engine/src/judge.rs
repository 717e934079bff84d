//! Determines whose data a file or block device contains. All of it is checked before anything is written, because data
//! beyond a working set may belong to someone, too.

use std::{io, ops::Range, os::unix::fs::FileExt as _};

use iotax_node::{
    failure::{Failure, FailureKind},
    load::{Content, signature, verify::classify},
    pattern::Pool,
};
use iotax_runtime::disk::Candidate;

use crate::failure;

const PIECE_BYTES: u64 = 1 << 20;
const BLOCK_BYTES: u64 = 512;

/// Checks a range of a file or device: first its two ends, where partition tables and file systems begin, then the
/// rest, except holes. Stops at the first foreign byte. If the whole device is checked, a superblock at its end
/// determines first what the device belongs to. `tell` is called with the number of bytes checked.
pub(crate) fn content_of(
    candidate: &Candidate,
    range: Range<u64>,
    mut tell: impl FnMut(u64) -> Result<(), Failure>,
) -> Result<Content, Failure> {
    let fail = |error: io::Error| failure::io(&error, candidate.path().display().to_string());
    let head_end = range.end.min(range.start + PIECE_BYTES);
    let tail_begin = (range.end.saturating_sub(PIECE_BYTES) / BLOCK_BYTES * BLOCK_BYTES).max(head_end);
    let mut look = Look { candidate, pool: Pool::default(), piece: vec![0; PIECE_BYTES as usize] };
    let (mut content, mut done_bytes) = (Content::Zeros, 0);
    for part in [range.start..head_end, tail_begin..range.end, head_end..tail_begin] {
        let mut offset = part.start;
        while offset < part.end {
            let (found, next) = look.next(offset, part.end).map_err(fail)?;
            content = content.and(found);
            if matches!(content, Content::Foreign { .. }) {
                let whole = range.end == candidate.size_bytes();
                let member = if whole { look.member().map_err(fail)? } else { None };
                return Ok(member.unwrap_or(content));
            }
            done_bytes += next - offset;
            offset = next;
            tell(done_bytes)?;
        }
    }
    Ok(content)
}

/// Fails unless all of it is zeros or the data pattern.
pub(crate) fn refuse_foreign(
    candidate: &Candidate,
    place: String,
    tell: impl FnMut(u64) -> Result<(), Failure>,
) -> Result<(), Failure> {
    match content_of(candidate, 0..candidate.size_bytes(), tell)? {
        Content::Zeros | Content::Pattern => Ok(()),
        Content::Foreign { at, what } => {
            let path = candidate.path().display();
            let message = format!("{path} holds {what} at byte {at} that iotax did not write; nothing was changed");
            Err(Failure::new(FailureKind::ForeignData, message, place))
        }
    }
}

struct Look<'a> {
    candidate: &'a Candidate,
    pool: Pool,
    piece: Vec<u8>,
}

impl Look<'_> {
    /// What the device is a member of, according to its end: half of a mirror begins like the file system on it.
    fn member(&self) -> io::Result<Option<Content>> {
        for at in signature::places_at_end(self.candidate.size_bytes()) {
            let mut block = [0; BLOCK_BYTES as usize];
            self.candidate.file().read_exact_at(&mut block, at)?;
            if let Some(name) = signature::member(&block) {
                return Ok(Some(Content::Foreign { at, what: name.to_owned() }));
            }
        }
        Ok(None)
    }

    /// The content from `offset` (a multiple of the pattern block) on, and the end of the range that was checked.
    fn next(&mut self, offset: u64, end: u64) -> io::Result<(Content, u64)> {
        let Some((begin, data_end)) = self.candidate.next_data(offset) else { return Ok((Content::Zeros, end)) };
        let begin = (begin / BLOCK_BYTES * BLOCK_BYTES).max(offset);
        if begin > offset {
            return Ok((Content::Zeros, begin.min(end)));
        }
        let stop = data_end.next_multiple_of(BLOCK_BYTES).min(begin + PIECE_BYTES).min(end);
        let piece = &mut self.piece[..(stop - begin) as usize];
        self.candidate.file().read_exact_at(piece, begin)?;
        Ok((classify(&self.pool, piece, begin), stop))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use iotax_node::pattern::Stamp;

    use super::*;

    const SIZE: u64 = 8 << 20;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("iotax-judge-{}-{name}", std::process::id()));
            fs::File::create(&path).unwrap().set_len(SIZE).unwrap();
            Self(path)
        }

        fn write(&self, bytes: &[u8], at: u64) {
            fs::File::options().write(true).open(&self.0).unwrap().write_all_at(bytes, at).unwrap();
        }

        fn content(&self) -> Content {
            let candidate = Candidate::open(&self.0).unwrap();
            content_of(&candidate, 0..candidate.size_bytes(), |_| Ok(())).unwrap()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    #[test]
    fn one_foreign_byte_is_found_wherever_it_stands() {
        for at in [0, 511, 1 << 20, (3 << 20) + 77, SIZE - (1 << 20) - 1, SIZE - (1 << 20), SIZE - 1, SIZE, SIZE + 700]
        {
            let scratch = Scratch::new("byte");
            scratch.write(&[9], at);
            assert!(matches!(scratch.content(), Content::Foreign { at: found, .. } if found == at), "byte {at}");
        }
    }

    #[test]
    fn holes_zeros_and_the_pattern_are_ours() {
        let scratch = Scratch::new("ours");
        assert_eq!(scratch.content(), Content::Zeros);
        scratch.write(&[0; 4096], 2 << 20);
        assert_eq!(scratch.content(), Content::Zeros);
        let mut blocks = vec![0; 1024];
        Pool::default().fill(&mut blocks, 5 << 20, Stamp { run: 1, writer: 0, sequence: 0 });
        scratch.write(&blocks, 5 << 20);
        assert_eq!(scratch.content(), Content::Pattern);
        scratch.write(&blocks, 6 << 20);
        assert!(matches!(scratch.content(), Content::Foreign { .. }), "the pattern of another place");
    }

    #[test]
    fn half_of_a_mirror_is_named_before_the_file_system_on_it() {
        for (at, superblock, name) in [
            (SIZE - 8192, b"\xfc\x4e\x2b\xa9\x01\0\0\0", "Linux RAID member (1.0)"),
            (SIZE - 65536, b"\xfc\x4e\x2b\xa9\0\0\0\0", "Linux RAID member (0.90)"),
        ] {
            let scratch = Scratch::new("mirror");
            scratch.write(b"\x53\xef", 0x438);
            assert_eq!(scratch.content(), Content::Foreign { at: 0x438, what: "ext2/3/4 file system".to_owned() });
            scratch.write(superblock, at);
            assert_eq!(scratch.content(), Content::Foreign { at, what: name.to_owned() });
        }
    }

    #[test]
    fn every_byte_is_told_once() {
        let scratch = Scratch::new("told");
        scratch.write(&[0; 4096], 4 << 20);
        let candidate = Candidate::open(&scratch.0).unwrap();
        let mut told = Vec::new();
        content_of(&candidate, 0..SIZE, |done| {
            told.push(done);
            Ok(())
        })
        .unwrap();
        assert_eq!(told.last(), Some(&SIZE));
        assert!(told.is_sorted());
    }
}
