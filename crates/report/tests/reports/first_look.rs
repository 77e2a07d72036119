//! Snapshots of a realistic run: nginx, no proxy, and ModSecurity twice, on a machine with drift; one subject is not
//! installed.

use crate::records::{
    MIB, costing, markdown, measured, report, run, set_state, table, template, without_processes,
};
use tollgate_records::run_dir::RunRecords;
use tollgate_records::stop::Stop;
use tollgate_records::subject::{Missing, SubjectState};
use tollgate_records::trial::{Bottleneck, CpuTime, Measurement, TrialRecord};
use tollgate_records::validity::Invalid;
use tollgate_report::Format;
use tollgate_traffic::Class;

/// Duration of each block in percent of the usual one.
const DRIFT_PERCENT: [u32; 8] = [100, 101, 99, 104, 103, 98, 100, 106];

/// A trial with this CPU and throughput on a machine without drift.
fn loaded(cpu_ns_per_request: u64, per_s: u32, drift_percent: u32) -> Measurement {
    let cpu_ns_per_request = cpu_ns_per_request * u64::from(drift_percent) / 100;
    let per_s = per_s * 100 / drift_percent;
    let responses = 2 * u64::from(per_s);
    let total_us = responses * cpu_ns_per_request / 1_000;
    let mut measurement = costing(0);
    measurement.window_s = 2.0;
    measurement.responses = responses;
    measurement.throughput_per_s = f64::from(per_s);
    // 50 connections that wait for each other.
    let mean_ms = 50_000.0 / f64::from(per_s);
    measurement.latency.mean_ms = Some(mean_ms);
    measurement.latency.p50_ms = Some(0.95 * mean_ms);
    measurement.latency.p99_ms = Some(2.0 * mean_ms);
    measurement.cpu.servers_window_s = 2.0;
    let user_us = total_us * 3 / 4;
    measurement.cpu.system = Some(CpuTime { user_us, system_us: total_us - user_us });
    measurement.templates = vec![template(Class::Benign, 0, responses)];
    measurement
}

fn nginx(drift_percent: u32) -> Measurement {
    loaded(13_700, 52_000, drift_percent)
}

fn direct() -> Measurement {
    let mut measurement = without_processes();
    measurement.throughput_per_s = 81_000.0;
    measurement.latency.mean_ms = Some(0.62);
    measurement.latency.p50_ms = Some(0.6);
    measurement.latency.p99_ms = Some(1.1);
    measurement
}

fn light(drift_percent: u32) -> Measurement {
    Measurement {
        memory_peak_bytes: Some(21 * MIB),
        bottleneck: Bottleneck::System,
        ..loaded(62_400, 15_800, drift_percent)
    }
}

/// Blocks every attack and one benign request of 200.
fn full(drift_percent: u32) -> Measurement {
    Measurement {
        memory_peak_bytes: Some(64 * MIB),
        templates: vec![template(Class::Malicious, 100, 100), template(Class::Benign, 10, 2_000)],
        ..loaded(951_000, 1_050, drift_percent)
    }
}

fn first_look() -> RunRecords {
    let mut trials: Vec<TrialRecord> = Vec::new();
    for (block, drift_percent) in (1..).zip(DRIFT_PERCENT) {
        trials.extend([
            measured("nginx", block, nginx(drift_percent)),
            measured("direct", block, direct()),
            // ModSecurity has its own drift, so that its price varies.
            measured("light", block, light(drift_percent + block)),
            measured("full", block, full(drift_percent - block)),
        ]);
    }
    let stolen = Measurement {
        invalid: vec![Invalid::Steal { percent: 8.1, limit_percent: 5.0 }],
        ..light(150)
    };
    trials[18] = measured("light", 5, stolen.clone());
    // It was repeated, and is invalid again.
    trials.push(TrialRecord { attempt: 2, ..measured("light", 5, stolen) });
    let mut run = run(&["nginx", "direct", "light", "full", "coraza"], trials);
    run.manifest.experiment.title = "What does ModSecurity cost?".to_owned();
    run.manifest.experiment.stop = Stop { extra_blocks: 0, ..Stop::after(8) };
    run.manifest.experiment.summary = true;
    let hint = Some("apt-get install -y caddy".to_owned());
    let missing = Missing { message: "no program `caddy`".to_owned(), hint };
    set_state(&mut run, "coraza", SubjectState::Skipped { missing });
    run
}

#[test]
fn as_table() {
    insta::assert_snapshot!(table(&first_look()));
}

#[test]
fn as_markdown() {
    insta::assert_snapshot!(markdown(&first_look()));
}

#[test]
fn as_csv() {
    insta::assert_snapshot!(report(&first_look(), Format::Csv));
}
