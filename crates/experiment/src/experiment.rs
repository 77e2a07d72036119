//! Experiments: subjects, cases and design, with valid values and resolved names.

use crate::corpus::Corpus;
use crate::external::External;
use crate::options::{self, OptionError};
use crate::recipe::{CONFIG_OPTION, Recipe};
use crate::toml_file::NamedText;
use std::time::Duration;
use tollgate_records::machine::CpuLayout;
use tollgate_records::manifest::Ablation;
use tollgate_records::stop::Stop;
use tollgate_records::subject::{OptionValue, Options};
use tollgate_records::validity::Limits;
use tollgate_stats::BLOCKS_MAX;
use tollgate_traffic::Mix;
use tollgate_traffic::load_shape::{LoadProgram, LoadShape, WarmUp, Window};

/// An experiment with valid values and resolved names.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// File name without folder and extension.
    pub name: String,
    pub source: NamedText,
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
    pub mix_source: NamedText,
    pub mix_included: Vec<NamedText>,
    /// Number of origins behind each system, which must balance the requests.
    pub origins: u16,
    pub load: LoadShape,
    /// Indices of its subjects, with the baseline, in ascending order.
    pub subjects: Vec<usize>,
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
    /// Program that sends the load, in place of that of the case.
    pub client: Option<LoadProgram>,
}

impl Case {
    /// Returns the load of a subject.
    pub fn load_of(&self, subject: &Subject) -> LoadShape {
        let program = subject.client.unwrap_or(self.load.program);
        LoadShape { program, ..self.load.clone() }
    }
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
            client: None,
        })
    }

    /// True if the user's own configuration replaces that of the recipe: what it blocks is not known.
    pub fn has_own_config(&self) -> bool {
        let option = self.recipe.file.config.as_ref().and(self.options.get(CONFIG_OPTION));
        matches!(option, Some(OptionValue::Text(path)) if path.starts_with('/'))
    }
}

/// Blocks that fit into a time: two more than an interval of ten needs, because trials may be disturbed.
const BLOCKS_TO_FIT: u32 = 12;
/// The warm-up is this part of a trial.
const WARMUP_PART: u32 = 6;
/// Approximate duration of a trial besides its load.
const START_AND_STOP: Duration = Duration::from_millis(150);
/// Minimum duration of the measurement of a trial.
const WINDOW_MIN: Duration = Duration::from_millis(150);

impl Experiment {
    /// Replaces the subjects by those of an ablation, the first of which is the baseline. Keeps the cases of the ablated
    /// subject, and those that their rates depend on.
    pub fn ablated(mut self, title: String, subjects: Vec<Subject>, ablation: Ablation) -> Self {
        let has_subject = |case: &Case| {
            case.subjects.iter().any(|at| self.subjects[*at].name == ablation.subject)
        };
        let kept = self.cases.iter().filter(|case| has_subject(case));
        let names = kept.flat_map(|case| {
            let rate_case = case.load.rate_of().map(|(case, _)| case.to_owned());
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

    /// True if no case has a foreign client.
    pub fn is_sent_by_tollgate(&self) -> bool {
        let is_own = |case: &Case, at: &usize| case.load_of(&self.subjects[*at]).program.is_own();
        self.cases.iter().all(|case| case.subjects.iter().all(|at| is_own(case, at)))
    }

    /// Adapts the experiment to a duration, with trials so short that a dozen blocks fit.
    pub fn fit_into(&mut self, time: Duration) {
        let most = u32::try_from(BLOCKS_MAX).unwrap_or(u32::MAX);
        self.stop =
            Stop { blocks: most, width: None, budget_s: Some(time.as_secs_f64()), extra_blocks: 0 };
        let subjects = u32::try_from(self.subjects.len()).unwrap_or(u32::MAX);
        let of_trial = time / BLOCKS_TO_FIT / subjects;
        for case in &mut self.cases {
            let warmup = (of_trial / WARMUP_PART).min(case.load.warm_up.longest());
            let window = of_trial.saturating_sub(warmup).saturating_sub(START_AND_STOP);
            case.load.warm_up = WarmUp::For(warmup);
            let window = window.max(WINDOW_MIN).min(case.load.window.longest());
            case.load.window = Window::For(window);
        }
    }
}

/// Suffix of the repeated baseline.
const AGAIN: &str = "-again";

/// Adds the repeated baseline and returns its index.
pub(crate) fn add_aa_subject(subjects: &mut Vec<Subject>, baseline: usize) -> usize {
    let mut twin = subjects[baseline].clone();
    while subjects.iter().any(|subject| subject.name == twin.name) {
        twin.name += AGAIN;
    }
    twin.about = format!("{} a second time: the noise of this machine", subjects[baseline].name);
    subjects.push(twin);
    subjects.len() - 1
}
