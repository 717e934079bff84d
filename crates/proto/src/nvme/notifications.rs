//! The Reservation Notification log page (80h) of one controller and its mask (NVMe base 2.0 §8.19), and the
//! controller's asynchronous events (NVMe base 2.1 §5.1.2).

use alloc::{collections::VecDeque, vec, vec::Vec};

use super::command::{CommandId, log_id};
use crate::reservation::Notice;

const PAGE_LEN: usize = 64;
/// Maximum unread pages. Later notices are lost; the count in the next page shows this.
const PAGES_MAX: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Page {
    count: u64,
    notice: Notice,
    nsid: u32,
}

#[derive(Debug, Default)]
pub(super) struct Notifications {
    /// Number of notices so far, including lost ones.
    count: u64,
    pages: VecDeque<Page>,
    /// Nonzero masks by namespace: the Reservation Notification Mask feature (NVMe base 2.1 §5.1.25.1.29).
    masks: Vec<(u32, u32)>,
}

/// Valid bits of the mask, one per notice.
const MASK: u32 = 0b1110;

impl Notifications {
    pub(super) fn mask(&self, nsid: u32) -> u32 {
        self.masks.iter().find(|(of, _)| *of == nsid).map_or(0, |(_, mask)| *mask)
    }

    /// Sets the mask of an existing namespace, so that the list stays short.
    pub(super) fn set_mask(&mut self, nsid: u32, mask: u32) {
        self.masks.retain(|(of, _)| *of != nsid);
        if mask & MASK != 0 {
            self.masks.push((nsid, mask & MASK));
        }
    }

    pub(super) fn put(&mut self, nsid: u32, notice: Notice) {
        if self.mask(nsid) >> notice as u32 & 1 != 0 {
            return;
        }
        // 0 means that there is no notice.
        self.count = self.count.wrapping_add(1).max(1);
        if self.pages.len() < PAGES_MAX {
            self.pages.push_back(Page { count: self.count, notice, nsid });
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Returns the oldest page, or an empty one if there is none. Removes it unless it `stays`.
    pub(super) fn read(&mut self, stays: bool) -> Vec<u8> {
        let mut bytes = vec![0; PAGE_LEN];
        if let Some(Page { count, notice, nsid }) = self.pages.front() {
            bytes[..8].copy_from_slice(&count.to_le_bytes());
            bytes[8] = *notice as u8;
            bytes[9] = u8::try_from(self.pages.len() - 1).unwrap_or(u8::MAX);
            bytes[12..16].copy_from_slice(&nsid.to_le_bytes());
        }
        if !stays {
            self.pages.pop_front();
        }
        bytes
    }
}

/// An event that completes an Asynchronous Event Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    NamespaceChanged,
    DiscoveryChanged,
    AccessChanged,
    ReservationNotified,
}

impl Event {
    /// Dword 0 of the completion: type, information and the log page to read (NVMe base 2.1 §5.1.2.1).
    fn result(self) -> u64 {
        const NOTICE: u64 = 2;
        const IO_COMMAND_SPECIFIC: u64 = 6;
        let (kind, information) = match self {
            Self::NamespaceChanged => (NOTICE, 0x00),
            Self::AccessChanged => (NOTICE, 0x03),
            Self::DiscoveryChanged => (NOTICE, 0xf0),
            Self::ReservationNotified => (IO_COMMAND_SPECIFIC, 0x00),
        };
        kind | information << 8 | u64::from(self.log_page()) << 16
    }

    fn log_page(self) -> u8 {
        match self {
            Self::NamespaceChanged => log_id::CHANGED_NAMESPACES,
            Self::DiscoveryChanged => log_id::DISCOVERY,
            Self::AccessChanged => log_id::ANA,
            Self::ReservationNotified => log_id::RESERVATION_NOTIFICATION,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Events {
    /// CIDs of outstanding Asynchronous Event Requests.
    pub(super) requests: VecDeque<CommandId>,
    /// Events to report, without duplicates.
    pending: Vec<Event>,
    /// Events that were reported. A second one of the same kind waits until its log page is read.
    masked: Vec<Event>,
}

impl Events {
    pub(super) fn raise(&mut self, event: Event) {
        if !self.pending.contains(&event) {
            self.pending.push(event);
        }
    }

    /// Removes an event that there is no reason to report any more.
    pub(super) fn withdraw(&mut self, event: Event) {
        self.pending.retain(|pending| *pending != event);
    }

    /// Notes that a log page was read.
    pub(super) fn read(&mut self, log_page: u8) {
        self.masked.retain(|masked| masked.log_page() != log_page);
    }

    /// Returns the CID and result of an event request that can be completed now.
    pub(super) fn poll(&mut self) -> Option<(CommandId, u64)> {
        let at = self.pending.iter().position(|pending| !self.masked.contains(pending))?;
        let cid = self.requests.pop_front()?;
        let event = self.pending.remove(at);
        self.masked.push(event);
        Some((cid, event.result()))
    }

    /// Forgets all events, and returns the event requests.
    pub(super) fn reset(&mut self) -> VecDeque<CommandId> {
        core::mem::take(self).requests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_read_in_order_and_the_count_tells_of_those_lost() {
        let mut notifications = Notifications::default();
        notifications.put(1, Notice::RegistrationPreempted);
        notifications.put(2, Notice::ReservationReleased);
        assert_eq!(notifications.read(true), notifications.read(false));
        assert_eq!(notifications.read(false)[..16], [2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!((notifications.read(false), notifications.is_empty()), (vec![0; PAGE_LEN], true));
        for _ in 0..PAGES_MAX + 5 {
            notifications.put(1, Notice::ReservationPreempted);
        }
        assert_eq!(notifications.read(false)[9], PAGES_MAX as u8 - 1);
        while !notifications.is_empty() {
            notifications.read(false);
        }
        notifications.put(1, Notice::ReservationPreempted);
        assert_eq!(u64::from(notifications.read(false)[0]), 2 + PAGES_MAX as u64 + 5 + 1);
    }

    #[test]
    fn masked_notices_of_a_namespace_are_not_kept() {
        let mut notifications = Notifications::default();
        notifications.set_mask(1, 0xff);
        assert_eq!((notifications.mask(1), notifications.mask(2)), (MASK, 0));
        notifications.put(1, Notice::ReservationReleased);
        assert!(notifications.is_empty());
        notifications.set_mask(1, 1 << 1);
        notifications.put(1, Notice::ReservationReleased);
        assert!(!notifications.is_empty());
    }
}

#[cfg(test)]
mod events_tests {
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
