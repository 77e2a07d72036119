//! Evaluation of rules: the reference for their meaning. Gates only spare it values that cannot match.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::caches::Caches;
use crate::condition::{Checksum, Condition, Pattern, TextOperator};
use crate::libinjection::{detect_sqli, detect_xss};
use crate::limits::Limit;
use crate::operator::text::{self, parse_integer};
use crate::operator::{encoding, identity};
use crate::regex::SearchLimit;
use crate::rule::{
    AllowScope, Capture, EngineMode, Flow, Link, Phase, PhaseStep, Rule, Selector, Target, Test,
};
use crate::ruleset::RuleSet;
use crate::template::Macro;
use crate::variable::{ValueSource, Variable};

use super::entries::Entries;
use super::worker::Buffers;
use super::{State, Transaction, Worker};

impl Transaction {
    /// Runs the rules of a phase.
    pub(super) fn run(&mut self, phase: Phase, worker: &mut Worker) {
        if self.state.engine == EngineMode::Off {
            return;
        }
        let rules = Arc::clone(&self.rules);
        worker.bind(&rules);
        let gated = worker.is_gated() && rules.plan.is_useful(phase);
        let (caches, buffers, gate) = worker.split();
        if gated {
            gate.prepare(&rules, &self.entries, phase, caches);
        }
        let gate = gated.then_some(&*gate);
        Evaluation {
            rules: &rules,
            entries: &self.entries,
            state: &mut self.state,
            caches,
            buffers,
            gate,
            first_match: Some(0),
            phase,
        }
        .phase();
    }
}

pub(super) struct Evaluation<'a> {
    pub(super) rules: &'a RuleSet,
    pub(super) entries: &'a Entries,
    pub(super) state: &'a mut State,
    pub(super) caches: &'a mut Caches,
    pub(super) buffers: &'a mut Buffers,
    pub(super) gate: Option<&'a crate::plan::Gate>,
    /// Position in the value that is compared before which no match begins, as the gate has proved; `None` if there is none.
    pub(super) first_match: Option<usize>,
    pub(super) phase: Phase,
}

/// Test that is being evaluated.
pub(super) struct Running<'a> {
    pub(super) rule: &'a Rule,
    pub(super) link: &'a Link,
    pub(super) test: &'a Test,
    /// Targets that `ctl` removed from this rule.
    pub(super) removed: Vec<Target>,
    /// Argument of a numeric operator.
    pub(super) number: i64,
    /// Expanded argument of a text operator.
    pub(super) argument: Vec<u8>,
}

/// Where a value comes from, for the name of the match.
#[derive(Clone, Copy)]
pub(super) struct Key<'a> {
    pub(super) variable: Variable,
    pub(super) name: &'a [u8],
    pub(super) count: bool,
}

impl Key<'_> {
    pub(super) fn write(self, output: &mut Vec<u8>) {
        if self.count {
            output.push(b'&');
        }
        output.extend_from_slice(self.variable.name().as_bytes());
        // A value may have an empty name, unlike a whole collection that is counted.
        let has_name = !self.name.is_empty() || !self.count;
        if self.variable.is_collection() && has_name {
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
        // A phase that a limit has blocked before ends with its first rule.
        let gate = self.gate.filter(|_| !self.has_ended());
        let mut at = 0;
        let is_limited = rules.settings.inspection_limit != u64::MAX;
        let sizes = if is_limited { self.entries.sizes() } else { Vec::new() };
        loop {
            let next = gate.map_or(Some(at), |gate| gate.next_step(at)).unwrap_or(steps.len());
            // Steps that the gate leaves out count too, so that the limit does not depend on it.
            let behind = steps.len().min(next + 1);
            if is_limited && !steps[at..behind].iter().all(|step| self.charge(step, &sizes)) {
                return;
            }
            let Some(step) = steps.get(next) else { return };
            at = next + 1;
            let &PhaseStep::Rule(index) = step else { continue };
            if self.state.limits.has(Limit::Inspection) || self.is_cancelled() {
                return;
            }
            let matched = !self.state.exclusions.has_rule(index) && self.rule(index);
            if let (Some(gate), Some(guard)) = (self.gate, rules.plan.guard(index)) {
                gate.note(guard, matched);
            }
            if matched {
                match rules.rules[index].flow {
                    Flow::Continue => {}
                    Flow::SkipAfter(position) => at = position,
                    Flow::Skip(count) => {
                        let rules = (at..).zip(&steps[at..]);
                        let rules = rules.filter(|(_, step)| matches!(step, PhaseStep::Rule(_)));
                        at = rules.take(count as usize).last().map_or(at, |(last, _)| last + 1);
                    }
                }
            }
            if self.has_ended() {
                return;
            }
        }
    }

    /// Counts the values that the first condition of a rule inspects; false if the limit is exceeded.
    fn charge(&mut self, step: &PhaseStep, sizes: &[u64]) -> bool {
        let &PhaseStep::Rule(index) = step else { return true };
        let Some(test) = &self.rules.rules[index].links[0].test else { return true };
        if self.state.exclusions.has_rule(index) {
            return true;
        }
        for target in test.targets.iter().filter(|target| !target.count) {
            if let ValueSource::Entries(variables) = target.variable.source() {
                let bytes = variables.iter().map(|&variable| sizes[variable as usize]);
                self.state.charged = self.state.charged.saturating_add(bytes.sum());
            }
        }
        self.is_within_limit()
    }

    fn is_within_limit(&mut self) -> bool {
        let is_within = self.state.charged <= self.rules.settings.inspection_limit;
        if !is_within && !self.state.limits.has(Limit::Inspection) {
            self.exceed(Limit::Inspection);
        }
        is_within
    }

    /// True if the caller needs no verdict any more.
    fn is_cancelled(&mut self) -> bool {
        let is_set = |flag: &Arc<AtomicBool>| flag.load(Ordering::Relaxed);
        let is_cancelled = self.state.cancelled.as_ref().is_some_and(is_set);
        if is_cancelled && !self.state.limits.has(Limit::Cancelled) {
            self.exceed(Limit::Cancelled);
        }
        is_cancelled
    }

    /// True if no further rule of the phase runs.
    fn has_ended(&self) -> bool {
        let blocked = self.state.intervention.is_some() && self.phase != Phase::Logging;
        blocked || self.state.allow.is_some() || self.state.engine == EngineMode::Off
    }

    /// Evaluates a rule with its chain; true if all of it matched.
    fn rule(&mut self, index: usize) -> bool {
        let rules = self.rules;
        let rule = &rules.rules[index];
        self.state.matched.clear();
        let mut first_matches = 0;
        for (number, link) in rule.links.iter().enumerate() {
            // `ctl` names the head of a chain by its id, and removes targets from it alone.
            let removed =
                if number == 0 { self.state.exclusions.targets_of(index) } else { Vec::new() };
            if !self.link(rule, removed, link) {
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
        if rule.log || rule.audit_log || self.state.record_silent {
            self.record(rule, index, disruptive, first_matches);
        }
        true
    }

    fn link(&mut self, rule: &Rule, removed: Vec<Target>, link: &Link) -> bool {
        let Some(test) = &link.test else {
            link.assignments.iter().for_each(|assignment| self.assign(rule, assignment));
            return true;
        };
        if self.number_does_not_hold(test) {
            return false;
        }
        let mut argument = std::mem::take(&mut self.buffers.argument);
        argument.clear();
        let mut number = 0;
        match &test.condition {
            Condition::Text(_, template) | Condition::RegexTemplate(template) => {
                self.expand(Some(rule), template, &mut argument);
            }
            Condition::Number(_, template) => number = self.number(rule, template),
            _ => {}
        }
        let mut running = Running { rule, link, test, removed, number, argument };
        let known = self.state.matched.count;
        let mut matched = false;
        for target in &test.targets {
            matched |= self.target(&running, target);
        }
        self.buffers.argument = std::mem::take(&mut running.argument);
        if let (Capture::Last, Condition::Regex(pattern)) = (link.capture, &test.condition) {
            self.capture_last(pattern, known);
        }
        matched
    }

    /// Stores the captured texts of the values that matched behind the first `known` ones, the last texts of each group.
    fn capture_last(&mut self, pattern: &Pattern, known: usize) {
        let mut left = u32::MAX;
        for at in (known..self.state.matched.count).rev() {
            let value = std::mem::take(&mut self.state.matched.values[at].value);
            let budget = &mut self.state.backtrack_budget;
            let mut groups = std::mem::take(&mut self.buffers.captures);
            match self.caches.captures(pattern, &value, budget, &mut groups) {
                Ok(()) if groups.is_empty() => {}
                Ok(()) => {
                    left &= (1 << groups.len()) - 1;
                    for (slot, range) in (0..).zip(&groups) {
                        if let Some((start, end)) = *range
                            && left & 1 << slot != 0
                            && self.write(slot, &value[start..end])
                        {
                            left &= !(1 << slot);
                        }
                    }
                }
                Err(SearchLimit) => self.exceed_backtracking(),
            }
            self.buffers.captures = groups;
            self.state.matched.values[at].value = value;
            if left == 0 {
                return;
            }
        }
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
        let argument = match template.as_number() {
            Some(number) => number,
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

    /// Transforms one value and compares it; true if it matched.
    pub(super) fn value(&mut self, running: &Running<'_>, key: Key<'_>, value: &[u8]) -> bool {
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
            if transformation.apply(input, &mut next, &self.rules.settings.unicode) {
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
        if matched && changed {
            self.state.matched.keep_original(value);
        }
        self.buffers.transformed = current;
        self.buffers.spare = next;
        matched
    }

    /// Compares a transformed value, and runs the actions of a match.
    pub(super) fn compare(&mut self, running: &Running<'_>, key: Key<'_>, value: &[u8]) -> bool {
        if !self.inspect(running, value) {
            return false;
        }
        let captured = self.first_match.and_then(|first| self.holds(running, value, first));
        let Some(captured) = captured else {
            if running.test.negated {
                self.hit(running, key, value);
            }
            return running.test.negated;
        };
        if running.test.negated {
            return false;
        }
        if running.link.capture != Capture::None {
            self.capture(&captured, value);
        }
        self.hit(running, key, value);
        true
    }

    /// Counts a value that is inspected; false if the limit is exceeded.
    #[inline]
    fn inspect(&mut self, running: &Running<'_>, value: &[u8]) -> bool {
        let size = value.len() as u64 + 1;
        self.state.inspected = self.state.inspected.saturating_add(size);
        if std::ptr::eq(running.link, &raw const running.rule.links[0]) {
            return true;
        }
        self.state.charged = self.state.charged.saturating_add(size);
        self.is_within_limit()
    }

    /// Applies the operator without its negation to a value without a match before `first`.
    fn holds(&mut self, running: &Running<'_>, value: &[u8], first: usize) -> Option<Captured> {
        let when = |holds: bool| holds.then_some(Captured::Nothing);
        match &running.test.condition {
            Condition::Always => Some(Captured::Nothing),
            Condition::Never => None,
            Condition::Unavailable => {
                self.exceed(Limit::Operators);
                None
            }
            Condition::Regex(pattern) => self.search(running, pattern, value),
            Condition::RegexTemplate(_) => match self.caches.expanded(&running.argument) {
                Some(pattern) => self.search(running, &pattern, value),
                None => {
                    self.exceed(Limit::Regexes);
                    None
                }
            },
            Condition::Phrases(set) => {
                let found = set.find(value.get(first..)?);
                found.map(|range| Captured::Range(first + range.start, first + range.end))
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
                let budget = &mut self.state.backtrack_budget;
                let found = pattern.matcher().find_wanted(value, budget, valid);
                let found = found.unwrap_or_else(|SearchLimit| {
                    self.exceed_backtracking();
                    None
                });
                found.map(|range| Captured::Range(range.start, range.end))
            }
            Condition::SqlInjection => detect_sqli(value)
                .map(|fingerprint| Captured::Text(fingerprint.as_bytes().to_vec())),
            Condition::CrossSiteScripting => {
                detect_xss(value).then_some(Captured::Range(0, value.len()))
            }
        }
    }
}

impl Evaluation<'_> {
    #[inline]
    fn search(
        &mut self,
        running: &Running<'_>,
        pattern: &Pattern,
        value: &[u8],
    ) -> Option<Captured> {
        let groups = running.link.capture == Capture::All && !running.test.negated;
        let budget = &mut self.state.backtrack_budget;
        let found = self.caches.is_match(pattern, value, budget).and_then(|found| {
            if !(found && groups) {
                return Ok(found.then_some(Captured::Nothing));
            }
            self.caches.captures(pattern, value, budget, &mut self.buffers.captures)?;
            Ok(Some(Captured::Groups))
        });
        found.unwrap_or_else(|SearchLimit| {
            self.exceed_backtracking();
            None
        })
    }

    /// Counts a search that was given up, and reports it to the rules, as libmodsecurity does.
    #[cold]
    fn exceed_backtracking(&mut self) {
        const NAME: &[u8] = b"msc_pcre_limits_exceeded";
        self.exceed(Limit::Regexes);
        self.state.backtracking_exceeded = true;
        match self.rules.slot_by_name.get(NAME) {
            Some(&slot) => self.state.store.set_number(slot, 1),
            None => self.write_named(Variable::Tx, NAME, b"1"),
        }
    }
}

/// Text that a match captured.
pub(super) enum Captured {
    Nothing,
    Range(usize, usize),
    Text(Vec<u8>),
    /// The groups are in the buffers.
    Groups,
}

pub(super) fn is_excluded(running: &Running<'_>, key: Key<'_>) -> bool {
    let exclusions = running.test.exclusions.iter().chain(&running.removed);
    exclusions.into_iter().any(|exclusion| exclusion.excludes(key.variable, key.name))
}
