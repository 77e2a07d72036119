//! Message heads: the request head for a backend, and the response head for a client. Heads are parsed and written,
//! never copied, so that both sides agree on framing.

mod request;
mod response;
#[cfg(test)]
mod tests;
mod websocket;
mod writer;

pub(crate) use request::{
    ClientInfo, InvalidMaxForwards, RequestSummary, max_forwards, push_target, render_request,
};
pub(crate) use response::{Persistence, ResponseForm, render_response};
pub(crate) use websocket::{ACCEPT, KEY, WEBSOCKET, WebSocketKey};
pub(crate) use writer::{HeadWriter, MessageForm};

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use tollgate_http1::Headers;

/// Appends a line of a head or of trailers in HTTP/1.1.
pub(crate) fn push_header(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for part in [name, b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Options of the `Connection` headers of a head (RFC 9110, section 7.6.1).
#[derive(Clone, Copy)]
struct ConnectionOptions<'a> {
    headers: Headers<'a>,
    /// True if there are no options but `close` and `keep-alive`, as in most heads.
    are_plain: bool,
}

impl<'a> ConnectionOptions<'a> {
    fn of(headers: Headers<'a>) -> Self {
        let are_plain = connection_options(headers).all(|option| {
            option.eq_ignore_ascii_case(b"close") || option.eq_ignore_ascii_case(b"keep-alive")
        });
        Self { headers, are_plain }
    }

    fn contain(self, header: &str) -> bool {
        let is_it = |option: &[u8]| option.eq_ignore_ascii_case(header.as_bytes());
        !self.are_plain && connection_options(self.headers).any(is_it)
    }
}

fn connection_options(headers: Headers<'_>) -> impl Iterator<Item = &[u8]> {
    headers
        .all("connection")
        .flat_map(|value| value.split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
}

/// True if the type of a body is one whose sender may be silent for long: gRPC, or events for a browser.
pub(crate) fn is_streaming(headers: Headers<'_>) -> bool {
    let has_type = |value: &[u8], kind: &[u8]| {
        value.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind))
    };
    headers.first("content-type").is_some_and(|value| {
        has_type(value, b"application/grpc") || has_type(value, b"text/event-stream")
    })
}

/// The time in seconds for which a backend says that it keeps an idle connection, by `Keep-Alive: timeout=5`.
pub(crate) fn keep_alive_seconds(headers: Headers<'_>) -> Option<u16> {
    let mut parameters =
        headers.all("keep-alive").flat_map(|value| value.split(|&byte| byte == b','));
    parameters.find_map(|parameter| {
        let (name, seconds) = str::from_utf8(parameter).ok()?.split_once('=')?;
        let seconds = seconds.trim().parse().ok()?;
        name.trim().eq_ignore_ascii_case("timeout").then_some(seconds)
    })
}

/// True for headers that concern one connection or the framing, which are never copied.
fn is_hop_by_hop(name: &str) -> bool {
    // By length first, so that most headers cost one comparison.
    let known: &[&str] = match name.len() {
        2 => &["te"],
        7 => &["upgrade"],
        10 => &["connection", "keep-alive"],
        14 => &["content-length"],
        16 => &["proxy-connection"],
        17 => &["transfer-encoding"],
        _ => &[],
    };
    known.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Formats a `Date` (RFC 9110, section 6.6.1). `None` if the clock shows a time that HTTP cannot express, such as one
/// before the year 0; a server then sends no `Date`.
pub(crate) fn http_date(now: SystemTime) -> Option<String> {
    let now = Timestamp::try_from(now).ok()?;
    DateTimePrinter::new().timestamp_to_rfc9110_string(&now).ok()
}

/// The current date, formatted once a second.
#[derive(Debug, Default)]
pub(crate) struct DateCache {
    date: Option<String>,
    expires_at: Option<Instant>,
}

impl DateCache {
    /// Returns the date at `now`, always of the same length. Reads `clock` once a second.
    pub(crate) fn at(&mut self, now: Instant, clock: impl FnOnce() -> SystemTime) -> Option<&str> {
        if self.expires_at.is_none_or(|at| at <= now) {
            let time = clock();
            self.date = http_date(time);
            // Before 1970 a second may expire late, by less than a second.
            let subsecond = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
            let rest = Duration::from_secs(1) - Duration::from_nanos(subsecond.into());
            self.expires_at = Some(now + rest);
        }
        self.date.as_deref()
    }
}
