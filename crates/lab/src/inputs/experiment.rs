//! An experiment: which subjects get which load, how often, and against which baseline.

use super::catalog::{Catalog, CatalogError};
use super::duration::Span;
use super::options::{self, OptionError, Options};
use super::recipe::Recipe;
use super::toml_file::{self, Source, TomlError, suggestion};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::Path;
use std::time::Duration;
use thiserror::Error;
use tollgate_load::{MAX_CONNECTIONS, MAX_THREADS};
use tollgate_stats::BLOCKS_MAX;
use tollgate_traffic::Mix;

/// An experiment as its TOML file writes it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExperimentFile {
    /// The question that the experiment answers.
    pub title: String,
    /// The name of the subject that the others are priced against.
    pub baseline: String,
    /// Whether the terminal report also sums up the trials of each subject.
    #[serde(default)]
    pub summary: bool,
    /// The workloads.
    pub case: Vec<CaseFile>,
    /// The configured systems.
    pub subject: Vec<SubjectFile>,
    /// How often everything is repeated.
    #[serde(default)]
    pub design: DesignFile,
    /// Which CPUs each role runs on; by default generator and origin share the first CPU and the
    /// system has the second.
    pub cpus: Option<CpusFile>,
}

/// One workload.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CaseFile {
    /// A short name, unique in the experiment.
    pub name: String,
    /// The mix that is sent: a name, or a path that ends in `.toml`.
    pub mix: String,
    /// The shape of the load.
    pub load: LoadFile,
}

/// The shape of a load. Closed loop: each connection sends when its answer is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadFile {
    /// Connections that are open at the same time.
    pub connections: u32,
    /// How long each trial is measured.
    pub duration: Span,
    /// How long each trial is loaded before it is measured.
    #[serde(default = "one_second")]
    pub warmup: Span,
    /// Whether connections are kept for the next request.
    #[serde(default = "yes")]
    pub keepalive: bool,
    /// Threads of the generator.
    #[serde(default = "one")]
    pub threads: u32,
    /// How long an answer may take.
    #[serde(default = "ten_seconds")]
    pub timeout: Span,
}

/// One configured system.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubjectFile {
    /// A short name, unique in the experiment.
    pub name: String,
    /// The system's name.
    pub system: String,
    /// The options that differ from the system's defaults.
    #[serde(default)]
    pub with: Options,
    /// A path that is put before every path of the mix.
    #[serde(default)]
    pub prefix: String,
    /// What this subject is, in a few words, for the report.
    #[serde(default)]
    pub about: String,
}

/// How often everything is repeated.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DesignFile {
    /// Blocks: each runs every subject of a case once, in shuffled order.
    pub blocks: u32,
}

/// Which CPUs each role runs on, by number.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CpusFile {
    /// The load generator's.
    pub generator: Vec<usize>,
    /// The origin's.
    pub origin: Vec<usize>,
    /// The system's.
    pub system: Vec<usize>,
}

/// An experiment whose names have been resolved and whose values have been checked.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// The name of its file, without folder and extension.
    pub name: String,
    /// Its file, as it was read.
    pub source: Source,
    /// The question that it answers.
    pub title: String,
    /// Whether the terminal report also sums up the trials of each subject.
    pub summary: bool,
    /// The subject that the others are priced against: an index into `subjects`.
    pub baseline: usize,
    /// The workloads.
    pub cases: Vec<Case>,
    /// The configured systems.
    pub subjects: Vec<Subject>,
    /// How often everything is repeated.
    pub blocks: u32,
    /// Which CPUs each role runs on, where the experiment says.
    pub cpus: Option<CpusFile>,
}

/// One workload.
#[derive(Debug, Clone)]
pub struct Case {
    /// A short name, unique in the experiment.
    pub name: String,
    /// What is sent.
    pub mix: Mix,
    /// The shape of the load.
    pub load: LoadFile,
}

/// One configured system.
#[derive(Debug, Clone)]
pub struct Subject {
    /// A short name, unique in the experiment.
    pub name: String,
    /// How its system is found, configured and started.
    pub recipe: Recipe,
    /// Every option, chosen or by default.
    pub options: Options,
    /// A path that is put before every path of the mix.
    pub prefix: String,
    /// What it is, in a few words.
    pub about: String,
}

/// What the command line changes about an experiment.
#[derive(Debug, Clone, Default)]
pub struct Adjustments {
    /// Durations are cut so that the run ends in about a fifth of its time.
    pub quick: bool,
    /// Another number of blocks.
    pub blocks: Option<u32>,
    /// Only these subjects, and the baseline, which every price needs.
    pub only: Vec<String>,
}

/// What is wrong with an experiment.
#[derive(Debug, Error)]
pub enum ExperimentError {
    /// Its file, or one that it names, cannot be had.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// Its file does not say what it should.
    #[error(transparent)]
    Toml(#[from] TomlError),
    /// A part of it cannot be.
    #[error("{file}: {what}")]
    Invalid {
        /// The experiment's file.
        file: String,
        /// Which part, and why not.
        what: String,
    },
    /// A file that a part of it names cannot be had, or the options it chose cannot be.
    #[error("{file}: {part}")]
    Part {
        /// The experiment's file.
        file: String,
        /// The part.
        part: String,
        /// Why not.
        source: Box<PartError>,
    },
}

/// What is wrong with one subject or case.
#[derive(Debug, Error)]
pub enum PartError {
    /// The file that it names cannot be had.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The options that it chose cannot be.
    #[error(transparent)]
    Option(#[from] OptionError),
}

impl Experiment {
    /// Reads an experiment, by name or by path, with everything that it names, and adjusts it.
    ///
    /// # Errors
    ///
    /// Something that it names is not there, or says what cannot be.
    pub fn load(
        catalog: &Catalog,
        name: &str,
        adjustments: &Adjustments,
    ) -> Result<Self, ExperimentError> {
        let source = catalog.experiment(name)?;
        let file: ExperimentFile = toml_file::parse(&source)?;
        let stem = Path::new(name).file_stem();
        let name = stem.map_or(name.to_owned(), |stem| stem.to_string_lossy().into_owned());
        let invalid = |what: String| ExperimentError::Invalid { file: source.name.clone(), what };
        check(&file, adjustments).map_err(invalid)?;
        let kept: Vec<&SubjectFile> = file
            .subject
            .iter()
            .filter(|subject| keeps(&adjustments.only, &subject.name, &file.baseline))
            .collect();
        let baseline = kept.iter().position(|subject| subject.name == file.baseline);
        let baseline =
            baseline.ok_or_else(|| invalid("the baseline is not a subject".to_owned()))?;
        let part = |part: String| {
            let file = source.name.clone();
            move |source: PartError| ExperimentError::Part { file, part, source: Box::new(source) }
        };
        Ok(Self {
            title: file.title,
            summary: file.summary,
            baseline,
            cases: file
                .case
                .iter()
                .map(|case| {
                    resolve_case(catalog, case, adjustments.quick)
                        .map_err(part(format!("case `{}`", case.name)))
                })
                .collect::<Result<_, _>>()?,
            subjects: kept
                .into_iter()
                .map(|subject| {
                    resolve_subject(catalog, subject)
                        .map_err(part(format!("subject `{}`", subject.name)))
                })
                .collect::<Result<_, _>>()?,
            blocks: adjustments.blocks.unwrap_or(file.design.blocks),
            cpus: file.cpus,
            name,
            source,
        })
    }
}

impl Default for DesignFile {
    fn default() -> Self {
        Self { blocks: 8 }
    }
}

/// How `--quick` cuts the durations of a trial. Starting and stopping a system take as long as ever,
/// which is little beside them.
const QUICK_DIVISOR: u32 = 5;
/// The shortest measured time, below which a trial of a slow system holds too few requests.
const SHORTEST_DURATION: Duration = Duration::from_millis(150);
const SHORTEST_WARMUP: Duration = Duration::from_millis(50);
const LONGEST_DURATION: Duration = Duration::from_secs(3600);

fn check(file: &ExperimentFile, adjustments: &Adjustments) -> Result<(), String> {
    let subjects: Vec<&str> = file.subject.iter().map(|s| s.name.as_str()).collect();
    let cases: Vec<&str> = file.case.iter().map(|case| case.name.as_str()).collect();
    unique("subject", &subjects)?;
    unique("case", &cases)?;
    if cases.is_empty() {
        return Err("there is no [[case]]; say what is to be sent".to_owned());
    }
    for wanted in adjustments.only.iter().chain([&file.baseline]) {
        if !subjects.contains(&wanted.as_str()) {
            let hint = suggestion(wanted, subjects.iter().copied());
            return Err(format!("no subject is named `{wanted}`{hint}"));
        }
    }
    for subject in &file.subject {
        let prefix = &subject.prefix;
        if !prefix.is_empty() && (!prefix.starts_with('/') || prefix.ends_with('/')) {
            return Err(format!(
                "subject `{}`: the prefix `{prefix}` has to start with `/` and to end without one",
                subject.name
            ));
        }
    }
    let blocks = adjustments.blocks.unwrap_or(file.design.blocks);
    within("blocks", blocks, BLOCKS_MAX)?;
    for case in &file.case {
        let load = &case.load;
        let named = |what: String| format!("case `{}`: {what}", case.name);
        within("connections", load.connections, MAX_CONNECTIONS).map_err(named)?;
        within("threads", load.threads, MAX_THREADS.min(load.connections as usize))
            .map_err(named)?;
        let longest = load.duration.0.max(load.warmup.0).max(load.timeout.0);
        if load.duration.0 < SHORTEST_DURATION || longest > LONGEST_DURATION {
            return Err(named(format!(
                "a duration has to be between {} and {}",
                humantime::format_duration(SHORTEST_DURATION),
                humantime::format_duration(LONGEST_DURATION)
            )));
        }
    }
    if let Some(cpus) = &file.cpus
        && [&cpus.generator, &cpus.origin, &cpus.system].iter().any(|role| role.is_empty())
    {
        return Err("[cpus]: every role needs at least one CPU".to_owned());
    }
    Ok(())
}

fn resolve_case(catalog: &Catalog, file: &CaseFile, quick: bool) -> Result<Case, PartError> {
    let mut load = file.load;
    if quick {
        load.duration.0 = (load.duration.0 / QUICK_DIVISOR).max(SHORTEST_DURATION);
        load.warmup.0 = (load.warmup.0 / QUICK_DIVISOR).max(SHORTEST_WARMUP);
    }
    Ok(Case { name: file.name.clone(), mix: catalog.mix(&file.mix)?, load })
}

fn resolve_subject(catalog: &Catalog, file: &SubjectFile) -> Result<Subject, PartError> {
    let recipe = catalog.recipe(&file.system)?;
    Ok(Subject {
        name: file.name.clone(),
        options: options::choose(&recipe.name, &recipe.file.option, &file.with)?,
        recipe,
        prefix: file.prefix.clone(),
        about: file.about.clone(),
    })
}

fn keeps(only: &[String], name: &String, baseline: &str) -> bool {
    only.is_empty() || name == baseline || only.contains(name)
}

fn unique(kind: &str, names: &[&str]) -> Result<(), String> {
    for (index, name) in names.iter().enumerate() {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
            return Err(format!(
                "the {kind} name `{name}` has to be letters, digits, `-`, `_` and `.`; folders are named after it"
            ));
        }
        if names[..index].contains(name) {
            return Err(format!("two {kind}s are named `{name}`; rename one"));
        }
    }
    Ok(())
}

fn within(what: &str, value: u32, high: usize) -> Result<(), String> {
    if (1..=high).contains(&(value as usize)) {
        return Ok(());
    }
    Err(format!("{what} = {value}: it has to be between 1 and {high}"))
}

fn one_second() -> Span {
    Span(Duration::from_secs(1))
}

fn ten_seconds() -> Span {
    Span(Duration::from_secs(10))
}

fn yes() -> bool {
    true
}

fn one() -> u32 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::catalog::Kind;
    use std::fs;

    #[test]
    fn every_experiment_in_the_binary_loads() {
        let catalog = Catalog::new(vec![]);
        for name in catalog.names(Kind::Experiment) {
            Experiment::load(&catalog, &name, &Adjustments::default()).unwrap();
        }
    }

    #[test]
    fn quick_cuts_durations_and_only_keeps_the_baseline() {
        let adjustments =
            Adjustments { quick: true, blocks: Some(3), only: vec!["full".to_owned()] };
        let experiment =
            Experiment::load(&Catalog::new(vec![]), "modsecurity", &adjustments).unwrap();
        let names: Vec<&str> = experiment.subjects.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["off", "full"]);
        assert_eq!(experiment.baseline, 0);
        assert_eq!(experiment.blocks, 3);
        assert_eq!(experiment.cases[0].load.duration.0, Duration::from_secs(2));
    }

    fn error_of(change: impl Fn(&str) -> String) -> String {
        let text = Catalog::new(vec![]).experiment("first-look").unwrap().text;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        fs::write(&path, change(&text)).unwrap();
        let path = path.to_str().unwrap();
        let error =
            Experiment::load(&Catalog::new(vec![]), path, &Adjustments::default()).unwrap_err();
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(source) = cause {
            text += &format!(": {source}");
            cause = source.source();
        }
        text.replace(path, "mine.toml")
    }

    #[test]
    fn what_cannot_be_is_named() {
        assert_eq!(
            error_of(|text| text.replace("baseline = \"nginx\"", "baseline = \"ngin\"")),
            "mine.toml: no subject is named `ngin`; did you mean `nginx`?"
        );
        assert_eq!(
            error_of(|text| text.replace("connections = 50", "connections = 0")),
            "mine.toml: case `browse`: connections = 0: it has to be between 1 and 20000"
        );
        assert_eq!(
            error_of(|text| text.replace("rules = \"crs\"", "rulez = \"crs\"")),
            "mine.toml: subject `full`: system `nginx-modsecurity` has no option `rulez`; did you mean `rules`?"
        );
        assert_eq!(
            error_of(|text| text.replace("name   = \"light\"", "name   = \"../light\"")),
            "mine.toml: the subject name `../light` has to be letters, digits, `-`, `_` and `.`; folders are named after it"
        );
        assert!(
            error_of(|text| text.replace("2.4s", "soon"))
                .starts_with("mine.toml:9:39: `soon` is not a duration"),
        );
    }
}
