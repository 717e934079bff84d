//! Bytes waiting to be sent on one connection: headers held inline, payloads held by name, in order.

use alloc::{collections::VecDeque, vec::Vec};

use super::Payload;

/// A queue of bytes to send. A machine appends; a driver looks at the chunks, sends them in one vectored send and advances.
#[derive(Debug, Default)]
pub struct Transmit {
    /// Inline bytes of all `Segment::Inline`s, in order; `inline_sent` of them are sent already.
    inline: Vec<u8>,
    inline_sent: usize,
    segments: VecDeque<Segment>,
    len: usize,
}

#[derive(Debug)]
enum Segment {
    Inline(usize),
    Payload(Payload),
}

/// A piece of what is to be sent next.
#[derive(Debug)]
pub enum Chunk<'a> {
    Bytes(&'a [u8]),
    Payload(&'a Payload),
}

impl Transmit {
    /// Bytes queued.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn put(&mut self, bytes: &[u8]) {
        self.inline.extend_from_slice(bytes);
        self.grow_inline(bytes.len());
    }

    pub fn zeros(&mut self, count: usize) {
        self.inline.resize(self.inline.len() + count, 0);
        self.grow_inline(count);
    }

    pub fn payload(&mut self, payload: Payload) {
        if !payload.is_empty() {
            self.len += payload.len();
            self.segments.push_back(Segment::Payload(payload));
        }
    }

    /// The last `count` inline bytes put, for a digest over a header or a length known late.
    /// Only bytes put since the last payload may be asked for.
    pub fn tail_mut(&mut self, count: usize) -> &mut [u8] {
        let at = self.inline.len() - count;
        &mut self.inline[at..]
    }

    pub fn chunks(&self) -> impl Iterator<Item = Chunk<'_>> {
        let mut at = self.inline_sent;
        self.segments.iter().map(move |segment| match segment {
            Segment::Inline(len) => {
                at += len;
                Chunk::Bytes(&self.inline[at - len..at])
            }
            Segment::Payload(payload) => Chunk::Payload(payload),
        })
    }

    /// Takes `count` bytes off the front: they were sent.
    pub fn advance(&mut self, mut count: usize) {
        assert!(count <= self.len, "more sent than queued");
        self.len -= count;
        while count > 0 {
            let Some(front) = self.segments.front_mut() else { break };
            match front {
                Segment::Inline(len) => {
                    let taken = count.min(*len);
                    *len -= taken;
                    self.inline_sent += taken;
                    count -= taken;
                    if *len > 0 {
                        break;
                    }
                }
                Segment::Payload(payload) => {
                    if count < payload.len() {
                        *payload = payload.slice(count, payload.len() - count);
                        break;
                    }
                    count -= payload.len();
                }
            }
            self.segments.pop_front();
        }
        if self.len == 0 {
            self.clear();
        }
    }

    /// Forgets what is queued and keeps the memory.
    pub fn clear(&mut self) {
        self.inline.clear();
        self.inline_sent = 0;
        self.segments.clear();
        self.len = 0;
    }

    /// All queued bytes in one vector; for tests.
    pub fn take_bytes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len);
        for chunk in self.chunks() {
            match chunk {
                Chunk::Bytes(inline) => bytes.extend_from_slice(inline),
                Chunk::Payload(payload) => bytes.extend_from_slice(&payload.to_vec()),
            }
        }
        self.clear();
        bytes
    }

    fn grow_inline(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        self.len += count;
        if let Some(Segment::Inline(len)) = self.segments.back_mut() {
            *len += count;
        } else {
            self.segments.push_back(Segment::Inline(count));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn chunks_come_back_in_order_whatever_is_sent_at_a_time() {
        for step in 1..12 {
            let mut transmit = Transmit::default();
            transmit.put(b"abc");
            transmit.put(b"de");
            transmit.payload(Payload::from_vec(vec![b'x'; 4]));
            transmit.put(b"fg");
            let mut seen = Vec::new();
            while !transmit.is_empty() {
                let mut all = Vec::new();
                for chunk in transmit.chunks() {
                    match chunk {
                        Chunk::Bytes(bytes) => all.extend_from_slice(bytes),
                        Chunk::Payload(payload) => all.extend(payload.to_vec()),
                    }
                }
                assert_eq!(all.len(), transmit.len());
                let count = step.min(all.len());
                seen.extend_from_slice(&all[..count]);
                transmit.advance(count);
            }
            assert_eq!(seen, b"abcdexxxxfg");
        }
    }
}
