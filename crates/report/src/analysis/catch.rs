//! Blocked requests, by template and by class.
//!
//! A template counts by its weight in the mix and not by how often it was sent, so that engines with the same
//! verdicts have the same rates, however many requests of each template a trial had time for.

use super::result::{
    Catch, Difference, FamilyCatch, PairCatch, ScoreRange, Share, SubjectAnalysis, SubjectCatch,
    TemplateFigures, TemplateVerdict,
};
use std::collections::BTreeMap;
use tollgate_records::manifest::CorpusRequest;
use tollgate_records::trial::{Measurement, ProbeOutcome, as_f64};
use tollgate_stats::{Proportion, holm, mcnemar_p, mean_of_two, proportion};
use tollgate_traffic::Class;

impl TemplateFigures {
    /// Requests of the trials that were blocked or passed.
    pub(crate) fn decided(&self) -> u64 {
        self.blocked + self.passed
    }

    /// The share of its requests that were blocked: of the trials or, if none sent it, of the probes.
    pub(crate) fn blocked_share(&self) -> Option<f64> {
        let (blocked, passed) = match self.responses {
            0 => (self.probes_blocked, self.probes_passed),
            _ => (self.blocked, self.passed),
        };
        (blocked + passed > 0).then(|| as_f64(blocked) / as_f64(blocked + passed))
    }

    pub(super) fn judge(&self) -> Option<TemplateVerdict> {
        self.blocked_share()?;
        let is_blocked = self.blocked + self.probes_blocked > 0;
        let is_passed = self.passed + self.probes_passed > 0;
        Some(match (is_blocked, is_passed) {
            (true, true) => TemplateVerdict::Unstable,
            (true, false) => TemplateVerdict::Blocked,
            (false, _) => TemplateVerdict::Passed,
        })
    }
}

/// Adds up the responses to each template, in the order of the mix.
pub(crate) fn by_template<'a>(
    measured: impl IntoIterator<Item = &'a Measurement>,
) -> Vec<TemplateFigures> {
    let mut all: Vec<TemplateFigures> = Vec::new();
    for record in measured.into_iter().flat_map(|measurement| &measurement.templates) {
        let known = all.iter().position(|one| one.name == record.name && one.class == record.class);
        let place = known.unwrap_or_else(|| {
            all.push(TemplateFigures {
                name: record.name.clone(),
                class: record.class,
                family: record.family.clone(),
                weight: record.weight,
                verdict: None,
                responses: 0,
                blocked: 0,
                passed: 0,
                other: 0,
                unexpected: 0,
                probes_blocked: 0,
                probes_passed: 0,
            });
            all.len() - 1
        });
        let sum = &mut all[place];
        sum.responses += record.responses();
        sum.blocked += record.blocked;
        sum.passed += record.passed;
        sum.other += record.responses().saturating_sub(record.blocked + record.passed);
        sum.unexpected += record.unexpected;
        match record.probe {
            Some(ProbeOutcome::Blocked) => sum.probes_blocked += 1,
            Some(ProbeOutcome::Passed) => sum.probes_passed += 1,
            Some(ProbeOutcome::Other) | None => {}
        }
    }
    for template in &mut all {
        template.verdict = template.judge();
    }
    all
}

/// The share of the requests of a class that is blocked: the mean of the shares of its templates by weight. `None`
/// without a template that has both a weight and a verdict.
pub(crate) fn blocked_rate(templates: &[TemplateFigures], class: Class) -> Option<f64> {
    weighted_share(templates.iter().filter(|template| template.class == class))
}

pub(crate) fn weighted_share<'a>(
    templates: impl Iterator<Item = &'a TemplateFigures>,
) -> Option<f64> {
    let mut blocked = 0.0;
    let mut whole = 0;
    for template in templates {
        let Some(share) = template.blocked_share() else { continue };
        blocked += share * f64::from(template.weight);
        whole += u64::from(template.weight);
    }
    (whole > 0).then(|| blocked / as_f64(whole))
}

/// Returns the verdicts of trials on each request of a corpus, as templates that only probes send.
pub(super) fn of_corpus(
    corpus: &[CorpusRequest],
    measured: &[&Measurement],
) -> Vec<TemplateFigures> {
    let figures = |(at, one): (usize, &CorpusRequest)| {
        let verdicts = measured.iter().filter_map(|trial| trial.corpus.as_bytes().get(at));
        let count = |outcome: ProbeOutcome| {
            verdicts.clone().filter(|letter| char::from(**letter) == outcome.letter()).count()
                as u64
        };
        let mut figures = TemplateFigures {
            name: one.name.clone(),
            class: one.class,
            family: one.family.clone(),
            weight: 0,
            verdict: None,
            responses: 0,
            blocked: 0,
            passed: 0,
            other: 0,
            unexpected: 0,
            probes_blocked: count(ProbeOutcome::Blocked),
            probes_passed: count(ProbeOutcome::Passed),
        };
        figures.verdict = figures.judge();
        figures
    };
    corpus.iter().enumerate().map(figures).collect()
}

/// The templates with different verdicts. A subject that blocks nothing, such as a proxy without rules, is not compared.
pub(super) fn differences(
    subjects: &[SubjectAnalysis],
    requests: Option<&BTreeMap<String, String>>,
    corpus: &[CorpusRequest],
) -> Vec<Difference> {
    let blocking = blocking(subjects);
    let Some(first) = blocking.first() else { return Vec::new() };
    let verdicts: Vec<Verdicts<'_>> = blocking.iter().map(|subject| verdicts(subject)).collect();
    let corpus: BTreeMap<&str, &str> =
        corpus.iter().map(|one| (one.name.as_str(), one.request.as_str())).collect();
    let difference = |template: &TemplateFigures| {
        let verdict = |(subject, verdicts): (&&SubjectAnalysis, &Verdicts<'_>)| {
            let (_, verdict) = verdicts.get(&(template.name.as_str(), template.class))?;
            Some((subject.name.clone(), *verdict))
        };
        let verdicts: BTreeMap<String, TemplateVerdict> =
            blocking.iter().zip(&verdicts).filter_map(verdict).collect();
        let of_mix = requests.and_then(|requests| requests.get(&template.name).cloned());
        let request = || corpus.get(template.name.as_str()).map(|request| (*request).to_owned());
        let mut all = verdicts.values();
        let first = all.next()?;
        all.any(|verdict| verdict != first).then(|| Difference {
            name: template.name.clone(),
            class: template.class,
            family: template.family.clone(),
            weight: template.weight,
            request: of_mix.or_else(request),
            verdicts,
        })
    };
    first.judged().filter_map(difference).collect()
}

/// The subjects that block any request. A proxy without rules is not compared.
fn blocking(subjects: &[SubjectAnalysis]) -> Vec<&SubjectAnalysis> {
    let blocks = |one: &TemplateFigures| one.blocked + one.probes_blocked > 0;
    subjects.iter().filter(|subject| subject.judged().any(blocks)).collect()
}

/// Family and verdict by name and class, of the templates that have a verdict.
type Verdicts<'a> = BTreeMap<(&'a str, Class), (Option<&'a str>, TemplateVerdict)>;

fn verdicts(subject: &SubjectAnalysis) -> Verdicts<'_> {
    let verdict = |one: &'_ TemplateFigures| one.verdict;
    let known = subject.judged().filter_map(|one| Some((one, verdict(one)?)));
    known
        .map(|(one, verdict)| ((one.name.as_str(), one.class), (one.family.as_deref(), verdict)))
        .collect()
}

/// Family of templates without one.
const NO_FAMILY: &str = "other";

pub(super) fn catch(subjects: &[SubjectAnalysis]) -> Catch {
    let blocking = blocking(subjects);
    let verdicts: Vec<Verdicts<'_>> = blocking.iter().map(|subject| verdicts(subject)).collect();
    let of_subject =
        |(subject, verdicts): (&&SubjectAnalysis, &Verdicts<'_>)| subject_catch(subject, verdicts);
    let mut pairs = Vec::new();
    for (at, first) in verdicts.iter().enumerate() {
        for (other, second) in verdicts.iter().enumerate().skip(at + 1) {
            pairs.push(pair(&blocking[at].name, &blocking[other].name, first, second));
        }
    }
    let adjusted = holm(&pairs.iter().map(|pair| pair.p).collect::<Vec<_>>());
    for (pair, p) in pairs.iter_mut().zip(adjusted) {
        pair.p = p;
    }
    Catch { subjects: blocking.iter().zip(&verdicts).map(of_subject).collect(), pairs }
}

fn subject_catch(subject: &SubjectAnalysis, verdicts: &Verdicts<'_>) -> SubjectCatch {
    let mut families: BTreeMap<(bool, &str), (u64, u64)> = BTreeMap::new();
    for ((_, class), (family, verdict)) in verdicts {
        let is_blocked = match verdict {
            TemplateVerdict::Blocked => 1,
            TemplateVerdict::Passed => 0,
            TemplateVerdict::Unstable => continue,
        };
        // Attacks first.
        let key = (*class == Class::Benign, family.unwrap_or(NO_FAMILY));
        let (blocked, of) = families.entry(key).or_default();
        *blocked += is_blocked;
        *of += 1;
    }
    let of_class = |is_benign: bool| {
        let of_class = families.iter().filter(|((benign, _), _)| *benign == is_benign);
        let (blocked, of) =
            of_class.fold((0, 0), |sum, (_, counts)| (sum.0 + counts.0, sum.1 + counts.1));
        Share::new(blocked, of)
    };
    let (attacks, benign) = (of_class(false), of_class(true));
    let score = attacks.zip(benign).map(|(attacks, benign)| {
        let mean = mean_of_two(attacks.proportion(), benign.complement());
        ScoreRange { estimate: mean.estimate, low: mean.low, high: mean.high }
    });
    let family = |((is_benign, family), (blocked, of)): (&(bool, &str), &(u64, u64))| {
        Some(FamilyCatch {
            class: if *is_benign { Class::Benign } else { Class::Malicious },
            family: (*family).to_owned(),
            share: Share::new(*blocked, *of)?,
        })
    };
    let decided: u64 = families.values().map(|(_, of)| of).sum();
    SubjectCatch {
        name: subject.name.clone(),
        families: families.iter().filter_map(family).collect(),
        attacks,
        benign,
        score,
        undecided: subject.judged().count().saturating_sub(decided as usize),
    }
}

fn pair(first: &str, second: &str, a: &Verdicts<'_>, b: &Verdicts<'_>) -> PairCatch {
    let (mut same, mut first_only, mut second_only) = (0, 0, 0);
    for (key, (_, one)) in a {
        let Some((_, other)) = b.get(key) else { continue };
        if [one, other].contains(&&TemplateVerdict::Unstable) {
            continue;
        }
        let right = match key.1 {
            Class::Malicious => TemplateVerdict::Blocked,
            Class::Benign => TemplateVerdict::Passed,
        };
        match one == other {
            true => same += 1,
            false if *one == right => first_only += 1,
            false => second_only += 1,
        }
    }
    let (first, second) = (first.to_owned(), second.to_owned());
    let p = mcnemar_p(first_only, second_only);
    PairCatch { first, second, same, first_only, second_only, p }
}

impl Share {
    fn new(blocked: u64, of: u64) -> Option<Self> {
        let Proportion { estimate, low, high } = proportion(blocked, of)?;
        Some(Self { blocked, of, estimate, low, high })
    }

    fn proportion(self) -> Proportion {
        Proportion { estimate: self.estimate, low: self.low, high: self.high }
    }

    /// The share of the requests that pass.
    fn complement(self) -> Proportion {
        Proportion { estimate: 1.0 - self.estimate, low: 1.0 - self.high, high: 1.0 - self.low }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(weight: u32, blocked: u64, passed: u64, probes: (u64, u64)) -> TemplateFigures {
        let mut template = TemplateFigures {
            name: "a".to_owned(),
            class: Class::Malicious,
            family: None,
            weight,
            verdict: None,
            responses: blocked + passed,
            blocked,
            passed,
            other: 0,
            unexpected: 0,
            probes_blocked: probes.0,
            probes_passed: probes.1,
        };
        template.verdict = template.judge();
        template
    }

    #[test]
    fn rate_is_by_weight_and_not_by_requests() {
        // 3 of 4 weights, whatever was drawn.
        for (blocked, passed) in [(1, 1), (900, 3), (2, 700)] {
            let templates = [template(3, blocked, 0, (8, 0)), template(1, 0, passed, (0, 8))];
            assert_eq!(blocked_rate(&templates, Class::Malicious), Some(0.75));
        }
        // Sent by the probe alone: 5 of 8 weights.
        let templates =
            [template(3, 9, 0, (8, 0)), template(3, 0, 0, (0, 8)), template(2, 0, 0, (8, 0))];
        assert_eq!(blocked_rate(&templates, Class::Malicious), Some(0.625));
        // Weight 0 and no verdicts.
        let templates = [template(0, 0, 0, (8, 0)), template(1, 0, 0, (0, 0))];
        assert_eq!(blocked_rate(&templates, Class::Malicious), None);
        assert_eq!(blocked_rate(&[], Class::Malicious), None);
    }

    #[test]
    fn unstable_template_counts_by_its_share() {
        let unstable = template(1, 30, 10, (8, 0));
        assert_eq!(unstable.verdict, Some(TemplateVerdict::Unstable));
        // (1 * 3/4 + 1 * 1) / 2
        let templates = [unstable, template(1, 7, 0, (8, 0))];
        assert_eq!(blocked_rate(&templates, Class::Malicious), Some(0.875));
    }

    #[test]
    fn probe_that_contradicts_the_trials_is_unstable() {
        let verdict = |blocked, passed, probes| template(1, blocked, passed, probes).verdict;
        assert_eq!(verdict(0, 40, (8, 0)), Some(TemplateVerdict::Unstable));
        assert_eq!(verdict(0, 0, (7, 1)), Some(TemplateVerdict::Unstable));
        assert_eq!(verdict(40, 0, (0, 0)), Some(TemplateVerdict::Blocked));
        assert_eq!(verdict(0, 0, (0, 8)), Some(TemplateVerdict::Passed));
        assert_eq!(verdict(0, 0, (0, 0)), None);
        // Errors under load: the probe does not speak for the trials.
        let errors = TemplateFigures { responses: 9, ..template(1, 0, 0, (8, 0)) };
        assert_eq!((errors.judge(), errors.blocked_share()), (None, None));
    }
}
