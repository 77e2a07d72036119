//! The value that a gate is judged by: an estimate with its interval, over blocks.

use super::{Gate, Measure};
use crate::analysis::Range;
use crate::blocks;
use crate::record::as_f64;
use crate::run_dir::RunRecords;
use std::collections::BTreeMap;
use tollgate_stats::{Pair, difference, ratio};
use tollgate_traffic::Class;

/// The value under a case, and how many blocks stand behind it.
pub(super) fn of(gate: &Gate, run: &RunRecords, case: &str) -> (usize, Option<Range>) {
    match &gate.over {
        Some(over) => ratio_of(gate, run, case, &over.name),
        None => figure_of(gate, run, case),
    }
}

/// The ratio over the blocks in which both sides have the figure, and how many those are.
fn ratio_of(gate: &Gate, run: &RunRecords, case: &str, over: &str) -> (usize, Option<Range>) {
    let (subject, baseline) =
        (by_block(gate, run, case, &gate.subject.name), by_block(gate, run, case, over));
    let pairs: Vec<Pair> = subject
        .into_iter()
        .filter_map(|(block, subject)| Some(Pair { subject, baseline: *baseline.get(&block)? }))
        .collect();
    (pairs.len(), ratio(&pairs, run.manifest.seed).map(Range::from))
}

/// The figure over its blocks, and how many those are.
fn figure_of(gate: &Gate, run: &RunRecords, case: &str) -> (usize, Option<Range>) {
    let values = by_block(gate, run, case, &gate.subject.name);
    // What a figure is more than nothing: its own estimate and interval.
    let pairs: Vec<Pair> =
        values.into_values().map(|value| Pair { subject: value, baseline: 0.0 }).collect();
    let value = difference(&pairs, run.manifest.seed).map(Range::from);
    let share = match gate.measure {
        Measure::Caught => class_share(run, case, &gate.subject.name, Class::Malicious),
        Measure::Alarms => class_share(run, case, &gate.subject.name, Class::Benign),
        Measure::Priced(_) | Measure::Startup => None,
    };
    // A single attack that slipped through in one block hardly moves a median of means, and must not
    // be lost: shares are those of the report, over all requests, and the interval holds them.
    let held = |range: Range| match share {
        Some(share) => Range {
            estimate: share,
            low: range.low.min(share),
            high: range.high.max(share),
            interval: range.interval,
        },
        None => range,
    };
    (pairs.len(), value.map(held))
}

/// The figure in each block that has it.
fn by_block(gate: &Gate, run: &RunRecords, case: &str, subject: &str) -> BTreeMap<u32, f64> {
    let class = match gate.measure {
        Measure::Caught => Class::Malicious,
        Measure::Alarms => Class::Benign,
        Measure::Priced(_) | Measure::Startup => {
            let valid = blocks::valid(run, case, subject).into_iter();
            return valid
                .filter_map(|(block, trial)| Some((block, gate.measure.of(&trial)?)))
                .collect();
        }
    };
    let mut counts: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for (trial, measurement) in blocks::measured(run, case, subject) {
        let (blocked, told) = measurement.blocked(class);
        let of_block = counts.entry(trial.block).or_default();
        *of_block = (of_block.0 + blocked, of_block.1 + told);
    }
    let share = |(block, (blocked, told)): (u32, (u64, u64))| {
        (told > 0).then(|| (block, as_f64(blocked) / as_f64(told)))
    };
    counts.into_iter().filter_map(share).collect()
}

/// The share of a class that was blocked, over all measured trials in which no process died.
fn class_share(run: &RunRecords, case: &str, subject: &str, class: Class) -> Option<f64> {
    let counts = blocks::measured(run, case, subject).map(|(_, m)| m.blocked(class));
    let (blocked, told) = counts.fold((0, 0), |all, trial| (all.0 + trial.0, all.1 + trial.1));
    (told > 0).then(|| as_f64(blocked) / as_f64(told))
}
