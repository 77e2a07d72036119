//! HTTP/2 (RFC 9113): frames, HPACK (RFC 7541), flow control, stream states and field rules, in both roles. No I/O.
//!
//! A [`Connection`] accepts received bytes in any pieces and returns [`Event`]s that borrow from them; it appends
//! replies and messages to the caller's buffer. Time is a parameter. Priorities are ignored and pushes refused. A
//! message that violates RFC 9113, section 8, ends its stream; [`Limits`] bound the resources that a peer can use.

mod connection;
mod error;
mod fields;
mod frame;
mod hpack;
mod limits;
mod receive;
mod stream;

pub use connection::{Connection, Event, ResetCause, Role};
pub use error::{ConnectionError, ErrorCode, Flood, StreamClosed, StreamError};
pub use fields::{Field, FieldLimits, Fields, Malformed};
pub use frame::{
    FRAME_HEADER_BYTES, FrameHeader, FrameType, MAX_MAX_FRAME_BYTES, MIN_MAX_FRAME_BYTES, PREFACE,
    flags,
};
pub use hpack::{Decoder, Encoder, HpackError};
pub use limits::{Limits, Rate};
