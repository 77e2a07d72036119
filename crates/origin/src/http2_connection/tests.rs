use std::collections::BTreeMap;

use tollgate_http2::Field;

use super::*;
use crate::fuzzing::{advance_test_clock, counters, test_clock, test_state};
use crate::output::OutputBuffer;

/// A response as the client has received it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Reply {
    /// Interim ones included.
    statuses: Vec<u16>,
    headers: String,
    body: Vec<u8>,
    is_complete: bool,
    reset: Option<ErrorCode>,
}

/// A client and its connection.
struct Pair {
    client: Connection,
    fields: Fields,
    /// From the client, not sent yet.
    requests: Vec<u8>,
    shared: Shared,
    server: Http2Connection,
    state: ServerState,
    replies: BTreeMap<u32, Reply>,
    /// Streams of DATA frames in the order received.
    order: Vec<u32>,
    last_stream: Option<u32>,
}

impl Pair {
    fn new(limits: Limits) -> Self {
        let mut requests = Vec::new();
        let client = Connection::new(Role::Client, limits, test_clock(), &mut requests);
        let mut shared = test_state();
        let mut output = OutputBuffer::default();
        let mut context =
            Context { output: &mut output, shared: &mut shared, server: ServerState::Running };
        let server = Http2Connection::new(&mut context);
        let mut pair = Self {
            client,
            fields: Fields::default(),
            requests,
            shared,
            server,
            state: ServerState::Running,
            replies: BTreeMap::new(),
            order: Vec::new(),
            last_stream: None,
        };
        pair.receive(output.bytes_mut());
        pair
    }

    fn request(&mut self, method: &str, path: &str, headers: &[(&str, &str)], ends: bool) -> u32 {
        let pseudo =
            [(":method", method), (":scheme", "http"), (":authority", "a.test"), (":path", path)];
        let fields = pseudo.iter().chain(headers);
        let fields = fields.map(|(name, value)| Field::new(name.as_bytes(), value.as_bytes()));
        self.client.send_request(fields, ends, 0, &mut self.requests).unwrap()
    }

    fn get(&mut self, path: &str) -> u32 {
        self.request("GET", path, &[], true)
    }

    /// Sends a part of a request body.
    fn body(&mut self, stream: u32, bytes: &[u8], ends: bool) {
        let sent = self.client.send_data(stream, bytes, ends, &mut self.requests).unwrap();
        assert_eq!(sent, bytes.len(), "the window has room");
    }

    fn receive(&mut self, bytes: &[u8]) {
        let Self { client, fields, requests, replies, order, .. } = self;
        let mut input = bytes;
        while let Some(event) = client.receive(&mut input, fields, requests, test_clock()).unwrap()
        {
            match event {
                Event::Response { stream, status, end_stream, .. } => {
                    let reply = replies.entry(stream).or_default();
                    reply.statuses.push(status);
                    reply.is_complete = end_stream;
                    for Field { name, value, .. } in fields.headers() {
                        let line = format!("{}: {}\n", name.escape_ascii(), value.escape_ascii());
                        reply.headers.push_str(&line);
                    }
                }
                Event::Data { stream, data, end_stream, .. } => {
                    let reply = replies.entry(stream).or_default();
                    reply.body.extend_from_slice(data);
                    reply.is_complete = end_stream;
                    order.push(stream);
                    client.credit(stream, data.len(), requests);
                }
                Event::Reset { stream, cause: ResetCause::Peer(code), .. } => {
                    replies.entry(stream).or_default().reset = Some(code);
                }
                Event::GoAway { last_stream, .. } => self.last_stream = Some(last_stream),
                Event::Settings | Event::Writable | Event::StreamWritable { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Sends what the client has written, in pieces, until both sides wait. Returns what the server needs then.
    fn exchange_in(&mut self, piece_bytes: usize) -> Need {
        loop {
            let bytes = std::mem::take(&mut self.requests);
            let mut need = Need::Input;
            for piece in bytes.chunks(piece_bytes).chain(bytes.is_empty().then_some(&[][..])) {
                need = self.advance(piece);
            }
            if self.requests.is_empty() {
                return need;
            }
        }
    }

    fn advance(&mut self, mut piece: &[u8]) -> Need {
        loop {
            let mut output = OutputBuffer::default();
            let mut context =
                Context { output: &mut output, shared: &mut self.shared, server: self.state };
            let (consumed, need) = self.server.advance(piece, &mut context);
            piece = &piece[consumed..];
            let bytes = std::mem::take(output.bytes_mut());
            self.server.sent(bytes.len() as u64, true, &mut None, "");
            self.receive(&bytes);
            match need {
                Need::Flush => {}
                Need::Fetch(_, bytes) => self.server.fetched(bytes.min(60_000)),
                need => {
                    assert!(piece.is_empty(), "{need:?}");
                    return need;
                }
            }
        }
    }

    fn exchange(&mut self) -> Need {
        self.exchange_in(usize::MAX)
    }

    fn reply(&self, stream: u32) -> Reply {
        self.replies.get(&stream).cloned().unwrap_or_default()
    }

    fn text(&self, stream: u32) -> String {
        String::from_utf8(self.reply(stream).body).unwrap()
    }

    fn counters(&self) -> String {
        counters(&self.shared)
    }
}

fn pair() -> Pair {
    Pair::new(Limits::default())
}

#[test]
fn responses_do_not_depend_on_splits() {
    let exchange = |piece_bytes| {
        let mut pair = pair();
        pair.get("/?payload=3");
        let echo = pair.request("PUT", "/echo", &[("content-type", "text/x")], false);
        pair.body(echo, b"hello", false);
        pair.body(echo, b"!", true);
        pair.request("HEAD", "/?payload=12345", &[], true);
        pair.get("/zero?size=70000");
        pair.get("/status/204");
        pair.request("BREW", "/method", &[], true);
        pair.request("GET", "/headers", &[("x-a", "1"), ("x-a", "2")], true);
        let length = [("content-length", "5")];
        let upload = pair.request("POST", "/upload", &length, false);
        pair.body(upload, b"hello", true);
        pair.get("/?payload=100000");
        assert_eq!(pair.exchange_in(piece_bytes), Need::Input);
        assert!(pair.server.is_idle() && pair.server.accepts_streams());
        assert_eq!(pair.server.connection.streams(), 0);
        pair
    };
    let whole = exchange(usize::MAX);
    for piece_bytes in [1, 2, 7, 50, 1000] {
        assert_eq!(exchange(piece_bytes).replies, whole.replies, "pieces of {piece_bytes}");
    }
    let replies: Vec<&Reply> = whole.replies.values().collect();
    assert!(replies.iter().all(|reply| reply.is_complete && reply.reset.is_none()));
    let heads: Vec<(u16, &str)> =
        replies.iter().map(|reply| (reply.statuses[0], reply.headers.as_str())).collect();
    let json = "server: tollgate-origin\ncontent-type: application/json\n";
    let nosniff = "x-content-type-options: nosniff\n";
    assert_eq!(
        heads,
        [
            (200, "server: tollgate-origin\ncontent-type: text/plain\ncontent-length: 3\n"),
            (
                200,
                "server: tollgate-origin\ncontent-type: text/x\n\
                 x-content-type-options: nosniff\ncontent-length: 6\n"
            ),
            (200, "server: tollgate-origin\ncontent-type: text/plain\ncontent-length: 12345\n"),
            (200, &format!("{json}content-length: 30\n")),
            (204, "server: tollgate-origin\n"),
            (501, &format!("{json}{nosniff}content-length: 98\n")),
            (200, &format!("{json}{nosniff}content-length: 55\n")),
            (200, &format!("{json}content-length: 26\n")),
            (200, "server: tollgate-origin\ncontent-type: text/plain\ncontent-length: 100000\n"),
        ]
    );
    assert_eq!(
        (whole.text(1), whole.text(3), whole.text(5)),
        ("xxx".into(), "hello!".into(), "".into())
    );
    assert_eq!(whole.text(7), "{\"size\":70000,\"time\":0.000000}");
    assert_eq!(whole.text(13), r#"{"headers":[["host","a.test"],["x-a","1"],["x-a","2"]]}"#);
    assert_eq!(whole.text(15), "{\"size\":5,\"time\":0.000000}");
    assert_eq!(whole.text(17), "x".repeat(100_000));
    let json = whole.counters();
    for part in ["\"requests\":9,", "\"errors\":1,\"malformed\":0,", "\"2xx\":8,", "\"5xx\":1}"] {
        assert!(json.contains(part), "{part} is not in {json}");
    }
}

#[test]
fn waits_delay_no_other_streams() {
    let mut pair = pair();
    let start = test_clock();
    let slow = pair.get("/sleep?time=2");
    let fast = pair.get("/sleep?time=0.5");
    let other = pair.get("/?payload=1");
    assert_eq!(pair.exchange(), Need::Input);
    assert_eq!(pair.text(other), "x");
    assert_eq!(pair.server.next_wait(), Some(start + Duration::from_millis(500)));
    assert!(pair.server.is_waiting());
    advance_test_clock(Duration::from_millis(500));
    assert!(pair.server.is_due(test_clock()));
    pair.exchange();
    assert_eq!(pair.text(fast), "{\"time\":0.500000}");
    assert!(!pair.reply(slow).is_complete);
    advance_test_clock(Duration::from_millis(1_500));
    pair.exchange();
    assert_eq!(pair.text(slow), "{\"time\":2.000000}");
    assert_eq!((pair.server.next_wait(), pair.server.is_idle()), (None, true));
}

#[test]
fn bodies_obey_windows_and_take_turns() {
    let mut pair = pair();
    let first = pair.get("/download?size=300000");
    let second = pair.get("/download?size=300000");
    pair.exchange();
    for stream in [first, second] {
        assert_eq!(pair.reply(stream).body.len(), 300_000);
    }
    // The second stream has begun long before the first has ended.
    let begins = pair.order.iter().position(|stream| *stream == second).unwrap();
    let ends = pair.order.iter().rposition(|stream| *stream == first).unwrap();
    assert!(begins < ends / 4, "{:?}", pair.order);
}

#[test]
fn blocked_body_continues_with_window_of_its_stream() {
    // The client gives credit for half of a window.
    let mut pair = Pair::new(Limits { stream_window: 65_535, ..Limits::default() });
    pair.exchange();
    let stream = pair.get("/download?size=200000");
    let bytes = std::mem::take(&mut pair.requests);
    assert_eq!(pair.advance(&bytes), Need::Input);
    assert_eq!(pair.reply(stream).body.len(), 65_535);
    assert!(!pair.server.is_idle() && pair.server.sendable.is_empty());
    let deadline = pair.server.deadline(test_clock(), &Timeouts::default());
    assert_eq!(deadline, test_clock() + Timeouts::default().response);
    pair.exchange();
    assert_eq!((pair.reply(stream).body.len(), pair.reply(stream).is_complete), (200_000, true));
}

#[test]
fn reset_stream_leaves_nothing() {
    let mut pair = pair();
    let streams = ["/sleep?time=9", "/download?size=1000000000", "/upload"]
        .map(|path| pair.request("POST", path, &[], path != "/upload"));
    let fetch = pair.get("/zero?size=1000000");
    let bytes = std::mem::take(&mut pair.requests);
    let mut output = OutputBuffer::default();
    let mut context =
        Context { output: &mut output, shared: &mut pair.shared, server: ServerState::Running };
    let mut rest = &bytes[..];
    loop {
        let (consumed, need) = pair.server.advance(rest, &mut context);
        rest = &rest[consumed..];
        context.output.clear();
        if matches!(need, Need::Fetch(..)) {
            break;
        }
        assert_eq!(need, Need::Flush);
    }
    assert_eq!(pair.server.transactions.len(), 4);
    for stream in [streams[0], streams[1], streams[2], fetch] {
        pair.client.release(stream, &mut pair.requests);
    }
    assert_eq!(pair.exchange(), Need::Input);
    assert!(pair.server.is_idle() && pair.server.waits.is_empty());
    assert_eq!((pair.server.connection.streams(), pair.server.is_due(test_clock())), (0, false));
}

#[test]
fn body_above_limit_is_rejected_and_its_upload_stopped() {
    let mut pair = pair();
    let announced = pair.request("POST", "/echo", &[("content-length", "1048577")], false);
    let counted = pair.request("POST", "/echo", &[], false);
    pair.exchange();
    for _ in 0..32 {
        pair.body(counted, &[b'e'; 32 << 10], false);
        assert_eq!(pair.exchange(), Need::Input);
    }
    assert_eq!(pair.reply(counted).statuses, [0_u16; 0]);
    pair.body(counted, b"e", false);
    pair.exchange();
    for stream in [announced, counted] {
        let reply = pair.reply(stream);
        assert_eq!((reply.statuses, reply.is_complete), (vec![413], true));
        assert_eq!(reply.reset, Some(ErrorCode::NO_ERROR));
    }
    assert!(pair.text(counted).ends_with("the limit is 1048576 bytes\"}"));
}

#[test]
fn continue_is_sent_only_before_an_accepted_body() {
    let mut pair = pair();
    let expect = [("expect", "100-continue")];
    let accepted = pair.request("POST", "/?payload=2", &expect, false);
    let rejected = pair.request("GET", "/upload", &expect, false);
    pair.exchange();
    assert_eq!(pair.reply(accepted).statuses, [100]);
    assert_eq!(pair.reply(rejected).statuses, [405]);
    pair.body(accepted, b"ok", true);
    pair.exchange();
    assert_eq!((pair.reply(accepted).statuses, pair.text(accepted)), (vec![100, 200], "xx".into()));
}

#[test]
fn too_many_headers_are_rejected() {
    let mut pair = pair();
    let most: Vec<_> = (0..MAX_HEADERS).map(|_| ("x-a", "b")).collect();
    let accepted = pair.request("GET", "/?payload=1", &most, true);
    let rejected = pair.request("GET", "/?payload=1", &[&most[..], &[("x", "y")]].concat(), true);
    let value = "v".repeat(60_000);
    let long = pair.request("GET", "/", &[("x-a", &value), ("x-b", &value)], true);
    pair.exchange();
    assert_eq!(pair.reply(accepted).statuses, [200]);
    for (stream, text) in [(rejected, "too many headers"), (long, "longer than 65536 bytes")] {
        assert_eq!(pair.reply(stream).statuses, [431]);
        assert!(pair.text(stream).contains(text), "{}", pair.text(stream));
    }
}

#[test]
fn malformed_requests_are_reset_and_counted() {
    let mut pair = pair();
    let stream = pair.request("GET", "/", &[("connection", "close")], true);
    let length = pair.request("POST", "/", &[("content-length", "3")], false);
    pair.body(length, b"more", true);
    pair.exchange();
    for stream in [stream, length] {
        assert_eq!(pair.reply(stream).reset, Some(ErrorCode::PROTOCOL_ERROR));
    }
    let json = pair.counters();
    assert!(json.contains("\"errors\":2,\"malformed\":2,"), "{json}");
    // DATA on stream 0 ends the connection.
    pair.requests.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, b'x']);
    assert_eq!(pair.exchange(), Need::Close(CloseMode::Linger));
    assert_eq!(pair.last_stream, Some(length));
    assert_eq!(pair.advance(b"more"), Need::Close(CloseMode::Linger));
    let json = pair.counters();
    assert!(json.contains("\"errors\":3,\"malformed\":3,"), "{json}");
}

#[test]
fn stopping_server_finishes_open_streams() {
    let mut pair = pair();
    let slow = pair.get("/sleep?time=1");
    pair.exchange();
    pair.state = ServerState::Stopping;
    let arrived = pair.get("/?payload=1");
    assert_eq!(pair.exchange(), Need::Input);
    assert_eq!((pair.last_stream, pair.text(arrived)), (Some(arrived), "x".into()));
    assert!(!pair.server.accepts_streams() && pair.server.is_waiting());
    advance_test_clock(Duration::from_secs(1));
    assert_eq!(pair.exchange(), Need::Close(CloseMode::Linger));
    assert!(pair.reply(slow).is_complete);

    let mut idle = self::pair();
    idle.exchange();
    idle.state = ServerState::Stopping;
    assert_eq!(idle.exchange(), Need::Close(CloseMode::Immediate));
    assert_eq!(idle.last_stream, Some(0));
}

#[test]
fn slow_upload_is_timed_out() {
    let timeouts = Timeouts::default();
    let mut pair = pair();
    let start = test_clock();
    pair.exchange();
    assert_eq!(pair.server.deadline(start, &timeouts), start + timeouts.idle);
    let stream = pair.request("PUT", "/upload", &[], false);
    pair.exchange();
    assert_eq!(pair.server.deadline(start, &timeouts), start + timeouts.body);
    pair.body(stream, &[b'b'; 2 << 10], false);
    pair.exchange();
    // Two more seconds for two kibibytes, but not ten without a byte.
    let later = start + Duration::from_secs(5);
    assert_eq!(pair.server.deadline(start, &timeouts), start + timeouts.body);
    assert_eq!(
        pair.server.deadline(later, &timeouts),
        start + timeouts.body + Duration::from_secs(2)
    );
    let mut output = OutputBuffer::default();
    let mut context =
        Context { output: &mut output, shared: &mut pair.shared, server: ServerState::Running };
    pair.server.time_out(&mut context);
    let bytes = std::mem::take(output.bytes_mut());
    pair.receive(&bytes);
    assert_eq!((pair.reply(stream).statuses, pair.last_stream), (vec![408], Some(stream)));
}
