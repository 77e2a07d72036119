use std::time::Duration;

use super::*;
use crate::fuzzing::{TestClient, advance_test_clock, counters, test_clock};

/// One of each framing, pipelined.
const REQUESTS: &[u8] = b"GET /?payload=3 HTTP/1.1\r\nHost: a\r\n\r\n\
    POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello\
    PUT /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
    5;x=y\r\nhello\r\n1\r\n!\r\n0\r\nT: v\r\n\r\n\
    HEAD /?payload=12345 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n\
    GET /sleep?time=0 HTTP/1.1\r\nHost: a\r\n\r\n\
    GET /zero?size=70000 HTTP/1.1\r\nHost: a\r\n\r\n\
    GET /status/204 HTTP/1.1\r\nHost: a\r\n\r\n\
    BREW /method HTTP/1.1\r\nHost: a\r\n\r\n\
    GET /b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

const RESPONSES: &str = "HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\n\
    Content-Type: text/plain\r\nContent-Length: 3\r\n\r\nxxx\
    HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n\
    X-Content-Type-Options: nosniff\r\nContent-Length: 20\r\n\r\ntollgate origin: /a\n\
    HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: application/octet-stream\r\n\
    X-Content-Type-Options: nosniff\r\nContent-Length: 6\r\n\r\nhello!\
    HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n\
    Connection: keep-alive\r\nContent-Length: 12345\r\n\r\n\
    HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: application/json\r\n\
    Content-Length: 17\r\n\r\n{\"time\":0.000000}\
    HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: application/json\r\n\
    Content-Length: 30\r\n\r\n{\"size\":70000,\"time\":0.000000}\
    HTTP/1.1 204 No Content\r\nServer: tollgate-origin\r\n\r\n\
    HTTP/1.1 501 Not Implemented\r\nServer: tollgate-origin\r\n\
    Content-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n\
    Content-Length: 98\r\n\r\n{\"error\":\"method `BREW` is not supported: \
    must be GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS\"}\
    HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n\
    X-Content-Type-Options: nosniff\r\nConnection: close\r\nContent-Length: 20\r\n\r\n\
    tollgate origin: /b\n";

/// Returns what was received since the last call.
fn take_text(client: &mut TestClient) -> String {
    String::from_utf8(std::mem::take(&mut client.received.bytes)).unwrap()
}

/// Sends the pieces over a new connection. Returns the responses and what is needed then.
fn exchange(pieces: &[&[u8]]) -> (String, Need) {
    let mut client = TestClient::default();
    let needs: Vec<Need> = pieces.iter().map(|piece| client.advance(piece)).collect();
    (take_text(&mut client), needs.into_iter().next_back().unwrap())
}

#[test]
fn responses_do_not_depend_on_splits() {
    let expected = (RESPONSES.to_owned(), Need::Close(CloseMode::Immediate));
    for at in 0..=REQUESTS.len() {
        let (first, second) = REQUESTS.split_at(at);
        assert_eq!(exchange(&[first, second]), expected, "split at {at}");
    }
    let single: Vec<&[u8]> = REQUESTS.chunks(1).collect();
    assert_eq!(exchange(&single), expected);
}

#[test]
fn large_payload_is_flushed_before_next_response() {
    let request = b"GET /?payload=50000 HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut client = TestClient { unread: request.repeat(2), ..TestClient::default() };
    assert_eq!((client.step(), client.unread.len()), (Need::Flush, request.len()));
    assert_eq!((client.step(), client.unread.len()), (Need::Flush, 0));
    assert_eq!(client.step(), Need::Input);
    assert!(client.connection.is_between_requests());
}

#[test]
fn wait_delays_following_responses() {
    let mut client = TestClient::default();
    let requests = b"GET /?payload=1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n\
        PUT /sleep?time=1.5 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok\
        GET /?payload=2 HTTP/1.1\r\nHost: a\r\n\r\n";
    let until = test_clock() + Duration::from_millis(1_500);
    assert_eq!(client.advance(requests), Need::Until(until));
    assert!(take_text(&mut client).ends_with("\r\n\r\nx"));
    advance_test_clock(Duration::from_millis(1_499));
    assert_eq!(client.advance(b""), Need::Until(until));
    assert_eq!(take_text(&mut client), "");
    advance_test_clock(Duration::from_micros(1_250));
    assert_eq!(client.advance(b""), Need::Input);
    let responses = take_text(&mut client);
    assert!(responses.contains("\r\n\r\n{\"time\":1.500250}HTTP/1.1 200 OK\r\n"), "{responses}");
    assert!(responses.ends_with("\r\n\r\nxx"), "{responses}");
}

#[test]
fn fetch_time_is_from_first_byte_to_last() {
    let unread = b"GET /urandom?size=7 HTTP/1.1\r\nHost: a\r\n\r\n".to_vec();
    let mut client = TestClient { unread, ..TestClient::default() };
    assert_eq!(client.step(), Need::Fetch(SourceKind::Random, 7));
    client.connection.fetched(5);
    advance_test_clock(Duration::from_micros(40));
    assert_eq!(client.step(), Need::Fetch(SourceKind::Random, 2));
    client.connection.fetched(2);
    advance_test_clock(Duration::from_micros(2));
    assert_eq!(client.step(), Need::Input);
    assert!(take_text(&mut client).ends_with("\r\n\r\n{\"size\":7,\"time\":0.000042}"));
}

#[test]
fn close_lingers_after_unread_bytes_and_bodies() {
    let linger = Need::Close(CloseMode::Linger);
    assert_eq!(exchange(&[b"GET / HTTP/1.0\r\n\r\nmore"]).1, linger);
    assert_eq!(exchange(&[b"\0\r\n\r\n"]).1, linger);
    for body in ["Content-Length: 2\r\n\r\nok", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"] {
        let request = format!("POST /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{body}");
        for at in [request.len(), request.len() - 1] {
            let (first, second) = request.as_bytes().split_at(at);
            assert_eq!(exchange(&[first, second]).1, linger, "{request}");
        }
    }
}

#[test]
fn continue_is_sent_only_before_an_accepted_body() {
    const HEAD: &[u8] =
        b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    assert_eq!(exchange(&[HEAD]).0, "HTTP/1.1 100 Continue\r\n\r\n");
    let whole = exchange(&[HEAD, b"ok"]).0;
    assert!(whole.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200"), "{whole}");
    // The body has started.
    let half = [HEAD, b"o"].concat();
    assert_eq!(exchange(&[&half]).0, "");
    assert!(exchange(&[&half, b"k"]).0.starts_with("HTTP/1.1 200 OK\r\n"));
    // The request is rejected.
    let (error, need) = exchange(&[b"GET /upload HTTP/1.1\r\nHost: a\r\n\
        Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"]);
    assert!(error.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"), "{error}");
    assert!(error.contains("\r\nConnection: close\r\n"), "{error}");
    assert_eq!(need, Need::Close(CloseMode::Linger));
    // The body is too large.
    let (error, _) = exchange(&[b"POST /echo HTTP/1.1\r\nHost: a\r\n\
        Expect: 100-continue\r\nContent-Length: 1048577\r\n\r\n"]);
    assert!(error.starts_with("HTTP/1.1 413 Content Too Large\r\n"), "{error}");
}

#[test]
fn chunked_body_is_limited() {
    let mut client = TestClient::default();
    let head = b"POST /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(client.advance(head), Need::Input);
    let chunk = [b"100000\r\n", &vec![0; 1 << 20][..], b"\r\n"].concat();
    for _ in 0..64 {
        assert_eq!(client.advance(&chunk), Need::Input);
    }
    // The size line of the next chunk is enough.
    assert_eq!(client.advance(b"1\r"), Need::Input);
    assert_eq!(client.advance(b"\n"), Need::Close(CloseMode::Linger));
    let response = take_text(&mut client);
    assert!(response.starts_with("HTTP/1.1 413 Content Too Large\r\n"), "{response}");
    assert!(response.ends_with("the limit is 67108864 bytes\"}"), "{response}");
}

#[test]
fn slow_request_is_timed_out() {
    for (sent, receiving) in [
        (&b"GET /"[..], Receiving::Head),
        (
            b"PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nbod",
            Receiving::Body { since: test_clock(), bytes: 3 },
        ),
    ] {
        let mut client = TestClient::default();
        assert_eq!(client.advance(sent), Need::Input);
        assert_eq!(client.connection.receiving(), receiving);
        client.with_context(|connection, _, context| connection.time_out(context));
        assert_eq!(
            take_text(&mut client),
            "HTTP/1.1 408 Request Timeout\r\nServer: tollgate-origin\r\n\
             Content-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n\
             Connection: close\r\nContent-Length: 29\r\n\r\n{\"error\":\"request timed out\"}"
        );
    }
}

#[test]
fn repeated_request_is_served_from_cache_and_counted() {
    let mut client = TestClient::default();
    let request = b"GET /?payload=3 HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(client.advance(&request.repeat(3)), Need::Input);
    let three = take_text(&mut client);
    let one = &three[..three.len() / 3];
    assert_eq!(three, one.repeat(3));
    // A request with the same start.
    client.advance(b"GET /?payload=3 HTTP/1.1\r\nHost: ab\r\n\r\n");
    assert_eq!(take_text(&mut client), one);
    // A request in two pieces.
    for (piece, responses) in request.chunks(20).zip([0, 1]) {
        client.advance(piece);
        assert_eq!(take_text(&mut client), one.repeat(responses));
    }
    let json = counters(&client.shared);
    assert!(json.contains("\"requests\":5,") && json.contains("\"2xx\":5,"), "{json}");
    // The last response of a connection.
    client.server = ServerState::Stopping;
    assert_eq!(client.advance(request), Need::Close(CloseMode::Immediate));
    assert!(take_text(&mut client).contains("\r\nConnection: close\r\n"));
}

#[test]
fn requests_and_responses_are_counted() {
    let mut client = TestClient::default();
    client.advance(REQUESTS);
    client.connection = Http1Connection::default();
    client.unread.clear();
    client.advance(b"GET / HTTP/1.1\r\n\r\n");
    let json = counters(&client.shared);
    for part in [
        "\"requests\":10,",
        "\"errors\":2,\"malformed\":1,\"timed_out\":0,",
        "\"status_classes\":{\"1xx\":0,\"2xx\":8,\"3xx\":0,\"4xx\":1,\"5xx\":1}",
        "\"paths\":{\"/\":2,",
    ] {
        assert!(json.contains(part), "{part} is not in {json}");
    }
}
