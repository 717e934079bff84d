//! A directory: its entries in the order of names, and of cookies.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use super::Number;

/// Cookies of `.` and `..`; those of other entries are larger.
pub(super) const SELF_COOKIE: u64 = 1;
pub(super) const PARENT_COOKIE: u64 = 2;

/// The entries of a directory. An entry keeps its cookie for as long as it exists, and cookies are never reused: an
/// interrupted listing continues where it stopped, whatever was created or removed meanwhile.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) parent: Number,
    names: BTreeMap<Arc<[u8]>, (Number, u64)>,
    cookies: BTreeMap<u64, (Arc<[u8]>, Number)>,
    next_cookie: u64,
}

impl Directory {
    pub(super) fn new(parent: Number) -> Self {
        Self { parent, names: BTreeMap::new(), cookies: BTreeMap::new(), next_cookie: PARENT_COOKIE + 1 }
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<Number> {
        self.names.get(name).map(|(number, _)| *number)
    }

    /// Returns false if the name exists already.
    pub(super) fn insert(&mut self, name: &[u8], number: Number) -> bool {
        let name: Arc<[u8]> = name.into();
        let Entry::Vacant(vacant) = self.names.entry(Arc::clone(&name)) else { return false };
        vacant.insert((number, self.next_cookie));
        self.cookies.insert(self.next_cookie, (name, number));
        self.next_cookie += 1;
        true
    }

    /// Makes a name refer to another file.
    pub(super) fn replace(&mut self, name: &[u8], number: Number) {
        if let Some((known, cookie)) = self.names.get_mut(name) {
            *known = number;
            if let Some((_, listed)) = self.cookies.get_mut(cookie) {
                *listed = number;
            }
        }
    }

    pub(super) fn remove(&mut self, name: &[u8]) -> Option<Number> {
        let (number, cookie) = self.names.remove(name)?;
        self.cookies.remove(&cookie);
        Some(number)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// Entries after `cookie`, in the order of their cookies.
    pub(super) fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &[u8], Number)> {
        let from = cookie.saturating_add(1);
        self.cookies.range(from..).map(|(cookie, (name, number))| (*cookie, name.as_ref(), *number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_outlast_what_happens_to_other_entries() {
        let mut directory = Directory::new(1);
        for name in [b"a", b"b", b"c"] {
            assert!(directory.insert(name, 5));
        }
        assert!(!directory.insert(b"a", 6));
        let (cookie, ..) = directory.after(0).next().expect("an entry");
        assert_eq!(directory.remove(b"a"), Some(5));
        assert_eq!(directory.remove(b"a"), None);
        assert!(directory.insert(b"a", 7));
        directory.replace(b"c", 8);
        let rest: Vec<_> = directory.after(cookie).map(|(_, name, number)| (name.to_vec(), number)).collect();
        assert_eq!(rest, [(b"b".to_vec(), 5), (b"c".to_vec(), 8), (b"a".to_vec(), 7)]);
        assert_eq!(directory.after(u64::MAX).count(), 0);
    }
}
