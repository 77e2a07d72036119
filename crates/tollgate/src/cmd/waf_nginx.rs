//! `tollgate waf check --for modsecurity`: an nginx configuration as the drop-in of libmodsecurity would load it.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::Path;

use modsecurity::check::{Check, CheckedSet};
use tollgate_stats::number::counted;
use tollgate_stats::text::escape_controls;
use tollgate_waf::{EngineMode, LimitAction, RuleSet};

use crate::console::{self, Exit, Failure};

pub(crate) fn check(config: &Path) -> Result<Exit, Failure> {
    let check = modsecurity::check::check(config).map_err(Failure::bad_input)?;
    let mut text = String::new();
    write_places(&mut text, &check)?;
    for (number, set) in (1..).zip(&check.sets) {
        write_set(&mut text, number, set)?;
    }
    text.push('\n');
    write_notes(&mut text, &check)?;
    for reason in &check.refused {
        writeln!(text, "refused: {}", escape_controls(reason))?;
    }
    if !check.keeps_library_path {
        text.push_str(
            "upgrades of the running nginx (USR2) go back to libmodsecurity: write `env LD_LIBRARY_PATH;` at the top level\n",
        );
    }
    let is_accepted = check.refused.is_empty();
    text.push_str(if is_accepted {
        "nginx starts with the library\n"
    } else {
        "nginx does not start with the library\n"
    });
    console::print(&text)?;
    Ok(if is_accepted { Exit::Success } else { Exit::Failed })
}

fn write_places(text: &mut String, check: &Check) -> Result<(), Failure> {
    let title =
        |depth: usize, title: &str| escape_controls(&format!("{:1$}{title}", "", depth * 2));
    let titles: Vec<String> =
        check.places.iter().map(|place| title(place.depth, &place.title)).collect();
    let width = titles.iter().map(|title| title.chars().count()).max().unwrap_or(0).max(5);
    writeln!(
        text,
        "{:<width$}  modsecurity  {:<13}  {:>5}  {:>3}",
        "place", "engine", "rules", "set"
    )?;
    for (place, title) in check.places.iter().zip(&titles) {
        let switch = if place.is_on { "on" } else { "off" };
        write!(text, "{title:<width$}  {switch:<11}  ")?;
        match &check.sets[place.set].rules {
            Some(rules) => {
                let count = rules.rules().count();
                writeln!(
                    text,
                    "{:<13}  {count:>5}  {:>3}",
                    engine(rules.settings().engine),
                    place.set + 1
                )?;
            }
            None => writeln!(text, "{:<13}  {:>5}  {:>3}", "-", "-", place.set + 1)?,
        }
    }
    Ok(())
}

fn engine(mode: EngineMode) -> &'static str {
    match mode {
        EngineMode::On => "On",
        EngineMode::DetectionOnly => "DetectionOnly",
        EngineMode::Off => "Off",
    }
}

/// Writes what has no effect in any set, once.
fn write_notes(text: &mut String, check: &Check) -> Result<(), Failure> {
    let sets = || check.sets.iter().filter_map(|set| set.rules.as_ref());
    let mut written = HashSet::new();
    for (title, list) in [
        ("never matches", sets().flat_map(RuleSet::never_matching).collect::<Vec<_>>()),
        ("without effect", sets().flat_map(RuleSet::inert).collect()),
    ] {
        for entry in list {
            let entry = format!("{title}: {}: {}", entry.place, entry.message);
            if !written.contains(&entry) {
                writeln!(text, "{}", escape_controls(&entry))?;
                written.insert(entry);
            }
        }
    }
    Ok(())
}

fn write_set(text: &mut String, number: usize, set: &CheckedSet) -> Result<(), Failure> {
    let Some(rules) = &set.rules else {
        writeln!(text, "\nset {number}: cannot be loaded, see below")?;
        return Ok(());
    };
    let count = counted(rules.rules().count(), "rule");
    writeln!(text, "\nset {number}: {count}, {} removed", rules.removed())?;
    let mut line =
        |name: &str, value: &str| writeln!(text, "  {name:<16}{}", escape_controls(value));
    for source in &set.sources {
        line("from", source)?;
    }
    let settings = rules.settings();
    let larger = |action| match action {
        LimitAction::Reject => "rejected",
        LimitAction::ProcessPartial => "inspected up to there",
    };
    let bodies = |access, limit, action| {
        if access {
            format!("up to {limit} bytes, larger ones {}", larger(action))
        } else {
            "not inspected".to_owned()
        }
    };
    line(
        "request bodies",
        &bodies(
            settings.request_body_access,
            settings.request_body_limit,
            settings.request_body_limit_action,
        ),
    )?;
    line(
        "response bodies",
        &bodies(
            settings.response_body_access,
            settings.response_body_limit,
            settings.response_body_limit_action,
        ),
    )?;
    if let Some(path) = &settings.audit_log {
        line("audit log", path)?;
    }
    for bodies in rules.uninspected_bodies() {
        line("uninspected", &bodies.to_string())?;
    }
    for difference in set.differences() {
        line("differs", &difference)?;
    }
    Ok(())
}
