//! From records to prices: pure, so that the same records give the same report.

mod ablation;
mod blocks;
mod catch;
mod figures;
mod open_loop;
mod price;
mod rule_sets;
mod run_status;
mod sentence;
mod templates;
mod verdicts;
mod warm_up;

pub use ablation::{AblationFigures, FileFigures, FilePrice, KeptFile};
pub use blocks::BlockFigure;
pub use figures::{Figures, Summaries};
pub use price::{Price, Prices, Range};
pub use run_status::{RunStatus, verdict_legend, verdict_word};
pub use templates::TemplateFigures;

use price::RawPrices;
use schemars::JsonSchema;
use sentence::Question;
use serde::Serialize;
use std::collections::BTreeMap;
use tollgate_experiment::manifest::{CaseManifest, SubjectManifest, SubjectState};
use tollgate_experiment::metric::Metric;
use tollgate_experiment::metric::judged_by;
use tollgate_experiment::recipe::Missing;
use tollgate_experiment::record::{Failure, Measurement, Outcome, Step, TrialRecord};
use tollgate_experiment::run_dir::RunRecords;
use tollgate_experiment::stop::ended_by;
use tollgate_experiment::stop::{EndedBy, Stop};
use tollgate_experiment::validity::Invalid;
use verdicts::Family;

/// The version of the shape of report.json.
pub const SCHEMA: u32 = 3;

/// What a run says.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Analysis {
    /// The version of this shape.
    pub schema: u32,
    /// The question that the experiment asks.
    pub title: String,
    /// The answer, in one sentence.
    pub answer: String,
    /// The version and commit of the tool that made the run.
    pub tollgate: String,
    /// When the run began, RFC 3339, UTC.
    pub started_at: String,
    /// The command that repeats it.
    pub command: String,
    /// The seed of every random choice.
    pub seed: u64,
    /// Whether the prices are settled: the worst of the cases.
    pub run_status: RunStatus,
    /// The same in one line, with what speaks for it.
    pub status_line: String,
    /// How many blocks were begun.
    pub blocks: u32,
    /// What ended the run.
    pub ended_by: EndedBy,
    /// What is too small to matter, as a share.
    pub margin: f64,
    /// The baseline's name.
    pub baseline: String,
    /// What it is called where it ran a second time.
    pub aa_subject: Option<String>,
    /// Whether the terminal report also sums up the trials of each subject.
    pub summary: bool,
    /// Whether it also tells how many bytes a second went to and fro.
    pub bytes: bool,
    /// Whether it also tells what each subject adds to the latency.
    pub latency: bool,
    /// The machine, in one line.
    pub machine: String,
    /// One part a case.
    pub cases: Vec<CaseAnalysis>,
    /// What a reader has to know besides the figures.
    pub notes: Vec<String>,
}

impl Analysis {
    /// The answer, a sentence for each case, with its name where there are several.
    pub fn answers(&self) -> Vec<String> {
        self.question().named(&self.cases)
    }

    /// The sentences alone, one for each case.
    pub fn sentences(&self) -> Vec<String> {
        self.question().sentences(&self.cases)
    }

    fn question(&self) -> Question<'_> {
        let Self { baseline, aa_subject: again, margin, .. } = self;
        Question { baseline, again: again.as_deref(), margin: *margin }
    }
}

/// What a run says about one case.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CaseAnalysis {
    /// The case.
    #[serde(flatten)]
    pub case: CaseManifest,
    /// Whether its prices are settled.
    pub run_status: RunStatus,
    /// CPU per request of the baseline over itself, where it ran twice: what noise alone looks like.
    pub noise_floor: Option<Range>,
    /// The subjects, the baseline first.
    pub subjects: Vec<SubjectAnalysis>,
    /// What each file of a rule set costs, where the run took one apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ablation: Option<AblationFigures>,
}

/// What a run says about one subject under one case.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SubjectAnalysis {
    /// Its name.
    pub name: String,
    /// What it is, in a few words.
    pub about: String,
    /// Whether it has figures, and if not, why not.
    #[serde(flatten)]
    pub status: SubjectStatus,
    /// How many trials there were.
    pub trials: usize,
    /// Why trials do not count, and how many of them.
    pub invalid: BTreeMap<String, usize>,
    /// Medians over its valid trials.
    pub figures: Option<Figures>,
    /// The spread of its valid trials.
    pub summaries: Option<Summaries>,
    /// What it answered to each template of the mix, over all measured trials, valid or not,
    /// in which none of its processes died.
    pub templates: Vec<TemplateFigures>,
    /// What it costs over the baseline of the same block.
    pub prices: Prices,
    /// What each block found.
    pub blocks: Vec<BlockFigure>,
}

/// Whether a subject has figures, and if not, why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "status", content = "reason", rename_all = "lowercase")]
pub enum SubjectStatus {
    /// It is what the others are priced against.
    Baseline,
    /// It was measured.
    Measured,
    /// The probe found that it does not do what it says.
    Refused(String),
    /// It could not be brought to the point of being measured.
    Failed(String),
    /// Its system is not on this machine.
    Skipped(Missing),
    /// The run ended before a trial of it.
    #[serde(rename = "not run")]
    Missing,
}

impl SubjectStatus {
    /// The standing in a word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Measured => "measured",
            Self::Refused(_) => "refused",
            Self::Failed(_) => "failed",
            Self::Skipped(_) => "skipped",
            Self::Missing => "not run",
        }
    }
}

/// Analyses a run.
pub fn analyse(run: &RunRecords) -> Analysis {
    let manifest = &run.manifest;
    let experiment = &manifest.experiment;
    let cases: Vec<CaseAnalysis> =
        experiment.cases.iter().map(|case| case_analysis(run, case)).collect();
    let run_status = RunStatus::of_all(&cases);
    let blocks = run.trials.iter().map(|trial| trial.block).max().unwrap_or(0);
    let ended_by = ended_by(run);
    let again = experiment.aa_subject.as_deref();
    let question = Question { baseline: &experiment.baseline, again, margin: experiment.margin };
    Analysis {
        schema: SCHEMA,
        title: experiment.title.clone(),
        answer: question.named(&cases).join(" "),
        tollgate: manifest.tollgate.clone(),
        started_at: manifest.started_at.clone(),
        command: manifest.command.clone(),
        seed: manifest.seed,
        run_status,
        status_line: run_status::settling(run_status, &cases, ended_by, blocks, again),
        blocks,
        ended_by,
        margin: experiment.margin,
        baseline: experiment.baseline.clone(),
        aa_subject: experiment.aa_subject.clone(),
        summary: experiment.summary,
        bytes: experiment.bytes,
        latency: experiment.latency,
        machine: manifest.environment.in_short(),
        notes: notes(run, &cases, blocks.max(planned(&experiment.stop))),
        cases,
    }
}

/// What the reader is told where it is not the CPU per request that has to be precise.
fn width_note(case: &CaseManifest, baseline: &str, trials: &Trials<'_>) -> Option<String> {
    let judged_on = match judged_by(case, &trials.valid) {
        Metric::ThroughputPerS => "requests/s",
        Metric::LatencyP50Ms => "the p50 latency, as the rate is given",
        _ => return None,
    };
    Some(format!(
        "{baseline} has no CPU of its own that others could be a multiple of: how narrow the \
         intervals are was judged on {judged_on}."
    ))
}

/// The name of the baseline's second time.
fn experiment_again(run: &RunRecords) -> Option<&String> {
    run.manifest.experiment.aa_subject.as_ref()
}

fn case_analysis(run: &RunRecords, case: &CaseManifest) -> CaseAnalysis {
    let subjects = subjects(run, case);
    let again = experiment_again(run);
    let again = subjects.iter().find(|subject| Some(&subject.name) == again);
    let price = again.and_then(|again| again.prices.get(&Metric::CpuUsPerRequest));
    let noise_floor = price.and_then(|price| price.ratio);
    let judged = subjects.iter().filter(|subject| Some(&subject.name) != experiment_again(run));
    let run_status = RunStatus::of(judged, noise_floor.as_ref());
    let ablation = run.manifest.experiment.ablation.as_ref();
    let ablation = ablation.map(|it| ablation::figures(it, &case.name, &subjects, &run.trials));
    let case = open_loop::with_rate(case, &run.trials);
    CaseAnalysis { case, run_status, noise_floor, subjects, ablation }
}

fn subjects(run: &RunRecords, case: &CaseManifest) -> Vec<SubjectAnalysis> {
    let experiment = &run.manifest.experiment;
    let is_baseline = |subject: &&SubjectManifest| subject.name == experiment.baseline;
    let of_case = || experiment.subjects.iter().filter(|subject| case.is_for(&subject.name));
    let first = of_case().filter(is_baseline);
    let rest = of_case().filter(|subject| !is_baseline(subject));
    let baseline = Trials::of(run, case, &experiment.baseline);
    let subjects: Vec<(&SubjectManifest, Trials<'_>)> =
        first.chain(rest).map(|subject| (subject, Trials::of(run, case, &subject.name))).collect();
    let price = |(subject, trials): &(&SubjectManifest, Trials<'_>)| {
        let prices = || price::prices(&trials.valid, &baseline.valid, run.manifest.seed);
        if subject.name == experiment.baseline {
            (Family::Baseline, RawPrices::new())
        } else if Some(&subject.name) == experiment.aa_subject.as_ref() {
            (Family::Again, prices())
        } else {
            (Family::Priced, prices())
        }
    };
    let mut prices: Vec<(Family, RawPrices)> = subjects.iter().map(price).collect();
    verdicts::settle(&mut prices, experiment.margin);
    subjects
        .into_iter()
        .zip(prices)
        .map(|((subject, trials), (family, prices))| {
            let is_baseline = family == Family::Baseline;
            SubjectAnalysis {
                name: subject.name.clone(),
                about: subject.about.clone(),
                status: trials.standing(subject, is_baseline),
                blocks: blocks::figures(&trials.valid, &baseline.valid, is_baseline),
                trials: trials.count,
                invalid: trials.invalid.clone(),
                figures: Figures::of(&trials.valid, &trials.answering, &trials.startup_ms),
                summaries: Summaries::of(&trials.valid),
                templates: templates::figures(&trials.answering),
                prices: prices.into_iter().map(|(metric, raw)| (metric, raw.price)).collect(),
            }
        })
        .collect()
}

/// The trials of one subject under one case.
struct Trials<'a> {
    /// The valid measurements, by block.
    valid: BTreeMap<u32, &'a Measurement>,
    startup_ms: Vec<f64>,
    count: usize,
    /// All measurements, valid or not.
    measured: Vec<&'a Measurement>,
    /// Those of them in which no process died: what is answered for a dead one is not its answer.
    answering: Vec<&'a Measurement>,
    invalid: BTreeMap<String, usize>,
    last_trouble: Option<SubjectStatus>,
}

impl<'a> Trials<'a> {
    fn of(run: &'a RunRecords, case: &CaseManifest, subject: &str) -> Self {
        let mut trials = Self {
            valid: BTreeMap::new(),
            startup_ms: Vec::new(),
            count: 0,
            measured: Vec::new(),
            answering: Vec::new(),
            invalid: BTreeMap::new(),
            last_trouble: None,
        };
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
                self.measured.push(measurement);
                if !has_died(measurement) {
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
            Outcome::Refused(refusal) => {
                self.add_trouble(&refusal.reason, SubjectStatus::Refused);
            }
            Outcome::Failed(failure) => {
                let reason = format!("{}: {}{}", failure.step, failure.reason, last_words(failure));
                self.add_trouble(&reason, SubjectStatus::Failed);
            }
        }
    }

    fn add_trouble(&mut self, reason: &str, standing: impl Fn(String) -> SubjectStatus) {
        // What a server printed may hold what a terminal would obey.
        let reason = reason.replace(char::is_control, " ");
        *self.invalid.entry(reason.clone()).or_default() += 1;
        self.last_trouble = Some(standing(reason));
    }

    fn standing(&self, subject: &SubjectManifest, is_baseline: bool) -> SubjectStatus {
        match &subject.state {
            SubjectState::Skipped { missing } => SubjectStatus::Skipped(missing.clone()),
            SubjectState::Broken { reason } => SubjectStatus::Failed(reason.clone()),
            SubjectState::Present { .. } if !self.measured.is_empty() && is_baseline => {
                SubjectStatus::Baseline
            }
            SubjectState::Present { .. } if !self.measured.is_empty() => SubjectStatus::Measured,
            SubjectState::Present { .. } => {
                self.last_trouble.clone().unwrap_or(SubjectStatus::Missing)
            }
        }
    }
}

fn has_died(measurement: &Measurement) -> bool {
    measurement.invalid.iter().any(|rule| matches!(rule, Invalid::ProcessDied { .. }))
}

/// What a system that did not start printed last: it tends to say why. A system that ran and failed
/// later has printed about other things.
fn last_words(failure: &Failure) -> String {
    let printed = match failure.step {
        Step::Start => failure.log.last(),
        Step::Configure | Step::Origin | Step::Probe | Step::Load => None,
    };
    printed.map_or(String::new(), |line| format!(" ({line})"))
}

/// How many blocks a run has at the least; none where it is not blocks that end it.
fn planned(stop: &Stop) -> u32 {
    match stop.budget_s {
        None => stop.blocks,
        Some(_) => 0,
    }
}

fn notes(run: &RunRecords, cases: &[CaseAnalysis], blocks: u32) -> Vec<String> {
    let mut notes = Vec::new();
    if run.cut_off {
        notes.push("The last record is incomplete and was ignored.".to_owned());
    }
    let experiment = &run.manifest.experiment;
    let is_ablation = experiment.ablation.is_some();
    // An ablation removes rules on purpose.
    if !is_ablation {
        notes.extend(rule_sets::notes(&experiment.subjects));
    }
    for case in cases {
        let baseline = Trials::of(run, &case.case, &experiment.baseline);
        if experiment.stop.width.is_some() {
            notes.extend(width_note(&case.case, &experiment.baseline, &baseline));
        }
        notes.extend(open_loop::fall(&case.case, &run.trials));
        let names: Vec<&str> = case.subjects.iter().map(|subject| subject.name.as_str()).collect();
        notes.extend(warm_up::lengths(&case.case, cases.len() == 1, &names, &run.trials));
        for subject in &case.subjects {
            let name = match cases.len() {
                1 => subject.name.clone(),
                _ => format!("{} ({})", subject.name, case.case.name),
            };
            subject_notes(&name, subject, blocks, &mut notes);
            if !is_ablation || subject.name == experiment.baseline {
                notes.extend(catch::notes(&name, &subject.templates));
            }
            notes.extend(open_loop::notes(&name, &case.case.name, &subject.name, &run.trials));
            notes.extend(warm_up::unsteady(&name, &case.case.name, &subject.name, &run.trials));
        }
    }
    notes
}

fn subject_notes(name: &str, subject: &SubjectAnalysis, blocks: u32, notes: &mut Vec<String>) {
    match &subject.status {
        SubjectStatus::Refused(reason) => notes.push(format!("{name} was refused: {reason}.")),
        SubjectStatus::Failed(reason) => notes.push(format!("{name} failed: {reason}.")),
        SubjectStatus::Skipped(missing) => notes.push(format!("{name} was skipped: {missing}")),
        SubjectStatus::Missing => {
            notes.push(format!("{name}: the run ended before its first trial."));
        }
        SubjectStatus::Baseline | SubjectStatus::Measured => {
            let trials = subject.trials;
            if trials < blocks as usize {
                notes.push(format!("{name}: {trials} of {blocks} trials were run."));
            }
            for (reason, count) in &subject.invalid {
                let verb = if *count == 1 { "is" } else { "are" };
                notes.push(format!("{name}: {count} of {trials} trials {verb} invalid: {reason}."));
            }
        }
    }
}
