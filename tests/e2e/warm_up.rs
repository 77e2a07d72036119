//! Warm-ups that last until a server is steady, with servers that are not at first, or never.

use crate::experiment::Experiment;
use crate::support::{Workspace, flat, stderr, stdout, told};
use serde_json::Value;

/// One trial of a server that runs this Lua for each request, and what it left in record and log.
fn warmed_up(workspace: &Workspace, lua: &str, longest: &str) -> (Value, String, String) {
    workspace.copy_recipe("nginx-known-cost");
    let config = "systems/nginx-known-cost/nginx.conf";
    workspace.change(config, "burn.spin({{ burn_us }})", lua);
    let load = format!(
        r#"connections = 8, duration = "200ms", warmup = "steady", warmup_max = "{longest}""#
    );
    let experiment = Experiment {
        title: "Is it steady?",
        load: &load,
        subjects: &[("server", "nginx-known-cost", "")],
        blocks: 1,
    };
    workspace.write("steady.toml", &experiment.text());
    let output = workspace.run(&["run", "steady.toml", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    // On a busy machine a trial may not count, and is then repeated.
    let records = workspace.read("out/trials.ndjson");
    let line = records.lines().last().expect("a record");
    let record: Value = serde_json::from_str(line).expect("JSON");
    workspace.assert_nothing_runs();
    (record["outcome"]["measured"].clone(), flat(&stdout(&output)), stderr(&output))
}

#[test]
fn a_server_that_is_slow_at_first_is_measured_when_it_no_longer_is() {
    let workspace = Workspace::new();
    // Half a millisecond for each of its first thousand requests: half a second.
    let lua = "burn.seen = (burn.seen or 0) + 1; burn.spin(burn.seen <= 1000 and 500 or 0)";
    let (measured, table, _) = warmed_up(&workspace, lua, "8s");
    let lasted_s = measured["warm_up"]["lasted_s"].as_f64().expect("a length");
    // Slow in the first two slices of 200 ms and in half of the third, and then five more that agree.
    assert!(lasted_s >= 1.5, "{measured:#}");
    // On a machine that is busy with something else nothing may ever stand still.
    let is_steady = measured["warm_up"]["steady"] == true;
    assert!(is_steady || lasted_s >= 8.0, "{measured:#}");
    let answered = measured["answered"].as_f64().expect("answers");
    let cpu = &measured["cpu"]["system"];
    let us = |part: &str| cpu[part].as_f64().expect("microseconds");
    assert!((us("user_us") + us("system_us")) / answered < 250.0, "{measured:#}");
    let note = "Warm-up until the figures stand still, stopped after 8.00 s: server ";
    assert!(table.contains(note), "{table}");
}

#[test]
fn a_server_that_is_never_steady_is_measured_and_told_of() {
    let workspace = Workspace::new();
    // Another pace every 0.7 seconds, so that no five slices of 200 ms agree.
    let lua = "burn.spin(math.floor(ngx.now() / 0.7) % 2 * 500)";
    let (measured, table, log) = warmed_up(&workspace, lua, "2s");
    assert_eq!(measured["warm_up"]["steady"], false, "{measured:#}");
    assert!(measured["warm_up"]["lasted_s"].as_f64() >= Some(2.0), "{measured:#}");
    assert!(log.contains("not steady after 2."), "{log}");
    let note = "server was not steady yet when the warm-up was over in 1 of 1 trials; they count";
    assert!(table.contains(note), "{table}");
}
