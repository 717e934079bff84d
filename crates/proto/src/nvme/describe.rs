//! Commands and completions as text.

use alloc::{format, string::String};

use super::{
    Cqe, QueueId, Sqe,
    command::{Connect, Sgl, admin, fabrics, nvm},
    log::GetLogPage,
};

/// The kind of queue that a connection carries. Some admin commands and I/O commands have the same opcode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queue {
    /// No Connect was seen, so a command gets the names of both.
    #[default]
    Unknown,
    Admin,
    Io,
}

impl Queue {
    /// The kind of queue that a Connect command creates; `None` for every other command.
    pub fn of_connect(sqe: &Sqe) -> Option<Self> {
        let is_connect = sqe.is_fabrics() && sqe.fabrics_type() == fabrics::CONNECT;
        is_connect.then(|| if Connect::parse(sqe).qid == QueueId::ADMIN { Self::Admin } else { Self::Io })
    }
}

pub fn command(sqe: &Sqe, queue: Queue) -> String {
    let cid = sqe.cid();
    let what = if sqe.is_fabrics() {
        fabrics_command(sqe)
    } else {
        match queue {
            Queue::Admin => admin_command(sqe),
            Queue::Io => io_command(sqe),
            Queue::Unknown => format!("{} | {}", io_command(sqe), admin_command(sqe)),
        }
    };
    let sgl = match sqe.sgl() {
        Sgl::InCapsule { offset, len } => format!("in-capsule offset={offset} len={len}"),
        Sgl::Transport { len } => format!("transport len={len}"),
        Sgl::Other => String::from("other"),
    };
    format!("cid={cid:#06x} {what} sgl={sgl}")
}

fn fabrics_command(sqe: &Sqe) -> String {
    match sqe.fabrics_type() {
        fabrics::CONNECT => {
            let connect = Connect::parse(sqe);
            format!("Connect qid={} sqsize={} kato={}ms", connect.qid.0, connect.sq_size, connect.keep_alive_ms)
        }
        fabrics::PROPERTY_GET => format!("Property Get offset={:#x}", sqe.cdw(11)),
        fabrics::PROPERTY_SET => format!("Property Set offset={:#x} value={:#x}", sqe.cdw(11), sqe.u64(48)),
        fabrics::DISCONNECT => String::from("Disconnect"),
        other => format!("Fabrics type={other:#04x}"),
    }
}

fn io_command(sqe: &Sqe) -> String {
    let nsid = sqe.nsid();
    let range = || format!("nsid={nsid} lba={} blocks={}", sqe.lba(), sqe.blocks());
    match sqe.opcode() {
        nvm::FLUSH => format!("Flush nsid={nsid}"),
        nvm::WRITE => format!("Write {}", range()),
        nvm::READ => format!("Read {}", range()),
        nvm::COMPARE => format!("Compare {}", range()),
        nvm::WRITE_ZEROES => format!("Write Zeroes {}", range()),
        nvm::DATASET_MANAGEMENT => {
            let ranges = (sqe.cdw(10) & 0xff) + 1;
            format!("Dataset Management nsid={nsid} ranges={ranges} attributes={:#x}", sqe.cdw(11))
        }
        nvm::RESERVATION_REGISTER => format!("Reservation Register nsid={nsid} action={}", sqe.cdw(10) & 7),
        nvm::RESERVATION_REPORT => format!("Reservation Report nsid={nsid} len={}", (u64::from(sqe.cdw(10)) + 1) * 4),
        nvm::RESERVATION_ACQUIRE => {
            format!("Reservation Acquire nsid={nsid} action={} type={}", sqe.cdw(10) & 7, sqe.cdw(10) >> 8 & 0xff)
        }
        nvm::RESERVATION_RELEASE => {
            format!("Reservation Release nsid={nsid} action={} type={}", sqe.cdw(10) & 7, sqe.cdw(10) >> 8 & 0xff)
        }
        other => format!("I/O opcode={other:#04x} nsid={nsid}"),
    }
}

fn admin_command(sqe: &Sqe) -> String {
    let nsid = sqe.nsid();
    let id = sqe.cdw(10) & 0xff;
    match sqe.opcode() {
        admin::GET_LOG_PAGE => {
            let log = GetLogPage::parse(sqe);
            format!("Get Log Page id={:#04x} len={} offset={}", log.id, log.len, log.offset)
        }
        admin::IDENTIFY => format!("Identify cns={id:#04x} nsid={nsid}"),
        admin::ABORT => format!("Abort cid={:#06x} sqid={}", sqe.cdw(10) >> 16, sqe.cdw(10) & 0xffff),
        admin::SET_FEATURES => format!("Set Features id={id:#04x} value={:#x}", sqe.cdw(11)),
        admin::GET_FEATURES => format!("Get Features id={id:#04x}"),
        admin::ASYNC_EVENT => String::from("Asynchronous Event Request"),
        admin::KEEP_ALIVE => String::from("Keep Alive"),
        other => format!("admin opcode={other:#04x} nsid={nsid}"),
    }
}

pub fn completion(cqe: &Cqe) -> String {
    format!("cid={:#06x} status={:?} result={:#x} sqhd={}", cqe.cid, cqe.status, cqe.result, cqe.sq_head)
}
