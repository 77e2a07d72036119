//! Blocked requests, by template and by class.
//!
//! A template counts by its weight in the mix and not by how often it was sent, so that engines with the same
//! verdicts have the same rates, however many requests of each template a trial had time for.

use super::SubjectAnalysis;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use strum::{Display, IntoStaticStr};
use tollgate_experiment::record::{Measurement, ProbeOutcome, as_f64};
use tollgate_traffic::Class;

/// The responses to one template over all measured trials of a subject, invalid trials
/// included, as in the detection rate and the false positive rate. Excludes trials
/// in which a process died.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TemplateFigures {
    /// Name of the template.
    pub name: String,
    /// Benign requests should pass, malicious ones should be blocked.
    pub class: Class,
    /// Family within the class, if the mix names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// Frequency relative to the other templates; 0 for the probe only.
    pub weight: u32,
    /// Verdict on its requests; null if no response shows it.
    pub verdict: Option<TemplateVerdict>,
    /// Number of responses.
    pub responses: u64,
    /// Responses with the status code with which the subject blocks.
    pub blocked: u64,
    /// Responses with the status code of a request that is not blocked.
    pub passed: u64,
    /// Other responses, such as errors of the system. They are neither detections, misses nor
    /// false positives.
    pub other: u64,
    /// Responses that differ from the expected one.
    pub unexpected: u64,
    /// Trials whose probe request was blocked.
    pub probes_blocked: u64,
    /// Trials whose probe request passed.
    pub probes_passed: u64,
}

/// Verdict of a subject on the requests of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, IntoStaticStr, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum TemplateVerdict {
    /// Every request was blocked.
    Blocked,
    /// Every request passed.
    Passed,
    /// Some requests were blocked and others passed.
    Unstable,
}

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

/// A template on which the subjects that block requests differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Difference {
    /// Name of the template.
    pub name: String,
    /// Its class.
    pub class: Class,
    /// Its weight in the mix.
    pub weight: u32,
    /// The verdict of each subject, by name.
    pub verdicts: BTreeMap<String, TemplateVerdict>,
}

/// The templates with different verdicts. A subject that blocks nothing, such as a proxy without rules, is not compared.
pub(super) fn differences(subjects: &[SubjectAnalysis]) -> Vec<Difference> {
    let blocks = |one: &TemplateFigures| one.blocked + one.probes_blocked > 0;
    let blocking: Vec<&SubjectAnalysis> =
        subjects.iter().filter(|subject| subject.templates.iter().any(blocks)).collect();
    let Some(first) = blocking.first() else { return Vec::new() };
    let difference = |template: &TemplateFigures| {
        let verdict = |subject: &&SubjectAnalysis| {
            let same =
                |one: &&TemplateFigures| (&one.name, one.class) == (&template.name, template.class);
            let verdict = subject.templates.iter().find(same)?.verdict?;
            Some((subject.name.clone(), verdict))
        };
        let verdicts: BTreeMap<String, TemplateVerdict> =
            blocking.iter().filter_map(verdict).collect();
        let mut all = verdicts.values();
        let first = all.next()?;
        all.any(|verdict| verdict != first).then(|| Difference {
            name: template.name.clone(),
            class: template.class,
            weight: template.weight,
            verdicts,
        })
    };
    first.templates.iter().filter_map(difference).collect()
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
