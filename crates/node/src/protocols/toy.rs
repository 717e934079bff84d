//! A protocol only for tests. It contains everything that a new protocol needs here, and proves that nothing else is
//! needed.
//!
//! The server first sends the unit's size. A request is an operation, a tag, an offset, a length and, for a write, its
//! data. A reply is the tag, a status, a length and, for a read, its data. Integers are big-endian.

use std::net::SocketAddr;

use iotax_proto::{
    Backend, Geometry, Initiator, InitiatorEvents, Instant, Io, IoError, IoId, Misuse, Payload, Refusal, Started, Tag,
    Target, Transmit, UnitError, UnitId, UnitOp, Violation,
};

use super::{
    About, Definition, Describe, Digests, Exported as Any, ExportedUnit,
    definition::{cut_off, no_query},
};
use crate::{
    failure::Failure,
    load::{
        Direct,
        link::Control,
        settings::{Settings, Workers},
    },
    server::{ServerBackend, ServerConfig},
    volume::{BLOCK_SIZE, unit_of},
};

const PORT: u16 = 7777;
const IO_BYTES_MAX: u32 = 1 << 20;

const READ: u8 = 1;
const WRITE: u8 = 2;
const FLUSH: u8 = 3;
const LEAVE: u8 = 4;
const REQUEST_LEN: usize = 17;
const ANSWER_LEN: usize = 9;
const SIZE_LEN: usize = 8;
/// Tag of the reply to `LEAVE`.
const LEFT: Tag = Tag::MAX;

#[derive(Debug)]
pub struct Toy;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    port: u16,
    volume: String,
}

#[derive(Clone, Debug)]
pub struct Exported {
    volume: String,
    unit: UnitId,
}

impl ExportedUnit for Exported {
    fn new(config: &ServerConfig, index: usize) -> Self {
        let export = &config.exports[index];
        let volume = config.volumes[export.volume].name.clone();
        Self { volume, unit: unit_of(export.volume, export.read_only) }
    }

    fn path(&self) -> String {
        format!("/{}", self.volume)
    }
}

impl Definition for Toy {
    const ABOUT: About = About {
        name: "toy",
        title: "Toy",
        scheme: "toy",
        form: "toy://HOST[:PORT]/VOLUME",
        common_options: &[],
        has_paths: false,
        is_multipath: true,
        rpc_programs: &[],
    };

    type Unit = Unit;
    type Options = ();
    type Initiator = ToyInitiator;

    fn parse(port: Option<u16>, path: &str, query: Option<&str>) -> Result<Unit, String> {
        no_query(query)?;
        Ok(Unit { port: port.unwrap_or(PORT), volume: path.to_owned() })
    }

    fn control(
        unit: &Unit,
        settings: &Settings,
        (): &(),
        workers: Workers,
        _: &str,
    ) -> Result<Box<dyn Control<ToyInitiator>>, Failure> {
        let to = SocketAddr::new(settings.address, unit.port);
        let initiator = move |_, _| ToyInitiator::new(workers.outstanding as usize);
        Ok(Box::new(Direct::new(to, workers, initiator)))
    }

    type Target = ToyTarget;
    type Exported = Exported;
    type ExportOptions = ();
    type Common = ();

    fn common(_: &ServerConfig) {}

    fn accept(_: Instant, backend: &ServerBackend) -> ToyTarget {
        let mut exports = backend.portal().exports.iter().map(|export| &backend.state.server.exported[*export]);
        let Some(Any::Toy(exported)) = exports.next() else { panic!("a portal of toys has one") };
        let mut transmit = Transmit::default();
        transmit.put(&backend.geometry(exported.unit).expect("a unit").size_bytes.to_be_bytes());
        ToyTarget { unit: exported.unit, transmit, held: Vec::new(), tags: Vec::new(), leaves: false }
    }

    fn describe(_: Digests) -> Box<dyn Describe> {
        Box::new(Describer)
    }
}

#[derive(Debug)]
pub struct ToyInitiator {
    transmit: Transmit,
    held: Vec<u8>,
    ready: bool,
    /// Whether an I/O is under way, by tag.
    under_way: Vec<bool>,
}

impl ToyInitiator {
    fn new(outstanding: usize) -> Self {
        Self { transmit: Transmit::default(), held: Vec::new(), ready: false, under_way: vec![false; outstanding] }
    }

    fn request(&mut self, op: u8, tag: Tag, offset: u64, len: u32) {
        self.transmit.put(&[op]);
        self.transmit.put(&tag.to_be_bytes());
        self.transmit.put(&offset.to_be_bytes());
        self.transmit.put(&len.to_be_bytes());
    }
}

impl Initiator for ToyInitiator {
    fn receive(&mut self, now: Instant, bytes: &[u8], events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        self.held.extend_from_slice(bytes);
        if !self.ready {
            let Some(size) = self.held.first_chunk::<SIZE_LEN>() else { return Ok(()) };
            let size_bytes = u64::from_be_bytes(*size);
            self.held.drain(..SIZE_LEN);
            self.ready = true;
            let (block_size, max_io_bytes) = (BLOCK_SIZE, IO_BYTES_MAX);
            events.ready(now, &Geometry { size_bytes, block_size, max_io_bytes, read_only: false });
        }
        while let Some([t0, t1, t2, t3, status, len @ ..]) = self.held.first_chunk::<ANSWER_LEN>() {
            let (tag, failed) = (Tag::from_be_bytes([*t0, *t1, *t2, *t3]), *status != 0);
            let end = ANSWER_LEN + u32::from_be_bytes(*len) as usize;
            if self.held.len() < end {
                break;
            }
            let answer: Vec<u8> = self.held.drain(..end).collect();
            if tag == LEFT {
                events.closed(now);
                continue;
            }
            self.under_way[tag as usize] = false;
            if answer.len() > ANSWER_LEN {
                events.data(tag, 0, &answer[ANSWER_LEN..]);
            }
            let error = IoError::Failed { status: 1, refusal: Refusal::Other, what: "broken toy" };
            events.complete(now, tag, if failed { Err(error) } else { Ok(()) });
        }
        Ok(())
    }

    fn credits(&self) -> usize {
        if self.ready { self.under_way.iter().filter(|under_way| !**under_way).count() } else { 0 }
    }

    fn submit(&mut self, _: Instant, tag: Tag, io: Io) -> Result<(), Misuse> {
        self.under_way[tag as usize] = true;
        match io {
            Io::Read { offset, len } => self.request(READ, tag, offset, len),
            Io::Write { offset, data, .. } => {
                self.request(WRITE, tag, offset, data.len() as u32);
                self.transmit.payload(data);
            }
            Io::Flush => self.request(FLUSH, tag, 0, 0),
            Io::WriteZeroes { .. } | Io::Unmap { .. } | Io::Reserve(_) => return Err(Misuse::BadRange),
        }
        Ok(())
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.transmit
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _: Instant, _: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        Ok(())
    }

    fn close(&mut self, _: Instant) {
        self.request(LEAVE, LEFT, 0, 0);
    }

    fn disconnected(&mut self, now: Instant, events: &mut dyn InitiatorEvents) {
        for tag in 0..self.under_way.len() {
            if std::mem::take(&mut self.under_way[tag]) {
                events.complete(now, tag as Tag, Err(IoError::ConnectionLost));
            }
        }
    }
}

#[derive(Debug)]
pub struct ToyTarget {
    unit: UnitId,
    transmit: Transmit,
    held: Vec<u8>,
    /// Tags of operations, by `IoId`.
    tags: Vec<Option<Tag>>,
    leaves: bool,
}

impl ToyTarget {
    fn answer(&mut self, tag: Tag, result: Result<Option<Payload>, UnitError>) {
        let status = u8::from(result.is_err());
        let data = result.ok().flatten();
        self.transmit.put(&tag.to_be_bytes());
        self.transmit.put(&[status]);
        self.transmit.put(&data.as_ref().map_or(0, |data| data.len() as u32).to_be_bytes());
        if let Some(data) = data {
            self.transmit.payload(data);
        }
    }

    fn begin(&mut self, now: Instant, tag: Tag, op: UnitOp, data: &[u8], backend: &mut ServerBackend) {
        let id = self.tags.iter().position(Option::is_none).unwrap_or(self.tags.len());
        self.tags.resize(self.tags.len().max(id + 1), None);
        let mut started = backend.start(now, id as IoId, self.unit, op);
        if let Started::NeedData = started {
            backend.place(id as IoId, 0, data);
            started = backend.finish(now, id as IoId);
        }
        match started {
            Started::Done(result) => self.answer(tag, result),
            Started::Queued => self.tags[id] = Some(tag),
            Started::NeedData => panic!("the data are there"),
        }
    }
}

impl Target<ServerBackend> for ToyTarget {
    fn receive(&mut self, now: Instant, bytes: &[u8], backend: &mut ServerBackend) -> Result<usize, Violation> {
        self.held.extend_from_slice(bytes);
        while let Some([op, t0, t1, t2, t3, rest @ ..]) = self.held.first_chunk::<REQUEST_LEN>() {
            let (op, tag) = (*op, Tag::from_be_bytes([*t0, *t1, *t2, *t3]));
            let [offset @ .., l0, l1, l2, l3] = *rest;
            let (offset, len) = (u64::from_be_bytes(offset), u32::from_be_bytes([l0, l1, l2, l3]));
            let end = REQUEST_LEN + if op == WRITE { len as usize } else { 0 };
            if self.held.len() < end {
                break;
            }
            let request: Vec<u8> = self.held.drain(..end).collect();
            let op = match op {
                READ => UnitOp::Read { offset, len, durable: false },
                WRITE => UnitOp::Write { offset, len, durable: false },
                FLUSH => UnitOp::Flush,
                _ => {
                    self.answer(LEFT, Ok(None));
                    self.leaves = true;
                    break;
                }
            };
            self.begin(now, tag, op, &request[REQUEST_LEN..], backend);
        }
        Ok(bytes.len())
    }

    fn complete(&mut self, _: Instant, id: IoId, result: Result<Option<Payload>, UnitError>, _: &mut ServerBackend) {
        let tag = self.tags[id as usize].take().expect("it is under way");
        self.answer(tag, result);
    }

    fn transmit(&mut self) -> &mut Transmit {
        &mut self.transmit
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _: Instant, _: &mut ServerBackend) -> Result<(), Violation> {
        Ok(())
    }

    fn is_closing(&self) -> bool {
        self.leaves
    }

    fn disconnected(&mut self, _: Instant, _: &mut ServerBackend) {}
}

#[derive(Debug)]
struct Describer;

impl Describe for Describer {
    fn describe(&mut self, bytes: &[u8]) -> Result<(usize, String), String> {
        let head = bytes.first_chunk::<REQUEST_LEN>().ok_or_else(|| cut_off(bytes))?;
        Ok((REQUEST_LEN, format!("operation {}", head[0])))
    }
}

#[path = "../../tests/it/support/mod.rs"]
mod support;

mod tests {
    use iotax_proto::Region as _;

    use super::support::{
        RUN, load,
        server::{Bench, SIZE},
    };
    use crate::{
        Protocol,
        load::{Content, Endpoint, RunConfig, TaskConfig, TaskOutcome, connector::ConnectionConfig},
        protocols::Digests,
    };

    #[test]
    fn a_protocol_of_the_table_is_served_and_loaded() {
        let mut bench = Bench::new();
        bench.fill();
        let measured = bench.run(Protocol::Toy, RUN, 2).expect("right data");
        assert!(measured.read.ios > 100 && measured.write.ios > 100, "{measured:?}");
        assert_eq!((measured.read.errors + measured.write.errors, measured.verify.wrong_blocks), (0, 0));
        assert_eq!(bench.node.connections(), 0, "every connection is closed");
        bench.memory.copy_in(1_234_567, &[0x55, 0xaa, 0x55]);
        bench.run(Protocol::Toy, RunConfig { read_percent: 100.0, ..RUN }, 1).expect_err("wrong data are found");
    }

    #[test]
    fn it_reaches_the_volume_that_others_reach() {
        let mut bench = Bench::new();
        bench.task(Protocol::Toy, TaskConfig::Fill { destroy: false }).expect("filled");
        let checked = bench.task(Protocol::Iscsi, TaskConfig::Check { look_bytes: None }).expect("checked");
        assert_eq!(checked, TaskOutcome::Checked { content: Content::Pattern, scanned_bytes: SIZE as u64 });
    }

    #[test]
    fn its_name_endpoint_options_and_words_are_known() {
        assert_eq!(Protocol::of_name("toy"), Some(Protocol::Toy));
        let failure = Endpoint::parse("ftp://h/x").expect_err("no protocol");
        assert!(failure.message.contains("toy://HOST[:PORT]/VOLUME"), "{failure}");
        let endpoint = Endpoint::parse("toy://h/v0").expect("an endpoint");
        assert_eq!((endpoint.unit.host(), endpoint.unit.protocol()), (Some("h"), Some(Protocol::Toy)));
        let bench = Bench::new();
        let refused = |set: fn(&mut ConnectionConfig)| {
            let load = bench.load_as(&endpoint, load(TaskConfig::Run(RUN), 1), set);
            let failure = load.expect_err("an option that it does not know");
            assert_eq!(failure.message, "Toy has no such option");
            failure.place
        };
        assert_eq!(refused(|connection| connection.settings.data_digest = true), "options.data_digest");
        assert_eq!(refused(|connection| connection.options.iscsi.initial_r2t = Some(true)), "options.initial_r2t");
        assert_eq!(refused(|connection| connection.settings.gid = Some(0)), "options.gid");
        let mut describer = Protocol::Toy.describe(Digests::default());
        assert_eq!(describer.describe(&[3; 20]), Ok((17, "operation 3".to_owned())));
    }
}
