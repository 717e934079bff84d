//! All PDUs except those of SCSI commands: NOP, task management, Async Message, Reject and SNACK (RFC 7143 §11.5,
//! §11.6, §11.9, §11.16 to §11.19), Text (§11.10, §11.11), Login and Logout (§11.12 to §11.15).

use super::bhs::{ConnectionId, SessionHandle, TaskTag, TransferTag, pdu};
use crate::Refusal;

pdu! {
    /// NOP-Out (RFC 7143 §11.18).
    NopOut = 0x00
    flags { immediate @ 0 & 0x40, last @ 1 & 0x80, }
    bits { }
    fields {
        lun @ 8: u64,
        itt @ 16: TaskTag,
        ttt @ 20: TransferTag,
        cmd_sn @ 24: u32,
        exp_stat_sn @ 28: u32,
    }
}

pdu! {
    /// NOP-In (RFC 7143 §11.19).
    NopIn = 0x20
    flags { last @ 1 & 0x80, }
    bits { }
    fields {
        lun @ 8: u64,
        itt @ 16: TaskTag,
        ttt @ 20: TransferTag,
        stat_sn @ 24: u32,
        exp_cmd_sn @ 28: u32,
        max_cmd_sn @ 32: u32,
    }
}

pdu! {
    /// Task Management Function Request (RFC 7143 §11.5).
    TaskManagement = 0x02
    flags { immediate @ 0 & 0x40, last @ 1 & 0x80, }
    bits { function @ 1 & 0x7f >> 0, }
    fields {
        lun @ 8: u64,
        itt @ 16: TaskTag,
        referenced_itt @ 20: TaskTag,
        cmd_sn @ 24: u32,
        exp_stat_sn @ 28: u32,
        ref_cmd_sn @ 32: u32,
        exp_data_sn @ 36: u32,
    }
}

/// Functions of a Task Management Function Request (RFC 7143 §11.5.1; those from `QUERY_TASK` on: RFC 7144 §4.1).
pub mod function {
    pub const ABORT_TASK: u8 = 1;
    pub const ABORT_TASK_SET: u8 = 2;
    pub const CLEAR_ACA: u8 = 3;
    pub const CLEAR_TASK_SET: u8 = 4;
    pub const LOGICAL_UNIT_RESET: u8 = 5;
    pub const TARGET_WARM_RESET: u8 = 6;
    pub const TARGET_COLD_RESET: u8 = 7;
    pub const TASK_REASSIGN: u8 = 8;
    pub const QUERY_TASK: u8 = 9;
    pub const QUERY_TASK_SET: u8 = 10;
    pub const I_T_NEXUS_RESET: u8 = 11;
    pub const QUERY_ASYNCHRONOUS_EVENT: u8 = 12;
}

pdu! {
    /// Task Management Function Response (RFC 7143 §11.6).
    TaskManagementResponse = 0x22
    flags { last @ 1 & 0x80, }
    bits { }
    fields {
        response @ 2: u8,
        itt @ 16: TaskTag,
        stat_sn @ 24: u32,
        exp_cmd_sn @ 28: u32,
        max_cmd_sn @ 32: u32,
    }
}

/// Responses to task management functions (RFC 7143 §11.6.1; `SUCCEEDED`: RFC 7144 §4.2).
pub mod function_response {
    pub const COMPLETE: u8 = 0;
    pub const NO_TASK: u8 = 1;
    pub const NO_LUN: u8 = 2;
    pub const REASSIGN_NOT_SUPPORTED: u8 = 4;
    pub const NOT_SUPPORTED: u8 = 5;
    pub const SUCCEEDED: u8 = 7;
    pub const REJECTED: u8 = 255;
}

pdu! {
    /// Asynchronous Message (RFC 7143 §11.9).
    AsyncMessage = 0x32
    flags { last @ 1 & 0x80, }
    bits { }
    fields {
        lun @ 8: u64,
        itt @ 16: TaskTag,
        stat_sn @ 24: u32,
        exp_cmd_sn @ 28: u32,
        max_cmd_sn @ 32: u32,
        event @ 36: u8,
        vendor_code @ 37: u8,
        parameter1 @ 38: u16,
        parameter2 @ 40: u16,
        parameter3 @ 42: u16,
    }
}

/// Events of an Asynchronous Message (RFC 7143 §11.9.1).
pub mod async_event {
    pub const SCSI_EVENT: u8 = 0;
    pub const LOGOUT_REQUESTED: u8 = 1;
    pub const CONNECTION_DROPPED: u8 = 2;
    pub const SESSION_DROPPED: u8 = 3;
    pub const RENEGOTIATE: u8 = 4;
}

pdu! {
    /// Reject (RFC 7143 §11.17). The data segment contains the header of the rejected PDU.
    Reject = 0x3f
    flags { last @ 1 & 0x80, }
    bits { }
    fields {
        reason @ 2: u8,
        itt @ 16: TaskTag,
        stat_sn @ 24: u32,
        exp_cmd_sn @ 28: u32,
        max_cmd_sn @ 32: u32,
        data_sn @ 36: u32,
    }
}

/// Reason codes of a Reject (RFC 7143 §11.17.1).
pub mod reject_reason {
    use crate::Refusal;

    pub const DATA_DIGEST_ERROR: u8 = 0x02;
    pub const SNACK_REJECT: u8 = 0x03;
    pub const PROTOCOL_ERROR: u8 = 0x04;
    pub const COMMAND_NOT_SUPPORTED: u8 = 0x05;
    pub const TOO_MANY_IMMEDIATE_COMMANDS: u8 = 0x06;
    pub const TASK_IN_PROGRESS: u8 = 0x07;
    pub const INVALID_DATA_ACK: u8 = 0x08;
    pub const INVALID_PDU_FIELD: u8 = 0x09;
    pub const OUT_OF_RESOURCES: u8 = 0x0a;
    pub const NEGOTIATION_RESET: u8 = 0x0b;
    pub const WAITING_FOR_LOGOUT: u8 = 0x0c;

    /// Describes a reason code.
    pub fn name(reason: u8) -> &'static str {
        match reason {
            DATA_DIGEST_ERROR => "data digest error",
            SNACK_REJECT => "SNACK reject",
            PROTOCOL_ERROR => "protocol error",
            COMMAND_NOT_SUPPORTED => "command not supported",
            TOO_MANY_IMMEDIATE_COMMANDS => "too many immediate commands",
            TASK_IN_PROGRESS => "task in progress",
            INVALID_DATA_ACK => "invalid data acknowledgement",
            INVALID_PDU_FIELD => "invalid PDU field",
            OUT_OF_RESOURCES => "long operation: out of resources",
            NEGOTIATION_RESET => "negotiation reset",
            WAITING_FOR_LOGOUT => "waiting for logout",
            _ => "unknown reason",
        }
    }

    /// The kind of refusal that a reason code means.
    pub fn refusal(reason: u8) -> Refusal {
        match reason {
            TOO_MANY_IMMEDIATE_COMMANDS | OUT_OF_RESOURCES => Refusal::Busy,
            _ => Refusal::Other,
        }
    }
}

pdu! {
    /// SNACK Request (RFC 7143 §11.16). It is always rejected, because it is not used at error recovery level 0.
    Snack = 0x10
    flags { last @ 1 & 0x80, }
    bits { kind @ 1 & 0x0f >> 0, }
    fields {
        lun @ 8: u64,
        itt @ 16: TaskTag,
        ttt @ 20: TransferTag,
        exp_stat_sn @ 28: u32,
        first @ 40: u32,
        count @ 44: u32,
    }
}

pdu! {
    /// Text Request (RFC 7143 §11.10).
    TextRequest = 0x04
    flags { immediate @ 0 & 0x40, last @ 1 & 0x80, continued @ 1 & 0x40, }
    bits { }
    fields {
        lun @ 8: u64,
        itt @ 16: TaskTag,
        ttt @ 20: TransferTag,
        cmd_sn @ 24: u32,
        exp_stat_sn @ 28: u32,
    }
}

pdu! {
    /// Text Response (RFC 7143 §11.11).
    TextResponse = 0x24
    flags { last @ 1 & 0x80, continued @ 1 & 0x40, }
    bits { }
    fields {
        lun @ 8: u64,
        itt @ 16: TaskTag,
        ttt @ 20: TransferTag,
        stat_sn @ 24: u32,
        exp_cmd_sn @ 28: u32,
        max_cmd_sn @ 32: u32,
    }
}

pub use super::bhs::LoginStatus;

pdu! {
    /// Login Request (RFC 7143 §11.12). It is always immediate; its data segment contains text.
    LoginRequest = 0x03
    flags { immediate @ 0 & 0x40, transit @ 1 & 0x80, continued @ 1 & 0x40, }
    bits { csg @ 1 & 0x0c >> 2, nsg @ 1 & 0x03 >> 0, }
    fields {
        version_max @ 2: u8,
        version_min @ 3: u8,
        isid @ 8: [u8; 6],
        tsih @ 14: SessionHandle,
        itt @ 16: TaskTag,
        cid @ 20: ConnectionId,
        cmd_sn @ 24: u32,
        exp_stat_sn @ 28: u32,
    }
}

pdu! {
    /// Login Response (RFC 7143 §11.13).
    LoginResponse = 0x23
    flags { transit @ 1 & 0x80, continued @ 1 & 0x40, }
    bits { csg @ 1 & 0x0c >> 2, nsg @ 1 & 0x03 >> 0, }
    fields {
        version_max @ 2: u8,
        version_active @ 3: u8,
        isid @ 8: [u8; 6],
        tsih @ 14: SessionHandle,
        itt @ 16: TaskTag,
        stat_sn @ 24: u32,
        exp_cmd_sn @ 28: u32,
        max_cmd_sn @ 32: u32,
        status @ 36: LoginStatus,
    }
}

/// Stages of a login (RFC 7143 §11.12.3).
pub mod stage {
    pub const SECURITY: u8 = 0;
    pub const OPERATIONAL: u8 = 1;
    pub const FULL_FEATURE: u8 = 3;
}

impl LoginStatus {
    pub const SUCCESS: Self = Self(0x0000);
    pub const MOVED_TEMPORARILY: Self = Self(0x0101);
    pub const MOVED_PERMANENTLY: Self = Self(0x0102);
    pub const INITIATOR_ERROR: Self = Self(0x0200);
    pub const AUTHENTICATION_FAILURE: Self = Self(0x0201);
    pub const AUTHORIZATION_FAILURE: Self = Self(0x0202);
    pub const NOT_FOUND: Self = Self(0x0203);
    pub const REMOVED: Self = Self(0x0204);
    pub const UNSUPPORTED_VERSION: Self = Self(0x0205);
    pub const TOO_MANY_CONNECTIONS: Self = Self(0x0206);
    pub const MISSING_PARAMETER: Self = Self(0x0207);
    pub const CANNOT_INCLUDE: Self = Self(0x0208);
    pub const SESSION_TYPE_NOT_SUPPORTED: Self = Self(0x0209);
    pub const SESSION_DOES_NOT_EXIST: Self = Self(0x020a);
    pub const INVALID_DURING_LOGIN: Self = Self(0x020b);
    pub const TARGET_ERROR: Self = Self(0x0300);
    pub const SERVICE_UNAVAILABLE: Self = Self(0x0301);
    pub const OUT_OF_RESOURCES: Self = Self(0x0302);

    /// Describes the status.
    pub fn name(self) -> &'static str {
        match self {
            Self::SUCCESS => "success",
            Self::MOVED_TEMPORARILY => "target moved temporarily",
            Self::MOVED_PERMANENTLY => "target moved permanently",
            Self::INITIATOR_ERROR => "initiator error",
            Self::AUTHENTICATION_FAILURE => "authentication failed",
            Self::AUTHORIZATION_FAILURE => "this initiator may not log in to this target",
            Self::NOT_FOUND => "no such target",
            Self::REMOVED => "target removed",
            Self::UNSUPPORTED_VERSION => "unsupported version",
            Self::TOO_MANY_CONNECTIONS => "too many connections",
            Self::MISSING_PARAMETER => "missing parameter",
            Self::CANNOT_INCLUDE => "cannot include in session",
            Self::SESSION_TYPE_NOT_SUPPORTED => "session type not supported",
            Self::SESSION_DOES_NOT_EXIST => "session does not exist",
            Self::INVALID_DURING_LOGIN => "invalid request during login",
            Self::TARGET_ERROR => "target error",
            Self::SERVICE_UNAVAILABLE => "service unavailable",
            Self::OUT_OF_RESOURCES => "target out of resources",
            _ => "unknown login status",
        }
    }

    /// The kind of refusal that the status means.
    pub fn refusal(self) -> Refusal {
        match self {
            Self::AUTHENTICATION_FAILURE => Refusal::Unauthenticated,
            Self::AUTHORIZATION_FAILURE => Refusal::Denied,
            Self::NOT_FOUND | Self::REMOVED => Refusal::NotFound,
            Self::TOO_MANY_CONNECTIONS | Self::SERVICE_UNAVAILABLE | Self::OUT_OF_RESOURCES => Refusal::Busy,
            _ => Refusal::Other,
        }
    }
}

pdu! {
    /// Logout Request (RFC 7143 §11.14).
    LogoutRequest = 0x06
    flags { immediate @ 0 & 0x40, last @ 1 & 0x80, }
    bits { reason @ 1 & 0x7f >> 0, }
    fields {
        itt @ 16: TaskTag,
        cid @ 20: ConnectionId,
        cmd_sn @ 24: u32,
        exp_stat_sn @ 28: u32,
    }
}

/// Reason codes of a Logout Request (RFC 7143 §11.14.1).
pub mod logout_reason {
    pub const CLOSE_SESSION: u8 = 0;
    pub const CLOSE_CONNECTION: u8 = 1;
    pub const RECOVER_CONNECTION: u8 = 2;
}

pdu! {
    /// Logout Response (RFC 7143 §11.15).
    LogoutResponse = 0x26
    flags { last @ 1 & 0x80, }
    bits { }
    fields {
        response @ 2: u8,
        itt @ 16: TaskTag,
        stat_sn @ 24: u32,
        exp_cmd_sn @ 28: u32,
        max_cmd_sn @ 32: u32,
        time2wait @ 40: u16,
        time2retain @ 42: u16,
    }
}

/// Response codes of a Logout Response (RFC 7143 §11.15.1).
pub mod logout_response {
    pub const CLOSED: u8 = 0;
    pub const CID_NOT_FOUND: u8 = 1;
    pub const RECOVERY_NOT_SUPPORTED: u8 = 2;
}
