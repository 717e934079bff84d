//! A command in the hands of its handler.

use alloc::vec::Vec;

use super::{
    Next, Response,
    cdb::Cdb,
    device::Device,
    fault::Fault,
    lun::LunView,
    nexus::Nexus,
    opcodes::{Class, Entry},
    sense::Sense,
};
use crate::Backend;

/// What a handler answers.
pub(crate) type Handled = Result<Next, Fault>;

/// One command under way.
pub(crate) struct Call<'a> {
    pub(crate) nexus: &'a mut Nexus,
    /// The LUN field as it came.
    pub(crate) lun: u64,
    pub(crate) cdb: Cdb<'a>,
    /// `None` where there is no such logical unit.
    pub(crate) view: Option<LunView>,
    pub(crate) data_out_len: u32,
    pub(crate) backend: &'a dyn Backend,
}

impl Call<'_> {
    /// Checks common to all commands: the logical unit, the CDB's reserved bits, unit attentions, reservations.
    pub(crate) fn admit(&mut self, entry: &Entry) -> Result<(), Fault> {
        if self.view.is_none() && !entry.always {
            return Err(Sense::LOGICAL_UNIT_NOT_SUPPORTED.into());
        }
        entry.check_reserved_bits(self.cdb)?;
        let Some(view) = self.view else { return Ok(()) };
        if view.attention && !entry.always {
            let id = self.nexus.id;
            if let Some(sense) = self.with_device(|device| device.take_attention(id, view.lun)) {
                return Err(sense.into());
            }
        }
        let is_barred = match entry.class {
            Class::Free => false,
            Class::Ready => view.barred.ready,
            Class::Reads => view.barred.reads,
            Class::Changes => view.barred.changes,
        };
        if is_barred { Err(Fault::RESERVATION_CONFLICT) } else { Ok(()) }
    }

    /// The logical unit; only handlers of commands that work without one need to ask.
    pub(crate) fn unit(&self) -> Result<LunView, Fault> {
        self.view.ok_or(Fault::Check(Sense::LOGICAL_UNIT_NOT_SUPPORTED))
    }

    pub(crate) fn with_device<R>(&self, use_it: impl FnOnce(&mut Device) -> R) -> R {
        self.nexus.with_device(use_it)
    }

    /// Asks for a parameter list of `len` bytes. None at all is no error (SPC-5 §4.2.5.5); one that the initiator does not
    /// send in full is.
    pub(crate) fn collect(&self, len: u32) -> Handled {
        if len == 0 {
            good()
        } else if len > self.data_out_len {
            Err(Sense::PARAMETER_LIST_LENGTH_ERROR.into())
        } else {
            Ok(Next::Parameters { len })
        }
    }
}

/// GOOD without data.
#[allow(clippy::unnecessary_wraps, reason = "the type of a handler's answer")]
pub(crate) fn good() -> Handled {
    Ok(Next::Respond(Response::good()))
}

/// GOOD after a parameter list of `len` bytes.
#[allow(clippy::unnecessary_wraps, reason = "the type of a handler's answer")]
pub(crate) fn accepted(len: usize) -> Handled {
    Ok(Next::Respond(Response::accepted(len)))
}

/// GOOD with data, cut to the allocation length.
#[allow(clippy::unnecessary_wraps, reason = "the type of a handler's answer")]
pub(crate) fn answer(bytes: Vec<u8>, allocation_len: impl Into<u32>) -> Handled {
    Ok(Next::Respond(Response::data(bytes, allocation_len.into())))
}
