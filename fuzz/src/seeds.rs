//! Writes the seed corpora: valid streams, from which the fuzzer starts.

use std::{fs, path::Path};

use iotax_fuzz::{
    codecs, fc_nvme, fcp, iscsi, nfs,
    nfs_support::{V3, V41},
    nvme,
};

fn main() -> std::io::Result<()> {
    let whole = |stream: Vec<u8>| [&[0][..], &stream].concat();
    let cut = |stream: Vec<u8>| [&[50][..], &stream].concat();
    let both = |stream: Vec<u8>| vec![whole(stream.clone()), cut(stream)];
    let of_queue = |queue: u8, stream: Vec<u8>| [&[queue, 0][..], &stream].concat();
    let corpora = [
        ("codecs", codecs::seeds()),
        ("iscsi_target", both(iscsi::streams().0)),
        ("iscsi_initiator", both(iscsi::streams().1)),
        (
            "nvme_target",
            vec![
                of_queue(0, nvme::streams().0),
                of_queue(1, nvme::admin_stream()),
                of_queue(2, nvme::authentication_stream()),
            ],
        ),
        ("nvme_initiator", both(nvme::streams().1)),
        ("fcp_target", both(fcp::streams().0)),
        ("fcp_initiator", both(fcp::streams().1)),
        ("fc_nvme_target", both(fc_nvme::streams().0)),
        ("fc_nvme_initiator", both(fc_nvme::streams().1)),
        ("nfs_target", both(nfs::streams::<V3>().0)),
        ("nfs_initiator", both(nfs::answers::<V3>())),
        ("nfs41_target", both(nfs::streams::<V41>().0)),
        ("nfs41_initiator", both(nfs::answers::<V41>())),
    ];
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    for (target, seeds) in corpora {
        fs::create_dir_all(directory.join(target))?;
        for (number, seed) in seeds.iter().enumerate() {
            fs::write(directory.join(target).join(number.to_string()), seed)?;
        }
    }
    Ok(())
}
