//! What serves the volumes: a server, its threads, and the addresses at which it listens. It can be killed and started
//! again; the volumes stay.

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
};

use iotax_node::{
    failure::Failure,
    server::{Export, NoAccess, Portal, Server, ServerConfig},
};
use iotax_proto::Instant;
use iotax_runtime::{
    Clock, DriverKind,
    driver::{HeldAddress, listen},
};

use super::{
    threads::ServerThreads,
    volumes::{self, OpenVolume},
};
use crate::{
    document::{AccessEvent, AccessSpec, Event, ServeDocument, SilencedEvent},
    failure, secret,
};

/// Maximum number of connections per thread.
const CONNECTIONS_MAX: usize = 4096;

pub(super) struct Target<'a> {
    document: &'a ServeDocument,
    volumes: Vec<OpenVolume>,
    exports: Vec<Export>,
    /// With their actual addresses.
    portals: Vec<Portal>,
    /// Of all lives: modelled media go on by it.
    clock: Clock,
    /// Of all lives: file handles stay valid.
    secret: [u8; 32],
    state: State,
    /// How often it was started.
    life: u32,
}

enum State {
    Serving {
        server: Arc<Server>,
        threads: ServerThreads,
    },
    /// Its addresses are held, in the order of the portals.
    Killed(Vec<HeldAddress>),
}

/// Listens at all planned addresses, and stores the actual addresses in the plan.
pub(super) fn listen_all(portals: &mut [Portal]) -> Result<Vec<TcpListener>, Failure> {
    let listeners = portals.iter_mut().map(|portal| {
        let place = place(portal.address);
        let listener = listen(portal.address).map_err(|error| failure::io(&error, &place))?;
        portal.address = listener.local_addr().map_err(|error| failure::io(&error, &place))?;
        Ok(listener)
    });
    listeners.collect()
}

fn place(address: SocketAddr) -> String {
    format!("listen {address}")
}

impl<'a> Target<'a> {
    /// Starts to serve, and then keeps the files of the volumes. `listeners`: those of the portals.
    pub(super) fn start(
        document: &'a ServeDocument,
        volumes: Vec<OpenVolume>,
        exports: Vec<Export>,
        portals: Vec<Portal>,
        listeners: Vec<TcpListener>,
    ) -> Result<Self, Failure> {
        let (clock, secret, state) = (Clock::start(), secret::random()?, State::Killed(Vec::new()));
        let mut target = Self { document, volumes, exports, portals, clock, secret, state, life: 0 };
        target.serve(listeners)?;
        target.volumes.iter_mut().for_each(OpenVolume::keep);
        Ok(target)
    }

    fn serve(&mut self, listeners: Vec<TcpListener>) -> Result<(), Failure> {
        let server = Server::new(ServerConfig {
            volumes: volumes::specs(&self.volumes),
            exports: self.exports.clone(),
            portals: self.portals.clone(),
            // A nanosecond distinguishes each life from those before.
            started_unix_ns: self.clock.unix_ns(Instant(0)) + u64::from(self.life),
            secret: self.secret,
            connections_max: CONNECTIONS_MAX,
            has_frame_crc: true,
        });
        let threads = ServerThreads::start(self.document, &server, &self.volumes, listeners, self.clock)?;
        self.state = State::Serving { server, threads };
        self.life += 1;
        Ok(())
    }

    pub(super) fn volumes(&self) -> &[OpenVolume] {
        &self.volumes
    }

    /// Its number among its lives, from 1.
    pub(super) fn life(&self) -> u32 {
        self.life
    }

    pub(super) fn is_serving(&self) -> bool {
        matches!(self.state, State::Serving { .. })
    }

    /// Calls `tell` once a thread of this life has ended for any reason.
    pub(super) fn when_ended(&self, tell: impl FnOnce() + Send + 'static) {
        if let State::Serving { threads, .. } = &self.state {
            threads.when_ended(tell);
        }
    }

    pub(super) fn endpoint(&self, export: usize) -> Result<String, Failure> {
        Ok(self.serving()?.0.endpoint(export))
    }

    pub(super) fn driver(&self) -> Result<DriverKind, Failure> {
        Ok(self.serving()?.1.driver)
    }

    /// Number of connections that are open now.
    pub(super) fn connections(&self) -> usize {
        self.serving().map_or(0, |(_, threads)| threads.connections())
    }

    fn serving(&self) -> Result<(&Server, &ServerThreads), Failure> {
        match &self.state {
            State::Serving { server, threads } => Ok((server, threads)),
            State::Killed(_) => Err(Failure::usage("the target is killed", "standard input")),
        }
    }

    pub(super) fn silence(&self, portal: SocketAddr, silent: bool) -> Result<Event, Failure> {
        if !self.serving()?.0.silence(portal, silent) {
            return Err(Failure::usage(format!("there is no portal {portal}"), "portal"));
        }
        Ok(Event::Silenced(SilencedEvent { portal, silent }))
    }

    pub(super) fn set_access(&self, portal: SocketAddr, state: AccessSpec) -> Result<Event, Failure> {
        match self.serving()?.0.set_access(portal, state.into()) {
            Ok(()) => Ok(Event::Access(AccessEvent { portal, state })),
            Err(NoAccess::NoPortal) => Err(Failure::usage(format!("there is no portal {portal}"), "portal")),
            Err(NoAccess::NotReported(why)) => Err(Failure::usage(why, "portal")),
        }
    }

    /// Whether it can be killed: the thread for the arithmetic of authentications never ends.
    pub(super) fn is_mortal(&self) -> bool {
        self.serving().map_or(true, |(server, _)| !server.asks_for_arithmetic())
    }

    /// Ends its connections, and forgets all that it knows of its initiators. Operations on the volumes that are under
    /// way complete or are dropped, as when a process dies. Does nothing if it is killed already. After an error it
    /// cannot serve again.
    pub(super) fn kill(&mut self) -> Result<Event, Failure> {
        if self.is_serving()
            && let State::Serving { threads, .. } = std::mem::replace(&mut self.state, State::Killed(Vec::new()))
        {
            threads.stop()?;
            self.state = State::Killed(self.hold_addresses()?);
        }
        Ok(Event::Killed)
    }

    fn hold_addresses(&self) -> Result<Vec<HeldAddress>, Failure> {
        let held = self
            .portals
            .iter()
            .map(|portal| HeldAddress::new(portal.address).map_err(|error| failure::io(&error, place(portal.address))));
        held.collect()
    }

    /// Starts it again at the same addresses, if it is killed. After an error it cannot serve again.
    pub(super) fn revive(&mut self) -> Result<Event, Failure> {
        if let State::Killed(held) = &mut self.state {
            let listeners = std::mem::take(held)
                .into_iter()
                .zip(&self.portals)
                .map(|(address, portal)| address.listen().map_err(|error| failure::io(&error, place(portal.address))));
            let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
            self.serve(listeners)?;
        }
        Ok(Event::Revived)
    }

    pub(super) fn stop(self) -> Result<(), Failure> {
        match self.state {
            State::Serving { threads, .. } => threads.stop(),
            State::Killed(_) => Ok(()),
        }
    }
}
