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
        matches!(self, Self::NoRoute | Self::BadGateway | Self::Busy { .. } | Self::GatewayLate)
    }

    /// The bytes of the answer; without its body when the request was HEAD.
    pub(crate) fn render(self, to_head: bool, keep_alive: Option<&str>, out: &mut Vec<u8>) {
        let (status, reason, text) = self.line();
        let connection = keep_alive.map_or(String::new(), |said| format!("Connection: {said}\r\n"));
        let retry = match self {
            // Whole seconds, at least one.
            Self::Busy { retry_after } => {
                format!("Retry-After: {}\r\n", retry_after.as_secs_f64().ceil().max(1.0))
            }
            _ => String::new(),
        };
        let head = format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Length: {}\r\n{retry}{connection}\r\n",
            text.len()
        );
        out.extend_from_slice(head.as_bytes());
        if !to_head {
            out.extend_from_slice(text.as_bytes());
        }
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
        }
    }
}

impl OwnAnswer {
    /// The bytes of the answer; without its body when the request was HEAD.
    pub(crate) fn render(&self, to_head: bool, keep_alive: Option<&str>, out: &mut Vec<u8>) {
        let connection = keep_alive.map(|said| ("Connection", said));
        out.extend_from_slice(format!("HTTP/1.1 {} {}\r\n", self.status, self.reason).as_bytes());
        let headers = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in headers.chain(connection) {
            push_header(out, name, value.as_bytes());
        }
        push_header(out, "Content-Length", self.body.len().to_string().as_bytes());
        out.extend_from_slice(b"\r\n");
        if !to_head {
            out.extend_from_slice(&self.body);
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
        busy.render(true, Some("close"), &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Length: 48\r\nRetry-After: 2\r\nConnection: close\r\n\r\n"
        );
        let mut out = Vec::new();
        Refusal::GatewayLate.render(false, None, &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "HTTP/1.1 504 Gateway Timeout\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Length: 37\r\n\r\nThe backend took too long to answer.\n"
        );
    }
}
