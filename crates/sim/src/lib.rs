//! Runs the nodes that run on sockets in virtual time: one thread, one seed, no clock. A run is identical to the bit on
//! any machine.
//!
//! [`World`] is the driver: links, connections, disks and time. [`trial`] runs clients and a server with faults in it,
//! and checks them independently of the code under test. [`lab`] measures: processors, ports and media cost time.
//! README.md describes what is modelled.
#![forbid(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod agent;
mod board;
mod disk;
mod events;
mod fence;
pub mod lab;
mod link;
mod load;
mod names;
mod options;
mod piece;
mod register;
mod server;
mod switch;
mod tcp;
mod trace;
pub mod trial;
mod world;

pub use board::Counts;
pub use disk::{Disk, Media, SECTOR};
pub use link::{Carried, Choice, Frames, Link, Loss, PipeId, Side, Way, Ways};
pub use load::{add_load, connection_config};
pub use options::{Canary, Fault, Options, PROTOCOLS, protocol_named};
pub use server::{Exporter, Store, Volume};
pub use switch::{Edge, LaneUse, Switches, Trunk};
pub use trace::Trace;
pub use world::{Costs, HostId, Wake, Work, WorkAsked, World, WorldStep};
