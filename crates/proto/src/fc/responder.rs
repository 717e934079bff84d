//! The responder's side of logins. It is fabric port and target port at once.

use super::{
    LoginGrant, LoginRefusal, Port, ProcessLogin,
    els::{self, Process, Rejection, command},
    frame::{Header, PortId, PortName, Special},
    link::Link,
    login::Opening,
};
use crate::{Instant, Refusal, Violation, WaitOutcome};

/// Answers logins. `D` is the device behind the target port.
#[derive(Debug)]
pub struct Responder<D> {
    port: Port,
    /// The initiator port according to its Special Frame.
    initiator: PortName,
    /// Set by the Special Frame; `None` if the port is not admitted.
    grant: Option<LoginGrant<D>>,
    stage: Stage,
    /// Set by PRLI, until earlier logins of the initiator port are over.
    opening: Option<Opening<D>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Special,
    Fabric,
    Port,
    Process,
    Done,
}

/// The action that a link service requires besides its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Nothing,
    /// PRLI, which must be answered with `accept` or `reject`.
    Process(Process),
    /// A logout, which has been accepted.
    Logout,
}

impl<D: Clone> Responder<D> {
    /// `port` has our limits. The Special Frame sets its names.
    pub fn new(port: Port) -> Self {
        Self { port, initiator: PortName::default(), grant: None, stage: Stage::Special, opening: None }
    }

    pub fn initiator(&self) -> PortName {
        self.initiator
    }

    /// The port that the initiator logs in to.
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// Processes the Special Frame, which must come first and only once. `login` returns whether the requested port
    /// exists and may be used.
    pub fn special(
        &mut self,
        special: &Special,
        link: &mut Link,
        login: impl FnOnce(PortName, PortName) -> Result<LoginGrant<D>, LoginRefusal>,
    ) -> Result<(), Violation> {
        if self.stage != Stage::Special || special.changed {
            return Err(misbehaved!("RFC 3821 §7: a connection begins with one Special Frame"));
        }
        self.initiator = special.source;
        let grant = login(special.source, special.destination);
        if let Err(LoginRefusal::NoSuchPort) = grant {
            // The frame is returned changed, and the connection ends.
            let changed = Special { changed: true, destination: PortName::default(), ..*special };
            link.transmit.put(&changed.encode());
            return Err(Violation::refused(Refusal::NotFound, "there is no such port at this address"));
        }
        self.grant = grant.ok();
        let node_name = self.grant.as_ref().map_or(special.destination, |grant| grant.node_name);
        (self.port.port_name, self.port.node_name) = (special.destination, node_name);
        self.stage = Stage::Fabric;
        link.transmit.put(&special.encode());
        Ok(())
    }

    /// Processes a link service.
    #[cold]
    pub fn request(&mut self, header: &Header, payload: &[u8], link: &mut Link) -> Result<Asked, Violation> {
        let code = payload.first().copied().ok_or_else(els::short)?;
        match (code, self.stage) {
            (command::FLOGI, Stage::Fabric) => {
                let initiator = els::parse_login(payload)?;
                self.check_name(&initiator)?;
                // The well-known address answers, to the address that the port has from now on.
                link.set_ids(PortId::FABRIC, PortId::INITIATOR);
                link.send(els::reply(header), &els::encode_login(command::LS_ACC, &self.port, true));
                link.open(initiator.credit, initiator.frame_data_len, self.port.credit);
                link.set_ids(PortId::TARGET, PortId::INITIATOR);
                self.stage = Stage::Port;
            }
            (command::PLOGI, Stage::Port) => {
                let initiator = els::parse_login(payload)?;
                self.check_name(&initiator)?;
                if self.grant.is_none() {
                    return Err(refuse(header, Rejection::UNABLE, link));
                }
                link.send(els::reply(header), &els::encode_login(command::LS_ACC, &self.port, false));
                self.stage = Stage::Process;
            }
            (command::PRLI, Stage::Process) => return Process::parse(payload).map(Asked::Process),
            (command::ECHO, Stage::Process | Stage::Done) => {
                let mut answer = [0; 4];
                answer[0] = command::LS_ACC;
                link.send(els::reply(header), &answer);
            }
            (command::LOGO | command::PRLO, Stage::Process | Stage::Done) => {
                link.send(els::reply(header), &[command::LS_ACC, 0, 0, 0]);
                return Ok(Asked::Logout);
            }
            (command::FLOGI | command::PLOGI | command::PRLI | command::LOGO, _) => {
                reject(header, Rejection::LOGICAL_ERROR, link);
                return Err(misbehaved!("FC-LS-4 PLOGI: a login out of order"));
            }
            _ => reject(header, Rejection::NOT_SUPPORTED, link),
        }
        Ok(Asked::Nothing)
    }

    /// Accepts the process login once earlier logins of the initiator port are over; `opened` reports that.
    /// `notify_others` is as in [`Opening::begin`].
    pub fn accept(
        &mut self,
        now: Instant,
        header: &Header,
        process: Process,
        link: &mut Link,
        notify_others: impl FnOnce(),
    ) -> Result<(), Violation> {
        let grant = self.grant.clone().expect("who is not let in does not get as far as PRLI");
        self.stage = Stage::Done;
        self.opening = Opening::begin(now, self.initiator, grant, (*header, process), notify_others);
        if self.opening.is_some() { Ok(()) } else { Err(refuse(header, Rejection::INSUFFICIENT_RESOURCES, link)) }
    }

    /// Whether a process login waits.
    #[inline]
    pub fn is_opening(&self) -> bool {
        self.opening.is_some()
    }

    /// Whether the initiator port has logged in elsewhere while its process login waits.
    pub fn is_ended(&self) -> bool {
        self.opening.as_ref().is_some_and(|opening| opening.login.is_ended())
    }

    /// Closes the waiting login, if there is one, because its connection is over.
    pub fn close(&mut self) {
        if let Some(opening) = self.opening.take() {
            opening.login.close();
        }
    }

    /// Returns the waiting login when it may start, so that commands may come. Rejects it if that takes too long.
    pub fn opened(&mut self, now: Instant, link: &mut Link) -> Result<Option<ProcessLogin<D>>, Violation> {
        let outcome = self.opening.as_mut().map_or(WaitOutcome::Waits, |opening| opening.wait.outcome(now));
        if outcome == WaitOutcome::Waits {
            return Ok(None);
        }
        let Some(Opening { login, header, process, .. }) = self.opening.take() else { return Ok(None) };
        if outcome == WaitOutcome::TooLong {
            login.close();
            return Err(refuse(&header, Rejection::BUSY, link));
        }
        link.send(els::reply(&header), &process.encode(command::LS_ACC));
        Ok(Some(login))
    }

    fn check_name(&self, port: &Port) -> Result<(), Violation> {
        if port.port_name == self.initiator {
            return Ok(());
        }
        Err(misbehaved!("FC-LS-4 PLOGI: a login by another port than the one that connected").at(20))
    }
}

pub fn reject(header: &Header, rejection: Rejection, link: &mut Link) {
    link.send(els::reply(header), &rejection.encode());
}

/// Rejects a request and ends the connection.
fn refuse(header: &Header, rejection: Rejection, link: &mut Link) -> Violation {
    reject(header, rejection, link);
    Rejection::violation(&rejection.encode())
}
