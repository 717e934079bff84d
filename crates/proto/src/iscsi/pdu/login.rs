//! Login and Logout (RFC 7143 §11.12 to §11.15).

use super::bhs::{ConnectionId, SessionHandle, TaskTag, pdu};

pdu! {
    /// Login Request, RFC 7143 §11.12. Always immediate; its text stands in the data segment.
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
    /// Login Response, RFC 7143 §11.13.
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
        status @ 36: u16,
    }
}

/// Stages of a login (RFC 7143 §11.12.3).
pub mod stage {
    pub const SECURITY: u8 = 0;
    pub const OPERATIONAL: u8 = 1;
    pub const FULL_FEATURE: u8 = 3;
}

/// Status class and detail of a Login Response (RFC 7143 §11.13.5).
pub mod login_status {
    use crate::Refusal;

    pub const SUCCESS: u16 = 0x0000;
    pub const MOVED_TEMPORARILY: u16 = 0x0101;
    pub const MOVED_PERMANENTLY: u16 = 0x0102;
    pub const INITIATOR_ERROR: u16 = 0x0200;
    pub const AUTHENTICATION_FAILURE: u16 = 0x0201;
    pub const AUTHORIZATION_FAILURE: u16 = 0x0202;
    pub const NOT_FOUND: u16 = 0x0203;
    pub const REMOVED: u16 = 0x0204;
    pub const UNSUPPORTED_VERSION: u16 = 0x0205;
    pub const TOO_MANY_CONNECTIONS: u16 = 0x0206;
    pub const MISSING_PARAMETER: u16 = 0x0207;
    pub const CANNOT_INCLUDE: u16 = 0x0208;
    pub const SESSION_TYPE_NOT_SUPPORTED: u16 = 0x0209;
    pub const SESSION_DOES_NOT_EXIST: u16 = 0x020a;
    pub const INVALID_DURING_LOGIN: u16 = 0x020b;
    pub const TARGET_ERROR: u16 = 0x0300;
    pub const SERVICE_UNAVAILABLE: u16 = 0x0301;
    pub const OUT_OF_RESOURCES: u16 = 0x0302;

    /// Names a status for people.
    pub fn name(status: u16) -> &'static str {
        match status {
            SUCCESS => "success",
            MOVED_TEMPORARILY => "target moved temporarily",
            MOVED_PERMANENTLY => "target moved permanently",
            INITIATOR_ERROR => "initiator error",
            AUTHENTICATION_FAILURE => "authentication failed",
            AUTHORIZATION_FAILURE => "this initiator may not log in to this target",
            NOT_FOUND => "no such target",
            REMOVED => "target removed",
            UNSUPPORTED_VERSION => "unsupported version",
            TOO_MANY_CONNECTIONS => "too many connections",
            MISSING_PARAMETER => "missing parameter",
            CANNOT_INCLUDE => "cannot include in session",
            SESSION_TYPE_NOT_SUPPORTED => "session type not supported",
            SESSION_DOES_NOT_EXIST => "session does not exist",
            INVALID_DURING_LOGIN => "invalid request during login",
            TARGET_ERROR => "target error",
            SERVICE_UNAVAILABLE => "service unavailable",
            OUT_OF_RESOURCES => "target out of resources",
            _ => "unknown login status",
        }
    }

    /// What a status refuses a login for.
    pub fn refusal(status: u16) -> Refusal {
        match status {
            AUTHENTICATION_FAILURE => Refusal::Unauthenticated,
            AUTHORIZATION_FAILURE => Refusal::Denied,
            NOT_FOUND | REMOVED => Refusal::NotFound,
            TOO_MANY_CONNECTIONS | SERVICE_UNAVAILABLE | OUT_OF_RESOURCES => Refusal::Busy,
            _ => Refusal::Other,
        }
    }
}

pdu! {
    /// Logout Request, RFC 7143 §11.14.
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

/// Reasons of a Logout Request (RFC 7143 §11.14.1).
pub mod logout_reason {
    pub const CLOSE_SESSION: u8 = 0;
    pub const CLOSE_CONNECTION: u8 = 1;
    pub const RECOVER_CONNECTION: u8 = 2;
}

pdu! {
    /// Logout Response, RFC 7143 §11.15.
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

/// Responses to a logout (RFC 7143 §11.15.1).
pub mod logout_response {
    pub const CLOSED: u8 = 0;
    pub const CID_NOT_FOUND: u8 = 1;
    pub const RECOVERY_NOT_SUPPORTED: u8 = 2;
}
