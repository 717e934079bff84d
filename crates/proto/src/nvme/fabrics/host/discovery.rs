//! Fetches the log of a discovery controller.

use alloc::vec::Vec;
use core::fmt;

use super::{
    Answer, Connection, SessionConfig,
    admin_channel::{AdminChannel, Event},
};
use crate::{
    Instant, Transmit, Violation,
    nvme::{
        CommandId, DISCOVERY_NQN, DiscoveryEntry,
        command::log_id,
        discovery::{self, ENTRY_LEN, HEADER_LEN},
        log::GetLogPage,
        subsystem::DiscoveryLog,
    },
};

/// Entries fetched by one command, and the maximum in all: a longer log is rejected.
const ENTRIES_AT_A_TIME: u64 = 4;
const MAX_ENTRIES: u64 = 1024;
/// How often a log that changes while it is read is read again, at most.
const MAX_ROUNDS: u8 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    BringUp,
    Header,
    Entries,
    /// Reading the header again: the same generation means that the entries belong together (NVMe base 2.1
    /// §5.1.12.3.1).
    Check,
    Done,
    Down,
}

/// A connection to a discovery controller that fetches the log, then shuts the controller down.
pub struct Discovery<C> {
    channel: AdminChannel<C>,
    stage: Stage,
    generation: u64,
    count: u64,
    entries: Vec<DiscoveryEntry>,
    rounds: u8,
}

impl<C: Connection> Discovery<C> {
    /// Creates the client on a connection that was just opened. Ignores `config.subnqn`: the discovery subsystem has
    /// its own name.
    pub fn on(now: Instant, connection: C, config: SessionConfig) -> Self {
        let config = SessionConfig { subnqn: DISCOVERY_NQN.into(), ..config };
        Self {
            channel: AdminChannel::new(now, connection, config),
            stage: Stage::BringUp,
            generation: 0,
            count: 0,
            entries: Vec::new(),
            rounds: 0,
        }
    }

    /// The log, once it was read completely.
    pub fn log(&self) -> Option<DiscoveryLog> {
        matches!(self.stage, Stage::Done | Stage::Down)
            .then(|| DiscoveryLog { generation: self.generation, entries: self.entries.clone() })
    }

    /// Nothing more will be sent: the connection can be closed.
    pub fn is_closed(&self) -> bool {
        self.stage == Stage::Down
    }

    pub fn transmit(&mut self) -> &mut Transmit {
        self.channel.transmit()
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        self.channel.poll_timeout()
    }

    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), Violation> {
        self.channel.handle_timeout(now)
    }

    pub fn receive(&mut self, now: Instant, mut bytes: &[u8]) -> Result<(), Violation> {
        while let Some(event) = self.channel.receive(now, &mut bytes)? {
            match event {
                Event::Up(_) => self.fetch_header(now, Stage::Header),
                Event::Reply(Answer { cqe, .. }) if !cqe.status.is_success() => {
                    return Err(Violation::refused(cqe.status.refusal(), cqe.status.name()));
                }
                Event::Reply(Answer { data, .. }) => self.on_reply(now, &data)?,
                Event::Notice(_) => {}
                Event::Down => self.stage = Stage::Down,
            }
        }
        Ok(())
    }

    fn on_reply(&mut self, now: Instant, data: &[u8]) -> Result<(), Violation> {
        match self.stage {
            Stage::Header => {
                let (generation, count) = parse_header(data)?;
                self.generation = generation;
                self.count = count;
                self.entries.clear();
                self.fetch_entries(now);
            }
            Stage::Entries => {
                self.entries.extend(discovery::parse_entries(data));
                self.fetch_entries(now);
            }
            Stage::Check => {
                let (generation, _) = parse_header(data)?;
                self.rounds += 1;
                if generation == self.generation {
                    self.stage = Stage::Done;
                    self.channel.shut_down(now);
                } else if self.rounds < MAX_ROUNDS {
                    self.fetch_header(now, Stage::Header);
                } else {
                    return Err(misbehaved!(
                        "NVMe base 2.1 §5.1.12.3.1: the discovery log changes faster than it can be read"
                    ));
                }
            }
            Stage::BringUp | Stage::Done | Stage::Down => {}
        }
        Ok(())
    }

    fn fetch_header(&mut self, now: Instant, stage: Stage) {
        self.stage = stage;
        self.get(now, HEADER_LEN as u32, 0);
    }

    fn fetch_entries(&mut self, now: Instant) {
        let have = self.entries.len() as u64;
        let count = self.count.saturating_sub(have).min(ENTRIES_AT_A_TIME);
        if count == 0 {
            self.fetch_header(now, Stage::Check);
            return;
        }
        self.stage = Stage::Entries;
        self.get(now, (count * ENTRY_LEN as u64) as u32, HEADER_LEN as u64 + have * ENTRY_LEN as u64);
    }

    fn get(&mut self, now: Instant, len: u32, offset: u64) {
        self.channel.submit(now, GetLogPage::sqe(log_id::DISCOVERY, len, offset, CommandId(0)), len);
    }
}

fn parse_header(data: &[u8]) -> Result<(u64, u64), Violation> {
    discovery::parse_header(data).filter(|(_, count)| *count <= MAX_ENTRIES).ok_or(malformed!(
        "NVMe base 2.1 §5.1.12.3.1: the discovery log has no header, or more entries than are believed"
    ))
}

impl<C> fmt::Debug for Discovery<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Discovery").field("stage", &self.stage).finish_non_exhaustive()
    }
}
