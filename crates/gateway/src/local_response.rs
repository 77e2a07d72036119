//! Responses that the gateway itself sends: errors, and the responses of a filter.

use std::borrow::Cow;
use std::time::Duration;

use tollgate_http1::{ParseError, RequestHead, Version};

use crate::headers::{Persistence, push_header, push_length};

/// A response that does not come from a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalResponse {
    status: u16,
    reason: Cow<'static, str>,
    headers: Vec<(String, String)>,
    content_type: Option<&'static str>,
    body: Cow<'static, [u8]>,
    retry_after: Option<Duration>,
    /// The end of the request is unknown, so the connection cannot be kept.
    closes: bool,
}

/// The request that a local response answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseContext {
    /// HEAD: the body is left out.
    pub(crate) is_head: bool,
    pub(crate) version: Version,
    /// The request was read to its end and the client wants the connection kept.
    pub(crate) keep_alive: bool,
}

/// Resources may be available again after this.
const EXHAUSTION_RETRY_AFTER: Duration = Duration::from_secs(1);

impl LocalResponse {
    pub(crate) const BAD_REQUEST: Self =
        Self::error(400, "Bad Request", "The request is malformed or ambiguous.\n", true);
    pub(crate) const NOT_FOUND: Self =
        Self::error(404, "Not Found", "No route matches this host and path.\n", false);
    pub(crate) const REQUEST_TIMEOUT: Self =
        Self::error(408, "Request Timeout", "The request did not arrive in time.\n", true);
    pub(crate) const CONTENT_TOO_LARGE: Self =
        Self::error(413, "Content Too Large", "The request body is too large.\n", true);
    pub(crate) const URI_TOO_LONG: Self =
        Self::error(414, "URI Too Long", "The request target is too long.\n", true);
    pub(crate) const HEAD_TOO_LARGE: Self = Self::error(
        431,
        "Request Header Fields Too Large",
        "The request head is too large.\n",
        true,
    );
    pub(crate) const NOT_IMPLEMENTED: Self = Self::error(
        501,
        "Not Implemented",
        "The method or the transfer coding is not supported.\n",
        true,
    );
    pub(crate) const VERSION_NOT_SUPPORTED: Self = Self::error(
        505,
        "HTTP Version Not Supported",
        "Only HTTP/1.0 and HTTP/1.1 are supported.\n",
        true,
    );
    pub(crate) const BAD_GATEWAY: Self =
        Self::error(502, "Bad Gateway", "No backend sent a valid response.\n", false);
    pub(crate) const GATEWAY_TIMEOUT: Self =
        Self::error(504, "Gateway Timeout", "The backend did not respond in time.\n", false);

    /// A response of a filter. The headers must not concern framing or the connection.
    pub fn new(status: u16, reason: &str, headers: Vec<(String, String)>, body: Vec<u8>) -> Self {
        Self {
            status,
            reason: Cow::Owned(reason.to_owned()),
            headers,
            content_type: None,
            body: Cow::Owned(body),
            retry_after: None,
            closes: false,
        }
    }

    const fn error(status: u16, reason: &'static str, text: &'static str, closes: bool) -> Self {
        Self {
            status,
            reason: Cow::Borrowed(reason),
            headers: Vec::new(),
            content_type: Some("text/plain; charset=utf-8"),
            body: Cow::Borrowed(text.as_bytes()),
            retry_after: None,
            closes,
        }
    }

    /// All backends are busy or down.
    pub(crate) fn unavailable(retry_after: Duration) -> Self {
        let text = "All backends are busy or down; try again later.\n";
        let error = Self::error(503, "Service Unavailable", text, false);
        Self { retry_after: Some(retry_after), ..error }
    }

    /// A local resource that a connection to a backend needs has run out.
    pub(crate) fn exhausted() -> Self {
        let text = "The gateway cannot connect to a backend now; try again later.\n";
        let error = Self::error(503, "Service Unavailable", text, false);
        Self { retry_after: Some(EXHAUSTION_RETRY_AFTER), ..error }
    }

    pub(crate) fn of_parse_error(error: &ParseError) -> Self {
        match error {
            ParseError::HeadTooLong | ParseError::TooManyHeaders => Self::HEAD_TOO_LARGE,
            ParseError::UnknownCoding(_) => Self::NOT_IMPLEMENTED,
            ParseError::Version => Self::VERSION_NOT_SUPPORTED,
            _ => Self::BAD_REQUEST,
        }
    }

    /// The error of a head that exceeds `limit`. If its first line does, the target is too long (RFC 9112, section 3).
    pub(crate) fn of_long_head(input: &[u8], limit: usize) -> Self {
        let line = input.iter().position(|byte| !matches!(byte, b'\r' | b'\n'));
        match line {
            Some(start) if !input[start..].iter().take(limit).any(|&byte| byte == b'\n') => {
                Self::URI_TOO_LONG
            }
            _ => Self::HEAD_TOO_LARGE,
        }
    }

    /// The response to a TRACE or OPTIONS that may not be forwarded any more (RFC 9110, section 7.6.2).
    pub(crate) fn of_last_hop(head: &RequestHead<'_>) -> Self {
        let mut response = Self::new(200, "OK", Vec::new(), Vec::new());
        if head.method == "TRACE" {
            response.content_type = Some("message/http");
            response.body = Cow::Owned(trace_body(head));
        }
        response
    }

    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// Bytes of the body that are sent.
    pub(crate) fn body_bytes(&self, context: ResponseContext) -> u64 {
        if context.is_head { 0 } else { self.body.len() as u64 }
    }

    /// True if the connection must be closed behind the response.
    pub(crate) fn closes(&self) -> bool {
        self.closes
    }

    /// Appends the response to `out`, with `date` unless it has one.
    pub(crate) fn render(&self, context: ResponseContext, date: Option<&str>, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("HTTP/1.1 {} {}\r\n", self.status, self.reason).as_bytes());
        let is_dated = self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("date"));
        if let Some(date) = date.filter(|_| !is_dated) {
            push_header(out, "Date", date.as_bytes());
        }
        for (name, value) in &self.headers {
            push_header(out, name, value.as_bytes());
        }
        if let Some(content_type) = self.content_type {
            push_header(out, "Content-Type", content_type.as_bytes());
        }
        push_length(out, self.body.len() as u64);
        if let Some(retry_after) = self.retry_after {
            let seconds = retry_after.as_secs_f64().ceil().max(1.0);
            push_header(out, "Retry-After", seconds.to_string().as_bytes());
        }
        if let Some(option) = Persistence::of(context.version, context.keep_alive).option() {
            push_header(out, "Connection", option.as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        if !context.is_head {
            out.extend_from_slice(&self.body);
        }
    }
}

/// The request as received, without credentials (RFC 9110, section 9.3.8).
fn trace_body(head: &RequestHead<'_>) -> Vec<u8> {
    let version = match head.version {
        Version::Http10 => "1.0",
        Version::Http11 => "1.1",
    };
    let mut out = format!("{} {} HTTP/{version}\r\n", head.method, head.target).into_bytes();
    let is_credential = |name: &str| {
        ["authorization", "cookie", "proxy-authorization"]
            .iter()
            .any(|secret| name.eq_ignore_ascii_case(secret))
    };
    for (name, value) in head.headers.iter().filter(|(name, _)| !is_credential(name)) {
        push_header(&mut out, name, value);
    }
    out.extend_from_slice(b"\r\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(response: &LocalResponse, is_head: bool, keep_alive: bool) -> String {
        let context = ResponseContext { is_head, version: Version::Http11, keep_alive };
        let mut out = Vec::new();
        response.render(context, Some("now"), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn error_has_retry_after_and_no_body_for_head() {
        let busy = LocalResponse::unavailable(Duration::from_millis(1_200));
        assert_eq!(
            rendered(&busy, true, false),
            "HTTP/1.1 503 Service Unavailable\r\nDate: now\r\n\
             Content-Type: text/plain; charset=utf-8\r\n\
             Content-Length: 48\r\nRetry-After: 2\r\nConnection: close\r\n\r\n"
        );
        assert_eq!(
            rendered(&LocalResponse::GATEWAY_TIMEOUT, false, true),
            "HTTP/1.1 504 Gateway Timeout\r\nDate: now\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Length: 37\r\n\r\nThe backend did not respond in time.\n"
        );
    }

    #[test]
    fn response_has_one_date() {
        let mut response = LocalResponse::new(403, "No", Vec::new(), Vec::new());
        let expected = "HTTP/1.1 403 No\r\nDate: now\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(rendered(&response, false, true), expected);
        response.headers.push(("date".into(), "then".into()));
        assert_eq!(rendered(&response, false, true), expected.replace("Date: now", "date: then"));
    }
}
