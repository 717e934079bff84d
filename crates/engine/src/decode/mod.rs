//! `iotax-engine decode`: prints the PDUs of a capture or a hex dump, one per line.

mod capture;

use std::{
    fs::File,
    io::{Read as _, Write as _},
    path::PathBuf,
};

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use iotax_node::{
    Protocol,
    failure::Failure,
    protocols::{Describe, Digests},
};

use crate::failure;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Protocol of the bytes
    #[arg(long, value_parser = protocol_names())]
    protocol: Protocol,
    /// Capture file (pcap or pcapng); all TCP connections are decoded, each direction separately
    #[arg(long, conflicts_with = "hex")]
    pcap: Option<PathBuf>,
    /// Text file of hexadecimal bytes, by default standard input; white space, offsets ending in `:` and comments after
    /// `#` are ignored
    #[arg(long)]
    hex: Option<PathBuf>,
    /// The PDUs have iSCSI header digests
    #[arg(long)]
    header_digest: bool,
    /// The PDUs have iSCSI data digests
    #[arg(long)]
    data_digest: bool,
}

/// A sequence of bytes: a hex dump, or one direction of a connection.
struct Stream {
    name: String,
    bytes: Vec<u8>,
    /// What is missing after these bytes, in words.
    missing: Option<String>,
}

fn protocol_names() -> impl TypedValueParser<Value = Protocol> {
    let names = PossibleValuesParser::new(Protocol::ALL.iter().map(|protocol| protocol.name()));
    names.try_map(|name| Protocol::of_name(&name).ok_or("no protocol"))
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let streams = match (&arguments.pcap, &arguments.hex) {
        (Some(path), _) => {
            let place = path.display().to_string();
            let file = File::open(path).map_err(|error| failure::io(&error, &place))?;
            capture::streams(file, &place)?
        }
        (None, Some(path)) => {
            let place = path.display().to_string();
            let text = std::fs::read_to_string(path).map_err(|error| failure::io(&error, &place))?;
            vec![Stream { bytes: capture::parse_hex(&text, &place)?, name: place, missing: None }]
        }
        (None, None) => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map_err(|error| failure::io(&error, "standard input"))?;
            let bytes = capture::parse_hex(&text, "standard input")?;
            vec![Stream { bytes, name: "standard input".into(), missing: None }]
        }
    };
    let mut describer =
        arguments.protocol.describe(Digests { header: arguments.header_digest, data: arguments.data_digest });
    let mut out = std::io::stdout().lock();
    for stream in &streams {
        for line in lines(describer.as_mut(), stream) {
            writeln!(out, "{line}").map_err(|error| failure::io(&error, "standard output"))?;
        }
    }
    Ok(())
}

/// One line for each PDU: its offset, then its description.
fn lines(describer: &mut dyn Describe, stream: &Stream) -> Vec<String> {
    describer.begin_stream();
    let mut lines = Vec::new();
    let mut at = 0;
    while at < stream.bytes.len() {
        let pdu = describer.describe(&stream.bytes[at..]);
        let (consumed, text) = pdu.unwrap_or_else(|why| (stream.bytes.len() - at, why));
        lines.push(format!("{} {at:#08x} {text}", stream.name));
        at += consumed.max(1);
    }
    lines.extend(stream.missing.iter().map(|missing| format!("{} {at:#08x} {missing}", stream.name)));
    lines
}
