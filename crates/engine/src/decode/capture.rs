//! Extracts TCP streams from a capture file: each direction of each connection, in order.

use std::{collections::BTreeMap, fs::File, io::BufReader, net::SocketAddr};

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use pcap_file::{
    DataLink,
    pcap::PcapReader,
    pcapng::{Block, PcapNgReader},
};

use iotax_node::failure::Failure;

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
