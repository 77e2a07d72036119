//! The report of `ab` 2.3 (Apache's benchmark), line for line, for scripts that parse it. docs/formats.md lists
//! the figures with another meaning.

use std::fmt::Write as _;

use tollgate_stats::LatencyHistogram;

use super::report::Report;
use crate::distribution::{NS_PER_MS, ns_to_ms};
use crate::plan::Plan;
use crate::summary::Summary;

const PERCENTS: [u32; 8] = [50, 66, 75, 80, 90, 95, 98, 99];

/// Figures of which `ab` prints the same lines for any load.
#[derive(Debug)]
pub struct AbTotals<'a> {
    /// Connections.
    pub concurrency: usize,
    /// Length of the measurement, in seconds.
    pub seconds: f64,
    /// Complete responses, expected or not.
    pub responses: u64,
    /// Failures and unexpected responses.
    pub failed: u64,
    /// Bytes of the responses with heads; `None` if unknown.
    pub bytes_received: Option<u64>,
    /// Latency of the responses; empty if unknown.
    pub latency: &'a LatencyHistogram,
}

/// Formats the lines of `ab` that need no single load: counts, rates, total times and percentages.
pub fn ab_of_totals(totals: &AbTotals<'_>) -> String {
    let mut text = String::new();
    write_totals(&mut text, totals).expect("a String can always be written to");
    text
}

fn write_totals(text: &mut String, totals: &AbTotals<'_>) -> std::fmt::Result {
    writeln!(text, "Concurrency Level:      {}", totals.concurrency)?;
    writeln!(text, "Time taken for tests:   {:.3} seconds", totals.seconds)?;
    writeln!(text, "Complete requests:      {}", totals.responses)?;
    writeln!(text, "Failed requests:        {}", totals.failed)?;
    if let Some(bytes) = totals.bytes_received {
        writeln!(text, "Total transferred:      {bytes} bytes")?;
    }
    if totals.seconds > 0.0 && totals.responses > 0 {
        write_rates(text, totals)?;
    }
    if totals.latency.count() > 0 {
        write_times_header(text)?;
        Times::new(totals.latency).write(text, "Total:")?;
        write_percentiles(text, totals.latency)?;
    }
    Ok(())
}

pub(super) fn render(report: &Report<'_>) -> String {
    let mut text = String::new();
    write(&mut text, report).expect("a String can always be written to");
    text
}

fn write(text: &mut String, report: &Report<'_>) -> std::fmt::Result {
    let summary = report.summary;
    writeln!(text, "Server Software:        {}", header(summary, "Server").unwrap_or_default())?;
    writeln!(text, "Server Hostname:        {}", report.hostname)?;
    writeln!(text, "Server Port:            {}", report.port)?;
    if let Some(tls) = &summary.tls {
        writeln!(text, "SSL/TLS Protocol:       {}", tls.replace(' ', ","))?;
        // A name is sent to the server, an address is not.
        if report.hostname.parse::<std::net::IpAddr>().is_err() {
            writeln!(text, "TLS Server Name:        {}", report.hostname)?;
        }
    }
    writeln!(text)?;
    writeln!(text, "Document Path:          {}", report.path)?;
    writeln!(text, "Document Length:        {}\n", document_length(report))?;
    writeln!(text, "Concurrency Level:      {}", concurrency(report.plan))?;
    let seconds = summary.window.as_secs_f64();
    writeln!(text, "Time taken for tests:   {seconds:.3} seconds")?;
    write_counts(text, report)?;
    if seconds > 0.0 && summary.responses > 0 {
        let received = summary.bytes_received;
        write_rates(
            text,
            &AbTotals {
                concurrency: concurrency(report.plan),
                seconds,
                responses: summary.responses,
                failed: failed(summary),
                bytes_received: Some(received),
                latency: &summary.latency,
            },
        )?;
        if let Some(sent) = posted_bytes(report) {
            write_sent_rates(text, sent, received, seconds)?;
        }
    }
    if summary.responses > 0 {
        write_times(text, summary, report.plan.clients.protocol.keeps_connections())?;
    }
    if summary.responses > 1 {
        write_percentiles(text, &summary.latency)?;
    }
    Ok(())
}

fn write_counts(text: &mut String, report: &Report<'_>) -> std::fmt::Result {
    let summary = report.summary;
    let failures = &summary.failures;
    writeln!(text, "Complete requests:      {}", summary.responses)?;
    let failed = failed(summary);
    writeln!(text, "Failed requests:        {failed}")?;
    if failed > 0 {
        let connect = failures.refused + failures.connect_timeout + failures.no_port;
        let receive = failures.reset + failures.closed_early + failures.response_timeout;
        let exceptions = failures.malformed + failures.other;
        let length = summary.unexpected;
        writeln!(
            text,
            "   (Connect: {connect}, Receive: {receive}, Length: {length}, Exceptions: {exceptions})"
        )?;
    }
    let statuses = summary.statuses();
    let non_2xx = statuses.iter().filter(|(status, _)| !(200..300).contains(*status));
    let non_2xx: u64 = non_2xx.map(|(_, count)| count).sum();
    if non_2xx > 0 {
        writeln!(text, "Non-2xx responses:      {non_2xx}")?;
    }
    if report.plan.clients.protocol.keeps_connections() {
        writeln!(text, "Keep-Alive requests:    {}", summary.kept_alive)?;
    }
    writeln!(text, "Total transferred:      {} bytes", summary.bytes_received)?;
    if let Some(bytes) = posted_bytes(report) {
        writeln!(text, "Total body sent:        {bytes}")?;
    }
    writeln!(text, "HTML transferred:       {} bytes", summary.body_bytes)
}

fn write_rates(text: &mut String, totals: &AbTotals<'_>) -> std::fmt::Result {
    let responses = totals.responses as f64;
    let each_ms = totals.seconds * 1e3 / responses;
    let concurrent_ms = each_ms * totals.concurrency as f64;
    writeln!(text, "Requests per second:    {:.2} [#/sec] (mean)", responses / totals.seconds)?;
    writeln!(text, "Time per request:       {concurrent_ms:.3} [ms] (mean)")?;
    writeln!(
        text,
        "Time per request:       {each_ms:.3} [ms] (mean, across all concurrent requests)"
    )?;
    if let Some(bytes) = totals.bytes_received {
        let received = kib_per_s(bytes, totals.seconds);
        writeln!(text, "Transfer rate:          {received:.2} [Kbytes/sec] received")?;
    }
    Ok(())
}

fn write_sent_rates(text: &mut String, sent: u64, received: u64, seconds: f64) -> std::fmt::Result {
    let (both, sent) = (kib_per_s(sent + received, seconds), kib_per_s(sent, seconds));
    writeln!(text, "                        {sent:.2} kb/s sent")?;
    writeln!(text, "                        {both:.2} kb/s total")
}

fn kib_per_s(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / 1024.0 / seconds
}

fn failed(summary: &Summary) -> u64 {
    summary.failures.total() + summary.unexpected
}

/// Bytes of the requests that finished in the measurement, if the load is a single request with a body.
fn posted_bytes(report: &Report<'_>) -> Option<u64> {
    let message = &single_request(report)?.message;
    let finished = report.summary.responses + report.summary.failures.total();
    (!message.body().is_empty()).then_some(message.bytes().len() as u64 * finished)
}

fn single_request<'a>(report: &Report<'a>) -> Option<&'a crate::Request> {
    match report.mix {
        Some(_) => None,
        None => report.plan.workload.requests.first(),
    }
}

fn write_times(text: &mut String, summary: &Summary, keep_alive: bool) -> std::fmt::Result {
    let mut connect = summary.connect_time.clone();
    // `ab` has a connect time for every request: 0 if the connection was open already.
    connect.record_n(0, summary.responses.saturating_sub(connect.count()));
    let total = Times::new(&summary.latency);
    let connect = Times::new(&connect);
    // Without keep-alive the latency includes the connect.
    let processing = if keep_alive { total } else { total.less(connect.mean_ms) };
    write_times_header(text)?;
    connect.write(text, "Connect:")?;
    processing.write(text, "Processing:")?;
    summary.first_byte.as_ref().map_or(processing, Times::new).write(text, "Waiting:")?;
    total.write(text, "Total:")
}

fn write_times_header(text: &mut String) -> std::fmt::Result {
    writeln!(text, "\nConnection Times (ms)")?;
    writeln!(text, "              min  mean[+/-sd] median   max")
}

fn write_percentiles(text: &mut String, latency: &LatencyHistogram) -> std::fmt::Result {
    writeln!(text, "\nPercentage of the requests served within a certain time (ms)")?;
    for percent in PERCENTS {
        let value_ns = latency.value_at(f64::from(percent) / 100.0);
        writeln!(text, "  {percent}%  {:5.0}", value_ns.map_or(0.0, ns_to_ms))?;
    }
    writeln!(text, " 100%  {:5.0} (longest request)", latency.max_ns().map_or(0.0, ns_to_ms))
}

/// A line of the connection times. `ab` prints 0 for a missing time.
#[derive(Debug, Clone, Copy)]
struct Times {
    min_ms: f64,
    mean_ms: f64,
    stddev_ms: f64,
    median_ms: f64,
    max_ms: f64,
}

impl Times {
    fn new(histogram: &LatencyHistogram) -> Self {
        let or_zero = |ns: Option<u64>| ns.map_or(0.0, ns_to_ms);
        Self {
            min_ms: or_zero(histogram.min_ns()),
            mean_ms: histogram.mean_ns().map_or(0.0, |ns| ns / NS_PER_MS),
            stddev_ms: histogram.stdev_ns().map_or(0.0, |ns| ns / NS_PER_MS),
            median_ms: or_zero(histogram.value_at(0.5)),
            max_ms: or_zero(histogram.max_ns()),
        }
    }

    /// Subtracts a time from each but the deviation.
    fn less(self, by_ms: f64) -> Self {
        let less = |value: f64| (value - by_ms).max(0.0);
        Self {
            min_ms: less(self.min_ms),
            mean_ms: less(self.mean_ms),
            stddev_ms: self.stddev_ms,
            median_ms: less(self.median_ms),
            max_ms: less(self.max_ms),
        }
    }

    fn write(&self, text: &mut String, label: &str) -> std::fmt::Result {
        let Self { min_ms, mean_ms, stddev_ms, median_ms, max_ms } = self;
        writeln!(
            text,
            "{label:<12}{min_ms:5.0} {mean_ms:4.0} {stddev_ms:5.1} {median_ms:6.0} {max_ms:7.0}"
        )
    }
}

/// The `Content-Length` of the first response.
fn document_length(report: &Report<'_>) -> String {
    if single_request(report).is_some_and(|request| request.message.is_head()) {
        return "0 bytes".to_owned();
    }
    match header(report.summary, "Content-Length") {
        Some(length) if report.mix.is_none() => format!("{length} bytes"),
        _ => "Variable".to_owned(),
    }
}

/// Returns a header of the first response.
fn header<'a>(summary: &'a Summary, name: &str) -> Option<&'a str> {
    let mut headers = summary.first_headers.iter().flatten();
    headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// Connections at the start; of a replay, at most.
fn concurrency(plan: &Plan) -> usize {
    plan.replay().map_or(plan.connections(), |_| plan.connections_max())
}
