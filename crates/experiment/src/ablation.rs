//! Which subjects of a run are one subject without some of its rules.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which subjects of a run are one subject without some of its rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ablation {
    /// The subject with all of them.
    pub subject: String,
    /// What the rule set is called.
    pub rule_set: String,
    /// Its files of rules, in the order in which they are read.
    pub files: Vec<AblatedFile>,
    /// The subject without all of the files that may be taken out, where those are several.
    pub without_all: Option<String>,
}

/// One file of rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AblatedFile {
    /// Its name.
    pub file: String,
    /// The subject without it; none where it stays.
    pub subject: Option<String>,
    /// Why it stays, where others depend on it.
    pub kept_reason: Option<String>,
    /// How many exceptions from its rules, in other files, went with it.
    pub exceptions: usize,
}
