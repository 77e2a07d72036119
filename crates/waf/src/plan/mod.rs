//! The compiled plan: gates that prove for most values that a rule cannot match them.
//!
//! A probe is one chain of transformations with one operator of a rule's first condition. For each
//! value the gate computes which bytes it has, and keeps the probes whose necessary conditions
//! hold: bytes of each required set, the minimum length, one of the required literals. Only these
//! are evaluated. A gate never decides that a rule matches, and it never keeps a rule from a value
//! that it could match: values whose encoding might hide bytes are decoded first. `PROOF.md` has the reasons.

mod alphabet;
mod atoms;
mod bytes;
mod facts;
mod gate;
mod grams;
#[cfg(any(test, fuzzing))]
mod lemma;
mod literal;
mod node;
mod reach;
mod requirement;
mod structure;

pub(crate) use gate::{Candidate, Gate};
#[cfg(any(test, fuzzing))]
pub use lemma::Lemma;

use std::collections::HashMap;
use std::rc::Rc;

use crate::condition::Condition;
use crate::rule::{Flow, Link, Phase, PhaseStep, Rule, Selector, Target, Test};
use crate::transformation::Transformation;
use crate::variable::{ValueSource, Variable};

use alphabet::{alphanumeric, quoting};
use atoms::Atoms;
use bytes::{Bits, Bytes};
use grams::Grams;
use literal::Spread;
pub(crate) use node::Id;
use node::NodeHash;
use reach::Anchor;
use requirement::Requirement;
pub(crate) use requirement::Requirements;
pub(crate) use structure::Structures;

/// Rules that are treated as guards, each of which has bits for all probes. Others run like any rule.
const GUARDS_MAX: usize = 1024;
/// Lengths that are distinguished; longer values form one class.
const LENGTHS: usize = 64;

/// Gates of all tests of a rule set.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    phases: Vec<PhasePlan>,
    /// How each test is gated.
    tests: Vec<TestGate>,
    /// Step of the rule whose first condition a test is, in its phase.
    step_of_test: Vec<usize>,
    /// Steps of each phase that run although no value passes the gates.
    open: [Bits; 5],
    guards: Vec<Guard>,
    /// Guard number of each rule, if it is a guard.
    guard_of_rule: Vec<Option<u16>>,
}

/// Rule that compares a TX variable with a constant and skips other rules if that holds, as the
/// paranoia levels of the Core Rule Set do. Its outcome seldom changes between transactions, so
/// that rules that it skipped the last time are not gated: they are evaluated without gates,
/// should it let them run.
#[derive(Debug)]
struct Guard {
    phase: Phase,
    /// Tests that it skips.
    tests: Vec<usize>,
    /// Probes of these tests.
    probes: Bits,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TestGate {
    /// Not gated.
    #[default]
    Open,
    /// Values of the request or response are gated; others are compared too.
    Partial,
    /// All values of the test are gated.
    Full,
    /// All values are visited, and the operator is spared those that it cannot match: the test is negated or not the first of
    /// its chain, and reads bodies.
    Visited,
}

/// Gates of one phase.
#[derive(Debug)]
struct PhasePlan {
    probes: Vec<Probe>,
    atoms: Atoms,
    sets: Vec<SetGate>,
    /// Alphabets, and the probes that no value of only these bytes matches.
    alphabets: Vec<(u128, Bits)>,
    /// Probes that a value of this length can match once it is decoded.
    lengths: Vec<Bits>,
    /// Probes that a value of this length can match before anything is decoded.
    raw_lengths: Vec<Bits>,
    /// Words: letters, digits and underscores.
    word: u128,
    sources: Vec<SourceGate>,
    chains: Chains,
    grams: Grams,
    /// Probes with literals.
    with_literals: Bits,
    /// Literals of values without quoting bytes, probes with alternatives for such values, and the quoting bytes.
    plain_grams: Grams,
    with_plain: Bits,
    quoting: u128,
}

/// Set that can be decided without telling letters and digits apart, and probes that need it.
#[derive(Debug)]
struct SetGate {
    set: u128,
    /// Word of the row, and the probes in it.
    word: usize,
    probes: u64,
}

/// Probes of the values of one variable.
#[derive(Debug)]
struct SourceGate {
    variable: Variable,
    /// Probes for all names.
    all: Bits,
    /// Probes for single names, in lower case. Rule sets may have a name for each rule.
    named: HashMap<Vec<u8>, Vec<usize>>,
    /// Each with its probe.
    patterns: Vec<(Selector, usize)>,
}

#[derive(Debug)]
struct Probe {
    test: usize,
    /// Sets, as masks: a value must have a byte of each.
    sets: Vec<u128>,
    /// Step after which nothing is decoded any more.
    decoded: usize,
    /// Step at which literals are searched.
    searched: usize,
    /// Last step, whose text the operator compares.
    last: usize,
    /// Step of all transformations of the test: `last`, unless the test has multiMatch.
    whole: usize,
    /// Bytes of which a value without quoting bytes has one, unless it has a plain literal.
    plain_bytes: u128,
    /// True for SQL injection, which no single word or number is.
    not_one_word: bool,
    /// True for comparisons with one text.
    is_text: bool,
    /// The text that a value contains before the chain removes bytes from it, if it does nothing but that and ignores case.
    spread: Option<Spread>,
}

/// Transformation steps of all chains, as a tree. Step 0 is the value itself.
#[derive(Debug, Default)]
struct Chains {
    steps: Vec<ChainStep>,
    /// Steps after which nothing is decoded any more, with the mask of the bytes that start a
    /// decoding on the way there, and the probes that depend on it.
    decoded: Vec<(usize, u128, Bits)>,
    /// Bytes that start any decoding.
    triggers: u128,
}

#[derive(Debug)]
struct ChainStep {
    parent: usize,
    transformation: Option<Transformation>,
    /// Without any of these bytes the step changes nothing; `u128::MAX` if there is no such set.
    triggers: u128,
}

impl Plan {
    pub(crate) fn new(
        rules: &[Rule],
        steps: &[Vec<PhaseStep>; 5],
        tests: usize,
        requirements: &Requirements,
    ) -> Self {
        let mut gates = vec![TestGate::Open; tests];
        let phases = Phase::ALL.map(|phase| {
            PhasePlan::new(
                rules.iter().filter(|rule| rule.phase == phase),
                requirements,
                &mut gates,
            )
        });
        let mut step_of_test = vec![0; tests];
        let open = Phase::ALL.map(|phase| {
            let steps = &steps[phase.index()];
            let mut open = Bits::none(steps.len());
            for (at, step) in steps.iter().enumerate() {
                let &PhaseStep::Rule(rule) = step else { continue };
                let tests = rules[rule].links.iter().filter_map(|link| link.test.as_ref());
                tests.for_each(|test| step_of_test[test.index] = at);
                let test = rules[rule].links[0].test.as_ref().map(|test| test.index);
                if test.is_none_or(|test| gates[test] != TestGate::Full) {
                    open.set(at);
                }
            }
            open
        });
        let mut plan = Self {
            phases: phases.into(),
            tests: gates,
            step_of_test,
            open,
            guards: Vec::new(),
            guard_of_rule: vec![None; rules.len()],
        };
        for phase in Phase::ALL {
            plan.add_guards(rules, phase, &steps[phase.index()]);
        }
        plan
    }

    fn add_guards(&mut self, rules: &[Rule], phase: Phase, steps: &[PhaseStep]) {
        let phase_plan = &self.phases[phase.index()];
        for (at, step) in steps.iter().enumerate() {
            let &PhaseStep::Rule(guard) = step else { continue };
            let Flow::SkipAfter(end) = rules[guard].flow else { continue };
            let number = u16::try_from(self.guards.len()).unwrap_or(u16::MAX);
            if !is_guard(&rules[guard]) || self.guards.len() == GUARDS_MAX {
                continue;
            }
            let mut tests = Vec::new();
            for step in &steps[at + 1..end.max(at + 1)] {
                if let &PhaseStep::Rule(skipped) = step {
                    let links = rules[skipped].links.iter();
                    tests.extend(links.filter_map(|link| Some(link.test.as_ref()?.index)));
                }
            }
            // Both are in the order of the rules.
            let mut probes = Bits::none(phase_plan.probes.len());
            for (index, probe) in phase_plan.probes.iter().enumerate() {
                if tests.binary_search(&probe.test).is_ok() {
                    probes.set(index);
                }
            }
            if !probes.is_empty() {
                self.guard_of_rule[guard] = Some(number);
                self.guards.push(Guard { phase, tests, probes });
            }
        }
    }

    /// Number of the guard that a rule is.
    #[inline]
    pub(crate) fn guard(&self, rule: usize) -> Option<u16> {
        self.guard_of_rule[rule]
    }

    /// True if the phase has any gate.
    pub(crate) fn is_useful(&self, phase: Phase) -> bool {
        self.phases.get(phase.index()).is_some_and(|plan| !plan.probes.is_empty())
    }
}

/// True if the rule compares one TX variable with a constant, and does nothing but skip others.
fn is_guard(rule: &Rule) -> bool {
    let [Link { test: Some(test), assignments, controls, .. }] = rule.links.as_slice() else {
        return false;
    };
    let constant =
        matches!(&test.condition, Condition::Number(_, argument) if argument.as_number().is_some());
    constant
        && assignments.is_empty()
        && controls.is_empty()
        && matches!(
            test.targets.as_slice(),
            [Target { variable: Variable::Tx, selector: Selector::Name(..), .. }]
        )
}

/// Values of a target that come from the request or the response.
fn gated_variables(target: &Target) -> Option<&'static [Variable]> {
    match target.variable.source() {
        ValueSource::Entries(variables) if !target.count => Some(variables),
        _ => None,
    }
}

/// True for a body, which may be long.
fn is_body(target: &Target) -> bool {
    matches!(target.variable, Variable::RequestBody | Variable::ResponseBody) && !target.count
}

/// Probe before the atoms are known.
struct Draft<'a> {
    test: &'a Test,
    chain: &'a [Transformation],
    requirement: Rc<Requirement>,
    /// Bytes that the chain can add without decoding anything.
    adds: Bytes,
}

impl PhasePlan {
    fn new<'a>(
        rules: impl Iterator<Item = &'a Rule>,
        requirements: &Requirements,
        gates: &mut [TestGate],
    ) -> Self {
        let mut drafts = Vec::new();
        let links = rules.flat_map(|rule| rule.links.iter().enumerate());
        for (number, test) in links.filter_map(|(number, link)| Some((number, link.test.as_ref()?)))
        {
            let gated =
                test.targets.iter().filter(|target| gated_variables(target).is_some()).count();
            let is_visited = test.negated || number > 0;
            if gated == 0 || is_visited && !test.targets.iter().all(is_body) {
                continue;
            }
            let Some(requirement) = Requirement::of(&test.condition, requirements) else {
                continue;
            };
            gates[test.index] = match gated == test.targets.len() {
                _ if is_visited => TestGate::Visited,
                true => TestGate::Full,
                false => TestGate::Partial,
            };
            let shortest = if test.multi_match { 0 } else { test.transformations.len() };
            for length in shortest..=test.transformations.len() {
                let chain = &test.transformations[..length];
                let adds = chain
                    .iter()
                    .map(|t| Bytes(t.facts().adds))
                    .fold(Bytes::default(), Bytes::union);
                drafts.push(Draft { test, chain, requirement: Rc::clone(&requirement), adds });
            }
        }
        Self::compile(&drafts)
    }

    fn compile(drafts: &[Draft<'_>]) -> Self {
        let count = drafts.len();
        let atoms = Atoms::new(&sets_of_interest(drafts));
        let mut chains = Chains {
            steps: vec![ChainStep { parent: 0, transformation: None, triggers: u128::MAX }],
            decoded: Vec::new(),
            triggers: 0,
        };
        let mut plan_sets: HashMap<(u128, usize), u64, NodeHash> = HashMap::default();
        let mut lengths = vec![Bits::all(count); LENGTHS + 1];
        let mut raw_lengths = lengths.clone();
        let mut with_literals = Bits::none(count);
        let mut with_plain = Bits::none(count);
        let mut probes = Vec::new();
        for (index, draft) in drafts.iter().enumerate() {
            let usable = draft.requirement.sets.iter().filter(|set| !set.intersects(&draft.adds));
            let masks: Vec<u128> = usable.map(|set| atoms.covering(*set)).collect();
            for &mask in &masks {
                *plan_sets.entry((atoms.collapse(mask), index / 64)).or_default() |=
                    1 << (index % 64);
            }
            let length_min = draft.requirement.length_min.min(LENGTHS);
            lengths.iter_mut().take(length_min).for_each(|lengths| lengths.clear(index));
            if !draft.chain.iter().any(|t| t.facts().grows) {
                raw_lengths.iter_mut().take(length_min).for_each(|lengths| lengths.clear(index));
            }
            if draft.requirement.literals.is_some() {
                with_literals.set(index);
            }
            let plain = draft.requirement.plain.as_ref();
            let plain = plain.filter(|plain| !plain.bytes.union(quoting()).intersects(&draft.adds));
            if plain.is_some() {
                with_plain.set(index);
            }
            let decoded = chains.decoded_step(&atoms, draft.chain, index, count);
            let searched = chains.step(&atoms, searched_chain(draft.chain));
            probes.push(Probe {
                test: draft.test.index,
                sets: masks,
                decoded,
                searched,
                last: chains.step(&atoms, draft.chain.iter().copied()),
                whole: chains.step(&atoms, draft.test.transformations.iter().copied()),
                plain_bytes: plain.map_or(0, |plain| atoms.covering(plain.bytes)),
                not_one_word: matches!(draft.test.condition, Condition::SqlInjection),
                is_text: matches!(draft.test.condition, Condition::Text(..)),
                spread: Spread::new(draft),
            });
        }
        Self {
            sources: sources(drafts),
            grams: Grams::new(drafts.iter().enumerate().filter_map(|(index, draft)| {
                Some((index, draft.requirement.literals.as_deref()?))
            })),
            plain_grams: Grams::new(drafts.iter().enumerate().filter_map(|(index, draft)| {
                Some((index, draft.requirement.plain.as_ref()?.literals.as_slice()))
            })),
            alphabets: alphabets(drafts, &atoms),
            probes,
            sets: plan_sets
                .into_iter()
                .map(|((set, word), probes)| SetGate { set, word, probes })
                .collect(),
            lengths,
            raw_lengths,
            word: atoms.within(alphanumeric().union(Bytes::of(b"_"))),
            chains,
            with_literals,
            with_plain,
            quoting: atoms.covering(quoting()),
            atoms,
        }
    }
}

/// Sets that masks tell apart, the most important first.
fn sets_of_interest(drafts: &[Draft<'_>]) -> Vec<Bytes> {
    let mut sets = Vec::new();
    for draft in drafts {
        for transformation in draft.chain {
            let facts = transformation.facts();
            sets.extend(facts.decodes.map(Bytes));
            sets.extend(facts.triggers.map(Bytes));
        }
    }
    sets.extend(alphabet::alphabets().map(|alphabet| alphabet.without(alphanumeric())));
    sets.push(alphanumeric());
    sets.push(quoting());
    sets.push(Bytes::range(128, 255));
    let mut wanted: Vec<Bytes> =
        drafts.iter().flat_map(|draft| draft.requirement.sets.iter().copied()).collect();
    wanted.sort_unstable();
    wanted.dedup();
    wanted.sort_by_cached_key(|set| set.weight());
    sets.extend(wanted);
    sets
}

/// For each alphabet the probes that cannot match a value made of it.
fn alphabets(drafts: &[Draft<'_>], atoms: &Atoms) -> Vec<(u128, Bits)> {
    let gates = alphabet::alphabets().enumerate().map(|(number, alphabet)| {
        let mut impossible = Bits::none(drafts.len());
        for (index, draft) in drafts.iter().enumerate() {
            if !draft.requirement.is_possible(number, draft.adds) {
                impossible.set(index);
            }
        }
        (atoms.within(alphabet), impossible)
    });
    gates.filter(|(_, impossible)| !impossible.is_empty()).collect()
}

fn sources(drafts: &[Draft<'_>]) -> Vec<SourceGate> {
    let mut sources: Vec<SourceGate> = Vec::new();
    for (index, draft) in drafts.iter().enumerate() {
        for target in &draft.test.targets {
            for &variable in gated_variables(target).unwrap_or_default() {
                let known = sources.iter().position(|source| source.variable == variable);
                let position = known.unwrap_or_else(|| {
                    sources.push(SourceGate {
                        variable,
                        all: Bits::none(drafts.len()),
                        named: HashMap::new(),
                        patterns: Vec::new(),
                    });
                    sources.len() - 1
                });
                let source = &mut sources[position];
                match &target.selector {
                    Selector::All => source.all.set(index),
                    Selector::Name(name, _) => match source.named.get_mut(name) {
                        Some(probes) => probes.push(index),
                        None => drop(source.named.insert(name.clone(), vec![index])),
                    },
                    pattern @ Selector::Pattern(..) => {
                        source.patterns.push((pattern.clone(), index));
                    }
                }
            }
        }
    }
    sources
}

impl Spread {
    fn new(draft: &Draft<'_>) -> Option<Self> {
        let [Anchor { literal, .. }] = *draft.requirement.literals.as_deref()? else { return None };
        let mut removed = Bytes::default();
        for transformation in draft.chain.iter().filter(|&&t| t != Transformation::Lowercase) {
            removed = removed.union(Bytes(transformation.facts().removes?));
        }
        Some(Self { literal, removed })
    }
}

/// The chain without lowering, where later steps and the search ignore case.
fn searched_chain(chain: &[Transformation]) -> Vec<Transformation> {
    let position = chain.iter().rposition(|t| !t.facts().caseless).map_or(0, |last| last + 1);
    let kept = chain[position..].iter().filter(|&&t| t != Transformation::Lowercase);
    chain[..position].iter().chain(kept).copied().collect()
}

impl Chains {
    /// Adds a chain and returns its last step.
    fn step(&mut self, atoms: &Atoms, chain: impl IntoIterator<Item = Transformation>) -> usize {
        chain.into_iter().fold(0, |parent, transformation| {
            let known = self.steps.iter().position(|step| {
                step.parent == parent && step.transformation == Some(transformation)
            });
            known.unwrap_or_else(|| {
                let triggers = transformation.facts().triggers;
                let triggers = triggers.map_or(u128::MAX, |set| atoms.covering(Bytes(set)));
                self.steps.push(ChainStep {
                    parent,
                    transformation: Some(transformation),
                    triggers,
                });
                self.steps.len() - 1
            })
        })
    }

    /// Adds a chain up to its last step that decodes, for a probe, and returns that step.
    fn decoded_step(
        &mut self,
        atoms: &Atoms,
        chain: &[Transformation],
        probe: usize,
        probes: usize,
    ) -> usize {
        let decoding = |t: &Transformation| t.facts().decodes.map(Bytes);
        let decodes = |t: &Transformation| decoding(t).is_none_or(|bytes| !bytes.is_empty());
        let Some(last) = chain.iter().rposition(decodes) else { return 0 };
        let chain = &chain[..=last];
        let adds = chain.iter().map(|t| Bytes(t.facts().adds)).fold(Bytes::default(), Bytes::union);
        let triggers =
            chain.iter().try_fold(Bytes::default(), |all, t| Some(all.union(decoding(t)?)));
        // A step that can create the trigger of a later one would decode bytes that the mask does not show.
        let triggers = triggers.filter(|triggers| !triggers.intersects(&adds));
        let mask = triggers.map_or(u128::MAX, |triggers| atoms.covering(triggers.fold_case()));
        self.triggers |= mask;
        let step = self.step(atoms, chain.iter().copied());
        match self.decoded.iter_mut().find(|(known, ..)| *known == step) {
            Some((_, _, bits)) => bits.set(probe),
            None => {
                let mut bits = Bits::none(probes);
                bits.set(probe);
                self.decoded.push((step, mask, bits));
            }
        }
        step
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::{RuleSet, Transaction, Worker};

    /// Ids that match without and with gates.
    fn ids(rules: &Arc<RuleSet>, target: &str) -> [Vec<u64>; 2] {
        [Worker::plain(), Worker::new()].map(|mut worker| {
            let mut transaction = Transaction::new(Arc::clone(rules));
            transaction.request_line(b"GET", target.as_bytes(), b"HTTP/1.1");
            transaction.process_request_headers(&mut worker);
            transaction.matches().iter().map(|found| found.id).collect()
        })
    }

    #[test]
    fn rules_that_a_guard_skipped_before_run_when_it_lets_them() {
        let text = "SecRuleEngine On\nSecAction \"id:1,phase:1,pass,nolog,setvar:tx.level=1\"\n\
                    SecRule ARGS:l \"@rx .\" \"id:2,phase:1,pass,nolog,capture,setvar:tx.level=%{tx.0}\"\n\
                    SecRule TX:level \"@lt 2\" \"id:3,phase:1,pass,nolog,skipAfter:END\"\n\
                    SecRule ARGS:q \"@contains abc\" \"id:4,phase:1,pass\"\nSecMarker END";
        let rules = Arc::new(RuleSet::builder().text("t.conf", text).build().unwrap());
        assert_eq!(rules.plan.guards.len(), 1);
        let mut worker = Worker::new();
        for target in ["/?q=abc", "/?q=abc&l=2", "/?q=abc&l=2", "/?q=x&l=2", "/?q=abc", "/?q=abc"] {
            let mut transaction = Transaction::new(Arc::clone(&rules));
            transaction.request_line(b"GET", target.as_bytes(), b"HTTP/1.1");
            transaction.process_request_headers(&mut worker);
            let expected = usize::from(target.contains("abc&l=2"));
            assert_eq!(transaction.matches().len(), expected, "{target}");
        }
    }

    #[test]
    fn values_without_quotes_are_gated_as_they_match() {
        let text = "SecRuleEngine On\nSecRule ARGS \"@rx (?i)(?:e['`]*n|[;|])(?:[a-z]{300})?\" \"id:1,phase:1,pass\"\n\
                    SecRule ARGS \"@rx (?i)(?:e['`]*n|[;|])(?:[a-z]{300})?\" \"id:2,phase:1,pass,t:urlDecodeUni,t:cmdLine\"";
        let rules = Arc::new(RuleSet::builder().text("t.conf", text).build().unwrap());
        assert!(!rules.plan.phases[0].with_plain.is_empty());
        for (target, expected) in [
            ("/?q=EN+x", vec![1, 2]),
            ("/?q=e'n+x", vec![1, 2]),
            ("/?q=e%2527n+x", vec![2]),
            ("/?q=;+x", vec![1]),
            ("/?q=e%255en+x", vec![1, 2]),
            ("/?q=e+x", vec![]),
        ] {
            assert_eq!(ids(&rules, target), [expected.clone(), expected], "{target}");
        }
    }

    #[test]
    fn phrases_longer_than_a_literal_are_found_whole_in_long_values() {
        let text = "SecRuleEngine On\nSecRule ARGS \"@pm the-start-of-a-phrase-and-its-end\" \"id:1,phase:1,pass\"\n\
                    SecRule ARGS \"@pm the-start-of-a-phrase-and-its-end the-start-of-a\" \"id:2,phase:1,pass\"\n\
                    SecRule ARGS \"!@pm the-start-of-a-phrase-and-its-end\" \"id:3,phase:1,pass\"";
        let rules = Arc::new(RuleSet::builder().text("t.conf", text).build().unwrap());
        let filler = "x".repeat(400);
        for (value, expected) in [
            ("The-Start-of-a-phrase-and-its-END", vec![1, 2]),
            ("the-start-of-a-phrase-and-its-enx", vec![2, 3]),
            ("the-start-of-the-start-of-a-phrase-and-its-end", vec![1, 2]),
            ("the-start-of", vec![3]),
        ] {
            for target in [
                format!("/?q={value}"),
                format!("/?q={value}{filler}"),
                format!("/?q={filler}{value}"),
                format!("/?q={filler}{value}{filler}"),
            ] {
                assert_eq!(ids(&rules, &target), [expected.clone(), expected.clone()], "{target}");
            }
        }
    }

    #[test]
    fn phrases_are_captured_as_without_gates() {
        let text = "SecRuleEngine On\nSecRule ARGS \"@pm zebra-crossing-ahead crossing g-a qxzj ttqxzj\" \"id:1,phase:1,pass,capture,logdata:'%{tx.0}'\"\n\
                    SecRule ARGS \"@pm zebra-crossing-ahead horse\" \"id:2,phase:1,pass,capture,multiMatch,t:lowercase,t:removeWhitespace,logdata:'%{tx.0}'\"";
        let rules = Arc::new(RuleSet::builder().text("t.conf", text).build().unwrap());
        let filler = "x".repeat(400);
        for (value, expected) in [
            ("Zebra-Crossing-ahead", vec!["Crossing", "zebra-crossing-ahead"]),
            ("ho+rse,zebra-crossing-ahead", vec!["crossing", "horse"]),
            ("zebra-crossinG-ahea", vec!["crossinG"]),
            ("TTqxzj", vec!["TTqxzj"]),
        ] {
            for target in [format!("/?q={value}{filler}"), format!("/?q={filler}{value}{filler}")] {
                for mut worker in [Worker::plain(), Worker::new()] {
                    let mut transaction = Transaction::new(Arc::clone(&rules));
                    transaction.request_line(b"GET", target.as_bytes(), b"HTTP/1.1");
                    transaction.process_request_headers(&mut worker);
                    let data: Vec<_> = transaction
                        .matches()
                        .iter()
                        .map(|found| String::from_utf8_lossy(&found.log_data).into_owned())
                        .collect();
                    assert_eq!(data, expected, "{target}");
                }
            }
        }
    }

    #[test]
    fn rules_behind_many_others_match() {
        const COUNT: u64 = 66_000;
        // Each with a name and a marker of its own.
        let rule = |id| {
            format!(
                "SecRule ARGS:q{id}|ARGS:q \"@contains a{id}z\" \"id:{id},phase:1,pass,skipAfter:M{id}\"\nSecMarker M{id}\n"
            )
        };
        let text: String = (1..=COUNT).map(rule).collect();
        let text = format!("SecRuleEngine On\n{text}");
        let rules = RuleSet::builder().text("t.conf", text).build().unwrap();
        let target = format!("/?q=a1z-a65535z-a65536z-a{COUNT}z&Q7=a7z&q8=a7z");
        let expected = vec![1, 7, 65_535, 65_536, COUNT];
        assert_eq!(ids(&Arc::new(rules), &target), [expected.clone(), expected]);
    }
}
