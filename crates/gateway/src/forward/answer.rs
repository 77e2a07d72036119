//! The head that a client gets.

use std::io::Write as _;

use tollgate_wire::{AnswerHead, BodyFraming, Version};

use super::hop::{Options, ends_here};
use super::request::push_via;
use super::{is_edited, push_edits, push_framing, push_header, push_length};
use crate::config::HeaderEdits;

const UPGRADE_REQUIRED: u16 = 426;

const DATE: &str = "Date";

/// What a client is told about the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// It stays open, which HTTP/1.1 need not say.
    Implied,
    /// It stays open, said for the sake of HTTP/1.0.
    Stated,
    /// It is closed after the answer.
    Close,
    /// It goes on in another protocol.
    Upgrade,
    /// The answer is interim, and says nothing of it.
    Interim,
}

/// Writes the head that the client gets to `out`; its body is framed as `framing` says. One that came without a
/// date is given this one, if there is one (RFC 9110, section 6.6.1).
///
/// Tells where in `out` that is.
pub(crate) fn render_answer(
    head: &AnswerHead<'_>,
    edits: &HeaderEdits,
    via: Option<&str>,
    date: Option<&str>,
    persistence: Persistence,
    framing: BodyFraming,
    out: &mut Vec<u8>,
) -> Option<usize> {
    let options = Options::of(head.headers);
    out.extend_from_slice(b"HTTP/1.1 ");
    write!(out, "{:03} ", head.status).expect("a vector takes all that is written");
    out.extend_from_slice(head.reason.as_bytes());
    out.extend_from_slice(b"\r\n");
    // One that the route sets, or does away with, is not missed.
    let mut is_dated = is_edited(edits, DATE);
    for (name, value) in head.headers.iter() {
        if ends_here(name) || options.name(name) || is_edited(edits, name) {
            continue;
        }
        is_dated |= name.eq_ignore_ascii_case(DATE);
        push_header(out, name, value);
    }
    match head.content_length {
        // What the body would have been long: of a 204 and an interim answer, there is none.
        Some(bytes) if framing == BodyFraming::Empty => {
            if head.status >= 200 && head.status != 204 && !head.is_chunked {
                push_length(out, bytes);
            }
        }
        _ => push_framing(out, framing),
    }
    let date_at = date.filter(|_| !is_dated).map(|date| push_date(out, date));
    if let Some(via) = via {
        push_via(out, head.version, via);
    }
    push_edits(out, edits);
    if let Some(option) = persistence.option() {
        push_header(out, "Connection", option.as_bytes());
    }
    // RFC 9110, section 15.5.22: what the client is to ask with is a part of this answer.
    let wants_other = head.status == UPGRADE_REQUIRED && head.headers.first("upgrade").is_some();
    if wants_other {
        push_header(out, "Connection", b"upgrade");
    }
    if wants_other || persistence == Persistence::Upgrade {
        for protocol in head.headers.all("upgrade") {
            push_header(out, "Upgrade", protocol);
        }
    }
    out.extend_from_slice(b"\r\n");
    date_at
}

/// Writes the date, and tells where its value is.
fn push_date(out: &mut Vec<u8>, date: &str) -> usize {
    let at = out.len() + DATE.len() + b": ".len();
    push_header(out, DATE, date.as_bytes());
    at
}

impl Persistence {
    /// What `Connection` says.
    pub(crate) fn option(self) -> Option<&'static str> {
        match self {
            Self::Implied | Self::Interim => None,
            Self::Stated => Some("keep-alive"),
            Self::Close => Some("close"),
            Self::Upgrade => Some("upgrade"),
        }
    }

    /// Of a final answer to a client of this version.
    pub(crate) fn of(version: Version, stays_open: bool) -> Self {
        match (stays_open, version) {
            (false, _) => Self::Close,
            (true, Version::Http10) => Self::Stated,
            (true, Version::Http11) => Self::Implied,
        }
    }
}
