//! Lines of error logs: matches of ModSecurity in nginx and Apache, and of Coraza in Caddy.

use std::borrow::Cow;

use serde_json::Value;

use super::entry::{Content, Entry, LoggedMatch, LoggedMatches, day};

const MARKS: [&str; 2] = ["ModSecurity: ", "Coraza: "];

/// Parses a line. `None` if it is not a match, or if it is not certain which text belongs to the rule and which to the request.
pub(super) fn parse(line: &[u8]) -> Option<Entry> {
    // Lines of other logs, which are most, have no id.
    memchr::memmem::find(line, b"[id ")?;
    let text = String::from_utf8_lossy(line);
    let text = match line.starts_with(b"{") {
        true => Cow::Owned(serde_json::from_str::<Value>(&text).ok()?["msg"].as_str()?.to_owned()),
        false => text,
    };
    let mark = MARKS.iter().find_map(|mark| text.find(mark))?;
    let (start, message) = text.split_at(mark);
    let mut logged = LoggedMatches::default();
    logged.add(message);
    if logged.matches.is_empty() {
        return None;
    }
    logged.transaction = field(message, "unique_id").unwrap_or_default().to_owned();
    logged.method = method(message).unwrap_or_default().to_owned();
    let time = start.split(" [").next().unwrap_or(start);
    Some(Entry {
        client: client(start).map(str::to_owned),
        day: day(time),
        content: Content::Matches(logged),
    })
}

/// Returns the last client that the server names, without its port: `[client 192.0.2.7:4711]`, `[client "192.0.2.7"]`.
fn client(start: &str) -> Option<&str> {
    let (_, rest) = start.rsplit_once("[client ")?;
    let address = rest.split_once(']')?.0.trim_matches('"');
    // An address of IPv6 has more than one colon.
    match address.split_once(':') {
        Some((host, port)) if !port.contains(':') => Some(host),
        _ => Some(address),
    }
}

/// Returns the method that nginx adds: `, request: "GET / HTTP/1.1"`. `None` if a value of the request may have that text.
fn method(message: &str) -> Option<&str> {
    let mut parts = message.split(", request: \"").skip(1);
    let (line, None) = (parts.next()?, parts.next()) else { return None };
    let (method, _) = line.split_once(' ')?;
    method.bytes().all(|byte| byte.is_ascii_uppercase()).then_some(method)
}

impl LoggedMatches {
    /// Adds the match of a message, if it names one.
    pub(super) fn add(&mut self, message: &str) {
        let Some(id) = field(message, "id").and_then(|id| id.parse().ok()) else { return };
        let data = field(message, "data").unwrap_or_default();
        let cause = message.split(" [file \"").next().unwrap_or(message);
        let (variable, value) = (variable(cause, data).to_owned(), value(cause, data));
        self.matches.push(LoggedMatch { id, variable, value });
        self.was_blocked |= is_block(message);
        if self.target.is_empty() {
            field(message, "uri").unwrap_or_default().clone_into(&mut self.target);
        }
    }
}

/// True for a message about a block. Values of the request stand behind the start of a message.
pub(super) fn is_block(message: &str) -> bool {
    let text = MARKS.iter().find_map(|mark| message.strip_prefix(mark)).unwrap_or(message);
    let text = text.strip_prefix("Message: ").unwrap_or(text);
    ["Access denied ", "Action: Intercepted "].iter().any(|start| text.starts_with(start))
}

/// Returns a field, as `[NAME "VALUE"]`. `None` if there are several: a value of the request may contain the text of a field.
fn field<'a>(message: &'a str, name: &str) -> Option<&'a str> {
    let start = format!(" [{name} \"");
    let (_, rest) = message.split_once(&start)?;
    let (value, _) = rest.split_once("\"]")?;
    (!rest.contains(&start)).then_some(value)
}

/// Returns the variable that a match names: ``against variable `ARGS:q'`` (ModSecurity 3), `at ARGS:q.` (2), or `found within
/// ARGS:q: ` in its data.
pub(super) fn variable<'a>(cause: &'a str, data: &'a str) -> &'a str {
    let third = || cause.split_once("against variable `")?.1.split_once('\'').map(|(name, _)| name);
    let second = || {
        let (_, rest) = cause.rsplit_once("\" at ").or_else(|| cause.rsplit_once(" at "))?;
        rest.trim_end().strip_suffix('.')
    };
    let within = || data.split_once(" found within ")?.1.split_once(": ").map(|(name, _)| name);
    let name = third().or_else(within).or_else(second).unwrap_or_default();
    if name.contains(char::is_whitespace) { "" } else { name }
}

/// Returns the value of a match, without the escapes of the log: behind the variable in its data, all of its data, or `(Value: ...)` of
/// ModSecurity 3.
pub(super) fn value(cause: &str, data: &str) -> Vec<u8> {
    let within = || data.split_once(" found within ")?.1.split_once(": ").map(|(_, value)| value);
    let written = || cause.split_once("(Value: `")?.1.rsplit_once("' )").map(|(value, _)| value);
    let text = match within() {
        Some(value) => value,
        None if !data.is_empty() => data,
        None => written().unwrap_or_default(),
    };
    unescaped(text)
}

/// Resolves `\xHH`, and a backslash before another character.
fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let hex = behind.get(1..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = hex.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        rest = match (first, behind.first(), byte) {
            (b'\\', Some(b'x'), Some(byte)) => {
                bytes.push(byte);
                &behind[3..]
            }
            (b'\\', Some(&next), _) => {
                bytes.push(next);
                &behind[1..]
            }
            _ => {
                bytes.push(first);
                behind
            }
        };
    }
    bytes
}
