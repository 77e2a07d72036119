//! What is kept in `records/`: whole runs on a real machine, which this version still reads.

use crate::support::{Workspace, stdout, told};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Those that the documentation speaks of.
const KEPT: [&str; 12] = [
    "crowdsec-basic",
    "crowdsec-stress",
    "naxsi",
    "rule-files-coraza",
    "rule-files-coraza-quick",
    "rule-files-modsecurity",
    "rule-files-modsecurity-quick",
    "versions-coraza",
    "versions-crs",
    "versions-gateway",
    "vitrix",
    "wafs",
];

/// What is kept of a run, and of a batch: the command that prints it, the format, and the file.
const OF_A_RUN: [(&str, &str, &str); 2] =
    [("report", "markdown", "report.md"), ("report", "csv", "report.csv")];
const OF_A_BATCH: [(&str, &str, &str); 2] =
    [("batch stats", "table", "stats.txt"), ("batch stats", "csv", "stats.csv")];

#[test]
fn the_reports_in_records_are_what_the_trials_beside_them_say() {
    let records = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../records");
    let folders = fs::read_dir(&records).expect("records/").map(|entry| entry.expect("an entry"));
    let kept: BTreeSet<String> = folders
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().expect("a name"))
        .collect();
    for name in KEPT {
        assert!(kept.contains(name), "records/{name} is missing; scripts/record makes it");
    }
    let workspace = Workspace::beside_others();
    for name in kept {
        let folder = records.join(&name);
        let is_batch = folder.join("batch.json").is_file();
        for (command, format, file) in if is_batch { OF_A_BATCH } else { OF_A_RUN } {
            let path = folder.to_str().expect("a path in UTF-8");
            let args: Vec<&str> = command.split(' ').chain([path, "--format", format]).collect();
            let output = workspace.run(&args);
            assert_eq!(output.status.code(), Some(0), "{name}: {}", told(&output));
            let before = fs::read_to_string(folder.join(file)).expect(file);
            assert_eq!(stdout(&output), before, "records/{name}/{file}, of the trials beside it");
        }
    }
}
