//! An experiment: which subjects get which load, how often, and against which baseline.

mod check;
mod design;
mod file;
mod matrix;
#[cfg(test)]
mod tests;
mod warm_up;
mod window;

pub use file::{
    CaseFile, CpusFile, DesignFile, ExperimentFile, LoadFile, RateOfFile, SpacingFile, SubjectFile,
};
pub use matrix::Axis;
pub use warm_up::WarmUp;
pub use window::Window;

use super::catalog::{Catalog, CatalogError};
use super::duration::Span;
use super::options::{self, OptionError, Options};
use super::percent::Percent;
use super::recipe::Recipe;
use super::toml_file::{self, Source, Step, TomlError, suggestion};
use crate::ablation::Ablation;
use crate::plan::stop::Stop;
use crate::validity::Limits;
use check::{Flaw, check};
use std::path::Path;
use thiserror::Error;
use tollgate_traffic::{Mix, MixError};

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
    /// Whether it also tells how many bytes a second went to and fro.
    pub bytes: bool,
    /// Whether it also tells what each subject adds to the latency.
    pub latency: bool,
    /// The subject that the others are priced against: an index into `subjects`.
    pub baseline: usize,
    /// The name of the subject that takes its place where it is not on the machine.
    pub baseline_fallback: Option<String>,
    /// The workloads.
    pub cases: Vec<Case>,
    /// The configured systems.
    pub subjects: Vec<Subject>,
    /// The baseline a second time, where the experiment asks for it: an index into `subjects`.
    pub aa_subject: Option<usize>,
    /// What ends a run of it.
    pub stop: Stop,
    /// What is too small to matter, as a share.
    pub margin: f64,
    /// How much the machine may disturb a trial that counts.
    pub limits: Limits,
    /// Which CPUs each role runs on, where the experiment says.
    pub cpus: Option<CpusFile>,
    /// Which subjects are one subject without some of its rules, where it was taken apart.
    pub ablation: Option<Ablation>,
}

/// One workload.
#[derive(Debug, Clone)]
pub struct Case {
    /// A short name, unique in the experiment.
    pub name: String,
    /// What is sent.
    pub mix: Mix,
    /// The mix's file, as it was read.
    pub mix_source: Source,
    /// The files of the mixes that it includes.
    pub mix_included: Vec<Source>,
    /// How many origins stand behind each system, which has to spread the requests evenly over them.
    pub origins: u16,
    /// The shape of the load.
    pub load: LoadFile,
    /// Which subjects it is for: indices into the experiment's, in their order, the baseline's among them.
    pub subjects: Vec<usize>,
    /// What the rate follows from, where the load does not give it.
    pub rate_of: Option<RateOfFile>,
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
    /// Whether a part of the rules that its recipe speaks for was taken away. Then it may block every
    /// attack or let it through.
    pub lacks_rules: bool,
    /// Whether its records tell what was blocked in the probe.
    pub tells_probe: bool,
}

/// What the command line changes about an experiment.
#[derive(Debug, Clone, Default)]
pub struct Adjustments {
    /// Durations are cut so that the run ends in about a fifth of its time.
    pub quick: bool,
    /// Another number of blocks.
    pub blocks: Option<u32>,
    /// Another precision.
    pub width: Option<Percent>,
    /// Another time for all trials together.
    pub budget: Option<Span>,
    /// Another share that is too small to matter.
    pub margin: Option<Percent>,
    /// The baseline runs a second time in each block.
    pub aa: bool,
    /// Another baseline.
    pub baseline: Option<String>,
    /// Only these subjects, and the baseline, which every price needs.
    pub only: Vec<String>,
    /// Options whose values are to be run one beside the other.
    pub matrix: Vec<Axis>,
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
    /// What the command line changes about it cannot be.
    #[error("{0}")]
    Adjustment(String),
    /// A part of it cannot be.
    #[error("{place}")]
    Part {
        /// File, line and column of the part.
        place: String,
        /// Why it cannot be.
        source: Box<PartError>,
    },
}

/// What is wrong with a part of an experiment.
#[derive(Debug, Error)]
pub enum PartError {
    /// A value is not one that it may have.
    #[error("{0}")]
    Value(String),
    /// The file that it names cannot be had.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The option that it chose cannot be.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// What it wants of the mix is not there.
    #[error(transparent)]
    Mix(#[from] MixError),
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
        let mut file: ExperimentFile = toml_file::parse(&source)?;
        let at = |path: &[Step], error: PartError| ExperimentError::Part {
            place: toml_file::place(&source, path),
            source: Box::new(error),
        };
        check(&file).map_err(|Flaw { path, what }| at(&path, PartError::Value(what)))?;
        adjustments.check(&file)?;
        if let Some(baseline) = &adjustments.baseline {
            file.baseline.clone_from(baseline);
        }

        let names: Vec<&str> = file.subject.iter().map(|s| s.name.as_str()).collect();
        let mut subjects: Vec<Subject> = Vec::new();
        // The subject of the file that each was made from.
        let mut made_from: Vec<&str> = Vec::new();
        let mut used: Vec<&Axis> = Vec::new();
        for (index, subject) in file.subject.iter().enumerate() {
            if !adjustments.keeps(&subject.name, &file.baseline) {
                continue;
            }
            let part = |key: &str| ["subject".into(), index.into(), key.into()];
            let recipe = catalog
                .recipe(&subject.system)
                .map_err(|error| at(&part("system"), error.into()))?;
            let options = options::choose(&recipe.name, &recipe.file.option, &subject.with)
                .map_err(|error| {
                    let path = [part("with").as_slice(), &[error.option().into()]].concat();
                    at(&path, error.into())
                })?;
            let one = Subject {
                name: subject.name.clone(),
                recipe,
                options,
                prefix: subject.prefix.clone(),
                about: subject.about.clone(),
                lacks_rules: false,
                tells_probe: false,
            };
            let axes =
                matrix::of_subject(&adjustments.matrix, &names, subject, &one.recipe.file.option);
            subjects.extend(variants(&one, &axes, subject, subject.name == file.baseline)?);
            made_from.resize(subjects.len(), subject.name.as_str());
            used.extend(axes);
        }
        matrix::check_use(&adjustments.matrix, &names, &used)
            .and_then(|()| matrix::unique("subject", subjects.iter().map(|s| s.name.as_str())))
            .map_err(ExperimentError::Adjustment)?;
        let mut cases = Vec::new();
        for (index, case) in file.case.iter().enumerate() {
            // A mix that a file names by path lies beside that file.
            let folder = Path::new(&source.name).parent().unwrap_or(Path::new(""));
            let part = |key: &str| ["case".into(), index.into(), key.into()];
            let (mut mix, mut sources) =
                catalog.mix(&case.mix, folder).map_err(|error| at(&part("mix"), error.into()))?;
            let mix_included = sources.split_off(1);
            let mix_source = sources.remove(0);
            if !adjustments.keeps_case(case, &file) {
                continue;
            }
            if !case.only.is_empty() {
                mix = mix.only(&case.only).map_err(|error| at(&part("only"), error.into()))?;
            }
            let all = (0..).zip(&made_from);
            let is_for = |name: &str| case.is_for(name, &file.baseline);
            let of_case: Vec<usize> =
                all.filter(|(_, name)| is_for(name)).map(|(at, _)| at).collect();
            if case.origins > 1 {
                spread_origins(&subjects, &of_case)
                    .map_err(|what| at(&part("origins"), PartError::Value(what)))?;
            }
            let one = Case {
                name: case.name.clone(),
                mix,
                mix_source,
                mix_included,
                origins: case.origins,
                load: case.load,
                subjects: of_case,
                rate_of: case.rate_of.clone(),
            };
            let variants = matrix::cases(&adjustments.matrix, &names, case, &file.case)
                .map_err(ExperimentError::Adjustment)?;
            cases.extend(variants.into_iter().map(|CaseFile { name, load, .. }| {
                let load = if adjustments.quick { load.quick() } else { load };
                Case { name, load, ..one.clone() }
            }));
        }
        matrix::unique("case", cases.iter().map(|case| case.name.as_str()))
            .map_err(ExperimentError::Adjustment)?;
        let is_baseline = |subject: &Subject| subject.name == file.baseline;
        let baseline = subjects.iter().position(is_baseline).ok_or_else(|| {
            at(&["baseline".into()], PartError::Value("it is not a subject".to_owned()))
        })?;
        let design = design::adjusted(&file.design, adjustments);
        let aa_subject = design.aa.then(|| design::add_aa_subject(&mut subjects, baseline));
        for case in &mut cases {
            case.subjects.extend(aa_subject);
        }
        let stem = Path::new(name).file_stem();
        Ok(Self {
            name: stem.map_or(name.to_owned(), |stem| stem.to_string_lossy().into_owned()),
            title: file.title,
            summary: file.summary,
            bytes: file.bytes,
            latency: file.latency,
            baseline,
            baseline_fallback: file.baseline_fallback,
            cases,
            subjects,
            aa_subject,
            stop: design::stop(&design),
            limits: file.limits,
            margin: design.margin.map_or(design::MARGIN, |margin| margin.0),
            cpus: file.cpus,
            ablation: None,
            source,
        })
    }

    /// The same with other subjects, of which the first is the baseline.
    pub fn ablated(mut self, title: String, subjects: Vec<Subject>, ablation: Ablation) -> Self {
        self.title = title;
        let is_whole = |at: &usize| self.subjects[*at].name == ablation.subject;
        let kept: Vec<bool> =
            self.cases.iter().map(|case| case.subjects.iter().any(is_whole)).collect();
        let rates = (0..).zip(&self.cases).filter(|(at, _): &(usize, _)| kept[*at]);
        let rates: Vec<RateOfFile> = rates.filter_map(|(_, case)| case.rate_of.clone()).collect();
        let mut kept = kept.into_iter();
        // The cases that the subject has, and those that their rates follow from.
        self.cases.retain(|case| {
            kept.next().unwrap_or(false) || rates.iter().any(|rate| rate.case == case.name)
        });
        self.subjects = subjects;
        self.baseline = 0;
        self.aa_subject = self.aa_subject.map(|_| design::add_aa_subject(&mut self.subjects, 0));
        for case in &mut self.cases {
            case.subjects = (0..self.subjects.len()).collect();
        }
        self.ablation = Some(ablation);
        self
    }
}

/// A subject with every combination of the values of its axes, in place of itself. The baseline stays
/// beside them, because every price needs it; a combination that is the baseline is left out.
fn variants(
    one: &Subject,
    axes: &[&Axis],
    file: &SubjectFile,
    is_baseline: bool,
) -> Result<Vec<Subject>, ExperimentError> {
    if axes.is_empty() {
        return Ok(vec![one.clone()]);
    }
    let asked = ExperimentError::Adjustment;
    let mut all = if is_baseline { vec![one.clone()] } else { Vec::new() };
    for SubjectFile { name, with, about, .. } in matrix::subjects(axes, file).map_err(asked)? {
        let options = options::choose(&one.recipe.name, &one.recipe.file.option, &with)
            .map_err(|error| asked(format!("--matrix, for {name}: {error}")))?;
        if !(is_baseline && options == one.options) {
            all.push(Subject { name, options, about, ..one.clone() });
        }
    }
    Ok(all)
}

/// Checks that each subject of a case with several origins spreads requests over them.
fn spread_origins(subjects: &[Subject], of_case: &[usize]) -> Result<(), String> {
    let mut of_case = of_case.iter().map(|at| &subjects[*at]);
    match of_case.find(|subject| !subject.recipe.file.balances) {
        Some(Subject { name, recipe, .. }) => Err(format!(
            "subject `{name}` would send everything to the first one: the recipe of system `{}` does not \
             say `balances = true`; leave it out of the case's `subjects`, or take one origin",
            recipe.name
        )),
        None => Ok(()),
    }
}

impl Adjustments {
    fn check(&self, file: &ExperimentFile) -> Result<(), ExperimentError> {
        let names = || file.subject.iter().map(|subject| subject.name.as_str());
        let only = self.only.iter().map(|name| ("--only", name));
        for (flag, wanted) in only.chain(self.baseline.iter().map(|name| ("--baseline", name))) {
            if !names().any(|name| name == wanted) {
                let hint = suggestion(wanted, names());
                let what = format!("{flag} {wanted}: there is no such subject{hint}");
                return Err(ExperimentError::Adjustment(what));
            }
        }
        let subjects: Vec<&str> = names().collect();
        let cases: Vec<&str> = file.case.iter().map(|case| case.name.as_str()).collect();
        matrix::check_names(&self.matrix, &subjects, &cases)
            .and_then(|()| design::check(self))
            .map_err(ExperimentError::Adjustment)
    }

    /// A case is left out that has none of the subjects that were asked for, unless the rate of one that
    /// stays follows from it.
    fn keeps_case(&self, case: &CaseFile, file: &ExperimentFile) -> bool {
        let is_asked = |case: &CaseFile| {
            self.only.is_empty() || self.only.iter().any(|only| case.is_for(only, &file.baseline))
        };
        let follows = |other: &CaseFile| {
            other.rate_of.as_ref().is_some_and(|rate_of| rate_of.case == case.name)
        };
        is_asked(case) || file.case.iter().any(|other| is_asked(other) && follows(other))
    }

    fn keeps(&self, name: &str, baseline: &str) -> bool {
        self.only.is_empty() || name == baseline || self.only.iter().any(|only| only == name)
    }
}
