//! CPU per request in the shape of hyperfine's `--export-json`, which its plotting scripts read.
//!
//! A command is a subject, and a run of it is a block: its times are CPU seconds per request. A
//! subject without processes uses no CPU and is left out.

use super::source::Source;
use crate::error::ReportError;
use serde::Serialize;
use std::collections::BTreeMap;
use tollgate_experiment::record::Measurement;
use tollgate_stats::{Summary, summarize};

#[derive(Serialize)]
struct Export {
    results: Vec<Benchmark>,
}

#[derive(Serialize)]
struct Benchmark {
    command: String,
    mean: f64,
    stddev: Option<f64>,
    median: f64,
    user: f64,
    system: f64,
    min: f64,
    max: f64,
    times: Vec<f64>,
    memory_usage_byte: Vec<u64>,
    /// Valid trials have no other: a trial with a failure does not count.
    exit_codes: Vec<i32>,
    parameters: BTreeMap<&'static str, String>,
}

/// Writes the valid trials of a run.
pub fn render(source: &Source) -> Result<String, ReportError> {
    let mut results = Vec::new();
    for case in &source.analysis.cases {
        for subject in &case.subjects {
            let valid = source.valid(&case.case.name, &subject.name);
            let measurements: Vec<&Measurement> = valid.into_values().collect();
            results.extend(benchmark(&case.case.name, &subject.name, &measurements));
        }
    }
    Ok(serde_json::to_string_pretty(&Export { results })? + "\n")
}

fn benchmark(case: &str, subject: &str, measurements: &[&Measurement]) -> Option<Benchmark> {
    let seconds = |cpu_us: fn(&Measurement) -> Option<f64>| {
        let values: Option<Vec<f64>> =
            measurements.iter().map(|m| Some(cpu_us(m)? / 1e6)).collect();
        values
    };
    let times = seconds(Measurement::system_cpu_us_per_request)?;
    let user = summarize(&seconds(Measurement::system_user_us_per_request)?)?;
    let Summary { min, max, median, mean, standard_deviation, .. } = summarize(&times)?;
    let parameters = [("case", case.to_owned()), ("subject", subject.to_owned())];
    Some(Benchmark {
        command: format!("{case}/{subject}"),
        mean,
        stddev: standard_deviation,
        median,
        user: user.mean,
        system: mean - user.mean,
        min,
        max,
        exit_codes: vec![0; times.len()],
        times,
        memory_usage_byte: measurements.iter().filter_map(|m| m.memory_peak_bytes).collect(),
        parameters: parameters.into(),
    })
}
