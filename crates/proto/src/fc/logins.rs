//! The logins of one target port, over all its connections.

use alloc::{rc::Rc, sync::Arc, vec::Vec};
use core::{
    fmt,
    net::IpAddr,
    sync::atomic::{AtomicBool, Ordering},
};

use super::PortName;
use crate::{Origin, Shared};

/// Logins that a target port has at a time; one more is told that there are no resources.
const LOGINS_MAX: usize = 4096;
/// Of those, logins of one origin: a peer alone cannot keep all others out.
const LOGINS_OF_ORIGIN_MAX: usize = 1024;

/// The live logins of a target port.
#[derive(Debug, Default)]
pub struct Logins {
    live: Vec<Live>,
}

#[derive(Debug)]
struct Live {
    initiator: PortName,
    origin: Origin,
    ended: Arc<AtomicBool>,
}

/// Why an initiator port may not log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginRefusal {
    NoSuchPort,
    NotAuthorized,
}

/// What an initiator port may log in to.
#[derive(Clone)]
pub struct LoginGrant<D> {
    pub logins: Rc<dyn Shared<Logins>>,
    pub node_name: PortName,
    /// Where the initiator comes from.
    pub address: IpAddr,
    /// What the port stands for, as its FC-4 has it.
    pub device: D,
}

impl<D> fmt::Debug for LoginGrant<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginGrant").field("node_name", &self.node_name).finish_non_exhaustive()
    }
}

/// A login that is live, to what was granted.
#[derive(Debug)]
pub struct ProcessLogin<D> {
    pub grant: LoginGrant<D>,
    /// Set when the initiator port logs in elsewhere.
    ended: Arc<AtomicBool>,
}

impl<D> ProcessLogin<D> {
    /// `None` where the target port has too many logins. `notify_others` has one of the same initiator port learn of its end now, not
    /// when it next looks by itself: what it does ends before this login begins anything.
    pub(super) fn open(initiator: PortName, grant: LoginGrant<D>, notify_others: impl FnOnce()) -> Option<Self> {
        let mut opened = None;
        grant.logins.with(&mut |logins| opened = logins.open(initiator, Origin::of_address(grant.address)));
        let Opened { ended, replaces } = opened?;
        if replaces {
            notify_others();
        }
        Some(Self { grant, ended })
    }

    /// The initiator port logged in elsewhere.
    #[inline]
    pub fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Its connection is over.
    pub fn close(self) {
        self.grant.logins.with(&mut |logins| logins.close(&self.ended));
    }
}

/// A login that begins.
#[derive(Debug)]
struct Opened {
    /// Set when it is to end.
    ended: Arc<AtomicBool>,
    /// There was one of the same initiator port, which is to learn of its end.
    replaces: bool,
}

impl Logins {
    /// Opens a login. An older one of the same initiator port is ended by it (FC-LS-4: implicit logout). `None` where there are
    /// too many.
    fn open(&mut self, initiator: PortName, origin: Origin) -> Option<Opened> {
        let before = self.live.len();
        self.live.retain(|live| {
            let same = live.initiator == initiator;
            if same {
                live.ended.store(true, Ordering::Release);
            }
            !same
        });
        let replaces = self.live.len() < before;
        let of_origin = self.live.iter().filter(|live| live.origin == origin).count();
        if self.live.len() >= LOGINS_MAX || of_origin >= LOGINS_OF_ORIGIN_MAX {
            return None;
        }
        let ended = Arc::new(AtomicBool::new(false));
        self.live.push(Live { initiator, origin, ended: Arc::clone(&ended) });
        Some(Opened { ended, replaces })
    }

    /// Forgets a login that is over.
    fn close(&mut self, ended: &Arc<AtomicBool>) {
        self.live.retain(|live| !Arc::ptr_eq(&live.ended, ended));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_of_the_same_port_ends_the_older_one() {
        let mut logins = Logins::default();
        let mut open = |name| logins.open(PortName(name), Origin::Address(1)).expect("room");
        let (first, other, second) = (open(1), open(2), open(1));
        assert_eq!([first.replaces, other.replaces, second.replaces], [false, false, true]);
        let ended = [&first, &other, &second].map(|opened| opened.ended.load(Ordering::Acquire));
        assert_eq!(ended, [true, false, false]);
        logins.close(&first.ended);
        assert_eq!(logins.live.len(), 2, "what was ended is forgotten already");
        logins.close(&second.ended);
        assert_eq!(logins.live.len(), 1);
    }

    #[test]
    fn logins_are_bounded_in_all_and_of_one_origin() {
        let mut logins = Logins::default();
        let mut open =
            |name: usize, origin: usize| logins.open(PortName(name as u64), Origin::Address(origin as u128)).is_some();
        assert!((0..LOGINS_OF_ORIGIN_MAX).all(|name| open(name, 0)));
        assert!(!open(LOGINS_OF_ORIGIN_MAX, 0));
        assert!((LOGINS_OF_ORIGIN_MAX..LOGINS_MAX).all(|name| open(name, name)));
        assert!(!open(LOGINS_MAX, LOGINS_MAX));
    }
}
