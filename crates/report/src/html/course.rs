//! The trials of a case over the time of the run, as a whole and part by part.

use super::svg::timeline;
use crate::analysis::CaseAnalysis;
use crate::error::ReportError;
use crate::source::Source;
use std::collections::BTreeSet;
use tollgate_experiment::record::{Measurement, Outcome, TrialRecord};
use tollgate_experiment::units::Percent;
use tollgate_experiment::validity::Limits;
use tollgate_stats::number::{significant, with_decimals};

pub(super) struct Course<'a> {
    trials: Vec<Timed<'a>>,
    pauses: Vec<timeline::Pause>,
    length_s: f64,
    limits: &'a Limits,
}

/// A trial and its position in the run.
pub(super) struct Timed<'a> {
    pub(super) record: &'a TrialRecord,
    /// Index of the subject's color and mark.
    pub(super) series: usize,
    /// Start of the trial since the start of the run, without pauses.
    pub(super) at_s: f64,
    /// The reasons why it is invalid; empty if it is valid.
    pub(super) reasons: String,
}

/// Consecutive blocks, drawn enlarged.
pub(super) struct Part<'a> {
    pub(super) title: String,
    pub(super) trials: &'a [Timed<'a>],
    pub(super) timeline: timeline::Timeline,
}

/// Maximum number of parts; in longer runs, each part has several blocks.
const PARTS_MAX: usize = 10;

impl<'a> Course<'a> {
    pub(super) fn of(source: &'a Source, case: &CaseAnalysis) -> Result<Self, ReportError> {
        let mut trials = Vec::new();
        let mut clock = Clock::default();
        for record in &source.records.trials {
            let at_s = clock.place(seconds_from_begin(source, record)?, record.duration_s);
            let place = case.subjects.iter().position(|subject| subject.name == record.subject);
            if let (true, Some(series)) = (record.case == case.case.name, place) {
                trials.push(Timed { record, series, at_s, reasons: reasons(&record.outcome) });
            }
        }
        let limits = &source.records.manifest.experiment.limits;
        Ok(Self { trials, pauses: clock.pauses, length_s: clock.end_s.max(1.0), limits })
    }

    /// The indices of the subjects that have trials.
    pub(super) fn subjects(&self) -> BTreeSet<usize> {
        self.trials.iter().map(|trial| trial.series).collect()
    }

    /// The reasons for invalid trials, each with its subject and block.
    pub(super) fn flaws(&self) -> Vec<String> {
        self.trials.iter().filter_map(Timed::flaw).map(|flaw| flaw.hint).collect()
    }

    /// True if the run was stopped and resumed.
    pub(super) fn has_pauses(&self) -> bool {
        !self.pauses.is_empty()
    }

    pub(super) fn whole(&self) -> Option<timeline::Timeline> {
        (!self.trials.is_empty()).then(|| self.drawn(&self.trials, (0.0, self.length_s)))
    }

    /// The trials in parts of whole blocks, as they followed each other: a block that was repeated
    /// later is in two of them.
    pub(super) fn parts(&self) -> Vec<Part<'_>> {
        let stretches = self.trials.chunk_by(|a, b| a.record.block == b.record.block);
        let lengths: Vec<usize> = stretches.map(<[Timed<'_>]>::len).collect();
        let of_a_part = lengths.len().div_ceil(PARTS_MAX).max(1);
        let mut rest = &self.trials[..];
        let mut parts = Vec::new();
        let all = lengths.len().div_ceil(of_a_part);
        for (number, lengths) in (1..).zip(lengths.chunks(of_a_part)) {
            let (trials, after) = rest.split_at(lengths.iter().sum());
            rest = after;
            let begin_s = trials.iter().map(|trial| trial.at_s).fold(f64::INFINITY, f64::min);
            let end_s = trials.iter().map(Timed::end_s).fold(begin_s, f64::max);
            let title = format!(
                "{number} of {all}: {}, from {} to {} s",
                blocks(trials),
                with_decimals(begin_s, 1),
                with_decimals(end_s, 1)
            );
            parts.push(Part { title, trials, timeline: self.drawn(trials, (begin_s, end_s)) });
        }
        parts
    }

    fn drawn(&self, trials: &[Timed<'_>], span_s: (f64, f64)) -> timeline::Timeline {
        let panels = FIGURES.iter().map(|figure| panel(figure, trials, self.limits));
        // A pause ends where the next trial starts, up to rounding.
        let span = span_s.0 - 1e-6..span_s.1;
        let inside = |pause: &&timeline::Pause| span.contains(&pause.at_s);
        timeline::Timeline {
            panels: panels.filter(|panel| !panel.moments.is_empty()).collect(),
            flaws: trials.iter().filter_map(Timed::flaw).collect(),
            pauses: self.pauses.iter().filter(inside).cloned().collect(),
            span_s,
        }
    }
}

impl<'a> Timed<'a> {
    /// `None` if the trial ended before its measurement.
    pub(super) fn measurement(&self) -> Option<&'a Measurement> {
        match &self.record.outcome {
            Outcome::Measured(measurement) => Some(measurement),
            Outcome::Refused(_) | Outcome::Failed(_) => None,
        }
    }

    fn end_s(&self) -> f64 {
        self.at_s + self.record.duration_s
    }

    fn flaw(&self) -> Option<timeline::Flaw> {
        let TrialRecord { subject, block, .. } = self.record;
        let hint = format!("{subject}, block {block}, invalid: {}", self.reasons);
        let span_s = (self.at_s, self.end_s());
        (!self.reasons.is_empty()).then_some(timeline::Flaw { span_s, hint })
    }
}

fn reasons(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Measured(measurement) => {
            measurement.invalid.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        }
        Outcome::Refused(refusal) => refusal.reason.clone(),
        Outcome::Failed(failure) => format!("{}: {}", failure.step, failure.reason),
    }
}

fn blocks(trials: &[Timed<'_>]) -> String {
    let blocks: BTreeSet<u32> = trials.iter().map(|trial| trial.record.block).collect();
    let (first, last) = (blocks.first().copied(), blocks.last().copied());
    match (first.unwrap_or(0), last.unwrap_or(0)) {
        (first, last) if first == last => format!("block {first}"),
        (first, last) if blocks.len() == (last - first + 1) as usize => {
            format!("blocks {first} to {last}")
        }
        _ => {
            let names: Vec<String> = blocks.iter().map(u32::to_string).collect();
            format!("blocks {}", names.join(", "))
        }
    }
}

pub(super) struct Figure {
    /// Name with unit.
    pub(super) name: &'static str,
    /// Machine-readable name.
    pub(super) id: &'static str,
    unit: &'static str,
    ratios: bool,
    /// True if a trial without this figure still has a mark, so that every trial is visible once.
    is_of_all: bool,
    limit: Option<fn(&Limits) -> Percent>,
    pub(super) of: fn(&Measurement) -> Option<f64>,
}

pub(super) const FIGURES: [Figure; 5] = [
    Figure {
        name: "expected answers a second",
        id: "throughput_per_s",
        unit: "a second",
        ratios: true,
        is_of_all: true,
        limit: None,
        of: |measurement| Some(measurement.throughput_per_s),
    },
    Figure {
        name: "p99 latency, ms",
        id: "latency_p99_ms",
        unit: "ms",
        ratios: true,
        is_of_all: false,
        limit: None,
        of: |measurement| measurement.latency.p99_ms,
    },
    Figure {
        name: "steal, % of the CPUs",
        id: "steal_percent",
        unit: "% steal",
        ratios: false,
        is_of_all: false,
        limit: Some(|limits| limits.steal),
        of: |measurement| Some(measurement.noise.steal_percent),
    },
    Figure {
        name: "other processes, % of the CPUs",
        id: "background_cpu_percent",
        unit: "% taken by other processes",
        ratios: false,
        is_of_all: false,
        limit: Some(|limits| limits.background_cpu),
        of: |measurement| Some(measurement.noise.background_cpu_percent),
    },
    Figure {
        name: "CPU pressure, % of the time",
        id: "cpu_pressure_percent",
        unit: "% of the time with a task that waited for a CPU",
        ratios: false,
        is_of_all: false,
        limit: None,
        of: |measurement| measurement.noise.cpu_pressure_percent,
    },
];

fn panel(figure: &Figure, trials: &[Timed<'_>], limits: &Limits) -> timeline::Panel {
    let moment = |trial: &Timed<'_>| {
        let measurement = trial.measurement();
        // Zero has no position on a logarithmic scale.
        let value = measurement.and_then(figure.of).filter(|value| !figure.ratios || *value > 0.0);
        let said = match (value, measurement) {
            (Some(value), _) => format!("{} {}", significant(value), figure.unit),
            (None, Some(_)) if figure.is_of_all => "no expected answer".to_owned(),
            (None, None) if figure.is_of_all => "not measured".to_owned(),
            (None, _) => return None,
        };
        Some(timeline::Moment {
            at_s: trial.at_s,
            value,
            series: trial.series,
            valid: trial.reasons.is_empty(),
            hint: format!("{}, block {}: {said}", trial.record.subject, trial.record.block),
        })
    };
    timeline::Panel {
        unit: figure.name,
        ratios: figure.ratios,
        limit: figure.limit.map(|limit| limit(limits).in_percent()),
        moments: trials.iter().filter_map(moment).collect(),
    }
}

/// The time of a run without the pauses in it: one that was stopped in the evening and taken up in the
/// morning would else be all night.
#[derive(Debug, Default)]
struct Clock {
    /// End of the last trial, without pauses.
    end_s: f64,
    /// Total length of the pauses.
    cut_s: f64,
    pauses: Vec<timeline::Pause>,
}

impl Clock {
    /// Returns the position of the next trial. Trials must be passed in order.
    fn place(&mut self, from_begin_s: f64, duration_s: f64) -> f64 {
        let gap_s = from_begin_s - self.cut_s - self.end_s;
        if gap_s > PAUSE_S {
            let hint = format!("a pause of {} minutes", significant(gap_s / 60.0));
            self.pauses.push(timeline::Pause { at_s: self.end_s, hint });
            self.cut_s += gap_s;
        }
        let at_s = (from_begin_s - self.cut_s).max(0.0);
        self.end_s = self.end_s.max(at_s + duration_s);
        at_s
    }
}

/// Minimum time between two trials that is a pause.
const PAUSE_S: f64 = 60.0;

fn seconds_from_begin(source: &Source, trial: &TrialRecord) -> Result<f64, ReportError> {
    let time = |text: &str| {
        text.parse::<jiff::Timestamp>()
            .map_err(|source| ReportError::Time { text: text.to_owned(), source })
    };
    let begin = time(&source.records.manifest.started_at)?;
    Ok(time(&trial.started_at)?.duration_since(begin).as_secs_f64().max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_excludes_pauses() {
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
