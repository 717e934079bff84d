//! Bytes and I/Os of the machine's network interfaces and disks: `/proc/net/dev` and `/proc/diskstats`.

use std::{fs, io};

/// The sector size of diskstats, whatever the device's own: Documentation/admin-guide/iostats.rst.
const SECTOR_BYTES: u64 = 512;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceCounts {
    pub name: String,
    pub received_bytes: u64,
    pub received_packets: u64,
    pub received_dropped: u64,
    pub sent_bytes: u64,
    pub sent_packets: u64,
    pub sent_dropped: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskCounts {
    pub name: String,
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    /// Time with at least one I/O under way
    pub busy_ns: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineCounts {
    pub interfaces: Vec<InterfaceCounts>,
    pub disks: Vec<DiskCounts>,
}

impl MachineCounts {
    /// Reads the counters. Disks are empty on a machine without disks, or in a container that may not see them.
    pub fn read() -> io::Result<Self> {
        let interfaces = parse_interfaces(&fs::read_to_string("/proc/net/dev")?);
        let disks = fs::read_to_string("/proc/diskstats").map(|text| parse_disks(&text)).unwrap_or_default();
        Ok(Self { interfaces, disks })
    }

    /// The difference between two readings. A device that appeared in between counts from zero; devices without traffic
    /// are left out.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let interfaces = self.interfaces.iter().map(|now| {
            let before = earlier.interfaces.iter().find(|before| before.name == now.name);
            now.since(before.unwrap_or(&InterfaceCounts::default()))
        });
        let disks = self.disks.iter().map(|now| {
            let before = earlier.disks.iter().find(|before| before.name == now.name);
            now.since(before.unwrap_or(&DiskCounts::default()))
        });
        Self {
            interfaces: interfaces.filter(|moved| moved.received_packets + moved.sent_packets > 0).collect(),
            disks: disks.filter(|moved| moved.reads + moved.writes > 0).collect(),
        }
    }
}

impl InterfaceCounts {
    fn since(&self, before: &Self) -> Self {
        Self {
            name: self.name.clone(),
            received_bytes: self.received_bytes.saturating_sub(before.received_bytes),
            received_packets: self.received_packets.saturating_sub(before.received_packets),
            received_dropped: self.received_dropped.saturating_sub(before.received_dropped),
            sent_bytes: self.sent_bytes.saturating_sub(before.sent_bytes),
            sent_packets: self.sent_packets.saturating_sub(before.sent_packets),
            sent_dropped: self.sent_dropped.saturating_sub(before.sent_dropped),
        }
    }
}

impl DiskCounts {
    fn since(&self, before: &Self) -> Self {
        Self {
            name: self.name.clone(),
            reads: self.reads.saturating_sub(before.reads),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            writes: self.writes.saturating_sub(before.writes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            busy_ns: self.busy_ns.saturating_sub(before.busy_ns),
        }
    }
}

/// `proc_net_dev(5)`: two header lines, then `name: bytes packets errs drop fifo frame compressed multicast`, and the
/// same for sent data.
fn parse_interfaces(text: &str) -> Vec<InterfaceCounts> {
    let lines = text.lines().filter_map(|line| {
        let (name, rest) = line.split_once(':')?;
        let counts: Vec<u64> = rest.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let &[
            received_bytes,
            received_packets,
            _,
            received_dropped,
            _,
            _,
            _,
            _,
            sent_bytes,
            sent_packets,
            _,
            sent_dropped,
            ..,
        ] = counts.as_slice()
        else {
            return None;
        };
        Some(InterfaceCounts {
            name: name.trim().to_owned(),
            received_bytes,
            received_packets,
            received_dropped,
            sent_bytes,
            sent_packets,
            sent_dropped,
        })
    });
    lines.collect()
}

/// `proc_diskstats(5)`: major, minor, name, reads, merged, sectors, ms, writes, merged, sectors, ms, in flight, ms
/// busy.
fn parse_disks(text: &str) -> Vec<DiskCounts> {
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(2);
        let name = words.next()?.to_owned();
        let counts: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        let &[reads, _, read_sectors, _, writes, _, written_sectors, _, _, busy_ms, ..] = counts.as_slice() else {
            return None;
        };
        Some(DiskCounts {
            name,
            reads,
            read_bytes: read_sectors.saturating_mul(SECTOR_BYTES),
            writes,
            written_bytes: written_sectors.saturating_mul(SECTOR_BYTES),
            busy_ns: busy_ms.saturating_mul(1_000_000),
        })
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NET: &str = "Inter-|   Receive                |  Transmit\n face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets\n    \
        lo: 1000 10 0 0 0 0 0 0 1000 10 0 0 0 0 0 0\n  eth0:5000 50 0 3 0 0 0 0 700 7 0 1 0 0 0 0\n";
    const DISKS: &str = " 259 0 nvme0n1 100 0 800 5 20 0 160 9 0 12 14 0 0 0 0\n   8 1 sda1 short\n";

    #[test]
    fn interfaces_and_disks_are_read_column_by_column() {
        let interfaces = parse_interfaces(NET);
        assert_eq!(interfaces.iter().map(|each| each.name.as_str()).collect::<Vec<_>>(), ["lo", "eth0"]);
        assert_eq!((interfaces[1].received_dropped, interfaces[1].sent_bytes, interfaces[1].sent_dropped), (3, 700, 1));
        let disks = parse_disks(DISKS);
        assert_eq!(disks.len(), 1);
        assert_eq!((disks[0].reads, disks[0].read_bytes), (100, 409_600));
        assert_eq!((disks[0].writes, disks[0].written_bytes, disks[0].busy_ns), (20, 81_920, 12_000_000));
    }

    #[test]
    fn difference_leaves_out_what_stood_still() {
        let before = MachineCounts { interfaces: parse_interfaces(NET), disks: parse_disks(DISKS) };
        let mut after = before.clone();
        after.interfaces[1].received_packets += 4;
        after.interfaces[1].received_bytes += 6000;
        let moved = after.since(&before);
        assert!(moved.disks.is_empty());
        assert_eq!(moved.interfaces.len(), 1);
        assert_eq!((moved.interfaces[0].name.as_str(), moved.interfaces[0].received_bytes), ("eth0", 6000));
        assert_eq!(moved.interfaces[0].sent_bytes, 0);
    }

    #[test]
    fn this_machine_has_an_interface() {
        assert!(!MachineCounts::read().unwrap().interfaces.is_empty());
    }
}
