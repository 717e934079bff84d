//! A command in the hands of its handler.

use super::{
    Next, Response,
    cdb::Cdb,
    device::Device,
    nexus::{LunView, Nexus},
    opcodes::Entry,
    sense::Sense,
};
use crate::Backend;

/// Why a command ends without GOOD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Check(Sense),
    Status(u8),
}

impl From<Sense> for Fault {
    fn from(sense: Sense) -> Self {
        Self::Check(sense)
    }
}

/// What a handler answers.
pub(crate) type Handled = Result<Next, Fault>;

/// One command under way.
pub(crate) struct Call<'a> {
    pub(crate) nexus: &'a mut Nexus,
    pub(crate) cdb: Cdb<'a>,
    /// `None` where there is no such logical unit.
    pub(crate) view: Option<LunView>,
    pub(crate) data_out_len: u32,
    pub(crate) backend: &'a dyn Backend,
}

impl Call<'_> {
    /// Checks common to all commands, in the order that SAM-5 §5.13 and SPC-5 §4.4.8 give them.
    pub(crate) fn admit(&mut self, entry: &Entry) -> Result<(), Fault> {
        if self.view.is_none() && !entry.without_unit {
            return Err(Sense::LOGICAL_UNIT_NOT_SUPPORTED.into());
        }
        entry.check_reserved_bits(self.cdb)?;
        if let Some(view) = self.view.filter(|view| view.has_attention() && !entry.despite_attention) {
            let id = self.nexus.id;
            if let Some(sense) = self.nexus.with_device(|device| device.take_attention(id, view.lun)) {
                return Err(sense.into());
            }
        }
        Ok(())
    }

    /// The logical unit; only handlers of commands that work without one need to ask.
    pub(crate) fn unit(&self) -> Result<LunView, Fault> {
        self.view.ok_or(Fault::Check(Sense::LOGICAL_UNIT_NOT_SUPPORTED))
    }

    pub(crate) fn with_device<R>(&self, use_it: impl FnOnce(&mut Device) -> R) -> R {
        self.nexus.with_device(use_it)
    }
}

/// GOOD without data.
#[allow(clippy::unnecessary_wraps, reason = "the type of a handler's answer")]
pub(crate) fn good() -> Handled {
    Ok(Next::Respond(Response::good()))
}

/// GOOD with data, cut to the allocation length.
#[allow(clippy::unnecessary_wraps, reason = "the type of a handler's answer")]
pub(crate) fn answer(bytes: alloc::vec::Vec<u8>, allocation_len: impl Into<u32>) -> Handled {
    Ok(Next::Respond(Response::data(bytes, allocation_len.into())))
}
