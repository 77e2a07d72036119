use tollgate_gateway::config::HeaderEdits;

use crate::support::{Backend, GET, OK, Peer, Served};

/// A client and the backend's end of its first request, of which the backend has seen the head.
fn asked(backend: &Backend, served: &Served, head: &str) -> (Peer, Peer) {
    let mut client = served.client();
    client.send(head);
    let mut peer = backend.accept();
    peer.expect(head);
    (client, peer)
}

#[test]
fn a_body_of_a_length_goes_on_as_it_comes() {
    let backend = Backend::start();
    let served = backend.gateway();
    let head = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n";
    let (mut client, mut peer) = asked(&backend, &served, head);
    for piece in ["01", "234", "56789"] {
        client.send(piece);
        peer.expect(piece);
    }
    peer.send("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 6\r\n\r\nab");
    client.expect("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 6\r\n\r\nab");
    peer.send("cdef");
    client.expect("cdef");
    // What comes behind the body is the next request.
    client.send(format!("{head}0123456789{GET}"));
    peer.expect(format!("{head}0123456789"));
    peer.send(OK);
    client.expect(OK);
    peer.expect(GET);
}

#[test]
fn chunks_and_trailers_go_on_both_ways() {
    let backend = Backend::start();
    let served = backend.gateway();
    let head = "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (mut client, mut peer) = asked(&backend, &served, head);
    client.send("3;x=y\r\nabc\r\n");
    peer.expect("3\r\nabc\r\n");
    client.send("2\r\nde\r\n0\r\nX-Sum: 5\r\nHost: evil\r\n\r\n");
    peer.expect("2\r\nde\r\n0\r\nX-Sum: 5\r\n\r\n");
    let answer = "HTTP/1.1 200 OK\r\nDate: d\r\nTransfer-Encoding: chunked\r\n\r\n";
    peer.send(format!("{answer}1\r\na"));
    client.expect(format!("{answer}1\r\na"));
    peer.send("\r\n0\r\nX-Sum: 1\r\n\r\n");
    client.expect("\r\n0\r\nX-Sum: 1\r\n\r\n");
    client.send(format!("{head}0\r\n\r\n"));
    peer.expect(format!("{head}0\r\n\r\n"));
    peer.send(OK);
    client.expect(OK);
}

#[test]
fn what_a_route_says_of_headers_is_not_got_round_behind_a_body() {
    let backend = Backend::start();
    let mut config = backend.config();
    config.routes[0].request_headers =
        HeaderEdits { set: Vec::new(), remove: vec!["x-user".to_owned()] };
    config.routes[0].answer_headers =
        HeaderEdits { set: vec![("X-By".to_owned(), "g".to_owned())], remove: Vec::new() };
    let served = Served::start(config);
    let head = "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    let section = "X-User: root\r\nX-Sum: 5\r\nX-By: evil\r\n\r\n";
    let mut client = served.client();
    let mut peer = None;
    // With the head, and behind it.
    for pieces in [
        vec![format!("{head}2\r\nde\r\n0\r\n{section}")],
        vec![format!("{head}2\r\nd"), format!("e\r\n0\r\n{section}")],
    ] {
        for piece in pieces {
            client.send(piece);
            std::thread::sleep(std::time::Duration::from_millis(30));
        }
        let peer = peer.get_or_insert_with(|| backend.accept());
        peer.expect(format!("{head}2\r\nde\r\n0\r\nX-Sum: 5\r\nX-By: evil\r\n\r\n"));
        let answer = "HTTP/1.1 200 OK\r\nDate: d\r\nTransfer-Encoding: chunked\r\n";
        peer.send(format!("{answer}\r\n0\r\n{section}"));
        client.expect(format!("{answer}X-By: g\r\n\r\n0\r\nX-User: root\r\nX-Sum: 5\r\n\r\n"));
    }
}

#[test]
fn an_old_client_gets_chunks_as_a_stream_that_ends_with_the_connection() {
    let backend = Backend::start();
    let served = backend.gateway();
    let mut client = served.client();
    client.send("GET /a HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n");
    let mut peer = backend.accept();
    peer.expect(GET);
    peer.send("HTTP/1.1 200 OK\r\nDate: d\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    client.expect("HTTP/1.1 200 OK\r\nDate: d\r\nConnection: close\r\n\r\nabc");
    peer.send("2\r\nde\r\n0\r\n\r\n");
    client.expect_last("de");
    // The backend's connection is whole, and takes the next one's request.
    let mut client = served.client();
    client.send(GET);
    peer.expect(GET);
}

#[test]
fn a_stream_without_a_length_ends_with_the_connection() {
    let backend = Backend::start();
    let served = backend.gateway();
    let (mut client, mut peer) = asked(&backend, &served, GET);
    peer.send("HTTP/1.1 200 OK\r\nDate: d\r\n\r\nabc");
    client.expect("HTTP/1.1 200 OK\r\nDate: d\r\nConnection: close\r\n\r\nabc");
    peer.send("def");
    client.expect("def");
    drop(peer);
    client.expect_last("");
}

/// Requests of both versions, which a backend sees alike.
const ASKS: [&str; 2] = [GET, "GET /a HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n"];

#[test]
fn a_stream_without_a_length_goes_on_as_one_to_clients_and_from_backends_of_both_versions() {
    let backend = Backend::start();
    let served = backend.gateway();
    for ask in ASKS {
        for version in ["HTTP/1.0", "HTTP/1.1"] {
            let mut client = served.client();
            client.send(ask);
            let mut peer = backend.accept();
            peer.expect(GET);
            peer.send(format!("{version} 200 OK\r\nDate: d\r\nConnection: keep-alive\r\n\r\nabc"));
            // No chunks: the last one would vouch for an end that the backend has not told.
            client.expect("HTTP/1.1 200 OK\r\nDate: d\r\nConnection: close\r\n\r\nabc");
            peer.send("def");
            drop(peer);
            client.expect_last("def");
        }
    }
}

#[test]
fn a_stream_without_a_length_that_is_reset_is_reset_for_the_client_too() {
    let backend = Backend::start();
    let served = backend.gateway();
    for ask in ASKS {
        let mut client = served.client();
        client.send(ask);
        let mut peer = backend.accept();
        peer.send("HTTP/1.1 200 OK\r\nDate: d\r\n\r\nabc");
        client.expect("HTTP/1.1 200 OK\r\nDate: d\r\nConnection: close\r\n\r\nabc");
        // Closing over the request, which was not read, is a reset.
        drop(peer);
        client.expect_reset();
    }
}

#[test]
fn a_stream_that_breaks_off_is_not_taken_for_whole() {
    let backend = Backend::start();
    let served = backend.gateway();
    for (answer, got) in [
        // Where a close is the end of the body, only a reset says that it is not.
        (
            "HTTP/1.1 200 OK\r\nDate: d\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
            "HTTP/1.1 200 OK\r\nDate: d\r\nConnection: close\r\n\r\nabc",
        ),
        (
            "HTTP/1.1 200 OK\r\nDate: d\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
            "HTTP/1.1 502 Bad Gateway\r\n",
        ),
    ] {
        let mut client = served.client();
        client.send("GET /a HTTP/1.0\r\nHost: x\r\n\r\n");
        let mut peer = backend.accept();
        peer.expect(GET);
        peer.send(answer);
        client.expect(got);
        if got.contains("200") {
            drop(peer);
            client.expect_reset();
        }
    }
}

#[test]
fn answers_without_a_body_have_none_whatever_they_say() {
    let backend = Backend::start();
    let served = backend.gateway();
    let head = GET.replace("GET", "HEAD");
    let (mut client, mut peer) = asked(&backend, &served, &head);
    let answer = "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 500\r\n\r\n";
    peer.send(answer);
    client.expect(answer);
    for status in ["204 No Content", "304 Not Modified"] {
        client.send(GET);
        peer.expect(GET);
        peer.send(format!("HTTP/1.1 {status}\r\nDate: d\r\nETag: \"a\"\r\n\r\n"));
        client.expect(format!("HTTP/1.1 {status}\r\nDate: d\r\nETag: \"a\"\r\n\r\n"));
    }
    client.send(GET);
    peer.expect(GET);
    peer.send(OK);
    client.expect(OK);
}

#[test]
fn a_client_may_wait_until_it_is_asked_for_its_body() {
    let backend = Backend::start();
    let served = backend.gateway();
    let head = "PUT /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";
    let (mut client, mut peer) = asked(&backend, &served, head);
    peer.send("HTTP/1.1 100 Continue\r\n\r\n");
    client.expect("HTTP/1.1 100 Continue\r\n\r\n");
    client.send("abc");
    peer.expect("abc");
    peer.send(format!("HTTP/1.1 103 Early Hints\r\nLink: b\r\n\r\n{OK}"));
    client.expect(format!("HTTP/1.1 103 Early Hints\r\nLink: b\r\n\r\n{OK}"));
}

#[test]
fn an_answer_that_comes_before_the_body_is_passed_on_and_ends_the_connections() {
    let backend = Backend::start();
    let served = backend.gateway();
    let head = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n";
    let (mut client, mut peer) = asked(&backend, &served, head);
    client.send([b'b'; 1000]);
    peer.expect([b'b'; 1000]);
    peer.send("HTTP/1.1 413 No\r\nDate: d\r\nContent-Length: 2\r\n\r\nno");
    client.expect("HTTP/1.1 413 No\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno");
    peer.expect_end();
    // It is listened to a little longer, so that the answer is not overtaken by a reset.
    client.send([b'b'; 1000]);
    client.finish();
    client.expect_last("");
}

#[test]
fn who_reads_no_answer_before_all_is_sent_gets_it_though_it_is_a_refusal() {
    let backend = Backend::start();
    let mut config = backend.config();
    config.limits.body_bytes = Some(1_000);
    let served = Served::start(config);
    let mut client = served.client();
    let piece = vec![b'b'; 1 << 20];
    let head = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 67108864\r\n\r\n";
    client.send(head);
    for number in 0..64 {
        client.send(&piece);
        if number == 32 {
            // It may have to read its next piece from somewhere.
            std::thread::sleep(std::time::Duration::from_millis(1_500));
        }
    }
    assert!(client.head().starts_with("HTTP/1.1 413 "));
    client.expect_last("The body is longer than is passed on.\n");
    backend.expect_nobody();
}

#[test]
fn what_is_sent_behind_the_last_request_makes_no_reset() {
    let backend = Backend::start();
    let served = backend.gateway();
    let mut client = served.client();
    client.send("GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let mut peer = backend.accept();
    peer.expect(GET);
    client.send(GET);
    // Time for the gateway to be told of it.
    std::thread::sleep(std::time::Duration::from_millis(30));
    peer.send(OK);
    client.expect_last(
        "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi",
    );
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert!(client.stream.take_error().unwrap().is_none());
    client.send(GET);
}

#[test]
fn bodies_larger_than_all_buffers_arrive_whole_though_the_other_side_is_slow() {
    let backend = Backend::start();
    let served = backend.gateway();
    let body: Vec<u8> = (0..6_000_000_u32).map(|at| (at % 251) as u8).collect();
    let head = format!("PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    let (mut client, mut peer) = asked(&backend, &served, &head);
    let answer = format!("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: {}\r\n\r\n", body.len());
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| {
            client.send(&body);
            client
        });
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert!(peer.read(body.len()) == body, "what the backend got is not what was sent");
        let mut client = sent.join().unwrap();
        let answered = scope.spawn(|| {
            peer.send(&answer);
            peer.send(&body);
        });
        std::thread::sleep(std::time::Duration::from_millis(30));
        client.expect(&answer);
        assert!(client.read(body.len()) == body, "what the client got is not what was sent");
        answered.join().unwrap();
    });
}
