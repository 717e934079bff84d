//! The sessions of one target, over all its connections.

use alloc::{
    string::{String, ToString},
    sync::Arc,
    vec::Vec,
};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::{Origin, iscsi::pdu::SessionHandle};

/// Sessions that a target has at a time; an initiator that opens more is told that the target is out of resources.
const SESSIONS_MAX: usize = 4096;
/// Of those, sessions of one origin: a peer alone cannot keep all others out.
const SESSIONS_OF_ORIGIN_MAX: usize = 1024;

/// The live sessions of a target, by which TSIHs are allotted and sessions are reinstated.
#[derive(Debug, Default)]
pub struct Sessions {
    live: Vec<Live>,
    last_tsih: SessionHandle,
}

#[derive(Debug)]
struct Live {
    initiator: String,
    isid: [u8; 6],
    tsih: SessionHandle,
    origin: Origin,
    ended: Arc<AtomicBool>,
}

/// A session that begins.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) tsih: SessionHandle,
    /// Set when it is to end.
    pub(super) ended: Arc<AtomicBool>,
    /// There was one of the same initiator port, which is to learn of its end.
    pub(super) reinstates: bool,
}

impl Sessions {
    /// Opens a session. An older session of the same initiator port is ended: it is reinstated by this one (RFC 7143 §6.3.5).
    /// `None` where there are too many.
    pub(super) fn open(&mut self, initiator: &str, isid: [u8; 6], origin: Origin) -> Option<Opened> {
        let before = self.live.len();
        self.live.retain(|live| {
            let same = live.initiator == initiator && live.isid == isid;
            if same {
                live.ended.store(true, Ordering::Release);
            }
            !same
        });
        let reinstates = self.live.len() < before;
        let of_origin = self.live.iter().filter(|live| live.origin == origin).count();
        if self.live.len() >= SESSIONS_MAX || of_origin >= SESSIONS_OF_ORIGIN_MAX {
            return None;
        }
        // SESSIONS_MAX is below the number of TSIHs, so one is free; 0 names none.
        loop {
            self.last_tsih = SessionHandle(self.last_tsih.0.wrapping_add(1));
            if self.last_tsih != SessionHandle::NEW && !self.exists(self.last_tsih) {
                break;
            }
        }
        let ended = Arc::new(AtomicBool::new(false));
        let (tsih, flag) = (self.last_tsih, Arc::clone(&ended));
        self.live.push(Live { initiator: initiator.to_string(), isid, tsih, origin, ended });
        Some(Opened { tsih, ended: flag, reinstates })
    }

    pub(super) fn exists(&self, tsih: SessionHandle) -> bool {
        self.live.iter().any(|live| live.tsih == tsih)
    }

    /// Forgets a session that is over.
    pub(super) fn close(&mut self, tsih: SessionHandle) {
        self.live.retain(|live| live.tsih != tsih);
    }

    /// Ends every session: TARGET COLD RESET (RFC 7143 §11.5.1), or a server that takes the target away.
    pub fn end_all(&mut self) {
        for live in self.live.drain(..) {
            live.ended.store(true, Ordering::Release);
        }
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
        let second = sessions.open("iqn.a", [1; 6], Origin::Address(1)).expect("room");
        assert_eq!([first.reinstates, other.reinstates, second.reinstates], [false, false, true]);
        let ended = [&first, &other, &second].map(|opened| opened.ended.load(Ordering::Acquire));
        assert_eq!(ended, [true, false, false]);
        assert!(!sessions.exists(first.tsih) && sessions.exists(other.tsih) && sessions.exists(second.tsih));
        sessions.close(second.tsih);
        assert!(!sessions.exists(second.tsih));
    }

    #[test]
    fn sessions_are_bounded() {
        let mut sessions = Sessions::default();
        for port in 0..SESSIONS_MAX {
            let [.., high, low] = port.to_be_bytes();
            assert!(sessions.open("iqn.a", [0, 0, 0, 0, high, low], Origin::Address(port as u128 / 200)).is_some());
        }
        assert!(sessions.open("iqn.b", [0; 6], Origin::Address(999)).is_none());
    }

    #[test]
    fn no_origin_has_more_than_its_share_of_sessions() {
        let mut sessions = Sessions::default();
        let mut open = |port: u16, origin: &Origin| {
            let [high, low] = port.to_be_bytes();
            sessions.open("iqn.a", [0, 0, 0, 0, high, low], origin.clone()).is_some()
        };
        let stranger = Origin::Address(1);
        assert!((0..SESSIONS_OF_ORIGIN_MAX as u16).all(|port| open(port, &stranger)));
        assert!(!open(u16::MAX, &stranger));
        assert!(open(u16::MAX, &Origin::Name("iqn.a".into())), "others have theirs");
    }
}
