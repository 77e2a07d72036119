//! The manifest of a run: its inputs, written before its first trial, and the differences between two manifests.

use crate::experiment::{
    Ablation, Case, CorpusRequest, Experiment, External, ExternalManifest, Protocol, SpacingFile,
    WarmUp,
};
use crate::machine::{CpuLayout, Environment};
use crate::options::Options;
use crate::recipe::{Installed, Missing};
use crate::stop::Stop;
use crate::validity::Limits;
use crate::workload::{self, Delivery};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Version of the format; readers reject other versions.
pub const SCHEMA: u32 = 3;

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
    /// The command that repeats the run.
    pub command: String,
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

/// A case of an experiment.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CaseManifest {
    /// Name of the case.
    pub name: String,
    /// Title of the mix.
    pub mix: String,
    /// File of the mix.
    pub mix_file: String,
    /// Concurrent connections.
    pub connections: u32,
    /// Schedule of an open loop; absent in a closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_loop: Option<OpenLoopManifest>,
    /// Case that the rate depends on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_of: Option<RateOfManifest>,
    /// Threads of the generator.
    pub threads: u32,
    /// Origins behind each system.
    #[serde(default = "one_origin", skip_serializing_if = "is_one")]
    pub origins: u16,
    /// True if connections carry one request after another.
    pub keep_alive: bool,
    /// True if the generator polls for events instead of sleeping.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub busy_poll: bool,
    /// True if the CPUs are kept from halting.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idle_poll: bool,
    /// Protocol between the clients and each system; absent for HTTP/1.1 in the clear.
    #[serde(default, skip_serializing_if = "Protocol::is_plain_http1")]
    pub protocol: Protocol,
    /// HTTP/2: concurrent requests on each connection, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
    /// True if connections resume TLS sessions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tls_resume: bool,
    /// Length of the warm-up in seconds; the limit if it ends with steady figures.
    pub warmup_s: f64,
    /// True if the warm-up ends with steady figures.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warmup_steady: bool,
    /// Requests of each measurement; absent if it has a fixed length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u32>,
    /// Length of each measurement in seconds; with `requests`, their time limit.
    pub duration_s: f64,
    /// Its subjects, including the baseline; absent if it has all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only_subjects: Vec<String>,
}

/// Schedule of an open loop.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OpenLoopManifest {
    /// Requests per second; null if the rate depends on a case that was not run.
    pub rate_per_s: Option<f64>,
    /// Gaps between requests.
    pub spacing: SpacingFile,
    /// Limit of the connections.
    pub connections_max: u32,
}

/// A rate relative to the throughput of the slowest subject in another case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RateOfManifest {
    /// Name of the other case.
    pub case: String,
    /// Share of its throughput, from 0 to 1.
    pub share: f64,
}

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

/// Inputs of a run besides its experiment.
#[derive(Debug, Clone)]
pub struct Invocation {
    pub seed: u64,
    pub quick: bool,
    /// The command that repeats the run.
    pub command: String,
    /// Working directory of that command.
    pub directory: PathBuf,
}

impl CaseManifest {
    fn of(case: &Case, experiment: &Experiment) -> Self {
        let name = |at: &usize| experiment.subjects[*at].name.clone();
        let open_loop = (case.load.rate.is_some() || case.rate_of.is_some()).then(|| {
            let spacing = case.load.spacing.unwrap_or(SpacingFile::Constant);
            let connections_max = case.load.connections_most();
            OpenLoopManifest { rate_per_s: case.load.rate, spacing, connections_max }
        });
        let rate_of = case.rate_of.as_ref();
        Self {
            name: case.name.clone(),
            mix: case.mix.title().to_owned(),
            mix_file: case.mix_source.name.clone(),
            connections: case.load.connections,
            open_loop,
            rate_of: rate_of
                .map(|rate| RateOfManifest { case: rate.case.clone(), share: rate.share.0 }),
            threads: case.load.threads,
            origins: case.origins,
            keep_alive: case.load.keepalive,
            protocol: case.protocol,
            streams: (case.load.streams > 1).then_some(case.load.streams),
            tls_resume: case.load.tls_resume,
            busy_poll: case.load.busy_poll,
            idle_poll: case.load.idle_poll,
            warmup_s: case.load.warmup_longest().as_secs_f64(),
            warmup_steady: case.load.warmup == WarmUp::Steady,
            requests: case.load.window().requests(),
            duration_s: case.load.window().longest().as_secs_f64(),
            only_subjects: match case.subjects.len() == experiment.subjects.len() {
                true => Vec::new(),
                false => case.subjects.iter().map(name).collect(),
            },
        }
    }

    /// True if a subject belongs to this case.
    pub fn is_for(&self, subject: &str) -> bool {
        self.only_subjects.is_empty() || self.only_subjects.iter().any(|name| name == subject)
    }

    /// True if a subject belongs to this case and could be run.
    pub fn runs(&self, subject: &SubjectManifest) -> bool {
        matches!(subject.state, SubjectState::Present { .. }) && self.is_for(&subject.name)
    }
}

impl Manifest {
    /// Returns the manifest of a run that starts now.
    pub fn of(
        experiment: &Experiment,
        states: Vec<SubjectState>,
        layout: &CpuLayout,
        environment: Environment,
        hosts: Vec<HostManifest>,
        invocation: &Invocation,
    ) -> Self {
        let mixes = experiment
            .cases
            .iter()
            .flat_map(|case| std::iter::once(&case.mix_source).chain(&case.mix_included))
            .chain(&experiment.corpus.sources)
            .map(|source| (source.name.clone(), source.text.clone()));
        let subjects = experiment.subjects.iter().zip(states);
        let subjects = subjects.map(|(subject, state)| SubjectManifest {
            name: subject.name.clone(),
            about: subject.about.clone(),
            system: subject.recipe.name.clone(),
            recipe: subject.recipe.found_in.clone(),
            options: subject.options.clone(),
            prefix: subject.prefix.clone(),
            external: subject.external.as_ref().map(External::manifest),
            state,
        });
        Self {
            schema: SCHEMA,
            tollgate: VERSION.to_owned(),
            started_at: jiff::Timestamp::now().to_string(),
            command: invocation.command.clone(),
            directory: invocation.directory.display().to_string(),
            seed: invocation.seed,
            experiment: ExperimentManifest {
                name: experiment.name.clone(),
                title: experiment.title.clone(),
                file: experiment.source.name.clone(),
                text: experiment.source.text.clone(),
                quick: invocation.quick,
                stop: experiment.stop,
                margin: experiment.margin,
                limits: experiment.limits,
                baseline: experiment.subjects[experiment.baseline].name.clone(),
                aa_subject: experiment.aa_subject.map(|at| experiment.subjects[at].name.clone()),
                summary: experiment.summary,
                bytes: experiment.bytes,
                latency: experiment.latency,
                catch: experiment.catch,
                corpus: experiment.corpus.requests(),
                requests: match experiment.catch {
                    true => experiment.cases.iter().map(probe_requests).collect(),
                    false => BTreeMap::new(),
                },
                cases: experiment
                    .cases
                    .iter()
                    .map(|case| CaseManifest::of(case, experiment))
                    .collect(),
                mixes: mixes.collect(),
                subjects: subjects.collect(),
                ablation: experiment.ablation.clone(),
            },
            cpu_layout: layout.clone(),
            environment,
            hosts,
        }
    }

    /// Describes the hosts of the roles in one line; `None` for a run on one machine.
    pub fn layout(&self) -> Option<String> {
        let parts: Vec<String> =
            self.hosts.iter().map(|role| format!("{} on {}", role.name, role.host)).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// Returns the differences from another manifest, except start time, command and working directory.
    pub fn differences(&self, other: &Self) -> Vec<Difference> {
        let as_value = |manifest: &Self| serde_json::to_value(manifest).unwrap_or(Value::Null);
        let mut differences = differences(&as_value(self), &as_value(other));
        differences.retain(|difference| match &difference.path[..] {
            [part] => !["started_at", "command", "directory"].contains(&part.as_str()),
            _ => true,
        });
        differences
    }
}

/// Returns the name of a case, and its probe requests by template.
fn probe_requests(case: &Case) -> (String, BTreeMap<String, String>) {
    let as_written = Delivery { prefix: "", host: None, keep_alive: true, blocks: None };
    // A mix that cannot be rendered was rejected before.
    let samples = workload::samples(&case.mix, &as_written).unwrap_or_default();
    let lines = samples.iter().map(|sample| workload::in_one_line(&sample.bytes));
    let names = case.mix.templates().iter().map(|template| template.name.clone());
    (case.name.clone(), names.zip(lines).collect())
}

fn one_origin() -> u16 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_one(origins: &u16) -> bool {
    *origins == one_origin()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Keys from the outside in.
    pub path: Vec<String>,
    /// On one line; `None` if it is absent.
    pub before: Option<String>,
    pub after: Option<String>,
}

pub fn differences(before: &Value, after: &Value) -> Vec<Difference> {
    let mut differences = Vec::new();
    compare(&[], before, after, &mut differences);
    differences
}

impl Difference {
    pub fn is_of_the_machine(&self) -> bool {
        let parts: Vec<&str> = self.path.iter().map(String::as_str).collect();
        // A role that is missing, or new, is another layout.
        matches!(parts[..], ["environment", ..] | ["hosts", _, "host" | "environment", ..])
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Long texts are cut to the surroundings of the first difference.
        let [before, after] =
            [&self.before, &self.after].map(|value| value.as_deref().unwrap_or_default());
        let alike = before.chars().zip(after.chars()).take_while(|(a, b)| a == b).count();
        let longest = before.chars().count().max(after.chars().count());
        let start = if longest > SHOWN_CHARS { alike.saturating_sub(LEAD_CHARS) } else { 0 };
        let shown = |text: &str| {
            if text.is_empty() {
                return "nothing".to_owned();
            }
            let excerpt: String = text.chars().skip(start).take(SHOWN_CHARS).collect();
            let before = if start > 0 { "..." } else { "" };
            let after = if text.chars().count() > start + SHOWN_CHARS { "..." } else { "" };
            format!("{before}{excerpt}{after}")
        };
        write!(formatter, "{}: {}, now {}", self.path.join("."), shown(before), shown(after))
    }
}

const SHOWN_CHARS: usize = 60;
const LEAD_CHARS: usize = 20;

fn compare(path: &[String], before: &Value, after: &Value, differences: &mut Vec<Difference>) {
    let below = |name: &str| [path, &[name.to_owned()]].concat();
    match (before, after) {
        (before, after) if before == after => {}
        (Value::Object(a), Value::Object(b)) => {
            let names = a.keys().chain(b.keys().filter(|name| !a.contains_key(*name)));
            for name in names {
                let part = |of: &serde_json::Map<_, _>| of.get(name).cloned().unwrap_or_default();
                compare(&below(name), &part(a), &part(b), differences);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.iter().chain(b).any(Value::is_object) => {
            for index in 0..a.len().max(b.len()) {
                let part = |of: &[Value]| of.get(index).cloned().unwrap_or_default();
                let (a, b) = (part(a), part(b));
                let name = a.get("name").or(b.get("name")).and_then(Value::as_str);
                let name = name.map_or_else(|| index.to_string(), str::to_owned);
                compare(&below(&name), &a, &b, differences);
            }
        }
        (before, after) => differences.push(Difference {
            path: path.to_vec(),
            before: on_one_line(before),
            after: on_one_line(after),
        }),
    }
}

fn on_one_line(value: &Value) -> Option<String> {
    let text = match value {
        Value::Null => return None,
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    Some(text.replace(char::is_control, " "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn texts(before: &Value, after: &Value) -> Vec<String> {
        differences(before, after).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn differences_have_path_and_both_values() {
        let before = json!({"a": 1, "list": [{"name": "x", "v": "1"}, 2], "gone": true});
        let after = json!({"a": 1, "list": [{"name": "x", "v": "2\n3"}, 2, 4], "new": null});
        assert_eq!(
            texts(&before, &after),
            ["gone: true, now nothing", "list.x.v: 1, now 2 3", "list.2: nothing, now 4"]
        );
        assert_eq!(
            texts(&json!({"cpus": [1]}), &json!({"cpus": [1, 2]})),
            ["cpus: [1], now [1,2]"]
        );
        assert!(texts(&before, &before).is_empty());
    }

    #[test]
    fn long_values_are_cut_to_the_difference() {
        let line = &texts(&json!({"a": "x".repeat(99)}), &json!({}))[0];
        assert_eq!(line, &format!("a: {}..., now nothing", "x".repeat(60)));
        let before = format!("{}12{}", "x".repeat(30), "y".repeat(60));
        let after = before.replace("12", "13");
        let lead = format!("...{}1", "x".repeat(19));
        let rest = "y".repeat(39);
        assert_eq!(
            texts(&json!({"a": before}), &json!({"a": after}))[0],
            format!("a: {lead}2{rest}..., now {lead}3{rest}...")
        );
    }
}
