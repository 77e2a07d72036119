//! Bodies in both directions: lengths, chunks, trailers, ends by close, and interruptions.

use tollgate_gateway::config::HeaderEdits;

use crate::support::{
    Backend, GET, OK, Peer, TestGateway, ThreadedBackend, config, is_disconnect, path,
};

const CHUNKED_POST: &str = "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
const CHUNKED_OK: &str = "HTTP/1.1 200 OK\r\nDate: d\r\nTransfer-Encoding: chunked\r\n\r\n";
/// A response whose body ends with the connection, as a backend sends it and as a client receives it.
const STREAM: &str = "HTTP/1.1 200 OK\r\nDate: d\r\n\r\nabc";
const STREAM_RECEIVED: &str = "HTTP/1.1 200 OK\r\nDate: d\r\nConnection: close\r\n\r\nabc";
/// The same request in both versions, which the backend receives in the same form.
const GETS: [&str; 2] = [GET, "GET /a HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n"];

/// A client and the upstream connection of its first request, whose header section the backend has received.
fn begin_request(backend: &Backend, gateway: &TestGateway, head: &str) -> (Peer, Peer) {
    let mut client = gateway.client();
    client.send(head);
    let mut upstream = backend.accept();
    upstream.expect(head);
    (client, upstream)
}

#[test]
fn body_with_a_length_is_forwarded_as_it_arrives() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let head = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n";
    let (mut client, mut upstream) = begin_request(&backend, &gateway, head);
    for piece in ["01", "234", "56789"] {
        client.send(piece);
        upstream.expect(piece);
    }
    let start = "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 6\r\n\r\nab";
    upstream.send(start);
    client.expect(start);
    upstream.send("cdef");
    client.expect("cdef");
    // The bytes behind a body are the next request.
    client.send(format!("{head}0123456789{GET}"));
    upstream.expect(format!("{head}0123456789"));
    upstream.send(OK);
    client.expect(OK);
    upstream.expect(GET);
}

#[test]
fn chunks_and_trailers_are_forwarded_in_both_directions() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let (mut client, mut upstream) = begin_request(&backend, &gateway, CHUNKED_POST);
    client.send("3;x=y\r\nabc\r\n");
    upstream.expect("3\r\nabc\r\n");
    client.send("2\r\nde\r\n0\r\nX-Sum: 5\r\nHost: evil\r\n\r\n");
    upstream.expect("2\r\nde\r\n0\r\nX-Sum: 5\r\n\r\n");
    upstream.send(format!("{CHUNKED_OK}1\r\na"));
    client.expect(format!("{CHUNKED_OK}1\r\na"));
    upstream.send("\r\n0\r\nX-Sum: 1\r\n\r\n");
    client.expect("\r\n0\r\nX-Sum: 1\r\n\r\n");
    client.send(format!("{CHUNKED_POST}0\r\n\r\n"));
    upstream.expect(format!("{CHUNKED_POST}0\r\n\r\n"));
    upstream.send(OK);
    client.expect(OK);
}

#[test]
fn chunked_bodies_may_arrive_byte_by_byte() {
    const BODY: &str = "6\r\nslowly\r\n1\r\n,\r\n0\r\nX-Sum: 7\r\n\r\n";
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let (mut client, mut upstream) = begin_request(&backend, &gateway, CHUNKED_POST);
    for byte in BODY.as_bytes() {
        client.send([*byte]);
        gateway.turn();
    }
    upstream.expect(BODY);
    upstream.send(CHUNKED_OK);
    for byte in BODY.as_bytes() {
        upstream.send([*byte]);
        gateway.turn();
    }
    client.expect(format!("{CHUNKED_OK}{BODY}"));
}

#[test]
fn header_edits_of_a_route_apply_to_trailers() {
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.routes[0].request_headers =
        HeaderEdits { templates: Vec::new(), set: Vec::new(), remove: vec!["x-user".to_owned()] };
    config.routes[0].response_headers = HeaderEdits {
        templates: Vec::new(),
        set: vec![("X-By".to_owned(), "g".to_owned())],
        remove: Vec::new(),
    };
    let gateway = TestGateway::start(&config);
    let trailer = "X-User: root\r\nX-Sum: 5\r\nX-By: evil\r\n\r\n";
    let mut client = gateway.client();
    let mut upstream = None;
    // The trailer arrives with the header section, and after it.
    for pieces in [
        vec![format!("{CHUNKED_POST}2\r\nde\r\n0\r\n{trailer}")],
        vec![format!("{CHUNKED_POST}2\r\nd"), format!("e\r\n0\r\n{trailer}")],
    ] {
        for piece in pieces {
            client.send(piece);
            gateway.turn();
        }
        let upstream = upstream.get_or_insert_with(|| backend.accept());
        upstream.expect(format!("{CHUNKED_POST}2\r\nde\r\n0\r\nX-Sum: 5\r\nX-By: evil\r\n\r\n"));
        upstream.send(format!("{CHUNKED_OK}0\r\n{trailer}"));
        let head = CHUNKED_OK.replace("\r\n\r\n", "\r\nX-By: g\r\n\r\n");
        client.expect(format!("{head}0\r\nX-User: root\r\nX-Sum: 5\r\n\r\n"));
    }
}

#[test]
fn http_1_0_client_receives_chunks_as_a_stream() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let mut client = gateway.client();
    client.send(GETS[1]);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    upstream.send(format!("{CHUNKED_OK}3\r\nabc\r\n"));
    client.expect(STREAM_RECEIVED);
    upstream.send("2\r\nde\r\n0\r\n\r\n");
    client.expect_to_end("de");
    // The upstream connection is reused.
    let mut client = gateway.client();
    client.send(GET);
    upstream.expect(GET);
}

#[test]
fn stream_ends_with_the_connection_in_both_versions() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    for get in GETS {
        for version in ["HTTP/1.0", "HTTP/1.1"] {
            let mut client = gateway.client();
            client.send(get);
            let mut upstream = backend.accept();
            upstream.expect(GET);
            upstream
                .send(format!("{version} 200 OK\r\nDate: d\r\nConnection: keep-alive\r\n\r\nabc"));
            // It is not converted to chunks: the last chunk would claim an end that the backend has not sent.
            client.expect(STREAM_RECEIVED);
            upstream.send("def");
            drop(upstream);
            client.expect_to_end("def");
        }
    }
}

#[test]
fn reset_of_a_stream_is_forwarded_as_a_reset() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    for get in GETS {
        let mut client = gateway.client();
        client.send(get);
        let mut upstream = backend.accept();
        upstream.send(STREAM);
        client.expect(STREAM_RECEIVED);
        // A close with an unread request is a reset.
        drop(upstream);
        client.expect_reset();
    }
}

#[test]
fn interrupted_chunks_reset_an_http_1_0_client() {
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    for (chunks, is_valid) in [("3\r\nabc\r\n", true), ("1\r\nabc\r\n", false)] {
        let mut client = gateway.client();
        client.send("GET /a HTTP/1.0\r\nHost: x\r\n\r\n");
        let mut upstream = backend.accept();
        upstream.expect(GET);
        upstream.send(format!("{CHUNKED_OK}{chunks}"));
        if is_valid {
            client.expect(STREAM_RECEIVED);
            drop(upstream);
            // A close would be the end of the body.
            client.expect_reset();
        } else {
            client.expect_local_response(502);
        }
    }
}

#[test]
fn interrupted_large_body_is_not_completed() {
    const BYTES: usize = 4 << 20;
    let backend = ThreadedBackend::start(|mut peer| {
        let head = peer.head().unwrap();
        let framing = match path(&head) {
            "/length" => format!("Content-Length: {BYTES}\r\n\r\n"),
            _ => format!("Transfer-Encoding: chunked\r\n\r\n{BYTES:x}\r\n"),
        };
        peer.send(format!("HTTP/1.1 200 OK\r\n{framing}"));
        peer.send(vec![b'x'; BYTES - 1]);
    });
    let gateway = TestGateway::on_unix_socket(config(&[backend.addr()]));
    for path in ["/length", "/chunked"] {
        let error = gateway.client().get(path).unwrap_err();
        assert!(is_disconnect(&error), "{path}: {error}");
    }
}

#[test]
fn large_bodies_wait_for_a_slow_receiver_and_delay_no_other_request() {
    const BYTES: usize = 64 << 20;
    let backend = Backend::start();
    let gateway = TestGateway::start(&config(&[backend.addr()]));
    let body: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
    let head = format!("PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: {BYTES}\r\n\r\n");
    let (client, upstream) = begin_request(&backend, &gateway, &head);
    let (mut other, mut other_upstream) = begin_request(&backend, &gateway, GET);
    other_upstream.send(OK);
    other.expect(OK);
    let mut transfer = |mut sender: Peer, mut receiver: Peer| {
        let sent = sender.send_until_blocked(&body);
        assert!(sent < BYTES / 2, "{sent} bytes were taken for a peer that reads nothing");
        other.send(GET);
        other_upstream.expect(GET);
        other_upstream.send(OK);
        other.expect(OK);
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| sender.send(&body[sent..]));
            assert!(receiver.read(BYTES) == body, "the body has changed");
            sending.join().unwrap();
        });
        (sender, receiver)
    };
    let (mut client, mut upstream) = transfer(client, upstream);
    let response = format!("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: {BYTES}\r\n\r\n");
    upstream.send(&response);
    client.expect(&response);
    let (_, mut client) = transfer(upstream, client);
    // The next response follows exactly.
    client.send("invalid\r\n\r\n");
    client.expect_local_response(400);
}
