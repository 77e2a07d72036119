use std::time::Duration;

use tollgate_load::{Expectation, Outcome, Plan, Request};

use crate::server::{GET, OK, Server, plan, request, run, workload};

const CHUNKED: &[u8] =
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n2\r\nde\r\n0\r\nT: 1\r\n\r\n";

fn get_expecting(body_bytes: u64) -> Request {
    let expect =
        Expectation { status: Some(200), body_bytes: Some(body_bytes), ..Expectation::default() };
    Request { expect, ..request(GET) }
}

/// Sends two requests to a server that gives every one this answer, and expects this much body.
fn two(answer: &'static [u8], body_bytes: u64) -> Outcome {
    let server = Server::answering(answer);
    run(Plan { workload: workload(vec![get_expecting(body_bytes)]), ..plan(server.address, 2) })
}

fn assert_all_expected(outcome: &Outcome, requests: u64) {
    let got = (outcome.answered, outcome.unexpected, outcome.failures.total());
    assert_eq!(got, (requests, 0, 0), "{outcome:?}");
}

#[test]
fn chunked_answers_keep_the_connection() {
    let outcome = two(CHUNKED, 5);
    assert_all_expected(&outcome, 2);
    assert_eq!(outcome.connects, 1);
}

#[test]
fn answers_split_at_every_byte() {
    for answer in [OK, CHUNKED] {
        let server = Server::start(move |peer| {
            while peer.request().is_some() {
                for byte in answer {
                    peer.send(&[*byte]);
                    // Long enough for the byte to be read alone, most of the time.
                    std::thread::yield_now();
                }
            }
        });
        let body_bytes = if answer == OK { 2 } else { 5 };
        let outcome = run(Plan {
            workload: workload(vec![get_expecting(body_bytes)]),
            ..plan(server.address, 20)
        });
        assert_all_expected(&outcome, 20);
        assert_eq!(outcome.bytes_received, 20 * answer.len() as u64);
        assert_eq!(outcome.connects, 1);
    }
}

#[test]
fn answers_that_end_with_the_connection() {
    let server = Server::start(|peer| {
        if peer.request().is_some() {
            peer.send(b"HTTP/1.1 200 OK\r\n\r\nhello ");
            peer.sleep(Duration::from_millis(5));
            peer.send(b"world");
        }
    });
    let outcome =
        run(Plan { workload: workload(vec![get_expecting(11)]), ..plan(server.address, 3) });
    assert_all_expected(&outcome, 3);
    assert_eq!(outcome.connects, 3);
}

#[test]
fn interim_answers_are_not_answers() {
    let outcome = two(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n\
          HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
        1,
    );
    assert_all_expected(&outcome, 2);
    assert_eq!(outcome.templates[0].statuses, [(200, 2)].into());
}

#[test]
fn the_answer_to_a_head_has_no_body() {
    let server = Server::answering(&b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"[..]);
    let head = Request {
        bytes: b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
        is_head: true,
        template: 0,
        expect: Expectation { status: Some(200), body_bytes: Some(0), ..Expectation::default() },
    };
    let outcome = run(Plan { workload: workload(vec![head]), ..plan(server.address, 3) });
    assert_all_expected(&outcome, 3);
    assert_eq!(outcome.connects, 1);
}

#[test]
fn an_answer_larger_than_any_buffer() {
    const BODY_BYTES: usize = 5_000_000;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
    let answer = [head.as_bytes(), &vec![b'x'; BODY_BYTES]].concat();
    let received = answer.len() as u64;
    let server = Server::answering(answer);
    let expected = get_expecting(BODY_BYTES as u64);
    let outcome = run(Plan { workload: workload(vec![expected]), ..plan(server.address, 3) });
    assert_all_expected(&outcome, 3);
    assert_eq!(outcome.bytes_received, 3 * received);
}

#[test]
fn a_request_larger_than_any_buffer() {
    const BODY_BYTES: usize = 8_000_000;
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
    let post = [head.as_bytes(), &vec![b'x'; BODY_BYTES]].concat();
    let server = Server::start(move |peer| {
        // The client runs out of room before the server begins to read.
        peer.sleep(Duration::from_millis(100));
        while let Some(request) = peer.request() {
            assert!(request.ends_with(b"xxx"));
            peer.send(OK);
        }
    });
    let outcome = run(Plan { workload: workload(vec![request(&post)]), ..plan(server.address, 2) });
    assert_all_expected(&outcome, 2);
    assert_eq!(server.requests(), 2);
    assert_eq!(outcome.connects, 1);
}

#[test]
fn malformed_answers_are_told_with_their_reason() {
    let cases: [(&[u8], &str); 5] = [
        (b"SSH-2.0-OpenSSH_9.9\r\n", "the head is not HTTP/1: invalid HTTP version"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\n",
            "the Content-Length `ten` is not a length",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "a chunk's size is not a hexadecimal number of at most 64 bits",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxyz",
            "2 bytes follow the answer's end, and no request asks for them",
        ),
        (b"\r\n", "an answer begins with an empty line"),
    ];
    for (answer, reason) in cases {
        let outcome = two(answer, 0);
        assert_eq!(outcome.failures.malformed, 2, "{reason}: {outcome:?}");
        assert_eq!(outcome.failures.malformed_example.as_deref(), Some(reason));
        assert_eq!(outcome.answered, 0);
        // What follows a malformed answer cannot be told, so the connection is replaced.
        assert_eq!(outcome.connects, 2);
    }
}

#[test]
fn an_answer_cut_short_is_malformed() {
    let server = Server::start(|peer| {
        if peer.request().is_some() {
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
        }
    });
    let outcome = run(plan(server.address, 2));
    assert_eq!(outcome.failures.malformed, 2, "{outcome:?}");
    assert_eq!(
        outcome.failures.malformed_example.as_deref(),
        Some("the connection closed in the middle of an answer")
    );
}
