//! Task management functions whose answer waits for what they aborted.

use crate::{Wait, iscsi::pdu::TaskTag};

/// A task management function that is done but for what it waits for.
#[derive(Debug)]
pub(super) struct Managed {
    pub(super) wait: Wait,
    pub(super) itt: TaskTag,
    /// RFC 7143 §11.5.1: TARGET COLD RESET closes every connection to the target, this one too.
    pub(super) closes: bool,
}
