//! From records to the intervals of a search: pure, so that the same records give the same answer.

use super::bracket::{Answer, Bracket, Progress};
use super::judge::{Judgement, judge};
use super::terms::{EndedBy, Terms, TermsError, TermsRecord};
use crate::manifest::{CaseManifest, SubjectManifest, SubjectState};
use crate::record::{Outcome, TrialRecord};
use crate::run_dir::{self, RunDirError, RunRecords};
use serde::Serialize;
use std::path::Path;
use thiserror::Error;

/// The version of the shape of a search's report.json.
pub const SCHEMA: u32 = 1;

/// What a search found.
#[derive(Debug, Clone, Serialize)]
pub struct Findings {
    /// The version of this shape.
    pub schema: u32,
    /// The question of the experiment whose subjects were searched.
    pub title: String,
    /// The terms of the search, and what ended it.
    pub terms: TermsRecord,
    /// The version and commit of the tool that made it.
    pub tollgate: String,
    /// When it began, RFC 3339, UTC.
    pub started_at: String,
    /// The command that repeats it.
    pub command: String,
    /// The seed of every random choice.
    pub seed: u64,
    /// The machine, in one line.
    pub machine: String,
    /// One part a case.
    pub cases: Vec<CaseFindings>,
}

/// What a search found under one case.
#[derive(Debug, Clone, Serialize)]
pub struct CaseFindings {
    /// The case; its rate is the one that the search began with.
    #[serde(flatten)]
    pub case: CaseManifest,
    /// The subjects, in the experiment's order.
    pub subjects: Vec<SubjectFindings>,
}

/// What a search found on one subject.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SubjectFindings {
    /// Its name.
    pub name: String,
    /// What it is, in a few words.
    pub about: String,
    /// How far its search came.
    #[serde(flatten)]
    pub standing: Standing,
    /// The highest rate at which the goals were always kept, below every one at which they were ever
    /// broken; none where there is none yet.
    pub kept: Option<Rate>,
    /// The lowest rate at which they were always broken, above every one at which they were ever kept;
    /// none where there is none yet.
    pub broken: Option<Rate>,
    /// How often an end answered otherwise than before, and was moved out.
    pub contradictions: u32,
    /// Its trials, in their order.
    pub trials: Vec<Tried>,
}

/// One end of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rate {
    /// Requests a second.
    pub rate_per_s: f64,
    /// How many trials said so at this rate; none said otherwise.
    pub trials: u32,
}

/// How far the search on a subject came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "standing", content = "reason", rename_all = "kebab-case")]
pub enum Standing {
    /// Both ends are confirmed: the highest rate lies between them.
    Settled,
    /// What it kept is confirmed, and it may hold more: above it, in half of the trials or more, the
    /// generator or the origin was spent.
    AtLeast,
    /// The goals are broken even at the lowest rate that was tried.
    NeverKept,
    /// The search ended before both ends were confirmed.
    NotSettled,
    /// As many trials were run as a search may take, before both ends were confirmed.
    MostTrials,
    /// Too many of its trials said nothing.
    GivenUp(String),
    /// Its system is not on this machine.
    Skipped(String),
    /// Its config cannot be made.
    Failed(String),
}

/// One trial of a search.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tried {
    /// Its step, from 1.
    pub step: u32,
    /// Requests a second; none where the trial came to nothing.
    pub rate_per_s: Option<f64>,
    /// What it said.
    pub answer: Said,
    /// Why the goals were broken, or why it said nothing.
    pub because: Vec<String>,
    /// Whether the subject was steady when the warm-up was over; left out where nobody waited for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steady: Option<bool>,
}

/// What a trial said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Said {
    /// The goals were kept.
    Kept,
    /// The system broke them.
    Broken,
    /// They were broken while the generator or the origin was spent.
    Unclear,
    /// Nothing.
    Nothing,
}

/// Why there are no findings.
#[derive(Debug, Error)]
pub enum FindingsError {
    /// The directory cannot be read.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// The terms of the search cannot be.
    #[error("reading the terms of the search")]
    Terms(#[from] TermsError),
}

/// The findings of the search in a directory, from the records on disk.
///
/// # Errors
///
/// The directory is not a search's, or cannot be read.
pub fn of_search(dir: &Path) -> Result<Findings, FindingsError> {
    let record = run_dir::read_search(dir)?;
    let terms = record.terms()?;
    Ok(find(&run_dir::read_records(dir)?, &terms, record))
}

/// Goes through the records of a search as it went.
pub fn find(run: &RunRecords, terms: &Terms, record: TermsRecord) -> Findings {
    let manifest = &run.manifest;
    let experiment = &manifest.experiment;
    let searched =
        experiment.subjects.iter().filter(|subject| record.subjects.contains(&subject.name));
    let searched: Vec<&SubjectManifest> = searched.collect();
    let cases = experiment.cases.iter().map(|case| CaseFindings {
        case: case.clone(),
        subjects: searched
            .iter()
            .filter(|subject| case.is_for(&subject.name))
            .map(|subject| of_subject(run, terms, case, subject))
            .collect(),
    });
    Findings {
        schema: SCHEMA,
        title: experiment.title.clone(),
        tollgate: manifest.tollgate.clone(),
        started_at: manifest.started_at.clone(),
        command: manifest.command.clone(),
        seed: manifest.seed,
        machine: manifest.environment.in_short(),
        cases: cases.collect(),
        terms: record,
    }
}

fn of_subject(
    run: &RunRecords,
    terms: &Terms,
    case: &CaseManifest,
    subject: &SubjectManifest,
) -> SubjectFindings {
    let mut bracket = Bracket::new(terms.aim());
    let mut trials = Vec::new();
    let of_subject =
        |trial: &&TrialRecord| trial.case == case.name && trial.subject == subject.name;
    for trial in run.trials.iter().filter(of_subject) {
        let Judgement { answer, because } = judge(&terms.slo, &trial.outcome);
        let rate_per_s = rate(trial);
        // What came to nothing has no rate, and leaves the search where it was.
        bracket.note(rate_per_s.unwrap_or(0.0), answer);
        let answer = Said::of(answer);
        let steady = trial.warm_up().and_then(|warm_up| warm_up.steady);
        trials.push(Tried { step: trial.block, rate_per_s, answer, because, steady });
    }
    SubjectFindings {
        name: subject.name.clone(),
        about: subject.about.clone(),
        standing: standing(&bracket, &subject.state, &trials),
        kept: bracket.kept().map(Rate::from),
        broken: bracket.broken().map(Rate::from),
        contradictions: bracket.contradictions(),
        trials,
    }
}

/// The rate of a trial, where it was measured.
fn rate(trial: &TrialRecord) -> Option<f64> {
    match &trial.outcome {
        Outcome::Measured(measurement) => {
            measurement.open_loop.as_ref().map(|open_loop| open_loop.rate_per_s)
        }
        Outcome::Refused(_) | Outcome::Failed(_) => None,
    }
}

fn standing(bracket: &Bracket, state: &SubjectState, trials: &[Tried]) -> Standing {
    match state {
        SubjectState::Skipped { missing } => return Standing::Skipped(missing.to_string()),
        SubjectState::Broken { reason } => return Standing::Failed(reason.clone()),
        SubjectState::Present { .. } => {}
    }
    match bracket.progress() {
        Progress::Open => Standing::NotSettled,
        Progress::MostTrials => Standing::MostTrials,
        Progress::NeverKept => Standing::NeverKept,
        Progress::AlwaysKept => Standing::AtLeast,
        Progress::Settled => match bracket.broken().is_some_and(|end| end.by_system) {
            true => Standing::Settled,
            false => Standing::AtLeast,
        },
        Progress::GivenUp => {
            let last = trials.last().map(|tried| tried.because.join("; "));
            // What a server printed may hold what a terminal would obey.
            Standing::GivenUp(last.unwrap_or_default().replace(char::is_control, " "))
        }
    }
}

impl Said {
    fn of(answer: Answer) -> Self {
        match answer {
            Answer::Kept => Self::Kept,
            Answer::Broken { by_system: true } => Self::Broken,
            Answer::Broken { by_system: false } => Self::Unclear,
            Answer::Lost | Answer::Failed => Self::Nothing,
        }
    }
}

impl Standing {
    /// The standing in a few words.
    pub fn words(&self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::AtLeast => "at least",
            Self::NeverKept => "never kept",
            Self::NotSettled | Self::MostTrials => "not settled",
            Self::GivenUp(_) => "given up",
            Self::Skipped(_) => "skipped",
            Self::Failed(_) => "failed",
        }
    }
}

impl Findings {
    /// Every subject under every case.
    pub fn subjects(&self) -> impl Iterator<Item = &SubjectFindings> {
        self.cases.iter().flat_map(|case| &case.subjects)
    }

    /// Whether what ended the search was the wish to stop.
    pub fn is_interrupted(&self) -> bool {
        self.terms.ended_by == Some(EndedBy::Interrupted)
    }
}

impl From<super::bracket::End> for Rate {
    fn from(end: super::bracket::End) -> Self {
        Self { rate_per_s: end.rate_per_s, trials: end.trials }
    }
}
