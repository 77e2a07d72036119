//! Answers of the gateway's own.

use std::time::Duration;

use tollgate_wire::ParseError;

use crate::forward::push_header;
use crate::phase::OwnAnswer;

/// Why a request is not answered by a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is no HTTP/1, or could be read in two ways.
    Malformed,
    /// No route leads from its host and path to a pool.
    NoRoute,
    /// The client took too long to send it.
    Late,
    /// Its body is longer than is passed on.
    BodyTooLarge,
    /// Its target is longer than a whole head may be.
    TargetTooLong,
    /// Its head is longer than is passed on.
    HeadTooLarge,
    /// It asks for a tunnel, or its body has a coding that nobody here knows.
    NotImplemented,
    /// Its version is none of ours.
    Version,
    /// No backend gave an answer that could be passed on.
    BadGateway,
    /// All backends are busy, or down; the client may ask again after that.
    Busy { retry_after: Duration },
    /// The backend took too long.
    GatewayLate,
    /// There is nothing left here that a connection to a backend takes.
    Exhausted,
}

/// After how long something may be left again that had run out.
const EXHAUSTED_RETRY_AFTER: Duration = Duration::from_secs(1);

/// How an answer of the gateway's own goes out, whatever it says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery<'a> {
    /// The request was HEAD: the body is left out.
    pub(crate) is_to_head: bool,
    /// What `Connection` has to say.
    pub(crate) connection: Option<&'a str>,
    /// What `Date` has to say.
    pub(crate) date: Option<&'a str>,
}

impl Refusal {
    pub(crate) fn of(error: &ParseError) -> Self {
        match error {
            ParseError::HeadTooLong | ParseError::TooManyHeaders => Self::HeadTooLarge,
            ParseError::UnknownCoding(_) => Self::NotImplemented,
            ParseError::Version => Self::Version,
            _ => Self::Malformed,
        }
    }

    /// Of a head of which so much has come, and which is longer than is passed on. A first line that does not
    /// end within the limit is so for its target (RFC 9112, section 3).
    pub(crate) fn of_long_head(input: &[u8], limit: usize) -> Self {
        let line = input.iter().position(|byte| !matches!(byte, b'\r' | b'\n'));
        match line {
            Some(start) if !input[start..].iter().take(limit).any(|&byte| byte == b'\n') => {
                Self::TargetTooLong
            }
            _ => Self::HeadTooLarge,
        }
    }

    /// How many bytes its body has, where it has one.
    pub(crate) fn body_bytes(self) -> u64 {
        self.line().2.len() as u64
    }

    pub(crate) fn status(self) -> u16 {
        self.line().0
    }

    /// Whether the request was read to its end all the same, so that another may follow.
    pub(crate) fn leaves_connection(self) -> bool {
        match self {
            Self::NoRoute
            | Self::BadGateway
            | Self::Busy { .. }
            | Self::GatewayLate
            | Self::Exhausted => true,
            Self::Malformed
            | Self::Late
            | Self::BodyTooLarge
            | Self::TargetTooLong
            | Self::HeadTooLarge
            | Self::NotImplemented
            | Self::Version => false,
        }
    }

    fn retry_after(self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after } => Some(retry_after),
            Self::Exhausted => Some(EXHAUSTED_RETRY_AFTER),
            _ => None,
        }
    }

    /// The bytes of the answer.
    pub(crate) fn render(self, delivery: Delivery<'_>, out: &mut Vec<u8>) {
        let (status, reason, text) = self.line();
        out.extend_from_slice(format!("HTTP/1.1 {status} {reason}\r\n").as_bytes());
        if let Some(date) = delivery.date {
            push_header(out, "Date", date.as_bytes());
        }
        push_header(out, "Content-Type", b"text/plain; charset=utf-8");
        push_header(out, "Content-Length", text.len().to_string().as_bytes());
        if let Some(retry_after) = self.retry_after() {
            // Whole seconds, at least one.
            let seconds = retry_after.as_secs_f64().ceil().max(1.0);
            push_header(out, "Retry-After", seconds.to_string().as_bytes());
        }
        delivery.end(text.as_bytes(), out);
    }

    fn line(self) -> (u16, &'static str, &'static str) {
        match self {
            Self::Malformed => {
                (400, "Bad Request", "The request is not HTTP/1, or could be read in two ways.\n")
            }
            Self::NoRoute => (404, "Not Found", "Nothing is served for this host and path.\n"),
            Self::Late => (408, "Request Timeout", "The request took too long to arrive.\n"),
            Self::BodyTooLarge => {
                (413, "Content Too Large", "The body is longer than is passed on.\n")
            }
            Self::TargetTooLong => {
                (414, "URI Too Long", "The target is longer than is passed on.\n")
            }
            Self::HeadTooLarge => {
                (431, "Request Header Fields Too Large", "The head is longer than is passed on.\n")
            }
            Self::NotImplemented => (
                501,
                "Not Implemented",
                "The method or the transfer coding is not one that is passed on.\n",
            ),
            Self::Version => {
                (505, "HTTP Version Not Supported", "HTTP/1.0 and HTTP/1.1 are spoken here.\n")
            }
            Self::BadGateway => {
                (502, "Bad Gateway", "No backend gave an answer that could be passed on.\n")
            }
            Self::Busy { .. } => {
                (503, "Service Unavailable", "All backends are busy or down; ask again later.\n")
            }
            Self::GatewayLate => (504, "Gateway Timeout", "The backend took too long to answer.\n"),
            Self::Exhausted => (
                503,
                "Service Unavailable",
                "No connection to a backend can be made for now; ask again later.\n",
            ),
        }
    }
}

impl OwnAnswer {
    /// The bytes of the answer. It may bring a date of its own.
    pub(crate) fn render(&self, delivery: Delivery<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("HTTP/1.1 {} {}\r\n", self.status, self.reason).as_bytes());
        let is_dated = self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("date"));
        if let Some(date) = delivery.date.filter(|_| !is_dated) {
            push_header(out, "Date", date.as_bytes());
        }
        for (name, value) in &self.headers {
            push_header(out, name, value.as_bytes());
        }
        push_header(out, "Content-Length", self.body.len().to_string().as_bytes());
        delivery.end(&self.body, out);
    }
}

impl Delivery<'_> {
    /// Writes what an answer ends with.
    fn end(self, body: &[u8], out: &mut Vec<u8>) {
        if let Some(said) = self.connection {
            push_header(out, "Connection", said.as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        if !self.is_to_head {
            out.extend_from_slice(body);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_when_to_come_back_and_has_no_body_for_a_head() {
        let mut out = Vec::new();
        let busy = Refusal::Busy { retry_after: Duration::from_millis(1_200) };
        let last = Some("close");
        busy.render(Delivery { is_to_head: true, connection: last, date: Some("now") }, &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "HTTP/1.1 503 Service Unavailable\r\nDate: now\r\n\
             Content-Type: text/plain; charset=utf-8\r\n\
             Content-Length: 48\r\nRetry-After: 2\r\nConnection: close\r\n\r\n"
        );
        let mut out = Vec::new();
        let plain = Delivery { is_to_head: false, connection: None, date: None };
        Refusal::GatewayLate.render(plain, &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "HTTP/1.1 504 Gateway Timeout\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Length: 37\r\n\r\nThe backend took too long to answer.\n"
        );
    }

    #[test]
    fn an_answer_has_one_date() {
        let mut answer =
            OwnAnswer { status: 403, reason: "No".into(), headers: Vec::new(), body: Vec::new() };
        let delivery = Delivery { is_to_head: false, connection: None, date: Some("now") };
        let rendered = |answer: &OwnAnswer| {
            let mut out = Vec::new();
            answer.render(delivery, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(rendered(&answer), "HTTP/1.1 403 No\r\nDate: now\r\nContent-Length: 0\r\n\r\n");
        answer.headers.push(("date".into(), "then".into()));
        assert_eq!(rendered(&answer), "HTTP/1.1 403 No\r\ndate: then\r\nContent-Length: 0\r\n\r\n");
    }
}
