//! The logins of whoever is connected to. The far end of the stream is the fabric port and the target port in one.

use super::{
    Port,
    els::{self, Process, Rejection, command},
    encapsulation::Special,
    frame::{Header, PortId, PortName},
    link::Link,
};
use crate::Violation;

#[derive(Debug)]
pub struct Responder {
    port: Port,
    /// Who connected, as its Special Frame says.
    initiator: PortName,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Special,
    Fabric,
    Port,
    Process,
    Done,
}

/// What a link service asks for beyond its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Nothing,
    /// PRLI: to be answered with `accept` or `reject`.
    Process(Process),
    /// The initiator leaves, and its logout is accepted.
    Logout,
}

impl Responder {
    /// `port`: how much we take; its names come with the Special Frame.
    pub fn new(port: Port) -> Self {
        Self { port, initiator: PortName::default(), stage: Stage::Special }
    }

    pub fn initiator(&self) -> PortName {
        self.initiator
    }

    /// The port that is logged in to.
    pub fn port_name(&self) -> PortName {
        self.port.port_name
    }

    /// The first thing on a connection, and no second. To be answered with `found` or `not_found`.
    pub fn special(&mut self, special: &Special) -> Result<(), Violation> {
        if self.stage != Stage::Special || special.changed {
            return Err(Violation::misbehaved("RFC 3821 §7: a connection begins with one Special Frame"));
        }
        self.initiator = special.source;
        Ok(())
    }

    /// The port that is wanted is here.
    pub fn found(&mut self, special: &Special, node_name: PortName, link: &mut Link) {
        (self.port.port_name, self.port.node_name) = (special.destination, node_name);
        self.stage = Stage::Fabric;
        link.transmit.put(&special.encode());
    }

    /// It is not: the frame goes back changed, and the connection ends.
    pub fn not_found(special: &Special, link: &mut Link) {
        let changed = Special { changed: true, destination: PortName::default(), ..*special };
        link.transmit.put(&changed.encode());
    }

    /// A link service came. `may_log_in` is asked at PLOGI.
    pub fn request(
        &mut self,
        header: &Header,
        payload: &[u8],
        link: &mut Link,
        may_log_in: impl FnOnce(PortName) -> Result<(), Rejection>,
    ) -> Result<Asked, Violation> {
        let code = payload.first().copied().ok_or_else(els::short)?;
        match (code, self.stage) {
            (command::FLOGI, Stage::Fabric) => {
                let initiator = els::parse_login(payload)?;
                self.check_name(&initiator)?;
                // Answered by the well-known address, to the address that the port has from now on.
                link.set_ids(PortId::FABRIC, PortId::INITIATOR);
                link.send(els::reply(header), &els::encode_login(command::LS_ACC, &self.port, true));
                link.open(initiator.credit, initiator.frame_data_len, self.port.credit);
                link.set_ids(PortId::TARGET, PortId::INITIATOR);
                self.stage = Stage::Port;
            }
            (command::PLOGI, Stage::Port) => {
                let initiator = els::parse_login(payload)?;
                self.check_name(&initiator)?;
                if let Err(rejection) = may_log_in(initiator.port_name) {
                    reject(header, rejection, link);
                    return Err(Rejection::violation(&rejection.encode()));
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
                return Err(Violation::misbehaved("FC-LS-4: a login out of order"));
            }
            _ => reject(header, Rejection::NOT_SUPPORTED, link),
        }
        Ok(Asked::Nothing)
    }

    /// The process login is granted: commands may come.
    pub fn accept(&mut self, header: &Header, process: Process, link: &mut Link) {
        link.send(els::reply(header), &process.encode(command::LS_ACC));
        self.stage = Stage::Done;
    }

    fn check_name(&self, port: &Port) -> Result<(), Violation> {
        if port.port_name == self.initiator {
            return Ok(());
        }
        Err(Violation::misbehaved("FC-LS-4: a login by another port than the one that connected").at(20))
    }
}

pub fn reject(header: &Header, rejection: Rejection, link: &mut Link) {
    link.send(els::reply(header), &rejection.encode());
}
