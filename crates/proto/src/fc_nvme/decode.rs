//! The contents of a stream as text, for traces.

use alloc::{format, string::String};

use super::{
    Command, Extended,
    iu::result,
    ls::{self, code},
};
use crate::{
    Violation,
    fc::{
        self, Header,
        frame::{kind, r_ctl},
        sequence::TransferReady,
    },
    nvme::describe::{Queue, command, completion},
};

/// Describes what is at the start of `bytes`, and returns its length in bytes; `None` if more bytes are needed.
pub fn describe(bytes: &[u8]) -> Result<Option<(usize, String)>, Violation> {
    fc::decode::describe(bytes, words)
}

fn words(header: &Header, data: &[u8]) -> Result<Option<String>, Violation> {
    Ok(Some(match (header.kind, header.r_ctl) {
        (kind::NVME, r_ctl::UNSOLICITED_COMMAND) => {
            let iu = Command::parse(data)?;
            let queue = if iu.is_io { Queue::Io } else { Queue::Admin };
            let (connection, csn) = (iu.connection.0, iu.csn);
            format!("NVMe_CMND {} connection={connection:#x} csn={csn} dl={}", command(&iu.sqe, queue), iu.data_len)
        }
        (kind::NVME, r_ctl::DATA_DESCRIPTOR) => {
            let TransferReady { offset, len } = TransferReady::parse(data)?;
            format!("NVMe_XFER_RDY offset={offset} burst={len}")
        }
        (kind::NVME, r_ctl::SOLICITED_DATA) => format!("NVMe_DATA offset={}", header.parameter),
        (kind::NVME, r_ctl::COMMAND_STATUS) => "NVMe_RSP".into(),
        (kind::NVME, r_ctl::EXTENDED_STATUS) => {
            let iu = Extended::parse(data)?;
            let (rsn, moved) = (iu.rsn, iu.moved);
            format!("NVMe_ERSP {} rsn={rsn} moved={moved} {}", result::name(iu.result), completion(&iu.cqe))
        }
        // The later frames of a link service do not start with its code.
        (kind::NVME, r_ctl::FC4_LS_REQUEST | r_ctl::FC4_LS_REPLY) if header.seq_cnt > 0 => "NVMe_LS, continued".into(),
        (kind::NVME, r_ctl::FC4_LS_REQUEST) => match (header.is_whole_sequence(), data.first()) {
            (true, _) => request(&ls::Request::parse(data)?),
            (false, code) => format!("NVMe_LS {}", code.map_or("without bytes", |code| code::name(*code))),
        },
        (kind::NVME, r_ctl::FC4_LS_REPLY) => answer(&ls::Answer::parse(data)?),
        _ => return Ok(None),
    }))
}

fn request(request: &ls::Request) -> String {
    let name = code::name(request.code());
    match request {
        ls::Request::CreateAssociation { ersp_ratio, sq_size, hostnqn, subnqn, .. } => {
            format!("NVMe_LS {name} host={hostnqn} subsystem={subnqn} sqsize={sq_size} ersp_ratio={ersp_ratio}")
        }
        ls::Request::CreateConnection { association, ersp_ratio, qid, sq_size } => {
            let (association, qid) = (association.0, qid.0);
            format!("NVMe_LS {name} association={association:#x} qid={qid} sqsize={sq_size} ersp_ratio={ersp_ratio}")
        }
        ls::Request::DisconnectAssociation(association) => format!("NVMe_LS {name} association={:#x}", association.0),
        ls::Request::Other(code) => format!("NVMe_LS {name} {code:#04x}"),
    }
}

fn answer(answer: &ls::Answer) -> String {
    match answer {
        ls::Answer::Association { association, connection } => {
            format!("NVMe_LS LS_ACC association={:#x} connection={:#x}", association.0, connection.0)
        }
        ls::Answer::Connection(connection) => format!("NVMe_LS LS_ACC connection={:#x}", connection.0),
        ls::Answer::Disconnected => "NVMe_LS LS_ACC".into(),
        ls::Answer::Rejected(ls::Rejection { reason, explanation }) => {
            format!("NVMe_LS LS_RJT reason={reason:#04x} explanation={explanation:#04x}")
        }
    }
}
