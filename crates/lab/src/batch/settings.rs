//! What a batch does with each revision: its file, checked.

use super::BatchError;
use super::file::{BatchFile, ProductFile, Revs};
use super::rounds::base;
use crate::analysis::Metric;
use crate::inputs::catalog::Catalog;
use crate::inputs::experiment::{Adjustments, Experiment};
use crate::inputs::toml_file::suggestion;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tollgate_stats::BLOCKS_MAX;

/// What a batch does with each revision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The question that it answers.
    pub title: String,
    /// The experiment's name.
    pub experiment: String,
    /// The experiment with one case and the one subject that products are put into, as TOML.
    pub base: String,
    /// The option of the recipe that takes a product's path.
    pub option: String,
    /// What of a product it gets, below its folder.
    pub path: String,
    /// Where revisions are from.
    pub origin: Origin,
    /// What makes a product, for `sh -c`.
    pub build: String,
    /// How long that may take, in seconds.
    pub timeout_s: f64,
    /// Commands that print the versions of the tools that it uses.
    pub tools: Vec<String>,
    /// The figure that revisions are priced by.
    pub figure: Figure,
    /// Blocks of each round.
    pub blocks: u32,
    /// Whether the durations of trials are cut to a fifth.
    pub quick: bool,
    /// How many products share a round.
    pub together: usize,
    /// What is too small to matter, as a share.
    pub margin: f64,
}

/// Where revisions are from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A git repository: a folder or a URL.
    Repository(String),
    /// A list of versions, with the folder that each build gets a copy of.
    Versions(Option<PathBuf>),
}

/// Which revisions were asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// `A..B`.
    Range(String),
    /// These, in their order.
    List(Vec<String>),
    /// Those with a tag of this pattern.
    Tags(String),
}

/// A figure that revisions are priced by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Figure {
    /// CPU time of the system for each answer.
    Cpu,
    /// Expected answers a second.
    Throughput,
    /// The median latency.
    P50,
    /// The 99th percentile of the latency.
    P99,
    /// Peak memory.
    Memory,
}

/// The tools whose versions are asked for where nobody says.
const TOOLS: [&str; 8] = [
    "cc --version",
    "c++ --version",
    "ld --version",
    "make --version",
    "cmake --version",
    "go version",
    "rustc --version",
    "cargo --version",
];

const BLOCKS: u32 = 6;
const TOGETHER: u32 = 4;
const TOGETHER_MAX: u32 = 50;
const MARGIN: f64 = 0.02;
const TIMEOUT: Duration = Duration::from_secs(600);
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

impl Settings {
    /// Checks what a file and the command line say. Relative paths count from `folder`.
    ///
    /// # Errors
    ///
    /// Something is missing, or cannot be.
    pub fn of(file: &BatchFile, folder: &Path, catalog: &Catalog) -> Result<Self, BatchError> {
        let name = needed(&file.experiment, "experiment", "the experiment to measure with")?;
        let name = match name.ends_with(".toml") {
            true => absolute(folder, name)?.display().to_string(),
            false => name.to_owned(),
        };
        let quick = file.quick.unwrap_or(false);
        let adjustments = Adjustments { quick, ..Adjustments::default() };
        let experiment = Experiment::load(catalog, &name, &adjustments)?;
        let subject =
            needed(&file.subject, "subject", "the subject that revisions take the place of")?;
        let product = file.product.as_ref().ok_or_else(|| {
            asked(
                "product",
                "how a product enters the system: { option = \"...\", path = \"...\" }",
            )
        })?;
        takes_a_path(&experiment, subject, product)?;
        let case = one_case(&experiment, file.case.as_deref())?;
        let base = base(&experiment.source, case, subject, file.margin.map(|margin| margin.0))?;
        let origin = match (&file.repo, &file.versions[..]) {
            (Some(repo), []) if is_folder(repo) => {
                Origin::Repository(absolute(folder, repo)?.display().to_string())
            }
            (Some(repo), []) => Origin::Repository(repo.clone()),
            (None, [_, ..]) => {
                let files = file.files.as_ref().map(|files| absolute(folder, files)).transpose()?;
                Origin::Versions(files)
            }
            (Some(_), [_, ..]) => {
                return Err(BatchError::Asked(
                    "`repo` and `versions` are both given; revisions are from one of the two"
                        .to_owned(),
                ));
            }
            (None, []) => {
                return Err(asked("repo", "a git repository, or `versions` of a package"));
            }
        };
        let timeout = file.timeout.map_or(TIMEOUT, |timeout| timeout.0);
        if !(Duration::from_secs(1)..=TIMEOUT_MAX).contains(&timeout) {
            return Err(BatchError::Asked("`timeout` has to be between 1s and 24h".to_owned()));
        }
        let tools = file.tools.clone().unwrap_or_else(|| TOOLS.map(str::to_owned).to_vec());
        let most = u32::try_from(BLOCKS_MAX).unwrap_or(u32::MAX);
        Ok(Self {
            title: file.title.clone().unwrap_or_else(|| experiment.title.clone()),
            experiment: experiment.name.clone(),
            base,
            option: product.option.clone(),
            path: inside(&product.path)?,
            origin,
            build: needed(&file.build, "build", "the command that builds a revision")?.to_owned(),
            timeout_s: timeout.as_secs_f64(),
            tools,
            figure: file.figure.unwrap_or(Figure::Cpu),
            blocks: within("blocks", file.blocks.unwrap_or(BLOCKS), most)?,
            quick,
            together: within("together", file.together.unwrap_or(TOGETHER), TOGETHER_MAX)? as usize,
            margin: file.margin.map_or(MARGIN, |margin| margin.0),
        })
    }
}

impl Wanted {
    /// The revisions that a file and the command line ask for.
    ///
    /// # Errors
    ///
    /// None are asked for, or twice, or a list cannot be read.
    pub fn of(file: &BatchFile, folder: &Path) -> Result<Self, BatchError> {
        if !file.versions.is_empty() {
            return Ok(Self::List(file.versions.clone()));
        }
        match (&file.revs, &file.tags) {
            (Some(Revs::One(range)), None) if range.contains("..") => {
                Ok(Self::Range(range.clone()))
            }
            (Some(Revs::One(list)), None) => {
                let path = absolute(folder, list)?;
                let text = std::fs::read_to_string(&path)
                    .map_err(super::io_error("reading the revisions in", &path))?;
                let lines = text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
                let lines: Vec<String> =
                    lines.filter(|line| !line.is_empty()).map(str::to_owned).collect();
                match lines.is_empty() {
                    true => Err(BatchError::Asked(format!("{} names no revision", path.display()))),
                    false => Ok(Self::List(lines)),
                }
            }
            (Some(Revs::Several(list)), None) if !list.is_empty() => Ok(Self::List(list.clone())),
            (None, Some(pattern)) => Ok(Self::Tags(pattern.clone())),
            (Some(_), Some(_)) => Err(BatchError::Asked(
                "`revs` and `tags` are both given; revisions are from one of the two".to_owned(),
            )),
            (Some(_) | None, None) => {
                Err(asked("revs", "which commits: A..B, a file, a list, or `tags` with a pattern"))
            }
        }
    }
}

impl Figure {
    /// The figure as reports price it.
    pub fn metric(self) -> Metric {
        match self {
            Self::Cpu => Metric::CpuUsPerRequest,
            Self::Throughput => Metric::ThroughputPerS,
            Self::P50 => Metric::LatencyP50Ms,
            Self::P99 => Metric::LatencyP99Ms,
            Self::Memory => Metric::MemoryPeakBytes,
        }
    }

    /// The figure in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Cpu => "CPU per request",
            Self::Throughput => "requests/s",
            Self::P50 => "median latency",
            Self::P99 => "p99 latency",
            Self::Memory => "peak memory",
        }
    }
}

fn asked(key: &str, what: &str) -> BatchError {
    BatchError::Asked(format!("`{key}` is missing: {what}"))
}

fn needed<'a>(value: &'a Option<String>, key: &str, what: &str) -> Result<&'a str, BatchError> {
    value.as_deref().filter(|text| !text.trim().is_empty()).ok_or_else(|| asked(key, what))
}

fn within(key: &str, value: u32, most: u32) -> Result<u32, BatchError> {
    match (1..=most).contains(&value) {
        true => Ok(value),
        false => {
            Err(BatchError::Asked(format!("`{key}` is {value}: it has to be between 1 and {most}")))
        }
    }
}

/// A repository that has a colon before its first slash is on another machine, as git reads it.
fn is_folder(repo: &str) -> bool {
    !repo.split('/').next().is_some_and(|first| first.contains(':'))
}

fn absolute(folder: &Path, path: &str) -> Result<PathBuf, BatchError> {
    let path = folder.join(path);
    std::path::absolute(&path).map_err(super::io_error("finding", &path))
}

/// A path that stays below the folder of a product.
fn inside(path: &str) -> Result<String, BatchError> {
    let climbs = path.split('/').any(|part| part == "..") || path.starts_with('/');
    match climbs {
        true => {
            Err(BatchError::Asked(format!("`product.path` is `{path}`: it has to be below $OUT")))
        }
        false => Ok(path.trim_end_matches('/').to_owned()),
    }
}

fn one_case<'a>(
    experiment: &'a Experiment,
    asked_for: Option<&str>,
) -> Result<&'a str, BatchError> {
    let names = || experiment.cases.iter().map(|case| case.name.as_str());
    match asked_for {
        Some(wanted) => names().find(|name| *name == wanted).ok_or_else(|| {
            let hint = suggestion(wanted, names());
            BatchError::Asked(format!("the experiment has no case `{wanted}`{hint}"))
        }),
        None if experiment.cases.len() == 1 => Ok(experiment.cases[0].name.as_str()),
        None => {
            let names: Vec<&str> = names().collect();
            Err(asked("case", &format!("one of the experiment's: {}", names.join(", "))))
        }
    }
}

fn takes_a_path(
    experiment: &Experiment,
    subject: &str,
    product: &ProductFile,
) -> Result<(), BatchError> {
    let names = || experiment.subjects.iter().map(|subject| subject.name.as_str());
    let Some(found) = experiment.subjects.iter().find(|one| one.name == subject) else {
        let hint = suggestion(subject, names());
        return Err(BatchError::Asked(format!("the experiment has no subject `{subject}`{hint}")));
    };
    let options = &found.recipe.file.option;
    let (system, option) = (&found.recipe.name, &product.option);
    match options.get(option) {
        Some(spec) if spec.path => Ok(()),
        Some(_) => Err(BatchError::Asked(format!(
            "option `{option}` of system `{system}` takes no path, so no product can be put there"
        ))),
        None => {
            let paths = options.iter().filter(|(_, spec)| spec.path);
            let hint = suggestion(option, paths.map(|(name, _)| name.as_str()));
            Err(BatchError::Asked(format!("system `{system}` has no option `{option}`{hint}")))
        }
    }
}

#[cfg(test)]
impl Settings {
    /// Those of a test, with this build.
    pub(super) fn made_up(build: &str) -> Self {
        Self {
            title: "t".to_owned(),
            experiment: "e".to_owned(),
            base: String::new(),
            option: "binary".to_owned(),
            path: String::new(),
            origin: Origin::Repository("/repository".to_owned()),
            build: build.to_owned(),
            timeout_s: 60.0,
            tools: Vec::new(),
            figure: Figure::Cpu,
            blocks: 6,
            quick: false,
            together: 4,
            margin: 0.02,
        }
    }
}
