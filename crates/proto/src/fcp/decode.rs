//! What the stream carries in words, for people who read traces.

use alloc::{format, string::String};

use super::iu::{Command, ResponseIu, TransferReady, response_code};
use crate::{
    Violation,
    fc::{
        Fragment, Framer, Header,
        els::command,
        frame::{kind, r_ctl},
    },
    scsi,
};

/// Describes what stands at the front of `bytes` and tells how many bytes it takes; `None` where it is cut off.
pub fn describe(bytes: &[u8]) -> Result<Option<(usize, String)>, Violation> {
    let (mut framer, mut input) = (Framer::default(), bytes);
    let Some(first) = framer.next(&mut input)? else { return Ok(None) };
    let (header, data_len) = match first {
        Fragment::Header(header, data_len) => (header, data_len),
        Fragment::Special(special) => {
            let changed = if special.changed { " changed" } else { "" };
            let words = format!("Special Frame{changed} from {} to {}", special.source, special.destination);
            return Ok(Some((bytes.len() - input.len(), words)));
        }
        Fragment::Ready(count) => return Ok(Some((bytes.len() - input.len(), format!("R_RDY × {count}")))),
        Fragment::Data { .. } | Fragment::End => return Ok(None),
    };
    let mut data: &[u8] = &[];
    loop {
        match framer.next(&mut input)? {
            Some(Fragment::Data { bytes, .. }) => data = bytes,
            Some(_) => break,
            None => return Ok(None),
        }
    }
    let words = words(&header, data)?;
    let (ox_id, rx_id) = (header.ox_id.0, header.rx_id.0);
    let words = format!("{words} ox={ox_id:#x} rx={rx_id:#x} seq={}.{}", header.seq_id, header.seq_cnt);
    Ok(Some((bytes.len() - input.len(), if data_len == 0 { words } else { format!("{words} data={data_len}") })))
}

fn words(header: &Header, data: &[u8]) -> Result<String, Violation> {
    Ok(match (header.kind, header.r_ctl) {
        (kind::FCP, r_ctl::UNSOLICITED_COMMAND) => {
            let iu = Command::parse(data)?;
            let direction = match (iu.reads, iu.writes) {
                (true, true) => "bidirectional",
                (true, false) => "in",
                (false, true) => "out",
                (false, false) => "no data",
            };
            let what = match iu.function {
                0 => scsi::describe_cdb(&iu.cdb),
                function => format!("function {function:#04x}"),
            };
            format!("FCP_CMND {what} lun={:#x} {direction} dl={}", iu.lun, iu.data_len)
        }
        (kind::FCP, r_ctl::DATA_DESCRIPTOR) => {
            let TransferReady { offset, len } = TransferReady::parse(data)?;
            format!("FCP_XFER_RDY offset={offset} burst={len}")
        }
        (kind::FCP, r_ctl::SOLICITED_DATA) => format!("FCP_DATA offset={}", header.parameter),
        (kind::FCP, r_ctl::COMMAND_STATUS) => {
            let iu = ResponseIu::parse(data)?;
            let code = iu.code.map_or(String::new(), |code| format!(" {}", response_code::name(code)));
            let sense =
                scsi::sense::parse(iu.sense).map_or(String::new(), |sense| format!(" sense={:06x}", sense.kcq()));
            format!("FCP_RSP status={:#04x} residual={}{code}{sense}", iu.status, iu.residual.count)
        }
        (kind::ELS, _) => format!("ELS {}", data.first().map_or("without bytes", |code| command::name(*code))),
        (kind::BLS, r_ctl::ABTS) => "ABTS".into(),
        (kind::BLS, r_ctl::BA_ACC) => "BA_ACC".into(),
        (kind::BLS, r_ctl::BA_RJT) => "BA_RJT".into(),
        (kind, r_ctl) => format!("frame r_ctl={r_ctl:#04x} type={kind:#04x}"),
    })
}
