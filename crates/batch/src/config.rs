//! Files of revisions and their validated settings.

use crate::division::base;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tollgate_experiment::adjust::{Adjustments, Limit};
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::experiment::{Experiment, Subject};
use tollgate_experiment::file::ExperimentFile;
use tollgate_experiment::toml_file::{self, NamedText};
use tollgate_records::error::{bad_input, io_error, suggestion};
use tollgate_records::metric::Metric;
use tollgate_stats::BLOCKS_MAX;
use tollgate_traffic::units::{Percent, Span};

/// A batch as written in its TOML file. Paths are relative to the folder of the file.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BatchFile {
    /// The question that the batch answers.
    pub title: Option<String>,
    /// Experiment that measures each revision: a name, or a path that ends in `.toml`.
    pub experiment: Option<String>,
    /// Case of the experiment; optional if it has only one.
    pub case: Option<String>,
    /// Subject of the experiment that the revisions replace.
    pub subject: Option<String>,
    /// Git repository: a folder or a URL. It is cloned and not changed.
    pub repo: Option<String>,
    /// Commits: `A..B` (A, an ancestor of B, and the commits after it), a file with one per line, or a list.
    pub revs: Option<Revs>,
    /// Commits with a matching tag, in the order of their versions.
    pub tags: Option<String>,
    /// Versions of a package, instead of a repository. The build command fetches them.
    pub versions: Vec<String>,
    /// With `versions`: a folder that is copied for each build.
    pub files: Option<String>,
    /// Revision that runs in every block. Default: the first that can be built.
    pub anchor: Option<String>,
    /// Command that makes a product, for `sh -c` in the worktree: `REV`, `SRC` and `OUT` are in its environment,
    /// and `VERSION` where there are versions.
    pub build: Option<String>,
    /// Time limit of a build. Default: 10m.
    pub timeout: Option<Span>,
    /// Commands that print the versions of the build tools. A build is reused while they print the same. Default: the common
    /// compilers.
    pub tools: Option<Vec<String>>,
    /// The option of the system that gets a product.
    pub product: Option<ProductFile>,
    /// Metric for the prices. Default: `cpu`.
    pub metric: Option<Figure>,
    /// Blocks per round. Default: 6; fewer give no interval.
    pub blocks: Option<u32>,
    /// Cuts trials to a fifth of their time.
    pub quick: Option<bool>,
    /// Products per round. Default: 4.
    pub products_per_round: Option<u32>,
    /// Margin within which prices count as the same. Default: 2%.
    pub margin: Option<Percent>,
    /// Limits of disturbance from the command line, in place of those of the experiment.
    #[serde(skip)]
    #[schemars(skip)]
    pub limits: Vec<Limit>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Revs {
    /// `A..B`, or the path of a file.
    One(String),
    Several(Vec<String>),
}

/// The option of the system that gets a product.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProductFile {
    /// Option of the recipe that takes a path.
    pub option: String,
    /// Path in `OUT`: a module, a binary or a folder. Default: `OUT` itself.
    #[serde(default)]
    pub path: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Figure {
    /// CPU time of the system per request.
    Cpu,
    /// Expected responses per second.
    Throughput,
    /// Median latency.
    P50,
    /// 99th percentile of the latency.
    P99,
    /// Peak memory.
    Memory,
}

impl Figure {
    pub fn metric(self) -> Metric {
        match self {
            Self::Cpu => Metric::CpuUsPerRequest,
            Self::Throughput => Metric::ThroughputPerS,
            Self::P50 => Metric::LatencyP50Ms,
            Self::P99 => Metric::LatencyP99Ms,
            Self::Memory => Metric::MemoryPeakBytes,
        }
    }

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

impl BatchFile {
    /// Returns this file, with values of `other` taking precedence.
    #[must_use]
    pub fn overridden_by(self, other: Self) -> Self {
        let names_revisions = other.revs.is_some() || other.tags.is_some();
        Self {
            title: other.title.or(self.title),
            experiment: other.experiment.or(self.experiment),
            case: other.case.or(self.case),
            subject: other.subject.or(self.subject),
            repo: other.repo.or(self.repo),
            revs: if names_revisions { other.revs } else { self.revs },
            tags: if names_revisions { other.tags } else { self.tags },
            versions: if other.versions.is_empty() { self.versions } else { other.versions },
            files: other.files.or(self.files),
            anchor: other.anchor.or(self.anchor),
            build: other.build.or(self.build),
            timeout: other.timeout.or(self.timeout),
            tools: other.tools.or(self.tools),
            product: other.product.or(self.product),
            metric: other.metric.or(self.metric),
            blocks: other.blocks.or(self.blocks),
            quick: other.quick.or(self.quick),
            products_per_round: other.products_per_round.or(self.products_per_round),
            margin: other.margin.or(self.margin),
            limits: if other.limits.is_empty() { self.limits } else { other.limits },
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub title: String,
    pub experiment: String,
    /// The experiment as TOML, with one case and the one subject that gets the products.
    base: String,
    /// Option of the recipe that gets the path of a product.
    pub option: String,
    /// Path within the product.
    pub path: String,
    pub source: RevisionSource,
    /// For `sh -c`.
    pub build: String,
    pub timeout_s: f64,
    pub tools: Vec<String>,
    pub metric: Figure,
    pub blocks: u32,
    /// Cuts trials to a fifth of their time.
    pub quick: bool,
    pub products_per_round: usize,
    /// As a share.
    pub margin: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RevisionSource {
    /// Git repository: a folder or a URL.
    Repository(String),
    /// A list of versions, with the folder that is copied for each build.
    Versions(Option<PathBuf>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    Range(String),
    List(Vec<String>),
    Tags(String),
}

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
    /// Returns the experiment with one case and the one subject that gets the products.
    pub(crate) fn base(&self) -> anyhow::Result<ExperimentFile> {
        let source =
            NamedText { name: "the experiment of the batch".to_owned(), text: self.base.clone() };
        Ok(toml_file::parse(&source)?)
    }

    /// Validates a file. Relative paths are relative to `folder`.
    pub fn of(file: &BatchFile, folder: &Path, catalog: &Catalog) -> anyhow::Result<Self> {
        let name = needed(&file.experiment, "experiment", "the experiment to measure with")?;
        let name = if name.ends_with(".toml") {
            absolute(folder, name)?.display().to_string()
        } else {
            name.to_owned()
        };
        let quick = file.quick.unwrap_or(false);
        let adjustments = Adjustments { quick, ..Adjustments::default() };
        let experiment = Experiment::load(catalog, &name, &adjustments)?;
        let subject = needed(&file.subject, "subject", "the subject that the revisions replace")?;
        let product = file.product.as_ref().ok_or_else(|| {
            missing_key(
                "product",
                "the option that gets a product: { option = \"...\", path = \"...\" }",
            )
        })?;
        let subject = subject_for(&experiment, subject, product)?;
        let case = one_case(&experiment, file.case.as_deref())?;
        let base = base(&experiment.source, case, subject, file.margin, &file.limits)?.to_toml()?;
        let origin = match (&file.repo, &file.versions[..]) {
            (Some(repo), []) if is_folder(repo) => {
                RevisionSource::Repository(absolute(folder, repo)?.display().to_string())
            }
            (Some(repo), []) => RevisionSource::Repository(repo.clone()),
            (None, [_, ..]) => {
                let files = file.files.as_ref().map(|files| absolute(folder, files)).transpose()?;
                RevisionSource::Versions(files)
            }
            (Some(_), [_, ..]) => {
                return Err(bad_input(
                    "`repo` and `versions` exclude each other; remove one".to_owned(),
                ));
            }
            (None, []) => {
                return Err(missing_key("repo", "a git repository, or `versions` of a package"));
            }
        };
        let timeout = file.timeout.map_or(TIMEOUT, |timeout| timeout.0);
        if !(Duration::from_secs(1)..=TIMEOUT_MAX).contains(&timeout) {
            return Err(bad_input("`timeout` must be from 1s to 24h".to_owned()));
        }
        let tools = file.tools.clone().unwrap_or_else(|| TOOLS.map(str::to_owned).to_vec());
        let most = u32::try_from(BLOCKS_MAX).unwrap_or(u32::MAX);
        Ok(Self {
            title: file.title.clone().unwrap_or_else(|| experiment.title.clone()),
            experiment: experiment.name.clone(),
            base,
            option: product.option.clone(),
            path: inside(&product.path)?,
            source: origin,
            build: needed(&file.build, "build", "the command that builds a revision")?.to_owned(),
            timeout_s: timeout.as_secs_f64(),
            tools,
            metric: file.metric.unwrap_or(Figure::Cpu),
            blocks: within("blocks", file.blocks.unwrap_or(BLOCKS), most)?,
            quick,
            products_per_round: within(
                "together",
                file.products_per_round.unwrap_or(TOGETHER),
                TOGETHER_MAX,
            )? as usize,
            margin: file.margin.map_or(MARGIN, |margin| margin.0),
        })
    }
}

impl Wanted {
    pub fn of(file: &BatchFile, folder: &Path) -> anyhow::Result<Self> {
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
                    .map_err(io_error("read the revisions in", &path))?;
                let lines = text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
                let lines: Vec<String> =
                    lines.filter(|line| !line.is_empty()).map(str::to_owned).collect();
                if lines.is_empty() {
                    Err(bad_input(format!("{} names no revision", path.display())))
                } else {
                    Ok(Self::List(lines))
                }
            }
            (Some(Revs::Several(list)), None) if !list.is_empty() => Ok(Self::List(list.clone())),
            (None, Some(pattern)) => Ok(Self::Tags(pattern.clone())),
            (Some(_), Some(_)) => {
                Err(bad_input("`revs` and `tags` exclude each other; remove one".to_owned()))
            }
            (Some(_) | None, None) => {
                Err(missing_key("revs", "commits: A..B, a file, a list, or `tags` with a pattern"))
            }
        }
    }
}

fn missing_key(key: &str, what: &str) -> anyhow::Error {
    bad_input(format!("`{key}` is missing: {what}"))
}

fn needed<'a>(value: &'a Option<String>, key: &str, what: &str) -> anyhow::Result<&'a str> {
    value.as_deref().filter(|text| !text.trim().is_empty()).ok_or_else(|| missing_key(key, what))
}

fn within(key: &str, value: u32, most: u32) -> anyhow::Result<u32> {
    if (1..=most).contains(&value) {
        Ok(value)
    } else {
        Err(bad_input(format!("`{key}` must be from 1 to {most}, not {value}")))
    }
}

/// As in git, a repository with a colon before its first slash is a URL.
pub fn is_folder(repo: &str) -> bool {
    !repo.split('/').next().is_some_and(|first| first.contains(':'))
}

fn absolute(folder: &Path, path: &str) -> anyhow::Result<PathBuf> {
    let path = folder.join(path);
    std::path::absolute(&path).map_err(io_error("resolve", &path))
}

/// Checks that a path stays in the folder of the product.
fn inside(path: &str) -> anyhow::Result<String> {
    let climbs = path.split('/').any(|part| part == "..") || path.starts_with('/');
    if climbs {
        Err(bad_input(format!("`product.path` must be inside $OUT, not `{path}`")))
    } else {
        Ok(path.trim_end_matches('/').to_owned())
    }
}

fn one_case<'a>(experiment: &'a Experiment, name: Option<&str>) -> anyhow::Result<&'a str> {
    let names = || experiment.cases.iter().map(|case| case.name.as_str());
    match name {
        Some(wanted) => names().find(|name| *name == wanted).ok_or_else(|| {
            let hint = suggestion(wanted, names());
            bad_input(format!("the experiment has no case `{wanted}`{hint}"))
        }),
        None if experiment.cases.len() == 1 => Ok(experiment.cases[0].name.as_str()),
        None => {
            let names: Vec<&str> = names().collect();
            Err(missing_key("case", &format!("one of the experiment's: {}", names.join(", "))))
        }
    }
}

fn subject_for<'a>(
    experiment: &'a Experiment,
    subject: &str,
    product: &ProductFile,
) -> anyhow::Result<&'a Subject> {
    let names = || experiment.subjects.iter().map(|subject| subject.name.as_str());
    let Some(found) = experiment.subjects.iter().find(|one| one.name == subject) else {
        let hint = suggestion(subject, names());
        return Err(bad_input(format!("the experiment has no subject `{subject}`{hint}")));
    };
    let options = &found.recipe.file.option;
    let (system, option) = (&found.recipe.name, &product.option);
    match options.get(option) {
        Some(spec) if spec.path => Ok(found),
        Some(_) => {
            Err(bad_input(format!("option `{option}` of system `{system}` does not take a path")))
        }
        None => {
            let paths = options.iter().filter(|(_, spec)| spec.path);
            let hint = suggestion(option, paths.map(|(name, _)| name.as_str()));
            Err(bad_input(format!("system `{system}` has no option `{option}`{hint}")))
        }
    }
}

#[cfg(test)]
impl Settings {
    pub(crate) fn for_tests(build: &str) -> Self {
        Self {
            title: "t".to_owned(),
            experiment: "e".to_owned(),
            base: String::new(),
            option: "binary".to_owned(),
            path: String::new(),
            source: RevisionSource::Repository("/repository".to_owned()),
            build: build.to_owned(),
            timeout_s: 60.0,
            tools: Vec::new(),
            metric: Figure::Cpu,
            blocks: 6,
            quick: false,
            products_per_round: 4,
            margin: 0.02,
        }
    }
}
