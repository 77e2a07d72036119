//! Recipes of systems, builds that they need, and systems found on this machine.
//!
//! A recipe is a folder `systems/NAME/` with `system.toml` and the configuration templates that it names.
//! Fields marked "Expression" are minijinja expressions, and texts in commands and configuration files are minijinja
//! templates, over the same variables: the options, `prefix`, `programs`, `builds`, `found`, `dir`, `listen`, `ports`,
//! `origin`, `origins`, `connections`, `protocol`, `certificate`, `root` and `user`. Expressions, and the templates in `need` and `version`, are
//! evaluated before there is a trial: expressions have the options and `prefix`, these templates also the parts found
//! so far.

use crate::options::OptionSpec;
use crate::toml_file::NamedText;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tollgate_records::subject::{OptionValue, Options};
use tollgate_traffic::load_shape::CaseProtocol;
use tollgate_traffic::units::Span;

/// Contents of `system.toml`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecipeFile {
    /// Description in one line.
    pub title: String,
    /// Debian packages of the system.
    #[serde(default)]
    pub apt: Vec<String>,
    /// Parts that must be installed.
    #[serde(default)]
    pub need: Vec<Need>,
    /// Templates: commands that print the versions of the parts, each on its first line.
    #[serde(default)]
    pub version: Vec<Vec<String>>,
    /// Options of subjects.
    #[serde(default)]
    pub option: BTreeMap<String, OptionSpec>,
    /// Another system whose options are available too, because its templates are extended. Own options take
    /// precedence.
    pub options_from: Option<String>,
    /// False for a system that serves responses itself, without an origin.
    #[serde(default = "yes")]
    pub origin: bool,
    /// True if the system balances requests over all `origins`. Required for cases with several; `origin` is the first
    /// of them.
    #[serde(default)]
    pub balances: bool,
    /// Protocols that the system offers to clients, one in each trial: `protocol` in templates. Over TLS, `certificate` is the
    /// path of a PEM file with a self-signed certificate and its key.
    #[serde(default = "plain_http1")]
    pub protocols: Vec<CaseProtocol>,
    /// Names of further ports; templates get the addresses as `ports.NAME`.
    #[serde(default)]
    pub ports: Vec<String>,
    /// Configuration templates: paths in the folder of the recipe, each rendered into `dir`.
    #[serde(default)]
    pub templates: Vec<String>,
    /// Adds the option `config`: a user's own file in place of a template.
    pub config: Option<OwnConfig>,
    /// Files of the recipe that are copied into `dir` unchanged.
    #[serde(default)]
    pub files: Vec<String>,
    /// Files from other folders of the catalog that are copied below `dir` unchanged.
    #[serde(default)]
    pub copy: Vec<Copied>,
    /// Commands that run one after another before the processes start.
    #[serde(default)]
    pub prepare: Vec<Preparation>,
    /// Processes in start order. Empty for a system that is only the origin.
    #[serde(default)]
    pub process: Vec<ProcessSpec>,
    /// Readiness check.
    #[serde(default)]
    pub ready: Ready,
    /// Requests that the system blocks; by default none.
    pub blocks: Option<Blocks>,
    /// Attacks that the system detects without blocking them.
    #[serde(default)]
    pub detection_log: Vec<DetectionLog>,
    /// Rule set shared with subjects of other systems.
    pub rule_set: Option<RuleSet>,
}

/// A required program, build or file.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Need {
    /// Expression: required only if true.
    pub when: Option<String>,
    /// A program on the PATH or in an sbin folder; `tollgate` is the running program.
    pub program: Option<String>,
    /// A build in `builds/NAME/`, made by `tollgate systems build`.
    pub build: Option<String>,
    /// Template: a file, or a pattern with `*`, whose first match is used. Of several patterns, the first that matches.
    pub file: Option<Patterns>,
    /// Name of the file in templates: `found.NAME`.
    pub name: Option<String>,
    /// Text that the file must contain.
    pub contains: Option<String>,
    /// Advice if it is missing and the packages of the recipe do not help.
    pub hint: Option<String>,
}

/// Files of the catalog that are copied for a system.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Copied {
    /// A folder of the catalog and a pattern of files: `mixes/vpatch/*.yaml`.
    pub from: String,
    /// Target folder below `dir`.
    pub to: String,
    /// Expression: copied only if true.
    pub when: Option<String>,
}

/// A command that runs in `dir` before the processes start and must succeed.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Preparation {
    /// Templates: the program and its arguments.
    pub command: Vec<String>,
    /// Expression: run only if true.
    pub when: Option<String>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Patterns {
    One(String),
    Several(Vec<String>),
}

/// A process of a system.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessSpec {
    /// Name in messages and of the log file.
    pub name: String,
    /// Templates: the program and its arguments. It must stay in the foreground.
    pub command: Vec<String>,
    /// Expression: started only if true.
    pub when: Option<String>,
    /// Templates: additional environment variables.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// One of `ports`: the next process starts when this one listens there.
    pub listens: Option<String>,
    /// With `listens`, templates: headers of a GET request for `/`. The next process starts when this one answers it, with neither 401
    /// nor a server error; a server that listens may still refuse its first requests.
    #[serde(default)]
    pub answers: BTreeMap<String, String>,
    /// Template: a library that the process must have loaded when the system is ready; otherwise the trial fails. Empty: any.
    pub loads: Option<String>,
}

/// Readiness check: the system is ready when a benign request gets the expected response.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Ready {
    /// Time limit of the start.
    pub timeout: Span,
}

/// A user's own configuration in place of a template. Its variables in `{{ }}` are filled in.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OwnConfig {
    /// One of `templates`.
    pub template: String,
    /// Lines that the file must contain.
    pub lines: Vec<ConfigLine>,
    /// Syntax of the file, by which addresses and paths are filled in if it has no `{{ }}`.
    pub syntax: Option<ConfigSyntax>,
}

/// Syntax of a configuration that can be changed for a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ConfigSyntax {
    /// A configuration of nginx, or the output of `nginx -T`.
    Nginx,
}

/// A line that a user's own configuration must have.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfigLine {
    /// Template: a text that must be in the rendered file, outside of comments.
    pub text: String,
    /// The lines to choose from if it is not. Each replaces a line with its first word; without one, the last is added.
    pub write: Patterns,
}

/// Option for the path of the user's own configuration.
pub const CONFIG_OPTION: &str = "config";

/// Requests that a system blocks.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Blocks {
    /// Status code of blocked requests.
    pub status: u16,
    /// Options with which attacks are blocked. `tollgate systems check` uses them if it gets none.
    #[serde(default)]
    pub with: Options,
    /// Expression: true if attacks are blocked under the options of the subject.
    pub when: String,
    /// Expression: a list of the families of attacks that are always blocked; others may be blocked or passed. By
    /// default, or with `none`: every attack that the mix does not mark as open.
    pub families: Option<String>,
    /// Expression: true if benign requests may be blocked, even if the mix does not mark them as open. Such blocks
    /// are counted, and the subject is measured. False by default.
    pub benign: Option<String>,
    /// False if bodies are not inspected: attacks that have one may be blocked or passed.
    #[serde(default = "inspects_bodies")]
    pub bodies: bool,
}

fn inspects_bodies() -> bool {
    true
}

/// Attacks that a system detects without blocking them, so that responses do not show whether detection works. The
/// system counts them on a page in Prometheus' text format. Before the probe it gets some attacks that it must detect;
/// the subject is refused if the counter does not increase by their number.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DetectionLog {
    /// Name of the detector in messages.
    pub detector: String,
    /// Expression: true if detection is enabled under the options of the subject.
    pub when: String,
    /// Paths with queries, each sent as a GET request.
    pub attacks: Vec<String>,
    /// One of `ports`: the port of the page.
    pub port: String,
    /// Path of the page.
    pub path: String,
    /// Name of the counter, whose samples are summed.
    pub counter: String,
    /// Labels and values of the samples to sum.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// A rule set that other systems may use too.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleSet {
    /// Subjects whose rule sets have the same name are expected to have the same rules.
    pub name: String,
    /// Expression: true if the rule set is enabled under the options of the subject.
    pub when: String,
    /// Template: the folder of the files.
    pub folder: String,
    /// Templates: patterns of the loaded files below the folder, in load order; files that rules read come last. Other
    /// files do not count. By default all files of the folder.
    pub files: Option<Vec<String>>,
    /// The option that sets another folder, for runs without one of the files.
    pub option: Option<String>,
    /// Command that makes a complete folder if `folder` has no `crs-setup.conf` beside its rules, as in a package.
    pub hint: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Recipe {
    pub name: String,
    /// A folder on disk or in the binary.
    pub found_in: String,
    pub file: RecipeFile,
}

impl RecipeFile {
    /// Adds the option of a user's own configuration.
    pub(crate) fn add_config_option(&mut self) {
        let Some(own) = &self.config else { return };
        let spec = OptionSpec {
            about: match own.syntax {
                Some(ConfigSyntax::Nginx) => {
                    format!(
                        "your own {}, or the output of nginx -T (docs/systems.md)",
                        own.template
                    )
                }
                None => format!(
                    "your own file in place of {}, with the lines of docs/systems.md",
                    own.template
                ),
            },
            default: OptionValue::Text(BUILT_IN.to_owned()),
            values: Some(vec![BUILT_IN.to_owned()]),
            path: true,
            minimum: None,
            maximum: None,
            requires: Options::new(),
        };
        self.option.insert(CONFIG_OPTION.to_owned(), spec);
    }

    /// Returns the builds that may be needed under any options.
    pub fn builds(&self) -> BTreeSet<&str> {
        self.need.iter().filter_map(|need| need.build.as_deref()).collect()
    }
}

const BUILT_IN: &str = "built-in";

impl Patterns {
    pub fn as_slice(&self) -> &[String] {
        match self {
            Self::One(pattern) => std::slice::from_ref(pattern),
            Self::Several(patterns) => patterns,
        }
    }
}

fn plain_http1() -> Vec<CaseProtocol> {
    vec![CaseProtocol::H1]
}

fn yes() -> bool {
    true
}

impl Default for Ready {
    fn default() -> Self {
        Self { timeout: Span(Duration::from_secs(20)) }
    }
}

/// Contents of `build.toml`. A build makes programs or files that are not packaged, from Go modules with pinned
/// versions: a folder `builds/NAME/` with this file, `go.mod`, `go.sum` and Go sources.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BuildFile {
    /// Description in one line.
    pub title: String,
    /// Debian packages needed besides Go or pip.
    #[serde(default)]
    pub apt: Vec<String>,
    /// Go packages by the file name of the program. Each is in the module or in one that it requires. Empty if the programs come
    /// from Python wheels, which `requirements.txt` pins with hashes.
    #[serde(default)]
    pub programs: BTreeMap<String, String>,
    /// Flags of the linker (`-ldflags`).
    #[serde(default)]
    pub ldflags: String,
    /// Commands that run in the folder of the result after the programs are built.
    #[serde(default)]
    pub post_build: Vec<Vec<String>>,
}

#[derive(Debug, Clone)]
pub struct Build {
    pub name: String,
    pub file: BuildFile,
    /// All files of the folder, with names relative to it.
    pub sources: Vec<NamedText>,
}
