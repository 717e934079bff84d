//! PDUs as text, one line each.

use alloc::{format, string::String};
use core::fmt::Write;

use super::pdu::{COMMON_LEN, Common, DIGEST_LEN, DataHeader, Fes, Header, flags, header_len, kind};
use crate::{
    Violation,
    nvme::{
        Sqe,
        describe::{Queue, command, completion},
    },
};

/// The PDUs of a connection in order, in both directions. Connect determines the kind of the commands that follow.
#[derive(Clone, Debug, Default)]
pub struct Stream(Queue);

impl Stream {
    /// Like the function `describe`.
    pub fn describe(&mut self, bytes: &[u8]) -> Result<Option<(usize, String)>, Violation> {
        let described = describe_on(bytes, self.0);
        if let (Ok(Some(_)), Some(rest)) = (&described, bytes.get(COMMON_LEN..))
            && bytes.first() == Some(&kind::COMMAND)
            && let Some(sqe) = rest.first_chunk().map(|bytes| Sqe(*bytes))
            && let Some(queue) = Queue::of_connect(&sqe)
        {
            self.0 = queue;
        }
        described
    }
}

/// Describes the PDU at the start of `bytes` in one line, and returns its length in bytes. `Ok(None)` if the PDU is not
/// complete. The bytes alone do not distinguish an admin command from an I/O command with the same opcode, so such a
/// command gets both names (see `Stream`).
pub fn describe(bytes: &[u8]) -> Result<Option<(usize, String)>, Violation> {
    describe_on(bytes, Queue::Unknown)
}

fn describe_on(bytes: &[u8], queue: Queue) -> Result<Option<(usize, String)>, Violation> {
    let Some(first) = bytes.first_chunk::<COMMON_LEN>() else { return Ok(None) };
    let common = Common::decode(*first);
    let Some(expected) = header_len(common.kind) else {
        return Err(malformed!("NVMe/TCP 1.1 §3.6.2.1: the PDU type is not defined").at(0));
    };
    if usize::from(common.header_len) != expected {
        return Err(malformed!("NVMe/TCP 1.1 §3.6.2.1: HLEN is not that of the PDU type").at(2));
    }
    let len = common.len as usize;
    if len < expected {
        return Err(malformed!("NVMe/TCP 1.1 §3.6.2.1: PLEN is less than the header").at(4));
    }
    let Some(whole) = bytes.get(..len) else { return Ok(None) };
    let Some(header) = Header::decode(common, whole) else {
        return Err(malformed!("NVMe/TCP 1.1 §3.6.2.1: the PDU type is not defined").at(0));
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
        Header::HostData(data) => format!("H2CData ttag={} {}", data.ttag.0, transfer(&data)),
        Header::ControllerData(data) => {
            let success = if data.is_success { " success" } else { "" };
            format!("C2HData {}{success}", transfer(&data))
        }
        Header::R2t(r2t) => {
            format!("R2T cid={:#06x} ttag={} offset={} len={}", r2t.cid, r2t.ttag.0, r2t.offset, r2t.len)
        }
    };
    describe_rest(common, len, &mut line);
    Ok(Some((len, line)))
}

/// Appends the length of the data in the PDU, and its digests.
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
