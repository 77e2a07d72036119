//! Actions of rules that match: assignments, controls, disruptive actions and the log.

use crate::collections::Write;
use crate::condition::{Condition, TextOperator};
use crate::limits::{COLLECTION_KEY_MAX, LOGGED_VALUE_MAX, Limit, MATCHES_MAX, OCCURRENCES_MAX};
use crate::operator::text::parse_integer;
use crate::regex::BACKTRACK_BUDGET;
use crate::rule::{Assignment, Change, Control, Disruptive, EngineMode, Link, Phase, Rule};
use crate::template::{Macro, Template};
use crate::variable::Variable;

use super::evaluate::{Captured, Evaluation, Key, Running};
use super::{Intervention, Match, MatchDetails};

impl Evaluation<'_> {
    /// Stores the captured text of a match as TX.0 to TX.9.
    pub(super) fn capture(&mut self, captured: &Captured, value: &[u8]) {
        match captured {
            Captured::Nothing => {}
            Captured::Range(start, end) => {
                self.write(0, &value[*start..*end]);
            }
            Captured::Text(text) => {
                self.write(0, text);
            }
            Captured::Groups => {
                let groups = std::mem::take(&mut self.buffers.captures);
                for (slot, range) in (0..).zip(&groups) {
                    if let Some((start, end)) = *range {
                        self.write(slot, &value[start..end]);
                    }
                }
                self.buffers.captures = groups;
            }
        }
    }

    /// Sets a TX variable to a text; false if it does not fit into the limit.
    pub(super) fn write(&mut self, slot: u32, text: &[u8]) -> bool {
        let is_written = self.state.store.set(slot, text).is_ok();
        if !is_written {
            self.exceed(Limit::Variables);
        }
        is_written
    }

    pub(super) fn write_named(&mut self, variable: Variable, name: &[u8], text: &[u8]) {
        self.write_value(variable, name, Write::Set(text));
    }

    fn write_value(&mut self, variable: Variable, name: &[u8], write: Write<'_>) {
        if self.state.store.write(variable, name, write).is_err() {
            let is_opened = self.state.store.opened(variable).is_some();
            self.exceed(if is_opened { Limit::Collections } else { Limit::Variables });
        }
    }

    /// Opens a persistent collection.
    fn open(&mut self, variable: Variable, key: &[u8]) {
        let settings = &self.rules.settings;
        let id = (variable, settings.web_app_id.as_str(), key);
        self.state.store.open(id, settings.collection_timeout);
        if key.len() > COLLECTION_KEY_MAX {
            self.exceed(Limit::Collections);
        }
    }

    pub(super) fn exceed(&mut self, limit: Limit) {
        self.state.exceed(limit, 1, &self.rules.settings);
    }

    pub(super) fn hit(&mut self, running: &Running<'_>, key: Key<'_>, value: &[u8]) {
        self.state.matched.push(|output| key.write(output), value);
        let times = if running.link.per_occurrence {
            occurrences(running, value, &mut self.state.backtrack_budget)
        } else {
            1
        };
        for _ in 0..times {
            for assignment in &running.link.assignments {
                self.assign(running.rule, assignment);
            }
        }
    }

    /// Number that a template expands to.
    pub(super) fn number(&mut self, rule: &Rule, template: &Template) -> i64 {
        if let Some(number) = template.as_number() {
            return number;
        }
        if let Some(Macro { slot: Some(slot), .. }) = template.as_macro() {
            return self.state.store.number(*slot);
        }
        let mut text = std::mem::take(&mut self.buffers.text);
        text.clear();
        self.expand(Some(rule), template, &mut text);
        let number = parse_integer(&text);
        self.buffers.text = text;
        number
    }

    pub(super) fn assign(&mut self, rule: &Rule, assignment: &Assignment) {
        let mut name = std::mem::take(&mut self.buffers.name);
        name.clear();
        let slot = assignment.slot.or_else(|| {
            self.expand(Some(rule), &assignment.name, &mut name);
            if !matches!(assignment.change, Change::Open) {
                name.make_ascii_lowercase();
            }
            let slot = self.rules.slot_by_name.get(name.as_slice()).copied();
            slot.filter(|_| assignment.variable == Variable::Tx)
        });
        self.change(rule, assignment, slot, &name);
        self.buffers.name = name;
    }

    fn change(&mut self, rule: &Rule, assignment: &Assignment, slot: Option<u32>, name: &[u8]) {
        let variable = assignment.variable;
        let seconds = |number: i64| u64::try_from(number).unwrap_or(0);
        match &assignment.change {
            Change::Unset => match slot {
                Some(slot) => self.state.store.unset(slot),
                None => self.write_value(variable, name, Write::Unset),
            },
            Change::Set(template) => {
                let mut text = std::mem::take(&mut self.buffers.text);
                text.clear();
                self.expand(Some(rule), template, &mut text);
                match (slot, canonical_number(&text)) {
                    (Some(slot), Some(number)) => self.state.store.set_number(slot, number),
                    (Some(slot), None) => {
                        self.write(slot, &text);
                    }
                    (None, _) => self.write_named(variable, name, &text),
                }
                self.buffers.text = text;
            }
            Change::Add(template) => {
                let amount = self.number(rule, template);
                self.add(variable, slot, name, amount);
            }
            Change::Subtract(template) => {
                let amount = self.number(rule, template);
                self.add(variable, slot, name, amount.saturating_neg());
            }
            Change::Open => self.open(variable, name),
            Change::Expire(template) => {
                let after = seconds(self.number(rule, template));
                self.write_value(variable, name, Write::Expire(after));
            }
            Change::Deprecate { amount, period } => {
                let amount = seconds(self.number(rule, amount));
                let period = seconds(self.number(rule, period));
                self.write_value(variable, name, Write::Deprecate { amount, period });
            }
        }
    }

    fn add(&mut self, variable: Variable, slot: Option<u32>, name: &[u8], amount: i64) {
        match slot {
            Some(slot) => {
                let sum = self.state.store.number(slot).saturating_add(amount);
                self.state.store.set_number(slot, sum);
            }
            None => self.write_value(variable, name, Write::Add(amount)),
        }
    }

    pub(super) fn control(&mut self, control: &Control) {
        let state = &mut *self.state;
        match control {
            Control::AuditEngine(mode) => state.audit_engine = *mode,
            Control::AuditLogParts(parts) => {
                let current = state
                    .audit_log_parts
                    .clone()
                    .unwrap_or_else(|| self.rules.settings.audit_log_parts.clone());
                state.audit_log_parts =
                    Some(match (parts.strip_prefix('+'), parts.strip_prefix('-')) {
                        (Some(added), _) => current + added,
                        (_, Some(removed)) => current.replace(|c| removed.contains(c), ""),
                        _ => parts.clone(),
                    });
            }
            Control::RequestBodyAccess(access) => state.request_body_access = *access,
            Control::ResponseBodyAccess(access) => state.response_body_access = *access,
            Control::RequestBodyLimit(limit) => state.request_body_limit = *limit,
            Control::ResponseBodyLimit(limit) => state.response_body_limit = *limit,
            Control::RequestBodyProcessor(processor) => {
                state.body_processor = Some(*processor);
            }
            Control::Engine(mode) => state.engine = *mode,
            Control::RemoveRules(rules) => {
                let count = self.rules.rules.len();
                rules.iter().for_each(|&rule| state.exclusions.exclude(rule, count));
            }
            Control::RemoveTargets(rules, target) => {
                state.exclusions.exclude_target(rules, target);
            }
            Control::ForceRequestBodyVariable => {}
            Control::SetEnv(name, value) => {
                let (mut expanded_name, mut expanded) = (Vec::new(), Vec::new());
                self.expand(None, name, &mut expanded_name);
                self.expand(None, value, &mut expanded);
                self.state.environment.retain(|(name, _)| *name != expanded_name);
                self.state.environment.push((expanded_name, expanded));
            }
        }
    }

    /// Runs the disruptive action; true if it ended the transaction.
    pub(super) fn disrupt(&mut self, rule: &Rule) -> bool {
        if self.state.engine != EngineMode::On || self.phase == Phase::Logging {
            return false;
        }
        let mut intervention = Intervention {
            status: rule.status.unwrap_or(403),
            redirect: None,
            drop: false,
            rule: Some(rule.id),
        };
        match &rule.disruptive {
            Disruptive::Pass => return false,
            Disruptive::Allow(scope) => {
                self.state.allow = Some(*scope);
                return false;
            }
            Disruptive::Deny => {}
            Disruptive::Drop => intervention.drop = true,
            Disruptive::Redirect(to) => {
                let mut text = Vec::new();
                self.expand(Some(rule), to, &mut text);
                intervention.redirect = Some(String::from_utf8_lossy(&text).into_owned());
                intervention.status =
                    rule.status.filter(|status| (300..400).contains(status)).unwrap_or(302);
            }
        }
        self.state.intervention.get_or_insert(intervention);
        true
    }

    /// Keeps the match of a rule for the log, with the last value that matched.
    pub(super) fn record(
        &mut self,
        rule: &Rule,
        index: usize,
        disruptive: bool,
        first_matches: usize,
    ) {
        if self.state.matches.len() >= MATCHES_MAX {
            self.exceed(Limit::Matches);
            return;
        }
        let expanded = |template: fn(&Link) -> Option<&Template>| {
            let mut text = Vec::new();
            if let Some(template) = rule.links.iter().find_map(template) {
                self.expand(Some(rule), template, &mut text);
                text.truncate(LOGGED_VALUE_MAX);
            }
            text
        };
        let (message, log_data) =
            (expanded(|link| link.message.as_ref()), expanded(|link| link.log_data.as_ref()));
        let matched = self.state.matched.last();
        let value = matched
            .map_or(&[][..], |matched| &matched.value[..matched.value.len().min(LOGGED_VALUE_MAX)]);
        let record = Match {
            rule: index,
            id: rule.id,
            phase: self.phase,
            variable: matched.map_or_else(Vec::new, |matched| matched.key.clone()),
            value: value.to_vec(),
            original: self.state.matched.last_original().map(<[u8]>::to_vec),
            message,
            log_data,
            logged: rule.log,
            disruptive,
            argument: self.expanded_argument(rule),
            details: self.state.record_details.then(|| self.details(rule, first_matches)),
        };
        self.state.matches.push(record);
    }

    /// The argument of the last operator, if it has macros.
    fn expanded_argument(&self, rule: &Rule) -> Option<Vec<u8>> {
        let (Condition::Text(_, argument)
        | Condition::Number(_, argument)
        | Condition::RegexTemplate(argument)) = &rule.links.last()?.test.as_ref()?.condition
        else {
            return None;
        };
        if argument.as_text().is_some() {
            return None;
        }
        let mut text = Vec::new();
        self.expand(Some(rule), argument, &mut text);
        text.truncate(LOGGED_VALUE_MAX);
        Some(text)
    }

    fn details(&self, rule: &Rule, first_matches: usize) -> MatchDetails {
        let all = self.state.matched.all();
        let first = first_matches.checked_sub(1).and_then(|last| all.get(last));
        let search = |link: &Link, value: &[u8]| {
            let test = link.test.as_ref().filter(|test| !test.negated)?;
            let range = match &test.condition {
                Condition::Regex(pattern) => {
                    let mut first = None;
                    let stop = |range| {
                        first = Some(range);
                        true
                    };
                    // A search that needs too many steps has matched nothing. Its steps do not count for the rules.
                    pattern.matcher().visit(value, &mut { BACKTRACK_BUDGET }, stop).ok()?;
                    first?
                }
                Condition::Phrases(set) => set.find(value)?,
                _ => return None,
            };
            Some(value[range].to_vec())
        };
        let mut scores = Vec::new();
        for assignment in rule.links.iter().flat_map(|link| &link.assignments) {
            if let Change::Add(amount) = &assignment.change {
                let (mut name, mut text) = (Vec::new(), Vec::new());
                self.expand(Some(rule), &assignment.name, &mut name);
                self.expand(Some(rule), amount, &mut text);
                let name = String::from_utf8_lossy(&name).into_owned();
                scores.push((
                    format!("{}.{name}", assignment.variable.name().to_ascii_lowercase()),
                    parse_integer(&text),
                ));
            }
        }
        MatchDetails {
            source: first.map_or_else(Vec::new, |first| first.key.clone()),
            matched: first
                .and_then(|first| search(&rule.links[0], &first.value))
                .unwrap_or_default(),
            scores,
        }
    }
}

/// Number of times that the operator finds its argument in a matching value.
fn occurrences(running: &Running<'_>, value: &[u8], budget: &mut usize) -> usize {
    if running.test.negated {
        return 1;
    }
    match &running.test.condition {
        Condition::Regex(pattern) => {
            let mut count = 0;
            let visited = pattern.matcher().visit(value, budget, |_range| {
                count += 1;
                count == OCCURRENCES_MAX
            });
            // After too many steps, as many as there can be.
            visited.map_or(OCCURRENCES_MAX, |()| count)
        }
        Condition::Text(TextOperator::Contains, _) => {
            memchr::memmem::find_iter(value, &running.argument).take(OCCURRENCES_MAX).count()
        }
        _ => 1,
    }
}

/// The number that a text is, if it is written exactly as numbers are printed.
fn canonical_number(text: &[u8]) -> Option<i64> {
    let canonical = match text {
        [b'0'] => true,
        [b'1'..=b'9', rest @ ..] => rest.len() < 18 && rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    canonical.then(|| parse_integer(text))
}
