//! The formats of other tools, literally.

use crate::records::{assert_close, blocks, costing, measured, report, run, without_processes};
use serde_json::{Value, json};
use tollgate_records::run_dir::RunRecords;
use tollgate_records::trial::Measurement;
use tollgate_records::validity::Invalid;
use tollgate_report::export::write_hgrm;
use tollgate_report::source::ReportSource;
use tollgate_report::{Format, NoFigure, render};
use tollgate_stats::text::Screen;

/// Six blocks of nginx at 10 µs, of full at 10, 20, ... 60 µs, and one without a proxy.
fn three() -> RunRecords {
    let mut trials = blocks("nginx", &[10; 6]);
    trials.extend(blocks("full", &[10, 20, 30, 40, 50, 60]));
    trials.push(measured("direct", 1, without_processes()));
    run(&["nginx", "full", "direct"], trials)
}

fn json(run: &RunRecords, format: Format) -> Value {
    let text = report(run, format);
    assert!(text.ends_with('\n'));
    serde_json::from_str(&text).unwrap()
}

#[test]
fn gobench_has_one_line_per_block() {
    let text = report(&three(), Format::Gobench);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        &lines[..5],
        [
            "tollgate: 0.1.0 (0123456)",
            "cpu: Example CPU",
            "Unit requests/s better=higher",
            "",
            "BenchmarkTollgate/case=browse/subject=nginx-1 1000 10000 cpu-ns/request \
             1000 requests/s 1000000 p50-ns 3000000 p99-ns 8388608 memory-bytes",
        ]
    );
    assert_eq!(lines.len(), 4 + 6 + 6 + 1);
    assert!(lines[15].starts_with("BenchmarkTollgate/case=browse/subject=full-1 1000 60000 cpu"));
    // A line has only the figures that exist.
    assert!(lines[16].starts_with("BenchmarkTollgate/case=browse/subject=direct-1 1000 1000 req"));
}

#[test]
fn hyperfine_has_cpu_seconds_of_each_block() {
    let export = json(&three(), Format::Hyperfine);
    let results = export["results"].as_array().unwrap();
    assert_eq!(results.len(), 2, "direct has no times");
    let full = &results[1];
    assert_eq!(full["command"], "browse/full");
    for (name, expected) in
        [("mean", 35e-6), ("median", 35e-6), ("min", 10e-6), ("max", 60e-6), ("user", 21e-6)]
    {
        assert_close(full[name].as_f64().unwrap(), expected);
    }
    // Squares of 25, 15, 5, twice each: 1750 over 5.
    assert_close(full["stddev"].as_f64().unwrap(), 350_f64.sqrt() * 1e-6);
    assert!((full["system"].as_f64().unwrap() - 14e-6).abs() < 1e-15);
    assert_eq!(full["times"].as_array().unwrap().len(), 6);
    assert_eq!(full["exit_codes"], json!([0, 0, 0, 0, 0, 0]));
    assert_eq!(full["parameters"], json!({"case": "browse", "subject": "full"}));
}

#[test]
fn github_has_figures_where_less_is_better() {
    let entries = json(&three(), Format::Github);
    let entries = entries.as_array().unwrap();
    let full = entries.iter().find(|entry| entry["name"] == "browse/full: CPU per request");
    let full = full.unwrap();
    assert_eq!(full["unit"], "× nginx");
    // Six blocks: the 95 % interval is the whole range, and the systematic error.
    assert_eq!(full["range"], "0.959 to 6.00");
    let median = entries.iter().find(|e| e["name"] == "browse/full: CPU per request, median");
    assert_eq!(
        median.unwrap(),
        &json!({"name": "browse/full: CPU per request, median", "unit": "µs", "value": 35.0,
                "extra": "6 blocks"})
    );
    assert!(entries.iter().all(|entry| !entry["name"].as_str().unwrap().contains("requests/s")));
}

#[test]
fn github_gets_no_empty_array() {
    let silent = Measurement { invalid: vec![Invalid::NoResponse], ..costing(10) };
    let source = ReportSource::from(run(&["nginx", "full"], vec![measured("nginx", 1, silent)]));
    let error = render(&source, Format::Github, Screen::PLAIN).unwrap_err();
    assert!(error.is::<NoFigure>(), "{error}");
    assert!(error.to_string().contains("no subject of this run has a valid trial"), "{error}");
}

#[test]
fn below_six_blocks_the_bounds_of_a_ratio_are_the_observed_range() {
    let trials = [blocks("nginx", &[10; 2]), blocks("full", &[20, 80])].concat();
    let metrics = json(&run(&["nginx", "full"], trials), Format::Bencher);
    let ratio = &metrics["browse/full"]["cpu-ratio"];
    // The geometric mean of 2 and 8, between them.
    for (bound, expected) in [("value", 4.0), ("lower_value", 2.0), ("upper_value", 8.0)] {
        assert_close(ratio[bound].as_f64().unwrap(), expected);
    }
}

#[test]
fn bencher_has_bounds() {
    let metrics = json(&three(), Format::Bencher);
    assert_eq!(
        metrics["browse/full"]["cpu-us-per-request"],
        json!({"value": 35.0, "lower_value": 10.0, "upper_value": 60.0})
    );
    let ratio = &metrics["browse/full"]["cpu-ratio"];
    // 0.05 + 0.04 (r - 1) of the baseline, as a share of the estimate r.
    let estimate = ratio["value"].as_f64().unwrap();
    let low = estimate / (estimate + 0.05 + 0.04 * (estimate - 1.0));
    assert_close(ratio["lower_value"].as_f64().unwrap(), low);
    assert_close(ratio["upper_value"].as_f64().unwrap(), 6.0);
    assert_eq!(metrics["browse/nginx"]["cpu-ratio"], Value::Null);
    assert_eq!(metrics["browse/direct"]["cpu-us-per-request"], Value::Null);
    assert_eq!(metrics["browse/direct"]["throughput-per-s"]["value"], 1000.0);
}

#[test]
fn hgrm_has_one_file_per_subject() {
    let dir = tempfile::tempdir().unwrap();
    let mut trials = blocks("nginx", &[10; 2]);
    let mut silent = costing(10);
    silent.invalid.push(Invalid::NoResponse);
    trials.push(measured("full", 1, silent));
    let paths =
        write_hgrm(&ReportSource::from(run(&["nginx", "full"], trials)), dir.path()).unwrap();
    assert_eq!(paths, [dir.path().join("hgrm/browse/nginx.hgrm")]);
    let text = std::fs::read_to_string(&paths[0]).unwrap();
    assert!(text.contains("Total count    =         2000]"), "{text}");
}
