//! The result of a search, from its records, as a table and as JSON.

use crate::bracket::{
    Bracket, End, INVALID_IN_A_ROW_MAX, NOT_MEASURED_IN_A_ROW_MAX, Progress, RateVerdict,
    TRIALS_MAX,
};
use crate::goal::Judgement;
use crate::parameters::SearchParameters;
use anyhow::Context;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use std::path::Path;
use tollgate_records::case::CaseManifest;
use tollgate_records::run_dir::{self, RunRecords, SearchEnd, SearchRecord};
use tollgate_records::subject::{SubjectManifest, SubjectState};
use tollgate_records::trial::TrialRecord;
use tollgate_report::document::{Table, protocol, schedule};
use tollgate_stats::number::{counted, in_full, share, significant};
use tollgate_stats::text::Screen;

/// Version of the JSON report of a search.
pub const SCHEMA: u32 = 3;

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SearchReport {
    pub schema: u32,
    pub title: String,
    pub parameters: SearchRecord,
    pub tollgate: String,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// Repeats the search.
    pub command: String,
    pub seed: u64,
    pub machine: String,
    pub cases: Vec<CaseReport>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CaseReport {
    /// The case, at the first rate of the search.
    #[serde(flatten)]
    pub case: CaseManifest,
    pub subjects: Vec<SubjectReport>,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SubjectReport {
    pub name: String,
    pub about: String,
    #[serde(flatten)]
    pub status: Status,
    /// Highest rate that always passed, below every rate that ever failed.
    pub passed: Option<End>,
    /// Lowest rate that always failed, above every rate that ever passed.
    pub failed: Option<End>,
    /// Number of times that an end got a contradicting verdict and was moved.
    pub contradictions: u32,
    pub trials: Vec<TrialReport>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "status", content = "reason", rename_all = "kebab-case")]
pub enum Status {
    /// Both ends are confirmed, and the interval is as narrow as requested.
    Settled,
    /// Both ends are confirmed, but contradicting trials left a wider interval than requested.
    Wide,
    /// The lower end is confirmed. At higher rates, the generator or the origin was the bottleneck in at least half of
    /// the trials.
    AtLeast,
    NeverPassed,
    NotSettled,
    /// The maximum number of trials was reached before both ends were confirmed.
    TrialLimit,
    /// Too many trials in a row were invalid or not measured.
    NotMeasurable(String),
    Skipped(String),
    /// The config cannot be rendered.
    Broken(String),
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TrialReport {
    pub step: u32,
    /// Null if the trial was not measured.
    pub rate_per_s: Option<f64>,
    #[serde(serialize_with = "verdict")]
    #[schemars(schema_with = "verdict_schema")]
    pub verdict: RateVerdict,
    /// The reasons for a verdict other than `pass`.
    pub reasons: Vec<String>,
    /// True if the subject was steady after the warm-up; null if the case does not wait for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steady: Option<bool>,
}

fn verdict<S: Serializer>(verdict: &RateVerdict, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match verdict {
        RateVerdict::Pass => "pass",
        RateVerdict::Fail { by_system: true } => "fail",
        RateVerdict::Fail { by_system: false } => "unclear",
        RateVerdict::Invalid | RateVerdict::NotMeasured => "none",
    })
}

fn verdict_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["pass", "fail", "unclear", "none"] })
}

impl SearchReport {
    /// Reads the records of a search from its directory.
    pub fn read(dir: &Path) -> anyhow::Result<Self> {
        let record = run_dir::read_search(dir)?;
        let parameters = SearchParameters::from_record(&record)
            .context("cannot read the parameters of the search")?;
        Ok(Self::of(&run_dir::read_records(dir)?, &parameters, record))
    }

    /// Replays the verdicts of the trials.
    pub fn of(run: &RunRecords, parameters: &SearchParameters, record: SearchRecord) -> Self {
        let manifest = &run.manifest;
        let experiment = &manifest.experiment;
        let searched: Vec<&SubjectManifest> = experiment
            .subjects
            .iter()
            .filter(|subject| record.subjects.contains(&subject.name))
            .collect();
        let case_report = |case: &CaseManifest| CaseReport {
            case: case.clone(),
            subjects: searched
                .iter()
                .filter(|subject| case.is_for(&subject.name))
                .map(|subject| SubjectReport::of(run, parameters, case, subject))
                .collect(),
        };
        Self {
            schema: SCHEMA,
            title: experiment.title.clone(),
            tollgate: manifest.tollgate.clone(),
            started_at: manifest.started_at.clone(),
            command: manifest.command_line(),
            seed: manifest.seed,
            machine: manifest.environment.in_short(),
            cases: experiment.cases.iter().map(case_report).collect(),
            parameters: record,
        }
    }

    pub fn subjects(&self) -> impl Iterator<Item = &SubjectReport> {
        self.cases.iter().flat_map(|case| &case.subjects)
    }

    pub fn is_interrupted(&self) -> bool {
        self.parameters.ended_by == Some(SearchEnd::Interrupted)
    }

    pub fn table(&self, screen: Screen) -> String {
        let mut text =
            screen.heading(&format!("Highest rate that meets {}", self.parameters.goals));
        for case in &self.cases {
            text.push('\n');
            text += &screen.wrapped(&load_line(&case.case));
            let names = case.subjects.iter().map(|subject| subject.name.chars().count());
            let width = names.max().unwrap_or(0);
            for subject in case.subjects.iter().filter(|subject| !subject.about.is_empty()) {
                text += &screen.paragraph(&format!("  {:<width$}  ", subject.name), &subject.about);
            }
            text.push('\n');
            text += &table(case).draw(screen);
        }
        text += &screen.wrapped(LEGEND);
        let notes = self.notes();
        if !notes.is_empty() {
            text.push('\n');
            text.extend(notes.iter().map(|note| screen.wrapped(note)));
        }
        text.push('\n');
        text + &screen.wrapped(&self.summary())
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        match self.parameters.ended_by {
            Some(SearchEnd::Complete) => {}
            Some(SearchEnd::Budget) => notes.push(self.budget_note()),
            Some(SearchEnd::Interrupted) => notes.push("Interrupted.".to_owned()),
            None => notes.push("The search is still running, or was killed.".to_owned()),
        }
        for case in &self.cases {
            for subject in &case.subjects {
                let name = match self.cases.len() {
                    1 => subject.name.clone(),
                    _ => format!("{} ({})", subject.name, case.case.name),
                };
                notes.extend(subject.notes(&name));
                notes.extend(subject.width_note(&name, self.parameters.width));
            }
        }
        notes
    }

    fn budget_note(&self) -> String {
        let trials = self.subjects().flat_map(|subject| &subject.trials);
        let (invalid, others): (Vec<&TrialReport>, Vec<&TrialReport>) =
            trials.partition(|trial| trial.verdict == RateVerdict::Invalid);
        let budget = format!("The budget of {} s was spent", significant(self.parameters.budget_s));
        match invalid.last().filter(|_| invalid.len() > others.len()) {
            Some(last) => format!(
                "{budget} on trials of which {} of {} were invalid, the last one because: {}. Remove the cause before \
                 another search.",
                invalid.len(),
                invalid.len() + others.len(),
                last.reasons.join("; ")
            ),
            None => format!(
                "{budget} before every search was finished; try a longer --budget, a larger --width, or --quick."
            ),
        }
    }

    fn summary(&self) -> String {
        let sentence = |case: &CaseReport| {
            let clauses: Vec<String> =
                case.subjects.iter().filter_map(SubjectReport::clause).collect();
            let prefix = match self.cases.len() {
                1 => String::new(),
                _ => format!("{}: ", case.case.name),
            };
            if clauses.is_empty() {
                format!("{prefix}No rate was found.")
            } else {
                format!("{prefix}{} is met {}.", self.parameters.goals, clauses.join("; "))
            }
        };
        self.cases.iter().map(sentence).collect::<Vec<_>>().join(" ")
    }
}

impl SubjectReport {
    fn of(
        run: &RunRecords,
        parameters: &SearchParameters,
        case: &CaseManifest,
        subject: &SubjectManifest,
    ) -> Self {
        let mut bracket = Bracket::new(parameters.bracket());
        let mut trials = Vec::new();
        let is_own =
            |trial: &&TrialRecord| trial.case == case.name && trial.subject == subject.name;
        for trial in run.trials.iter().filter(is_own) {
            let Judgement { verdict, reasons } = parameters.goals.judge(&trial.outcome);
            let open_loop = trial.outcome.measurement().and_then(|one| one.open_loop.as_ref());
            let rate_per_s = open_loop.map(|open_loop| open_loop.rate_per_s);
            // Without a measurement there is no rate; such verdicts do not change the ends.
            bracket.record(rate_per_s.unwrap_or(0.0), verdict);
            let steady = trial.warm_up().and_then(|warm_up| warm_up.steady);
            trials.push(TrialReport { step: trial.block, rate_per_s, verdict, reasons, steady });
        }
        let (passed, failed) = (bracket.passed(), bracket.failed());
        Self {
            name: subject.name.clone(),
            about: subject.about.clone(),
            status: match Status::of(&bracket, &subject.state, &trials) {
                Status::Settled
                    if found_width(passed, failed)
                        .is_some_and(|found| found > parameters.width) =>
                {
                    Status::Wide
                }
                status => status,
            },
            passed,
            failed,
            contradictions: bracket.contradictions(),
            trials,
        }
    }

    fn row(&self) -> Vec<String> {
        let rate = |end: Option<End>| end.map_or("-".to_owned(), |end| in_full(end.rate_per_s));
        let trials = |end: Option<End>| end.map_or(0, |end| end.trials);
        let (at_least, failed) = match self.status {
            Status::AtLeast => ("≥ ", "-".to_owned()),
            _ => ("", rate(self.failed)),
        };
        let (passing, failing) = (trials(self.passed), trials(self.failed));
        vec![
            self.name.clone(),
            format!("{at_least}{}", rate(self.passed)),
            failed,
            format!("{passing} + {failing} of {}", self.trials.len()),
            self.status.words().to_owned(),
        ]
    }

    fn notes(&self, name: &str) -> Vec<String> {
        let mut notes = Vec::new();
        match &self.status {
            Status::NotMeasurable(reason) => notes.push(format!(
                "{name} could not be measured: {reason}. Its search ended before its budget, after {}.",
                match self.trials.last().map(|trial| trial.verdict) {
                    Some(RateVerdict::Invalid) => format!("{INVALID_IN_A_ROW_MAX} invalid trials in a row"),
                    _ => format!("{NOT_MEASURED_IN_A_ROW_MAX} trials in a row without a measurement"),
                }
            )),
            Status::TrialLimit => notes.push(format!(
                "{name}: not confirmed within the limit of {TRIALS_MAX} trials: they were disturbed or contradict each \
                 other. Try a larger --width."
            )),
            Status::Skipped(reason) => notes.push(format!("{name} was skipped: {reason}")),
            Status::Broken(reason) => notes.push(format!("{name} failed: {reason}.")),
            Status::AtLeast => notes.push(format!(
                "{name} may sustain more: at higher rates the CPU of the generator or the origin was the bottleneck."
            )),
            Status::NeverPassed => {
                let last = self.trials.iter().rev().find(|trial| !trial.reasons.is_empty());
                let reasons = last.map_or(String::new(), |trial| trial.reasons.join("; "));
                notes.push(format!("{name} did not meet the goals at any rate: {reasons}."));
            }
            Status::Settled | Status::Wide | Status::NotSettled => {}
        }
        let unsteady = self.trials.iter().filter(|trial| trial.steady == Some(false)).count();
        if unsteady > 0 {
            notes.push(format!(
                "{name} was not steady after the warm-up in {unsteady} of {} trials; they count.",
                self.trials.len()
            ));
        }
        if self.contradictions > 0 {
            notes.push(format!(
                "{name}: the interval was widened {}, after contradicting trials at one of its ends.",
                counted(self.contradictions as usize, "time")
            ));
        }
        notes
    }

    /// Notes a confirmed interval that is wider than requested.
    fn width_note(&self, name: &str, width: f64) -> Option<String> {
        let found = found_width(self.passed, self.failed)?;
        (self.status == Status::Wide).then(|| {
            let found = significant(100.0 * found);
            format!(
                "{name}: the interval is {found} % wide, more than the requested {}. Trials at the same rate within it \
                 contradict each other, so its search ended.",
                share(width)
            )
        })
    }

    fn clause(&self) -> Option<String> {
        let name = &self.name;
        let passed = in_full(self.passed?.rate_per_s);
        let failed = self.failed.map(|end| in_full(end.rate_per_s));
        match (&self.status, failed) {
            (Status::Settled, Some(failed)) => {
                Some(format!("by {name} up to a rate between {passed} and {failed} requests/s"))
            }
            (Status::AtLeast, _) => Some(format!("by {name} up to at least {passed} requests/s")),
            (
                Status::Wide | Status::NotSettled | Status::TrialLimit | Status::NotMeasurable(_),
                Some(failed),
            ) => Some(format!(
                "by {name} up to a rate between {passed} and {failed} requests/s (not settled)"
            )),
            (Status::NotSettled | Status::TrialLimit | Status::NotMeasurable(_), None) => {
                Some(format!("by {name} at {passed} requests/s (not settled)"))
            }
            _ => None,
        }
    }
}

const LEGEND: &str = "Requests per second. pass: highest rate at which every trial met the goals, below every rate at \
which one did not; fail: lowest rate at which none did, above every rate at which one did; the true limit lies between \
them. trials: number at either end, and in all.";

fn load_line(case: &CaseManifest) -> String {
    let keeps = case.load.clients.protocol.keeps_connections();
    let keepalive = if keeps { "keep-alive" } else { "no keep-alive" };
    let schedule = case
        .load
        .open_loop()
        .map_or(String::new(), |open_loop| format!("{}, ", schedule(open_loop)));
    format!(
        "{}: open loop, {schedule}{keepalive}{}; trials of {} s, longer at low rates",
        case.name,
        protocol(&case.load),
        significant(case.load.window.longest().as_secs_f64())
    )
}

fn table(case: &CaseReport) -> Table {
    let header = ["subject", "pass/s", "fail/s", "trials", ""];
    Table::of_text(header, case.subjects.iter().map(SubjectReport::row).collect())
}

/// Width of an interval, as a share of its lower end.
fn found_width(passed: Option<End>, failed: Option<End>) -> Option<f64> {
    Some(failed?.rate_per_s / passed?.rate_per_s - 1.0)
}

impl Status {
    fn of(bracket: &Bracket, state: &SubjectState, trials: &[TrialReport]) -> Self {
        match state {
            SubjectState::Skipped { missing } => return Self::Skipped(missing.to_string()),
            SubjectState::Broken { reason } => return Self::Broken(reason.clone()),
            SubjectState::Present { .. } => {}
        }
        match bracket.progress() {
            Progress::Open => Self::NotSettled,
            Progress::TrialLimit => Self::TrialLimit,
            Progress::NeverPassed => Self::NeverPassed,
            Progress::AlwaysPassed => Self::AtLeast,
            Progress::Settled => {
                if bracket.failed().is_some_and(|end| end.by_system) {
                    Self::Settled
                } else {
                    Self::AtLeast
                }
            }
            Progress::NotMeasurable => {
                let last = trials.last().map(|trial| trial.reasons.join("; "));
                // Output of a server may contain terminal control characters.
                Self::NotMeasurable(last.unwrap_or_default().replace(char::is_control, " "))
            }
        }
    }

    pub fn words(&self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::AtLeast => "at least",
            Self::NeverPassed => "never passed",
            Self::Wide | Self::NotSettled | Self::TrialLimit => "not settled",
            Self::NotMeasurable(_) => "not measurable",
            Self::Skipped(_) => "skipped",
            Self::Broken(_) => "failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schemas;
    use schemars::generate::Contract;

    #[test]
    fn committed_schema_matches_types() {
        schemas::check::<SearchReport>("search-report", Contract::Serialize);
    }
}
