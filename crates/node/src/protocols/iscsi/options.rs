//! Options of an iSCSI session, and of an iSCSI export.

use crate::{protocols::Given, secrets::Chap};

/// Options of an iSCSI session; `None` keeps the initiator's default.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `ImmediateData`, `InitialR2T`, `FirstBurstLength`, `MaxBurstLength`, `MaxRecvDataSegmentLength`.
    pub immediate_data: Option<bool>,
    pub initial_r2t: Option<bool>,
    pub first_burst_bytes: Option<u32>,
    pub max_burst_bytes: Option<u32>,
    pub max_recv_data_segment_bytes: Option<u32>,
    /// Our credentials, and whether the target must authenticate itself.
    pub chap: Option<Chap>,
}

impl Given for Options {
    fn given(&self) -> Vec<&'static str> {
        let Self { immediate_data, initial_r2t, first_burst_bytes, max_burst_bytes, max_recv_data_segment_bytes, chap } =
            self;
        let options = [
            (immediate_data.is_some(), "immediate_data"),
            (initial_r2t.is_some(), "initial_r2t"),
            (first_burst_bytes.is_some(), "first_burst_bytes"),
            (max_burst_bytes.is_some(), "max_burst_bytes"),
            (max_recv_data_segment_bytes.is_some(), "max_recv_data_segment_bytes"),
            (chap.is_some(), "chap"),
        ];
        options.into_iter().filter_map(|(is_given, name)| is_given.then_some(name)).collect()
    }
}

/// Options of an iSCSI export; `None` is the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportOptions {
    pub portal_groups: Option<PortalGroups>,
}

/// The portal groups of a target. Each is a target port (RFC 7143 §4.4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PortalGroups {
    /// One of all portals, so a lost session can be ended through any of them.
    #[default]
    One,
    /// One for each portal, which reports its own access state.
    Each,
}

impl Given for ExportOptions {
    fn given(&self) -> Vec<&'static str> {
        self.portal_groups.iter().map(|_| "portal_groups").collect()
    }
}
