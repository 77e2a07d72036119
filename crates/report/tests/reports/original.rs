//! The layouts of the benchmarks that experiments repeat, literally.

use crate::records::{blocks, costing, measured, report, run};
use std::time::Duration;
use tollgate_records::run_dir::RunRecords;
use tollgate_records::trial::{LatencyRecord, Measurement};
use tollgate_report::Format;
use tollgate_stats::LatencyHistogram;
use tollgate_traffic::load_shape::Window;

/// Two trials of 1,000 requests in half a second on 50 connections, with latencies of 1 to 1,000 ms.
fn of_requests() -> RunRecords {
    let mut histogram = LatencyHistogram::new();
    for ms in 1..=1000 {
        histogram.record(ms * 1_000_000);
    }
    let trial = Measurement {
        window_s: 0.5,
        unexpected: 3,
        received_bytes_per_s: Some(204_800.0),
        latency: LatencyRecord::of(&histogram).unwrap(),
        ..costing(10)
    };
    let trials = (1..=2).map(|block| measured("nginx", block, trial.clone())).collect();
    let mut run = run(&["nginx"], trials);
    run.manifest.experiment.cases[0].load.window =
        Window::Requests { requests: 1000, within: Duration::from_secs(60) };
    run
}

#[test]
fn fixed_number_of_requests_has_the_lines_of_ab_over_all_trials() {
    let text = report(&of_requests(), Format::Original);
    for line in [
        "## browse\n\n### nginx\n\n```\nConcurrency Level:      50\n",
        "Time taken for tests:   1.000 seconds\nComplete requests:      2000\nFailed requests:        6\n",
        "Total transferred:      204800 bytes\nRequests per second:    2000.00 [#/sec] (mean)\n",
        "Time per request:       25.000 [ms] (mean)\n",
        "Time per request:       0.500 [ms] (mean, across all concurrent requests)\n",
        "Transfer rate:          200.00 [Kbytes/sec] received\n",
        "  50%    500\n",
        "  66%    660\n",
        "  99%    990\n",
        " 100%   1000 (longest request)\n```\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn fixed_time_has_the_columns_of_ministat() {
    let trials = (1..=3).map(|block| {
        let throughput_per_s = f64::from(block) * 1000.0;
        measured("nginx", block, Measurement { throughput_per_s, ..costing(10) })
    });
    let text = report(&run(&["nginx"], trials.collect()), Format::Original);
    let expected = "\
requests/s
    N           Min           Max        Median           Avg        Stddev
x   3       1000.00       3000.00       2000.00       2000.00       1000.00
latency (ms)
";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn added_latency_has_values_of_the_baseline_and_deltas_of_the_others() {
    let added = |block| {
        let mut full = costing(10);
        full.latency.mean_ms = full.latency.mean_ms.map(|ms| ms + 4.94);
        full.latency.p90_ms = None;
        measured("full", block, full)
    };
    let trials = blocks("nginx", &[10; 2]).into_iter().chain((1..=2).map(added)).collect();
    let mut run = run(&["nginx", "full"], trials);
    run.manifest.experiment.latency = true;
    let text = report(&run, Format::Original);
    let mean_ms = costing(10).latency.mean_ms.unwrap();
    let value = format!("{mean_ms:.2}ms");
    let nginx = format!(
        "## nginx\n\n### browse\n\n| Metric                | Value      |\n\
         | --------------------- | ---------- |\n| Average Response Time | {value:<10} |\n"
    );
    assert!(text.contains(&nginx), "{nginx}\n{text}");
    assert!(text.contains("| Average Response Time | +4.94ms    |\n"), "{text}");
    assert!(text.contains("| Median Response Time  | +0.00ms    |\n"), "{text}");
    assert!(text.contains("| P90 Response Time     | -          |\n"), "{text}");
}
