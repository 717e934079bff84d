//! Runs one [`Node`] on one thread: sockets, files and time on one side, `Input` and `Output` on the other.
//!
//! There are two drivers with the same behaviour: io_uring, and epoll if io_uring is refused. README.md beside this
//! file describes it.

mod connections;
mod epoll;
mod gather;
mod life;
mod optimisations;
mod place;
mod polling;
mod pool;
mod port;
mod run;
mod socket;
mod uring;
mod waker;

use std::{fmt, io, net::TcpListener, str::FromStr, sync::Arc, time::Duration};

use iotax_node::Node;
use iotax_proto::Instant;

pub use optimisations::Optimisations;
pub use polling::Polling;
pub use socket::{HeldAddress, SocketOptions, listen};
pub use waker::Waker;

use crate::{clock::Clock, disk::Disk};
use epoll::EpollPort;
use uring::UringPort;

/// The driver that the user requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriverChoice {
    /// io_uring, or epoll if io_uring is refused.
    #[default]
    Auto,
    IoUring,
    Epoll,
}

impl FromStr for DriverChoice {
    type Err = DriverError;

    fn from_str(name: &str) -> Result<Self, DriverError> {
        match name {
            "auto" => Ok(Self::Auto),
            "io_uring" => Ok(Self::IoUring),
            "epoll" => Ok(Self::Epoll),
            _ => Err(DriverError::UnknownName(name.to_owned())),
        }
    }
}

/// The driver that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverKind {
    IoUring,
    Epoll,
}

impl DriverKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::IoUring => "io_uring",
            Self::Epoll => "epoll",
        }
    }
}

impl fmt::Display for DriverKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    #[error("there is no driver {0:?}: use auto, io_uring or epoll")]
    UnknownName(String),
    #[error("io_uring cannot be used here ({0}); use the driver auto or epoll")]
    IoUringRefused(String),
    #[error("the system refused what the driver needs: {0}")]
    System(#[from] io::Error),
}

/// The configuration of a driver. `new` sets defaults that suit most users.
#[derive(Debug)]
pub struct DriverConfig {
    pub choice: DriverChoice,
    /// The run's clock, the same for all threads.
    pub clock: Clock,
    /// The handle by which other threads wake and stop this driver.
    pub waker: Waker,
    /// Sockets that are already listening, so that their ports are known; `ListenerId` is the index.
    pub listeners: Vec<TcpListener>,
    /// The wakers of the drivers that share the connections accepted here, in order. This driver takes part only if its
    /// own waker is included. Empty: this driver takes all connections.
    pub accept_to: Vec<Waker>,
    /// `DiskId` is the index. Threads may share a disk.
    pub disks: Vec<Arc<Disk>>,
    /// How to wait for work.
    pub polling: Polling,
    /// How long a closing connection may take to send its last bytes and to end.
    pub close_timeout: Duration,
    /// Connections accepted beyond this number are closed at once. Closing connections are not counted.
    pub max_connections: usize,
    pub socket: SocketOptions,
    pub optimisations: Optimisations,
}

impl DriverConfig {
    pub fn new(choice: DriverChoice, clock: Clock) -> io::Result<Self> {
        Ok(Self {
            choice,
            clock,
            waker: Waker::new()?,
            listeners: Vec::new(),
            accept_to: Vec::new(),
            disks: Vec::new(),
            polling: Polling::default(),
            close_timeout: Duration::from_secs(1),
            max_connections: 4096,
            socket: SocketOptions::default(),
            optimisations: Optimisations::default(),
        })
    }
}

/// What the driver does after its control function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Continue,
    Stop,
}

/// Why a driver returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The node has nothing more to do, and the connections that it closed have ended.
    Finished,
    /// `Waker::stop` or `Flow::Stop`; connections were closed without an orderly end.
    Stopped,
}

/// The driver that a choice selects on this machine, and why `Auto` did not select io_uring. Takes a few system calls.
pub fn choose(choice: DriverChoice) -> Result<(DriverKind, Option<String>), DriverError> {
    if choice == DriverChoice::Epoll {
        return Ok((DriverKind::Epoll, None));
    }
    match (uring::refusal(), choice) {
        (None, _) => Ok((DriverKind::IoUring, None)),
        (Some(reason), DriverChoice::Auto) => Ok((DriverKind::Epoll, Some(reason))),
        (Some(reason), _) => Err(DriverError::IoUringRefused(reason)),
    }
}

/// A driver, created on the thread that will run it.
#[derive(Debug)]
pub struct Driver {
    port: AnyPort,
    fallback_reason: Option<String>,
}

#[derive(Debug)]
enum AnyPort {
    IoUring(Box<UringPort>),
    Epoll(Box<EpollPort>),
}

impl Driver {
    pub fn new(config: DriverConfig) -> Result<Self, DriverError> {
        let (kind, fallback_reason) = choose(config.choice)?;
        let port = match kind {
            DriverKind::IoUring => AnyPort::IoUring(Box::new(UringPort::new(config)?)),
            DriverKind::Epoll => AnyPort::Epoll(Box::new(EpollPort::new(config)?)),
        };
        Ok(Self { port, fallback_reason })
    }

    pub fn kind(&self) -> DriverKind {
        match self.port {
            AnyPort::IoUring(_) => DriverKind::IoUring,
            AnyPort::Epoll(_) => DriverKind::Epoll,
        }
    }

    /// Why `DriverChoice::Auto` did not select io_uring.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.fallback_reason.as_deref()
    }

    /// Drives the node on this thread until it is finished or stopped. `control` is called once at the start and after
    /// every `Waker::wake`. Its changes to the node take effect when it returns.
    pub fn run<N: Node + ?Sized>(
        self,
        node: &mut N,
        control: impl FnMut(&mut N, Instant) -> Flow,
    ) -> io::Result<Ended> {
        match self.port {
            AnyPort::IoUring(port) => run::run(*port, node, control),
            AnyPort::Epoll(port) => run::run(*port, node, control),
        }
    }
}
