//! Options of a load's connections that are not specific to a protocol, including the user.

use std::{net::IpAddr, time::Duration};

use crate::random::Randomness;

/// How to connect. Options that the endpoint's protocol does not have must not be set. Options of a single protocol are
/// in `protocols::Options`.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools)] // each is a setting of its own
pub struct Settings {
    /// Address of the endpoint's host.
    pub address: IpAddr,
    /// Distinguishes this load from others of the same name: it is part of ISIDs, host identifiers and xids. Not 0.
    pub instance: u32,
    /// Number of the path, from 0 on: the initiator ports of different paths differ.
    pub path: u32,
    /// There are other paths, so that this one need not be used.
    pub has_paths: bool,
    /// How long the other side may be silent before it counts as lost; `None`: the protocol's default.
    pub keep_alive: Option<Duration>,
    /// Source of challenges and private exponents, which are new for each connection.
    pub randomness: Randomness,
    /// The IQN or NQN of the load.
    pub initiator: Option<String>,
    pub header_digest: bool,
    pub data_digest: bool,
    /// Whether Fibre Channel frames carry a CRC, as the server's do. A driver that never damages data does not need it.
    pub has_frame_crc: bool,
    /// Credentials for files; default 0.
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

impl Settings {
    pub fn new(address: IpAddr, instance: u32, randomness: Randomness) -> Self {
        Self {
            address,
            instance,
            path: 0,
            has_paths: false,
            keep_alive: None,
            randomness,
            initiator: None,
            header_digest: false,
            data_digest: false,
            has_frame_crc: true,
            uid: None,
            gid: None,
        }
    }

    /// The options that are set, by their names in documents.
    pub(super) fn given(&self) -> impl Iterator<Item = &'static str> {
        let options = [
            (self.initiator.is_some(), "initiator"),
            (self.keep_alive.is_some(), "keep_alive_ns"),
            (self.header_digest, "header_digest"),
            (self.data_digest, "data_digest"),
            (self.uid.is_some(), "uid"),
            (self.gid.is_some(), "gid"),
        ];
        options.into_iter().filter_map(|(is_given, name)| is_given.then_some(name))
    }
}

/// The workers of one thread.
#[derive(Clone, Copy, Debug)]
pub struct Workers {
    pub first: u32,
    pub count: u32,
    pub outstanding: u32,
}

impl Workers {
    /// Numbers of this thread's workers, counted over all threads.
    pub fn numbers(self) -> impl Iterator<Item = u32> {
        self.first..self.first + self.count
    }
}
