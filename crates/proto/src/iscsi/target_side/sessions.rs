//! The sessions of one target, over all its connections.

use alloc::string::String;

use crate::{Endings, LiveSession, Origin, SessionTable, Shares, iscsi::pdu::SessionHandle};

/// Sessions that a target has at a time; an initiator that opens more is told that the target is out of resources.
const SESSIONS_MAX: usize = 4096;
/// Of those, sessions of one origin: a peer alone cannot keep all others out.
const SESSIONS_OF_ORIGIN_MAX: usize = 1024;

/// The live sessions of a target, by which TSIHs are allotted and sessions are reinstated.
#[derive(Debug)]
pub struct Sessions {
    table: SessionTable<InitiatorPort, SessionHandle>,
    last_tsih: SessionHandle,
}

/// The initiator's end of an I_T nexus (RFC 7143 §4.4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
struct InitiatorPort {
    name: String,
    isid: [u8; 6],
}

/// A session that begins once `waits_for` is over.
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
    /// Opens a session, which reinstates an older one of the same initiator port (RFC 7143 §6.3.5): that one ends, and the new
    /// one begins when nothing of it goes on any more. `None` where there are too many.
    pub(super) fn open(&mut self, initiator: &str, isid: [u8; 6], origin: Origin) -> Option<Opened> {
        // SESSIONS_MAX is below the number of TSIHs, so one is free; 0 names none.
        loop {
            self.last_tsih = SessionHandle(self.last_tsih.0.wrapping_add(1));
            if self.last_tsih != SessionHandle::NEW && !self.exists(self.last_tsih) {
                break;
            }
        }
        let tsih = self.last_tsih;
        let (live, waits_for) = self.table.open(InitiatorPort { name: initiator.into(), isid }, origin, tsih)?;
        Some(Opened { tsih, live, waits_for })
    }

    pub(super) fn exists(&self, tsih: SessionHandle) -> bool {
        self.table.values().any(|live| *live == tsih)
    }

    /// Forgets a session that is over.
    pub(super) fn close(&mut self, session: &LiveSession) {
        self.table.close(session);
    }

    /// Ends every session: TARGET COLD RESET (RFC 7143 §11.5.1), or a server that takes the target away.
    pub fn end_all(&mut self) {
        self.table.end_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_of_the_same_port_ends_the_older_one() {
        let mut sessions = Sessions::default();
        let first = sessions.open("iqn.a", [1; 6], Origin::Address(1)).expect("room");
        let other = sessions.open("iqn.a", [2; 6], Origin::Address(1)).expect("room");
        let mut second = sessions.open("iqn.a", [1; 6], Origin::Address(1)).expect("room");
        assert_eq!([&first, &other, &second].map(|opened| opened.live.is_ended()), [true, false, false]);
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
            sessions.open("iqn.a", [0, 0, 0, 0, high, low], origin).map(|opened| held.push(opened)).is_some()
        };
        let stranger = Origin::Address(1);
        assert!((0..SESSIONS_OF_ORIGIN_MAX).all(|port| open(port, stranger.clone())));
        assert!(!open(SESSIONS_MAX, stranger));
        assert!(open(SESSIONS_MAX, Origin::Name("iqn.a".into())), "others have theirs");
        assert!((SESSIONS_OF_ORIGIN_MAX + 1..SESSIONS_MAX).all(|port| open(port, Origin::Address(port as u128))));
        assert!(!open(SESSIONS_MAX + 1, Origin::Address(2)));
    }
}
