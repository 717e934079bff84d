//! The end of a command on the wire: Data-In, with the status in the last where it may be, or a SCSI Response.
//!
//! A text exchange under way.
//!
//! Task management functions whose answer waits for what they aborted.
//!
//! The commands outstanding on a connection: a slot's number is the `IoId`, and stands in the TTTs of its R2Ts.

use super::{collect::Collect, link::Link};
use crate::{
    Payload, Wait,
    iscsi::{
        pdu::{Bhs, DataIn, ScsiResponse, TaskTag, TransferTag},
        text::{TextIn, TextOut},
    },
    scsi::{
        self, Response, status,
        task::{Announced, Residual},
    },
    tasks::TaskId,
};

/// What a response answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) itt: TaskTag,
    pub(super) announced: Announced,
    pub(super) r2ts_sent: u32,
}

/// Sends a command's response.
pub(super) fn respond(link: &mut Link, answered: Answered, response: &Response) {
    let data_len = u32::try_from(response.data.len()).unwrap_or(u32::MAX);
    let residual = answered.announced.residual(data_len, response.data_out_len);
    let send_len = data_len.min(answered.announced.data_in);
    // RFC 7143 §11.7.3: GOOD status without sense may ride in the last Data-In.
    let collapse = send_len > 0 && response.status == status::GOOD && response.sense.is_none();
    let sent = match &response.data {
        scsi::DataIn::Payload(payload) => {
            send_data(link, answered, send_len, collapse.then_some(residual), |link, bhs, at, len| {
                link.sender.payload(&mut link.transmit, bhs, slice(payload, at, len));
            })
        }
        scsi::DataIn::Inline(bytes) => {
            send_data(link, answered, send_len, collapse.then_some(residual), |link, bhs, at, len| {
                link.bytes(bhs, &bytes[at as usize..(at + len) as usize]);
            })
        }
        scsi::DataIn::None => 0,
    };
    if !collapse {
        send_status(link, answered, response, residual, sent);
    }
}

fn slice(payload: &Payload, at: u32, len: u32) -> Payload {
    payload.slice(at as usize, len as usize)
}

/// Sends `total` bytes as Data-In PDUs, of which the last carries GOOD status where `collapsed` is given. A PDU is at most
/// the initiator's MaxRecvDataSegmentLength, a sequence at most MaxBurstLength (RFC 7143 §13.12, §13.13). Gives their number.
fn send_data(
    link: &mut Link,
    answered: Answered,
    total: u32,
    collapsed: Option<Residual>,
    mut put: impl FnMut(&mut Link, Bhs, u32, u32),
) -> u32 {
    let (segment_len, burst_len) = (link.agreed.max_send_segment_len, link.agreed.max_burst_len);
    let (mut at, mut data_sn, mut burst_left) = (0, 0, burst_len);
    while at < total {
        let len = segment_len.min(burst_left).min(total - at);
        burst_left -= len;
        let ends = at + len == total;
        let mut data = DataIn {
            last: ends || burst_left == 0,
            itt: answered.itt,
            ttt: TransferTag::RESERVED,
            exp_cmd_sn: link.exp_cmd_sn,
            max_cmd_sn: link.max_cmd_sn(),
            data_sn,
            buffer_offset: at,
            ..DataIn::default()
        };
        if let (true, Some(residual)) = (ends, collapsed) {
            data.status_here = true;
            data.status = status::GOOD;
            data.stat_sn = link.take_stat_sn();
            (data.overflow, data.underflow, data.residual) = (residual.overflow, residual.underflow, residual.count);
        }
        put(link, data.encode(), at, len);
        if burst_left == 0 {
            burst_left = burst_len;
        }
        at += len;
        data_sn += 1;
    }
    data_sn
}

fn send_status(link: &mut Link, answered: Answered, response: &Response, residual: Residual, data_ins: u32) {
    let pdu = ScsiResponse {
        last: true,
        overflow: residual.overflow,
        underflow: residual.underflow,
        status: response.status,
        itt: answered.itt,
        stat_sn: link.take_stat_sn(),
        exp_cmd_sn: link.exp_cmd_sn,
        max_cmd_sn: link.max_cmd_sn(),
        // RFC 7143 §11.4.8: Data-In and R2T PDUs sent for the command.
        exp_data_sn: data_ins + answered.r2ts_sent,
        residual: residual.count,
        ..ScsiResponse::default()
    };
    match &response.sense {
        None => link.header(&pdu.encode()),
        Some(sense) => {
            let sense = sense.encode();
            let mut data = alloc::vec::Vec::with_capacity(2 + sense.len());
            data.extend_from_slice(&(sense.len() as u16).to_be_bytes());
            data.extend_from_slice(&sense);
            link.bytes(pdu.encode(), &data);
        }
    }
}

/// A text exchange that takes more than one request.
#[derive(Debug, Default)]
pub(super) struct TextExchange {
    /// ITT of the exchange, where one is open.
    pub(super) open: Option<TaskTag>,
    pub(super) text_in: TextIn,
    pub(super) text_out: TextOut,
}

/// A task management function that is done but for what it waits for.
#[derive(Debug)]
pub(super) struct Managed {
    pub(super) wait: Wait,
    pub(super) itt: TaskTag,
    /// RFC 7143 §11.5.1: TARGET COLD RESET closes every connection to the target, this one too.
    pub(super) closes: bool,
}

/// A command under way.
#[derive(Debug, Default)]
pub(super) struct Task {
    pub(super) scsi: scsi::task::Task,
    /// Counts against the window, unlike an immediate command.
    pub(super) counted: bool,
    pub(super) collect: Collect,
}

impl TaskId for TaskTag {
    const NONE: Self = Self::RESERVED;
}

/// By ITT.
pub(super) type Tasks = crate::tasks::Tasks<TaskTag, Task>;
