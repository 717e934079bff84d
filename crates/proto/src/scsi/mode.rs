//! MODE SENSE and MODE SELECT (SPC-5 §6.13 to §6.16, §7.5; SBC-4 §6.5). The pages are caching, control, control
//! extension and informational exceptions. Any nexus can change WCE, SWP and D_SENSE for all; nothing is saved.

use alloc::vec::Vec;

use super::{
    AfterMedium, Next,
    call::{Call, Handled, accepted, answer},
    device::{Audience, ModeState},
    lun::LunView,
    sense::{Fault, Sense},
};
use crate::UnitOp;

/// A mode page or subpage.
struct Page {
    code: u8,
    subpage: u8,
    /// Encodes the page without its header from the state of a logical unit.
    parameters: fn(ModeState) -> Vec<u8>,
    /// Applies a page in which only changeable bits differ.
    apply: fn(&mut ModeState, &[u8]),
}

/// The pages in the order in which a request for all pages returns them.
static PAGES: &[Page] = &[
    Page {
        code: 0x08,
        subpage: 0,
        parameters: |mode| {
            let mut page = alloc::vec![0; 18];
            page[0] = u8::from(mode.write_cache) << 2;
            page
        },
        apply: |mode, page| mode.write_cache = page[0] & 0x04 != 0,
    },
    Page {
        code: 0x0a,
        subpage: 0,
        // GLTSD: log parameters are not saved. QUEUE ALGORITHM MODIFIER 1: commands may be reordered freely.
        parameters: |mode| {
            let mut page = alloc::vec![0; 10];
            page[0] = 0x02 | u8::from(mode.descriptor_sense) << 2;
            page[1] = 0x10;
            page[2] = u8::from(mode.software_write_protect) << 3;
            page[6..8].copy_from_slice(&[0xff, 0xff]);
            page
        },
        apply: |mode, page| {
            mode.descriptor_sense = page[0] & 0x04 != 0;
            mode.software_write_protect = page[2] & 0x08 != 0;
        },
    },
    Page { code: 0x0a, subpage: 1, parameters: |_| alloc::vec![0; 28], apply: |_, _| {} },
    // DEXCPT: informational exceptions are not reported.
    Page {
        code: 0x1c,
        subpage: 0,
        parameters: |_| {
            let mut page = alloc::vec![0; 10];
            page[0] = 0x08;
            page
        },
        apply: |_, _| {},
    },
];

const ALL_PAGES: u8 = 0x3f;
const ALL_SUBPAGES: u8 = 0xff;

impl Page {
    /// The page with its header.
    fn encode(&self, parameters: &[u8]) -> Vec<u8> {
        let mut bytes = match self.subpage {
            0 => alloc::vec![self.code, parameters.len() as u8],
            subpage => {
                let len = (parameters.len() as u16).to_be_bytes();
                alloc::vec![0x40 | self.code, subpage, len[0], len[1]]
            }
        };
        bytes.extend_from_slice(parameters);
        bytes
    }

    /// A 1 for each bit that MODE SELECT may change. It compares the page with all states on and all states off.
    fn changeable(&self) -> Vec<u8> {
        let state = |on| ModeState { write_cache: on, software_write_protect: on, descriptor_sense: on };
        let (on, off) = ((self.parameters)(state(true)), (self.parameters)(state(false)));
        on.iter().zip(off).map(|(on, off)| on ^ off).collect()
    }

    fn matches(&self, code: u8, subpage: u8) -> bool {
        // SPC-5 §6.14: all pages may be asked for without subpages or with all of them.
        let of_all = code == ALL_PAGES && matches!(subpage, 0 | ALL_SUBPAGES);
        (of_all || code == self.code) && (subpage == ALL_SUBPAGES || subpage == self.subpage)
    }
}

pub(crate) fn mode_sense_6(call: &mut Call<'_>) -> Handled {
    let view = call.unit()?;
    let mut data = alloc::vec![0, 0, device_specific(&view), 0];
    if !call.cdb.bit(1, 3) {
        data.extend_from_slice(&short_descriptor(&view));
        data[3] = 8;
    }
    data.extend_from_slice(&pages(call, &view)?);
    data[0] = (data.len() - 1) as u8;
    answer(data, call.cdb.u8(4))
}

pub(crate) fn mode_sense_10(call: &mut Call<'_>) -> Handled {
    let view = call.unit()?;
    let mut data = alloc::vec![0, 0, 0, device_specific(&view), 0, 0, 0, 0];
    if !call.cdb.bit(1, 3) {
        if call.cdb.bit(1, 4) {
            // LLBAA: the long LBA descriptor.
            data[4] = 1;
            data.extend_from_slice(&view.blocks.to_be_bytes());
            data.extend_from_slice(&[0; 4]);
            data.extend_from_slice(&view.block_size.to_be_bytes());
        } else {
            data.extend_from_slice(&short_descriptor(&view));
        }
        data[7] = (data.len() - 8) as u8;
    }
    data.extend_from_slice(&pages(call, &view)?);
    let len = (data.len() - 2) as u16;
    data[..2].copy_from_slice(&len.to_be_bytes());
    answer(data, call.cdb.u16(7))
}

/// WP and DPOFUA (SBC-4 §6.5.1).
fn device_specific(view: &LunView) -> u8 {
    u8::from(view.is_write_protected()) << 7 | 0x10
}

/// Short LBA mode parameter block descriptor (SBC-4 §6.5.2.2).
fn short_descriptor(view: &LunView) -> [u8; 8] {
    let blocks = u32::try_from(view.blocks).unwrap_or(u32::MAX).to_be_bytes();
    let size = view.block_size.to_be_bytes();
    [blocks[0], blocks[1], blocks[2], blocks[3], 0, size[1], size[2], size[3]]
}

/// The pages that the CDB requests, with current, changeable or default values.
fn pages(call: &Call<'_>, view: &LunView) -> Result<Vec<u8>, Fault> {
    let (control, code, subpage) = (call.cdb.u8(2) >> 6, call.cdb.u8(2) & 0x3f, call.cdb.u8(3));
    let lun = view.lun;
    let default = call.with_device(|device| device.lun(lun).map(|unit| ModeState::default_of(&unit.config)));
    let default = default.ok_or(Sense::LOGICAL_UNIT_NOT_SUPPORTED)?;
    let mut bytes = Vec::new();
    for page in PAGES.iter().filter(|page| page.matches(code, subpage)) {
        let parameters = match control {
            0 => (page.parameters)(view.mode),
            1 => page.changeable(),
            2 => (page.parameters)(default),
            _ => return Err(Sense::SAVING_NOT_SUPPORTED.into()),
        };
        bytes.extend_from_slice(&page.encode(&parameters));
    }
    if bytes.is_empty() {
        let is_subpage_wrong = PAGES.iter().any(|page| page.matches(code, ALL_SUBPAGES));
        return Err(if is_subpage_wrong { Sense::cdb_field(3, None) } else { Sense::cdb_field(2, Some(5)) }.into());
    }
    Ok(bytes)
}

pub(crate) fn mode_select_6(call: &mut Call<'_>) -> Handled {
    check_page_format(call)?;
    call.collect(call.cdb.u8(4).into())
}

pub(crate) fn mode_select_10(call: &mut Call<'_>) -> Handled {
    check_page_format(call)?;
    call.collect(call.cdb.u16(7).into())
}

fn check_page_format(call: &Call<'_>) -> Result<(), Fault> {
    if call.cdb.bit(1, 4) { Ok(()) } else { Err(Sense::cdb_field(1, Some(4)).into()) }
}

pub(crate) fn mode_select_6_parameters(call: &mut Call<'_>, data: &[u8]) -> Handled {
    let header = data.first_chunk::<4>().ok_or(Sense::PARAMETER_LIST_LENGTH_ERROR)?;
    select(call, data, 4, header[3].into())
}

pub(crate) fn mode_select_10_parameters(call: &mut Call<'_>, data: &[u8]) -> Handled {
    let header = data.first_chunk::<8>().ok_or(Sense::PARAMETER_LIST_LENGTH_ERROR)?;
    select(call, data, 8, u16::from_be_bytes([header[6], header[7]]).into())
}

/// Checks the whole list before applying any of it (SPC-5 §6.13).
fn select(call: &Call<'_>, data: &[u8], header_len: usize, descriptor_len: usize) -> Handled {
    let view = call.unit()?;
    let descriptor = data.get(header_len..header_len + descriptor_len).ok_or(Sense::PARAMETER_LIST_LENGTH_ERROR)?;
    check_descriptor(&view, descriptor, header_len)?;
    let mut mode = view.mode;
    let mut at = header_len + descriptor_len;
    while at < data.len() {
        at += select_page(&mut mode, &data[at..], at)?;
    }
    if mode != view.mode {
        let id = call.nexus.id;
        call.with_device(|device| {
            if let Some(unit) = device.lun(view.lun) {
                unit.mode = mode;
            }
            device.attention(view.lun, Sense::MODE_PARAMETERS_CHANGED, Audience::Others(id));
        });
    }
    if view.mode.write_cache && !mode.write_cache {
        // The cache must be written to the medium before status (SBC-4 §6.5.6).
        let after = AfterMedium { writes: true, data_out_len: data.len() as u32, ..AfterMedium::new(&view) };
        return Ok(Next::Medium { unit: view.unit, op: UnitOp::Flush, after });
    }
    accepted(data.len())
}

/// A block descriptor must not change anything: the number of blocks must be the current one, 0 or all ones, and the
/// block size the current one.
fn check_descriptor(view: &LunView, descriptor: &[u8], at: usize) -> Result<(), Fault> {
    let wrong = |byte: usize| Fault::Check(Sense::parameter_field((at + byte) as u16, None));
    if descriptor.is_empty() {
        return Ok(());
    }
    let Ok(descriptor) = <&[u8; 8]>::try_from(descriptor) else { return Err(wrong(0)) };
    let ours = short_descriptor(view);
    if descriptor[..4] != ours[..4] && descriptor[..4] != [0; 4] && descriptor[..4] != [0xff; 4] {
        return Err(wrong(0));
    }
    if descriptor[5..] == ours[5..] { Ok(()) } else { Err(wrong(5)) }
}

/// Applies the page at the start of `bytes`, which is byte `at` of the parameter list; returns its length.
fn select_page(mode: &mut ModeState, bytes: &[u8], at: usize) -> Result<usize, Fault> {
    let wrong = |byte: usize, bit| Fault::Check(Sense::parameter_field((at + byte) as u16, bit));
    let has_subpage = bytes[0] & 0x40 != 0;
    let (subpage, header_len, len) = match *bytes {
        [_, subpage, high, low, ..] if has_subpage => (subpage, 4, usize::from(u16::from_be_bytes([high, low]))),
        [_, len, ..] if !has_subpage => (0, 2, usize::from(len)),
        _ => return Err(Sense::PARAMETER_LIST_LENGTH_ERROR.into()),
    };
    let page = PAGES.iter().find(|page| page.code == bytes[0] & 0x3f && page.subpage == subpage);
    let page = page.ok_or(wrong(0, Some(5)))?;
    let current = (page.parameters)(*mode);
    if len != current.len() {
        return Err(wrong(header_len - 1, None));
    }
    let wanted = bytes.get(header_len..header_len + len).ok_or(Sense::PARAMETER_LIST_LENGTH_ERROR)?;
    for (byte, ((wanted, current), changeable)) in wanted.iter().zip(&current).zip(page.changeable()).enumerate() {
        let fixed = (wanted ^ current) & !changeable;
        if fixed != 0 {
            return Err(wrong(header_len + byte, Some(fixed.ilog2() as u8)));
        }
    }
    (page.apply)(mode, wanted);
    Ok(header_len + len)
}
