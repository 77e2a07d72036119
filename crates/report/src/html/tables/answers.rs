//! Blocked requests by template.

use super::{NONE, Row, Table, cell, plain};
use crate::analysis::{CaseAnalysis, SubjectAnalysis, TemplateFigures};
use tollgate_experiment::record::as_f64;
use tollgate_stats::number::{count, percent};
use tollgate_traffic::Class;

/// Covers all measured trials in which no process died.
pub(in crate::html) fn answers(case: &CaseAnalysis) -> Option<Table> {
    let measured: Vec<&SubjectAnalysis> =
        case.subjects.iter().filter(|subject| !subject.templates.is_empty()).collect();
    let mut templates: Vec<(&str, Class, Option<&str>)> = Vec::new();
    for template in measured.iter().flat_map(|subject| &subject.templates) {
        let of = (template.name.as_str(), template.class, template.family.as_deref());
        if !templates.contains(&of) {
            templates.push(of);
        }
    }
    // A separate column would be empty in a mix without families.
    let kind = |class: &str, family: Option<&str>| match family {
        Some(family) => format!("{class}: {family}"),
        None => class.to_owned(),
    };
    let words = |found: &TemplateFigures| {
        if found.responses == 0 {
            return "no response".to_owned();
        }
        let told = found.told();
        let mut text = match told {
            0 => "neither blocked nor passed".to_owned(),
            told => {
                let share = percent(as_f64(found.blocked) / as_f64(told));
                format!("{share} ({} of {})", count(found.blocked), count(told))
            }
        };
        if found.other > 0 {
            text += &format!(", {} other", count(found.other));
        }
        if found.unexpected > 0 {
            text += &format!(", {} unexpected", count(found.unexpected));
        }
        text
    };
    let rows = templates.iter().map(|(name, class, family)| {
        let word = match class {
            Class::Benign => "benign",
            Class::Malicious => "attack",
        };
        let mut cells = vec![plain(&kind(word, *family))];
        cells.extend(measured.iter().map(|subject| {
            let mut templates = subject.templates.iter();
            match templates.find(|found| (found.name.as_str(), found.class) == (name, *class)) {
                Some(found) => cell("blocked", Some(as_f64(found.blocked)), words(found)),
                None => plain(NONE),
            }
        }));
        Row { name: (*name).to_owned(), key: None, cells }
    });
    let names = measured.iter().map(|subject| subject.name.clone());
    let table = Table {
        caption: "Share of requests blocked, of those blocked or passed, over all measured trials"
            .to_owned(),
        of: String::new(),
        prose: false,
        header: ["template".to_owned(), "class".to_owned()].into_iter().chain(names).collect(),
        rows: rows.collect(),
    };
    (!table.rows.is_empty()).then_some(table)
}
