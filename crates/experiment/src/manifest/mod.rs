//! What a run was: written before its first trial, so that its records can be understood alone.

pub mod difference;

use crate::ablation::Ablation;
use crate::cpu_layout::CpuLayout;
use crate::environment::Environment;
use crate::experiment::{Case, Experiment, RateOfFile, SpacingFile, WarmUp};
use crate::installed::{Installed, Missing};
use crate::options::Options;
use crate::plan::stop::Stop;
use crate::validity::Limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The version of the manifest's shape; a reader refuses what it does not know.
pub const SCHEMA: u32 = 3;

/// What a run was.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of the manifest's shape.
    pub schema: u32,
    /// The version and commit of the tool.
    pub tollgate: String,
    /// When the run began, RFC 3339, UTC.
    pub started_at: String,
    /// The command that repeats it.
    pub command: String,
    /// The folder that it was started in, from which that command finds its files.
    pub directory: String,
    /// The seed of every random choice.
    pub seed: u64,
    /// What was run.
    pub experiment: ExperimentManifest,
    /// Which CPUs each role ran on.
    pub cpu_layout: CpuLayout,
    /// The machine.
    pub environment: Environment,
}

/// What was run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExperimentManifest {
    /// The experiment's name.
    pub name: String,
    /// The question that it answers.
    pub title: String,
    /// The file that it was read from.
    pub file: String,
    /// That file's text.
    pub text: String,
    /// Whether durations were cut.
    pub quick: bool,
    /// What ends the run.
    pub stop: Stop,
    /// What is too small to matter, as a share.
    pub margin: f64,
    /// How much the machine might disturb a trial that counts.
    pub limits: Limits,
    /// The baseline's name.
    pub baseline: String,
    /// The name of the subject that is the baseline a second time, if there is one.
    pub aa_subject: Option<String>,
    /// Whether the terminal report also sums up the trials of each subject.
    pub summary: bool,
    /// Whether it also tells how many bytes a second went to and fro.
    #[serde(default)]
    pub bytes: bool,
    /// Whether it also tells what each subject adds to the latency: the average, the shortest, the median,
    /// the longest and the 90th percentile.
    #[serde(default)]
    pub latency: bool,
    /// The cases.
    pub cases: Vec<CaseManifest>,
    /// The text of each mix, by its file.
    pub mixes: BTreeMap<String, String>,
    /// The subjects.
    pub subjects: Vec<SubjectManifest>,
    /// Which of them are one subject without some of its rules, where it was taken apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ablation: Option<Ablation>,
}

/// One case.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CaseManifest {
    /// Its name.
    pub name: String,
    /// What its mix stands for.
    pub mix: String,
    /// The file that the mix was read from.
    pub mix_file: String,
    /// Connections that are open at the same time.
    pub connections: u32,
    /// What makes the loop open; none in a closed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_loop: Option<OpenLoopManifest>,
    /// What its rate follows from, where the experiment does not give it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_of: Option<RateOfManifest>,
    /// Threads of the generator.
    pub threads: u32,
    /// Origins behind each system.
    #[serde(default = "one_origin", skip_serializing_if = "is_one")]
    pub origins: u16,
    /// Whether connections are kept for the next request.
    pub keep_alive: bool,
    /// Whether the generator asks for events over and over instead of sleeping.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub busy_poll: bool,
    /// Whether the CPUs are kept from halting.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idle_poll: bool,
    /// The warm-up of each trial, in seconds; where it ends as soon as the figures stand still, how
    /// long it may last.
    pub warmup_s: f64,
    /// Whether it ends as soon as the figures stand still.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warmup_steady: bool,
    /// How many requests each trial is measured over; none where it is a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u32>,
    /// The measured window of each trial, in seconds; of a number of requests, how long they may take.
    pub duration_s: f64,
    /// The subjects that it is for, the baseline among them; empty where it is for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only_subjects: Vec<String>,
}

/// The schedule of an open loop.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OpenLoopManifest {
    /// Requests a second; none where they follow from another case that has not been run.
    pub rate_per_s: Option<f64>,
    /// How they are spaced.
    pub spacing: SpacingFile,
    /// How far the connections may grow when a request is due and none is free.
    pub connections_max: u32,
}

/// A rate that is a share of what the slowest subject of another case holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RateOfManifest {
    /// The other case's name.
    pub case: String,
    /// The share of one.
    pub share: f64,
}

/// One subject.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SubjectManifest {
    /// Its name.
    pub name: String,
    /// What it is, in a few words.
    pub about: String,
    /// Its system's name.
    pub system: String,
    /// Where the system's recipe was found.
    pub recipe: String,
    /// Every option, chosen or by default.
    pub options: Options,
    /// The path that is put before every path of the mix.
    pub prefix: String,
    /// What of it is on this machine, or what is missing.
    pub state: SubjectState,
}

/// Whether a subject could be run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum SubjectState {
    /// It could.
    Present {
        /// The system's version and the hashes of its programs.
        installed: Installed,
        /// SHA-256 of each config, rendered with fixed ports and folders instead of those of a trial,
        /// so that two runs can be compared.
        configs: BTreeMap<String, String>,
        /// SHA-256 of each file that the configs pull in: rule sets above all.
        referenced: BTreeMap<PathBuf, String>,
    },
    /// Its system is not on this machine.
    Skipped {
        /// What is missing.
        missing: Missing,
    },
    /// Its config cannot be made.
    Broken {
        /// Why not.
        reason: String,
    },
}

/// What happens to a run besides the experiment itself.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// The seed of every random choice.
    pub seed: u64,
    /// Whether durations were cut.
    pub quick: bool,
    /// The command that repeats the run.
    pub command: String,
    /// The folder that it is started in.
    pub directory: PathBuf,
}

impl CaseManifest {
    /// Whether it is for a subject.
    pub fn is_for(&self, subject: &str) -> bool {
        self.only_subjects.is_empty() || self.only_subjects.iter().any(|name| name == subject)
    }
}

/// The names of a case's subjects, where they are not all.
fn only_subjects(experiment: &Experiment, case: &Case) -> Vec<String> {
    if case.subjects.len() == experiment.subjects.len() {
        return Vec::new();
    }
    case.subjects.iter().map(|at| experiment.subjects[*at].name.clone()).collect()
}

impl OpenLoopManifest {
    /// The schedule of a case's load; none for a closed loop.
    fn of(case: &Case) -> Option<Self> {
        (case.load.rate.is_some() || case.rate_of.is_some()).then(|| Self {
            rate_per_s: case.load.rate,
            spacing: case.load.spacing.unwrap_or(SpacingFile::Constant),
            connections_max: case.load.connections_most(),
        })
    }
}

impl RateOfManifest {
    fn of(rate_of: &RateOfFile) -> Self {
        Self { case: rate_of.case.clone(), share: rate_of.share.0 }
    }
}

impl Manifest {
    /// The manifest of a run that begins now.
    pub fn of(
        experiment: &Experiment,
        states: Vec<SubjectState>,
        layout: &CpuLayout,
        environment: Environment,
        invocation: &Invocation,
    ) -> Self {
        let cases = experiment.cases.iter().map(|case| CaseManifest {
            name: case.name.clone(),
            mix: case.mix.title().to_owned(),
            mix_file: case.mix_source.name.clone(),
            connections: case.load.connections,
            open_loop: OpenLoopManifest::of(case),
            rate_of: case.rate_of.as_ref().map(RateOfManifest::of),
            threads: case.load.threads,
            origins: case.origins,
            keep_alive: case.load.keepalive,
            busy_poll: case.load.busy_poll,
            idle_poll: case.load.idle_poll,
            warmup_s: case.load.warmup_longest().as_secs_f64(),
            warmup_steady: case.load.warmup == WarmUp::Steady,
            requests: case.load.window().requests(),
            duration_s: case.load.window().longest().as_secs_f64(),
            only_subjects: only_subjects(experiment, case),
        });
        let mixes = experiment
            .cases
            .iter()
            .flat_map(|case| std::iter::once(&case.mix_source).chain(&case.mix_included))
            .map(|source| (source.name.clone(), source.text.clone()));
        let subjects = experiment.subjects.iter().zip(states);
        let subjects = subjects.map(|(subject, state)| SubjectManifest {
            name: subject.name.clone(),
            about: subject.about.clone(),
            system: subject.recipe.name.clone(),
            recipe: subject.recipe.found_in.clone(),
            options: subject.options.clone(),
            prefix: subject.prefix.clone(),
            state,
        });
        Self {
            schema: SCHEMA,
            tollgate: VERSION.to_owned(),
            started_at: jiff::Timestamp::now().to_string(),
            command: invocation.command.clone(),
            directory: invocation.directory.display().to_string(),
            seed: invocation.seed,
            experiment: ExperimentManifest {
                name: experiment.name.clone(),
                title: experiment.title.clone(),
                file: experiment.source.name.clone(),
                text: experiment.source.text.clone(),
                quick: invocation.quick,
                stop: experiment.stop,
                margin: experiment.margin,
                limits: experiment.limits,
                baseline: experiment.subjects[experiment.baseline].name.clone(),
                aa_subject: experiment.aa_subject.map(|at| experiment.subjects[at].name.clone()),
                summary: experiment.summary,
                bytes: experiment.bytes,
                latency: experiment.latency,
                cases: cases.collect(),
                mixes: mixes.collect(),
                subjects: subjects.collect(),
                ablation: experiment.ablation.clone(),
            },
            cpu_layout: layout.clone(),
            environment,
        }
    }
}

fn one_origin() -> u16 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_one(origins: &u16) -> bool {
    *origins == one_origin()
}

/// The version and commit of the tool.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("TOLLGATE_COMMIT"), ")");
