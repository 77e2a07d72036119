//! Whether one trial kept the goals. Pure.

use super::bracket::Answer;
use super::slo::{Sample, Slo, Waiting};
use crate::record::{Measurement, OpenLoopRecord, Outcome, as_f64};
use crate::report::number::percent;
use crate::trial::bottleneck::Bottleneck;
use crate::trial::validity::Invalid;
use tollgate_stats::LatencyHistogram;

/// What a trial said, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// What it said.
    pub answer: Answer,
    /// Why the goals are broken, or why it said nothing; empty when they are kept.
    pub because: Vec<String>,
}

/// Judges the outcome of a trial.
///
/// What the system did is an answer, even where a run would not count the trial: requests that
/// failed, answers that were not the expected ones, processes that died. What was done to it is none:
/// steal, other processes, a lab that was halted.
pub fn judge(slo: &Slo, outcome: &Outcome) -> Judgement {
    let lost = |because| Judgement { answer: Answer::Lost, because };
    let failed = |what| Judgement { answer: Answer::Failed, because: vec![what] };
    let measurement = match outcome {
        Outcome::Measured(measurement) => measurement,
        Outcome::Refused(refusal) => return failed(format!("refused: {}", refusal.reason)),
        Outcome::Failed(failure) => {
            return failed(format!("{}: {}", failure.step, failure.reason));
        }
    };
    let Some(open_loop) = &measurement.open_loop else {
        return lost(vec!["it had no rate".to_owned()]);
    };
    let disturbed: Vec<String> =
        measurement.invalid.iter().filter(|rule| is_disturbance(rule)).map(told).collect();
    if !disturbed.is_empty() {
        return lost(disturbed);
    }
    let latency = match LatencyHistogram::from_v2_base64(&measurement.latency.histogram_v2_base64) {
        Ok(latency) => latency,
        Err(error) => return lost(vec![format!("its latencies cannot be read: {error}")]),
    };
    let mut because = slo.broken_by(&sample(measurement, open_loop, &latency));
    because.extend(not_delivered(open_loop));
    because.extend(measurement.invalid.iter().filter(|rule| is_death(rule)).map(told));
    if because.is_empty() {
        return match measurement.invalid.iter().find(|rule| is_skew(rule)) {
            Some(skew) => lost(vec![skew.to_string()]),
            None => Judgement { answer: Answer::Kept, because },
        };
    }
    let by_system = match measurement.bottleneck {
        Bottleneck::System | Bottleneck::None => true,
        Bottleneck::Generator | Bottleneck::Origin => false,
    };
    Judgement { answer: Answer::Broken { by_system }, because }
}

/// The requests of a trial, those included that still waited at its end.
fn sample<'a>(
    measurement: &Measurement,
    open_loop: &OpenLoopRecord,
    latency: &'a LatencyHistogram,
) -> Sample<'a> {
    let waiting = |requests, oldest_ms: Option<f64>| Waiting {
        requests,
        oldest_ns: oldest_ms.map_or(0.0, |ms| ms * 1e6),
    };
    Sample {
        latency,
        waiting: vec![
            waiting(measurement.unanswered, measurement.oldest_unanswered_ms),
            waiting(open_loop.overdue, open_loop.oldest_overdue_ms),
        ],
        answered: measurement.answered,
        unexpected: measurement.unexpected,
        failed: measurement.failures.total(),
    }
}

/// Whatever the goals, a rate that was not delivered is not kept.
fn not_delivered(open_loop: &OpenLoopRecord) -> Option<String> {
    let due = open_loop.due.max(open_loop.overdue).max(1);
    let share = as_f64(open_loop.overdue) / as_f64(due);
    open_loop.fell_behind().then(|| format!("{} were due and never sent", percent(share)))
}

fn is_disturbance(rule: &Invalid) -> bool {
    matches!(rule, Invalid::Steal { .. } | Invalid::Starved { .. } | Invalid::Halted { .. })
}

fn is_death(rule: &Invalid) -> bool {
    matches!(rule, Invalid::ProcessDied { .. })
}

/// A window that was not seen in time: where the goals are broken, the generator had too much to do,
/// which its lateness tells.
fn is_skew(rule: &Invalid) -> bool {
    matches!(rule, Invalid::Skewed { .. })
}

fn told(rule: &Invalid) -> String {
    rule.to_string()
}
