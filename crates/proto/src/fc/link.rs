//! The sending side of a port: splits sequences into frames, and sends as many as the other port has buffers for.

use alloc::collections::VecDeque;

use super::frame::{self, BEFORE_DATA, BEHIND_DATA, ENCAPSULATION_LEN, Header, Kind, OxId, PortId, delimiter, f_ctl};
use crate::{Payload, Transmit, Violation, wire::digest::crc32};

/// The limits that apply before both ports have logged in.
const FIRST_CREDIT: u32 = 1;
const FIRST_FRAME_DATA_LEN: u32 = 256;
/// Maximum length of an information unit that is stored next to its header. Longer ones do not occur on the path of an
/// I/O.
const SHORT_LEN: usize = 112;

#[derive(Debug)]
pub struct Link {
    pub transmit: Transmit,
    local: PortId,
    remote: PortId,
    /// BB_Credit of the other port.
    limit: u32,
    /// Frames sent for which no R_RDY has arrived (BB_Credit_CNT).
    unanswered: u32,
    /// Frames received whose R_RDY has not been sent.
    owed: u32,
    /// Maximum R_RDYs to hold back.
    owed_max: u32,
    frame_data_len: u32,
    seq_id: u8,
    has_crc: bool,
    /// Sequences that wait for credit, in order.
    waiting: VecDeque<Sequence>,
}

#[derive(Debug)]
struct Sequence {
    header: Header,
    body: Body,
    sent: u32,
}

#[derive(Debug)]
enum Body {
    Short([u8; SHORT_LEN], usize),
    Payload(Payload),
}

impl Body {
    fn len(&self) -> u32 {
        match self {
            Self::Short(_, len) => *len as u32,
            Self::Payload(payload) => payload.len() as u32,
        }
    }
}

impl Link {
    /// Without `has_crc` frames are sent with a CRC of 0, and the data of `send_payload` by reference.
    pub fn new(local: PortId, remote: PortId, has_crc: bool) -> Self {
        Self {
            transmit: Transmit::default(),
            local,
            remote,
            limit: FIRST_CREDIT,
            unanswered: 0,
            owed: 0,
            owed_max: FIRST_CREDIT,
            frame_data_len: FIRST_FRAME_DATA_LEN,
            seq_id: 0,
            has_crc,
            waiting: VecDeque::new(),
        }
    }

    /// Applies what the ports know of each other after login: the other's BB_Credit and Receive Data Field Size, and
    /// our own BB_Credit.
    pub fn open(&mut self, credit: u16, frame_data_len: u16, own_credit: u16) {
        self.limit = u32::from(credit).max(1);
        self.frame_data_len = u32::from(frame_data_len);
        self.owed_max = (u32::from(own_credit) / 4).max(1);
    }

    /// Sets the addresses of the frames sent from now on.
    pub fn set_ids(&mut self, local: PortId, remote: PortId) {
        (self.local, self.remote) = (local, remote);
    }

    pub fn remote(&self) -> PortId {
        self.remote
    }

    /// Number of sequences that wait for credit.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Sends a sequence whose bytes are copied. `header` contains everything except addresses, SEQ_ID and SEQ_CNT.
    #[inline]
    pub fn send(&mut self, header: Header, bytes: &[u8]) {
        let header = self.begin(header);
        if self.waiting.is_empty() && self.unanswered < self.limit && bytes.len() <= self.frame_data_len as usize {
            let len = bytes.len() as u32;
            self.frame(&header, 0, len, len, |transmit| transmit.put(bytes));
            return;
        }
        let body = if bytes.len() <= SHORT_LEN {
            let mut short = [0; SHORT_LEN];
            short[..bytes.len()].copy_from_slice(bytes);
            Body::Short(short, bytes.len())
        } else {
            Body::Payload(Payload::from_vec(bytes.to_vec()))
        };
        self.waiting.push_back(Sequence { header, body, sent: 0 });
        self.pump();
    }

    /// Sends a sequence of data, which are read when their frames are built.
    #[inline]
    pub fn send_payload(&mut self, header: Header, payload: Payload) {
        let header = self.begin(header);
        let mut sent = 0;
        if self.waiting.is_empty() {
            sent = self.frames(&header, &payload, 0);
        }
        if (sent as usize) < payload.len() || payload.is_empty() {
            self.waiting.push_back(Sequence { header, body: Body::Payload(payload), sent });
            self.pump();
        }
    }

    /// Processes R_RDYs: the other port has free buffers again.
    pub fn ready(&mut self, count: u32) -> Result<(), Violation> {
        self.unanswered = self
            .unanswered
            .checked_sub(count)
            .ok_or(misbehaved!("FC-FS-5 BB_Credit: more R_RDYs than frames sent").at(16))?;
        self.pump();
        Ok(())
    }

    /// Notes that a frame has been received and its buffer is free.
    #[inline]
    pub fn took(&mut self) {
        self.owed += 1;
    }

    /// Sends the R_RDYs that are due. They need no credit.
    #[inline]
    pub fn settle(&mut self) {
        if self.owed >= self.owed_max {
            self.transmit.put(&frame::encode_encapsulation(Kind::Ready(self.owed)));
            self.owed = 0;
        }
    }

    /// Drops everything of an exchange that has not been sent.
    pub fn forget(&mut self, ox_id: OxId) {
        self.waiting.retain(|sequence| sequence.header.ox_id != ox_id);
    }

    fn begin(&mut self, mut header: Header) -> Header {
        self.seq_id = self.seq_id.wrapping_add(1);
        header.seq_id = self.seq_id;
        (header.s_id, header.d_id) = (self.local, self.remote);
        header
    }

    fn pump(&mut self) {
        while self.unanswered < self.limit
            && let Some(mut sequence) = self.waiting.pop_front()
        {
            let len = sequence.body.len();
            match &sequence.body {
                Body::Payload(payload) if len > 0 => {
                    sequence.sent = self.frames(&sequence.header, payload, sequence.sent);
                }
                Body::Payload(_) => self.frame(&sequence.header, 0, 0, 0, |_| {}),
                Body::Short(bytes, short) => {
                    let (from, frame_len) = (sequence.sent, (len - sequence.sent).min(self.frame_data_len));
                    let bytes = &bytes[from as usize..*short];
                    let bytes = &bytes[..frame_len as usize];
                    self.frame(&sequence.header, from, frame_len, len, |transmit| transmit.put(bytes));
                    sequence.sent += frame_len;
                }
            }
            if sequence.sent < len {
                self.waiting.push_front(sequence);
            }
        }
    }

    /// Sends as much of a sequence as the credit allows. Returns the new offset.
    fn frames(&mut self, header: &Header, payload: &Payload, mut at: u32) -> u32 {
        let total = payload.len() as u32;
        while at < total && self.unanswered < self.limit {
            let len = (total - at).min(self.frame_data_len);
            let piece = payload.slice(at as usize, len as usize);
            if self.has_crc {
                self.frame(header, at, len, total, |transmit| transmit.copy(&piece, |_| {}));
            } else {
                self.frame(header, at, len, total, |transmit| transmit.payload(piece));
            }
            at += len;
        }
        at
    }

    /// Sends one frame with bytes `at..at + len` of a sequence of `total`, which `put` provides, inline if they have a CRC.
    #[inline]
    fn frame(&mut self, header: &Header, at: u32, len: u32, total: u32, put: impl FnOnce(&mut Transmit)) {
        let is_last = at + len == total;
        let fill = len.next_multiple_of(4) - len;
        let mut header = *header;
        header.seq_cnt = (at / self.frame_data_len) as u16;
        if !is_last {
            header.f_ctl &= !(f_ctl::END_SEQUENCE | f_ctl::SEQUENCE_INITIATIVE);
        }
        header.f_ctl |= fill;
        if header.has(f_ctl::RELATIVE_OFFSET) {
            header.parameter = header.parameter.wrapping_add(at);
        }
        let mut head = [0; BEFORE_DATA];
        head[..ENCAPSULATION_LEN]
            .copy_from_slice(&frame::encode_encapsulation(Kind::Frame { data_len: (len + fill) as usize }));
        let sof = if at == 0 { delimiter::SOF_I3 } else { delimiter::SOF_N3 };
        head[ENCAPSULATION_LEN..ENCAPSULATION_LEN + 4].copy_from_slice(&delimiter::encode(sof));
        head[BEFORE_DATA - frame::LEN..].copy_from_slice(&header.encode());
        self.transmit.put(&head);
        put(&mut self.transmit);
        self.transmit.zeros(fill as usize);
        let crc = if self.has_crc { crc32(self.transmit.tail_mut(frame::LEN + (len + fill) as usize)) } else { 0 };
        let eof = if is_last { delimiter::EOF_T } else { delimiter::EOF_N };
        let mut tail = [0; BEHIND_DATA];
        tail[..4].copy_from_slice(&crc.to_le_bytes());
        tail[4..].copy_from_slice(&delimiter::encode(eof));
        self.transmit.put(&tail);
        self.unanswered += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn frames_in(bytes: &[u8]) -> usize {
        let (mut at, mut count) = (0, 0);
        while at < bytes.len() {
            at += usize::from(u16::from_be_bytes([bytes[at + 12], bytes[at + 13]]) & 0x3ff) * 4;
            count += 1;
        }
        count
    }

    #[test]
    fn no_frame_is_sent_without_credit() {
        let mut link = Link::new(PortId::INITIATOR, PortId::TARGET, true);
        link.open(3, 512, 8);
        link.send_payload(Header::default(), Payload::from_vec(vec![1; 2048]));
        link.send(Header { ox_id: OxId(1), ..Header::default() }, &[2; 32]);
        assert_eq!((frames_in(&link.transmit.take_bytes()), link.waiting()), (3, 2));
        link.ready(1).expect("frames are under way");
        assert_eq!((frames_in(&link.transmit.take_bytes()), link.waiting()), (1, 1));
        link.ready(2).expect("frames are under way");
        assert_eq!((frames_in(&link.transmit.take_bytes()), link.waiting()), (1, 0));
        assert!(link.ready(3).is_err(), "two are under way");
    }

    #[test]
    fn frames_without_a_crc_have_the_same_bytes_but_for_it() {
        let sent = |has_crc| {
            let mut link = Link::new(PortId::INITIATOR, PortId::TARGET, has_crc);
            link.open(100, 512, 8);
            for len in [0, 1, 511, 512, 1500] {
                link.send_payload(Header::default(), Payload::from_vec(vec![7; len]));
                link.send(Header::default(), &vec![8; len]);
            }
            let mut bytes = link.transmit.take_bytes();
            let mut at = 0;
            while at < bytes.len() {
                at += usize::from(u16::from_be_bytes([bytes[at + 12], bytes[at + 13]]) & 0x3ff) * 4;
                assert_eq!(bytes[at - 8..at - 4] == [0; 4], !has_crc);
                bytes[at - 8..at - 4].fill(0);
            }
            bytes
        };
        assert_eq!(sent(true), sent(false));
    }

    #[test]
    fn what_waits_of_an_exchange_is_forgotten_with_it() {
        let mut link = Link::new(PortId::INITIATOR, PortId::TARGET, true);
        link.send(Header::default(), &[]);
        link.send(Header { ox_id: OxId(1), ..Header::default() }, &[0; 200]);
        link.send(Header { ox_id: OxId(2), ..Header::default() }, &[0; 20]);
        assert_eq!(link.waiting(), 2);
        link.forget(OxId(1));
        assert_eq!(link.waiting(), 1);
    }

    #[test]
    fn buffers_are_given_back_by_the_quarter() {
        let mut link = Link::new(PortId::TARGET, PortId::INITIATOR, true);
        link.open(8, 2048, 8);
        link.took();
        link.settle();
        assert!(link.transmit.is_empty());
        link.took();
        link.settle();
        assert_eq!(link.transmit.take_bytes(), frame::encode_encapsulation(Kind::Ready(2)));
    }
}
