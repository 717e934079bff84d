//! Helpers for tests of the bytes on the wire: sessions stored as text, and capture files for an independent decoder
//! (tshark).
#![allow(dead_code, clippy::unwrap_used, reason = "shared by several test binaries")]

use std::{
    fmt::Write as _,
    fs,
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
};

/// A message: whether the initiator sent it, and its bytes.
pub(crate) type Message = (bool, Vec<u8>);

/// Splits the bytes that were sent into messages. `len` returns the length of the message at the start of its argument.
pub(crate) fn messages(order: &[Message], len: impl Fn(&[u8]) -> usize) -> Vec<Message> {
    let mut messages = Vec::new();
    for (from_initiator, bytes) in order {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (message, behind) = rest.split_at(len(rest));
            messages.push((*from_initiator, message.to_vec()));
            rest = behind;
        }
    }
    messages
}

/// Asserts that a session equals the one stored in `data/{name}`. That file has one line per message, `>` to the target
/// and `<` to the initiator, each below its description. `IOTAX_RECORD=1` writes the file anew; check the difference
/// before you commit it.
pub(crate) fn assert_kept(name: &str, session: &[Message], describe: impl Fn(&[u8]) -> String) {
    let mut text = String::new();
    for (from_initiator, bytes) in session {
        write!(text, "# {}\n{} ", describe(bytes), if *from_initiator { '>' } else { '<' }).unwrap();
        for byte in bytes {
            write!(text, "{byte:02x}").unwrap();
        }
        text.push('\n');
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    if std::env::var_os("IOTAX_RECORD").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap();
    for (number, (new, kept)) in text.lines().zip(kept.lines()).enumerate() {
        assert_eq!(new, kept, "line {}", number + 1);
    }
    assert_eq!(text.lines().count(), kept.lines().count());
}

/// The path of a capture file that no other test writes, neither in this process nor in another.
pub(crate) fn capture_path() -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("iotax-{}-{number}.pcap", std::process::id()))
}

/// Decodes a session on a connection to `port` with tshark as `protocol`: one line per message, one column per field.
/// Returns `None` if tshark is not installed.
pub(crate) fn decoded(port: u16, protocol: &str, session: &[Message], fields: &[&str]) -> Option<Vec<Vec<String>>> {
    if Command::new("tshark").arg("--version").output().is_err() {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI needs tshark");
        eprintln!("skipped: tshark is not installed");
        return None;
    }
    let path = capture_path();
    fs::write(&path, pcap(port, session.iter().map(|(from_initiator, bytes)| (*from_initiator, &bytes[..])))).unwrap();
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-d", &format!("tcp.port=={port},{protocol}"), "-T", "fields", "-r"]).arg(&path);
    for field in fields {
        tshark.args(["-e", field]);
    }
    let output = tshark.output().unwrap();
    fs::remove_file(&path).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<Vec<String>> = text
        .lines()
        .map(|line| {
            let mut columns: Vec<String> = line.split('\t').map(str::to_owned).collect();
            columns.resize(fields.len(), String::new());
            columns
        })
        .collect();
    assert_eq!(lines.len(), session.len(), "one line a message");
    Some(lines)
}

/// The first number of a column, decimal or hexadecimal.
pub(crate) fn number(column: &str) -> Option<u32> {
    let first = column.split(',').next().unwrap_or_default();
    first.strip_prefix("0x").map_or_else(|| first.parse().ok(), |hex| u32::from_str_radix(hex, 16).ok())
}

/// A pcap file of one TCP connection over IPv4, without link-layer headers. It has one segment per message; the `bool`
/// of a message is true if the client sent it.
pub(crate) fn pcap<'a>(port: u16, messages: impl IntoIterator<Item = (bool, &'a [u8])>) -> Vec<u8> {
    const MAGIC: u32 = 0xa1b2_c3d4;
    const VERSION: u32 = 4 << 16 | 2;
    const SNAPSHOT_BYTES: u32 = 1 << 18;
    const LINKTYPE_RAW: u32 = 101;
    let mut file = Vec::new();
    for word in [MAGIC, VERSION, 0, 0, SNAPSHOT_BYTES, LINKTYPE_RAW] {
        file.extend(word.to_le_bytes());
    }
    let ends = [(1, 40_000), (2, port)];
    // Sequence numbers of the client and of the server.
    let mut sent = [1_u32, 1];
    for (time, (from_client, message)) in messages.into_iter().enumerate() {
        let (from, to) = if from_client { (0, 1) } else { (1, 0) };
        let len = 40 + message.len();
        for word in [time as u32, 0, len as u32, len as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend([0x45, 0, (len >> 8) as u8, len as u8, 0, 0, 0, 0, 64, 6, 0, 0]);
        file.extend([127, 0, 0, ends[from].0, 127, 0, 0, ends[to].0]);
        file.extend(u16::to_be_bytes(ends[from].1));
        file.extend(u16::to_be_bytes(ends[to].1));
        file.extend(sent[from].to_be_bytes());
        file.extend(sent[to].to_be_bytes());
        file.extend([0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
        file.extend_from_slice(message);
        sent[from] += message.len() as u32;
    }
    file
}
