//! Checks of the values in an experiment's file.

use super::file::{CaseFile, ExperimentFile, LoadFile, STEADY_SHORTEST, WarmUp};
use crate::toml_file::{Step, suggestion};
use crate::units::Span;
use std::time::Duration;
use tollgate_load::{MAX_CONNECTIONS, MAX_RATE, MAX_THREADS};
use tollgate_stats::BLOCKS_MAX;

/// An invalid value and its place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Flaw {
    pub(super) path: Vec<Step>,
    pub(super) message: String,
}

/// In a shorter time, a slow system answers too few requests.
pub(super) const SHORTEST_WINDOW: Duration = Duration::from_millis(150);
/// Log files are named after a case and a subject, and file systems allow 255 bytes.
const LONGEST_NAME: usize = 64;
/// Each origin is a process, and all share their CPUs.
const ORIGINS_MAX: usize = 16;
/// An hour of requests at the rate of one core.
const REQUESTS_MAX: usize = 1_000_000_000;
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(3600);
pub(super) const SHORTEST_BUDGET: Duration = Duration::from_secs(1);
pub(super) const LONGEST_BUDGET: Duration = Duration::from_secs(7 * 24 * 3600);

/// Checks all values of a file beyond their types.
pub(super) fn check(file: &ExperimentFile) -> Result<(), Flaw> {
    title(&file.title).map_err(at(&["title"]))?;
    let subjects: Vec<&str> = file.subject.iter().map(|s| s.name.as_str()).collect();
    let cases: Vec<&str> = file.case.iter().map(|case| case.name.as_str()).collect();
    names("subject", &subjects)?;
    names("case", &cases)?;
    known_subject(&file.baseline, &subjects).map_err(at(&["baseline"]))?;
    if let Some(name) = &file.baseline_fallback {
        let known = match *name == file.baseline {
            true => Err(format!("`{name}` is the baseline itself; name another subject")),
            false => known_subject(name, &subjects),
        };
        known.map_err(at(&["baseline_fallback"]))?;
    }
    for subject in &file.subject {
        let flaw = |key| move |message| Flaw { path: subject.key(key), message };
        one_line(&subject.about).map_err(flaw("about"))?;
        prefix(&subject.prefix).map_err(flaw("prefix"))?;
    }
    for case in &file.case {
        between(case.origins.into(), ORIGINS_MAX)
            .map_err(|message| Flaw { path: case.key("origins"), message })?;
        load(&case.load, case.rate_of.is_some()).map_err(|(key, message)| {
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

/// Checks the names of all cases or of all subjects.
pub(super) fn names(kind: &str, names: &[&str]) -> Result<(), Flaw> {
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
    match subjects.contains(&name) {
        true => Ok(()),
        false => {
            let hint = suggestion(name, subjects.iter().copied());
            Err(format!("unknown subject `{name}`{hint}"))
        }
    }
}

fn title(title: &str) -> Result<(), String> {
    match title.trim().is_empty() {
        true => {
            Err("the title is empty; write the question that the experiment answers".to_owned())
        }
        false => one_line(title),
    }
}

fn one_line(text: &str) -> Result<(), String> {
    match text.chars().any(char::is_control) {
        true => Err("expected one line of text without control characters".to_owned()),
        false => Ok(()),
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
    match other.load.rate.is_some() || other.rate_of.is_some() {
        true => Err(format!(
            "case `{}` is an open loop, whose rate is given; name a closed loop",
            other.name
        )),
        false => Ok(()),
    }
}

/// A key of a load, and what is wrong with its value.
type LoadFlaw = (&'static str, String);

pub(super) fn load(load: &LoadFile, has_rate_of: bool) -> Result<(), LoadFlaw> {
    for (key, count) in
        [("connections", Some(load.connections)), ("quick_connections", load.quick_connections)]
    {
        let Some(count) = count else { continue };
        between(count, MAX_CONNECTIONS).map_err(|message| (key, message))?;
    }
    between(load.threads, MAX_THREADS.min(load.connections as usize))
        .map_err(|message| ("threads", message))?;
    window(load, has_rate_of)?;
    warm_up(load)?;
    lasts(load.timeout, SHORTEST_TIMEOUT).map_err(|message| ("timeout", message))?;
    schedule(load, has_rate_of)
}

/// Checks that the measurement has either a time or a number of requests.
fn window(load: &LoadFile, has_rate_of: bool) -> Result<(), LoadFlaw> {
    let LoadFile { duration, quick_duration, requests, quick_requests, duration_max, .. } = *load;
    for (key, time) in [("duration", duration), ("quick_duration", quick_duration)] {
        time.map_or(Ok(()), |time| lasts(time, SHORTEST_WINDOW))
            .map_err(|message| (key, message))?;
    }
    let Some(_) = requests else {
        let counted = [
            ("quick_requests", quick_requests.is_some()),
            ("duration_max", duration_max.is_some()),
        ];
        return match (set(counted), duration) {
            (Some(key), _) => Err((key, format!("`{key}` requires `requests`; add them"))),
            (None, None) => {
                Err(("duration", "no `duration` and no `requests`; add one of them".to_owned()))
            }
            (None, Some(_)) => Ok(()),
        };
    };
    let timed = [("duration", duration.is_some()), ("quick_duration", quick_duration.is_some())];
    if let Some(key) = set(timed) {
        return Err((
            key,
            format!("`{key}` and `requests` exclude each other; remove one of them"),
        ));
    }
    if load.rate.is_some() || has_rate_of {
        let message = "`requests` are for a closed loop; with a rate, use `duration`";
        return Err(("requests", message.to_owned()));
    }
    for (key, count) in [("requests", requests), ("quick_requests", quick_requests)] {
        let Some(count) = count else { continue };
        between(count, REQUESTS_MAX).map_err(|message| (key, message))?;
        if count < load.connections {
            let connections = load.connections;
            let message = format!("{count} is less than one for each of {connections} connections");
            return Err((key, message));
        }
    }
    duration_max
        .map_or(Ok(()), |limit| lasts(limit, SHORTEST_WINDOW))
        .map_err(|message| ("duration_max", message))
}

fn warm_up(load: &LoadFile) -> Result<(), LoadFlaw> {
    match (load.warmup, load.warmup_max) {
        (WarmUp::For(time), None) => {
            lasts(Span(time), Duration::ZERO).map_err(|message| ("warmup", message))
        }
        (WarmUp::For(_), Some(_)) => {
            Err(("warmup_max", "`warmup_max` requires `warmup = \"steady\"`".to_owned()))
        }
        (WarmUp::Steady, None) => Ok(()),
        (WarmUp::Steady, Some(limit)) => {
            lasts(limit, STEADY_SHORTEST).map_err(|message| ("warmup_max", message))
        }
    }
}

/// Checks the values of an open loop.
fn schedule(load: &LoadFile, has_rate_of: bool) -> Result<(), LoadFlaw> {
    match load.rate {
        Some(_) if has_rate_of => {
            let message = "the case also has `rate_of`; remove one of them".to_owned();
            return Err(("rate", message));
        }
        Some(rate) if !(rate > 0.0 && rate <= MAX_RATE) => {
            let message = format!("expected a rate above 0 and at most {MAX_RATE}, got {rate}");
            return Err(("rate", message));
        }
        _ => {}
    }
    if load.rate.is_none() && !has_rate_of {
        let open = [
            ("spacing", load.spacing.is_some()),
            ("connections_max", load.connections_max.is_some()),
        ];
        return match set(open) {
            Some(key) => Err((
                key,
                format!("`{key}` requires an open loop; add a `rate`, or a `rate_of` to the case"),
            )),
            None => Ok(()),
        };
    }
    match load.connections_max {
        Some(most) if most < load.connections => Err((
            "connections_max",
            format!("{most} is less than the {} connections at the start", load.connections),
        )),
        Some(most) => {
            between(most, MAX_CONNECTIONS).map_err(|message| ("connections_max", message))
        }
        None => Ok(()),
    }
}

/// Returns the first key that is set.
fn set<const N: usize>(keys: [(&'static str, bool); N]) -> Option<&'static str> {
    keys.into_iter().find(|(_, is_set)| *is_set).map(|(key, _)| key)
}

fn between(value: u32, high: usize) -> Result<(), String> {
    match (1..=high).contains(&(value as usize)) {
        true => Ok(()),
        false => Err(format!("expected 1 to {high}, got {value}")),
    }
}

fn lasts(span: Span, shortest: Duration) -> Result<(), String> {
    in_range(span, shortest, LONGEST)
}

pub(super) fn in_range(span: Span, shortest: Duration, longest: Duration) -> Result<(), String> {
    match (shortest..=longest).contains(&span.0) {
        true => Ok(()),
        false => Err(format!("expected {} to {}, got {span}", Span(shortest), Span(longest))),
    }
}
