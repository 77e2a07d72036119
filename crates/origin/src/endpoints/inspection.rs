//! Endpoints that show how a request arrived: `/status/CODE`, `/headers`, `/method`, `/echo`, any
//! other path; and `/counters`.

use std::borrow::Cow;

use tollgate_accesslog::json_string;

use super::{Action, ActionResult, ENDPOINTS, decode};
use crate::request::{Allowed, Request, RequestError};
use crate::response::{Body, NO_SNIFF, Response};
use crate::state::Shared;

pub(super) fn status<'a>(request: &Request<'a>, _shared: &mut Shared) -> ActionResult<'a> {
    let decoded = decode(request.path);
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
        204 | 304 => Response::without_body(status, ""),
        // RFC 9110, section 15.3.6: a 205 has a Content-Length, and it is 0.
        205 => Response { status, ..Response::json(String::new()) },
        _ => Response { status, ..Response::json(format!("{{\"status\":{status}}}")) },
    }))
}

fn parse_status(path: &str) -> Option<u16> {
    let value = path.strip_prefix("/status/")?;
    let is_number = value.len() == 3 && value.bytes().all(|byte| byte.is_ascii_digit());
    value.parse().ok().filter(|status| is_number && (200..=599).contains(status))
}

/// Responds with the headers in their order, duplicates included.
pub(super) fn headers<'a>(request: &Request<'a>, _shared: &mut Shared) -> ActionResult<'a> {
    let pair = |(name, value): (&str, &[u8])| {
        format!("[{},{}]", json_string(name.as_bytes()), json_string(value))
    };
    let pairs: Vec<String> = request.headers.iter().map(pair).collect();
    let text = format!("{{\"headers\":[{}]}}", pairs.join(","));
    Ok(Action::Respond(Response::untrusted_json(text)))
}

pub(super) fn method<'a>(request: &Request<'a>, _shared: &mut Shared) -> ActionResult<'a> {
    let text = format!("{{\"method\":{}}}", json_string(request.method.as_bytes()));
    Ok(Action::Respond(Response::untrusted_json(text)))
}

/// Responds with one line of text that names the path.
pub(super) fn path<'a>(request: &Request<'a>, _shared: &mut Shared) -> ActionResult<'a> {
    Ok(Action::Respond(Response::path(request.path)))
}

pub(super) const MAX_ECHO_BYTES: u64 = 1 << 20;

/// A request body that becomes the response.
#[derive(Debug)]
pub(crate) struct Echo {
    content_type: Cow<'static, [u8]>,
    body: Vec<u8>,
}

pub(super) fn echo<'a>(request: &Request<'a>, _shared: &mut Shared) -> ActionResult<'a> {
    let content_type = match request.headers.first("Content-Type") {
        Some(content_type) => Cow::Owned(content_type.to_vec()),
        None => Cow::Borrowed(&b"application/octet-stream"[..]),
    };
    Ok(Action::Echo(Box::new(Echo { content_type, body: Vec::new() })))
}

impl Echo {
    /// Appends a piece of the body; the caller has checked the limit.
    pub(super) fn receive(&mut self, piece: &[u8]) {
        self.body.extend_from_slice(piece);
    }

    pub(crate) fn into_response(self) -> Response<'static> {
        Response::new(200, self.content_type, NO_SNIFF, Body::Bytes(self.body))
    }
}

/// Responds with the counters of all threads; `reset=1` resets them afterwards.
pub(super) fn counters<'a>(request: &Request<'a>, shared: &mut Shared) -> ActionResult<'a> {
    let reset = request.query.integer("reset", 0, Allowed::ZeroOrOne)? == 1;
    let names = ENDPOINTS.each_ref().map(|endpoint| endpoint.path);
    let json = shared.counters.to_json(&names, shared.now(), reset);
    let headers = "Cache-Control: no-store\r\n".into();
    Ok(Action::Respond(Response { headers, ..Response::json(json) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoints::tests::{respond, text};
    use crate::fuzzing::test_state;

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
