//! The Basic Header Segment that opens every PDU (RFC 7143 §11.2.1), and a macro that lays typed PDUs over it.

use core::fmt;

/// Bytes of a Basic Header Segment.
pub const BHS_LEN: usize = 48;
/// A header as it stands on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bhs(pub [u8; BHS_LEN]);

impl Bhs {
    pub fn opcode(&self) -> u8 {
        self.0[0] & 0x3f
    }

    pub fn immediate(&self) -> bool {
        self.0[0] & 0x40 != 0
    }

    /// Bytes of additional header segments, before their digest.
    pub fn ahs_len(&self) -> usize {
        usize::from(self.0[4]) * 4
    }

    /// Bytes of data, without padding.
    pub fn data_len(&self) -> u32 {
        u32::from_be_bytes([0, self.0[5], self.0[6], self.0[7]])
    }

    pub fn set_data_len(&mut self, len: usize) {
        assert!(len < 1 << 24, "DataSegmentLength has 24 bits");
        self.0[5..8].copy_from_slice(&(len as u32).to_be_bytes()[1..]);
    }

    pub fn itt(&self) -> TaskTag {
        TaskTag::get(&self.0, 16)
    }
}

/// A field of fixed width, big-endian, at a fixed place in a header.
pub(super) trait Field: Sized {
    fn get(bhs: &[u8; BHS_LEN], at: usize) -> Self;
    fn put(self, bhs: &mut [u8; BHS_LEN], at: usize);
}

macro_rules! integer_fields {
    ($($int:ty)*) => {$(
        impl Field for $int {
            fn get(bhs: &[u8; BHS_LEN], at: usize) -> Self {
                Self::from_be_bytes(<[u8; size_of::<$int>()]>::get(bhs, at))
            }

            fn put(self, bhs: &mut [u8; BHS_LEN], at: usize) {
                self.to_be_bytes().put(bhs, at);
            }
        }
    )*};
}

integer_fields!(u8 u16 u32 u64);

impl<const N: usize> Field for [u8; N] {
    fn get(bhs: &[u8; BHS_LEN], at: usize) -> Self {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&bhs[at..at + N]);
        bytes
    }

    fn put(self, bhs: &mut [u8; BHS_LEN], at: usize) {
        bhs[at..at + N].copy_from_slice(&self);
    }
}

macro_rules! identifiers {
    ($($(#[$doc:meta])* $name:ident($int:ty))*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name(pub $int);

        impl Field for $name {
            fn get(bhs: &[u8; BHS_LEN], at: usize) -> Self {
                Self(<$int>::get(bhs, at))
            }

            fn put(self, bhs: &mut [u8; BHS_LEN], at: usize) {
                self.0.put(bhs, at);
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    )*};
}

identifiers! {
    /// ITT: an initiator's name for a task (RFC 7143 §11.2.1.8).
    TaskTag(u32)
    /// TTT: a target's name for a transfer that it asked for, or for an exchange that it goes on with (RFC 7143 §11.7.4).
    TransferTag(u32)
    /// TSIH: a target's name for a session; 0 in a login that begins one (RFC 7143 §11.12.6).
    SessionHandle(u16)
    /// CID: an initiator's name for a connection of a session (RFC 7143 §11.12.7).
    ConnectionId(u16)
    /// Status class and detail of a Login Response (RFC 7143 §11.13.5).
    LoginStatus(u16)
}

impl TaskTag {
    /// Names no task.
    pub const RESERVED: Self = Self(0xffff_ffff);
}

impl TransferTag {
    /// Names no transfer.
    pub const RESERVED: Self = Self(0xffff_ffff);
}

impl SessionHandle {
    /// Asks for a session.
    pub const NEW: Self = Self(0);
}

/// Declares a PDU: `bits` are parts of a byte (`name @ byte & mask`, `name @ byte & mask >> shift`), `fields` whole
/// bytes from an offset. Every offset is a literal of the RFC's figure, so a wrong one does not compile or fails its vector.
macro_rules! pdu {
    (
        $(#[$doc:meta])*
        $name:ident = $opcode:literal
        flags { $($flag:ident @ $flag_at:literal & $flag_mask:literal,)* }
        bits { $($bits:ident @ $bits_at:literal & $bits_mask:literal >> $shift:literal,)* }
        fields { $($field:ident @ $at:literal: $kind:ty,)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $(pub $flag: bool,)*
            $(pub $bits: u8,)*
            $(pub $field: $kind,)*
        }

        impl $name {
            pub const OPCODE: u8 = $opcode;

            pub fn parse(bhs: &$crate::iscsi::pdu::Bhs) -> Self {
                let bytes = &bhs.0;
                Self {
                    $($flag: bytes[$flag_at] & $flag_mask != 0,)*
                    $($bits: (bytes[$bits_at] & $bits_mask) >> $shift,)*
                    $($field: $crate::iscsi::pdu::bhs::Field::get(bytes, $at),)*
                }
            }

            /// The header with lengths zero; whoever sends it sets them.
            #[inline]
            pub fn encode(&self) -> $crate::iscsi::pdu::Bhs {
                let mut bytes = [0; $crate::iscsi::pdu::BHS_LEN];
                $($crate::iscsi::pdu::bhs::Field::put(self.$field, &mut bytes, $at);)*
                bytes[0] |= $opcode;
                $(if self.$flag { bytes[$flag_at] |= $flag_mask; })*
                $(bytes[$bits_at] |= (self.$bits << $shift) & $bits_mask;)*
                $crate::iscsi::pdu::Bhs(bytes)
            }
        }
    };
}

pub(super) use pdu;
