//! What an experiment's values may be.

use super::file::{CaseFile, ExperimentFile, LoadFile};
use super::warm_up::{STEADY_SHORTEST, WarmUp};
use super::window::REQUESTS_MAX;
use crate::duration::Span;
use crate::toml_file::{Step, suggestion};
use std::time::Duration;
use tollgate_load::{MAX_CONNECTIONS, MAX_RATE, MAX_THREADS};
use tollgate_stats::BLOCKS_MAX;

/// A value that cannot be, and where it stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Flaw {
    pub(super) path: Vec<Step>,
    pub(super) what: String,
}

/// Checks every value that its type alone does not.
pub(super) fn check(file: &ExperimentFile) -> Result<(), Flaw> {
    title(&file.title).map_err(|what| flaw(["title".into()], what))?;
    let subjects: Vec<&str> = file.subject.iter().map(|s| s.name.as_str()).collect();
    let cases: Vec<&str> = file.case.iter().map(|case| case.name.as_str()).collect();
    names("subject", &subjects)?;
    names("case", &cases)?;
    if !subjects.contains(&file.baseline.as_str()) {
        let hint = suggestion(&file.baseline, subjects.iter().copied());
        let what = format!("no subject is named `{}`{hint}", file.baseline);
        return Err(flaw(["baseline".into()], what));
    }
    if let Some(name) = &file.baseline_fallback {
        stand_in(name, &file.baseline, &subjects)
            .map_err(|what| flaw(["baseline_fallback".into()], what))?;
    }
    for (index, subject) in file.subject.iter().enumerate() {
        let here = |key: &str| ["subject".into(), index.into(), key.into()];
        one_line(&subject.about).map_err(|what| flaw(here("about"), what))?;
        prefix(&subject.prefix).map_err(|what| flaw(here("prefix"), what))?;
    }
    for (index, case) in file.case.iter().enumerate() {
        between(case.origins.into(), ORIGINS_MAX)
            .map_err(|what| flaw(["case".into(), index.into(), "origins".into()], what))?;
        load(&case.load, case.rate_of.is_some()).map_err(|(key, what)| {
            flaw(["case".into(), index.into(), "load".into(), key.into()], what)
        })?;
        rate_of(case, &file.case).map_err(|what| {
            flaw(["case".into(), index.into(), "rate_of".into(), "case".into()], what)
        })?;
    }
    subjects_of_cases(file, &subjects)?;
    if let Some(blocks) = file.design.quick_blocks {
        between(blocks, BLOCKS_MAX)
            .map_err(|what| flaw(["design".into(), "quick_blocks".into()], what))?;
    }
    if let Some(blocks) = file.design.blocks {
        between(blocks, BLOCKS_MAX)
            .map_err(|what| flaw(["design".into(), "blocks".into()], what))?;
    }
    if let Some(budget) = file.design.budget {
        within(budget, SHORTEST_BUDGET, LONGEST_BUDGET)
            .map_err(|what| flaw(["design".into(), "budget".into()], what))?;
    }
    if let Some(cpus) = &file.cpus {
        let roles =
            [("generator", &cpus.generator), ("origin", &cpus.origin), ("system", &cpus.system)];
        if let Some((role, _)) = roles.into_iter().find(|(_, cpus)| cpus.is_empty()) {
            let what = "it needs at least one CPU".to_owned();
            return Err(flaw(["cpus".into(), role.into()], what));
        }
    }
    Ok(())
}

/// The shortest measured time, below which a trial of a slow system holds too few requests.
pub(super) const SHORTEST_WINDOW: Duration = Duration::from_millis(150);
/// The longest name of a case or a subject: a log is named after both, and a file system takes 255.
const LONGEST_NAME: usize = 64;
/// As many origins as there may be: each is a process, and all of them share their CPUs.
const ORIGINS_MAX: usize = 16;
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(1);
/// The shortest time for all trials together.
pub(super) const SHORTEST_BUDGET: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(3600);
pub(super) const LONGEST_BUDGET: Duration = Duration::from_secs(7 * 24 * 3600);

fn flaw(path: impl Into<Vec<Step>>, what: String) -> Flaw {
    Flaw { path: path.into(), what }
}

/// Checks the names of all cases, or of all subjects.
pub(super) fn names(kind: &str, names: &[&str]) -> Result<(), Flaw> {
    if names.is_empty() {
        return Err(flaw([], format!("there is no [[{kind}]]")));
    }
    for (index, name) in names.iter().enumerate() {
        let here = [kind.into(), index.into(), "name".into()];
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
            let what = format!(
                "the name `{}` has to be letters, digits, `-`, `_` and `.`: files are named after it",
                name.escape_debug()
            );
            return Err(flaw(here, what));
        }
        if name.len() > LONGEST_NAME {
            let what = format!(
                "it has {} letters, and a name {LONGEST_NAME} at the most: files are named after it",
                name.len()
            );
            return Err(flaw(here, what));
        }
        if names[..index].contains(name) {
            return Err(flaw(here, format!("two {kind}s are named `{name}`; rename one")));
        }
    }
    Ok(())
}

/// Checks that the subjects of each case are there, and that each subject has a case.
fn subjects_of_cases(file: &ExperimentFile, subjects: &[&str]) -> Result<(), Flaw> {
    for (index, case) in file.case.iter().enumerate() {
        for (place, name) in case.subjects.iter().enumerate() {
            let here = ["case".into(), index.into(), "subjects".into(), place.into()];
            if !subjects.contains(&name.as_str()) {
                let hint = suggestion(name, subjects.iter().copied());
                return Err(flaw(here, format!("no subject is named `{name}`{hint}")));
            }
            if case.subjects[..place].contains(name) {
                return Err(flaw(here, format!("`{name}` is named twice")));
            }
        }
    }
    let is_in = |name: &str| {
        name == file.baseline || file.case.iter().any(|case| case.is_for(name, &file.baseline))
    };
    match subjects.iter().position(|name| !is_in(name)) {
        Some(index) => {
            let here = ["subject".into(), index.into(), "name".into()];
            let what = format!("no case has `{}` among its `subjects`", subjects[index]);
            Err(flaw(here, what))
        }
        None => Ok(()),
    }
}

/// Checks who takes the place of a baseline that is not there.
fn stand_in(name: &str, baseline: &str, subjects: &[&str]) -> Result<(), String> {
    if name == baseline {
        return Err(format!("`{name}` is the baseline itself; name another subject"));
    }
    match subjects.contains(&name) {
        true => Ok(()),
        false => {
            let hint = suggestion(name, subjects.iter().copied());
            Err(format!("no subject is named `{name}`{hint}"))
        }
    }
}

fn title(title: &str) -> Result<(), String> {
    match title.trim().is_empty() {
        true => Err("it is empty: it has to say what the experiment asks".to_owned()),
        false => one_line(title),
    }
}

fn one_line(text: &str) -> Result<(), String> {
    match text.chars().any(char::is_control) {
        true => Err("it has to be one line of plain text: it stands in every report".to_owned()),
        false => Ok(()),
    }
}

fn prefix(prefix: &str) -> Result<(), String> {
    let goes_before_a_path = prefix.starts_with('/') && !prefix.ends_with('/');
    if !prefix.is_empty() && !goes_before_a_path {
        return Err(format!("`{prefix}` has to start with `/` and to end without one"));
    }
    match prefix.chars().find(|c| !c.is_ascii_graphic() || "?#".contains(*c)) {
        Some(odd) => Err(format!("`{}` cannot stand in the path of a request", odd.escape_debug())),
        None => Ok(()),
    }
}

/// Checks that a rate can follow from the case that it names.
fn rate_of(case: &CaseFile, cases: &[CaseFile]) -> Result<(), String> {
    let Some(rate_of) = &case.rate_of else {
        return Ok(());
    };
    let Some(other) = cases.iter().find(|other| other.name == rate_of.case) else {
        let hint = suggestion(&rate_of.case, cases.iter().map(|case| case.name.as_str()));
        return Err(format!("no case is named `{}`{hint}", rate_of.case));
    };
    match other.load.rate.is_some() || other.rate_of.is_some() {
        true => Err(format!(
            "`{}` is an open loop, which holds the rate that it is given; name a closed one",
            other.name
        )),
        false => Ok(()),
    }
}

/// Checks a load; an error names the key.
pub(super) fn load(load: &LoadFile, has_rate_of: bool) -> Result<(), (&'static str, String)> {
    let connections = load.connections as usize;
    for (key, count) in
        [("connections", Some(load.connections)), ("quick_connections", load.quick_connections)]
    {
        let Some(count) = count else { continue };
        between(count, MAX_CONNECTIONS).map_err(|what| (key, what))?;
    }
    between(load.threads, MAX_THREADS.min(connections)).map_err(|what| ("threads", what))?;
    window(load, has_rate_of)?;
    warm_up(load)?;
    lasts(load.timeout, SHORTEST_TIMEOUT).map_err(|what| ("timeout", what))?;
    schedule(load, has_rate_of)
}

/// Checks what is measured: a time or a number of requests, and of the other nothing.
fn window(load: &LoadFile, has_rate_of: bool) -> Result<(), (&'static str, String)> {
    let LoadFile { duration, quick_duration, requests, quick_requests, duration_max, .. } = *load;
    for (key, time) in [("duration", duration), ("quick_duration", quick_duration)] {
        time.map_or(Ok(()), |time| lasts(time, SHORTEST_WINDOW)).map_err(|what| (key, what))?;
    }
    let Some(_) = requests else {
        let alone = [
            ("quick_requests", quick_requests.is_some()),
            ("duration_max", duration_max.is_some()),
        ];
        return match (alone.into_iter().find(|(_, is_there)| *is_there), duration) {
            (Some((key, _)), _) => Err((key, "it belongs to `requests`: add them".to_owned())),
            (None, None) => Err((
                "duration",
                "the load says neither how long it is measured nor over how many requests: add a \
                 `duration` or `requests`"
                    .to_owned(),
            )),
            (None, Some(_)) => Ok(()),
        };
    };
    let times = [("duration", duration.is_some()), ("quick_duration", quick_duration.is_some())];
    if let Some((key, _)) = times.into_iter().find(|(_, is_there)| *is_there) {
        return Err((key, "the load has `requests`, which end it: remove one of them".to_owned()));
    }
    if load.rate.is_some() || has_rate_of {
        let what = "they belong to a closed loop; with a rate, say a `duration`";
        return Err(("requests", what.to_owned()));
    }
    for (key, count) in [("requests", requests), ("quick_requests", quick_requests)] {
        let Some(count) = count else { continue };
        between(count, REQUESTS_MAX).map_err(|what| (key, what))?;
        if count < load.connections {
            let connections = load.connections;
            let what =
                format!("{count}: they are less than one for each of {connections} connections");
            return Err((key, what));
        }
    }
    match duration_max {
        Some(most) => lasts(most, SHORTEST_WINDOW).map_err(|what| ("duration_max", what)),
        None => Ok(()),
    }
}

/// Checks how long the warm-up may last.
fn warm_up(load: &LoadFile) -> Result<(), (&'static str, String)> {
    match (load.warmup, load.warmup_max) {
        (WarmUp::For(time), None) => {
            lasts(Span(time), Duration::ZERO).map_err(|what| ("warmup", what))
        }
        (WarmUp::For(_), Some(_)) => {
            Err(("warmup_max", "it belongs to a `warmup` that is \"steady\"".to_owned()))
        }
        (WarmUp::Steady, None) => Ok(()),
        (WarmUp::Steady, Some(most)) => {
            lasts(most, STEADY_SHORTEST).map_err(|what| ("warmup_max", what))
        }
    }
}

/// Checks what belongs to an open loop.
fn schedule(load: &LoadFile, has_rate_of: bool) -> Result<(), (&'static str, String)> {
    match load.rate {
        Some(_) if has_rate_of => {
            let what = "the case has a `rate_of` too; leave one of them out".to_owned();
            return Err(("rate", what));
        }
        Some(rate) if !(rate > 0.0 && rate <= MAX_RATE) => {
            return Err(("rate", format!("{rate}: it has to be above 0 and at most {MAX_RATE}")));
        }
        _ => {}
    }
    if load.rate.is_none() && !has_rate_of {
        let alone = [
            ("spacing", load.spacing.is_some()),
            ("connections_max", load.connections_max.is_some()),
        ];
        return match alone.into_iter().find(|(_, is_there)| *is_there) {
            Some((key, _)) => Err((
                key,
                "it belongs to an open loop: add a `rate`, or a `rate_of` to the case".to_owned(),
            )),
            None => Ok(()),
        };
    }
    match load.connections_max {
        Some(most) if most < load.connections => Err((
            "connections_max",
            format!("{most}: it is less than the {} connections from the start", load.connections),
        )),
        Some(most) => between(most, MAX_CONNECTIONS).map_err(|what| ("connections_max", what)),
        None => Ok(()),
    }
}

fn between(value: u32, high: usize) -> Result<(), String> {
    match (1..=high).contains(&(value as usize)) {
        true => Ok(()),
        false => Err(format!("{value}: it has to be between 1 and {high}")),
    }
}

fn lasts(span: Span, shortest: Duration) -> Result<(), String> {
    within(span, shortest, LONGEST)
}

/// Checks that a span is in its range.
pub(super) fn within(span: Span, shortest: Duration, longest: Duration) -> Result<(), String> {
    let in_words = humantime::format_duration;
    match (shortest..=longest).contains(&span.0) {
        true => Ok(()),
        false => Err(format!(
            "{}: it has to be between {} and {}",
            in_words(span.0),
            in_words(shortest),
            in_words(longest)
        )),
    }
}
