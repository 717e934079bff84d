//! The query for the access through a target port (SPC-4 §5.15): REPORT TARGET PORT GROUPS, until it is answered.

use alloc::vec::Vec;

use super::{
    CommandOutcome, ProbeCommand, outcome, parse_access_state,
    query::{TRIES_MAX, add, refused},
    report_target_port_groups,
};
use crate::{Violation, scsi::AccessState};

/// Maximum length of the answer in bytes: more than 300 groups of two ports.
const ANSWER_LEN_MAX: u16 = 4096 + 1024;

/// A query in progress.
#[derive(Debug, Default)]
pub struct AccessQuery {
    group: u16,
    tries: u32,
    answer: Vec<u8>,
}

/// The state of the query after a response.
#[derive(Clone, Copy, Debug)]
pub enum Asked {
    Again(ProbeCommand),
    Known(AccessState),
}

impl AccessQuery {
    /// Asks for the state of a target port group.
    pub fn of(group: u16) -> Self {
        Self { group, ..Self::default() }
    }

    pub fn group(&self) -> u16 {
        self.group
    }

    /// Begins to ask.
    pub fn begin(&mut self) -> ProbeCommand {
        self.tries = 0;
        self.ask()
    }

    fn ask(&mut self) -> ProbeCommand {
        self.tries += 1;
        self.answer.clear();
        ProbeCommand { cdb: report_target_port_groups(ANSWER_LEN_MAX.into()), len: ANSWER_LEN_MAX }
    }

    /// Adds response data; false if they are out of order or longer than requested.
    pub fn data(&mut self, offset: u32, bytes: &[u8]) -> bool {
        add(&mut self.answer, ANSWER_LEN_MAX, offset, bytes)
    }

    /// Processes the end of a response.
    pub fn end(&mut self, status: u8, sense: &[u8]) -> Result<Asked, Violation> {
        match outcome(status, sense) {
            CommandOutcome::Good => {
                let state = parse_access_state(&self.answer, self.group);
                Ok(Asked::Known(state.ok_or(unsupported!(
                    "SPC-4 §5.15: the target does not report the state of its target port group"
                ))?))
            }
            CommandOutcome::Retry(_) | CommandOutcome::AccessChanged(_) if self.tries < TRIES_MAX => {
                Ok(Asked::Again(self.ask()))
            }
            CommandOutcome::Retry(error) | CommandOutcome::AccessChanged(error) | CommandOutcome::Failed(error) => {
                Err(refused(&error))
            }
        }
    }
}
