//! Data types (SPOE.txt, section 3.1): integers of variable length, and values with a type.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::error::ConnectionError;

/// A value with its type. Flags other than that of a boolean are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Int32(i32),
    Uint32(u32),
    Int64(i64),
    Uint64(u64),
    Ip(IpAddr),
    String(&'a [u8]),
    Binary(&'a [u8]),
}

/// Types of values, in the low four bits of their first byte.
mod kind {
    pub(super) const NULL: u8 = 0;
    pub(super) const BOOL: u8 = 1;
    pub(super) const INT32: u8 = 2;
    pub(super) const UINT32: u8 = 3;
    pub(super) const INT64: u8 = 4;
    pub(super) const UINT64: u8 = 5;
    pub(super) const IPV4: u8 = 6;
    pub(super) const IPV6: u8 = 7;
    pub(super) const STRING: u8 = 8;
    pub(super) const BINARY: u8 = 9;
}

/// Flag of a boolean that is true.
const TRUE: u8 = 0x10;

impl<'a> Value<'a> {
    /// The text of a string, or the bytes of binary data.
    pub fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::String(bytes) | Self::Binary(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// An integer of any type that is not negative.
    pub fn number(self) -> Option<u64> {
        match self {
            Self::Int32(value) => value.try_into().ok(),
            Self::Uint32(value) => Some(value.into()),
            Self::Int64(value) => value.try_into().ok(),
            Self::Uint64(value) => Some(value),
            _ => None,
        }
    }

    /// Appends the value with its type.
    pub(crate) fn push(self, out: &mut Vec<u8>) {
        let mut integer = |kind, value| {
            out.push(kind);
            push_varint(value, out);
        };
        match self {
            Self::Null => out.push(kind::NULL),
            Self::Bool(value) => out.push(kind::BOOL | if value { TRUE } else { 0 }),
            // Negative integers are extended to 64 bits.
            Self::Int32(value) => integer(kind::INT32, i64::from(value).cast_unsigned()),
            Self::Uint32(value) => integer(kind::UINT32, value.into()),
            Self::Int64(value) => integer(kind::INT64, value.cast_unsigned()),
            Self::Uint64(value) => integer(kind::UINT64, value),
            Self::Ip(IpAddr::V4(ip)) => {
                out.push(kind::IPV4);
                out.extend_from_slice(&ip.octets());
            }
            Self::Ip(IpAddr::V6(ip)) => {
                out.push(kind::IPV6);
                out.extend_from_slice(&ip.octets());
            }
            Self::String(bytes) => {
                out.push(kind::STRING);
                push_string(bytes, out);
            }
            Self::Binary(bytes) => {
                out.push(kind::BINARY);
                push_string(bytes, out);
            }
        }
    }
}

/// Values below this have one byte.
const ONE_BYTE: u64 = 240;

/// Appends an integer as HAProxy's peers protocol has it.
pub fn push_varint(value: u64, out: &mut Vec<u8>) {
    if value < ONE_BYTE {
        return out.push(value as u8);
    }
    out.push(value as u8 | 0xf0);
    let mut rest = (value - ONE_BYTE) >> 4;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest = (rest - 0x80) >> 7;
    }
    out.push(rest as u8);
}

/// Appends bytes with their length.
pub(crate) fn push_string(bytes: &[u8], out: &mut Vec<u8>) {
    push_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// The rest of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Result<u8, ConnectionError> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], ConnectionError> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub(crate) fn varint(&mut self) -> Result<u64, ConnectionError> {
        let mut value = u64::from(self.byte()?);
        if value < ONE_BYTE {
            return Ok(value);
        }
        // Later bytes are added, with the bit that says that more follow.
        for shift in (4..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte);
            if part.leading_zeros() < shift {
                return Err(LONG_INTEGER);
            }
            value = value.checked_add(part << shift).ok_or(LONG_INTEGER)?;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(LONG_INTEGER)
    }

    pub(crate) fn string(&mut self) -> Result<&'a [u8], ConnectionError> {
        let length = self.varint()?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(crate) fn value(&mut self) -> Result<Value<'a>, ConnectionError> {
        let first = self.byte()?;
        Ok(match first & 0x0f {
            kind::NULL => Value::Null,
            kind::BOOL => Value::Bool(first & TRUE != 0),
            kind::INT32 => {
                let value = self.varint()?.cast_signed();
                Value::Int32(value.try_into().ok().ok_or(LONG_INTEGER)?)
            }
            kind::UINT32 => Value::Uint32(self.varint()?.try_into().ok().ok_or(LONG_INTEGER)?),
            kind::INT64 => Value::Int64(self.varint()?.cast_signed()),
            kind::UINT64 => Value::Uint64(self.varint()?),
            kind::IPV4 => Value::Ip(Ipv4Addr::from(self.array()?).into()),
            kind::IPV6 => Value::Ip(Ipv6Addr::from(self.array::<16>()?).into()),
            kind::STRING => Value::String(self.string()?),
            kind::BINARY => Value::Binary(self.string()?),
            _ => return Err(ConnectionError::Invalid("unknown type of a value")),
        })
    }
}

const TRUNCATED: ConnectionError = ConnectionError::Invalid("value ends after its frame");
const LONG_INTEGER: ConnectionError = ConnectionError::Invalid("integer out of range");
