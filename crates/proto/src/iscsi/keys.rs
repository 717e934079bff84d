//! Every key of RFC 7143 §13 that both sides settle by a rule, and the rules.

/// How a value comes about (RFC 7143 §6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The first value of the offerer's list that the responder can.
    List,
    /// Yes if both say so.
    And,
    /// Yes if one says so.
    Or,
    /// The smaller number.
    Min { low: u64, high: u64 },
    /// The greater number.
    Max { low: u64, high: u64 },
    /// Each side declares its own.
    Declare { low: u64, high: u64 },
    /// Always answered with this value, whatever is offered.
    Fixed(&'static str),
}

/// A key, its rule, and whether a discovery session has no use for it.
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

/// In the order of `Key`.
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
    // §13.25: the obsolete markers are answered "Reject" or "No", never "NotUnderstood". Initiators of old offer "No" and
    // take that best as the answer.
    spec(Key::IfMarker, "IFMarker", Rule::Fixed("No"), false),
    spec(Key::OfMarker, "OFMarker", Rule::Fixed("No"), false),
    spec(Key::IfMarkInt, "IFMarkInt", Rule::Fixed("Reject"), false),
    spec(Key::OfMarkInt, "OFMarkInt", Rule::Fixed("Reject"), false),
];

pub(super) fn find(name: &str) -> Option<&'static KeySpec> {
    KEYS.iter().find(|spec| spec.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_its_keys() {
        for (at, spec) in KEYS.iter().enumerate() {
            assert_eq!(spec.key as usize, at, "{}", spec.name);
        }
    }
}
