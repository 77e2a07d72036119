//! From a run to the data of its plots.

use super::svg::bars::{Bar, Bars};
use super::svg::distribution::Distribution;
use super::svg::spectrum::Spectrum;
use super::svg::{Whisker, dots, sweep, timeline};
use crate::analysis::{Analysis, CaseAnalysis, Metric, Range, SubjectAnalysis};
use crate::inputs::percent::Percent;
use crate::manifest::CaseManifest;
use crate::record::{Measurement, Outcome, TrialRecord};
use crate::report::ReportError;
use crate::report::number::{signed, significant};
use crate::report::rows;
use crate::report::source::Source;
use crate::trial::validity::Limits;
use tollgate_stats::LatencyHistogram;

/// A subject's prices in CPU as bars; none when no subject has a ratio.
pub(super) fn bars(analysis: &Analysis, case: &CaseAnalysis) -> Option<Bars> {
    let has_cpu = |subject: &SubjectAnalysis| subject.figures.as_ref()?.cpu_us_per_request;
    let bars: Vec<Bar> = (0..)
        .zip(&case.subjects)
        .filter_map(|(series, subject)| {
            let is_baseline = subject.name == analysis.baseline;
            let price = subject.prices.get(&Metric::CpuUsPerRequest);
            let ratio = price.and_then(|price| price.ratio);
            let one = Whisker { estimate: 1.0, low: 1.0, high: 1.0, interval: true };
            let (price, text) = match (ratio, price) {
                (Some(ratio), _) => (Some(whisker(&ratio)), rows::range(&ratio, significant)),
                (None, Some(price)) => {
                    (None, format!("no ratio: {} µs", signed(price.difference.estimate)))
                }
                (None, None) if is_baseline && has_cpu(subject).is_some() => {
                    (Some(one), "1 (baseline)".to_owned())
                }
                (None, None) => return None,
            };
            Some(Bar { name: subject.name.clone(), series, price, text })
        })
        .collect();
    let priced = bars.iter().any(|bar| bar.price.is_some() && bar.name != analysis.baseline);
    priced.then(|| Bars {
        baseline: analysis.baseline.clone(),
        bars,
        band: case.noise_floor.map(|floor| (floor.low, floor.high)),
    })
}

/// The ratio of CPU per request in each block, a panel a subject.
pub(super) fn dots(analysis: &Analysis, case: &CaseAnalysis) -> Vec<dots::Panel> {
    let mut panels = Vec::new();
    for (series, subject) in (0..).zip(&case.subjects) {
        if subject.name == analysis.baseline {
            continue;
        }
        let dots: Vec<dots::Dot> = subject
            .blocks
            .iter()
            .filter_map(|figure| {
                let (block, ratio) = (figure.block, figure.ratio?);
                let far = if figure.outlier { ", an outlier" } else { "" };
                let hint =
                    format!("{}, block {block}: × {}{far}", subject.name, significant(ratio));
                Some(dots::Dot { block, ratio, outlier: figure.outlier, hint })
            })
            .collect();
        if !dots.is_empty() {
            let price = subject.prices.get(&Metric::CpuUsPerRequest);
            let price = price.and_then(|price| price.ratio).map(|ratio| whisker(&ratio));
            panels.push(dots::Panel { name: subject.name.clone(), series, dots, price });
        }
    }
    panels
}

/// The latencies of each subject that has any, over all its valid trials.
pub(super) struct Latencies {
    pub(super) name: String,
    pub(super) series: usize,
    pub(super) histogram: LatencyHistogram,
}

/// The latencies of every subject of a case that has any.
pub(super) fn latencies(
    source: &Source,
    case: &CaseAnalysis,
) -> Result<Vec<Latencies>, ReportError> {
    let mut all = Vec::new();
    for (series, subject) in (0..).zip(&case.subjects) {
        let histogram = source.latencies(&case.case.name, &subject.name)?;
        if histogram.count() > 0 {
            all.push(Latencies { name: subject.name.clone(), series, histogram });
        }
    }
    Ok(all)
}

/// The latency of each subject by percentile, as far as ten answers lie beyond it.
pub(super) fn spectra(latencies: &[Latencies]) -> Vec<Spectrum> {
    let steps = |histogram: &LatencyHistogram| {
        let shortest = histogram.min_ns().map(|ns| (0.0, ms(ns)));
        let told = histogram
            .percentiles(TICKS_PER_HALF)
            .filter(|step| step.quantile > 0.0 && step.quantile < 1.0)
            .filter(|step| histogram.quantile_ns(step.quantile).is_some() || step.quantile < 0.5)
            .map(|step| (step.quantile, ms(step.value_ns)));
        // The quantiles that are read off have a point of their own.
        let named = NAMED
            .iter()
            .filter_map(|quantile| histogram.quantile_ns(*quantile).map(|ns| (*quantile, ms(ns))));
        let mut steps: Vec<(f64, f64)> = shortest.into_iter().chain(told).chain(named).collect();
        steps.sort_by(|a, b| a.0.total_cmp(&b.0));
        steps.dedup_by(|a, b| a.0 == b.0);
        steps
    };
    latencies
        .iter()
        .map(|one| Spectrum {
            name: one.name.clone(),
            series: one.series,
            steps: steps(&one.histogram),
        })
        .collect()
}

const TICKS_PER_HALF: u32 = 5;

/// The quantiles that a report tells, besides the shortest and the longest latency.
pub(super) const NAMED: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

/// The classes of latency that all subjects of a case share, and how many percent of each one's
/// answers are in each class.
pub(super) fn distributions(latencies: &[Latencies]) -> (Vec<f64>, Vec<Distribution>) {
    let shortest = latencies.iter().filter_map(|one| one.histogram.min_ns()).min();
    let longest = latencies.iter().filter_map(|one| one.histogram.max_ns()).max();
    let (Some(shortest), Some(longest)) = (shortest, longest) else {
        return (Vec::new(), Vec::new());
    };
    // At least twice as long, so that the classes are wider than what a histogram tells apart.
    let longest = longest.max(shortest.saturating_mul(2));
    let (low, high) = (ms(shortest).ln(), ms(longest).ln());
    let edge = |index: u32| (low + (high - low) * f64::from(index) / f64::from(CLASSES)).exp();
    let edges: Vec<f64> = (0..=CLASSES).map(edge).collect();
    let of_one = |one: &Latencies| {
        let up_to = |edge: &f64| one.histogram.count_up_to(ns(*edge));
        // The lowest edge belongs to the lowest class, and rounding keeps nothing from the highest.
        let mut counts: Vec<u64> = edges.iter().map(up_to).collect();
        counts[0] = 0;
        if let Some(last) = counts.last_mut() {
            *last = one.histogram.count();
        }
        let all = count_f64(one.histogram.count());
        let percent = |pair: &[u64]| 100.0 * count_f64(pair[1].saturating_sub(pair[0])) / all;
        let percent = counts.windows(2).map(percent).collect();
        Distribution { name: one.name.clone(), series: one.series, percent }
    };
    let distributions = latencies.iter().map(of_one).collect();
    (edges, distributions)
}

const CLASSES: u32 = 72;

/// Throughput, latency and noise of every trial of a case over the time of the run, and the trials
/// that do not count.
pub(super) struct Timeline {
    pub(super) panels: Vec<timeline::Panel>,
    pub(super) flaws: Vec<timeline::Flaw>,
    pub(super) pauses: Vec<timeline::Pause>,
    pub(super) length_s: f64,
}

/// The time of a run without the pauses in it: one that was stopped in the evening and taken up in the
/// morning would else be all night.
#[derive(Debug, Default)]
struct Clock {
    /// When the last trial ended, without the pauses before it.
    end_s: f64,
    /// How long the pauses were.
    cut_s: f64,
    pauses: Vec<timeline::Pause>,
}

impl Clock {
    /// Where a trial that began so long after the run is to stand. Trials come in their order.
    fn place(&mut self, from_begin_s: f64, took_s: f64) -> f64 {
        let gap_s = from_begin_s - self.cut_s - self.end_s;
        if gap_s > PAUSE_S {
            let hint = format!("a pause of {} minutes", significant(gap_s / 60.0));
            self.pauses.push(timeline::Pause { at_s: self.end_s, hint });
            self.cut_s += gap_s;
        }
        let at_s = (from_begin_s - self.cut_s).max(0.0);
        self.end_s = self.end_s.max(at_s + took_s);
        at_s
    }
}

/// A longer time than this between two trials is a pause.
const PAUSE_S: f64 = 60.0;

/// The timeline of a case.
pub(super) fn timeline(source: &Source, case: &CaseAnalysis) -> Result<Timeline, ReportError> {
    let mut measured = Vec::new();
    let mut flaws = Vec::new();
    let mut clock = Clock::default();
    for trial in &source.records.trials {
        let at_s = clock.place(seconds_from_begin(source, trial)?, trial.took_s);
        let place = case.subjects.iter().position(|subject| subject.name == trial.subject);
        let (true, Some(series)) = (trial.case == case.case.name, place) else {
            continue;
        };
        let reasons = match &trial.outcome {
            Outcome::Measured(measurement) => {
                measured.push((trial, measurement.as_ref(), at_s, series));
                measurement.invalid.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
            }
            Outcome::Refused(refusal) => refusal.reason.clone(),
            Outcome::Failed(failure) => format!("{}: {}", failure.step, failure.reason),
        };
        if !reasons.is_empty() {
            let hint =
                format!("{}, block {}, does not count: {reasons}", trial.subject, trial.block);
            flaws.push(timeline::Flaw { span_s: (at_s, at_s + trial.took_s), hint });
        }
    }
    let limits = &source.records.manifest.experiment.limits;
    let panel = |figure: &Figure| {
        let moments = measured.iter().filter_map(|(trial, measurement, at_s, series)| {
            let value = (figure.of)(measurement)?;
            let number = significant(value);
            Some(timeline::Moment {
                at_s: *at_s,
                value,
                series: *series,
                valid: measurement.invalid.is_empty(),
                hint: format!("{}, block {}: {number} {}", trial.subject, trial.block, figure.unit),
            })
        });
        let moments: Vec<_> = moments.collect();
        let limit = figure.limit.map(|limit| limit(limits).in_percent());
        timeline::Panel { unit: figure.name, ratios: figure.ratios, limit, moments }
    };
    let panels = FIGURES.iter().map(panel).filter(|panel| !panel.moments.is_empty()).collect();
    Ok(Timeline { panels, flaws, pauses: clock.pauses, length_s: clock.end_s.max(1.0) })
}

/// A figure of a trial that is drawn over time.
struct Figure {
    name: &'static str,
    unit: &'static str,
    ratios: bool,
    limit: Option<fn(&Limits) -> Percent>,
    of: fn(&Measurement) -> Option<f64>,
}

const FIGURES: [Figure; 5] = [
    Figure {
        name: "expected answers a second",
        unit: "a second",
        ratios: true,
        limit: None,
        of: |measurement| Some(measurement.throughput_per_s).filter(|value| *value > 0.0),
    },
    Figure {
        name: "p99 latency, ms",
        unit: "ms",
        ratios: true,
        limit: None,
        of: |measurement| measurement.latency.p99_ms,
    },
    Figure {
        name: "steal, % of the CPUs",
        unit: "% steal",
        ratios: false,
        limit: Some(|limits| limits.steal),
        of: |measurement| Some(measurement.noise.steal_percent),
    },
    Figure {
        name: "other processes, % of the CPUs",
        unit: "% taken by other processes",
        ratios: false,
        limit: Some(|limits| limits.foreign_cpu),
        of: |measurement| Some(measurement.noise.foreign_cpu_percent),
    },
    Figure {
        name: "CPU pressure, % of the time",
        unit: "% of the time with a task that waited for a CPU",
        ratios: false,
        limit: None,
        of: |measurement| measurement.noise.cpu_pressure_percent,
    },
];

fn seconds_from_begin(source: &Source, trial: &TrialRecord) -> Result<f64, ReportError> {
    let time = |text: &str| {
        text.parse::<jiff::Timestamp>()
            .map_err(|source| ReportError::Time { text: text.to_owned(), source })
    };
    let begin = time(&source.records.manifest.started_at)?;
    Ok(time(&trial.started_at)?.duration_since(begin).as_secs_f64().max(0.0))
}

/// How much load a case is.
pub(super) struct Load {
    pub(super) unit: &'static str,
    amount: f64,
}

/// How much load a case is: its rate, or in a closed loop its connections.
pub(super) fn load(case: &CaseAnalysis) -> Load {
    match case.case.open_loop {
        Some(open_loop) => Load { unit: "requests/s", amount: open_loop.rate_per_s },
        None => Load { unit: "connections", amount: f64::from(case.case.connections) },
    }
}

/// Whether two cases differ in how much load they are, and in nothing else.
fn differ_in_load(a: &CaseAnalysis, b: &CaseAnalysis) -> bool {
    let base = |case: &CaseManifest| (case.mix_file.clone(), case.threads, case.keepalive);
    let of_open = |case: &CaseManifest| {
        let open_loop = case.open_loop?;
        Some((case.connections, open_loop.spacing, open_loop.connections_max))
    };
    base(&a.case) == base(&b.case)
        && of_open(&a.case) == of_open(&b.case)
        && load(a).amount != load(b).amount
}

/// Cases that differ in their load alone, from the least to the most.
pub(super) fn sweeps(cases: &[CaseAnalysis]) -> Vec<Vec<&CaseAnalysis>> {
    let mut sweeps: Vec<Vec<&CaseAnalysis>> = Vec::new();
    for case in cases {
        let fits =
            |sweep: &&mut Vec<&CaseAnalysis>| sweep.iter().all(|other| differ_in_load(case, other));
        match sweeps.iter_mut().find(fits) {
            Some(sweep) => sweep.push(case),
            None => sweeps.push(vec![case]),
        }
    }
    sweeps.retain(|sweep| sweep.len() > 1);
    for sweep in &mut sweeps {
        sweep.sort_by(|a, b| load(a).amount.total_cmp(&load(b).amount));
    }
    sweeps
}

/// A latency of a subject in milliseconds, where it has one.
type Latency = fn(&SubjectAnalysis) -> Option<f64>;

/// Latency against load, over the cases of a sweep.
pub(super) fn sweep(cases: &[&CaseAnalysis]) -> Vec<sweep::Panel> {
    let subjects = cases.first().map_or(&[][..], |case| &case.subjects[..]);
    let panel = |(unit, of): (&'static str, Latency)| {
        let line = |(series, subject): (usize, &SubjectAnalysis)| {
            let points: Vec<(f64, f64)> = cases
                .iter()
                .filter_map(|case| {
                    let found = case.subjects.iter().find(|other| other.name == subject.name)?;
                    Some((load(case).amount, of(found)?))
                })
                .collect();
            sweep::Line { name: subject.name.clone(), series, points }
        };
        let lines = (0..).zip(subjects).map(line).filter(|line| !line.points.is_empty());
        sweep::Panel { unit, lines: lines.collect() }
    };
    let figures: [(&str, Latency); 2] = [
        ("p50 latency, ms", |subject| subject.figures.as_ref()?.latency_p50_ms),
        ("p99 latency, ms", |subject| subject.figures.as_ref()?.latency_p99_ms),
    ];
    figures.into_iter().map(panel).filter(|panel| !panel.lines.is_empty()).collect()
}

fn whisker(range: &Range) -> Whisker {
    Whisker { estimate: range.estimate, low: range.low, high: range.high, interval: range.interval }
}

/// Nanoseconds in milliseconds.
pub(super) fn ms(ns: u64) -> f64 {
    count_f64(ns) / 1e6
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a latency in nanoseconds is positive and far below 2^63"
)]
fn ns(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}

fn count_f64(count: u64) -> f64 {
    crate::record::as_f64(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_run_goes_on_after_a_pause() {
        let mut clock = Clock::default();
        assert_eq!(clock.place(2.0, 10.0), 2.0);
        // 60 s after the end of the one before is none yet.
        assert_eq!(clock.place(72.0, 8.0), 72.0);
        // From 80 s to 3,680 s is an hour.
        assert_eq!(clock.place(3_680.0, 5.0), 80.0);
        assert_eq!(clock.place(3_690.0, 5.0), 90.0);
        assert_eq!(clock.end_s, 95.0);
        let pause = timeline::Pause { at_s: 80.0, hint: "a pause of 60.0 minutes".to_owned() };
        assert_eq!(clock.pauses, [pause]);
    }
}
