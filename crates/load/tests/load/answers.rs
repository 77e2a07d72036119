use std::sync::Arc;

use tollgate_load::{Expectation, Plan, Request, TemplateTally, Workload};

use crate::server::{Server, plan, request, run, workload};

/// A server that answers by the path: `/STATUS/BYTES`.
fn echo() -> Server {
    Server::start(|peer| {
        while let Some(request) = peer.request() {
            let text = String::from_utf8(request).unwrap();
            let mut path = text.split(' ').nth(1).unwrap().split('/').skip(1);
            let (status, bytes) = (path.next().unwrap(), path.next().unwrap().parse().unwrap());
            let body = "x".repeat(bytes);
            peer.send(
                format!("HTTP/1.1 {status} Any\r\nContent-Length: {bytes}\r\n\r\n{body}")
                    .as_bytes(),
            );
        }
    })
}

fn get(path: &str, status: Option<u16>, body_bytes: Option<u64>) -> Request {
    let bytes = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    Request {
        expect: Expectation { status, body_bytes, ..Expectation::default() },
        ..request(bytes.as_bytes())
    }
}

/// A request that may be answered 200 with 5 bytes, or this.
fn or(path: &str, status: u16) -> Request {
    let mut request = get(path, Some(200), Some(5));
    request.expect.or_status = Some(status);
    request
}

/// Status, how often it came, how many answers were unexpected, and the first of those.
type Told<'a> = (u16, u64, u64, Option<&'a str>);

fn told(tally: &TemplateTally) -> Told<'_> {
    let (status, count) = tally.statuses.first_key_value().unwrap();
    assert_eq!(tally.statuses.len(), 1, "{tally:?}");
    assert_eq!(tally.latency.count(), *count);
    (*status, *count, tally.unexpected, tally.unexpected_example.as_deref())
}

#[test]
fn each_request_has_its_own_tally() {
    let server = echo();
    let requests = vec![
        get("/200/5", Some(200), Some(5)),
        get("/403/9", Some(403), None),
        get("/200/7", Some(403), None),
        get("/200/7", Some(200), Some(8)),
        get("/500/0", None, None),
        or("/403/9", 403),
        or("/200/5", 403),
        or("/404/5", 403),
    ];
    let outcome = run(Plan {
        connections: 3,
        threads: 2,
        workload: workload(requests),
        ..plan(server.address, 80)
    });
    let expected = [
        (200, 10, 0, None),
        (403, 10, 0, None),
        (200, 10, 10, Some("200 with 7 bytes, instead of 403")),
        (200, 10, 10, Some("200 with 7 bytes, instead of 200 with 8 bytes")),
        (500, 10, 0, None),
        (403, 10, 0, None),
        (200, 10, 0, None),
        (404, 10, 10, Some("404 with 5 bytes, instead of 200 with 5 bytes, or 403")),
    ];
    // Each thread walks its 40 requests five times around.
    let got: Vec<Told<'_>> = outcome.templates.iter().map(told).collect();
    assert_eq!(got, expected);
    assert_eq!((outcome.answered, outcome.unexpected), (80, 30));
}

#[test]
fn one_request_may_get_many_statuses() {
    let calls = std::sync::atomic::AtomicU64::new(0);
    let server = Server::start(move |peer| {
        while peer.request().is_some() {
            let call = calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let status = if call % 4 == 3 { 503 } else { 200 };
            peer.send(format!("HTTP/1.1 {status} Any\r\nContent-Length: 0\r\n\r\n").as_bytes());
        }
    });
    let requests = vec![get("/", Some(200), None)];
    let outcome = run(Plan { workload: workload(requests), ..plan(server.address, 20) });
    let TemplateTally { statuses, unexpected, unexpected_example, .. } = &outcome.templates[0];
    assert_eq!(*statuses, [(200, 15), (503, 5)].into());
    assert_eq!(*unexpected, 5);
    assert_eq!(unexpected_example.as_deref(), Some("503 with 0 bytes, instead of 200"));
}

#[test]
fn the_order_decides_how_often_a_request_is_sent() {
    let server = echo();
    let mut requests =
        vec![get("/200/1", None, None), get("/201/1", None, None), get("/202/1", None, None)];
    for (template, request) in requests.iter_mut().enumerate() {
        request.template = template;
    }
    let order = vec![0, 0, 0, 1];
    let workload = Arc::new(Workload::new(requests, order).unwrap());
    let outcome = run(Plan { workload, ..plan(server.address, 40) });
    let answers: Vec<u64> =
        outcome.templates.iter().map(|tally| tally.statuses.values().sum()).collect();
    assert_eq!(answers, [30, 10, 0]);
}

#[test]
fn a_text_is_found_across_reads_and_chunks() {
    let server = Server::start(|peer| {
        while let Some(request) = peer.request() {
            peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nwel\r\n");
            peer.sleep(std::time::Duration::from_millis(20));
            let path = String::from_utf8(request).unwrap();
            let rest = if path.starts_with("GET /in") { "come" } else { "comb" };
            peer.send(format!("4\r\n{rest}\r\n0\r\n\r\n").as_bytes());
        }
    });
    let looking = |path| {
        let mut request = get(path, Some(200), None);
        request.expect.body_contains = Some(Arc::from(*b"welcome"));
        request
    };
    let requests = vec![looking("/in"), looking("/out"), get("/out", Some(200), Some(7))];
    let outcome = run(Plan { workload: workload(requests), ..plan(server.address, 6) });
    let unexpected: Vec<u64> = outcome.templates.iter().map(|tally| tally.unexpected).collect();
    assert_eq!(unexpected, [0, 2, 0], "{outcome:?}");
    assert_eq!(
        outcome.templates[1].unexpected_example.as_deref(),
        Some("200 with 7 bytes without the text, instead of 200 with `welcome` in the body")
    );
}

#[test]
fn the_first_head_is_kept() {
    let server = Server::answering("HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 0\r\n\r\n");
    let outcome = run(plan(server.address, 3));
    assert_eq!(outcome.first_head, b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 0\r\n\r\n");
    assert_eq!((outcome.body_bytes, outcome.kept_alive), (0, 3));
}
