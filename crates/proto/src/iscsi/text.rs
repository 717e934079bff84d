//! Text of logins and text requests: `key=value` pairs, each terminated by a zero byte (RFC 7143 §6.1). Also the keys
//! of RFC 7143 §13 with the rules by which they are negotiated, and the targets in a discovery response.

use alloc::{string::String, vec::Vec};
use core::fmt::{Display, Write as _};

use crate::Violation;

/// Maximum length in bytes of the text of one exchange, over all continued PDUs. RFC 7143 §6.2 requires at least 8192.
pub const TEXT_LEN_MAX: usize = 16 * 1024;
/// Maximum data segment of a PDU in bytes until another length is declared (RFC 7143 §13.12).
pub const DEFAULT_SEGMENT_LEN: usize = 8192;

/// Splits a complete text into its pairs.
pub fn pairs(text: &[u8]) -> Result<Vec<(&str, &str)>, Violation> {
    text.split(|byte| *byte == 0).filter(|pair| !pair.is_empty()).map(pair).collect()
}

fn pair(pair: &[u8]) -> Result<(&str, &str), Violation> {
    let pair = str::from_utf8(pair).map_err(|_| malformed!("RFC 7143 §6.1: text is UTF-8"))?;
    let (key, value) = pair.split_once('=').ok_or(malformed!("RFC 7143 §6.1: key without '='"))?;
    if key.is_empty() || key.len() > 63 {
        return Err(malformed!("RFC 7143 §6.1: a key has 1 to 63 characters"));
    }
    Ok((key, value))
}

/// Received text, possibly from several PDUs with the C bit.
#[derive(Debug, Default)]
pub struct TextIn(Vec<u8>);

impl TextIn {
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        if self.0.len() + bytes.len() > TEXT_LEN_MAX {
            return Err(misbehaved!("RFC 7143 §6.2: more text than is taken in one exchange"));
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns the collected text, and starts with an empty one.
    pub fn take(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.0)
    }
}

/// Text to send, possibly in several PDUs.
#[derive(Debug, Default)]
pub struct TextOut {
    text: Vec<u8>,
    sent: usize,
}

impl TextOut {
    pub fn put(&mut self, key: &str, value: impl Display) {
        let mut pair = String::new();
        // Writing to a `String` cannot fail.
        let _ = write!(pair, "{key}={value}\0");
        self.text.extend_from_slice(pair.as_bytes());
    }

    /// Whether everything has been sent.
    pub fn is_empty(&self) -> bool {
        self.sent == self.text.len()
    }

    /// The next segment of at most `max` bytes, and whether more follow (the C bit).
    pub fn next_segment(&mut self, max: usize) -> (Vec<u8>, bool) {
        let end = self.text.len().min(self.sent + max);
        let segment = self.text[self.sent..end].to_vec();
        self.sent = end;
        let more = !self.is_empty();
        if !more {
            self.text.clear();
            self.sent = 0;
        }
        (segment, more)
    }
}

/// Parses a number: decimal, or hexadecimal after `0x` (RFC 7143 §6.1).
pub fn number(value: &str) -> Option<u64> {
    match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16).ok(),
        None if !value.starts_with('+') => value.parse().ok(),
        _ => None,
    }
}

/// How a value is negotiated (RFC 7143 §6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The first value of the offered list that the responder supports.
    List,
    /// Yes if both sides say Yes.
    And,
    /// Yes if either side says Yes.
    Or,
    /// The minimum of both numbers.
    Min { low: u64, high: u64 },
    /// The maximum of both numbers.
    Max { low: u64, high: u64 },
    /// Each side declares its own.
    Declare { low: u64, high: u64 },
    /// Always answered with this value, whatever the offer is.
    Fixed(&'static str),
}

/// A key, its rule, and whether it applies only to normal sessions.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeySpec {
    pub(super) key: Key,
    pub(super) name: &'static str,
    pub(super) rule: Rule,
    /// "Irrelevant when: SessionType=Discovery".
    pub(super) normal_only: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    HeaderDigest,
    DataDigest,
    MaxConnections,
    InitialR2T,
    ImmediateData,
    MaxRecvDataSegmentLength,
    MaxBurstLength,
    FirstBurstLength,
    DefaultTime2Wait,
    DefaultTime2Retain,
    MaxOutstandingR2T,
    DataPDUInOrder,
    DataSequenceInOrder,
    ErrorRecoveryLevel,
    TaskReporting,
    IscsiProtocolLevel,
    IfMarker,
    OfMarker,
    IfMarkInt,
    OfMarkInt,
}

const LENGTH_MAX: u64 = (1 << 24) - 1;

const fn spec(key: Key, name: &'static str, rule: Rule, normal_only: bool) -> KeySpec {
    KeySpec { key, name, rule, normal_only }
}

/// The keys, in the order of `Key`.
pub(super) const KEYS: [KeySpec; 20] = [
    spec(Key::HeaderDigest, "HeaderDigest", Rule::List, false), // §13.1
    spec(Key::DataDigest, "DataDigest", Rule::List, false),     // §13.1
    spec(Key::MaxConnections, "MaxConnections", Rule::Min { low: 1, high: 65535 }, true), // §13.2
    spec(Key::InitialR2T, "InitialR2T", Rule::Or, true),        // §13.10
    spec(Key::ImmediateData, "ImmediateData", Rule::And, true), // §13.11
    spec(
        Key::MaxRecvDataSegmentLength,
        "MaxRecvDataSegmentLength",
        Rule::Declare { low: 512, high: LENGTH_MAX },
        false,
    ), // §13.12
    spec(Key::MaxBurstLength, "MaxBurstLength", Rule::Min { low: 512, high: LENGTH_MAX }, true), // §13.13
    spec(Key::FirstBurstLength, "FirstBurstLength", Rule::Min { low: 512, high: LENGTH_MAX }, true), // §13.14
    spec(Key::DefaultTime2Wait, "DefaultTime2Wait", Rule::Max { low: 0, high: 3600 }, false), // §13.15
    spec(Key::DefaultTime2Retain, "DefaultTime2Retain", Rule::Min { low: 0, high: 3600 }, false), // §13.16
    spec(Key::MaxOutstandingR2T, "MaxOutstandingR2T", Rule::Min { low: 1, high: 65535 }, true), // §13.17
    spec(Key::DataPDUInOrder, "DataPDUInOrder", Rule::Or, true), // §13.18
    spec(Key::DataSequenceInOrder, "DataSequenceInOrder", Rule::Or, true), // §13.19
    spec(Key::ErrorRecoveryLevel, "ErrorRecoveryLevel", Rule::Min { low: 0, high: 2 }, false), // §13.20
    spec(Key::TaskReporting, "TaskReporting", Rule::List, true), // §13.23
    spec(Key::IscsiProtocolLevel, "iSCSIProtocolLevel", Rule::Min { low: 0, high: 31 }, false), // §13.24
    // §13.25: the obsolete markers are answered with "Reject" or "No", never with "NotUnderstood". Old initiators offer
    // "No", and "No" is the answer that they handle best.
    spec(Key::IfMarker, "IFMarker", Rule::Fixed("No"), false),
    spec(Key::OfMarker, "OFMarker", Rule::Fixed("No"), false),
    spec(Key::IfMarkInt, "IFMarkInt", Rule::Fixed("Reject"), false),
    spec(Key::OfMarkInt, "OFMarkInt", Rule::Fixed("Reject"), false),
];

pub(super) fn find(name: &str) -> Option<&'static KeySpec> {
    KEYS.iter().find(|spec| spec.name == name)
}

/// A target in the response to SendTargets (RFC 7143 §C).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveredTarget {
    pub name: String,
    /// `address:port,portal-group-tag`. An empty list means the portal that was queried; libiscsi does not understand
    /// that, so name at least one.
    pub portals: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn pairs_are_split_and_checked() {
        assert_eq!(pairs(b"A=b\0C=d=e\0\0"), Ok(vec![("A", "b"), ("C", "d=e")]));
        assert_eq!(pairs(b"A="), Ok(vec![("A", "")]));
        assert!(pairs(b"novalue\0").is_err());
        assert!(pairs(b"=x\0").is_err());
        assert!(pairs(b"A=\xff\0").is_err());
    }

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        assert_eq!(number("512"), Some(512));
        assert_eq!(number("0x1fF"), Some(511));
        assert_eq!((number("+1"), number("0x+1"), number(""), number("1k")), (None, None, None, None));
    }

    #[test]
    fn text_beyond_the_limit_is_refused() {
        let mut text = TextIn::default();
        assert_eq!(text.push(&[b'x'; TEXT_LEN_MAX]), Ok(()));
        assert!(text.push(b"y").is_err());
    }

    #[test]
    fn long_text_goes_out_in_segments() {
        let mut text = TextOut::default();
        text.put("Key", "value");
        assert_eq!(text.next_segment(6), (b"Key=va".to_vec(), true));
        assert_eq!(text.next_segment(6), (b"lue\0".to_vec(), false));
        assert!(text.is_empty());
    }
}

#[cfg(test)]
mod keys_tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_its_keys() {
        for (at, spec) in KEYS.iter().enumerate() {
            assert_eq!(spec.key as usize, at, "{}", spec.name);
        }
    }
}
