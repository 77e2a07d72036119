//! What may make two runs differ besides their subjects: the machine, the versions, the configs, the
//! layout, the tool. Seeds and times are another in every run, and no part of it.

use serde::Serialize;
use serde_json::{Map, Value, json};
use tollgate_experiment::files::hash_text;
use tollgate_experiment::manifest::{CaseManifest, Manifest, SubjectManifest, SubjectState};
use tollgate_experiment::manifest::{Difference, differences};

/// A line of the fingerprint in which two runs differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// What it tells.
    pub what: String,
    /// What it was in the old run; none where it was not told.
    pub old: Option<String>,
    /// What it is in the new run; none where it is not told.
    pub new: Option<String>,
}

/// The lines in which the fingerprints of two runs differ, in the order of their names. Cases and
/// subjects that only one of them has are left out.
pub fn differing(old: &Manifest, new: &Manifest) -> Result<Vec<Line>, serde_json::Error> {
    let differences = differences(&fingerprint(old, new)?, &fingerprint(new, old)?);
    let mut lines: Vec<Line> = differences.into_iter().map(Line::from).collect();
    lines.sort_by(|a, b| a.what.cmp(&b.what));
    Ok(lines)
}

/// The fingerprint of a run, of what the other run has too.
fn fingerprint(run: &Manifest, other: &Manifest) -> Result<Value, serde_json::Error> {
    let mut parts = Map::new();
    parts.insert("tollgate".to_owned(), json!(run.tollgate));
    parts.insert("machine".to_owned(), serde_json::to_value(&run.environment)?);
    parts.insert("layout".to_owned(), serde_json::to_value(&run.cpu_layout)?);
    let others = &other.experiment;
    for case in &run.experiment.cases {
        if others.cases.iter().any(|other| other.name == case.name) {
            parts.insert(format!("case {}", case.name), of_case(run, case)?);
        }
    }
    for subject in &run.experiment.subjects {
        if others.subjects.iter().any(|other| other.name == subject.name) {
            parts.insert(format!("subject {}", subject.name), of_subject(subject)?);
        }
    }
    Ok(Value::Object(parts))
}

fn of_case(run: &Manifest, case: &CaseManifest) -> Result<Value, serde_json::Error> {
    let mut value = serde_json::to_value(case)?;
    // A time, or the most that there is until the figures stand still: two numbers of another kind.
    if let Some(parts) = value.as_object_mut() {
        parts.remove("warmup_s");
        parts.remove("warmup_steady");
        parts.insert("warmup".to_owned(), json!(warm_up(case)));
    }
    // Not where the mix was found, and what it is called, but what it sends.
    value["mix_file"] = Value::Null;
    value["mix"] = run
        .experiment
        .mixes
        .get(&case.mix_file)
        .map_or(Value::Null, |text| Value::String(hash_text(text)));
    Ok(value)
}

fn warm_up(case: &CaseManifest) -> String {
    match case.warmup_steady {
        true => format!("until the figures stand still, stopped after {} s", case.warmup_s),
        false => format!("{} s", case.warmup_s),
    }
}

fn of_subject(subject: &SubjectManifest) -> Result<Value, serde_json::Error> {
    let options = subject.options.iter();
    let mut parts: Map<String, Value> = options
        .map(|(name, value)| Ok((name.clone(), serde_json::to_value(value)?)))
        .collect::<Result<_, serde_json::Error>>()?;
    let mut tell = |what: String, value: &str| parts.insert(what, json!(value));
    tell("system".to_owned(), &subject.system);
    tell("prefix".to_owned(), &subject.prefix);
    match &subject.state {
        SubjectState::Present { installed, configs, referenced } => {
            tell("version".to_owned(), &installed.version.join(", "));
            if let Some(rule_set) = &installed.rule_set {
                tell(format!("rule set {}", rule_set.name), &rule_set.hash);
            }
            for (file, hash) in &installed.hashes {
                tell(format!("program {}", file.display()), hash);
            }
            for (file, hash) in configs {
                tell(format!("config {file}"), hash);
            }
            for (file, hash) in referenced {
                tell(format!("rules {}", file.display()), hash);
            }
        }
        SubjectState::Skipped { missing } => {
            tell("skipped".to_owned(), &missing.message);
        }
        SubjectState::Broken { reason } => {
            tell("broken".to_owned(), reason);
        }
    }
    Ok(Value::Object(parts))
}

impl From<Difference> for Line {
    fn from(difference: Difference) -> Self {
        let Difference { path, before, after } = difference;
        Self { what: path.join(", "), old: before, new: after }
    }
}
