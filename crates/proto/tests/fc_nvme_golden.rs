//! The bytes of a small session, kept in `data/fc_nvme_session.hex` and read by an independent decoder: tshark, as FCIP. It reads
//! frames and Fibre Channel's own link services, and has no words for NVMe's units.
//!
//! A frame a line, `>` to the target and `<` to the initiator, each under its description. `IOTAX_RECORD=1` records them anew;
//! look at the difference before keeping it.
#![allow(clippy::unwrap_used)]

mod capture;
mod fc_nvme_support;
mod nvme_support;

use std::{fmt::Write as _, fs, path::PathBuf, process::Command};

use capture::pcap;
use fc_nvme_support::{Pair, config, target_config};
use iotax_proto::{Initiator, Io, fc_nvme::decode::describe};
use nvme_support::{Answers, Cut, Server};

/// The session, frame by frame: whether the initiator sent it, and its bytes.
fn session() -> Vec<(bool, Vec<u8>)> {
    // Frames that take the longest unit, and one structure of a controller in two.
    let mut pair = Pair::ready(config(16, 2112), target_config(16, 2112, 1024), Server::new(), Cut::Never);
    let data: Vec<u8> = (0..1536_u32).map(|at| (at / 7) as u8).collect();
    pair.write(0, 512, &data);
    pair.read(1, 512, 1024);
    pair.io(2, Io::Flush).unwrap();
    pair.server.fails_with = Some(iotax_proto::UnitError::Medium);
    pair.io(4, Io::Read { offset: 0, len: 512 }).unwrap_err();
    pair.server.fails_with = None;
    pair.close();
    let mut order = pair.order;
    // Another, which aborts.
    let mut pair = Pair::ready(config(16, 2112), target_config(16, 2112, 1024), Server::new(), Cut::Never);
    pair.order.clear();
    pair.server.answers = Answers::Later;
    let now = pair.now;
    pair.initiator.submit(now, 3, Io::Read { offset: 0, len: 512 }).unwrap();
    pair.send().unwrap();
    pair.initiator.abort(now, 3);
    pair.run().unwrap_err();
    order.extend(pair.order);
    order
        .iter()
        .flat_map(|(from_initiator, bytes)| {
            let mut frames = Vec::new();
            let mut at = 0;
            while at < bytes.len() {
                let (len, _) = describe(&bytes[at..]).unwrap().unwrap();
                frames.push((*from_initiator, bytes[at..at + len].to_vec()));
                at += len;
            }
            frames
        })
        .collect()
}

#[test]
fn the_bytes_on_the_wire_are_those_kept() {
    let mut text = String::new();
    for (from_initiator, bytes) in session() {
        let (_, words) = describe(&bytes).unwrap().unwrap();
        write!(text, "# {words}\n{} ", if from_initiator { '>' } else { '<' }).unwrap();
        for byte in bytes {
            write!(text, "{byte:02x}").unwrap();
        }
        text.push('\n');
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/fc_nvme_session.hex");
    if std::env::var_os("IOTAX_RECORD").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap();
    for (number, (new, kept)) in text.lines().zip(kept.lines()).enumerate() {
        assert_eq!(new, kept, "line {}", number + 1);
    }
    assert_eq!(text.lines().count(), kept.lines().count());
}

/// Bytes of the encapsulation's header and SOF before the frame.
const BEFORE_FRAME: usize = 32;

#[test]
fn an_independent_decoder_reads_every_frame() {
    if Command::new("tshark").arg("--version").output().is_err() {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI needs tshark");
        eprintln!("skipped: tshark is not installed");
        return;
    }
    // R_RDYs are no frames, and not FCIP's; Special Frames have no Fibre Channel frame in them.
    let is_frame = |bytes: &[u8]| bytes[8] == 0;
    let session: Vec<_> = session().into_iter().filter(|(_, bytes)| bytes[8] != 2).collect();
    let path = std::env::temp_dir().join(format!("iotax-fc-nvme-{}.pcap", std::process::id()));
    let messages = session.iter().map(|(from_initiator, frame)| (*from_initiator, &frame[..]));
    fs::write(&path, pcap(3225, messages)).unwrap();
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-d", "tcp.port==3225,fcip", "-T", "fields", "-r"]).arg(&path);
    let fields = [
        "fcip.framelen",
        "fc.r_ctl",
        "fc.type",
        "fc.ox_id",
        "fc.rx_id",
        "fc.seq_cnt",
        "fc.relative_offset",
        "fcels.opcode",
        "_ws.malformed",
    ];
    for field in fields {
        tshark.args(["-e", field]);
    }
    let output = tshark.output().unwrap();
    fs::remove_file(&path).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(lines.len(), session.len(), "one line a frame");
    let number = |text: &str| {
        let text = text.split(',').next().unwrap_or_default();
        text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |hex| u32::from_str_radix(hex, 16).ok())
    };
    for (line, (_, bytes)) in lines.iter().zip(&session) {
        assert_eq!(line.get(8).copied().unwrap_or(""), "", "malformed: {line:?}");
        assert_eq!(number(line[0]), Some(bytes.len() as u32 / 4), "{line:?}");
        if is_frame(bytes) {
            let frame = &bytes[BEFORE_FRAME..];
            let half = |at: usize| Some(u32::from(u16::from_be_bytes([frame[at], frame[at + 1]])));
            assert_eq!(number(line[1]), Some(frame[0].into()), "R_CTL: {line:?}");
            assert_eq!(number(line[2]), Some(frame[8].into()), "TYPE: {line:?}");
            assert_eq!((number(line[3]), number(line[4])), (half(16), half(18)), "OX_ID, RX_ID: {line:?}");
            assert_eq!(number(line[5]), half(14), "SEQ_CNT: {line:?}");
        }
    }
    let column = |at: usize| lines.iter().filter_map(|line| number(line[at])).collect::<Vec<_>>();
    assert_eq!(column(7), [4, 2, 3, 2, 0x20, 2, 5, 2], "FLOGI, PLOGI, PRLI, LOGO, each accepted");
    assert_eq!(column(2).iter().filter(|kind| **kind == 0x28).count() * 10 / column(2).len(), 8, "most are NVMe's");
}
