//! What set-up found and agreed on.

use iotax_proto::{iscsi::initiator::Session, nfs3::initiator::Mount};

/// For people: names and values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub identity: Vec<(&'static str, String)>,
    pub negotiated: Vec<(&'static str, String)>,
}

/// What a session found and agreed on.
pub(super) fn of_session(session: &Session) -> Facts {
    let yes = |yes: bool| if yes { "Yes" } else { "No" }.to_owned();
    let digest = |on: bool| if on { "CRC32C" } else { "None" }.to_owned();
    let agreed = session.agreed();
    let identity = session.inquiry().map_or(Vec::new(), |inquiry| {
        vec![
            ("vendor", inquiry.vendor.clone()),
            ("product", inquiry.product.clone()),
            ("revision", inquiry.revision.clone()),
        ]
    });
    let serial = session.serial().map(|serial| ("serial", serial.to_owned()));
    Facts {
        identity: identity.into_iter().chain(serial).collect(),
        negotiated: vec![
            ("HeaderDigest", digest(agreed.header_digest)),
            ("DataDigest", digest(agreed.data_digest)),
            ("ImmediateData", yes(agreed.immediate_data)),
            ("InitialR2T", yes(agreed.initial_r2t)),
            ("FirstBurstLength", agreed.first_burst_len.to_string()),
            ("MaxBurstLength", agreed.max_burst_len.to_string()),
            ("MaxOutstandingR2T", agreed.max_outstanding_r2t.to_string()),
            ("MaxRecvDataSegmentLength", agreed.max_recv_segment_len.to_string()),
            ("MaxRecvDataSegmentLength of the target", agreed.max_send_segment_len.to_string()),
            ("AuthMethod", session.auth_method().to_owned()),
        ],
    }
}

/// What FSINFO said (RFC 1813 §3.3.19).
pub(super) fn of_mount(mount: &Mount) -> Facts {
    let Some(info) = mount.info() else { return Facts::default() };
    let negotiated = [
        ("rtmax", info.read_max),
        ("rtpref", info.read_preferred),
        ("wtmax", info.write_max),
        ("wtpref", info.write_preferred),
        ("dtpref", info.listing_preferred),
    ];
    Facts { identity: Vec::new(), negotiated: negotiated.map(|(name, bytes)| (name, bytes.to_string())).to_vec() }
}
