//! Status of a completed command: NVMe base 2.1 §4.2.3.

use core::fmt;

use crate::{IoError, Refusal, UnitError};

/// The status field without its phase bit: status code (bits 7:0), status code type (bits 10:8), Do Not Retry (bit 14).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Status(u16);

const DO_NOT_RETRY: u16 = 1 << 14;

macro_rules! statuses {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        impl Status {
            $(pub const $name: Self = Self($code);)*

            /// The name of the status in the specification.
            pub fn name(self) -> &'static str {
                match self.code() {
                    $($code => $text,)*
                    _ => "a status not known here",
                }
            }
        }
    };
}

statuses! {
    SUCCESS = 0x000, "Successful Completion";
    INVALID_OPCODE = 0x001, "Invalid Command Opcode";
    INVALID_FIELD = 0x002, "Invalid Field in Command";
    ID_CONFLICT = 0x003, "Command ID Conflict";
    DATA_TRANSFER_ERROR = 0x004, "Data Transfer Error";
    INTERNAL_ERROR = 0x006, "Internal Error";
    ABORT_REQUESTED = 0x007, "Command Abort Requested";
    INVALID_NAMESPACE = 0x00b, "Invalid Namespace or Format";
    SEQUENCE_ERROR = 0x00c, "Command Sequence Error";
    SGL_LENGTH_INVALID = 0x00f, "Data SGL Length Invalid";
    SGL_TYPE_INVALID = 0x011, "SGL Descriptor Type Invalid";
    SGL_OFFSET_INVALID = 0x016, "SGL Offset Invalid";
    HOST_ID_INCONSISTENT = 0x018, "Host Identifier Inconsistent Format";
    KEEP_ALIVE_INVALID = 0x01a, "Keep Alive Timeout Invalid";
    PREEMPTED = 0x01b, "Command Aborted due to Preempt and Abort";
    WRITE_PROTECTED = 0x020, "Namespace is Write Protected";
    COMMAND_INTERRUPTED = 0x021, "Command Interrupted";
    TRANSIENT_TRANSPORT_ERROR = 0x022, "Transient Transport Error";
    LBA_OUT_OF_RANGE = 0x080, "LBA Out of Range";
    CAPACITY_EXCEEDED = 0x081, "Capacity Exceeded";
    NAMESPACE_NOT_READY = 0x082, "Namespace Not Ready";
    RESERVATION_CONFLICT = 0x083, "Reservation Conflict";
    INVALID_QUEUE = 0x101, "Invalid Queue Identifier";
    AER_LIMIT_EXCEEDED = 0x105, "Asynchronous Event Request Limit Exceeded";
    INVALID_LOG_PAGE = 0x109, "Invalid Log Page";
    FEATURE_NOT_SAVEABLE = 0x10d, "Feature Identifier Not Saveable";
    FEATURE_NOT_CHANGEABLE = 0x10e, "Feature Not Changeable";
    CONNECT_INCOMPATIBLE_FORMAT = 0x180, "Connect Incompatible Format";
    CONNECT_CONTROLLER_BUSY = 0x181, "Connect Controller Busy";
    CONNECT_INVALID_PARAMETERS = 0x182, "Connect Invalid Parameters";
    CONNECT_INVALID_HOST = 0x184, "Connect Invalid Host";
    AUTHENTICATION_REQUIRED = 0x191, "Authentication Required";
    WRITE_FAULT = 0x280, "Write Fault";
    UNRECOVERED_READ_ERROR = 0x281, "Unrecovered Read Error";
    COMPARE_FAILURE = 0x285, "Compare Failure";
    ACCESS_DENIED = 0x286, "Access Denied";
    ACCESS_PERSISTENT_LOSS = 0x301, "Asymmetric Access Persistent Loss";
    ACCESS_INACCESSIBLE = 0x302, "Asymmetric Access Inaccessible";
    ACCESS_TRANSITION = 0x303, "Asymmetric Access Transition";
}

impl Status {
    /// Parses the status field of a completion, which includes the phase bit.
    pub fn from_field(field: u16) -> Self {
        Self(field >> 1)
    }

    /// The completion's status field; its phase bit is reserved in fabrics (NVMe base 2.1 §4.2.1).
    pub fn field(self) -> u16 {
        self.0 << 1
    }

    /// Status code type and status code: `0xTCC`.
    pub const fn code(self) -> u16 {
        self.0 & 0x7ff
    }

    /// The status without Do Not Retry and More, so that it can be compared with the constants.
    #[must_use]
    pub fn bare(self) -> Self {
        Self(self.code())
    }

    pub fn is_success(self) -> bool {
        self.code() == 0
    }

    /// Sets Do Not Retry: the same command would fail again.
    #[must_use]
    pub const fn do_not_retry(self) -> Self {
        Self(self.0 | DO_NOT_RETRY)
    }

    /// The result that the initiator reports to its caller.
    pub fn into_result(self) -> Result<(), IoError> {
        if self.bare() == Self::SUCCESS { Ok(()) } else { Err(self.error()) }
    }

    #[cold]
    fn error(self) -> IoError {
        match self.bare() {
            Self::ABORT_REQUESTED | Self::PREEMPTED => IoError::Aborted,
            Self(code) => IoError::Failed { status: u32::from(code), refusal: self.refusal(), what: self.name() },
        }
    }

    /// Why the controller refused a command.
    pub fn refusal(self) -> Refusal {
        match self.bare() {
            Self::INVALID_NAMESPACE => Refusal::NotFound,
            Self::CONNECT_INVALID_HOST | Self::ACCESS_DENIED => Refusal::Denied,
            Self::AUTHENTICATION_REQUIRED => Refusal::Unauthenticated,
            Self::CONNECT_CONTROLLER_BUSY | Self::COMMAND_INTERRUPTED | Self::NAMESPACE_NOT_READY => Refusal::Busy,
            Self::RESERVATION_CONFLICT => Refusal::InUse,
            Self::WRITE_PROTECTED => Refusal::ReadOnly,
            Self::CAPACITY_EXCEEDED => Refusal::Full,
            // NVMe base 2.1 §4.2.3.4: the command is not able to be performed because of the relationship between this
            // controller and the namespace.
            Self::ACCESS_PERSISTENT_LOSS | Self::ACCESS_INACCESSIBLE | Self::ACCESS_TRANSITION => Refusal::Inaccessible,
            _ => Refusal::Other,
        }
    }

    pub fn of_unit_error(error: UnitError, is_read: bool) -> Self {
        match error {
            UnitError::NoUnit => Self::INVALID_NAMESPACE.do_not_retry(),
            UnitError::OutOfRange => Self::LBA_OUT_OF_RANGE.do_not_retry(),
            UnitError::ReadOnly => Self::WRITE_PROTECTED.do_not_retry(),
            UnitError::Miscompare(_) => Self::COMPARE_FAILURE.do_not_retry(),
            UnitError::Medium if is_read => Self::UNRECOVERED_READ_ERROR,
            UnitError::Medium => Self::WRITE_FAULT,
            UnitError::NoSpace => Self::CAPACITY_EXCEEDED.do_not_retry(),
            UnitError::Busy => Self::COMMAND_INTERRUPTED,
            UnitError::Aborted => Self::ABORT_REQUESTED,
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:#05x})", self.name(), self.code())
    }
}
