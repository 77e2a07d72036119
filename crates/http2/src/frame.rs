//! Frames (RFC 9113, sections 4 and 6): their header, and payloads of fixed layout.

use crate::error::{ConnectionError, ErrorCode};

/// Length of a frame's header in bytes.
pub const FRAME_HEADER_BYTES: usize = 9;

/// Payload that every peer accepts; the initial `SETTINGS_MAX_FRAME_SIZE`.
pub const MIN_MAX_FRAME_BYTES: u32 = 16_384;

/// Largest `SETTINGS_MAX_FRAME_SIZE`.
pub const MAX_MAX_FRAME_BYTES: u32 = (1 << 24) - 1;

/// Bytes that a client sends first (RFC 9113, section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameType(pub u8);

impl FrameType {
    pub const DATA: Self = Self(0);
    pub const HEADERS: Self = Self(1);
    pub const PRIORITY: Self = Self(2);
    pub const RST_STREAM: Self = Self(3);
    pub const SETTINGS: Self = Self(4);
    pub const PUSH_PROMISE: Self = Self(5);
    pub const PING: Self = Self(6);
    pub const GOAWAY: Self = Self(7);
    pub const WINDOW_UPDATE: Self = Self(8);
    pub const CONTINUATION: Self = Self(9);
}

/// Flags of frames. `ACK` has the bit of `END_STREAM`.
pub mod flags {
    pub const END_STREAM: u8 = 0x1;
    pub const ACK: u8 = 0x1;
    pub const END_HEADERS: u8 = 0x4;
    pub const PADDED: u8 = 0x8;
    pub const PRIORITY: u8 = 0x20;
}

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Length of the payload in bytes, at most 24 bits.
    pub length: u32,
    pub kind: FrameType,
    pub flags: u8,
    /// Stream identifier of 31 bits; 0 for the connection.
    pub stream: u32,
}

impl FrameHeader {
    /// Parses a header. Ignores the reserved bit.
    pub fn parse(bytes: &[u8; FRAME_HEADER_BYTES]) -> Self {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = *bytes;
        Self {
            length: u32::from_be_bytes([0, l0, l1, l2]),
            kind: FrameType(kind),
            flags,
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & STREAM_MAX,
        }
    }

    pub fn to_bytes(self) -> [u8; FRAME_HEADER_BYTES] {
        let [_, l0, l1, l2] = self.length.to_be_bytes();
        let [s0, s1, s2, s3] = self.stream.to_be_bytes();
        [l0, l1, l2, self.kind.0, self.flags, s0, s1, s2, s3]
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Largest stream identifier, and largest window.
pub(crate) const STREAM_MAX: u32 = (1 << 31) - 1;

/// Parameters of SETTINGS (RFC 9113, section 6.5.2; RFC 8441, section 3).
pub(crate) mod setting {
    pub(crate) const HEADER_TABLE_SIZE: u16 = 1;
    pub(crate) const ENABLE_PUSH: u16 = 2;
    pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;
    pub(crate) const MAX_FRAME_SIZE: u16 = 5;
    pub(crate) const MAX_HEADER_LIST_SIZE: u16 = 6;
    pub(crate) const ENABLE_CONNECT_PROTOCOL: u16 = 8;
}

/// Returns the field block in the payload of a HEADERS frame, without padding and priority.
pub(crate) fn field_block<'a>(
    header: &FrameHeader,
    mut payload: &'a [u8],
) -> Result<&'a [u8], ConnectionError> {
    if header.has(flags::PADDED) {
        let (&padding, rest) = payload.split_first().ok_or(ConnectionError::FRAME_SIZE)?;
        let block = rest.len().checked_sub(usize::from(padding)).ok_or(ConnectionError::PADDING)?;
        payload = &rest[..block];
    }
    if header.has(flags::PRIORITY) {
        check_dependency(header.stream, payload)?;
        payload = payload.get(5..).ok_or(ConnectionError::FRAME_SIZE)?;
    }
    Ok(payload)
}

/// Checks a priority, which is ignored otherwise: no stream depends on itself (RFC 7540, section 5.3.1).
pub(crate) fn check_dependency(stream: u32, priority: &[u8]) -> Result<(), ConnectionError> {
    let dependency = priority.first_chunk().ok_or(ConnectionError::FRAME_SIZE)?;
    if u32::from_be_bytes(*dependency) & STREAM_MAX == stream {
        return Err(ConnectionError::protocol("stream depends on itself"));
    }
    Ok(())
}

/// Reads the only number of a payload.
pub(crate) fn number(payload: &[u8]) -> Result<u32, ConnectionError> {
    let Ok(bytes) = payload.try_into() else { return Err(ConnectionError::FRAME_SIZE) };
    Ok(u32::from_be_bytes(bytes))
}

/// Returns the parameters of a SETTINGS payload.
pub(crate) fn settings(
    payload: &[u8],
) -> Result<impl Iterator<Item = (u16, u32)>, ConnectionError> {
    let (parameters, []) = payload.as_chunks::<6>() else {
        return Err(ConnectionError::FRAME_SIZE);
    };
    Ok(parameters.iter().map(|[i0, i1, v0, v1, v2, v3]| {
        (u16::from_be_bytes([*i0, *i1]), u32::from_be_bytes([*v0, *v1, *v2, *v3]))
    }))
}

pub(crate) fn write(kind: FrameType, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    let header = FrameHeader { length: payload.len() as u32, kind, flags, stream };
    out.extend_from_slice(&header.to_bytes());
    out.extend_from_slice(payload);
}

pub(crate) fn write_settings(parameters: &[(u16, u32)], out: &mut Vec<u8>) {
    let length = parameters.len() as u32 * 6;
    let header = FrameHeader { length, kind: FrameType::SETTINGS, flags: 0, stream: 0 };
    out.extend_from_slice(&header.to_bytes());
    for (identifier, value) in parameters {
        out.extend_from_slice(&identifier.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

pub(crate) fn write_reset(stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
    write(FrameType::RST_STREAM, 0, stream, &code.0.to_be_bytes(), out);
}

pub(crate) fn write_window_update(stream: u32, increment: u32, out: &mut Vec<u8>) {
    write(FrameType::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes(), out);
}

pub(crate) fn write_go_away(last_stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
    let mut payload = [0; 8];
    payload[..4].copy_from_slice(&last_stream.to_be_bytes());
    payload[4..].copy_from_slice(&code.0.to_be_bytes());
    write(FrameType::GOAWAY, 0, 0, &payload, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_has_nine_bytes_and_a_reserved_bit() {
        let bytes = [0x01, 0x02, 0x03, 0x01, 0x25, 0x80, 0x00, 0x00, 0x05];
        let header = FrameHeader::parse(&bytes);
        let (kind, flags) = (FrameType::HEADERS, 0x25);
        assert_eq!(header, FrameHeader { length: 0x010203, kind, flags, stream: 5 });
        assert_eq!(header.to_bytes(), [0x01, 0x02, 0x03, 0x01, 0x25, 0, 0, 0, 5]);
    }

    #[test]
    fn padding_and_priority_are_stripped() {
        let block = |flags, payload: &'static [u8]| {
            let header = FrameHeader { length: 0, kind: FrameType::HEADERS, flags, stream: 1 };
            field_block(&header, payload)
        };
        assert_eq!(block(0, b"abc"), Ok(&b"abc"[..]));
        assert_eq!(block(flags::PADDED, b"\x02abc\0\0"), Ok(&b"abc"[..]));
        assert_eq!(block(flags::PADDED | flags::PRIORITY, b"\x01\0\0\0\0\0abc\0"), Ok(&b"abc"[..]));
        assert_eq!(block(flags::PADDED, b"\x03abc"), Ok(&b""[..]));
        assert_eq!(block(flags::PADDED, b"\x04abc"), Err(ConnectionError::PADDING));
        assert_eq!(block(flags::PADDED, b""), Err(ConnectionError::FRAME_SIZE));
        assert_eq!(block(flags::PRIORITY, b"\0\0\0\0"), Err(ConnectionError::FRAME_SIZE));
    }
}
