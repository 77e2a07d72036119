//! The experiment `site`, from its file to its report.

use crate::support::{NO_LIMITS, Workspace, show, stdout};
use serde_json::Value;
use std::path::Path;

#[test]
fn the_experiment_prices_the_built_in_site_over_nginx_with_lua() {
    let workspace = Workspace::exclusive();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/site.toml");
    let text = std::fs::read_to_string(file).expect("the experiment");
    workspace.write("site.toml", &(text + NO_LIMITS));
    let arguments = ["run", "site.toml", "--quick", "--blocks", "1", "--seed", "5", "--out", "out"];
    let output = workspace.run(&arguments);
    let report = workspace.json("out/report.json");
    assert_eq!(report["cases"].as_array().map(Vec::len), Some(8), "{}", show(&output));
    for case in report["cases"].as_array().expect("cases") {
        for subject in case["subjects"].as_array().expect("subjects") {
            let of = format!("{} of {}: {}", case["name"], subject["name"], show(&output));
            let figures = &subject["figures"];
            assert!(figures["cpu_us_per_request"].as_f64() > Some(0.0), "{of}");
            assert_eq!(figures["origin_cpu_us_per_request"], Value::Null, "{of}");
            assert_ne!(figures["bottleneck"], "origin", "{of}");
            bytes_are_those_of(case["name"].as_str().expect("a name"), figures, &of);
        }
        let ours = &case["subjects"][1]["prices"];
        assert!(ours["cpu_us_per_request"]["ratio"]["estimate"].is_number(), "{ours:#}");
        assert!(ours["throughput_per_s"]["ratio"]["estimate"].is_number(), "{ours:#}");
    }
    let shown = stdout(&output);
    assert_eq!(shown.matches("responses MB/s").count(), 8, "{shown}");
    workspace.assert_nothing_runs();
}

/// The bytes of a response and of a request, heads included; what was under way at the ends of the window
/// is a few percent of so short a one.
fn bytes_are_those_of(case: &str, figures: &Value, of: &str) {
    let a_second = |name: &str| figures[name].as_f64().unwrap_or_else(|| panic!("{name}: {of}"));
    let responses = a_second("throughput_per_s");
    let received = a_second("received_bytes_per_s") / responses;
    let sent = a_second("sent_bytes_per_s") / responses;
    let (least_received, least_sent) = match case {
        "download-20k" => (20_480.0, 60.0),
        "download-256k" => (262_144.0, 60.0),
        "download-1m" => (1_048_576.0, 60.0),
        "upload-1k" => (100.0, 1_024.0),
        "upload-1m" => (100.0, 1_048_576.0),
        _ => (100.0, 60.0),
    };
    for (found, least) in [(received, least_received), (sent, least_sent)] {
        assert!(
            (0.75 * least..1.5 * least + 400.0).contains(&found),
            "{found} for {least} in {of}"
        );
    }
}
