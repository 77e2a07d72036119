//! Lines of error logs: matches of ModSecurity in nginx and Apache, and of Coraza in Caddy.
//!
//! nginx and ModSecurity 3 do not escape quotes in values of the request, so a value may imitate the end of a field, or a whole line.
//! A message is read only if it has each field once, and if the text before it has the form that the server writes.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::entry::{Content, Entry, LoggedMatch, LoggedMatches, day};

/// Text of a server before a message: the time, and the client.
static START: LazyLock<Regex> = LazyLock::new(|| {
    let nginx = r"(?P<nginx>\d{4}/\d\d/\d\d \d\d:\d\d:\d\d) \[[a-z]+\] \d+#\d+: (?:\*\d+ )?";
    let apache = r"\[(?P<apache>[^\]]*)\] \[[a-z0-9_]*:[a-z0-9]+\] \[pid [0-9: tid]*\] (?:\[client [0-9A-Fa-f.:]+\] )?";
    // In nginx, only the message about a block names the client.
    let text = format!(
        r#"^(?:{nginx}|{apache}|)(?:\[client "?(?P<client>[0-9A-Fa-f.:]+)"?\] )?(?:ModSecurity|Coraza): "#
    );
    Regex::new(&text).expect("a valid pattern")
});

/// Values of this length may be cut: ModSecurity 3 and Coraza write 200 characters, ModSecurity 2 512.
const DATA_CUT: usize = 200;
/// The same for `(Value: ...)` of ModSecurity 3.
const VALUE_CUT: usize = 100;
/// Longer names of variables are left out.
const VARIABLE_MAX: usize = 256;
/// Longer targets are left out.
const TARGET_MAX: usize = 512;

/// Parses a line. `None` if it is not a match.
pub(super) fn parse(line: &[u8]) -> Option<Entry> {
    // Lines of other logs, which are most, have no id.
    memchr::memmem::find(line, b"[id ")?;
    let text = String::from_utf8_lossy(line);
    let text = if line.starts_with(b"{") {
        Cow::Owned(serde_json::from_str::<Value>(&text).ok()?["msg"].as_str()?.to_owned())
    } else {
        text
    };
    let start = START.captures(&text)?;
    let message = &text[start.get_match().end()..];
    let time = start.name("nginx").or(start.name("apache")).map_or("", |time| time.as_str());
    let client = start.name("client").map(|client| without_port(client.as_str()).to_owned());
    let mut logged = LoggedMatches::default();
    logged.add(message);
    match Request::of_nginx(message) {
        Request::None => {}
        Request::Method(method) => method.clone_into(&mut logged.method),
        Request::Ambiguous => logged.is_incomplete = true,
    }
    let mut transactions = message.split(" [unique_id \"").skip(1);
    let mut transactions =
        transactions.by_ref().filter_map(|rest| rest.split_once('"')).map(|(id, _)| id.to_owned());
    logged.transaction = transactions.next().unwrap_or_default();
    logged.others = transactions.collect();
    Some(Entry { client, day: day(time), content: Content::Matches(logged) })
}

/// An address of IPv6 has more than one colon.
fn without_port(address: &str) -> &str {
    match address.split_once(':') {
        Some((host, port)) if !port.contains(':') => host,
        _ => address,
    }
}

/// The first line of the request, which nginx adds to a message: `, request: "GET / HTTP/1.1"`.
enum Request<'a> {
    None,
    Method(&'a str),
    /// A value of the request may have that text.
    Ambiguous,
}

impl<'a> Request<'a> {
    fn of_nginx(message: &'a str) -> Self {
        let mut parts = message.split(", request: \"").skip(1);
        match (parts.next(), parts.next()) {
            (None, _) => Self::None,
            (Some(_), Some(_)) => Self::Ambiguous,
            (Some(line), None) => match line.split_once(' ') {
                Some((method, _)) if method.bytes().all(|byte| byte.is_ascii_uppercase()) => {
                    Self::Method(method)
                }
                _ => Self::Ambiguous,
            },
        }
    }
}

impl LoggedMatches {
    /// Adds the match of a message, if it names one. Without it, the matches are incomplete.
    pub(super) fn add(&mut self, message: &str) {
        if !message.contains(" [id \"") {
            return;
        }
        match LoggedMatch::of(message) {
            Some((found, target)) => {
                self.matches.push(found);
                if self.target.is_empty() {
                    target.clone_into(&mut self.target);
                }
                self.was_blocked |= is_block(message);
            }
            None => self.is_incomplete = true,
        }
    }
}

impl LoggedMatch {
    /// Returns the match of a message, and the target of its request. `None` if it is not certain which text belongs to the rule
    /// and which to the request.
    fn of(message: &str) -> Option<(Self, &str)> {
        let once = |name: &str| message.matches(&format!(" [{name} \"")).count() <= 1;
        if !["file", "id", "data", "severity", "uri", "unique_id"].into_iter().all(once) {
            return None;
        }
        let (cause, _) = message.split_once(" [file \"")?;
        let (_, rest) = message.split_once(" [id \"")?;
        let id = rest.split_once("\"]")?.0.parse().ok()?;
        // Values may contain `"]`, but not the start of the next field.
        let between =
            |start: &str, end: &str| Some(message.split_once(start)?.1.split_once(end)?.0);
        let data = between(" [data \"", "\"] [severity \"").unwrap_or_default();
        let target = between(" [uri \"", "\"] [unique_id \"").unwrap_or_default();
        let target = if target.len() > TARGET_MAX { "" } else { target };
        let (variable, value) = (variable(cause, data).to_owned(), value(cause, data));
        Some((Self { id, variable, value }, target))
    }
}

/// True for a message about a block. Values of the request stand behind the start of a message.
pub(super) fn is_block(message: &str) -> bool {
    let text = message.strip_prefix("ModSecurity: ").unwrap_or(message);
    let text = text.strip_prefix("Message: ").unwrap_or(text);
    ["Access denied ", "Action: Intercepted "].iter().any(|start| text.starts_with(start))
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
    if name.len() > VARIABLE_MAX || name.contains(char::is_whitespace) { "" } else { name }
}

/// Returns the value of a match as the log has it: behind the variable in its data, or `(Value: ...)` of ModSecurity 3. Empty if it
/// has none, or one that may be cut.
pub(super) fn value(cause: &str, data: &str) -> Vec<u8> {
    let whole = |text: &str, cut: usize| (text.chars().count() < cut).then_some(());
    let within = || {
        whole(data, DATA_CUT)?;
        data.split_once(" found within ")?.1.split_once(": ").map(|(_, value)| value)
    };
    let written = || {
        let (_, rest) = cause.split_once("(Value: `")?;
        let (value, _) = rest.rsplit_once("' )")?;
        whole(value, VALUE_CUT).map(|()| value)
    };
    within().or_else(written).unwrap_or_default().as_bytes().to_vec()
}

/// Resolves `\xHH`, and a backslash before another character, as ModSecurity 2 writes them. Others write a backslash as it is.
pub(crate) fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(1..3).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
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
