//! A host whose PDUs the test chooses one at a time, connected to a target.

use iotax_proto::{
    Instant, Target, Violation,
    nvme::{
        CommandId, ControllerId, Cqe, QueueId, Sqe, Status,
        command::{Connect, ConnectData, Sgl, fabrics},
        property,
    },
    nvme_tcp::{
        TargetConfig, TargetQueue,
        pdu::{Common, DataHeader, Header, R2t, TermReq, TransferTag, kind},
    },
};

use super::{HOSTNQN, SUBNQN, Server};

/// A PDU that the target sent on a connection without digests.
#[derive(Clone, Debug)]
pub struct Pdu {
    pub header: Header,
    pub data: Vec<u8>,
}

impl Pdu {
    pub fn response(&self) -> Cqe {
        let Header::Response(cqe) = self.header else { panic!("{:?} is not a response", self.header) };
        cqe
    }

    pub fn status(&self) -> u16 {
        self.response().status.code()
    }

    pub fn r2t(&self) -> R2t {
        let Header::R2t(r2t) = self.header else { panic!("{:?} is not a R2T", self.header) };
        r2t
    }

    pub fn data_header(&self) -> DataHeader {
        let Header::ControllerData(data) = self.header else { panic!("{:?} is not a C2HData", self.header) };
        data
    }

    pub fn term(&self) -> TermReq {
        let Header::ControllerTerm(term) = self.header else { panic!("{:?} is not a C2HTermReq", self.header) };
        term
    }
}

pub struct Raw {
    pub target: TargetQueue,
    pub now: Instant,
}

pub const HOST_ID: [u8; 16] = [9; 16];

impl Raw {
    pub fn new(config: &TargetConfig) -> Self {
        Self { target: TargetQueue::new(Instant(0), config.clone()), now: Instant(0) }
    }

    /// A connection after the handshake, without digests.
    pub fn open(server: &mut Server, config: &TargetConfig) -> Self {
        let mut raw = Self::new(config);
        let answer = raw.send(server, &ic_req(0, 0)).expect("handshake");
        assert!(matches!(answer[..], [Pdu { header: Header::IcResp(_), .. }]));
        raw
    }

    /// The admin queue of an enabled controller, and the controller's ID.
    pub fn admin(server: &mut Server, config: &TargetConfig) -> (Self, ControllerId) {
        let mut raw = Self::open(server, config);
        let cqe = raw.connect(server, &connect(QueueId::ADMIN, 31), &connect_data(ControllerId::ANY));
        assert!(cqe.status.is_success(), "{cqe:?}");
        raw.enable(server);
        (raw, ControllerId(cqe.result as u16))
    }

    /// Enables the controller of this admin queue.
    pub fn enable(&mut self, server: &mut Server) {
        let mut enable = Sqe::fabrics(fabrics::PROPERTY_SET, CommandId(1));
        enable.set_cdw(11, property::CC);
        enable.set_cdw(12, property::CC_ENABLE | property::CC_ENTRY_SIZES);
        assert!(self.status(server, &enable).is_success());
    }

    /// I/O queue `qid` of that controller with 8 entries and SQ flow control disabled.
    pub fn io(server: &mut Server, config: &TargetConfig, cntlid: ControllerId, qid: QueueId) -> Self {
        let mut raw = Self::open(server, config);
        let cqe = raw.connect(server, &connect(qid, 7), &connect_data(cntlid));
        assert!(cqe.status.is_success(), "{cqe:?}");
        raw
    }

    /// Delivers bytes and returns the target's answers.
    pub fn send(&mut self, server: &mut Server, bytes: &[u8]) -> Result<Vec<Pdu>, Violation> {
        self.target.receive(self.now, bytes, server)?;
        Ok(self.answers())
    }

    /// Like `send`, for bytes that end the connection. Returns the terminate request and the violation.
    pub fn send_fatal(&mut self, server: &mut Server, bytes: &[u8]) -> (TermReq, Violation) {
        let violation = self.target.receive(self.now, bytes, server).expect_err("the connection ends");
        assert!(Target::<Server>::is_closing(&self.target));
        let answers = self.answers();
        (answers.last().expect("a terminate request").term(), violation)
    }

    /// The PDUs that the target has queued for sending.
    pub fn answers(&mut self) -> Vec<Pdu> {
        parse(&Target::<Server>::transmit(&mut self.target).take_bytes())
    }

    pub fn connect(&mut self, server: &mut Server, connect: &Connect, data: &ConnectData) -> Cqe {
        let mut sqe = connect.sqe(CommandId(0));
        sqe.set_sgl(Sgl::InCapsule { offset: 0, len: ConnectData::LEN as u32 });
        self.one(server, &sqe, &data.encode()).response()
    }

    /// Sends a command and returns the one PDU that answers it.
    pub fn one(&mut self, server: &mut Server, sqe: &Sqe, data: &[u8]) -> Pdu {
        let mut answers = self.send(server, &capsule(sqe, data)).expect("the connection stands");
        assert_eq!(answers.len(), 1, "{answers:?}");
        answers.remove(0)
    }

    pub fn status(&mut self, server: &mut Server, sqe: &Sqe) -> Status {
        self.one(server, sqe, &[]).response().status
    }

    /// Sends a command that returns data, and returns the data. With SQ flow control, a response follows the data.
    pub fn data(&mut self, server: &mut Server, sqe: &Sqe) -> Vec<u8> {
        let answers = self.send(server, &capsule(sqe, &[])).expect("the connection stands");
        assert!(matches!(answers[0].header, Header::ControllerData(_)), "{answers:?}");
        answers[0].data.clone()
    }
}

pub fn connect(qid: QueueId, sq_size: u16) -> Connect {
    Connect { record_format: 0, qid, sq_size, disable_sq_flow_control: qid > QueueId::ADMIN, keep_alive_ms: 0 }
}

pub fn connect_data(cntlid: ControllerId) -> ConnectData {
    ConnectData { host_id: HOST_ID, cntlid, subnqn: SUBNQN.into(), hostnqn: HOSTNQN.into() }
}

/// A command capsule without digests.
pub fn capsule(sqe: &Sqe, data: &[u8]) -> Vec<u8> {
    pdu(kind::COMMAND, 0, &sqe.0, data)
}

pub fn h2c_data(cid: CommandId, ttag: TransferTag, offset: u32, is_last: bool, data: &[u8]) -> Vec<u8> {
    let mut body = [0; 16];
    body[..2].copy_from_slice(&cid.0.to_le_bytes());
    body[2..4].copy_from_slice(&ttag.0.to_le_bytes());
    body[4..8].copy_from_slice(&offset.to_le_bytes());
    body[8..12].copy_from_slice(&(data.len() as u32).to_le_bytes());
    pdu(kind::H2C_DATA, u8::from(is_last) << 2, &body, data)
}

/// An ICReq that requests these digests (bits) and this alignment.
pub fn ic_req(alignment: u8, digests: u8) -> Vec<u8> {
    let mut body = [0; 120];
    body[2] = alignment;
    body[3] = digests;
    pdu(kind::IC_REQ, 0, &body, &[])
}

pub fn pdu(kind: u8, flags: u8, body: &[u8], data: &[u8]) -> Vec<u8> {
    let header_len = 8 + body.len();
    let data_offset = if data.is_empty() { 0 } else { header_len };
    let common = Common {
        kind,
        flags,
        header_len: header_len as u8,
        data_offset: data_offset as u8,
        len: (header_len + data.len()) as u32,
    };
    [&common.encode()[..], body, data].concat()
}

/// Splits bytes into PDUs without digests.
pub fn parse(mut bytes: &[u8]) -> Vec<Pdu> {
    let mut pdus = Vec::new();
    while let Some(first) = bytes.first_chunk() {
        let common = Common::decode(*first);
        let (whole, rest) = bytes.split_at(common.len as usize);
        let data_offset = usize::from(common.data_offset.max(common.header_len));
        let header = Header::decode(common, whole).expect("a PDU");
        pdus.push(Pdu { header, data: whole[data_offset..].to_vec() });
        bytes = rest;
    }
    pdus
}
