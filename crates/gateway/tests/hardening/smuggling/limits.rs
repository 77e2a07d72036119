//! Messages that are too long: each limit is a refusal, and not a hang.

use std::io::Write;

use crate::backend::{Backend, path, read_head};
use crate::caller::Caller;
use crate::client::Client;
use crate::served::Served;

/// A backend that answers anything, and some paths at great length.
fn backend() -> Backend {
    Backend::start(|mut stream| {
        while let Some(head) = read_head(&mut stream) {
            let answer = match path(&head) {
                "/head" => format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(100_000)),
                "/headers" => format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(1_000)),
                "/interim" => "HTTP/1.1 100 Continue\r\n\r\n".repeat(10_000),
                "/size" => format!(
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{}5\r\nhello\r\n0\r\n\r\n",
                    "0".repeat(100_000)
                ),
                "/trailer" => format!(
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: {}\r\n\r\n",
                    "x".repeat(100_000)
                ),
                _ => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_owned(),
            };
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    })
}

#[test]
fn requests_that_are_too_long_are_refused() {
    let backend = backend();
    let gateway = Served::with(backend.address, |config| config.limits.body_bytes = Some(1_000));
    let long = "x".repeat(100_000);
    let head = "POST / HTTP/1.1\r\nHost: a\r\n";
    for (status, request) in [
        (414, format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n")),
        (431, format!("{head}X: {long}\r\n\r\n")),
        (431, format!("{head}{}\r\n", "X: y\r\n".repeat(200))),
        (431, format!("{head}X: {long}")),
        (413, format!("{head}Content-Length: 1001\r\n\r\n")),
        (
            413,
            format!(
                "{head}Transfer-Encoding: chunked\r\n\r\n3e9\r\n{}\r\n0\r\n\r\n",
                &long[..1_001]
            ),
        ),
        (400, format!("{head}Transfer-Encoding: chunked\r\n\r\n1;{long}\r\nx\r\n0\r\n\r\n")),
        (
            400,
            format!(
                "{head}Transfer-Encoding: chunked\r\n\r\n{}1\r\nx\r\n0\r\n\r\n",
                "0".repeat(10_000)
            ),
        ),
        (400, format!("{head}Transfer-Encoding: chunked\r\n\r\n0\r\nX: {long}\r\n\r\n")),
    ] {
        let mut client = Client::connect(gateway.address()).unwrap();
        // It may be cut off before all is sent.
        let _cut_off = client.write_all(request.as_bytes());
        let received = String::from_utf8(client.read_to_close()).unwrap();
        let beginning = &request[..request.len().min(80)];
        assert!(received.starts_with(&format!("HTTP/1.1 {status} ")), "{beginning}: {received}");
    }
}

#[test]
fn answers_that_are_too_long_are_not_passed_on() {
    let backend = backend();
    let gateway = Served::before(backend.address);
    for path in ["/head", "/headers", "/interim", "/size", "/trailer"] {
        let mut client = Client::connect(gateway.address()).unwrap();
        client.send(
            format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes(),
        );
        let received = String::from_utf8(client.read_to_close()).unwrap();
        assert!(!received.ends_with("0\r\n\r\n"), "{path}: {received}");
        let answer = received.trim_start_matches("HTTP/1.1 100 Continue\r\n\r\n");
        let is_refused = answer.starts_with("HTTP/1.1 502 ");
        // A body may turn out to be too long only after its head has gone out.
        let is_cut =
            matches!(path, "/size" | "/trailer") && answer.starts_with("HTTP/1.1 200 OK\r\n");
        assert!(is_refused || is_cut, "{path}: {answer}");
        let mut client = Caller::connect(gateway.address()).unwrap();
        assert_eq!(client.get("/next").unwrap().text(), "ok", "after {path}");
    }
}
