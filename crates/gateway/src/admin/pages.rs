//! What is answered on the admin listener.

use std::time::{Instant, SystemTime};

use tollgate_wire::{RequestHead, parse_request_head};

use crate::date::http_date;
use crate::view::View;

/// How long the head of a request may be.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// The answer to a request of which so much has come. None: more of it is needed.
pub(super) fn answer(request: &[u8], view: &View) -> Option<String> {
    match parse_request_head(request) {
        Ok(Some(head)) => Some(respond(&head, view)),
        Ok(None) if request.len() < HEAD_BYTES_MAX => None,
        Ok(None) => Some(text(431, "Request Header Fields Too Large", "the head is too long\n")),
        Err(error) => Some(text(400, "Bad Request", &format!("{error}\n"))),
    }
}

/// The answer to a request that did not come in time.
pub(super) fn late() -> String {
    text(408, "Request Timeout", "the request did not come in time\n")
}

fn respond(head: &RequestHead<'_>, view: &View) -> String {
    if !matches!(head.method, "GET" | "HEAD") {
        return text(405, "Method Not Allowed", "only GET and HEAD are answered here\n");
    }
    let path = head.target.split('?').next().unwrap_or_default();
    let mut response = match path {
        "/metrics" => response(
            200,
            "OK",
            "text/plain; version=0.0.4; charset=utf-8",
            &view.metrics(Instant::now()),
        ),
        "/healthz" if view.is_draining() => text(503, "Service Unavailable", "draining\n"),
        "/healthz" => text(200, "OK", "ok\n"),
        _ => text(404, "Not Found", "here are /metrics and /healthz\n"),
    };
    if head.method == "HEAD"
        && let Some(head_bytes) = response.find("\r\n\r\n")
    {
        response.truncate(head_bytes + 4);
    }
    response
}

fn text(status: u16, reason: &str, body: &str) -> String {
    response(status, reason, "text/plain; charset=utf-8", body)
}

fn response(status: u16, reason: &str, kind: &str, body: &str) -> String {
    let allow = if status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
    let date = http_date(SystemTime::now()).map_or(String::new(), |now| format!("Date: {now}\r\n"));
    format!(
        "HTTP/1.1 {status} {reason}\r\n{date}Content-Type: {kind}\r\nContent-Length: {}\r\n{allow}\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
