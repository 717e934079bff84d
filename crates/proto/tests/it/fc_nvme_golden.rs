//! The bytes of a small session, stored in `data/fc_nvme_session.hex` and read by an independent decoder: tshark, as
//! FCIP. tshark decodes frames and Fibre Channel's own link services, but not the information units of NVMe.
#![allow(clippy::unwrap_used)]

use crate::capture::{Message, assert_kept, decoded, messages, number};
use crate::fc_nvme_support::{Pair, config, target_config};
use crate::nvme_support::{Answers, Cut, Server};
use iotax_proto::{Initiator, Io, fc_nvme::decode::describe};

/// The session, one message per frame.
fn session() -> Vec<Message> {
    // The frames are large enough for the longest information unit. A controller data structure takes two of them.
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
    // A second session, with an abort.
    let mut pair = Pair::ready(config(16, 2112), target_config(16, 2112, 1024), Server::new(), Cut::Never);
    pair.order.clear();
    pair.server.answers = Answers::Later;
    let now = pair.now;
    pair.initiator.submit(now, 3, Io::Read { offset: 0, len: 512 }).unwrap();
    pair.send().unwrap();
    pair.initiator.abort(now, 3);
    pair.run().unwrap_err();
    order.extend(pair.order);
    messages(&order, |bytes| describe(bytes).unwrap().unwrap().0)
}

#[test]
fn the_bytes_on_the_wire_are_those_kept() {
    assert_kept("fc_nvme_session.hex", &session(), |bytes| describe(bytes).unwrap().unwrap().1);
}

/// Number of bytes before the frame: the encapsulation header and the SOF.
const BEFORE_FRAME: usize = 32;

#[test]
fn an_independent_decoder_reads_every_frame() {
    // R_RDYs are neither frames nor part of FCIP; Special Frames contain no Fibre Channel frame.
    let is_frame = |bytes: &[u8]| bytes[8] == 0;
    let session: Vec<_> = session().into_iter().filter(|(_, bytes)| bytes[8] != 2).collect();
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
    let Some(lines) = decoded(3225, "fcip", &session, &fields) else { return };
    for (line, (_, bytes)) in lines.iter().zip(&session) {
        assert_eq!(line[8], "", "malformed: {line:?}");
        assert_eq!(number(&line[0]), Some(bytes.len() as u32 / 4), "{line:?}");
        if is_frame(bytes) {
            let frame = &bytes[BEFORE_FRAME..];
            let half = |at: usize| Some(u32::from(u16::from_be_bytes([frame[at], frame[at + 1]])));
            assert_eq!(number(&line[1]), Some(frame[0].into()), "R_CTL: {line:?}");
            assert_eq!(number(&line[2]), Some(frame[8].into()), "TYPE: {line:?}");
            assert_eq!((number(&line[3]), number(&line[4])), (half(16), half(18)), "OX_ID, RX_ID: {line:?}");
            assert_eq!(number(&line[5]), half(14), "SEQ_CNT: {line:?}");
        }
    }
    let column = |at: usize| lines.iter().filter_map(|line| number(&line[at])).collect::<Vec<_>>();
    assert_eq!(column(7), [4, 2, 3, 2, 0x20, 2, 5, 2], "FLOGI, PLOGI, PRLI, LOGO, each accepted");
    assert_eq!(column(2).iter().filter(|kind| **kind == 0x28).count() * 10 / column(2).len(), 8, "most are NVMe's");
}
