//! The response head that a client receives.

use tollgate_http1::{BodyFraming, HeaderField, ResponseHead, Version};

use super::{ConnectionOptions, HeadWriter, is_hop_by_hop};
use crate::compression::{ResponseCoding, names_coding};
use crate::config::HeaderEdits;
use crate::location::LocationRewrite;

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

/// Connection and body of the client's response, which may differ from the backend's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseForm<'a> {
    pub(crate) persistence: Persistence,
    pub(crate) framing: BodyFraming,
    pub(crate) coding: ResponseCoding,
    pub(crate) location: Option<&'a LocationRewrite>,
    /// Fields of the gateway's own that depend on the request, of the final response.
    pub(crate) fields: &'a [(String, String)],
}

/// Writes the head for the client. Adds `date` if the response has none (RFC 9110,
/// section 6.6.1), and returns its position.
pub(crate) fn render_response(
    head: &ResponseHead<'_>,
    edits: &HeaderEdits,
    via: Option<&str>,
    date: Option<&str>,
    form: ResponseForm<'_>,
    mut writer: HeadWriter<'_>,
) -> Option<usize> {
    let ResponseForm { persistence, framing, coding, location, fields } = form;
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
        if let Some(location) = location
            && name.eq_ignore_ascii_case("location")
            && let Some(path) = location.apply(field.value)
        {
            writer.push(name, path.as_bytes());
            continue;
        }
        if let ResponseCoding::Compressed(_) | ResponseCoding::Bodiless = coding
            && push_of_compressed(field, &mut writer)
        {
            continue;
        }
        writer.push_field(field);
    }
    match head.content_length {
        // The length that the body would have had; 204 and interim responses have none.
        Some(bytes) if framing == BodyFraming::Empty => {
            // The length of a compressed body is not known.
            let is_known = !head.is_chunked && coding != ResponseCoding::Bodiless;
            if head.status >= 200 && head.status != 204 && is_known {
                writer.push_length(bytes);
            }
        }
        _ => writer.push_framing(framing),
    }
    if let ResponseCoding::Compressed(coding) = coding {
        writer.push("Content-Encoding", coding.name().as_bytes());
    }
    // Caches must know that the response varies, also if the route replaces or removes the header of the backend.
    let is_covered = || {
        if edits.affect("vary") {
            let mut set = edits.set.iter().filter(|(name, _)| name.eq_ignore_ascii_case("vary"));
            return set.any(|(_, value)| names_coding(value.as_bytes()));
        }
        !options.contain("vary") && head.headers.all("vary").any(names_coding)
    };
    if coding != ResponseCoding::Received && !is_covered() {
        writer.push("Vary", b"Accept-Encoding");
    }
    let date = date.filter(|_| !is_dated);
    let date_at = date.map(|date| writer.push(DATE, date.as_bytes()));
    if let Some(via) = via {
        writer.push_via(head.version, via);
    }
    writer.push_edits(edits);
    if persistence != Persistence::Interim {
        for (name, value) in fields {
            writer.push(name, value.as_bytes());
        }
    }
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

/// Writes a field that compression changes. Ranges of compressed bytes cannot be requested, and their bytes differ between encoders,
/// so that they are equal to others only in meaning (RFC 9110, section 8.8.1).
fn push_of_compressed(field: HeaderField<'_>, writer: &mut HeadWriter<'_>) -> bool {
    if field.name.eq_ignore_ascii_case("accept-ranges") {
        return true;
    }
    let is_strong = field.name.eq_ignore_ascii_case("etag") && field.value.starts_with(b"\"");
    if is_strong {
        writer.push_with(field.name, field.is_sensitive, |out| {
            out.extend_from_slice(b"W/");
            out.extend_from_slice(field.value);
        });
    }
    is_strong
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
