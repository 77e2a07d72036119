//! Turns records into prices. Pure: the same records give the same analysis.

mod ablation;
mod catch;
mod figures;
mod notes;
mod price;
mod result;
mod status;

pub(crate) use catch::{blocked_rate, by_template};
pub(crate) use notes::list;
pub use price::{BlockFigure, Price, Prices, Range};
pub(crate) use price::{LoadError, oriented};
pub use result::{
    AblationFigures, Analysis, CaseAnalysis, Catch, Difference, FamilyCatch, Figures, FileFigures,
    FilePrice, KeptFile, PairCatch, RunStatus, ScoreRange, Share, SubjectAnalysis, SubjectCatch,
    SubjectStatus, Summaries, TemplateFigures, TemplateVerdict,
};
pub(crate) use status::{attacks_blocked, benign_blocked, blocked};
pub(crate) use status::{verdict_legend, verdict_word};

use price::{Family, RawPrices};
use std::collections::BTreeMap;
use tollgate_records::case::CaseManifest;
use tollgate_records::metric::{ByBlock, Metric};
use tollgate_records::replay::ended_by;
use tollgate_records::run_dir::RunRecords;
use tollgate_records::subject::{SubjectManifest, SubjectState};
use tollgate_records::trial::{Measurement, TrialFailure, TrialOutcome, TrialRecord, TrialStep};
use tollgate_records::validity::Invalid;

/// Schema version of report.json.
const SCHEMA: u32 = 4;

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
    Analysis {
        schema: SCHEMA,
        title: experiment.title.clone(),
        answer: answers(&cases).join(" "),
        tollgate: manifest.tollgate.clone(),
        started_at: manifest.started_at.clone(),
        command: manifest.command_line(),
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

/// The answer for each case, with its name if there are several.
pub(crate) fn answers(cases: &[CaseAnalysis]) -> Vec<String> {
    let answer = |case: &CaseAnalysis| match cases.len() {
        1 => case.answer.clone(),
        _ => format!("{}: {}", case.case.name, case.answer),
    };
    cases.iter().map(answer).collect()
}

fn case_analysis(run: &RunRecords, case: &CaseManifest) -> CaseAnalysis {
    let experiment = &run.manifest.experiment;
    let subjects = subjects(run, case);
    let is_again =
        |subject: &&SubjectAnalysis| Some(&subject.name) == experiment.aa_subject.as_ref();
    let again = subjects.iter().find(is_again);
    let noise_floor = again.and_then(|again| again.prices.get(&Metric::CpuUsPerRequest)?.ratio);
    let judged = subjects.iter().filter(|subject| !is_again(subject));
    let metric = status::judged_metric(&subjects, &case.load.arrivals);
    let run_status = RunStatus::of(judged, metric, noise_floor.as_ref());
    let ablation = experiment.ablation.as_ref();
    let ablation = ablation.map(|ablation| ablation::figures(ablation, run, &case.name, &subjects));
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
        family => {
            // A repeated baseline has no priced work.
            let error = (family == Family::Priced).then(|| LoadError::of(&case.load));
            (family, price::prices(&trials.valid, &baseline.valid, error, run.manifest.seed))
        }
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
            TrialOutcome::Measured(measurement) => {
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
            TrialOutcome::Refused(refusal) => {
                self.add_failure(&refusal.reason, SubjectStatus::Refused);
            }
            TrialOutcome::Failed(failure) => {
                let TrialFailure { step, reason, .. } = failure;
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
fn last_output(failure: &TrialFailure) -> String {
    let printed = match failure.step {
        TrialStep::Start => failure.log.last(),
        TrialStep::Configure
        | TrialStep::Reach
        | TrialStep::Origin
        | TrialStep::Probe
        | TrialStep::Load
        | TrialStep::Host => None,
    };
    printed.map_or(String::new(), |line| format!(" ({line})"))
}
