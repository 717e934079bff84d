//! The task after a run with `read_back`: reads every block that the run has written and that was acknowledged, and
//! checks it.

use iotax_proto::{Io, IoError, Tag};

use super::{run::RunTask, verdict::Wrong};

#[derive(Debug)]
pub(super) struct ReadBackTask {
    run: Box<RunTask>,
    /// Byte in the unit from which to look for the next written block; none: all are found.
    next: Option<u64>,
    /// Blocks read so far, in the load's own size.
    pub(super) done: u64,
}

impl ReadBackTask {
    pub(super) fn new(run: Box<RunTask>) -> Self {
        Self { next: Some(0), run, done: 0 }
    }

    pub(super) fn next(&mut self, tag: Tag) -> Option<Io> {
        let found = self.next.and_then(|from| self.run.read_back(tag, from));
        self.next = found.as_ref().map(|(_, after)| *after);
        Some(found?.0)
    }

    /// Whether every block was asked for.
    pub(super) fn is_over(&self) -> bool {
        self.next.is_none()
    }

    pub(super) fn data(&mut self, tag: Tag, at: u32, bytes: &[u8]) {
        self.run.data(tag, at, bytes);
    }

    pub(super) fn begin_again(&mut self, tag: Tag) {
        self.run.begin_again(tag);
    }

    /// The first wrong block, if there is one.
    pub(super) fn complete(&mut self, tag: Tag, result: Result<(), IoError>) -> Result<(), Fault> {
        let offset = self.run.has_read_back(tag);
        result.map_err(|error| Fault::Failed(error, offset))?;
        self.done += 1;
        self.run.wrong.clone().map_or(Ok(()), |wrong| Err(Fault::Wrong(wrong)))
    }

    /// The run, whose count of blocks is then complete.
    pub(super) fn into_run(self) -> Box<RunTask> {
        self.run
    }
}

#[derive(Debug)]
pub(super) enum Fault {
    Failed(IoError, u64),
    Wrong(Wrong),
}
