//! A price that is known beforehand: nginx that burns CPU in each request.

use crate::experiment::Experiment;
use crate::support::{Workspace, told};

#[test]
fn fifty_microseconds_a_request_are_found() {
    let workspace = Workspace::new();
    let experiment = Experiment {
        title: "Are 50 µs found?",
        load: r#"connections = 1, rate = 4000, busy_poll = true, idle_poll = true, duration = "300ms", warmup = "150ms""#,
        subjects: &[
            ("burn-0", "nginx-known-cost", ""),
            ("burn-50", "nginx-known-cost", "burn_us = 50"),
        ],
        blocks: 6,
    };
    workspace.write("known.toml", &experiment.text());
    let output = workspace.run(&["run", "known.toml", "--seed", "3", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let report = workspace.json("out/report.json");
    let price = &report["cases"][0]["subjects"][1]["prices"]["cpu_us_per_request"];
    let us = |end: &str| price["difference"][end].as_f64().expect("a difference");
    let holds = us("low") <= 50.0 && 50.0 <= us("high");
    // A busy machine makes a narrow interval miss: then the price has to be near the truth.
    assert!(holds || (40.0..60.0).contains(&us("estimate")), "{price:#}");
    assert_eq!(price["verdict"], "costs-more", "{price:#}");

    // The server's own account of it: it never burns less.
    let log = workspace.read("out/logs/001-browse-burn-50-nginx.log");
    let burned = log.lines().find_map(|line| line.strip_prefix("burned ")).expect("its account");
    let burned_us: f64 = burned.split(' ').next().and_then(|us| us.parse().ok()).expect("a number");
    assert!(burned_us >= 50.0, "{log}");
    workspace.assert_nothing_runs();
}
