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
            flows.packet(link, &packet.map_err(wrong)?.data, place)?;
        }
    } else {
        std::io::Seek::rewind(&mut &again).map_err(|error| failure::io(&error, place))?;
        let mut reader = PcapNgReader::new(BufReader::new(again)).map_err(wrong)?;
        let mut links = Vec::new();
        while let Some(block) = reader.next_block() {
            match block.map_err(wrong)? {
                Block::SectionHeader(_) => links.clear(),
                Block::InterfaceDescription(interface) => links.push(interface.linktype),
                Block::EnhancedPacket(packet) => {
                    let link = links.get(packet.interface_id as usize).copied().unwrap_or(DataLink::ETHERNET);
                    flows.packet(link, &packet.data, place)?;
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
    /// Sequence number of the next byte.
    next_sequence: Option<u32>,
    bytes: Vec<u8>,
    /// Segments that arrived before earlier ones, by the place of their first byte in `bytes`.
    early: BTreeMap<usize, Vec<u8>>,
    early_bytes: usize,
}

impl Flows {
    fn packet(&mut self, link: DataLink, data: &[u8], place: &str) -> Result<(), Failure> {
        let sliced = match link {
            DataLink::ETHERNET => SlicedPacket::from_ethernet(data),
            DataLink::LINUX_SLL => SlicedPacket::from_linux_sll(data),
            DataLink::NULL | DataLink::LOOP => SlicedPacket::from_ip(data.get(4..).unwrap_or_default()),
            DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => SlicedPacket::from_ip(data),
            other => {
                let message =
                    format!("packets of the link type {other:?} cannot be read: capture one interface by its name");
                return Err(Failure::usage(message, place));
            }
        };
        let Ok(SlicedPacket { net: Some(net), transport: Some(TransportSlice::Tcp(tcp)), .. }) = sliced else {
            return Ok(());
        };
        let (from, to) = match net {
            NetSlice::Ipv4(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
            NetSlice::Ipv6(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
            NetSlice::Arp(_) => return Ok(()),
        };
        let ends = (SocketAddr::new(from, tcp.source_port()), SocketAddr::new(to, tcp.destination_port()));
        let flow = self.by_ends.entry(ends).or_insert_with(|| {
            self.order.push(ends);
            Flow::default()
        });
        flow.segment(tcp.sequence_number(), tcp.syn(), tcp.payload());
        Ok(())
    }

    fn finish(mut self) -> Vec<Stream> {
        let streams = self.order.into_iter().filter_map(|ends| {
            let flow = self.by_ends.remove(&ends)?;
            let name = format!("{} > {}", ends.0, ends.1);
            (!flow.bytes.is_empty()).then(|| Stream { name, missing: flow.missing(), bytes: flow.bytes })
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
        let next = *self.next_sequence.get_or_insert(sequence);
        if payload.is_empty() || self.bytes.len() + self.early_bytes + payload.len() > STREAM_BYTES_MAX {
            return;
        }
        match usize::try_from(sequence.wrapping_sub(next).cast_signed()) {
            Ok(0) => self.append(payload),
            Ok(ahead) => self.keep(self.bytes.len() + ahead, payload),
            // A retransmission may contain new bytes after old ones.
            Err(_) => self.append(payload.get(next.wrapping_sub(sequence) as usize..).unwrap_or_default()),
        }
        while let Some(first) = self.early.first_entry().filter(|first| *first.key() <= self.bytes.len()) {
            let (at, segment) = first.remove_entry();
            self.early_bytes -= segment.len();
            self.append(segment.get(self.bytes.len() - at..).unwrap_or_default());
        }
    }

    fn append(&mut self, fresh: &[u8]) {
        self.bytes.extend_from_slice(fresh);
        self.next_sequence = self.next_sequence.map(|next| next.wrapping_add(fresh.len() as u32));
    }

    /// Keeps a segment for later. Of two at one place, the longer one has all bytes.
    fn keep(&mut self, at: usize, payload: &[u8]) {
        let kept = self.early.entry(at).or_default();
        if payload.len() > kept.len() {
            self.early_bytes += payload.len() - kept.len();
            *kept = payload.to_vec();
        }
    }

    /// What is not in the capture, in words.
    fn missing(&self) -> Option<String> {
        let (at, _) = self.early.first_key_value()?;
        let lost = at - self.bytes.len();
        Some(format!("{lost} bytes are missing in the capture; {} bytes after them are not decoded", self.early_bytes))
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
        assert_eq!((flow.missing(), flow.early_bytes), (None, 0));
    }

    #[test]
    fn bytes_that_are_not_in_the_capture_are_reported() {
        let mut flow = Flow::default();
        flow.segment(u32::MAX - 1, false, b"ab");
        flow.segment(6, false, b"g");
        flow.segment(6, false, b"ghi");
        flow.segment(6, false, b"gh");
        flow.segment(9, false, b"j");
        assert_eq!(flow.bytes, b"ab");
        let missing = "6 bytes are missing in the capture; 4 bytes after them are not decoded";
        assert_eq!(flow.missing().as_deref(), Some(missing));
        flow.segment(0, false, b"012345");
        assert_eq!((&flow.bytes[..], flow.missing()), (&b"ab012345ghij"[..], None));
    }

    #[test]
    fn packets_of_an_unknown_link_are_refused() {
        let refused = Flows::default().packet(DataLink::LINUX_SLL2, &[0; 64], "file").expect_err("unknown");
        assert!(refused.message.contains("LINUX_SLL2"), "{refused:?}");
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
