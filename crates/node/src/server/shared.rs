//! State that all threads of a server share.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use iotax_proto::{SessionTable, Shared, Shares, nfs::common::Time};

use super::{
    arithmetic::Arithmetic,
    notifier::Notifier,
    portals::{Export, Portal, Service},
};
use crate::{
    access::Access,
    protocols::{Common, Exported},
    volume::VolumeSpec,
};

#[derive(Clone, Debug)]
pub struct ServerConfig {
    pub volumes: Vec<VolumeSpec>,
    pub exports: Vec<Export>,
    /// The portals of `plan_portals`, with their actual addresses.
    pub portals: Vec<Portal>,
    /// Wall time at `Instant(0)`, nanoseconds since 1970. Not 0: it distinguishes this start of the server from others.
    pub started_unix_ns: u64,
    /// A secret that no peer can guess, from which challenges and file handles are derived. With the same secret, file
    /// handles stay valid when the server starts again.
    pub secret: [u8; 32],
    /// Maximum number of connections per thread.
    pub connections_max: usize,
    /// Whether Fibre Channel frames carry a CRC, as the loads' do. A driver that never damages data does not need it.
    pub has_frame_crc: bool,
}

/// State behind a lock, for the control path.
#[derive(Debug)]
pub struct Guarded<T>(Arc<Mutex<T>>);

impl<T> Guarded<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(Mutex::new(value)))
    }

    /// A thread that panics while it holds the lock ends the process, so the state is always complete.
    pub(crate) fn lock(&self) -> std::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for Guarded<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Shared<T> for Guarded<T> {
    fn with(&self, use_it: &mut dyn FnMut(&mut T)) {
        use_it(&mut self.lock());
    }
}

/// Why the access through a portal cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAccess {
    NoPortal,
    /// The portal cannot report it, for this reason.
    NotReported(&'static str),
}

/// The number by which protocols know a portal, from 1 on.
pub(crate) fn port_id(portal: usize) -> u16 {
    portal as u16 + 1
}

/// A server, created once and shared by its threads.
#[derive(Debug)]
pub struct Server {
    pub(crate) config: ServerConfig,
    /// One per export.
    pub(crate) exported: Vec<Exported>,
    pub(crate) common: Common,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) arithmetic: Arithmetic,
    /// Whether a portal is silent, by its number.
    silent: Vec<AtomicBool>,
    /// Connections of protocols without sessions, by listener and peer: a client that returns from the same port
    /// repeats what was under way.
    pub(super) peers: Guarded<SessionTable<(usize, SocketAddr)>>,
}

impl Server {
    pub fn new(config: ServerConfig) -> Arc<Self> {
        let mut exported: Vec<Exported> = Vec::new();
        for (index, export) in config.exports.iter().enumerate() {
            let twin = config.exports[..index].iter().position(|earlier| earlier.is_same_target(export));
            exported.push(match twin {
                Some(twin) => exported[twin].clone(),
                None => Exported::new(export.protocol, &config, index),
            });
        }
        let notifier = Arc::new(Notifier::default());
        for volume in &config.volumes {
            let notifier = Arc::clone(&notifier);
            volume.claims.wake_with(move || notifier.wake());
        }
        let common = Common::new(&config);
        let peers = Guarded::new(SessionTable::new(Shares { all: usize::MAX, of_origin: usize::MAX }));
        let silent = config.portals.iter().map(|_| AtomicBool::new(false)).collect();
        Arc::new(Self { config, exported, common, notifier, arithmetic: Arithmetic::default(), silent, peers })
    }

    /// `wake` is called when a connection affected others, or released what others wait for. It must make the driver of
    /// every thread give its node `Input::Woken`.
    pub fn wake_with(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.notifier.wake_with(Box::new(wake));
    }

    /// Makes a portal fall silent, as if its cable were pulled, or answer again. Its connections stay open, and what
    /// arrives meanwhile is handled afterwards. Replies that are under way still leave. The protocols' timers go on; a
    /// connection that they end is closed when the portal answers again.
    /// False if there is no such portal.
    pub fn silence(&self, portal: SocketAddr, silent: bool) -> bool {
        let index = self.config.portals.iter().position(|each| each.address == portal);
        if let Some(index) = index {
            self.silent[index].store(silent, Ordering::Release);
            self.notifier.notify();
        }
        index.is_some()
    }

    /// Sets how volumes can be accessed through a portal. Its connections stay open, and their initiators learn of it. I/Os
    /// that are under way are executed.
    pub fn set_access(&self, portal: SocketAddr, access: Access) -> Result<(), NoAccess> {
        let index = self.config.portals.iter().position(|each| each.address == portal).ok_or(NoAccess::NoPortal)?;
        for export in &self.config.portals[index].exports {
            self.exported[*export].set_access(port_id(index), access).map_err(NoAccess::NotReported)?;
        }
        self.notifier.notify();
        Ok(())
    }

    pub(super) fn is_silent(&self, portal: usize) -> bool {
        self.silent[portal].load(Ordering::Acquire)
    }

    /// Whether any group requires authentication over NVMe/TCP.
    pub fn asks_for_arithmetic(&self) -> bool {
        let groups = self.config.exports.iter().filter_map(|export| export.groups.as_ref());
        groups.flatten().any(|group| group.dhchap().is_some())
    }

    /// Does the arithmetic of authentications for ever, on a thread that carries no I/O. If no thread does, the I/O
    /// threads do it.
    pub fn serve_arithmetic(&self) -> ! {
        self.arithmetic.serve(|| self.notifier.notify())
    }

    pub fn config(&self) -> &ServerConfig {
        &self.config
    }

    /// The endpoint of an export, as a load specifies it.
    pub fn endpoint(&self, export: usize) -> String {
        let protocol = self.config.exports[export].protocol;
        let portal = self
            .config
            .portals
            .iter()
            .find(|portal| portal.exports.contains(&export) && portal.service == Service::Protocol(protocol));
        let address = portal.map_or(self.config.exports[export].listen, |portal| portal.address);
        self.exported[export].endpoint(address)
    }

    pub(crate) fn time(&self, now: iotax_proto::Instant) -> Time {
        Time::from_nanos(self.config.started_unix_ns + now.0)
    }
}
