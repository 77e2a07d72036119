//! The audit log: a JSON object per transaction.

use std::borrow::Cow;
use std::io::Write as _;
use std::sync::Arc;

use tollgate_accesslog::{LogFile, ThreadLog, json_string};
use tollgate_http1::{RequestHead, Version, parse_request_head};
use tollgate_waf::Match;

use super::inspection::Inspection;
use super::verdict::Outcome;
use crate::config::AuditLog;

const MASK: &str = "***";

/// An open audit log with its settings.
#[derive(Clone, Debug)]
pub(crate) struct AuditFile {
    pub(crate) file: LogFile,
    pub(crate) settings: Arc<AuditLog>,
}

/// One thread's writer.
pub(super) struct AuditWriter {
    log: ThreadLog,
    settings: Arc<AuditLog>,
    entry: Vec<u8>,
}

impl std::fmt::Debug for AuditWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuditWriter").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl AuditWriter {
    pub(super) fn new(file: &AuditFile) -> Self {
        let AuditFile { file, settings } = file;
        Self { log: file.thread_log(), settings: Arc::clone(settings), entry: Vec::new() }
    }

    /// Returns the number of lines dropped since the last call.
    pub(super) fn flush(&mut self) -> u64 {
        self.log.flush();
        self.log.take_dropped()
    }

    pub(super) fn add(&mut self, inspection: &Inspection, outcome: &Outcome) {
        if !self.settings.all && !inspection.is_relevant(outcome) {
            return;
        }
        let mut entry = std::mem::take(&mut self.entry);
        entry.clear();
        Masked(&self.settings.masked).write(inspection, outcome, &mut entry);
        self.log.add_json(&entry);
        self.entry = entry;
    }
}

/// Names whose values are not logged.
struct Masked<'a>(&'a [String]);

impl Masked<'_> {
    /// Writes the members of the entry without its braces.
    fn write(&self, inspection: &Inspection, outcome: &Outcome, out: &mut Vec<u8>) {
        let mut put = |text: std::fmt::Arguments<'_>| {
            // Writing to a vector does not fail.
            out.write_fmt(text).ok();
        };
        let client = inspection.client.map_or_else(|| "unix:".to_owned(), |ip| ip.to_string());
        put(format_args!("\"id\":\"{}\",\"client\":\"{client}\"", inspection.name));
        let head = match inspection.version {
            Version::Http2 => RequestHead::of_fields(&inspection.head).map(Some),
            Version::Http10 | Version::Http11 => parse_request_head(&inspection.head),
        };
        if let Ok(Some(head)) = head {
            let target = self.pairs(head.target.as_bytes());
            let version = inspection.version.number();
            put(format_args!(
                ",\"method\":{},\"target\":{},\"version\":\"{version}\",\"headers\":[",
                json_string(head.method.as_bytes()),
                json_string(&target),
            ));
            for (at, (name, value)) in head.headers.iter().enumerate() {
                let separator = if at == 0 { "" } else { "," };
                let value = if self.is_masked(name) { MASK.as_bytes() } else { value };
                let value = json_string(&self.pairs(value));
                put(format_args!("{separator}[{},{value}]", json_string(name.as_bytes())));
            }
            put(format_args!("]"));
        }
        let action = match inspection.session.is_blocked() {
            true => "blocked",
            false if inspection.has_matched() => "detected",
            false => "passed",
        };
        let route = json_string(inspection.firewall.counters.label.as_bytes());
        let status = outcome.status.map_or("null".to_owned(), |status| status.to_string());
        let score = inspection.score().map_or("null".to_owned(), |score| score.to_string());
        put(format_args!(
            ",\"route\":{route},\"status\":{status},\"action\":\"{action}\",\"score\":{score}"
        ));
        let limits = inspection.session.transaction().limits_reached().to_string();
        for (name, text) in
            [("refused", inspection.session.refusal().unwrap_or("")), ("limits", &limits)]
        {
            if !text.is_empty() {
                put(format_args!(",\"{name}\":{}", json_string(text.as_bytes())));
            }
        }
        put(format_args!(
            ",\"engine_us\":{},\"request_body_bytes\":{},\"response_body_bytes\":{},\"matches\":[",
            inspection.engine_time.as_micros(),
            outcome.request_body_bytes,
            outcome.response_body_bytes
        ));
        let matches =
            inspection.session.transaction().matches().iter().filter(|found| found.logged);
        for (at, found) in matches.enumerate() {
            if at > 0 {
                out.push(b',');
            }
            self.write_match(inspection, found, out);
        }
        out.push(b']');
    }

    fn write_match(&self, inspection: &Inspection, found: &Match, out: &mut Vec<u8>) {
        let mut put = |text: std::fmt::Arguments<'_>| {
            out.write_fmt(text).ok();
        };
        let details = found.details.as_ref();
        let source = details.map_or(&found.variable, |details| &details.source);
        put(format_args!("{{\"rule\":{},\"phase\":{}", found.id, found.phase as u8));
        if let Some(rule) = inspection.rules().set.rule(found.rule) {
            let (file, line) = (json_string(rule.place.file.as_bytes()), rule.place.line);
            put(format_args!(",\"file\":{file},\"line\":{line}"));
            if let Some(level) = rule.paranoia_level {
                put(format_args!(",\"paranoia_level\":{level}"));
            }
        }
        let is_masked = self.is_masked_variable(source) || self.is_masked_variable(&found.variable);
        let shown = |bytes: &[u8]| match is_masked {
            true => json_string(MASK.as_bytes()),
            false => json_string(&self.pairs(bytes)),
        };
        put(format_args!(",\"message\":{}", json_string(&self.pairs(&found.message))));
        put(format_args!(",\"variable\":{}", json_string(source)));
        let matched = details.map_or(&[][..], |details| &details.matched);
        for (name, bytes) in
            [("data", &*found.log_data), ("value", &found.value), ("matched", matched)]
        {
            if !bytes.is_empty() {
                put(format_args!(",\"{name}\":{}", shown(bytes)));
            }
        }
        for (at, (name, amount)) in details.iter().flat_map(|it| &it.scores).enumerate() {
            let start = if at == 0 { ",\"scores\":{" } else { "," };
            put(format_args!("{start}{}:{amount}", json_string(name.as_bytes())));
        }
        if details.is_some_and(|it| !it.scores.is_empty()) {
            put(format_args!("}}"));
        }
        if let Some(exclusion) = found.exclusion() {
            put(format_args!(",\"exclusion\":{}", json_string(exclusion.as_bytes())));
        }
        put(format_args!("}}"));
    }

    fn is_masked(&self, name: &str) -> bool {
        self.0.iter().any(|masked| masked.eq_ignore_ascii_case(name))
    }

    /// True for `ARGS:password`, `ARGS:json.user.password`, `ARGS:user[password]`, and for all cookies if the header is
    /// masked.
    fn is_masked_variable(&self, variable: &[u8]) -> bool {
        let variable = String::from_utf8_lossy(variable);
        let (collection, name) = variable.split_once(':').unwrap_or((&*variable, ""));
        let is_body = ["REQUEST_BODY", "FULL_REQUEST"].contains(&collection);
        let cookies = ["REQUEST_COOKIES", "REQUEST_COOKIES_NAMES"].contains(&collection);
        (is_body && !self.0.is_empty())
            || (cookies && self.is_masked("cookie"))
            || name.split(['.', '[', ']']).any(|part| self.is_masked(part))
    }

    /// Replaces the values of masked names in `name=value&name=value` within a text.
    fn pairs<'a>(&self, text: &'a [u8]) -> Cow<'a, [u8]> {
        let is_separator = |byte: &u8| b"?&; \t\r\n\"'".contains(byte);
        let mut masked: Option<Vec<u8>> = None;
        for (at, pair) in text.split_inclusive(is_separator).scan(0, |next, pair| {
            let at = *next;
            *next += pair.len();
            Some((at, pair))
        }) {
            let name = pair.split(|&byte| byte == b'=').next().unwrap_or_default();
            let has_value = name.len() + 1 < pair.len();
            if has_value && self.is_masked_variable(&[b":", name].concat()) {
                let out = masked.get_or_insert_with(|| text[..at].to_vec());
                out.extend_from_slice(name);
                out.push(b'=');
                out.extend_from_slice(MASK.as_bytes());
                out.extend(pair.last().filter(|byte| is_separator(byte)));
            } else if let Some(out) = &mut masked {
                out.extend_from_slice(pair);
            }
        }
        masked.map_or(Cow::Borrowed(text), Cow::Owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_masked_names_are_replaced() {
        let names = ["password".to_owned(), "cookie".to_owned()];
        let masked = Masked(&names);
        for (text, expected) in [
            ("/login?user=a&password=b&x=1", "/login?user=a&password=***&x=1"),
            ("/login?user[Password]=b", "/login?user[Password]=***"),
            (
                "Matched Data: ' found within ARGS:x: password=secret",
                "Matched Data: ' found within ARGS:x: password=***",
            ),
            ("/password?password=", "/password?password="),
        ] {
            assert_eq!(String::from_utf8_lossy(&masked.pairs(text.as_bytes())), expected);
        }
        for (variable, expected) in [
            ("ARGS:password", true),
            ("ARGS:json.user.password", true),
            ("REQUEST_COOKIES:a", true),
            ("REQUEST_HEADERS:Cookie", true),
            ("ARGS:passwords", false),
        ] {
            assert_eq!(masked.is_masked_variable(variable.as_bytes()), expected, "{variable}");
        }
    }
}
