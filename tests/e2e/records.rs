//! What is kept in `records/`: whole runs on a real machine, which this version still reads.

use crate::support::{Workspace, stdout, told};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Those that the documentation speaks of.
const KEPT: [&str; 4] = ["crowdsec-basic", "crowdsec-stress", "naxsi", "wafs"];

#[test]
fn the_reports_in_records_are_what_the_trials_beside_them_say() {
    let records = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../records");
    let folders = fs::read_dir(&records).expect("records/").map(|entry| entry.expect("an entry"));
    let runs: BTreeSet<String> = folders
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().expect("a name"))
        .collect();
    for name in KEPT {
        assert!(runs.contains(name), "records/{name} is missing; scripts/record {name} makes it");
    }
    let workspace = Workspace::beside_others();
    for name in runs {
        let run = records.join(&name);
        for (format, file) in [("markdown", "report.md"), ("csv", "report.csv")] {
            let run = run.to_str().expect("a path in UTF-8");
            let output = workspace.run(&["report", run, "--format", format]);
            assert_eq!(output.status.code(), Some(0), "{name}: {}", told(&output));
            let kept = fs::read_to_string(records.join(&name).join(file)).expect(file);
            assert_eq!(stdout(&output), kept, "records/{name}/{file}, of the trials beside it");
        }
    }
}
