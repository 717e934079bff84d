//! The permitted contents of each sector of a volume, derived from the replies to clients, with crashes taken into
//! account.
//!
//! A write has three instants: started, settled (answered, or certain to change nothing more) and, after a flush that
//! began later, durable. A value may be read unless an acknowledged write began after the value's own write was
//! settled. After a crash with power loss it may reappear, unless such a later write was durable.

use std::collections::BTreeMap;

use crate::disk::SECTOR;

/// Identifies a write, or zeros. All writes have different values.
pub(crate) type Value = u64;
pub(crate) const ZEROS: Value = 0;

/// Identifies the connection of lost commands: a host, and the number of its connect.
pub(crate) type HostConnection = (usize, u64);

#[derive(Debug)]
pub(crate) struct Register {
    /// Writes take effect byte by byte: a read during one, or after an incomplete one, may find a mixture.
    mixes: bool,
    sectors: Vec<Vec<Write>>,
    /// Writes under way or lost, and their sectors.
    writes: BTreeMap<u64, Underway>,
    /// Lost writes of hosts that were fenced. They do nothing, unless their host is admitted again before their
    /// connection has ended.
    late: BTreeMap<u64, Underway>,
    reads: BTreeMap<u64, Reading>,
    flushes: BTreeMap<u64, u64>,
    order: u64,
}

#[derive(Clone, Debug)]
struct Write {
    id: u64,
    value: Value,
    begun: u64,
    settled: Option<u64>,
    acknowledged: bool,
    /// One of several values that a crash may have left.
    is_remnant: bool,
}

#[derive(Clone, Copy, Debug)]
struct Underway {
    value: Value,
    first: usize,
    count: usize,
    /// Its connection, once that is lost.
    lost: Option<HostConnection>,
}

impl Underway {
    fn is_lost_of(&self, host: usize) -> bool {
        self.lost.is_some_and(|connection| connection.0 == host)
    }
}

#[derive(Debug)]
struct Reading {
    first: usize,
    begun: u64,
    allowed: Vec<Vec<Value>>,
}

/// An error in the data that were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong(pub(crate) String);

impl Register {
    pub(crate) fn new(sectors: usize, mixes: bool) -> Self {
        let zeros = Write { id: 0, value: ZEROS, begun: 0, settled: Some(0), acknowledged: true, is_remnant: false };
        Self {
            mixes,
            sectors: vec![vec![zeros]; sectors],
            writes: BTreeMap::new(),
            late: BTreeMap::new(),
            reads: BTreeMap::new(),
            flushes: BTreeMap::new(),
            order: 0,
        }
    }

    pub(crate) fn sectors(&self) -> usize {
        self.sectors.len()
    }

    /// Whether a write that is under way, or lost but possibly not done yet, touches a range. Lost writes of the host
    /// `own` are ignored, because its new session has ended them.
    pub(crate) fn is_busy(&self, first: usize, count: usize, own: Option<usize>) -> bool {
        self.writes.values().any(|write| {
            let excused = write.lost.is_some_and(|(host, _)| Some(host) == own);
            !excused && write.first < first + count && first < write.first + write.count
        })
    }

    /// Begins a write of zeros, or of what `content` derives from the returned number.
    pub(crate) fn begin_write(&mut self, first: usize, count: usize, zeros: bool) -> u64 {
        let id = self.next();
        self.begin(id, id, Underway { value: if zeros { ZEROS } else { id }, first, count, lost: None });
        id
    }

    pub(crate) fn write_done(&mut self, id: u64) {
        self.settle(id, true);
    }

    /// The server reported a failure: any part of the write may have been done, and no more will be.
    pub(crate) fn write_failed(&mut self, id: u64) {
        self.settle(id, false);
    }

    /// The write was lost with its connection: it may still be done as long as the server has that connection.
    pub(crate) fn write_lost(&mut self, id: u64, connection: HostConnection) {
        if let Some(write) = self.writes.get_mut(&id) {
            write.lost = Some(connection);
        }
    }

    /// Writes that were lost with a connection change nothing more.
    pub(crate) fn connection_is_over(&mut self, connection: HostConnection) {
        let over: Vec<u64> =
            self.writes.iter().filter(|(_, write)| write.lost == Some(connection)).map(|(id, _)| *id).collect();
        for id in over {
            self.settle(id, false);
        }
        self.late.retain(|_, write| write.lost != Some(connection));
    }

    /// A host has a new session, which ended its earlier sessions and their commands; or each of its ports was fenced.
    pub(crate) fn host_is_new(&mut self, host: usize) {
        let connections: Vec<HostConnection> =
            self.writes.values().filter_map(|write| write.lost).filter(|connection| connection.0 == host).collect();
        for connection in connections {
            self.connection_is_over(connection);
        }
        self.late.retain(|_, write| !write.is_lost_of(host));
    }

    /// A host was fenced, whatever its connections: its writes that are still in flight are refused as long as it is
    /// fenced.
    pub(crate) fn host_is_fenced(&mut self, host: usize) {
        let lost = self.writes.iter().filter(|(_, write)| write.is_lost_of(host));
        for (id, write) in lost.map(|(id, write)| (*id, *write)).collect::<Vec<_>>() {
            self.settle(id, false);
            self.late.insert(id, write);
        }
    }

    /// A host may be admitted again: its writes in flight may take effect, as if they began now.
    pub(crate) fn host_is_back(&mut self, host: usize) {
        let (back, away): (BTreeMap<_, _>, _) =
            std::mem::take(&mut self.late).into_iter().partition(|(_, write)| write.is_lost_of(host));
        self.late = away;
        for (id, write) in back {
            let begun = self.next();
            self.begin(id, begun, write);
        }
    }

    pub(crate) fn begin_flush(&mut self) -> u64 {
        let id = self.next();
        self.flushes.insert(id, id);
        id
    }

    pub(crate) fn flush_done(&mut self, id: u64) {
        let Some(begun) = self.flushes.remove(&id) else { return };
        for sector in &mut self.sectors {
            let durable = |write: &&Write| write.acknowledged && write.settled.is_some_and(|at| at < begun);
            let Some(last) = sector.iter().filter(durable).map(|write| write.begun).max() else { continue };
            sector.retain(|write| write.settled.is_none_or(|at| at >= last) || write.begun == last);
        }
    }

    pub(crate) fn flush_failed(&mut self, id: u64) {
        self.flushes.remove(&id);
    }

    /// The server crashed. With `power`, data that were only in its cache may be lost.
    pub(crate) fn crash(&mut self, power: bool) {
        self.flushes.clear();
        self.late.clear();
        let under_way: Vec<u64> = self.writes.keys().copied().collect();
        for id in under_way {
            self.settle(id, false);
        }
        if !power {
            return;
        }
        let now = self.next();
        for sector in &mut self.sectors {
            let mut values: Vec<Value> = sector.iter().map(|write| write.value).collect();
            values.sort_unstable();
            values.dedup();
            let is_remnant = values.len() > 1;
            let remnant =
                |value| Write { id: 0, value, begun: now, settled: Some(now), acknowledged: !is_remnant, is_remnant };
            *sector = values.into_iter().map(remnant).collect();
        }
    }

    pub(crate) fn begin_read(&mut self, first: usize, count: usize) -> u64 {
        let begun = self.next();
        let allowed = self.sectors[first..first + count].iter().map(|sector| readable(sector)).collect();
        self.reads.insert(begun, Reading { first, begun, allowed });
        begun
    }

    pub(crate) fn read_failed(&mut self, id: u64) {
        self.reads.remove(&id);
    }

    pub(crate) fn read_done(&mut self, id: u64, data: &[u8]) -> Result<(), Wrong> {
        let Some(reading) = self.reads.remove(&id) else { return Ok(()) };
        for ((index, bytes), allowed) in (reading.first..).zip(data.chunks(SECTOR)).zip(&reading.allowed) {
            let Some(value) = value_of(bytes, index) else {
                if self.mixes && is_mixture(bytes, index, allowed) {
                    continue;
                }
                let begins = &bytes[..bytes.len().min(24)];
                return Err(Wrong(format!("sector {index} holds what nobody wrote: {begins:02x?}")));
            };
            if !allowed.contains(&value) {
                return Err(Wrong(format!("sector {index} holds write {value}, and may hold {allowed:?}")));
            }
            self.learn(index, value, reading.begun);
        }
        Ok(())
    }

    /// A value that a crash left was read, so the sector has no other value any more.
    fn learn(&mut self, index: usize, value: Value, begun: u64) {
        let sector = &mut self.sectors[index];
        if sector.iter().all(|write| write.is_remnant && write.begun < begun) {
            sector.retain(|write| write.value == value);
            for write in sector {
                (write.is_remnant, write.acknowledged) = (false, true);
            }
        }
    }

    fn begin(&mut self, id: u64, begun: u64, write: Underway) {
        let Underway { value, first, count, .. } = write;
        for sector in &mut self.sectors[first..first + count] {
            sector.retain(|write| write.id != id);
            sector.push(Write { id, value, begun, settled: None, acknowledged: false, is_remnant: false });
        }
        for reading in self.reads.values_mut() {
            for at in first.max(reading.first)..(first + count).min(reading.first + reading.allowed.len()) {
                reading.allowed[at - reading.first].push(value);
            }
        }
        self.writes.insert(id, write);
    }

    fn settle(&mut self, id: u64, acknowledged: bool) {
        let Some(Underway { first, count, .. }) = self.writes.remove(&id) else { return };
        let now = self.next();
        for sector in &mut self.sectors[first..first + count] {
            for write in sector.iter_mut().filter(|write| write.id == id) {
                (write.settled, write.acknowledged) = (Some(now), acknowledged);
            }
        }
    }

    fn next(&mut self) -> u64 {
        self.order += 1;
        self.order
    }
}

/// The values that a read may find if it begins now.
fn readable(sector: &[Write]) -> Vec<Value> {
    let last = sector.iter().filter(|write| write.acknowledged).map(|write| write.begun).max().unwrap_or(0);
    let may_be_there = |write: &&Write| write.begun == last || write.settled.is_none_or(|at| at >= last);
    sector.iter().filter(may_be_there).map(|write| write.value).collect()
}

/// Writes the bytes of a sector with a value.
pub(crate) fn content(value: Value, index: usize, into: &mut [u8]) {
    if value == ZEROS {
        return into.fill(0);
    }
    for (at, word) in (0_u64..).zip(into.chunks_exact_mut(8)) {
        word.copy_from_slice(&word_of(value, index, at).to_le_bytes());
    }
}

fn value_of(bytes: &[u8], index: usize) -> Option<Value> {
    let value = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    let is_right = |(at, word): (u64, &[u8])| match value {
        ZEROS => word.iter().all(|byte| *byte == 0),
        value => word == word_of(value, index, at).to_le_bytes(),
    };
    (bytes.len() == SECTOR && (0_u64..).zip(bytes.chunks_exact(8)).all(is_right)).then_some(value)
}

/// Whether every byte is that of one of the values.
fn is_mixture(bytes: &[u8], index: usize, values: &[Value]) -> bool {
    let mut left: Vec<bool> = vec![true; bytes.len()];
    let mut whole = [0; SECTOR];
    for value in values {
        content(*value, index, &mut whole);
        for ((left, byte), right) in left.iter_mut().zip(bytes).zip(&whole) {
            *left &= byte != right;
        }
    }
    left.iter().all(|left| !left)
}

fn word_of(value: Value, index: usize, at: u64) -> u64 {
    match at {
        0 => value,
        1 => index as u64,
        at => (value ^ (index as u64) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(at as u32 % 64) ^ at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a read of sector 0 may find a value.
    fn finds(register: &mut Register, value: Value) -> bool {
        let mut data = [0; SECTOR];
        content(value, 0, &mut data);
        let read = register.begin_read(0, 1);
        let mut copy = Register {
            mixes: false,
            sectors: register.sectors.clone(),
            reads: BTreeMap::new(),
            writes: BTreeMap::new(),
            late: BTreeMap::new(),
            flushes: BTreeMap::new(),
            order: 0,
        };
        copy.reads = BTreeMap::from([(read, register.reads.remove(&read).expect("begun"))]);
        copy.read_done(read, &data).is_ok()
    }

    fn written(register: &mut Register) -> u64 {
        let id = register.begin_write(0, 1, false);
        register.write_done(id);
        id
    }

    #[test]
    fn acknowledged_write_is_what_is_read_and_nothing_before_it() {
        let mut register = Register::new(1, false);
        let under_way = register.begin_write(0, 1, false);
        assert!(finds(&mut register, ZEROS) && finds(&mut register, under_way));
        register.write_done(under_way);
        assert!(!finds(&mut register, ZEROS) && finds(&mut register, under_way));
    }

    #[test]
    fn what_no_flush_followed_may_be_lost_with_the_power_and_only_then() {
        let mut register = Register::new(1, false);
        let one = written(&mut register);
        let flush = register.begin_flush();
        register.flush_done(flush);
        let two = written(&mut register);
        register.crash(false);
        assert!(finds(&mut register, two) && !finds(&mut register, one));
        register.crash(true);
        assert!(finds(&mut register, two) && finds(&mut register, one) && !finds(&mut register, ZEROS));
    }

    #[test]
    fn flush_is_about_what_was_acknowledged_before_it_began() {
        let mut register = Register::new(1, false);
        let flush = register.begin_flush();
        let one = written(&mut register);
        register.flush_done(flush);
        register.crash(true);
        assert!(finds(&mut register, one) && finds(&mut register, ZEROS));
    }

    #[test]
    fn what_a_crash_left_stays_what_it_was_seen_to_be() {
        let mut register = Register::new(1, false);
        let one = written(&mut register);
        register.crash(true);
        let read = register.begin_read(0, 1);
        register.read_done(read, &[0; SECTOR]).expect("may be lost");
        assert!(finds(&mut register, ZEROS) && !finds(&mut register, one));
    }

    #[test]
    fn lost_write_may_come_late_until_its_way_is_over() {
        let mut register = Register::new(1, false);
        let lost = register.begin_write(0, 1, false);
        register.write_lost(lost, (3, 1));
        assert!(register.is_busy(0, 1, None) && !register.is_busy(0, 1, Some(3)));
        let after = written(&mut register);
        assert!(finds(&mut register, lost) && finds(&mut register, after), "it may have come after the other");
        register.connection_is_over((3, 1));
        let third = written(&mut register);
        assert!(!finds(&mut register, lost) && finds(&mut register, third));
    }

    #[test]
    fn lost_write_of_a_host_that_is_fenced_may_come_once_it_is_back_while_its_way_lasts() {
        for way_is_over in [false, true] {
            let mut register = Register::new(1, false);
            let lost = register.begin_write(0, 1, false);
            register.write_lost(lost, (3, 1));
            register.host_is_fenced(3);
            assert!(!register.is_busy(0, 1, None));
            let after = written(&mut register);
            assert!(!finds(&mut register, lost) && finds(&mut register, after));
            if way_is_over {
                register.connection_is_over((3, 1));
            }
            register.host_is_back(3);
            assert_eq!((finds(&mut register, lost), register.is_busy(0, 1, None)), (!way_is_over, !way_is_over));
            register.connection_is_over((3, 1));
            let third = written(&mut register);
            assert!(!finds(&mut register, lost) && !finds(&mut register, after) && finds(&mut register, third));
        }
    }

    #[test]
    fn read_that_meets_a_write_may_find_either() {
        let mut register = Register::new(1, false);
        let read = register.begin_read(0, 1);
        let one = written(&mut register);
        let mut data = [0; SECTOR];
        content(one, 0, &mut data);
        register.read_done(read, &data).expect("written meanwhile");
    }

    #[test]
    fn mixture_is_of_what_may_be_there_and_only_where_writes_mix() {
        for mixes in [false, true] {
            let mut register = Register::new(1, mixes);
            let one = written(&mut register);
            let read = register.begin_read(0, 1);
            let two = register.begin_write(0, 1, false);
            let (mut data, mut other) = ([0; SECTOR], [0; SECTOR]);
            content(one, 0, &mut data);
            content(two, 0, &mut other);
            data[100..].copy_from_slice(&other[100..]);
            assert_eq!(register.read_done(read, &data).is_ok(), mixes);
            register.write_done(two);
            let read = register.begin_read(0, 1);
            assert!(register.read_done(read, &data).is_err(), "the write is done");
        }
    }

    #[test]
    fn content_of_another_place_or_torn_is_nobodys() {
        let mut data = [0; SECTOR];
        content(7, 3, &mut data);
        assert_eq!((value_of(&data, 3), value_of(&data, 4)), (Some(7), None));
        data[300] ^= 1;
        assert_eq!(value_of(&data, 3), None);
    }
}
