//! Detection rates by weight, and the templates on which subjects differ.

use crate::records::{
    analysed, blocks, costing, figures, flat, markdown, measured, page, run, table, template,
};
use serde_json::json;
use tollgate_records::manifest::CorpusRequest;
use tollgate_records::run_dir::RunRecords;
use tollgate_records::trial::{
    Measurement, ProbeOutcome, TemplateRecord, TrialOutcome, TrialRecord,
};
use tollgate_report::analysis::{Catch, TemplateVerdict, analyse};
use tollgate_report::export::catch_csv;
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
        let TrialOutcome::Measured(drawn) = drawn(subject, 1, blocks, [1; 5]).outcome else {
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
    let note =
        "The cheapest of those that block most is fair: × 6.00, blocks 80.0 % of the attacks.";
    assert!(plot.contains(note), "{plot}");
    for name in ["nginx", "cheap", "dear"] {
        assert_eq!(plot.matches(&format!(">{name}</text>")).count(), 1, "{plot}");
    }
    // None blocks.
    let text = page(&run(&["nginx", "other"], vec![none(10), trial("other", 20, &[])]));
    assert!(!text.contains("data-plot=\"catches\""), "{text}");
}

/// Two engines on the mix and on a corpus of ten attacks and two benign requests.
fn with_corpus() -> RunRecords {
    let verdicts = |subject: &str, corpus: &str| {
        let mut trial = drawn(subject, 1, &["xss", "sql", "shell"], [1; 5]);
        let TrialOutcome::Measured(measurement) = &mut trial.outcome else {
            unreachable!("measured")
        };
        measurement.corpus = corpus.to_owned();
        trial
    };
    let none = measured("nginx", 1, Measurement { corpus: "p".repeat(12), ..costing(10) });
    // The last attack has no verdict of the second engine.
    let trials = vec![none, verdicts("first", "bbbbbbbbpppp"), verdicts("second", "bbpppppppobp")];
    let mut run = run(&["nginx", "first", "second"], trials);
    let experiment = &mut run.manifest.experiment;
    experiment.catch = true;
    let request = |number: usize| CorpusRequest {
        name: format!("list: a #{number}"),
        class: if number > 10 { Class::Benign } else { Class::Malicious },
        family: Some("injection".to_owned()),
        request: format!("GET /?a={number} | <b>"),
    };
    experiment.corpus = (1..=12).map(request).collect();
    run
}

fn catch_of(run: &RunRecords) -> Catch {
    analyse(run).cases[0].catch.clone().unwrap()
}

#[test]
fn detections_are_counted_by_template_and_request() {
    let run = with_corpus();
    let catch = catch_of(&run);
    // One that blocks nothing is not compared.
    let names: Vec<&str> = catch.subjects.iter().map(|subject| &*subject.name).collect();
    assert_eq!(names, ["first", "second"]);
    let [first, second] = &catch.subjects[..] else { unreachable!() };
    // Three templates and eight requests of the corpus; none of two benign templates and two requests.
    let share = |share: &Option<tollgate_report::analysis::Share>| {
        share.map(|share| (share.blocked, share.of))
    };
    assert_eq!((share(&first.attacks), share(&first.benign)), (Some((11, 13)), Some((0, 4))));
    assert_eq!((share(&second.attacks), share(&second.benign)), (Some((5, 12)), Some((1, 4))));
    assert_eq!((first.undecided, second.undecided), (0, 1));
    let score = first.score.unwrap();
    assert!((score.estimate - f64::midpoint(11.0 / 13.0, 1.0)).abs() < 1e-12, "{score:?}");
    assert!(score.low < score.estimate && score.estimate < score.high && score.high < 1.0);
    let family = first.families.iter().find(|one| one.family == "injection").unwrap();
    assert_eq!((family.class, family.share.blocked, family.share.of), (Class::Malicious, 8, 10));
    // The weights of the corpus are 0.
    assert_eq!(figures(&run, "first").detection_rate, Some(1.0));
}

#[test]
fn headline_counts_the_requests_of_the_corpus() {
    let run = with_corpus();
    let answer = analyse(&run).answer;
    assert_eq!(
        answer,
        "first (what first is) costs about 4.00 times what nginx does, not settled by 1 block, and blocks 11 of 13 \
         attacks; second costs about 4.00 times, not settled by 1 block, and blocks 5 of 12 attacks and 1 of 4 benign \
         requests."
    );
    let caption =
        "The cheapest of those that block most is first: × 4.00, blocks 11 of 13 attacks.";
    assert!(page(&run).contains(caption), "{}", page(&run));
}

#[test]
fn pairs_count_the_requests_on_which_one_is_right() {
    let catch = catch_of(&with_corpus());
    let [pair] = &catch.pairs[..] else { panic!("{catch:?}") };
    // Six attacks and one benign request; on the last attack, one has no verdict.
    assert_eq!((pair.same, pair.first_only, pair.second_only), (9, 7, 0));
    assert!((pair.p - 2.0 / 128.0).abs() < 1e-12, "{}", pair.p);
}

#[test]
fn every_report_has_detections_with_intervals_and_requests() {
    let run = with_corpus();
    let text = flat(&table(&run));
    for words in
        ["attack: injection 8/10 80 % [49, 94]", "92.3 [", "first, second 9 7 0 0.016 first "]
    {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
    let text = markdown(&run);
    assert!(text.contains("only 1st right"), "{text}");
    let request = "GET /?a=3 \\| \\<b\\>";
    assert!(text.contains(request), "{text}");
    let text = page(&run);
    assert!(text.contains("a=3 | &lt;b&gt;") && !text.contains("| <b>"), "{text}");
    let csv = catch_csv(&analyse(&run)).unwrap().unwrap();
    let difference = "difference,first,second,malicious,injection,list: a #3,,,,,,,,,,blocked,passed,GET /?a=3 | <b>";
    assert!(csv.contains(difference), "{csv}");
    assert_eq!(csv.lines().filter(|line| line.contains(",pair,")).count(), 1, "{csv}");
    // Without `catch` there are neither.
    let mut run = three_engines();
    run.manifest.experiment.catch = false;
    assert_eq!(catch_csv(&analyse(&run)).unwrap(), None);
    assert!(!markdown(&run).contains("only 1st right"));
}
