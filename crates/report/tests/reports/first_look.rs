//! One realistic run, as people get to see it: nginx, no proxy, and ModSecurity twice, on a machine
//! that is not quite steady; one subject is not installed.

use crate::records::{MIB, costing, measured, run, set_state, template, without_processes};
use tollgate_experiment::manifest::SubjectState;
use tollgate_experiment::recipe::Missing;
use tollgate_experiment::record::Bottleneck;
use tollgate_experiment::record::CpuTime;
use tollgate_experiment::record::{Measurement, TrialRecord};
use tollgate_experiment::stop::Stop;
use tollgate_experiment::validity::Invalid;
use tollgate_report::analysis::{Analysis, analyse};
use tollgate_report::output::{Format, render};
use tollgate_stats::text::Screen;
use tollgate_traffic::Class;

/// What the machine made of each block, in percent of the usual time.
const DRIFT_PERCENT: [u32; 8] = [100, 101, 99, 104, 103, 98, 100, 106];

/// CPU of a trial in nanoseconds a request, and its answers a second, both on a steady machine.
fn loaded(cpu_ns_per_request: u64, per_s: u32, drift_percent: u32) -> Measurement {
    let cpu_ns_per_request = cpu_ns_per_request * u64::from(drift_percent) / 100;
    let per_s = per_s * 100 / drift_percent;
    let answered = 2 * u64::from(per_s);
    let total_us = answered * cpu_ns_per_request / 1_000;
    let mut measurement = costing(0);
    measurement.window_s = 2.0;
    measurement.responses = answered;
    measurement.throughput_per_s = f64::from(per_s);
    // 50 connections that wait for each other.
    let mean_ms = 50_000.0 / f64::from(per_s);
    measurement.latency.mean_ms = Some(mean_ms);
    measurement.latency.p50_ms = Some(0.95 * mean_ms);
    measurement.latency.p99_ms = Some(2.0 * mean_ms);
    measurement.cpu.servers_window_s = 2.0;
    let user_us = total_us * 3 / 4;
    measurement.cpu.system = Some(CpuTime { user_us, system_us: total_us - user_us });
    measurement.templates = vec![template(Class::Benign, 0, answered)];
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

/// It blocks every attack, and one harmless request of 200.
fn full(drift_percent: u32) -> Measurement {
    Measurement {
        memory_peak_bytes: Some(64 * MIB),
        templates: vec![template(Class::Malicious, 100, 100), template(Class::Benign, 10, 2_000)],
        ..loaded(951_000, 1_050, drift_percent)
    }
}

fn first_look() -> Analysis {
    let mut trials: Vec<TrialRecord> = Vec::new();
    for (block, drift_percent) in (1..).zip(DRIFT_PERCENT) {
        trials.extend([
            measured("nginx", block, nginx(drift_percent)),
            measured("direct", block, direct()),
            // ModSecurity has a drift of its own, so that its price is not the same in all blocks.
            measured("light", block, light(drift_percent + block)),
            measured("full", block, full(drift_percent - block)),
        ]);
    }
    let stolen = Measurement {
        invalid: vec![Invalid::Steal { percent: 8.1, limit_percent: 5.0 }],
        ..light(150)
    };
    trials[18] = measured("light", 5, stolen.clone());
    // It was tried once more, in vain.
    trials.push(TrialRecord { attempt: 2, ..measured("light", 5, stolen) });
    let mut run = run(&["nginx", "direct", "light", "full", "coraza"], trials);
    run.manifest.experiment.title = "What does ModSecurity cost?".to_owned();
    run.manifest.experiment.stop = Stop::after(8);
    run.manifest.experiment.summary = true;
    let mend = Some("apt-get install -y caddy".to_owned());
    let missing = Missing { message: "no program `caddy`".to_owned(), hint: mend };
    set_state(&mut run, "coraza", SubjectState::Skipped { missing });
    analyse(&run)
}

#[test]
fn as_table() {
    insta::assert_snapshot!(render(&first_look(), Format::Table, Screen::PLAIN).unwrap());
}

#[test]
fn as_markdown() {
    insta::assert_snapshot!(render(&first_look(), Format::Markdown, Screen::PLAIN).unwrap());
}

#[test]
fn as_csv() {
    insta::assert_snapshot!(render(&first_look(), Format::Csv, Screen::PLAIN).unwrap());
}
