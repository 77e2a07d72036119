//! Turns records into prices. Pure: the same records give the same analysis.

mod ablation;
mod catch;
mod figures;
mod notes;
mod price;
mod status;

pub use ablation::{AblationFigures, FileFigures, FilePrice, KeptFile};
pub use catch::{
    Catch, Difference, FamilyCatch, PairCatch, ScoreRange, Share, SubjectCatch, TemplateFigures,
    TemplateVerdict,
};
pub(crate) use catch::{blocked_rate, by_template};
pub use figures::{Figures, Summaries};
pub(crate) use notes::list;
pub(crate) use price::oriented;
pub use price::{BlockFigure, Price, Prices, Range};
pub use status::RunStatus;
pub(crate) use status::{attacks_blocked, blocked};
pub(crate) use status::{verdict_legend, verdict_word};

use price::{Family, RawPrices};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use strum::IntoStaticStr;
use tollgate_records::case::CaseManifest;
use tollgate_records::metric::{ByBlock, Metric};
use tollgate_records::replay::ended_by;
use tollgate_records::run_dir::RunRecords;
use tollgate_records::stop::EndedBy;
use tollgate_records::subject::{Missing, SubjectManifest, SubjectState};
use tollgate_records::trial::{Failure, Measurement, Outcome, Step, TrialRecord};
use tollgate_records::validity::Invalid;

/// Schema version of report.json.
const SCHEMA: u32 = 4;

/// The results of a run.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Analysis {
    /// Schema version.
    pub schema: u32,
    /// The question that the experiment asks.
    pub title: String,
    /// The answer: one sentence per case.
    pub answer: String,
    /// Version and commit of the tool that made the run.
    pub tollgate: String,
    /// Start of the run, RFC 3339, UTC.
    pub started_at: String,
    /// The command that repeats the run.
    pub command: String,
    /// The seed of every random choice.
    pub seed: u64,
    /// Worst status of the cases: settled or not.
    pub run_status: RunStatus,
    /// The status in words with its reason.
    pub status_line: String,
    /// Number of blocks started.
    pub blocks: u32,
    /// Reason for the end of the run.
    pub ended_by: EndedBy,
    /// Differences below this share do not matter.
    pub margin: f64,
    /// Name of the baseline.
    pub baseline: String,
    /// Name of the subject that repeats the baseline.
    pub aa_subject: Option<String>,
    /// True if the terminal report has the spread of the trials of each subject.
    pub summary: bool,
    /// True if reports have the bytes per second of each subject.
    pub bytes: bool,
    /// True if reports have the latency that each subject adds.
    pub latency: bool,
    /// The machine, in one line.
    pub machine: String,
    /// The cases.
    pub cases: Vec<CaseAnalysis>,
    /// Remarks that a reader needs besides the figures.
    pub notes: Vec<String>,
}

/// The results of one case.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CaseAnalysis {
    /// The case.
    #[serde(flatten)]
    pub case: CaseManifest,
    /// The answer for this case, in one sentence.
    #[serde(skip)]
    pub answer: String,
    /// Settled or not.
    pub run_status: RunStatus,
    /// CPU per request of the repeated baseline relative to the baseline: the effect of noise alone.
    pub noise_floor: Option<Range>,
    /// The subjects, the baseline first.
    pub subjects: Vec<SubjectAnalysis>,
    /// The templates on which subjects that block requests differ. Empty in an ablation, which removes rules on purpose.
    pub differences: Vec<Difference>,
    /// Detections by family, scores, and each two subjects, if the experiment has `catch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catch: Option<Catch>,
    /// The cost of each file of a rule set, if the run is an ablation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ablation: Option<AblationFigures>,
}

/// The results of one subject in one case.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SubjectAnalysis {
    /// Name of the subject.
    pub name: String,
    /// Description in a few words.
    pub about: String,
    /// Reason for missing figures, if any.
    #[serde(flatten)]
    pub status: SubjectStatus,
    /// Number of trials.
    pub trials: usize,
    /// Number of invalid trials by reason.
    pub invalid: BTreeMap<String, usize>,
    /// Medians over the valid trials.
    pub figures: Option<Figures>,
    /// The spread of the valid trials.
    pub summaries: Option<Summaries>,
    /// Responses to each template of the mix, over all measured trials, valid or not,
    /// in which no process died.
    pub templates: Vec<TemplateFigures>,
    /// Verdicts on each request of the corpus, which only probes send. Not in report.json, which would have megabytes of
    /// them: the records have them all.
    #[serde(skip)]
    pub corpus: Vec<TemplateFigures>,
    /// Its figures relative to the baseline of the same block.
    pub prices: Prices,
    /// The figures of each block.
    pub blocks: Vec<BlockFigure>,
}

/// State of a subject: measured, or the reason for missing figures.
#[derive(Debug, Clone, PartialEq, Eq, IntoStaticStr, Serialize, JsonSchema)]
#[serde(tag = "status", content = "reason", rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum SubjectStatus {
    /// Measured; the others are priced against it.
    Baseline,
    /// Measured.
    Measured,
    /// The probe found that it does not do what its recipe says.
    Refused(String),
    /// No trial reached the measurement.
    Failed(String),
    /// Its system is not installed.
    Skipped(Missing),
    /// The run ended before its first trial.
    #[serde(rename = "not run")]
    #[strum(serialize = "not run")]
    Missing,
}

impl SubjectAnalysis {
    /// The templates of the mix, and the requests of the corpus.
    fn judged(&self) -> impl Iterator<Item = &TemplateFigures> {
        self.templates.iter().chain(&self.corpus)
    }
}

impl CaseAnalysis {
    pub(crate) fn subject(&self, name: &str) -> Option<&SubjectAnalysis> {
        self.subjects.iter().find(|subject| subject.name == name)
    }

    /// The name of a subject, with the case in a run of several cases.
    fn qualified(&self, subject: &str, cases: usize) -> String {
        match cases {
            1 => subject.to_owned(),
            _ => format!("{subject} ({})", self.case.name),
        }
    }
}

pub fn analyse(run: &RunRecords) -> Analysis {
    let manifest = &run.manifest;
    let experiment = &manifest.experiment;
    let cases: Vec<CaseAnalysis> =
        experiment.cases.iter().map(|case| case_analysis(run, case)).collect();
    let run_status = RunStatus::of_all(&cases);
    let blocks = run.trials.iter().map(|trial| trial.block).max().unwrap_or(0);
    // A run that is ended by a time budget has no planned number of blocks.
    let planned = if experiment.stop.budget_s.is_none() { experiment.stop.blocks } else { 0 };
    let ended_by = ended_by(run);
    let again = experiment.aa_subject.as_deref();
    let answer = |case: &CaseAnalysis| match cases.len() {
        1 => case.answer.clone(),
        _ => format!("{}: {}", case.case.name, case.answer),
    };
    Analysis {
        schema: SCHEMA,
        title: experiment.title.clone(),
        answer: cases.iter().map(answer).collect::<Vec<_>>().join(" "),
        tollgate: manifest.tollgate.clone(),
        started_at: manifest.started_at.clone(),
        command: manifest.command.clone(),
        seed: manifest.seed,
        run_status,
        status_line: status::status_line(run_status, &cases, ended_by, blocks, again),
        blocks,
        ended_by,
        margin: experiment.margin,
        baseline: experiment.baseline.clone(),
        aa_subject: experiment.aa_subject.clone(),
        summary: experiment.summary,
        bytes: experiment.bytes,
        latency: experiment.latency,
        machine: match manifest.layout() {
            None => manifest.environment.in_short(),
            Some(layout) => format!("{layout}; {}", manifest.environment.in_short()),
        },
        notes: notes::of_run(run, &cases, blocks.max(planned)),
        cases,
    }
}

fn case_analysis(run: &RunRecords, case: &CaseManifest) -> CaseAnalysis {
    let experiment = &run.manifest.experiment;
    let subjects = subjects(run, case);
    let is_again =
        |subject: &&SubjectAnalysis| Some(&subject.name) == experiment.aa_subject.as_ref();
    let again = subjects.iter().find(is_again);
    let noise_floor = again.and_then(|again| again.prices.get(&Metric::CpuUsPerRequest)?.ratio);
    let judged = subjects.iter().filter(|subject| !is_again(subject));
    let run_status = RunStatus::of(judged, noise_floor.as_ref());
    let ablation = experiment.ablation.as_ref();
    let ablation = ablation.map(|it| ablation::figures(it, run, &case.name, &subjects));
    let case = notes::with_rate(case, &run.trials);
    let differences = match ablation {
        Some(_) => Vec::new(),
        None => {
            let requests = experiment.requests.get(&case.name);
            catch::differences(&subjects, requests, &experiment.corpus)
        }
    };
    let catch = (experiment.catch && ablation.is_none()).then(|| catch::catch(&subjects));
    let mut analysis = CaseAnalysis {
        case,
        answer: String::new(),
        run_status,
        noise_floor,
        subjects,
        differences,
        catch,
        ablation,
    };
    analysis.answer = status::sentence(&analysis, experiment);
    analysis
}

fn subjects(run: &RunRecords, case: &CaseManifest) -> Vec<SubjectAnalysis> {
    let experiment = &run.manifest.experiment;
    let family = |subject: &SubjectManifest| match &subject.name {
        name if *name == experiment.baseline => Family::Baseline,
        name if Some(name) == experiment.aa_subject.as_ref() => Family::Again,
        _ => Family::Priced,
    };
    let mut subjects: Vec<&SubjectManifest> =
        experiment.subjects.iter().filter(|subject| case.is_for(&subject.name)).collect();
    // The sort is stable: the other subjects keep their order.
    subjects.sort_by_key(|subject| family(subject) != Family::Baseline);
    let baseline = Trials::of(run, case, &experiment.baseline);
    let trials: Vec<Trials<'_>> =
        subjects.iter().map(|subject| Trials::of(run, case, &subject.name)).collect();
    let price = |(subject, trials): (&&SubjectManifest, &Trials<'_>)| match family(subject) {
        Family::Baseline => (Family::Baseline, RawPrices::new()),
        family => (family, price::prices(&trials.valid, &baseline.valid, run.manifest.seed)),
    };
    let mut prices: Vec<(Family, RawPrices)> = subjects.iter().zip(&trials).map(price).collect();
    price::set_verdicts(&mut prices, experiment.margin);
    let mut analyses = Vec::new();
    for ((subject, trials), (family, prices)) in subjects.into_iter().zip(trials).zip(prices) {
        let is_baseline = family == Family::Baseline;
        let templates = by_template(trials.answering.iter().copied());
        analyses.push(SubjectAnalysis {
            name: subject.name.clone(),
            about: subject.about.clone(),
            status: trials.status(subject, is_baseline),
            blocks: price::by_block(&trials.valid, &baseline.valid, is_baseline),
            trials: trials.count,
            figures: Figures::of(&trials.valid, &templates, &trials.startup_ms),
            summaries: Summaries::of(&trials.valid),
            templates,
            corpus: catch::of_corpus(&experiment.corpus, &trials.answering),
            prices: prices.into_iter().map(|(metric, raw)| (metric, raw.price)).collect(),
            invalid: trials.invalid,
        });
    }
    analyses
}

#[derive(Default)]
struct Trials<'a> {
    valid: ByBlock<'a>,
    startup_ms: Vec<f64>,
    count: usize,
    is_measured: bool,
    /// The measurements, valid or not, in which no process died.
    answering: Vec<&'a Measurement>,
    invalid: BTreeMap<String, usize>,
    last_failure: Option<SubjectStatus>,
}

impl<'a> Trials<'a> {
    fn of(run: &'a RunRecords, case: &CaseManifest, subject: &str) -> Self {
        let mut trials = Self::default();
        let of_subject = |trial: &&TrialRecord| trial.case == case.name && trial.subject == subject;
        for trial in run.trials.iter().filter(of_subject) {
            trials.add(trial);
        }
        trials
    }

    fn add(&mut self, trial: &'a TrialRecord) {
        self.count += 1;
        match &trial.outcome {
            Outcome::Measured(measurement) => {
                self.is_measured = true;
                if is_answering(measurement) {
                    self.answering.push(measurement);
                }
                if measurement.invalid.is_empty() {
                    self.startup_ms.extend(trial.startup_ms);
                    self.valid.insert(trial.block, measurement);
                }
                for reason in &measurement.invalid {
                    *self.invalid.entry(reason.rule()).or_default() += 1;
                }
            }
            Outcome::Refused(refusal) => self.add_failure(&refusal.reason, SubjectStatus::Refused),
            Outcome::Failed(failure) => {
                let Failure { step, reason, .. } = failure;
                let reason = format!("{step}: {reason}{}", last_output(failure));
                self.add_failure(&reason, SubjectStatus::Failed);
            }
        }
    }

    fn add_failure(&mut self, reason: &str, status: impl Fn(String) -> SubjectStatus) {
        // Output of a server may contain terminal control characters.
        let reason = reason.replace(char::is_control, " ");
        *self.invalid.entry(reason.clone()).or_default() += 1;
        self.last_failure = Some(status(reason));
    }

    fn status(&self, subject: &SubjectManifest, is_baseline: bool) -> SubjectStatus {
        match &subject.state {
            SubjectState::Skipped { missing } => SubjectStatus::Skipped(missing.clone()),
            SubjectState::Broken { reason } => SubjectStatus::Failed(reason.clone()),
            SubjectState::Present { .. } => match (self.is_measured, is_baseline) {
                (true, true) => SubjectStatus::Baseline,
                (true, false) => SubjectStatus::Measured,
                (false, _) => self.last_failure.clone().unwrap_or(SubjectStatus::Missing),
            },
        }
    }
}

/// True if no process died in the trial: responses after that are not the system's.
pub(crate) fn is_answering(measurement: &Measurement) -> bool {
    !measurement.invalid.iter().any(|rule| matches!(rule, Invalid::ProcessDied { .. }))
}

/// The last line that a system printed before it failed to start: it often has the reason. The output of a system
/// that failed later is about other things.
fn last_output(failure: &Failure) -> String {
    let printed = match failure.step {
        Step::Start => failure.log.last(),
        Step::Configure | Step::Reach | Step::Origin | Step::Probe | Step::Load | Step::Host => {
            None
        }
    };
    printed.map_or(String::new(), |line| format!(" ({line})"))
}
