//! Evaluation of rules: the reference for their meaning. Gates only spare it values that cannot match.

use crate::condition::{Checksum, Condition, TextOperator};
use crate::libinjection::{detect_sqli, detect_xss};
use crate::operator::text::{self, parse_integer};
use crate::operator::{encoding, identity};
use crate::rule::{
    AllowScope, Assignment, Change, Control, Disruptive, EngineMode, Flow, Link, Phase, Rule,
    RuleFilter, Selector, Step, Target, Test,
};
use crate::ruleset::RuleSet;
use crate::template::{Macro, Part, Template};
use crate::variable::{Source, Variable};

use super::entries::Entries;
use super::store::append_number;
use super::worker::{Buffers, Caches};
use super::{
    Intervention, LOGGED_VALUE_MAX, MATCHES_MAX, Match, MatchDetails, State, Transaction, Worker,
};

impl Transaction {
    /// Runs the rules of a phase.
    pub(super) fn run(&mut self, phase: Phase, worker: &mut Worker) {
        if self.state.engine == EngineMode::Off {
            return;
        }
        let rules = std::sync::Arc::clone(&self.rules);
        worker.bind(&rules);
        let gated = worker.is_gated() && rules.plan.is_useful(phase);
        if gated {
            worker.gate.prepare(&rules, &self.entries, phase);
        }
        let (caches, buffers, gate) = worker.split();
        let gate = gated.then_some(&*gate);
        Evaluation {
            rules: &rules,
            entries: &self.entries,
            state: &mut self.state,
            caches,
            buffers,
            gate,
            phase,
        }
        .phase();
    }
}

struct Evaluation<'a> {
    rules: &'a RuleSet,
    entries: &'a Entries,
    state: &'a mut State,
    caches: &'a mut Caches,
    buffers: &'a mut Buffers,
    gate: Option<&'a crate::plan::Gate>,
    phase: Phase,
}

/// Test that is being evaluated.
struct Running<'a> {
    rule: &'a Rule,
    link: &'a Link,
    test: &'a Test,
    /// Targets that `ctl` removed from this rule.
    removed: Vec<Target>,
    /// Argument of a numeric operator.
    number: i64,
    /// Expanded argument of a text operator.
    argument: Vec<u8>,
}

/// Where a value comes from, for the name of the match.
#[derive(Clone, Copy)]
struct Key<'a> {
    variable: Variable,
    name: &'a [u8],
    count: bool,
}

impl Key<'_> {
    fn write(self, output: &mut Vec<u8>) {
        if self.count {
            output.push(b'&');
        }
        output.extend_from_slice(self.variable.name().as_bytes());
        if self.variable.is_collection() && !self.name.is_empty() {
            output.push(b':');
            output.extend_from_slice(self.name);
        }
    }
}

impl Evaluation<'_> {
    fn phase(&mut self) {
        match self.state.allow {
            Some(AllowScope::Transaction) if self.phase != Phase::Logging => return,
            Some(AllowScope::Request) if self.phase <= Phase::RequestBody => return,
            _ => self.state.allow = None,
        }
        let rules = self.rules;
        let steps = &rules.steps[self.phase.index()];
        let mut at = 0;
        let mut skip = 0;
        while let Some(step) = steps.get(at) {
            at += 1;
            let &Step::Rule(index) = step else { continue };
            if skip > 0 {
                skip -= 1;
                continue;
            }
            if !self.is_removed(index) && self.rule(index) {
                match rules.rules[index].flow {
                    Flow::Continue => {}
                    Flow::SkipAfter(position) => at = position,
                    Flow::Skip(count) => skip = count,
                }
            }
            let blocked = self.state.intervention.is_some() && self.phase != Phase::Logging;
            if blocked || self.state.allow.is_some() || self.state.engine == EngineMode::Off {
                return;
            }
        }
    }

    fn is_removed(&self, rule: usize) -> bool {
        self.state.removed_rules.get(rule / 64).is_some_and(|word| word >> (rule % 64) & 1 == 1)
    }

    /// Evaluates a rule with its chain; true if all of it matched.
    fn rule(&mut self, index: usize) -> bool {
        let rules = self.rules;
        let rule = &rules.rules[index];
        self.state.matched.clear();
        let mut first_matches = 0;
        for (number, link) in rule.links.iter().enumerate() {
            if !self.link(rule, index, link) {
                self.state.matched.clear();
                return false;
            }
            if number == 0 {
                first_matches = self.state.matched.count;
            }
        }
        for link in rule.links.iter().rev() {
            link.controls.iter().for_each(|control| self.control(control));
        }
        if let Some(severity) = rule.severity {
            self.state.highest_severity =
                Some(self.state.highest_severity.map_or(severity, |s| s.min(severity)));
        }
        let disruptive = self.disrupt(rule);
        if rule.log || self.state.record_silent {
            self.record(rule, index, disruptive, first_matches);
        }
        true
    }

    fn link(&mut self, rule: &Rule, rule_index: usize, link: &Link) -> bool {
        let Some(test) = &link.test else {
            link.assignments.iter().for_each(|assignment| self.assign(rule, assignment));
            return true;
        };
        if let Some(gate) = self.gate
            && gate.excludes(test.index)
        {
            return false;
        }
        if self.number_does_not_hold(test) {
            return false;
        }
        let mut argument = std::mem::take(&mut self.buffers.argument);
        argument.clear();
        let mut number = 0;
        match &test.condition {
            Condition::Text(_, template) => self.expand(Some(rule), template, &mut argument),
            Condition::Number(_, template) => number = self.number(rule, template),
            _ => {}
        }
        let removed = self.removed_targets(rule_index);
        let mut running = Running { rule, link, test, removed, number, argument };
        let mut matched = false;
        for target in &test.targets {
            matched |= self.target(&running, target);
        }
        self.buffers.argument = std::mem::take(&mut running.argument);
        matched
    }

    /// True if the test compares one TX variable with a number, and does not match. Most rules of
    /// the Core Rule Set's control flow are of this kind.
    fn number_does_not_hold(&self, test: &Test) -> bool {
        let Condition::Number(operator, template) = &test.condition else { return false };
        let [Target { variable: Variable::Tx, selector: Selector::Name(_, Some(slot)), count }] =
            test.targets.as_slice()
        else {
            return false;
        };
        if !test.transformations.is_empty() {
            return false;
        }
        let argument = match template.as_text() {
            Some(text) => parse_integer(text),
            None => match template.as_macro() {
                Some(Macro { slot: Some(slot), .. }) => self.state.store.number(*slot),
                _ => return false,
            },
        };
        let set = self.state.store.is_set(*slot);
        let value = match (count, set) {
            (true, _) => i64::from(set),
            (false, false) => return true,
            (false, true) => self.state.store.number(*slot),
        };
        operator.holds(operator.narrow(value), operator.narrow(argument)) == test.negated
    }

    fn removed_targets(&self, rule: usize) -> Vec<Target> {
        let Ok(rule) = u32::try_from(rule) else { return Vec::new() };
        let removed = self.state.removed_targets.iter();
        removed
            .filter(|(rules, _)| rules.binary_search(&rule).is_ok())
            .map(|(_, target)| target.clone())
            .collect()
    }

    /// Compares all values of a target; true if one of them matched.
    fn target(&mut self, running: &Running<'_>, target: &Target) -> bool {
        if target.count {
            let count = self.count(target);
            let mut value = std::mem::take(&mut self.buffers.value);
            value.clear();
            append_number(i64::try_from(count).unwrap_or(i64::MAX), &mut value);
            let name: &[u8] =
                if let Selector::Name(name, _) = &target.selector { name } else { b"" };
            let key = Key { variable: target.variable, name, count: true };
            let matched = !is_excluded(running, key) && self.value(running, key, &value);
            self.buffers.value = value;
            return matched;
        }
        let entries = self.entries;
        match target.variable.source() {
            Source::Entries(_)
                if matches!(
                    target.variable,
                    Variable::HighestSeverity | Variable::Env | Variable::Duration
                ) =>
            {
                self.computed(running, target)
            }
            Source::Entries(variables) => {
                let mut matched = false;
                for &variable in variables {
                    let list = match self.gate.and_then(|gate| gate.candidates(running.test.index))
                    {
                        Some(candidates) => candidates,
                        None => entries.list(variable),
                    };
                    for &index in list {
                        let entry = entries.entry(index);
                        if entry.variable != variable {
                            continue;
                        }
                        let name = entries.bytes(entry.name);
                        let key = Key { variable: target.variable, name, count: false };
                        if target.selector.accepts(name) && !is_excluded(running, key) {
                            matched |= self.value(running, key, entries.value(index));
                        }
                    }
                }
                matched
            }
            Source::Store => self.stored(running, target),
            Source::Matched => self.matched_values(running, target),
            Source::Rule => {
                let mut value = Vec::new();
                let Selector::Name(name, _) = &target.selector else { return false };
                let reference = Macro { variable: Variable::Rule, name: name.clone(), slot: None };
                self.append(Some(running.rule), &reference, &mut value);
                self.value(running, Key { variable: Variable::Rule, name, count: false }, &value)
            }
        }
    }

    fn count(&self, target: &Target) -> usize {
        match target.variable.source() {
            Source::Entries(variables) => {
                let lists = variables.iter().flat_map(|&variable| self.entries.list(variable));
                match target.selector {
                    Selector::All => lists.count(),
                    _ => lists
                        .filter(|&&index| {
                            target
                                .selector
                                .accepts(self.entries.bytes(self.entries.entry(index).name))
                        })
                        .count(),
                }
            }
            Source::Store => {
                if let (Variable::Tx, Selector::Name(_, Some(slot))) =
                    (target.variable, &target.selector)
                {
                    return usize::from(self.state.store.is_set(*slot));
                }
                let mut count = 0;
                self.state.store.visit(target.variable, &self.rules.slots, |name, _| {
                    count += usize::from(target.selector.accepts(name))
                });
                count
            }
            Source::Matched => self.state.matched.all().len(),
            Source::Rule => 1,
        }
    }

    /// Values that the transaction computes.
    fn computed(&mut self, running: &Running<'_>, target: &Target) -> bool {
        if target.variable == Variable::Env {
            let environment = self.state.environment.clone();
            let mut matched = false;
            for (name, value) in
                environment.iter().filter(|(name, _)| target.selector.accepts(name))
            {
                let key = Key { variable: Variable::Env, name, count: false };
                matched |= !is_excluded(running, key) && self.value(running, key, value);
            }
            return matched;
        }
        let mut value = Vec::new();
        self.append(
            None,
            &Macro { variable: target.variable, name: Vec::new(), slot: None },
            &mut value,
        );
        self.value(running, Key { variable: target.variable, name: b"", count: false }, &value)
    }

    /// Values that rules wrote.
    fn stored(&mut self, running: &Running<'_>, target: &Target) -> bool {
        let variable = target.variable;
        if let (Variable::Tx, Selector::Name(name, Some(slot))) = (variable, &target.selector) {
            if !self.state.store.is_set(*slot) {
                return false;
            }
            let mut value = std::mem::take(&mut self.buffers.value);
            value.clear();
            self.state.store.append(*slot, &mut value);
            let key = Key { variable, name, count: false };
            let matched = !is_excluded(running, key) && self.value(running, key, &value);
            self.buffers.value = value;
            return matched;
        }
        let mut found = Vec::new();
        self.state.store.visit(variable, &self.rules.slots, |name, value| {
            if target.selector.accepts(name) {
                found.push((name.to_vec(), value.to_vec()));
            }
        });
        let mut matched = false;
        for (name, value) in &found {
            let key = Key { variable, name, count: false };
            matched |= !is_excluded(running, key) && self.value(running, key, value);
        }
        matched
    }

    /// Values that earlier links of the chain matched.
    fn matched_values(&mut self, running: &Running<'_>, target: &Target) -> bool {
        let all = self.state.matched.all();
        let chosen = match target.variable {
            Variable::MatchedVar | Variable::MatchedVarName => {
                all.last().map_or(&[][..], std::slice::from_ref)
            }
            _ => all,
        };
        let names =
            matches!(target.variable, Variable::MatchedVarName | Variable::MatchedVarsNames);
        let values: Vec<(Vec<u8>, Vec<u8>)> = chosen
            .iter()
            .filter(|matched| target.selector.accepts(&matched.key))
            .map(|matched| {
                (
                    matched.key.clone(),
                    if names { matched.key.clone() } else { matched.value.clone() },
                )
            })
            .collect();
        let mut matched = false;
        for (name, value) in &values {
            let key = Key { variable: target.variable, name, count: false };
            matched |= !is_excluded(running, key) && self.value(running, key, value);
        }
        matched
    }

    /// Transforms one value and compares it; true if it matched.
    fn value(&mut self, running: &Running<'_>, key: Key<'_>, value: &[u8]) -> bool {
        let transformations = &running.test.transformations;
        if transformations.is_empty() {
            return self.compare(running, key, value);
        }
        let mut current = std::mem::take(&mut self.buffers.transformed);
        let mut next = std::mem::take(&mut self.buffers.spare);
        let mut changed = false;
        let mut matched = running.test.multi_match && self.compare(running, key, value);
        for transformation in transformations {
            let input = if changed { current.as_slice() } else { value };
            if transformation.apply(input, &mut next) {
                std::mem::swap(&mut current, &mut next);
                changed = true;
                if running.test.multi_match {
                    matched |= self.compare(running, key, &current);
                }
            }
        }
        if !running.test.multi_match {
            matched = self.compare(running, key, if changed { &current } else { value });
        }
        self.buffers.transformed = current;
        self.buffers.spare = next;
        matched
    }

    /// Compares a transformed value, and runs the actions of a match.
    fn compare(&mut self, running: &Running<'_>, key: Key<'_>, value: &[u8]) -> bool {
        let captured = self.holds(running, value);
        let Some(captured) = captured else {
            if running.test.negated {
                self.hit(running, key, value);
            }
            return running.test.negated;
        };
        if running.test.negated {
            return false;
        }
        if running.link.capture {
            self.capture(&captured, value);
        }
        self.hit(running, key, value);
        true
    }

    /// Stores the captured text of a match as TX.0 to TX.9.
    fn capture(&mut self, captured: &Captured, value: &[u8]) {
        match captured {
            Captured::Nothing => {}
            Captured::Range(start, end) => self.state.store.set(0, &value[*start..*end]),
            Captured::Text(text) => self.state.store.set(0, text),
            Captured::Groups => {
                for (slot, range) in (0..).zip(&self.buffers.captures) {
                    if let Some((start, end)) = *range {
                        self.state.store.set(slot, &value[start..end]);
                    }
                }
            }
        }
    }

    fn hit(&mut self, running: &Running<'_>, key: Key<'_>, value: &[u8]) {
        self.state.matched.push(|output| key.write(output), value);
        for assignment in &running.link.assignments {
            self.assign(running.rule, assignment);
        }
    }

    /// Applies the operator without its negation.
    fn holds(&mut self, running: &Running<'_>, value: &[u8]) -> Option<Captured> {
        let when = |holds: bool| holds.then_some(Captured::Nothing);
        match &running.test.condition {
            Condition::Always => Some(Captured::Nothing),
            Condition::Never => None,
            Condition::Regex(pattern) => {
                if !self.caches.is_match(pattern, value) {
                    return None;
                }
                if !running.link.capture || running.test.negated {
                    return Some(Captured::Nothing);
                }
                self.caches.captures(pattern, value, &mut self.buffers.captures);
                Some(Captured::Groups)
            }
            Condition::Phrases(set) => {
                set.find(value).map(|range| Captured::Range(range.start, range.end))
            }
            Condition::Text(operator, _) => {
                let argument = running.argument.as_slice();
                when(match operator {
                    TextOperator::BeginsWith => text::begins_with(value, argument),
                    TextOperator::Contains => text::contains(value, argument).is_some(),
                    TextOperator::ContainsWord => text::contains_word(value, argument),
                    TextOperator::EndsWith => text::ends_with(value, argument),
                    TextOperator::Equals => text::streq(value, argument),
                    TextOperator::Within => text::within(value, argument),
                })
            }
            Condition::Number(operator, _) => when(
                operator
                    .holds(operator.narrow(parse_integer(value)), operator.narrow(running.number)),
            ),
            Condition::Ip(set) => when(set.contains(value)),
            Condition::ByteRange(range) => when(range.first_outside(value).is_some()),
            Condition::UrlEncoding => when(encoding::invalid_url_encoding(value)),
            Condition::Utf8Encoding => when(encoding::invalid_utf8(value)),
            Condition::CheckDigits(checksum, pattern) => {
                let valid = match checksum {
                    Checksum::CreditCard => identity::valid_credit_card,
                    Checksum::SocialSecurity => identity::valid_ssn,
                    Checksum::Cpf => identity::valid_cpf,
                    Checksum::Svnr => identity::valid_svnr,
                };
                let mut found = pattern.regex().find_iter(value).map(|m| m.range());
                found
                    .find(|range| valid(&value[range.clone()]))
                    .map(|range| Captured::Range(range.start, range.end))
            }
            Condition::SqlInjection => detect_sqli(value)
                .map(|fingerprint| Captured::Text(fingerprint.as_bytes().to_vec())),
            Condition::CrossSiteScripting => {
                detect_xss(value).then_some(Captured::Range(0, value.len()))
            }
        }
    }

    /// Number that a template expands to.
    fn number(&mut self, rule: &Rule, template: &Template) -> i64 {
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

    fn assign(&mut self, rule: &Rule, assignment: &Assignment) {
        let mut name = std::mem::take(&mut self.buffers.name);
        name.clear();
        let slot = assignment.slot.or_else(|| {
            self.expand(Some(rule), &assignment.name, &mut name);
            name.make_ascii_lowercase();
            let slot = self.rules.slot_by_name.get(name.as_slice()).copied();
            slot.filter(|_| assignment.variable == Variable::Tx)
        });
        self.change(rule, assignment, slot, &name);
        self.buffers.name = name;
    }

    fn change(&mut self, rule: &Rule, assignment: &Assignment, slot: Option<u32>, name: &[u8]) {
        let variable = assignment.variable;
        let current = |state: &State| match slot {
            Some(slot) => state.store.number(slot),
            None => state.store.named(variable, name).map_or(0, parse_integer),
        };
        let sum = match &assignment.change {
            Change::Unset => {
                match slot {
                    Some(slot) => self.state.store.unset(slot),
                    None => self.state.store.unset_named(variable, name),
                }
                return;
            }
            Change::Set(template) => {
                let mut text = std::mem::take(&mut self.buffers.text);
                text.clear();
                self.expand(Some(rule), template, &mut text);
                match (slot, canonical_number(&text)) {
                    (Some(slot), Some(number)) => self.state.store.set_number(slot, number),
                    (Some(slot), None) => self.state.store.set(slot, &text),
                    (None, _) => self.state.store.set_named(variable, name, &text),
                }
                self.buffers.text = text;
                return;
            }
            Change::Add(template) => {
                self.number(rule, template).saturating_add(current(self.state))
            }
            Change::Subtract(template) => {
                current(self.state).saturating_sub(self.number(rule, template))
            }
        };
        match slot {
            Some(slot) => self.state.store.set_number(slot, sum),
            None => {
                let mut text = Vec::new();
                append_number(sum, &mut text);
                self.state.store.set_named(variable, name, &text);
            }
        }
    }

    fn control(&mut self, control: &Control) {
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
            Control::ForceRequestBodyVariable(force) => state.force_request_body = *force,
            Control::RequestBodyAccess(access) => state.request_body_access = *access,
            Control::ResponseBodyAccess(access) => state.response_body_access = *access,
            Control::RequestBodyLimit(limit) => state.request_body_limit = *limit,
            Control::ResponseBodyLimit(limit) => state.response_body_limit = *limit,
            Control::RequestBodyProcessor(processor) => {
                state.body_processor = Some(*processor);
                state.body_processor_forced = true;
            }
            Control::Engine(mode) => state.engine = *mode,
            Control::RemoveRules(RuleFilter::Resolved(rules)) => {
                state.removed_rules.resize(self.rules.rules.len().div_ceil(64), 0);
                for &rule in rules {
                    state.removed_rules[rule as usize / 64] |= 1 << (rule % 64);
                }
            }
            Control::RemoveTargets(RuleFilter::Resolved(rules), target) => {
                if !state.removed_targets.iter().any(|(r, t)| r == rules && t == target) {
                    state.removed_targets.push((rules.clone(), target.clone()));
                }
            }
            // Filters are resolved when the rule set is completed.
            Control::RemoveRules(_) | Control::RemoveTargets(..) => {}
            Control::InitCollection(variable, key) => {
                let (variable, mut text) = (*variable, Vec::new());
                self.expand(None, key, &mut text);
                self.state.store.set_named(variable, b"key", &text);
            }
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
    fn disrupt(&mut self, rule: &Rule) -> bool {
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
    fn record(&mut self, rule: &Rule, index: usize, disruptive: bool, first_matches: usize) {
        if self.state.matches.len() >= MATCHES_MAX {
            self.state.matches_dropped += 1;
            return;
        }
        let expanded = |of: fn(&Link) -> Option<&Template>| {
            let mut text = Vec::new();
            if let Some(template) = rule.links.iter().find_map(of) {
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
            message,
            log_data,
            logged: rule.log,
            disruptive,
            details: self.state.record_details.then(|| self.details(rule, first_matches)),
        };
        self.state.matches.push(record);
    }

    fn details(&self, rule: &Rule, first_matches: usize) -> MatchDetails {
        let all = self.state.matched.all();
        let first = first_matches.checked_sub(1).and_then(|last| all.get(last));
        let search = |link: &Link, value: &[u8]| {
            let test = link.test.as_ref().filter(|test| !test.negated)?;
            let range = match &test.condition {
                Condition::Regex(pattern) => pattern.regex().find(value)?.range(),
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

    /// Appends the expanded text of a template.
    fn expand(&self, rule: Option<&Rule>, template: &Template, output: &mut Vec<u8>) {
        for part in template.parts() {
            match part {
                Part::Text(text) => output.extend_from_slice(text),
                Part::Macro(reference) => self.append(rule, reference, output),
            }
        }
    }

    /// Appends the value of a macro; nothing if it has none.
    fn append(&self, rule: Option<&Rule>, reference: &Macro, output: &mut Vec<u8>) {
        let Macro { variable, name, slot } = reference;
        match variable.source() {
            Source::Store => match slot {
                Some(slot) => self.state.store.append(*slot, output),
                None => output
                    .extend_from_slice(self.state.store.named(*variable, name).unwrap_or_default()),
            },
            Source::Matched => {
                if let Some(matched) = self.state.matched.last() {
                    let names =
                        matches!(variable, Variable::MatchedVarName | Variable::MatchedVarsNames);
                    output.extend_from_slice(if names { &matched.key } else { &matched.value });
                }
            }
            Source::Rule => {
                let Some(rule) = rule else { return };
                match name.as_slice() {
                    b"id" => output.extend_from_slice(rule.id.to_string().as_bytes()),
                    b"severity" => {
                        output.extend(rule.severity.map(|severity| b'0' + severity.value()))
                    }
                    b"ver" => output
                        .extend_from_slice(rule.version.as_deref().unwrap_or_default().as_bytes()),
                    b"rev" => output
                        .extend_from_slice(rule.revision.as_deref().unwrap_or_default().as_bytes()),
                    b"msg" => output.extend_from_slice(
                        rule.message.as_ref().and_then(Template::as_text).unwrap_or_default(),
                    ),
                    _ => {}
                }
            }
            Source::Entries(_) if *variable == Variable::HighestSeverity => {
                let severity =
                    self.state.highest_severity.map_or(255, |severity| i64::from(severity.value()));
                append_number(severity, output);
            }
            Source::Entries(_) if *variable == Variable::Env => {
                let found =
                    self.state.environment.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
                output.extend_from_slice(
                    found.map(|(_, value)| value.as_slice()).unwrap_or_default(),
                );
            }
            Source::Entries(_) if *variable == Variable::Duration => output.push(b'0'),
            Source::Entries(variables) => {
                let found =
                    variables.iter().find_map(|&variable| self.entries.first(variable, name));
                output.extend_from_slice(found.unwrap_or_default());
            }
        }
    }
}

/// Text that a match captured.
enum Captured {
    Nothing,
    Range(usize, usize),
    Text(Vec<u8>),
    /// The groups are in the buffers.
    Groups,
}

fn is_excluded(running: &Running<'_>, key: Key<'_>) -> bool {
    let exclusions = running.test.exclusions.iter().chain(&running.removed);
    exclusions.into_iter().any(|exclusion| exclusion.excludes(key.variable, key.name))
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
