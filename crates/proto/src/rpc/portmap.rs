//! The portmapper, version 2 (RFC 1833 §3): which port a program is served on.

use super::{
    message::RpcError,
    xdr::{self, Encoder, Garbage},
};
use crate::wire::Reader;

pub const PROGRAM: u32 = 100_000;
pub const VERSION: u32 = 2;
pub const PORT: u16 = 111;
pub const PROC_NULL: u32 = 0;
pub const PROC_GETPORT: u32 = 3;
pub const PROC_DUMP: u32 = 4;
pub const TCP: u32 = 6;

/// A program's place. Only TCP is ever served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub program: u32,
    pub version: u32,
    pub protocol: u32,
    pub port: u32,
}

impl Mapping {
    pub fn tcp(program: u32, version: u32, port: u16) -> Self {
        Self { program, version, protocol: TCP, port: u32::from(port) }
    }

    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Garbage> {
        Ok(Self {
            program: reader.u32_be()?,
            version: reader.u32_be()?,
            protocol: reader.u32_be()?,
            port: reader.u32_be()?,
        })
    }

    pub fn encode(&self, encoder: &mut Encoder) {
        encoder.u32(self.program).u32(self.version).u32(self.protocol).u32(self.port);
    }
}

/// Answers a call: puts the results of `procedure` after a reply's head.
pub fn serve(
    procedure: u32,
    arguments: &mut Reader<'_>,
    mappings: &[Mapping],
    encoder: &mut Encoder,
) -> Result<(), RpcError> {
    match procedure {
        PROC_NULL => {}
        PROC_GETPORT => {
            let asked = Mapping::decode(arguments).map_err(|Garbage| RpcError::GarbageArguments)?;
            // RFC 1833 §3.2: the version asked for need not be among those served; the port asked with is ignored.
            let served = |exact: bool| {
                mappings.iter().find(|mapping| {
                    (mapping.program, mapping.protocol) == (asked.program, asked.protocol)
                        && (!exact || mapping.version == asked.version)
                })
            };
            encoder.u32(served(true).or_else(|| served(false)).map_or(0, |mapping| mapping.port));
        }
        PROC_DUMP => {
            for mapping in mappings {
                encoder.boolean(true);
                mapping.encode(encoder);
            }
            encoder.boolean(false);
        }
        _ => return Err(RpcError::ProcedureUnavailable),
    }
    Ok(())
}

/// Most mappings taken from a peer's list.
const MAX_MAPPINGS: usize = 1024;

/// Reads the list that `PROC_DUMP` gives.
pub fn decode_dump(reader: &mut Reader<'_>) -> Result<alloc::vec::Vec<Mapping>, Garbage> {
    let mut mappings = alloc::vec::Vec::new();
    while let Some(mapping) = xdr::optional(reader, Mapping::decode)? {
        if mappings.len() == MAX_MAPPINGS {
            return Err(Garbage);
        }
        mappings.push(mapping);
    }
    Ok(mappings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_found_by_program_and_protocol() {
        let mappings = [Mapping::tcp(PROGRAM, 2, 111), Mapping::tcp(100_003, 3, 2049)];
        let ask = |program, protocol| {
            let mut asked = Encoder::default();
            Mapping { program, version: 4, protocol, port: 0 }.encode(&mut asked);
            let mut answer = Encoder::default();
            serve(PROC_GETPORT, &mut Reader::new(asked.bytes()), &mappings, &mut answer).expect("an answer");
            Reader::new(answer.bytes()).u32_be().expect("a port")
        };
        assert_eq!(ask(100_003, TCP), 2049);
        assert_eq!(ask(100_003, 17), 0);
        assert_eq!(ask(100_021, TCP), 0);
    }

    #[test]
    fn a_dump_lists_all_and_wrong_calls_are_refused() {
        let mappings = [Mapping::tcp(PROGRAM, 2, 111), Mapping::tcp(100_003, 3, 2049)];
        let mut answer = Encoder::default();
        serve(PROC_DUMP, &mut Reader::new(&[]), &mappings, &mut answer).expect("an answer");
        assert_eq!(decode_dump(&mut Reader::new(answer.bytes())).expect("a list"), mappings);
        let refused = serve(1, &mut Reader::new(&[]), &mappings, &mut answer);
        assert_eq!(refused, Err(RpcError::ProcedureUnavailable));
        let refused = serve(PROC_GETPORT, &mut Reader::new(&[0; 8]), &mappings, &mut answer);
        assert_eq!(refused, Err(RpcError::GarbageArguments));
    }
}
