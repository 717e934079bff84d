//! NFSv3, and MOUNT before it.

use iotax_proto::{
    nfs::{
        self,
        common::{CreateHow, FileHandle, SetAttributes},
        mount::{self, PROGRAM as MOUNT_PROGRAM},
        v3::{self, Arguments, Procedure, Results, arguments::Place},
    },
    rpc::{
        Encoder,
        message::{Xid, encode_call},
    },
    wire::Reader,
};

use super::{Answer, Call, Speech, identity, named};

const EXPORT: &[u8] = b"/v0";
/// MNT of the mount protocol (RFC 1813 §5.2.1).
const MNT: u32 = 1;

#[derive(Debug, Default)]
pub(super) struct Calls {
    root: Option<FileHandle>,
}

impl Calls {
    /// The arguments of an NFS call; `None` for MNT.
    fn arguments(&self, call: Call) -> Option<Arguments<'static>> {
        let directory = self.root?;
        let place = |name| Place { directory, name };
        let attributes = SetAttributes::default();
        Some(match call {
            Call::Prepare => return None,
            Call::Create(name) => Arguments::Create { place: place(name), how: CreateHow::Guarded(attributes) },
            Call::MkDir(name) => Arguments::MkDir { place: place(name), attributes },
            Call::Remove(name) => Arguments::Remove(place(name)),
            Call::RmDir(name) => Arguments::RmDir(place(name)),
            Call::Rename(from, to) => Arguments::Rename { from: place(from), to: place(to) },
            Call::Lookup(name) => Arguments::Lookup(place(name)),
        })
    }
}

impl Speech for Calls {
    fn is_ready(&self) -> bool {
        self.root.is_some()
    }

    fn call(&mut self, xid: Xid, call: Call) -> Vec<u8> {
        let mut encoder = Encoder::default();
        let arguments = self.arguments(call);
        let (program, procedure) = match &arguments {
            None => (MOUNT_PROGRAM, MNT),
            Some(arguments) => (nfs::PROGRAM, arguments.procedure() as u32),
        };
        encode_call(encoder.begin_record(), xid, program, v3::VERSION, procedure, &identity());
        match &arguments {
            None => _ = encoder.opaque(EXPORT),
            Some(arguments) => arguments.encode(&mut encoder),
        }
        encoder.end_record(0).to_vec()
    }

    fn results(&mut self, call: Call, reader: &mut Reader<'_>) -> Result<Answer, String> {
        let procedure = match call {
            Call::Prepare => {
                let mounted = mount::decode_mounted(reader).map_err(|_| "no answer to MNT")?;
                self.root = Some(mounted.map_err(|error| format!("no mount: {error:?}"))?);
                return Ok(Answer::Prepared);
            }
            Call::Create(_) => Procedure::Create,
            Call::MkDir(_) => Procedure::MkDir,
            Call::Remove(_) => Procedure::Remove,
            Call::RmDir(_) => Procedure::RmDir,
            Call::Rename(..) => Procedure::Rename,
            Call::Lookup(_) => Procedure::Lookup,
        };
        match Results::decode(procedure, reader).map_err(|_| format!("no results of {procedure:?}"))? {
            Ok(_) => Ok(Answer::Named(Ok(()))),
            Err(failure) => named(&failure.status),
        }
    }

    /// Nothing to do: the server identifies calls by their xids, and the next call has another.
    fn begin_anew(&mut self) {}

    fn removes_any(&self) -> bool {
        false
    }
}
