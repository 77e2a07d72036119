//! `tollgate batch` on a generated repository of a small server: one revision does not build, one crashes at
//! start, one is twenty times slower.

use crate::support::{NO_LIMITS, Workspace, show, stderr, stdout, wait_until};
use nix::sys::signal::{Signal, kill};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

fn parts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/batch.d")
}

/// Creates the repository and the file of the batch in a workspace.
pub(crate) fn repository(workspace: Workspace, revisions: &[&str]) -> Workspace {
    let made = Command::new(parts().join("history"))
        .arg(workspace.path("repository"))
        .args(revisions)
        .output()
        .expect("a shell");
    assert!(made.status.success(), "{}", show(&made));
    let read = |name: &str| fs::read_to_string(parts().join(name)).expect("a file");
    workspace.write("revisions.toml", &read("revisions.toml"));
    for name in ["systems/burner/system.toml", "mixes/ping.toml", "experiments/burner.toml"] {
        workspace.write(name, &read(&format!("catalog/{name}")));
    }
    let experiment = workspace.read("experiments/burner.toml") + NO_LIMITS;
    // Tests run side by side.
    let experiment = experiment.replace("warmup = ", "busy_poll = false, warmup = ");
    workspace.write("experiments/burner.toml", &experiment);
    workspace
}

/// Returns every file below a folder with its modification time.
fn files(folder: &Path) -> BTreeMap<PathBuf, SystemTime> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let metadata = entry.metadata().expect("a file");
        found.insert(entry.path(), metadata.modified().expect("a time"));
        if metadata.is_dir() {
            found.extend(files(&entry.path()));
        }
    }
    found
}

fn point<'a>(stats: &'a Value, log: &str) -> &'a Value {
    let revisions = stats["revisions"].as_array().expect("revisions");
    let found =
        revisions.iter().find(|one| one["message"].as_str().expect("a text").starts_with(log));
    found.unwrap_or_else(|| panic!("no {log}: {stats:#}"))
}

#[test]
fn finds_commit_with_regression() {
    let workspace =
        repository(Workspace::quiet(), &["60000", "same", "fails", "crashes", "1200000", "same"]);
    let before = files(&workspace.path("repository"));

    // Two revisions first; killed in between.
    let run = ["batch", "run", "revisions.toml", "--steps", "2", "--seed", "7"];
    let mut child = workspace.start(&run);
    let trials = || {
        let text = fs::read_to_string(workspace.path("batch/rounds/001/trials.ndjson"));
        text.unwrap_or_default().matches('\n').count()
    };
    assert!(wait_until(Duration::from_secs(60), || trials() >= 2));
    kill(workspace.supervised(&child), Signal::SIGKILL).expect("the batch is there");
    assert_eq!(child.wait().expect("an end").code(), Some(137));
    workspace.assert_nothing_runs();
    let kept = trials();
    let output = workspace.run(&run);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    assert!(
        stderr(&output).contains(&format!("{kept} trials already on record")),
        "{}",
        show(&output)
    );
    assert_eq!(stderr(&output).matches("building ").count(), 0, "{}", show(&output));

    // The default is the number of steps before.
    let output = workspace.run(&["batch", "find", "--format", "json"]);
    assert!(stderr(&output).contains("2 of 6 revisions"), "{}", show(&output));
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let findings: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let changes = findings["changes"].as_array().expect("changes");
    assert_eq!(changes.len(), 1, "{findings:#}");
    assert_eq!(changes[0]["parent"]["message"], "revision 2, same");
    assert_eq!(changes[0]["first_bad"]["message"], "revision 5, 1200000");
    let candidates: Vec<&Value> = changes[0]["candidates"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| &one["message"])
        .collect();
    assert_eq!(candidates, ["revision 3, fails", "revision 4, crashes"]);
    let confirmation = &changes[0]["confirmation"];
    assert_eq!(confirmation["verdict"], "costs-more", "{findings:#}");
    assert_eq!(changes[0]["conclusion"], "regression", "{findings:#}");
    let ratio = confirmation["ratio"]["estimate"].as_f64().expect("a ratio");
    assert!((5.0..40.0).contains(&ratio), "{findings:#}");
    let output = workspace.run(&["batch", "find", "--fail-on", "regression"]);
    assert_eq!(output.status.code(), Some(99), "{}", show(&output));

    let output = workspace.run(&["batch", "stats", "--format", "json"]);
    let stats: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    for (log, state) in [
        ("revision 1", "done"),
        ("revision 2", "done"),
        ("revision 3", "build-failed"),
        ("revision 4", "run-failed"),
        ("revision 5", "done"),
        ("revision 6", "done"),
    ] {
        assert_eq!(point(&stats, log)["state"], state, "{stats:#}");
    }
    let why = |log: &str| point(&stats, log)["reason"].to_string();
    assert!(why("revision 3").contains("this revision does not build"), "{stats:#}");
    assert!(why("revision 4").contains("this revision crashes at start"), "{stats:#}");
    let product = |log: &str| point(&stats, log)["product"].as_str().expect("a product").to_owned();
    assert_eq!(product("revision 1"), product("revision 2"), "only the README differs");
    assert_eq!(point(&stats, "revision 1")["price"], point(&stats, "revision 2")["price"]);
    assert_ne!(product("revision 2"), product("revision 5"));
    // The anchor is compared with itself.
    let check = &stats["checks"][0];
    assert_eq!((&check["same_as"], &check["round"]), (&"anchor".into(), &1.into()), "{stats:#}");

    check_csv(&workspace, &stats);
    check_page(&workspace);
    assert_eq!(files(&workspace.path("repository")), before, "the repository has changed");
    workspace.assert_nothing_runs();
}

/// Checks the columns, and the lines of all revisions.
fn check_csv(workspace: &Workspace, stats: &Value) {
    let output = workspace.run(&["batch", "stats", "--format", "csv"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let text = stdout(&output);
    let mut lines = text.lines();
    let header = ";rps_avg,latency_avg,workers_utime_avg,revision,date,commit_log";
    assert_eq!(lines.next(), Some(header));
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines.len(), 6, "{text}");
    let failed = point(stats, "revision 3")["revision"].as_str().expect("a commit");
    let line = format!(",,,{failed},2023-11-15 01:13:20 +0000,\"revision 3, fails\"");
    assert_eq!(lines[2], line);
    let cells: Vec<&str> = lines[0].split(',').collect();
    let figures: Vec<f64> = cells[..3].iter().map(|cell| cell.parse().expect("a number")).collect();
    let means = &point(stats, "revision 1")["means"];
    for (figure, name) in figures.iter().zip(["throughput_per_s", "latency_mean_ms", "user_ticks"])
    {
        let mean = means[name].as_f64().expect("a mean");
        assert!((figure - mean).abs() <= 0.005, "{name}: {figure} beside {mean}");
    }
}

/// Checks the links from revisions to the reports of their rounds.
fn check_page(workspace: &Workspace) {
    let page = workspace.read("batch/stats.html");
    let links: Vec<&str> = page
        .split("href=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .filter(|link| link.starts_with("rounds/"))
        .collect();
    assert!(links.len() >= 4, "{links:?}");
    for link in links {
        assert!(workspace.path("batch").join(link).is_file(), "{link} has no target");
    }
    assert!(page.contains("Regression: "), "{page}");
    assert!(page.contains(">change</text>"), "{page}");
    let output = workspace.run(&["batch", "stats", "--format", "html"]);
    assert_eq!(stdout(&output), page);
}

/// Of two revisions to measure first, the last does not build, and the one before does not run; a third one
/// replaces them. There are two changes between the measured ones.
#[test]
fn finds_two_changes_between_measured_revisions() {
    let workspace = repository(
        Workspace::long_quiet(),
        &["60000", "200000", "same", "1500000", "crashes", "fails"],
    );
    let run = ["batch", "run", "revisions.toml", "--steps", "2", "--seed", "7"];
    let output = workspace.run(&run);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let stats = |workspace: &Workspace| -> Value {
        let output = workspace.run(&["batch", "stats", "--format", "json"]);
        serde_json::from_str(&stdout(&output)).expect("JSON")
    };
    let before = stats(&workspace);
    let states = [1, 2, 3, 4, 5, 6].map(|number| {
        let state = &point(&before, &format!("revision {number}"))["state"];
        state.as_str().expect("a state").to_owned()
    });
    assert_eq!(
        states,
        ["done", "queued", "queued", "done", "run-failed", "build-failed"],
        "{before:#}"
    );
    // The same command finds the replacement in the log.
    let output = workspace.run(&run);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    assert!(!stderr(&output).contains("building ") && !stderr(&output).contains("round "));

    let output = workspace.run(&["batch", "find", "--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let findings: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let changes = findings["changes"].as_array().expect("changes");
    let found: Vec<[&str; 3]> = changes
        .iter()
        .map(|one| [&one["parent"]["message"], &one["first_bad"]["message"], &one["conclusion"]])
        .map(|texts| texts.map(|text| text.as_str().expect("a text")))
        .collect();
    assert_eq!(
        found,
        [
            ["revision 1, 60000", "revision 2, 200000", "regression"],
            ["revision 3, same", "revision 4, 1500000", "regression"],
        ],
        "{findings:#}"
    );
    workspace.assert_nothing_runs();
}

/// A build gets the version and a copy of its files; one does not end.
#[test]
fn versions_are_built_from_copy_with_time_limit() {
    let workspace = repository(Workspace::quiet(), &["1000"]);
    let revisions = r#"
experiment = "burner"
subject    = "burner"
product    = { option = "binary", path = "bin/server" }
versions   = ["1.0", "1.1", "2.0"]
files      = "repository"
anchor     = "1.1"
build      = """test "$VERSION" = "$REV" && test "$PWD" = "$SRC" || exit 9
[ "$VERSION" != 2.0 ] || { yes "a line that says nothing" & wait; }
echo built by a copy >>server.c.log
sed -i "s/r1/r$VERSION/" work.h
mkdir "$OUT/bin"
cc -o "$OUT/bin/server" server.c"""
timeout    = "8s"
blocks     = 1
"#;
    workspace.write("package/revisions.toml", &revisions.replace("repository", "../repository"));
    let run = ["batch", "run", "package/revisions.toml", "--out", "out"];
    let output = workspace.run(&run);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let table = stdout(&output);
    assert!(table.contains("3 revisions: 2 done, 1 timed-out"), "{table}");
    assert!(table.contains("the build exceeded its time limit of 8 s"), "{table}");
    assert!(!workspace.path("repository/server.c.log").exists(), "the files are copied");
    // The log of a build is limited to the end of its output.
    let logs = files(&workspace.path("out/builds"));
    assert_eq!(logs.len(), 3, "{logs:?}");
    let sizes = logs.keys().map(|log| fs::metadata(log).expect("a log").len());
    assert!((1 << 20..=16 << 20).contains(&sizes.max().expect("a log")), "{logs:?}");
    assert!(table.contains("| a line that says nothing"), "{table}");
    workspace.assert_nothing_runs();

    // The same command has nothing to do; other settings are rejected.
    let again = workspace.run(&run);
    assert_eq!(again.status.code(), Some(0), "{}", show(&again));
    assert!(!stderr(&again).contains("round 2"), "{}", show(&again));
    for (changed, code, expected) in [
        (&["--blocks", "2"][..], 2, "is a batch with other settings"),
        (&["--anchor", "1.0"], 2, "is a batch with another anchor"),
        (&["--product", "binaries=x"], 2, "has no option `binaries`; did you mean `binary`?"),
        (&["--subject", "burned"], 2, "has no subject `burned`; did you mean `burner`?"),
        (&["--repo", "repository", "--tags", "r*"], 2, "`repo` and `versions` exclude each other"),
    ] {
        let output = workspace.run(&[&run[..], changed].concat());
        assert_eq!(output.status.code(), Some(code), "{}", show(&output));
        assert!(stderr(&output).contains(expected), "{}", show(&output));
    }
    for arguments in [&["batch", "stats", "none"][..], &["batch", "find", "none"]] {
        let output = workspace.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{}", show(&output));
        assert!(stderr(&output).contains("is not a batch: no batch.json"), "{}", show(&output));
    }
}

/// Any change of what is measured is reported, and no figure is added.
#[test]
fn changed_input_is_rejected_on_continuation() {
    let workspace = repository(Workspace::concurrent(), &["1000"]);
    let revisions = r#"
experiment = "burner"
subject    = "burner"
product    = { option = "binary", path = "server" }
versions   = ["1.0", "1.1"]
files      = "repository"
build      = """[ "$VERSION" = 1.0 ] || [ -e "$SRC/../../mended" ] || exit 9
cc -o "$OUT/server" server.c
date +%N >"$OUT/built-at"
"""
tools      = ["cat ../../compiler 2>/dev/null || echo 1"]
blocks     = 1
"#;
    workspace.write("revisions.toml", revisions);
    let run = ["batch", "run", "revisions.toml"];
    let works = |arguments: &[&str]| {
        let output = workspace.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", show(&output));
        stderr(&output)
    };
    let refused = |arguments: &[&str]| {
        let output = workspace.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{}", show(&output));
        stderr(&output)
    };
    let stats = || stdout(&workspace.run(&["batch", "stats", "--format", "json"]));
    works(&run);
    let before = stats();
    let recipe = "systems/burner/system.toml";
    for (name, place) in
        [("mixes/ping.toml", "mixes."), (recipe, "recipe.systems/burner/system.toml")]
    {
        let text = workspace.read(name);
        workspace.write(name, &(text.clone() + "\n# edited\n"));
        for command in [&run[..], &["batch", "find"]] {
            let message = refused(command);
            assert!(message.contains("the inputs of the batch have changed"), "{message}");
            assert!(message.contains(&format!("\n  {place}")), "{message}");
        }
        workspace.write(name, &text);
    }
    for name in ["experiments/burner.toml", "mixes/ping.toml", recipe] {
        workspace.write(&format!("another/{name}"), &workspace.read(name));
    }
    let catalog = || workspace.json("batch/batch.json")["catalog"].clone();
    let elsewhere = [&run[..], &["--catalog", "another"]].concat();
    let here = catalog();
    // Another catalog with the same contents is accepted.
    workspace
        .write("another/mixes/ping.toml", &(workspace.read("mixes/ping.toml") + "\n# edited\n"));
    let message = refused(&elsewhere);
    assert!(message.contains("\n  mixes.ping.toml: "), "{message}");
    let folder = workspace.path("another").canonicalize().expect("a folder");
    let folder = folder.display().to_string();
    assert!(message.contains(&format!(", now {folder}:")), "{message}");
    assert_eq!(catalog(), here, "the catalog is unchanged");
    workspace.write("another/mixes/ping.toml", &workspace.read("mixes/ping.toml"));
    let message = works(&elsewhere);
    assert!(!message.contains("round 2") && !message.contains("building "), "{message}");
    assert_eq!(catalog()[0], folder);
    let title =
        workspace.read("another/experiments/burner.toml").replace("title", "title = 'mine' #");
    workspace.write("another/experiments/burner.toml", &title);
    let message = refused(&elsewhere);
    assert!(message.contains("is a batch with other settings"), "{message}");
    works(&run);
    assert_eq!(catalog(), here);
    let message = refused(&[&run[..], &["--seed", "1"]].concat());
    assert!(message.contains("is a batch with --seed "), "{message}");

    let server = workspace.read("repository/server.c");
    workspace.write("repository/server.c", &(server.clone() + "\n/* edited */\n"));
    let message = refused(&run);
    assert!(message.contains("have changed since the batch was started"), "{message}");
    workspace.write("repository/server.c", &server);
    assert!(!works(&run).contains("round 2"));

    // The product of the anchor must not change.
    let product =
        fs::read_dir(workspace.path("batch/products")).expect("a folder").flatten().next();
    let product = product.expect("a product").path();
    let stamp = product.join("built-at");
    let text = fs::read(&stamp).expect("a file");
    fs::write(&stamp, "another").expect("a file");
    let message = refused(&run);
    assert!(
        message.contains("is gone from") && message.contains("or was changed there"),
        "{message}"
    );
    fs::write(&stamp, text).expect("a file");
    fs::rename(&product, workspace.path("aside")).expect("a folder");
    let message = refused(&run);
    assert!(message.contains("was built into another product than the one"), "{message}");
    assert!(!product.exists(), "the other product is removed");
    fs::rename(workspace.path("aside"), &product).expect("a folder");
    assert!(!works(&run).contains("building "));
    assert_eq!(stats(), before);

    // `--retry` repeats failed builds, also of `find`.
    let state = || {
        let stats: Value = serde_json::from_str(&stats()).expect("JSON");
        stats["revisions"][1]["state"].as_str().expect("a state").to_owned()
    };
    workspace.write("mended", "");
    works(&["batch", "find"]);
    assert_eq!(state(), "build-failed");
    works(&["batch", "find", "--retry"]);
    assert_eq!(state(), "done");
    // `find` uses the catalog of the last `run`.
    workspace.write("another/experiments/burner.toml", &workspace.read("experiments/burner.toml"));
    works(&elsewhere);
    works(&["batch", "find"]);
    assert_eq!(catalog()[0], folder);
    workspace.assert_nothing_runs();
}

/// The version command of the product fails, so no trial can start.
#[test]
fn revision_without_version_fails_until_retried() {
    let workspace = repository(Workspace::concurrent(), &["1000"]);
    let recipe = workspace.read("systems/burner/system.toml");
    let asks_it = "version = [['{{ binary }}', '--version']]";
    let version = recipe.lines().find(|line| line.starts_with("version")).expect("a version");
    workspace.write("systems/burner/system.toml", &recipe.replace(version, asks_it));
    let revisions = r##"
experiment = "burner"
subject    = "burner"
product    = { option = "binary", path = "server" }
versions   = ["1.0", "1.1"]
files      = "repository"
build      = '''
cc -o "$OUT/burner" server.c
needs=/
[ "$VERSION" = 1.0 ] || needs=$OUT/../../../mended
printf '#!/bin/sh\n[ -e %s ] || { echo no such symbol >&2; exit 3; }\n' "$needs" >"$OUT/server"
printf '[ "$1" != --version ] || { echo 1; exit; }\nexec "${0%%/*}/burner" "$@"\n' >>"$OUT/server"
chmod +x "$OUT/server"
'''
blocks     = 1
"##;
    workspace.write("revisions.toml", revisions);
    let run = |arguments: &[&str]| {
        let arguments = [&["batch", "run", "revisions.toml"], arguments].concat();
        let output = workspace.run(&arguments);
        assert_eq!(output.status.code(), Some(0), "{}", show(&output));
        (stdout(&output), stderr(&output))
    };
    let (table, message) = run(&[]);
    assert!(table.contains("2 revisions: 1 done, 1 run-failed"), "{table}");
    assert!(table.contains("no such symbol"), "{table}");
    assert!(message.contains("round 1"), "{message}");
    workspace.write("mended", "");
    let (again, message) = run(&[]);
    assert!(again == table && !message.contains("round "), "{message}");
    let (table, message) = run(&["--retry"]);
    assert!(table.contains("2 revisions: 2 done"), "{table}");
    assert!(message.contains("round 2") && !message.contains("building "), "{message}");
    workspace.assert_nothing_runs();
}

/// Nothing else is built, and the batch continues with another anchor and the same builds.
#[test]
fn anchor_that_fails_the_probe_stops_the_batch() {
    let workspace = repository(Workspace::concurrent(), &["crashes", "1000", "same"]);
    let run = ["batch", "run", "revisions.toml", "--blocks", "1"];
    let output = workspace.run(&run);
    assert_eq!(output.status.code(), Some(4), "{}", show(&output));
    let message = stderr(&output);
    assert_eq!(message.matches("building ").count(), 1, "{message}");
    assert!(message.contains("this revision crashes at start"), "{message}");
    assert!(message.contains("tollgate: cannot measure the anchor "), "{message}");
    assert!(!message.contains("round 1"), "{message}");
    let anchor = [&run[..], &["--anchor", "r2"]].concat();
    let output = workspace.run(&anchor);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let table = stdout(&output);
    assert!(table.contains("3 revisions: 2 done, 1 run-failed"), "{table}");
    assert!(table.contains("this revision crashes at start"), "{table}");
    let message = stderr(&output);
    assert!(!message.contains("revision 1, crashes"), "built again: {message}");
    // The failure is on record.
    let message = stderr(&workspace.run(&anchor));
    assert!(!message.contains("round ") && !message.contains("crashes"), "{message}");
    workspace.assert_nothing_runs();
}

#[test]
fn batch_says_that_its_first_products_all_fail() {
    let workspace = repository(
        Workspace::concurrent(),
        &["1000", "crashes", "fails", "crashes", "crashes", "2000"],
    );
    let run = ["batch", "run", "revisions.toml", "--blocks", "1", "--out", "out"];
    let output = workspace.run(&run);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let message = stderr(&output);
    let place = |text: &str| message.find(text).unwrap_or_else(|| panic!("no {text}: {message}"));
    let warning = place("none of the first 3 revisions beside the anchor can be measured");
    let fourth = message.rfind("building ").expect("a build");
    assert!(place("revision 4, crashes") < warning && warning < fourth, "{message}");
    assert_eq!(message.matches("none of the first 3").count(), 1, "{message}");
    // Only products that run have trials.
    assert_eq!(message.matches("round ").count(), 1, "{message}");
    let table = stdout(&workspace.run(&["batch", "stats", "--out", "out"]));
    assert_eq!(table, stdout(&output));
    assert!(table.contains("6 revisions: 2 done, 3 run-failed, 1 build-failed"), "{table}");
    workspace.assert_nothing_runs();
}
