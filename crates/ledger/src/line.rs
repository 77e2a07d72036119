//! What a line says about a request, in either format.

use std::borrow::Cow;
use std::io::Write as _;
use std::time::Duration;

use jiff::Zoned;
use tollgate_wire::{RequestHead, Version};

/// How a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// The combined log format of Apache and nginx.
    Combined,
    /// One JSON object a line.
    Json,
}

/// The status of a request that ended without an answer, which nginx writes so too.
pub const UNANSWERED: u16 = 499;

/// What a request was, kept until its answer is known.
#[derive(Clone, Debug)]
pub struct Entry {
    method: Box<[u8]>,
    target: Box<[u8]>,
    version: Version,
    host: Option<Box<[u8]>>,
    referer: Option<Box<[u8]>>,
    agent: Option<Box<[u8]>>,
}

/// A request and what became of it.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// Who asked: an address, or `unix:`.
    pub peer: &'a str,
    /// What was asked. None: it could not be read.
    pub entry: Option<&'a Entry>,
    /// The answer's status; [`UNANSWERED`] if there was none.
    pub status: u16,
    /// The bytes of the answer's body that were sent.
    pub body_bytes: u64,
    /// Where the answer came from, if the server did not give it itself. In JSON only.
    pub upstream: Option<Upstream<'a>>,
}

/// Where an answer came from.
#[derive(Clone, Copy, Debug)]
pub struct Upstream<'a> {
    /// The pool's name.
    pub pool: &'a str,
    /// The backend's address. None: none had it.
    pub backend: Option<&'a str>,
    /// How many backends were tried.
    pub tries: usize,
    /// From the request's head to the end of the answer.
    pub duration: Duration,
}

/// A moment as the lines tell it; made anew each second.
#[derive(Debug, Default)]
pub(crate) struct Second {
    unix: i64,
    text: String,
}

impl Entry {
    /// What a head asks for.
    #[must_use]
    pub fn new(head: &RequestHead<'_>) -> Self {
        let header = |name| head.headers.first(name).map(Box::from);
        Self {
            method: head.method.as_bytes().into(),
            target: head.target.as_bytes().into(),
            version: head.version,
            host: header("Host"),
            referer: header("Referer"),
            agent: header("User-Agent"),
        }
    }

    fn minor(&self) -> u8 {
        if self.version == Version::Http10 { 0 } else { 1 }
    }
}

impl Line<'_> {
    /// Writes it to the end of `lines`.
    pub(crate) fn write(&self, lines: &mut Vec<u8>, format: LogFormat, time: &str) {
        match format {
            LogFormat::Combined => self.write_combined(lines, time),
            LogFormat::Json => self.write_json(lines, time),
        }
        lines.push(b'\n');
    }

    fn write_combined(&self, lines: &mut Vec<u8>, time: &str) {
        let Self { peer, status, body_bytes, .. } = self;
        put(lines, format_args!("{peer} - - [{time}] \""));
        if let Some(entry) = self.entry {
            push_escaped(lines, &entry.method);
            lines.push(b' ');
            push_escaped(lines, &entry.target);
            put(lines, format_args!(" HTTP/1.{}", entry.minor()));
        }
        put(lines, format_args!("\" {status} {body_bytes} \""));
        push_escaped(lines, self.header(|entry| &entry.referer));
        lines.extend_from_slice(b"\" \"");
        push_escaped(lines, self.header(|entry| &entry.agent));
        lines.push(b'"');
    }

    fn header(&self, of: impl Fn(&Entry) -> &Option<Box<[u8]>>) -> &[u8] {
        self.entry.and_then(|entry| of(entry).as_deref()).unwrap_or(b"-")
    }

    fn write_json(&self, lines: &mut Vec<u8>, time: &str) {
        put(
            lines,
            format_args!("{{\"time\":\"{time}\",\"client\":{}", string(self.peer.as_bytes())),
        );
        if let Some(entry) = self.entry {
            push_member(lines, "method", Some(&entry.method));
            push_member(lines, "target", Some(&entry.target));
            put(lines, format_args!(",\"version\":\"1.{}\"", entry.minor()));
            push_member(lines, "host", entry.host.as_deref());
            push_member(lines, "referer", entry.referer.as_deref());
            push_member(lines, "agent", entry.agent.as_deref());
        }
        put(lines, format_args!(",\"status\":{},\"body_bytes\":{}", self.status, self.body_bytes));
        if let Some(upstream) = &self.upstream {
            push_member(lines, "pool", Some(upstream.pool.as_bytes()));
            push_member(lines, "backend", upstream.backend.map(str::as_bytes));
            let micros = upstream.duration.as_micros();
            put(
                lines,
                format_args!(
                    ",\"tries\":{},\"duration_ms\":{}.{:03}",
                    upstream.tries,
                    micros / 1000,
                    micros % 1000
                ),
            );
        }
        lines.push(b'}');
    }
}

impl Second {
    /// This moment, as the lines of this format tell it.
    pub(crate) fn text(&mut self, now: &Zoned, format: LogFormat) -> &str {
        let unix = now.timestamp().as_second();
        if self.unix != unix || self.text.is_empty() {
            let form = match format {
                LogFormat::Combined => "%d/%b/%Y:%H:%M:%S %z",
                LogFormat::Json => "%Y-%m-%dT%H:%M:%S%:z",
            };
            *self = Self { unix, text: now.strftime(form).to_string() };
        }
        &self.text
    }
}

fn put(lines: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // A vector takes all that is written.
    lines.write_fmt(text).ok();
}

fn push_member(lines: &mut Vec<u8>, name: &str, value: Option<&[u8]>) {
    match value {
        Some(value) => put(lines, format_args!(",\"{name}\":{}", string(value))),
        None => put(lines, format_args!(",\"{name}\":null")),
    }
}

/// A text as a JSON string. Bytes that are not UTF-8 are taken for Latin-1, so that each can be told
/// from the others.
fn string(bytes: &[u8]) -> serde_json::Value {
    let text: Cow<'_, str> = match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => bytes.iter().copied().map(char::from).collect::<String>().into(),
    };
    text.into_owned().into()
}

/// Nothing that a client sends ends a field or a line: what is not plain text, and quotes and
/// backslashes, stand there as nginx writes them.
fn push_escaped(lines: &mut Vec<u8>, bytes: &[u8]) {
    for &byte in bytes {
        match byte {
            b'"' | b'\\' | 0..=31 | 127.. => put(lines, format_args!("\\x{byte:02X}")),
            _ => lines.push(byte),
        }
    }
}
