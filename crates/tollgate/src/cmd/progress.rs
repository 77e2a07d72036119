//! What a run shows on standard error while it is under way: a bar on a terminal, lines elsewhere.

use crate::output::tell;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, stderr};
use tollgate_lab::inputs::experiment::Experiment;
use tollgate_lab::record::{Outcome, TrialRecord};
use tollgate_lab::run::{Event, shortest_time};

/// Shows the events of a run.
pub(crate) struct Progress {
    blocks: u32,
    at_least_s: u64,
    bar: ProgressBar,
    terminal: bool,
}

impl Progress {
    pub(crate) fn new(experiment: &Experiment) -> Self {
        Self {
            blocks: experiment.blocks,
            at_least_s: shortest_time(experiment).as_secs(),
            bar: ProgressBar::hidden(),
            terminal: stderr().is_terminal(),
        }
    }

    pub(crate) fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Skipped { subject, missing } => {
                self.line(&format!("{subject} is skipped: {missing}"));
            }
            Event::Broken { subject, reason } => {
                self.line(&format!("{subject} cannot run: {reason}"));
            }
            Event::Begun { trials } => self.begin(*trials),
            Event::Trial { block, case, subject } => {
                self.bar.set_message(format!("block {block}/{}: {subject} ({case})", self.blocks));
            }
            Event::Recorded(record) => self.record(record),
            Event::GivenUp { case, subject } => {
                self.line(&format!("{subject} is left out of the rest of the run ({case})"));
            }
            Event::PassedOver => self.bar.inc(1),
        }
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn begin(&mut self, trials: usize) {
        self.line(&format!(
            "{trials} trials in {} blocks: {} s, and what it takes to start each server",
            self.blocks, self.at_least_s
        ));
        if self.terminal {
            self.bar = ProgressBar::new(trials as u64);
            let template = "{wide_bar} {pos}/{len} trials, {eta} left, {msg}";
            // The template is a constant; the default style says less, and is no reason to stop.
            if let Ok(style) = ProgressStyle::with_template(template) {
                self.bar.set_style(style);
            }
        }
    }

    fn record(&self, record: &TrialRecord) {
        self.bar.inc(1);
        let TrialRecord { block, subject, .. } = record;
        let what = match &record.outcome {
            Outcome::Measured(measurement) => {
                let answers = format!("{:.0} answers/s", measurement.throughput_per_s);
                let cpu = measurement.system_cpu_us_per_request();
                let cpu = cpu.map_or(String::new(), |us| format!(", {us:.1} us of CPU each"));
                let reasons: Vec<String> =
                    measurement.invalid.iter().map(ToString::to_string).collect();
                if reasons.is_empty() && self.terminal {
                    return;
                }
                match reasons.is_empty() {
                    true => format!("{answers}{cpu}"),
                    false => format!("does not count: {}", reasons.join("; ")),
                }
            }
            Outcome::Refused(refusal) => format!("refused: {}", refusal.reason),
            Outcome::Failed(failure) => {
                let mut text = format!("{}: {}", failure.step, failure.reason);
                for line in &failure.log {
                    text += &format!("\n    | {line}");
                }
                text
            }
        };
        self.line(&format!("block {block}/{}: {subject}: {what}", self.blocks));
    }

    fn line(&self, text: &str) {
        self.bar.suspend(|| tell(text));
    }
}
