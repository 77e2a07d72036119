use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tollgate_load::{Expectation, Plan, Request, Summary, TemplateSummary, Workload};

use crate::server::{GET, OK, Server, plan, post, request, run, set_connections, with, workload};

const CHUNKED: &[u8] =
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n2\r\nde\r\n0\r\nT: 1\r\n\r\n";

fn get_expecting(body_bytes: u64) -> Request {
    get("/", Some(200), Some(body_bytes))
}

fn get(path: &str, status: Option<u16>, body_bytes: Option<u64>) -> Request {
    let bytes = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    Request {
        expect: Expectation { status, body_bytes, ..Expectation::default() },
        ..request(bytes.as_bytes())
    }
}

/// Sends two requests to a server with this response, and expects this body length.
fn send_two(response: &'static [u8], body_bytes: u64) -> Summary {
    let server = Server::responding(response);
    run(Plan { workload: workload(vec![get_expecting(body_bytes)]), ..plan(server.address, 2) })
}

fn assert_all_expected(summary: &Summary, requests: u64) {
    let counts = (summary.responses, summary.unexpected, summary.failures.total());
    assert_eq!(counts, (requests, 0, 0), "{summary:?}");
}

#[test]
fn responses_split_at_every_byte() {
    for (response, body_bytes) in [(OK, 2), (CHUNKED, 5)] {
        let server = Server::start(move |peer| {
            while peer.request().is_some() {
                for byte in response {
                    peer.send(&[*byte]);
                    // Usually long enough for the byte to be read alone.
                    thread::yield_now();
                }
            }
        });
        let workload = workload(vec![get_expecting(body_bytes)]);
        let summary = run(Plan { workload, ..plan(server.address, 20) });
        assert_all_expected(&summary, 20);
        assert_eq!(summary.bytes_received, 20 * response.len() as u64);
        assert_eq!(summary.connects, 1, "both framings keep the connection");
    }
}

#[test]
fn response_ends_with_the_connection() {
    let server = Server::start(|peer| {
        if peer.request().is_some() {
            peer.send(b"HTTP/1.1 200 OK\r\n\r\nhello ");
            peer.sleep(Duration::from_millis(5));
            peer.send(b"world");
        }
    });
    let workload = workload(vec![get_expecting(11)]);
    let summary = run(Plan { workload, ..plan(server.address, 3) });
    assert_all_expected(&summary, 3);
    assert_eq!(summary.connects, 3);
}

#[test]
fn interim_responses_are_skipped() {
    let summary = send_two(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n\
          HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
        1,
    );
    assert_all_expected(&summary, 2);
    assert_eq!(summary.statuses(), [(200, 2)].into());
}

#[test]
fn response_to_head_has_no_body() {
    let server = Server::responding(&b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"[..]);
    let message = request(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").message;
    let head = Request { message, ..get_expecting(0) };
    let summary = run(Plan { workload: workload(vec![head]), ..plan(server.address, 3) });
    assert_all_expected(&summary, 3);
    assert_eq!(summary.connects, 1);
}

#[test]
fn response_larger_than_any_buffer() {
    const BODY_BYTES: usize = 5_000_000;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
    let response = [head.as_bytes(), &vec![b'x'; BODY_BYTES]].concat();
    let received = response.len() as u64;
    let server = Server::responding(response);
    let workload = workload(vec![get_expecting(BODY_BYTES as u64)]);
    let summary = run(Plan { workload, ..plan(server.address, 3) });
    assert_all_expected(&summary, 3);
    assert_eq!(summary.bytes_received, 3 * received);
}

#[test]
fn request_larger_than_any_buffer() {
    let server = Server::start(move |peer| {
        // The client runs out of room before the server starts to read.
        peer.sleep(Duration::from_millis(100));
        while let Some(request) = peer.request() {
            assert!(request.ends_with(b"xxx"));
            peer.send(OK);
        }
    });
    let workload = workload(vec![post(8_000_000)]);
    let summary = run(Plan { workload, ..plan(server.address, 2) });
    assert_all_expected(&summary, 2);
    assert_eq!((server.requests(), summary.connects), (2, 1));
}

#[test]
fn malformed_responses_have_a_reason() {
    let cases: [(&[u8], &str); 5] = [
        (b"SSH-2.0-OpenSSH_9.9\r\n", "malformed HTTP/1 head: invalid HTTP version"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\n", "invalid Content-Length `ten`"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "invalid chunk size: expected a hexadecimal number of at most 64 bits",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxyz",
            "2 bytes follow the end of the response",
        ),
        (b"\r\n", "response starts with an empty line"),
    ];
    for (response, reason) in cases {
        let summary = send_two(response, 0);
        assert_eq!(summary.failures.malformed, 2, "{reason}: {summary:?}");
        assert_eq!(summary.failures.malformed_example.as_deref(), Some(reason));
        assert_eq!(summary.responses, 0);
        // The bytes after a malformed response have no meaning, so the connection is replaced.
        assert_eq!(summary.connects, 2);
    }
    let server = Server::start(|peer| {
        if peer.request().is_some() {
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
        }
    });
    let summary = run(plan(server.address, 2));
    assert_eq!(summary.failures.malformed, 2, "{summary:?}");
    let reason = "connection closed in the middle of a response";
    assert_eq!(summary.failures.malformed_example.as_deref(), Some(reason));
}

/// Responds as the path says: `/STATUS/BYTES`.
fn echo() -> Server {
    Server::start(|peer| {
        while let Some(request) = peer.request() {
            let text = String::from_utf8(request).unwrap();
            let mut path = text.split(' ').nth(1).unwrap().split('/').skip(1);
            let (status, bytes) = (path.next().unwrap(), path.next().unwrap().parse().unwrap());
            let body = "x".repeat(bytes);
            let head = format!("HTTP/1.1 {status} Any\r\nContent-Length: {bytes}\r\n\r\n");
            peer.send((head + &body).as_bytes());
        }
    })
}

/// A request that expects 200 with 5 bytes, or another status.
fn get_or(path: &str, status: u16) -> Request {
    let mut request = get(path, Some(200), Some(5));
    request.expect.or_status = Some(status);
    request
}

/// Status, its count, unexpected responses, and the first of them.
type Counts<'a> = (u16, u64, u64, Option<&'a str>);

fn counts(template: &TemplateSummary) -> Counts<'_> {
    let (status, count) = template.statuses.first_key_value().unwrap();
    assert_eq!(template.statuses.len(), 1, "{template:?}");
    assert_eq!(template.latency.count(), *count);
    (*status, *count, template.unexpected, template.unexpected_example.as_deref())
}

#[test]
fn responses_are_counted_per_template() {
    let server = echo();
    let requests = vec![
        get("/200/5", Some(200), Some(5)),
        get("/403/9", Some(403), None),
        get("/200/7", Some(403), None),
        get("/200/7", Some(200), Some(8)),
        get("/500/0", None, None),
        get_or("/403/9", 403),
        get_or("/200/5", 403),
        get_or("/404/5", 403),
    ];
    let workload = workload(requests);
    let summary = run(with(plan(server.address, 80), |plan| {
        set_connections(plan, 3);
        plan.clients.threads = 2;
        plan.workload = workload;
    }));
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
    // Each thread repeats the order five times.
    let actual: Vec<Counts<'_>> = summary.templates.iter().map(counts).collect();
    assert_eq!(actual, expected);
    assert_eq!((summary.responses, summary.unexpected), (80, 30));
    assert!(summary.unexpected_example.unwrap().contains("instead of"));
}

#[test]
fn one_request_may_get_several_statuses() {
    let calls = AtomicU64::new(0);
    let server = Server::start(move |peer| {
        while peer.request().is_some() {
            let status = if calls.fetch_add(1, Ordering::SeqCst) % 4 == 3 { 503 } else { 200 };
            peer.send(format!("HTTP/1.1 {status} Any\r\nContent-Length: 0\r\n\r\n").as_bytes());
        }
    });
    let workload = workload(vec![get("/", Some(200), None)]);
    let summary = run(Plan { workload, ..plan(server.address, 20) });
    let TemplateSummary { statuses, unexpected, unexpected_example, .. } = &summary.templates[0];
    assert_eq!((statuses, *unexpected), (&[(200, 15), (503, 5)].into(), 5));
    assert_eq!(unexpected_example.as_deref(), Some("503 with 0 bytes, instead of 200"));
}

#[test]
fn requests_are_sent_in_the_order_of_the_workload() {
    let server = echo();
    let mut requests =
        vec![get("/200/1", None, None), get("/201/1", None, None), get("/202/1", None, None)];
    for (template, request) in requests.iter_mut().enumerate() {
        request.template = template;
    }
    let workload = Arc::new(Workload::new(requests, vec![0, 0, 0, 1]).unwrap());
    let summary = run(Plan { workload, ..plan(server.address, 40) });
    let responses: Vec<u64> = summary.templates.iter().map(TemplateSummary::responses).collect();
    assert_eq!(responses, [30, 10, 0]);
}

#[test]
fn body_pattern_is_found_across_reads_and_chunks() {
    let server = Server::start(|peer| {
        while let Some(request) = peer.request() {
            peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nwel\r\n");
            peer.sleep(Duration::from_millis(20));
            let path = String::from_utf8(request).unwrap();
            let rest = if path.starts_with("GET /in") { "come" } else { "comb" };
            peer.send(format!("4\r\n{rest}\r\n0\r\n\r\n").as_bytes());
        }
    });
    let with_pattern = |path| {
        let mut request = get(path, Some(200), None);
        request.expect.body_contains = Some(Arc::from(*b"welcome"));
        request
    };
    let requests = vec![with_pattern("/in"), with_pattern("/out"), get("/out", None, Some(7))];
    let summary = run(Plan { workload: workload(requests), ..plan(server.address, 6) });
    let unexpected: Vec<u64> =
        summary.templates.iter().map(|template| template.unexpected).collect();
    assert_eq!(unexpected, [0, 2, 0], "{summary:?}");
    assert_eq!(
        summary.templates[1].unexpected_example.as_deref(),
        Some("200 with 7 bytes without the pattern, instead of 200 with `welcome` in the body")
    );
}

#[test]
fn headers_of_the_first_response_are_kept() {
    let server = Server::responding(*b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 0\r\n\r\n");
    let summary = run(Plan { workload: workload(vec![request(GET)]), ..plan(server.address, 3) });
    let headers = [("Server", "x"), ("Content-Length", "0")];
    assert_eq!(
        summary.first_headers,
        Some(headers.map(|(name, value)| (name.into(), value.into())).to_vec())
    );
    assert_eq!((summary.body_bytes, summary.kept_alive), (0, 3));
}

#[test]
fn faults_that_clients_accept_are_counted_apart() {
    let folded = b"HTTP/1.1 200 OK\r\nX-Folded: a,\r\n b\r\nContent-Length: 2\r\n\r\nok";
    let summary = run(plan(Server::responding(folded).address, 3));
    assert_eq!(
        (summary.responses, summary.folded_heads, summary.connects),
        (3, 3, 1),
        "{summary:?}"
    );
    let two = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    let summary = run(plan(Server::responding(two).address, 3));
    assert_eq!(
        (summary.responses, summary.double_framings, summary.body_bytes),
        (3, 3, 6),
        "{summary:?}"
    );
}
