//! A text exchange under way.

use crate::iscsi::{
    pdu::TaskTag,
    text::{TextIn, TextOut},
};

/// A text exchange that takes more than one request.
#[derive(Debug, Default)]
pub(super) struct TextExchange {
    /// ITT of the exchange, where one is open.
    pub(super) open: Option<TaskTag>,
    pub(super) text_in: TextIn,
    pub(super) text_out: TextOut,
}
