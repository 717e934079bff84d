//! The logins of an initiator (Special Frame, FLOGI, PLOGI, PRLI; each is answered before the next is sent), and the
//! logins of one target port over all its connections.

use alloc::rc::Rc;
use core::{fmt, net::IpAddr};

use super::{
    Port,
    els::{self, Process, Rejection, command},
    frame::{Header, OxId, PortId, PortName, Special, kind, r_ctl},
    link::Link,
};
use crate::{Ending, Endings, Instant, LiveSession, Origin, Refusal, SessionTable, Shared, Shares, Violation, Wait};

/// OX_IDs of everything except commands. Those of commands are lower.
pub mod ox_id {
    use crate::fc::OxId;

    pub const LOGIN: OxId = OxId(0xfff0);
    pub const ECHO: OxId = OxId(0xfff1);
    pub const LOGOUT: OxId = OxId(0xfff2);
    pub const PROBE: OxId = OxId(0xfff3);
    pub const TASK_MANAGEMENT: OxId = OxId(0xfff4);
    /// A link service of the FC-4. There is one at a time.
    pub const FC4_LS: OxId = OxId(0xfff5);
    /// An NVMe command of the admin queue.
    pub const ADMIN: OxId = OxId(0xfff6);
    /// An NVMe command of an I/O queue that is not I/O.
    pub const CONTROL: OxId = OxId(0xfff7);
}

#[derive(Debug)]
pub struct Login {
    port: Port,
    target: PortName,
    process: Process,
    step: LoginStep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoginStep {
    Special,
    Fabric,
    Port,
    Process,
}

/// The target's port and service parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedIn {
    pub target: Port,
    pub parameters: u32,
}

impl Login {
    pub fn begin(port: Port, target: PortName, process: Process, link: &mut Link) -> Self {
        let special = Special { changed: false, source: port.port_name, nonce: port.node_name.0, destination: target };
        link.transmit.put(&special.encode());
        Self { port, target, process, step: LoginStep::Special }
    }

    /// Processes the Special Frame that the target returned.
    pub fn special(&mut self, special: &Special, link: &mut Link) -> Result<(), Violation> {
        if self.step != LoginStep::Special {
            return Err(misbehaved!("RFC 3821 §7: a second Special Frame"));
        }
        if special.changed || special.destination != self.target {
            return Err(Violation::refused(Refusal::NotFound, "there is no such port at this address"));
        }
        self.step = LoginStep::Fabric;
        self.send(command::FLOGI, link);
        Ok(())
    }

    /// Processes an answer. The last one returns the result of the login.
    pub fn reply(
        &mut self,
        header: &Header,
        payload: &[u8],
        link: &mut Link,
        found: &mut Option<Port>,
    ) -> Result<Option<LoggedIn>, Violation> {
        if header.r_ctl != r_ctl::ELS_REPLY || header.ox_id != ox_id::LOGIN {
            return Err(misbehaved!("FC-LS-4 PLOGI: a frame before the login is done"));
        }
        match payload.first() {
            Some(&command::LS_ACC) => {}
            Some(&command::LS_RJT) => return Err(Rejection::violation(payload)),
            _ => {
                return Err(misbehaved!("FC-LS-4 LS_ACC: an answer that is neither LS_ACC nor LS_RJT"));
            }
        }
        match self.step {
            LoginStep::Special => return Err(misbehaved!("FC-LS-4 LS_ACC: an answer to nothing")),
            LoginStep::Fabric => {
                let fabric = els::parse_login(payload)?;
                link.open(fabric.credit, fabric.frame_data_len, self.port.credit);
                link.set_ids(header.d_id, PortId::TARGET);
                self.step = LoginStep::Port;
                self.send(command::PLOGI, link);
            }
            LoginStep::Port => {
                let target = els::parse_login(payload)?;
                if target.port_name != self.target {
                    return Err(Violation::refused(Refusal::NotFound, "another port answers at this address"));
                }
                link.open(target.credit, target.frame_data_len, self.port.credit);
                *found = Some(target);
                self.step = LoginStep::Process;
                link.send(els::request(ox_id::LOGIN), &self.process.encode(command::PRLI));
            }
            LoginStep::Process => {
                let Process { kind, parameters } = Process::parse(payload)?;
                let target = found.ok_or_else(els::short)?;
                if kind != self.process.kind {
                    return Err(misbehaved!("FC-LS-4 PRLI: an accept of another FC-4").at(4));
                }
                return Ok(Some(LoggedIn { target, parameters }));
            }
        }
        Ok(None)
    }

    fn send(&self, command: u8, link: &mut Link) {
        link.send(els::request(ox_id::LOGIN), &els::encode_login(command, &self.port, false));
    }
}

/// Sends an ECHO, which a silent target must answer.
pub fn echo(link: &mut Link) {
    link.send(els::request(ox_id::ECHO), &[command::ECHO, 0, 0, 0]);
}

pub fn logout(port: PortName, link: &mut Link) {
    link.send(els::request(ox_id::LOGOUT), &els::encode_logout(PortId::INITIATOR.0, port));
}

/// Processes a link service of a logged-in session; true if it is the answer to its logout.
pub fn link_service(header: &Header, payload: &[u8], is_leaving: bool) -> Result<bool, Violation> {
    match (header.kind, header.r_ctl, header.ox_id) {
        (kind::ELS, r_ctl::ELS_REPLY, ox_id::ECHO) => Ok(false),
        (kind::ELS, r_ctl::ELS_REPLY, ox_id::LOGOUT) if is_leaving => Ok(true),
        (kind::ELS, r_ctl::ELS_REQUEST, _) if payload.first() == Some(&command::LOGO) => {
            Err(Violation::refused(Refusal::Other, "the target logs out"))
        }
        _ => Err(unexpected()),
    }
}

/// The violation for a frame that is not an answer.
pub fn unexpected() -> Violation {
    misbehaved!("FC-FS-5 R_CTL: a frame that answers nothing")
}

/// Whether an OX_ID may belong to a command.
pub fn is_command(ox_id: OxId) -> bool {
    ox_id.0 < ox_id::LOGIN.0
}

/// Maximum logins of a target port. Further ones are rejected with insufficient resources.
const LOGINS_MAX: usize = 4096;
/// Maximum of those per origin, so that a single peer cannot keep all others out.
const LOGINS_OF_ORIGIN_MAX: usize = 1024;

/// The live logins of a target port. Each initiator port has one: a newer login is an implicit logout of the older one
/// (FC-LS-4).
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

/// The result of admitting an initiator port: the objects that its login may use.
#[derive(Clone)]
pub struct LoginGrant<D> {
    pub logins: Rc<dyn Shared<Logins>>,
    pub node_name: PortName,
    /// The initiator's address.
    pub address: IpAddr,
    /// The device behind the target port, in the terms of its FC-4.
    pub device: D,
}

impl<D> fmt::Debug for LoginGrant<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginGrant").field("node_name", &self.node_name).finish_non_exhaustive()
    }
}

/// A live login, and what it may use.
#[derive(Debug)]
pub struct ProcessLogin<D> {
    pub grant: LoginGrant<D>,
    live: LiveSession,
}

/// A login that is answered when earlier logins of its initiator port are over.
#[derive(Debug)]
pub(super) struct Opening<D> {
    pub(super) login: ProcessLogin<D>,
    pub(super) wait: Wait,
    /// The header of the PRLI, and the answer to it.
    pub(super) header: Header,
    pub(super) process: Process,
}

impl<D> ProcessLogin<D> {
    /// Opens a login, which may start when the endings are over. `None` if the target port has too many logins.
    fn open(initiator: PortName, grant: LoginGrant<D>) -> Option<(Self, Endings)> {
        let mut opened = None;
        let origin = Origin::of_address(grant.address);
        grant.logins.with(&mut |logins| opened = logins.0.open(initiator, origin.clone(), ()));
        let (live, waits_for) = opened?;
        Some((Self { grant, live }, waits_for))
    }

    /// Whether the initiator port has logged in elsewhere.
    #[inline]
    pub fn is_ended(&self) -> bool {
        self.live.is_ended()
    }

    /// Held by operations that continue after the login.
    pub fn ending(&self) -> &Ending {
        self.live.ending()
    }

    /// Closes the login when its connection is over and its operations have been aborted.
    pub fn close(self) {
        self.grant.logins.with(&mut |logins| logins.0.close(&self.live));
    }
}

impl<D> Opening<D> {
    /// Like [`ProcessLogin::open`]. Calls `notify_others` so that an earlier login of the port ends now, not at its
    /// next periodic check.
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
}
