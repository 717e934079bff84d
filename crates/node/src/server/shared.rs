//! What all threads of a server share.

use std::sync::{Arc, Mutex, PoisonError};

use iotax_proto::{
    Shared,
    iscsi::target_side::Sessions,
    nfs3::{
        Time,
        target_side::{FileId, NameSpace as _, ServerState},
    },
    nvme::{Namespace, Subsystem, SubsystemConfig},
    scsi::{Device, Identity, LogicalUnit, Provisioning},
};

use super::{
    arithmetic::Arithmetic,
    bell::Bell,
    identity,
    portals::{Export, Portal, Protocol},
};
use crate::{
    fs::{Limits, Tree, VolumeFile},
    random::Unpredictable,
    volume::{BLOCK_SIZE, Media, VolumeSpec, unit_of},
};

/// Memory comes in pages of eight blocks.
const PAGES_EXPONENT: u8 = (4096 / BLOCK_SIZE).ilog2() as u8;
/// The file that is an NFS export's volume.
const VOLUME_FILE: &str = "data";

#[derive(Clone, Debug)]
pub struct ServerConfig {
    pub volumes: Vec<VolumeSpec>,
    pub exports: Vec<Export>,
    /// The plan of `plan_portals` with the addresses that were taken.
    pub portals: Vec<Portal>,
    /// Wall time at `Instant(0)`, nanoseconds since 1970. Not 0: it tells this start of the server from others.
    pub started_unix_ns: u64,
    /// What no peer can guess: challenges come from it.
    pub secret: [u8; 32],
    /// Connections that a thread keeps at most.
    pub connections_max: usize,
}

/// State behind a lock, for the control path.
#[derive(Debug)]
pub(super) struct Guarded<T>(Arc<Mutex<T>>);

impl<T> Guarded<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Arc::new(Mutex::new(value)))
    }

    /// A thread that panicked while it held the lock takes the process with it, so what is there is whole.
    pub(super) fn lock(&self) -> std::sync::MutexGuard<'_, T> {
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

/// A server: made once, shared by its threads.
#[derive(Debug)]
pub struct Server {
    pub(super) config: ServerConfig,
    /// One for each export.
    pub(super) targets: Vec<Target>,
    pub(super) nfs: Guarded<ServerState>,
    /// The discovery subsystem of all NVMe/TCP portals.
    pub(super) discovery: Guarded<Subsystem>,
    pub(super) bell: Arc<Bell>,
    pub(super) arithmetic: Arithmetic,
    /// Of NFS file handles.
    pub(super) handle_key: [u8; 32],
}

/// What an export shows, by its protocol.
#[derive(Clone, Debug)]
pub(super) enum Target {
    Nfs(NfsExport),
    Iscsi { name: String, device: Guarded<Device>, sessions: Guarded<Sessions> },
    Nvme { name: String, subsystem: Guarded<Subsystem> },
}

#[derive(Clone, Debug)]
pub(super) struct NfsExport {
    pub(super) path: String,
    pub(super) tree: Guarded<Tree>,
    pub(super) file: Arc<VolumeFile>,
    pub(super) file_id: FileId,
}

impl Server {
    pub fn new(config: ServerConfig) -> Arc<Self> {
        let mut targets: Vec<Target> = Vec::new();
        for (index, export) in config.exports.iter().enumerate() {
            // The same view of a volume through a second portal is a second path to the same target.
            let twin = config.exports[..index].iter().position(|earlier| {
                (earlier.protocol, earlier.volume, earlier.read_only)
                    == (export.protocol, export.volume, export.read_only)
            });
            targets.push(match twin {
                Some(twin) if export.protocol != Protocol::Nfs3 => targets[twin].clone(),
                _ => Target::new(&config, index, export),
            });
        }
        let discovery = Guarded::new(Subsystem::new(SubsystemConfig::discovery()));
        let bell = Arc::new(Bell::default());
        for volume in &config.volumes {
            let bell = Arc::clone(&bell);
            volume.claims.wake_with(move || bell.rouse());
        }
        let mut handle_key = [0; 32];
        Unpredictable::new(&config.secret, "file handles", 0).fill(&mut handle_key);
        let nfs = Guarded::new(ServerState::default());
        Arc::new(Self { config, targets, nfs, discovery, bell, arithmetic: Arithmetic::default(), handle_key })
    }

    /// `wake` is called when a connection did something to others, or gave back what others wait for: the driver of every
    /// thread is to give its node `Input::Woken`.
    pub fn wake_with(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.bell.hang(Box::new(wake));
    }

    /// Some host has to prove itself over NVMe/TCP.
    pub fn asks_for_arithmetic(&self) -> bool {
        let groups = self.config.exports.iter().filter_map(|export| export.groups.as_ref());
        groups.flatten().any(|group| group.dhchap().is_some())
    }

    /// Does the arithmetic of authentications for ever: for a thread that carries no I/O. Without one, those that do do it.
    pub fn serve_arithmetic(&self) -> ! {
        self.arithmetic.serve(|| self.bell.ring())
    }

    pub fn config(&self) -> &ServerConfig {
        &self.config
    }

    /// The endpoint of an export, as a load names it.
    pub fn endpoint(&self, export: usize) -> String {
        let protocol = self.config.exports[export].protocol;
        let portal =
            self.config.portals.iter().find(|portal| {
                portal.exports.contains(&export) && portal.service == super::Service::Protocol(protocol)
            });
        let address = portal.map_or(self.config.exports[export].listen, |portal| portal.address);
        match &self.targets[export] {
            Target::Nfs(nfs) => format!("nfs://{address}{}/{VOLUME_FILE}", nfs.path),
            Target::Iscsi { name, .. } => format!("iscsi://{address}/{name}/0"),
            Target::Nvme { name, .. } => format!("nvme-tcp://{address}/{name}?ns=1"),
        }
    }

    pub(super) fn time(&self, now: iotax_proto::Instant) -> Time {
        Time::from_nanos(self.config.started_unix_ns + now.0)
    }
}

impl Target {
    fn new(config: &ServerConfig, index: usize, export: &Export) -> Self {
        let volume = &config.volumes[export.volume];
        let unit = unit_of(export.volume, export.read_only);
        match export.protocol {
            Protocol::Nfs3 => {
                let time = Time::from_nanos(config.started_unix_ns);
                // Differs from one start of the server to the next, and is not 0.
                let generation = (config.started_unix_ns >> 20) as u32 | 1;
                let mut tree = Tree::new(index as u32, generation, Limits::default(), time);
                let file = tree.add_volume(VOLUME_FILE, unit, volume.size_bytes, export.read_only, time);
                debug_assert!(tree.attributes(file.id()).is_ok(), "the volume's file is there");
                let file_id = file.id();
                Self::Nfs(NfsExport { path: format!("/{}", volume.name), tree: Guarded::new(tree), file, file_id })
            }
            Protocol::Iscsi => {
                let unit = LogicalUnit {
                    provisioning: Provisioning::Thin { reads_zero: true },
                    write_cache: matches!(volume.media, Media::Disk { .. }),
                    physical_block_exponent: if volume.media == Media::Memory { PAGES_EXPONENT } else { 0 },
                    erasable: volume.media == Media::Memory,
                    ..LogicalUnit::new(0, unit, &identity::serial(&volume.name))
                };
                Self::Iscsi {
                    name: identity::iscsi_name(&volume.name),
                    device: Guarded::new(Device::new(Identity::default(), [unit])),
                    sessions: Guarded::new(Sessions::default()),
                }
            }
            Protocol::NvmeTcp => {
                let name = identity::nvme_name(&volume.name);
                let serial = identity::serial(&volume.name);
                let mut subsystem = Subsystem::new(SubsystemConfig { serial, ..SubsystemConfig::new(name.clone()) });
                let uuid = identity::uuid(&volume.name);
                subsystem.put_namespace(Namespace { nsid: 1, unit, nguid: uuid, uuid, eui64: [0; 8] });
                Self::Nvme { name, subsystem: Guarded::new(subsystem) }
            }
        }
    }
}
