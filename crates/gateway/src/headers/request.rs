//! The request head that a backend receives.

use std::borrow::Cow;
use std::net::IpAddr;

use tollgate_http1::{BodyFraming, HeaderField, RequestHead, Version};

use super::{
    ConnectionOptions, HeadWriter, KEY, MessageForm, WEBSOCKET, WebSocketKey, is_hop_by_hop,
    is_streaming,
};
use crate::compression::select;
use crate::config::{
    ContentCoding, Forwarded, ForwardedHeader, HeaderEdits, PathForm, Requests, Route, Variables,
};
use crate::path::{behind, is_plain, resolved, segment_count};

#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientInfo<'a> {
    /// The peer that has sent the request, `None` over a Unix domain socket.
    pub(crate) ip: Option<IpAddr>,
    pub(crate) is_tls: bool,
    /// `Host` for a request without one: the listener's address.
    pub(crate) default_host: &'a str,
    /// For edits.
    pub(crate) variables: Variables<'a>,
}

/// Properties of a request that the gateway itself needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestSummary {
    pub(crate) version: Version,
    pub(crate) keep_alive: bool,
    pub(crate) body: BodyFraming,
    /// HEAD: the response has no body.
    pub(crate) is_head: bool,
    /// May be sent twice (RFC 9110, section 9.2.2).
    pub(crate) is_idempotent: bool,
    /// Both sides may be silent for long: a gRPC call.
    pub(crate) is_streaming: bool,
    /// The client waits for `100 Continue` before it sends the body.
    pub(crate) expects_continue: bool,
    /// The upgrade that the client offers is forwarded.
    pub(crate) wants_upgrade: bool,
    /// Of a WebSocket to a backend over HTTP/2.
    pub(crate) websocket_key: Option<WebSocketKey>,
    /// Coding in which the client gets a suitable response.
    pub(crate) coding: Option<ContentCoding>,
    /// Length of the head as received.
    pub(crate) head_bytes: usize,
}

impl RequestSummary {
    /// Summary of a request without an upgrade, not of a stream.
    pub(crate) fn of_plain(head: &RequestHead<'_>) -> Self {
        Self {
            version: head.version,
            keep_alive: head.keep_alive,
            body: head.body,
            is_head: head.method == "HEAD",
            is_idempotent: matches!(
                head.method,
                "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE"
            ),
            is_streaming: false,
            expects_continue: head.expects_continue,
            wants_upgrade: false,
            websocket_key: None,
            coding: None,
            head_bytes: head.len,
        }
    }
}

/// Writes the head for the backend.
pub(crate) fn render_request(
    head: &RequestHead<'_>,
    route: &Route,
    requests: &Requests,
    forwarded: &Forwarded,
    client: &ClientInfo<'_>,
    mut writer: HeadWriter<'_>,
) -> RequestSummary {
    let edits = &route.request_headers;
    let is_trusted = forwarded.trust.includes(client.ip);
    let removed =
        if is_trusted { &requests.remove_headers_of_trusted } else { &requests.remove_headers };
    let options = ConnectionOptions::of(head.headers);
    let upgrade = upgrade(head, options, requests);
    let form = writer.form();
    let (upgrade, websocket_key) = match form {
        MessageForm::Text => (upgrade, None),
        // Of all protocols, HTTP/2 has only this one (RFC 8441), and the gateway proves the receipt of the key.
        MessageForm::Fields => {
            let is_websocket = |protocol: &&[u8]| protocol.eq_ignore_ascii_case(WEBSOCKET);
            let key = upgrade.filter(is_websocket).and_then(|_| WebSocketKey::of(head.headers));
            (upgrade.filter(|_| key.is_some()), key)
        }
    };
    // RFC 8441, section 4: a WebSocket opens with a CONNECT.
    let method = if websocket_key.is_some() { "CONNECT" } else { head.method };
    writer.start_request(method, head.is_target_sensitive, |out| {
        match head.target_parts.path_and_query {
            // RFC 9112, section 3.2.4: concerns the whole server.
            "" | "*" if head.method == "OPTIONS" => out.push(b'*'),
            path_and_query => push_target(out, path_and_query, route, requests.path),
        }
    });
    if websocket_key.is_some() {
        writer.push(":protocol", WEBSOCKET);
    }
    // RFC 9112, section 3.2.2: the target takes precedence over `Host`.
    let host = head.target_parts.authority.or(head.host);
    if !edits.affect("host") {
        writer.push("Host", host.unwrap_or(client.default_host).as_bytes());
    }
    for field in head.headers.fields() {
        let HeaderField { name, value, .. } = field;
        if counts_hops(head.method)
            && name.eq_ignore_ascii_case(MAX_FORWARDS)
            && !edits.affect(name)
        {
            // Even if `Connection` lists it: otherwise two gateways could loop forever.
            let rest = saturating_number(value).saturating_sub(1);
            writer.push(MAX_FORWARDS, rest.to_string().as_bytes());
            continue;
        }
        if name.eq_ignore_ascii_case("host")
            || is_hop_by_hop(name)
            || is_replaced(name, forwarded, client.ip)
            || (!requests.underscores && name.contains('_'))
            || removed.iter().any(|removed| is_same_cgi_name(name, removed))
            || (name.eq_ignore_ascii_case("expect") && head.version == Version::Http10)
            || (websocket_key.is_some() && name.eq_ignore_ascii_case(KEY))
            || (options.contain(name) && !is_forwarded_header(name))
            || edits.affect(name)
        {
            continue;
        }
        writer.push_field(field);
    }
    // The tunnel of an extended CONNECT is its content, and has no length.
    if websocket_key.is_none() {
        writer.push_framing(head.body);
    }
    // Of the options of a connection, only this one exists in HTTP/2 (RFC 9113, section 8.2.2).
    if form == MessageForm::Fields && takes_trailers(head) && !edits.affect(TE) {
        writer.push(TE, b"trailers");
    }
    push_forwarded(&mut writer, head, host, forwarded, edits, client);
    writer.push_edits(edits);
    for (name, value) in edits.rendered(&client.variables) {
        writer.push(&name, value.as_bytes());
    }
    if let Some(protocol) = upgrade {
        writer.push("Connection", b"upgrade");
        writer.push("Upgrade", protocol);
    }
    writer.end();
    RequestSummary {
        body: if upgrade.is_some() { BodyFraming::Empty } else { head.body },
        is_streaming: is_streaming(head.headers),
        wants_upgrade: upgrade.is_some(),
        websocket_key,
        coding: route.compression.as_ref().and_then(|compression| select(head, compression)),
        ..RequestSummary::of_plain(head)
    }
}

const TE: &str = "TE";

/// True if the client accepts trailers.
fn takes_trailers(head: &RequestHead<'_>) -> bool {
    let mut options = head.headers.all(TE).flat_map(|value| value.split(|&byte| byte == b','));
    options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

/// Writes path and query, with the route's prefix rewritten.
pub(crate) fn push_target(out: &mut Vec<u8>, path_and_query: &str, route: &Route, form: PathForm) {
    let prefix = route.path_prefix.trim_end_matches('/');
    let start = out.len();
    let rest = match &route.rewrite {
        // A target in absolute form may have no path; then it matches only the prefix `/`.
        Some(rewrite) if path_and_query.starts_with('/') || prefix.is_empty() => {
            out.extend_from_slice(rewrite.trim_end_matches('/').as_bytes());
            behind_prefix(path_and_query, prefix)
        }
        _ if form == PathForm::Raw => path_and_query.into(),
        _ => {
            let (path, query) = split_query(path_and_query);
            match resolved(path) {
                Cow::Borrowed(_) => path_and_query.into(),
                Cow::Owned(path) => (path + query).into(),
            }
        }
    };
    let is_path_empty = out.len() == start;
    if is_path_empty && (rest.is_empty() || rest.starts_with('?')) {
        out.push(b'/');
    }
    out.extend_from_slice(rest.as_bytes());
}

fn split_query(path_and_query: &str) -> (&str, &str) {
    path_and_query.split_at(path_and_query.find('?').unwrap_or(path_and_query.len()))
}

/// Returns the rest of path and query after the matched prefix, which may be spelled differently.
fn behind_prefix<'a>(path_and_query: &'a str, prefix: &str) -> Cow<'a, str> {
    let (path, query) = split_query(path_and_query);
    match path_and_query.strip_prefix(prefix) {
        Some(rest) if is_plain(path) => rest.into(),
        _ => (behind(path, segment_count(prefix)) + query).into(),
    }
}

/// The protocol of an upgrade that may be forwarded. Not with a body, which would have to end first. Over HTTP/2, only an
/// extended CONNECT has one.
fn upgrade<'a>(
    head: &RequestHead<'a>,
    options: ConnectionOptions<'_>,
    requests: &Requests,
) -> Option<&'a [u8]> {
    let is_bodyless = match head.body {
        BodyFraming::Empty => true,
        // Some clients send the length of no body. An extended CONNECT has no length.
        BodyFraming::Length(0) => head.version == Version::Http11,
        _ => false,
    };
    if head.version == Version::Http10 || !is_bodyless || !options.contain("upgrade") {
        return None;
    }
    let mut protocols = head.headers.all("upgrade");
    let (first, second) = (protocols.next()?, protocols.next());
    let is_allowed = match head.method {
        "GET" => true,
        // As the client of Docker does, for `tcp`. A WebSocket starts with GET (RFC 6455, section 4.1).
        "POST" => !lists(first, WEBSOCKET),
        _ => false,
    };
    (is_allowed && second.is_none() && requests.allow_upgrade(first)).then_some(first)
}

/// True if the value of an `Upgrade` header lists a protocol.
fn lists(protocols: &[u8], protocol: &[u8]) -> bool {
    let mut protocols = protocols.split(|&byte| byte == b',');
    protocols.any(|listed| listed.trim_ascii().eq_ignore_ascii_case(protocol))
}

const FOR: &str = "X-Forwarded-For";
const PROTO: &str = "X-Forwarded-Proto";
const HOST: &str = "X-Forwarded-Host";

/// True for the headers that tell backends about the client. `Connection` cannot remove those of a trusted client,
/// which may have forwarded another client's option.
fn is_forwarded_header(name: &str) -> bool {
    [FOR, PROTO, HOST, "Forwarded"].iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// True if a client's header of this name is dropped or becomes a part of the gateway's own. Backends that read
/// headers as CGI variables treat `X_Forwarded_For` as the same name, so it is dropped, too.
fn is_replaced(name: &str, forwarded: &Forwarded, client: Option<IpAddr>) -> bool {
    if !matches!(name.len(), 9 | 15 | 16 | 17) {
        return false;
    }
    let header =
        if name.len() == 9 { ForwardedHeader::Forwarded } else { ForwardedHeader::XForwardedFor };
    let is_trusted = forwarded.trust.includes_header(client, header);
    let is = |known: &str| {
        name.eq_ignore_ascii_case(known) || (!is_trusted && is_same_cgi_name(name, known))
    };
    match name.len() {
        9 => is("Forwarded") && (!is_trusted || forwarded.forwarded),
        15 => is(FOR) && (!is_trusted || forwarded.x_forwarded),
        _ => is(PROTO) || is(HOST),
    }
}

/// Compares names with `_` and `-` as equal.
fn is_same_cgi_name(name: &str, known: &str) -> bool {
    let normalized = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    name.len() == known.len() && name.bytes().map(normalized).eq(known.bytes().map(normalized))
}

fn push_forwarded(
    writer: &mut HeadWriter<'_>,
    head: &RequestHead<'_>,
    host: Option<&str>,
    forwarded: &Forwarded,
    edits: &HeaderEdits,
    client: &ClientInfo<'_>,
) {
    let is_trusted = forwarded.trust.includes_header(client.ip, ForwardedHeader::XForwardedFor);
    let scheme: &[u8] = if client.is_tls { b"https" } else { b"http" };
    if forwarded.x_forwarded && !edits.affect(FOR) {
        let address = client.ip.map_or_else(|| "unknown".to_owned(), |ip| ip.to_string());
        push_list(writer, head, FOR, address.as_bytes(), is_trusted);
    }
    for (name, own) in [(PROTO, Some(scheme)), (HOST, host.map(str::as_bytes))] {
        // Of several, a proxy that appends has written the last one.
        let trusted = is_trusted.then(|| head.headers.all(name).last()).flatten();
        if let Some(value) = trusted.or(own.filter(|_| forwarded.x_forwarded))
            && !edits.affect(name)
        {
            writer.push(name, value);
        }
    }
    if forwarded.forwarded && !edits.affect("Forwarded") {
        let is_trusted = forwarded.trust.includes_header(client.ip, ForwardedHeader::Forwarded);
        let element = forwarded_element(host, scheme, client);
        push_list(writer, head, "Forwarded", &element, is_trusted);
    }
    if let Some(via) = &forwarded.via {
        writer.push_via(head.version, via);
    }
}

/// Writes the client's values of this header, if they are trusted, and one more element.
fn push_list(
    writer: &mut HeadWriter<'_>,
    head: &RequestHead<'_>,
    name: &str,
    element: &[u8],
    is_trusted: bool,
) {
    writer.push_with(name, false, |out| {
        if is_trusted {
            for value in head.headers.all(name).filter(|value| !value.is_empty()) {
                out.extend_from_slice(value);
                out.extend_from_slice(b", ");
            }
        }
        out.extend_from_slice(element);
    });
}

/// One element of `Forwarded` (RFC 7239, section 4).
fn forwarded_element(host: Option<&str>, scheme: &[u8], client: &ClientInfo<'_>) -> Vec<u8> {
    let mut element = match client.ip {
        Some(IpAddr::V4(ip)) => format!("for={ip}"),
        Some(IpAddr::V6(ip)) => format!("for=\"[{ip}]\""),
        None => "for=unknown".to_owned(),
    }
    .into_bytes();
    if let Some(host) = host {
        // The parser allows no quotes and backslashes in a host.
        element.extend_from_slice(b";host=\"");
        element.extend_from_slice(host.as_bytes());
        element.push(b'"');
    }
    element.extend_from_slice(b";proto=");
    element.extend_from_slice(scheme);
    element
}

const MAX_FORWARDS: &str = "Max-Forwards";

/// Several `Max-Forwards` headers, or one that is not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidMaxForwards;

/// Returns the number of times that a TRACE or OPTIONS may be forwarded (RFC 9110, section 7.6.2). `None`: unlimited.
pub(crate) fn max_forwards(head: &RequestHead<'_>) -> Result<Option<u32>, InvalidMaxForwards> {
    if !counts_hops(head.method) {
        return Ok(None);
    }
    let is_number = |value: &[u8]| !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let mut values = head.headers.all(MAX_FORWARDS);
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) if is_number(value) => Ok(Some(saturating_number(value))),
        _ => Err(InvalidMaxForwards),
    }
}

fn counts_hops(method: &str) -> bool {
    matches!(method, "TRACE" | "OPTIONS")
}

/// Parses a number whose digits were checked.
fn saturating_number(digits: &[u8]) -> u32 {
    str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or(u32::MAX)
}
