//! The results of a run, as report.json has them.

use super::price::{BlockFigure, Prices, Range};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use strum::{Display, IntoStaticStr};
use tollgate_records::case::CaseManifest;
use tollgate_records::stop::EndedBy;
use tollgate_records::subject::Missing;
use tollgate_records::trial::Bottleneck;
use tollgate_stats::{Summary, Verdict};
use tollgate_traffic::Class;

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

/// The status of the prices of a run.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Display,
    IntoStaticStr,
    Serialize,
    JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum RunStatus {
    /// Every price has a verdict: in CPU per request or, where the CPU is unknown, in requests per second or median latency.
    Settled,
    /// At least one price has no verdict yet.
    #[strum(serialize = "Not settled")]
    NotSettled,
    /// The repeated baseline differs significantly from the baseline, so other differences may be noise.
    #[strum(serialize = "A/A failed")]
    AaFailed,
    /// There is no price.
    #[strum(serialize = "No price")]
    NoPrice,
}

/// Medians over the valid trials of a subject.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Figures {
    /// Number of valid trials.
    pub n: usize,
    /// CPU of the system per response, in microseconds.
    pub cpu_us_per_request: Option<f64>,
    /// The part of it in user mode.
    pub user_cpu_us_per_request: Option<f64>,
    /// Share of it in softirqs, from 0 to 1: over loopback, the TCP work of its peers as receivers. Missing if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub softirq_share: Option<f64>,
    /// CPU of the origin per response, in microseconds; null without an origin.
    pub origin_cpu_us_per_request: Option<f64>,
    /// CPU of the generator per response, in microseconds.
    pub generator_cpu_us_per_request: Option<f64>,
    /// Expected responses per second.
    pub throughput_per_s: Option<f64>,
    /// Response bytes per second, headers and transfer coding included.
    pub received_bytes_per_s: Option<f64>,
    /// Bytes of answered requests per second, headers and transfer coding included.
    pub sent_bytes_per_s: Option<f64>,
    /// Mean latency, in milliseconds.
    pub latency_mean_ms: Option<f64>,
    /// Minimum latency of a trial, in milliseconds.
    pub latency_min_ms: Option<f64>,
    /// Median latency, in milliseconds.
    pub latency_p50_ms: Option<f64>,
    /// 90th percentile of the latency, in milliseconds; null if a trial has too few responses.
    pub latency_p90_ms: Option<f64>,
    /// 99th percentile of the latency, in milliseconds; null if a trial has too few responses.
    pub latency_p99_ms: Option<f64>,
    /// Maximum latency of a trial, in milliseconds.
    pub latency_max_ms: Option<f64>,
    /// Peak memory of the system, in bytes.
    pub memory_peak_bytes: Option<f64>,
    /// Time from the start to the first correct response, in milliseconds.
    pub startup_ms: Option<f64>,
    /// The share of attacks blocked, from 0 to 1: over templates by weight; null if there
    /// are none. From all measured trials, invalid ones included, except trials in which
    /// a process died.
    pub detection_rate: Option<f64>,
    /// The share of benign requests blocked, likewise.
    pub false_positive_rate: Option<f64>,
    /// The bottleneck of most trials.
    pub bottleneck: Option<Bottleneck>,
}

/// The spread of the valid trials of a subject.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Summaries {
    /// Expected responses per second.
    pub requests_per_s: Summary,
    /// Mean latency of a trial, in milliseconds.
    pub latency_ms: Summary,
    /// User time of the system's processes in a trial, in milliseconds.
    pub user_cpu_ms: Option<Summary>,
}

/// The responses to one template over all measured trials of a subject, invalid trials
/// included, as in the detection rate and the false positive rate. Excludes trials
/// in which a process died.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TemplateFigures {
    /// Name of the template.
    pub name: String,
    /// Benign requests should pass, malicious ones should be blocked.
    pub class: Class,
    /// Family within the class, if the mix names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// Frequency relative to the other templates; 0 for the probe only.
    pub weight: u32,
    /// Verdict on its requests; null if no response shows it.
    pub verdict: Option<TemplateVerdict>,
    /// Number of responses.
    pub responses: u64,
    /// Responses with the status code with which the subject blocks.
    pub blocked: u64,
    /// Responses with the status code of a request that is not blocked.
    pub passed: u64,
    /// Other responses, such as errors of the system. They are neither detections, misses nor
    /// false positives.
    pub other: u64,
    /// Responses that differ from the expected one.
    pub unexpected: u64,
    /// Trials whose probe request was blocked.
    pub probes_blocked: u64,
    /// Trials whose probe request passed.
    pub probes_passed: u64,
}

/// Verdict of a subject on the requests of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, IntoStaticStr, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum TemplateVerdict {
    /// Every request was blocked.
    Blocked,
    /// Every request passed.
    Passed,
    /// Some requests were blocked and others passed.
    Unstable,
}

/// A template on which the subjects that block requests differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Difference {
    /// Name of the template.
    pub name: String,
    /// Its class.
    pub class: Class,
    /// Its family, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// Its weight in the mix; 0 for a request of the corpus.
    pub weight: u32,
    /// The request of the probe in one line, if the experiment has `catch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The verdict of each subject, by name.
    pub verdicts: BTreeMap<String, TemplateVerdict>,
}

/// Detections of the subjects that block requests, with every template and every request of the corpus as one case, whatever
/// its weight.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Catch {
    /// The subjects.
    pub subjects: Vec<SubjectCatch>,
    /// Each two subjects.
    pub pairs: Vec<PairCatch>,
}

/// Detections of one subject.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SubjectCatch {
    /// Name of the subject.
    pub name: String,
    /// By class and family.
    pub families: Vec<FamilyCatch>,
    /// Attacks blocked: true positives.
    pub attacks: Option<Share>,
    /// Benign requests blocked: false positives.
    pub benign: Option<Share>,
    /// Balanced accuracy: the mean of the share of attacks that are blocked and of the share of benign requests that pass.
    pub score: Option<ScoreRange>,
    /// Requests without a verdict: other responses, no response, or both verdicts.
    pub undecided: usize,
}

/// Requests of one family that are blocked.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct FamilyCatch {
    /// The class of the family.
    pub class: Class,
    /// Its name; `other` for templates without a family.
    pub family: String,
    /// The requests that are blocked.
    pub share: Share,
}

/// A share of requests that are blocked, with Wilson's 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Share {
    /// Requests that are blocked.
    pub blocked: u64,
    /// Requests that are blocked or pass.
    pub of: u64,
    /// From 0 to 1.
    pub estimate: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// A score with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct ScoreRange {
    /// From 0 to 1; 0.5 for one that blocks everything or nothing.
    pub estimate: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// Two subjects on the requests on which both have a verdict. A verdict is right if an attack is blocked or a benign request
/// passes.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PairCatch {
    /// Name of one subject.
    pub first: String,
    /// Name of the other.
    pub second: String,
    /// Requests on which both have the same verdict.
    pub same: u64,
    /// Requests on which only the first is right.
    pub first_only: u64,
    /// Requests on which only the second is right.
    pub second_only: u64,
    /// McNemar's exact test, two-sided, with Holm's correction for the pairs of the case.
    pub p: f64,
}

/// The files of a rule set in one case.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct AblationFigures {
    /// The subject with all files.
    pub subject: String,
    /// Name of the rule set.
    pub rule_set: String,
    /// The files that were removed, the most expensive first.
    pub files: Vec<FileFigures>,
    /// All files together, if there are several.
    pub all: Option<FileFigures>,
    /// The files that were not removed because others depend on them, in the order in which they are read.
    pub kept: Vec<KeptFile>,
}

/// The cost of a file and the requests that only it blocks.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct FileFigures {
    /// Name of the file.
    pub file: String,
    /// The subject without the file.
    pub subject: String,
    /// The price; null if one side has no valid trial.
    pub price: Option<FilePrice>,
    /// Templates of attacks whose probe request was blocked only with the file.
    pub attacks: Vec<String>,
    /// Benign templates, likewise.
    pub benign: Vec<String>,
    /// Number of exceptions from its rules in other files, removed with it.
    pub exceptions: usize,
}

/// The cost of a file: all files minus all files without it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct FilePrice {
    /// Number of blocks in which both are valid.
    pub n: usize,
    /// CPU per request, in microseconds.
    pub cpu_us: Range,
    /// Share of the cost of all files, from 0 to 1; negative if the subject is more expensive without the file.
    pub share: Option<Range>,
    /// The verdict, corrected for the other files.
    pub verdict: Option<Verdict>,
}

/// A file that was not removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct KeptFile {
    /// Name of the file.
    pub file: String,
    /// The reason.
    pub reason: String,
}

impl SubjectAnalysis {
    /// The templates of the mix, and the requests of the corpus.
    pub(super) fn judged(&self) -> impl Iterator<Item = &TemplateFigures> {
        self.templates.iter().chain(&self.corpus)
    }
}

impl CaseAnalysis {
    pub(crate) fn subject(&self, name: &str) -> Option<&SubjectAnalysis> {
        self.subjects.iter().find(|subject| subject.name == name)
    }

    /// The name of a subject, with the case in a run of several cases.
    pub(super) fn qualified(&self, subject: &str, cases: usize) -> String {
        match cases {
            1 => subject.to_owned(),
            _ => format!("{subject} ({})", self.case.name),
        }
    }
}
