use std::net::IpAddr;

use proptest::prelude::*;
use tollgate_spop::{Connection, Event, Limits, NotifyId, Value, push_varint};

use super::{HELLO, frame};

/// The stream of a NOTIFY with this identifier. `None`: it is invalid.
fn read_varint(bytes: &[u8]) -> Option<u64> {
    let notify = frame(&[b"\x03\x00\x00\x00\x01", bytes, b"\x00"].concat());
    let bytes = [HELLO, &notify].concat();
    let mut connection = Connection::new(Limits::default());
    let (mut input, mut out) = (&bytes[..], Vec::new());
    connection.receive(&mut input, &mut out).unwrap();
    match connection.receive(&mut input, &mut out) {
        Ok(Some(Event::Notify { id: NotifyId { stream, frame: 0 }, .. })) => Some(stream),
        Err(_) => None,
        other => panic!("{other:?}"),
    }
}

fn varint(value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_varint(value, &mut bytes);
    bytes
}

#[test]
fn integers_have_the_lengths_of_the_specification() {
    // First and last value of each length in SPOE.txt, section 3.1. Later bytes are added: 0xf0 + (0x80 << 4) = 2288.
    for (value, bytes) in [
        (0, &b"\x00"[..]),
        (239, b"\xef"),
        (240, b"\xf0\x00"),
        (2287, b"\xff\x7f"),
        (2288, b"\xf0\x80\x00"),
        (16_380, b"\xfc\xf0\x06"),
        (264_431, b"\xff\xff\x7f"),
        (264_432, b"\xf0\x80\x80\x00"),
        (33_818_863, b"\xff\xff\xff\x7f"),
        (33_818_864, b"\xf0\x80\x80\x80\x00"),
        (4_328_786_159, b"\xff\xff\xff\xff\x7f"),
        (4_328_786_160, b"\xf0\x80\x80\x80\x80\x00"),
    ] {
        assert_eq!(varint(value), bytes, "{value}");
        assert_eq!(read_varint(bytes), Some(value), "{bytes:x?}");
    }
}

#[test]
fn integer_beyond_64_bits_is_invalid() {
    // 2^64 - 1 - 240 = 0xffff_ffff_ffff_ff0f; without its low four bits, as nine groups that add 0x80 each but the last.
    let largest = varint(u64::MAX);
    assert_eq!(largest.len(), 10);
    assert_eq!(read_varint(&largest), Some(u64::MAX));
    let mut larger = largest.clone();
    larger[9] += 1;
    assert_eq!(read_varint(&larger), None);
    larger = largest;
    larger[9] |= 0x80;
    larger.push(0);
    assert_eq!(read_varint(&larger), None);
    assert_eq!(read_varint(&[0xff; 20]), None);
}

proptest! {
    #[test]
    fn integers_are_read_as_written(value: u64, shift in 0..64_u32) {
        let value = value >> shift;
        prop_assert_eq!(read_varint(&varint(value)), Some(value));
    }
}

#[test]
fn values_convert_to_numbers_and_bytes() {
    for (value, number) in [
        (Value::Int32(7), Some(7)),
        (Value::Uint32(7), Some(7)),
        (Value::Int64(7), Some(7)),
        (Value::Uint64(u64::MAX), Some(u64::MAX)),
        (Value::Int64(-1), None),
        (Value::Bool(true), None),
        (Value::Null, None),
        (Value::Ip(IpAddr::from([1, 2, 3, 4])), None),
    ] {
        assert_eq!(value.number(), number, "{value:?}");
        assert_eq!(value.bytes(), None);
    }
    assert_eq!(Value::String(b"a").bytes(), Some(&b"a"[..]));
    assert_eq!(Value::Binary(b"a").bytes(), Some(&b"a"[..]));
}
