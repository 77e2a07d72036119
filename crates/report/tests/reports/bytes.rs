//! Bytes a second: only where an experiment asks for them, and only where there are any.

use crate::html::source;
use crate::records::{blocks, costing, measured, run};
use tollgate_experiment::run_dir::RunRecords;
use tollgate_report::analysis::analyse;
use tollgate_report::{html, markdown, table};
use tollgate_stats::text::Screen;

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
fn bytes_to_and_fro_stand_below_the_figures() {
    let text = table::render(&analyse(&busy()), Screen::PLAIN);
    let lines: Vec<&str> =
        text.lines().skip_while(|line| !line.contains("responses MB/s")).collect();
    assert_eq!(lines[0], "subject  responses MB/s  requests MB/s", "{text}");
    assert_eq!(lines[2], "nginx             0.250          0.120");
    assert_eq!(lines[3], "full               1250           4.00");
    let text = markdown::render(&analyse(&busy()));
    assert!(text.contains("| full | 1250 | 4.00 |"), "{text}");
    let page = html::render(&source(busy())).unwrap();
    assert!(page.contains("<td>1250</td><td>4.00</td>"), "{page}");
}

#[test]
fn where_nobody_asks_and_in_records_of_old_there_is_no_such_table() {
    let mut quiet = busy();
    quiet.manifest.experiment.bytes = false;
    let mut old = busy();
    for trial in &mut old.trials {
        let tollgate_experiment::record::Outcome::Measured(measurement) = &mut trial.outcome else {
            panic!("not measured");
        };
        measurement.received_bytes_per_s = None;
    }
    for run in [quiet, old] {
        assert!(!table::render(&analyse(&run), Screen::PLAIN).contains("MB/s"));
        assert!(!markdown::render(&analyse(&run)).contains("MB/s"));
        assert!(!html::render(&source(run)).unwrap().contains("MB/s"));
    }
}
