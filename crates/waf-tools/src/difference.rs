//! Difference between two rule sets on recorded requests: what an upgrade, or a higher paranoia level, would block and let
//! through.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use tollgate_traffic::import::mask_url;
use tollgate_waf::{EngineMode, Match, RuleSet, Transaction, Worker};

use crate::replay::{self, Request};

/// Limit of the examples of a rule.
const EXAMPLES_MAX: usize = 3;

/// Limit of an example.
const EXAMPLE_CHARS_MAX: usize = 100;

/// Two rule sets, with what they made of the requests so far.
#[derive(Debug)]
pub struct Comparison {
    old: Side,
    new: Side,
    difference: Difference,
}

#[derive(Debug)]
struct Side {
    transaction: Box<Transaction>,
    worker: Worker,
}

/// Requests that two rule sets block, by rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Difference {
    /// Requests that both rule sets inspected.
    pub requests: u64,
    /// Blocked by both.
    pub blocked_by_both: u64,
    /// Blocked by the new rules only.
    pub newly_blocked: u64,
    /// Blocked by the old rules only.
    pub no_longer_blocked: u64,
    /// Rules by id, but for those that match the same requests in both sets and change no verdict.
    pub rules: BTreeMap<u64, RuleDifference>,
}

/// Requests that one rule matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct RuleDifference {
    /// Message of the new rule, or of the old one if the new set has none.
    pub message: String,
    /// Requests that the rule matches in the old set.
    pub old_matches: u64,
    /// Requests that the rule matches in the new set.
    pub new_matches: u64,
    /// Newly blocked requests that the rule matches in the new set.
    pub newly_blocked: u64,
    /// No longer blocked requests that the rule matched in the old set.
    pub no_longer_blocked: u64,
    /// Requests that it matches in one set only, or whose verdict changed; secrets are masked.
    pub examples: BTreeSet<String>,
}

impl Comparison {
    /// Starts without requests.
    pub fn new(old: &Arc<RuleSet>, new: &Arc<RuleSet>) -> Self {
        Self { old: Side::new(old), new: Side::new(new), difference: Difference::default() }
    }

    /// Has both rule sets inspect a request.
    pub fn add(&mut self, request: &Request) {
        let is_blocked = [self.old.blocks(request), self.new.blocks(request)];
        let difference = &mut self.difference;
        difference.requests += 1;
        match is_blocked {
            [true, true] => difference.blocked_by_both += 1,
            [false, true] => difference.newly_blocked += 1,
            [true, false] => difference.no_longer_blocked += 1,
            [false, false] => {}
        }
        let (old, new) = (self.old.matches(), self.new.matches());
        for (&id, &found) in old.iter().filter(|(id, _)| !new.contains_key(*id)).chain(&new) {
            let rule = difference.rules.entry(id).or_default();
            let is_of = [old.contains_key(&id), new.contains_key(&id)];
            if rule.message.is_empty() || is_of[1] && rule.new_matches == 0 {
                rule.message = found.message.escape_ascii().to_string();
            }
            rule.old_matches += u64::from(is_of[0]);
            rule.new_matches += u64::from(is_of[1]);
            rule.newly_blocked += u64::from(is_of[1] && is_blocked == [false, true]);
            rule.no_longer_blocked += u64::from(is_of[0] && is_blocked == [true, false]);
            let is_changed = is_of[0] != is_of[1] || is_blocked[0] != is_blocked[1];
            if is_changed && rule.examples.len() < EXAMPLES_MAX {
                rule.examples.insert(shown(request));
            }
        }
    }

    /// Returns the result for all requests so far.
    pub fn finish(self) -> Difference {
        let mut difference = self.difference;
        difference.rules.retain(|_, rule| !rule.examples.is_empty());
        difference
    }
}

impl Side {
    fn new(rules: &Arc<RuleSet>) -> Self {
        let mut worker = Worker::new();
        Self { transaction: Box::new(worker.warm_up(rules)), worker }
    }

    fn blocks(&mut self, request: &Request) -> bool {
        self.transaction.reset();
        self.transaction.engine_mode(EngineMode::On);
        replay::run_request(&mut self.transaction, &mut self.worker, request);
        self.transaction.intervention().is_some()
    }

    /// Rules that matched and are logged, each with one of its matches.
    fn matches(&self) -> BTreeMap<u64, &Match> {
        let logged = self.transaction.matches().iter().filter(|found| found.logged);
        logged.map(|found| (found.id, found)).collect()
    }
}

/// Method and target for a person, without secrets and control characters.
pub(crate) fn shown(request: &Request) -> String {
    let target = mask_url(&String::from_utf8_lossy(&request.target));
    let text = format!("{} {target}", request.method.escape_ascii());
    text.chars().flat_map(char::escape_debug).take(EXAMPLE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Arc<RuleSet> {
        let rules = RuleSet::builder().text("rules.conf", text).build();
        Arc::new(rules.unwrap_or_else(|error| panic!("{error}")))
    }

    #[test]
    fn requests_are_counted_by_rule_and_verdict() {
        let both = "SecRule ARGS \"@contains both\" \"id:1,phase:1,deny,msg:'Both'\"\n";
        let logs = "SecRule ARGS \"@contains \" \"id:4,phase:1,pass,log,msg:'Logged'\"\n";
        let old = "SecRule ARGS \"@contains old\" \"id:2,phase:1,deny,msg:'Old'\"\n";
        let new = "SecRule ARGS \"@contains new\" \"id:3,phase:1,deny,msg:'New'\"\n";
        let mut comparison = Comparison::new(
            &rules(&format!("{logs}{both}{old}")),
            &rules(&format!("{logs}{both}{new}")),
        );
        for target in ["/?q=both", "/?q=old&token=abc", "/?q=new", "/?q=new2", "/?q=none"] {
            let raw = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
            comparison.add(&replay::parse_raw(raw.as_bytes()));
        }
        let difference = comparison.finish();
        assert_eq!(
            (
                difference.requests,
                difference.blocked_by_both,
                difference.newly_blocked,
                difference.no_longer_blocked
            ),
            (5, 1, 2, 1)
        );
        let rule = |id| {
            let rule: Option<&RuleDifference> = difference.rules.get(&id);
            rule.map(|rule| {
                let matches = (rule.old_matches, rule.new_matches);
                (matches, rule.newly_blocked, rule.no_longer_blocked, rule.message.as_str())
            })
        };
        assert_eq!(rule(1), None);
        assert_eq!(rule(2), Some(((1, 0), 0, 1, "Old")));
        assert_eq!(rule(3), Some(((0, 2), 2, 0, "New")));
        // Matches every request in both sets, also those whose verdict changed.
        assert_eq!(rule(4), Some(((5, 5), 2, 1, "Logged")));
        let examples: Vec<&String> = difference.rules[&2].examples.iter().collect();
        assert_eq!(examples, ["GET /?q=old&token=xxx"]);
    }
}
