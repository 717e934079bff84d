//! Basic link services (FC-FS-5): an exchange is aborted, and that is accepted.

use super::frame::{Header, OxId, RxId, f_ctl, kind, r_ctl};

/// The ABTS of an exchange. It is a sequence of its exchange and has no data.
pub fn abts(ox_id: OxId, rx_id: RxId) -> Header {
    let f_ctl = f_ctl::END_SEQUENCE | f_ctl::SEQUENCE_INITIATIVE;
    Header { r_ctl: r_ctl::ABTS, kind: kind::BLS, f_ctl, ox_id, rx_id, ..Header::default() }
}

/// Of the answer to an ABTS.
pub fn answer(r_ctl: u8, ox_id: OxId, rx_id: RxId) -> Header {
    Header { r_ctl, kind: kind::BLS, f_ctl: f_ctl::REPLY, ox_id, rx_id, ..Header::default() }
}

/// BA_ACC of a whole exchange: no SEQ_ID, SEQ_CNTs from 0 to ffffh.
pub fn accept(ox_id: OxId, rx_id: RxId) -> [u8; 12] {
    let ([o0, o1], [r0, r1]) = (ox_id.0.to_be_bytes(), rx_id.0.to_be_bytes());
    [0, 0, 0, 0, o0, o1, r0, r1, 0, 0, 0xff, 0xff]
}

/// BA_RJT: a logical error, for there is no such exchange.
pub const NO_EXCHANGE: [u8; 4] = [0, 0x03, 0x03, 0];
