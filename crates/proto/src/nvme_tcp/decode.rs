//! PDUs in words, a line each.

use alloc::{format, string::String};
use core::fmt::Write;

use super::pdu::{COMMON_LEN, Common, DIGEST_LEN, DataHeader, Fes, Header, flags, header_len, kind};
use crate::{
    Violation,
    nvme::{
        Cqe, Sqe,
        command::{Connect, Sgl, admin, fabrics, nvm},
        log::GetLogPage,
    },
};

/// What a connection carries; admin commands and I/O commands share opcodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Queue {
    /// No Connect was seen: a command is named as both.
    #[default]
    Unknown,
    Admin,
    Io,
}

/// A connection's PDUs in order, of both directions: Connect tells which commands follow.
#[derive(Clone, Debug, Default)]
pub struct Stream(Queue);

impl Stream {
    /// As `describe`.
    pub fn describe(&mut self, bytes: &[u8]) -> Result<Option<(usize, String)>, Violation> {
        let described = describe_on(bytes, self.0);
        if let (Ok(Some(_)), Some(rest)) = (&described, bytes.get(COMMON_LEN..))
            && bytes.first() == Some(&kind::COMMAND)
            && let Some(sqe) = rest.first_chunk().map(|bytes| Sqe(*bytes))
            && sqe.is_fabrics()
            && sqe.fabrics_type() == fabrics::CONNECT
        {
            self.0 = if Connect::parse(&sqe).qid == 0 { Queue::Admin } else { Queue::Io };
        }
        described
    }
}

/// Where a PDU starts, tells what it is: the bytes that it takes and a line that describes it. `Ok(None)` where `bytes` end
/// before the PDU does. By its bytes alone an admin command cannot be told from an I/O command of the same opcode: it is
/// named as both (see `Stream`).
pub fn describe(bytes: &[u8]) -> Result<Option<(usize, String)>, Violation> {
    describe_on(bytes, Queue::Unknown)
}

fn describe_on(bytes: &[u8], queue: Queue) -> Result<Option<(usize, String)>, Violation> {
    let Some(first) = bytes.first_chunk::<COMMON_LEN>() else { return Ok(None) };
    let common = Common::decode(*first);
    let Some(expected) = header_len(common.kind) else {
        return Err(Violation::malformed("NVMe/TCP: the PDU type is not defined").at(0));
    };
    if usize::from(common.header_len) != expected {
        return Err(Violation::malformed("NVMe/TCP: HLEN is not that of the PDU type").at(2));
    }
    let len = common.len as usize;
    if len < expected {
        return Err(Violation::malformed("NVMe/TCP: PLEN is less than the header").at(4));
    }
    let Some(whole) = bytes.get(..len) else { return Ok(None) };
    let Some(header) = Header::decode(common, whole) else {
        return Err(Violation::malformed("NVMe/TCP: the PDU type is not defined").at(0));
    };
    let mut line = match header {
        Header::IcReq(req) => format!(
            "ICReq pfv={} hpda={} hdgst={} ddgst={} maxr2t={}",
            req.format_version, req.host_alignment, req.digests.header, req.digests.data, req.max_r2t
        ),
        Header::IcResp(resp) => format!(
            "ICResp pfv={} cpda={} hdgst={} ddgst={} maxh2cdata={}",
            resp.format_version, resp.controller_alignment, resp.digests.header, resp.digests.data, resp.max_h2c_data
        ),
        Header::HostTerm(term) => format!("H2CTermReq {} fei={:#x}", fatal_status(term.status), term.information),
        Header::ControllerTerm(term) => format!("C2HTermReq {} fei={:#x}", fatal_status(term.status), term.information),
        Header::Command(sqe) => format!("CapsuleCmd {}", command(&sqe, queue)),
        Header::Response(cqe) => format!("CapsuleResp {}", completion(&cqe)),
        Header::HostData(data) => format!("H2CData ttag={} {}", data.ttag, transfer(&data)),
        Header::ControllerData(data) => {
            let success = if data.is_success { " success" } else { "" };
            format!("C2HData {}{success}", transfer(&data))
        }
        Header::R2t(r2t) => {
            format!("R2T cid={:#06x} ttag={} offset={} len={}", r2t.cid, r2t.ttag, r2t.offset, r2t.len)
        }
    };
    describe_rest(common, len, &mut line);
    Ok(Some((len, line)))
}

/// Length of the data in the PDU and which digests it has.
fn describe_rest(common: Common, len: usize, line: &mut String) {
    let has_data_digest = common.flags & flags::DATA_DIGEST != 0;
    if common.data_offset > 0 {
        let data = len.saturating_sub(usize::from(common.data_offset) + usize::from(has_data_digest) * DIGEST_LEN);
        // Writing to a string does not fail.
        let _ = write!(line, " data={data}");
    }
    if common.flags & flags::HEADER_DIGEST != 0 {
        line.push_str(" hdgst");
    }
    if has_data_digest {
        line.push_str(" ddgst");
    }
}

fn transfer(data: &DataHeader) -> String {
    let last = if data.is_last { " last" } else { "" };
    format!("cid={:#06x} offset={} len={}{last}", data.cid, data.offset, data.len)
}

fn command(sqe: &Sqe, queue: Queue) -> String {
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
            format!("Connect qid={} sqsize={} kato={}ms", connect.qid, connect.sq_size, connect.keep_alive_ms)
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

fn completion(cqe: &Cqe) -> String {
    format!("cid={:#06x} status={:?} result={:#x} sqhd={}", cqe.cid, cqe.status, cqe.result, cqe.sq_head)
}

fn fatal_status(status: u16) -> &'static str {
    const NAMES: [(Fes, &str); 6] = [
        (Fes::InvalidHeaderField, "Invalid PDU Header Field"),
        (Fes::SequenceError, "PDU Sequence Error"),
        (Fes::HeaderDigestError, "Header Digest Error"),
        (Fes::DataOutOfRange, "Data Transfer Out of Range"),
        (Fes::LimitExceeded, "Transfer or R2T Limit Exceeded"),
        (Fes::UnsupportedParameter, "Unsupported Parameter"),
    ];
    NAMES.iter().find(|(code, _)| *code as u16 == status).map_or("reserved status", |(_, name)| name)
}
