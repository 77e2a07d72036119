//! The manifest of a run: its inputs, written before its first trial.

use crate::case::CaseManifest;
use crate::machine::{CpuLayout, Environment};
use crate::stop::Stop;
use crate::subject::SubjectManifest;
use crate::validity::Limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tollgate_traffic::Class;

/// Version of the format; readers reject other versions.
pub const SCHEMA: u32 = 5;

/// Version and commit of the program.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("TOLLGATE_COMMIT"), ")");

/// Inputs of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Manifest {
    pub schema: u32,
    /// [`VERSION`] of the program.
    pub tollgate: String,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// Words of the command that repeats the run.
    pub command: Vec<String>,
    /// Working directory of that command.
    pub directory: String,
    pub seed: u64,
    pub experiment: ExperimentManifest,
    pub cpu_layout: CpuLayout,
    /// The machine of the system.
    pub environment: Environment,
    /// Hosts of the roles; empty for a run on one machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostManifest>,
}

/// The host of a role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostManifest {
    /// The role: `system`, `origin`, or `generator-1` and so on.
    pub name: String,
    pub host: String,
    pub environment: Environment,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExperimentManifest {
    pub name: String,
    pub title: String,
    pub file: String,
    /// Contents of the file.
    pub text: String,
    pub quick: bool,
    pub stop: Stop,
    /// Smallest relevant difference, as a share.
    pub margin: f64,
    pub limits: Limits,
    /// Name of the baseline.
    pub baseline: String,
    /// Name of the repeated baseline.
    pub aa_subject: Option<String>,
    /// Parts of the terminal report.
    pub summary: bool,
    #[serde(default)]
    pub bytes: bool,
    #[serde(default)]
    pub latency: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub catch: bool,
    /// Requests of the corpus, in the order of the verdicts in the records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub corpus: Vec<CorpusRequest>,
    /// By case and template: the request of the probe in one line. Only with `catch`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, BTreeMap<String, String>>,
    pub cases: Vec<CaseManifest>,
    /// Text of each mix by its file.
    pub mixes: BTreeMap<String, String>,
    pub subjects: Vec<SubjectManifest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ablation: Option<Ablation>,
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

/// A request of a corpus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CorpusRequest {
    /// List and template, with a number if the template has several requests.
    pub name: String,
    pub class: Class,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// The request in one line, shortened.
    pub request: String,
}

impl Manifest {
    /// Returns the command that repeats the run, quoted for a shell.
    pub fn command_line(&self) -> String {
        shell_words::join(&self.command)
    }

    /// Describes the hosts of the roles in one line; `None` for a run on one machine.
    pub fn layout(&self) -> Option<String> {
        let parts: Vec<String> =
            self.hosts.iter().map(|role| format!("{} on {}", role.name, role.host)).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}
