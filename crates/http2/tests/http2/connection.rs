use tollgate_http2::{
    Connection, ConnectionError, ErrorCode, Field, FrameType, Limits, PREFACE, Role, StreamClosed,
    flags,
};

use crate::{GET, POST, Side, data, frame, frames, headers, reset, window_update};

const REQUEST: &str = " :method=GET :scheme=http :path=/ :authority=a";

fn code(result: Result<Vec<String>, ConnectionError>) -> ErrorCode {
    result.unwrap_err().code()
}

#[test]
fn connections_start_with_settings() {
    let limits = Limits { stream_window: 100_000, connection_window: 200_000, ..Limits::default() };
    let mut out = Vec::new();
    Connection::new(Role::Client, limits, std::time::Instant::now(), &mut out);
    let sent = frames(out.strip_prefix(PREFACE).unwrap());
    assert_eq!(sent[0].0, FrameType::SETTINGS);
    let has = |setting: [u8; 6]| sent[0].3.chunks(6).any(|other| other == setting);
    assert!(has([0, 2, 0, 0, 0, 0]) && has([0, 4, 0, 1, 0x86, 0xa0]) && has([0, 5, 0, 0, 0x40, 0]));
    assert_eq!(sent[1..], [window_update(0, 200_000 - 65_535)]);
    out.clear();
    Connection::new(Role::Server, Limits::default(), std::time::Instant::now(), &mut out);
    assert!(frames(&out)[0].3.chunks(6).any(|setting| setting == [0, 3, 0, 0, 0, 100]));
}

#[test]
fn server_reads_request_with_body_and_trailers() {
    let mut server = Side::server();
    let input = [
        headers(1, false, POST),
        data(1, false, b"abc"),
        data(1, false, b"de"),
        headers(1, true, b"\x00\x01t\x01v"),
        headers(3, true, GET),
    ];
    assert_eq!(
        server.receive(&input.concat()).unwrap(),
        [
            &format!(
                "Request {{ stream: 1, end_stream: false }}{}",
                REQUEST.replace("GET", "POST")
            ),
            "Data { stream: 1, token: 0, data: [97, 98, 99], end_stream: false }",
            "Data { stream: 1, token: 0, data: [100, 101], end_stream: false }",
            "Trailers { stream: 1, token: 0 } t=v",
            &format!("Request {{ stream: 3, end_stream: true }}{REQUEST}"),
        ]
    );
    assert_eq!((server.connection.streams(), server.sent()), (2, vec![]));
}

#[test]
fn events_do_not_depend_on_the_pieces() {
    let padded = frame(FrameType::DATA, flags::PADDED | flags::END_STREAM, 1, b"\x02abc\0\0");
    let split = [
        frame(
            FrameType::HEADERS,
            flags::PADDED | flags::PRIORITY,
            3,
            &[&b"\x01\0\0\0\0\x10"[..], &POST[..2], b"\0"].concat(),
        ),
        frame(FrameType::CONTINUATION, 0, 3, &POST[2..4]),
        frame(FrameType::CONTINUATION, flags::END_HEADERS, 3, &POST[4..]),
    ];
    let unknown = frame(FrameType(0xfa), 0xff, 9, b"anything");
    let input = [
        PREFACE,
        &frame(FrameType::SETTINGS, 0, 0, &[])[..],
        &headers(1, false, POST),
        &padded,
        &unknown,
        &split.concat(),
    ]
    .concat();
    let mut whole = Side::fresh(Role::Server, Limits::default());
    let expected = whole.receive(&input).unwrap();
    assert_eq!(expected.len(), 4);
    assert!(expected[2].contains("[97, 98, 99], end_stream: true"));
    for cut in 0..input.len() {
        let mut server = Side::fresh(Role::Server, Limits::default());
        let mut events = server.receive(&input[..cut]).unwrap();
        events.extend(server.receive(&input[cut..]).unwrap());
        // Only pieces of a body are visible.
        let joined = events.join("|").replace(
            "[97], end_stream: false }|Data { stream: 1, token: 0, data: [98, 99]",
            "[97, 98, 99]",
        );
        let joined = joined.replace(
            "[97, 98], end_stream: false }|Data { stream: 1, token: 0, data: [99]",
            "[97, 98, 99]",
        );
        assert_eq!(joined, expected.join("|"), "{cut}");
        assert_eq!(server.out, whole.out);
    }
    let mut server = Side::fresh(Role::Server, Limits::default());
    let events = input.iter().flat_map(|byte| server.receive(&[*byte]).unwrap()).count();
    assert_eq!(events, expected.len() + 2);
}

#[test]
fn client_reads_responses() {
    let mut client = Side::client();
    assert_eq!((client.request("GET", true), client.request("HEAD", true)), (1, 3));
    let sent = client.sent();
    assert_eq!(sent[0], (FrameType::HEADERS, 5, 1, b"\x82\x86\x84\x41\x01a".to_vec()));
    // The authority was inserted, and then HEAD, which is not shorter as Huffman code.
    assert_eq!(sent[1], (FrameType::HEADERS, 5, 3, b"\x42\x04HEAD\x86\x84\xbf".to_vec()));
    let input = [
        headers(1, false, b"\x08\x03103"),
        headers(1, false, b"\x88\x0f\x0d\x013"),
        headers(3, true, b"\x88\x0f\x0d\x013"),
        data(1, true, b"abc"),
    ];
    assert_eq!(
        client.receive(&input.concat()).unwrap(),
        [
            "Response { stream: 1, token: 7, status: 103, end_stream: false } :status=103",
            "Response { stream: 1, token: 7, status: 200, end_stream: false } :status=200 content-length=3",
            "Response { stream: 3, token: 7, status: 200, end_stream: true } :status=200 content-length=3",
            "Data { stream: 1, token: 7, data: [97, 98, 99], end_stream: true }",
        ]
    );
    client.connection.release(1, &mut client.out);
    client.connection.release(3, &mut client.out);
    assert_eq!((client.connection.streams(), client.sent()), (0, vec![]));
}

#[test]
fn server_sends_interim_and_final_response_and_trailers() {
    let mut server = Side::server();
    server.receive(&headers(1, true, GET)).unwrap();
    let Side { connection, out, .. } = &mut server;
    assert_eq!(connection.send_data(1, b"early", false, out), Err(StreamClosed));
    connection.send_response(1, 103, [], false, out).unwrap();
    connection.send_response(1, 404, [Field::new(b"x", b"y")], false, out).unwrap();
    assert_eq!(connection.send_response(1, 200, [], false, out), Err(StreamClosed));
    assert_eq!(connection.send_data(1, b"body", false, out), Ok(4));
    connection.send_trailers(1, [Field::new(b"t", b"")], out).unwrap();
    assert_eq!(connection.send_data(1, b"late", false, out), Err(StreamClosed));
    connection.release(1, out);
    assert_eq!(
        server.sent(),
        [
            (FrameType::HEADERS, 4, 1, b"\x48\x82\x08\x19".to_vec()),
            (FrameType::HEADERS, 4, 1, b"\x8d\x40\x01x\x01y".to_vec()),
            (FrameType::DATA, 0, 1, b"body".to_vec()),
            (FrameType::HEADERS, 5, 1, b"\x40\x01t\x00".to_vec()),
        ]
    );
}

#[test]
fn long_heads_are_split_at_the_frame_size() {
    let mut client = Side::client();
    let value = vec![b'|'; 40_000];
    let fields = [Field::new(b":method", b"GET"), Field::new(b"x", &value)];
    client.connection.send_request(fields, true, 0, &mut client.out).unwrap();
    let sent = client.sent();
    let shape: Vec<_> =
        sent.iter().map(|(kind, flags, _, payload)| (kind.0, *flags, payload.len())).collect();
    // An index, three bytes for the name, four for the length of the value, and the value.
    assert_eq!(shape, [(1, 1, 16_384), (9, 0, 16_384), (9, 4, 40_008 - 2 * 16_384)]);
}

#[test]
fn bodies_obey_both_windows_and_the_frame_size() {
    let mut client = Side::client();
    client.request("POST", false);
    client.request("POST", false);
    client.sent();
    let body = vec![b'x'; 70_000];
    let Side { connection, out, .. } = &mut client;
    assert_eq!(connection.send_data(1, &body, true, out), Ok(65_535));
    assert_eq!(connection.send_data(3, &body, true, out), Ok(0));
    let lengths: Vec<usize> = client.sent().iter().map(|(.., payload)| payload.len()).collect();
    assert_eq!(lengths, [16_384, 16_384, 16_384, 16_383]);
    let update = |stream, increment: u32| {
        frame(FrameType::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
    };
    assert_eq!(client.receive(&update(0, 10_000)).unwrap(), ["Writable"]);
    assert_eq!(client.receive(&update(1, 10)).unwrap(), ["StreamWritable { stream: 1, token: 7 }"]);
    let Side { connection, out, .. } = &mut client;
    assert_eq!([1, 3, 5].map(|stream| connection.send_window(stream)), [10, 10_000, 0]);
    assert_eq!(connection.send_data(1, &body[65_535..], true, out), Ok(10));
    assert_eq!(client.sent().iter().map(|(_, flags, ..)| *flags).collect::<Vec<_>>(), [0]);
    // The initial window grows by 5,000, also for streams that are open; stream 1 had used its own up.
    let settings = frame(FrameType::SETTINGS, 0, 0, &[0, 4, 0, 1, 0x13, 0x87]);
    assert_eq!(client.receive(&settings).unwrap(), ["Settings"]);
    client.sent();
    let Side { connection, out, .. } = &mut client;
    assert_eq!(connection.send_data(1, &body[65_545..], true, out), Ok(4455));
    assert_eq!(connection.send_data(3, &body, true, out), Ok(9990 - 4455));
    let flags: Vec<u8> = client.sent().iter().map(|(_, flags, ..)| *flags).collect();
    assert_eq!(flags, [flags::END_STREAM, 0]);
}

#[test]
fn lowered_initial_window_makes_windows_negative() {
    let mut client = Side::client();
    client.request("POST", false);
    let Side { connection, out, .. } = &mut client;
    assert_eq!(connection.send_data(1, &[0; 60_000], false, out), Ok(60_000));
    client.receive(&frame(FrameType::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])).unwrap();
    let Side { connection, out, .. } = &mut client;
    assert_eq!(connection.send_window(1), 0);
    assert_eq!(connection.send_data(1, b"a", false, out), Ok(0));
    let update = frame(FrameType::WINDOW_UPDATE, 0, 1, &60_000_u32.to_be_bytes());
    assert_eq!(client.receive(&update).unwrap(), [""; 0]);
    let update = frame(FrameType::WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes());
    assert_eq!(client.receive(&update).unwrap().len(), 1);
    let Side { connection, out, .. } = &mut client;
    assert_eq!(connection.send_data(1, b"ab", false, out), Ok(1));
}

#[test]
fn credit_returns_when_half_of_a_window_is_due() {
    let limits = Limits { stream_window: 1000, connection_window: 65_535, ..Limits::default() };
    let mut server = Side::new(Role::Server, limits);
    server.receive(&[headers(1, false, POST), data(1, false, &[0; 900])].concat()).unwrap();
    let Side { connection, out, .. } = &mut server;
    connection.credit(1, 499, out);
    assert_eq!(out.len(), 0);
    connection.credit(1, 1, out);
    // More than was received is not given.
    connection.credit(1, 10_000, out);
    assert_eq!(server.sent(), [window_update(1, 500)]);
    // 100 are left of the first 1000, and 500 are new.
    assert_eq!(server.receive(&data(1, false, &[0; 600])).unwrap().len(), 1);
    assert_eq!(server.receive(&data(1, false, &[0; 1])).unwrap().len(), 1);
    assert_eq!(server.sent(), [reset(1, 3)]);
}

fn ping(stream: u8) -> (FrameType, u8, u32, Vec<u8>) {
    (FrameType::PING, 0, 0, [b't', b'r', b'i', b'p', 0, 0, 0, stream].to_vec())
}

fn pong(stream: u8) -> Vec<u8> {
    frame(FrameType::PING, flags::ACK, 0, &ping(stream).3)
}

fn growing() -> Limits {
    Limits { stream_window: 1000, stream_window_max: 3500, ..Limits::default() }
}

#[test]
fn window_grows_while_the_peer_sends_half_of_it_in_a_round_trip() {
    let mut server = Side::new(Role::Server, growing());
    server.receive(&[headers(1, false, POST), data(1, false, &[0; 900])].concat()).unwrap();
    server.connection.credit(1, 500, &mut server.out);
    assert_eq!(server.sent(), [window_update(1, 500)]);
    server.receive(&[data(1, false, &[0; 300]), data(1, false, &[0; 300])].concat()).unwrap();
    assert_eq!(server.sent(), [ping(1)]);
    server.connection.credit(1, 1000, &mut server.out);
    assert_eq!(server.receive(&pong(1)).unwrap(), [""; 0]);
    assert_eq!(server.sent(), [window_update(1, 1000), window_update(1, 1000)]);
    // Less than half of 2000 in this round trip.
    server.receive(&[data(1, false, &[0; 900]), pong(1)].concat()).unwrap();
    assert_eq!(server.sent(), [ping(1)]);
    server.connection.credit(1, 900, &mut server.out);
    // Up to the limit, where no more is measured.
    server.receive(&[data(1, false, &[0; 1000]), pong(1)].concat()).unwrap();
    assert_eq!(server.sent(), [ping(1), window_update(1, 1500)]);
    server.connection.credit(1, 1000, &mut server.out);
    assert_eq!(server.sent(), [window_update(1, 1900)]);
    server.receive(&data(1, false, &[0; 3500])).unwrap();
    assert_eq!(server.sent(), []);
    server.receive(&data(1, false, &[0; 1])).unwrap();
    assert_eq!(server.sent(), [reset(1, 3)]);
}

#[test]
fn window_does_not_grow_without_a_consumer_or_a_long_body() {
    let mut server = Side::new(Role::Server, growing());
    let two = [headers(1, false, POST), headers(3, false, POST), data(1, false, &[0; 1000])];
    server.receive(&two.concat()).unwrap();
    server.connection.credit(1, 500, &mut server.out);
    // All of the window is held.
    server.receive(&[data(1, false, &[0; 500]), pong(1)].concat()).unwrap();
    assert_eq!(server.sent(), [window_update(1, 500), ping(1)]);
    // A stream that is released in its round trip.
    server.receive(&data(3, false, &[0; 500])).unwrap();
    server.connection.credit(3, 500, &mut server.out);
    server.receive(&data(3, false, &[0; 500])).unwrap();
    assert_eq!(server.sent(), [window_update(3, 500), ping(3)]);
    server.connection.release(3, &mut server.out);
    server.sent();
    // A late reply, and one to no PING.
    assert_eq!(server.receive(&[pong(3), pong(1)].concat()).unwrap(), [""; 0]);
    // A body that ends within the window.
    let head = headers(5, false, &[POST, &b"\x0f\x0d\x041500"[..]].concat());
    server.receive(&[head, data(5, false, &[0; 600])].concat()).unwrap();
    server.connection.credit(5, 600, &mut server.out);
    server.receive(&data(5, false, &[0; 100])).unwrap();
    assert_eq!(server.sent(), [window_update(5, 600)]);
}

#[test]
fn release_gives_credit_for_what_is_held() {
    let mut server =
        Side::new(Role::Server, Limits { connection_window: 65_535, ..Limits::default() });
    let input =
        [headers(1, false, POST), data(1, false, &[0; 16_384]), data(1, false, &[0; 16_384])];
    server.receive(&input.concat()).unwrap();
    server.connection.release(1, &mut server.out);
    assert_eq!(server.sent(), [reset(1, 8), window_update(0, 32_768)]);
    // Bytes that were in flight are credited, too.
    server.receive(&[data(1, false, &[0; 16_384]), data(1, true, &[0; 16_384])].concat()).unwrap();
    assert_eq!(server.sent(), [window_update(0, 32_768)]);
}

#[test]
fn window_of_the_connection_is_enforced() {
    let limits = Limits { stream_window: 1 << 20, connection_window: 65_535, ..Limits::default() };
    let mut server = Side::new(Role::Server, limits);
    let block = data(1, false, &[0; 16_384]);
    server
        .receive(&[headers(1, false, POST), block.clone(), block.clone(), block.clone()].concat())
        .unwrap();
    assert_eq!(code(server.receive(&block)), ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn small_stream_window_holds_once_it_is_acknowledged() {
    let limits = Limits { stream_window: 100, ..Limits::default() };
    let mut server = Side::fresh(Role::Server, limits);
    let start =
        [PREFACE, &frame(FrameType::SETTINGS, 0, 0, &[])[..], &headers(1, false, POST)].concat();
    server.receive(&start).unwrap();
    assert_eq!(server.receive(&data(1, false, &[0; 101])).unwrap().len(), 1);
    server.receive(&frame(FrameType::SETTINGS, flags::ACK, 0, &[])).unwrap();
    server.sent();
    server.receive(&data(1, false, &[0; 1])).unwrap();
    assert_eq!(server.sent(), [reset(1, 3)]);
}

#[test]
fn early_response_asks_for_no_more_of_the_request() {
    let mut server = Side::server();
    server.receive(&headers(1, false, POST)).unwrap();
    server.connection.send_response(1, 200, [], true, &mut server.out).unwrap();
    server.connection.release(1, &mut server.out);
    let (ping, payload) = (FrameType::PING, b"stop\0\0\0\x01");
    assert_eq!(server.sent()[1], (ping, 0, 0, payload.to_vec()));
    // The body that was on the way is ignored.
    assert_eq!((server.receive(&data(1, false, b"abc")).unwrap(), server.sent()), (vec![], vec![]));
    // The upload is stopped once the client has read the response.
    let reply = frame(ping, flags::ACK, 0, payload);
    assert_eq!((server.receive(&reply).unwrap(), server.sent()), (vec![], vec![reset(1, 0)]));
    assert_eq!((server.receive(&reply).unwrap(), server.sent()), (vec![], vec![]));
}

#[test]
fn upload_that_ended_after_its_response_is_not_reset() {
    let trailers = headers(1, true, b"\x00\x01t\x01v");
    let cancel = frame(FrameType::RST_STREAM, 0, 1, &8_u32.to_be_bytes());
    for end in [data(1, true, b"abc"), trailers, cancel] {
        let mut server = Side::server();
        server.receive(&headers(1, false, POST)).unwrap();
        server.connection.send_response(1, 200, [], true, &mut server.out).unwrap();
        server.connection.release(1, &mut server.out);
        server.sent();
        let reply = frame(FrameType::PING, flags::ACK, 0, b"stop\0\0\0\x01");
        let late = [end, reply].concat();
        assert_eq!((server.receive(&late).unwrap(), server.sent()), (vec![], vec![]));
    }
}

#[test]
fn uploads_beyond_the_limit_are_stopped_at_once() {
    let limits = Limits { streams: 1, ..Limits::default() };
    let mut server = Side::fresh(Role::Server, limits);
    let start = [PREFACE, &frame(FrameType::SETTINGS, 0, 0, &[])[..]].concat();
    server.receive(&start).unwrap();
    let last_frame = |server: &mut Side, stream| {
        server.receive(&headers(stream, false, POST)).unwrap();
        server.connection.send_response(stream, 200, [], true, &mut server.out).unwrap();
        server.connection.release(stream, &mut server.out);
        server.sent().pop().unwrap()
    };
    for at in 0..64 {
        assert_eq!(last_frame(&mut server, 2 * at + 1).0, FrameType::PING);
    }
    assert_eq!(last_frame(&mut server, 129), reset(129, 0));
}

#[test]
fn stream_counts_until_its_release() {
    let mut server = Side::new(Role::Server, Limits { streams: 1, ..Limits::default() });
    server.receive(&headers(1, true, GET)).unwrap();
    let cancel = frame(FrameType::RST_STREAM, 0, 1, &8_u32.to_be_bytes());
    let events = server.receive(&cancel).unwrap();
    assert_eq!(events, ["Reset { stream: 1, token: 0, cause: Peer(ErrorCode(8)) }"]);
    let events = server.receive(&headers(3, true, GET)).unwrap();
    assert_eq!(events, ["Refused { stream: 3, error: Refused }"]);
    assert_eq!(server.sent(), [reset(3, 7)]);
    server.connection.release(1, &mut server.out);
    assert_eq!(server.receive(&headers(5, true, GET)).unwrap().len(), 1);
    assert_eq!(server.sent(), []);
}

#[test]
fn client_obeys_the_stream_limit_and_go_away() {
    let mut client = Side::client();
    client.receive(&frame(FrameType::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 2])).unwrap();
    client.request("GET", true);
    assert!(client.connection.can_open());
    client.request("GET", true);
    assert!(!client.connection.can_open() && !client.connection.is_spent());
    client.connection.release(1, &mut client.out);
    assert!(client.connection.can_open());
    let events =
        client.receive(&frame(FrameType::GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0, b'x'])).unwrap();
    assert_eq!(events, ["GoAway { last_stream: 1, code: ErrorCode(0) }"]);
    assert!(client.connection.is_spent());
    assert_eq!(client.connection.tokens().collect::<Vec<_>>(), [(3, 7)]);
}

#[test]
fn server_goes_away_in_two_steps() {
    let mut server = Side::server();
    server.connection.announce_go_away(&mut server.out);
    assert_eq!(server.receive(&headers(1, true, GET)).unwrap().len(), 1);
    server.connection.go_away(ErrorCode::NO_ERROR, &mut server.out);
    let payload = |last: u32| [last.to_be_bytes(), [0; 4]].concat();
    let go_away = |last| (FrameType::GOAWAY, 0, 0, payload(last));
    assert_eq!(server.sent(), [go_away(u32::MAX >> 1), go_away(1)]);
    let late = [headers(3, false, POST), data(3, true, b"abc")].concat();
    assert_eq!((server.receive(&late).unwrap(), server.sent()), (vec![], vec![]));
}

#[test]
fn pings_are_returned() {
    let mut server = Side::server();
    server.receive(&frame(FrameType::PING, 0, 0, b"12345678")).unwrap();
    assert_eq!(server.sent(), [(FrameType::PING, flags::ACK, 0, b"12345678".to_vec())]);
    let events = server.receive(&frame(FrameType::PING, flags::ACK, 0, &[1; 8])).unwrap();
    assert_eq!(events, ["Pong([1, 1, 1, 1, 1, 1, 1, 1])"]);
    assert_eq!(server.sent(), []);
}

#[test]
fn broken_frames_end_the_connection() {
    use FrameType as Type;
    let protocol = ErrorCode::PROTOCOL_ERROR;
    let size = ErrorCode::FRAME_SIZE_ERROR;
    let flow = ErrorCode::FLOW_CONTROL_ERROR;
    let cancel = frame(Type::RST_STREAM, 0, 1, &8_u32.to_be_bytes());
    for (input, expected) in [
        (frame(Type::DATA, 0, 0, b"a"), protocol),
        (frame(Type::DATA, 0, 1, b"a"), protocol),
        (frame(Type::HEADERS, 5, 0, GET), protocol),
        (frame(Type::HEADERS, 5, 2, GET), protocol),
        (frame(Type::HEADERS, 5, 1, b"\xbf"), ErrorCode::COMPRESSION_ERROR),
        (frame(Type::HEADERS, 13, 1, b"\x02a"), protocol),
        (frame(Type::CONTINUATION, 4, 1, b""), protocol),
        ([frame(Type::HEADERS, 1, 1, b""), frame(Type::PING, 0, 0, &[0; 8])].concat(), protocol),
        (
            [frame(Type::HEADERS, 1, 1, b""), frame(Type::CONTINUATION, 4, 3, b"")].concat(),
            protocol,
        ),
        ([headers(3, true, GET), headers(1, true, GET)].concat(), ErrorCode::STREAM_CLOSED),
        (
            [headers(1, false, POST), cancel.clone(), data(1, true, b"a")].concat(),
            ErrorCode::STREAM_CLOSED,
        ),
        (
            [headers(1, false, POST), cancel, headers(1, true, b"")].concat(),
            ErrorCode::STREAM_CLOSED,
        ),
        (frame(Type::PRIORITY, 0, 0, &[0; 5]), protocol),
        (frame(Type::PRIORITY, 0, 1, &[0; 4]), size),
        (frame(Type::PRIORITY, 0, 9, &[0x80, 0, 0, 9, 0]), protocol),
        (frame(Type::HEADERS, flags::PRIORITY, 1, &[0, 0, 0, 1, 0, 0x82]), protocol),
        (frame(Type::RST_STREAM, 0, 0, &[0; 4]), protocol),
        (frame(Type::RST_STREAM, 0, 1, &[0; 4]), protocol),
        ([headers(1, true, GET), frame(Type::RST_STREAM, 0, 1, &[0; 3])].concat(), size),
        (frame(Type::SETTINGS, 0, 1, &[]), protocol),
        (frame(Type::SETTINGS, 0, 0, &[0; 5]), size),
        (frame(Type::SETTINGS, flags::ACK, 0, &[0; 6]), size),
        (frame(Type::SETTINGS, 0, 0, &[0, 2, 0, 0, 0, 2]), protocol),
        (frame(Type::SETTINGS, 0, 0, &[0, 4, 0x80, 0, 0, 0]), flow),
        (frame(Type::SETTINGS, 0, 0, &[0, 5, 0, 0, 0x3f, 0xff]), protocol),
        (frame(Type::SETTINGS, 0, 0, &[0, 5, 1, 0, 0, 0]), protocol),
        (frame(Type::SETTINGS, 0, 0, &[0, 8, 0, 0, 0, 2]), protocol),
        (frame(Type::PUSH_PROMISE, 4, 1, &[0, 0, 0, 2]), protocol),
        (frame(Type::PING, 0, 1, &[0; 8]), protocol),
        (frame(Type::PING, 0, 0, &[0; 7]), size),
        (frame(Type::GOAWAY, 0, 1, &[0; 8]), protocol),
        (frame(Type::GOAWAY, 0, 0, &[0; 7]), size),
        (frame(Type::WINDOW_UPDATE, 0, 0, &[0; 4]), protocol),
        (frame(Type::WINDOW_UPDATE, 0, 0, &[0; 3]), size),
        (frame(Type::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]), protocol),
        (frame(Type::WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]), flow),
        (
            [headers(1, false, POST), frame(Type::DATA, flags::PADDED, 1, b"\x04abc")].concat(),
            protocol,
        ),
        ([headers(1, false, POST), frame(Type::DATA, flags::PADDED, 1, b"")].concat(), size),
        (frame(Type(77), 0, 0, &[0; 16_385]), size),
    ] {
        let mut server = Side::server();
        let result = server.receive(&input);
        assert_eq!(result.as_ref().map_err(ConnectionError::code), Err(expected), "{input:?}");
        let (kind, _, _, payload) = server.sent().pop().unwrap();
        assert_eq!((kind, &payload[4..]), (Type::GOAWAY, &expected.0.to_be_bytes()[..]));
        assert_eq!(server.receive(b""), result);
    }
}

#[test]
fn first_bytes_are_checked() {
    for input in [&b"GET / HTTP/1.1\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r"] {
        let mut server = Side::fresh(Role::Server, Limits::default());
        assert_eq!(code(server.receive(input)), ErrorCode::PROTOCOL_ERROR);
    }
    for first in [frame(FrameType::PING, 0, 0, &[0; 8]), frame(FrameType::SETTINGS, 1, 0, &[])] {
        let mut client = Side::fresh(Role::Client, Limits::default());
        assert_eq!(code(client.receive(&first)), ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn errors_of_a_stream_leave_the_others() {
    let zero = frame(FrameType::WINDOW_UPDATE, 0, 1, &[0; 4]);
    let overflow = frame(FrameType::WINDOW_UPDATE, 0, 1, &[0x7f, 0xff, 0xff, 0xff]);
    for (first, input, error) in [
        (headers(1, false, POST), zero, 1),
        (headers(1, false, POST), overflow, 3),
        (headers(1, true, GET), data(1, false, b"a"), 5),
        (headers(1, true, GET), headers(1, true, GET), 5),
        // Trailers without an end, and with a pseudo-field.
        (headers(1, false, POST), headers(1, false, b"\x00\x01t\x01v"), 1),
        (headers(1, false, POST), headers(1, true, b"\x84"), 1),
    ] {
        let mut server = Side::server();
        server.receive(&first).unwrap();
        let events = server.receive(&input).unwrap();
        assert!(events.last().unwrap().starts_with("Reset { stream: 1"), "{events:?}");
        assert_eq!(server.sent(), [reset(1, error)]);
        // Nothing more is delivered or sent.
        assert_eq!(server.receive(&data(1, true, b"abc")).unwrap(), [""; 0]);
        let response = server.connection.send_response(1, 200, [], true, &mut server.out);
        assert_eq!(response, Err(StreamClosed));
        assert_eq!(server.receive(&headers(3, true, GET)).unwrap().len(), 1);
        assert_eq!(server.sent(), []);
    }
}

#[test]
fn closed_streams_are_told_from_idle_ones() {
    let mut server = Side::server();
    server.receive(&headers(1, true, GET)).unwrap();
    server.connection.send_response(1, 200, [], true, &mut server.out).unwrap();
    server.connection.release(1, &mut server.out);
    server.sent();
    let harmless = [
        frame(FrameType::WINDOW_UPDATE, 0, 1, &[0, 0, 8, 0]),
        frame(FrameType::RST_STREAM, 0, 1, &[0; 4]),
        frame(FrameType::PRIORITY, 0, 1, &[0; 5]),
        frame(FrameType::PRIORITY, 0, 9, &[0; 5]),
    ];
    assert_eq!((server.receive(&harmless.concat()).unwrap(), server.sent()), (vec![], vec![]));
    server.receive(&data(1, false, b"abc")).unwrap();
    assert_eq!(server.sent(), [reset(1, 5)]);
}

#[test]
fn stream_reset_while_its_data_arrives_takes_no_more() {
    let mut server = Side::server();
    let frame = data(1, true, b"abcdef");
    let first = [&headers(1, false, POST)[..], &frame[..11]].concat();
    assert_eq!(server.receive(&first).unwrap().len(), 2);
    server.connection.release(1, &mut server.out);
    let second = [&frame[11..], &headers(3, true, GET)[..]].concat();
    assert_eq!(server.receive(&second).unwrap().len(), 1);
}
