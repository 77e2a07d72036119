//! A system as it is installed on the machine, or what is missing of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// A system that is on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Installed {
    /// The programs that its recipe needs, by name.
    pub programs: BTreeMap<String, PathBuf>,
    /// The folders with the results of the builds that it needs, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub builds: BTreeMap<String, PathBuf>,
    /// The files that it needs and that have a name, by that name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub found: BTreeMap<String, PathBuf>,
    /// What its version commands print, one line each.
    pub version: Vec<String>,
    /// SHA-256 of each program and module file that it needs, and of each build's folder.
    pub hashes: BTreeMap<PathBuf, String>,
    /// The rule set that it shares with others, where it uses one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule_set: Option<RuleSetHash>,
}

/// Which rule set a subject uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleSetHash {
    /// Its name.
    pub name: String,
    /// The hash over the names and contents of the files that are loaded, in that order.
    pub hash: String,
}

/// A system that is not on this machine, or not as the subject needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Missing {
    /// What is missing, in words.
    pub message: String,
    /// The line to type, or what else to do.
    pub hint: Option<String>,
}

/// In words; the line to type stands on a line of its own, indented, so that it can be copied.
impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hint {
            Some(hint) => write!(formatter, "{}. To fix this:\n    {hint}", self.message),
            None => write!(formatter, "{}.", self.message),
        }
    }
}
