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
    let (found, target) = logged_match(message)?;
    let mut logged = LoggedMatches { target: target.to_owned(), ..LoggedMatches::default() };
    logged.transaction = field(message, "unique_id").unwrap_or_default().to_owned();
    logged.matches.push(found);
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

/// Returns the match of a message, and the target of the request.
pub(super) fn logged_match(message: &str) -> Option<(LoggedMatch, &str)> {
    let id = field(message, "id")?.parse().ok()?;
    let data = field(message, "data").unwrap_or_default();
    let cause = message.split(" [file \"").next().unwrap_or(message);
    let variable = variable(cause, data).to_owned();
    let target = field(message, "uri").unwrap_or_default();
    Some((LoggedMatch { id, variable, data: data.to_owned() }, target))
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
