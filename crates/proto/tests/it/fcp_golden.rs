//! The bytes of a small session, stored in `data/fcp_session.hex` and read by an independent decoder (tshark, as FCIP).
#![allow(clippy::unwrap_used)]

use crate::capture::{Message, assert_kept, decoded, messages, number};
use crate::fcp_support::{FcBackend, Pair, config, target_config};
use crate::iscsi_support::{Cut, pattern};
use iotax_proto::{Io, fcp::decode::describe};

/// The session, one message per frame.
fn session() -> Vec<Message> {
    let mut pair = Pair::ready(config(16, 512), target_config(16, 512, 1024), FcBackend::new(1 << 16), Cut::Whole);
    pair.write(0, 512, &pattern(1, 1536));
    pair.read(1, 512, 1024);
    pair.io(2, Io::Flush).unwrap();
    pair.backend.memory.queues = true;
    let now = pair.now;
    iotax_proto::Initiator::submit(&mut pair.initiator, now, 3, Io::Read { offset: 0, len: 512 }).unwrap();
    let out = iotax_proto::Initiator::transmit(&mut pair.initiator).take_bytes();
    iotax_proto::Target::receive(&mut pair.target, now, &out, &mut pair.backend).unwrap();
    pair.order.push((true, out));
    pair.initiator.abort(now, 3);
    let out = iotax_proto::Initiator::transmit(&mut pair.initiator).take_bytes();
    iotax_proto::Target::receive(&mut pair.target, now, &out, &mut pair.backend).unwrap();
    pair.order.push((true, out));
    pair.run().unwrap();
    pair.close();
    messages(&pair.order, |bytes| describe(bytes).unwrap().unwrap().0)
}

#[test]
fn the_bytes_on_the_wire_are_those_kept() {
    assert_kept("fcp_session.hex", &session(), |bytes| describe(bytes).unwrap().unwrap().1);
}

/// Number of bytes before the frame: the encapsulation header and the SOF.
const BEFORE_FRAME: usize = 32;

#[test]
fn an_independent_decoder_reads_every_frame() {
    // R_RDYs are neither frames nor part of FCIP; Special Frames contain no Fibre Channel frame.
    let is_frame = |bytes: &[u8]| bytes[8] == 0;
    let session: Vec<_> = session().into_iter().filter(|(_, bytes)| bytes[8] != 2).collect();
    let fields = [
        "fcip.proto",
        "fcip.framelen",
        "fc.r_ctl",
        "fc.type",
        "fc.ox_id",
        "fc.seq_cnt",
        "fcp.dl",
        "fcp.burstlen",
        "fcp.status",
        "fcels.opcode",
        "_ws.malformed",
    ];
    let Some(lines) = decoded(3225, "fcip", &session, &fields) else { return };
    for (line, (_, bytes)) in lines.iter().zip(&session) {
        assert_eq!(line[10], "", "malformed: {line:?}");
        assert_eq!(number(&line[1]), Some(bytes.len() as u32 / 4), "{line:?}");
        if is_frame(bytes) {
            let frame = &bytes[BEFORE_FRAME..];
            assert_eq!(number(&line[2]), Some(frame[0].into()), "R_CTL: {line:?}");
            assert_eq!(number(&line[3]), Some(frame[8].into()), "TYPE: {line:?}");
            assert_eq!(number(&line[4]), Some(u16::from_be_bytes([frame[16], frame[17]]).into()), "OX_ID: {line:?}");
            assert_eq!(number(&line[5]), Some(u16::from_be_bytes([frame[14], frame[15]]).into()), "SEQ_CNT: {line:?}");
        }
    }
    let column = |at: usize| lines.iter().filter_map(|line| number(&line[at])).collect::<Vec<_>>();
    assert_eq!(column(6), [0, 0, 252, 32, 252, 252, 252, 1536, 1024, 0, 512], "FCP_DL");
    assert_eq!(column(7), [1024, 512], "FCP_BURST_LEN");
    assert_eq!(column(9), [4, 2, 3, 2, 0x20, 2, 5, 2], "FLOGI, PLOGI, PRLI, LOGO, each accepted");
}
