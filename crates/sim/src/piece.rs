//! Bytes in flight, in memory that is reused from packet to packet.

use std::rc::Rc;

use iotax_proto::{Payload, Region, Transmit, wire::Chunk};

/// Longer pieces come from a separate pool, so that the memory of requests stays short although replies are long. If
/// possible they exchange memory with the queue that they are taken from; shorter ones are copied.
const SHORT_BYTES: usize = 512;

/// The bytes of one send. Its memory keeps its maximum length, so that it need not be cleared before it is overwritten.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    memory: Vec<u8>,
    held: usize,
    /// Payloads that stay where they are until arrival, each with its position in the held bytes.
    named: Vec<(usize, Payload)>,
    len: usize,
}

impl Piece {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// All bytes. Payloads that are only referenced are read now and copied with the rest into `whole`.
    pub(crate) fn bytes<'a>(&'a self, whole: &'a mut Vec<u8>) -> &'a [u8] {
        if self.named.is_empty() {
            return &self.memory[..self.held];
        }
        if whole.len() < self.len {
            whole.resize(self.len, 0);
        }
        let (mut at, mut before) = (0, 0);
        let ends = self.named.iter().map(|(end, payload)| (*end, Some(payload)));
        for (end, payload) in ends.chain([(self.held, None)]) {
            let held = &self.memory[before..end];
            whole[at..at + held.len()].copy_from_slice(held);
            (at, before) = (at + held.len(), end);
            if let Some(payload) = payload {
                payload.copy_out(0, &mut whole[at..at + payload.len()]);
                at += payload.len();
            }
        }
        &whole[..self.len]
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        let mut whole = Vec::new();
        let kept = self.bytes(&mut whole)[..len.min(self.len)].to_vec();
        (self.held, self.len) = (kept.len(), kept.len());
        self.memory = kept;
        self.named.clear();
    }

    /// Takes bytes off the front of a queue. Bytes of a region in `stay` are referenced, all others are moved or copied.
    fn take_front(&mut self, transmit: &mut Transmit, count: usize, stay: &[Rc<dyn Region>]) {
        if count > SHORT_BYTES && count == transmit.len() && transmit.move_all(&mut self.memory) {
            (self.held, self.len) = (count, count);
            return;
        }
        (self.held, self.len) = (0, 0);
        for chunk in transmit.chunks() {
            let left = count - self.len;
            if left == 0 {
                break;
            }
            match chunk {
                Chunk::Bytes(bytes) => {
                    let bytes = &bytes[..bytes.len().min(left)];
                    self.room(bytes.len()).copy_from_slice(bytes);
                }
                Chunk::Payload(payload) => {
                    let taken = payload.len().min(left);
                    if stay.iter().any(|region| payload.is_of(region)) {
                        self.named.push((self.held, payload.slice(0, taken)));
                        self.len += taken;
                    } else {
                        payload.copy_out(0, self.room(taken));
                    }
                }
            }
        }
        transmit.advance(count);
    }

    fn room(&mut self, count: usize) -> &mut [u8] {
        let at = self.held;
        (self.held, self.len) = (at + count, self.len + count);
        if self.memory.len() < self.held {
            self.memory.resize(self.held, 0);
        }
        &mut self.memory[at..self.held]
    }
}

/// Unused pieces. The last one is reused first, because caches still hold it.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    short: Vec<Piece>,
    long: Vec<Piece>,
}

impl Spare {
    pub(crate) fn take_front(&mut self, transmit: &mut Transmit, count: usize, stay: &[Rc<dyn Region>]) -> Piece {
        let mut piece = self.like(count).pop().unwrap_or_default();
        piece.take_front(transmit, count, stay);
        piece
    }

    pub(crate) fn give_back(&mut self, mut piece: Piece) {
        piece.named.clear();
        self.like(piece.len).push(piece);
    }

    fn like(&mut self, bytes: usize) -> &mut Vec<Piece> {
        if bytes <= SHORT_BYTES { &mut self.short } else { &mut self.long }
    }
}

#[cfg(test)]
mod tests {
    use iotax_proto::HeapRegion;

    use super::*;

    #[test]
    fn bytes_come_off_the_front_across_chunks() {
        let mut transmit = Transmit::default();
        transmit.put(b"abc");
        transmit.payload(Payload::from_vec(b"defg".to_vec()));
        let (mut spare, mut whole) = (Spare::default(), Vec::new());
        let first = spare.take_front(&mut transmit, 5, &[]);
        assert_eq!(first.bytes(&mut whole), b"abcde");
        spare.give_back(first);
        assert_eq!(spare.take_front(&mut transmit, 2, &[]).bytes(&mut whole), b"fg");
        assert!(transmit.is_empty());
    }

    #[test]
    fn what_stays_where_it_is_is_read_when_it_arrives() {
        let region: Rc<dyn Region> = HeapRegion::new(4);
        region.copy_in(0, b"1234");
        let mut transmit = Transmit::default();
        transmit.put(b"ab");
        transmit.payload(Payload::new(Rc::clone(&region), 0, 4));
        transmit.put(b"cd");
        let (mut spare, mut whole) = (Spare::default(), Vec::new());
        let first = spare.take_front(&mut transmit, 5, std::slice::from_ref(&region));
        let mut second = spare.take_front(&mut transmit, 3, std::slice::from_ref(&region));
        region.copy_in(0, b"5678");
        assert_eq!(first.bytes(&mut whole), b"ab567");
        assert_eq!(second.bytes(&mut whole), b"8cd");
        second.truncate(2);
        assert_eq!((second.bytes(&mut whole), second.len()), (&b"8c"[..], 2));
    }

    #[test]
    fn a_long_queue_without_payloads_is_moved_whole() {
        let (mut transmit, mut spare, mut whole) = (Transmit::default(), Spare::default(), Vec::new());
        for fill in 1..4 {
            let bytes = [fill; 2 * SHORT_BYTES];
            transmit.put(&bytes);
            let piece = spare.take_front(&mut transmit, bytes.len(), &[]);
            assert_eq!((piece.bytes(&mut whole), piece.len()), (&bytes[..], bytes.len()));
            assert!(transmit.is_empty());
            spare.give_back(piece);
        }
    }

    #[test]
    fn long_memory_waits_for_long_pieces() {
        let (mut transmit, mut spare) = (Transmit::default(), Spare::default());
        transmit.put(&[7; SHORT_BYTES + 2]);
        let long = spare.take_front(&mut transmit, SHORT_BYTES + 1, &[]);
        spare.give_back(long);
        let short = spare.take_front(&mut transmit, 1, &[]);
        assert_eq!((short.memory.len(), spare.long.len()), (1, 1));
    }
}
