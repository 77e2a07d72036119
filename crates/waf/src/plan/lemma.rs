//! The lemmas on which gates rest, as `PROOF.md` proves them, and for each an error that makes its gate unsound. The comparison
//! of results with and without gates must find every one of these errors.

use super::bytes::Bits;
use super::{Plan, Probe, TestGate, alphabet};

/// Reason for which a gate may keep a rule from a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lemma {
    /// A match has a byte of each required set.
    Sets,
    /// No match consists of the bytes of an alphabet alone.
    Alphabets,
    /// A match has a least length.
    Length,
    /// A match contains one of the literals.
    Literals,
    /// A match lies within the reach of a literal.
    Windows,
    /// A match without quoting bytes contains one of other literals or bytes.
    PlainLiterals,
    /// One word or number is no SQL injection.
    OneWord,
    /// A test reads the values that its targets select.
    Selectors,
    /// Rules that a guard skips do not run.
    Guards,
    /// Without the bytes that start a decoding nothing is decoded.
    Decoding,
    /// Chains with a common start share its result.
    CachedChains,
    /// An operator that cannot match a value is not run on it.
    SparedOperators,
}

impl Lemma {
    /// All lemmas, in the order of `PROOF.md`.
    pub const ALL: [Self; 12] = [
        Self::Sets,
        Self::Alphabets,
        Self::Length,
        Self::Literals,
        Self::Windows,
        Self::PlainLiterals,
        Self::OneWord,
        Self::Selectors,
        Self::Guards,
        Self::Decoding,
        Self::CachedChains,
        Self::SparedOperators,
    ];

    /// Name in `PROOF.md` and on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sets => "sets",
            Self::Alphabets => "alphabets",
            Self::Length => "length",
            Self::Literals => "literals",
            Self::Windows => "windows",
            Self::PlainLiterals => "plain-literals",
            Self::OneWord => "one-word",
            Self::Selectors => "selectors",
            Self::Guards => "guards",
            Self::Decoding => "decoding",
            Self::CachedChains => "cached-chains",
            Self::SparedOperators => "spared-operators",
        }
    }
}

impl Plan {
    /// Breaks the gates of a lemma.
    pub(crate) fn plant(&mut self, lemma: Lemma) {
        if lemma == Lemma::Guards {
            // Skipped rules stay without candidates when their guard lets them run.
            self.guards.iter_mut().for_each(|guard| guard.tests.clear());
        }
        let visited = |probe: &Probe| self.tests[probe.test] == TestGate::Visited;
        for phase in &mut self.phases {
            match lemma {
                // One byte of each set is required, in place of any.
                Lemma::Sets => {
                    let lowest = |set: &mut u128| *set &= set.wrapping_neg();
                    phase.sets.iter_mut().for_each(|gate| lowest(&mut gate.set));
                    phase.probes.iter_mut().flat_map(|probe| &mut probe.sets).for_each(lowest);
                }
                // Values of any alphabet are taken for words.
                Lemma::Alphabets => {
                    let words = alphabet::alphabets().next().map(|words| phase.atoms.within(words));
                    let words =
                        phase.alphabets.iter().find(|(alphabet, _)| Some(*alphabet) == words);
                    if let Some((_, impossible)) = words.cloned() {
                        phase.alphabets.iter_mut().for_each(|(_, bits)| *bits = impossible.clone());
                    }
                }
                // A rule whose shortest match is N bytes long misses values of N bytes.
                Lemma::Length => {
                    for lengths in [&mut phase.lengths, &mut phase.raw_lengths] {
                        lengths.rotate_right(1);
                        lengths[0] = Bits::none(phase.probes.len());
                    }
                }
                Lemma::Literals => phase.grams.plant_literals(),
                Lemma::Windows => phase.grams.plant_windows(),
                // Values with quoting bytes are taken for plain ones.
                Lemma::PlainLiterals => phase.quoting = 0,
                // Every byte is taken for a part of a word.
                Lemma::OneWord => phase.word = u128::MAX,
                // Only targets for all names are looked at.
                Lemma::Selectors => {
                    for source in &mut phase.sources {
                        source.named.clear();
                        source.patterns.clear();
                    }
                }
                Lemma::Guards => {}
                // Bytes inside an escape are not visible.
                Lemma::Decoding => {
                    phase.chains.triggers = 0;
                    phase.chains.steps.iter_mut().for_each(|step| step.triggers = 0);
                }
                // Every step transforms the value itself, in place of the text before it.
                Lemma::CachedChains => {
                    phase.chains.steps.iter_mut().for_each(|step| step.parent = 0);
                }
                // These operators are spared every value.
                Lemma::SparedOperators => {
                    let probes = (0..).zip(&phase.probes).filter(|(_, probe)| visited(probe));
                    for (number, _) in probes {
                        phase.sources.iter_mut().for_each(|source| source.all.clear(number));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{RuleSet, Transaction, Worker};

    /// One rule or more for each lemma.
    const RULES: &str = r#"
        SecRuleEngine On
        SecRequestBodyAccess On
        SecAction "id:1,phase:1,pass,nolog,setvar:tx.level=1"
        SecRule ARGS:level "@rx ." "id:2,phase:1,pass,nolog,capture,setvar:tx.level=%{tx.0}"
        SecRule ARGS "@rx [<>]" "id:10,phase:1,pass"
        SecRule ARGS "@rx a[(\[]b" "id:11,phase:1,pass"
        SecRule ARGS "@rx ^a[0-9]$" "id:12,phase:1,pass"
        SecRule ARGS "@rx (?i)union\s+select" "id:13,phase:1,pass"
        SecRule ARGS "@rx (?i)(?:e['`]*n|[;|])(?:[a-z]{300})?" "id:14,phase:1,pass"
        SecRule ARGS "@detectSQLi" "id:15,phase:1,pass"
        SecRule ARGS:/^s/|ARGS:named "@contains value" "id:16,phase:1,pass"
        SecRule ARGS "@contains <x" "id:17,phase:1,pass,t:urlDecodeUni,t:jsDecode"
        SecRule ARGS "@streq <y" "id:18,phase:1,pass,t:urlDecodeUni,t:jsDecode,t:cssDecode"
        SecRule ARGS "@rx w[0-9]+zwin" "id:19,phase:1,pass"
        SecRule TX:level "@lt 2" "id:20,phase:1,pass,nolog,skipAfter:END"
        SecRule ARGS:q "@contains abc" "id:21,phase:1,pass"
        SecMarker END
        SecRule REQUEST_METHOD "@streq GET" "id:22,phase:2,pass,chain"
        SecRule REQUEST_BODY "@contains hello"
    "#;

    /// Requests in this order, as the gates remember what guards skipped.
    const TARGETS: [&str; 18] = [
        "/?q=hello",
        "/?q=abc",
        "/?q=abc&level=2",
        "/?q=a>b",
        "/?q=<",
        "/?q=a(b",
        "/?q=a[b",
        "/?q=a1",
        "/?q=1+UNION++SELECT+2",
        "/?q=e'n",
        "/?q=;",
        "/?q=1'+or+'1'='1",
        "/?q=x'+or+'1'='1",
        "/?sql=value&named=value&other=value",
        "/?q=\\x3cx",
        "/?q=%253cx",
        "/?q=%255cx3cy",
        "/?q=w12345zwin{long}",
    ];

    /// Ids that match each request, without and with gates.
    fn ids(planted: Option<Lemma>) -> [Vec<Vec<u64>>; 2] {
        let mut rules = RuleSet::builder().text("t.conf", RULES).build().unwrap();
        if let Some(lemma) = planted {
            rules.plant(lemma);
        }
        let rules = Arc::new(rules);
        [Worker::plain(), Worker::new()].map(|mut worker| {
            let run = |target: &&str| {
                // Texts are searched by windows if they are long.
                let target = target.replace("{long}", &"-".repeat(1000));
                let mut transaction = Transaction::new(Arc::clone(&rules));
                transaction.request_line(b"GET", target.as_bytes(), b"HTTP/1.1");
                transaction.request_header(b"Content-Type", b"application/x-www-form-urlencoded");
                transaction.process_request_headers(&mut worker);
                transaction.append_request_body(target.as_bytes());
                transaction.process_request_body(&mut worker);
                transaction.matches().iter().map(|found| found.id).collect()
            };
            TARGETS.iter().map(run).collect()
        })
    }

    #[test]
    fn every_rule_matches_and_gates_change_nothing() {
        let [plain, gated] = ids(None);
        assert_eq!(plain, gated);
        let mut found: Vec<u64> = plain.into_iter().flatten().collect();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found, [10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 21, 22]);
    }

    #[test]
    fn the_comparison_finds_the_error_of_each_lemma() {
        for lemma in Lemma::ALL {
            let [plain, gated] = ids(Some(lemma));
            assert_ne!(plain, gated, "{}", lemma.name());
            // A gate never adds a match.
            for (plain, gated) in plain.iter().zip(&gated) {
                assert!(gated.iter().all(|id| plain.contains(id)), "{}", lemma.name());
            }
        }
    }

    #[test]
    fn each_lemma_has_its_proof() {
        let headings =
            include_str!("PROOF.md").lines().filter_map(|line| line.strip_prefix("## Lemma "));
        let names: Vec<&str> = headings.filter_map(|heading| heading.split(':').next()).collect();
        assert_eq!(names, Lemma::ALL.map(Lemma::name));
    }
}
