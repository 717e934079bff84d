//! Errors between the two sides of a protocol, as types. No code may depend on the text of a message.

use core::fmt;

/// Why the other side refused a request, as far as its status tells. Determined where a status is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The target, unit, export or file does not exist.
    NotFound,
    /// It exists, but is not a disk or regular file.
    WrongKind,
    /// This initiator, host or user has no permission.
    Denied,
    /// We must authenticate ourselves, or the other side failed to authenticate itself.
    Unauthenticated,
    /// It is not possible now, but may be later.
    Busy,
    /// Another initiator or host has reserved it.
    InUse,
    ReadOnly,
    /// No space is left, or a quota is reached.
    Full,
    /// The unit cannot be accessed over this path now. The request was not executed; another path may execute it.
    Inaccessible,
    /// The status means none of these.
    Other,
}

/// Why an I/O failed, for the initiator's caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IoError {
    /// The target returned an error. `status` is the protocol's own code (NVMe status field, SCSI sense `KKCCQQ`,
    /// nfsstat3).
    #[error("{what} (status {status:#x})")]
    Failed { status: u32, refusal: Refusal, what: &'static str },
    #[error("the connection ended before the I/O completed")]
    ConnectionLost,
    #[error("aborted")]
    Aborted,
    /// The protocol does not have this operation, or the target does not support it.
    #[error("not supported by this target")]
    Unsupported,
}

/// An invalid call. Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    #[error("no credit left, or the session is not ready")]
    NoCredit,
    #[error("the tag is in use or beyond the depth")]
    BadTag,
    #[error("the range is unaligned or outside the unit")]
    BadRange,
}

/// Why a backend could not execute an operation. Each command set maps it to a status of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    #[error("no such unit")]
    NoUnit,
    #[error("range outside the unit")]
    OutOfRange,
    #[error("the unit is read-only")]
    ReadOnly,
    /// Offset of the first byte that differs.
    #[error("data differ at byte {0}")]
    Miscompare(u32),
    #[error("medium error")]
    Medium,
    #[error("no space left")]
    NoSpace,
    #[error("out of resources for now")]
    Busy,
    #[error("aborted")]
    Aborted,
}

/// A rule of a protocol and its source. Created only by `rule!`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The specification, e.g. `RFC 7143`; `iotax` for a limit of ours.
    pub spec: &'static str,
    /// The section, or the name of the clause, PDU or field if section numbers differ between drafts.
    pub section: &'static str,
    /// The whole text, e.g. `RFC 7143 §11.8: R2T beyond MaxOutstandingR2T`.
    pub text: &'static str,
}

/// The specifications that rules cite.
const SPECS: [&str; 16] = [
    "RFC 1813",
    "RFC 3643",
    "RFC 3821",
    "RFC 5531",
    "RFC 7143",
    "RFC 8881",
    "NVMe base 2.1",
    "NVMe/TCP 1.1",
    "FC-FS-5",
    "FC-LS-4",
    "FCP-4",
    "FCP-4, FC-NVMe-2",
    "FC-NVMe-2",
    "SPC-4",
    "SPC-5",
    "iotax",
];

impl Rule {
    /// Parses a rule. A text other than `"SPEC SECTION: …"` does not compile, because `rule!` calls this at compile
    /// time.
    pub(crate) const fn cite(text: &'static str) -> Self {
        match Self::parse(text) {
            Some(rule) => rule,
            None => panic!("a rule is cited as `SPEC SECTION: text`, with a specification of SPECS"),
        }
    }

    const fn parse(text: &'static str) -> Option<Self> {
        let mut colon = 0;
        while colon + 1 < text.len() && !(text.as_bytes()[colon] == b':' && text.as_bytes()[colon + 1] == b' ') {
            colon += 1;
        }
        if colon + 1 >= text.len() {
            return None;
        }
        let (citation, _) = text.split_at(colon);
        let mut at = 0;
        while at < SPECS.len() {
            let spec = SPECS[at];
            if let Some((cited, section)) = citation.split_at_checked(spec.len())
                && is_same(cited, spec)
                && section.len() > 1
                && section.as_bytes()[0] == b' '
            {
                return Some(Self { spec, section: section.split_at(1).1, text });
            }
            at += 1;
        }
        None
    }
}

const fn is_same(left: &str, right: &str) -> bool {
    let mut at = 0;
    while at < left.len() && at < right.len() && left.as_bytes()[at] == right.as_bytes()[at] {
        at += 1;
    }
    at == left.len() && at == right.len()
}

/// `rule!("RFC 7143 §11.8: R2T beyond MaxOutstandingR2T")`: a rule. It does not compile without a source.
macro_rules! rule {
    ($text:literal) => {{
        const RULE: &$crate::Rule = &$crate::Rule::cite($text);
        RULE
    }};
}

/// The following macros create a violation of `rule!`.
macro_rules! malformed {
    ($text:literal) => {
        $crate::Violation::malformed(rule!($text))
    };
}
macro_rules! misbehaved {
    ($text:literal) => {
        $crate::Violation::misbehaved(rule!($text))
    };
}
macro_rules! unsupported {
    ($text:literal) => {
        $crate::Violation::unsupported(rule!($text))
    };
}

/// A peer violated a rule of its protocol, refused us, or did not answer in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub kind: ViolationKind,
    reason: Reason,
    /// Byte offset in the faulty PDU, if it is meaningful.
    pub at: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViolationKind {
    /// The bytes are not a PDU.
    Malformed,
    /// A PDU that is not allowed at this time, or has invalid contents.
    Misbehaved,
    /// Valid, but not implemented here.
    Unsupported,
    /// The peer did not answer in time.
    TimedOut,
    /// The peer refused our login, connect or mount.
    Refused(Refusal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Rule(&'static Rule),
    /// The peer refused a request or is late, which violates no rule.
    Words(&'static str),
}

impl Violation {
    const fn new(kind: ViolationKind, reason: Reason) -> Self {
        Self { kind, reason, at: None }
    }

    pub const fn malformed(rule: &'static Rule) -> Self {
        Self::new(ViolationKind::Malformed, Reason::Rule(rule))
    }

    pub const fn misbehaved(rule: &'static Rule) -> Self {
        Self::new(ViolationKind::Misbehaved, Reason::Rule(rule))
    }

    pub const fn unsupported(rule: &'static Rule) -> Self {
        Self::new(ViolationKind::Unsupported, Reason::Rule(rule))
    }

    pub const fn timed_out(words: &'static str) -> Self {
        Self::new(ViolationKind::TimedOut, Reason::Words(words))
    }

    pub const fn refused(refusal: Refusal, words: &'static str) -> Self {
        Self::new(ViolationKind::Refused(refusal), Reason::Words(words))
    }

    #[must_use]
    pub fn at(mut self, byte: u32) -> Self {
        self.at = Some(byte);
        self
    }

    /// The violated rule; `None` for a peer that refused us or is late.
    pub fn rule(&self) -> Option<&'static Rule> {
        match self.reason {
            Reason::Rule(rule) => Some(rule),
            Reason::Words(_) => None,
        }
    }

    /// Describes what is wrong; for a violated rule, with its source.
    pub fn text(&self) -> &'static str {
        match self.reason {
            Reason::Rule(rule) => rule.text,
            Reason::Words(words) => words,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ViolationKind::Refused(_) => write!(f, "Refused: {}", self.text())?,
            kind => write!(f, "{kind:?}: {}", self.text())?,
        }
        if let Some(at) = self.at {
            write!(f, " (byte {at})")?;
        }
        Ok(())
    }
}

impl core::error::Error for Violation {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_cited_by_its_specification_and_section() {
        let parts = |rule: &Rule| (rule.spec, rule.section);
        assert_eq!(parts(rule!("RFC 7143 §11.8: R2T: out of order")), ("RFC 7143", "§11.8"));
        assert_eq!(parts(rule!("FCP-4, FC-NVMe-2 XFER_RDY: out of order")), ("FCP-4, FC-NVMe-2", "XFER_RDY"));
        assert_eq!(parts(rule!("FC-FS-5 Relative Offset: out of order")), ("FC-FS-5", "Relative Offset"));
    }

    #[test]
    fn what_cites_nothing_is_no_rule() {
        for text in
            ["", "no rule", "RFC 7143: no section", "RFC 9999 §1: another", "RFC 7143 §11.8", "RFC 71431 §1: no"]
        {
            assert_eq!(Rule::parse(text), None, "{text}");
        }
    }
}
