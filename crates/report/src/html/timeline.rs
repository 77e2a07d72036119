//! The trials of a case over the time of the run.

use super::svg::{Stripe, Timeline, TimelinePanel, Trial};
use crate::analysis::CaseAnalysis;
use crate::document::{Cell, Row, Table};
use crate::source::ReportSource;
use anyhow::Context;
use std::collections::BTreeSet;
use tollgate_records::trial::{Measurement, TrialOutcome, TrialRecord};
use tollgate_records::validity::Limits;
use tollgate_stats::number::{significant, with_decimals};

pub(super) struct Trials<'a> {
    trials: Vec<Timed<'a>>,
    pauses: Vec<Stripe>,
    length_s: f64,
    limits: &'a Limits,
}

struct Timed<'a> {
    record: &'a TrialRecord,
    /// Index of the subject's color and mark.
    series: usize,
    /// Start of the trial since the start of the run, without pauses.
    start_s: f64,
    /// The reasons why it is invalid; empty if it is valid.
    reasons: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// On a logarithmic scale. A trial without this figure still has a mark, so that every trial is visible once.
    Throughput,
    /// On a logarithmic scale.
    Latency,
    /// In percent.
    Noise,
}
use Kind::{Latency, Noise, Throughput};

/// Name with unit, machine-readable name, kind, and the figure of a trial.
type Figure = (&'static str, &'static str, Kind, fn(&Measurement) -> Option<f64>);

const FIGURES: [Figure; 5] = [
    ("expected responses per second", "throughput_per_s", Throughput, |m| Some(m.throughput_per_s)),
    ("p99 latency, ms", "latency_p99_ms", Latency, |m| m.latency.p99_ms),
    ("steal, % of the CPUs", STEAL, Noise, |m| Some(m.noise.steal_percent)),
    ("other processes, % of the CPUs", BACKGROUND, Noise, |m| Some(m.noise.background_cpu_percent)),
    ("CPU pressure, % of the time", "cpu_pressure_percent", Noise, |m| {
        m.noise.cpu_pressure_percent
    }),
];
const STEAL: &str = "steal_percent";
const BACKGROUND: &str = "background_cpu_percent";

impl<'a> Trials<'a> {
    pub(super) fn of(source: &'a ReportSource, case: &CaseAnalysis) -> anyhow::Result<Self> {
        let mut trials = Vec::new();
        let mut clock = Clock::default();
        for record in &source.records.trials {
            let start_s = clock.place(seconds_from_start(source, record)?, record.duration_s);
            let place = case.subjects.iter().position(|subject| subject.name == record.subject);
            if let (true, Some(series)) = (record.case == case.case.name, place) {
                trials.push(Timed { record, series, start_s, reasons: reasons(&record.outcome) });
            }
        }
        let limits = &source.records.manifest.experiment.limits;
        Ok(Self { trials, pauses: clock.pauses, length_s: clock.end_s.max(1.0), limits })
    }

    /// The indices of the subjects that have trials.
    pub(super) fn series(&self) -> BTreeSet<usize> {
        self.trials.iter().map(|trial| trial.series).collect()
    }

    /// True if the run was stopped and resumed.
    pub(super) fn has_pauses(&self) -> bool {
        !self.pauses.is_empty()
    }

    pub(super) fn timeline(&self) -> Timeline {
        let panels = FIGURES.iter().map(|figure| self.panel(figure));
        Timeline {
            panels: panels.filter(|panel| !panel.trials.is_empty()).collect(),
            invalid: self.invalid(),
            pauses: self.pauses.clone(),
            length_s: self.length_s,
        }
    }

    /// The invalid trials with their reasons.
    pub(super) fn invalid(&self) -> Vec<Stripe> {
        let invalid = self.trials.iter().filter(|trial| !trial.reasons.is_empty());
        let stripe = |trial: &Timed<'_>| {
            let TrialRecord { subject, block, duration_s, .. } = trial.record;
            Stripe {
                span_s: (trial.start_s, trial.start_s + duration_s),
                hint: format!("{subject}, block {block}, invalid: {}", trial.reasons),
            }
        };
        invalid.map(stripe).collect()
    }

    fn panel(&self, (unit, id, kind, of): &Figure) -> TimelinePanel {
        let trial = |trial: &Timed<'_>| {
            let measurement = trial.record.outcome.measurement();
            // Zero has no position on a logarithmic scale.
            let value = measurement.and_then(of).filter(|value| *kind == Noise || *value > 0.0);
            let text = match (value, measurement) {
                (Some(value), _) => format!("{unit}: {}", significant(value)),
                (None, Some(_)) if *kind == Throughput => "no expected response".to_owned(),
                (None, None) if *kind == Throughput => "not measured".to_owned(),
                (None, _) => return None,
            };
            Some(Trial {
                start_s: trial.start_s,
                value,
                series: trial.series,
                valid: trial.reasons.is_empty(),
                hint: format!("{}, block {}, {text}", trial.record.subject, trial.record.block),
            })
        };
        TimelinePanel {
            unit,
            is_logarithmic: *kind != Noise,
            limit: match *id {
                STEAL => Some(self.limits.steal.in_percent()),
                BACKGROUND => Some(self.limits.background_cpu.in_percent()),
                _ => None,
            },
            trials: self.trials.iter().filter_map(trial).collect(),
        }
    }

    pub(super) fn table(&self) -> Table {
        let row = |trial: &Timed<'_>| {
            let TrialRecord { subject, block, attempt, .. } = trial.record;
            let block = match attempt {
                1 => block.to_string(),
                attempt => format!("{block}, attempt {attempt}"),
            };
            let start =
                Cell::figure("start_s", Some(trial.start_s), |start| with_decimals(start, 1));
            let figure = |(_, id, _, of): &Figure| {
                Cell::figure(id, trial.record.outcome.measurement().and_then(of), significant)
            };
            let valid = match (trial.record.outcome.measurement(), trial.reasons.is_empty()) {
                (_, true) => "yes",
                (Some(_), false) => "no",
                (None, false) => "not measured",
            };
            let mut cells = vec![subject.as_str().into(), block.into(), start];
            cells.extend(FIGURES.iter().map(figure));
            cells.push(valid.into());
            Row { series: Some(trial.series), cells }
        };
        let figures = FIGURES.iter().map(|(name, ..)| *name);
        let header = ["subject", "block", "start, s"].into_iter().chain(figures).chain(["valid"]);
        Table::of_rows("Trials", header, self.trials.iter().map(row))
    }
}

fn reasons(outcome: &TrialOutcome) -> String {
    match outcome {
        TrialOutcome::Refused(refusal) => refusal.reason.clone(),
        TrialOutcome::Measured(_) | TrialOutcome::Failed(_) => outcome.why_not_valid().join("; "),
    }
}

/// The time of a run without its pauses, which may be longer than all trials.
#[derive(Debug, Default)]
struct Clock {
    /// End of the last trial, without pauses.
    end_s: f64,
    /// Total length of the pauses.
    paused_s: f64,
    pauses: Vec<Stripe>,
}

/// Minimum time between two trials that is a pause.
const PAUSE_S: f64 = 60.0;

impl Clock {
    /// Returns the position of the next trial. Trials must be passed in order.
    fn place(&mut self, from_start_s: f64, duration_s: f64) -> f64 {
        let gap_s = from_start_s - self.paused_s - self.end_s;
        if gap_s > PAUSE_S {
            let hint = format!("a pause of {} minutes", significant(gap_s / 60.0));
            self.pauses.push(Stripe { span_s: (self.end_s, self.end_s), hint });
            self.paused_s += gap_s;
        }
        let start_s = (from_start_s - self.paused_s).max(0.0);
        self.end_s = self.end_s.max(start_s + duration_s);
        start_s
    }
}

fn seconds_from_start(source: &ReportSource, trial: &TrialRecord) -> anyhow::Result<f64> {
    let time = |text: &str| {
        text.parse::<jiff::Timestamp>().with_context(|| {
            format!("the time {text:?} of a record is not RFC 3339, so the record was changed or damaged")
        })
    };
    let start = time(&source.records.manifest.started_at)?;
    Ok(time(&trial.started_at)?.duration_since(start).as_secs_f64().max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_excludes_pauses() {
        let mut clock = Clock::default();
        assert_eq!(clock.place(2.0, 10.0), 2.0);
        // 60 s after the end of the last trial are not a pause yet.
        assert_eq!(clock.place(72.0, 8.0), 72.0);
        // From 80 s to 3,680 s is an hour.
        assert_eq!(clock.place(3_680.0, 5.0), 80.0);
        assert_eq!(clock.place(3_690.0, 5.0), 90.0);
        assert_eq!(clock.end_s, 95.0);
        let pause = Stripe { span_s: (80.0, 80.0), hint: "a pause of 60.0 minutes".to_owned() };
        assert_eq!(clock.pauses, [pause]);
    }
}
