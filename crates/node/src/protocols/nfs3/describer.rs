//! Text descriptions of NFS calls and replies.

use std::collections::BTreeMap;

use iotax_proto::{
    nfs::{
        self,
        v3::{self, Procedure},
    },
    rpc::Xid,
    wire::{Reader, Short},
};

use crate::protocols::{Describe, definition::cut_off};

/// Procedures of calls by transaction, because a reply does not name its procedure.
#[derive(Debug, Default)]
pub(super) struct Describer(BTreeMap<Xid, Procedure>);

impl Describe for Describer {
    fn describe(&mut self, bytes: &[u8]) -> Result<(usize, String), String> {
        let Ok((xid, call)) = message_head(bytes) else { return Err(cut_off(bytes)) };
        let described = match (call, self.0.get(&xid)) {
            (Some(procedure), _) => {
                self.0.insert(xid, procedure);
                v3::decode::describe(bytes)
            }
            (None, Some(procedure)) => v3::decode::describe_reply(*procedure, bytes),
            (None, None) => v3::decode::describe(bytes),
        };
        described.map_err(|violation| violation.to_string())
    }
}

/// The transaction of an RPC message after its record mark and, for an NFS call, the procedure (RFC 5531 §9, §11).
fn message_head(bytes: &[u8]) -> Result<(Xid, Option<Procedure>), Short> {
    const CALL: u32 = 0;
    let mut reader = Reader::new(bytes);
    reader.skip(4)?;
    let xid = Xid(reader.u32_be()?);
    if reader.u32_be()? != CALL {
        return Ok((xid, None));
    }
    let _rpc_version = reader.u32_be()?;
    let program = reader.u32_be()?;
    let _version = reader.u32_be()?;
    let number = reader.u32_be()?;
    Ok((xid, Procedure::from_number(number).filter(|_| program == nfs::PROGRAM)))
}
