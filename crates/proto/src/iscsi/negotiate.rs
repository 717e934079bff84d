//! Negotiation of operational parameters (RFC 7143 §6.2, §13): what each side wishes, and the result.

use super::text::{self, DEFAULT_SEGMENT_LEN, KEYS, Key, KeySpec, Rule, TextOut, number};
use crate::{Refusal, Violation};

/// Whether this side wants CRC32C digests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DigestWish {
    Never,
    /// Prefers no digest, but accepts one if the peer prefers it.
    #[default]
    Accept,
    /// Prefers a digest, but accepts none.
    Prefer,
    Require,
}

impl DigestWish {
    fn list(self) -> &'static [&'static str] {
        match self {
            Self::Never => &["None"],
            Self::Accept => &["None", "CRC32C"],
            Self::Prefer => &["CRC32C", "None"],
            Self::Require => &["CRC32C"],
        }
    }
}

/// Parameters that this side wishes; lengths in bytes, times in seconds.
#[derive(Clone, Debug)]
pub struct Wishes {
    pub header_digest: DigestWish,
    pub data_digest: DigestWish,
    pub initial_r2t: bool,
    pub immediate_data: bool,
    /// Maximum data segment that this side accepts.
    pub max_recv_segment_len: u32,
    pub max_burst_len: u32,
    pub first_burst_len: u32,
    pub max_outstanding_r2t: u16,
    pub time2wait_s: u16,
    pub time2retain_s: u16,
}

impl Default for Wishes {
    /// Large values: a read of 256 KiB is one Data-In, a write of 256 KiB needs no R2T.
    fn default() -> Self {
        Self {
            header_digest: DigestWish::Accept,
            data_digest: DigestWish::Accept,
            initial_r2t: false,
            immediate_data: true,
            max_recv_segment_len: 256 * 1024,
            max_burst_len: 1024 * 1024,
            first_burst_len: 256 * 1024,
            max_outstanding_r2t: 4,
            time2wait_s: 0,
            time2retain_s: 0,
        }
    }
}

/// The parameters in force on a connection. The default applies if nothing was negotiated.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a key of the standard")]
pub struct Agreed {
    pub header_digest: bool,
    pub data_digest: bool,
    pub initial_r2t: bool,
    pub immediate_data: bool,
    /// Maximum data segment that the peer accepts.
    pub max_send_segment_len: u32,
    /// Maximum data segment that this side declared.
    pub max_recv_segment_len: u32,
    pub max_burst_len: u32,
    pub first_burst_len: u32,
    pub max_outstanding_r2t: u16,
    pub time2wait_s: u16,
    pub time2retain_s: u16,
}

impl Default for Agreed {
    fn default() -> Self {
        Self {
            header_digest: false,
            data_digest: false,
            initial_r2t: true,
            immediate_data: true,
            max_send_segment_len: DEFAULT_SEGMENT_LEN as u32,
            max_recv_segment_len: DEFAULT_SEGMENT_LEN as u32,
            max_burst_len: 262_144,
            first_burst_len: 65536,
            max_outstanding_r2t: 1,
            time2wait_s: 2,
            time2retain_s: 20,
        }
    }
}

/// The negotiation of one login, in either role. If this side offered a key, the peer's value is an answer; otherwise
/// it is an offer and gets an answer.
#[derive(Debug)]
pub(super) struct Negotiation {
    wishes: Wishes,
    agreed: Agreed,
    discovery: bool,
    /// Bit masks over `KEYS`: the keys that this side offered.
    offered: u32,
    /// The keys that the peer has sent a value for.
    settled: u32,
}

impl Negotiation {
    pub(super) fn new(wishes: Wishes, discovery: bool) -> Self {
        Self { wishes, agreed: Agreed::default(), discovery, offered: 0, settled: 0 }
    }

    pub(super) fn set_discovery(&mut self, discovery: bool) {
        self.discovery = discovery;
    }

    /// The result, with lengths made consistent.
    pub(super) fn agreed(&self) -> Agreed {
        let mut agreed = self.agreed.clone();
        // RFC 7143 §13.14: FirstBurstLength MUST NOT exceed MaxBurstLength. The default of one key can violate this.
        agreed.first_burst_len = agreed.first_burst_len.min(agreed.max_burst_len);
        agreed
    }

    /// Offers every key whose value is negotiated. The initiator does this once.
    pub(super) fn offer_all(&mut self, out: &mut TextOut) {
        for spec in &KEYS {
            if matches!(spec.rule, Rule::Fixed(_) | Rule::Declare { .. }) || spec.normal_only && self.discovery {
                continue;
            }
            self.offered |= mask(spec);
            self.put_wish(spec, out);
            // RFC 7143 §6.2.2: a value that no answer can change is in force at once, because the peer need not answer.
            match (spec.rule, self.flag(spec.key)) {
                (Rule::And, false) | (Rule::Or, true) => self.hold(spec.key, Value::flag(self.flag(spec.key))),
                _ => {}
            }
        }
        self.declare(out);
    }

    /// Declares the maximum data segment that this side accepts.
    pub(super) fn declare(&mut self, out: &mut TextOut) {
        self.agreed.max_recv_segment_len = self.wishes.max_recv_segment_len;
        out.put("MaxRecvDataSegmentLength", self.wishes.max_recv_segment_len);
    }

    /// Processes a key=value pair of the peer; answers it if it is an offer.
    pub(super) fn take(&mut self, name: &str, value: &str, out: &mut TextOut) -> Result<(), Violation> {
        let Some(spec) = text::find(name) else {
            // RFC 7143 §6.2: an unknown key is answered with NotUnderstood, but that answer itself is not answered.
            if value != "NotUnderstood" {
                out.put(name, "NotUnderstood");
            }
            return Ok(());
        };
        if self.settled & mask(spec) != 0 {
            return Err(misbehaved!("RFC 7143 §6.3: a key is negotiated once in a login"));
        }
        self.settled |= mask(spec);
        if self.offered & mask(spec) != 0 {
            return self.take_answer(spec, value);
        }
        match self.answer(spec, value) {
            Some(answer) => answer.put(spec.name, out),
            None if matches!(spec.rule, Rule::Declare { .. }) => {}
            None => out.put(spec.name, "Reject"),
        }
        Ok(())
    }

    /// Applies a MaxRecvDataSegmentLength that is declared again in the full feature phase (RFC 7143 §13.12); true if
    /// it is accepted.
    pub(super) fn redeclare(agreed: &mut Agreed, name: &str, value: &str) -> bool {
        match (name, text::find(name).map(|spec| spec.rule), number(value)) {
            ("MaxRecvDataSegmentLength", Some(Rule::Declare { low, high }), Some(len))
                if (low..=high).contains(&len) =>
            {
                agreed.max_send_segment_len = len as u32;
                true
            }
            _ => false,
        }
    }

    /// Answers an offer, and puts the value in force; `None` for a declared value, or if the value is invalid.
    fn answer(&mut self, spec: &KeySpec, value: &str) -> Option<Value> {
        if self.discovery && spec.normal_only {
            return Some(Value::Word("Irrelevant"));
        }
        let answer = match spec.rule {
            Rule::List => {
                let can = self.list(spec.key);
                Value::Word(value.split(',').find_map(|offer| can.iter().find(|can| **can == offer))?)
            }
            Rule::And => Value::flag(flag(value)? && self.flag(spec.key)),
            Rule::Or => Value::flag(flag(value)? || self.flag(spec.key)),
            Rule::Min { low, high } => Value::Number(in_range(value, low, high)?.min(self.number(spec.key))),
            Rule::Max { low, high } => Value::Number(in_range(value, low, high)?.max(self.number(spec.key))),
            Rule::Declare { low, high } => {
                self.agreed.max_send_segment_len = in_range(value, low, high)? as u32;
                return None;
            }
            Rule::Fixed(word) => Value::Word(word),
        };
        self.hold(spec.key, answer);
        Some(answer)
    }

    /// Processes the peer's answer to our offer, which must be one that the rule allows.
    fn take_answer(&mut self, spec: &KeySpec, value: &str) -> Result<(), Violation> {
        if matches!(value, "Irrelevant" | "NotUnderstood") {
            return Ok(());
        }
        let wrong = misbehaved!("RFC 7143 §6.2: an answer outside what was offered");
        let answer = match spec.rule {
            Rule::List => {
                let offered = self.list(spec.key).iter().find(|offer| **offer == value);
                Value::Word(offered.ok_or(Violation::refused(
                    Refusal::Other,
                    "RFC 7143 §6.2.1: the target takes none of the values offered, as of a digest that is required",
                ))?)
            }
            Rule::And => match flag(value) {
                Some(answer) if !answer || self.flag(spec.key) => Value::flag(answer),
                _ => return Err(wrong),
            },
            Rule::Or => match flag(value) {
                Some(answer) if answer || !self.flag(spec.key) => Value::flag(answer),
                _ => return Err(wrong),
            },
            Rule::Min { low, .. } => Value::Number(in_range(value, low, self.number(spec.key)).ok_or(wrong)?),
            Rule::Max { high, .. } => Value::Number(in_range(value, self.number(spec.key), high).ok_or(wrong)?),
            Rule::Declare { .. } | Rule::Fixed(_) => unreachable!("never offered"),
        };
        self.hold(spec.key, answer);
        Ok(())
    }

    fn put_wish(&self, spec: &KeySpec, out: &mut TextOut) {
        match spec.rule {
            Rule::List => out.put(spec.name, self.list(spec.key).join(",")),
            Rule::And | Rule::Or => Value::flag(self.flag(spec.key)).put(spec.name, out),
            Rule::Min { .. } | Rule::Max { .. } => out.put(spec.name, self.number(spec.key)),
            Rule::Declare { .. } | Rule::Fixed(_) => {}
        }
    }

    fn list(&self, key: Key) -> &'static [&'static str] {
        match key {
            Key::HeaderDigest => self.wishes.header_digest.list(),
            Key::DataDigest => self.wishes.data_digest.list(),
            _ => &["RFC3720"],
        }
    }

    fn flag(&self, key: Key) -> bool {
        match key {
            Key::InitialR2T => self.wishes.initial_r2t,
            Key::ImmediateData => self.wishes.immediate_data,
            // DataPDUInOrder and DataSequenceInOrder: out-of-order data are not supported.
            _ => true,
        }
    }

    fn number(&self, key: Key) -> u64 {
        match key {
            Key::MaxBurstLength => self.wishes.max_burst_len.into(),
            Key::FirstBurstLength => self.wishes.first_burst_len.min(self.wishes.max_burst_len).into(),
            Key::DefaultTime2Wait => self.wishes.time2wait_s.into(),
            Key::DefaultTime2Retain => self.wishes.time2retain_s.into(),
            Key::MaxOutstandingR2T => self.wishes.max_outstanding_r2t.into(),
            Key::ErrorRecoveryLevel => 0,
            // MaxConnections; and iSCSIProtocolLevel, where 1 means RFC 7143.
            _ => 1,
        }
    }

    fn hold(&mut self, key: Key, value: Value) {
        let agreed = &mut self.agreed;
        match (key, value) {
            (Key::HeaderDigest, Value::Word(word)) => agreed.header_digest = word == "CRC32C",
            (Key::DataDigest, Value::Word(word)) => agreed.data_digest = word == "CRC32C",
            (Key::InitialR2T, Value::Word(word)) => agreed.initial_r2t = word == "Yes",
            (Key::ImmediateData, Value::Word(word)) => agreed.immediate_data = word == "Yes",
            (Key::MaxBurstLength, Value::Number(len)) => agreed.max_burst_len = len as u32,
            (Key::FirstBurstLength, Value::Number(len)) => agreed.first_burst_len = len as u32,
            (Key::DefaultTime2Wait, Value::Number(time)) => agreed.time2wait_s = time as u16,
            (Key::DefaultTime2Retain, Value::Number(time)) => agreed.time2retain_s = time as u16,
            (Key::MaxOutstandingR2T, Value::Number(count)) => agreed.max_outstanding_r2t = count as u16,
            _ => {}
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Value {
    Word(&'static str),
    Number(u64),
}

impl Value {
    fn flag(yes: bool) -> Self {
        Self::Word(if yes { "Yes" } else { "No" })
    }

    fn put(self, name: &str, out: &mut TextOut) {
        match self {
            Self::Word(word) => out.put(name, word),
            Self::Number(number) => out.put(name, number),
        }
    }
}

fn mask(spec: &KeySpec) -> u32 {
    1 << spec.key as u32
}

fn flag(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

fn in_range(value: &str, low: u64, high: u64) -> Option<u64> {
    number(value).filter(|number| (low..=high).contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iscsi::text::pairs;
    use alloc::string::String;

    fn answers(negotiation: &mut Negotiation, offers: &[(&str, &str)]) -> String {
        let mut out = TextOut::default();
        for (name, value) in offers {
            negotiation.take(name, value, &mut out).expect("a fair offer");
        }
        let (text, _) = out.next_segment(usize::MAX >> 1);
        String::from_utf8(text).expect("text").replace('\0', " ")
    }

    #[test]
    fn every_key_is_answered_by_its_rule() {
        let wishes = Wishes { data_digest: DigestWish::Never, ..Wishes::default() };
        for (offer, answer) in [
            ("HeaderDigest=CRC32C,None", "HeaderDigest=CRC32C"),
            ("HeaderDigest=X-foo", "HeaderDigest=Reject"),
            ("DataDigest=CRC32C,None", "DataDigest=None"),
            ("DataDigest=CRC32C", "DataDigest=Reject"),
            ("MaxConnections=8", "MaxConnections=1"),
            ("MaxConnections=0", "MaxConnections=Reject"),
            ("InitialR2T=Yes", "InitialR2T=Yes"),
            ("InitialR2T=No", "InitialR2T=No"),
            ("InitialR2T=Maybe", "InitialR2T=Reject"),
            ("ImmediateData=No", "ImmediateData=No"),
            ("MaxRecvDataSegmentLength=4096", ""),
            ("MaxBurstLength=16776192", "MaxBurstLength=1048576"),
            ("MaxBurstLength=0x400", "MaxBurstLength=1024"),
            ("MaxBurstLength=511", "MaxBurstLength=Reject"),
            ("FirstBurstLength=1024", "FirstBurstLength=1024"),
            ("DefaultTime2Wait=2", "DefaultTime2Wait=2"),
            ("DefaultTime2Retain=20", "DefaultTime2Retain=0"),
            ("MaxOutstandingR2T=1", "MaxOutstandingR2T=1"),
            ("DataPDUInOrder=No", "DataPDUInOrder=Yes"),
            ("DataSequenceInOrder=No", "DataSequenceInOrder=Yes"),
            ("ErrorRecoveryLevel=2", "ErrorRecoveryLevel=0"),
            ("TaskReporting=FastAbort,RFC3720", "TaskReporting=RFC3720"),
            ("iSCSIProtocolLevel=2", "iSCSIProtocolLevel=1"),
            ("IFMarker=Yes", "IFMarker=No"),
            ("OFMarkInt=2048", "OFMarkInt=Reject"),
            ("X-com.example.foo=1", "X-com.example.foo=NotUnderstood"),
        ] {
            let mut negotiation = Negotiation::new(wishes.clone(), false);
            let got = answers(&mut negotiation, &[offer.split_once('=').expect("a pair")]);
            assert_eq!(got.trim_end(), answer, "to {offer}");
        }
    }

    #[test]
    fn discovery_finds_keys_of_normal_sessions_irrelevant() {
        let mut negotiation = Negotiation::new(Wishes::default(), true);
        let got = answers(&mut negotiation, &[("InitialR2T", "No"), ("DefaultTime2Wait", "0")]);
        assert_eq!(got, "InitialR2T=Irrelevant DefaultTime2Wait=0 ");
    }

    #[test]
    fn a_key_offered_twice_is_a_violation() {
        let mut negotiation = Negotiation::new(Wishes::default(), false);
        let mut out = TextOut::default();
        assert_eq!(negotiation.take("MaxConnections", "1", &mut out), Ok(()));
        assert!(negotiation.take("MaxConnections", "1", &mut out).is_err());
    }

    #[test]
    fn offers_that_settle_a_key_need_no_answer() {
        for (initial_r2t, immediate_data) in [(true, false), (true, true), (false, false)] {
            let wishes = Wishes { initial_r2t, immediate_data, ..Wishes::default() };
            let mut negotiation = Negotiation::new(wishes, false);
            let mut out = TextOut::default();
            negotiation.offer_all(&mut out);
            // LIO does not answer ImmediateData=No.
            if !initial_r2t {
                negotiation.take("InitialR2T", "No", &mut out).expect("an answer");
            }
            let agreed = negotiation.agreed();
            assert_eq!((agreed.initial_r2t, agreed.immediate_data), (initial_r2t, immediate_data));
        }
    }

    #[test]
    fn both_sides_come_to_the_same() {
        let digests = [DigestWish::Never, DigestWish::Accept, DigestWish::Prefer, DigestWish::Require];
        for case in 0..digests.len() * 8 {
            let ours = Wishes {
                header_digest: digests[case % 4],
                initial_r2t: case & 4 != 0,
                immediate_data: case & 8 != 0,
                max_burst_len: if case & 16 != 0 { 1024 } else { 1 << 20 },
                ..Wishes::default()
            };
            let theirs = Wishes { max_burst_len: 65536, max_recv_segment_len: 1 << 16, ..Wishes::default() };
            let (mut initiator, mut target) = (Negotiation::new(ours, false), Negotiation::new(theirs, false));
            let (mut offers, mut replies) = (TextOut::default(), TextOut::default());
            initiator.offer_all(&mut offers);
            let (text, _) = offers.next_segment(8192);
            target.declare(&mut replies);
            for (name, value) in pairs(&text).expect("pairs") {
                target.take(name, value, &mut replies).expect("an offer");
            }
            let (text, _) = replies.next_segment(8192);
            let mut none = TextOut::default();
            for (name, value) in pairs(&text).expect("pairs") {
                initiator.take(name, value, &mut none).expect("an answer");
            }
            assert!(none.is_empty());
            let (left, mut right) = (initiator.agreed(), target.agreed());
            core::mem::swap(&mut right.max_send_segment_len, &mut right.max_recv_segment_len);
            assert_eq!(left, right);
            assert_eq!(left.max_send_segment_len, 1 << 16);
        }
    }

    #[test]
    fn answers_outside_the_offer_are_violations() {
        for (name, value) in [
            ("MaxBurstLength", "99999999"),
            ("InitialR2T", "Reject"),
            ("ErrorRecoveryLevel", "1"),
            ("HeaderDigest", "SHA1"),
            ("MaxOutstandingR2T", "0"),
        ] {
            let mut negotiation = Negotiation::new(Wishes::default(), false);
            let mut out = TextOut::default();
            negotiation.offer_all(&mut out);
            let taken = negotiation.take(name, value, &mut out);
            assert!(taken.is_err(), "{name}={value}");
        }
    }
}
