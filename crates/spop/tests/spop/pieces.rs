use proptest::prelude::*;
use tollgate_spop::{Connection, Event, Limits, Message, Variables, push_varint};

use super::{HELLO, NOTIFY, frame, notify};

/// Events as text and bytes in answer to pieces, each of which is consumed.
fn run<'a>(limits: Limits, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<String>, Vec<u8>) {
    let mut connection = Connection::new(limits);
    let (mut events, mut out) = (Vec::new(), Vec::new());
    for mut piece in pieces {
        loop {
            let event = connection.receive(&mut piece, &mut out);
            events.push(format!("{event:?}"));
            match event {
                Ok(Some(Event::Notify { id, .. })) => {
                    connection.acknowledge(id, &Variables::default(), &mut out);
                }
                Ok(Some(_)) => {}
                Ok(None) => {
                    events.pop();
                    break;
                }
                Err(_) => return (events, out),
            }
        }
    }
    (events, out)
}

#[test]
fn frames_are_the_same_when_split_at_every_byte() {
    let end = frame(b"\x02\x00\x00\x00\x01\x00\x00\x0bstatus-code\x03\x00\x07message\x08\x00");
    let unknown = frame(b"\x09\x00\x00\x00\x01\x00\x00");
    let bytes = [HELLO, NOTIFY, &unknown, &notify(b"\x01a\x00"), NOTIFY, &end].concat();
    let whole = run(Limits::default(), [&bytes[..]]);
    assert_eq!(whole.0.len(), 6);
    for at in 0..=bytes.len() {
        let (start, rest) = bytes.split_at(at);
        assert_eq!(run(Limits::default(), [start, rest]), whole, "split at {at}");
    }
    assert_eq!(run(Limits::default(), bytes.chunks(1)), whole);
}

#[test]
fn frame_may_have_the_negotiated_length_and_not_a_byte_more() {
    // Frames of 16,380 bytes, that is HAProxy's buffer of 16 KiB: the rest is the body.
    let with_length = |length: usize| {
        let start = b"\x03\x00\x00\x00\x01\x05\x02\x0acoraza-req\x04\x06method\x08\x04POST\x04path\x08\x01/\
            \x07headers\x08\x00\x04body\x09";
        let mut bytes = start.to_vec();
        // The length of the body has three bytes: 2288 and more.
        let body = length - start.len() - 3;
        push_varint(body as u64, &mut bytes);
        bytes.resize(length, b'x');
        (frame(&bytes), body)
    };
    let (largest, body) = with_length(16_380);
    let bytes = [HELLO, &largest, NOTIFY].concat();
    for pieces in [bytes.len(), 16_384, 4096, 1000, 7] {
        let mut connection = Connection::new(Limits::default());
        let mut bodies = Vec::new();
        for mut piece in bytes.chunks(pieces) {
            while let Some(event) = connection.receive(&mut piece, &mut Vec::new()).unwrap() {
                if let Event::Notify { message: Ok(Message::Request(request)), .. } = event {
                    bodies.push(request.body.bytes.len());
                }
            }
        }
        assert_eq!(bodies, [body, 0], "pieces of {pieces}");
        assert!(connection.held_bytes() < 5000, "memory of the long frame is freed");
    }
    let (larger, _) = with_length(16_381);
    let (events, _) = run(Limits::default(), [&[HELLO, &larger].concat()[..]]);
    assert_eq!(events.last().map(String::as_str), Some("Err(TooBig)"));
}

#[test]
fn incomplete_frame_is_known() {
    let mut connection = super::open();
    assert!(!connection.has_partial_frame());
    let (start, rest) = NOTIFY.split_at(3);
    assert_eq!(connection.receive(&mut { start }, &mut Vec::new()), Ok(None));
    assert!(connection.has_partial_frame());
    assert!(connection.receive(&mut { rest }, &mut Vec::new()).unwrap().is_some());
    assert!(!connection.has_partial_frame());
}

proptest! {
    #[test]
    fn garbage_ends_in_an_error_and_depends_on_no_pieces(
        payload in proptest::collection::vec(any::<u8>(), 0..200),
        kind in 0..4_u8,
        size in 1..50_usize,
    ) {
        let bytes = [HELLO, &frame(&[&[kind, 0, 0, 0, 1], &payload[..]].concat()), &payload].concat();
        let whole = run(Limits::default(), [&bytes[..]]);
        prop_assert_eq!(run(Limits::default(), bytes.chunks(size)), whole);
    }

    #[test]
    fn a_changed_byte_of_a_notify_never_panics(at in 0..NOTIFY.len(), byte: u8) {
        let mut changed = NOTIFY.to_vec();
        changed[at] = byte;
        let bytes = [HELLO, &changed, NOTIFY].concat();
        let whole = run(Limits::default(), [&bytes[..]]);
        prop_assert_eq!(run(Limits::default(), bytes.chunks(11)), whole);
    }
}
