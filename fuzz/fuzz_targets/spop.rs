//! Connections of HAProxy's SPOE: independence of the pieces, and a second reading of what is sent.
//!
//! Input: one byte for the pieces, then what HAProxy sends. A handshake precedes it if the byte is even, so that random
//! bytes get past it.

#![no_main]

mod pieces;

use libfuzzer_sys::fuzz_target;
use pieces::pieces;
use tollgate_spop::{
    Action, Connection, ConnectionError, Event, Interruption, Limits, Matches, Message, NotifyId,
    Variables,
};

const HELLO: &[u8] =
    b"\x00\x00\x00\x4e\x01\x00\x00\x00\x01\x00\x00\x12supported-versions\x08\x032.0\
    \x0emax-frame-size\x03\xfc\xf0\x06\x0ccapabilities\x08\x0apipelining\x01x\x00";

/// Small limits, so that inputs of some kilobytes exceed them.
const LIMITS: Limits = Limits { frame_bytes: 1000, messages: 3, arguments: 20, pending: 4 };

fuzz_target!(|input: &[u8]| {
    let Some((first, bytes)) = input.split_first() else { return };
    let mut received = Vec::new();
    if first & 1 == 0 {
        received.extend_from_slice(HELLO);
    }
    received.extend_from_slice(bytes);
    let whole = run(std::iter::once(&received[..]));
    let in_pieces = run(pieces(&received, *first));
    assert_eq!(whole, in_pieces);
});

#[derive(Debug, Default, PartialEq)]
struct Outcome {
    events: Vec<String>,
    sent: Vec<u8>,
    error: Option<ConnectionError>,
}

fn run<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Outcome {
    let mut outcome = Outcome::default();
    let mut connection = Connection::new(LIMITS);
    let (mut pending, mut acknowledged) = (Vec::new(), Vec::new());
    'pieces: for mut piece in pieces {
        loop {
            // In another order than they came.
            while connection.is_full()
                && let Some(id) = pending.pop()
            {
                acknowledge(&mut connection, id, &mut outcome.sent);
                acknowledged.push(id);
            }
            let event = match connection.receive(&mut piece, &mut outcome.sent) {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(error) => {
                    outcome.error = Some(error);
                    break 'pieces;
                }
            };
            outcome.events.push(format!("{event:?}"));
            if let Event::Notify { id, message } = event {
                pending.push(id);
                match message {
                    Ok(Message::Request(request)) => {
                        assert!(request.body.bytes.len() <= 1000);
                        request.body_extent();
                    }
                    Ok(Message::Response(response)) => {
                        response.body_extent();
                    }
                    Err(_) => {}
                }
            }
        }
        assert!(piece.is_empty() || !connection.is_open());
    }
    assert!(connection.pending() <= 4 && connection.held_bytes() <= 4096);
    check_frames(&outcome, &acknowledged);
    outcome
}

fn acknowledge(connection: &mut Connection, id: NotifyId, out: &mut Vec<u8>) {
    let interruption =
        Interruption { action: Action::Redirect(&[b'/'; 900]), status: 302, rule: id.frame };
    let variables = Variables {
        id: b"id",
        interruption: Some(interruption),
        matches: Some(Matches { rules: &[u64::MAX; 60], score: -1 }),
    };
    connection.acknowledge(id, &variables, out);
}

/// Checks that the output consists of whole frames, none of them too long, and that nothing follows a DISCONNECT.
fn check_frames(outcome: &Outcome, acknowledged: &[NotifyId]) {
    let mut rest = &outcome.sent[..];
    let mut acks = acknowledged.iter();
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = u32::from_be_bytes(*length) as usize;
        assert!(length <= 1000);
        let (frame, after) = after.split_at(length);
        rest = after;
        match frame[0] {
            101 => {}
            102 => assert!(rest.is_empty()),
            103 => {
                let id = acks.next().unwrap();
                let (stream, after) = varint(&frame[5..]);
                assert_eq!((stream, varint(after).0), (id.stream, id.frame));
            }
            other => panic!("frame of type {other}"),
        }
    }
    assert!(rest.is_empty() && acks.next().is_none());
    assert!(outcome.error.is_none() || outcome.sent.contains(&102));
}

/// Reads an integer by its definition in wide arithmetic.
fn varint(bytes: &[u8]) -> (u64, &[u8]) {
    let mut value = u128::from(bytes[0]);
    let mut used = 1;
    let mut more = bytes[0] >= 240;
    while more {
        let byte = bytes[used];
        value += u128::from(byte) << (4 + 7 * (used - 1));
        used += 1;
        more = byte >= 128;
    }
    (value.try_into().unwrap(), &bytes[used..])
}
