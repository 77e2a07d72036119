//! The head that a backend gets.

use std::borrow::Cow;
use std::net::IpAddr;

use tollgate_wire::{BodyFraming, RequestHead, Version};

use super::hop::{Options, ends_here};
use super::hops::{is_count, push_one_less};
use super::{is_edited, push_edits, push_framing, push_header};
use crate::config::{Forwarded, HeaderEdits, Route};
use crate::path::{behind, is_plain, segment_count};

/// Who sends a request, and how it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender<'a> {
    /// The client's address; a unix-domain socket has none.
    pub(crate) ip: Option<IpAddr>,
    /// Whether it came over TLS.
    pub(crate) is_tls: bool,
    /// Where it came in, for a client that names no host.
    pub(crate) own_host: &'a str,
}

/// What a request asks of the gateway itself, besides being passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) version: Version,
    pub(crate) keep_alive: bool,
    pub(crate) body: BodyFraming,
    /// The answer has no body, whatever its head says.
    pub(crate) is_head: bool,
    /// To send it twice does what to send it once does (RFC 9110, section 9.2.2).
    pub(crate) is_idempotent: bool,
    /// It may be answered with another protocol.
    pub(crate) wants_upgrade: bool,
    /// How long its head was, as it came.
    pub(crate) head_bytes: usize,
}

/// Writes the head that the backend gets to `out`, and says what else is asked for.
pub(crate) fn render_request(
    head: &RequestHead<'_>,
    route: &Route,
    forwarded: &Forwarded,
    sender: &Sender<'_>,
    out: &mut Vec<u8>,
) -> Asked {
    let edits = &route.request_headers;
    let options = Options::of(head.headers);
    let upgrade = upgrade(head, options);
    out.extend_from_slice(head.method.as_bytes());
    out.push(b' ');
    match head.target_parts.path_and_query {
        // RFC 9112, section 3.2.4: asked of the host as a whole, which nothing else says to the last one.
        "" | "*" if head.method == "OPTIONS" => out.push(b'*'),
        path_and_query => push_target(out, path_and_query, route),
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
    // RFC 9112, section 3.2.2: what the target says of the host counts more than `Host`.
    let host = head.target_parts.authority.or(head.host);
    if !is_edited(edits, "host") {
        push_header(out, "Host", host.unwrap_or(sender.own_host).as_bytes());
    }
    for (name, value) in head.headers.iter() {
        if is_count(head.method, name) && !is_edited(edits, name) {
            // Whatever `Connection` says: without it, two gateways could pass it back and forth for ever.
            push_one_less(out, value);
            continue;
        }
        if name.eq_ignore_ascii_case("host")
            || ends_here(name)
            || is_told_anew(name, forwarded)
            || (name.eq_ignore_ascii_case("expect") && head.version == Version::Http10)
            || options.name(name)
            || is_edited(edits, name)
        {
            continue;
        }
        push_header(out, name, value);
    }
    push_framing(out, head.body);
    push_forwarded(out, head, host, forwarded, edits, sender);
    push_edits(out, edits);
    if let Some(protocol) = upgrade {
        push_header(out, "Connection", b"upgrade");
        push_header(out, "Upgrade", protocol);
    }
    out.extend_from_slice(b"\r\n");
    Asked {
        version: head.version,
        keep_alive: head.keep_alive,
        body: head.body,
        is_head: head.method == "HEAD",
        is_idempotent: matches!(
            head.method,
            "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE"
        ),
        wants_upgrade: upgrade.is_some(),
        head_bytes: head.len,
    }
}

/// Writes path and query, with what the route puts in its prefix's place.
fn push_target(out: &mut Vec<u8>, path_and_query: &str, route: &Route) {
    let prefix = route.path_prefix.trim_end_matches('/');
    let start = out.len();
    let rest = match &route.rewrite {
        // A target with a scheme may have no path, which begins with no prefix but the shortest.
        Some(rewrite) if path_and_query.starts_with('/') || prefix.is_empty() => {
            out.extend_from_slice(rewrite.trim_end_matches('/').as_bytes());
            behind_prefix(path_and_query, prefix)
        }
        _ => path_and_query.into(),
    };
    let has_no_path = out.len() == start;
    if has_no_path && (rest.is_empty() || rest.starts_with('?')) {
        out.push(b'/');
    }
    out.extend_from_slice(rest.as_bytes());
}

/// What of path and query is behind the prefix that the path begins with, in whatever spelling.
fn behind_prefix<'a>(path_and_query: &'a str, prefix: &str) -> Cow<'a, str> {
    let path_end = path_and_query.find('?').unwrap_or(path_and_query.len());
    let (path, query) = path_and_query.split_at(path_end);
    match path_and_query.strip_prefix(prefix) {
        Some(rest) if is_plain(path) => rest.into(),
        _ => (behind(path, segment_count(prefix)) + query).into(),
    }
}

/// The protocol that the client would rather speak, if the backend may be asked. Not HTTP/2 in the
/// clear, in which requests could follow that nobody here has looked at; and not behind a body, after
/// which alone it could begin.
fn upgrade<'a>(head: &RequestHead<'a>, options: Options<'_>) -> Option<&'a [u8]> {
    if head.version != Version::Http11
        || head.body != BodyFraming::Empty
        || head.method != "GET"
        || !options.name("upgrade")
    {
        return None;
    }
    let mut protocols = head.headers.all("upgrade");
    let (first, second) = (protocols.next()?, protocols.next());
    let is_http2 = first
        .split(|&byte| byte == b',')
        .any(|protocol| protocol.trim_ascii().to_ascii_lowercase().starts_with(b"h2"));
    (second.is_none() && !first.is_empty() && !is_http2).then_some(first)
}

const FOR: &str = "X-Forwarded-For";
const PROTO: &str = "X-Forwarded-Proto";
const HOST: &str = "X-Forwarded-Host";

/// Whether what the client says under this name is dropped, or comes in with what is added to it. To many
/// who read headers as variables, `X_Forwarded_For` is the same name, so that it is dropped with it.
fn is_told_anew(name: &str, forwarded: &Forwarded) -> bool {
    let is = |known: &str| {
        name.eq_ignore_ascii_case(known) || (!forwarded.trust_client && is_read_alike(name, known))
    };
    match name.len() {
        15 if is(FOR) => !forwarded.trust_client || forwarded.x_forwarded,
        16 | 17 if is(PROTO) || is(HOST) => !forwarded.trust_client,
        9 if is("Forwarded") => !forwarded.trust_client || forwarded.forwarded,
        _ => false,
    }
}

/// Whether the names are the same to who takes `_` for `-`.
fn is_read_alike(name: &str, known: &str) -> bool {
    let read = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    name.len() == known.len() && name.bytes().map(read).eq(known.bytes().map(read))
}

fn push_forwarded(
    out: &mut Vec<u8>,
    head: &RequestHead<'_>,
    host: Option<&str>,
    forwarded: &Forwarded,
    edits: &HeaderEdits,
    sender: &Sender<'_>,
) {
    let scheme: &[u8] = if sender.is_tls { b"https" } else { b"http" };
    let is_said = |name| forwarded.trust_client && head.headers.first(name).is_some();
    if forwarded.x_forwarded {
        if !is_edited(edits, FOR) {
            let address = sender.ip.map_or_else(|| "unknown".to_owned(), |ip| ip.to_string());
            push_list(out, head, FOR, address.as_bytes(), forwarded);
        }
        if !is_edited(edits, PROTO) && !is_said(PROTO) {
            push_header(out, PROTO, scheme);
        }
        if let Some(host) = host
            && !is_edited(edits, HOST)
            && !is_said(HOST)
        {
            push_header(out, HOST, host.as_bytes());
        }
    }
    if forwarded.forwarded && !is_edited(edits, "Forwarded") {
        push_list(out, head, "Forwarded", &element(host, scheme, sender), forwarded);
    }
    if let Some(via) = &forwarded.via {
        push_via(out, head.version, via);
    }
}

/// Writes what came under this name, if it is trusted, and one more element behind it.
fn push_list(
    out: &mut Vec<u8>,
    head: &RequestHead<'_>,
    name: &str,
    element: &[u8],
    forwarded: &Forwarded,
) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    if forwarded.trust_client {
        for value in head.headers.all(name).filter(|value| !value.is_empty()) {
            out.extend_from_slice(value);
            out.extend_from_slice(b", ");
        }
    }
    out.extend_from_slice(element);
    out.extend_from_slice(b"\r\n");
}

/// One element of `Forwarded` (RFC 7239, section 4).
fn element(host: Option<&str>, scheme: &[u8], sender: &Sender<'_>) -> Vec<u8> {
    let mut element = match sender.ip {
        Some(IpAddr::V4(ip)) => format!("for={ip}"),
        Some(IpAddr::V6(ip)) => format!("for=\"[{ip}]\""),
        None => "for=unknown".to_owned(),
    }
    .into_bytes();
    if let Some(host) = host {
        // A host has neither quotes nor backslashes in it.
        element.extend_from_slice(b";host=\"");
        element.extend_from_slice(host.as_bytes());
        element.push(b'"');
    }
    element.extend_from_slice(b";proto=");
    element.extend_from_slice(scheme);
    element
}

/// Says who passed the message on, and in which version it came (RFC 9110, section 7.6.3).
pub(super) fn push_via(out: &mut Vec<u8>, version: Version, name: &str) {
    let version: &[u8] = match version {
        Version::Http10 => b"1.0 ",
        Version::Http11 => b"1.1 ",
    };
    out.extend_from_slice(b"Via: ");
    out.extend_from_slice(version);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\r\n");
}
