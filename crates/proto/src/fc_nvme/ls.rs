//! NVMe link services (FC-NVMe-2), which create and end associations and connections. Requests and answers consist of a
//! code and a list of descriptors.

use alloc::{string::String, vec::Vec};

use super::{AssociationId, ConnectionId};
use crate::{
    Refusal, Violation,
    fc::{
        Header, OxId, RxId,
        frame::{f_ctl, kind, r_ctl},
    },
    nvme::{ControllerId, QueueId, ascii},
    wire::{Reader, Short},
};

pub mod code {
    pub const LS_RJT: u8 = 0x01;
    pub const LS_ACC: u8 = 0x02;
    pub const CREATE_ASSOCIATION: u8 = 0x03;
    pub const CREATE_CONNECTION: u8 = 0x04;
    pub const DISCONNECT_ASSOCIATION: u8 = 0x05;

    pub fn name(code: u8) -> &'static str {
        match code {
            LS_RJT => "LS_RJT",
            LS_ACC => "LS_ACC",
            CREATE_ASSOCIATION => "Create Association",
            CREATE_CONNECTION => "Create I/O Connection",
            DISCONNECT_ASSOCIATION => "Disconnect Association",
            _ => "another service",
        }
    }
}

/// Descriptor tags.
mod tag {
    pub(super) const REQUEST: u32 = 1;
    pub(super) const REJECTION: u32 = 2;
    pub(super) const CREATE_ASSOCIATION: u32 = 3;
    pub(super) const CREATE_CONNECTION: u32 = 4;
    pub(super) const DISCONNECT: u32 = 5;
    pub(super) const CONNECTION_ID: u32 = 6;
    pub(super) const ASSOCIATION_ID: u32 = 7;
}

const NQN_LEN: usize = 256;
/// Reserved bytes at the end of Create Association, so that the request has 1,024 bytes.
const RESERVED_LEN: usize = 432;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    CreateAssociation {
        /// At least one of this many responses must be an extended one.
        ersp_ratio: u16,
        cntlid: ControllerId,
        /// Size of the admin submission queue, 0's based.
        sq_size: u16,
        host_id: [u8; 16],
        hostnqn: String,
        subnqn: String,
    },
    CreateConnection {
        association: AssociationId,
        ersp_ratio: u16,
        qid: QueueId,
        sq_size: u16,
    },
    DisconnectAssociation(AssociationId),
    /// A request with an unknown code.
    Other(u8),
}

impl Request {
    pub fn header(ox_id: OxId) -> Header {
        let f_ctl = f_ctl::REQUEST;
        Header { r_ctl: r_ctl::FC4_LS_REQUEST, kind: kind::NVME, f_ctl, ox_id, ..Header::default() }
    }

    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::CreateAssociation { ersp_ratio, cntlid, sq_size, host_id, hostnqn, subnqn } => {
                list(code::CREATE_ASSOCIATION, |bytes| {
                    descriptor(bytes, tag::CREATE_ASSOCIATION, |bytes| {
                        bytes.extend_from_slice(&ersp_ratio.to_be_bytes());
                        zeros(bytes, 38);
                        bytes.extend_from_slice(&cntlid.0.to_be_bytes());
                        bytes.extend_from_slice(&sq_size.to_be_bytes());
                        zeros(bytes, 4);
                        bytes.extend_from_slice(host_id);
                        for name in [hostnqn, subnqn] {
                            let at = bytes.len();
                            zeros(bytes, NQN_LEN);
                            ascii::zero_filled(name, &mut bytes[at..at + NQN_LEN - 1]);
                        }
                        zeros(bytes, RESERVED_LEN);
                    });
                })
            }
            Self::CreateConnection { association, ersp_ratio, qid, sq_size } => {
                list(code::CREATE_CONNECTION, |bytes| {
                    id(bytes, tag::ASSOCIATION_ID, association.0);
                    descriptor(bytes, tag::CREATE_CONNECTION, |bytes| {
                        bytes.extend_from_slice(&ersp_ratio.to_be_bytes());
                        zeros(bytes, 38);
                        bytes.extend_from_slice(&qid.0.to_be_bytes());
                        bytes.extend_from_slice(&sq_size.to_be_bytes());
                        zeros(bytes, 4);
                    });
                })
            }
            Self::DisconnectAssociation(association) => list(code::DISCONNECT_ASSOCIATION, |bytes| {
                id(bytes, tag::ASSOCIATION_ID, association.0);
                descriptor(bytes, tag::DISCONNECT, |bytes| zeros(bytes, 16));
            }),
            Self::Other(code) => list(*code, |_| {}),
        }
    }

    pub fn parse(bytes: &[u8]) -> Result<Self, Violation> {
        let mut reader = Reader::new(bytes);
        let request = parse_list(&mut reader).and_then(|code| match code {
            code::CREATE_ASSOCIATION => {
                let mut body = find(&mut reader, tag::CREATE_ASSOCIATION)?;
                let ersp_ratio = body.u16_be()?;
                body.skip(38)?;
                let (cntlid, sq_size) = (ControllerId(body.u16_be()?), body.u16_be()?);
                body.skip(4)?;
                let host_id = body.array()?;
                let hostnqn = ascii::parse(body.take(NQN_LEN)?);
                let subnqn = ascii::parse(body.take(NQN_LEN)?);
                Ok(Self::CreateAssociation { ersp_ratio, cntlid, sq_size, host_id, hostnqn, subnqn })
            }
            code::CREATE_CONNECTION => {
                let association = AssociationId(find(&mut reader, tag::ASSOCIATION_ID)?.u64_be()?);
                let mut body = find(&mut reader, tag::CREATE_CONNECTION)?;
                let ersp_ratio = body.u16_be()?;
                body.skip(38)?;
                let (qid, sq_size) = (QueueId(body.u16_be()?), body.u16_be()?);
                Ok(Self::CreateConnection { association, ersp_ratio, qid, sq_size })
            }
            code::DISCONNECT_ASSOCIATION => {
                let association = AssociationId(find(&mut reader, tag::ASSOCIATION_ID)?.u64_be()?);
                find(&mut reader, tag::DISCONNECT)?;
                Ok(Self::DisconnectAssociation(association))
            }
            code => Ok(Self::Other(code)),
        });
        request.map_err(|_| malformed())
    }

    pub fn code(&self) -> u8 {
        match self {
            Self::CreateAssociation { .. } => code::CREATE_ASSOCIATION,
            Self::CreateConnection { .. } => code::CREATE_CONNECTION,
            Self::DisconnectAssociation(_) => code::DISCONNECT_ASSOCIATION,
            Self::Other(code) => *code,
        }
    }
}

/// Why a service is rejected: reason code and explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub reason: u8,
    pub explanation: u8,
}

impl Rejection {
    pub const LOGICAL_ERROR: Self = Self { reason: 0x03, explanation: 0 };
    pub const INSUFFICIENT_RESOURCES: Self = Self { reason: 0x09, explanation: 0x29 };
    pub const NOT_SUPPORTED: Self = Self { reason: 0x0b, explanation: 0 };
    pub const INVALID_ASSOCIATION: Self = Self { reason: 0x40, explanation: 0 };

    fn violation(self) -> Violation {
        match self {
            Self::INSUFFICIENT_RESOURCES => {
                Violation::refused(Refusal::Busy, "the target has no room for an association or a connection")
            }
            _ => Violation::refused(Refusal::Other, "the target rejected an NVMe link service"),
        }
    }
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Association { association: AssociationId, connection: ConnectionId },
    Connection(ConnectionId),
    Disconnected,
    Rejected(Rejection),
}

impl Answer {
    pub fn header(request: &Header) -> Header {
        Header {
            r_ctl: r_ctl::FC4_LS_REPLY,
            kind: kind::NVME,
            f_ctl: f_ctl::REPLY,
            ox_id: request.ox_id,
            rx_id: RxId::UNASSIGNED,
            ..Header::default()
        }
    }

    /// Encodes the answer. `to` is the code of the request.
    pub fn encode(&self, to: u8) -> Vec<u8> {
        let code = if matches!(self, Self::Rejected(_)) { code::LS_RJT } else { code::LS_ACC };
        list(code, |bytes| {
            descriptor(bytes, tag::REQUEST, |bytes| bytes.extend_from_slice(&[to, 0, 0, 0, 0, 0, 0, 0]));
            match self {
                Self::Association { association, connection } => {
                    id(bytes, tag::ASSOCIATION_ID, association.0);
                    id(bytes, tag::CONNECTION_ID, connection.0);
                }
                Self::Connection(connection) => id(bytes, tag::CONNECTION_ID, connection.0),
                Self::Disconnected => {}
                Self::Rejected(Rejection { reason, explanation }) => descriptor(bytes, tag::REJECTION, |bytes| {
                    bytes.extend_from_slice(&[0, *reason, *explanation, 0, 0, 0, 0, 0]);
                }),
            }
        })
    }

    pub fn parse(bytes: &[u8]) -> Result<Self, Violation> {
        let mut reader = Reader::new(bytes);
        let mut read = || {
            let code = parse_list(&mut reader)?;
            let to = find(&mut reader, tag::REQUEST)?.u8()?;
            Ok::<_, Short>(match (code, to) {
                (code::LS_RJT, _) => {
                    let [_, reason, explanation, _] = find(&mut reader, tag::REJECTION)?.array()?;
                    Self::Rejected(Rejection { reason, explanation })
                }
                (code::LS_ACC, code::CREATE_ASSOCIATION) => Self::Association {
                    association: AssociationId(find(&mut reader, tag::ASSOCIATION_ID)?.u64_be()?),
                    connection: ConnectionId(find(&mut reader, tag::CONNECTION_ID)?.u64_be()?),
                },
                (code::LS_ACC, code::CREATE_CONNECTION) => {
                    Self::Connection(ConnectionId(find(&mut reader, tag::CONNECTION_ID)?.u64_be()?))
                }
                (code::LS_ACC, code::DISCONNECT_ASSOCIATION) => Self::Disconnected,
                _ => return Err(Short),
            })
        };
        read().map_err(|_| malformed())
    }

    /// Returns the answer, or a rejection as an error.
    pub(super) fn accepted(self) -> Result<Self, Violation> {
        if let Self::Rejected(rejection) = self { Err(rejection.violation()) } else { Ok(self) }
    }
}

fn malformed() -> Violation {
    malformed!("FC-NVMe-2 NVMe_LS: a link service that is too short or lacks a descriptor")
}

fn list(code: u8, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = alloc::vec![code, 0, 0, 0];
    with_len(&mut bytes, body);
    bytes
}

fn descriptor(bytes: &mut Vec<u8>, tag: u32, body: impl FnOnce(&mut Vec<u8>)) {
    bytes.extend_from_slice(&tag.to_be_bytes());
    with_len(bytes, body);
}

fn with_len(bytes: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let at = bytes.len();
    zeros(bytes, 4);
    body(bytes);
    let len = (bytes.len() - at - 4) as u32;
    bytes[at..at + 4].copy_from_slice(&len.to_be_bytes());
}

fn id(bytes: &mut Vec<u8>, tag: u32, id: u64) {
    descriptor(bytes, tag, |bytes| bytes.extend_from_slice(&id.to_be_bytes()));
}

fn zeros(bytes: &mut Vec<u8>, count: usize) {
    bytes.resize(bytes.len() + count, 0);
}

/// Parses the code that precedes a list of descriptors. Afterwards `reader` contains only the descriptors.
fn parse_list(reader: &mut Reader<'_>) -> Result<u8, Short> {
    let [code, _, _, _] = reader.array()?;
    let len = reader.u32_be()? as usize;
    *reader = Reader::new(reader.take(len)?);
    Ok(code)
}

/// Parses the next descriptor, which must have that tag. It may be longer than known here, in a later version.
fn find<'a>(reader: &mut Reader<'a>, wanted: u32) -> Result<Reader<'a>, Short> {
    let (tag, len) = (reader.u32_be()?, reader.u32_be()? as usize);
    if tag != wanted {
        return Err(Short);
    }
    Ok(Reader::new(reader.take(len)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn create() -> Request {
        Request::CreateAssociation {
            ersp_ratio: 7,
            cntlid: ControllerId::ANY,
            sq_size: 31,
            host_id: [5; 16],
            hostnqn: "nqn.h".into(),
            subnqn: "nqn.s".into(),
        }
    }

    #[test]
    fn requests_lie_as_the_standard_has_them() {
        let bytes = create().encode();
        assert_eq!(
            (bytes.len(), &bytes[..18]),
            (1024, &[3, 0, 0, 0, 0, 0, 3, 248, 0, 0, 0, 3, 0, 0, 3, 240, 0, 7][..])
        );
        assert_eq!((&bytes[56..60], &bytes[64..80]), (&[0xff, 0xff, 0, 31][..], &[5; 16][..]));
        assert_eq!((&bytes[80..85], &bytes[336..341]), (&b"nqn.h"[..], &b"nqn.s"[..]));
        let connection =
            Request::CreateConnection { association: AssociationId(9), ersp_ratio: 2, qid: QueueId(1), sq_size: 128 };
        assert_eq!((connection.encode().len(), connection.encode()[72..76].to_vec()), (80, vec![0, 1, 0, 128]));
        let disconnect = Request::DisconnectAssociation(AssociationId(9));
        assert_eq!((disconnect.encode().len(), &disconnect.encode()[24..32]), (48, &[0, 0, 0, 5, 0, 0, 0, 16][..]));
        for request in [create(), connection, disconnect, Request::Other(0x77)] {
            let bytes = request.encode();
            assert_eq!(Request::parse(&bytes), Ok(request));
            assert!((0..bytes.len()).all(|len| Request::parse(&bytes[..len]).is_err()), "cut off");
        }
    }

    #[test]
    fn a_request_without_what_is_reserved_at_its_end_is_taken() {
        let mut bytes = create().encode();
        bytes.truncate(1024 - RESERVED_LEN);
        bytes[4..8].copy_from_slice(&(1016 - RESERVED_LEN as u32).to_be_bytes());
        bytes[12..16].copy_from_slice(&(1008 - RESERVED_LEN as u32).to_be_bytes());
        assert_eq!(Request::parse(&bytes), Ok(create()));
    }

    #[test]
    fn answers_say_what_they_answer() {
        let (association, connection) = (AssociationId(1), ConnectionId(2));
        for (answer, to, len) in [
            (Answer::Association { association, connection }, code::CREATE_ASSOCIATION, 56),
            (Answer::Connection(connection), code::CREATE_CONNECTION, 40),
            (Answer::Disconnected, code::DISCONNECT_ASSOCIATION, 24),
            (Answer::Rejected(Rejection::INVALID_ASSOCIATION), code::CREATE_CONNECTION, 40),
        ] {
            let bytes = answer.encode(to);
            assert_eq!((bytes.len(), Answer::parse(&bytes)), (len, Ok(answer)));
            assert!(Answer::parse(&bytes[..len - 1]).is_err());
            assert_eq!(answer.accepted().is_err(), matches!(answer, Answer::Rejected(_)));
        }
    }
}
