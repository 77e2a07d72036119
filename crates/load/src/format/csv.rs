//! The result as CSV. Numbers are not rounded, and missing values are empty.

use std::io;

use csv::Writer;
use tollgate_stats::LatencyHistogram;

use super::report::Report;
use crate::distribution::{Distribution, NS_PER_MS, ns_to_ms};
use crate::summary::{Summary, TemplateSummary};

pub(super) fn render(report: &Report<'_>) -> io::Result<String> {
    let summary = report.summary;
    let totals: Vec<(&str, u64)> = [
        ("sent", summary.sent),
        ("failed", summary.failures.total()),
        ("in_flight", summary.in_flight),
        ("unsent", summary.unsent),
        ("queued", summary.queued),
    ]
    .into_iter()
    .chain(summary.failures.by_kind())
    .collect();
    let latency = Distribution::new(&summary.latency).map_err(io::Error::other)?;
    let figures = latency.figures_ms().map(|(name, _)| format!("{name}_ms"));
    let columns =
        ["row", "name", "class", "window_s", "throughput_per_s", "responses", "unexpected"];

    let mut writer = Writer::from_writer(Vec::new());
    let total_names = totals.iter().map(|(name, _)| *name);
    let handshakes = handshakes(summary);
    let header = columns.into_iter().chain(total_names).chain(figures.iter().map(String::as_str));
    let header = header.chain(handshakes.iter().map(|(name, _)| *name));
    writer.write_record(header)?;

    let mut write_row =
        |labels: [&str; 3], counts: [u64; 2], is_total: bool, latency: &Distribution| {
            let throughput =
                summary.throughput_per_s().map(|_| counts[0] as f64 / summary.window.as_secs_f64());
            let mut row = labels.map(str::to_owned).to_vec();
            row.push(summary.window.as_secs_f64().to_string());
            row.push(or_empty(throughput));
            row.extend(counts.map(|count| count.to_string()));
            // A request without a response is not counted per template.
            row.extend(totals.iter().map(|(_, count)| or_empty(is_total.then_some(count))));
            row.extend(latency.figures_ms().map(|(_, value)| or_empty(value)));
            let of_total = |value: &String| if is_total { value.clone() } else { String::new() };
            row.extend(handshakes.iter().map(|(_, value)| of_total(value)));
            writer.write_record(row)
        };
    write_row(["total", report.url, ""], [summary.responses, summary.unexpected], true, &latency)?;
    let mut write_group = |labels: [&str; 3], group: &TemplateSummary| -> io::Result<()> {
        let latency = Distribution::new(&group.latency).map_err(io::Error::other)?;
        Ok(write_row(labels, [group.responses(), group.unexpected], false, &latency)?)
    };
    for (class, sum) in report.classes() {
        write_group(["class", class, class], &sum)?;
    }
    for (label, template) in report.templates() {
        let class = label.class.as_deref().unwrap_or("");
        write_group(["template", &label.name, class], template)?;
    }
    String::from_utf8(writer.into_inner().map_err(csv::IntoInnerError::into_error)?)
        .map_err(io::Error::other)
}

/// Columns of TLS, empty without it.
fn handshakes(summary: &Summary) -> [(&'static str, String); 7] {
    let time = summary.handshake_time.as_ref();
    let in_ms = |ns: Option<u64>| or_empty(ns.map(ns_to_ms));
    [
        ("handshakes", or_empty(time.map(LatencyHistogram::count))),
        ("resumed_handshakes", or_empty(time.map(|_| summary.resumed_handshakes))),
        (
            "handshake_mean_ms",
            or_empty(time.and_then(LatencyHistogram::mean_ns).map(|ns| ns / NS_PER_MS)),
        ),
        ("handshake_p50_ms", in_ms(time.and_then(|time| time.quantile_ns(0.5)))),
        ("handshake_p99_ms", in_ms(time.and_then(|time| time.quantile_ns(0.99)))),
        ("tls_bytes_received", or_empty(summary.tls_bytes_received)),
        ("tls_bytes_sent", or_empty(summary.tls_bytes_sent)),
    ]
}

fn or_empty(value: Option<impl ToString>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}
