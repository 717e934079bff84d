//! The task of a check: reads a unit from its start and determines whose data it holds. Writes nothing.

use std::rc::Rc;

use iotax_proto::{Io, Tag};

use super::verify::{Content, classify};
use crate::pattern::Pool;

#[derive(Debug)]
pub(super) struct ScanTask {
    pool: Rc<Pool>,
    next: u64,
    end: u64,
    io_bytes: u32,
    slots: Vec<ScanRead>,
    pub(super) scanned_bytes: u64,
    pub(super) total_bytes: u64,
    content: Content,
}

#[derive(Debug, Default)]
struct ScanRead {
    offset: u64,
    len: usize,
    bytes: Vec<u8>,
}

impl ScanTask {
    pub(super) fn new(pool: Rc<Pool>, end: u64, io_bytes: u32, outstanding: u32) -> Self {
        let slots =
            (0..outstanding).map(|_| ScanRead { bytes: vec![0; io_bytes as usize], ..ScanRead::default() }).collect();
        Self { pool, next: 0, end, io_bytes, slots, scanned_bytes: 0, total_bytes: end, content: Content::Zeros }
    }

    pub(super) fn next(&mut self, tag: Tag) -> Option<Io> {
        if self.next >= self.end || matches!(self.content, Content::Foreign { .. }) {
            return None;
        }
        let len = u64::from(self.io_bytes).min(self.end - self.next) as u32;
        let slot = &mut self.slots[tag as usize];
        slot.offset = self.next;
        slot.len = len as usize;
        self.next += u64::from(len);
        Some(Io::Read { offset: slot.offset, len })
    }

    pub(super) fn data(&mut self, tag: Tag, at: u32, bytes: &[u8]) {
        let slot = &mut self.slots[tag as usize];
        let begin = at as usize;
        if let Some(to) = begin.checked_add(bytes.len()).and_then(|end| slot.bytes.get_mut(begin..end)) {
            to.copy_from_slice(bytes);
        }
    }

    pub(super) fn complete(&mut self, tag: Tag) {
        let slot = &self.slots[tag as usize];
        let found = classify(&self.pool, &slot.bytes[..slot.len], slot.offset);
        self.scanned_bytes += slot.len as u64;
        self.content = match (&self.content, found) {
            (Content::Foreign { at, .. }, Content::Foreign { at: found, what }) if found < *at => {
                Content::Foreign { at: found, what }
            }
            (known, found) => known.clone().and(found),
        };
    }

    pub(super) fn content(&self) -> &Content {
        &self.content
    }
}
