//! A recipe: how one kind of server is found, configured, started and expected to behave.
//!
//! A recipe is a folder `systems/NAME/` with `system.toml` and the config templates that it names.
//! Texts marked "expression" are minijinja expressions, and texts in commands and configs are
//! minijinja templates, over the same names: the options, `prefix`, `programs`, `builds`, `found`,
//! `dir`, `listen`, `ports`, `origin`, `origins`, `connections`, `root` and `user`. Expressions, and the templates
//! in `need` and `version`, are asked before there is a trial: they know the options and `prefix`, and
//! the templates also what was found so far.

use super::duration::Span;
use super::options::OptionSpec;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What `system.toml` says.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecipeFile {
    /// What the system is, in one line.
    pub title: String,
    /// The Debian packages that bring it.
    #[serde(default)]
    pub apt: Vec<String>,
    /// What has to be on the machine.
    #[serde(default)]
    pub need: Vec<Need>,
    /// Templates: the commands that print the versions of its parts, each on its first line.
    #[serde(default)]
    pub version: Vec<Vec<String>>,
    /// What a subject may set.
    #[serde(default)]
    pub option: BTreeMap<String, OptionSpec>,
    /// Another system whose options a subject may set too, because its templates are extended; an option
    /// of the same name here comes before.
    pub options_from: Option<String>,
    /// Whether an origin stands behind it. A system that answers by itself has none.
    #[serde(default = "yes")]
    pub origin: bool,
    /// Whether it spreads requests evenly over all of `origins`; only such a system can be in a case that
    /// has several. `origin` is the first of them.
    #[serde(default)]
    pub balances: bool,
    /// Names of ports that it needs besides the one that it is measured on; `ports.NAME` is where.
    #[serde(default)]
    pub ports: Vec<String>,
    /// The config templates, files of the recipe's folder or below it, each rendered into `dir`.
    #[serde(default)]
    pub templates: Vec<String>,
    /// Files of the recipe's folder that are copied into `dir` as they are.
    #[serde(default)]
    pub files: Vec<String>,
    /// Files from elsewhere in the catalog that are copied below `dir` as they are.
    #[serde(default)]
    pub copy: Vec<Copied>,
    /// What runs and ends, one after the other, before the processes are started.
    #[serde(default)]
    pub prepare: Vec<Preparation>,
    /// The processes, started in this order; none for a system that is only the origin itself.
    #[serde(default)]
    pub process: Vec<ProcessSpec>,
    /// How to tell that it answers.
    #[serde(default)]
    pub ready: Ready,
    /// What it blocks; nothing, where this is left out.
    pub blocks: Option<Blocks>,
    /// What it finds in requests without blocking them, and where that shows.
    #[serde(default)]
    pub detection_log: Vec<DetectionLog>,
    /// The rule set that its subjects share with those of other systems; none, where this is left out.
    pub rule_set: Option<RuleSet>,
}

/// One thing that has to be on the machine: a program, a build or a file.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Need {
    /// Expression: needed only when this holds.
    pub when: Option<String>,
    /// A program, looked for on the PATH and in the system's sbin folders; `tollgate` is the one that
    /// is running.
    pub program: Option<String>,
    /// What `tollgate systems build` makes from the folder `builds/NAME/`.
    pub build: Option<String>,
    /// Template: a file, or a pattern with `*` of which the first match counts; of several patterns, the
    /// first that matches.
    pub file: Option<Patterns>,
    /// The name by which templates know the file: `found.NAME`.
    pub name: Option<String>,
    /// A text that the file has to hold.
    pub contains: Option<String>,
    /// What to do when it is missing, where the recipe's packages do not help.
    pub hint: Option<String>,
}

/// Files of the catalog that a system is given.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Copied {
    /// A folder of the catalog and a pattern for the files in it: `mixes/vpatch/*.yaml`.
    pub from: String,
    /// The folder below `dir` that they are copied into.
    pub to: String,
    /// Expression: copied only when this holds.
    pub when: Option<String>,
}

/// A command that runs in `dir` before the processes are started, and has to succeed.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Preparation {
    /// Templates: the program and its arguments.
    pub command: Vec<String>,
    /// Expression: run only when this holds.
    pub when: Option<String>,
}

/// One pattern, or several.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Patterns {
    /// The only one.
    One(String),
    /// The first that matches counts.
    Several(Vec<String>),
}

/// One process of a system.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessSpec {
    /// What the process is called in messages, and what its log file is named after.
    pub name: String,
    /// Templates: the program and its arguments. It has to stay in the foreground.
    pub command: Vec<String>,
    /// Expression: started only when this holds.
    pub when: Option<String>,
    /// Templates: what its environment has besides.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// One of `ports`: the next process is started once this one listens there.
    pub listens: Option<String>,
}

/// How to tell that a system is ready: a harmless request gets the answer that it is owed.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Ready {
    /// How long it may take.
    pub timeout: Span,
}

/// What a system does with an attack.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Blocks {
    /// The status code that it answers a blocked request with.
    pub status: u16,
    /// Expression: whether it blocks attacks under the options that were chosen.
    pub when: String,
    /// Expression: a list of the families of attacks that it is sure to block under those options; of
    /// the others it may block or let through each. Left out, or `none`: every attack that the mix does
    /// not leave open.
    pub families: Option<String>,
    /// Expression: whether it may block harmless requests besides those that the mix leaves open, under
    /// those options. Then such a block is counted, and does not refuse the subject. Left out: it may not.
    pub benign: Option<String>,
}

/// Attacks that a system finds without blocking them, so that no answer shows whether it does: it counts them,
/// on a page in the text format of Prometheus. Before the probe it is sent some that it is sure to find, and is
/// refused where it has not counted as many.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DetectionLog {
    /// Who finds them, in words: the subject of the sentence that says that they were not found.
    pub detector: String,
    /// Expression: whether it looks for attacks under the options that were chosen.
    pub when: String,
    /// The attacks, whatever the mix has: paths, with their queries, that a GET is sent for.
    pub attacks: Vec<String>,
    /// One of `ports`: where the page is asked for.
    pub port: String,
    /// The page's path.
    pub path: String,
    /// The name of the counter; its samples are added up.
    pub counter: String,
    /// What labels a sample has to have to be added, with the value of each.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// A rule set that other systems may use too.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleSet {
    /// Its name: subjects with a rule set of one name are expected to have the same.
    pub name: String,
    /// Expression: whether the subject uses it under the options that were chosen.
    pub when: String,
    /// Template: the folder with its files.
    pub folder: String,
    /// Templates: the files of it that are loaded, in that order, as patterns from the folder on; those
    /// that rules read by themselves come last. What else lies there makes no other rule set. Left out:
    /// all files of the folder.
    pub files: Option<Vec<String>>,
    /// The option that takes another folder with such files, where there is one: then the rule set can
    /// be run without each of its files in turn.
    pub option: Option<String>,
    /// How to make such a folder where `folder` has no `crs-setup.conf` beside its rules, as in a package that
    /// keeps it elsewhere.
    pub hint: Option<String>,
}

/// A recipe with its templates.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// The folder's name.
    pub name: String,
    /// Where it was found: a folder, or inside the binary.
    pub found_in: String,
    /// What `system.toml` says.
    pub file: RecipeFile,
}

impl RecipeFile {
    /// The builds that it may need, under whatever options.
    pub fn builds(&self) -> BTreeSet<&str> {
        self.need.iter().filter_map(|need| need.build.as_deref()).collect()
    }
}

impl Patterns {
    /// All of them, in their order.
    pub fn as_slice(&self) -> &[String] {
        match self {
            Self::One(pattern) => std::slice::from_ref(pattern),
            Self::Several(patterns) => patterns,
        }
    }
}

fn yes() -> bool {
    true
}

impl Default for Ready {
    fn default() -> Self {
        Self { timeout: Span(Duration::from_secs(20)) }
    }
}
