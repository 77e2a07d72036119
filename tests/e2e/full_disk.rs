//! Files that cannot be written: what there is stays whole, and it is told how to go on.

use crate::experiment::Experiment;
use crate::support::{Workspace, flat, stderr, stdout, told};
use assert_cmd::cargo::cargo_bin;
use std::fs;
use std::process::{Command, Output};

/// Runs the binary where no file can grow beyond so many blocks of 512 bytes, which fails as a full
/// disk does.
fn run_with_limit(workspace: &Workspace, blocks_512: u32, arguments: &str) -> Output {
    let binary = cargo_bin!("tollgate").display().to_string();
    let script = format!("trap '' XFSZ; ulimit -f {blocks_512}; exec '{binary}' {arguments}");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(workspace.path("")).env("NO_COLOR", "1");
    command.output().expect("a shell")
}

#[test]
fn what_a_full_disk_cuts_off_goes_on_and_no_report_is_there_by_half() {
    let workspace = Workspace::new();
    let experiment = Experiment {
        title: "Is the disk full?",
        load: r#"connections = 2, duration = "150ms", warmup = "10ms""#,
        subjects: &[("nginx", "nginx", ""), ("same", "nginx", "")],
        blocks: 6,
    };
    workspace.write("full.toml", &experiment.text());

    // Enough for the manifest and some records, which are some 3 kB each.
    let cut_off = run_with_limit(&workspace, 48, "run full.toml --out out");
    assert_eq!(cut_off.status.code(), Some(1), "{}", told(&cut_off));
    let said = flat(&stderr(&cut_off));
    assert!(said.contains(" run --resume out` goes on with it: adding a trial to "), "{said}");
    assert!(said.contains("/out/trials.ndjson; those before it are kept: "), "{said}");
    let before = workspace.read("out/trials.ndjson").matches('\n').count();
    assert!((1..12).contains(&before), "{before} records: {}", told(&cut_off));
    workspace.assert_nothing_runs();

    // Enough for all records, and not for the page with its plots.
    let unreported = run_with_limit(&workspace, 160, "run --resume out");
    assert_eq!(unreported.status.code(), Some(1), "{}", told(&unreported));
    let said = flat(&stderr(&unreported));
    assert!(said.contains("the records are whole, and `"), "{said}");
    assert!(said.contains("/out` writes the reports that are missing: writing "), "{said}");
    assert!(stdout(&unreported).contains("Is the disk full?"), "{}", told(&unreported));
    let files: Vec<_> = fs::read_dir(workspace.path("out")).expect("the run").flatten().collect();
    let is_page = |name: &str| name.starts_with("report.html");
    assert!(!files.iter().any(|file| is_page(&file.file_name().to_string_lossy())), "{files:?}");

    let whole = workspace.run(&["run", "--resume", "out"]);
    assert_eq!(whole.status.code(), Some(0), "{}", told(&whole));
    assert!(workspace.read("out/report.html").trim_end().ends_with("</html>"));
    assert_eq!(workspace.read("out/trials.ndjson").matches('\n').count(), 12, "{}", told(&whole));
}

#[test]
fn an_output_that_cannot_be_written_is_named() {
    let workspace = Workspace::beside_others();
    let mut command = workspace.command(&["list"]);
    command.stdout(fs::File::create("/dev/full").expect("/dev/full"));
    let output = command.output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    let expected = "tollgate: writing to standard output: No space left on device";
    assert!(stderr(&output).starts_with(expected), "{}", told(&output));
}
