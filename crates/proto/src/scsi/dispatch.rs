//! The way of a command through its nexus to the handler that the table of commands names.

use super::{
    Command, Next, Response,
    call::{Call, Entry},
    cdb::Cdb,
    fault::Fault,
    lun::decode_lun,
    nexus::Nexus,
    opcodes::COMMANDS,
    sense::Sense,
};
use crate::Backend;

impl Nexus {
    /// Begins a command.
    pub fn command(&mut self, command: &Command<'_>, backend: &dyn Backend) -> Next {
        self.dispatch(command, backend, |entry, call| {
            call.admit(entry)?;
            (entry.run)(call)
        })
    }

    /// Goes on with a command once the data-out asked for with [`Next::Parameters`] are there.
    pub fn parameters(&mut self, command: &Command<'_>, data: &[u8], backend: &dyn Backend) -> Next {
        self.dispatch(command, backend, |entry, call| match entry.parameters {
            Some(parameters) => parameters(call, data),
            None => Err(Sense::INVALID_OPCODE.into()),
        })
    }

    fn dispatch(
        &mut self,
        command: &Command<'_>,
        backend: &dyn Backend,
        run: impl FnOnce(&Entry, &mut Call<'_>) -> Result<Next, Fault>,
    ) -> Next {
        self.refresh(backend);
        let view = decode_lun(command.lun).and_then(|lun| self.view(lun)).copied();
        let descriptor_sense = view.is_some_and(|view| view.mode.descriptor_sense);
        let cdb = Cdb(command.cdb);
        let mut call = Call {
            nexus: self,
            lun: command.lun,
            cdb,
            view,
            data_out_len: command.data_out_len,
            backend,
            commands: &COMMANDS,
        };
        let result = COMMANDS.find(command.cdb, view.as_ref()).and_then(|entry| run(entry, &mut call));
        match result {
            Ok(next) => next,
            Err(Fault::Status(status)) => Next::Respond(Response::status(status)),
            Err(Fault::Check(mut sense)) => {
                sense.descriptor = descriptor_sense;
                Next::Respond(Response::check(sense))
            }
        }
    }
}
