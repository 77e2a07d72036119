//! Transactions: one request with its response, evaluated phase by phase.

mod actions;
pub(crate) mod entries;
mod evaluate;
mod input;
pub(crate) mod store;
#[cfg(test)]
mod tests;
mod values;
mod worker;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use worker::Worker;

use crate::collections::Collections;
use crate::limits::{LOGGED_VALUE_MAX, Limit, LimitsReached, Reached};
use crate::regex::BACKTRACK_BUDGET;
use crate::rule::{AllowScope, AuditEngine, BodyProcessor, EngineMode, Phase, Selector, Severity};
use crate::ruleset::{Exclusions, RuleSet};
use crate::settings::{LimitAction, Settings};
use crate::variable::Variable;
use entries::Entries;
use store::Store;

/// Bytes of each buffer that a transaction keeps for the next one.
const RETAINED: usize = 16 << 10;
/// Bytes that each of the kept names and values of matches retains.
const RETAINED_VALUE: usize = 512;

/// One request with its response.
#[derive(Debug)]
pub struct Transaction {
    rules: Arc<RuleSet>,
    entries: Entries,
    state: State,
    body: Vec<u8>,
    response_body: Vec<u8>,
    arguments: usize,
    empty_arguments: usize,
    arguments_size: usize,
}

/// Mutable state of the evaluation.
#[derive(Debug)]
struct State {
    engine: EngineMode,
    audit_engine: AuditEngine,
    audit_log_parts: Option<String>,
    request_body_access: bool,
    response_body_access: bool,
    request_body_limit: usize,
    response_body_limit: usize,
    body_processor: Option<BodyProcessor>,
    /// The body is a well-formed document of XML.
    is_xml: bool,
    store: Store,
    matched: Matched,
    environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// Exclusions of the rule set, and of `ctl:ruleRemove...`.
    exclusions: Exclusions,
    allow: Option<AllowScope>,
    highest_severity: Option<Severity>,
    intervention: Option<Intervention>,
    matches: Vec<Match>,
    /// Items that limits dropped.
    limits: Reached,
    /// Ends the inspection once it is true.
    cancelled: Option<Arc<AtomicBool>>,
    record_silent: bool,
    record_details: bool,
    /// Bytes that operators inspected.
    inspected: u64,
    /// Bytes that count for `SecInspectionLimit`: they do not depend on the gates.
    charged: u64,
    /// True if a search needed too many steps.
    backtracking_exceeded: bool,
    /// Steps back that searches may take, of [`BACKTRACK_BUDGET`].
    backtrack_budget: usize,
    /// Work of the request's body, once it is parsed.
    request_work: Option<usize>,
}

/// Values that the rule which runs has matched.
#[derive(Debug, Default)]
struct Matched {
    values: Vec<MatchedValue>,
    count: usize,
    /// The last value before transformations, if they changed it.
    original: Vec<u8>,
    is_last_transformed: bool,
}

#[derive(Debug, Default)]
struct MatchedValue {
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Matched {
    fn clear(&mut self) {
        self.count = 0;
    }

    fn push(&mut self, key: impl FnOnce(&mut Vec<u8>), value: &[u8]) {
        if self.count == self.values.len() {
            self.values.push(MatchedValue::default());
        }
        let slot = &mut self.values[self.count];
        slot.key.clear();
        key(&mut slot.key);
        slot.value.clear();
        slot.value.extend_from_slice(value);
        self.is_last_transformed = false;
        self.count += 1;
    }

    /// Keeps the last value as it was before transformations.
    fn keep_original(&mut self, original: &[u8]) {
        self.is_last_transformed = true;
        self.original.clear();
        self.original.extend_from_slice(&original[..original.len().min(LOGGED_VALUE_MAX)]);
    }

    fn memory(&self) -> usize {
        self.values.iter().map(|matched| matched.key.capacity() + matched.value.capacity()).sum()
    }

    fn all(&self) -> &[MatchedValue] {
        &self.values[..self.count]
    }

    fn last(&self) -> Option<&MatchedValue> {
        self.all().last()
    }

    fn last_original(&self) -> Option<&[u8]> {
        (self.count > 0 && self.is_last_transformed).then_some(&self.original)
    }
}

/// Decision to end a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Intervention {
    /// Status of the response.
    pub status: u16,
    /// Target of a redirect.
    pub redirect: Option<String>,
    /// True if the connection is to be closed without a response.
    pub drop: bool,
    /// Id of the rule, or `None` for a limit.
    pub rule: Option<u64>,
}

/// Rule that matched.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Match {
    /// Position of the rule, for [`RuleSet::rule`].
    pub rule: usize,
    /// Id of the rule.
    pub id: u64,
    /// Phase in which it matched.
    pub phase: Phase,
    /// Variable whose value matched last, such as `ARGS:q`.
    pub variable: Vec<u8>,
    /// The value after transformations, at most 4 kB of it.
    pub value: Vec<u8>,
    /// The same before transformations, if they changed it.
    pub original: Option<Vec<u8>>,
    /// `msg`, expanded.
    pub message: Vec<u8>,
    /// `logdata`, expanded.
    pub log_data: Vec<u8>,
    /// False for rules with `nolog`, which are recorded on request only, or with `auditlog`.
    pub logged: bool,
    /// True if the rule's disruptive action ran.
    pub disruptive: bool,
    /// The argument of the rule's last operator if it has macros, expanded, at most 4 kB of it.
    pub argument: Option<Vec<u8>>,
    /// Further facts, if [`Transaction::record_details`] asked for them.
    pub details: Option<MatchDetails>,
}

/// Facts about a match for a person who tunes rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MatchDetails {
    /// Variable that the rule's first condition matched, such as `ARGS:q`.
    pub source: Vec<u8>,
    /// Part of the value that the operator matched, if it is a regex or a list of phrases.
    pub matched: Vec<u8>,
    /// Variables that the rule increased, such as `tx.inbound_anomaly_score_pl1`, with the amount.
    pub scores: Vec<(String, i64)>,
}

impl Match {
    /// The directive that would silence this match, if [`Transaction::record_details`] asked for it.
    pub fn exclusion(&self) -> Option<String> {
        let details = self.details.as_ref()?;
        let (id, source) = (self.id, &details.source);
        let is_of_message =
            !source.is_empty() && !source.starts_with(b"TX") && !source.starts_with(b"&");
        if is_of_message {
            return Some(format!("SecRuleUpdateTargetById {id} \"!{}\"", source.escape_ascii()));
        }
        (!details.scores.is_empty()).then(|| format!("SecRuleRemoveById {id}"))
    }
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        write!(f, "[id \"{}\"] [msg \"{}\"]", self.id, text(&self.message))?;
        if !self.log_data.is_empty() {
            write!(f, " [data \"{}\"]", text(&self.log_data))?;
        }
        write!(f, " [variable \"{}\"]", text(&self.variable))
    }
}

/// Addresses of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Connection<'a> {
    /// Address of the client.
    pub client: &'a str,
    /// Port of the client.
    pub client_port: u16,
    /// Address of the server.
    pub server: &'a str,
    /// Port of the server.
    pub server_port: u16,
}

impl Transaction {
    /// Creates an empty transaction.
    pub fn new(rules: Arc<RuleSet>) -> Self {
        let mut transaction = Self {
            entries: Entries::new(entries_limit(rules.settings()), rules.read),
            state: State::new(&rules),
            body: Vec::new(),
            response_body: Vec::new(),
            arguments: 0,
            empty_arguments: 0,
            arguments_size: 0,
            rules,
        };
        transaction.reset();
        transaction
    }

    /// Empties the transaction for the next request; its memory is reused.
    pub fn reset(&mut self) {
        self.entries.clear(RETAINED);
        self.state.reset(&self.rules);
        for body in [&mut self.body, &mut self.response_body] {
            body.clear();
            body.shrink_to(RETAINED);
        }
        self.arguments = 0;
        self.empty_arguments = 0;
        self.arguments_size = 0;
    }

    /// Empties the transaction for a request that other rules inspect.
    pub fn reset_with(&mut self, rules: &Arc<RuleSet>) {
        if !self.rules.shares_rules_with(rules) {
            let collections = self.state.store.collections.take();
            *self = Self::new(Arc::clone(rules));
            self.state.store.collections = collections;
            return;
        }
        self.rules = Arc::clone(rules);
        self.entries.set_limit(entries_limit(rules.settings()));
        self.reset();
    }

    /// Records rules with `nolog` that match, too.
    pub fn record_silent(&mut self, record: bool) {
        self.state.record_silent = record;
    }

    /// Records [`Match::details`], which costs a second search of each matching value.
    pub fn record_details(&mut self, record: bool) {
        self.state.record_details = record;
    }

    /// Sets the mode of the engine for this transaction, in place of `SecRuleEngine`.
    pub fn engine_mode(&mut self, mode: EngineMode) {
        self.state.engine = mode;
    }

    /// True if an intervention ends this transaction, rather than being logged only.
    pub fn is_blocking(&self) -> bool {
        self.state.engine == EngineMode::On
    }

    /// Sets the addresses of the connection.
    pub fn connection(&mut self, connection: &Connection<'_>) {
        self.entries.set(Variable::RemoteAddr, connection.client.as_bytes());
        self.entries.set(Variable::RemoteHost, connection.client.as_bytes());
        self.entries.set_number(Variable::RemotePort, connection.client_port.into());
        self.entries.set(Variable::ServerAddr, connection.server.as_bytes());
        self.entries.set_number(Variable::ServerPort, connection.server_port.into());
    }

    /// Sets the identifier of the transaction.
    pub fn unique_id(&mut self, id: &(impl fmt::Display + ?Sized)) {
        if self.entries.read().contains(Variable::UniqueId) {
            self.entries.set(Variable::UniqueId, id.to_string().as_bytes());
        }
    }

    /// Uses collections that other transactions use too, for this transaction and after [`reset`](Self::reset). Otherwise each
    /// persistent collection lasts for one transaction.
    pub fn collections(&mut self, collections: &Arc<Collections>) {
        self.state.store.collections = Some(Arc::clone(collections));
    }

    /// Runs no further rule once `flag` is true, until [`reset`](Self::reset): for a caller who gave up waiting on another thread. The
    /// rule that runs goes on to its end.
    pub fn cancel_by(&mut self, flag: Arc<AtomicBool>) {
        self.state.cancelled = Some(flag);
    }

    /// Sets the time of the request, in seconds since 1970. Timeouts of collections depend on it.
    pub fn time(&mut self, seconds: u64) {
        const VARIABLES: [Variable; 9] = [
            Variable::Time,
            Variable::TimeEpoch,
            Variable::TimeHour,
            Variable::TimeMin,
            Variable::TimeSec,
            Variable::TimeDay,
            Variable::TimeMon,
            Variable::TimeYear,
            Variable::TimeWday,
        ];
        self.state.store.now = seconds;
        if !self.entries.read().contains_any(&VARIABLES) {
            return;
        }
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        let (year, month, day) = civil_date(days);
        let two = |value: u64| format!("{value:02}");
        let clock =
            format!("{}:{}:{}", two(second / 3600), two(second / 60 % 60), two(second % 60));
        let values = [
            clock,
            seconds.to_string(),
            two(second / 3600),
            two(second / 60 % 60),
            two(second % 60),
            day.to_string(),
            month.to_string(),
            year.to_string(),
            ((days + 4) % 7).to_string(),
        ];
        for (variable, value) in VARIABLES.into_iter().zip(values) {
            self.entries.set(variable, value.as_bytes());
        }
    }

    /// Matches so far, in the order in which they happened.
    pub fn matches(&self) -> &[Match] {
        &self.state.matches
    }

    /// Limits that the transaction reached, so that something was not inspected or not logged.
    pub fn limits_reached(&self) -> LimitsReached {
        self.state.limits.summary()
    }

    /// Bytes of memory that the bodies, names and values of this transaction take.
    pub fn memory(&self) -> usize {
        let bodies = self.body.capacity() + self.response_body.capacity();
        bodies + self.entries.memory() + self.state.store.memory() + self.state.matched.memory()
    }

    /// Bytes that operators inspected, the same bytes again for each rule.
    pub fn inspected(&self) -> u64 {
        self.state.inspected
    }

    /// The request body as far as it is inspected.
    pub fn request_body(&self) -> &[u8] {
        &self.body
    }

    /// The response body as far as it is inspected.
    pub fn response_body(&self) -> &[u8] {
        &self.response_body
    }

    /// Decision to end the transaction, if there is one.
    pub fn intervention(&self) -> Option<&Intervention> {
        self.state.intervention.as_ref()
    }

    /// Value of a TX variable, such as `blocking_inbound_anomaly_score`.
    pub fn tx(&self, name: &str) -> Option<Vec<u8>> {
        let has_capitals = name.bytes().any(|byte| byte.is_ascii_uppercase());
        let name =
            if has_capitals { Cow::Owned(name.to_ascii_lowercase()) } else { Cow::Borrowed(name) };
        match self.rules.slot_by_name.get(name.as_bytes()) {
            Some(&slot) if self.state.store.is_set(slot) => {
                let mut value = Vec::new();
                self.state.store.append(slot, &mut value);
                Some(value)
            }
            Some(_) => None,
            None => self.state.store.named(Variable::Tx, name.as_bytes()).map(Cow::into_owned),
        }
    }

    /// All TX variables that are set, in no particular order.
    pub fn tx_all(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut all = Vec::new();
        self.state.store.visit(Variable::Tx, &Selector::All, &self.rules.slots, |name, value| {
            all.push((name.to_vec(), value.to_vec()));
        });
        all
    }

    /// Variables that `setenv` set.
    pub fn environment(&self) -> &[(Vec<u8>, Vec<u8>)] {
        &self.state.environment
    }

    /// True if the transaction belongs in the audit log, given the status of the response.
    pub fn is_audit_relevant(&self, status: u16) -> bool {
        match self.state.audit_engine {
            AuditEngine::On => true,
            AuditEngine::Off => false,
            AuditEngine::RelevantOnly => {
                let rules = &self.rules.rules;
                self.state.matches.iter().any(|m| rules[m.rule].audit_log)
                    || self.rules.is_relevant_status(status)
            }
        }
    }

    /// Parts of the audit log, as letters.
    pub fn audit_log_parts(&self) -> &str {
        self.state.audit_log_parts.as_deref().unwrap_or(&self.rules.settings.audit_log_parts)
    }

    /// The rule set.
    pub fn rules(&self) -> &Arc<RuleSet> {
        &self.rules
    }

    /// Runs the rules of phase 5. They cannot block.
    pub fn process_logging(&mut self, worker: &mut Worker) {
        self.run(Phase::Logging, worker);
    }
}

impl State {
    fn new(rules: &RuleSet) -> Self {
        let settings = rules.settings();
        Self {
            engine: settings.engine,
            audit_engine: settings.audit_engine,
            audit_log_parts: None,
            request_body_access: settings.request_body_access,
            response_body_access: settings.response_body_access,
            request_body_limit: settings.request_body_limit,
            response_body_limit: settings.response_body_limit,
            body_processor: None,
            is_xml: false,
            store: Store::default(),
            matched: Matched::default(),
            environment: Vec::new(),
            exclusions: rules.exclusions.clone(),
            allow: None,
            highest_severity: None,
            intervention: None,
            matches: Vec::new(),
            limits: Reached::default(),
            cancelled: None,
            record_silent: false,
            record_details: false,
            inspected: 0,
            charged: 0,
            backtracking_exceeded: false,
            backtrack_budget: BACKTRACK_BUDGET,
            request_work: None,
        }
    }

    fn reject(&mut self, status: u16) {
        if self.engine == EngineMode::On && self.intervention.is_none() {
            self.intervention =
                Some(Intervention { status, redirect: None, drop: false, rule: None });
        }
    }

    /// Drops something because of a limit: the only way to do so. Blocks if the limit's action is `Reject`.
    #[cold]
    fn exceed(&mut self, limit: Limit, count: usize, settings: &Settings) {
        self.limits.exceed(limit, count);
        let (action, status) = match limit {
            Limit::Inspection => (settings.inspection_limit_action, 403),
            Limit::RequestBody | Limit::Values | Limit::Variables => {
                (settings.request_body_limit_action, 413)
            }
            Limit::ResponseBody => (settings.response_body_limit_action, 403),
            Limit::Matches
            | Limit::Regexes
            | Limit::Operators
            | Limit::Collections
            | Limit::Cancelled => return,
        };
        if action == LimitAction::Reject {
            self.reject(status);
        }
    }

    fn reset(&mut self, rules: &RuleSet) {
        let mut store = std::mem::take(&mut self.store);
        store.clear(rules.slots.len());
        let mut matched = std::mem::take(&mut self.matched);
        matched.clear();
        matched.values.truncate(16);
        for MatchedValue { key, value } in &mut matched.values {
            for bytes in [key, value] {
                bytes.clear();
                bytes.shrink_to(RETAINED_VALUE);
            }
        }
        let mut matches = std::mem::take(&mut self.matches);
        matches.clear();
        matches.shrink_to(16);
        let Self { record_silent, record_details, .. } = *self;
        *self = Self { store, matched, matches, record_silent, record_details, ..Self::new(rules) };
    }
}

/// Bytes that a transaction may hold as values.
fn entries_limit(settings: &Settings) -> usize {
    4 * (settings.request_body_limit + settings.response_body_limit) + (8 << 20)
}

/// Year, month and day of a number of days since 1970 (Hinnant, "chrono-compatible low-level date algorithms").
fn civil_date(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}
