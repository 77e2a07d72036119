//! Errors of connections and streams.

use std::fmt;

use thiserror::Error;

use crate::fields::Malformed;
use crate::hpack::HpackError;

/// Code of `RST_STREAM` and GOAWAY (RFC 9113, section 7). Peers may send unknown ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    pub const NO_ERROR: Self = Self(0);
    pub const PROTOCOL_ERROR: Self = Self(1);
    pub const INTERNAL_ERROR: Self = Self(2);
    pub const FLOW_CONTROL_ERROR: Self = Self(3);
    pub const SETTINGS_TIMEOUT: Self = Self(4);
    pub const STREAM_CLOSED: Self = Self(5);
    pub const FRAME_SIZE_ERROR: Self = Self(6);
    pub const REFUSED_STREAM: Self = Self(7);
    pub const CANCEL: Self = Self(8);
    pub const COMPRESSION_ERROR: Self = Self(9);
    pub const CONNECT_ERROR: Self = Self(10);
    pub const ENHANCE_YOUR_CALM: Self = Self(11);
    pub const INADEQUATE_SECURITY: Self = Self(12);
    pub const HTTP_1_1_REQUIRED: Self = Self(13);
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 14] = [
            "NO_ERROR",
            "PROTOCOL_ERROR",
            "INTERNAL_ERROR",
            "FLOW_CONTROL_ERROR",
            "SETTINGS_TIMEOUT",
            "STREAM_CLOSED",
            "FRAME_SIZE_ERROR",
            "REFUSED_STREAM",
            "CANCEL",
            "COMPRESSION_ERROR",
            "CONNECT_ERROR",
            "ENHANCE_YOUR_CALM",
            "INADEQUATE_SECURITY",
            "HTTP_1_1_REQUIRED",
        ];
        match NAMES.get(self.0 as usize) {
            Some(name) => f.write_str(name),
            None => write!(f, "error {:#x}", self.0),
        }
    }
}

/// Error that ends a connection.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ConnectionError {
    #[error("cannot decode fields")]
    Hpack(#[from] HpackError),
    #[error("{code}: {reason}")]
    Protocol { code: ErrorCode, reason: &'static str },
    #[error("peer exceeds the limit of {0}")]
    Flood(Flood),
}

/// Limit that a peer has exceeded: see the fields of [`Limits`](crate::Limits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    Resets,
    Glitches,
    Continuations,
    QueuedControlFrames,
}

impl fmt::Display for Flood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resets => "reset streams",
            Self::Glitches => "frames without use",
            Self::Continuations => "CONTINUATION frames",
            Self::QueuedControlFrames => "unsent control frames",
        })
    }
}

impl ConnectionError {
    pub(crate) const FRAME_SIZE: Self =
        Self::Protocol { code: ErrorCode::FRAME_SIZE_ERROR, reason: "invalid frame length" };
    pub(crate) const STREAM_CLOSED: Self =
        Self::Protocol { code: ErrorCode::STREAM_CLOSED, reason: "frame on a closed stream" };
    pub(crate) const PADDING: Self = Self::protocol("padding is longer than its frame");

    pub(crate) const fn protocol(reason: &'static str) -> Self {
        Self::Protocol { code: ErrorCode::PROTOCOL_ERROR, reason }
    }

    pub(crate) const fn flow_control(reason: &'static str) -> Self {
        Self::Protocol { code: ErrorCode::FLOW_CONTROL_ERROR, reason }
    }

    /// Code for the peer.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Hpack(HpackError::SectionTooLarge(_)) | Self::Flood(_) => {
                ErrorCode::ENHANCE_YOUR_CALM
            }
            Self::Hpack(_) => ErrorCode::COMPRESSION_ERROR,
            Self::Protocol { code, .. } => *code,
        }
    }
}

/// Error that ends a stream.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum StreamError {
    #[error("malformed message")]
    Malformed(#[from] Malformed),
    #[error("more streams than allowed")]
    Refused,
    #[error("frame on a closed stream")]
    Closed,
    #[error("flow-control window exceeded")]
    FlowControl,
    #[error("window increment of 0")]
    ZeroIncrement,
}

impl StreamError {
    /// Code for the peer.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Malformed(_) | Self::ZeroIncrement => ErrorCode::PROTOCOL_ERROR,
            Self::Refused => ErrorCode::REFUSED_STREAM,
            Self::Closed => ErrorCode::STREAM_CLOSED,
            Self::FlowControl => ErrorCode::FLOW_CONTROL_ERROR,
        }
    }
}

/// A stream that is sent on no longer exists: it was reset, has ended or was released.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("stream is closed")]
pub struct StreamClosed;
