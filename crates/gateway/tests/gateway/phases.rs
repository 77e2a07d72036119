use std::net::IpAddr;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use tollgate_gateway::Gateway;
use tollgate_gateway::config::{Config, Timeouts};
use tollgate_gateway::phase::{ExchangeId, Inspector, Outcome, OwnAnswer, Resumer, Verdict};
use tollgate_wire::{AnswerHead, RequestHead};

use crate::support::{Backend, GET, OK, PATIENCE, Served};

/// Tells the test of each look, and says what the words that it sees ask it to: `wait` or `block`.
struct Watcher {
    seen: Sender<(String, ExchangeId)>,
}

impl Watcher {
    fn look(&self, id: ExchangeId, what: String) -> Verdict {
        let verdict = if what.contains("block") {
            Verdict::Answer(Box::new(blocked()))
        } else if what.contains("wait") {
            Verdict::Wait
        } else {
            Verdict::Pass
        };
        self.seen.send((what, id)).unwrap();
        verdict
    }
}

impl Inspector for Watcher {
    fn headers(&mut self, id: ExchangeId, head: &RequestHead<'_>, from: Option<IpAddr>) -> Verdict {
        assert_eq!(from, Some("127.0.0.1".parse().unwrap()));
        self.look(id, format!("{} {}", head.method, head.target))
    }

    fn body(&mut self, id: ExchangeId, piece: &[u8]) -> Verdict {
        self.look(id, format!("body {}", String::from_utf8_lossy(piece)))
    }

    fn answer_headers(&mut self, id: ExchangeId, head: &AnswerHead<'_>) -> Verdict {
        self.look(id, format!("{} {}", head.status, head.reason))
    }

    fn answer_body(&mut self, id: ExchangeId, piece: &[u8]) -> Verdict {
        self.look(id, format!("answer {}", String::from_utf8_lossy(piece)))
    }

    fn log(&mut self, id: ExchangeId, outcome: &Outcome) {
        let Outcome { status, body_bytes, answer_bytes, .. } = *outcome;
        let status = status.map_or("none".to_owned(), |status| status.to_string());
        self.seen.send((format!("log {status} {body_bytes} {answer_bytes}"), id)).unwrap();
    }
}

fn blocked() -> OwnAnswer {
    OwnAnswer {
        status: 403,
        reason: "Forbidden".to_owned(),
        headers: vec![("X-Rule".to_owned(), "7".to_owned())],
        body: b"no".to_vec(),
    }
}

const BLOCKED: &str = "HTTP/1.1 403 Forbidden\r\nX-Rule: 7\r\nContent-Length: 2\r\n\r\nno";

/// A gateway that is watched.
struct Watched {
    served: Served,
    seen: Receiver<(String, ExchangeId)>,
    resumer: Resumer,
}

impl Watched {
    fn start(config: Config) -> Self {
        let (seen, looks) = mpsc::channel();
        let mut handed = None;
        let gateway = Gateway::start_inspected(config, |resumer| {
            handed = Some(resumer);
            Box::new(Watcher { seen: seen.clone() })
        });
        Self { served: Served::of(gateway.unwrap()), seen: looks, resumer: handed.unwrap() }
    }

    /// These looks come next, in this order.
    #[track_caller]
    fn expect(&self, looks: &[&str]) -> ExchangeId {
        let mut last = None;
        for expected in looks {
            let (what, id) = self.seen.recv_timeout(PATIENCE).unwrap();
            assert_eq!(what, *expected);
            assert!(last.is_none_or(|last| last == id), "{what} is of another exchange");
            last = Some(id);
        }
        last.unwrap()
    }

    fn expect_nothing(&self) {
        assert!(self.seen.recv_timeout(Duration::from_millis(30)).is_err());
    }
}

#[test]
fn an_exchange_passes_all_phases_in_order_and_goes_on_as_it_is() {
    let backend = Backend::start();
    let watched = Watched::start(backend.config());
    let mut client = watched.served.client();
    let post = "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n";
    client.send(post);
    let mut peer = backend.accept();
    peer.expect(post);
    watched.expect(&["POST /a", "body ab"]);
    client.send("1\r\nc\r\n0\r\n\r\n");
    peer.expect("1\r\nc\r\n0\r\n\r\n");
    watched.expect(&["body c", "body "]);
    peer.send(OK);
    client.expect(OK);
    let first = watched.expect(&["200 OK", "answer hi", "answer ", "log 200 3 2"]);
    for _ in 0..2 {
        client.send(GET);
        peer.expect(GET);
        watched.expect(&["GET /a", "body "]);
        peer.send("HTTP/1.1 204 No\r\nDate: d\r\n\r\n");
        client.expect("HTTP/1.1 204 No\r\nDate: d\r\n\r\n");
        let next = watched.expect(&["204 No", "answer ", "log 204 0 0"]);
        assert_ne!(next, first);
    }
}

#[test]
fn what_is_answered_instead_reaches_no_backend_and_the_connection_goes_on() {
    let backend = Backend::start();
    let watched = Watched::start(backend.config());
    let mut client = watched.served.client();
    client.send(GET.replace("/a", "/block"));
    client.expect_dated(BLOCKED);
    watched.expect(&["GET /block", "body ", "log 403 0 2"]);
    client.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nblock");
    client.expect_dated(BLOCKED);
    watched.expect(&["POST /a", "body block", "body ", "log 403 5 2"]);
    backend.expect_nobody();
    client.send(GET);
    let mut peer = backend.accept();
    peer.expect(GET);
    peer.send("HTTP/1.1 200 block\r\nDate: d\r\nContent-Length: 2\r\n\r\nhi");
    client.expect_dated(BLOCKED);
    peer.expect_end();
    // What is known to be bad only when a part of it is out is cut off.
    client.send(GET);
    let mut peer = backend.accept();
    peer.expect(GET);
    peer.send("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 7\r\n\r\nhi");
    client.expect("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 7\r\n\r\nhi");
    peer.send("block");
    client.expect_end();
}

#[test]
fn what_waits_goes_on_when_it_is_resumed_and_not_before() {
    let backend = Backend::start();
    let watched = Watched::start(backend.config());
    let mut client = watched.served.client();
    let request = GET.replace("/a", "/wait");
    client.send(&request);
    let id = watched.expect(&["GET /wait", "body "]);
    watched.expect_nothing();
    backend.expect_nobody();
    watched.resumer.resume(id, Verdict::Pass).unwrap();
    let mut peer = backend.accept();
    peer.expect(&request);
    peer.send("HTTP/1.1 200 wait\r\nDate: d\r\nContent-Length: 2\r\n\r\nhi");
    watched.expect(&["200 wait", "answer hi", "answer "]);
    client.expect_nothing();
    watched.resumer.resume(id, Verdict::Pass).unwrap();
    client.expect("HTTP/1.1 200 wait\r\nDate: d\r\nContent-Length: 2\r\n\r\nhi");
    watched.expect(&["log 200 0 2"]);
    // Once more does nothing.
    watched.resumer.resume(id, Verdict::Answer(Box::new(blocked()))).unwrap();

    client.send(&request);
    let id = watched.expect(&["GET /wait", "body "]);
    watched.resumer.resume(id, Verdict::Answer(Box::new(blocked()))).unwrap();
    client.expect_dated(BLOCKED);
    watched.expect(&["log 403 0 2"]);
    client.send(GET);
    peer.expect(GET);
    peer.send("HTTP/1.1 200 wait\r\nDate: d\r\nContent-Length: 2\r\n\r\nhi");
    let id = watched.expect(&["GET /a", "body ", "200 wait", "answer hi", "answer "]);
    watched.resumer.resume(id, Verdict::Answer(Box::new(blocked()))).unwrap();
    client.expect_dated(BLOCKED);
}

#[test]
fn an_inspector_that_does_not_make_up_its_mind_is_waited_for_as_long_as_a_backend() {
    let backend = Backend::start();
    let config = backend.config();
    let timeouts = Timeouts { answer: Duration::from_millis(100), ..config.timeouts };
    let watched = Watched::start(Config { timeouts, ..config });
    let mut client = watched.served.client();
    client.send(GET.replace("/a", "/wait"));
    assert!(client.head().starts_with("HTTP/1.1 504 "));
    watched.expect(&["GET /wait", "body ", "log 504 0 37"]);
    backend.expect_nobody();
}
