//! Extended link services (FC-LS-4): logins and logouts. Basic link services (FC-FS-5): the abort of an exchange and
//! its answers.

use super::{
    Port,
    frame::{Header, OxId, PortName, RxId, f_ctl, kind, r_ctl},
};
use crate::{Refusal, Violation, wire::Reader};

pub mod command {
    pub const LS_RJT: u8 = 0x01;
    pub const LS_ACC: u8 = 0x02;
    pub const PLOGI: u8 = 0x03;
    pub const FLOGI: u8 = 0x04;
    pub const LOGO: u8 = 0x05;
    pub const ECHO: u8 = 0x10;
    pub const PRLI: u8 = 0x20;
    pub const PRLO: u8 = 0x21;

    pub fn name(command: u8) -> &'static str {
        match command {
            LS_RJT => "LS_RJT",
            LS_ACC => "LS_ACC",
            PLOGI => "PLOGI",
            FLOGI => "FLOGI",
            LOGO => "LOGO",
            ECHO => "ECHO",
            PRLI => "PRLI",
            PRLO => "PRLO",
            _ => "another service",
        }
    }
}

/// Why a service is rejected: reason code and explanation of an LS_RJT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub reason: u8,
    pub explanation: u8,
}

impl Rejection {
    pub const LOGICAL_ERROR: Self = Self { reason: 0x03, explanation: 0 };
    /// Logical busy (FC-LS-4, LS_RJT reason codes).
    pub const BUSY: Self = Self { reason: 0x05, explanation: 0 };
    pub const PROTOCOL_ERROR: Self = Self { reason: 0x07, explanation: 0 };
    /// The port may not log in.
    pub const UNABLE: Self = Self { reason: 0x09, explanation: 0 };
    pub const INSUFFICIENT_RESOURCES: Self = Self { reason: 0x09, explanation: 0x29 };
    pub const NOT_SUPPORTED: Self = Self { reason: 0x0b, explanation: 0 };

    pub fn encode(self) -> [u8; 8] {
        [command::LS_RJT, 0, 0, 0, 0, self.reason, self.explanation, 0]
    }

    /// The violation that an LS_RJT means for a login.
    pub fn violation(payload: &[u8]) -> Violation {
        let rejection = match payload {
            [_, _, _, _, _, reason, explanation, ..] => Self { reason: *reason, explanation: *explanation },
            _ => return short(),
        };
        match rejection {
            Self::INSUFFICIENT_RESOURCES => Violation::refused(Refusal::Busy, "the target has no room for a login"),
            Self { reason, .. } if reason == Self::BUSY.reason => {
                Violation::refused(Refusal::Busy, "the target is busy")
            }
            Self { reason: 0x09, .. } => Violation::refused(Refusal::Denied, "this port may not log in to this target"),
            _ => Violation::refused(Refusal::Other, "the target rejected a login"),
        }
    }
}

pub fn short() -> Violation {
    malformed!("FC-LS-4 ELS payload: a link service that is too short")
}

/// Length in bytes of FLOGI, PLOGI and their accepts.
pub const LOGIN_LEN: usize = 116;

/// Common features: continuously increasing relative offset.
const CONTINUOUSLY_INCREASING: u16 = 0x8000;
/// Common features: sent by an F_Port.
const F_PORT: u16 = 0x1000;
const CLASS_VALID: u16 = 0x8000;
/// Offset of the class 3 parameters.
const CLASS_3: usize = 68;
/// E_D_TOV in ms, with the usual value.
const E_D_TOV_MS: u32 = 2000;
/// R_A_TOV in ms, with the usual value.
const R_A_TOV_MS: u32 = 10_000;

/// Encodes FLOGI, PLOGI or their accept.
pub fn encode_login(command: u8, port: &Port, is_fabric: bool) -> [u8; LOGIN_LEN] {
    let mut bytes = [0; LOGIN_LEN];
    let features = if is_fabric { F_PORT } else { CONTINUOUSLY_INCREASING };
    bytes[0] = command;
    // FC-PH version 2.0.
    bytes[4..6].copy_from_slice(&[0x20, 0x20]);
    bytes[6..8].copy_from_slice(&port.credit.to_be_bytes());
    bytes[8..10].copy_from_slice(&features.to_be_bytes());
    bytes[10..12].copy_from_slice(&port.frame_data_len.to_be_bytes());
    if is_fabric {
        bytes[12..16].copy_from_slice(&R_A_TOV_MS.to_be_bytes());
    } else {
        // Total concurrent sequences; relative offset of solicited data.
        bytes[12..16].copy_from_slice(&[0, 255, 0, 2]);
    }
    bytes[16..20].copy_from_slice(&E_D_TOV_MS.to_be_bytes());
    bytes[20..28].copy_from_slice(&port.port_name.0.to_be_bytes());
    bytes[28..36].copy_from_slice(&port.node_name.0.to_be_bytes());
    bytes[CLASS_3..CLASS_3 + 2].copy_from_slice(&CLASS_VALID.to_be_bytes());
    bytes[CLASS_3 + 6..CLASS_3 + 8].copy_from_slice(&port.frame_data_len.to_be_bytes());
    // Concurrent sequences, and open sequences per exchange.
    bytes[CLASS_3 + 8..CLASS_3 + 10].copy_from_slice(&255_u16.to_be_bytes());
    bytes[CLASS_3 + 12..CLASS_3 + 14].copy_from_slice(&1_u16.to_be_bytes());
    bytes
}

/// Parses the other port's login or accept.
pub fn parse_login(payload: &[u8]) -> Result<Port, Violation> {
    let read = |reader: &mut Reader<'_>| {
        reader.skip(6)?;
        let credit = reader.u16_be()?;
        reader.skip(2)?;
        let frame_data_len = reader.u16_be()? & 0x0fff;
        reader.skip(8)?;
        let (port_name, node_name) = (PortName(reader.u64_be()?), PortName(reader.u64_be()?));
        reader.skip(CLASS_3 - 36)?;
        let class_3 = reader.u16_be()?;
        reader.skip(LOGIN_LEN - CLASS_3 - 2)?;
        Ok::<_, crate::wire::Short>((Port { port_name, node_name, credit, frame_data_len }, class_3))
    };
    let (port, class_3) = read(&mut Reader::new(payload)).map_err(|_| short())?;
    if class_3 & CLASS_VALID == 0 {
        return Err(misbehaved!("FC-LS-4 PLOGI: a login without class 3").at(CLASS_3 as u32));
    }
    if !(256..=2112).contains(&port.frame_data_len) || !port.frame_data_len.is_multiple_of(4) {
        return Err(misbehaved!("FC-LS-4 PLOGI: a Receive Data Field Size that is none").at(10));
    }
    if !(1..=0x7fff).contains(&port.credit) {
        return Err(misbehaved!("FC-LS-4 PLOGI: a BB_Credit that is none").at(6));
    }
    Ok(port)
}

/// Process login with one service parameter page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// TYPE of the FC-4.
    pub kind: u8,
    pub parameters: u32,
}

/// Flags of a PRLI page: an image pair is to be established, or is established. NVMe has associations instead of image
/// pairs, so the bit is zero (FC-NVMe-2, PRLI).
const IMAGE_PAIR: u8 = 0x20;
/// Flag of a PRLI page: the request was executed.
const EXECUTED: u8 = 0x01;
const PAGE_LEN: u8 = 16;
const PROCESS_LEN: usize = 20;

impl Process {
    pub fn encode(&self, command: u8) -> [u8; PROCESS_LEN] {
        let mut bytes = [0; PROCESS_LEN];
        bytes[0] = command;
        bytes[1] = PAGE_LEN;
        bytes[3] = PROCESS_LEN as u8;
        bytes[4] = self.kind;
        bytes[6] = self.pair() | if command == command::LS_ACC { EXECUTED } else { 0 };
        bytes[16..20].copy_from_slice(&self.parameters.to_be_bytes());
        bytes
    }

    pub fn parse(payload: &[u8]) -> Result<Self, Violation> {
        let Some([command, _, _, _, kind, _, flags, _, ..]) = payload.first_chunk::<PROCESS_LEN>() else {
            return Err(short());
        };
        let parameters = payload.get(16..20).and_then(|bytes| bytes.first_chunk()).ok_or_else(short)?;
        let process = Self { kind: *kind, parameters: u32::from_be_bytes(*parameters) };
        let is_executed = *command != command::LS_ACC || flags & 0x0f == EXECUTED;
        if flags & process.pair() != process.pair() || !is_executed {
            return Err(Violation::refused(Refusal::Other, "FC-LS-4: no image pair was established"));
        }
        Ok(process)
    }

    fn pair(self) -> u8 {
        if self.kind == kind::NVME { 0 } else { IMAGE_PAIR }
    }
}

/// Encodes a LOGO of the given port.
pub fn encode_logout(id: u32, name: PortName) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[0] = command::LOGO;
    bytes[4..8].copy_from_slice(&id.to_be_bytes());
    bytes[8..16].copy_from_slice(&name.0.to_be_bytes());
    bytes
}

pub fn request(ox_id: OxId) -> Header {
    Header { r_ctl: r_ctl::ELS_REQUEST, kind: kind::ELS, f_ctl: f_ctl::REQUEST, ox_id, ..Header::default() }
}

/// The header of the reply to a request.
pub fn reply(request: &Header) -> Header {
    let rx_id = RxId::UNASSIGNED;
    Header {
        r_ctl: r_ctl::ELS_REPLY,
        kind: kind::ELS,
        f_ctl: f_ctl::REPLY,
        ox_id: request.ox_id,
        rx_id,
        ..Header::default()
    }
}

/// The header of an ABTS. It is a sequence of the aborted exchange, and has no data.
pub fn abts(ox_id: OxId, rx_id: RxId) -> Header {
    let f_ctl = f_ctl::END_SEQUENCE | f_ctl::SEQUENCE_INITIATIVE;
    Header { r_ctl: r_ctl::ABTS, kind: kind::BLS, f_ctl, ox_id, rx_id, ..Header::default() }
}

/// The header of the answer to an ABTS.
pub fn answer(r_ctl: u8, ox_id: OxId, rx_id: RxId) -> Header {
    Header { r_ctl, kind: kind::BLS, f_ctl: f_ctl::REPLY, ox_id, rx_id, ..Header::default() }
}

/// BA_ACC for a whole exchange: no SEQ_ID, SEQ_CNTs from 0 to FFFFh.
pub fn accept(ox_id: OxId, rx_id: RxId) -> [u8; 12] {
    let ([o0, o1], [r0, r1]) = (ox_id.0.to_be_bytes(), rx_id.0.to_be_bytes());
    [0, 0, 0, 0, o0, o1, r0, r1, 0, 0, 0xff, 0xff]
}

/// BA_RJT: logical error, because the exchange does not exist.
pub const NO_EXCHANGE: [u8; 4] = [0, 0x03, 0x03, 0];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_says_who_logs_in_and_how_much_it_takes() {
        let port = Port { credit: 64, ..Port::new(PortName(0x3000_0000_0000_0001), PortName(2)) };
        let bytes = encode_login(command::PLOGI, &port, false);
        assert_eq!(parse_login(&bytes), Ok(port));
        assert!(parse_login(&bytes[..115]).is_err());
        for (at, value) in [(CLASS_3, 0), (11, 1), (10, 0x0f)] {
            let mut wrong = bytes;
            wrong[at] = value;
            assert!(parse_login(&wrong).is_err(), "byte {at}");
        }
    }

    #[test]
    fn process_logins_are_pages_of_one_fc_4() {
        for kind in [kind::FCP, kind::NVME] {
            let process = Process { kind, parameters: 0x22 };
            for command in [command::PRLI, command::LS_ACC] {
                assert_eq!(Process::parse(&process.encode(command)), Ok(process));
            }
        }
        let process = Process { kind: kind::FCP, parameters: 0x22 };
        assert!(Process::parse(&process.encode(command::PRLI)[..19]).is_err());
    }

    #[test]
    fn rejections_tell_who_may_try_again() {
        let refusal = |rejection: Rejection| Rejection::violation(&rejection.encode()).kind;
        let kinds = [Rejection::INSUFFICIENT_RESOURCES, Rejection::UNABLE, Rejection::LOGICAL_ERROR].map(refusal);
        let wanted = [Refusal::Busy, Refusal::Denied, Refusal::Other].map(crate::ViolationKind::Refused);
        assert_eq!(kinds, wanted);
    }
}
