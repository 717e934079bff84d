//! Every decoder.

use iotax_proto::{fcp, iscsi, nfs::v3, nvme::auth, nvme_tcp, scsi};

pub fn run(data: &[u8]) {
    let Some((which, bytes)) = data.split_first() else { return };
    match which % 6 {
        0 => drop(iscsi::decode::describe_with_digests(bytes, which & 0x10 != 0, which & 0x20 != 0)),
        1 => drop(nvme_tcp::decode::describe(bytes)),
        2 => drop(v3::decode::describe(bytes)),
        3 => drop(scsi::describe_cdb(bytes)),
        4 => drop(fcp::decode::describe(bytes)),
        _ => {
            if let Some(message) = auth::Message::decode(bytes) {
                assert_eq!(auth::Message::decode(&message.encode()), Some(message), "what was read can be said");
            }
            super::nvme::authenticate(bytes);
        }
    }
}

/// A PDU of each, each side's.
pub fn seeds() -> Vec<Vec<u8>> {
    let all = [
        (0, super::iscsi::streams()),
        (1, super::nvme::streams()),
        (2, super::nfs::streams()),
        (4, super::fcp::streams()),
    ];
    let seeds = all.into_iter().flat_map(|(which, (one, other))| {
        [one, other].map(|stream| [&[which][..], &stream[..stream.len().min(256)]].concat())
    });
    let negotiate = [&[5, 0, 0, 0, 0, 5, 0, 0, 1, 1, 0, 1, 1, 1][..], &[0; 59]].concat();
    seeds.chain([vec![3, 0x28, 0, 0, 0, 0, 1, 0, 0, 8, 0], negotiate]).collect()
}
