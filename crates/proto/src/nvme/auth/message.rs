//! The encoding of messages (NVMe base 2.1 §8.3.4.4, §8.3.4.5.1 to §8.3.4.5.6): little endian, except values of DH
//! groups.

use alloc::{vec, vec::Vec};

use super::{DhGroup, Hash};

const TYPE_COMMON: u8 = 0;
const TYPE_DH_HMAC_CHAP: u8 = 1;

const NEGOTIATE: u8 = 0x00;
const CHALLENGE: u8 = 0x01;
const REPLY: u8 = 0x02;
const SUCCESS1: u8 = 0x03;
const SUCCESS2: u8 = 0x04;
const FAILURE2: u8 = 0xf0;
const FAILURE1: u8 = 0xf1;

/// AuthID of DH-HMAC-CHAP in a protocol descriptor of AUTH_Negotiate, and the layout of the descriptor.
const PROTOCOL_DH_HMAC_CHAP: u8 = 1;
const DESCRIPTOR_LEN: usize = 64;
const IDS_AT: usize = 4;
const IDS_MAX: usize = 30;

/// A message of the host or the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    Negotiate {
        transaction: u16,
        /// SC_C: the secure channel to establish afterwards; 0 for none.
        secure_channel: u8,
        /// Identifiers of DH-HMAC-CHAP's hashes and groups, in order of preference; `None` if that protocol is not
        /// offered.
        offer: Option<Offer>,
    },
    Challenge {
        transaction: u16,
        hash: u8,
        group: u8,
        sequence: u32,
        challenge: Vec<u8>,
        public: Vec<u8>,
    },
    Reply {
        transaction: u16,
        response: Vec<u8>,
        /// The host's challenge for the controller.
        challenge: Option<Vec<u8>>,
        sequence: u32,
        public: Vec<u8>,
    },
    Success1 {
        transaction: u16,
        hash_len: u8,
        response: Option<Vec<u8>>,
    },
    Success2 {
        transaction: u16,
    },
    Failure1 {
        transaction: u16,
        explanation: u8,
    },
    Failure2 {
        transaction: u16,
        explanation: u8,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    pub hashes: Vec<u8>,
    pub groups: Vec<u8>,
}

/// Why a transaction failed: the reason code explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    Failed = 1,
    ProtocolUnusable = 2,
    SecureChannelMismatch = 3,
    HashUnusable = 4,
    GroupUnusable = 5,
    IncorrectPayload = 6,
    IncorrectMessage = 7,
}

impl Failure {
    /// Describes an explanation that the other side sent.
    pub fn describe(explanation: u8) -> &'static str {
        match explanation {
            1 => "authentication failed: is the secret right?",
            2 => "authentication failed: the controller does not use DH-HMAC-CHAP",
            3 => "authentication failed: a secure channel is wanted",
            4 => "authentication failed: no hash that both allow",
            5 => "authentication failed: no DH group that both allow",
            6 => "authentication failed: incorrect payload",
            7 => "authentication failed: incorrect message",
            _ => "authentication failed",
        }
    }
}

impl Message {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Negotiate { transaction, secure_channel, offer } => {
                let mut bytes = header(TYPE_COMMON, NEGOTIATE, *transaction);
                bytes.extend([*secure_channel, u8::from(offer.is_some())]);
                if let Some(Offer { hashes, groups }) = offer {
                    let mut descriptor = [0; DESCRIPTOR_LEN];
                    descriptor[0] = PROTOCOL_DH_HMAC_CHAP;
                    descriptor[2] = hashes.len() as u8;
                    descriptor[3] = groups.len() as u8;
                    descriptor[IDS_AT..][..hashes.len()].copy_from_slice(hashes);
                    descriptor[IDS_AT + IDS_MAX..][..groups.len()].copy_from_slice(groups);
                    bytes.extend(descriptor);
                }
                bytes
            }
            Self::Challenge { transaction, hash, group, sequence, challenge, public } => {
                let mut bytes = header(TYPE_DH_HMAC_CHAP, CHALLENGE, *transaction);
                bytes.extend([challenge.len() as u8, 0, *hash, *group]);
                bytes.extend((public.len() as u16).to_le_bytes());
                bytes.extend(sequence.to_le_bytes());
                bytes.extend(challenge);
                bytes.extend(public);
                bytes
            }
            Self::Reply { transaction, response, challenge, sequence, public } => {
                let mut bytes = header(TYPE_DH_HMAC_CHAP, REPLY, *transaction);
                bytes.extend([response.len() as u8, 0, u8::from(challenge.is_some()), 0]);
                bytes.extend((public.len() as u16).to_le_bytes());
                bytes.extend(sequence.to_le_bytes());
                bytes.extend(response);
                // Without a challenge its field is still present.
                bytes.extend(challenge.as_ref().unwrap_or(&vec![0; response.len()]));
                bytes.extend(public);
                bytes
            }
            Self::Success1 { transaction, hash_len, response } => {
                let mut bytes = header(TYPE_DH_HMAC_CHAP, SUCCESS1, *transaction);
                bytes.extend([*hash_len, 0, u8::from(response.is_some()), 0, 0, 0, 0, 0, 0, 0]);
                bytes.extend(response.iter().flatten());
                bytes
            }
            Self::Success2 { transaction } => {
                let mut bytes = header(TYPE_DH_HMAC_CHAP, SUCCESS2, *transaction);
                bytes.resize(16, 0);
                bytes
            }
            Self::Failure1 { transaction, explanation } => failure(FAILURE1, *transaction, *explanation),
            Self::Failure2 { transaction, explanation } => failure(FAILURE2, *transaction, *explanation),
        }
    }

    /// Parses a message; `None` if the bytes are not a complete message. More bytes may follow, because the receiver's
    /// buffer may be larger than the message.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let [kind, id, _, _, t0, t1, six, seven, ..] = *bytes else { return None };
        let transaction = u16::from_le_bytes([t0, t1]);
        let from = |at: usize, len: usize| bytes.get(at..at.checked_add(len)?);
        let u16_at = |at| from(at, 2)?.first_chunk().copied().map(u16::from_le_bytes);
        let u32_at = |at| from(at, 4)?.first_chunk().copied().map(u32::from_le_bytes);
        let len = usize::from(six);
        match (kind, id) {
            (TYPE_COMMON, NEGOTIATE) => {
                let descriptors = from(8, usize::from(seven) * DESCRIPTOR_LEN)?.chunks_exact(DESCRIPTOR_LEN);
                let offer = descriptors.into_iter().find(|descriptor| descriptor[0] == PROTOCOL_DH_HMAC_CHAP);
                let offer = match offer {
                    None => None,
                    Some(descriptor) => Some(Offer {
                        hashes: ids(descriptor, IDS_AT, descriptor[2])?,
                        groups: ids(descriptor, IDS_AT + IDS_MAX, descriptor[3])?,
                    }),
                };
                Some(Self::Negotiate { transaction, secure_channel: six, offer })
            }
            (TYPE_DH_HMAC_CHAP, CHALLENGE) => Some(Self::Challenge {
                transaction,
                hash: *bytes.get(8)?,
                group: *bytes.get(9)?,
                sequence: u32_at(12)?,
                challenge: from(16, len)?.to_vec(),
                public: from(16 + len, usize::from(u16_at(10)?))?.to_vec(),
            }),
            (TYPE_DH_HMAC_CHAP, REPLY) => Some(Self::Reply {
                transaction,
                response: from(16, len)?.to_vec(),
                challenge: if *bytes.get(8)? & 1 == 0 { None } else { Some(from(16 + len, len)?.to_vec()) },
                sequence: u32_at(12)?,
                public: from(16 + 2 * len, usize::from(u16_at(10)?))?.to_vec(),
            }),
            (TYPE_DH_HMAC_CHAP, SUCCESS1) => Some(Self::Success1 {
                transaction,
                hash_len: six,
                response: if *bytes.get(8)? & 1 == 0 { None } else { Some(from(16, len)?.to_vec()) },
            }),
            (TYPE_DH_HMAC_CHAP, SUCCESS2) => Some(Self::Success2 { transaction }),
            (TYPE_COMMON, FAILURE1) => Some(Self::Failure1 { transaction, explanation: seven }),
            (TYPE_COMMON, FAILURE2) => Some(Self::Failure2 { transaction, explanation: seven }),
            _ => None,
        }
    }
}

impl Offer {
    /// Chooses the first hash and the first group that are supported and allowed; `Err` names the one without a match.
    pub(super) fn choose(&self, hash: Option<Hash>, group: Option<DhGroup>) -> Result<(Hash, DhGroup), Failure> {
        let mut hashes = self.hashes.iter().filter_map(|id| Hash::from_id(*id));
        let mut groups = self.groups.iter().filter_map(|id| DhGroup::from_id(*id));
        let hash = hashes.find(|offered| hash.is_none_or(|hash| hash == *offered)).ok_or(Failure::HashUnusable)?;
        let group = groups.find(|offered| group.is_none_or(|group| group == *offered)).ok_or(Failure::GroupUnusable)?;
        Ok((hash, group))
    }
}

fn ids(descriptor: &[u8], at: usize, count: u8) -> Option<Vec<u8>> {
    let count = usize::from(count);
    (count <= IDS_MAX).then(|| descriptor.get(at..at + count).map(<[u8]>::to_vec))?
}

fn header(kind: u8, id: u8, transaction: u16) -> Vec<u8> {
    let [t0, t1] = transaction.to_le_bytes();
    vec![kind, id, 0, 0, t0, t1]
}

fn failure(id: u8, transaction: u16, explanation: u8) -> Vec<u8> {
    /// The only reason code: authentication failure.
    const REASON: u8 = 1;
    let mut bytes = header(TYPE_COMMON, id, transaction);
    bytes.extend([REASON, explanation]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Message> {
        let transaction = 0x1234;
        vec![
            Message::Negotiate {
                transaction,
                secure_channel: 0,
                offer: Some(Offer { hashes: vec![1, 2, 3], groups: vec![0, 1, 2, 3, 4, 5] }),
            },
            Message::Negotiate { transaction, secure_channel: 1, offer: None },
            Message::Challenge {
                transaction,
                hash: 1,
                group: 1,
                sequence: 7,
                challenge: vec![1; 32],
                public: vec![2; 256],
            },
            Message::Reply {
                transaction,
                response: vec![3; 48],
                challenge: Some(vec![4; 48]),
                sequence: 9,
                public: vec![5; 8],
            },
            Message::Reply { transaction, response: vec![3; 64], challenge: None, sequence: 0, public: vec![] },
            Message::Success1 { transaction, hash_len: 32, response: Some(vec![6; 32]) },
            Message::Success1 { transaction, hash_len: 32, response: None },
            Message::Success2 { transaction },
            Message::Failure1 { transaction, explanation: 4 },
            Message::Failure2 { transaction, explanation: 1 },
        ]
    }

    #[test]
    fn messages_survive_encoding_with_and_without_room_behind() {
        for message in all() {
            let mut bytes = message.encode();
            assert_eq!(Message::decode(&bytes), Some(message.clone()));
            bytes.resize(4096, 0);
            assert_eq!(Message::decode(&bytes), Some(message));
        }
    }

    #[test]
    fn part_of_a_message_is_none() {
        for message in all() {
            let bytes = message.encode();
            // Reserved bytes at the end of a message may be missing.
            let needed = if matches!(message, Message::Success1 { response: None, .. }) { 9 } else { bytes.len() };
            let needed = if matches!(message, Message::Success2 { .. }) { 8 } else { needed };
            for len in 0..needed {
                assert_eq!(Message::decode(&bytes[..len]), None, "{message:?} {len}");
            }
        }
        assert_eq!(Message::decode(&[9; 64]), None);
    }

    /// The bytes that Linux 6.1 sends: it offers three hashes and six groups (drivers/nvme/host/auth.c).
    #[test]
    fn negotiate_has_the_layout_that_linux_sends() {
        let bytes = all()[0].encode();
        assert_eq!(bytes[..12], [0, 0, 0, 0, 0x34, 0x12, 0, 1, 1, 0, 3, 6]);
        assert_eq!((&bytes[12..15], &bytes[42..48], bytes.len()), (&[1, 2, 3][..], &[0, 1, 2, 3, 4, 5][..], 72));
    }

    #[test]
    fn more_identifiers_than_have_room_are_refused() {
        let mut bytes = all()[0].encode();
        bytes[10] = 31;
        assert_eq!(Message::decode(&bytes), None);
    }
}
