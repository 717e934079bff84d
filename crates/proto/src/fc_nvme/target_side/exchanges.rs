//! The exchanges open, by OX_ID: an initiator puts what it likes there, and may use any of 65,536.

use alloc::boxed::Box;

use crate::{
    fc::{OxId, RxId, sequence::Collect},
    nvme::CommandId,
};

/// A command's exchange.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Exchange {
    pub(super) is_open: bool,
    /// Of the I/O queue.
    pub(super) is_io: bool,
    pub(super) cid: CommandId,
    /// The queue's slot, once data were asked for.
    pub(super) rx_id: RxId,
    /// Bytes that the command announced.
    pub(super) data_len: u32,
    /// Bytes sent of a read.
    pub(super) sent: u32,
    pub(super) collect: Collect,
    /// A fabrics command, whose answer always tells something.
    pub(super) is_fabrics: bool,
}

#[derive(Debug, Default)]
pub(super) struct Exchanges {
    pages: Pages<Exchange>,
}

impl Exchanges {
    /// The exchange, where it is open.
    #[inline]
    pub(super) fn get(&mut self, ox_id: OxId) -> Option<&mut Exchange> {
        self.pages.get_mut(ox_id.0).filter(|exchange| exchange.is_open)
    }

    /// Opens one that is not open.
    #[inline]
    pub(super) fn open(&mut self, ox_id: OxId, exchange: Exchange) {
        *self.pages.entry(ox_id.0) = Exchange { is_open: true, ..exchange };
    }

    /// Closes the exchange and gives what it was; `None` where it was not open.
    #[inline]
    pub(super) fn close(&mut self, ox_id: OxId) -> Option<Exchange> {
        let exchange = self.get(ox_id)?;
        exchange.is_open = false;
        Some(*exchange)
    }

    /// Any that is open, to be closed.
    pub(super) fn any(&self) -> Option<OxId> {
        self.pages.position(|exchange| exchange.is_open).map(OxId)
    }

    /// Any of the I/O queue, or of the admin queue.
    pub(super) fn any_of(&self, is_io: bool) -> Option<OxId> {
        self.pages.position(|exchange| exchange.is_open && exchange.is_io == is_io).map(OxId)
    }
}

/// As many as a page has; initiators that number densely touch few pages.
const PAGE: usize = 128;
const PAGES: usize = (1 << 16) / PAGE;

/// A value for each of the 65,536 that 16 bits name, with room only for those that were ever named, and no search.
#[derive(Debug)]
pub(super) struct Pages<T> {
    pages: Box<[Option<Box<[T; PAGE]>>]>,
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Self { pages: (0..PAGES).map(|_| None).collect() }
    }
}

impl<T: Copy + Default> Pages<T> {
    #[inline]
    pub(super) fn get_mut(&mut self, name: u16) -> Option<&mut T> {
        let page = self.pages[usize::from(name) / PAGE].as_mut()?;
        Some(&mut page[usize::from(name) % PAGE])
    }

    #[inline]
    pub(super) fn entry(&mut self, name: u16) -> &mut T {
        let page = self.pages[usize::from(name) / PAGE].get_or_insert_with(|| Box::new([T::default(); PAGE]));
        &mut page[usize::from(name) % PAGE]
    }

    fn position(&self, is_meant: impl Fn(&T) -> bool) -> Option<u16> {
        let pages = self.pages.iter().enumerate().filter_map(|(page, entries)| Some((page, entries.as_ref()?)));
        pages
            .flat_map(|(page, entries)| entries.iter().enumerate().map(move |(at, entry)| (page * PAGE + at, entry)))
            .find(|(_, entry)| is_meant(entry))
            .map(|(name, _)| name as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchanges_are_found_by_any_name_while_they_are_open() {
        let mut exchanges = Exchanges::default();
        for ox_id in [0, 127, 128, 0xffff] {
            assert!(exchanges.get(OxId(ox_id)).is_none());
            exchanges.open(OxId(ox_id), Exchange { cid: CommandId(ox_id), is_io: ox_id > 127, ..Exchange::default() });
            assert_eq!(exchanges.get(OxId(ox_id)).map(|exchange| exchange.cid), Some(CommandId(ox_id)));
        }
        assert_eq!((exchanges.any(), exchanges.any_of(true)), (Some(OxId(0)), Some(OxId(128))));
        assert!(exchanges.close(OxId(128)).is_some() && exchanges.close(OxId(128)).is_none());
        assert_eq!(exchanges.any_of(true), Some(OxId(0xffff)));
    }
}
