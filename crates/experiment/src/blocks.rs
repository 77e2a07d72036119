//! The trials of one subject under one case, by block: what is paired, and what is compared.

use crate::record::{Measurement, Outcome, TrialRecord};
use crate::run_dir::RunRecords;
use std::collections::BTreeMap;

/// A trial that counts.
#[derive(Debug, Clone, Copy)]
pub struct Valid<'a> {
    /// From the start of the system to its first right answer, in milliseconds.
    pub startup_ms: Option<f64>,
    /// Its figures.
    pub measurement: &'a Measurement,
}

/// The trial of each block that counts.
pub fn valid<'a>(run: &'a RunRecords, case: &'a str, subject: &'a str) -> BTreeMap<u32, Valid<'a>> {
    measured(run, case, subject)
        .filter(|(_, measurement)| measurement.invalid.is_empty())
        .map(|(trial, measurement)| {
            (trial.block, Valid { startup_ms: trial.startup_ms, measurement })
        })
        .collect()
}

/// Every trial that was measured, whether it counts or not, in the order in which they ran.
pub fn measured<'a>(
    run: &'a RunRecords,
    case: &'a str,
    subject: &'a str,
) -> impl Iterator<Item = (&'a TrialRecord, &'a Measurement)> {
    let of_subject = move |trial: &&TrialRecord| trial.case == case && trial.subject == subject;
    run.trials.iter().filter(of_subject).filter_map(|trial| match &trial.outcome {
        Outcome::Measured(measurement) => Some((trial, &**measurement)),
        Outcome::Refused(_) | Outcome::Failed(_) => None,
    })
}
