//! Detection rates by weight, and the templates on which subjects differ.

use crate::records::{
    analysed, blocks, costing, figures, flat, markdown, measured, page, run, table, template,
};
use serde_json::json;
use tollgate_experiment::record::{
    Measurement, Outcome, ProbeOutcome, TemplateRecord, TrialRecord,
};
use tollgate_experiment::run_dir::RunRecords;
use tollgate_report::analysis::{TemplateVerdict, analyse};
use tollgate_traffic::Class;

const MIX: [(&str, Class, u32); 5] = [
    ("xss", Class::Malicious, 5),
    ("sql", Class::Malicious, 3),
    ("shell", Class::Malicious, 2),
    ("home", Class::Benign, 9),
    ("search", Class::Benign, 1),
];

/// A trial that drew each template this often, on a subject that blocks the templates named.
fn drawn(subject: &str, block: u32, blocks: &[&str], draws: [u64; 5]) -> TrialRecord {
    let mut measurement = costing(40);
    let record = |((name, class, weight), sent): (&(&str, Class, u32), u64)| {
        let is_blocked = blocks.contains(name);
        TemplateRecord {
            name: (*name).to_owned(),
            weight: *weight,
            probe: Some(if is_blocked { ProbeOutcome::Blocked } else { ProbeOutcome::Passed }),
            ..template(*class, if is_blocked { sent } else { 0 }, sent)
        }
    };
    measurement.templates = MIX.iter().zip(draws).map(record).collect();
    measured(subject, block, measurement)
}

/// Two engines with the same verdicts that drew different requests, and one that also misses `sql`.
fn three_engines() -> RunRecords {
    let (rules, own) = (["xss", "sql", "search"], ["xss", "search"]);
    let trials = [
        blocks("nginx", &[10]),
        vec![
            drawn("first", 1, &rules, [5, 3, 2, 90, 10]),
            drawn("second", 1, &rules, [1, 0, 7, 4, 0]),
            drawn("own", 1, &own, [50, 30, 20, 900, 100]),
        ],
    ];
    run(&["nginx", "first", "second", "own"], trials.concat())
}

#[test]
fn equal_verdicts_give_equal_rates_whatever_was_drawn() {
    let run = three_engines();
    let rates = |name| {
        let figures = figures(&run, name);
        (figures.detection_rate, figures.false_positive_rate)
    };
    // Weights 5 + 3 of 10, and 1 of 10. By requests, the second would have 1 of 8.
    assert_eq!(rates("first"), (Some(0.8), Some(0.1)));
    assert_eq!(rates("second"), rates("first"));
    assert_eq!(rates("own"), (Some(0.5), Some(0.1)));
}

#[test]
fn every_report_lists_the_templates_on_which_subjects_differ() {
    let run = three_engines();
    let line = "Templates on which subjects differ: \
                1 attack blocked by first, second; passed by own: sql.";
    assert!(flat(&table(&run)).contains(line), "{}", table(&run));
    let row = "| sql | attack | 3 | blocked | blocked | passed |";
    assert!(markdown(&run).contains(row), "{}", markdown(&run));
    assert!(page(&run).contains("Templates on which subjects differ"));
    let report = serde_json::to_value(analyse(&run)).unwrap();
    assert_eq!(
        report["cases"][0]["differences"],
        json!([{
            "name": "sql", "class": "malicious", "weight": 3,
            "verdicts": {"first": "blocked", "second": "blocked", "own": "passed"},
        }])
    );
}

#[test]
fn equal_engines_have_no_list() {
    let mut run = three_engines();
    run.manifest.experiment.subjects.pop();
    assert_eq!(analyse(&run).cases[0].differences, []);
    for report in [table(&run), markdown(&run), page(&run)] {
        assert!(!report.contains("subjects differ"), "{report}");
    }
}

#[test]
fn verdict_that_changes_between_trials_is_unstable() {
    let trials = vec![
        drawn("full", 1, &["xss", "sql"], [1, 1, 1, 1, 1]),
        drawn("full", 2, &["sql"], [3, 1, 1, 1, 1]),
    ];
    let run = run(&["full"], trials);
    let verdicts: Vec<_> = analysed(&run, "full").templates.iter().map(|one| one.verdict).collect();
    use TemplateVerdict::{Blocked, Passed, Unstable};
    assert_eq!(verdicts, [Unstable, Blocked, Passed, Passed, Passed].map(Some));
    // One of four requests of `xss`, and all of `sql`: (5 / 4 + 3) / 10.
    assert_eq!(figures(&run, "full").detection_rate, Some(0.425));
    let note = "full blocked some requests of a template and passed others (1 of 5 templates): \
                xss (25.0 %).";
    assert_eq!(analyse(&run).notes.iter().filter(|found| *found == note).count(), 1);
}

#[test]
fn page_points_to_the_cheapest_of_those_that_block_most() {
    let trial = |subject: &str, cpu: u64, blocks: &[&str]| {
        let Outcome::Measured(drawn) = drawn(subject, 1, blocks, [1; 5]).outcome else {
            unreachable!("a measured trial")
        };
        measured(subject, 1, Measurement { templates: drawn.templates, ..costing(cpu) })
    };
    let none = |cpu| trial("nginx", cpu, &[]);
    let trials = vec![
        none(10),
        trial("cheap", 20, &["xss"]),
        trial("dear", 90, &["xss", "sql"]),
        trial("fair", 60, &["xss", "sql"]),
    ];
    let text = page(&run(&["nginx", "cheap", "dear", "fair"], trials));
    let (_, plot) = text.split_once("data-plot=\"catches\"").expect("the plot");
    let plot = plot.split("</figure>").next().unwrap();
    assert!(plot.contains(">fair: cheapest that blocks most</text>"), "{plot}");
    let note = "The cheapest of those that block most is fair: × 6.00 {6.00, 6.00}, blocks 80.0 % of the attacks.";
    assert!(plot.contains(note), "{plot}");
    for name in ["nginx", "cheap", "dear"] {
        assert_eq!(plot.matches(&format!(">{name}</text>")).count(), 1, "{plot}");
    }
    // None blocks.
    let text = page(&run(&["nginx", "other"], vec![none(10), trial("other", 20, &[])]));
    assert!(!text.contains("data-plot=\"catches\""), "{text}");
}
