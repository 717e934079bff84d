//! The logins of one target port, over all its connections.

use alloc::rc::Rc;
use core::{fmt, net::IpAddr};

use super::{Header, PortName, els::Process};
use crate::{Ending, Endings, Instant, LiveSession, Origin, SessionTable, Shared, Shares, Wait};

/// Logins that a target port has at a time; one more is told that there are no resources.
const LOGINS_MAX: usize = 4096;
/// Of those, logins of one origin: a peer alone cannot keep all others out.
const LOGINS_OF_ORIGIN_MAX: usize = 1024;

/// The live logins of a target port, one of each initiator port: a newer one is an implicit logout of the older (FC-LS-4).
#[derive(Debug)]
pub struct Logins(SessionTable<PortName>);

impl Default for Logins {
    fn default() -> Self {
        Self(SessionTable::new(Shares { all: LOGINS_MAX, of_origin: LOGINS_OF_ORIGIN_MAX }))
    }
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
    live: LiveSession,
}

/// A login that is answered once the earlier ones of its initiator port are over.
#[derive(Debug)]
pub struct Opening<D> {
    pub(super) login: ProcessLogin<D>,
    pub(super) wait: Wait,
    /// The PRLI, and the answer to it.
    pub(super) header: Header,
    pub(super) process: Process,
}

impl<D> ProcessLogin<D> {
    /// `None` where the target port has too many logins. The login may begin when the endings are over.
    fn open(initiator: PortName, grant: LoginGrant<D>) -> Option<(Self, Endings)> {
        let mut opened = None;
        let origin = Origin::of_address(grant.address);
        grant.logins.with(&mut |logins| opened = logins.0.open(initiator, origin.clone(), ()));
        let (live, waits_for) = opened?;
        Some((Self { grant, live }, waits_for))
    }

    /// The initiator port logged in elsewhere.
    #[inline]
    pub fn is_ended(&self) -> bool {
        self.live.is_ended()
    }

    /// For operations that go on after it.
    pub fn ending(&self) -> &Ending {
        self.live.ending()
    }

    /// Its connection is over, and its operations were aborted.
    pub fn close(self) {
        self.grant.logins.with(&mut |logins| logins.0.close(&self.live));
    }
}

impl<D> Opening<D> {
    /// The initiator port logged in elsewhere meanwhile.
    pub fn is_ended(&self) -> bool {
        self.login.is_ended()
    }

    /// As [`ProcessLogin::open`]. `notify_others` has an earlier login of the port learn of its end now, not when it next looks by itself.
    pub(super) fn begin(
        now: Instant,
        initiator: PortName,
        grant: LoginGrant<D>,
        (header, process): (Header, Process),
        notify_others: impl FnOnce(),
    ) -> Option<Self> {
        let (login, waits_for) = ProcessLogin::open(initiator, grant)?;
        Some(Self { login, wait: Wait::begin(now, waits_for, notify_others), header, process })
    }

    /// Its connection is over.
    pub fn close(self) {
        self.login.close();
    }
}
