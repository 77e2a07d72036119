//! The audit log: a JSON object per transaction.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use tollgate_accesslog::{ClientText, LogFile, ThreadLog, push_json};
use tollgate_waf::Match;

use super::inspection::{Inspection, KeptHead};
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
        // Without its braces, as the log adds a member.
        self.log.add_json(&entry[1..entry.len() - 1]);
        self.entry = entry;
    }
}

/// One entry of the log, which `docs/gateway.md` describes.
#[derive(Serialize)]
struct AuditEntry<'a> {
    id: String,
    client: String,
    #[serde(flatten)]
    request: Option<AuditRequest<'a>>,
    route: ClientText<'a>,
    status: Option<u16>,
    action: &'static str,
    score: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<&'static str>,
    #[serde(skip_serializing_if = "String::is_empty")]
    limits: String,
    engine_us: u64,
    request_body_bytes: u64,
    response_body_bytes: u64,
    matches: Vec<AuditMatch<'a>>,
}

#[derive(Serialize)]
struct AuditRequest<'a> {
    method: ClientText<'a>,
    target: Shown<'a>,
    version: &'a str,
    headers: Vec<(&'a str, Shown<'a>)>,
}

#[derive(Serialize)]
struct AuditMatch<'a> {
    rule: u64,
    phase: u8,
    #[serde(flatten)]
    place: Option<AuditPlace<'a>>,
    message: Shown<'a>,
    variable: ClientText<'a>,
    #[serde(skip_serializing_if = "Shown::is_empty")]
    data: Shown<'a>,
    #[serde(skip_serializing_if = "Shown::is_empty")]
    value: Shown<'a>,
    #[serde(skip_serializing_if = "Shown::is_empty")]
    matched: Shown<'a>,
    #[serde(skip_serializing_if = "<[_]>::is_empty", serialize_with = "as_map")]
    scores: &'a [(String, i64)],
    #[serde(skip_serializing_if = "Option::is_none")]
    exclusion: Option<String>,
}

/// The rule of a match in its file.
#[derive(Serialize)]
struct AuditPlace<'a> {
    file: &'a str,
    line: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    paranoia_level: Option<u8>,
}

/// Text of a client, with masks.
struct Shown<'a>(Cow<'a, [u8]>);

impl Shown<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ClientText(&self.0).serialize(serializer)
    }
}

fn as_map<S: Serializer>(scores: &[(String, i64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(scores.iter().map(|(name, amount)| (name, amount)))
}

/// Names whose values are not logged.
struct Masked<'a>(&'a [String]);

impl Masked<'_> {
    fn write(&self, inspection: &Inspection, outcome: &Outcome, out: &mut Vec<u8>) {
        let session = &inspection.session;
        let action = if session.is_blocked() {
            "blocked"
        } else if inspection.has_matched() {
            "detected"
        } else {
            "passed"
        };
        let matches = session.transaction().matches().iter().filter(|found| found.logged);
        let entry = AuditEntry {
            id: inspection.name.to_string(),
            client: inspection.client.map_or_else(|| "unix:".to_owned(), |ip| ip.to_string()),
            request: inspection.head.as_ref().and_then(|head| self.request(head)),
            route: ClientText(inspection.firewall.counters.label.as_bytes()),
            status: outcome.status,
            action,
            score: inspection.score(),
            refused: session.refusal(),
            limits: session.transaction().limits_reached().to_string(),
            engine_us: u64::try_from(inspection.engine_time.as_micros()).unwrap_or(u64::MAX),
            request_body_bytes: outcome.request_body_bytes,
            response_body_bytes: outcome.response_body_bytes,
            matches: matches.map(|found| self.found(inspection, found)).collect(),
        };
        push_json(out, 0, &entry);
    }

    fn request<'a>(&self, head: &'a KeptHead) -> Option<AuditRequest<'a>> {
        let (method, target, headers) = head.parts()?;
        let headers = headers.iter().map(|(name, value)| {
            let value = if self.is_masked(name) { MASK.as_bytes() } else { value };
            (name, self.shown(value))
        });
        Some(AuditRequest {
            method: ClientText(method),
            target: self.shown(target),
            version: head.protocol.trim_start_matches("HTTP/"),
            headers: headers.collect(),
        })
    }

    fn found<'a>(&self, inspection: &'a Inspection, found: &'a Match) -> AuditMatch<'a> {
        let details = found.details.as_ref();
        let source = details.map_or(&found.variable, |details| &details.source);
        let is_masked = self.is_masked_variable(source) || self.is_masked_variable(&found.variable);
        let shown = |bytes: &'a [u8]| {
            let is_shown_masked = is_masked && !bytes.is_empty();
            self.shown(if is_shown_masked { MASK.as_bytes() } else { bytes })
        };
        let place = inspection.rules().set.rule(found.rule).map(|rule| AuditPlace {
            file: &rule.place.file,
            line: rule.place.line,
            paranoia_level: rule.paranoia_level,
        });
        AuditMatch {
            rule: found.id,
            phase: found.phase as u8,
            place,
            message: self.shown(&found.message),
            variable: ClientText(source),
            data: shown(&found.log_data),
            value: shown(&found.value),
            matched: shown(details.map_or(&[][..], |details| &details.matched)),
            scores: details.map_or(&[][..], |details| &details.scores),
            exclusion: found.exclusion(),
        }
    }

    fn shown<'a>(&self, text: &'a [u8]) -> Shown<'a> {
        Shown(self.pairs(text))
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
