//! Responses that the gateway itself sends: errors, and those of the firewall.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tollgate_firewall::config::Page;
use tollgate_http1::{ParseError, RequestHead, Version, reason_phrase};

use crate::basic_auth::challenge;
use crate::config::BasicAuth;
use crate::headers::{HeadWriter, MessageForm, Persistence, push_header};

/// A response that does not come from a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalResponse {
    status: u16,
    /// Reason phrase.
    phrase: Cow<'static, str>,
    headers: Vec<(String, String)>,
    content_type: Option<&'static str>,
    body: Body,
    retry_after: Option<Duration>,
    /// The end of the request is unknown, so the connection cannot be kept.
    closes: bool,
    /// `None`: not an error.
    reason: Option<Reason>,
}

/// A body, shared by the responses that have it, since many of them may wait at once.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Body {
    Static(&'static [u8]),
    Shared(Arc<[u8]>),
}

impl Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Static(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident $status:literal $word:literal,)*) => {
        /// Reason for a local response.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// The word in the access log.
            pub(crate) fn word(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }

            /// 0 if the status depends on the configuration.
            fn status(self) -> u16 {
                match self {
                    $(Self::$name => $status,)*
                }
            }

            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

// docs/formats.md describes each word.
reasons! {
    Syntax 400 "syntax",
    BareLineFeed 400 "bare-lf",
    Host 400 "host",
    Target 400 "target",
    ContentLength 400 "content-length",
    TransferEncoding 400 "transfer-encoding",
    TwoFramings 400 "two-framings",
    Chunk 400 "chunk",
    Trailer 400 "trailer",
    MaxForwards 400 "max-forwards",
    AmbiguousPath 400 "ambiguous-path",
    TruncatedBody 400 "truncated-body",
    Malformed 400 "malformed",
    TlsOnPlainPort 400 "tls-on-plain-port",
    PlainOnTlsPort 400 "plain-on-tls-port",
    ApiKey 401 "api-key",
    /// The route asks for a user and password.
    Password 401 "password",
    /// The route does not allow the address of the client.
    ClientAddress 403 "client-address",
    NoRoute 404 "no-route",
    Trace 405 "trace",
    HeadTimeout 408 "head-timeout",
    BodyTimeout 408 "body-timeout",
    BodyTooLarge 413 "body-too-large",
    TargetTooLong 414 "target-too-long",
    Expectation 417 "expectation",
    /// The client has sent too many requests, or has too many at once.
    ClientLimit 429 "client-limit",
    HeadTooLarge 431 "head-too-large",
    TooManyHeaders 431 "too-many-headers",
    /// The request does not describe the one to inspect.
    Description 500 "description",
    Connect 501 "connect",
    UnknownCoding 501 "unknown-coding",
    ConnectFailed 502 "connect-failed",
    /// The certificate of the backend was rejected.
    TlsCertificate 502 "tls-certificate",
    TlsHandshake 502 "tls-handshake",
    BackendClosed 502 "backend-closed",
    InvalidResponse 502 "invalid-response",
    /// The backend does not take the WebSocket that a client asks for.
    NoWebSocket 502 "no-websocket",
    NoBackend 503 "no-backend",
    QueueFull 503 "queue-full",
    QueueTimeout 503 "queue-timeout",
    /// The listener was removed from the configuration.
    NoListener 503 "no-listener",
    Exhausted 503 "exhausted",
    /// Too many passwords are being checked.
    PasswordChecks 503 "password-checks",
    ConnectTimeout 504 "connect-timeout",
    ResponseTimeout 504 "response-timeout",
    FilterTimeout 504 "filter-timeout",
    Version 505 "version",
    WafRule 0 "waf-rule",
    WafLimit 0 "waf-limit",
}

/// The request of a local response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseContext {
    /// HEAD: the response has no body.
    pub(crate) is_head: bool,
    pub(crate) version: Version,
    /// The request was read to its end and the client wants the connection kept.
    pub(crate) keep_alive: bool,
}

/// `Retry-After` when local resources run out.
const EXHAUSTION_RETRY_AFTER: Duration = Duration::from_secs(1);

/// `Retry-After` while too many passwords are being checked.
const PASSWORDS_RETRY_AFTER: Duration = Duration::from_secs(1);

impl LocalResponse {
    /// A response of the firewall or of a route. The headers must not concern framing or the connection.
    pub(crate) fn new(
        status: u16,
        phrase: &str,
        headers: Vec<(String, String)>,
        body: Arc<[u8]>,
    ) -> Self {
        Self {
            status,
            phrase: Cow::Owned(phrase.to_owned()),
            headers,
            content_type: None,
            body: Body::Shared(body),
            retry_after: None,
            closes: false,
            reason: None,
        }
    }

    /// Creates the error response for this reason.
    pub(crate) fn error(reason: Reason) -> Self {
        let status = reason.status();
        let text = match (status, reason) {
            (_, Reason::PlainOnTlsPort) => "A plain HTTP request was sent to a port for HTTPS.\n",
            (_, Reason::Password) => "A user and a password are needed.\n",
            (401, _) => "The key is unknown.\n",
            (403, _) => "This address is not allowed.\n",
            (404, _) => "No route matches this host and path.\n",
            (405, _) => "TRACE is not allowed.\n",
            (408, _) => "The request did not arrive in time.\n",
            (413, _) => "The request body is too large.\n",
            (414, _) => "The request target is too long.\n",
            (417, _) => "The only supported expectation is 100-continue.\n",
            (429, _) => "Too many requests; try again later.\n",
            (431, _) => "The request head is too large.\n",
            (500, _) => "The headers that describe the request are missing, repeated or invalid.\n",
            (501, _) => "The method or the transfer coding is not supported.\n",
            (502, _) => "No backend sent a valid response.\n",
            (503, Reason::Exhausted) => {
                "The gateway cannot connect to a backend now; try again later.\n"
            }
            (503, Reason::PasswordChecks) => {
                "Too many passwords are being checked; try again later.\n"
            }
            (503, _) => "All backends are busy or down; try again later.\n",
            (504, _) => "The backend did not respond in time.\n",
            (505, _) => "Only HTTP/1.0 and HTTP/1.1 are supported.\n",
            _ => "The request is malformed or ambiguous.\n",
        };
        // The methods that the backend allows are unknown, so these are the methods of RFC 9110 and PATCH.
        let allowed = ("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
        let headers = [allowed].into_iter().filter(|_| status == 405);
        Self {
            status,
            phrase: Cow::Borrowed(reason_phrase(status)),
            headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            content_type: Some("text/plain; charset=utf-8"),
            body: Body::Static(text.as_bytes()),
            retry_after: (reason == Reason::Exhausted).then_some(EXHAUSTION_RETRY_AFTER),
            closes: matches!(status, 400 | 408 | 413 | 414 | 431 | 501 | 505),
            reason: Some(reason),
        }
    }

    /// As [`error`](Self::error), without a body.
    pub(crate) fn bare_error(reason: Reason) -> Self {
        Self { content_type: None, body: Body::Static(b""), ..Self::error(reason) }
    }

    /// Asks for a user and password.
    pub(crate) fn unauthorized(auth: &BasicAuth) -> Self {
        let challenge = ("WWW-Authenticate".to_owned(), challenge(auth));
        Self { headers: vec![challenge], ..Self::error(Reason::Password) }
    }

    /// Too many passwords are being checked, or this one was not checked in time.
    pub(crate) fn many_passwords() -> Self {
        Self::unavailable(Reason::PasswordChecks, PASSWORDS_RETRY_AFTER)
    }

    /// The request may pass later.
    pub(crate) fn unavailable(reason: Reason, retry_after: Duration) -> Self {
        Self { retry_after: Some(retry_after), ..Self::error(reason) }
    }

    /// Creates the response to an invalid head that starts with `input`.
    pub(crate) fn of_parse_error(error: &ParseError, input: &[u8]) -> Self {
        Self::error(match error {
            // No method starts with this byte, the type of a TLS handshake record (RFC 8446, section 5.1).
            _ if input.first() == Some(&0x16) => Reason::TlsOnPlainPort,
            error => Reason::of_parse_error(error),
        })
    }

    /// As an error of the gateway with the operator's page for its status.
    pub(crate) fn with_page(&self, pages: &BTreeMap<u16, Page>) -> Cow<'_, Self> {
        let is_own = self.reason.is_some_and(|reason| reason.status() == self.status);
        match pages.get(&self.status).filter(|_| is_own) {
            Some(page) => Cow::Owned(Self {
                content_type: Some(match page.media_type {
                    Some(_) => "text/html; charset=utf-8",
                    None => "text/plain; charset=utf-8",
                }),
                body: Body::Shared(Arc::clone(&page.body)),
                ..self.clone()
            }),
            None => Cow::Borrowed(self),
        }
    }

    /// Sets the reason of a response of the firewall.
    pub(crate) fn because(self, reason: Reason) -> Self {
        Self { reason: Some(reason), ..self }
    }

    /// As the response to a request for a tunnel, which a status of success would open: with 403 instead.
    pub(crate) fn refusing_tunnel(&self) -> Cow<'_, Self> {
        match self.status {
            200..=299 => Cow::Owned(Self {
                status: 403,
                phrase: Cow::Borrowed(reason_phrase(403)),
                ..self.clone()
            }),
            _ => Cow::Borrowed(self),
        }
    }

    /// The target of a redirect.
    pub(crate) fn location(&self) -> Option<&str> {
        let is_location = |(name, _): &&(String, String)| name == "Location";
        self.headers.iter().find(is_location).map(|(_, target)| &**target)
    }

    pub(crate) fn reason(&self) -> Option<Reason> {
        self.reason
    }

    /// The error of a head that exceeds `limit`. If its first line does, the target is too long (RFC 9112, section 3).
    pub(crate) fn of_long_head(input: &[u8], limit: usize) -> Self {
        let line = input.iter().position(|byte| !matches!(byte, b'\r' | b'\n'));
        match line {
            Some(start) if !input[start..].iter().take(limit).any(|&byte| byte == b'\n') => {
                Self::error(Reason::TargetTooLong)
            }
            _ => Self::error(Reason::HeadTooLarge),
        }
    }

    /// As [`of_long_head`](Self::of_long_head), for a request of HTTP/2.
    pub(crate) fn of_long_fields(head: &RequestHead<'_>, limit: usize) -> Self {
        let line_bytes = head.method.len() + head.target.len() + "  HTTP/1.1\r\n".len();
        let is_in_line = line_bytes > limit;
        Self::error(if is_in_line { Reason::TargetTooLong } else { Reason::HeadTooLarge })
    }

    /// Creates the response to a TRACE or OPTIONS whose `Max-Forwards` is 0 (RFC 9110, section 7.6.2).
    pub(crate) fn of_last_hop(head: &RequestHead<'_>) -> Self {
        let mut response = Self::new(200, "OK", Vec::new(), Arc::default());
        if head.method == "TRACE" {
            response.content_type = Some("message/http");
            response.body = Body::Shared(trace_body(head).into());
        }
        response
    }

    /// Closes the connection after the response.
    pub(crate) fn close(&mut self) {
        self.closes = true;
    }

    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// Body bytes to send.
    pub(crate) fn body_bytes(&self, context: ResponseContext) -> u64 {
        if context.is_head { 0 } else { self.body.len() as u64 }
    }

    /// True if the connection must be closed after the response.
    pub(crate) fn closes(&self) -> bool {
        self.closes
    }

    /// Appends the response to `out`, with `date` unless it has one.
    pub(crate) fn render(
        &self,
        context: ResponseContext,
        date: Option<&str>,
        form: MessageForm,
        out: &mut Vec<u8>,
    ) {
        let mut writer = HeadWriter::new(form, out);
        writer.start_response(self.status, &self.phrase);
        let is_dated = self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("date"));
        if let Some(date) = date.filter(|_| !is_dated) {
            writer.push("Date", date.as_bytes());
        }
        for (name, value) in &self.headers {
            writer.push(name, value.as_bytes());
        }
        if let Some(content_type) = self.content_type {
            writer.push("Content-Type", content_type.as_bytes());
        }
        // RFC 9110, section 8.6: a response with status 204 has no length.
        if self.status != 204 {
            writer.push_length(self.body.len() as u64);
        }
        if let Some(retry_after) = self.retry_after {
            let seconds = retry_after.as_secs_f64().ceil().max(1.0);
            writer.push("Retry-After", seconds.to_string().as_bytes());
        }
        if let Some(option) = Persistence::of(context.version, context.keep_alive).option() {
            writer.push("Connection", option.as_bytes());
        }
        writer.end();
        if !context.is_head {
            out.extend_from_slice(&self.body);
        }
    }
}

impl Reason {
    /// Reason for an invalid head or body.
    pub(crate) fn of_parse_error(error: &ParseError) -> Self {
        match error {
            ParseError::HeadTooLong => Self::HeadTooLarge,
            ParseError::TooManyHeaders => Self::TooManyHeaders,
            ParseError::BareLineFeed => Self::BareLineFeed,
            ParseError::HostCount(_) | ParseError::Host(_) => Self::Host,
            ParseError::Target(_) => Self::Target,
            ParseError::Version => Self::Version,
            ParseError::ContentLength(_) | ParseError::ContentLengths(..) => Self::ContentLength,
            ParseError::UnknownCoding(_) => Self::UnknownCoding,
            ParseError::TransferEncoding(_) | ParseError::TransferEncodingInHttp10 => {
                Self::TransferEncoding
            }
            ParseError::TwoFramings => Self::TwoFramings,
            ParseError::ChunkSize | ParseError::ChunkEnd | ParseError::ChunkLineTooLong => {
                Self::Chunk
            }
            ParseError::TrailerTooLong => Self::Trailer,
            _ => Self::Syntax,
        }
    }
}

/// The request as received, without credentials (RFC 9110, section 9.3.8).
fn trace_body(head: &RequestHead<'_>) -> Vec<u8> {
    let version = head.version.number();
    let mut out = format!("{} {} HTTP/{version}\r\n", head.method, head.target).into_bytes();
    let is_credential = |name: &str| {
        ["authorization", "cookie", "proxy-authorization"]
            .iter()
            .any(|secret| name.eq_ignore_ascii_case(secret))
    };
    for (name, value) in head.headers.iter().filter(|(name, _)| !is_credential(name)) {
        push_header(&mut out, name.as_bytes(), value);
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
        response.render(context, Some("now"), MessageForm::Text, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn error_has_retry_after_and_no_body_for_head() {
        let busy = LocalResponse::unavailable(Reason::QueueFull, Duration::from_millis(1_200));
        assert_eq!(
            rendered(&busy, true, false),
            "HTTP/1.1 503 Service Unavailable\r\nDate: now\r\n\
             Content-Type: text/plain; charset=utf-8\r\n\
             Content-Length: 48\r\nRetry-After: 2\r\nConnection: close\r\n\r\n"
        );
        assert_eq!(
            rendered(&LocalResponse::error(Reason::ResponseTimeout), false, true),
            "HTTP/1.1 504 Gateway Timeout\r\nDate: now\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Length: 37\r\n\r\nThe backend did not respond in time.\n"
        );
    }

    #[test]
    fn every_reason_is_documented_with_its_status() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats.md");
        let text = std::fs::read_to_string(path).unwrap();
        let rows: Vec<&str> = text
            .lines()
            .skip_while(|line| *line != "| reason | status | |")
            .skip(2)
            .take_while(|line| line.starts_with('|'))
            .collect();
        let mut expected = Vec::new();
        for reason in Reason::ALL {
            let status = match reason.status() {
                0 => "of the rule".to_owned(),
                status => status.to_string(),
            };
            expected.push(format!("| `{}` | {status} | ", reason.word()));
        }
        assert_eq!(rows.len(), expected.len());
        for (row, start) in rows.iter().zip(expected) {
            assert!(row.starts_with(&start), "{row}: expected {start}");
        }
    }

    #[test]
    fn response_has_one_date() {
        let mut response = LocalResponse::new(403, "No", Vec::new(), Arc::default());
        let expected = "HTTP/1.1 403 No\r\nDate: now\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(rendered(&response, false, true), expected);
        response.headers.push(("date".into(), "then".into()));
        assert_eq!(rendered(&response, false, true), expected.replace("Date: now", "date: then"));
    }
}
