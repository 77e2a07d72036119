//! Answers as HTTP/1.1 bytes.

use http::StatusCode;

use crate::answer::{Answer, Body, PATH_PREFIX};
use crate::output::Output;

/// What is said about the connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// It stays open, which HTTP/1.1 need not say.
    Implied,
    /// It stays open, said for the sake of HTTP/1.0.
    Stated,
    /// It is closed.
    Close,
}

/// What is said before the body of a request that waits to be asked for it.
pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Writes `answer` to `output`; without its body, but with the length of it, when the request was
/// HEAD.
pub(crate) fn render(
    answer: &Answer<'_>,
    to_head: bool,
    persistence: Persistence,
    output: &mut Output,
) {
    push_status(answer.status, output);
    if !matches!(answer.body, Body::Never) {
        output.push(b"Content-Type: ");
        output.push(&answer.content_type);
        output.push(b"\r\n");
    }
    output.push(answer.lines.as_bytes());
    output.push(match persistence {
        Persistence::Implied => b"",
        Persistence::Stated => b"Connection: keep-alive\r\n",
        Persistence::Close => b"Connection: close\r\n",
    });
    if !matches!(answer.body, Body::Never) {
        output.push(b"Content-Length: ");
        push_decimal(answer.body.bytes(), output);
        output.push(b"\r\n");
    }
    output.push(b"\r\n");
    if to_head {
        return;
    }
    match &answer.body {
        Body::Filler(bytes) => output.push_filler(*bytes),
        Body::Path(path) => {
            output.push(PATH_PREFIX.as_bytes());
            output.extend(path.as_bytes().escape_ascii());
            output.push(b"\n");
        }
        Body::Bytes(bytes) => output.push(bytes),
        Body::Page(bytes) => output.push(bytes),
        Body::Never => {}
    }
}

/// Writes the status line and who says it.
fn push_status(status: u16, output: &mut Output) {
    if status == 200 {
        return output.push(b"HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\n");
    }
    output.push(b"HTTP/1.1 ");
    push_decimal(u64::from(status), output);
    output.push(b" ");
    let reason = match status {
        // As RFC 9110 names them.
        413 => Some("Content Too Large"),
        422 => Some("Unprocessable Content"),
        _ => StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()),
    };
    // RFC 9112, section 4: the phrase may be empty, the space before it may not be missing.
    output.push(reason.unwrap_or("").as_bytes());
    output.push(b"\r\nServer: tollgate-origin\r\n");
}

/// Writes `number` in decimal, without an allocation.
fn push_decimal(mut number: u64, output: &mut Output) {
    let mut digits = [b'0'; 20];
    let mut first = digits.len() - 1;
    while number > 9 {
        digits[first] += (number % 10) as u8;
        number /= 10;
        first -= 1;
    }
    digits[first] += number as u8;
    output.push(&digits[first..]);
}
