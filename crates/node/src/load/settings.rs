//! What a load's connections are asked for, and for whom.

use std::net::IpAddr;

use crate::{
    random::Randomness,
    secrets::{Chap, auth},
};

/// How to connect. What the endpoint's protocol does not know must be left out.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Of the endpoint's host.
    pub address: IpAddr,
    /// Tells this load from others of the same name: part of ISIDs, host identifiers and xids. Not 0.
    pub instance: u32,
    /// The IQN or NQN that the load goes by.
    pub initiator: Option<String>,
    pub header_digest: bool,
    pub data_digest: bool,
    /// iSCSI `ImmediateData`, `InitialR2T`, `FirstBurstLength`, `MaxBurstLength`, `MaxRecvDataSegmentLength`.
    pub immediate_data: Option<bool>,
    pub initial_r2t: Option<bool>,
    pub first_burst_bytes: Option<u32>,
    pub max_burst_bytes: Option<u32>,
    pub max_recv_data_segment_bytes: Option<u32>,
    /// iSCSI: who we prove to be, and whether the target must prove itself.
    pub chap: Option<Chap>,
    /// NVMe/TCP: who we prove to be, and whether the controller must prove itself.
    pub dhchap: Option<auth::Policy>,
    /// Challenges and private exponents come from it, new ones for each connection.
    pub randomness: Randomness,
    /// NFS credentials.
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

impl Settings {
    pub fn new(address: IpAddr, instance: u32, randomness: Randomness) -> Self {
        Self {
            address,
            instance,
            initiator: None,
            header_digest: false,
            data_digest: false,
            immediate_data: None,
            initial_r2t: None,
            first_burst_bytes: None,
            max_burst_bytes: None,
            max_recv_data_segment_bytes: None,
            chap: None,
            dhchap: None,
            randomness,
            uid: None,
            gid: None,
        }
    }

    /// The options that are set, as documents name them.
    pub(super) fn given(&self) -> impl Iterator<Item = &'static str> {
        let options = [
            (self.initiator.is_some(), "initiator"),
            (self.header_digest, "header_digest"),
            (self.data_digest, "data_digest"),
            (self.immediate_data.is_some(), "immediate_data"),
            (self.initial_r2t.is_some(), "initial_r2t"),
            (self.first_burst_bytes.is_some(), "first_burst_bytes"),
            (self.max_burst_bytes.is_some(), "max_burst_bytes"),
            (self.max_recv_data_segment_bytes.is_some(), "max_recv_data_segment_bytes"),
            (self.chap.is_some(), "chap"),
            (self.dhchap.is_some(), "dhchap"),
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
    /// Numbers of this thread's workers among those of all threads.
    pub fn numbers(self) -> impl Iterator<Item = u32> {
        self.first..self.first + self.count
    }
}
