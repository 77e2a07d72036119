use tollgate_spop::{
    Connection, ConnectionError, Event, Limits, MessageError, NotifyId, StatusCode, Variables,
};

use super::{AGENT_HELLO, HEALTH_CHECK, HELLO, NOTIFY, answer, frame, notify, open};

/// A DISCONNECT of the agent: the code, and the length of the text before it.
fn disconnect(code: u8, text: &str) -> Vec<u8> {
    let length = text.len() as u8;
    let start = b"\x66\x00\x00\x00\x01\x00\x00\x0bstatus-code\x03";
    frame(&[&start[..], &[code], b"\x07message\x08", &[length], text.as_bytes()].concat())
}

/// HELLO with these items.
fn hello(items: &[u8]) -> Vec<u8> {
    frame(&[b"\x01\x00\x00\x00\x01\x00\x00", items].concat())
}

#[test]
fn health_check_is_answered_and_then_nothing_more_is_read() {
    let bytes = [HEALTH_CHECK, NOTIFY].concat();
    let (mut input, mut out) = (&bytes[..], Vec::new());
    let mut connection = Connection::new(Limits::default());
    let event = connection.receive(&mut input, &mut out);
    assert_eq!(event, Ok(Some(Event::Hello { is_health_check: true })));
    let expected = b"\x00\x00\x00\x36\x65\x00\x00\x00\x01\x00\x00\x07version\x08\x032.0\
        \x0emax-frame-size\x03\xfc\xf0\x06\x0ccapabilities\x08\x00";
    assert_eq!(out, expected, "it announces no capabilities");
    assert_eq!(connection.receive(&mut input, &mut out), Ok(None));
    assert_eq!((input, out.len()), (NOTIFY, expected.len()));
}

#[test]
fn handshake_takes_the_smaller_frame_size() {
    let limits = Limits { frame_bytes: 1000, ..Limits::default() };
    let (out, error) = answer(limits, HELLO);
    assert_eq!(error, None);
    // 1000 = 248 + (47 << 4).
    let expected = b"\x00\x00\x00\x3f\x65\x00\x00\x00\x01\x00\x00\x07version\x08\x032.0\
        \x0emax-frame-size\x03\xf8\x2f\x0ccapabilities\x08\x0apipelining";
    assert_eq!(out, expected);
    let notify = notify(&[0; 994]);
    let (out, error) = answer(limits, &[HELLO, &notify].concat());
    assert_eq!(error, Some(ConnectionError::TooBig));
    assert!(out.ends_with(&disconnect(3, "frame is longer than negotiated")));
}

#[test]
fn version_2_is_found_in_the_list() {
    let items = |versions: &[u8]| {
        let length = [versions.len() as u8];
        let rest = b"\x0emax-frame-size\x03\xfc\xf0\x06\x0ccapabilities\x08\x0apipelining";
        hello(&[b"\x12supported-versions\x08", &length[..], versions, rest].concat())
    };
    for versions in [&b"2.0"[..], b" 1.5 , 2.0 ", b"3.0,2.1"] {
        assert_eq!(answer(Limits::default(), &items(versions)), (AGENT_HELLO.to_vec(), None));
    }
    for versions in [&b"1.0"[..], b"", b"20.0", b"3.2.0"] {
        let (out, error) = answer(Limits::default(), &items(versions));
        assert_eq!(error, Some(ConnectionError::BadVersion), "{versions:?}");
        assert_eq!(out, disconnect(8, "SPOP 2.0 is not among the supported versions"));
    }
}

#[test]
fn handshake_with_missing_or_bad_items_ends_with_their_code() {
    let (version, size) =
        (&b"\x12supported-versions\x08\x032.0"[..], &b"\x0emax-frame-size\x03"[..]);
    let capabilities = &b"\x0ccapabilities\x08\x00"[..];
    for (items, code) in [
        (&[size, b"\xfc\xf0\x06", capabilities][..], 5),
        (&[version, capabilities], 6),
        (&[version, size, b"\xfc\xf0\x06"], 7),
        (&[version, size, b"\xf0\x00", capabilities], 9),
        (&[version, size, b"\xff\x00", capabilities], 9),
        (&[b"\x12supported-versions\x03\x02"], 4),
        (&[b"\x0emax-frame-size\x08\x00"], 4),
        (&[b"\x12supported-versions\x0a"], 4),
        (&[b"\x12supported"], 4),
    ] {
        let (out, error) = answer(Limits::default(), &hello(&items.concat()));
        assert_eq!(error.unwrap().code(), StatusCode(code), "{error:?}");
        assert_eq!(out, disconnect(code as u8, &error.unwrap().to_string()));
    }
    // 256 = 240 + (1 << 4) is enough.
    let smallest = hello(&[version, size, b"\xf0\x01", capabilities].concat());
    assert_eq!(answer(Limits::default(), &smallest).1, None);
}

#[test]
fn frames_in_a_wrong_place_are_errors() {
    let unset = frame(b"\x00\x00\x00\x00\x01\x05\x02");
    let fragment = frame(b"\x03\x00\x00\x00\x00\x05\x02");
    let with_ids = frame(b"\x01\x00\x00\x00\x01\x01\x00");
    let invalid = ConnectionError::Invalid;
    for (bytes, error) in [
        (NOTIFY.to_vec(), invalid("first frame is not HELLO")),
        (with_ids, invalid("frame of a connection with identifiers")),
        ([HELLO, HELLO].concat(), invalid("second HELLO")),
        ([HELLO, AGENT_HELLO].concat(), invalid("frame of an agent")),
        ([HELLO, &frame(b"\x67\x00\x00\x00\x01\x05\x02")].concat(), invalid("frame of an agent")),
        ([HELLO, &unset].concat(), ConnectionError::Fragmented),
        ([HELLO, &fragment].concat(), ConnectionError::Fragmented),
        ([HELLO, &frame(b"")].concat(), invalid("value ends after its frame")),
        (
            [HELLO, &frame(b"\x03\x00\x00\x00\x01\x05")].concat(),
            invalid("value ends after its frame"),
        ),
        ([HELLO, b"\xff\xff\xff\xff"].concat(), ConnectionError::TooBig),
    ] {
        assert_eq!(answer(Limits::default(), &bytes).1, Some(error));
    }
}

#[test]
fn frame_of_an_unknown_type_is_skipped() {
    let mut connection = open();
    let bytes = [&frame(b"\x04\x00\x00\x00\x01\x05\x02anything")[..], NOTIFY].concat();
    let (mut input, mut out) = (&bytes[..], Vec::new());
    assert_eq!(connection.receive(&mut input, &mut out), Ok(Some(Event::Skipped)));
    assert!(matches!(connection.receive(&mut input, &mut out), Ok(Some(Event::Notify { .. }))));
}

#[test]
fn disconnect_of_haproxy_is_answered_and_ends_the_connection() {
    let mut connection = open();
    let mut out = Vec::new();
    connection.receive(&mut &NOTIFY[..], &mut out).unwrap();
    let bytes = frame(
        b"\x02\x00\x00\x00\x01\x00\x00\x0bstatus-code\x03\x02\x07message\x08\x12a timeout occurred",
    );
    let event = connection.receive(&mut &bytes[..], &mut out);
    let expected = Event::Disconnect { code: StatusCode::TIMEOUT, message: b"a timeout occurred" };
    assert_eq!(event, Ok(Some(expected)));
    assert_eq!(out, disconnect(0, ""));
    let id = NotifyId { stream: 9, frame: 1 };
    connection.acknowledge(id, &Variables::default(), &mut out);
    assert_eq!(connection.receive(&mut &NOTIFY[..], &mut out), Ok(None));
    connection.disconnect(StatusCode::NORMAL, "late", &mut out);
    assert_eq!(out, disconnect(0, ""), "nothing follows");
}

#[test]
fn agent_disconnects_once() {
    let mut connection = open();
    let mut out = Vec::new();
    connection.disconnect(StatusCode::TIMEOUT, "idle", &mut out);
    connection.disconnect(StatusCode::NORMAL, "late", &mut out);
    assert_eq!(out, disconnect(2, "idle"));
    assert_eq!(connection.receive(&mut &NOTIFY[..], &mut out), Ok(None));
    assert!(!connection.is_open());
}

#[test]
fn acknowledgements_are_sent_in_any_order_and_make_room() {
    let limits = Limits { pending: 2, ..Limits::default() };
    let mut connection = Connection::new(limits);
    let bytes = [HELLO, NOTIFY, &notify(b""), NOTIFY].concat();
    let (mut input, mut out) = (&bytes[..], Vec::new());
    let mut ids = Vec::new();
    while let Some(event) = connection.receive(&mut input, &mut out).unwrap() {
        if let Event::Notify { id, .. } = event {
            ids.push((id.stream, id.frame));
        }
    }
    assert_eq!((ids, input, connection.pending()), (vec![(9, 1), (5, 2)], NOTIFY, 2));
    assert!(connection.is_full());
    out.clear();
    for (stream, frame) in [(5, 2), (9, 1)] {
        let id = NotifyId { stream, frame };
        connection.acknowledge(id, &Variables::default(), &mut out);
    }
    assert_eq!(out, b"\0\0\0\x07\x67\0\0\0\x01\x05\x02\0\0\0\x07\x67\0\0\0\x01\x09\x01");
    assert!(matches!(connection.receive(&mut input, &mut out), Ok(Some(Event::Notify { .. }))));
}

#[test]
fn messages_and_arguments_are_limited() {
    let limits = Limits { messages: 2, arguments: 3, ..Limits::default() };
    let with = |payload: &[u8]| answer(limits, &[HELLO, &notify(payload)].concat()).1;
    assert_eq!(with(b"\x01a\x03\x01x\x00\x01y\x00\x01z\x00\x01b\x00"), None);
    assert_eq!(
        with(b"\x01a\x04\x01x\x00\x01y\x00\x01z\x00\x01z\x00"),
        Some(ConnectionError::TooMany)
    );
    assert_eq!(with(b"\x01a\x00\x01a\x00\x01a\x00"), Some(ConnectionError::TooMany));
    let truncated = ConnectionError::Invalid("value ends after its frame");
    assert_eq!(with(b"\x01a\x02\x01x\x00"), Some(truncated));
    assert_eq!(with(b"\x01a"), Some(truncated));
    let event =
        Event::Notify { id: NotifyId { stream: 5, frame: 2 }, message: Err(MessageError::Unknown) };
    let bytes = notify(b"\x01a\x00");
    assert_eq!(open().receive(&mut &bytes[..], &mut Vec::new()), Ok(Some(event)));
}
