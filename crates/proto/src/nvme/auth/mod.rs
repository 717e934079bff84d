//! DH-HMAC-CHAP: in-band authentication of a host, and of a controller if the host requires it (NVMe base 2.1 §8.3.4,
//! §8.13 of 2.0, first TP 8006).
//!
//! The host drives the exchange, on each of its queues after Connect. It sends its messages with Authentication Send
//! and fetches the controller's with Authentication Receive.
//!
//! ```text
//! host                          controller
//! AUTH_Negotiate      ──▶
//!                     ◀──       DH-HMAC-CHAP_Challenge   C1, S1, g^x
//! DH-HMAC-CHAP_Reply  ──▶                                R1, C2, S2, g^y
//!                     ◀──       DH-HMAC-CHAP_Success1    R2 if C2 was sent
//! DH-HMAC-CHAP_Success2 ──▶                              if C2 was sent
//! ```
//!
//! Either side rejects a transaction with AUTH_Failure1 (controller) or AUTH_Failure2 (host).

mod controller;
mod group;
mod host;
mod message;
mod proof;

pub use self::proof::Hash;
pub use self::proof::{Secret, SecretError};
pub use controller::{Controller, Policy, Progress};
pub use group::{DhGroup, Work, Worked};
pub use host::{Agreed, AuthStep, Ended, Entropy, Host, HostConfig};
pub use message::{Failure, Message, Offer};

use super::{
    Sqe,
    command::{CommandId, Sgl, fabrics},
};

/// Buffer size for any message. The longest message, a reply in the 8192-bit group, has 1,168 bytes.
pub const MESSAGE_LEN_MAX: u32 = 4096;

/// SECP, SPSP0 and SPSP1 of the security protocol of NVMe (NVMe base 2.1 §6.1, §6.2).
const SECURITY_PROTOCOL: [u8; 3] = [0x01, 0x01, 0xe9];

/// Authentication Send with `len` bytes of in-capsule data.
pub fn send(cid: CommandId, len: u32) -> Sqe {
    command(fabrics::AUTHENTICATION_SEND, cid, len, Sgl::InCapsule { offset: 0, len })
}

/// Authentication Receive with a buffer of `len` bytes.
pub fn receive(cid: CommandId, len: u32) -> Sqe {
    command(fabrics::AUTHENTICATION_RECEIVE, cid, len, Sgl::Transport { len })
}

fn command(kind: u8, cid: CommandId, len: u32, sgl: Sgl) -> Sqe {
    let mut sqe = Sqe::fabrics(kind, cid);
    sqe.0[41..44].copy_from_slice(&SECURITY_PROTOCOL);
    sqe.put_u32(44, len);
    sqe.set_sgl(sgl);
    sqe
}

/// TL of Authentication Send, AL of Authentication Receive; `None` if the command names another security protocol.
pub fn len_of(sqe: &Sqe) -> Option<u32> {
    (sqe.0[41..44] == SECURITY_PROTOCOL).then(|| sqe.u32(44))
}
