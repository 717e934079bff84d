//! The contents of a stream as text, for traces.

use alloc::{format, string::String};

use super::{
    Fragment, Framer, Header,
    els::command,
    frame::{kind, r_ctl},
};
use crate::Violation;

/// Describes what is at the start of `bytes`, and returns its length in bytes; `None` if more bytes are needed. `words`
/// describes a frame of the FC-4 from its header and data, and returns `None` for other frames.
pub fn describe(
    bytes: &[u8],
    words: impl FnOnce(&Header, &[u8]) -> Result<Option<String>, Violation>,
) -> Result<Option<(usize, String)>, Violation> {
    let (mut framer, mut input) = (Framer::new(true), bytes);
    let Some(first) = framer.next(&mut input)? else { return Ok(None) };
    let (header, data) = match first {
        Fragment::Frame(header, data) => (header, data),
        Fragment::Special(special) => {
            let changed = if special.changed { " changed" } else { "" };
            let words = format!("Special Frame{changed} from {} to {}", special.source, special.destination);
            return Ok(Some((bytes.len() - input.len(), words)));
        }
        Fragment::Ready(count) => return Ok(Some((bytes.len() - input.len(), format!("R_RDY × {count}")))),
        Fragment::Header(..) | Fragment::Data { .. } | Fragment::End => return Ok(None),
    };
    let words = words(&header, data)?.unwrap_or_else(|| services(&header, data));
    let (ox_id, rx_id) = (header.ox_id.0, header.rx_id.0);
    let words = format!("{words} ox={ox_id:#x} rx={rx_id:#x} seq={}.{}", header.seq_id, header.seq_cnt);
    let words = if data.is_empty() { words } else { format!("{words} data={}", data.len()) };
    Ok(Some((bytes.len() - input.len(), words)))
}

/// Describes link services and other frames that do not belong to an FC-4.
fn services(header: &Header, data: &[u8]) -> String {
    match (header.kind, header.r_ctl) {
        (kind::ELS, _) => format!("ELS {}", data.first().map_or("without bytes", |code| command::name(*code))),
        (kind::BLS, r_ctl::ABTS) => "ABTS".into(),
        (kind::BLS, r_ctl::BA_ACC) => "BA_ACC".into(),
        (kind::BLS, r_ctl::BA_RJT) => "BA_RJT".into(),
        (kind, r_ctl) => format!("frame r_ctl={r_ctl:#04x} type={kind:#04x}"),
    }
}
