//! Loading of experiments, a pipeline: written, adjusted by the command line, matrix expanded, resolved.
//!
//! [`Experiment::ablated`] may follow, once the rule files are known.

use crate::adjust::Adjustments;
use crate::catalog::Catalog;
use crate::client;
use crate::corpus::Corpus;
use crate::experiment::{Case, Experiment, Subject, add_aa_subject};
use crate::external::External;
use crate::file::{ExperimentFile, SubjectFile};
use crate::matrix::{self, Recipes};
use crate::options;
use crate::toml_file::{self, NamedText, PathStep};
use crate::validate;
use std::path::Path;
use tollgate_records::error::{BadInput, bad_input, io_error};
use tollgate_traffic::load_shape::CaseProtocol;

/// An experiment as it is written, with the text for messages and records.
#[derive(Debug, Clone)]
pub struct WrittenExperiment {
    /// Name or file.
    pub name: String,
    pub file: ExperimentFile,
    pub source: NamedText,
}

impl WrittenExperiment {
    /// Finds an experiment by name or, if `name` ends in `.toml`, by path, and parses it.
    pub fn find(catalog: &Catalog, name: &str) -> anyhow::Result<Self> {
        Self::parse(name, catalog.experiment(name)?)
    }

    pub(crate) fn parse(name: &str, source: NamedText) -> anyhow::Result<Self> {
        Self::checked(name, toml_file::parse(&source)?, source)
    }

    /// Writes an experiment that has no file. `place` stands for its file in messages.
    pub fn new(name: &str, place: &str, file: ExperimentFile) -> anyhow::Result<Self> {
        let source = NamedText { name: place.to_owned(), text: file.to_toml()? };
        Self::checked(name, file, source)
    }

    /// Checks all values of a file. Names are resolved later.
    fn checked(name: &str, mut file: ExperimentFile, source: NamedText) -> anyhow::Result<Self> {
        for (index, case) in file.case.iter_mut().enumerate() {
            case.index = index;
        }
        for (index, subject) in file.subject.iter_mut().enumerate() {
            subject.index = index;
        }
        validate::check(&file).map_err(|flaw| part(&source, &flaw.path, BadInput(flaw.message)))?;
        Ok(Self { name: name.to_owned(), file, source })
    }
}

impl Experiment {
    /// Loads an experiment by name or, if `name` ends in `.toml`, by path.
    pub fn load(catalog: &Catalog, name: &str, adjustments: &Adjustments) -> anyhow::Result<Self> {
        Self::from_written(catalog, WrittenExperiment::find(catalog, name)?, adjustments)
    }

    pub fn from_written(
        catalog: &Catalog,
        written: WrittenExperiment,
        adjustments: &Adjustments,
    ) -> anyhow::Result<Self> {
        let WrittenExperiment { name, file, source } = written;
        let file = adjustments.apply(file).map_err(bad_input)?;
        let recipes = recipes(catalog, &file, &source)?;
        let file = with_absolute_paths(file, &recipes, &source)?;
        let file = matrix::expand(file, &adjustments.matrix, &recipes).map_err(bad_input)?;
        // After the matrix, which may change the connections.
        let file = if adjustments.quick { file.quick() } else { file };
        resolve(catalog, &name, file, &recipes, source, adjustments)
    }
}

/// Loads the recipes of all subjects, by system.
fn recipes(
    catalog: &Catalog,
    file: &ExperimentFile,
    source: &NamedText,
) -> anyhow::Result<Recipes> {
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
    source: &NamedText,
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
    source: NamedText,
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
        let client = subject.client;
        subjects.push(Subject { prefix, about, lacks_rules, external, client, ..chosen });
    }
    let baseline = subjects.iter().position(|subject| subject.name == file.baseline);
    #[expect(clippy::expect_used, reason = "validation checks it, and no later step removes it")]
    let baseline = baseline.expect("the baseline is a subject");
    let aa_subject = file.design.aa.then(|| add_aa_subject(&mut subjects, baseline));
    let mut cases = Vec::new();
    for case in &file.case {
        // A server that runs already answers for itself, and would not know the paths of the attacks.
        let has_external = subjects.iter().any(|subject| subject.external.is_some());
        let loaded = if has_external {
            catalog.mix(&case.mix, folder)
        } else {
            catalog.probed_mix(&case.mix, folder)
        };
        let (mut mix, mut sources) =
            loaded.map_err(|error| part(&source, &case.key("mix"), error))?;
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
        for client in case.clients(&file.subject, &file.baseline) {
            client::check_mix(client, &mix)
                .map_err(|message| part(&source, &case.key("mix"), BadInput(message)))?;
        }
        for subject in of_case.iter().map(|at| &subjects[*at]) {
            let client = subject.client.unwrap_or(case.load.client);
            client::check_server(client, subject, case.protocol)
                .map_err(|message| part(&source, &case.key("protocol"), BadInput(message)))?;
        }
        of_case.extend(aa_subject);
        let mix_included = sources.split_off(1);
        cases.push(Case {
            name: case.name.clone(),
            mix,
            mix_source: sources.remove(0),
            mix_included,
            origins: case.origins,
            load: case.shape().map_err(|(key, message)| {
                let key = [case.key("load"), vec![key.into()]].concat();
                part(&source, &key, BadInput(message))
            })?,
            subjects: of_case,
        });
    }
    let corpus = if adjustments.corpus.is_empty() {
        let paths: Vec<_> = file.corpus.iter().map(|path| folder.join(path)).collect();
        let corpus = Corpus::read(catalog, &paths);
        corpus.map_err(|error| part(&source, &["corpus".into()], error))?
    } else {
        Corpus::read(catalog, &adjustments.corpus)?
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
fn part(source: &NamedText, path: &[PathStep], error: impl Into<anyhow::Error>) -> anyhow::Error {
    error.into().context(BadInput(toml_file::place(source, path)))
}

fn check_protocol(
    subjects: &[Subject],
    of_case: &[usize],
    protocol: CaseProtocol,
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
                recipe.file.protocols.iter().map(CaseProtocol::to_string).collect();
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
