//! Sequences that FCP and FC-NVMe have in common: data in order, bursts that are requested one by one, and units of
//! several frames.

use alloc::vec::Vec;

use super::{
    Link,
    frame::{DATA_LEN_MAX, Header, f_ctl, r_ctl},
};
use crate::{Payload, Violation};

/// The header of an FC-4's command, which starts an exchange.
pub fn command_header(kind: u8) -> Header {
    Header { r_ctl: r_ctl::UNSOLICITED_COMMAND, kind, f_ctl: f_ctl::REQUEST, ..Header::default() }
}

/// The header of a sequence of data. PARAMETER becomes the offset.
pub fn data_header(kind: u8, from_target: bool) -> Header {
    let f_ctl = f_ctl::END_SEQUENCE
        | f_ctl::RELATIVE_OFFSET
        | if from_target { f_ctl::EXCHANGE_CONTEXT } else { f_ctl::SEQUENCE_INITIATIVE };
    Header { r_ctl: r_ctl::SOLICITED_DATA, kind, f_ctl, ..Header::default() }
}

/// Sends the data of a command that the target requests with `ready`, in a frame with `header`.
pub fn send_requested(kind: u8, header: &Header, ready: TransferReady, data: &Payload, link: &mut Link) {
    let (ox_id, rx_id, parameter) = (header.ox_id, header.rx_id, ready.offset);
    let frame = Header { ox_id, rx_id, parameter, ..data_header(kind, false) };
    link.send_payload(frame, data.slice(ready.offset as usize, ready.len as usize));
}

/// The header of a sequence that ends an exchange: `COMMAND_STATUS` or `EXTENDED_STATUS`.
pub fn response_header(kind: u8, r_ctl: u8) -> Header {
    Header { r_ctl, kind, f_ctl: f_ctl::REPLY, ..Header::default() }
}

/// `FCP_XFER_RDY` and `NVMe_XFER_RDY`, which have the same format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferReady {
    pub offset: u32,
    pub len: u32,
}

impl TransferReady {
    pub const LEN: usize = 12;

    pub fn header(kind: u8) -> Header {
        let f_ctl = f_ctl::EXCHANGE_CONTEXT | f_ctl::END_SEQUENCE | f_ctl::SEQUENCE_INITIATIVE;
        Header { r_ctl: r_ctl::DATA_DESCRIPTOR, kind, f_ctl, ..Header::default() }
    }

    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0..4].copy_from_slice(&self.offset.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }

    pub fn parse(bytes: &[u8]) -> Result<Self, Violation> {
        let Some([o0, o1, o2, o3, l0, l1, l2, l3, ..]) = bytes.first_chunk::<{ Self::LEN }>() else {
            return Err(malformed!("FCP-4, FC-NVMe-2 XFER_RDY: an XFER_RDY that is too short"));
        };
        let (offset, len) = ([*o0, *o1, *o2, *o3], [*l0, *l1, *l2, *l3]);
        Ok(Self { offset: u32::from_be_bytes(offset), len: u32::from_be_bytes(len) })
    }
}

/// Progress of an initiator's data: bytes received (read) or sent (write), in order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moved {
    pub bytes: u32,
    /// SEQ_CNT of the next frame of the sequence that is being received.
    seq_cnt: u16,
}

impl Moved {
    /// Checks a frame with `len` bytes of a read of `read_len`.
    #[inline]
    pub fn arrive(&mut self, header: &Header, len: u32, read_len: u32) -> Result<(), Violation> {
        if header.seq_cnt != self.seq_cnt {
            return Err(misbehaved!("FC-FS-5 SEQ_CNT: a frame of a sequence is missing").at(46));
        }
        if !header.has(f_ctl::RELATIVE_OFFSET) || header.parameter != self.bytes {
            return Err(misbehaved!("FC-FS-5 Relative Offset: data out of order").at(52));
        }
        let end = header.parameter.checked_add(len).filter(|end| *end <= read_len);
        self.bytes = end.ok_or(misbehaved!("FCP-4, FC-NVMe-2 DATA: more data than the command asked for").at(52))?;
        self.seq_cnt = if header.has(f_ctl::END_SEQUENCE) { 0 } else { header.seq_cnt.wrapping_add(1) };
        Ok(())
    }

    /// Checks a request for data of a write of `write_len` bytes. Each byte must be requested once, in order.
    pub fn ask(&mut self, ready: TransferReady, write_len: usize) -> Result<(), Violation> {
        let end = ready.offset.checked_add(ready.len).filter(|end| *end as usize <= write_len);
        let end = end.ok_or(misbehaved!("FCP-4, FC-NVMe-2 XFER_RDY: an XFER_RDY beyond the command's data").at(60))?;
        if ready.offset != self.bytes || ready.len == 0 {
            return Err(misbehaved!("FCP-4, FC-NVMe-2 XFER_RDY: an XFER_RDY out of order").at(56));
        }
        self.bytes = end;
        Ok(())
    }
}

/// How data from an initiator differ from the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataFault {
    Offset,
    Length,
}

/// The state of a command's data-out: bytes required, received and requested. Bursts are requested one by one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Collect {
    want: u32,
    burst_len: u32,
    got: u32,
    burst_end: u32,
    /// SEQ_CNT of the next frame of the sequence.
    seq_cnt: u16,
    /// The first fault.
    fault: Option<DataFault>,
}

impl Collect {
    /// Each burst except the last has `burst_len` bytes.
    pub fn new(want: u32, burst_len: u32) -> Self {
        Self { want, burst_len, ..Self::default() }
    }

    /// Bytes received.
    pub fn got(&self) -> u32 {
        self.got
    }

    pub fn fault(&self) -> Option<DataFault> {
        self.fault
    }

    /// Returns the next burst to request, if there is one.
    pub fn next_burst(&mut self) -> Option<TransferReady> {
        if self.got >= self.want || self.fault.is_some() || self.got < self.burst_end {
            return None;
        }
        let len = (self.want - self.got).min(self.burst_len);
        self.burst_end = self.got + len;
        Some(TransferReady { offset: self.got, len })
    }

    /// Whether no more data will come.
    pub fn is_over(&self) -> bool {
        self.got >= self.want || self.fault.is_some()
    }

    /// Checks the header of a frame; false if an earlier frame is missing.
    #[inline]
    pub fn begin(&mut self, header: &Header, len: u32) -> bool {
        let is_next = header.seq_cnt == self.seq_cnt;
        self.seq_cnt = if header.has(f_ctl::END_SEQUENCE) { 0 } else { header.seq_cnt.wrapping_add(1) };
        if header.parameter != self.got || !header.has(f_ctl::RELATIVE_OFFSET) {
            self.fault.get_or_insert(DataFault::Offset);
        } else if self.got.checked_add(len).is_none_or(|end| end > self.burst_end) {
            self.fault.get_or_insert(DataFault::Length);
        }
        is_next
    }

    /// Notes that a frame is complete. `last` means that it is the last frame of its sequence.
    #[inline]
    pub fn end(&mut self, len: u32, last: bool) {
        if self.fault.is_none() {
            // `begin` has checked that this is within the burst.
            self.got += len;
            if last && self.got != self.burst_end {
                self.fault = Some(DataFault::Length);
            }
        }
    }
}

/// A unit of one or more frames. Its frames are not interleaved with others, because a port sends its sequences one
/// after the other.
#[derive(Debug, Default)]
pub struct Unit {
    header: Header,
    /// SEQ_CNT of the next frame; 0 if none is expected.
    seq_cnt: u16,
    bytes: Vec<u8>,
}

impl Unit {
    /// Starts a frame of the unit.
    pub fn begin(&mut self, header: &Header, len: u32) -> Result<(), Violation> {
        let begun = self.header;
        let is_next = header.seq_cnt == self.seq_cnt
            && (header.seq_cnt == 0
                || (header.kind, header.r_ctl, header.ox_id) == (begun.kind, begun.r_ctl, begun.ox_id));
        if !is_next {
            return Err(misbehaved!("FC-FS-5 SEQ_CNT: a frame of a sequence is missing").at(46));
        }
        if header.seq_cnt == 0 {
            self.bytes.clear();
        }
        if self.bytes.len() + len as usize > DATA_LEN_MAX {
            return Err(misbehaved!("iotax limit: a unit without data that is longer than a frame may be"));
        }
        let next = header.seq_cnt.checked_add(1);
        self.seq_cnt = next.ok_or_else(|| misbehaved!("iotax limit: a unit in 65,536 frames").at(46))?;
        self.header = *header;
        Ok(())
    }

    pub fn data(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Ends a frame. If it completes the unit, returns its header.
    pub fn end(&mut self) -> Option<Header> {
        let is_last = self.header.has(f_ctl::END_SEQUENCE);
        if is_last {
            self.seq_cnt = 0;
        }
        is_last.then_some(self.header)
    }

    /// Whether a sequence is in progress, so that nothing else may start.
    pub fn is_open(&self) -> bool {
        self.seq_cnt != 0
    }

    /// The unit's bytes so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes the bytes while the unit's owner is borrowed otherwise. Return them with `put`.
    pub fn take(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.bytes)
    }

    /// Returns the buffer from `take`.
    pub fn put(&mut self, bytes: Vec<u8>) {
        self.bytes = bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_ready_is_read_as_it_was_written() {
        let ready = TransferReady { offset: 5, len: 9 };
        assert_eq!(TransferReady::parse(&ready.encode()), Ok(ready));
        assert!(TransferReady::parse(&[0; 11]).is_err());
    }

    #[test]
    fn a_unit_of_more_frames_than_can_be_counted_ends_the_connection() {
        let mut unit = Unit::default();
        let begun = (0..=u16::MAX).map(|seq_cnt| {
            let begun = unit.begin(&Header { seq_cnt, ..Header::default() }, 0);
            unit.end();
            begun
        });
        assert_eq!(begun.filter(Result::is_err).count(), 1, "the last one");
    }

    #[test]
    fn a_unit_of_several_frames_is_whole_or_ends_the_connection() {
        let last = Header { f_ctl: f_ctl::END_SEQUENCE, seq_cnt: 1, ..Header::default() };
        let first = Header { f_ctl: 0, seq_cnt: 0, ..last };
        let mut unit = Unit::default();
        assert!(unit.begin(&first, 2).is_ok());
        unit.data(b"ab");
        assert_eq!((unit.end(), unit.is_open()), (None, true));
        assert!(unit.begin(&first, 2).is_err(), "another begins within");
        assert!(unit.begin(&last, 2).is_ok());
        unit.data(b"cd");
        assert_eq!((unit.end(), unit.bytes(), unit.is_open()), (Some(last), &b"abcd"[..], false));
        assert!(unit.begin(&last, 2).is_err(), "without a first frame");
        assert!(unit.begin(&first, 2113).is_err(), "longer than any");
    }

    fn frame(parameter: u32, seq_cnt: u16, last: bool) -> Header {
        let f_ctl = f_ctl::RELATIVE_OFFSET | if last { f_ctl::END_SEQUENCE } else { 0 };
        Header { f_ctl, seq_cnt, parameter, ..Header::default() }
    }

    #[test]
    fn bursts_are_asked_for_one_by_one() {
        let mut collect = Collect::new(2500, 2000);
        assert_eq!(collect.next_burst(), Some(TransferReady { offset: 0, len: 2000 }));
        assert_eq!(collect.next_burst(), None);
        assert!(collect.begin(&frame(0, 0, false), 1500));
        collect.end(1500, false);
        assert!(collect.begin(&frame(1500, 1, true), 500));
        collect.end(500, true);
        assert_eq!(collect.next_burst(), Some(TransferReady { offset: 2000, len: 500 }));
        assert!(collect.begin(&frame(2000, 0, true), 500));
        collect.end(500, true);
        assert!(collect.is_over() && collect.fault().is_none());
    }

    #[test]
    fn data_that_were_not_asked_for_are_faults() {
        let begun = |header: &Header, len: u32| {
            let mut collect = Collect::new(1000, 1000);
            collect.next_burst();
            let is_next = collect.begin(header, len);
            collect.end(len, header.has(f_ctl::END_SEQUENCE));
            (is_next, collect.fault())
        };
        assert_eq!(begun(&frame(0, 0, true), 1000), (true, None));
        assert_eq!(begun(&frame(0, 0, true), 1001), (true, Some(DataFault::Length)));
        assert_eq!(begun(&frame(0, 0, true), 999), (true, Some(DataFault::Length)));
        assert_eq!(begun(&frame(4, 0, true), 100), (true, Some(DataFault::Offset)));
        assert_eq!(begun(&frame(0, 1, true), 1000), (false, None));
    }
}
