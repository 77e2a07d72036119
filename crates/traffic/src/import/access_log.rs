//! Access logs, one request a line: the combined and common formats of nginx, Apache and this gateway, `httplog` of
//! HAProxy, and JSON with known or given names.

use std::io::{self, BufRead, Read};

use serde_json::Value;
use tollgate_http1::unescape_invalid;

use super::time::{LogTime, MICROS_PER_S};
use super::{CONNECTION_HEADERS, Importer, Label, Recorded, Url};

/// Limit of a line; longer ones are not understood.
pub const LINE_BYTES_MAX: u64 = 1 << 20;

/// A request of a log, as bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Logged {
    pub method: Vec<u8>,
    /// Path and query.
    pub target: Vec<u8>,
    /// Such as `HTTP/1.1`.
    pub protocol: Vec<u8>,
    /// Headers, as far as the log has them.
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
    /// True if the log has every header, so that a missing one was not sent.
    pub has_all_headers: bool,
    pub status: Option<u16>,
    /// Length of the body of the response, if the log has it.
    pub body_bytes: Option<u64>,
    /// `Content-Type` of the response.
    pub content_type: Option<String>,
    /// True if the request had a body, which no log contains.
    pub has_body: bool,
    /// True if the log says that the request was blocked; `None` if the log does not say.
    pub was_blocked: Option<bool>,
    /// Start of the request, or its end if the log has no other time.
    pub time: Option<LogTime>,
    /// Address of the client, without its port.
    pub client: Option<Vec<u8>>,
}

/// Reason why a line is not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Problem {
    /// From 1, in bytes.
    pub column: usize,
    pub reason: &'static str,
}

/// Members of a JSON line; members of an object are written as `request.method`. The first that exists is taken.
#[derive(Debug, Clone)]
pub struct Fields {
    fields: [(&'static str, Vec<String>); KNOWN.len()],
}

/// Names of the fields, and the members that they have in well-known logs: of this gateway, Caddy, and the variables of
/// nginx.
const KNOWN: [(&str, &[&str]); 14] = [
    ("method", &["method", "request.method", "request_method"]),
    ("target", &["target", "request.uri", "request_uri", "uri", "path"]),
    ("request", &["request"]),
    ("protocol", &["version", "request.proto", "server_protocol"]),
    ("host", &["host", "request.host", "http_host", "server_name"]),
    ("referer", &["referer", "http_referer"]),
    ("agent", &["agent", "http_user_agent", "user_agent"]),
    ("status", &["status"]),
    ("size", &["body_bytes", "size", "body_bytes_sent"]),
    // Of the response.
    ("type", &["resp_headers.Content-Type", "sent_http_content_type"]),
    ("headers", &["headers", "request.headers"]),
    ("time", &["time", "ts", "msec", "time_iso8601", "time_local", "@timestamp", "timestamp"]),
    // In seconds, of a log whose time is the end of the request.
    ("duration", &["request_time"]),
    ("client", &["client", "request.client_ip", "request.remote_ip", "remote_addr", "client_ip"]),
];

/// A longer duration of a request is ignored.
const DURATION_S_MAX: f64 = 24.0 * 3600.0;

impl Default for Fields {
    fn default() -> Self {
        let owned = |(name, members): (&'static str, &[&str])| {
            (name, members.iter().map(|member| (*member).to_owned()).collect())
        };
        Self { fields: KNOWN.map(owned) }
    }
}

impl Fields {
    /// Takes a field from this member alone.
    ///
    /// # Errors
    ///
    /// No field has the name: the names.
    pub fn set(&mut self, name: &str, member: &str) -> Result<(), String> {
        match self.fields.iter_mut().find(|(known, _)| *known == name) {
            Some((_, members)) => {
                *members = vec![member.to_owned()];
                Ok(())
            }
            None => Err(format!(
                "unknown field `{name}`; expected one of {}",
                KNOWN.map(|(name, _)| name).join(", ")
            )),
        }
    }

    fn find<'a>(&self, entry: &'a Value, name: &str) -> Option<&'a Value> {
        let (_, members) = self.fields.iter().find(|(known, _)| *known == name)?;
        let member = |path: &String| match entry.get(path) {
            Some(value) => Some(value),
            None => path.split('.').try_fold(entry, |object, key| object.get(key)),
        };
        members.iter().find_map(member).filter(|value| !value.is_null())
    }

    fn text<'a>(&self, entry: &'a Value, name: &str) -> Option<&'a str> {
        self.find(entry, name)?.as_str()
    }

    fn time(&self, entry: &Value) -> Option<LogTime> {
        let ended = LogTime::from_json(self.find(entry, "time")?)?;
        // `duration` has a known unit in Caddy's log alone.
        let of_caddy = || {
            entry.get("request").filter(|request| request.is_object()).and(entry.get("duration"))
        };
        let duration = self.find(entry, "duration").or_else(of_caddy);
        let seconds = duration
            .and_then(|value| value.as_f64().or_else(|| value.as_str()?.parse().ok()))
            .filter(|seconds: &f64| (0.0..=DURATION_S_MAX).contains(seconds));
        // A time in whole seconds would move to the second before.
        match seconds.filter(|_| !ended.is_whole_second) {
            Some(seconds) => {
                let us = (seconds * MICROS_PER_S as f64) as i64;
                Some(LogTime { unix_us: ended.unix_us.saturating_sub(us), ..ended })
            }
            None => Some(ended),
        }
    }

    /// Returns a number, which may be written as text.
    fn number(&self, entry: &Value, name: &str) -> Option<u64> {
        let value = self.find(entry, name)?;
        value.as_u64().or_else(|| value.as_str()?.parse().ok())
    }
}

/// Adds all requests of a log.
///
/// # Errors
///
/// The log cannot be read. Lines that are not understood are counted as skipped.
pub fn import(
    mut log: impl BufRead,
    file: &str,
    fields: &Fields,
    label: &Label,
    importer: &mut Importer,
) -> io::Result<()> {
    let mut line = Vec::new();
    let mut number = 0_u64;
    let mut is_rest = false;
    loop {
        line.clear();
        if (&mut log).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let is_complete = line.last() == Some(&b'\n') || (line.len() as u64) < LINE_BYTES_MAX;
        let was_rest = std::mem::replace(&mut is_rest, !is_complete);
        if was_rest {
            continue;
        }
        number += 1;
        let text = line.trim_ascii_end();
        if text.is_empty() {
            continue;
        }
        let parsed = if is_complete {
            parse(text, fields).and_then(Logged::into_recorded)
        } else {
            Err(Problem { column: 1, reason: "the line is longer than 1 MiB" })
        };
        match parsed {
            Ok(recorded) => importer.add(recorded, label, &format_args!("{file}:{number}:1")),
            Err(Problem { column, reason }) => {
                let place = format_args!("{file}:{number}:{column}");
                importer.skip(reason, &place, &String::from_utf8_lossy(text));
            }
        }
    }
}

pub fn parse(line: &[u8], fields: &Fields) -> Result<Logged, Problem> {
    match line.first() {
        Some(b'{') => from_json(line, fields),
        _ => from_text(line),
    }
}

impl Logged {
    fn header(&mut self, name: &str, value: Option<Vec<u8>>) {
        if let Some(value) = value.filter(|value| !value.is_empty() && value != b"-") {
            self.headers.push((name.as_bytes().to_vec(), value));
        }
    }

    fn request_line(&mut self, line: &[u8], column: usize) -> Result<(), Problem> {
        let problem = |reason| Problem { column, reason };
        let mut words = line.split(|&byte| byte == b' ');
        let (Some(method), Some(target), Some(protocol), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(problem("no request line of three words"));
        };
        if !protocol.starts_with(b"HTTP/") {
            return Err(problem("the request line does not end in HTTP/VERSION"));
        }
        self.method = method.to_vec();
        self.protocol = protocol.to_vec();
        self.has_body = has_body(method);
        self.set_target(target);
        Ok(())
    }

    /// Takes a target; that of a proxy, or of HTTP/2 in HAProxy's log, is a URL.
    fn set_target(&mut self, target: &[u8]) {
        let url = std::str::from_utf8(target).ok().filter(|text| text.contains("://"));
        match url.filter(|text| !text.starts_with('/')).and_then(Url::parse) {
            Some(url) => {
                self.target = url.target.into_owned().into_bytes();
                self.header("Host", Some(url.host.as_bytes().to_vec()));
            }
            None => self.target = target.to_vec(),
        }
    }

    /// Converts bytes to text. A list is text.
    fn into_recorded(self) -> Result<Recorded, Problem> {
        let text = |bytes: Vec<u8>| {
            let reason = "the request has bytes that are not UTF-8";
            String::from_utf8(bytes).map_err(|_invalid| Problem { column: 1, reason })
        };
        let is_kept = |(name, _): &(Vec<u8>, Vec<u8>)| {
            !CONNECTION_HEADERS.iter().any(|one| name.eq_ignore_ascii_case(one.as_bytes()))
        };
        let header = |(name, value)| Ok((text(name)?, text(value)?));
        let headers = self.headers.into_iter().filter(is_kept).map(header);
        Ok(Recorded {
            method: text(self.method)?,
            target: text(self.target)?,
            headers: headers.collect::<Result<_, _>>()?,
            body: Vec::new(),
            status: self.status,
            body_bytes: self.body_bytes,
            content_type: self.content_type,
            lacks_body: self.has_body,
            time: self.time,
            client: self.client.map(|client| String::from_utf8_lossy(&client).into_owned()),
        })
    }
}

fn has_body(method: &[u8]) -> bool {
    matches!(method, b"POST" | b"PUT" | b"PATCH")
}

/// Parses a line whose request is in quotes: combined, common, or `httplog`.
fn from_text(line: &[u8]) -> Result<Logged, Problem> {
    let no_quotes = Problem { column: 1, reason: "no request in quotes" };
    let start = line.iter().position(|&byte| byte == b'"').ok_or(no_quotes)?;
    let not_closed = Problem { column: start + 1, ..no_quotes };
    let origin = origin(&line[..start]);
    let time = origin.time.and_then(LogTime::from_log);
    let mut logged = Logged { time, ..Logged::default() };
    if let Some(status) = httplog_status(&line[..start]) {
        // HAProxy writes a backslash as it is.
        let request = &line[start + 1..];
        let end = request.iter().position(|&byte| byte == b'"').ok_or(not_closed)?;
        logged.request_line(&unescape_haproxy(&request[..end]), start + 1)?;
        logged.status = Some(status);
        logged.client = origin.words.last().map(|client| without_port(client).to_vec());
        logged.header("Accept", Some(b"*/*".to_vec()));
        return Ok(logged);
    }
    let mut rest = &line[start..];
    let request = quoted(&mut rest).ok_or(not_closed)?;
    let numbers = line.len() - rest.len();
    let mut words = rest.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    logged.request_line(&request, start + 1)?;
    logged.status = words.next().and_then(number);
    if logged.status.is_none() {
        return Err(Problem { column: numbers + 2, reason: "no status after the request" });
    }
    // `-` is a body of no bytes.
    logged.body_bytes = words.next().map(|size| number(size).unwrap_or(0));
    let host = virtual_host(&origin.words);
    logged.client = client(&origin.words).map(<[u8]>::to_vec);
    if let Some(host) = host {
        logged.header("Host", Some(host.to_vec()));
    }
    let referer = quoted(&mut rest);
    let agent = quoted(&mut rest);
    logged.header("User-Agent", agent);
    logged.header("Accept", Some(b"*/*".to_vec()));
    logged.header("Referer", referer);
    Ok(logged)
}

fn number<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Start of a line, before its request.
struct Origin<'a> {
    /// Words before the time: client, identity and user, and what precedes them.
    words: Vec<&'a [u8]>,
    /// Without its brackets.
    time: Option<&'a [u8]>,
}

/// Splits the start of a line at the first word that starts with a bracket.
fn origin(before: &[u8]) -> Origin<'_> {
    let starts =
        |(index, byte): (usize, &u8)| *byte == b'[' && (index == 0 || before[index - 1] == b' ');
    let bracket = before.iter().enumerate().position(starts);
    let words = before[..bracket.unwrap_or(0)].split(|&byte| byte == b' ');
    let time = bracket.and_then(|at| before[at + 1..].split(|&byte| byte == b']').next());
    Origin { words: words.filter(|word| !word.is_empty()).collect(), time }
}

/// Returns the client of a line that ends in `CLIENT IDENTITY USER`. A prefix of syslog may precede it.
fn client<'a>(words: &[&'a [u8]]) -> Option<&'a [u8]> {
    let is_identity = |index: &usize| words[*index] == b"-";
    let before_user = words.len().checked_sub(2).filter(|index| *index > 0);
    let identity = before_user
        .filter(is_identity)
        // A user of several words.
        .or_else(|| (1..words.len()).find(is_identity))
        .or(before_user);
    identity.map(|index| words[index - 1]).or(words.first().copied())
}

/// Returns an address without the port that HAProxy adds to it.
fn without_port(client: &[u8]) -> &[u8] {
    let colon = client.iter().rposition(|&byte| byte == b':');
    colon.map_or(client, |colon| &client[..colon])
}

/// Returns the host of the format `vhost_combined`, which starts with it: `NAME:PORT CLIENT IDENTITY USER [TIME]`.
fn virtual_host<'a>(words: &[&'a [u8]]) -> Option<&'a [u8]> {
    let &[host, _, _, _] = words else { return None };
    let colon = host.iter().rposition(|&byte| byte == b':')?;
    match &host[colon + 1..] {
        b"80" | b"443" => Some(&host[..colon]),
        port if port.iter().all(u8::is_ascii_digit) => Some(host),
        _ => None,
    }
}

/// Returns the status of a line of HAProxy's `httplog`: the word after the five timers, such as `10/0/30/69/109`.
fn httplog_status(before: &[u8]) -> Option<u16> {
    let mut words = before.split(|&byte| byte == b' ');
    let is_timers = |word: &[u8]| {
        word.iter().filter(|&&byte| byte == b'/').count() == 4
            && word.iter().all(|byte| byte.is_ascii_digit() || b"/+-".contains(byte))
    };
    words.find(|word| is_timers(word))?;
    number(words.next()?)
}

/// Replaces `#HH`, as HAProxy writes bytes that are not printable.
fn unescape_haproxy(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let digits = (first == b'#').then(|| after.get(..2)).flatten();
        let byte = digits
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        plain.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    plain
}

/// Takes the next field in quotes, without escapes: `\xHH` of nginx and Apache, `\"`, `\\` and `\n` of Apache.
fn quoted(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let start = rest.iter().position(|&byte| byte == b'"')?;
    *rest = &rest[start + 1..];
    let mut field = Vec::new();
    loop {
        match rest {
            [b'"', tail @ ..] => {
                *rest = tail;
                return Some(field);
            }
            [b'\\', b'x', high, low, tail @ ..] => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).ok()?;
                field.push(u8::from_str_radix(digits, 16).ok()?);
                *rest = tail;
            }
            [b'\\', byte, tail @ ..] => {
                field.push(match byte {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    other => *other,
                });
                *rest = tail;
            }
            [byte, tail @ ..] => {
                field.push(*byte);
                *rest = tail;
            }
            [] => return None,
        }
    }
}

fn from_json(line: &[u8], fields: &Fields) -> Result<Logged, Problem> {
    let (is_escaped, entry) = match serde_json::from_slice::<Value>(line) {
        // Only this gateway's logs have this member.
        Ok(entry) => (entry.get("target").is_some(), entry),
        Err(error) => {
            let problem = Problem { column: error.column(), reason: "invalid JSON" };
            (true, serde_json::from_str(&with_escaped_bytes(line)).map_err(|_second| problem)?)
        }
    };
    let bytes = |text: &str| {
        if is_escaped { unescape_invalid(text) } else { text.as_bytes().to_vec() }
    };
    let problem = |reason| Problem { column: 1, reason };
    let mut logged = Logged::default();
    match (fields.text(&entry, "method"), fields.text(&entry, "target")) {
        (Some(method), Some(target)) => {
            logged.method = bytes(method);
            logged.has_body = has_body(&logged.method);
            logged.protocol = match fields.text(&entry, "protocol") {
                Some(version) if version.starts_with("HTTP/") => bytes(version),
                Some(version) => format!("HTTP/{version}").into_bytes(),
                None => b"HTTP/1.1".to_vec(),
            };
            logged.set_target(&bytes(target));
        }
        _ => match fields.text(&entry, "request") {
            Some(line) => logged.request_line(&bytes(line), 1)?,
            None => return Err(problem("no method and target; name their members with --field")),
        },
    }
    let size = entry.get("request_body_bytes").or_else(|| entry.get("bytes_read"));
    if let Some(bytes) = size.and_then(Value::as_u64) {
        logged.has_body = bytes > 0;
    }
    let text = |name| fields.text(&entry, name).map(bytes);
    let headers = fields.find(&entry, "headers").map(|headers| recorded_headers(headers, bytes));
    logged.has_all_headers = headers.is_some();
    let has_host = |headers: &[(Vec<u8>, Vec<u8>)]| {
        headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(b"host"))
    };
    let headers_have_host = headers.as_deref().is_some_and(has_host);
    if !headers_have_host && !has_host(&logged.headers) {
        logged.header("Host", text("host"));
    }
    match headers {
        Some(headers) => logged.headers.extend(headers),
        None => {
            logged.header("User-Agent", text("agent"));
            logged.header("Accept", Some(b"*/*".to_vec()));
            logged.header("Referer", text("referer"));
        }
    }
    logged.status = fields.number(&entry, "status").and_then(|status| u16::try_from(status).ok());
    logged.body_bytes = fields.number(&entry, "size");
    let content_type = fields.find(&entry, "type");
    // Caddy logs a list of values.
    let content_type = content_type.and_then(|value| value.get(0).unwrap_or(value).as_str());
    logged.content_type = content_type.map(str::to_owned);
    logged.time = fields.time(&entry);
    logged.client = fields.text(&entry, "client").map(|client| client.as_bytes().to_vec());
    let action = entry.get("action").and_then(Value::as_str);
    logged.was_blocked = action.map(|action| action == "blocked");
    Ok(logged)
}

/// Headers as pairs, as in the audit log of this gateway, or as an object of lists, as in Caddy's log.
fn recorded_headers(headers: &Value, bytes: impl Fn(&str) -> Vec<u8>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let mut add = |name: &str, value: &Value| {
        found.extend(value.as_str().map(|value| (bytes(name), bytes(value))));
    };
    match headers {
        Value::Array(pairs) => {
            for pair in pairs {
                if let (Some(name), Some(value)) =
                    (pair.get(0).and_then(Value::as_str), pair.get(1))
                {
                    add(name, value);
                }
            }
        }
        Value::Object(lists) => {
            for (name, values) in lists {
                match values {
                    Value::Array(values) => values.iter().for_each(|value| add(name, value)),
                    value => add(name, value),
                }
            }
        }
        _ => {}
    }
    found
}

/// Makes JSON of a line of nginx, whose format writes bytes above ASCII as they are (`escape=json`) or as `\xHH`, which is no
/// escape of JSON. The texts in it are for [`unescape_invalid`].
fn with_escaped_bytes(line: &[u8]) -> String {
    let mut text = String::with_capacity(line.len() + 64);
    for chunk in line.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|byte| format!(r"\x{byte:02X}")));
    }
    let mut valid = String::with_capacity(text.len() + 64);
    let mut rest = text.as_str();
    while let Some(at) = rest.find('\\') {
        valid.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        match rest.as_bytes() {
            [b'x', ..] => valid.push_str(r"\\"),
            // A backslash that was sent.
            [b'\\', b'x', ..] => {
                valid.push_str(r"\\x5C");
                rest = &rest[1..];
            }
            _ => {
                valid.push('\\');
                let length = rest.chars().next().map_or(0, char::len_utf8);
                let (escaped, after) = rest.split_at(length);
                valid.push_str(escaped);
                rest = after;
            }
        }
    }
    valid.push_str(rest);
    valid
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::tests::{benign, importer, lines};

    fn parsed(line: &str) -> Logged {
        parse(line.as_bytes(), &Fields::default()).unwrap_or_else(|problem| panic!("{problem:?}"))
    }

    fn headers(logged: &Logged) -> Vec<String> {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        let headers = &logged.headers;
        headers.iter().map(|(name, value)| format!("{}: {}", text(name), text(value))).collect()
    }

    #[test]
    fn combined_and_common_lines_are_unescaped() {
        let logged = parsed(
            r#"10.0.0.1 - - [21/Nov/2026:20:38:08 +0100] "GET /a\x22b?q=\xC3\xA9\\ HTTP/1.1" 200 26 "-" "x/1 (\"y\")""#,
        );
        assert_eq!(logged.target, "/a\"b?q=é\\".as_bytes());
        assert_eq!(headers(&logged), [r#"User-Agent: x/1 (\"y\")"#, "Accept: */*"]);
        assert_eq!(
            (logged.status, logged.body_bytes, logged.has_body),
            (Some(200), Some(26), false)
        );
        let logged = parsed(r#"::1 - bob [21/Nov/2026:20:38:08 +0100] "POST / HTTP/1.0" 302 -"#);
        assert_eq!((logged.status, logged.body_bytes, logged.has_body), (Some(302), Some(0), true));
        let logged = parsed(
            r#"shop.example:8080 10.0.0.1 - - [21/Nov/2026:20:38:08 +0100] "GET / HTTP/1.1" 200 26 "http://a/" "b""#,
        );
        assert_eq!(
            headers(&logged),
            ["Host: shop.example:8080", "User-Agent: b", "Accept: */*", "Referer: http://a/"]
        );
    }

    /// Time of the second 2026-11-21T19:38:08Z plus these microseconds, and the client.
    fn origin_of(line: &str) -> (Option<(i64, bool)>, Option<String>) {
        let Logged { time, client, .. } = parsed(line);
        let time = time.map(|time| (time.unix_us - 1_795_289_888_000_000, time.is_whole_second));
        (time, client.map(|client| String::from_utf8(client).unwrap()))
    }

    #[test]
    fn every_format_has_times_and_clients() {
        let request = r#""GET / HTTP/1.1""#;
        for (line, time, client) in [
            // nginx and Apache, combined and common, and this gateway.
            (format!(r#"10.0.0.1 - - [21/Nov/2026:20:38:08 +0100] {request} 200 26 "-" "x""#), Some((0, true)), "10.0.0.1"),
            (format!("::1 - bob [21/Nov/2026:19:38:09 +0000] {request} 200 26"), Some((1_000_000, true)), "::1"),
            // Apache's `vhost_combined`.
            (format!("shop.example:80 ::1 - - [21/Nov/2026:19:38:08 +0000] {request} 200 26"), Some((0, true)), "::1"),
            // HAProxy, also behind syslog.
            (format!("127.0.0.1:3 [21/Nov/2026:19:38:08.655] web app/s1 0/0/0/1/1 200 99 - - ---- 1/1/0/0/0 0/0 {request}"), Some((655_000, false)), "127.0.0.1"),
            (format!("Nov 21 19:38:08 host haproxy[7]: ::1:3 [21/Nov/2026:19:38:08.001] web app/s1 0/0/0/1/1 200 99 - - ---- 1/1/0/0/0 0/0 {{a}} {request}"), Some((1_000, false)), "::1"),
            // Combined behind syslog, in the formats of RFC 3164 and RFC 5424, and a user of two words.
            (format!("Nov 21 19:38:08 host nginx: 10.0.0.5 - - [21/Nov/2026:19:38:08 +0000] {request} 200 26"), Some((0, true)), "10.0.0.5"),
            (format!("<13>1 2026-11-21T19:38:08Z host nginx - - - 10.0.0.6 - bob [21/Nov/2026:19:38:08 +0000] {request} 200 26"), Some((0, true)), "10.0.0.6"),
            (format!("10.0.0.7 - bob smith [21/Nov/2026:19:38:08 +0000] {request} 200 26"), Some((0, true)), "10.0.0.7"),
            // A duration of more than a day is ignored.
            (r#"{"request":"GET / HTTP/1.1","msec":"1795289888.750","request_time":"1e10","remote_addr":"10.0.0.4"}"#.to_owned(), Some((750_000, false)), "10.0.0.4"),
            // Caddy: the time is that of the end.
            (r#"{"ts":1795289888.75,"request":{"remote_ip":"10.0.0.9","client_ip":"10.0.0.2","method":"GET","uri":"/"},"duration":0.25,"status":200}"#.to_owned(), Some((500_000, false)), "10.0.0.2"),
            // This gateway.
            (r#"{"time":"2026-11-21T20:38:08+01:00","client":"10.0.0.3","method":"GET","target":"/","status":200,"duration_ms":70.5}"#.to_owned(), Some((0, true)), "10.0.0.3"),
            // nginx.
            (r#"{"request":"GET / HTTP/1.1","msec":"1795289888.750","request_time":"0.750","remote_addr":"10.0.0.4"}"#.to_owned(), Some((0, false)), "10.0.0.4"),
            (r#"{"request":"GET / HTTP/1.1","time_iso8601":"2026-11-21T19:38:08Z","request_time":"0.750","remote_addr":"10.0.0.4"}"#.to_owned(), Some((0, true)), "10.0.0.4"),
            (format!("a - - [t] {request} 200 5"), None, "a"),
        ] {
            assert_eq!(origin_of(&line), (time, Some(client.to_owned())), "{line}");
        }
        let neither = (None, None);
        assert_eq!(origin_of(r#"{"method":"GET","target":"/","duration":5}"#), neither);
    }

    #[test]
    fn httplog_has_its_status_before_the_request() {
        let logged = parsed(
            r#"Nov 23 18:00:00 host haproxy[7]: 127.0.0.1:3 [23/Nov/2026:18:00:00.655] web app/s1 10/0/30/69/+109 404 2750 - - ---- 1/1/1/1/0 0/0 {shop|x} "GET /a#22b#23 HTTP/1.1""#,
        );
        assert_eq!((logged.status, logged.body_bytes), (Some(404), None));
        assert_eq!(logged.target, b"/a\"b#");
        let logged = parsed(
            r#"127.0.0.1:3 [23/Nov/2026:18:00:00.655] web app/s1 0/0/0/1/1 200 99 - - ---- 1/1/0/0/0 0/0 "GET https://shop.example/a?b HTTP/2.0""#,
        );
        assert_eq!(
            (logged.target.as_slice(), headers(&logged)[0].as_str()),
            (&b"/a?b"[..], "Host: shop.example")
        );
    }

    #[test]
    fn json_has_known_or_given_members() {
        let caddy = parsed(
            r#"{"level":"info","ts":1.5,"request":{"proto":"HTTP/2.0","method":"PUT","host":"a:81","uri":"/b?c","headers":{"User-Agent":["curl/8"],"Te":["trailers"],"Cookie":["REDACTED"]}},"bytes_read":0,"size":9,"status":201}"#,
        );
        assert_eq!(
            headers(&caddy),
            ["Host: a:81", "Cookie: REDACTED", "Te: trailers", "User-Agent: curl/8"]
        );
        assert_eq!((caddy.status, caddy.body_bytes, caddy.has_body), (Some(201), Some(9), false));
        let audit = parsed(
            r#"{"time":"t","method":"POST","target":"/?q=1","version":"1.1","headers":[["Host","a"],["X","\u00e9\\xFF\\xC0\\xAF"]],"action":"blocked","request_body_bytes":0}"#,
        );
        assert_eq!(headers(&audit), ["Host: a", r"X: \xc3\xa9\xff\xc0\xaf"]);
        assert_eq!((audit.has_body, audit.was_blocked), (false, Some(true)));
        let access = parsed(
            r#"{"client":"a","method":"POST","target":"/","version":"1.1","host":null,"referer":"r","agent":"x"}"#,
        );
        assert_eq!(headers(&access), ["User-Agent: x", "Accept: */*", "Referer: r"]);
        assert!(access.has_body);
        let nginx = parsed(
            r#"{"request":"GET /x HTTP/1.1","status":"304","body_bytes_sent":"0","http_host":"b"}"#,
        );
        assert_eq!(
            (nginx.status, nginx.body_bytes, headers(&nginx)[0].as_str()),
            (Some(304), Some(0), "Host: b")
        );
        let mut fields = Fields::default();
        for (name, member) in [("method", "http.verb"), ("target", "u"), ("status", "http.code")] {
            fields.set(name, member).unwrap();
        }
        let line = br#"{"http":{"verb":"GET","code":500},"u":"/y","status":200}"#;
        let own = parse(line, &fields).unwrap();
        assert_eq!((own.target.as_slice(), own.status), (&b"/y"[..], Some(500)));
        assert!(
            fields
                .set("verb", "x")
                .unwrap_err()
                .starts_with("unknown field `verb`; expected one of method,")
        );
    }

    #[test]
    fn backslashes_of_httplog_are_kept() {
        let line = r#"127.0.0.1:3 [23/Nov/2026:18:00:00.655] web app/s1 0/0/0/1/1 200 99 - - ---- 1/1/0/0/0 0/0 "GET /..\..\win.ini?a=\x41\ HTTP/1.1""#;
        assert_eq!(parsed(line).target, br"/..\..\win.ini?a=\x41\");
    }

    #[test]
    fn bytes_above_ascii_are_those_of_the_request() {
        for (line, target) in [
            // UTF-8, also where each character could be a byte of Latin-1.
            (&br#"{"method":"GET","target":"/\u00e9?q=\u00c3\u00bc"}"#[..], "/é?q=Ã¼".as_bytes()),
            ("{\"request\":{\"method\":\"GET\",\"uri\":\"/ü\"}}".as_bytes(), "/ü".as_bytes()),
            // This gateway.
            (br#"{"method":"GET","target":"/\\xC0\\xAF\\x5CxC0"}"#, b"/\xc0\xaf\\xC0"),
            // Others log a backslash as it is.
            (br#"{"request":{"method":"GET","uri":"/?q=\\x3C"}}"#, br"/?q=\x3C"),
            // nginx with `escape=json`, and without.
            (b"{\"request\":\"GET /\xc0\xaf\\\\xC0 HTTP/1.1\"}", b"/\xc0\xaf\\xC0"),
            (
                br#"{"request":"GET /\xC0\xAF\x5C\x22\x5Cx3C HTTP/1.1","agent":"\x22"}"#,
                b"/\xc0\xaf\\\"\\x3C",
            ),
        ] {
            let logged = parse(line, &Fields::default());
            let logged =
                logged.unwrap_or_else(|problem| panic!("{}: {problem:?}", line.escape_ascii()));
            let found = logged.target.escape_ascii().to_string();
            assert_eq!(found, target.escape_ascii().to_string(), "{}", line.escape_ascii());
        }
        let mut importer = importer();
        let line = r#"{"request":{"method":"GET","host":"a","uri":"/caf\u00e9"},"status":200}"#;
        import(line.as_bytes(), "a", &Fields::default(), &benign(), &mut importer).unwrap();
        assert!(lines(&importer)[1].contains(r#""path":"/café""#), "{:?}", lines(&importer));
    }

    #[test]
    fn equal_requests_are_one_and_bad_lines_are_counted() {
        let fine = |path: &str| format!("a - - [t] \"GET {path} HTTP/1.1\" 200 5 \"-\" \"x\"\n");
        let log = [
            fine("/a"),
            fine("/b?token=abc"),
            fine("/a"),
            "\n".to_owned(),
            "a - - [t] \"\" 400 5 \"-\" \"-\"\n".to_owned(),
            "{\"method\":\"GET\",}\n".to_owned(),
            fine("/b?token=xyz"),
            fine("*"),
            "no request\n".to_owned(),
            "a - - [t] \"GET / HTTP/1.1\" - -".to_owned(),
        ]
        .concat();
        let mut importer = importer();
        import(log.as_bytes(), "a.log", &Fields::default(), &benign(), &mut importer).unwrap();
        let lines = lines(&importer);
        assert_eq!(
            lines,
            [
                r#"{"tollgate_mix":1,"title":"test","requests":2,"templates":[{"name":"GET 200","class":"benign","status":200}]}"#,
                r#"{"template":"GET 200","weight":2,"path":"/a","headers":["Host: localhost","User-Agent: x","Accept: */*"],"body_bytes":5,"response":{"status":200,"bytes":5}}"#,
                r#"{"template":"GET 200","weight":2,"path":"/b?token=xxx","headers":["Host: localhost","User-Agent: x","Accept: */*"],"body_bytes":5,"response":{"status":200,"bytes":5}}"#,
            ]
        );
        assert_eq!((importer.requests(), importer.masked(), importer.without_body()), (4, 2, 0));
        let skipped: Vec<String> = importer
            .skipped()
            .iter()
            .map(|(reason, skipped)| format!("{reason}: {} {}", skipped.count, skipped.first))
            .collect();
        assert_eq!(
            skipped,
            [
                "invalid JSON: 1 a.log:6:17: {\\\"method\\\":\\\"GET\\\",}",
                "no request in quotes: 1 a.log:9:1: no request",
                "no request line of three words: 1 a.log:5:11: a - - [t] \\\"\\\" 400 5 \\\"-\\\" \\\"-\\\"",
                "no status after the request: 1 a.log:10:28: a - - [t] \\\"GET / HTTP/1.1\\\" - -",
                "the target is not a path: 1 a.log:8:1: GET *",
            ]
        );
    }
}
