//! Aborts and task management functions whose answer waits for what they aborted.

use crate::{
    Wait,
    fc::{OxId, RxId},
};

#[derive(Debug)]
pub(super) struct Managed {
    pub(super) wait: Wait,
    pub(super) ox_id: OxId,
    pub(super) of: ManagedBy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ManagedBy {
    Abts(RxId),
    Function,
}
