//! Frames (SPOE.txt, section 3.2): a length, a type, flags and two identifiers, and lists of named values; their limits.

use crate::data::{Reader, Value, push_string, push_varint};
use crate::error::{ConnectionError, StatusCode};

/// Largest frame that every peer accepts.
pub const MIN_FRAME_BYTES: u32 = 256;

/// Largest frame that a limit may allow. HAProxy's are as long as its buffers: `tune.bufsize`.
pub const MAX_FRAME_BYTES: u32 = 1 << 24;

/// Limits for what HAProxy may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Length of a frame; HAProxy's is smaller unless `tune.bufsize` exceeds it. Default: 1 MiB.
    pub frame_bytes: u32,
    /// Messages of one NOTIFY. Default: 16.
    pub messages: usize,
    /// Arguments of one message. Default: 64.
    pub arguments: u8,
    /// NOTIFY frames without their acknowledgements. Default: 1000.
    pub pending: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { frame_bytes: 1 << 20, messages: 16, arguments: 64, pending: 1000 }
    }
}

/// Length of the length of a frame.
pub(crate) const LENGTH_BYTES: usize = 4;

/// Type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameType(pub u8);

impl FrameType {
    /// Continues a fragment.
    pub const UNSET: Self = Self(0);
    pub const HAPROXY_HELLO: Self = Self(1);
    pub const HAPROXY_DISCONNECT: Self = Self(2);
    pub const NOTIFY: Self = Self(3);
    pub const AGENT_HELLO: Self = Self(101);
    pub const AGENT_DISCONNECT: Self = Self(102);
    pub const ACK: Self = Self(103);
}

/// The frame is whole, or the last fragment.
const FIN: u32 = 1;

/// A frame without its length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: FrameType,
    pub(crate) stream: u64,
    pub(crate) frame: u64,
    pub(crate) payload: Reader<'a>,
}

impl<'a> Frame<'a> {
    /// Parses a whole frame. Ignores its other flags: that to abort concerns fragments.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, ConnectionError> {
        let mut reader = Reader(bytes);
        let kind = FrameType(reader.byte()?);
        let flags = u32::from_be_bytes(reader.array()?);
        if flags & FIN == 0 || kind == FrameType::UNSET {
            return Err(ConnectionError::Fragmented);
        }
        Ok(Self { kind, stream: reader.varint()?, frame: reader.varint()?, payload: reader })
    }

    /// Checks that the frame concerns the connection.
    pub(crate) fn check_ids(&self) -> Result<(), ConnectionError> {
        if (self.stream, self.frame) != (0, 0) {
            return Err(ConnectionError::Invalid("frame of a connection with identifiers"));
        }
        Ok(())
    }
}

/// Appends a frame, whose payload `write` appends.
pub(crate) fn push(
    kind: FrameType,
    (stream, frame): (u64, u64),
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    out.push(kind.0);
    out.extend_from_slice(&FIN.to_be_bytes());
    push_varint(stream, out);
    push_varint(frame, out);
    write(out);
    let length = (out.len() - start - LENGTH_BYTES) as u32;
    out[start..start + LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
}

pub(crate) fn push_disconnect(code: StatusCode, message: &str, out: &mut Vec<u8>) {
    push(FrameType::AGENT_DISCONNECT, (0, 0), out, |out| {
        push_named(b"status-code", Value::Uint32(code.0 as u32), out);
        push_named(b"message", Value::String(message.as_bytes()), out);
    });
}

/// Appends a named value.
pub(crate) fn push_named(name: &[u8], value: Value<'_>, out: &mut Vec<u8>) {
    push_string(name, out);
    value.push(out);
}
