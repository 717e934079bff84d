//! PDUs as text, for traces.

use alloc::{format, string::String};
use core::fmt::Write as _;

use super::{
    pdu::{
        AsyncMessage, BHS_LEN, Bhs, DataIn, DataOut, LoginRequest, LoginResponse, LogoutRequest, LogoutResponse, NopIn,
        NopOut, R2t, Reject, ScsiCommand, ScsiResponse, Snack, TaskManagement, TaskManagementResponse, TextRequest,
        TextResponse,
        control::{function, reject_reason},
        padding,
    },
    text::pairs,
};
use crate::{Violation, scsi};

/// Why bytes cannot be described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DescribeError {
    /// At least this many bytes are needed.
    Short(usize),
    Malformed(Violation),
}

/// Describes the PDU at the start of `bytes`, which has no digests, and returns its length in bytes.
pub fn describe(bytes: &[u8]) -> Result<(usize, String), DescribeError> {
    describe_with_digests(bytes, false, false)
}

/// Like `describe`, for a connection with digests. They are skipped, not checked.
pub fn describe_with_digests(
    bytes: &[u8],
    header_digest: bool,
    data_digest: bool,
) -> Result<(usize, String), DescribeError> {
    let bhs = Bhs(*bytes.first_chunk::<BHS_LEN>().ok_or(DescribeError::Short(BHS_LEN))?);
    let data_len = bhs.data_len() as usize;
    let data_at = BHS_LEN + bhs.ahs_len() + if header_digest { 4 } else { 0 };
    let digest_len = if data_digest && data_len > 0 { 4 } else { 0 };
    let len = data_at + data_len + padding(data_len) + digest_len;
    if bytes.len() < len {
        return Err(DescribeError::Short(len));
    }
    let words = words(&bhs, &bytes[data_at..data_at + data_len]).map_err(DescribeError::Malformed)?;
    let words = match (bhs.itt(), data_len) {
        (itt, 0) => format!("{words} itt={itt:#x}"),
        (itt, len) => format!("{words} itt={itt:#x} data={len}"),
    };
    Ok((len, words))
}

fn words(bhs: &Bhs, data: &[u8]) -> Result<String, Violation> {
    Ok(match bhs.opcode() {
        NopOut::OPCODE => format!("NOP-Out ttt={:#x}", NopOut::parse(bhs).ttt),
        ScsiCommand::OPCODE => {
            let pdu = ScsiCommand::parse(bhs);
            let direction = match (pdu.read, pdu.write) {
                (true, true) => "bidirectional",
                (true, false) => "in",
                (false, true) => "out",
                (false, false) => "no data",
            };
            let cdb = scsi::describe_cdb(&pdu.cdb);
            format!(
                "SCSI Command {cdb} lun={:#x} {direction} edtl={} cmdsn={}",
                pdu.lun, pdu.expected_data_len, pdu.cmd_sn
            )
        }
        TaskManagement::OPCODE => {
            let pdu = TaskManagement::parse(bhs);
            let name = function_name(pdu.function);
            format!("Task Management {name} lun={:#x} referenced={:#x}", pdu.lun, pdu.referenced_itt)
        }
        LoginRequest::OPCODE => {
            let pdu = LoginRequest::parse(bhs);
            let next = if pdu.transit { format!("→{}", pdu.nsg) } else { String::new() };
            format!("Login Request stage {}{next} tsih={}{}", pdu.csg, pdu.tsih.0, text(data)?)
        }
        TextRequest::OPCODE => format!("Text Request{}", text(data)?),
        DataOut::OPCODE => {
            let pdu = DataOut::parse(bhs);
            let last = if pdu.last { " final" } else { "" };
            format!("Data-Out offset={} datasn={} ttt={:#x}{last}", pdu.buffer_offset, pdu.data_sn, pdu.ttt)
        }
        LogoutRequest::OPCODE => format!("Logout Request reason={}", LogoutRequest::parse(bhs).reason),
        Snack::OPCODE => format!("SNACK type={}", Snack::parse(bhs).kind),
        NopIn::OPCODE => format!("NOP-In ttt={:#x}", NopIn::parse(bhs).ttt),
        ScsiResponse::OPCODE => {
            let pdu = ScsiResponse::parse(bhs);
            let sense = data.get(2..).and_then(scsi::sense::parse);
            let sense = sense.map_or(String::new(), |sense| format!(" sense={:06x}", sense.kcq()));
            let residual = residual(pdu.overflow, pdu.underflow, pdu.residual);
            format!("SCSI Response status={:#04x}{sense}{residual} statsn={}", pdu.status, pdu.stat_sn)
        }
        TaskManagementResponse::OPCODE => {
            format!("Task Management Response {}", TaskManagementResponse::parse(bhs).response)
        }
        LoginResponse::OPCODE => {
            let pdu = LoginResponse::parse(bhs);
            let next = if pdu.transit { format!("→{}", pdu.nsg) } else { String::new() };
            let status = pdu.status.name();
            format!("Login Response stage {}{next} tsih={} {status}{}", pdu.csg, pdu.tsih.0, text(data)?)
        }
        TextResponse::OPCODE => format!("Text Response{}", text(data)?),
        DataIn::OPCODE => {
            let pdu = DataIn::parse(bhs);
            let last = if pdu.last { " final" } else { "" };
            let status = if pdu.status_here { format!(" status={:#04x}", pdu.status) } else { String::new() };
            let residual = residual(pdu.overflow, pdu.underflow, pdu.residual);
            format!("Data-In offset={} datasn={}{last}{status}{residual}", pdu.buffer_offset, pdu.data_sn)
        }
        LogoutResponse::OPCODE => format!("Logout Response {}", LogoutResponse::parse(bhs).response),
        R2t::OPCODE => {
            let pdu = R2t::parse(bhs);
            format!("R2T offset={} len={} r2tsn={} ttt={:#x}", pdu.buffer_offset, pdu.desired_len, pdu.r2t_sn, pdu.ttt)
        }
        AsyncMessage::OPCODE => format!("Async Message event={}", AsyncMessage::parse(bhs).event),
        Reject::OPCODE => format!("Reject {}", reject_reason::name(Reject::parse(bhs).reason)),
        _ => return Err(malformed!("RFC 7143 §11.2.1.2: no such opcode").at(0)),
    })
}

fn text(data: &[u8]) -> Result<String, Violation> {
    let mut words = String::new();
    for (key, value) in pairs(data)? {
        // Traces must not contain passwords or values derived from them.
        let value = if key == "CHAP_R" { "…" } else { value };
        // Writing to a `String` cannot fail.
        let _ = write!(words, " {key}={value}");
    }
    Ok(words)
}

fn residual(overflow: bool, underflow: bool, count: u32) -> String {
    match (overflow, underflow) {
        (true, _) => format!(" overflow={count}"),
        (_, true) => format!(" underflow={count}"),
        _ => String::new(),
    }
}

fn function_name(code: u8) -> &'static str {
    match code {
        function::ABORT_TASK => "ABORT TASK",
        function::ABORT_TASK_SET => "ABORT TASK SET",
        function::CLEAR_ACA => "CLEAR ACA",
        function::CLEAR_TASK_SET => "CLEAR TASK SET",
        function::LOGICAL_UNIT_RESET => "LOGICAL UNIT RESET",
        function::TARGET_WARM_RESET => "TARGET WARM RESET",
        function::TARGET_COLD_RESET => "TARGET COLD RESET",
        function::TASK_REASSIGN => "TASK REASSIGN",
        function::QUERY_TASK => "QUERY TASK",
        function::QUERY_TASK_SET => "QUERY TASK SET",
        function::I_T_NEXUS_RESET => "I_T NEXUS RESET",
        function::QUERY_ASYNCHRONOUS_EVENT => "QUERY ASYNCHRONOUS EVENT",
        _ => "of unknown function",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Transmit,
        iscsi::pdu::{Sender, TaskTag},
    };

    fn sent(bhs: Bhs, data: &[u8]) -> alloc::vec::Vec<u8> {
        let mut transmit = Transmit::default();
        Sender::default().bytes(&mut transmit, bhs, data);
        transmit.take_bytes()
    }

    #[test]
    fn pdus_are_described_with_their_length() {
        let mut command =
            ScsiCommand { read: true, itt: TaskTag(0x10), expected_data_len: 4096, cmd_sn: 7, ..Default::default() };
        command.cdb[..10].copy_from_slice(&[0x28, 0, 0, 0, 0, 8, 0, 0, 8, 0]);
        let wanted = "SCSI Command READ(10) lba=8 blocks=8 lun=0x0 in edtl=4096 cmdsn=7 itt=0x10";
        assert_eq!(describe(&sent(command.encode(), &[])), Ok((48, wanted.into())));

        let login = LoginRequest { transit: true, csg: 1, nsg: 3, ..Default::default() };
        let bytes = sent(login.encode(), b"InitiatorName=a\0CHAP_R=0x12\0");
        let wanted = "Login Request stage 1→3 tsih=0 InitiatorName=a CHAP_R=… itt=0x0 data=28";
        assert_eq!(describe(&bytes), Ok((76, wanted.into())));
        assert_eq!(describe(&bytes[..60]), Err(DescribeError::Short(76)));
        assert_eq!(describe(&bytes[..40]), Err(DescribeError::Short(48)));
    }

    #[test]
    fn digests_are_skipped() {
        let mut transmit = Transmit::default();
        let data = DataOut { last: true, itt: TaskTag(1), buffer_offset: 512, ..Default::default() };
        Sender { header_digest: true, data_digest: true }.bytes(&mut transmit, data.encode(), &[0; 5]);
        let bytes = transmit.take_bytes();
        let wanted = "Data-Out offset=512 datasn=0 ttt=0x0 final itt=0x1 data=5";
        assert_eq!(describe_with_digests(&bytes, true, true), Ok((48 + 4 + 8 + 4, wanted.into())));
    }

    #[test]
    fn what_is_no_pdu_is_said_so() {
        assert!(matches!(describe(&[0x3e; 48]), Err(DescribeError::Short(_) | DescribeError::Malformed(_))));
        let mut bytes = [0; 48];
        bytes[0] = 0x1d;
        assert!(matches!(describe(&bytes), Err(DescribeError::Malformed(_))));
    }
}
