//! Experiments: subjects, cases and design, loaded from a file and adjusted by the command line.
//!
//! [`Experiment::load`] runs all steps of loading. [`Experiment::ablated`] may follow, once the rule files are known.

mod adjust;
mod corpus;
mod external;
mod file;
mod matrix;
mod side_by_side;
#[cfg(test)]
mod tests;
mod validate;

pub use adjust::Adjustments;
pub use corpus::{Corpus, CorpusRequest};
pub use external::{Attach, External, ExternalManifest};
pub use file::{LoadFile, Protocol, RateOfFile, SpacingFile, WarmUp, Window};
pub use matrix::Axis;
pub use side_by_side::SideBySide;

use crate::catalog::Catalog;
use crate::error::{BadInput, bad_input, io_error};
use crate::machine::CpuLayout;
use crate::options::{self, OptionError, Options};
use crate::recipe::Recipe;
use crate::stop::Stop;
use crate::toml_file::{self, Source, Step};
use crate::validity::Limits;
use file::{ExperimentFile, SubjectFile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use tollgate_traffic::Mix;

/// An experiment with valid values and resolved names.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// File name without folder and extension.
    pub name: String,
    pub source: Source,
    /// The question that it answers.
    pub title: String,
    /// True if the terminal report summarizes the trials of each subject.
    pub summary: bool,
    /// True if the terminal report shows bytes per second.
    pub bytes: bool,
    /// True if the terminal report shows the added latency of each subject.
    pub latency: bool,
    /// True if the report compares the requests that subjects block.
    pub catch: bool,
    /// Requests that each trial sends once, before the load.
    pub corpus: Corpus,
    /// Index into `subjects`.
    pub baseline: usize,
    /// Name of the subject that replaces the baseline if its system is not installed.
    pub baseline_fallback: Option<String>,
    pub cases: Vec<Case>,
    pub subjects: Vec<Subject>,
    /// The repeated baseline: an index into `subjects`.
    pub aa_subject: Option<usize>,
    pub stop: Stop,
    /// Smallest relevant difference, as a share.
    pub margin: f64,
    pub limits: Limits,
    pub cpus: Option<CpuLayout>,
    pub ablation: Option<Ablation>,
}

/// A workload.
#[derive(Debug, Clone)]
pub struct Case {
    /// Unique in the experiment.
    pub name: String,
    pub mix: Mix,
    pub mix_source: Source,
    pub mix_included: Vec<Source>,
    /// Number of origins behind each system, which must balance the requests.
    pub origins: u16,
    /// Protocol between the clients and each system.
    pub protocol: Protocol,
    pub load: LoadFile,
    /// Indices of its subjects, with the baseline, in ascending order.
    pub subjects: Vec<usize>,
    pub rate_of: Option<RateOfFile>,
}

/// A configured system, or a server that runs already.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Unique in the experiment.
    pub name: String,
    pub recipe: Recipe,
    /// All options of the recipe.
    pub options: Options,
    /// Prefix of every path of the mix.
    pub prefix: String,
    /// Description in a few words.
    pub about: String,
    /// True if any attack may pass: its rules are not known, or a part of them was removed.
    pub lacks_rules: bool,
    /// The server, if it is not started by the run.
    pub external: Option<External>,
}

/// Subjects that are one subject without some of its rule files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ablation {
    /// The subject with all rule files.
    pub subject: String,
    /// Name of the rule set.
    pub rule_set: String,
    /// Rule files in load order.
    pub files: Vec<AblatedFile>,
    /// The subject without all removable files, if there are several.
    pub without_all: Option<String>,
}

/// A rule file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AblatedFile {
    /// File name.
    pub file: String,
    /// The subject without this file; null if it is not removed.
    pub subject: Option<String>,
    /// Reason for which it cannot be removed, if other files depend on it.
    pub kept_reason: Option<String>,
    /// Number of exceptions to its rules that were removed from other files.
    pub exceptions: usize,
}

impl Subject {
    /// Returns a subject with these options, and the defaults of the others.
    pub fn new(name: &str, recipe: Recipe, chosen: &Options) -> Result<Self, OptionError> {
        Ok(Self {
            name: name.to_owned(),
            options: options::choose(&recipe.name, &recipe.file.option, chosen)?,
            recipe,
            prefix: String::new(),
            about: String::new(),
            lacks_rules: false,
            external: None,
        })
    }
}

impl Experiment {
    /// Loads an experiment by name or, if `name` ends in `.toml`, by path.
    pub fn load(catalog: &Catalog, name: &str, adjustments: &Adjustments) -> anyhow::Result<Self> {
        Self::from_source(catalog, name, catalog.experiment(name)?, adjustments)
    }

    pub fn from_source(
        catalog: &Catalog,
        name: &str,
        source: Source,
        adjustments: &Adjustments,
    ) -> anyhow::Result<Self> {
        let file = ExperimentFile::parse(&source)?;
        let file = adjustments.apply(file).map_err(bad_input)?;
        let recipes = recipes(catalog, &file, &source)?;
        let file = with_absolute_paths(file, &recipes, &source)?;
        let file = matrix::expand(file, &adjustments.matrix, &recipes).map_err(bad_input)?;
        // After the matrix, which may change the connections.
        let file = if adjustments.quick { file.quick() } else { file };
        resolve(catalog, name, file, &recipes, source, adjustments)
    }

    /// Replaces the subjects by those of an ablation, the first of which is the baseline. Keeps the cases of the ablated
    /// subject, and those that their rates depend on.
    pub fn ablated(mut self, title: String, subjects: Vec<Subject>, ablation: Ablation) -> Self {
        let has_subject = |case: &Case| {
            case.subjects.iter().any(|at| self.subjects[*at].name == ablation.subject)
        };
        let kept = self.cases.iter().filter(|case| has_subject(case));
        let names = kept.flat_map(|case| {
            let rate_case = case.rate_of.as_ref().map(|rate| rate.case.clone());
            [Some(case.name.clone()), rate_case].into_iter().flatten()
        });
        let names: Vec<String> = names.collect();
        self.cases.retain(|case| names.contains(&case.name));
        self.title = title;
        self.subjects = subjects;
        self.baseline = 0;
        self.aa_subject = self.aa_subject.map(|_| add_aa_subject(&mut self.subjects, 0));
        for case in &mut self.cases {
            case.subjects = (0..self.subjects.len()).collect();
        }
        self.ablation = Some(ablation);
        self
    }
}

type Recipes = BTreeMap<String, Recipe>;

/// Loads the recipes of all subjects, by system.
fn recipes(catalog: &Catalog, file: &ExperimentFile, source: &Source) -> anyhow::Result<Recipes> {
    let mut recipes = Recipes::new();
    for subject in &file.subject {
        // It would be taken for a system of that name.
        if let Some(url) = subject.url.as_ref().filter(|url| !url.contains("://")) {
            let error =
                anyhow::anyhow!("`{url}` has no scheme; write http://{url} or https://{url}");
            return Err(part(source, &subject.key("url"), error));
        }
        let recipe = match External::of(subject, Path::new(""), &[]) {
            Some(external) => external.recipe(subject.blocked_status),
            None => {
                let recipe = catalog.recipe(subject.system());
                recipe.map_err(|error| part(source, &subject.key("system"), error))?
            }
        };
        recipes.insert(subject.system().to_owned(), recipe);
    }
    Ok(recipes)
}

/// Makes the paths in options absolute, which are relative to the file of the experiment.
fn with_absolute_paths(
    mut file: ExperimentFile,
    recipes: &Recipes,
    source: &Source,
) -> anyhow::Result<ExperimentFile> {
    let folder = Path::new(&source.name).parent().unwrap_or(Path::new(""));
    for subject in &mut file.subject {
        let offered = &recipes[subject.system()].file.option;
        let absolute = options::make_absolute(offered, &mut subject.with, folder);
        absolute.map_err(io_error("resolve the paths of", folder))?;
    }
    Ok(file)
}

/// Resolves the names in a file: systems, options, mixes, and the subjects of each case.
fn resolve(
    catalog: &Catalog,
    name: &str,
    file: ExperimentFile,
    recipes: &Recipes,
    source: Source,
    adjustments: &Adjustments,
) -> anyhow::Result<Experiment> {
    // Paths in the file are relative to its folder.
    let folder = Path::new(&source.name).parent().unwrap_or(Path::new(""));
    let mut subjects = Vec::new();
    for subject in &file.subject {
        let external = External::of(subject, folder, &adjustments.allow_hosts);
        let recipe = match &external {
            // Two subjects with one URL may differ in the status.
            Some(external) => external.recipe(subject.blocked_status),
            None => recipes[subject.system()].clone(),
        };
        let chosen = Subject::new(&subject.name, recipe, &subject.with);
        let chosen = chosen.map_err(|error| match subject.variant_of {
            Some(_) => bad_input(format!("--matrix, for {}: {error}", subject.name)),
            None => {
                let key = [subject.key("with"), vec![error.option.as_str().into()]].concat();
                part(&source, &key, error)
            }
        })?;
        let (prefix, about) = (subject.prefix.clone(), subject.about.clone());
        let lacks_rules = external.is_some();
        subjects.push(Subject { prefix, about, lacks_rules, external, ..chosen });
    }
    let baseline = subjects.iter().position(|subject| subject.name == file.baseline);
    #[expect(clippy::expect_used, reason = "validation checks it, and no later step removes it")]
    let baseline = baseline.expect("the baseline is a subject");
    let aa_subject = file.design.aa.then(|| add_aa_subject(&mut subjects, baseline));
    let mut cases = Vec::new();
    for case in &file.case {
        let (mut mix, mut sources) = catalog
            .mix(&case.mix, folder)
            .map_err(|error| part(&source, &case.key("mix"), error))?;
        if !case.only.is_empty() {
            let only = mix.only(&case.only);
            mix = only.map_err(|error| part(&source, &case.key("only"), error))?;
        }
        let of_case = |subject: &SubjectFile| case.is_for(subject.file_name(), &file.baseline);
        let of_case = (0..).zip(&file.subject).filter(|(_, subject)| of_case(subject));
        let mut of_case: Vec<usize> = of_case.map(|(at, _)| at).collect();
        if case.origins > 1 {
            check_balancing(&subjects, &of_case)
                .map_err(|message| part(&source, &case.key("origins"), BadInput(message)))?;
        }
        check_protocol(&subjects, &of_case, case.protocol)
            .map_err(|message| part(&source, &case.key("protocol"), BadInput(message)))?;
        of_case.extend(aa_subject);
        let mix_included = sources.split_off(1);
        cases.push(Case {
            name: case.name.clone(),
            mix,
            mix_source: sources.remove(0),
            mix_included,
            origins: case.origins,
            protocol: case.protocol,
            load: case.load,
            subjects: of_case,
            rate_of: case.rate_of.clone(),
        });
    }
    let corpus = match adjustments.corpus.is_empty() {
        false => Corpus::read(catalog, &adjustments.corpus)?,
        true => {
            let paths: Vec<_> = file.corpus.iter().map(|path| folder.join(path)).collect();
            let corpus = Corpus::read(catalog, &paths);
            corpus.map_err(|error| part(&source, &["corpus".into()], error))?
        }
    };
    let stem = Path::new(name).file_stem();
    Ok(Experiment {
        name: stem.map_or(name.to_owned(), |stem| stem.to_string_lossy().into_owned()),
        stop: file.design.stop(),
        margin: file.design.margin(),
        title: file.title,
        summary: file.summary,
        bytes: file.bytes,
        latency: file.latency,
        catch: file.catch || !corpus.is_empty(),
        corpus,
        baseline,
        baseline_fallback: file.baseline_fallback,
        cases,
        subjects,
        aa_subject,
        limits: file.limits,
        cpus: file.cpus,
        ablation: None,
        source,
    })
}

/// Adds a place in the file to an error, as a message or as its cause.
fn part(source: &Source, path: &[Step], error: impl Into<anyhow::Error>) -> anyhow::Error {
    error.into().context(BadInput(toml_file::place(source, path)))
}

/// Suffix of the repeated baseline.
const AGAIN: &str = "-again";

/// Adds the repeated baseline and returns its index.
fn add_aa_subject(subjects: &mut Vec<Subject>, baseline: usize) -> usize {
    let mut twin = subjects[baseline].clone();
    while subjects.iter().any(|subject| subject.name == twin.name) {
        twin.name += AGAIN;
    }
    twin.about = format!("{} a second time: the noise of this machine", subjects[baseline].name);
    subjects.push(twin);
    subjects.len() - 1
}

fn check_protocol(
    subjects: &[Subject],
    of_case: &[usize],
    protocol: Protocol,
) -> Result<(), String> {
    let mut of_case = of_case.iter().map(|at| &subjects[*at]);
    match of_case.find(|subject| !subject.recipe.file.protocols.contains(&protocol)) {
        Some(Subject { name, external: Some(external), .. }) => Err(format!(
            "subject `{name}` has the URL {}, which does not go with `{protocol}`; change the `protocol` of the case \
             ({}), or remove the subject from its `subjects`",
            external.server.url,
            if external.server.is_tls { "https or https-h2" } else { "h1 or h2" }
        )),
        Some(Subject { name, recipe, .. }) => {
            let offered: Vec<String> =
                recipe.file.protocols.iter().map(Protocol::to_string).collect();
            Err(format!(
                "the recipe of system `{}` does not offer `{protocol}`, only {}; remove subject `{name}` from the `subjects` of the \
                 case, or add the protocol to `protocols` of the recipe and to its configuration",
                recipe.name,
                offered.join(", ")
            ))
        }
        None => Ok(()),
    }
}

fn check_balancing(subjects: &[Subject], of_case: &[usize]) -> Result<(), String> {
    let mut of_case = of_case.iter().map(|at| &subjects[*at]);
    match of_case.find(|subject| !subject.recipe.file.balances) {
        Some(Subject { name, recipe, .. }) => Err(format!(
            "subject `{name}` would send all requests to the first origin, because the recipe of system `{}` does not \
             have `balances = true`; remove it from the `subjects` of the case, or use one origin",
            recipe.name
        )),
        None => Ok(()),
    }
}
