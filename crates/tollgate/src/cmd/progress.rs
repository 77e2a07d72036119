//! Progress of a run on standard error: a bar on a terminal, otherwise lines.

use crate::console::eprint_line;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::io::{IsTerminal, stderr};
use tollgate_experiment::experiment::Experiment;
use tollgate_records::stop::Stop;
use tollgate_records::trial::{TrialOutcome, TrialRecord};
use tollgate_records::validity::Invalid;
use tollgate_runner::run::{RunEvent, shortest_time};
use tollgate_stats::number::{counted, share};

pub(crate) struct Progress {
    stop: Stop,
    at_least_s: u64,
    /// Time spent in trials, for a run with a budget.
    spent_s: f64,
    bar: ProgressBar,
    terminal: bool,
    invalid: InvalidTrials,
}

/// Invalid trials by subject, case and violated rules.
#[derive(Debug, Default)]
struct InvalidTrials {
    groups: BTreeMap<(String, String, Vec<String>), InvalidGroup>,
}

#[derive(Debug, Default)]
struct InvalidGroup {
    trials: usize,
    /// Largest percentage of each exceeded limit; empty if a rule without such a limit is violated.
    exceeded: BTreeMap<&'static str, f64>,
}

impl Progress {
    pub(crate) fn new(experiment: &Experiment) -> Self {
        Self {
            stop: experiment.stop,
            spent_s: 0.0,
            at_least_s: shortest_time(experiment).as_secs(),
            bar: ProgressBar::hidden(),
            terminal: stderr().is_terminal(),
            invalid: InvalidTrials::default(),
        }
    }

    pub(crate) fn show(&mut self, event: &RunEvent<'_>) {
        match event {
            RunEvent::NotInstalled(subject) => self.line(&subject.to_string()),
            RunEvent::Changed(difference) => {
                self.line(&format!(
                    "the machine has changed since the start of the run: {difference}"
                ));
            }
            RunEvent::Waiting(text) => self.line(text),
            RunEvent::Begun { trials, done } => self.begin(*trials, done),
            RunEvent::Block { half_width: Some(half), .. } => {
                self.line(&format!("widest interval: ±{}", share(*half)));
            }
            RunEvent::Block { half_width: None, .. } => {}
            RunEvent::Trial { block, case, subject } => {
                self.bar.set_message(format!("{}: {subject} ({case})", self.place(*block)));
            }
            RunEvent::Recorded(record) => {
                self.advance(record);
                self.record(record);
            }
            RunEvent::GivenUp { case, subject } => {
                self.line(&format!("{subject} is skipped in the rest of the run ({case})"));
            }
        }
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
        self.invalid.summary().iter().for_each(|line| eprint_line(line));
    }

    fn begin(&mut self, trials: Option<usize>, done: &[TrialRecord]) {
        if !done.is_empty() {
            self.line(&format!("{} already on record", counted(done.len(), "trial")));
        }
        let what = match (trials, self.stop.width) {
            (Some(trials), _) => format!(
                "{} in {}: {} s plus server starts",
                counted(trials, "trial"),
                counted(self.stop.blocks as usize, "block"),
                self.at_least_s
            ),
            (None, width) => format!(
                "blocks until every interval is within ±{}, at most {} blocks and about {} s",
                share(width.unwrap_or_default()),
                self.stop.blocks,
                self.at_least_s
            ),
        };
        self.line(&what);
        if self.terminal {
            let (length, template) = match trials {
                Some(trials) => (trials as u64, "{wide_bar} {pos}/{len} trials, {eta} left, {msg}"),
                None => (self.at_least_s, "{wide_bar} {pos}/{len} s at most, {msg}"),
            };
            self.bar = ProgressBar::new(length);
            for record in done {
                self.advance(record);
            }
            // The template is a constant; the default style is acceptable.
            if let Ok(style) = ProgressStyle::with_template(template) {
                self.bar.set_style(style);
            }
        }
    }

    fn advance(&mut self, record: &TrialRecord) {
        if self.stop.budget_s.is_some() {
            self.spent_s += record.duration_s;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "seconds of a run, for a bar"
            )]
            self.bar.set_position(self.spent_s as u64);
            return;
        }
        if record.attempt > 1 || record.block > self.stop.blocks {
            self.bar.inc_length(1);
        }
        self.bar.inc(1);
    }

    fn place(&self, block: u32) -> String {
        match self.stop.budget_s {
            None if block > self.stop.blocks => {
                format!("extra block {}", block - self.stop.blocks)
            }
            None => format!("block {block}/{}", self.stop.blocks),
            Some(_) => format!("block {block}"),
        }
    }

    /// Prints a trial that is not measured, invalid or unsteady. Of equal invalid trials, prints the first.
    fn record(&mut self, record: &TrialRecord) {
        let TrialRecord { block, case, subject, .. } = record;
        if !self.invalid.is_news(record) {
            return;
        }
        let reasons = record.outcome.why_not_valid().join("; ");
        let what = match &record.outcome {
            TrialOutcome::Measured(measurement) => {
                let rate = format!("{:.0} responses/s", measurement.throughput_per_s);
                let cpu = measurement.system_cpu_us_per_request();
                let cpu = cpu.map_or(String::new(), |us| format!(", {us:.1} µs CPU/request"));
                let unsteady = measurement.warm_up.filter(|warm_up| warm_up.steady == Some(false));
                if reasons.is_empty() && unsteady.is_none() && self.terminal {
                    return;
                }
                let unsteady = unsteady.map_or(String::new(), |warm_up| {
                    format!("; not steady after a warm-up of {:.1} s", warm_up.duration_s)
                });
                if reasons.is_empty() {
                    format!("{rate}{cpu}{unsteady}")
                } else {
                    format!("invalid: {reasons}")
                }
            }
            TrialOutcome::Refused(_) => reasons,
            TrialOutcome::Failed(failure) => {
                failure.log.iter().fold(reasons, |text, line| text + &format!("\n    | {line}"))
            }
        };
        self.line(&format!("{}: {subject} ({case}): {what}", self.place(*block)));
    }

    fn line(&self, text: &str) {
        self.bar.suspend(|| eprint_line(text));
    }
}

impl InvalidTrials {
    /// Counts an invalid trial. Returns false if its subject has violated the same rules in the same case before.
    fn is_news(&mut self, record: &TrialRecord) -> bool {
        let Some(measurement) = record.outcome.measurement() else { return true };
        if measurement.invalid.is_empty() {
            return true;
        }
        let rules = measurement.invalid.iter().map(Invalid::rule).collect();
        let key = (record.subject.clone(), record.case.clone(), rules);
        let group = self.groups.entry(key).or_default();
        group.trials += 1;
        let limits: Option<Vec<_>> = measurement.invalid.iter().map(Invalid::exceeded).collect();
        for (key, percent) in limits.unwrap_or_default() {
            let largest = group.exceeded.entry(key).or_default();
            *largest = largest.max(percent);
        }
        group.trials == 1
    }

    /// Describes the groups with several trials, with the limits that would accept them.
    fn summary(&self) -> Vec<String> {
        let several = self.groups.iter().filter(|(_, group)| group.trials > 1);
        let line =
            |((subject, case, rules), group): (&(String, String, Vec<String>), &InvalidGroup)| {
                let limits: Vec<String> = group
                    .exceeded
                    .iter()
                    .map(|(key, percent)| format!("--limit {key}={}%", percent.ceil()))
                    .collect();
                let advice = if limits.is_empty() {
                    String::new()
                } else {
                    format!("; to accept such trials: {}", limits.join(" "))
                };
                format!(
                    "{subject} ({case}): {} invalid: {}{advice}",
                    counted(group.trials, "trial"),
                    rules.join("; ")
                )
            };
        several.map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn trial(subject: &str, invalid: &serde_json::Value) -> TrialRecord {
        let record = json!({
            "schema": 3, "case": "browse", "subject": subject, "block": 1, "position": 1,
            "started_at": "2026-01-02T03:04:05Z", "startup_ms": null,
            "outcome": { "measured": {
                "window_s": 1.0, "responses": 1, "throughput_per_s": 1.0,
                "latency": {
                    "mean_ms": null, "min_ms": null, "max_ms": null, "p50_ms": null, "p90_ms": null,
                    "p95_ms": null, "p99_ms": null, "p999_ms": null, "histogram_v2_base64": ""
                },
                "cpu": {
                    "servers_window_s": 1.0, "system": null, "origin": null,
                    "generator": { "user_us": 0, "system_us": 0 }
                },
                "memory_peak_bytes": null, "templates": [], "unexpected": 0,
                "failures": {
                    "refused": 0, "reset": 0, "connect_timeout": 0, "response_timeout": 0,
                    "closed_early": 0, "malformed": 0, "other": 0,
                    "malformed_example": null, "other_example": null
                },
                "in_flight": 0, "oldest_in_flight_ms": null,
                "noise": {
                    "steal_percent": 0.0, "background_cpu_percent": 0.0,
                    "cpu_pressure_percent": null, "context_switches": 0
                },
                "bottleneck": "none", "invalid": invalid
            } }
        });
        serde_json::from_value(record).unwrap()
    }

    #[test]
    fn equal_invalid_trials_are_counted_and_a_limit_is_proposed() {
        let busy = |percent: f64| json!([{ "rule": "background-cpu", "percent": percent, "limit_percent": 10.0 }]);
        let mut trials = InvalidTrials::default();
        let seen = [
            trial("nginx", &busy(14.2)),
            trial("nginx", &busy(12.0)),
            trial("full", &busy(11.0)),
            trial("nginx", &json!([{ "rule": "no-response" }])),
            trial("nginx", &json!([])),
            trial("full", &json!([{ "rule": "no-response" }])),
            trial("full", &json!([{ "rule": "no-response" }])),
        ]
        .map(|trial| trials.is_news(&trial));
        assert_eq!(seen, [true, false, true, true, true, true, false]);
        assert_eq!(
            trials.summary(),
            [
                "full (browse): 2 trials invalid: no response was received",
                "nginx (browse): 2 trials invalid: other processes took more than 10 % of the CPUs (limit \
                 `background_cpu`); to accept such trials: --limit background_cpu=15%"
            ]
        );
    }
}
