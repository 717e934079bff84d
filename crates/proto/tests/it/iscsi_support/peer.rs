//! An initiator that sends single PDUs, including those that a correct initiator never sends.

use iotax_proto::{
    Instant, Target, Transmit, Violation,
    iscsi::{
        pdu::{
            Bhs, Fragment, Framer, LoginRequest, LoginResponse, ScsiCommand, Sender, SessionHandle, TaskTag,
            control::{LoginStatus, stage},
        },
        target_side::{Config, Connection},
        text,
    },
};

use super::{INITIATOR, MemoryBackend, TARGET, give};

const BHS_LEN: usize = 48;

pub struct Peer {
    pub now: Instant,
    pub target: Connection,
    pub backend: MemoryBackend,
    pub sender: Sender,
    pub framer: Framer,
    /// CmdSN of the next command.
    pub cmd_sn: u32,
    pub isid: [u8; 6],
}

impl Peer {
    /// A connection on which nothing has been sent yet.
    pub fn new(config: Config, backend: MemoryBackend) -> Self {
        let now = Instant(0);
        Self {
            now,
            target: Connection::new(now, config),
            backend,
            sender: Sender::default(),
            framer: Framer::new(1 << 20),
            cmd_sn: 1,
            isid: [0x80, 0, 0, 0, 0, 9],
        }
    }

    /// A connection that has logged in with one request that contains these operational keys.
    pub fn logged_in(config: Config, backend: MemoryBackend, keys: &[(&str, &str)]) -> Self {
        let mut peer = Self::new(config, backend);
        let (response, _) = peer.login(keys);
        assert_eq!((response.status, response.nsg), (LoginStatus::SUCCESS, stage::FULL_FEATURE));
        assert_ne!(response.tsih, SessionHandle::NEW);
        peer
    }

    pub fn login(&mut self, keys: &[(&str, &str)]) -> (LoginResponse, String) {
        let mut all = vec![("InitiatorName", INITIATOR), ("TargetName", TARGET)];
        all.extend_from_slice(keys);
        let request = self.login_request(stage::OPERATIONAL, stage::FULL_FEATURE);
        self.say(request, &all)
    }

    /// Sends a Login Request and does not wait for the response.
    pub fn ask_login(&mut self) {
        let request = self.login_request(stage::OPERATIONAL, stage::FULL_FEATURE);
        let keys = format!("InitiatorName={INITIATOR}\0TargetName={TARGET}\0");
        self.send(request.encode(), keys.as_bytes()).unwrap();
    }

    pub fn login_request(&self, csg: u8, nsg: u8) -> LoginRequest {
        LoginRequest {
            immediate: true,
            transit: nsg > csg,
            csg,
            nsg,
            isid: self.isid,
            itt: TaskTag(0x77),
            cmd_sn: self.cmd_sn,
            ..LoginRequest::default()
        }
    }

    /// Sends a Login Request. Returns the response and its text, with spaces between the pairs.
    pub fn say(&mut self, request: LoginRequest, keys: &[(&str, &str)]) -> (LoginResponse, String) {
        let text: Vec<_> = keys.iter().flat_map(|(key, value)| [*key, "=", *value, "\0"]).collect();
        let text = text.concat();
        // For a refused login, the driver gets a violation and the peer gets a response.
        let _ = self.send(request.encode(), text.as_bytes());
        let [(bhs, text)] = &self.answers()[..] else { panic!("one response a request") };
        let pairs = text::pairs(text).unwrap();
        let text: Vec<_> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
        (LoginResponse::parse(bhs), text.join(" "))
    }

    /// Delivers a PDU: first its header, then the rest. The rest goes to its place in memory if the backend names one.
    pub fn send(&mut self, bhs: Bhs, data: &[u8]) -> Result<(), Violation> {
        let mut transmit = Transmit::default();
        self.sender.bytes(&mut transmit, bhs, data);
        let bytes = transmit.take_bytes();
        let (header, rest) = bytes.split_at(BHS_LEN);
        give(&mut self.target, self.now, header, &mut self.backend)?;
        give(&mut self.target, self.now, rest, &mut self.backend)
    }

    /// The PDUs that the target sent since the last call.
    pub fn answers(&mut self) -> Vec<(Bhs, Vec<u8>)> {
        let bytes = Target::<MemoryBackend>::transmit(&mut self.target).take_bytes();
        let mut input = &bytes[..];
        let mut answers: Vec<(Bhs, Vec<u8>)> = Vec::new();
        while let Some(step) = self.framer.next(&mut input).unwrap() {
            match step {
                Fragment::Header(bhs) => answers.push((bhs, Vec::new())),
                Fragment::Data { bytes, .. } => answers.last_mut().unwrap().1.extend_from_slice(bytes),
                Fragment::End { intact } => assert!(intact),
            }
        }
        answers
    }

    /// Delivers a PDU and returns its only answer.
    pub fn ask(&mut self, bhs: Bhs, data: &[u8]) -> (Bhs, Vec<u8>) {
        self.send(bhs, data).unwrap();
        let mut answers = self.answers();
        assert_eq!(answers.len(), 1, "one answer");
        answers.remove(0)
    }

    pub fn take_cmd_sn(&mut self) -> u32 {
        self.cmd_sn += 1;
        self.cmd_sn - 1
    }

    /// Clears the unit attention conditions of a new session.
    pub fn clear_attentions(&mut self) {
        for itt in 0..16 {
            let test =
                ScsiCommand { last: true, itt: TaskTag(itt), cmd_sn: self.take_cmd_sn(), ..ScsiCommand::default() };
            let (bhs, _) = self.ask(test.encode(), &[]);
            if bhs.0[3] == 0 {
                return;
            }
        }
        panic!("unit attention conditions end");
    }

    /// WRITE (10) of `blocks` at LBA 0. The caller chooses the expected data length.
    pub fn write_command(&mut self, itt: TaskTag, blocks: u16, expected_data_len: u32) -> ScsiCommand {
        let mut command = self.command(itt, &[0x2a], expected_data_len);
        command.cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
        command.write = true;
        command
    }

    /// READ (10) of `blocks` at LBA 0.
    pub fn read_command(&mut self, itt: TaskTag, blocks: u16, expected_data_len: u32) -> ScsiCommand {
        let mut command = self.command(itt, &[0x28], expected_data_len);
        command.cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
        command.read = true;
        command
    }

    pub fn command(&mut self, itt: TaskTag, opcode: &[u8], expected_data_len: u32) -> ScsiCommand {
        assert_ne!(itt, TaskTag::RESERVED);
        let mut command =
            ScsiCommand { last: true, itt, expected_data_len, cmd_sn: self.take_cmd_sn(), ..ScsiCommand::default() };
        command.cdb[..opcode.len()].copy_from_slice(opcode);
        command
    }
}
