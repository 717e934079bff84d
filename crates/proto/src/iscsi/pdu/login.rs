//! Login and Logout (RFC 7143 §11.12 to §11.15).

pub use super::bhs::LoginStatus;
use super::bhs::{ConnectionId, SessionHandle, TaskTag, pdu};
use crate::Refusal;

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

    /// For people.
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

    /// What it refuses a login for.
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
