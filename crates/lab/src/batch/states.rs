//! How far a revision has come: from what is on record of its build and of its product's trials. Pure.

use super::records::{BuildOutcome, BuildRecord};
use crate::plan::Fate;
use crate::record::{Outcome, TrialRecord};
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt;

/// How far a revision has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It was not tried yet.
    Queued,
    /// It has a product that was not measured yet.
    Built,
    /// Its build failed.
    BuildFailed,
    /// Its build did not end in time.
    TimedOut,
    /// Its product does not start, or does not do what it says.
    RunFailed,
    /// Its product was measured, and no trial of it counts beside one of the anchor that does.
    Invalid,
    /// It has a price.
    Done,
}

/// The state of a revision, and the end of the log that says why. `absent` is why a round had no trial of its
/// product, where that was one that could not even be begun.
pub(super) fn state(
    build: Option<&BuildRecord>,
    trials: &[&TrialRecord],
    absent: Option<&str>,
    has_price: bool,
) -> (State, Vec<String>) {
    match build.map(|build| &build.outcome) {
        None => (State::Queued, Vec::new()),
        Some(BuildOutcome::Failed(failure)) => {
            (State::BuildFailed, told(&failure.reason, &failure.log))
        }
        Some(BuildOutcome::TimedOut(failure)) => {
            (State::TimedOut, told(&failure.reason, &failure.log))
        }
        Some(BuildOutcome::Built { .. }) if has_price => (State::Done, Vec::new()),
        Some(BuildOutcome::Built { .. }) if trials.is_empty() => match absent {
            Some(why) => (State::RunFailed, why.lines().map(str::to_owned).collect()),
            None => (State::Built, Vec::new()),
        },
        Some(BuildOutcome::Built { .. }) => {
            let was_measured =
                trials.iter().any(|trial| Fate::of(&trial.outcome) != Fate::Unmeasured);
            let state = if was_measured { State::Invalid } else { State::RunFailed };
            (state, trials.last().map_or(Vec::new(), |trial| why(&trial.outcome)))
        }
    }
}

/// Why a trial has no figure that counts.
fn why(outcome: &Outcome) -> Vec<String> {
    match outcome {
        Outcome::Failed(failure) => {
            told(&format!("{}: {}", failure.step, failure.reason), &failure.log)
        }
        Outcome::Refused(refusal) => vec![format!("refused: {}", refusal.reason)],
        Outcome::Measured(measurement) if measurement.invalid.is_empty() => {
            vec!["no trial of the anchor in the same block counts".to_owned()]
        }
        Outcome::Measured(measurement) => {
            measurement.invalid.iter().map(ToString::to_string).collect()
        }
    }
}

fn told(reason: &str, log: &[String]) -> Vec<String> {
    std::iter::once(reason.to_owned()).chain(log.iter().cloned()).collect()
}

impl State {
    /// Whether trying again is of no use: a busy machine, or an anchor that failed, is no lasting reason.
    pub(super) fn is_lost(self) -> bool {
        match self {
            Self::BuildFailed | Self::TimedOut | Self::RunFailed => true,
            Self::Queued | Self::Built | Self::Invalid | Self::Done => false,
        }
    }

    /// The state as reports write it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Built => "built",
            Self::BuildFailed => "build-failed",
            Self::TimedOut => "timed-out",
            Self::RunFailed => "run-failed",
            Self::Invalid => "invalid",
            Self::Done => "done",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::records::{BuildFailure, SCHEMA};
    use crate::record::{self, Failure, Step};

    fn build(outcome: BuildOutcome) -> BuildRecord {
        BuildRecord {
            schema: SCHEMA,
            key: "k".to_owned(),
            revision: "r".to_owned(),
            ended_at: String::new(),
            took_s: 1.0,
            outcome,
        }
    }

    fn failed_trial() -> TrialRecord {
        let failure = Failure {
            step: Step::Start,
            reason: "`server` ended".to_owned(),
            log: vec!["Segmentation fault".to_owned()],
        };
        TrialRecord {
            schema: record::SCHEMA,
            case: "c".to_owned(),
            subject: "r".to_owned(),
            block: 1,
            position: 1,
            attempt: 1,
            started_at: String::new(),
            took_s: 1.0,
            startup_ms: None,
            outcome: Outcome::Failed(failure),
        }
    }

    #[test]
    fn a_revision_goes_from_queued_to_done_and_every_failure_has_a_state_and_a_log() {
        let failure =
            BuildFailure { reason: "status 2".to_owned(), log: vec!["error: x".to_owned()] };
        let built = build(BuildOutcome::Built { product: "p".to_owned(), folder: "k".to_owned() });
        let failed = build(BuildOutcome::Failed(failure.clone()));
        let late = build(BuildOutcome::TimedOut(failure));
        let trial = failed_trial();
        assert_eq!(state(None, &[], None, false).0, State::Queued);
        assert_eq!(state(Some(&built), &[], None, false).0, State::Built);
        assert_eq!(state(Some(&built), &[&trial], None, true).0, State::Done);
        let log = vec!["status 2".to_owned(), "error: x".to_owned()];
        assert_eq!(state(Some(&failed), &[], None, false), (State::BuildFailed, log.clone()));
        assert_eq!(state(Some(&late), &[], None, false), (State::TimedOut, log));
        // It does not tell its version, so that no trial of it was begun.
        let (dead, log) = state(Some(&built), &[], Some("running `server -v`\nno symbol"), false);
        assert_eq!((dead, log.len()), (State::RunFailed, 2));
        let (crashed, log) = state(Some(&built), &[&trial], None, false);
        assert_eq!(crashed, State::RunFailed);
        assert_eq!(log, ["it did not start: `server` ended", "Segmentation fault"]);
    }

    #[test]
    fn only_a_revision_that_cannot_be_built_or_run_is_lost() {
        let lost = [State::BuildFailed, State::TimedOut, State::RunFailed];
        assert!(lost.into_iter().all(State::is_lost));
        let open = [State::Queued, State::Built, State::Invalid, State::Done];
        assert!(!open.into_iter().any(State::is_lost));
    }
}
