//! Asynchronous events of one controller (NVMe base 2.1 §5.1.2): requests that wait, and what there is to tell.

use alloc::{collections::VecDeque, vec::Vec};

use super::command::{CommandId, log_id};

/// Something that an Asynchronous Event Request can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    NamespaceChanged,
    DiscoveryChanged,
    ReservationNotified,
}

impl Event {
    /// Dword 0 of the completion: type, information, log page to read (NVMe base 2.1 §5.1.2.1).
    fn result(self) -> u64 {
        const NOTICE: u64 = 2;
        const IO_COMMAND_SPECIFIC: u64 = 6;
        let (kind, information) = match self {
            Self::NamespaceChanged => (NOTICE, 0x00),
            Self::DiscoveryChanged => (NOTICE, 0xf0),
            Self::ReservationNotified => (IO_COMMAND_SPECIFIC, 0x00),
        };
        kind | information << 8 | u64::from(self.log_page()) << 16
    }

    fn log_page(self) -> u8 {
        match self {
            Self::NamespaceChanged => log_id::CHANGED_NAMESPACES,
            Self::DiscoveryChanged => log_id::DISCOVERY,
            Self::ReservationNotified => log_id::RESERVATION_NOTIFICATION,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Events {
    /// CIDs of Asynchronous Event Requests outstanding.
    pub(super) requests: VecDeque<CommandId>,
    /// Each once.
    pending: Vec<Event>,
    /// Told already, and not read yet: no second event of the kind until its log page is read.
    masked: Vec<Event>,
}

impl Events {
    pub(super) fn raise(&mut self, event: Event) {
        if !self.pending.contains(&event) {
            self.pending.push(event);
        }
    }

    /// There is nothing to tell of it any more.
    pub(super) fn withdraw(&mut self, event: Event) {
        self.pending.retain(|pending| *pending != event);
    }

    /// A log page was read.
    pub(super) fn read(&mut self, log_page: u8) {
        self.masked.retain(|masked| masked.log_page() != log_page);
    }

    /// An event request that can be completed now: its CID and result.
    pub(super) fn poll(&mut self) -> Option<(CommandId, u64)> {
        let at = self.pending.iter().position(|pending| !self.masked.contains(pending))?;
        let cid = self.requests.pop_front()?;
        let event = self.pending.remove(at);
        self.masked.push(event);
        Some((cid, event.result()))
    }

    /// Nothing is to be told; the requests are given back.
    pub(super) fn reset(&mut self) -> VecDeque<CommandId> {
        core::mem::take(self).requests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_different_kinds_do_not_mask_each_other() {
        let mut events = Events::default();
        events.requests.extend([CommandId(1), CommandId(2), CommandId(3)]);
        for event in [Event::NamespaceChanged, Event::ReservationNotified, Event::ReservationNotified] {
            events.raise(event);
        }
        assert_eq!(events.poll(), Some((CommandId(1), 0x0004_0002)));
        assert_eq!(events.poll(), Some((CommandId(2), 0x0080_0006)));
        events.raise(Event::ReservationNotified);
        assert_eq!(events.poll(), None);
        events.read(log_id::CHANGED_NAMESPACES);
        assert_eq!(events.poll(), None);
        events.read(log_id::RESERVATION_NOTIFICATION);
        assert_eq!(events.poll(), Some((CommandId(3), 0x0080_0006)));
    }
}
