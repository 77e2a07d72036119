//! The findings of a search as people and programs read them.

use super::bracket::TRIALS_MAX;
use super::findings::{CaseFindings, Findings, Rate, Standing, SubjectFindings};
use super::terms::EndedBy;
use crate::report::ReportError;
use crate::report::layout::Screen;
use crate::report::number::{in_full, share, significant};
use crate::report::rows::{Rows, counted, schedule};
use crate::report::table::draw;

/// Writes findings for a terminal.
pub fn table(findings: &Findings, screen: Screen) -> String {
    let slo = &findings.terms.slo;
    let title = format!("The highest rate that keeps {slo}");
    let mut text = screen.heading(&title);
    for case in &findings.cases {
        text.push('\n');
        text += &screen.wrapped(&load_line(case));
        let names = case.subjects.iter().map(|subject| subject.name.chars().count());
        let names = names.max().unwrap_or(0);
        for subject in case.subjects.iter().filter(|subject| !subject.about.is_empty()) {
            text += &screen.paragraph(&format!("  {:<names$}  ", subject.name), &subject.about);
        }
        text.push('\n');
        text += &draw(&rows(case), screen);
    }
    text += &screen.wrapped(LEGEND);
    let notes = notes(findings);
    if !notes.is_empty() {
        text.push('\n');
        text.extend(notes.iter().map(|note| screen.wrapped(note)));
    }
    text.push('\n');
    text + &screen.wrapped(&answer(findings))
}

/// Writes findings for a program: everything, unrounded.
///
/// # Errors
///
/// They cannot be written as JSON.
pub fn json(findings: &Findings) -> Result<String, ReportError> {
    Ok(serde_json::to_string_pretty(findings)? + "\n")
}

const LEGEND: &str = "Requests a second. kept: the highest rate that kept the goals in every trial, \
and below every rate that ever broke them; broken: the lowest that broke them in every trial, and above \
every rate that ever kept them; the highest rate that keeps them lies between. trials: so many at \
either end, and so many in all.";

const NONE: &str = "-";

/// What a case was, in one line.
fn load_line(case: &CaseFindings) -> String {
    let manifest = &case.case;
    let keepalive = if manifest.keepalive { "kept alive" } else { "one request each" };
    let schedule = manifest.open_loop.map_or(String::new(), |open_loop| {
        format!("{}, ", schedule(manifest.connections, &open_loop))
    });
    format!(
        "{}: open loop, {schedule}{keepalive}; trials of {} s, longer where the rate is low",
        manifest.name,
        significant(manifest.duration_s)
    )
}

fn rows(case: &CaseFindings) -> Rows {
    let header = ["subject", "kept/s", "broken/s", "trials", ""];
    Rows {
        header: header.map(str::to_owned).to_vec(),
        rows: case.subjects.iter().map(row).collect(),
    }
}

fn row(subject: &SubjectFindings) -> Vec<String> {
    let rate = |end: Option<Rate>| end.map_or(NONE.to_owned(), |end| in_full(end.rate_per_s));
    let trials = |end: Option<Rate>| end.map_or(0, |end| end.trials);
    let (at_least, broken) = match subject.standing {
        Standing::AtLeast => ("≥ ", NONE.to_owned()),
        _ => ("", rate(subject.broken)),
    };
    vec![
        subject.name.clone(),
        format!("{at_least}{}", rate(subject.kept)),
        broken,
        format!(
            "{} + {} of {}",
            trials(subject.kept),
            trials(subject.broken),
            subject.trials.len()
        ),
        subject.standing.words().to_owned(),
    ]
}

/// What a reader has to know besides the rates.
fn notes(findings: &Findings) -> Vec<String> {
    let mut notes = Vec::new();
    match findings.terms.ended_by {
        Some(EndedBy::Found) => {}
        Some(EndedBy::Budget) => notes.push(format!(
            "The budget of {} s was spent before every search was over; try a longer --budget, a \
             wider --width, or --quick.",
            significant(findings.terms.budget_s)
        )),
        Some(EndedBy::Interrupted) => notes.push("It was asked to stop.".to_owned()),
        None => notes.push("The search is under way, or was killed.".to_owned()),
    }
    let several = findings.cases.len() > 1;
    for case in &findings.cases {
        for subject in &case.subjects {
            let name = match several {
                true => format!("{} ({})", subject.name, case.case.name),
                false => subject.name.clone(),
            };
            notes.extend(subject_notes(&name, subject));
            notes.extend(width_note(&name, subject, findings.terms.width));
        }
    }
    notes
}

fn subject_notes(name: &str, subject: &SubjectFindings) -> Vec<String> {
    let mut notes = Vec::new();
    match &subject.standing {
        Standing::GivenUp(reason) => {
            notes.push(format!("{name} was given up: {reason}."));
        }
        Standing::MostTrials => notes.push(format!(
            "{name}: {TRIALS_MAX} trials, the most that a search may take, did not confirm both ends: \
             they were disturbed, or their answers contradict each other. Try a wider --width."
        )),
        Standing::Skipped(reason) => notes.push(format!("{name} was skipped: {reason}")),
        Standing::Failed(reason) => notes.push(format!("{name} failed: {reason}.")),
        Standing::AtLeast => notes.push(format!(
            "{name} may hold more: above that rate the CPU of the generator or the origin was spent."
        )),
        Standing::NeverKept => {
            let last = subject.trials.iter().rev().find(|tried| !tried.because.is_empty());
            let because = last.map_or(String::new(), |tried| tried.because.join("; "));
            notes.push(format!("{name} did not keep the goals at any rate: {because}."));
        }
        Standing::Settled | Standing::NotSettled => {}
    }
    let unsteady = subject.trials.iter().filter(|tried| tried.steady == Some(false)).count();
    if unsteady > 0 {
        notes.push(format!(
            "{name} was not steady yet when the warm-up was over in {unsteady} of {} trials; they count.",
            subject.trials.len()
        ));
    }
    if subject.contradictions > 0 {
        notes.push(format!(
            "{name}: an end answered otherwise than before {}, and the interval was widened.",
            counted(subject.contradictions as usize, "time")
        ));
    }
    notes
}

/// The note on an interval that is confirmed, and wider than it was to be.
fn width_note(name: &str, subject: &SubjectFindings, width: f64) -> Option<String> {
    let (kept, broken) = subject.kept.zip(subject.broken)?;
    let is_wider = broken.rate_per_s > kept.rate_per_s * (1.0 + width);
    (subject.standing == Standing::Settled && is_wider).then(|| {
        format!(
            "{name}: confirmed, but wider than asked: its ends are {} % apart, and {} was asked for.",
            significant(100.0 * (broken.rate_per_s / kept.rate_per_s - 1.0)),
            share(width)
        )
    })
}

/// The answer in one sentence.
fn answer(findings: &Findings) -> String {
    let several = findings.cases.len() > 1;
    let mut sentences = Vec::new();
    for case in &findings.cases {
        let clauses: Vec<String> = case.subjects.iter().filter_map(clause).collect();
        let under = if several { format!("{}: ", case.case.name) } else { String::new() };
        sentences.push(match clauses.is_empty() {
            true => format!("{under}No rate was found."),
            false => {
                format!("{under}{} is kept {}.", findings.terms.slo, clauses.join("; "))
            }
        });
    }
    sentences.join(" ")
}

fn clause(subject: &SubjectFindings) -> Option<String> {
    let name = &subject.name;
    let kept = in_full(subject.kept?.rate_per_s);
    let broken = subject.broken.map(|end| in_full(end.rate_per_s));
    match (&subject.standing, broken) {
        (Standing::Settled, Some(broken)) => {
            Some(format!("by {name} up to a rate between {kept} and {broken} a second"))
        }
        (Standing::AtLeast, _) => Some(format!("by {name} up to {kept} a second at least")),
        (Standing::NotSettled | Standing::MostTrials, Some(broken)) => Some(format!(
            "by {name}, as far as was tried, up to a rate between {kept} and {broken} a second"
        )),
        (Standing::NotSettled | Standing::MostTrials, None) => {
            Some(format!("by {name}, as far as was tried, at {kept} a second"))
        }
        _ => None,
    }
}
