//! Subjects of a run: system, options, and what was found on the machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SubjectManifest {
    pub name: String,
    pub about: String,
    pub system: String,
    /// A folder on disk or in the binary.
    pub recipe: String,
    pub options: Options,
    pub prefix: String,
    /// The server, if it is not started by the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalManifest>,
    pub state: SubjectState,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum SubjectState {
    Present {
        installed: Installed,
        /// SHA-256 of each configuration file, rendered with fixed ports and folders, so that runs can be compared.
        configs: BTreeMap<String, String>,
        /// SHA-256 of each file that the configuration loads, such as rule sets.
        referenced: BTreeMap<PathBuf, String>,
    },
    /// The system is not installed.
    Skipped { missing: Missing },
    /// The configuration cannot be rendered.
    Broken { reason: String },
}

/// A system found on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Installed {
    pub programs: BTreeMap<String, PathBuf>,
    /// Folders of build results.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub builds: BTreeMap<String, PathBuf>,
    /// Required files that have a name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub found: BTreeMap<String, PathBuf>,
    /// First line of each version command.
    pub version: Vec<String>,
    /// SHA-256 of each required program, file and build folder.
    pub hashes: BTreeMap<PathBuf, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule_set: Option<RuleSetHash>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleSetHash {
    pub name: String,
    /// Hash over names and contents of the loaded files, in load order.
    pub hash: String,
}

/// A part of a system that is not installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Missing {
    /// Description of the part.
    pub message: String,
    /// A command that installs it, or other advice.
    pub hint: Option<String>,
}

/// The hint is on its own indented line, to be copied.
impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hint {
            Some(hint) => write!(formatter, "{}. To fix this:\n    {hint}", self.message),
            None => write!(formatter, "{}.", self.message),
        }
    }
}

/// A server that runs already, in a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalManifest {
    pub url: String,
    /// Description of its processes on this machine; absent if their CPU time and memory are not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attach: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a whole number, or text in quotes")]
pub enum OptionValue {
    Integer(i64),
    /// A word or a path.
    Text(String),
}

pub type Options = BTreeMap<String, OptionValue>;

impl fmt::Display for OptionValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => number.fmt(formatter),
            Self::Text(text) => text.fmt(formatter),
        }
    }
}
