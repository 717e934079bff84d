//! Responses to commands: Data-In, with the status in the last one if possible, or a SCSI Response. Also the connection
//! as the task manager uses it (the TTT of an R2T contains the slot), and the state of a text exchange.

use super::{
    collect::{Collect, PROTOCOL_SERVICE_CRC_ERROR},
    link::Link,
};
use crate::{
    IoId, Payload, Transmit,
    iscsi::{
        pdu::{
            Bhs, DataIn, R2t, ScsiResponse, TaskManagementResponse, TaskTag, TransferTag, control::function_response,
        },
        text::{TextIn, TextOut},
    },
    scsi::{
        self, Response, status,
        target::{self, Announced, Progress, Residual, ScsiTransport, TaskId},
    },
};

/// The command that a response answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) itt: TaskTag,
    pub(super) announced: Announced,
    pub(super) r2ts_sent: u32,
}

/// Sends the response of a command.
pub(super) fn respond(link: &mut Link, answered: Answered, response: &Response) {
    let data_len = u32::try_from(response.data.len()).unwrap_or(u32::MAX);
    let residual = answered.announced.residual(data_len, response.data_out_len);
    let send_len = data_len.min(answered.announced.data_in);
    // RFC 7143 §11.7.3: the last Data-In may contain GOOD status without sense data.
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

/// Sends `total` bytes as Data-In PDUs and returns their number. The last one contains GOOD status if `collapsed` is
/// given. A PDU is at most the initiator's MaxRecvDataSegmentLength, a sequence at most MaxBurstLength (RFC 7143
/// §13.12, §13.13).
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
        // RFC 7143 §11.4.8: number of Data-In and R2T PDUs sent for the command.
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

/// A text exchange, which may take several requests.
#[derive(Debug, Default)]
pub(super) struct TextExchange {
    /// ITT of the exchange, if one is open.
    pub(super) open: Option<TaskTag>,
    pub(super) text_in: TextIn,
    pub(super) text_out: TextOut,
}

/// A task management function that has not been answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function {
    pub(super) itt: TaskTag,
    /// RFC 7143 §11.5.1: TARGET COLD RESET closes every connection to the target, including this one.
    pub(super) closes: bool,
}

/// A command in progress.
pub(super) type Task = target::Task<Collect>;

impl TaskId for TaskTag {
    const NONE: Self = Self::RESERVED;
}

impl ScsiTransport for Link {
    type Id = TaskTag;
    type Collect = Collect;
    type Request = Function;

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.transmit
    }

    #[inline]
    fn ask(&mut self, slot: IoId, itt: TaskTag, task: &mut Task) -> Progress {
        while let Some(ask) = task.collect.next_ask(&self.agreed) {
            let r2t = R2t {
                last: true,
                lun: task.issued.lun,
                itt,
                ttt: make_ttt(slot, ask.r2t_sn),
                stat_sn: self.stat_sn,
                exp_cmd_sn: self.exp_cmd_sn,
                max_cmd_sn: self.max_cmd_sn(),
                r2t_sn: ask.r2t_sn,
                buffer_offset: ask.offset,
                desired_len: ask.len,
            };
            self.header(&r2t.encode());
        }
        match task.collect.fault() {
            _ if !task.collect.is_over() => Progress::Open,
            None => Progress::Complete,
            Some(_) => Progress::Wrong,
        }
    }

    #[inline]
    fn respond(&mut self, _slot: IoId, itt: TaskTag, task: &Task, response: &Response) {
        self.drop_task(itt, task);
        let r2ts_sent = task.collect.r2ts_sent();
        respond(self, Answered { itt, announced: task.issued.announced, r2ts_sent }, response);
    }

    fn respond_to_wrong_data(&mut self, slot: IoId, itt: TaskTag, task: &Task) {
        let fault = task.collect.fault().unwrap_or(PROTOCOL_SERVICE_CRC_ERROR);
        ScsiTransport::respond(self, slot, itt, task, &Response::check(fault));
    }

    #[inline]
    fn drop_task(&mut self, _itt: TaskTag, task: &Task) {
        self.outstanding -= u32::from(task.collect.counted);
    }

    fn respond_to_request(&mut self, request: Function, response: scsi::TaskManagementResponse) {
        let response = match response {
            scsi::TaskManagementResponse::Complete => function_response::COMPLETE,
            scsi::TaskManagementResponse::NoLun => function_response::NO_LUN,
            scsi::TaskManagementResponse::Unsupported => function_response::NOT_SUPPORTED,
            scsi::TaskManagementResponse::Failed => function_response::REJECTED,
        };
        self.is_reset |= request.closes && response == function_response::COMPLETE;
        respond_to_function(self, request.itt, response);
    }
}

/// Sends the response to a task management function (RFC 7143 §11.6).
pub(super) fn respond_to_function(link: &mut Link, itt: TaskTag, response: u8) {
    let pdu = TaskManagementResponse {
        last: true,
        response,
        itt,
        stat_sn: link.take_stat_sn(),
        exp_cmd_sn: link.exp_cmd_sn,
        max_cmd_sn: link.max_cmd_sn(),
    };
    link.header(&pdu.encode());
}

/// Builds a TTT from the slot and the R2TSN. The R2TSN distinguishes R2Ts of one task and of earlier tasks in the slot.
/// The result is never the reserved TTT.
pub(super) fn make_ttt(slot: IoId, r2t_sn: u32) -> TransferTag {
    TransferTag((r2t_sn & 0x7fff) << 16 | slot)
}

pub(super) fn split_ttt(ttt: TransferTag) -> (IoId, u32) {
    (ttt.0 & 0xffff, ttt.0 >> 16)
}
