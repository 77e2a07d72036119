//! Progress of a run on standard error: a bar on a terminal, otherwise lines.

use crate::console::eprint_line;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, stderr};
use tollgate_experiment::experiment::Experiment;
use tollgate_records::stop::Stop;
use tollgate_records::trial::{Outcome, TrialRecord};
use tollgate_runner::run::{Event, shortest_time};
use tollgate_stats::number::{counted, share};

pub(crate) struct Progress {
    stop: Stop,
    at_least_s: u64,
    /// Time spent in trials, for a run with a budget.
    spent_s: f64,
    bar: ProgressBar,
    terminal: bool,
}

impl Progress {
    pub(crate) fn new(experiment: &Experiment) -> Self {
        Self {
            stop: experiment.stop,
            spent_s: 0.0,
            at_least_s: shortest_time(experiment).as_secs(),
            bar: ProgressBar::hidden(),
            terminal: stderr().is_terminal(),
        }
    }

    pub(crate) fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::NotInstalled(subject) => self.line(&subject.to_string()),
            Event::Changed(difference) => {
                self.line(&format!(
                    "the machine has changed since the start of the run: {difference}"
                ));
            }
            Event::Waiting(text) => self.line(text),
            Event::Begun { trials, done } => self.begin(*trials, done),
            Event::Block { half_width: Some(half), .. } => {
                self.line(&format!("widest interval: ±{}", share(*half)));
            }
            Event::Block { half_width: None, .. } => {}
            Event::Trial { block, case, subject } => {
                self.bar.set_message(format!("{}: {subject} ({case})", self.place(*block)));
            }
            Event::Recorded(record) => {
                self.advance(record);
                self.record(record);
            }
            Event::GivenUp { case, subject } => {
                self.line(&format!("{subject} is skipped in the rest of the run ({case})"));
            }
        }
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
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

    fn record(&self, record: &TrialRecord) {
        let TrialRecord { block, subject, .. } = record;
        let reasons = record.outcome.why_not_valid().join("; ");
        let what = match &record.outcome {
            Outcome::Measured(measurement) => {
                let rate = format!("{:.0} responses/s", measurement.throughput_per_s);
                let cpu = measurement.system_cpu_us_per_request();
                let cpu = cpu.map_or(String::new(), |us| format!(", {us:.1} µs CPU/request"));
                let unsteady = measurement.warm_up.filter(|it| it.steady == Some(false));
                if reasons.is_empty() && unsteady.is_none() && self.terminal {
                    return;
                }
                let unsteady = unsteady.map_or(String::new(), |warm_up| {
                    format!("; not steady after a warm-up of {:.1} s", warm_up.duration_s)
                });
                match reasons.is_empty() {
                    true => format!("{rate}{cpu}{unsteady}"),
                    false => format!("invalid: {reasons}"),
                }
            }
            Outcome::Refused(_) => reasons,
            Outcome::Failed(failure) => {
                failure.log.iter().fold(reasons, |text, line| text + &format!("\n    | {line}"))
            }
        };
        self.line(&format!("{}: {subject}: {what}", self.place(*block)));
    }

    fn line(&self, text: &str) {
        self.bar.suspend(|| eprint_line(text));
    }
}
