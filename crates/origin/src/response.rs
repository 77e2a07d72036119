//! Responses and their rendering as HTTP/1.1 and HTTP/2.

use std::borrow::Cow;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use http::StatusCode;
use tollgate_accesslog::json_string;
use tollgate_http2::Field;

use crate::output::{FILLER_BYTE, OutputBuffer};
use crate::request::RequestError;

/// A response without the headers that depend on the connection.
#[derive(Debug, PartialEq)]
pub(crate) struct Response<'a> {
    pub(crate) status: u16,
    pub(crate) content_type: Cow<'a, [u8]>,
    /// More header lines, each with its CR LF.
    pub(crate) headers: Cow<'static, str>,
    pub(crate) body: Body<'a>,
    /// Reports a [`RequestError`].
    pub(crate) is_error: bool,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Body<'a> {
    /// This many bytes of filler.
    Filler(u64),
    /// One line that names the path.
    Path(&'a str),
    Bytes(Vec<u8>),
    Cached(Rc<[u8]>),
    /// No body, Content-Type or Content-Length: the status (204, 304) forbids them.
    None,
}

const PATH_PREFIX: &str = "tollgate origin: ";

/// Header for responses that echo client data.
pub(crate) const NO_SNIFF: &str = "X-Content-Type-Options: nosniff\r\n";

/// Interim response to `Expect: 100-continue`.
pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

const SERVER: &[u8] = b"tollgate-origin";

const TEXT: Cow<'static, [u8]> = Cow::Borrowed(b"text/plain");
const JSON: Cow<'static, [u8]> = Cow::Borrowed(b"application/json");

impl<'a> Response<'a> {
    pub(crate) fn filler(bytes: u64) -> Self {
        Self::new(200, TEXT, "", Body::Filler(bytes))
    }

    /// One line of text that names `path`.
    pub(crate) fn path(path: &'a str) -> Self {
        Self::new(200, TEXT, NO_SNIFF, Body::Path(path))
    }

    pub(crate) fn json(text: String) -> Self {
        Self::new(200, JSON, "", Body::Bytes(text.into_bytes()))
    }

    /// JSON that echoes client data.
    pub(crate) fn untrusted_json(text: String) -> Self {
        Self { headers: NO_SNIFF.into(), ..Self::json(text) }
    }

    pub(crate) fn without_body(status: u16, headers: impl Into<Cow<'static, str>>) -> Self {
        Self::new(status, TEXT, headers, Body::None)
    }

    pub(crate) fn new(
        status: u16,
        content_type: impl Into<Cow<'a, [u8]>>,
        headers: impl Into<Cow<'static, str>>,
        body: Body<'a>,
    ) -> Self {
        Self {
            status,
            content_type: content_type.into(),
            headers: headers.into(),
            body,
            is_error: false,
        }
    }

    /// Copies the data borrowed from the request.
    pub(crate) fn into_owned(self) -> Response<'static> {
        let content_type = Cow::Owned(self.content_type.into_owned());
        Response { content_type, body: self.body.into_owned(), ..self }
    }

    /// True if the response depends on the request head alone.
    pub(crate) fn is_cacheable(&self) -> bool {
        self.status == 200 && matches!(self.body, Body::Filler(_) | Body::Path(_))
    }
}

impl Body<'_> {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Filler(bytes) => *bytes,
            Self::Path(path) => path_line(path).count() as u64,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Cached(bytes) => bytes.len() as u64,
            Self::None => 0,
        }
    }

    /// Copies the data borrowed from the request; the result is not a path.
    pub(crate) fn into_owned(self) -> Body<'static> {
        match self {
            Self::Path(path) => Body::Bytes(path_line(path).collect()),
            Self::Filler(bytes) => Body::Filler(bytes),
            Self::Bytes(bytes) => Body::Bytes(bytes),
            Self::Cached(bytes) => Body::Cached(bytes),
            Self::None => Body::None,
        }
    }

    /// Appends `count` bytes from position `start` on. The body must not be a path.
    pub(crate) fn append_part(&self, start: usize, count: usize, out: &mut Vec<u8>) {
        let bytes = match self {
            Self::Filler(_) => return out.resize(out.len() + count, FILLER_BYTE),
            Self::Bytes(bytes) => bytes.as_slice(),
            Self::Cached(bytes) => bytes,
            Self::Path(_) | Self::None => &[],
        };
        out.extend_from_slice(&bytes[start..start + count]);
    }
}

fn path_line(path: &str) -> impl Iterator<Item = u8> {
    PATH_PREFIX.bytes().chain(path.as_bytes().escape_ascii()).chain(std::iter::once(b'\n'))
}

/// Response that reports `error` as JSON.
pub(crate) fn error_response<'a>(error: &RequestError<'_>) -> Response<'a> {
    let text = format!("{{\"error\":{}}}", json_string(error.to_string().as_bytes()));
    let headers: Cow<'static, str> = match error {
        RequestError::NotAnUpload { .. } => format!("{NO_SNIFF}Allow: POST, PUT\r\n").into(),
        RequestError::PreconditionFailed { etag } => {
            format!("{NO_SNIFF}ETag: \"{etag}\"\r\n").into()
        }
        RequestError::RangeNotSatisfiable { size } => {
            format!("{NO_SNIFF}Content-Range: bytes */{size}\r\n").into()
        }
        _ => NO_SNIFF.into(),
    };
    Response { status: error.status(), headers, is_error: true, ..Response::json(text) }
}

/// A time in seconds with six decimals, for responses of constant length. Rounds up, so that only a
/// time of zero is shown as zero.
pub(crate) struct Seconds(pub(crate) Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_nanos().div_ceil(1000);
        write!(f, "{}.{:06}", micros / 1_000_000, micros % 1_000_000)
    }
}

/// Persistence of a connection after a response (RFC 9112, section 9.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// Stays open, the default of HTTP/1.1.
    Implicit,
    /// Stays open; an HTTP/1.0 client needs `Connection: keep-alive`.
    Explicit,
    Close,
}

/// Writes `response` to `output`, without its body in response to HEAD.
pub(crate) fn render(
    response: &Response<'_>,
    to_head: bool,
    persistence: Persistence,
    output: &mut OutputBuffer,
) {
    push_status_line(response.status, output);
    output.push(b"Server: ");
    output.push(SERVER);
    output.push(b"\r\n");
    let has_body = !matches!(response.body, Body::None);
    if has_body {
        output.push(b"Content-Type: ");
        output.push(&response.content_type);
        output.push(b"\r\n");
    }
    output.push(response.headers.as_bytes());
    output.push(match persistence {
        Persistence::Implicit => b"",
        Persistence::Explicit => b"Connection: keep-alive\r\n",
        Persistence::Close => b"Connection: close\r\n",
    });
    if has_body {
        output.push(b"Content-Length: ");
        output.push(Decimal::new(response.body.len()).digits());
        output.push(b"\r\n");
    }
    output.push(b"\r\n");
    if to_head {
        return;
    }
    match &response.body {
        Body::Filler(bytes) => output.push_filler(*bytes),
        Body::Path(path) => output.extend(path_line(path)),
        Body::Bytes(bytes) => output.push(bytes),
        Body::Cached(bytes) => output.push(bytes),
        Body::None => {}
    }
}

fn push_status_line(status: u16, output: &mut OutputBuffer) {
    if status == 200 {
        return output.push(b"HTTP/1.1 200 OK\r\n");
    }
    let reason = match status {
        // Names of RFC 9110, which the crate `http` does not have.
        413 => Some("Content Too Large"),
        422 => Some("Unprocessable Content"),
        _ => StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()),
    };
    output.push(b"HTTP/1.1 ");
    output.push(Decimal::new(u64::from(status)).digits());
    // RFC 9112, section 4: the space is required even if the reason is empty.
    output.push(b" ");
    output.push(reason.unwrap_or("").as_bytes());
    output.push(b"\r\n");
}

/// Calls `send` with the header fields of a response over HTTP/2, without `:status`.
pub(crate) fn with_fields<T>(
    response: &Response<'_>,
    send: impl FnOnce(&mut dyn Iterator<Item = Field<'_>>) -> T,
) -> T {
    let has_body = !matches!(response.body, Body::None);
    let length = Decimal::new(response.body.len());
    // Names in lower case at the same positions.
    let lower_case = response.headers.to_ascii_lowercase();
    let lines = response.headers.split_terminator("\r\n").zip(lower_case.split_terminator("\r\n"));
    let headers = lines.filter_map(|(line, lower_case)| {
        let (name, _) = lower_case.split_once(": ")?;
        Some(Field::new(name.as_bytes(), &line.as_bytes()[name.len() + 2..]))
    });
    let content_type = has_body.then(|| Field::new(b"content-type", &response.content_type));
    let content_length = has_body.then(|| Field::new(b"content-length", length.digits()));
    let server = Field::new(b"server", SERVER);
    send(&mut [server].into_iter().chain(content_type).chain(headers).chain(content_length))
}

/// A number in decimal, without an allocation.
struct Decimal {
    digits: [u8; 20],
    first: usize,
}

impl Decimal {
    fn new(mut number: u64) -> Self {
        let mut digits = [b'0'; 20];
        let mut first = digits.len() - 1;
        while number > 9 {
            digits[first] += (number % 10) as u8;
            number /= 10;
            first -= 1;
        }
        digits[first] += number as u8;
        Self { digits, first }
    }

    fn digits(&self) -> &[u8] {
        &self.digits[self.first..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_six_decimals_and_round_up() {
        for (nanos, text) in [
            (0, "0.000000"),
            (1, "0.000001"),
            (1_000, "0.000001"),
            (12_000, "0.000012"),
            (12_001, "0.000013"),
            (999_999_500, "1.000000"),
            (60_000_000_001, "60.000001"),
        ] {
            assert_eq!(Seconds(Duration::from_nanos(nanos)).to_string(), text);
        }
    }
}
