//! Status and sense data (SAM-5 §5.3, SPC-5 §4.4), and the two wire formats of sense data.

use alloc::vec::Vec;

/// Status codes (SAM-5 §5.3.1).
pub mod status {
    pub const GOOD: u8 = 0x00;
    pub const CHECK_CONDITION: u8 = 0x02;
    pub const CONDITION_MET: u8 = 0x04;
    pub const BUSY: u8 = 0x08;
    pub const RESERVATION_CONFLICT: u8 = 0x18;
    pub const TASK_SET_FULL: u8 = 0x28;
    pub const ACA_ACTIVE: u8 = 0x30;
    pub const TASK_ABORTED: u8 = 0x40;
}

/// Sense keys (SPC-5 §4.4.8).
pub mod key {
    pub const NO_SENSE: u8 = 0x0;
    pub const RECOVERED_ERROR: u8 = 0x1;
    pub const NOT_READY: u8 = 0x2;
    pub const MEDIUM_ERROR: u8 = 0x3;
    pub const HARDWARE_ERROR: u8 = 0x4;
    pub const ILLEGAL_REQUEST: u8 = 0x5;
    pub const UNIT_ATTENTION: u8 = 0x6;
    pub const DATA_PROTECT: u8 = 0x7;
    pub const ABORTED_COMMAND: u8 = 0xb;
    pub const MISCOMPARE: u8 = 0xe;
}

/// The start of a rejected field (SPC-5 §4.4.2.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldPointer {
    /// True: in the CDB; false: in the parameter data.
    pub in_cdb: bool,
    pub byte: u16,
    /// Most significant bit of the field; `None` if the whole byte or more is wrong.
    pub bit: Option<u8>,
}

/// Sense data of one condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    pub key: u8,
    pub asc: u8,
    pub ascq: u8,
    /// An LBA; for a miscompare, the byte offset of the first difference.
    pub information: Option<u64>,
    pub field: Option<FieldPointer>,
    /// Encode in descriptor format (D_SENSE of the Control mode page) instead of fixed format.
    pub descriptor: bool,
}

impl Sense {
    pub const NO_SENSE: Self = Self::new(key::NO_SENSE, 0x00, 0x00);
    pub const INVALID_FIELD_IN_INFORMATION_UNIT: Self = Self::new(key::ILLEGAL_REQUEST, 0x0e, 0x03);
    pub const INVALID_OPCODE: Self = Self::new(key::ILLEGAL_REQUEST, 0x20, 0x00);
    pub const LBA_OUT_OF_RANGE: Self = Self::new(key::ILLEGAL_REQUEST, 0x21, 0x00);
    pub const INVALID_FIELD_IN_CDB: Self = Self::new(key::ILLEGAL_REQUEST, 0x24, 0x00);
    pub const LOGICAL_UNIT_NOT_SUPPORTED: Self = Self::new(key::ILLEGAL_REQUEST, 0x25, 0x00);
    pub const INVALID_FIELD_IN_PARAMETER_LIST: Self = Self::new(key::ILLEGAL_REQUEST, 0x26, 0x00);
    pub const INVALID_RELEASE: Self = Self::new(key::ILLEGAL_REQUEST, 0x26, 0x04);
    pub const PARAMETER_LIST_LENGTH_ERROR: Self = Self::new(key::ILLEGAL_REQUEST, 0x1a, 0x00);
    pub const SAVING_NOT_SUPPORTED: Self = Self::new(key::ILLEGAL_REQUEST, 0x39, 0x00);
    pub const INSUFFICIENT_REGISTRATION_RESOURCES: Self = Self::new(key::ILLEGAL_REQUEST, 0x55, 0x04);
    pub const MEDIUM_NOT_PRESENT: Self = Self::new(key::NOT_READY, 0x3a, 0x00);
    pub const STOPPED: Self = Self::new(key::NOT_READY, 0x04, 0x02);
    pub const PORT_IN_TRANSITION: Self = Self::new(key::NOT_READY, 0x04, 0x0a);
    pub const PORT_UNAVAILABLE: Self = Self::new(key::NOT_READY, 0x04, 0x0c);
    pub const WRITE_PROTECTED: Self = Self::new(key::DATA_PROTECT, 0x27, 0x00);
    pub const SPACE_ALLOCATION_FAILED: Self = Self::new(key::DATA_PROTECT, 0x27, 0x07);
    pub const MISCOMPARE: Self = Self::new(key::MISCOMPARE, 0x1d, 0x00);
    pub const MEDIUM_ERROR_READ: Self = Self::new(key::MEDIUM_ERROR, 0x11, 0x00);
    pub const MEDIUM_ERROR_WRITE: Self = Self::new(key::MEDIUM_ERROR, 0x0c, 0x00);
    pub const INTERNAL_TARGET_FAILURE: Self = Self::new(key::HARDWARE_ERROR, 0x44, 0x00);
    pub const POWER_ON: Self = Self::new(key::UNIT_ATTENTION, 0x29, 0x00);
    pub const BUS_DEVICE_RESET: Self = Self::new(key::UNIT_ATTENTION, 0x29, 0x03);
    pub const NEXUS_LOSS: Self = Self::new(key::UNIT_ATTENTION, 0x29, 0x07);
    pub const MODE_PARAMETERS_CHANGED: Self = Self::new(key::UNIT_ATTENTION, 0x2a, 0x01);
    pub const RESERVATIONS_PREEMPTED: Self = Self::new(key::UNIT_ATTENTION, 0x2a, 0x03);
    pub const RESERVATIONS_RELEASED: Self = Self::new(key::UNIT_ATTENTION, 0x2a, 0x04);
    pub const REGISTRATIONS_PREEMPTED: Self = Self::new(key::UNIT_ATTENTION, 0x2a, 0x05);
    pub const ACCESS_STATE_CHANGED: Self = Self::new(key::UNIT_ATTENTION, 0x2a, 0x06);
    pub const COMMANDS_CLEARED_BY_OTHER: Self = Self::new(key::UNIT_ATTENTION, 0x2f, 0x00);
    pub const REPORTED_LUNS_CHANGED: Self = Self::new(key::UNIT_ATTENTION, 0x3f, 0x0e);

    pub const fn new(key: u8, asc: u8, ascq: u8) -> Self {
        Self { key, asc, ascq, information: None, field: None, descriptor: false }
    }

    #[must_use]
    pub const fn with_information(mut self, information: u64) -> Self {
        self.information = Some(information);
        self
    }

    /// INVALID FIELD IN CDB that points at a field: its first byte, and its most significant bit in that byte.
    pub const fn cdb_field(byte: u16, bit: Option<u8>) -> Self {
        let mut sense = Self::INVALID_FIELD_IN_CDB;
        sense.field = Some(FieldPointer { in_cdb: true, byte, bit });
        sense
    }

    /// INVALID FIELD IN PARAMETER LIST that points at a field.
    pub const fn parameter_field(byte: u16, bit: Option<u8>) -> Self {
        let mut sense = Self::INVALID_FIELD_IN_PARAMETER_LIST;
        sense.field = Some(FieldPointer { in_cdb: false, byte, bit });
        sense
    }

    /// Key, code and qualifier as `0x00KKCCQQ`.
    pub const fn kcq(&self) -> u32 {
        (self.key as u32) << 16 | (self.asc as u32) << 8 | self.ascq as u32
    }

    /// Encodes the sense data in fixed or descriptor format.
    pub fn encode(&self) -> Vec<u8> {
        if self.descriptor { self.encode_descriptors() } else { self.encode_fixed() }
    }

    /// Fixed format (SPC-5 §4.4.3).
    fn encode_fixed(&self) -> Vec<u8> {
        let mut bytes = alloc::vec![0; 18];
        bytes[0] = 0x70;
        bytes[2] = self.key;
        // INFORMATION has four bytes. If the value does not fit, VALID stays clear.
        if let Some(information) = self.information.and_then(|information| u32::try_from(information).ok()) {
            bytes[0] |= 0x80;
            bytes[3..7].copy_from_slice(&information.to_be_bytes());
        }
        bytes[7] = 10;
        bytes[12] = self.asc;
        bytes[13] = self.ascq;
        if let Some(field) = self.field {
            bytes[15..18].copy_from_slice(&field.encode());
        }
        bytes
    }

    /// Descriptor format (SPC-5 §4.4.2).
    fn encode_descriptors(&self) -> Vec<u8> {
        let mut bytes = alloc::vec![0x72, self.key, self.asc, self.ascq, 0, 0, 0, 0];
        if let Some(information) = self.information {
            bytes.extend_from_slice(&[0x00, 0x0a, 0x80, 0x00]);
            bytes.extend_from_slice(&information.to_be_bytes());
        }
        if let Some(field) = self.field {
            bytes.extend_from_slice(&[0x02, 0x06, 0x00, 0x00]);
            bytes.extend_from_slice(&field.encode());
            bytes.push(0);
        }
        bytes[7] = (bytes.len() - 8) as u8;
        bytes
    }
}

impl FieldPointer {
    fn encode(self) -> [u8; 3] {
        let byte = self.byte.to_be_bytes();
        let in_cdb = if self.in_cdb { 0x40 } else { 0 };
        [0x80 | in_cdb | self.bit.map_or(0, |bit| 0x08 | bit), byte[0], byte[1]]
    }

    fn decode(bytes: [u8; 3]) -> Option<Self> {
        (bytes[0] & 0x80 != 0).then(|| Self {
            in_cdb: bytes[0] & 0x40 != 0,
            byte: u16::from_be_bytes([bytes[1], bytes[2]]),
            bit: (bytes[0] & 0x08 != 0).then_some(bytes[0] & 0x07),
        })
    }
}

/// Parses sense data in either format; `None` if they have neither format or are too short for a sense key.
pub fn parse(bytes: &[u8]) -> Option<Sense> {
    match bytes.first()? & 0x7f {
        0x70 | 0x71 => parse_fixed(bytes),
        0x72 | 0x73 => parse_descriptors(bytes),
        _ => None,
    }
}

fn parse_fixed(bytes: &[u8]) -> Option<Sense> {
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let mut sense = Sense::new(bytes.get(2)? & 0x0f, byte(12), byte(13));
    if byte(0) & 0x80 != 0 {
        sense.information = Some(u32::from_be_bytes([byte(3), byte(4), byte(5), byte(6)]).into());
    }
    sense.field = FieldPointer::decode([byte(15), byte(16), byte(17)]).filter(|_| sense.key == key::ILLEGAL_REQUEST);
    Some(sense)
}

fn parse_descriptors(bytes: &[u8]) -> Option<Sense> {
    let (header, mut rest) = bytes.split_at_checked(8)?;
    let mut sense = Sense::new(header[1] & 0x0f, header[2], header[3]);
    sense.descriptor = true;
    rest = rest.get(..usize::from(header[7])).unwrap_or(rest);
    while let [kind, len, ..] = *rest {
        let Some((descriptor, after)) = rest.split_at_checked(2 + usize::from(len)) else { break };
        match (kind, descriptor) {
            (0x00, [_, _, flags, _, information @ ..]) if flags & 0x80 != 0 => {
                sense.information = information.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
            }
            (0x02, [_, _, _, _, specific @ ..]) if sense.key == key::ILLEGAL_REQUEST => {
                sense.field = specific.first_chunk().and_then(|bytes| FieldPointer::decode(*bytes));
            }
            _ => {}
        }
        rest = after;
    }
    Some(sense)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Check(Sense),
    Status(u8),
}

impl Fault {
    pub(crate) const RESERVATION_CONFLICT: Self = Self::Status(status::RESERVATION_CONFLICT);
}

impl From<Sense> for Fault {
    fn from(sense: Sense) -> Self {
        Self::Check(sense)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_format_carries_key_code_and_field_pointer() {
        let bytes = Sense::cdb_field(1, Some(7)).encode();
        assert_eq!(bytes.len(), 18);
        assert_eq!((bytes[0], bytes[2], bytes[7], bytes[12], bytes[13]), (0x70, 0x05, 10, 0x24, 0x00));
        assert_eq!(bytes[15..18], [0x80 | 0x40 | 0x08 | 7, 0, 1]);
    }

    #[test]
    fn both_formats_parse_back() {
        for descriptor in [false, true] {
            for mut sense in [
                Sense::POWER_ON,
                Sense::MISCOMPARE.with_information(517),
                Sense::cdb_field(10, None),
                Sense::parameter_field(300, Some(3)),
            ] {
                sense.descriptor = descriptor;
                assert_eq!(parse(&sense.encode()), Some(sense));
            }
        }
    }

    #[test]
    fn fixed_format_leaves_out_information_that_does_not_fit() {
        let bytes = Sense::LBA_OUT_OF_RANGE.with_information(1 << 40).encode();
        assert_eq!(bytes[0], 0x70);
        assert_eq!(parse(&bytes).and_then(|sense| sense.information), None);
    }

    #[test]
    fn cut_sense_data_gives_what_is_there() {
        let bytes = Sense::MISCOMPARE.with_information(9).encode();
        assert_eq!(parse(&bytes[..2]), None);
        assert_eq!(parse(&bytes[..8]).map(|sense| (sense.key, sense.asc)), Some((key::MISCOMPARE, 0)));
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(&[0x72, 5, 0x24, 0, 0, 0, 0, 200, 0, 10]).map(|sense| sense.kcq()), Some(0x05_2400));
    }
}
