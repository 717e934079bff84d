//! The end of a command on the wire: its data as one sequence, then its response.

use crate::{
    Payload,
    fc::{
        Header, Link, OxId, RxId,
        frame::{f_ctl, kind},
        sequence::data_header,
    },
    fcp::iu::{encode_response, encode_sense, response_header},
    scsi::{
        DataIn, Response,
        task::{Announced, Residual},
    },
};

/// What a response answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) ox_id: OxId,
    pub(super) rx_id: RxId,
    pub(super) announced: Announced,
}

pub(super) fn respond(link: &mut Link, answered: Answered, response: &Response) {
    let data_len = u32::try_from(response.data.len()).unwrap_or(u32::MAX);
    let residual = answered.announced.residual(data_len, response.data_out_len);
    let send_len = data_len.min(answered.announced.data_in) as usize;
    if send_len > 0 {
        let header = ids(data_header(kind::FCP, true), answered);
        match &response.data {
            DataIn::Payload(payload) => link.send_payload(header, payload.slice(0, send_len)),
            DataIn::Inline(bytes) => link.send_payload(header, Payload::from_vec(bytes[..send_len].to_vec())),
            DataIn::None => {}
        }
    }
    let header = ids(response_header(), answered);
    match &response.sense {
        None => {
            let (bytes, len) = encode_response(response.status, residual, None);
            link.send(header, &bytes[..len]);
        }
        Some(sense) => link.send(header, &encode_sense(response.status, residual, sense)),
    }
}

/// Ends a command or a task management function by `RSP_CODE` alone.
pub(super) fn respond_code(link: &mut Link, ox_id: OxId, rx_id: RxId, code: u8) {
    let (bytes, len) = encode_response(0, Residual::default(), Some(code));
    link.send(Header { ox_id, rx_id, ..response_header() }, &bytes[..len]);
}

fn ids(header: Header, answered: Answered) -> Header {
    debug_assert!(header.has(f_ctl::EXCHANGE_CONTEXT));
    Header { ox_id: answered.ox_id, rx_id: answered.rx_id, ..header }
}
