//! NFSv4.1: a client with one session and one slot, whose reply the server keeps.

use iotax_proto::{
    nfs::{
        PROGRAM,
        common::FileHandle,
        v41::{
            ChannelAttributes, MINOR_VERSION, OpCode, Operation, PROC_COMPOUND, SessionId, StateId, Status, VERSION,
            codec::{CompoundHead, MAX_HANDLE_LEN, MAX_TAG_LEN, share},
            fattr::RawAttributes,
            operations::{
                Claim, CreateSessionArguments, ExchangeArguments, Made, OpenArguments, OpenHow, Owner,
                SequenceArguments,
            },
        },
    },
    rpc::{
        Encoder, Garbage,
        message::{Xid, encode_call},
        xdr,
    },
    wire::Reader,
};

use super::{Answer, Call, Speech, identity, named};

const EXPORT: &[u8] = b"v0";
const OWNER: &[u8] = b"names";

/// What the server knows of the client, step by step.
#[derive(Debug, Default)]
pub(super) struct Compounds {
    /// Distinguishes this client from an earlier one of the same name.
    instance: u64,
    client: Option<Client>,
    session: Option<SessionId>,
    sequence: u32,
    is_reclaimed: bool,
    root: Option<FileHandle>,
}

#[derive(Clone, Copy, Debug)]
struct Client {
    id: u64,
    sequence: u32,
}

impl Compounds {
    /// The operations of a call in a session, or those that establish one.
    fn operations(&self, call: Call, put: &mut dyn FnMut(&[Operation<'_>])) {
        let Some(client) = self.client else {
            let verifier = self.instance.to_be_bytes();
            let asked = ExchangeArguments { verifier, owner: OWNER, flags: 0, wants_protection: false };
            return put(&[Operation::ExchangeId(asked)]);
        };
        if self.session.is_none() {
            let channel = ChannelAttributes {
                header_pad: 0,
                max_request: 4096,
                max_response: 4096,
                max_response_cached: 2048,
                max_operations: 8,
                max_requests: 1,
            };
            let Client { id, sequence } = client;
            let asked = CreateSessionArguments {
                client: id,
                sequence,
                flags: 0,
                fore: channel,
                back: channel,
                callback_program: 0,
            };
            return put(&[Operation::CreateSession(asked)]);
        }
        if !self.is_reclaimed {
            return put(&[Operation::ReclaimComplete { of_one_file_system: false }]);
        }
        let Some(root) = self.root else {
            return put(&[Operation::PutRootFh, Operation::Lookup { name: EXPORT }, Operation::GetFh]);
        };
        let at = Operation::PutFh(root.bytes());
        let attributes = RawAttributes::NONE;
        match call {
            Call::Prepare => {}
            Call::Create(name) => {
                let open = OpenArguments {
                    access: share::BOTH,
                    deny: 0,
                    owner: Owner { client: client.id, name: OWNER },
                    how: OpenHow::Guarded(attributes),
                    claim: Claim::Name(name),
                };
                put(&[at, Operation::Open(open), Operation::Close { state: StateId::CURRENT }]);
            }
            Call::MkDir(name) => put(&[at, Operation::Create { made: Made::Directory, name, attributes }]),
            Call::Remove(name) | Call::RmDir(name) => put(&[at, Operation::Remove { name }]),
            Call::Rename(from, to) => put(&[at, Operation::SaveFh, Operation::Rename { from, to }]),
            Call::Lookup(name) => put(&[at, Operation::Lookup { name }]),
        }
    }

    /// Decodes the results of a COMPOUND. If it has a SEQUENCE, that has succeeded.
    fn take(&mut self, call: Call, reader: &mut Reader<'_>) -> Result<Result<Answer, String>, Garbage> {
        if self.client.is_none() {
            if let Err(status) = next_is(OpCode::ExchangeId, reader)? {
                return Ok(Err(format!("EXCHANGE_ID gave {status:?}")));
            }
            self.client = Some(Client { id: reader.u64_be()?, sequence: reader.u32_be()? });
            return Ok(Ok(Answer::Prepared));
        }
        if self.session.is_none() {
            return Ok(match next_is(OpCode::CreateSession, reader)? {
                Ok(()) => {
                    self.session = Some(SessionId(reader.array()?));
                    Ok(Answer::Prepared)
                }
                Err(Status::StaleClientId) => Ok(Answer::Stranger),
                Err(status) => Err(format!("CREATE_SESSION gave {status:?}")),
            });
        }
        match next_is(OpCode::Sequence, reader)? {
            Ok(()) => reader.skip(36)?,
            Err(Status::BadSession) => return Ok(Ok(Answer::Stranger)),
            Err(Status::Delay) => return Ok(Ok(Answer::Later)),
            Err(status) => return Ok(Err(format!("SEQUENCE gave {status:?}"))),
        }
        self.sequence = self.sequence.wrapping_add(1);
        if !self.is_reclaimed {
            self.is_reclaimed = next_is(OpCode::ReclaimComplete, reader)?.is_ok();
            return Ok(if self.is_reclaimed { Ok(Answer::Prepared) } else { Err("no RECLAIM_COMPLETE".into()) });
        }
        if self.root.is_none() {
            for code in [OpCode::PutRootFh, OpCode::Lookup, OpCode::GetFh] {
                if let Err(status) = next_is(code, reader)? {
                    return Ok(Err(format!("{} gave {status:?}", code.text())));
                }
            }
            self.root = FileHandle::new(xdr::opaque(reader, MAX_HANDLE_LEN)?);
            return Ok(Ok(Answer::Prepared));
        }
        let codes: &[OpCode] = match call {
            Call::Rename(..) => &[OpCode::PutFh, OpCode::SaveFh, OpCode::Rename],
            Call::Create(_) => &[OpCode::PutFh, OpCode::Open],
            Call::MkDir(_) => &[OpCode::PutFh, OpCode::Create],
            Call::Remove(_) | Call::RmDir(_) => &[OpCode::PutFh, OpCode::Remove],
            Call::Lookup(_) | Call::Prepare => &[OpCode::PutFh, OpCode::Lookup],
        };
        for code in codes {
            if let Err(status) = next_is(*code, reader)? {
                return Ok(named(&status));
            }
        }
        Ok(Ok(Answer::Named(Ok(()))))
    }
}

/// The status of the next result, which must belong to this operation.
fn next_is(code: OpCode, reader: &mut Reader<'_>) -> Result<Result<(), Status>, Garbage> {
    if reader.u32_be()? == code as u32 { Status::decode(reader) } else { Err(Garbage) }
}

impl Speech for Compounds {
    fn is_ready(&self) -> bool {
        self.root.is_some()
    }

    fn call(&mut self, xid: Xid, call: Call) -> Vec<u8> {
        let mut encoder = Encoder::default();
        encode_call(encoder.begin_record(), xid, PROGRAM, VERSION, PROC_COMPOUND, &identity());
        let sequence = self.session.map(|session| {
            let seqid = self.sequence.wrapping_add(1);
            Operation::Sequence(SequenceArguments { session, seqid, slot: 0, highest_slot: 0, cache_this: true })
        });
        self.operations(call, &mut |operations| {
            let count = operations.len() as u32 + u32::from(sequence.is_some());
            CompoundHead { tag: b"", minor: MINOR_VERSION, operations: count }.encode(&mut encoder);
            for operation in sequence.iter().chain(operations) {
                operation.encode(&mut encoder);
            }
        });
        encoder.end_record(0).to_vec()
    }

    fn results(&mut self, call: Call, reader: &mut Reader<'_>) -> Result<Answer, String> {
        let head = |reader: &mut Reader<'_>| {
            Status::decode(reader)?.ok();
            xdr::opaque(reader, MAX_TAG_LEN)?;
            reader.u32_be().map_err(Garbage::from)
        };
        head(reader).and_then(|_| self.take(call, reader)).map_err(|Garbage| format!("no results of {call:?}"))?
    }

    fn begin_anew(&mut self) {
        *self = Self { instance: self.instance + 1, ..Self::default() };
    }

    /// RFC 8881 §18.25.
    fn removes_any(&self) -> bool {
        true
    }
}
