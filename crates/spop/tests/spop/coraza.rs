use std::net::{IpAddr, Ipv4Addr};

use tollgate_spop::{
    Action, Body, BodyExtent, Event, Interruption, Matches, Message, MessageError, NotifyId,
    Request, Response, Variables,
};

use super::{NOTIFY, notify, open};

/// Reads a message of a NOTIFY.
fn message<T>(notify: &[u8], check: impl FnOnce(Result<Message<'_>, MessageError>) -> T) -> T {
    match open().receive(&mut { notify }, &mut Vec::new()) {
        Ok(Some(Event::Notify { message, .. })) => check(message),
        other => panic!("{other:?}"),
    }
}

#[test]
fn request_of_haproxy_is_read() {
    let local = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let expected = Request {
        app: b"app",
        id: b"",
        src_ip: local,
        // 0xf8 + (0xf3 << 4) + (0x1b << 11), and 0xfa + (0xcc << 4) + (0x0c << 11).
        src_port: 59_432,
        dst_ip: local,
        dst_port: 28_090,
        method: b"GET",
        path: b"/ready",
        query: None,
        version: b"1.1",
        headers: b"host: 127.0.0.1:28090\r\nuser-agent: curl/7.88.1\r\naccept: */*\r\n\r\n",
        body: Body { bytes: b"", size: Some(0), is_complete: None },
        exports_rules: false,
    };
    message(NOTIFY, |message| assert_eq!(message, Ok(Message::Request(expected))));
}

#[test]
fn arguments_have_any_order_and_unknown_ones_are_ignored() {
    let bytes = notify(
        b"\x0acoraza-req\x0c\x04body\x09\x01b\x0dexportRuleIDs\x11\x07headers\x08\x00\x05query\x08\x00\
          \x0dbody-complete\x11\x04path\x00\x06method\x08\x07OPTIONS\x05other\x04\x07\x02id\x08\x02i1\
          \x06src-ip\x07\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x03app\x00\x07version\x09\x032.0",
    );
    let expected = Request {
        id: b"i1",
        src_ip: Some("::1".parse().unwrap()),
        method: b"OPTIONS",
        path: b"*",
        query: Some(b""),
        version: b"2.0",
        body: Body { bytes: b"b", size: None, is_complete: Some(true) },
        exports_rules: true,
        ..Request::default()
    };
    message(&bytes, |message| assert_eq!(message, Ok(Message::Request(expected))));
}

#[test]
fn response_is_read() {
    let bytes = notify(
        b"\x0acoraza-res\x09\x03app\x08\x01a\x02id\x08\x02i1\x07version\x08\x031.1\x06status\x04\xf8\x11\
          \x07headers\x08\x08a: b\r\n\r\n\x04body\x09\x02ok\x09body-size\x04\x03\x0dexportRuleIDs\x01\
          \x0bdetect-only\x04\x01",
    );
    let expected = Response {
        app: b"a",
        id: b"i1",
        version: b"1.1",
        // 0xf8 + (0x11 << 4)
        status: 520,
        headers: b"a: b\r\n\r\n",
        body: Body { bytes: b"ok", size: Some(3), is_complete: None },
        exports_rules: false,
        detects_only: true,
    };
    message(&bytes, |message| assert_eq!(message, Ok(Message::Response(expected))));
}

#[test]
fn error_of_a_message_is_named_and_leaves_the_connection_open() {
    let request = &b"\x0acoraza-req"[..];
    let whole = &b"\x0acoraza-req\x03\x06method\x08\x03GET\x04path\x08\x01/\x07headers\x08\x00"[..];
    let response = &b"\x0acoraza-res"[..];
    let other = &b"\x05other\x02\x01a\x00\x01a\x00"[..];
    for (payload, error) in [
        (
            &[request, b"\x02\x04path\x08\x01/\x07headers\x08\x00"][..],
            MessageError::Missing("method"),
        ),
        (
            &[request, b"\x02\x06method\x08\x03GET\x07headers\x08\x00"],
            MessageError::Missing("path"),
        ),
        (
            &[request, b"\x02\x06method\x08\x03GET\x04path\x08\x01/"],
            MessageError::Missing("headers"),
        ),
        (
            &[request, b"\x02\x06method\x08\x03GET\x06method\x08\x03GET"],
            MessageError::Repeated("method"),
        ),
        (&[request, b"\x01\x06method\x04\x01"], MessageError::Invalid("method")),
        (&[request, b"\x01\x06src-ip\x08\x00"], MessageError::Invalid("src-ip")),
        // 0xf0 + (0xf1 << 4) + (0x1f << 11) = 67,584.
        (&[request, b"\x01\x08src-port\x04\xf0\xf1\x1f"], MessageError::Invalid("src-port")),
        (&[request, b"\x01\x0dexportRuleIDs\x08\x00"], MessageError::Invalid("exportRuleIDs")),
        (&[response, b"\x02\x06status\x04\x01\x07headers\x08\x00"], MessageError::Missing("id")),
        (&[response, b"\x02\x02id\x08\x01a\x07headers\x08\x00"], MessageError::Missing("status")),
        (&[response, b"\x02\x02id\x08\x01a\x06status\x04\x01"], MessageError::Missing("headers")),
        (&[response, b"\x01\x06status\x05\xff\xff\xff\x7f"], MessageError::Invalid("status")),
        (&[whole, whole], MessageError::Several),
        (&[whole, other, response, b"\x00"], MessageError::Several),
        (&[other], MessageError::Unknown),
    ] {
        let bytes = [&notify(&payload.concat())[..], NOTIFY].concat();
        let (mut connection, mut input) = (open(), &bytes[..]);
        let id = NotifyId { stream: 5, frame: 2 };
        let event = connection.receive(&mut input, &mut Vec::new());
        assert_eq!(event, Ok(Some(Event::Notify { id, message: Err(error) })));
        let event = connection.receive(&mut input, &mut Vec::new());
        assert!(matches!(event, Ok(Some(Event::Notify { message: Ok(_), .. }))), "{error}");
    }
    let bytes = notify(&[other, whole, other].concat());
    message(&bytes, |message| assert!(matches!(message, Ok(Message::Request(_)))));
}

#[test]
fn body_of_a_request_is_whole_only_if_that_is_known() {
    let extent = |headers: &[u8], bytes: &[u8], size, is_complete| {
        let body = Body { bytes, size, is_complete };
        Request { headers, body, ..Request::default() }.body_extent()
    };
    let length = b"host: a\r\nContent-Length: 3\r\n\r\n";
    let chunked = b"host: a\r\ntransfer-encoding: chunked\r\n\r\n";
    for (headers, bytes, size, is_complete, expected) in [
        (&b"host: a\r\n\r\n"[..], &b""[..], None, None, BodyExtent::Whole),
        (length, b"abc", None, None, BodyExtent::Whole),
        (length, b"abc", Some(3), None, BodyExtent::Whole),
        (length, b"ab", None, None, BodyExtent::Truncated),
        (length, b"", None, None, BodyExtent::Truncated),
        (length, b"ab", Some(3), None, BodyExtent::Truncated),
        (chunked, b"ab", Some(3), None, BodyExtent::Truncated),
        // The buffer may be full where a chunk ends.
        (chunked, b"abc", Some(3), None, BodyExtent::Unknown),
        (chunked, b"", Some(0), None, BodyExtent::Unknown),
        (chunked, b"abc", Some(3), Some(false), BodyExtent::Truncated),
        (chunked, b"abc", Some(3), Some(true), BodyExtent::Whole),
        (b"content-length: x\r\n\r\n", b"abc", None, None, BodyExtent::Unknown),
    ] {
        assert_eq!(extent(headers, bytes, size, is_complete), expected, "{headers:?} {bytes:?}");
    }
}

#[test]
fn empty_body_of_a_response_tells_nothing() {
    let extent = |bytes: &[u8], is_complete| {
        let body = Body { bytes, size: None, is_complete };
        let headers = b"Content-Length: 3\r\n\r\n";
        Response { headers, body, ..Response::default() }.body_extent()
    };
    assert_eq!(extent(b"", None), BodyExtent::Unknown);
    assert_eq!(extent(b"", Some(true)), BodyExtent::Whole);
    assert_eq!(extent(b"ab", None), BodyExtent::Truncated);
    assert_eq!(extent(b"abc", None), BodyExtent::Whole);
}

/// Answer to a NOTIFY of stream 9, frame 1, with frames of `frame_bytes` at most.
fn acknowledged(variables: &Variables<'_>, frame_bytes: u32) -> Vec<u8> {
    let limits = tollgate_spop::Limits { frame_bytes, ..Default::default() };
    let mut connection = tollgate_spop::Connection::new(limits);
    connection.receive(&mut &super::HELLO[..], &mut Vec::new()).unwrap();
    let mut out = b"before".to_vec();
    connection.acknowledge(NotifyId { stream: 9, frame: 1 }, variables, &mut out);
    out.split_off(6)
}

#[test]
fn variables_are_those_of_coraza_spoa() {
    let interruption = |action| Some(Interruption { action, status: 403, rule: 949_110 });
    let deny = Variables { interruption: interruption(Action::Deny), id: b"i1", matches: None };
    // 403 = 243 + (10 << 4); 949,110 = 246 + (168 << 4) + (206 << 11) + (2 << 18).
    let expected = b"\0\0\0\x3d\x67\0\0\0\x01\x09\x01\
        \x01\x03\x02\x06action\x08\x04deny\x01\x03\x02\x06status\x04\xf3\x0a\
        \x01\x03\x02\x06ruleid\x04\xf6\xa8\xce\x02\x01\x03\x02\x02id\x08\x02i1";
    assert_eq!(acknowledged(&deny, 1000), expected);
    let drop = Variables { interruption: interruption(Action::Drop), ..Variables::default() };
    assert_eq!(acknowledged(&drop, 1000)[11..27], *b"\x01\x03\x02\x06action\x08\x04drop");
    let redirect =
        Variables { interruption: interruption(Action::Redirect(b"/x")), ..Variables::default() };
    let expected = b"\x01\x03\x02\x04data\x08\x02/x\x01\x03\x02\x06action\x08\x08redirect";
    assert_eq!(acknowledged(&redirect, 1000)[11..][..expected.len()], *expected);
    let matches = Some(Matches { rules: &[942_100, 949_110], score: -5 });
    let matched = Variables { matches, ..Variables::default() };
    // -5 is 2^64 - 5: 0xf0 | 0xb, then (2^64 - 5 - 240) >> 4 in groups.
    let expected = b"\x01\x03\x02\x09rules_hit\x04\x02\x01\x03\x02\x0danomaly_score\x04\
        \xfb\xf0\xfe\xfe\xfe\xfe\xfe\xfe\xfe\x0e\x01\x03\x02\x08rule_ids\x08\x0d942100,949110";
    assert_eq!(acknowledged(&matched, 1000)[11..], *expected);
}

#[test]
fn variables_that_do_not_fit_are_left_out() {
    let long = [b'a'; 300];
    let interruption = Interruption { action: Action::Redirect(&long), status: 302, rule: 1 };
    let rules: Vec<u64> = (0..200).map(|number| 900_000 + number).collect();
    let variables = Variables {
        interruption: Some(interruption),
        id: b"i1",
        matches: Some(Matches { rules: &rules, score: 5 }),
    };
    let bytes = acknowledged(&variables, 256);
    // 256 - 7 - 16 - 13 - 12 - 10 - 15 - 19 = 164: 14 before the identifiers, and 21 of these with their commas.
    let cut = (900_000..900_021).map(|id| id.to_string()).collect::<Vec<_>>().join(",");
    assert!(bytes.ends_with(cut.as_bytes()), "{}", bytes.escape_ascii());
    assert!(bytes.len() <= 260);
    assert_eq!(bytes[11..27], *b"\x01\x03\x02\x06action\x08\x04deny");
    assert!(!bytes.windows(4).any(|bytes| bytes == b"data"));
}
