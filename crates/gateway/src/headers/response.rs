//! The response head that a client receives.

use tollgate_http1::{BodyFraming, ResponseHead, Version};

use super::{ConnectionOptions, HeadWriter, is_hop_by_hop};
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

/// Writes the head for the client, with a body framed by `framing`. Adds `date` if the response has none (RFC 9110,
/// section 6.6.1), and returns its position.
pub(crate) fn render_response(
    head: &ResponseHead<'_>,
    edits: &HeaderEdits,
    via: Option<&str>,
    date: Option<&str>,
    persistence: Persistence,
    framing: BodyFraming,
    mut writer: HeadWriter<'_>,
) -> Option<usize> {
    let options = ConnectionOptions::of(head.headers);
    writer.start_response(head.status, head.reason);
    // A date that the route sets or removes is not missing.
    let mut is_dated = edits.affect(DATE);
    for field in head.headers.fields() {
        let name = field.name;
        if is_hop_by_hop(name) || options.contain(name) || edits.affect(name) {
            continue;
        }
        is_dated |= name.eq_ignore_ascii_case(DATE);
        writer.push_field(field);
    }
    match head.content_length {
        // The length that the body would have had; 204 and interim responses have none.
        Some(bytes) if framing == BodyFraming::Empty => {
            if head.status >= 200 && head.status != 204 && !head.is_chunked {
                writer.push_length(bytes);
            }
        }
        _ => writer.push_framing(framing),
    }
    let date = date.filter(|_| !is_dated);
    let date_at = date.map(|date| writer.push(DATE, date.as_bytes()));
    if let Some(via) = via {
        writer.push_via(head.version, via);
    }
    writer.push_edits(edits);
    if let Some(option) = persistence.option() {
        writer.push("Connection", option.as_bytes());
    }
    // RFC 9110, section 15.5.22: a 426 names the protocol to use.
    let requires_upgrade =
        head.status == UPGRADE_REQUIRED && head.headers.first("upgrade").is_some();
    if requires_upgrade {
        writer.push("Connection", b"upgrade");
    }
    if requires_upgrade || persistence == Persistence::Upgrade {
        for protocol in head.headers.all("upgrade") {
            writer.push("Upgrade", protocol);
        }
    }
    writer.end();
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
