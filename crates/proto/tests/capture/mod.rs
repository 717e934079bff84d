//! Capture files for decoders of others.

/// A pcap file of one TCP connection over IPv4, without links' headers: a segment for each message, which says whether it
/// came from the client.
pub(crate) fn pcap<'a>(port: u16, messages: impl IntoIterator<Item = (bool, &'a [u8])>) -> Vec<u8> {
    const MAGIC: u32 = 0xa1b2_c3d4;
    const VERSION: u32 = 4 << 16 | 2;
    const SNAPSHOT_BYTES: u32 = 1 << 18;
    const LINKTYPE_RAW: u32 = 101;
    let mut file = Vec::new();
    for word in [MAGIC, VERSION, 0, 0, SNAPSHOT_BYTES, LINKTYPE_RAW] {
        file.extend(word.to_le_bytes());
    }
    let ends = [(1, 40_000), (2, port)];
    // Sequence numbers of client and server.
    let mut sent = [1_u32, 1];
    for (time, (from_client, message)) in messages.into_iter().enumerate() {
        let (from, to) = if from_client { (0, 1) } else { (1, 0) };
        let len = 40 + message.len();
        for word in [time as u32, 0, len as u32, len as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend([0x45, 0, (len >> 8) as u8, len as u8, 0, 0, 0, 0, 64, 6, 0, 0]);
        file.extend([127, 0, 0, ends[from].0, 127, 0, 0, ends[to].0]);
        file.extend(u16::to_be_bytes(ends[from].1));
        file.extend(u16::to_be_bytes(ends[to].1));
        file.extend(sent[from].to_be_bytes());
        file.extend(sent[to].to_be_bytes());
        file.extend([0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
        file.extend_from_slice(message);
        sent[from] += message.len() as u32;
    }
    file
}
