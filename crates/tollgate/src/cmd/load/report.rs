//! The result of `tollgate load`, for people and for programs.

use anyhow::Result;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;
use tollgate_load::Outcome;

/// The version of the JSON's shape.
const SCHEMA: u32 = 1;
const QUANTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p75", 0.75), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999)];

/// The result as a table.
pub(crate) fn table(url: &str, connections: u32, outcome: &Outcome) -> String {
    let seconds = outcome.window.as_secs_f64();
    let mut text = format!("{url}: closed loop, {connections} connections, {seconds:.2} s\n\n");
    let mut line = |name: &str, value: String| {
        // Writing to a String cannot fail.
        writeln!(text, "{name:<14} {value}").ok();
    };
    line("answers", format!("{} ({:.1}/s)", outcome.answered, per_second(outcome)));
    let statuses = statuses(outcome);
    let statuses: Vec<String> = statuses.iter().map(|(code, n)| format!("{code}: {n}")).collect();
    line("status codes", if statuses.is_empty() { "none".to_owned() } else { statuses.join(", ") });
    let failed = outcome.failures.in_words();
    line("failed", if failed.is_empty() { "0".to_owned() } else { failed });
    if let Some(oldest) = outcome.oldest_unanswered {
        line(
            "unanswered",
            format!("{} at the end, the oldest {} ms old", outcome.unanswered, ms(oldest)),
        );
    }
    let mib = outcome.bytes_received as f64 / f64::from(1 << 20);
    line("received", format!("{mib:.1} MiB ({:.1} MiB/s)", mib / seconds));
    let mean = outcome.latency.mean_ns().map_or("-".to_owned(), |ns| format!("{:.3}", ns / 1e6));
    let end = |ns: Option<u64>| ns.map_or("-".to_owned(), ns_as_ms);
    line(
        "latency ms",
        format!(
            "mean {mean}, min {}, max {}",
            end(outcome.latency.min_ns()),
            end(outcome.latency.max_ns())
        ),
    );
    for (name, quantile) in QUANTILES {
        let value = outcome.latency.quantile_ns(quantile);
        line(&format!("       {name}"), value.map_or("- (too few answers)".to_owned(), ns_as_ms));
    }
    for (index, thread) in outcome.threads.iter().enumerate() {
        let busy = (thread.user + thread.system).as_secs_f64() / thread.window.as_secs_f64();
        let warning = if busy > 0.9 {
            ": the load generator was the bottleneck, the server may hold more"
        } else {
            ""
        };
        line(&format!("thread {}", index + 1), format!("{:.0} % of a CPU{warning}", 100.0 * busy));
    }
    text
}

/// The result as JSON. Latencies are in milliseconds, CPU times in microseconds.
///
/// # Errors
///
/// The histogram cannot be encoded.
pub(crate) fn json(url: &str, connections: u32, outcome: &Outcome) -> Result<String> {
    let latency = &outcome.latency;
    let in_ms = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e6);
    let quantiles: BTreeMap<String, Option<f64>> = QUANTILES
        .iter()
        .map(|(name, quantile)| (format!("{name}_ms"), in_ms(latency.quantile_ns(*quantile))))
        .collect();
    let failures: BTreeMap<&str, u64> = outcome.failures.by_kind().into_iter().collect();
    let threads: Vec<_> = outcome
        .threads
        .iter()
        .map(|thread| json!({ "user_us": thread.user.as_micros() as u64, "system_us": thread.system.as_micros() as u64 }))
        .collect();
    let value = json!({
        "schema": SCHEMA,
        "url": url,
        "connections": connections,
        "window_s": outcome.window.as_secs_f64(),
        "answered": outcome.answered,
        "throughput_per_s": per_second(outcome),
        "statuses": statuses(outcome),
        "failures": failures,
        "unanswered": outcome.unanswered,
        "bytes_received": outcome.bytes_received,
        "connects": outcome.connects,
        "latency": {
            "mean_ms": latency.mean_ns().map(|ns| ns / 1e6),
            "min_ms": in_ms(latency.min_ns()),
            "max_ms": in_ms(latency.max_ns()),
            "quantiles": quantiles,
            "histogram_v2_base64": latency.to_v2_base64()?,
        },
        "threads": threads,
    });
    Ok(serde_json::to_string_pretty(&value)? + "\n")
}

fn per_second(outcome: &Outcome) -> f64 {
    outcome.answered as f64 / outcome.window.as_secs_f64()
}

fn statuses(outcome: &Outcome) -> BTreeMap<u16, u64> {
    let mut all = BTreeMap::new();
    for (status, count) in outcome.templates.iter().flat_map(|tally| &tally.statuses) {
        *all.entry(*status).or_default() += count;
    }
    all
}

fn ns_as_ms(ns: u64) -> String {
    ms(Duration::from_nanos(ns))
}

fn ms(duration: Duration) -> String {
    format!("{:.3}", duration.as_secs_f64() * 1e3)
}
