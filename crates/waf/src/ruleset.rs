//! Rule sets: loaded once, immutable, shared by threads.
//!
//! Compiled rules are behind `Arc`: a set that only changes settings, or excludes rules, shares them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{RulePlace, Skipped};
use crate::regex::Matcher;
use crate::rule::{Change, Disruptive, Phase, PhaseStep, Rule, Severity, Target};
use crate::settings::Settings;
use crate::variable::Variables;

/// Rules with their settings, ready to run. A clone shares the compiled rules.
#[derive(Clone, Debug)]
pub struct RuleSet {
    pub(crate) rules: Arc<Vec<Rule>>,
    pub(crate) steps: Arc<[Vec<PhaseStep>; 5]>,
    pub(crate) settings: Settings,
    /// Names of TX variables by slot, in lower case.
    pub(crate) slots: Arc<Vec<Vec<u8>>>,
    pub(crate) slot_by_name: Arc<HashMap<Vec<u8>, u32>>,
    pub(crate) patterns: usize,
    pub(crate) plan: Arc<crate::plan::Plan>,
    /// Variables of the request and the response that rules or the engine read. Others are not stored.
    pub(crate) read: Variables,
    /// True if a rule may depend on the body of the response.
    pub(crate) uses_response_body: bool,
    /// True if a rule of phase 5 changes a persistent collection.
    pub(crate) keeps_state_when_logging: bool,
    pub(crate) relevant_status: Option<Arc<Matcher>>,
    /// Exclusions with which every transaction starts.
    pub(crate) exclusions: Exclusions,
    pub(crate) notes: Notes,
}

/// Compiled rules and targets that do not run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exclusions {
    /// Positions of rules, as a bitmap; empty if none.
    pub(crate) rules: Vec<u64>,
    /// Targets, with the positions of their rules in order.
    targets: Vec<(Vec<u32>, Target)>,
    /// Positions of the rules that have targets, as a bitmap; empty if none.
    with_targets: Vec<u64>,
}

impl Exclusions {
    /// Excludes the rule at a position, of as many.
    pub(crate) fn exclude(&mut self, rule: u32, count: usize) {
        self.rules.resize(count.div_ceil(64), 0);
        self.rules[rule as usize / 64] |= 1 << (rule % 64);
    }

    pub(crate) fn has_rule(&self, rule: usize) -> bool {
        is_set(&self.rules, rule)
    }

    pub(crate) fn exclude_target(&mut self, rules: &[u32], target: &Target) {
        if !self.targets.iter().any(|(known, of)| known == rules && of == target) {
            let words = rules.iter().max().map_or(0, |&last| last as usize / 64 + 1);
            self.with_targets.resize(words.max(self.with_targets.len()), 0);
            for &rule in rules {
                self.with_targets[rule as usize / 64] |= 1 << (rule % 64);
            }
            self.targets.push((rules.to_vec(), target.clone()));
        }
    }

    /// Targets that are excluded from the rule at a position.
    pub(crate) fn targets_of(&self, rule: usize) -> Vec<Target> {
        if !is_set(&self.with_targets, rule) {
            return Vec::new();
        }
        let Ok(rule) = u32::try_from(rule) else { return Vec::new() };
        let found = self.targets.iter().filter(|(rules, _)| rules.binary_search(&rule).is_ok());
        found.map(|(_, target)| target.clone()).collect()
    }
}

fn is_set(bitmap: &[u64], bit: usize) -> bool {
    bitmap.get(bit / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1)
}

/// Notes for the user about a loaded rule set.
#[derive(Clone, Debug)]
pub(crate) struct Notes {
    pub(crate) skipped: Vec<Skipped>,
    pub(crate) inert: Vec<Skipped>,
    pub(crate) idle: Vec<Skipped>,
    pub(crate) never_matching: Vec<Skipped>,
    pub(crate) removed: usize,
    pub(crate) files: Vec<PathBuf>,
}

/// Description of a rule.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RuleInfo<'a> {
    /// Id.
    pub id: u64,
    /// Place of the rule.
    pub place: &'a RulePlace,
    /// Phase in which it runs.
    pub phase: Phase,
    /// Tags.
    pub tags: &'a [String],
    /// Severity.
    pub severity: Option<Severity>,
    /// `ver`
    pub version: &'a str,
    /// `rev`
    pub revision: &'a str,
    /// `maturity`, or 0
    pub maturity: u8,
    /// `accuracy`, or 0
    pub accuracy: u8,
    /// True if it is to end a transaction: its action is `deny`, `drop` or `redirect`.
    pub blocks: bool,
    /// True if matches are logged.
    pub log: bool,
    /// True if matches belong in the audit log.
    pub audit_log: bool,
    /// True if a condition has `multiMatch`.
    pub multi_match: bool,
    /// True if the rule opens a persistent collection.
    pub opens_collection: bool,
    /// Operator of the last condition of the chain as libmodsecurity names it, such as `Rx`; empty for rules without one, and
    /// for those of other dialects.
    pub operator: &'a str,
    /// Argument of the operator, as written.
    pub argument: &'a [u8],
    /// Number of conditions, chained ones included.
    pub conditions: usize,
    /// Paranoia level according to its tag `paranoia-level/N`.
    pub paranoia_level: Option<u8>,
}

impl<'a> RuleInfo<'a> {
    fn of(rule: &'a Rule) -> Self {
        let last = rule.links.last().and_then(|link| link.test.as_ref());
        let operator = last.map(|test| &test.operator);
        Self {
            id: rule.id,
            place: &rule.place,
            phase: rule.phase,
            tags: &rule.tags,
            severity: rule.severity,
            version: rule.version.as_deref().unwrap_or_default(),
            revision: rule.revision.as_deref().unwrap_or_default(),
            maturity: rule.maturity,
            accuracy: rule.accuracy,
            blocks: !matches!(rule.disruptive, Disruptive::Pass | Disruptive::Allow(_)),
            log: rule.log,
            audit_log: rule.audit_log,
            multi_match: rule.links.iter().flat_map(|link| &link.test).any(|test| test.multi_match),
            opens_collection: rule
                .links
                .iter()
                .flat_map(|link| &link.assignments)
                .any(|assignment| matches!(assignment.change, Change::Open)),
            operator: operator.map_or("", |operator| &operator.name),
            argument: operator.map_or(&[], |operator| &operator.argument),
            conditions: rule.links.len(),
            paranoia_level: rule
                .tags
                .iter()
                .find_map(|tag| tag.strip_prefix("paranoia-level/")?.parse().ok()),
        }
    }
}

impl RuleSet {
    /// Rules in the order in which they were read, but for those that are excluded.
    pub fn rules(&self) -> impl Iterator<Item = RuleInfo<'_>> {
        self.running().map(RuleInfo::of)
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &Rule> {
        let positions = self.rules.iter().enumerate();
        positions.filter(|(at, _)| !self.exclusions.has_rule(*at)).map(|(_, rule)| rule)
    }

    /// The rule at a position, excluded ones included, as of [`Match::rule`](crate::Match::rule).
    pub fn rule(&self, position: usize) -> Option<RuleInfo<'_>> {
        self.rules.get(position).map(RuleInfo::of)
    }

    /// True if both sets share their compiled rules, so that a [`Worker`](crate::Worker) keeps its caches from one to the other.
    pub fn shares_rules_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.plan, &other.plan)
    }

    /// True if rules of phase 5 change persistent collections, so that they have an effect even if nothing is logged.
    pub fn keeps_state_when_logging(&self) -> bool {
        self.keeps_state_when_logging
    }

    /// Settings of the engine.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Settings of the engine, to be changed before the rule set is shared. The status of the audit log is read while loading.
    pub fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }

    /// Unsupported directives that were left out.
    pub fn skipped(&self) -> &[Skipped] {
        &self.notes.skipped
    }

    /// Operators that never match, because they need a service. [`LimitsReached`](crate::LimitsReached) counts their uses.
    pub fn never_matching(&self) -> &[Skipped] {
        &self.notes.never_matching
    }

    /// Directives and actions that are accepted and have no effect.
    pub fn inert(&self) -> &[Skipped] {
        &self.notes.inert
    }

    /// Exclusions of rules or targets that do not exist.
    pub fn idle_exclusions(&self) -> &[Skipped] {
        &self.notes.idle
    }

    /// True if `SecAuditLogRelevantStatus` matches a status.
    pub(crate) fn is_relevant_status(&self, status: u16) -> bool {
        self.relevant_status
            .as_ref()
            .is_some_and(|regex| regex.is_match(status.to_string().as_bytes()))
    }

    /// Breaks the gates of a lemma.
    #[cfg(any(test, fuzzing))]
    pub fn plant(&mut self, lemma: crate::plan::Lemma) {
        Arc::get_mut(&mut self.plan).expect("the set shares no rules").plant(lemma);
    }

    /// Files and folders on which the rules depend: rule files, data files, and folders in which `Include` searched.
    pub fn files(&self) -> &[PathBuf] {
        &self.notes.files
    }

    /// Number of rules that `SecRuleRemove...` removed.
    pub fn removed(&self) -> usize {
        self.notes.removed
    }
}
