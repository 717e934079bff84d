//! The sessions of one target, over all its connections, and the names of SCSI ports (RFC 7143 §4.4).

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};

use crate::{
    Endings, LiveSession, Origin, SessionTable, Shares,
    iscsi::pdu::SessionHandle,
    scsi::{Ports, Transport},
};

/// Maximum sessions of a target. Further logins are rejected with out of resources.
const SESSIONS_MAX: usize = 4096;
/// Maximum of those per origin, so that a single peer cannot keep all others out.
const SESSIONS_OF_ORIGIN_MAX: usize = 1024;

/// The live sessions of a target: assigns TSIHs and reinstates sessions.
#[derive(Debug)]
pub struct Sessions {
    table: SessionTable<Nexus, SessionHandle>,
    last_tsih: SessionHandle,
}

/// The initiator port and the target port of a session (RFC 7143 §4.4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Nexus {
    initiator: String,
    isid: [u8; 6],
    portal_group_tag: u16,
}

/// A session that may start when `waits_for` is over.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) tsih: SessionHandle,
    pub(super) live: LiveSession,
    pub(super) waits_for: Endings,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            table: SessionTable::new(Shares { all: SESSIONS_MAX, of_origin: SESSIONS_OF_ORIGIN_MAX }),
            last_tsih: SessionHandle::NEW,
        }
    }
}

impl Sessions {
    /// Opens a session and ends an older one of the same initiator and target port (RFC 7143 §6.3.5). The
    /// new session may start when no operation of the older one continues. `None` if there are too many sessions.
    pub(super) fn open(
        &mut self,
        initiator: &str,
        isid: [u8; 6],
        portal_group_tag: u16,
        origin: Origin,
    ) -> Option<Opened> {
        // There are more TSIHs than SESSIONS_MAX, so one is free; 0 is not a valid TSIH.
        loop {
            self.last_tsih = SessionHandle(self.last_tsih.0.wrapping_add(1));
            if self.last_tsih != SessionHandle::NEW && !self.exists(self.last_tsih) {
                break;
            }
        }
        let tsih = self.last_tsih;
        let nexus = Nexus { initiator: initiator.into(), isid, portal_group_tag };
        let (live, waits_for) = self.table.open(nexus, origin, tsih)?;
        Some(Opened { tsih, live, waits_for })
    }

    pub(super) fn exists(&self, tsih: SessionHandle) -> bool {
        self.table.values().any(|live| *live == tsih)
    }

    /// Removes a session that is over.
    pub(super) fn close(&mut self, session: &LiveSession) {
        self.table.close(session);
    }

    /// Ends every session: for TARGET COLD RESET (RFC 7143 §11.5.1), or when the server removes the target.
    pub fn end_all(&mut self) {
        self.table.end_all();
    }
}

/// Its functions: abort task, abort task set, clear task set, LU reset, query task, target reset; query task set, I_T
/// nexus reset.
const TRANSPORT: Transport =
    Transport { protocol_identifier: 5, version_descriptor: 0x0960, functions: [0b1101_1110, 0b11] };

pub(super) fn ports(initiator: &str, isid: [u8; 6], target: &str, portal_group_tag: u16) -> Ports {
    let mut number = [0; 8];
    number[2..].copy_from_slice(&isid);
    let initiator = format!("{initiator},i,0x{:012x}", u64::from_be_bytes(number));
    Ports {
        initiator_id: transport_id(&initiator),
        initiator,
        target: format!("{target},t,0x{portal_group_tag:04x}"),
        target_device: target.to_string(),
        relative_target_port: portal_group_tag,
        transport: TRANSPORT,
    }
}

/// The TransportID (SPC-5 §7.6.4.6): format 01b, with the ISID in the name.
fn transport_id(initiator: &str) -> Vec<u8> {
    let name_len = (initiator.len() + 1).next_multiple_of(4).clamp(20, 244);
    let mut id = alloc::vec![0x40 | TRANSPORT.protocol_identifier, 0];
    id.extend_from_slice(&(name_len as u16).to_be_bytes());
    id.extend(initiator.bytes().take(name_len - 1));
    id.resize(4 + name_len, 0);
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_of_the_same_port_ends_the_older_one() {
        let mut sessions = Sessions::default();
        let first = sessions.open("iqn.a", [1; 6], 1, Origin::Address(1)).expect("room");
        let other = sessions.open("iqn.a", [2; 6], 1, Origin::Address(1)).expect("room");
        let elsewhere = sessions.open("iqn.a", [1; 6], 2, Origin::Address(1)).expect("room");
        let mut second = sessions.open("iqn.a", [1; 6], 1, Origin::Address(1)).expect("room");
        let all = [&first, &other, &elsewhere, &second];
        assert_eq!(all.map(|opened| opened.live.is_ended()), [true, false, false, false], "not of another target port");
        assert!(!second.waits_for.are_over());
        assert!(!sessions.exists(first.tsih) && sessions.exists(other.tsih) && sessions.exists(second.tsih));
        sessions.close(&second.live);
        assert!(!sessions.exists(second.tsih));
    }

    #[test]
    fn sessions_are_bounded_in_all_and_of_one_origin() {
        let mut sessions = Sessions::default();
        let mut held = alloc::vec::Vec::new();
        let mut open = |port: usize, origin: Origin| {
            let [.., high, low] = port.to_be_bytes();
            sessions.open("iqn.a", [0, 0, 0, 0, high, low], 1, origin).map(|opened| held.push(opened)).is_some()
        };
        let stranger = Origin::Address(1);
        assert!((0..SESSIONS_OF_ORIGIN_MAX).all(|port| open(port, stranger.clone())));
        assert!(!open(SESSIONS_MAX, stranger));
        assert!(open(SESSIONS_MAX, Origin::Name("iqn.a".into())), "others have theirs");
        assert!((SESSIONS_OF_ORIGIN_MAX + 1..SESSIONS_MAX).all(|port| open(port, Origin::Address(port as u128))));
        assert!(!open(SESSIONS_MAX + 1, Origin::Address(2)));
    }
}

#[cfg(test)]
mod ports_tests {
    use super::*;

    #[test]
    fn ports_are_named_by_the_session_and_the_portal_group() {
        let ports = ports("iqn.x:host", [0x80, 0, 0, 1, 0, 2], "iqn.x:disk", 1);
        assert_eq!(
            (ports.initiator.as_str(), ports.target.as_str()),
            ("iqn.x:host,i,0x800000010002", "iqn.x:disk,t,0x0001")
        );
        assert_eq!((ports.target_device.as_str(), ports.relative_target_port), ("iqn.x:disk", 1));
        assert_eq!(ports.initiator_id, *b"\x45\0\0\x1ciqn.x:host,i,0x800000010002\0");
    }
}
