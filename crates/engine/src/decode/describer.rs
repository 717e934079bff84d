//! One PDU after the other in words, with what earlier ones said in mind.

use std::collections::BTreeMap;

use iotax_proto::{
    iscsi::decode::{DescribeError, describe_with_digests},
    nfs3::{self, Procedure},
    nvme_tcp,
    wire::{Reader, Short},
};

use super::{Arguments, Protocol};

pub(super) enum Describer {
    Iscsi {
        header_digest: bool,
        data_digest: bool,
    },
    /// Whether a stream carries admin or I/O commands shows in its Connect.
    NvmeTcp(nvme_tcp::decode::Stream),
    /// A reply does not say what it replies to: NFS calls by transaction.
    Nfs3(BTreeMap<u32, Procedure>),
}

/// The length of a PDU and what it says.
type Described = (usize, String);

impl Describer {
    pub(super) fn new(arguments: &Arguments) -> Self {
        match arguments.protocol {
            Protocol::Iscsi => {
                Self::Iscsi { header_digest: arguments.header_digest, data_digest: arguments.data_digest }
            }
            Protocol::NvmeTcp => Self::NvmeTcp(nvme_tcp::decode::Stream::default()),
            Protocol::Nfs3 => Self::Nfs3(BTreeMap::new()),
        }
    }

    pub(super) fn begin_stream(&mut self) {
        if let Self::NvmeTcp(stream) = self {
            *stream = nvme_tcp::decode::Stream::default();
        }
    }

    /// Describes the PDU at the front of `bytes`; or why there is none.
    pub(super) fn describe(&mut self, bytes: &[u8]) -> Result<Described, String> {
        match self {
            Self::Iscsi { header_digest, data_digest } => describe_with_digests(bytes, *header_digest, *data_digest)
                .map_err(|error| match error {
                    DescribeError::Short(_) => cut(bytes),
                    DescribeError::Malformed(violation) => violation.to_string(),
                }),
            Self::NvmeTcp(stream) => {
                stream.describe(bytes).map_err(|violation| violation.to_string())?.ok_or_else(|| cut(bytes))
            }
            Self::Nfs3(calls) => describe_nfs(calls, bytes),
        }
    }
}

fn describe_nfs(calls: &mut BTreeMap<u32, Procedure>, bytes: &[u8]) -> Result<Described, String> {
    let Ok((xid, call)) = message_head(bytes) else { return Err(cut(bytes)) };
    let described = match (call, calls.get(&xid)) {
        (Some(procedure), _) => {
            calls.insert(xid, procedure);
            nfs3::decode::describe(bytes)
        }
        (None, Some(procedure)) => nfs3::decode::describe_reply(*procedure, bytes),
        (None, None) => nfs3::decode::describe(bytes),
    };
    described.map_err(|violation| violation.to_string())
}

/// The transaction of an RPC message behind its record mark and, of an NFS call, the procedure (RFC 5531 §9, §11).
fn message_head(bytes: &[u8]) -> Result<(u32, Option<Procedure>), Short> {
    const CALL: u32 = 0;
    let mut reader = Reader::new(bytes);
    reader.skip(4)?;
    let xid = reader.u32_be()?;
    if reader.u32_be()? != CALL {
        return Ok((xid, None));
    }
    let _rpc_version = reader.u32_be()?;
    let program = reader.u32_be()?;
    let _version = reader.u32_be()?;
    let number = reader.u32_be()?;
    Ok((xid, Procedure::from_number(number).filter(|_| program == nfs3::PROGRAM)))
}

fn cut(bytes: &[u8]) -> String {
    format!("{} bytes of a PDU that is cut off", bytes.len())
}
