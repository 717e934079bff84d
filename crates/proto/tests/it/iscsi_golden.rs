//! The bytes of a small session, stored in `data/iscsi_session.hex` and read by an independent decoder (tshark).
#![allow(clippy::unwrap_used)]

use crate::capture::{Message, assert_kept, decoded, messages, number};
use crate::iscsi_support::{Cut, MemoryBackend, Pair, pattern};
use iotax_proto::{
    Io,
    iscsi::{Wishes, decode::describe, target_side::Config},
};

/// The session, one message per PDU.
fn session() -> Vec<Message> {
    let wishes = Wishes { first_burst_len: 512, max_burst_len: 1024, ..Wishes::default() };
    let mut pair = Pair::ready(wishes, Config::default(), MemoryBackend::new(1 << 16), Cut::Whole);
    pair.write(0, 512, &pattern(1, 1536));
    pair.read(1, 512, 512);
    pair.io(2, Io::Flush).unwrap();
    pair.io(3, Io::Unmap { offset: 0, len: 512 }).unwrap();
    pair.close();
    messages(&pair.order, |bytes| describe(bytes).unwrap().0)
}

#[test]
fn the_bytes_on_the_wire_are_those_kept() {
    assert_kept("iscsi_session.hex", &session(), |bytes| describe(bytes).unwrap().1);
}

#[test]
fn an_independent_decoder_reads_every_pdu() {
    let session = session();
    let fields = ["iscsi.opcode", "iscsi.keyvalue", "_ws.malformed"];
    let Some(lines) = decoded(3260, "iscsi", &session, &fields) else { return };
    for (line, (_, bytes)) in lines.iter().zip(&session) {
        assert_eq!(number(&line[0]), Some(u32::from(bytes[0] & 0x3f)), "{line:?}");
        assert_eq!(line[2], "", "malformed: {line:?}");
    }
    assert!(lines[0][1].contains("InitiatorName=iqn.2026-11.io.iotax:initiator"), "{:?}", lines[0]);
    let agreed = lines.iter().find(|line| line[1].contains("FirstBurstLength=512") && line[0] == "0x23");
    assert!(agreed.is_some_and(|line| line[1].contains("MaxBurstLength=1024")));
}
