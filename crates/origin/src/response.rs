//! Answers as HTTP/1.1 bytes.

use crate::answer::Answer;
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

/// Writes `answer` to `output`; without its body, but with the length of it, when the request was
/// HEAD.
pub(crate) fn render(
    answer: &Answer<'_>,
    to_head: bool,
    persistence: Persistence,
    output: &mut Output,
) {
    match answer {
        Answer::Payload(bytes) => {
            push_head(answer.status(), "", *bytes, persistence, output);
            if !to_head {
                output.push_filler(*bytes);
            }
        }
        Answer::Path(path) => {
            let escaped = path.as_bytes().escape_ascii();
            let length = PATH_PREFIX.len() + escaped.clone().count() + "\n".len();
            push_head(answer.status(), NO_SNIFF, length as u64, persistence, output);
            if !to_head {
                output.push(PATH_PREFIX.as_bytes());
                output.extend(escaped);
                output.push(b"\n");
            }
        }
        Answer::Refusal(refusal) => {
            let text = format!("tollgate origin: {refusal}\n");
            push_head(answer.status(), NO_SNIFF, text.len() as u64, persistence, output);
            if !to_head {
                output.push(text.as_bytes());
            }
        }
    }
}

/// What is said before the body of a request that waits to be asked for it.
pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

const PATH_PREFIX: &str = "tollgate origin: ";

/// For answers that repeat what the client sent.
const NO_SNIFF: &str = "X-Content-Type-Options: nosniff\r\n";

fn push_head(
    status: &str,
    extra_headers: &str,
    content_length: u64,
    persistence: Persistence,
    output: &mut Output,
) {
    output.push(b"HTTP/1.1 ");
    output.push(status.as_bytes());
    output.push(b"\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n");
    output.push(extra_headers.as_bytes());
    output.push(match persistence {
        Persistence::Implied => b"",
        Persistence::Stated => b"Connection: keep-alive\r\n",
        Persistence::Close => b"Connection: close\r\n",
    });
    output.push(b"Content-Length: ");
    push_decimal(content_length, output);
    output.push(b"\r\n\r\n");
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
