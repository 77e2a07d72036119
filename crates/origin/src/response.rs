//! Responses and their rendering as HTTP/1.1 and HTTP/2.

use std::borrow::Cow;
use std::rc::Rc;
use std::time::Duration;

use serde::{Serialize, Serializer};
use tollgate_accesslog::{ClientText, push_json, to_json};
use tollgate_http1::reason_phrase;
use tollgate_http2::Field;

use crate::output::{Filler, OutputBuffer};
use crate::request::RequestError;

/// A response without the headers that depend on the connection.
#[derive(Debug, PartialEq)]
pub(crate) struct Response<'a> {
    pub(crate) status: u16,
    pub(crate) content_type: Cow<'a, [u8]>,
    pub(crate) headers: Cow<'static, [Header]>,
    pub(crate) body: Body<'a>,
    /// Reports a [`RequestError`].
    pub(crate) is_error: bool,
    /// True if an equal request may get another response.
    pub(crate) varies: bool,
}

/// Name and value.
pub(crate) type Header = (&'static str, Cow<'static, str>);

#[derive(Debug, PartialEq)]
pub(crate) enum Body<'a> {
    /// This many bytes of filler.
    Filler(Filler, u64),
    /// One line that names the path.
    Path(&'a str),
    Bytes(Vec<u8>),
    Cached(Rc<[u8]>),
    /// No body, Content-Type or Content-Length: the status (204, 304) forbids them.
    None,
}

const PATH_PREFIX: &str = "tollgate origin: ";

/// Header for responses that echo client data.
pub(crate) const NO_SNIFF: &[Header] = &[("X-Content-Type-Options", Cow::Borrowed("nosniff"))];

/// Interim response to `Expect: 100-continue`.
pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

const SERVER: &[u8] = b"tollgate-origin";

const TEXT: Cow<'static, [u8]> = Cow::Borrowed(b"text/plain");
const JSON: Cow<'static, [u8]> = Cow::Borrowed(b"application/json");

impl<'a> Response<'a> {
    pub(crate) fn filler(bytes: u64) -> Self {
        Self::new(200, TEXT, &[][..], Body::Filler(Filler::Letters, bytes))
    }

    /// One line of text that names `path`.
    pub(crate) fn path(path: &'a str) -> Self {
        Self::new(200, TEXT, NO_SNIFF, Body::Path(path))
    }

    pub(crate) fn json(value: &impl Serialize) -> Self {
        Self::new(200, JSON, &[][..], Body::Bytes(to_json(SECONDS_DECIMALS, value)))
    }

    /// JSON that echoes client data.
    pub(crate) fn untrusted_json(value: &impl Serialize) -> Self {
        Self { headers: NO_SNIFF.into(), ..Self::json(value) }
    }

    /// JSON that echoes client data: the members of `object`, which has some, and a list with each item on a line.
    pub(crate) fn untrusted_json_list<T: Serialize>(
        object: &impl Serialize,
        name: &str,
        items: &[T],
    ) -> Self {
        let mut text = to_json(SECONDS_DECIMALS, object);
        text.pop();
        text.extend_from_slice(format!(",\"{name}\":[").as_bytes());
        for (at, item) in items.iter().enumerate() {
            text.extend_from_slice(if at == 0 { b"\n" } else { b",\n" });
            push_json(&mut text, SECONDS_DECIMALS, item);
        }
        text.extend_from_slice(b"\n]}");
        Self::new(200, JSON, NO_SNIFF, Body::Bytes(text))
    }

    pub(crate) fn without_body(status: u16, headers: impl Into<Cow<'static, [Header]>>) -> Self {
        Self::new(status, TEXT, headers, Body::None)
    }

    pub(crate) fn new(
        status: u16,
        content_type: impl Into<Cow<'a, [u8]>>,
        headers: impl Into<Cow<'static, [Header]>>,
        body: Body<'a>,
    ) -> Self {
        Self {
            status,
            content_type: content_type.into(),
            headers: headers.into(),
            body,
            is_error: false,
            varies: false,
        }
    }

    /// Copies the data borrowed from the request.
    pub(crate) fn into_owned(self) -> Response<'static> {
        let content_type = Cow::Owned(self.content_type.into_owned());
        Response { content_type, body: self.body.into_owned(), ..self }
    }

    /// True if the response depends on the request head alone.
    pub(crate) fn is_cacheable(&self) -> bool {
        self.status == 200 && !self.varies && matches!(self.body, Body::Filler(..) | Body::Path(_))
    }
}

impl Body<'_> {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Filler(_, bytes) => *bytes,
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
            Self::Filler(filler, bytes) => Body::Filler(filler, bytes),
            Self::Bytes(bytes) => Body::Bytes(bytes),
            Self::Cached(bytes) => Body::Cached(bytes),
            Self::None => Body::None,
        }
    }

    /// Appends `count` bytes from position `start` on. The body must not be a path.
    pub(crate) fn append_part(&self, start: usize, count: usize, out: &mut Vec<u8>) {
        let bytes = match self {
            Self::Filler(filler, _) => return filler.append(start as u64, count as u64, out),
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
    #[derive(Serialize)]
    struct Report<'a> {
        error: ClientText<'a>,
    }

    let text = error.to_string();
    let mut response = Response::untrusted_json(&Report { error: ClientText(text.as_bytes()) });
    response.status = error.status();
    response.is_error = true;
    let header: Option<Header> = match error {
        RequestError::NotAnUpload { .. } => Some(("Allow", "POST, PUT".into())),
        RequestError::PreconditionFailed { etag } => Some(("ETag", format!("\"{etag}\"").into())),
        RequestError::RangeNotSatisfiable { size } => {
            Some(("Content-Range", format!("bytes */{size}").into()))
        }
        _ => None,
    };
    if let Some(header) = header {
        response.headers.to_mut().push(header);
    }
    response
}

/// A time that is serialized in seconds, with [`SECONDS_DECIMALS`], for responses of constant length. Rounds up, so that
/// only a time of zero is shown as zero.
#[derive(Clone, Copy)]
pub(crate) struct Seconds(pub(crate) Duration);

const SECONDS_DECIMALS: usize = 6;

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let micros = self.0.as_nanos().div_ceil(1_000);
        serializer.serialize_f64(micros as f64 / 1e6)
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
    for (name, value) in &*response.headers {
        for part in [name.as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            output.push(part);
        }
    }
    output.push(match persistence {
        Persistence::Implicit => b"",
        Persistence::Explicit => b"Connection: keep-alive\r\n",
        Persistence::Close => b"Connection: close\r\n",
    });
    if has_body {
        output.push(b"Content-Length: ");
        output.push(itoa::Buffer::new().format(response.body.len()).as_bytes());
        output.push(b"\r\n");
    }
    output.push(b"\r\n");
    if to_head {
        return;
    }
    match &response.body {
        Body::Filler(filler, bytes) => output.push_filler(*filler, *bytes),
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
    output.push(b"HTTP/1.1 ");
    output.push(itoa::Buffer::new().format(status).as_bytes());
    // RFC 9112, section 4: the space is required even if the reason is empty.
    output.push(b" ");
    output.push(reason_phrase(status).as_bytes());
    output.push(b"\r\n");
}

/// Calls `send` with the header fields of a response over HTTP/2, without `:status`.
pub(crate) fn with_fields<T>(
    response: &Response<'_>,
    send: impl FnOnce(&mut dyn Iterator<Item = Field<'_>>) -> T,
) -> T {
    let has_body = !matches!(response.body, Body::None);
    let mut length = itoa::Buffer::new();
    let length = length.format(response.body.len());
    let names: Vec<_> =
        response.headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
    let values = response.headers.iter().map(|(_, value)| value.as_bytes());
    let headers = names.iter().zip(values).map(|(name, value)| Field::new(name.as_bytes(), value));
    let content_type = has_body.then(|| Field::new(b"content-type", &response.content_type));
    let content_length = has_body.then(|| Field::new(b"content-length", length.as_bytes()));
    let server = Field::new(b"server", SERVER);
    send(&mut [server].into_iter().chain(content_type).chain(headers).chain(content_length))
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
            let seconds = Seconds(Duration::from_nanos(nanos));
            assert_eq!(to_json(SECONDS_DECIMALS, &seconds), text.as_bytes());
        }
    }
}
