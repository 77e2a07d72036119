//! Go's benchmark format for benchstat: one line per block and subject.
//!
//! The format: <https://go.googlesource.com/proposal/+/master/design/14313-benchmark-format.md>.
//! A line is one block of one subject, so that benchstat's samples are ours:
//! `benchstat -row /case -col /subject@(nginx full) FILE`.

use super::source::Source;
use std::fmt::Write as _;
use tollgate_experiment::record::{Measurement, as_f64};

/// Renders the valid trials of a run.
pub fn render(source: &Source) -> String {
    let manifest = &source.records.manifest;
    let model = manifest.environment.cpu_model.as_deref().unwrap_or("unknown");
    let mut text = format!("tollgate: {}\ncpu: {}\n", line(&manifest.tollgate), line(model));
    // Lower is better in all other units.
    writeln!(text, "Unit {REQUESTS_PER_S} better=higher").ok();
    text.push('\n');
    for case in &source.analysis.cases {
        for subject in &case.subjects {
            for measurement in source.valid(&case.case.name, &subject.name).values() {
                // Names are letters, digits, `-`, `_` and `.`; without the number of CPUs at the end,
                // benchstat would take that of a name that ends so for it.
                let (case, subject) = (&case.case.name, &subject.name);
                let cpus = manifest.cpu_layout.system.len();
                let answered = measurement.responses;
                write!(text, "BenchmarkTollgate/case={case}/subject={subject}-{cpus} {answered}")
                    .ok();
                for (value, unit) in figures(measurement) {
                    write!(text, " {value} {unit}").ok();
                }
                text.push('\n');
            }
        }
    }
    text
}

const REQUESTS_PER_S: &str = "requests/s";

/// The figures of a trial. benchstat converts nanoseconds to seconds.
fn figures(measurement: &Measurement) -> impl Iterator<Item = (f64, &'static str)> {
    let from_us = |us: Option<f64>| us.map(|us| us * 1e3);
    let from_ms = |ms: Option<f64>| ms.map(|ms| ms * 1e6);
    let figures = [
        (from_us(measurement.system_cpu_us_per_request()), "cpu-ns/request"),
        (Some(measurement.throughput_per_s), REQUESTS_PER_S),
        (from_ms(measurement.latency.p50_ms), "p50-ns"),
        (from_ms(measurement.latency.p99_ms), "p99-ns"),
        (measurement.memory_peak_bytes.map(as_f64), "memory-bytes"),
    ];
    figures.into_iter().filter_map(|(value, unit)| Some((value?, unit)))
}

/// Escapes the value of a key, which ends at the end of the line.
fn line(text: &str) -> String {
    text.replace(char::is_control, " ")
}
