//! The answers to each template, and to each class of them.

use super::latency::Latency;
use crate::cmd::load::content::TemplateName;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use tollgate_load::TemplateTally;
use tollgate_stats::{EncodeError, LatencyHistogram};
use tollgate_traffic::Class;

/// The answers to one template.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TemplateResult {
    /// Its name in the mix, or method and path of a single request.
    pub(crate) name: String,
    /// What kind of request it is; null for a single request.
    pub(crate) class: Option<Class>,
    /// Complete answers.
    pub(crate) answered: u64,
    /// Those of them that were not the expected ones.
    pub(crate) unexpected: u64,
    /// Answers by their status code.
    pub(crate) statuses: BTreeMap<u16, u64>,
    /// Latency, measured as that of the whole.
    pub(crate) latency: Latency,
}

/// The answers to all templates of a class.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ClassResult {
    /// The class.
    pub(crate) class: Class,
    /// Complete answers.
    pub(crate) answered: u64,
    /// Those of them that were not the expected ones.
    pub(crate) unexpected: u64,
    /// Latency, measured as that of the whole.
    pub(crate) latency: Latency,
}

/// The answers to each template; `tallies` are in the order of `names`.
///
/// # Errors
///
/// A histogram cannot be encoded.
pub(super) fn templates(
    names: &[TemplateName],
    tallies: &[TemplateTally],
) -> Result<Vec<TemplateResult>, EncodeError> {
    let of = |(name, tally): (&TemplateName, &TemplateTally)| {
        Ok(TemplateResult {
            name: name.name.clone(),
            class: name.class,
            answered: answered(tally),
            unexpected: tally.unexpected,
            statuses: tally.statuses.clone(),
            latency: Latency::of(&tally.latency)?,
        })
    };
    names.iter().zip(tallies).map(of).collect()
}

/// The same, summed up by class.
///
/// # Errors
///
/// A histogram cannot be encoded.
pub(super) fn classes(
    names: &[TemplateName],
    tallies: &[TemplateTally],
) -> Result<Vec<ClassResult>, EncodeError> {
    let mut sums: BTreeMap<Class, (u64, u64, LatencyHistogram)> = BTreeMap::new();
    for (name, tally) in names.iter().zip(tallies) {
        if let Some(class) = name.class {
            let (answers, unexpected, latency) = sums.entry(class).or_default();
            *answers += answered(tally);
            *unexpected += tally.unexpected;
            latency.merge(&tally.latency);
        }
    }
    let of = |(class, (answered, unexpected, latency))| {
        Ok(ClassResult { class, answered, unexpected, latency: Latency::of(&latency)? })
    };
    sums.into_iter().map(of).collect()
}

/// The answers that a tally counts: each has one status code.
fn answered(tally: &TemplateTally) -> u64 {
    tally.statuses.values().sum()
}

/// How often each status code was answered.
pub(super) fn statuses(templates: &[TemplateResult]) -> BTreeMap<u16, u64> {
    let mut all = BTreeMap::new();
    for (status, count) in templates.iter().flat_map(|template| &template.statuses) {
        *all.entry(*status).or_default() += count;
    }
    all
}
