//! Options of an iSCSI session.

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
