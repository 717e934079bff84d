//! Reads bytes to decode: TCP streams of a capture file, each direction of each connection in order, or hexadecimal text.

use std::{collections::BTreeMap, fs::File, io::BufReader, net::SocketAddr};

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use iotax_node::failure::Failure;
use pcap_file::{
    DataLink,
    pcap::PcapReader,
    pcapng::{Block, PcapNgReader},
};

use super::Stream;
use crate::failure;

/// Maximum bytes of one direction of a connection.
const STREAM_BYTES_MAX: usize = 1 << 30;

pub(super) fn streams(file: File, place: &str) -> Result<Vec<Stream>, Failure> {
    let mut flows = Flows::default();
    let wrong = |error: pcap_file::PcapError| Failure::usage(format!("not a readable capture: {error}"), place);
    let again = file.try_clone().map_err(|error| failure::io(&error, place))?;
    if let Ok(mut reader) = PcapReader::new(BufReader::new(file)) {
        let link = reader.header().datalink;
        while let Some(packet) = reader.next_packet() {
            flows.packet(link, &packet.map_err(wrong)?.data);
        }
    } else {
        std::io::Seek::rewind(&mut &again).map_err(|error| failure::io(&error, place))?;
        let mut reader = PcapNgReader::new(BufReader::new(again)).map_err(wrong)?;
        let mut links = Vec::new();
        while let Some(block) = reader.next_block() {
            match block.map_err(wrong)? {
                Block::InterfaceDescription(interface) => links.push(interface.linktype),
                Block::EnhancedPacket(packet) => {
                    let link = links.get(packet.interface_id as usize).copied().unwrap_or(DataLink::ETHERNET);
                    flows.packet(link, &packet.data);
                }
                _ => {}
            }
        }
    }
    Ok(flows.finish())
}

/// Connections by direction, in the order of their first packets.
#[derive(Default)]
struct Flows {
    order: Vec<(SocketAddr, SocketAddr)>,
    by_ends: BTreeMap<(SocketAddr, SocketAddr), Flow>,
}

#[derive(Default)]
struct Flow {
    next_sequence: Option<u32>,
    bytes: Vec<u8>,
    /// Segments that arrived before earlier ones, by sequence number.
    early: BTreeMap<u32, Vec<u8>>,
}

impl Flows {
    fn packet(&mut self, link: DataLink, data: &[u8]) {
        let sliced = match link {
            DataLink::ETHERNET => SlicedPacket::from_ethernet(data),
            DataLink::LINUX_SLL => SlicedPacket::from_linux_sll(data),
            DataLink::NULL | DataLink::LOOP => SlicedPacket::from_ip(data.get(4..).unwrap_or_default()),
            _ => SlicedPacket::from_ip(data),
        };
        let Ok(SlicedPacket { net: Some(net), transport: Some(TransportSlice::Tcp(tcp)), .. }) = sliced else { return };
        let (from, to) = match net {
            NetSlice::Ipv4(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
            NetSlice::Ipv6(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
            NetSlice::Arp(_) => return,
        };
        let ends = (SocketAddr::new(from, tcp.source_port()), SocketAddr::new(to, tcp.destination_port()));
        let flow = self.by_ends.entry(ends).or_insert_with(|| {
            self.order.push(ends);
            Flow::default()
        });
        flow.segment(tcp.sequence_number(), tcp.syn(), tcp.payload());
    }

    fn finish(mut self) -> Vec<Stream> {
        let streams = self.order.into_iter().filter_map(|ends| {
            let flow = self.by_ends.remove(&ends)?;
            (!flow.bytes.is_empty()).then(|| Stream { name: format!("{} > {}", ends.0, ends.1), bytes: flow.bytes })
        });
        streams.collect()
    }
}

impl Flow {
    fn segment(&mut self, sequence: u32, syn: bool, payload: &[u8]) {
        if syn {
            self.next_sequence = Some(sequence.wrapping_add(1));
            return;
        }
        self.next_sequence.get_or_insert(sequence);
        if self.bytes.len() + payload.len() > STREAM_BYTES_MAX {
            return;
        }
        self.early.insert(sequence, payload.to_vec());
        while let Some(next) = self.next_sequence
            && let Some(due) = self.early.keys().copied().find(|start| next.wrapping_sub(*start).cast_signed() >= 0)
            && let Some(segment) = self.early.remove(&due)
        {
            // A retransmission may contain new bytes after old ones.
            if let Some(fresh) = segment.get(next.wrapping_sub(due) as usize..) {
                self.bytes.extend_from_slice(fresh);
                self.next_sequence = Some(next.wrapping_add(fresh.len() as u32));
            }
        }
    }
}

pub(super) fn parse_hex(text: &str, place: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let mut digits = String::new();
        for word in line.split_whitespace().filter(|word| !word.ends_with(':')) {
            digits.push_str(word.strip_prefix("0x").unwrap_or(word));
        }
        let wrong = |what: &str| Failure::usage(format!("{what}: `{}`", line.trim()), format!("{place}:{}", index + 1));
        if !digits.chars().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong("not hexadecimal"));
        }
        if !digits.len().is_multiple_of(2) {
            return Err(wrong("an odd number of digits"));
        }
        bytes.extend((0..digits.len()).step_by(2).filter_map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_puts_early_and_repeated_segments_in_order() {
        let mut flow = Flow::default();
        flow.segment(u32::MAX, true, &[]);
        flow.segment(3, false, b"def");
        flow.segment(0, false, b"ab");
        flow.segment(0, false, b"abc");
        flow.segment(5, false, b"fgh");
        assert_eq!(flow.bytes, b"abcdefgh");
    }
}

#[cfg(test)]
mod hex_tests {
    use super::*;

    #[test]
    fn hex_passes_over_offsets_and_comments() {
        assert_eq!(parse_hex("0000: 01 02  # two\n0010: 0x03ff\n\n", "x").unwrap(), [1, 2, 3, 255]);
    }

    #[test]
    fn hex_names_the_line_that_is_wrong() {
        assert_eq!(parse_hex("01\n0g", "dump.hex").unwrap_err().place, "dump.hex:2");
        assert_eq!(parse_hex("012", "dump.hex").unwrap_err().place, "dump.hex:1");
    }
}
