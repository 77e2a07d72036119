//! What the origin answers, as literal bytes over real sockets.

use crate::support::Served;

const THREE: &str = "HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n\
    Content-Length: 3\r\n\r\nxxx";
const GET_THREE: &[u8] = b"GET /?payload=3 HTTP/1.1\r\nHost: a\r\n\r\n";

fn refusal(status: &str, connection: &str, text: &str) -> String {
    let json = format!("{{\"error\":\"{text}\"}}");
    format!(
        "HTTP/1.1 {status}\r\nServer: tollgate-origin\r\nContent-Type: application/json\r\n\
         X-Content-Type-Options: nosniff\r\n{connection}Content-Length: {}\r\n\r\n{json}",
        json.len()
    )
}

#[test]
fn payload_then_path_on_one_connection() {
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
fn head_has_the_length_but_not_the_body() {
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
fn refused_requests_leave_the_connection_open() {
    let origin = Served::start(1);
    let mut client = origin.client();
    client.send(b"GET /?payload=1e3 HTTP/1.1\r\nHost: a\r\n\r\n");
    client.expect(&refusal(
        "400 Bad Request",
        "",
        r#"payload is \"1e3\"; it may be a whole number of bytes from 0 to 67108864"#,
    ));
    client.send(b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.expect(&refusal(
        "501 Not Implemented",
        "",
        "the method is BREW; it may be GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS",
    ));
    client.send(GET_THREE);
    client.expect(THREE);
}

#[test]
fn the_connection_ends_where_the_request_says() {
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
fn a_client_that_is_done_sending_still_gets_its_answer() {
    let origin = Served::start(1);
    let mut client = origin.client();
    client.send(GET_THREE);
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    client.expect_last(THREE);
}

#[test]
fn request_bodies_are_read_and_thrown_away() {
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
fn a_body_that_waits_to_be_asked_for_is() {
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
fn bytes_that_come_one_by_one() {
    let origin = Served::start(1);
    let mut client = origin.client();
    for byte in b"POST /?payload=3 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody" {
        client.send(&[*byte]);
    }
    client.expect(THREE);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let origin = Served::start(1);
    let mut client = origin.client();
    // The sizes are on both sides of what is copied behind a head, and of a batch.
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
fn malformed_requests_are_told_why_and_closed() {
    let origin = Served::start(1);
    for (request, text) in [
        ("GET / HTTP/1.1\r\nHo st: a\r\n\r\n", "the head is not HTTP/1: invalid header name"),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
            "the Content-Length `x` is not a length",
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "a chunk's size is not a hexadecimal number of at most 64 bits",
        ),
        ("GET / HTTP/1.1\r\n\r\n", "there must be one Host header, not 0"),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "there must be one Host header, not 2"),
        (
            "GET method HTTP/1.1\r\nHost: a\r\n\r\n",
            "the target `method` is neither a path nor a URL with a host",
        ),
        (
            "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
            "the target `*` is neither a path nor a URL with a host",
        ),
        ("GET / HTTP/1.1\nHost: a\r\n\r\n", "a line of the head ends in LF without CR"),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
            "there are two Content-Lengths, 1 and 1",
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "there are both a Transfer-Encoding and a Content-Length",
        ),
    ] {
        let mut client = origin.client();
        // More follows than is read at once: closing with it unread would reset the connection, and
        // could take the answer with it.
        client.send(format!("{request}{}", "more".repeat(100_000)).as_bytes());
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        client.expect_last(&refusal(
            "400 Bad Request",
            "Connection: close\r\n",
            &format!("the request is malformed: {text}"),
        ));
    }
}

#[test]
fn a_target_may_be_a_url_and_its_scheme_in_capitals() {
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
fn what_is_too_large_is_told_and_closed() {
    let origin = Served::start(1);
    let mut client = origin.client();
    let value = "v".repeat(64 << 10);
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nX: {value}\r\n\r\n").as_bytes());
    client.expect_last(&refusal(
        "431 Request Header Fields Too Large",
        "Connection: close\r\n",
        "the request is malformed: the head is longer than 65536 bytes",
    ));

    let mut client = origin.client();
    client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 67108865\r\n\r\nmore");
    client.expect_last(&refusal(
        "413 Content Too Large",
        "Connection: close\r\n",
        "the request body is too large; it may have 67108864 bytes",
    ));
}
