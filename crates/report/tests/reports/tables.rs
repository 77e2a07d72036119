//! Tables that depend on the experiment: cases of some subjects, cases of a number of requests, bytes per second and
//! added latency.

use crate::records::{
    CASE, blocks, case, costing, drifting, flat, markdown, measured, page, report, run, table,
};
use std::time::Duration;
use tollgate_records::replay::ended_by;
use tollgate_records::run_dir::RunRecords;
use tollgate_records::stop::EndedBy;
use tollgate_records::trial::{Measurement, TrialOutcome};
use tollgate_report::Format;
use tollgate_report::analysis::{Analysis, analyse};
use tollgate_traffic::load_shape::Window;

/// One block of two cases: one for all three subjects, one for the baseline and `full`.
fn two_cases() -> RunRecords {
    let mut trials: Vec<_> = ["nginx", "light", "full"]
        .into_iter()
        .map(|subject| measured(subject, 1, costing(10)))
        .collect();
    for subject in ["nginx", "full"] {
        let mut trial = measured(subject, 1, costing(20));
        trial.case = "short".to_owned();
        trials.push(trial);
    }
    let mut run = run(&["nginx", "light", "full"], trials);
    let mut short = case("short");
    short.only_subjects = ["nginx", "full"].map(str::to_owned).to_vec();
    run.manifest.experiment.cases.push(short);
    run.manifest.experiment.stop.blocks = 1;
    run
}

fn subjects(analysis: &Analysis, case: usize) -> Vec<&str> {
    analysis.cases[case].subjects.iter().map(|subject| subject.name.as_str()).collect()
}

#[test]
fn a_case_has_only_its_own_subjects() {
    let run = two_cases();
    let analysis = analyse(&run);
    assert_eq!(subjects(&analysis, 0), ["nginx", "light", "full"]);
    assert_eq!(subjects(&analysis, 1), ["nginx", "full"]);
    assert!(!analysis.notes.iter().any(|note| note.contains("light (short)")), "{analysis:?}");
    let lines = report(&run, Format::Csv);
    assert!(lines.contains("\nshort,full,nginx,measured"), "{lines}");
    assert!(!lines.contains("short,light"), "{lines}");
}

#[test]
fn a_run_is_complete_with_the_subjects_of_each_case() {
    let whole = two_cases();
    assert_eq!(ended_by(&whole), EndedBy::Blocks);
    for (place, trial) in whole.trials.iter().enumerate() {
        let mut cut = whole.clone();
        cut.trials.remove(place);
        assert_eq!(ended_by(&cut), EndedBy::Interrupted, "{} {}", trial.case, trial.subject);
    }
}

#[test]
fn load_line_has_requests_or_seconds() {
    let shape = "losed loop, 50 connections, keep-alive; 1 block, ";
    let requests = Window::Requests { requests: 10_000, within: Duration::from_secs(60) };
    let time = Window::For(Duration::from_millis(2_500));
    for (length, window) in [(requests, "10,000 requests"), (time, "2.50 s")] {
        let mut run = two_cases();
        run.manifest.experiment.cases[0].load.window = length;
        let (text, page) = (flat(&table(&run)), page(&run));
        let line = format!("{CASE}: c{shape}{window} per trial");
        assert!(text.contains(&line), "no {line} in:\n{text}");
        assert!(page.contains(&format!("<p>C{shape}{window} per trial</p>")), "{page}");
    }
}

fn busy() -> RunRecords {
    let mut trials = blocks("nginx", &[10]);
    let mut other = costing(12);
    other.received_bytes_per_s = Some(1_250_000_000.0);
    other.sent_bytes_per_s = Some(4_000_000.0);
    trials.push(measured("full", 1, other));
    let mut run = run(&["nginx", "full"], trials);
    run.manifest.experiment.bytes = true;
    run
}

#[test]
fn bytes_per_second_in_both_directions() {
    let text = table(&busy());
    let lines: Vec<&str> =
        text.lines().skip_while(|line| !line.contains("responses MB/s")).collect();
    assert_eq!(lines[0], "subject  responses MB/s  requests MB/s", "{text}");
    assert_eq!(lines[2], "nginx             0.250          0.120");
    assert_eq!(lines[3], "full               1250           4.00");
    let text = markdown(&busy());
    assert!(text.contains("| full | 1250 | 4.00 |"), "{text}");
    let page = page(&busy());
    let cells = "<td data-figure=\"received_bytes_per_s\" data-value=\"1250000000\">1250</td>\
                 <td data-figure=\"sent_bytes_per_s\" data-value=\"4000000\">4.00</td>";
    assert!(page.contains(cells), "{page}");
}

#[track_caller]
fn assert_in_no_report(run: &RunRecords, text: &str) {
    for report in [table(run), markdown(run), page(run)] {
        assert!(!report.contains(text), "{report}");
    }
}

fn measurement(run: &mut RunRecords, trial: usize) -> &mut Measurement {
    match &mut run.trials[trial].outcome {
        TrialOutcome::Measured(measurement) => measurement,
        other => panic!("not measured: {other:?}"),
    }
}

#[test]
fn no_bytes_table_unless_requested_and_recorded() {
    let mut quiet = busy();
    quiet.manifest.experiment.bytes = false;
    let mut old = busy();
    for trial in 0..old.trials.len() {
        measurement(&mut old, trial).received_bytes_per_s = None;
    }
    for run in [quiet, old] {
        assert_in_no_report(&run, "MB/s");
    }
}

/// The baseline's latencies are 1.5 (mean), 0.5 (minimum), 1 (median), 4 (maximum) and 2 ms (P90).
fn slowed(blocks: u32) -> RunRecords {
    let mut trials = Vec::new();
    for block in 1..=blocks {
        trials.push(measured("nginx", block, costing(10)));
        let mut full = costing(40);
        full.latency.mean_ms = Some(4.0);
        full.latency.min_ms = Some(0.75);
        full.latency.p50_ms = Some(3.0);
        // The maximum may be lower than the baseline's.
        full.latency.max_ms = Some(3.0);
        full.latency.p90_ms = Some(34.0);
        trials.push(measured("full", block, full));
    }
    let mut run = run(&["nginx", "full"], trials);
    run.manifest.experiment.latency = true;
    run
}

#[test]
fn added_latency_in_the_order_of_crowdsec() {
    let run = slowed(6);
    let text = table(&run);
    let lines: Vec<String> = text.lines().map(flat).collect();
    let header = lines.iter().position(|line| line == "latency nginx full [95 %]").unwrap();
    let expected = [
        "average 1.50 +2.50 [+2.50, +2.50]",
        "minimum 0.500 +0.250 [+0.250, +0.250]",
        "median 1.00 +2.00 [+2.00, +2.00]",
        "maximum 4.00 -1.00 [-1.00, -1.00]",
        "P90 2.00 +32.0 [+32.0, +32.0]",
    ];
    assert_eq!(lines[header + 2..header + 7], expected);
    let text = markdown(&run);
    assert!(text.contains("| average | 1.50 | +2.50 \\[+2.50, +2.50\\] |"), "{text}");
    let page = page(&run);
    assert!(page.contains("<td>+32.0 [+32.0, +32.0]</td>"), "{page}");
}

#[test]
fn few_blocks_have_their_own_n() {
    let mut run = slowed(3);
    measurement(&mut run, 1).latency.p90_ms = None;
    let text = flat(&table(&run));
    assert!(text.contains("average 1.50 +2.50 minimum"), "{text}");
    assert!(text.contains("P90 2.00 +32.0 (n 2)"), "{text}");
}

#[test]
fn no_latency_table_unless_requested_and_priced() {
    let mut quiet = slowed(2);
    quiet.manifest.experiment.latency = false;
    let mut alone = slowed(2);
    alone.trials.retain(|trial| trial.subject == "nginx");
    for run in [quiet, alone] {
        assert_in_no_report(&run, "P90");
    }
}

#[test]
fn says_that_paired_estimates_differ_from_medians() {
    let words = "Estimates are paired; medians may differ.";
    let even =
        run(&["nginx", "full"], [blocks("nginx", &[10; 6]), blocks("full", &[30; 6])].concat());
    assert!(!flat(&table(&even)).contains(words), "{}", table(&even));
    // Medians of 60 and 120 µs; the differences are 10, 20, 40, 80, 160 and 320, whose estimate is not 60.
    let drift = run(&["nginx", "full"], [drifting("nginx", 1), drifting("full", 2)].concat());
    assert!(flat(&table(&drift)).contains(words), "{}", table(&drift));
}

#[test]
fn range_of_one_block_is_not_printed() {
    let text = flat(&table(&two_cases()));
    assert!(text.contains("n too small: no 95 % interval below 6 blocks."), "{text}");
    assert!(!text.contains('{'), "{text}");
    let trials = [blocks("nginx", &[10; 2]), blocks("full", &[20, 30])].concat();
    let text = flat(&table(&run(&["nginx", "full"], trials)));
    assert!(
        text.contains("{2.00, 3.00}") && text.contains("{a, b} is the observed range."),
        "{text}"
    );
}
