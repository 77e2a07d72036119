//! `tollgate waf replay`: replays the requests of a log and reports those that rules would have blocked.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use serde_json::Value;
use tollgate_waf::replay::{self, Request};
use tollgate_waf::{EngineMode, RuleSet, Worker};

use crate::console::{self, Exit, Failure};

/// Limit of a log line; longer ones count as not understood.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// A request of a log, without its body.
#[derive(Debug, PartialEq, Eq)]
struct Logged {
    request: Request,
    has_body: bool,
    /// True if the log says that it was blocked; `None` if the log does not say.
    was_blocked: Option<bool>,
}

#[derive(Debug, Default)]
struct Totals {
    requests: u64,
    not_understood: u64,
    with_body: u64,
    blocked: u64,
    /// Blocked now but not in the log, and vice versa.
    newly_blocked: u64,
    no_longer_blocked: u64,
    rules: BTreeMap<u64, RuleTotals>,
}

#[derive(Debug, Default)]
struct RuleTotals {
    matches: u64,
    blocked: u64,
    message: String,
    example: String,
}

pub(super) fn replay(rules: RuleSet, log: &Path) -> Result<Exit, Failure> {
    let rules = Arc::new(rules);
    let file = File::open(log)
        .with_context(|| format!("cannot read \"{}\"", log.display()))
        .map_err(Failure::bad_input)?;
    let mut totals = Totals::default();
    let mut worker = Worker::new();
    let mut transaction = worker.warm_up(&rules);
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        let count = (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        if count.with_context(|| format!("cannot read \"{}\"", log.display()))? == 0 {
            break;
        }
        let text = line.trim_ascii_end();
        let Some(logged) = parse(text) else {
            totals.not_understood += u64::from(!text.is_empty());
            continue;
        };
        transaction.reset();
        transaction.engine_mode(EngineMode::On);
        replay::run_request(&mut transaction, &mut worker, &logged.request);
        let is_blocked = transaction.intervention().is_some();
        totals.requests += 1;
        totals.with_body += u64::from(logged.has_body);
        totals.blocked += u64::from(is_blocked);
        totals.newly_blocked += u64::from(is_blocked && logged.was_blocked == Some(false));
        totals.no_longer_blocked += u64::from(!is_blocked && logged.was_blocked == Some(true));
        for found in transaction.matches().iter().filter(|found| found.logged) {
            let rule = totals.rules.entry(found.id).or_default();
            if rule.matches == 0 {
                rule.message = found.message.escape_ascii().to_string();
                rule.example = logged.request.target.escape_ascii().to_string();
            }
            rule.matches += 1;
            rule.blocked += u64::from(is_blocked);
        }
    }
    console::print(&totals.text())?;
    Ok(Exit::Success)
}

impl Totals {
    fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |line: std::fmt::Arguments<'_>| {
            writeln!(text, "{line}").expect("writing to a string cannot fail");
        };
        line(format_args!("{} requests, {} would be blocked", self.requests, self.blocked));
        if self.newly_blocked + self.no_longer_blocked > 0 {
            line(format_args!(
                "compared with the log: {} newly blocked, {} no longer",
                self.newly_blocked, self.no_longer_blocked
            ));
        }
        if self.with_body > 0 {
            line(format_args!("{} had a body, which the log does not contain", self.with_body));
        }
        if self.not_understood > 0 {
            line(format_args!("lines that are not understood: {}", self.not_understood));
        }
        if !self.rules.is_empty() {
            line(format_args!(
                "{:>10}{:>9}{:>9}  message, first target",
                "rule", "matches", "blocked"
            ));
        }
        let mut rules: Vec<(&u64, &RuleTotals)> = self.rules.iter().collect();
        rules.sort_by_key(|(id, rule)| (std::cmp::Reverse((rule.blocked, rule.matches)), **id));
        for (id, rule) in rules {
            line(format_args!("{id:>10}{:>9}{:>9}  {}", rule.matches, rule.blocked, rule.message));
            let example: String = rule.example.chars().take(100).collect();
            line(format_args!("{:>30}{example}", ""));
        }
        text
    }
}

fn parse(line: &[u8]) -> Option<Logged> {
    if line.first() == Some(&b'{') { from_json(line) } else { from_combined(line) }
}

/// An entry of the gateway's audit log or of its access log in JSON.
fn from_json(line: &[u8]) -> Option<Logged> {
    let entry: Value = serde_json::from_slice(line).ok()?;
    let text = |name: &str| entry.get(name)?.as_str();
    let method = text("method")?;
    let mut headers = Vec::new();
    let mut add = |name: &str, value: &str| headers.push((latin1(name), latin1(value)));
    match entry.get("headers").and_then(Value::as_array) {
        Some(list) => {
            for header in list {
                add(header.get(0)?.as_str()?, header.get(1)?.as_str()?);
            }
        }
        None => {
            add("Host", text("host").unwrap_or("localhost"));
            for (name, member) in [("Referer", "referer"), ("User-Agent", "agent")] {
                text(member).into_iter().for_each(|value| add(name, value));
            }
            add("Accept", "*/*");
        }
    }
    let body_bytes = entry.get("request_body_bytes").and_then(Value::as_u64);
    Some(Logged {
        request: Request {
            method: latin1(method),
            target: latin1(text("target")?),
            protocol: format!("HTTP/{}", text("version")?).into_bytes(),
            headers,
            body: Vec::new(),
        },
        has_body: body_bytes.map_or_else(|| has_body(method), |bytes| bytes > 0),
        was_blocked: text("action").map(|action| action == "blocked"),
    })
}

/// The bytes of a text that may have been read as Latin-1.
fn latin1(text: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
    match bytes {
        // Characters above ASCII stand for bytes only if these are not UTF-8.
        Some(bytes) if std::str::from_utf8(&bytes).is_err() => bytes,
        _ => text.as_bytes().to_vec(),
    }
}

fn has_body(method: &str) -> bool {
    matches!(method, "POST" | "PUT" | "PATCH")
}

/// Parses a line of the combined log format of Apache and nginx. Missing parts get harmless values.
fn from_combined(line: &[u8]) -> Option<Logged> {
    let mut fields = quoted(line);
    let request = fields.next()?;
    let mut words = request.split(|&byte| byte == b' ');
    let (method, target, protocol) = (words.next()?, words.next()?, words.next()?);
    if words.next().is_some() || !protocol.starts_with(b"HTTP/") {
        return None;
    }
    let mut headers =
        vec![(b"Host".to_vec(), b"localhost".to_vec()), (b"Accept".to_vec(), b"*/*".to_vec())];
    for name in ["Referer", "User-Agent"] {
        if let Some(value) = fields.next().filter(|value| value != b"-") {
            headers.push((name.as_bytes().to_vec(), value));
        }
    }
    Some(Logged {
        has_body: has_body(&String::from_utf8_lossy(method)),
        request: Request {
            method: method.to_vec(),
            target: target.to_vec(),
            protocol: protocol.to_vec(),
            headers,
            body: Vec::new(),
        },
        was_blocked: None,
    })
}

/// The fields of a line that are in quotes, without escapes: `\xHH` of nginx, `\"` and `\\` of Apache.
fn quoted(line: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let start = rest.iter().position(|&byte| byte == b'"')?;
        rest = &rest[start + 1..];
        let mut field = Vec::new();
        loop {
            match rest {
                [b'"', tail @ ..] => {
                    rest = tail;
                    return Some(field);
                }
                [b'\\', b'x', high, low, tail @ ..] => {
                    let digits = [*high, *low];
                    let digits = std::str::from_utf8(&digits).ok()?;
                    field.push(u8::from_str_radix(digits, 16).ok()?);
                    rest = tail;
                }
                [b'\\', byte, tail @ ..] | [byte, tail @ ..] => {
                    field.push(*byte);
                    rest = tail;
                }
                [] => return None,
            }
        }
    })
}

/// Arguments of `tollgate waf replay`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Rule files (SecLang, AppSec rules in *.yaml, rules of naxsi in *.rules), or folders with files of one of these
    #[arg(required = true, value_name = "RULES")]
    pub(super) rules: Vec<PathBuf>,
    /// Audit log of the gateway, its access log in JSON, or an access log in the combined format
    #[arg(long, value_name = "FILE")]
    pub(super) log: PathBuf,
    /// Leave out directives that are not supported
    #[arg(long)]
    pub(super) skip_unsupported: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(logged: &Logged) -> Vec<String> {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        let headers = &logged.request.headers;
        headers.iter().map(|(name, value)| format!("{}: {}", text(name), text(value))).collect()
    }

    #[test]
    fn combined_lines_are_unescaped() {
        let line = br#"10.0.0.1 - - [21/Nov/2026:20:38:08 +0100] "GET /a\x22b?q=\xC3\xA9\\ HTTP/1.1" 200 26 "-" "x/1 (\"y\")""#;
        let logged = parse(line).unwrap();
        assert_eq!(logged.request.target, b"/a\"b?q=\xc3\xa9\\");
        assert_eq!(
            headers(&logged),
            ["Host: localhost", "Accept: */*", r#"User-Agent: x/1 (\"y\")"#]
        );
        assert_eq!((logged.has_body, logged.was_blocked), (false, None));
        for invalid in
            [&b"10.0.0.1 - - [x] \"\" 400 5 \"-\" \"-\""[..], b"", b"GET / HTTP/1.1", b"{"]
        {
            assert_eq!(parse(invalid), None);
        }
    }

    #[test]
    fn audit_entries_have_headers_and_their_verdict() {
        let line = br#"{"time":"t","method":"POST","target":"/?q=1","version":"1.1","headers":[["Host","a"],["X","\u00e9\u00ff"]],"action":"blocked","request_body_bytes":0}"#;
        let logged = parse(line).unwrap();
        assert_eq!(headers(&logged), ["Host: a", r"X: \xe9\xff"]);
        assert_eq!((logged.has_body, logged.was_blocked), (false, Some(true)));
        let access = br#"{"client":"a","method":"POST","target":"/","version":"1.1","host":null,"referer":null,"agent":"x"}"#;
        let logged = parse(access).unwrap();
        assert_eq!(headers(&logged), ["Host: localhost", "User-Agent: x", "Accept: */*"]);
        assert!(logged.has_body);
    }
}
