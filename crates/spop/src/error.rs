//! Errors of a connection, and their codes in DISCONNECT frames.

use thiserror::Error;

/// Code of a DISCONNECT frame (SPOE.txt, section 3.5). HAProxy may send unknown ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusCode(pub u64);

impl StatusCode {
    pub const NORMAL: Self = Self(0);
    pub const IO: Self = Self(1);
    pub const TIMEOUT: Self = Self(2);
    pub const TOO_BIG: Self = Self(3);
    pub const INVALID: Self = Self(4);
    pub const NO_VERSION: Self = Self(5);
    pub const NO_FRAME_SIZE: Self = Self(6);
    pub const NO_CAPABILITIES: Self = Self(7);
    pub const BAD_VERSION: Self = Self(8);
    pub const BAD_FRAME_SIZE: Self = Self(9);
    pub const FRAGMENTED: Self = Self(10);
    pub const NO_RESOURCES: Self = Self(13);
}

/// Error of HAProxy that ends a connection.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ConnectionError {
    #[error("frame is longer than negotiated")]
    TooBig,
    #[error("{0}")]
    Invalid(&'static str),
    #[error("HELLO without supported-versions")]
    NoVersion,
    #[error("HELLO without max-frame-size")]
    NoFrameSize,
    #[error("HELLO without capabilities")]
    NoCapabilities,
    #[error("SPOP 2.0 is not among the supported versions")]
    BadVersion,
    #[error("max-frame-size is below 256")]
    BadFrameSize,
    #[error("frame is a fragment, which was not announced")]
    Fragmented,
    #[error("more messages or arguments than allowed")]
    TooMany,
}

impl ConnectionError {
    /// Code for HAProxy.
    pub fn code(self) -> StatusCode {
        match self {
            Self::TooBig => StatusCode::TOO_BIG,
            Self::Invalid(_) => StatusCode::INVALID,
            Self::NoVersion => StatusCode::NO_VERSION,
            Self::NoFrameSize => StatusCode::NO_FRAME_SIZE,
            Self::NoCapabilities => StatusCode::NO_CAPABILITIES,
            Self::BadVersion => StatusCode::BAD_VERSION,
            Self::BadFrameSize => StatusCode::BAD_FRAME_SIZE,
            Self::Fragmented => StatusCode::FRAGMENTED,
            Self::TooMany => StatusCode::NO_RESOURCES,
        }
    }
}
