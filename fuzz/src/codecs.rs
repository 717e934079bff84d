//! Fuzzes every decoder.

use iotax_proto::{
    fcp, iscsi,
    nfs::{v3, v41},
    nvme::auth,
    nvme_tcp, scsi,
};

use super::nfs_support::{V3, V41};

pub fn run(data: &[u8]) {
    let Some((which, bytes)) = data.split_first() else { return };
    match which % 7 {
        0 => drop(iscsi::decode::describe_with_digests(bytes, which & 0x10 != 0, which & 0x20 != 0)),
        1 => drop(nvme_tcp::decode::describe(bytes)),
        2 => drop(v3::decode::describe(bytes)),
        3 => drop(scsi::describe_cdb(bytes)),
        4 => drop(fcp::decode::describe(bytes)),
        5 => {
            if let Some(message) = auth::Message::decode(bytes) {
                assert_eq!(auth::Message::decode(&message.encode()), Some(message), "what was read can be said");
            }
            super::nvme::authenticate(bytes);
        }
        _ => drop(v41::decode::describe(bytes)),
    }
}

/// One PDU of each protocol and side.
pub fn seeds() -> Vec<Vec<u8>> {
    let all = [
        (0, super::iscsi::streams()),
        (1, super::nvme::streams()),
        (2, super::nfs::streams::<V3>()),
        (4, super::fcp::streams()),
        (6, super::nfs::streams::<V41>()),
    ];
    let seeds = all.into_iter().flat_map(|(which, (one, other))| {
        [one, other].map(|stream| [&[which][..], &stream[..stream.len().min(256)]].concat())
    });
    let negotiate = [&[5, 0, 0, 0, 0, 5, 0, 0, 1, 1, 0, 1, 1, 1][..], &[0; 59]].concat();
    seeds.chain([vec![3, 0x28, 0, 0, 0, 0, 1, 0, 0, 8, 0], negotiate]).collect()
}
