//! The Basic Header Segment at the start of every PDU (RFC 7143 §11.2.1), a macro that defines typed headers, and the
//! PDUs of SCSI commands: SCSI Command and Response (§11.3, §11.4), Data-Out, Data-In and R2T (§11.7, §11.8).

use core::fmt;

/// Length of a Basic Header Segment in bytes.
pub const BHS_LEN: usize = 48;
/// A header as on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bhs(pub [u8; BHS_LEN]);

impl Bhs {
    pub fn opcode(&self) -> u8 {
        self.0[0] & 0x3f
    }

    pub fn immediate(&self) -> bool {
        self.0[0] & 0x40 != 0
    }

    /// Length of the additional header segments in bytes, without their digest.
    pub fn ahs_len(&self) -> usize {
        usize::from(self.0[4]) * 4
    }

    /// Length of the data in bytes, without padding.
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

/// A big-endian field of fixed width at a fixed offset in a header.
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
    /// ITT: identifies a task; chosen by the initiator (RFC 7143 §11.2.1.8).
    TaskTag(u32)
    /// TTT: identifies a requested transfer, or an exchange that continues; chosen by the target (RFC 7143 §11.7.4).
    TransferTag(u32)
    /// TSIH: identifies a session; chosen by the target. 0 in a login for a new session (RFC 7143 §11.12.6).
    SessionHandle(u16)
    /// CID: identifies a connection of a session; chosen by the initiator (RFC 7143 §11.12.7).
    ConnectionId(u16)
    /// Status class and detail of a Login Response (RFC 7143 §11.13.5).
    LoginStatus(u16)
}

impl TaskTag {
    /// Identifies no task.
    pub const RESERVED: Self = Self(0xffff_ffff);
}

impl TransferTag {
    /// Identifies no transfer.
    pub const RESERVED: Self = Self(0xffff_ffff);
}

impl SessionHandle {
    /// Requests a new session.
    pub const NEW: Self = Self(0);
}

/// Defines a PDU. `flags` and `bits` are parts of a byte (`name @ byte & mask`, `name @ byte & mask >> shift`),
/// `fields` are whole bytes from an offset. The offsets are those of the RFC's figures.
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

            #[inline]
            pub fn parse(bhs: &$crate::iscsi::pdu::Bhs) -> Self {
                let bytes = &bhs.0;
                Self {
                    $($flag: bytes[$flag_at] & $flag_mask != 0,)*
                    $($bits: (bytes[$bits_at] & $bits_mask) >> $shift,)*
                    $($field: $crate::iscsi::pdu::bhs::Field::get(bytes, $at),)*
                }
            }

            /// Encodes the header. Its lengths are zero; the sender sets them.
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

pdu! {
    /// SCSI Command (RFC 7143 §11.3). A CDB longer than 16 bytes continues in an additional header segment.
    ScsiCommand = 0x01
    flags { immediate @ 0 & 0x40, last @ 1 & 0x80, read @ 1 & 0x40, write @ 1 & 0x20, }
    bits { attribute @ 1 & 0x07 >> 0, }
    fields {
        lun @ 8: u64,
        itt @ 16: TaskTag,
        expected_data_len @ 20: u32,
        cmd_sn @ 24: u32,
        exp_stat_sn @ 28: u32,
        cdb @ 32: [u8; 16],
    }
}

/// The task attribute SIMPLE (RFC 7143 §11.3.1).
pub const ATTRIBUTE_SIMPLE: u8 = 1;

pdu! {
    /// SCSI Response (RFC 7143 §11.4). Sense data, if any, are in the data segment after their length (2 bytes).
    ScsiResponse = 0x21
    flags { last @ 1 & 0x80, overflow @ 1 & 0x04, underflow @ 1 & 0x02, }
    bits { }
    fields {
        response @ 2: u8,
        status @ 3: u8,
        itt @ 16: TaskTag,
        stat_sn @ 24: u32,
        exp_cmd_sn @ 28: u32,
        max_cmd_sn @ 32: u32,
        exp_data_sn @ 36: u32,
        residual @ 44: u32,
    }
}

/// Value of `ScsiResponse::response` (RFC 7143 §11.4.3).
pub const COMPLETED_AT_TARGET: u8 = 0x00;

pdu! {
    /// SCSI Data-Out (RFC 7143 §11.7).
    DataOut = 0x05
    flags { last @ 1 & 0x80, }
    bits { }
    fields {
        lun @ 8: u64,
        itt @ 16: TaskTag,
        ttt @ 20: TransferTag,
        exp_stat_sn @ 28: u32,
        data_sn @ 36: u32,
        buffer_offset @ 40: u32,
    }
}

pdu! {
    /// SCSI Data-In (RFC 7143 §11.7). With `status_here` it is also the command's response (phase collapse).
    DataIn = 0x25
    flags {
        last @ 1 & 0x80,
        acknowledge @ 1 & 0x40,
        overflow @ 1 & 0x04,
        underflow @ 1 & 0x02,
        status_here @ 1 & 0x01,
    }
    bits { }
    fields {
        status @ 3: u8,
        lun @ 8: u64,
        itt @ 16: TaskTag,
        ttt @ 20: TransferTag,
        stat_sn @ 24: u32,
        exp_cmd_sn @ 28: u32,
        max_cmd_sn @ 32: u32,
        data_sn @ 36: u32,
        buffer_offset @ 40: u32,
        residual @ 44: u32,
    }
}

pdu! {
    /// Ready To Transfer (RFC 7143 §11.8).
    R2t = 0x31
    flags { last @ 1 & 0x80, }
    bits { }
    fields {
        lun @ 8: u64,
        itt @ 16: TaskTag,
        ttt @ 20: TransferTag,
        stat_sn @ 24: u32,
        exp_cmd_sn @ 28: u32,
        max_cmd_sn @ 32: u32,
        r2t_sn @ 36: u32,
        buffer_offset @ 40: u32,
        desired_len @ 44: u32,
    }
}
