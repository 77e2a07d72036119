//! Requests and responses: framing, pipelining, persistence, errors.

use crate::support::Served;

const THREE: &str = "HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n\
    Content-Length: 3\r\n\r\nxxx";
const GET_THREE: &[u8] = b"GET /?payload=3 HTTP/1.1\r\nHost: a\r\n\r\n";

fn error(status: &str, connection: &str, text: &str) -> String {
    let json = format!("{{\"error\":\"{text}\"}}");
    format!(
        "HTTP/1.1 {status}\r\nServer: tollgate-origin\r\nContent-Type: application/json\r\n\
         X-Content-Type-Options: nosniff\r\n{connection}Content-Length: {}\r\n\r\n{json}",
        json.len()
    )
}

#[test]
fn responds_with_payload_and_path() {
    let origin = Served::start(1);
    let mut client = origin.client();
    client.send(GET_THREE);
    client.expect(THREE);
    client.send(b"GET /a%20b'?q=1 HTTP/1.1\r\nHost: a\r\n\r\n");
    client.expect(
        "HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n\
         X-Content-Type-Options: nosniff\r\nContent-Length: 26\r\n\r\n\
         tollgate origin: /a%20b\\'\n",
    );
    client.send(b"GET /?payload=0 HTTP/1.1\r\nHost: a\r\n\r\n");
    client.expect(
        "HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n\
         Content-Length: 0\r\n\r\n",
    );
}

#[test]
fn head_response_has_length_without_body() {
    let origin = Served::start(1);
    let mut client = origin.client();
    client.send(b"HEAD /?payload=67108864 HTTP/1.1\r\nHost: a\r\n\r\n");
    client.expect(
        "HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n\
         Content-Length: 67108864\r\n\r\n",
    );
    client.send(GET_THREE);
    client.expect(THREE);
}

#[test]
fn rejected_request_keeps_connection_open() {
    let origin = Served::start(1);
    let mut client = origin.client();
    client.send(b"GET /?payload=1e3 HTTP/1.1\r\nHost: a\r\n\r\n");
    client.expect(&error(
        "400 Bad Request",
        "",
        "invalid payload `1e3`: must be a whole number of bytes from 0 to 67108864",
    ));
    client.send(b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.expect(&error(
        "501 Not Implemented",
        "",
        "method `BREW` is not supported: must be GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS",
    ));
    client.send(GET_THREE);
    client.expect(THREE);
}

#[test]
fn connection_closes_as_requested() {
    let origin = Served::start(1);
    let closing = "HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n\
        Connection: close\r\nContent-Length: 1\r\n\r\nx";
    for request in [
        &b"GET /?payload=1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"[..],
        b"GET /?payload=1 HTTP/1.0\r\n\r\n",
        b"POST /?payload=1 HTTP/1.0\r\nContent-Length: 2\r\n\r\nok",
    ] {
        let mut client = origin.client();
        client.send(request);
        client.expect_last(closing);
    }

    let mut client = origin.client();
    client.send(b"GET /?payload=1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    client.expect(
        "HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n\
         Connection: keep-alive\r\nContent-Length: 1\r\n\r\nx",
    );
    client.send(GET_THREE);
    client.expect(THREE);
}

#[test]
fn client_that_shuts_down_gets_response() {
    let origin = Served::start(1);
    let mut client = origin.client();
    client.send(GET_THREE);
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    client.expect_last(THREE);
}

#[test]
fn request_bodies_are_discarded() {
    let origin = Served::start(1);
    let mut client = origin.client();
    let body = "b".repeat(1 << 20);
    client.send(
        format!("POST /?payload=3 HTTP/1.1\r\nHost: a\r\nContent-Length: 1048576\r\n\r\n{body}")
            .as_bytes(),
    );
    client.expect(THREE);
    client.send(
        format!(
            "PUT /?payload=3 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
             100000\r\n{body}\r\n3\r\nabc\r\n0\r\n\r\n"
        )
        .as_bytes(),
    );
    client.expect(THREE);
    client.send(GET_THREE);
    client.expect(THREE);
}

#[test]
fn sends_continue_for_expected_body() {
    let origin = Served::start(1);
    let mut client = origin.client();
    client.send(
        b"POST /?payload=3 HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n",
    );
    client.expect("HTTP/1.1 100 Continue\r\n\r\n");
    client.send(b"body");
    client.expect(THREE);
}

#[test]
fn request_arrives_byte_by_byte() {
    let origin = Served::start(1);
    let mut client = origin.client();
    for byte in b"POST /?payload=3 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody" {
        client.send(&[*byte]);
    }
    client.expect(THREE);
}

#[test]
fn pipelined_requests_get_ordered_responses() {
    let origin = Served::start(1);
    let mut client = origin.client();
    // Around the limits of copied filler and of a batch.
    let sizes = [1, 16_384, 0, 16_385, 70_000, 2, 65_536, 7];
    let rounds = 50;
    let mut requests = String::new();
    for size in sizes.repeat(rounds) {
        requests += &format!("GET /?payload={size} HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    client.send(requests.as_bytes());
    for size in sizes.repeat(rounds) {
        client.expect(&format!(
            "HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n\
             Content-Length: {size}\r\n\r\n{}",
            "x".repeat(size)
        ));
    }
}

#[test]
fn malformed_request_gets_error_and_close() {
    let origin = Served::start(1);
    for (request, text) in [
        ("GET / HTTP/1.1\r\nHo st: a\r\n\r\n", "malformed HTTP/1 head: invalid header name"),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", "invalid Content-Length `x`"),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "invalid chunk size: expected a hexadecimal number of at most 64 bits",
        ),
        ("GET / HTTP/1.1\r\n\r\n", "expected one Host header, found 0"),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "expected one Host header, found 2"),
        (
            "GET method HTTP/1.1\r\nHost: a\r\n\r\n",
            "invalid request target `method`: expected a path or a URL with a host",
        ),
        (
            "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
            "invalid request target `*`: expected a path or a URL with a host",
        ),
        ("GET / HTTP/1.1\nHost: a\r\n\r\n", "line of the head ends in LF without CR"),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
            "two values of Content-Length: 1 and 1",
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "both Transfer-Encoding and Content-Length",
        ),
    ] {
        let mut client = origin.client();
        // More than one read. Closing with unread bytes would reset the connection, and the
        // response might be lost.
        client.send(format!("{request}{}", "more".repeat(100_000)).as_bytes());
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        client.expect_last(&error(
            "400 Bad Request",
            "Connection: close\r\n",
            &format!("malformed request: {text}"),
        ));
    }
}

#[test]
fn target_may_be_url() {
    let origin = Served::start(1);
    let mut client = origin.client();
    client.send(b"GET HTTP://b/method HTTP/1.1\r\nHost: a\r\n\r\n");
    client.expect(
        "HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: application/json\r\n\
         X-Content-Type-Options: nosniff\r\nContent-Length: 16\r\n\r\n{\"method\":\"GET\"}",
    );
    client.send(b"GET hTTps://b?payload=3 HTTP/1.1\r\nHost: a\r\n\r\n");
    client.expect(THREE);
}

#[test]
fn oversized_head_and_body_are_rejected() {
    let origin = Served::start(1);
    let mut client = origin.client();
    let value = "v".repeat(64 << 10);
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nX: {value}\r\n\r\n").as_bytes());
    client.expect_last(&error(
        "431 Request Header Fields Too Large",
        "Connection: close\r\n",
        "malformed request: head is longer than 65536 bytes",
    ));

    let mut client = origin.client();
    client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 67108865\r\n\r\nmore");
    client.expect_last(&error(
        "413 Content Too Large",
        "Connection: close\r\n",
        "request body too large: the limit is 67108864 bytes",
    ));
}
