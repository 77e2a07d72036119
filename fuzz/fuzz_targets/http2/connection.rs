//! Connections in both roles: independence of the pieces, and invariants of what is delivered and sent.
//!
//! Input: one byte for the role and the pieces, then what the peer sends. A server gets a preface and settings first if
//! the byte is even, so that random bytes get past them.

#![no_main]

#[path = "../pieces.rs"]
mod pieces;

use std::collections::BTreeMap;
use std::time::Instant;

use libfuzzer_sys::fuzz_target;
use pieces::pieces;
use tollgate_http2::{
    Connection, ConnectionError, Event, Field, Fields, FrameHeader, FrameType, Limits, PREFACE,
    Rate, Role,
};

/// Small limits, so that inputs of some kilobytes exceed them.
fn limits() -> Limits {
    let rate = Rate { burst: 20, per_s: 0 };
    Limits {
        streams: 3,
        continuations: 3,
        stream_window: 70_000,
        resets: rate,
        glitches: rate,
        queued_control_frames: 10,
        extended_connect: true,
        ..Limits::default()
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((first, bytes)) = input.split_first() else { return };
    let role = if first & 2 == 0 { Role::Server } else { Role::Client };
    let settings =
        FrameHeader { length: 0, kind: FrameType::SETTINGS, flags: 0, stream: 0 }.to_bytes();
    let mut received = Vec::new();
    if first & 1 == 0 {
        if role == Role::Server {
            received.extend_from_slice(PREFACE);
        }
        received.extend_from_slice(&settings);
    }
    received.extend_from_slice(bytes);
    let whole = run(role, std::iter::once(&received[..]));
    let in_pieces = run(role, pieces(&received, *first));
    assert_eq!(whole, in_pieces);
});

#[derive(Debug, Default, PartialEq)]
struct Outcome {
    /// Events other than DATA.
    events: Vec<String>,
    /// Bodies by stream.
    bodies: BTreeMap<u32, Vec<u8>>,
    sent: Vec<u8>,
    error: Option<ConnectionError>,
}

fn run<'a>(role: Role, pieces: impl Iterator<Item = &'a [u8]>) -> Outcome {
    let now = Instant::now();
    let mut outcome = Outcome::default();
    let mut out = Vec::new();
    let mut connection = Connection::new(role, limits(), now, &mut out);
    let mut fields = Fields::default();
    if role == Role::Client {
        for method in ["GET", "HEAD", "CONNECT"] {
            let head = [Field::new(b":method", method.as_bytes())];
            assert!(connection.send_request(head, true, 0, &mut out).is_some());
        }
    }
    'pieces: for mut piece in pieces {
        loop {
            let event = match connection.receive(&mut piece, &mut fields, &mut out, now) {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(error) => {
                    outcome.error = Some(error);
                    break 'pieces;
                }
            };
            handle(event, &mut connection, &fields, &mut outcome, &mut out);
        }
        assert!(piece.is_empty());
    }
    assert!(connection.streams() <= 3);
    check_frames(role, &out);
    outcome.sent = out;
    outcome
}

fn handle(
    event: Event<'_>,
    connection: &mut Connection,
    fields: &Fields,
    outcome: &mut Outcome,
    out: &mut Vec<u8>,
) {
    let mut text = format!("{event:?}");
    let ended = match event {
        Event::Request { stream, end_stream } => {
            assert!(!fields.method().is_empty());
            assert!(fields.path().is_some() || fields.method() == "CONNECT");
            text += &check_fields(fields);
            end_stream.then_some(stream)
        }
        Event::Response { stream, status, end_stream, .. } => {
            assert!((100..1000).contains(&status) && status != 101);
            text += &check_fields(fields);
            end_stream.then_some(stream)
        }
        Event::Trailers { stream, .. } => {
            text += &check_fields(fields);
            Some(stream)
        }
        Event::HeadTooLarge { stream, .. } | Event::Reset { stream, .. } => Some(stream),
        Event::Data { stream, data, end_stream, .. } => {
            outcome.bodies.entry(stream).or_default().extend_from_slice(data);
            if !end_stream {
                return;
            }
            text = format!("end of {stream}");
            Some(stream)
        }
        _ => None,
    };
    outcome.events.push(text);
    // Each third stream is left open.
    if let Some(stream) = ended.filter(|stream| stream % 3 != 0) {
        // Fails on streams that were reset, and for clients.
        let response = [Field::new(b"x", b"y")];
        let _ = connection.send_response(stream, 200, response, true, out);
        connection.release(stream, out);
    }
}

/// Delivered fields are safe to forward. Returns them as text.
fn check_fields(fields: &Fields) -> String {
    for Field { name, value, .. } in fields.iter() {
        assert!(
            !name.is_empty()
                && name.iter().all(|byte| byte.is_ascii_graphic() && !byte.is_ascii_uppercase())
        );
        assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | b'\0')));
    }
    let is_of_connection =
        |name: &[u8]| matches!(name, b"connection" | b"transfer-encoding" | b"upgrade");
    assert!(
        !fields.headers().any(|field| field.name.contains(&b':') || is_of_connection(field.name))
    );
    fields.iter().map(|field| format!("{field:?}")).collect()
}

/// Output consists of whole frames and ends with the GOAWAY of an error.
fn check_frames(role: Role, out: &[u8]) {
    let mut rest = if role == Role::Client { out.strip_prefix(&PREFACE[..]).unwrap() } else { out };
    while let Some((header, after)) = rest.split_first_chunk() {
        let header = FrameHeader::parse(header);
        assert!(header.kind.0 <= FrameType::CONTINUATION.0 && header.length <= 16_384);
        rest = &after[header.length as usize..];
        assert!(header.kind != FrameType::GOAWAY || rest.is_empty());
    }
    assert!(rest.is_empty());
}
