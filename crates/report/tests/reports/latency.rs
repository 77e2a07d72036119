//! What each subject adds to the latency, in milliseconds.

use crate::html::source;
use crate::records::{costing, measured, run};
use tollgate_experiment::run_dir::RunRecords;
use tollgate_report::analysis::analyse;
use tollgate_report::{html, latency, markdown, table};
use tollgate_stats::text::Screen;

/// The baseline's latencies are 1.5 (mean), 0.5 (shortest), 1 (median), 4 (longest) and 2 ms (P90).
fn slowed(blocks: u32) -> RunRecords {
    let mut trials = Vec::new();
    for block in 1..=blocks {
        trials.push(measured("nginx", block, costing(10)));
        let mut full = costing(40);
        full.latency.mean_ms = Some(4.0);
        full.latency.min_ms = Some(0.75);
        full.latency.p50_ms = Some(3.0);
        // What CrowdSec found too: the longest may be shorter.
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
    let analysis = analyse(&slowed(6));
    let rows = latency::rows(&analysis, &analysis.cases[0]);
    assert_eq!(rows.header, ["latency", "nginx", "full [95 %]"]);
    let expected = [
        ["average", "1.50", "+2.50 [+2.50, +2.50]"],
        ["minimum", "0.500", "+0.250 [+0.250, +0.250]"],
        ["median", "1.00", "+2.00 [+2.00, +2.00]"],
        ["maximum", "4.00", "-1.00 [-1.00, -1.00]"],
        ["P90", "2.00", "+32.0 [+32.0, +32.0]"],
    ];
    assert_eq!(rows.rows, expected);
    let text = table::render(&analysis, Screen::PLAIN);
    assert!(text.contains("P90       2.00     +32.0 [+32.0, +32.0]"), "{text}");
    let text = markdown::render(&analysis);
    assert!(text.contains("| average | 1.50 | +2.50 \\[+2.50, +2.50\\] |"), "{text}");
    let page = html::render(&source(slowed(6))).unwrap();
    assert!(page.contains("<td>+32.0 [+32.0, +32.0]</td>"), "{page}");
}

#[test]
fn few_blocks_have_a_range_and_their_own_n() {
    let mut run = slowed(3);
    let tollgate_experiment::record::Outcome::Measured(measurement) = &mut run.trials[1].outcome
    else {
        panic!("not measured");
    };
    measurement.latency.p90_ms = None;
    let analysis = analyse(&run);
    let rows = latency::rows(&analysis, &analysis.cases[0]).rows;
    assert_eq!(rows[0][2], "+2.50 {+2.50, +2.50}");
    assert_eq!(rows[4][2], "+32.0 {+32.0, +32.0} (n 2)");
}

#[test]
fn no_latency_table_unless_requested_and_priced() {
    let mut quiet = slowed(2);
    quiet.manifest.experiment.latency = false;
    let mut alone = slowed(2);
    alone.trials.retain(|trial| trial.subject == "nginx");
    for run in [quiet, alone] {
        assert!(!table::render(&analyse(&run), Screen::PLAIN).contains("P90"));
        assert!(!markdown::render(&analyse(&run)).contains("P90"));
        assert!(!html::render(&source(run)).unwrap().contains("P90"));
    }
}
