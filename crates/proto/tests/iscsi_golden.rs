//! The bytes of a small session, kept in `data/iscsi_session.hex` and read by an independent decoder (tshark).
//!
//! A PDU a line, `>` to the target and `<` to the initiator, each under its description. `IOTAX_RECORD=1` records them anew;
//! look at the difference before keeping it.
#![allow(clippy::unwrap_used)]

mod capture;
mod iscsi_support;

use std::{fmt::Write as _, fs, path::PathBuf, process::Command};

use capture::pcap;
use iotax_proto::{
    Io,
    iscsi::{Wishes, decode::describe, target_side::Config},
};
use iscsi_support::{Cut, MemoryBackend, Pair, pattern};

/// The session, PDU by PDU: whether the initiator sent it, and its bytes.
fn session() -> Vec<(bool, Vec<u8>)> {
    let wishes = Wishes { first_burst_len: 512, max_burst_len: 1024, ..Wishes::default() };
    let mut pair = Pair::ready(wishes, Config::default(), MemoryBackend::new(1 << 16), Cut::Whole);
    pair.write(0, 512, &pattern(1, 1536));
    pair.read(1, 512, 512);
    pair.io(2, Io::Flush).unwrap();
    pair.io(3, Io::Unmap { offset: 0, len: 512 }).unwrap();
    pair.close();
    pair.order
        .iter()
        .flat_map(|(from_initiator, bytes)| {
            let mut pdus = Vec::new();
            let mut at = 0;
            while at < bytes.len() {
                let (len, _) = describe(&bytes[at..]).unwrap();
                pdus.push((*from_initiator, bytes[at..at + len].to_vec()));
                at += len;
            }
            pdus
        })
        .collect()
}

#[test]
fn the_bytes_on_the_wire_are_those_kept() {
    let mut text = String::new();
    for (from_initiator, bytes) in session() {
        let (_, words) = describe(&bytes).unwrap();
        write!(text, "# {words}\n{} ", if from_initiator { '>' } else { '<' }).unwrap();
        for byte in bytes {
            write!(text, "{byte:02x}").unwrap();
        }
        text.push('\n');
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/iscsi_session.hex");
    if std::env::var_os("IOTAX_RECORD").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap();
    for (number, (new, kept)) in text.lines().zip(kept.lines()).enumerate() {
        assert_eq!(new, kept, "line {}", number + 1);
    }
    assert_eq!(text.lines().count(), kept.lines().count());
}

#[test]
fn an_independent_decoder_reads_every_pdu() {
    if Command::new("tshark").arg("--version").output().is_err() {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI needs tshark");
        eprintln!("skipped: tshark is not installed");
        return;
    }
    let session = session();
    let path = std::env::temp_dir().join(format!("iotax-iscsi-{}.pcap", std::process::id()));
    let messages = session.iter().map(|(from_initiator, pdu)| (*from_initiator, &pdu[..]));
    fs::write(&path, pcap(3260, messages)).unwrap();
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-d", "tcp.port==3260,iscsi", "-T", "fields", "-r"]).arg(&path);
    for field in ["iscsi.opcode", "iscsi.keyvalue", "_ws.malformed"] {
        tshark.args(["-e", field]);
    }
    let output = tshark.output().unwrap();
    fs::remove_file(&path).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(lines.len(), session.len(), "one line a PDU");
    for (line, (_, bytes)) in lines.iter().zip(&session) {
        let opcode = line[0].strip_prefix("0x").and_then(|hex| u8::from_str_radix(hex, 16).ok());
        assert_eq!(opcode, Some(bytes[0] & 0x3f), "{line:?}");
        assert_eq!(line.get(2).copied().unwrap_or(""), "", "malformed: {line:?}");
    }
    assert!(lines[0][1].contains("InitiatorName=iqn.2026-11.io.iotax:initiator"), "{:?}", lines[0]);
    let agreed = lines.iter().find(|line| line[1].contains("FirstBurstLength=512") && line[0] == "0x23");
    assert!(agreed.is_some_and(|line| line[1].contains("MaxBurstLength=1024")));
}
