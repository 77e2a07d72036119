//! What a batch shows on standard error while it is under way.

use crate::cmd::progress::Progress;
use crate::output::tell;
use tollgate_lab::batch::records::{BuildOutcome, Purpose};
use tollgate_lab::batch::run::Event;
use tollgate_lab::batch::settings::Settings;
use tollgate_lab::report::number::significant;
use tollgate_lab::report::rows::counted;

/// Shows the events of a batch: of its rounds as `tollgate run` shows its own.
#[derive(Default)]
pub(super) struct Events {
    round: Option<Progress>,
}

impl Events {
    pub(super) fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Revisions { count, tried } if count == tried => {
                tell(&counted(*count, "revision"));
            }
            Event::Revisions { count, tried } => {
                tell(&format!("{tried} of {}", counted(*count, "revision")));
            }
            Event::Building { revision } => {
                tell(format!("building {} {}", revision.name, revision.log).trim_end());
            }
            Event::Built { revision, record } => match &record.outcome {
                BuildOutcome::Built { product, .. } => {
                    let took = significant(record.took_s);
                    tell(&format!("built {} in {took} s: {}", revision.name, &product[..DIGITS]));
                }
                BuildOutcome::Failed(failure) | BuildOutcome::TimedOut(failure) => {
                    tell(&format!("{}: {}", revision.name, failure.reason));
                    for line in &failure.log {
                        tell(&format!("    | {line}"));
                    }
                }
            },
            Event::Round { round, experiment } => {
                let what = match round.purpose {
                    Purpose::Series => "the series",
                    Purpose::Bisection => "the way to a culprit",
                    Purpose::Confirmation { .. } => "confirmation",
                };
                let subjects: Vec<&str> =
                    experiment.subjects.iter().map(|subject| subject.name.as_str()).collect();
                tell(&format!("round {}, {what}: {}", round.round, subjects.join(", ")));
                self.round = Some(Progress::new(experiment));
            }
            Event::Run(event) => {
                if let Some(round) = &mut self.round {
                    round.show(event);
                }
            }
            Event::RoundEnded => {
                if let Some(round) = self.round.take() {
                    round.end();
                }
            }
            Event::Search(what) => tell(what),
        }
    }
}

/// As much of a hash as tells two products apart.
const DIGITS: usize = 12;

/// What is done with each revision, in two lines.
pub(super) fn announce(settings: &Settings) {
    tell(&format!("{}: experiment {}, `{}`", settings.title, settings.experiment, settings.build));
}
