//! An NFSv4.1 session with every supported operation, compared with the recorded bytes and decoded by tshark.
#![allow(clippy::unwrap_used)]

use crate::{
    capture::{Message, assert_kept, decoded},
    nfs_support::{Client, Server},
};
use iotax_node::fs::Limits;
use iotax_proto::{
    Instant,
    nfs::{
        PROGRAM,
        common::{Handles, NodeKind, Stability},
        v41::{
            ChannelAttributes, OpCode, Operation, PROC_COMPOUND, SessionId, StateId, Status, VERSION,
            codec::{CompoundHead, share},
            decode::describe,
            fattr::{Bitmap, Known, RawAttributes, attribute, set_values},
            operations::{
                Claim, CreateSessionArguments, ExchangeArguments, LockRange, Locker, Made, OpenArguments, OpenHow,
                Owner, ReadArguments, ReadDirArguments, SequenceArguments, WriteHead,
            },
            target_side::{Config, Connection},
        },
    },
};

/// The results of a COMPOUND begin with its status, an empty tag and the number of operations.
const RESULTS_AT: usize = 12;

/// A client with a session of one slot.
struct Compounds {
    client: Client,
    session: SessionId,
    seqid: u32,
}

impl Compounds {
    /// Sends a COMPOUND unchanged. Returns its status and results.
    fn call(&mut self, operations: &[Operation<'_>], data: &[u8]) -> (Result<(), Status>, Vec<u8>) {
        let results = self.client.call_program(PROGRAM, VERSION, PROC_COMPOUND, |call| {
            CompoundHead { tag: b"", minor: 1, operations: operations.len() as u32 }.encode(call);
            for operation in operations {
                operation.encode(call);
            }
            call.raw(data);
        });
        let results = results.unwrap();
        let number = u32::from_be_bytes(results[..4].try_into().unwrap());
        let status = Status::ALL.iter().find(|status| **status as u32 == number);
        (status.map_or(Ok(()), |status| Err(*status)), results[RESULTS_AT..].to_vec())
    }

    /// Sends operations in the session. Returns the results after those of SEQUENCE.
    fn ask(&mut self, operations: &[Operation<'_>], data: &[u8]) -> (Result<(), Status>, Vec<u8>) {
        self.seqid += 1;
        let (session, seqid) = (self.session, self.seqid);
        let sequence = SequenceArguments { session, seqid, slot: 0, highest_slot: 0, cache_this: true };
        let all = [&[Operation::Sequence(sequence)], operations].concat();
        let (status, results) = self.call(&all, data);
        (status, results[44..].to_vec())
    }

    fn succeed(&mut self, operations: &[Operation<'_>]) -> Vec<u8> {
        let (status, results) = self.ask(operations, b"");
        status.unwrap();
        results
    }
}

/// The stateid in the results of the second operation, after a PUTFH or PUTROOTFH.
fn state_in(results: &[u8]) -> StateId {
    StateId::decode(&mut iotax_proto::wire::Reader::new(&results[16..])).unwrap()
}

/// The handle in the results of the last operation, GETFH.
fn handle_in(results: &[u8]) -> Vec<u8> {
    let number = [&(OpCode::GetFh as u32).to_be_bytes()[..], &[0; 4]].concat();
    let at = results.windows(8).rposition(|window| window == number).unwrap() + 12;
    results[at..].to_vec()
}

fn session() -> Vec<Message> {
    let mut client = Client::new(Server::new(4096, Limits::default()));
    client.connection = Box::new(Connection::new(Instant::default(), Config::new(Handles::new([9; 32]))));
    let mut compounds = Compounds { client, session: SessionId::default(), seqid: 0 };
    let exchange = ExchangeArguments { verifier: *b"instance", owner: b"golden", flags: 0, wants_protection: false };
    let (_, known) = compounds.call(&[Operation::ExchangeId(exchange)], b"");
    let id = u64::from_be_bytes(known[8..16].try_into().unwrap());
    let channel = ChannelAttributes {
        header_pad: 0,
        max_request: 8192,
        max_response: 8192,
        max_response_cached: 2048,
        max_operations: 16,
        max_requests: 1,
    };
    let create =
        CreateSessionArguments { client: id, sequence: 1, flags: 0, fore: channel, back: channel, callback_program: 0 };
    let (_, created) = compounds.call(&[Operation::CreateSession(create)], b"");
    compounds.session = SessionId(created[8..24].try_into().unwrap());
    let session = compounds.session;
    compounds.call(&[Operation::BindConnToSession { session, direction: 1, rdma: false }], b"").0.unwrap();
    compounds.succeed(&[Operation::ReclaimComplete { of_one_file_system: false }]);
    compounds.succeed(&[Operation::BackchannelCtl { program: 0 }]);

    let root = [Operation::PutRootFh, Operation::Lookup { name: b"export" }, Operation::GetFh];
    let root = handle_in(&compounds.succeed(&root));
    let at_root = Operation::PutFh(&root);
    files(&mut compounds, at_root, id);
    names(&mut compounds, at_root);

    compounds.call(&[Operation::DestroySession(session)], b"").0.unwrap();
    compounds.call(&[Operation::DestroyClientId(id)], b"").0.unwrap();
    let wire = compounds.client.wire.into_iter();
    wire.flat_map(|[call, reply]| [(true, call), (false, reply)]).collect()
}

/// Opens, writes, reads, locks and closes a file.
fn files(compounds: &mut Compounds, at_root: Operation<'_>, id: u64) {
    let owner = Owner { client: id, name: b"owner" };
    let (present, values) = set_values(Some(0), Some(0o640));
    let attributes = RawAttributes { present, values: &values };
    let mut open = |how, claim, access| {
        let arguments = OpenArguments { access: access | share::WANT_NO_DELEGATION, deny: 0, owner, how, claim };
        compounds.succeed(&[at_root, Operation::Open(arguments), Operation::GetFh])
    };
    open(OpenHow::Guarded(attributes), Claim::Name(b"file"), share::READ);
    let opened = open(OpenHow::NoCreate, Claim::Name(b"file"), share::BOTH);
    let (state, handle) = (state_in(&opened), handle_in(&opened));
    let at = Operation::PutFh(&handle);
    let head = WriteHead { state, offset: 0, stability: Stability::Unstable, len: 12 };
    compounds.ask(&[at, Operation::Write(head)], b"twelve bytes").0.unwrap();
    compounds.succeed(&[at, Operation::Commit { offset: 0, count: 0 }]);
    let read = ReadArguments { state, offset: 2, count: 100 };
    compounds.succeed(&[at, Operation::Read(read), Operation::GetAttr(Known::WANTED)]);
    let write_only = Bitmap::of(&[attribute::SET_ACCESSED, attribute::SET_MODIFIED]);
    compounds.succeed(&[at, Operation::GetAttr(Bitmap::supported(1).without(write_only))]);
    compounds.succeed(&[at, Operation::SetAttr { state, attributes }]);
    compounds.ask(&[at, Operation::Verify(attributes)], b"").0.unwrap();
    assert_eq!(compounds.ask(&[at, Operation::NVerify(attributes)], b"").0, Err(Status::Same));

    let range = LockRange { offset: 1, len: 5 };
    let locker = Locker::New { open: state, owner };
    let lock = Operation::Lock { is_exclusive: true, reclaims: false, range, locker };
    let lock = state_in(&compounds.succeed(&[at, lock]));
    let other = Owner { client: id, name: b"other" };
    let test = Operation::LockT { is_exclusive: false, range, owner: other };
    assert_eq!(compounds.ask(&[at, test], b"").0, Err(Status::Denied));
    let states = [state, lock].map(|state| [&state.seqid.to_be_bytes()[..], &state.other].concat()).concat();
    compounds.succeed(&[Operation::TestStateId(&states)]);
    let lock = state_in(&compounds.succeed(&[at, Operation::LockU { state: lock, range }]));
    compounds.succeed(&[Operation::FreeStateId(lock)]);
    let less = Operation::OpenDowngrade { state, access: share::READ, deny: 0 };
    let state = state_in(&compounds.succeed(&[at, less]));
    compounds.succeed(&[at, Operation::Close { state }]);
    assert_eq!(compounds.ask(&[at, Operation::Read(read)], b"").0, Err(Status::BadStateId));
}

/// Creates, changes, lists and removes names.
fn names(compounds: &mut Compounds, at_root: Operation<'_>) {
    let (present, values) = set_values(None, Some(0o640));
    let attributes = RawAttributes { present, values: &values };
    for (made, name) in [
        (Made::Directory, &b"directory"[..]),
        (Made::Link(b"../volume"), b"link"),
        (Made::Node(NodeKind::Block { major: 8, minor: 1 }), b"block"),
        (Made::Node(NodeKind::Character { major: 1, minor: 3 }), b"character"),
        (Made::Node(NodeKind::Socket), b"socket"),
        (Made::Node(NodeKind::Fifo), b"pipe"),
    ] {
        compounds.succeed(&[at_root, Operation::Create { made, name, attributes }, Operation::GetFh]);
    }
    compounds.succeed(&[at_root, Operation::Lookup { name: b"link" }, Operation::ReadLink]);
    compounds.succeed(&[at_root, Operation::Access { rights: 0x3f }]);
    let file = Operation::Lookup { name: b"file" };
    let link = Operation::Link { name: b"hard" };
    compounds.succeed(&[at_root, Operation::SaveFh, file, Operation::SaveFh, at_root, link, Operation::RestoreFh]);
    compounds.succeed(&[at_root, Operation::SaveFh, Operation::Rename { from: b"hard", to: b"soft" }]);
    let listing = ReadDirArguments { cookie: 0, verifier: [0; 8], names: 512, all: 4096, wanted: Known::WANTED };
    compounds.succeed(&[at_root, Operation::ReadDir(listing)]);
    compounds.succeed(&[at_root, Operation::Lookup { name: b"directory" }, Operation::LookupP, Operation::GetFh]);
    compounds.succeed(&[at_root, Operation::SecInfo { name: b"file" }]);
    compounds.succeed(&[at_root, Operation::SecInfoNoName { of_parent: false }]);
    compounds.succeed(&[Operation::PutPubFh, Operation::GetFh]);
    compounds.succeed(&[at_root, Operation::Remove { name: b"directory" }]);
    let (status, _) = compounds.ask(&[at_root, Operation::Remove { name: b"directory" }], b"");
    assert_eq!(status, Err(Status::NoEntry));
}

#[test]
fn the_session_is_on_the_wire_as_recorded() {
    assert_kept("nfs41_session.txt", &session(), |bytes| {
        let (used, text) = describe(bytes).unwrap();
        assert_eq!(used, bytes.len());
        text
    });
}

#[test]
fn tshark_finds_every_compound_well_formed() {
    let fields = ["rpc.msgtyp", "nfs.opcode", "_ws.malformed", "_ws.expert"];
    let Some(lines) = decoded(2049, "rpc", &session(), &fields) else { return };
    let mut seen: Vec<(usize, String)> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let [message, operations, malformed, expert] = &line[..] else { panic!("{line:?}") };
        assert_eq!(message, &(at % 2).to_string(), "message {at} is seen as the call or reply that it is");
        // It reports this for every stateid that a CLOSE returns, also for the invalid one that RFC 8881 §18.2.4
        // requires.
        let is_fine = expert.is_empty() || expert.contains("State ID deprecated in CLOSE responses");
        assert!(malformed.is_empty() && is_fine, "message {at}: {line:?}");
        seen.extend(operations.split(',').map(|number| (at % 2, number.to_owned())));
    }
    let all =
        [3, 4, 5, 6, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 21, 22, 23, 24, 25, 26, 27, 28, 29, 31, 32, 33, 34, 37, 38];
    for number in all.into_iter().chain(40..=45).chain([52, 53, 55, 57, 58]) {
        for side in 0..2 {
            assert!(seen.contains(&(side, number.to_string())), "operation {number} of {}", ["calls", "replies"][side]);
        }
    }
}
