//! Checks of the values in an experiment's file.

use crate::client;
use crate::external;
use crate::file::{CaseFile, ExperimentFile};
use crate::load_file::{between, in_range};
use crate::toml_file::PathStep;
use std::time::Duration;
use tollgate_records::error::suggestion;
use tollgate_stats::BLOCKS_MAX;

/// An invalid value and its place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Flaw {
    pub(crate) path: Vec<PathStep>,
    pub(crate) message: String,
}

/// Log files are named after a case and a subject, and file systems allow 255 bytes.
const LONGEST_NAME: usize = 64;
/// Each origin is a process, and all share their CPUs.
const ORIGINS_MAX: usize = 16;
pub(crate) const SHORTEST_BUDGET: Duration = Duration::from_secs(1);
pub(crate) const LONGEST_BUDGET: Duration = Duration::from_secs(7 * 24 * 3600);

/// Checks all values of a file beyond their types.
pub(crate) fn check(file: &ExperimentFile) -> Result<(), Flaw> {
    title(&file.title).map_err(at(&["title"]))?;
    let subjects: Vec<&str> = file.subject.iter().map(|s| s.name.as_str()).collect();
    let cases: Vec<&str> = file.case.iter().map(|case| case.name.as_str()).collect();
    names("subject", &subjects)?;
    names("case", &cases)?;
    known_subject(&file.baseline, &subjects).map_err(at(&["baseline"]))?;
    if let Some(name) = &file.baseline_fallback {
        let known = if *name == file.baseline {
            Err(format!("`{name}` is the baseline itself; name another subject"))
        } else {
            known_subject(name, &subjects)
        };
        known.map_err(at(&["baseline_fallback"]))?;
    }
    for subject in &file.subject {
        let flaw = |key| move |message| Flaw { path: subject.key(key), message };
        one_line(&subject.about).map_err(flaw("about"))?;
        prefix(&subject.prefix).map_err(flaw("prefix"))?;
        external::check(subject).map_err(|(key, message)| flaw(key)(message))?;
    }
    for case in &file.case {
        between(case.origins.into(), ORIGINS_MAX)
            .map_err(|message| Flaw { path: case.key("origins"), message })?;
        let mut clients = case.clients(&file.subject, &file.baseline).into_iter();
        let checked = clients.try_for_each(|client| client::check(client, case));
        case.shape().and(checked).map_err(|(key, message)| {
            let path = [case.key("load"), vec![key.into()]].concat();
            Flaw { path, message }
        })?;
        rate_of(case, &file.case).map_err(|message| {
            let path = [case.key("rate_of"), vec!["case".into()]].concat();
            Flaw { path, message }
        })?;
    }
    subjects_of_cases(file, &subjects)?;
    let design = &file.design;
    for (key, blocks) in [("quick_blocks", design.quick_blocks), ("blocks", design.blocks)] {
        blocks
            .map_or(Ok(()), |blocks| between(blocks, BLOCKS_MAX))
            .map_err(at(&["design", key]))?;
    }
    if let Some(budget) = design.budget {
        in_range(budget, SHORTEST_BUDGET, LONGEST_BUDGET).map_err(at(&["design", "budget"]))?;
    }
    if let Some(cpus) = &file.cpus {
        let roles =
            [("generator", &cpus.generator), ("origin", &cpus.origin), ("system", &cpus.system)];
        if let Some((role, _)) = roles.into_iter().find(|(_, cpus)| cpus.is_empty()) {
            return Err(at(&["cpus", role])("expected at least one CPU".to_owned()));
        }
    }
    Ok(())
}

fn at(path: &[&str]) -> impl Fn(String) -> Flaw {
    |message| Flaw { path: path.iter().map(|key| (*key).into()).collect(), message }
}

pub(crate) fn names(kind: &str, names: &[&str]) -> Result<(), Flaw> {
    if names.is_empty() {
        return Err(at(&[])(format!("no [[{kind}]]; add one")));
    }
    for (index, name) in names.iter().enumerate() {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let message = if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
            format!(
                "invalid name `{}`: files are named after it, so use letters, digits, `-`, `_` and `.`",
                name.escape_debug()
            )
        } else if name.len() > LONGEST_NAME {
            let length = name.len();
            format!(
                "name of {length} characters: files are named after it, so use at most {LONGEST_NAME}"
            )
        } else if names[..index].contains(name) {
            format!("two {kind}s are named `{name}`; rename one")
        } else {
            continue;
        };
        return Err(Flaw { path: vec![kind.into(), index.into(), "name".into()], message });
    }
    Ok(())
}

/// Checks that the subjects of each case exist, and that each subject is in a case.
fn subjects_of_cases(file: &ExperimentFile, subjects: &[&str]) -> Result<(), Flaw> {
    for case in &file.case {
        for (place, name) in case.subjects.iter().enumerate() {
            let flaw = |message| {
                let path = [case.key("subjects"), vec![place.into()]].concat();
                Flaw { path, message }
            };
            known_subject(name, subjects).map_err(flaw)?;
            if case.subjects[..place].contains(name) {
                return Err(flaw(format!("`{name}` is listed twice")));
            }
        }
    }
    let is_in = |name: &str| {
        name == file.baseline || file.case.iter().any(|case| case.is_for(name, &file.baseline))
    };
    match file.subject.iter().find(|subject| !is_in(&subject.name)) {
        Some(subject) => {
            let message =
                format!("no case includes `{}`; add it to the `subjects` of one", subject.name);
            Err(Flaw { path: subject.key("name"), message })
        }
        None => Ok(()),
    }
}

fn known_subject(name: &str, subjects: &[&str]) -> Result<(), String> {
    if subjects.contains(&name) {
        Ok(())
    } else {
        let hint = suggestion(name, subjects.iter().copied());
        Err(format!("unknown subject `{name}`{hint}"))
    }
}

fn title(title: &str) -> Result<(), String> {
    if title.trim().is_empty() {
        Err("the title is empty; write the question that the experiment answers".to_owned())
    } else {
        one_line(title)
    }
}

fn one_line(text: &str) -> Result<(), String> {
    if text.chars().any(char::is_control) {
        Err("expected one line of text without control characters".to_owned())
    } else {
        Ok(())
    }
}

fn prefix(prefix: &str) -> Result<(), String> {
    let goes_before_a_path = prefix.starts_with('/') && !prefix.ends_with('/');
    if !prefix.is_empty() && !goes_before_a_path {
        return Err(format!("`{prefix}` must start with `/` and must not end with it"));
    }
    match prefix.chars().find(|c| !c.is_ascii_graphic() || "?#".contains(*c)) {
        Some(odd) => {
            Err(format!("`{}` is not allowed in the path of a request", odd.escape_debug()))
        }
        None => Ok(()),
    }
}

/// Checks that a rate depends on a closed loop.
fn rate_of(case: &CaseFile, cases: &[CaseFile]) -> Result<(), String> {
    let Some(rate_of) = &case.rate_of else {
        return Ok(());
    };
    let Some(other) = cases.iter().find(|other| other.name == rate_of.case) else {
        let hint = suggestion(&rate_of.case, cases.iter().map(|case| case.name.as_str()));
        return Err(format!("unknown case `{}`{hint}", rate_of.case));
    };
    if other.load.rate.is_some() || other.rate_of.is_some() {
        Err(format!(
            "case `{}` is an open loop, whose rate is given; name a closed loop",
            other.name
        ))
    } else {
        Ok(())
    }
}
