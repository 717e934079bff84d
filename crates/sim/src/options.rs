//! The parameters of a trial: drawn from its seed, and written down so that it can be run again.

use std::{fmt, str::FromStr};

use iotax_node::{seeded::SeededRng, server::Protocol};

/// The faults of the safety phase; README.md describes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    Split,
    Reset,
    Stall,
    HalfClose,
    Vanish,
    Crash,
    PowerLoss,
    MediaError,
    SlowMedia,
    DiskFull,
    ClockStep,
    InitiatorCrash,
    LoginStorm,
    PathFlap,
    Starve,
}

impl Fault {
    pub const ALL: [(Self, &'static str); 15] = [
        (Self::Split, "split"),
        (Self::Reset, "reset"),
        (Self::Stall, "stall"),
        (Self::HalfClose, "half-close"),
        (Self::Vanish, "vanish"),
        (Self::Crash, "crash"),
        (Self::PowerLoss, "power-loss"),
        (Self::MediaError, "media-error"),
        (Self::SlowMedia, "slow-media"),
        (Self::DiskFull, "disk-full"),
        (Self::ClockStep, "clock-step"),
        (Self::InitiatorCrash, "initiator-crash"),
        (Self::LoginStorm, "login-storm"),
        (Self::PathFlap, "path-flap"),
        (Self::Starve, "starve"),
    ];
    /// Faults that existed first. Later ones are drawn after them, so that a seed still gives the same world.
    const FIRST: usize = 12;
}

/// A bug inserted between the code under test and the world, which the checkers must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// Flushes that never reach the disk.
    DroppedFlush,
    /// Reads that get each other's data.
    WrongTag,
    /// Resent calls that the server does not recognize: they are sent as new calls, in a new session if the protocol
    /// has sessions.
    ForgottenCall,
    /// Clients consider a preemption done that they never sent: the other client's reservation is unchanged.
    StaleReservation,
}

impl Canary {
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::DroppedFlush, "dropped-flush"),
        (Self::WrongTag, "wrong-tag"),
        (Self::ForgottenCall, "forgotten-call"),
        (Self::StaleReservation, "stale-reservation"),
    ];
}

pub const PROTOCOLS: [(Protocol, &str); 6] = [
    (Protocol::NvmeTcp, "nvme-tcp"),
    (Protocol::Iscsi, "iscsi"),
    (Protocol::Nfs3, "nfs3"),
    (Protocol::Fcp, "fcp"),
    (Protocol::FcNvme, "fc-nvme"),
    (Protocol::Nfs41, "nfs4.1"),
];

/// Whether a protocol is one of files, with names and without reservations.
pub(crate) fn is_of_files(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::Nfs3 | Protocol::Nfs41)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub protocol: Protocol,
    pub seed: u64,
    pub faults: Vec<Fault>,
    /// Number of clients, I/O connections of each, and concurrent commands on each connection.
    pub agents: u32,
    pub workers: u32,
    pub depth: u32,
    /// Threads of the server.
    pub threads: u32,
    /// Block size of the volume's disk; 0: the volume is memory.
    pub block_size: u32,
    /// Adds a client that creates, renames and removes names (NFS).
    pub names: bool,
    /// Clients register at the unit, hold its reservation and preempt each other (SCSI and NVMe).
    pub reserves: bool,
    /// Number of commands in the safety phase.
    pub commands: u64,
    pub canary: Option<Canary>,
}

impl Options {
    /// Draws a world from a seed. Each world has some of the faults, so that a few occur together.
    pub fn draw(protocol: Protocol, seed: u64) -> Self {
        let mut random = SeededRng::new(seed, "options", protocol as u64);
        let share = random.below(4) + 1;
        let block_size = [512, 512, 512, 4096, 0][random.below(5) as usize];
        let of_disk = [Fault::Crash, Fault::PowerLoss, Fault::MediaError, Fault::SlowMedia, Fault::DiskFull];
        let first = Fault::ALL.iter().take(Fault::FIRST).map(|(fault, _)| *fault);
        let faults = first.filter(|_| random.below(8) < share);
        let faults = faults.collect::<Vec<_>>().into_iter().filter(|fault| block_size > 0 || !of_disk.contains(fault));
        let mut options = Self {
            protocol,
            seed,
            faults: faults.collect(),
            agents: random.below(3) as u32 + 1,
            workers: random.below(2) as u32 + 1,
            depth: random.below(6) as u32 + 1,
            threads: random.below(2) as u32 + 1,
            block_size,
            names: is_of_files(protocol),
            reserves: false,
            commands: 200 + random.below(200),
            canary: None,
        };
        let later = Fault::ALL.iter().skip(Fault::FIRST).map(|(fault, _)| *fault);
        options.faults.extend(later.filter(|_| random.below(8) < share));
        options.reserves = options.can_reserve() && random.below(3) == 0;
        options
    }

    fn can_reserve(&self) -> bool {
        !is_of_files(self.protocol)
    }

    pub fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }
}

fn name<T: PartialEq + Copy>(of: T, names: &[(T, &'static str)]) -> &'static str {
    names.iter().find(|(each, _)| *each == of).map_or("unknown", |(_, name)| name)
}

/// One of `PROTOCOLS`, or an error that lists them.
pub fn protocol_named(text: &str) -> Result<Protocol, String> {
    named(text, &PROTOCOLS)
}

fn named<T: Copy>(text: &str, names: &[(T, &'static str)]) -> Result<T, String> {
    let known = || names.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
    let found = names.iter().find(|(_, name)| *name == text).map(|(each, _)| *each);
    found.ok_or_else(|| format!("'{text}' is none of {}", known()))
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, agents, workers, depth, threads, block_size, names, reserves, commands, .. } = self;
        let faults: Vec<_> = self.faults.iter().map(|fault| name(*fault, &Fault::ALL)).collect();
        write!(f, "protocol={} seed={seed} faults={} ", name(self.protocol, &PROTOCOLS), faults.join(","))?;
        write!(f, "agents={agents} workers={workers} depth={depth} threads={threads} block_size={block_size} ")?;
        write!(f, "names={} reserves={} commands={commands}", u8::from(*names), u8::from(*reserves))?;
        self.canary.map_or(Ok(()), |canary| write!(f, " canary={}", name(canary, &Canary::ALL)))
    }
}

/// Parses the displayed form; missing options are drawn from the seed.
impl FromStr for Options {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pairs: Vec<(&str, &str)> = text
            .split_whitespace()
            .map(|word| word.split_once('=').ok_or_else(|| format!("'{word}' is not a NAME=VALUE")))
            .collect::<Result<_, _>>()?;
        let value = |name: &str| pairs.iter().find(|(each, _)| *each == name).map(|(_, value)| *value);
        let needed = |name: &str| value(name).ok_or_else(|| format!("{name}= is missing"));
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("'{text}' is not a number"));
        let mut options = Self::draw(protocol_named(needed("protocol")?)?, number(needed("seed")?)?);
        for (name, value) in &pairs {
            match *name {
                "protocol" | "seed" => {}
                "faults" => {
                    let faults = value.split(',').filter(|fault| !fault.is_empty());
                    options.faults = faults.map(|fault| named(fault, &Fault::ALL)).collect::<Result<_, _>>()?;
                }
                "agents" => options.agents = within(number(value)?, 1, 64, name)?,
                "workers" => options.workers = within(number(value)?, 1, 64, name)?,
                "depth" => options.depth = within(number(value)?, 1, 1024, name)?,
                "threads" => options.threads = within(number(value)?, 1, 16, name)?,
                "block_size" => match number(value)? {
                    size @ (0 | 512 | 4096) => options.block_size = size as u32,
                    _ => return Err("block_size is 0, 512 or 4096".to_owned()),
                },
                "names" => match (number(value)?, options.protocol) {
                    (0, _) => options.names = false,
                    (1, protocol) if is_of_files(protocol) => options.names = true,
                    _ => return Err("names is 0, or 1 over NFS".to_owned()),
                },
                "reserves" => match (number(value)?, options.can_reserve()) {
                    (0, _) => options.reserves = false,
                    (1, true) => options.reserves = true,
                    _ => return Err("reserves is 0, or 1 over block protocols".to_owned()),
                },
                "commands" => options.commands = number(value)?,
                "canary" => options.canary = Some(named(value, &Canary::ALL)?),
                other => return Err(format!("'{other}' is not an option")),
            }
        }
        Ok(options)
    }
}

fn within(number: u64, least: u64, most: u64, name: &str) -> Result<u32, String> {
    let refused = || format!("{name} is {least} to {most}");
    if (least..=most).contains(&number) { u32::try_from(number).map_err(|_| refused()) } else { Err(refused()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_down_is_read_back() {
        for (protocol, _) in PROTOCOLS {
            for seed in 0..50 {
                let options = Options::draw(protocol, seed);
                assert_eq!(options.to_string().parse(), Ok(options));
            }
        }
        let with_canary = Options { canary: Some(Canary::WrongTag), ..Options::draw(Protocol::Iscsi, 3) };
        assert_eq!(with_canary.to_string().parse(), Ok(with_canary));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, word) in [
            ("protocol=iscsi", "seed"),
            ("protocol=fc seed=1", "nvme-tcp"),
            ("protocol=nfs3 seed=1 faults=flood", "flood"),
            ("protocol=nfs3 seed=1 agents=0", "agents"),
            ("protocol=nfs3 seed=1 reserves=1", "reserves"),
            ("protocol=nfs3 seed=1 mood=bad", "mood"),
        ] {
            let error = text.parse::<Options>().expect_err(text);
            assert!(error.contains(word), "{error}");
        }
    }
}
