//! How precise the prices of a run are, as far as its records say.

use crate::blocks;
use crate::manifest::{CaseManifest, SubjectManifest, SubjectState};
use crate::metric::Metric;
use crate::record::Measurement;
use crate::run_dir::RunRecords;
use std::collections::BTreeMap;
use tollgate_stats::{Pair, half_width, ratio};

/// How precise prices are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Precision {
    /// The widest half-width of an interval, as a share.
    pub half_width: f64,
    /// The smallest number of blocks behind one.
    pub n: usize,
}

/// The valid measurements of a subject, by block.
pub type ByBlock<'a> = BTreeMap<u32, &'a Measurement>;

/// How precise the prices in CPU per request are; where the baseline has no CPU of its own, those in
/// throughput, or in the median latency where the rate is given. None while one has no interval, or where
/// none has a ratio. `is_in` tells of a case and a subject, by their places, whether it is still in the run: what
/// was given up gets no more precise.
pub fn precision(run: &RunRecords, is_in: impl Fn(usize, usize) -> bool) -> Option<Precision> {
    let experiment = &run.manifest.experiment;
    let is_baseline = |subject: &SubjectManifest| subject.name == experiment.baseline;
    let baseline_at = experiment.subjects.iter().position(is_baseline)?;
    let mut least: Option<Precision> = None;
    for (case_at, case) in experiment.cases.iter().enumerate() {
        let baseline = by_block(run, &case.name, &experiment.baseline);
        if !is_in(case_at, baseline_at) {
            continue;
        }
        let metric = judged_by(case, &baseline);
        for (subject_at, subject) in experiment.subjects.iter().enumerate() {
            let trials = by_block(run, &case.name, &subject.name);
            let is_present = matches!(subject.state, SubjectState::Present { .. });
            // What has no CPU of its own has no ratio that could get narrower.
            let is_of_case = case.is_for(&subject.name);
            let is_without_ratio = metric == Metric::CpuUsPerRequest && have_no_cpu(&trials);
            if subject_at == baseline_at
                || !is_of_case
                || !is_present
                || !is_in(case_at, subject_at)
                || is_without_ratio
            {
                continue;
            }
            let seed = run.manifest.seed;
            let price = of_price(metric, &trials, &baseline, seed)?;
            least = Some(least.map_or(price, |least| Precision {
                half_width: least.half_width.max(price.half_width),
                n: least.n.min(price.n),
            }));
        }
    }
    least
}

/// The figure whose prices have to be precise. In an open loop throughput is what was asked for, and
/// tells nothing of a subject.
pub fn judged_by(case: &CaseManifest, baseline: &ByBlock<'_>) -> Metric {
    match (have_no_cpu(baseline), case.open_loop.is_some()) {
        (false, _) => Metric::CpuUsPerRequest,
        (true, false) => Metric::ThroughputPerS,
        (true, true) => Metric::LatencyP50Ms,
    }
}

/// Whether there are valid trials, and none of them used any CPU: there were no processes.
fn have_no_cpu(valid: &ByBlock<'_>) -> bool {
    let cpu = |m: &&Measurement| m.system_cpu_us_per_request().is_some_and(|cpu| cpu > 0.0);
    !valid.is_empty() && !valid.values().any(cpu)
}

fn by_block<'a>(run: &'a RunRecords, case: &'a str, subject: &'a str) -> ByBlock<'a> {
    let valid = blocks::valid(run, case, subject).into_iter();
    valid.map(|(block, valid)| (block, valid.measurement)).collect()
}

/// How precise the price of a subject in one figure is; none without an interval.
fn of_price(
    metric: Metric,
    subject: &ByBlock<'_>,
    baseline: &ByBlock<'_>,
    seed: u64,
) -> Option<Precision> {
    let pairs = pairs(metric, subject, baseline);
    let half_width = half_width(&ratio(&pairs, seed)?)?;
    Some(Precision { half_width, n: pairs.len() })
}

/// Both sides of each block in which both are valid and have the figure.
pub fn pairs(metric: Metric, subject: &ByBlock<'_>, baseline: &ByBlock<'_>) -> Vec<Pair> {
    let pair = |(block, measurement): (&u32, &&Measurement)| {
        Some(Pair { subject: metric.of(measurement)?, baseline: metric.of(baseline.get(block)?)? })
    };
    subject.iter().filter_map(pair).collect()
}
