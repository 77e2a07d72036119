//! A filter of requests and responses: its phases, its verdicts, and transactions that it suspends.

use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use tollgate_gateway::Gateway;
use tollgate_gateway::Resumer;
use tollgate_gateway::config::Config;
use tollgate_gateway::filter::{
    Filter, LocalResponse, Outcome, RequestContext, TransactionId, Verdict,
};
use tollgate_http1::ResponseHead;

use crate::support::http2::{CANCEL, GET_FIELDS, Http2Peer, INTERNAL_ERROR};
use crate::support::{Backend, DEADLINE, GET, OK, TestGateway, config};

/// Reports each phase to the test. Its verdict is in the words that it sees: `wait` or `block`.
struct TestFilter {
    phases: Sender<(String, TransactionId)>,
}

impl TestFilter {
    fn check(&self, id: TransactionId, phase: String) -> Verdict {
        let verdict = if phase.contains("block") {
            Verdict::Respond(Box::new(blocked()))
        } else if phase.contains("wait") {
            Verdict::Suspend
        } else {
            Verdict::Pass
        };
        self.phases.send((phase, id)).unwrap();
        verdict
    }
}

impl Filter for TestFilter {
    fn request_head(&mut self, id: TransactionId, request: &RequestContext<'_>) -> Verdict {
        assert_eq!(request.client, Some("127.0.0.1".parse().unwrap()));
        self.check(id, format!("{} {}", request.head.method, request.head.target))
    }

    fn request_body(&mut self, id: TransactionId, piece: &[u8]) -> Verdict {
        self.check(id, format!("body {}", String::from_utf8_lossy(piece)))
    }

    fn response_head(&mut self, id: TransactionId, head: &ResponseHead<'_>) -> Verdict {
        self.check(id, format!("{} {}", head.status, head.reason))
    }

    fn response_body(&mut self, id: TransactionId, piece: &[u8]) -> Verdict {
        self.check(id, format!("response {}", String::from_utf8_lossy(piece)))
    }

    fn finished(&mut self, id: TransactionId, outcome: &Outcome) {
        let Outcome { status, request_body_bytes, response_body_bytes, .. } = *outcome;
        let status = status.map_or("none".to_owned(), |status| status.to_string());
        self.phases
            .send((format!("log {status} {request_body_bytes} {response_body_bytes}"), id))
            .unwrap();
    }
}

fn blocked() -> LocalResponse {
    let headers = vec![("X-Rule".to_owned(), "7".to_owned())];
    LocalResponse::new(403, "Forbidden", headers, b"no".to_vec())
}

const BLOCKED: &str = "HTTP/1.1 403 Forbidden\r\nX-Rule: 7\r\nContent-Length: 2\r\n\r\nno";
const OK_WAIT: &str = "HTTP/1.1 200 wait\r\nDate: d\r\nContent-Length: 2\r\n\r\nhi";

/// A gateway with a [`TestFilter`].
struct FilteredGateway {
    gateway: TestGateway,
    phases: Receiver<(String, TransactionId)>,
    resumer: Resumer,
}

impl FilteredGateway {
    fn start(config: &Config) -> Self {
        let (sender, phases) = mpsc::channel();
        let mut handed_over = None;
        let gateway = Gateway::start_with_filter(config.clone(), |resumer| {
            handed_over = Some(resumer);
            Box::new(TestFilter { phases: sender.clone() })
        });
        let gateway = TestGateway::new(gateway.unwrap(), config);
        Self { gateway, phases, resumer: handed_over.unwrap() }
    }

    /// Expects these phases of one transaction next.
    #[track_caller]
    fn expect(&self, phases: &[&str]) -> TransactionId {
        let mut last = None;
        for expected in phases {
            let (phase, id) = self.phases.recv_timeout(DEADLINE).unwrap();
            assert_eq!(phase, *expected);
            assert!(last.is_none_or(|last| last == id), "{phase} is of another transaction");
            last = Some(id);
        }
        last.unwrap()
    }

    fn resume(&self, id: TransactionId, verdict: Verdict) {
        self.resumer.resume(id, verdict).unwrap();
    }

    fn block(&self, id: TransactionId) {
        self.resume(id, Verdict::Respond(Box::new(blocked())));
    }
}

#[test]
fn transaction_passes_all_phases_in_order_and_unchanged() {
    let backend = Backend::start();
    let filtered = FilteredGateway::start(&config(&[backend.addr()]));
    let mut client = filtered.gateway.client();
    let post = "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n";
    client.send(post);
    let mut upstream = backend.accept();
    upstream.expect(post);
    filtered.expect(&["POST /a", "body ab"]);
    client.send("1\r\nc\r\n0\r\n\r\n");
    upstream.expect("1\r\nc\r\n0\r\n\r\n");
    filtered.expect(&["body c", "body "]);
    upstream.send(OK);
    client.expect(OK);
    let first = filtered.expect(&["200 OK", "response hi", "response ", "log 200 3 2"]);
    for _ in 0..2 {
        client.send(GET);
        upstream.expect(GET);
        filtered.expect(&["GET /a", "body "]);
        upstream.send("HTTP/1.1 204 No\r\nDate: d\r\n\r\n");
        client.expect("HTTP/1.1 204 No\r\nDate: d\r\n\r\n");
        let next = filtered.expect(&["204 No", "response ", "log 204 0 0"]);
        assert_ne!(next, first);
    }
}

#[test]
fn blocked_request_reaches_no_backend_and_its_connection_persists() {
    let backend = Backend::start();
    let filtered = FilteredGateway::start(&config(&[backend.addr()]));
    let mut client = filtered.gateway.client();
    client.send(GET.replace("/a", "/block"));
    client.expect_dated(BLOCKED);
    filtered.expect(&["GET /block", "body ", "log 403 0 2"]);
    client.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nblock");
    client.expect_dated(BLOCKED);
    filtered.expect(&["POST /a", "body block", "body ", "log 403 5 2"]);
    backend.expect_no_connection(&filtered.gateway);
    client.send(GET);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    upstream.send("HTTP/1.1 200 block\r\nDate: d\r\nContent-Length: 2\r\n\r\nhi");
    client.expect_dated(BLOCKED);
    upstream.expect_closed();
    // A response is cut short if a part of it has been sent.
    client.send(GET);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    let start = "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 7\r\n\r\nhi";
    upstream.send(start);
    client.expect(start);
    upstream.send("block");
    client.expect_closed();
}

#[test]
fn suspended_transaction_continues_once_it_is_resumed() {
    let backend = Backend::start();
    let filtered = FilteredGateway::start(&config(&[backend.addr()]));
    let mut client = filtered.gateway.client();
    let request = GET.replace("/a", "/wait");
    client.send(&request);
    let id = filtered.expect(&["GET /wait", "body "]);
    backend.expect_no_connection(&filtered.gateway);
    assert!(filtered.phases.try_recv().is_err());
    filtered.resume(id, Verdict::Pass);
    let mut upstream = backend.accept();
    upstream.expect(&request);
    upstream.send(OK_WAIT);
    filtered.expect(&["200 wait", "response hi", "response "]);
    filtered.gateway.turn();
    client.expect_nothing_yet();
    filtered.resume(id, Verdict::Pass);
    client.expect(OK_WAIT);
    filtered.expect(&["log 200 0 2"]);
    // Resuming it again has no effect.
    filtered.block(id);

    client.send(&request);
    let id = filtered.expect(&["GET /wait", "body "]);
    filtered.block(id);
    client.expect_dated(BLOCKED);
    filtered.expect(&["log 403 0 2"]);
    client.send(GET);
    upstream.expect(GET);
    upstream.send(OK_WAIT);
    let id = filtered.expect(&["GET /a", "body ", "200 wait", "response hi", "response "]);
    filtered.block(id);
    client.expect_dated(BLOCKED);
}

#[test]
fn suspended_transaction_has_the_timeout_of_a_response() {
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.timeouts.response = Duration::from_millis(100);
    let filtered = FilteredGateway::start(&config);
    let mut client = filtered.gateway.client();
    client.send(GET.replace("/a", "/wait"));
    let length = client.expect_local_response(504).body.len();
    filtered.expect(&["GET /wait", "body ", &format!("log 504 0 {length}")]);
    backend.expect_no_connection(&filtered.gateway);
}

fn get(path: &str) -> [(&str, &str); 4] {
    [(":method", "GET"), (":scheme", "http"), (":authority", "x"), (":path", path)]
}

#[test]
fn streams_of_a_client_are_filtered_one_by_one() {
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.listeners[0].http2 = true;
    let filtered = FilteredGateway::start(&config);
    let mut client = Http2Peer::connect(filtered.gateway.address());
    client.request(1, true, &get("/block"));
    let response = client.response(1);
    assert_eq!((response.text(), response.header("x-rule")), (("403", "no"), Some("7")));
    filtered.expect(&["GET /block", "body ", "log 403 0 2"]);
    // A stream that waits delays no other one.
    client.request(3, true, &get("/wait"));
    let waiting = filtered.expect(&["GET /wait", "body "]);
    backend.expect_no_connection(&filtered.gateway);
    client.request(5, true, GET_FIELDS);
    let mut upstream = backend.accept();
    upstream.expect(GET);
    upstream.send(OK);
    assert_eq!(client.response(5).text(), ("200", "hi"));
    filtered.expect(&["GET /a", "body ", "200 OK", "response hi", "response ", "log 200 0 2"]);
    filtered.resume(waiting, Verdict::Pass);
    upstream.expect(GET.replace("/a", "/wait"));
    upstream.send(OK_WAIT);
    filtered.expect(&["200 wait", "response hi", "response "]);
    client.round_trip();
    assert!(!client.has_received(3));
    filtered.resume(waiting, Verdict::Pass);
    assert_eq!(client.response(3).text(), ("200", "hi"));
    filtered.expect(&["log 200 0 2"]);
    // A stream that its client resets while it waits.
    client.request(7, true, &get("/wait"));
    let waiting = filtered.expect(&["GET /wait", "body "]);
    client.reset(7, CANCEL);
    filtered.expect(&["log none 0 0"]);
    filtered.resume(waiting, Verdict::Pass);
    client.round_trip();
}

#[test]
fn bodies_of_streams_are_filtered() {
    let backend = Backend::start();
    let mut config = config(&[backend.addr()]);
    config.listeners[0].http2 = true;
    let filtered = FilteredGateway::start(&config);
    let mut client = Http2Peer::connect(filtered.gateway.address());
    let post = [(":method", "POST"), (":scheme", "http"), (":authority", "x"), (":path", "/a")];
    client.request(1, false, &[&post[..], &[("content-length", "9")]].concat());
    filtered.expect(&["POST /a"]);
    let mut upstream = backend.accept();
    upstream.expect("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n");
    client.data(1, false, b"fine");
    filtered.expect(&["body fine"]);
    upstream.expect("fine");
    client.data(1, true, b"block");
    assert_eq!(client.response(1).text(), ("403", "no"));
    filtered.expect(&["body block", "body ", "log 403 9 2"]);
    // The backend does not take the request for complete.
    upstream.expect_closed();
    // The head and the body of a response.
    for (stream, sent, expected) in [
        (3, "HTTP/1.1 200 block\r\nDate: d\r\nContent-Length: 2\r\n\r\nhi", "403"),
        (5, "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 5\r\n\r\nblock", "403"),
        (7, "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 7\r\n\r\nhi", "200"),
    ] {
        client.request(stream, true, GET_FIELDS);
        let mut upstream = backend.accept();
        upstream.expect(GET);
        upstream.send(sent);
        if expected == "403" {
            assert_eq!(client.response(stream).text(), ("403", "no"));
            upstream.expect_closed();
            continue;
        }
        assert_eq!(client.wait(stream, |it| it.body == b"hi").status, "200");
        // Part of the response is sent.
        upstream.send("block");
        let response = client.response(stream);
        assert_eq!((response.has_ended, response.reset), (false, Some(INTERNAL_ERROR)));
    }
    client.round_trip();
}
