//! The response head that a client receives.

use std::io::Write as _;

use tollgate_http1::{BodyFraming, ResponseHead, Version};

use super::{
    ConnectionOptions, is_hop_by_hop, push_edits, push_framing, push_header, push_length, push_via,
};
use crate::config::HeaderEdits;

const UPGRADE_REQUIRED: u16 = 426;

const DATE: &str = "Date";

/// Persistence of the client's connection, as announced by the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// Stays open; HTTP/1.1 needs no header.
    Implied,
    /// Stays open: `keep-alive` for HTTP/1.0.
    KeepAlive,
    Close,
    /// Switches to another protocol.
    Upgrade,
    /// An interim response, without a header.
    Interim,
}

/// Appends the head for the client to `out`, with a body framed by `framing`. Adds `date` if the response has none
/// (RFC 9110, section 6.6.1), and returns its position in `out`.
pub(crate) fn render_response(
    head: &ResponseHead<'_>,
    edits: &HeaderEdits,
    via: Option<&str>,
    date: Option<&str>,
    persistence: Persistence,
    framing: BodyFraming,
    out: &mut Vec<u8>,
) -> Option<usize> {
    let options = ConnectionOptions::of(head.headers);
    out.extend_from_slice(b"HTTP/1.1 ");
    write!(out, "{:03} ", head.status).expect("writing to a vector cannot fail");
    out.extend_from_slice(head.reason.as_bytes());
    out.extend_from_slice(b"\r\n");
    // A date that the route sets or removes is not missing.
    let mut is_dated = edits.affect(DATE);
    for (name, value) in head.headers.iter() {
        if is_hop_by_hop(name) || options.contain(name) || edits.affect(name) {
            continue;
        }
        is_dated |= name.eq_ignore_ascii_case(DATE);
        push_header(out, name, value);
    }
    match head.content_length {
        // The length that the body would have had; 204 and interim responses have none.
        Some(bytes) if framing == BodyFraming::Empty => {
            if head.status >= 200 && head.status != 204 && !head.is_chunked {
                push_length(out, bytes);
            }
        }
        _ => push_framing(out, framing),
    }
    let date_at = date.filter(|_| !is_dated).map(|date| {
        let at = out.len() + DATE.len() + b": ".len();
        push_header(out, DATE, date.as_bytes());
        at
    });
    if let Some(via) = via {
        push_via(out, head.version, via);
    }
    push_edits(out, edits);
    if let Some(option) = persistence.option() {
        push_header(out, "Connection", option.as_bytes());
    }
    // RFC 9110, section 15.5.22: a 426 names the protocol to use.
    let requires_upgrade =
        head.status == UPGRADE_REQUIRED && head.headers.first("upgrade").is_some();
    if requires_upgrade {
        push_header(out, "Connection", b"upgrade");
    }
    if requires_upgrade || persistence == Persistence::Upgrade {
        for protocol in head.headers.all("upgrade") {
            push_header(out, "Upgrade", protocol);
        }
    }
    out.extend_from_slice(b"\r\n");
    date_at
}

impl Persistence {
    /// The option for `Connection`.
    pub(crate) fn option(self) -> Option<&'static str> {
        match self {
            Self::Implied | Self::Interim => None,
            Self::KeepAlive => Some("keep-alive"),
            Self::Close => Some("close"),
            Self::Upgrade => Some("upgrade"),
        }
    }

    /// Of a final response to a client of this version.
    pub(crate) fn of(version: Version, keep_alive: bool) -> Self {
        match (keep_alive, version) {
            (false, _) => Self::Close,
            (true, Version::Http10) => Self::KeepAlive,
            (true, Version::Http11 | Version::Http2) => Self::Implied,
        }
    }
}
