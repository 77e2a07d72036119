//! The runs and batches kept in `records/` give the reports beside them.

use crate::support::{Workspace, show, stdout};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Records that the documentation cites.
const KEPT: [&str; 16] = [
    "crowdsec-basic",
    "crowdsec-stress",
    "drop-in",
    "first-look",
    "naxsi",
    "rule-files-coraza",
    "rule-files-coraza-quick",
    "rule-files-modsecurity",
    "rule-files-modsecurity-quick",
    "versions-coraza",
    "versions-crs",
    "versions-gateway",
    "vitrix",
    "waf-placements",
    "waf-price",
    "wafs",
];

/// Reports of a run and of a batch: command, format and file.
const OF_A_RUN: [(&str, &str, &str); 2] =
    [("report", "markdown", "report.md"), ("report", "csv", "report.csv")];
const OF_A_BATCH: [(&str, &str, &str); 2] =
    [("batch stats", "table", "stats.txt"), ("batch stats", "csv", "stats.csv")];

#[test]
fn kept_reports_match_their_trials() {
    let records = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../records");
    let folders = fs::read_dir(&records).expect("records/").map(|entry| entry.expect("an entry"));
    let kept: BTreeSet<String> = folders
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().expect("a name"))
        .collect();
    for name in KEPT {
        assert!(kept.contains(name), "records/{name} is missing; run scripts/record");
    }
    let workspace = Workspace::concurrent();
    for name in kept {
        let folder = records.join(&name);
        let is_batch = folder.join("batch.json").is_file();
        for (command, format, file) in if is_batch { OF_A_BATCH } else { OF_A_RUN } {
            let path = folder.to_str().expect("a path in UTF-8");
            let args: Vec<&str> = command.split(' ').chain([path, "--format", format]).collect();
            let output = workspace.run(&args);
            assert_eq!(output.status.code(), Some(0), "{name}: {}", show(&output));
            let before = fs::read_to_string(folder.join(file)).expect(file);
            assert_eq!(stdout(&output), before, "records/{name}/{file}");
        }
    }
}

/// The picture of README.
#[test]
fn price_chart_is_that_of_its_record() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let record = root.join("records/first-look");
    let path = record.to_str().expect("a path in UTF-8");
    let output = Workspace::concurrent().run(&["report", path, "--format", "svg"]);
    let before = fs::read_to_string(root.join("docs/price.svg")).expect("docs/price.svg");
    assert_eq!(stdout(&output), before, "{}", show(&output));
}
