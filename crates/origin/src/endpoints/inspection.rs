//! Endpoints that show how a request arrived: `/status/CODE`, `/headers`, `/method`, `/echo`, `/upload`, any other path;
//! and `/counters`.

use std::borrow::Cow;

use serde::Serialize;
use tollgate_accesslog::ClientText;

use super::action::{Action, ActionResult, Echo, Upload};
use super::multipart::Multipart;
use crate::request::{Allowed, Request, RequestError, decode_path};
use crate::response::{Body, Response};
use crate::state::Shared;

pub(super) fn status<'a>(request: &Request<'a>, _shared: &mut Shared) -> ActionResult<'a> {
    #[derive(Serialize)]
    struct Shown {
        status: u16,
    }

    let decoded = decode_path(request.path);
    let Some(status) = parse_status(decoded.as_deref().unwrap_or(request.path)) else {
        let value = request.path.strip_prefix("/status/").unwrap_or(request.path);
        let allowed = Allowed::Status;
        return Err(RequestError::Parameter {
            name: "status",
            value,
            allowed,
            is_too_large: false,
        });
    };
    Ok(Action::Respond(match status {
        204 | 304 => Response::without_body(status, &[][..]),
        // RFC 9110, section 15.3.6: a 205 has a Content-Length, and it is 0.
        205 => {
            let body = Body::Bytes(Vec::new());
            Response { status, body, ..Response::json(&Shown { status }) }
        }
        _ => Response { status, ..Response::json(&Shown { status }) },
    }))
}

fn parse_status(path: &str) -> Option<u16> {
    let value = path.strip_prefix("/status/")?;
    let is_number = value.len() == 3 && value.bytes().all(|byte| byte.is_ascii_digit());
    value.parse().ok().filter(|status| is_number && (200..=599).contains(status))
}

/// Responds with the headers in their order, duplicates included.
pub(super) fn headers<'a>(request: &Request<'a>, _shared: &mut Shared) -> ActionResult<'a> {
    #[derive(Serialize)]
    struct Shown<'a> {
        headers: Vec<(ClientText<'a>, ClientText<'a>)>,
    }

    let pairs = request.headers.iter();
    let headers = pairs.map(|(name, value)| (ClientText(name.as_bytes()), ClientText(value)));
    let shown = Shown { headers: headers.collect() };
    Ok(Action::Respond(Response::untrusted_json(&shown)))
}

pub(super) fn method<'a>(request: &Request<'a>, _shared: &mut Shared) -> ActionResult<'a> {
    #[derive(Serialize)]
    struct Shown<'a> {
        method: ClientText<'a>,
    }

    let shown = Shown { method: ClientText(request.method.as_bytes()) };
    Ok(Action::Respond(Response::untrusted_json(&shown)))
}

/// Responds with one line of text that names the path.
pub(super) fn path<'a>(request: &Request<'a>, _shared: &mut Shared) -> ActionResult<'a> {
    Ok(Action::Respond(Response::path(request.path)))
}

pub(super) fn echo<'a>(request: &Request<'a>, _shared: &mut Shared) -> ActionResult<'a> {
    let content_type = match request.headers.first("Content-Type") {
        Some(content_type) => Cow::Owned(content_type.to_vec()),
        None => Cow::Borrowed(&b"application/octet-stream"[..]),
    };
    Ok(Action::Echo(Box::new(Echo::new(content_type))))
}

pub(super) fn upload<'a>(request: &Request<'a>, shared: &mut Shared) -> ActionResult<'a> {
    if !matches!(request.method, "POST" | "PUT") {
        return Err(RequestError::NotAnUpload { method: request.method });
    }
    let content_type = request.headers.first("Content-Type").unwrap_or(b"");
    let parts = Multipart::new(content_type)?;
    Ok(Action::Upload(Box::new(Upload::new(shared.now(), parts))))
}

/// Responds with the counters of all threads; `reset=1` resets them afterwards.
pub(super) fn counters<'a>(request: &Request<'a>, shared: &mut Shared) -> ActionResult<'a> {
    let reset = request.query.integer("reset", 0, Allowed::ZeroOrOne)? == 1;
    let counts = shared.counters.read(shared.now(), reset);
    let headers = vec![("Cache-Control", "no-store".into())].into();
    Ok(Action::Respond(Response { headers, ..Response::json(&counts) }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::endpoints::tests::{respond, text};
    use crate::fuzzing::{advance_test_clock, test_clock, test_state};

    #[test]
    fn path_selects_status() {
        let mut shared = test_state();
        for status in [200, 206, 299, 404, 503, 599] {
            let response = respond(&mut shared, &format!("GET /status/{status}"), "", b"");
            assert_eq!(response.status, status);
            assert_eq!(text(&response), format!("{{\"status\":{status}}}"));
        }
        assert_eq!(respond(&mut shared, "GET /%73tatus/%34%304", "", b"").status, 404);
        for status in [204, 304] {
            let response = respond(&mut shared, &format!("GET /status/{status}"), "", b"");
            assert_eq!((response.status, response.body), (status, Body::None));
        }
        assert_eq!(respond(&mut shared, "GET /status/205", "", b"").body.len(), 0);
        for value in ["", "abc", "199", "600", "2000", "+20", "20x", "200/"] {
            let response = respond(&mut shared, &format!("GET /status/{value}"), "", b"");
            assert_eq!(response.status, 400, "{value}");
            let expected = format!(
                r#"{{"error":"invalid status `{value}`: must be a whole number from 200 to 599"}}"#
            );
            assert_eq!(text(&response), expected);
        }
    }

    #[test]
    fn shows_headers_and_method_as_received() {
        let mut shared = test_state();
        let headers = "X-a: \"q\" \r\nx-A:\r\nCookie: a=b; c\r\n";
        let response = respond(&mut shared, "GET /headers", headers, b"");
        assert_eq!(
            text(&response),
            r#"{"headers":[["Host","a.test"],["X-a","\"q\""],["x-A",""],["Cookie","a=b; c"]]}"#
        );
        for method in ["GET", "PATCH"] {
            let response = respond(&mut shared, &format!("{method} /method"), "", b"");
            assert_eq!(text(&response), format!("{{\"method\":\"{method}\"}}"));
        }
    }

    #[test]
    fn echoes_body_and_type() {
        let mut shared = test_state();
        let body = b"a\r\n\0\xff";
        let response = respond(&mut shared, "PUT /echo", "content-type: text/x\r\n", body);
        assert_eq!(&response.content_type[..], b"text/x");
        assert_eq!(response.body, Body::Bytes(body.to_vec()));
        let response = respond(&mut shared, "GET /echo", "", b"");
        assert_eq!(&response.content_type[..], b"application/octet-stream");
        assert_eq!(response.body, Body::Bytes(Vec::new()));
    }

    #[test]
    fn body_is_measured() {
        let mut shared = test_state();
        for method in ["POST", "PUT"] {
            let response = respond(&mut shared, &format!("{method} /upload"), "", b"hello");
            assert_eq!(text(&response), "{\"size\":5,\"time\":0.000000}");
        }
        let mut upload = Upload::new(test_clock(), None);
        upload.receive(b"123456789");
        advance_test_clock(Duration::from_micros(1_250_000));
        assert_eq!(text(&upload.into_response(test_clock())), "{\"size\":9,\"time\":1.250000}");
    }

    #[test]
    fn form_parts_are_listed() {
        let mut shared = test_state();
        let form = "Content-Type: multipart/form-data; boundary=b\r\n";
        let body = b"--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nxyz\r\n\
            --b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"\\\"q\\\".txt\"\r\n\r\n\r\n--b--\r\n";
        assert_eq!(
            text(&respond(&mut shared, "POST /upload", form, body)),
            "{\"size\":134,\"time\":0.000000,\"parts\":[\n\
             {\"name\":\"a\",\"filename\":null,\"size\":3},\n\
             {\"name\":\"f\",\"filename\":\"\\\"q\\\".txt\",\"size\":0}\n]}"
        );
        assert_eq!(
            text(&respond(&mut shared, "POST /upload", form, b"--b--")),
            "{\"size\":5,\"time\":0.000000,\"parts\":[\n]}"
        );
        let error = respond(&mut shared, "POST /upload", form, b"--b\r\n");
        assert_eq!(error.status, 400);
        assert_eq!(
            text(&error),
            "{\"error\":\"malformed multipart/form-data: missing final boundary\"}"
        );
        let no_boundary = "Content-Type: multipart/form-data\r\n";
        assert_eq!(respond(&mut shared, "POST /upload", no_boundary, b"").status, 400);
    }

    #[test]
    fn other_methods_are_not_allowed() {
        let mut shared = test_state();
        let error = respond(&mut shared, "GET /upload", "", b"");
        assert_eq!((error.status, error.is_error), (405, true));
        assert!(error.headers.contains(&("Allow", "POST, PUT".into())));
        assert_eq!(text(&error), r#"{"error":"method `GET` is not allowed: must be POST or PUT"}"#);
    }

    #[test]
    fn counters_are_shown_and_reset() {
        let mut shared = test_state();
        (0..3).for_each(|_| shared.counters.add_request(2));
        let json = text(&respond(&mut shared, "GET /counters?reset=1", "", b""));
        assert!(json.contains("\"requests\":3,"), "{json}");
        assert!(json.contains("\"/urandom\":3,\"/zero\":0,"), "{json}");
        let json = text(&respond(&mut shared, "GET /counters?reset=0", "", b""));
        assert!(json.contains("\"requests\":0,"), "{json}");
        for value in ["yes", "2"] {
            let error = respond(&mut shared, &format!("GET /counters?reset={value}"), "", b"");
            assert_eq!(error.status, 400);
            let expected = format!(r#"{{"error":"invalid reset `{value}`: must be 0 or 1"}}"#);
            assert_eq!(text(&error), expected);
        }
    }
}
