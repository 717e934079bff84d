//! What an iSCSI session may be asked for.

use crate::{protocols::Given, secrets::Chap};

/// Each is `None` where the initiator's own wish stands.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `ImmediateData`, `InitialR2T`, `FirstBurstLength`, `MaxBurstLength`, `MaxRecvDataSegmentLength`.
    pub immediate_data: Option<bool>,
    pub initial_r2t: Option<bool>,
    pub first_burst_bytes: Option<u32>,
    pub max_burst_bytes: Option<u32>,
    pub max_recv_data_segment_bytes: Option<u32>,
    /// Who we prove to be, and whether the target must prove itself.
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
