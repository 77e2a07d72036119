//! One request with its response, in the order of libmodsecurity's calls.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

use jiff::Zoned;
use tollgate_firewall::OnFault;
use tollgate_waf::{
    Collections, Connection, EngineMode, Intervention, Match, RuleInfo, Severity, Transaction,
    Worker,
};

use crate::audit_log::{AuditEntry, AuditLog, AuditMessage};
use crate::debug_log::{DebugLog, Level, describe};
use crate::error_log::{Cause, Effect, ErrorLine};
use crate::rules::RuleSources;
use crate::workers::{Bound, with_bound};

/// End of a transaction.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) status: u16,
    /// Target of a redirect.
    pub(crate) url: Option<String>,
    /// Text for the server's log.
    pub(crate) log: String,
}

impl Decision {
    /// The reaction to a bug of the firewall.
    pub(crate) fn of_fault(on_fault: OnFault) -> Option<Self> {
        let decision = Self { status: 500, url: None, log: OnFault::advice() };
        (on_fault == OnFault::Deny).then_some(decision)
    }
}

/// Values that rules keep across requests. Each process that a server forks has its own, as with libmodsecurity.
static COLLECTIONS: LazyLock<Arc<Collections>> = LazyLock::new(Arc::default);

/// The inspection of a transaction.
#[derive(Debug)]
pub(crate) struct Inspection {
    transaction: Transaction,
    client: Vec<u8>,
    /// In log lines: the server's address, unless the connector sets a name.
    hostname: Vec<u8>,
    /// In log lines.
    unique_id: Vec<u8>,
    /// Decoded path, in log lines.
    path: Vec<u8>,
    protocol: Vec<u8>,
    /// Log lines that the caller has not got yet.
    lines: Vec<String>,
    /// Matches whose lines are written.
    matches_logged: usize,
    is_verdict_taken: bool,
    is_body_unreadable: bool,
    /// For the caller, ends with NUL.
    response_body_text: Vec<u8>,
    /// As it was sent, for the debug log.
    target: Vec<u8>,
    debug_log: Option<Arc<DebugLog>>,
    /// `None` if the rules have no audit log.
    recorded: Option<Box<Recorded>>,
}

/// Facts for the audit log.
#[derive(Debug)]
struct Recorded {
    log: Arc<AuditLog>,
    time: Zoned,
    connector: Arc<str>,
    client_port: u16,
    /// Address and port.
    server: (Vec<u8>, u16),
    method: Vec<u8>,
    uri: Vec<u8>,
    version: Vec<u8>,
    request_headers: Vec<(Vec<u8>, Vec<u8>)>,
    status: u16,
    response_headers: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Inspection {
    pub(crate) fn new(sources: &RuleSources, id: &[u8], connector: &Arc<str>) -> Self {
        let compiled =
            sources.compile().unwrap_or_else(|error| panic!("cannot load rules: {error}"));
        let (rules, audit_log) = (Arc::clone(&compiled.rules), compiled.audit_log.clone());
        let debug_log = compiled.debug_log.clone();
        let spare = with_bound(&rules, Bound::spare);
        let mut transaction = match spare {
            Some(mut spare) => {
                spare.reset_with(&rules);
                spare
            }
            None => Transaction::new(rules),
        };
        transaction.collections(&COLLECTIONS);
        let has_matches = debug_log.as_ref().is_some_and(|log| log.has(Level::Match));
        transaction.record_details(has_matches);
        transaction.record_silent(has_matches);
        let now = Zoned::now();
        let unique_id = match id {
            [] => {
                static LAST: AtomicU32 = AtomicU32::new(0);
                let last = LAST.fetch_add(1, Ordering::Relaxed) % 1_000_000;
                format!("{}.{last:06}", now.timestamp().as_microsecond()).into_bytes()
            }
            _ => id.to_vec(),
        };
        transaction.unique_id(&String::from_utf8_lossy(&unique_id));
        transaction.time(u64::try_from(now.timestamp().as_second()).unwrap_or(0));
        let recorded =
            audit_log.map(|log| Box::new(Recorded::new(log, now, Arc::clone(connector))));
        Self {
            transaction,
            client: Vec::new(),
            hostname: Vec::new(),
            unique_id,
            path: Vec::new(),
            protocol: b"HTTP/1.1".to_vec(),
            lines: Vec::new(),
            matches_logged: 0,
            is_verdict_taken: false,
            is_body_unreadable: false,
            response_body_text: Vec::new(),
            target: Vec::new(),
            debug_log,
            recorded,
        }
    }

    /// Keeps the memory of the transaction for another one.
    pub(crate) fn recycle(mut self) {
        self.transaction.reset();
        let rules = Arc::clone(self.transaction.rules());
        with_bound(&rules, |bound| {
            bound.keep(self.transaction);
        });
    }

    /// Returns the log lines since the last call.
    pub(crate) fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    pub(crate) fn connection(&mut self, client: (&[u8], i32), server: (&[u8], i32)) {
        client.0.clone_into(&mut self.client);
        server.0.clone_into(&mut self.hostname);
        let [client_port, server_port] =
            [client.1, server.1].map(|port| u16::try_from(port).unwrap_or(0));
        if let Some(recorded) = &mut self.recorded {
            recorded.client_port = client_port;
            recorded.server = (server.0.to_vec(), server_port);
        }
        self.transaction.connection(&Connection {
            client: &String::from_utf8_lossy(client.0),
            client_port,
            server: &String::from_utf8_lossy(server.0),
            server_port,
        });
    }

    pub(crate) fn hostname(&mut self, name: &[u8]) {
        name.clone_into(&mut self.hostname);
    }

    pub(crate) fn request_line(&mut self, method: &[u8], uri: &[u8], version: &[u8]) {
        self.protocol = [b"HTTP/", version].concat();
        let path = uri.split(|&byte| matches!(byte, b'?' | b'#')).next().unwrap_or_default();
        self.path = percent_encoding::percent_decode(path).collect();
        if self.debug_log.is_some() {
            uri.clone_into(&mut self.target);
        }
        if let Some(recorded) = &mut self.recorded {
            method.clone_into(&mut recorded.method);
            uri.clone_into(&mut recorded.uri);
            version.clone_into(&mut recorded.version);
        }
        self.transaction.request_line(method, uri, &self.protocol);
    }

    pub(crate) fn request_header(&mut self, name: &[u8], value: &[u8]) {
        if let Some(recorded) = &mut self.recorded {
            recorded.request_headers.push((name.to_vec(), value.to_vec()));
        }
        self.transaction.request_header(name, value);
    }

    pub(crate) fn process_request_headers(&mut self) {
        self.phase(|transaction, worker| {
            transaction.process_request_headers(worker);
        });
    }

    pub(crate) fn append_request_body(&mut self, part: &[u8]) {
        self.transaction.append_request_body(part);
    }

    /// Adds the body from a file; false if it cannot be read.
    pub(crate) fn request_body_from_file(&mut self, path: &[u8]) -> bool {
        let is_read = self.read_body(Path::new(OsStr::from_bytes(path)));
        self.is_body_unreadable |= is_read.is_err();
        is_read.is_ok()
    }

    fn read_body(&mut self, path: &Path) -> io::Result<()> {
        let limit = self.transaction.request_body_limit();
        if limit == 0 {
            return Ok(());
        }
        // One byte more than the limit shows that the body exceeds it.
        let mut file = File::open(path)?.take(limit as u64 + 1);
        let mut piece = [0; 64 << 10];
        loop {
            match file.read(&mut piece)? {
                0 => return Ok(()),
                count => self.transaction.append_request_body(&piece[..count]),
            }
        }
    }

    pub(crate) fn process_request_body(&mut self) {
        self.phase(|transaction, worker| {
            transaction.process_request_body(worker);
        });
    }

    pub(crate) fn response_header(&mut self, name: &[u8], value: &[u8]) {
        if let Some(recorded) = &mut self.recorded {
            // nginx's connector counts the NUL behind the value of `Server`.
            let value = value.strip_suffix(b"\0").unwrap_or(value);
            recorded.response_headers.push((name.to_vec(), value.to_vec()));
        }
        self.transaction.response_header(name, value);
    }

    pub(crate) fn process_response_headers(&mut self, status: i32, protocol: &[u8]) {
        protocol.clone_into(&mut self.protocol);
        self.update_status(status);
        self.phase(|transaction, worker| {
            transaction.process_response_headers(worker);
        });
    }

    pub(crate) fn update_status(&mut self, status: i32) {
        let status = u16::try_from(status).unwrap_or(0);
        if let Some(recorded) = &mut self.recorded {
            recorded.status = status;
        }
        self.transaction.response_line(&self.protocol, status);
    }

    pub(crate) fn append_response_body(&mut self, part: &[u8]) {
        self.transaction.append_response_body(part);
    }

    pub(crate) fn process_response_body(&mut self) {
        self.phase(|transaction, worker| {
            transaction.process_response_body(worker);
        });
    }

    pub(crate) fn process_logging(&mut self) {
        self.phase(Transaction::process_logging);
        let limits = self.transaction.limits_reached().to_string();
        if !limits.is_empty() {
            self.debug(Level::Limit, || format!("Limits reached: {limits}"));
        }
        // Once, however often the connector calls.
        if let Some(recorded) = self.recorded.take()
            && self.transaction.is_audit_relevant(recorded.status)
            && let Err(error) = self.write_audit_entry(&recorded)
        {
            self.lines.push(format!("ModSecurity: cannot write the audit log: {error}"));
        }
    }

    fn write_audit_entry(&self, recorded: &Recorded) -> io::Result<()> {
        let rules = self.transaction.rules();
        let messages = self.transaction.matches().iter();
        let entry = AuditEntry {
            time: recorded.time.clone(),
            unique_id: &self.unique_id,
            client: (&self.client, recorded.client_port),
            server: (&recorded.server.0, recorded.server.1),
            method: &recorded.method,
            uri: &recorded.uri,
            version: &recorded.version,
            request_headers: &recorded.request_headers,
            request_body: self.transaction.request_body(),
            status: recorded.status,
            response_headers: &recorded.response_headers,
            response_body: self.transaction.response_body(),
            connector: &recorded.connector,
            engine: match rules.settings().engine {
                EngineMode::On => "Enabled",
                EngineMode::DetectionOnly => "DetectionOnly",
                EngineMode::Off => "Disabled",
            },
            components: &rules.settings().component_signatures,
            messages: messages.filter_map(|matched| self.audit_message(matched)).collect(),
        };
        recorded.log.write(&entry, self.transaction.audit_log_parts())
    }

    pub(crate) fn request_body(&self) -> &[u8] {
        self.transaction.request_body()
    }

    pub(crate) fn response_body(&self) -> &[u8] {
        self.transaction.response_body()
    }

    /// Returns the response body with a NUL behind it.
    pub(crate) fn response_body_text(&mut self) -> &[u8] {
        self.response_body_text.clear();
        self.response_body_text.extend_from_slice(self.transaction.response_body());
        self.response_body_text.push(0);
        &self.response_body_text
    }

    fn phase(&mut self, run: impl FnOnce(&mut Transaction, &mut Worker)) {
        let rules = Arc::clone(self.transaction.rules());
        with_bound(&rules, |bound| run(&mut self.transaction, &mut bound.worker));
        // The line of a rule that ends the transaction is part of the verdict.
        let new = &self.transaction.matches()[self.matches_logged..];
        // libmodsecurity logs what belongs in the audit log.
        let logged =
            new.iter().filter(|matched| !matched.disruptive && self.rule(matched).audit_log);
        let lines: Vec<String> =
            logged.map(|matched| self.line(matched, Effect::Warning)).collect();
        for matched in new {
            self.debug(Level::Match, || describe(&self.rule(matched), matched));
        }
        self.lines.extend(lines);
        self.matches_logged = self.transaction.matches().len();
    }

    fn debug(&self, level: Level, text: impl FnOnce() -> String) {
        if let Some(log) = self.debug_log.as_ref().filter(|log| log.has(level)) {
            log.write(level, &self.unique_id, &self.target, &text());
        }
    }

    /// Returns the decision to end the transaction, once.
    pub(crate) fn take_verdict(&mut self) -> Option<Decision> {
        if self.is_verdict_taken {
            return None;
        }
        let verdict = self.verdict();
        self.is_verdict_taken = verdict.is_some();
        if let Some(Decision { status, log, .. }) = &verdict {
            self.debug(Level::Decision, || format!("Ends with status {status}: {log}"));
        }
        verdict
    }

    fn verdict(&self) -> Option<Decision> {
        let Some(Intervention { status, redirect, rule, .. }) = self.transaction.intervention()
        else {
            let log = "request body cannot be read from its file, so that it is not inspected";
            return (self.is_body_unreadable && self.transaction.is_blocking()).then(|| Decision {
                status: 500,
                url: None,
                log: log.to_owned(),
            });
        };
        let url = redirect.clone();
        let Some(id) = rule else {
            // A limit; libmodsecurity has 403 for each.
            return Some(Decision { status: 403, url, log: self.limit_text() });
        };
        let client = String::from_utf8_lossy(&self.client);
        let matches = self.transaction.matches();
        let matched = matches.iter().find(|matched| matched.disruptive && matched.id == *id);
        let line = matched.map_or_else(
            || format!("ModSecurity: Access denied with code {status}. [id \"{id}\"]"),
            |matched| {
                self.line(matched, Effect::Denied { status: *status, phase: matched.phase as u8 })
            },
        );
        Some(Decision { status: *status, url, log: format!("[client {client}] {line}") })
    }

    fn limit_text(&self) -> String {
        let limits = self.transaction.limits_reached();
        if limits.request_body {
            "Request body limit is marked to reject the request".to_owned()
        } else {
            format!("Transaction rejected: {limits} reached")
        }
    }

    /// `None` for a match that does not belong in the audit log.
    fn audit_message<'a>(&'a self, matched: &'a Match) -> Option<AuditMessage<'a>> {
        let rule = self.rule(matched);
        let effect = match self.transaction.intervention() {
            Some(Intervention { status, .. }) if matched.disruptive => {
                Effect::Denied { status: *status, phase: matched.phase as u8 }
            }
            _ => Effect::Warning,
        };
        rule.audit_log.then(|| AuditMessage {
            line: self.line(matched, effect),
            cause: cause(&rule, matched).render(),
            message: &matched.message,
            data: &matched.log_data,
            id: matched.id,
            file: &rule.place.file,
            line_number: rule.place.line,
            severity: rule.severity.map_or(0, Severity::value),
            version: rule.version,
            revision: rule.revision,
            tags: rule.tags,
            maturity: rule.maturity,
            accuracy: rule.accuracy,
        })
    }

    fn rule(&self, matched: &Match) -> RuleInfo<'_> {
        let rule = self.transaction.rules().rule(matched.rule);
        rule.unwrap_or_else(|| unreachable!("a match has a rule"))
    }

    fn line(&self, matched: &Match, effect: Effect) -> String {
        let rule = self.rule(matched);
        ErrorLine {
            effect,
            cause: cause(&rule, matched),
            file: &rule.place.file,
            line: rule.place.line,
            id: matched.id,
            revision: rule.revision,
            message: &matched.message,
            data: &matched.log_data,
            severity: rule.severity.map_or(0, Severity::value),
            version: rule.version,
            maturity: rule.maturity,
            accuracy: rule.accuracy,
            tags: rule.tags,
            hostname: &self.hostname,
            uri: &self.path,
            unique_id: &self.unique_id,
        }
        .render()
    }
}

impl Recorded {
    fn new(log: Arc<AuditLog>, time: Zoned, connector: Arc<str>) -> Self {
        Self {
            log,
            time,
            connector,
            client_port: 0,
            server: (Vec::new(), 0),
            method: Vec::new(),
            uri: Vec::new(),
            version: Vec::new(),
            request_headers: Vec::new(),
            status: 0,
            response_headers: Vec::new(),
        }
    }
}

fn cause<'a>(rule: &RuleInfo<'a>, matched: &'a Match) -> Cause<'a> {
    match rule.operator {
        "" => Cause::Unconditional,
        "DetectSQLi" => Cause::Detected("detected SQLi using libinjection."),
        "DetectXSS" => Cause::Detected("detected XSS using libinjection."),
        name => Cause::Operator {
            name,
            parameter: matched.argument.as_deref().unwrap_or(rule.argument),
            // libmodsecurity leaves out the `&` of a count.
            variable: matched.variable.strip_prefix(b"&").unwrap_or(&matched.variable),
            value: matched.original.as_deref().unwrap_or(&matched.value),
        },
    }
}
