//! Entries of an access log, and their formats.

use std::sync::Arc;
use std::time::Duration;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use tollgate_http1::RequestHead;

use crate::json::{ClientText, push_json};

/// Decimals of durations in milliseconds.
const DURATION_DECIMALS: usize = 3;

/// Status logged for a request that ended without a response, as in nginx.
pub const STATUS_NO_RESPONSE: u16 = 499;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// The combined log format of Apache and nginx.
    Combined,
    Json,
    /// These parts, one after the other.
    Template(Arc<[LogPart]>),
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogPart {
    Text(String),
    Field(LogField),
}

macro_rules! fields {
    ($($name:ident $word:literal,)*) => {
        /// A field of an entry. docs/formats.md describes them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum LogField {
            $($name,)*
        }

        impl LogField {
            /// In the order of JSON.
            const ALL: &[(Self, &'static str)] = &[$((Self::$name, $word),)*];
        }
    };
}

fields! {
    Time "time",
    Client "client",
    Tls "tls",
    Cipher "cipher",
    Sni "sni",
    Method "method",
    Target "target",
    Version "version",
    Host "host",
    Referer "referer",
    Agent "agent",
    RequestId "request_id",
    User "user",
    Transaction "transaction",
    Status "status",
    BodyBytes "body_bytes",
    Reason "reason",
    End "end",
    Pool "pool",
    Backend "backend",
    Tries "tries",
    FirstByte "first_byte_ms",
    Duration "duration_ms",
}

impl LogField {
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(field, _)| *field)
    }

    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|(_, name)| *name)
    }
}

/// Value of a field.
#[derive(Clone, Copy, Debug)]
enum Value<'a> {
    /// The entry has no such field.
    Absent,
    /// The field has no value.
    Missing,
    Text(&'a str),
    /// Of the client.
    Bytes(&'a [u8]),
    Number(u64),
    Duration(Duration),
}

/// Request line and headers to log, kept until the response has ended.
#[derive(Clone, Debug)]
pub struct LoggedRequest {
    method: Box<[u8]>,
    target: Box<[u8]>,
    /// Such as `1.1`.
    version: &'static str,
    host: Option<Box<[u8]>>,
    referer: Option<Box<[u8]>>,
    agent: Option<Box<[u8]>>,
    id: Option<Box<str>>,
    user: Option<Box<str>>,
}

/// One line of an access log: a request and its response.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Address of the client, or `unix:`.
    pub peer: &'a str,
    /// `None` for plain HTTP. Logged in JSON only.
    pub tls: Option<Tls<'a>>,
    /// `None` if not even the request line could be parsed.
    pub request: Option<&'a LoggedRequest>,
    /// Status of the response, or [`STATUS_NO_RESPONSE`].
    pub status: u16,
    /// Bytes of the response body that were sent.
    pub body_bytes: u64,
    /// Reason, in one word, for an error response of the server. In the combined format an additional quoted field.
    pub reason: Option<&'a str>,
    /// Cause of an incomplete response, in one word. `None`: the response is complete. The combined format has it in the
    /// field of `reason`, which is empty then.
    pub interruption: Option<&'a str>,
    /// Identifier in the audit log. `None`: nothing was inspected.
    pub transaction: Option<&'a str>,
    /// Origin of a forwarded response. Logged in JSON only.
    pub upstream: Option<Upstream<'a>>,
}

impl<'a> Entry<'a> {
    /// A response of the server's own, without a reason and facts of TLS.
    pub fn new(
        peer: &'a str,
        request: Option<&'a LoggedRequest>,
        status: u16,
        body_bytes: u64,
    ) -> Self {
        let (tls, reason, interruption, transaction, upstream) = (None, None, None, None, None);
        Self { peer, tls, request, status, body_bytes, reason, interruption, transaction, upstream }
    }
}

/// TLS of the client's connection.
#[derive(Clone, Copy, Debug)]
pub struct Tls<'a> {
    pub version: &'a str,
    pub cipher: &'a str,
    /// Name that the client has sent (SNI).
    pub server_name: Option<&'a str>,
}

/// Origin of a forwarded response.
#[derive(Clone, Copy, Debug)]
pub struct Upstream<'a> {
    pub pool: &'a str,
    /// Address of the backend, or `None` if no backend took the request.
    pub backend: Option<&'a str>,
    pub tries: u32,
    /// From the request's head to the first byte of the backend's response. `None`: there was none.
    pub first_byte: Option<Duration>,
    /// From the request's head to the end of the response.
    pub duration: Duration,
}

impl LoggedRequest {
    pub fn new(head: &RequestHead<'_>) -> Self {
        let header = |name| head.headers.first(name).map(Box::from);
        Self {
            method: head.method.as_bytes().into(),
            target: head.target.as_bytes().into(),
            version: head.version.number(),
            // The target takes precedence over `Host` (RFC 9112, section 3.2.2).
            host: head.target_parts.authority.or(head.host).map(|host| host.as_bytes().into()),
            referer: header("Referer"),
            agent: header("User-Agent"),
            id: None,
            user: None,
        }
    }

    /// Sets the identifier that a backend gets, too.
    pub fn set_id(&mut self, id: &str) {
        self.id = Some(id.into());
    }

    /// Sets the user whose password was checked.
    pub fn set_user(&mut self, user: Box<str>) {
        self.user = Some(user);
    }

    /// The request line of an invalid head, behind empty lines; `None` if it is incomplete or invalid too.
    pub fn of_first_line(head: &[u8]) -> Option<Self> {
        let begin = head.iter().position(|byte| !b"\r\n".contains(byte))?;
        let head = &head[begin..];
        let end = head.iter().position(|byte| *byte == b'\n')?;
        let line = head[..end].strip_suffix(b"\r").unwrap_or(&head[..end]);
        let mut words = line.split(|byte| *byte == b' ');
        let (method, target) = (words.next()?, words.next()?);
        let version = match (words.next()?, words.next()) {
            (b"HTTP/1.0", None) => "1.0",
            (b"HTTP/1.1", None) => "1.1",
            _ => return None,
        };
        let is_valid = |word: &[u8]| !word.is_empty() && word.iter().all(u8::is_ascii_graphic);
        if !is_valid(method) || !is_valid(target) {
            return None;
        }
        let (method, target) = (method.into(), target.into());
        let (host, referer, agent, id, user) = (None, None, None, None, None);
        Some(Self { method, target, version, host, referer, agent, id, user })
    }

    /// A request over HTTP/2. `header` returns the first header of a name in lower case.
    pub fn http2<'a>(
        method: &str,
        target: &str,
        host: Option<&str>,
        header: impl Fn(&'static [u8]) -> Option<&'a [u8]>,
    ) -> Self {
        Self {
            method: method.as_bytes().into(),
            target: target.as_bytes().into(),
            version: "2.0",
            host: host.map(|host| host.as_bytes().into()),
            referer: header(b"referer").map(Box::from),
            agent: header(b"user-agent").map(Box::from),
            id: None,
            user: None,
        }
    }
}

impl Entry<'_> {
    pub(crate) fn write(&self, lines: &mut Vec<u8>, format: &LogFormat, time: &str) {
        match format {
            LogFormat::Combined => self.write_combined(lines, time),
            LogFormat::Json => {
                push_json(lines, DURATION_DECIMALS, &JsonEntry { time, entry: self });
            }
            LogFormat::Template(parts) => {
                for part in &**parts {
                    match part {
                        LogPart::Text(text) => lines.extend_from_slice(text.as_bytes()),
                        LogPart::Field(field) => self.write_field(lines, *field, time),
                    }
                }
            }
        }
        lines.push(b'\n');
    }

    fn write_field(&self, lines: &mut Vec<u8>, field: LogField, time: &str) {
        match self.value(field, time) {
            Value::Absent | Value::Missing => lines.push(b'-'),
            Value::Text(text) => push_escaped(lines, text.as_bytes()),
            Value::Bytes(bytes) => push_escaped(lines, bytes),
            Value::Number(number) => {
                lines.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
            }
            Value::Duration(duration) => {
                lines.extend_from_slice(
                    format!("{:.*}", DURATION_DECIMALS, milliseconds(duration)).as_bytes(),
                );
            }
        }
    }

    fn value<'a>(&'a self, field: LogField, time: &'a str) -> Value<'a> {
        let text = |text: Option<&'a str>| text.map_or(Value::Missing, Value::Text);
        let bytes = |bytes: Option<&'a [u8]>| bytes.map_or(Value::Missing, Value::Bytes);
        let present = |text: Option<&'a str>| text.map_or(Value::Absent, Value::Text);
        match (field, self.request, self.tls, self.upstream) {
            (LogField::Time, ..) => Value::Text(time),
            (LogField::Client, ..) => Value::Text(self.peer),
            (LogField::Tls, _, Some(tls), _) => Value::Text(tls.version),
            (LogField::Cipher, _, Some(tls), _) => Value::Text(tls.cipher),
            (LogField::Sni, _, Some(tls), _) => text(tls.server_name),
            (LogField::Method, Some(request), ..) => Value::Bytes(&request.method),
            (LogField::Target, Some(request), ..) => Value::Bytes(&request.target),
            (LogField::Version, Some(request), ..) => Value::Text(request.version),
            (LogField::Host, Some(request), ..) => bytes(request.host.as_deref()),
            (LogField::Referer, Some(request), ..) => bytes(request.referer.as_deref()),
            (LogField::Agent, Some(request), ..) => bytes(request.agent.as_deref()),
            (LogField::RequestId, Some(request), ..) => present(request.id.as_deref()),
            (LogField::User, Some(request), ..) => present(request.user.as_deref()),
            (LogField::Transaction, ..) => present(self.transaction),
            (LogField::Status, ..) => Value::Number(self.status.into()),
            (LogField::BodyBytes, ..) => Value::Number(self.body_bytes),
            (LogField::Reason, ..) => present(self.reason),
            (LogField::End, ..) => Value::Text(self.interruption.unwrap_or("complete")),
            (LogField::Pool, .., Some(upstream)) => Value::Text(upstream.pool),
            (LogField::Backend, .., Some(upstream)) => text(upstream.backend),
            (LogField::Tries, .., Some(upstream)) => Value::Number(upstream.tries.into()),
            (LogField::FirstByte, .., Some(upstream)) => {
                upstream.first_byte.map_or(Value::Missing, Value::Duration)
            }
            (LogField::Duration, .., Some(upstream)) => Value::Duration(upstream.duration),
            (LogField::Tls | LogField::Cipher | LogField::Sni, _, None, _)
            | (
                LogField::Method
                | LogField::Target
                | LogField::Version
                | LogField::Host
                | LogField::Referer
                | LogField::Agent
                | LogField::RequestId
                | LogField::User,
                None,
                ..,
            )
            | (
                LogField::Pool
                | LogField::Backend
                | LogField::Tries
                | LogField::FirstByte
                | LogField::Duration,
                ..,
                None,
            ) => Value::Absent,
        }
    }

    fn write_combined(&self, lines: &mut Vec<u8>, time: &str) {
        push_all(lines, &[self.peer.as_bytes(), b" - "]);
        match self.request.and_then(|request| request.user.as_deref()) {
            // The field ends at a space.
            Some(user) => user.split(' ').enumerate().for_each(|(at, word)| {
                lines.extend_from_slice(if at == 0 { b"" } else { b"\\x20" });
                push_escaped(lines, word.as_bytes());
            }),
            None => lines.push(b'-'),
        }
        push_all(lines, &[b" [", time.as_bytes(), b"] \""]);
        if let Some(request) = self.request {
            push_escaped(lines, &request.method);
            lines.push(b' ');
            push_escaped(lines, &request.target);
            push_all(lines, &[b" HTTP/", request.version.as_bytes()]);
        }
        let (mut status, mut body_bytes) = (itoa::Buffer::new(), itoa::Buffer::new());
        let status = status.format(self.status).as_bytes();
        let body_bytes = body_bytes.format(self.body_bytes).as_bytes();
        push_all(lines, &[b"\" ", status, b" ", body_bytes, b" \""]);
        let (referer, agent) = self
            .request
            .map_or((None, None), |request| (request.referer.as_deref(), request.agent.as_deref()));
        push_escaped(lines, referer.unwrap_or(b"-"));
        lines.extend_from_slice(b"\" \"");
        push_escaped(lines, agent.unwrap_or(b"-"));
        lines.push(b'"');
        if let Some(reason) = self.reason.or(self.interruption) {
            push_all(lines, &[b" \"", reason.as_bytes(), b"\""]);
        }
    }
}

/// An entry with its time, as a JSON object.
struct JsonEntry<'a> {
    time: &'a str,
    entry: &'a Entry<'a>,
}

impl Serialize for JsonEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut json = serializer.serialize_map(None)?;
        for (field, name) in LogField::ALL {
            match self.entry.value(*field, self.time) {
                Value::Absent => {}
                Value::Missing => json.serialize_entry(name, &None::<()>)?,
                Value::Text(text) => json.serialize_entry(name, text)?,
                Value::Bytes(bytes) => json.serialize_entry(name, &ClientText(bytes))?,
                Value::Number(number) => json.serialize_entry(name, &number)?,
                Value::Duration(duration) => json.serialize_entry(name, &milliseconds(duration))?,
            }
        }
        json.end()
    }
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1_000.0
}

pub(crate) fn push_all(lines: &mut Vec<u8>, parts: &[&[u8]]) {
    parts.iter().for_each(|part| lines.extend_from_slice(part));
}

/// Escapes control characters, quotes, backslashes and bytes above ASCII as nginx does, so that a client cannot end
/// a field or a line.
fn push_escaped(lines: &mut Vec<u8>, mut bytes: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let needs_escape = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=31 | 127..);
    while let Some(at) = bytes.iter().position(needs_escape) {
        let byte = bytes[at];
        let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
        push_all(lines, &[&bytes[..at], b"\\x", &digits]);
        bytes = &bytes[at + 1..];
    }
    lines.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use tollgate_http1::parse_request_head;

    use super::*;

    #[test]
    fn host_of_an_absolute_target_is_logged() {
        let host =
            |head: &[u8]| LoggedRequest::new(&parse_request_head(head).unwrap().unwrap()).host;
        let absolute = b"GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(host(absolute).as_deref(), Some(&b"b"[..]));
        assert_eq!(host(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").as_deref(), Some(&b"a"[..]));
        assert_eq!(host(b"GET / HTTP/1.0\r\n\r\n"), None);
    }
}
