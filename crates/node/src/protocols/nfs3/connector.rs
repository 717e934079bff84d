//! NFSv3: a connection per worker, after those of the portmapper and the mount protocol if these use other ports.

use std::{mem, net::SocketAddr};

use iotax_proto::{
    Instant, Transmit, Violation,
    nfs::{
        self, PROGRAM,
        common::FileHandle,
        mount::{MountError, PROGRAM as MOUNT_PROGRAM},
        v3::{
            VERSION,
            initiator::{Config, Mount, Root},
        },
    },
    rpc::{ControlCall, Xid, auth::Identity, portmap},
};

use super::Unit;
use crate::{
    failure::{Failure, FailureKind},
    load::{
        Facts,
        link::{Control, ControlStep, Link},
        settings::{Settings, Workers},
    },
    protocols::file_export::identity,
};

/// The calls of this module, and of each worker, start at different xids.
const XIDS_OF_WORKER: u32 = 1 << 16;

pub(super) struct Mounting {
    settings: Settings,
    export: String,
    file: String,
    identity: Identity,
    workers: Workers,
    /// As given by the user or reported by the portmapper.
    port: Option<u16>,
    mount_port: Option<u16>,
    stage: Stage,
    nothing: Transmit,
}

enum Stage {
    Begin,
    MountPort(ControlCall<Option<u16>>),
    NfsPort(ControlCall<Option<u16>>),
    Mount(ControlCall<Result<FileHandle, MountError>>),
    /// The reply has arrived; `step` acts on it.
    Answered(Answer),
    Opened,
    /// The workers are done.
    Leaving,
    Unmount(ControlCall<()>),
    Left,
}

#[derive(Clone, Copy)]
enum Answer {
    MountPort(Option<u16>),
    NfsPort(Option<u16>),
    Mount(Result<FileHandle, MountError>),
}

impl Mounting {
    pub(super) fn new(unit: &Unit, settings: &Settings, workers: Workers) -> Self {
        Self {
            settings: settings.clone(),
            export: unit.export.clone(),
            file: unit.file.clone(),
            identity: identity(settings),
            workers,
            port: unit.port,
            mount_port: unit.mount_port,
            stage: Stage::Begin,
            nothing: Transmit::default(),
        }
    }

    fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.settings.address, port)
    }

    fn xid(&self) -> Xid {
        Xid(self.settings.instance.wrapping_mul(XIDS_OF_WORKER))
    }

    fn begin(&mut self, now: Instant) -> ControlStep<Mount> {
        match (self.port, self.mount_port) {
            (Some(_), None) => self.open(now, Root::MountHere),
            (Some(_), Some(mount_port)) => self.mount(mount_port),
            (None, _) => {
                self.stage = Stage::NfsPort(ControlCall::port(self.xid(), PROGRAM, VERSION));
                ControlStep::Connect(self.at(portmap::PORT))
            }
        }
    }

    fn answered(&mut self, now: Instant, answer: Answer) -> ControlStep<Mount> {
        match answer {
            Answer::NfsPort(port) => {
                self.port = Some(port.unwrap_or(nfs::PORT));
                if let Some(mount_port) = self.mount_port {
                    return self.mount(mount_port);
                }
                // On the existing connection.
                self.stage = Stage::MountPort(ControlCall::port(self.xid().wrapping_add(1), MOUNT_PROGRAM, VERSION));
                ControlStep::Wait
            }
            Answer::MountPort(Some(port)) => self.mount(port),
            Answer::MountPort(None) => ControlStep::Failed(self.failure(
                FailureKind::NotFound,
                "the host's portmapper knows no mount service: name its port with ?mountport=N",
            )),
            Answer::Mount(Ok(root)) => self.open(now, Root::Handle(root)),
            Answer::Mount(Err(error)) => ControlStep::Failed(match error {
                MountError::NoEntry | MountError::NotDirectory => {
                    self.failure(FailureKind::NotFound, "the server has no such export")
                }
                MountError::Access | MountError::NotOwner => {
                    self.failure(FailureKind::Denied, "the server does not let us mount the export")
                }
                _ => self.failure(FailureKind::Io, "the server could not mount the export"),
            }),
        }
    }

    fn mount(&mut self, port: u16) -> ControlStep<Mount> {
        self.mount_port = Some(port);
        self.stage = Stage::Mount(ControlCall::mount(self.xid().wrapping_add(2), &self.identity, &self.export));
        ControlStep::Connect(self.at(port))
    }

    fn open(&mut self, now: Instant, root: Root) -> ControlStep<Mount> {
        self.stage = Stage::Opened;
        let to = self.at(self.port.unwrap_or(nfs::PORT));
        let link = |worker: u32| {
            let config = Config {
                export: self.export.clone(),
                file: self.file.clone(),
                root,
                identity: self.identity.clone(),
                depth: self.workers.outstanding as usize,
                first_xid: self.xid().wrapping_add((worker + 1).wrapping_mul(XIDS_OF_WORKER)),
                ..Config::default()
            };
            Link { initiator: Mount::new(now, config), to: Some(to) }
        };
        ControlStep::Open(self.workers.numbers().map(link).collect())
    }

    fn failure(&self, kind: FailureKind, message: &str) -> Failure {
        Failure::new(kind, message, format!("nfs://{}{}", self.settings.address, self.export))
    }
}

impl Control<Mount> for Mounting {
    fn receive(&mut self, _: Instant, bytes: &[u8]) -> Result<(), Violation> {
        let answer = match &mut self.stage {
            Stage::MountPort(call) => call.receive(bytes)?.map(Answer::MountPort),
            Stage::NfsPort(call) => call.receive(bytes)?.map(Answer::NfsPort),
            Stage::Mount(call) => call.receive(bytes)?.map(Answer::Mount),
            Stage::Unmount(call) => {
                if call.receive(bytes)?.is_some() {
                    self.stage = Stage::Left;
                }
                None
            }
            Stage::Begin | Stage::Answered(_) | Stage::Opened | Stage::Leaving | Stage::Left => None,
        };
        if let Some(answer) = answer {
            self.stage = Stage::Answered(answer);
        }
        Ok(())
    }

    fn transmit(&mut self) -> &mut Transmit {
        match &mut self.stage {
            Stage::MountPort(call) | Stage::NfsPort(call) => call.transmit(),
            Stage::Mount(call) => call.transmit(),
            Stage::Unmount(call) => call.transmit(),
            Stage::Begin | Stage::Answered(_) | Stage::Opened | Stage::Leaving | Stage::Left => &mut self.nothing,
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _: Instant) -> Result<(), Violation> {
        Ok(())
    }

    fn step(&mut self, now: Instant) -> ControlStep<Mount> {
        match mem::replace(&mut self.stage, Stage::Opened) {
            Stage::Begin => self.begin(now),
            Stage::Answered(answer) => self.answered(now, answer),
            Stage::Leaving => match self.mount_port {
                // Only if this module mounted: workers that mounted on their own connections also unmounted there.
                Some(port) => {
                    let call = ControlCall::unmount(self.xid().wrapping_add(3), &self.identity, &self.export);
                    self.stage = Stage::Unmount(call);
                    ControlStep::Connect(self.at(port))
                }
                None => ControlStep::Closed,
            },
            Stage::Left => ControlStep::Closed,
            waiting => {
                self.stage = waiting;
                ControlStep::Wait
            }
        }
    }

    fn close(&mut self, _: Instant) {
        self.stage = Stage::Leaving;
    }

    fn needs_connection(&self) -> bool {
        !matches!(self.stage, Stage::Opened | Stage::Left)
    }

    fn facts(&self) -> Facts {
        let mut negotiated = vec![("version", "3".to_owned()), ("stability", "unstable".to_owned())];
        negotiated.extend(self.port.map(|port| ("port", port.to_string())));
        negotiated.extend(self.mount_port.map(|port| ("mount_port", port.to_string())));
        Facts { identity: Vec::new(), negotiated }
    }
}

/// What FSINFO returned (RFC 1813 §3.3.19).
pub(super) fn facts(mount: &Mount) -> Facts {
    let Some(info) = mount.info() else { return Facts::default() };
    let negotiated = [
        ("rtmax", info.read_max),
        ("rtpref", info.read_preferred),
        ("wtmax", info.write_max),
        ("wtpref", info.write_preferred),
        ("dtpref", info.listing_preferred),
    ];
    Facts { identity: Vec::new(), negotiated: negotiated.map(|(name, bytes)| (name, bytes.to_string())).to_vec() }
}
