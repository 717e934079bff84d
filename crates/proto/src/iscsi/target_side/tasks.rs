//! The commands outstanding on a connection: a slot's number is the `IoId`, and stands in the TTTs of its R2Ts.

use super::collect::Collect;
use crate::{iscsi::pdu::TaskTag, scsi, tasks::TaskId};

/// A command under way.
#[derive(Debug, Default)]
pub(super) struct Task {
    pub(super) scsi: scsi::task::Task,
    /// Counts against the window, unlike an immediate command.
    pub(super) counted: bool,
    pub(super) collect: Collect,
}

impl TaskId for TaskTag {
    const NONE: Self = Self::RESERVED;
}

/// By ITT.
pub(super) type Tasks = crate::tasks::Tasks<TaskTag, Task>;
