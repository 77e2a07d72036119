//! The responses of a subject to each template of the mix: blocked, passed,
//! and neither.

use schemars::JsonSchema;
use serde::Serialize;
use tollgate_experiment::record::{Measurement, TemplateOutcomes};
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
}

impl TemplateFigures {
    /// Requests that were blocked or passed.
    pub fn told(&self) -> u64 {
        self.blocked + self.passed
    }
}

pub(super) fn figures(measured: &[&Measurement]) -> Vec<TemplateFigures> {
    let mut all: Vec<TemplateFigures> = Vec::new();
    for record in measured.iter().flat_map(|measurement| &measurement.templates) {
        let answered: u64 = record.statuses.values().sum();
        let TemplateOutcomes { blocked, passed, other } = record.outcomes();
        let known = all.iter_mut().find(|one| one.name == record.name && one.class == record.class);
        match known {
            Some(one) => {
                one.responses += answered;
                one.blocked += blocked;
                one.passed += passed;
                one.other += other;
                one.unexpected += record.unexpected;
            }
            None => all.push(TemplateFigures {
                name: record.name.clone(),
                class: record.class,
                family: record.family.clone(),
                responses: answered,
                blocked,
                passed,
                other,
                unexpected: record.unexpected,
            }),
        }
    }
    all
}
