//! What may make two runs differ besides their subjects: the machine, the versions, the configs, the
//! layout, the tool. Seeds and times are another in every run, and no part of it.

use crate::manifest::{CaseManifest, Manifest, SubjectManifest, SubjectState};
use crate::system::render::hash_text;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

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
///
/// # Errors
///
/// A part of a manifest cannot be laid out in lines.
pub fn differing(old: &Manifest, new: &Manifest) -> Result<Vec<Line>, serde_json::Error> {
    let (before, after) = (lines(old, new)?, lines(new, old)?);
    let names = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
    let mut differing: Vec<Line> = names
        .map(|name| Line {
            what: name.clone(),
            old: before.get(name).cloned(),
            new: after.get(name).cloned(),
        })
        .filter(|line| line.old != line.new)
        .collect();
    differing.sort_by(|a, b| a.what.cmp(&b.what));
    Ok(differing)
}

type Lines = BTreeMap<String, String>;

/// The fingerprint of a run, by what each line tells, of what the other run has too.
fn lines(run: &Manifest, other: &Manifest) -> Result<Lines, serde_json::Error> {
    let mut lines = Lines::new();
    lines.insert("tollgate".to_owned(), run.tollgate.clone());
    flatten("machine", &serde_json::to_value(&run.environment)?, &mut lines);
    flatten("layout", &serde_json::to_value(&run.layout)?, &mut lines);
    let others = &other.experiment;
    for case in &run.experiment.cases {
        if others.cases.iter().any(|other| other.name == case.name) {
            case_lines(run, case, &mut lines)?;
        }
    }
    for subject in &run.experiment.subjects {
        if others.subjects.iter().any(|other| other.name == subject.name) {
            subject_lines(subject, &mut lines)?;
        }
    }
    Ok(lines)
}

fn case_lines(
    run: &Manifest,
    case: &CaseManifest,
    lines: &mut Lines,
) -> Result<(), serde_json::Error> {
    let path = format!("case {}", case.name);
    flatten(&path, &serde_json::to_value(case)?, lines);
    // Not where the mix was found, and what it is called, but what it sends.
    for told_by_its_text in ["mix", "mix_file"] {
        lines.remove(&format!("{path}, {told_by_its_text}"));
    }
    let text = run.experiment.mixes.get(&case.mix_file);
    lines.extend(text.map(|text| (format!("{path}, mix"), hash_text(text))));
    Ok(())
}

fn subject_lines(subject: &SubjectManifest, lines: &mut Lines) -> Result<(), serde_json::Error> {
    let path = format!("subject {}", subject.name);
    let mut tell = |what: String, value: String| lines.insert(format!("{path}, {what}"), value);
    tell("system".to_owned(), subject.system.clone());
    tell("prefix".to_owned(), subject.prefix.clone());
    match &subject.state {
        SubjectState::Present { installed, configs, referenced } => {
            tell("version".to_owned(), installed.version.join(", "));
            for (file, hash) in &installed.hashes {
                tell(format!("program {}", file.display()), hash.clone());
            }
            for (file, hash) in configs {
                tell(format!("config {file}"), hash.clone());
            }
            for (file, hash) in referenced {
                tell(format!("rules {}", file.display()), hash.clone());
            }
        }
        SubjectState::Skipped { missing } => {
            tell("skipped".to_owned(), missing.what.clone());
        }
        SubjectState::Broken { reason } => {
            tell("broken".to_owned(), reason.clone());
        }
    }
    flatten(&path, &serde_json::to_value(&subject.options)?, lines);
    Ok(())
}

/// Adds the values below a path, a line each; what is null is not told.
fn flatten(path: &str, value: &Value, lines: &mut Lines) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (name, value) in fields {
                flatten(&format!("{path}, {name}"), value, lines);
            }
        }
        Value::String(text) => {
            lines.insert(path.to_owned(), text.clone());
        }
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            lines.insert(path.to_owned(), value.to_string());
        }
    }
}
