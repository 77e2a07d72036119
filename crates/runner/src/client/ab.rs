//! ab of Apache httpd, as of version 2.3, which sends HTTP/1.0 from one thread.

use super::output::{ClientLoad, Printed, count, line, number, other_failures};
use anyhow::Context;
use std::path::{Path, PathBuf};
use tollgate_records::trial::LatencyRecord;
use tollgate_traffic::load_shape::Window;

/// Returns the file of percentiles beside a log. The printed ones are in whole milliseconds.
pub(super) fn percentiles(log: &Path) -> PathBuf {
    log.with_extension("csv")
}

/// More than ab can send, for a load that ends by its time: a time limit alone ends after 50,000 requests.
const PER_S_MAX: u64 = 500_000;

pub(super) fn arguments(load: &ClientLoad<'_>) -> Vec<String> {
    // Without -r, the first failed request ends the load.
    let mut arguments = vec![
        "-q".to_owned(),
        "-r".to_owned(),
        "-e".to_owned(),
        percentiles(load.log).display().to_string(),
        format!("-c{}", load.shape.connections()),
        format!("-s{}", load.timeout_s()),
    ];
    arguments.extend(load.shape.clients.protocol.keeps_connections().then(|| "-k".to_owned()));
    match load.shape.window {
        // In this order: -t sets the number of requests, too.
        Window::For(time) => {
            let seconds = time.as_secs();
            arguments.extend([format!("-t{seconds}"), format!("-n{}", seconds * PER_S_MAX)]);
        }
        Window::Requests { requests, .. } => arguments.push(format!("-n{requests}")),
    }
    arguments.extend(load.headers());
    arguments.push(load.url());
    arguments
}

/// `percentiles`: its file of percentiles.
pub(super) fn parse(text: &str, percentiles: &str) -> anyhow::Result<Printed> {
    let complete: u64 = number(text, "Complete requests:")?;
    let bytes_received = number(text, "Total transferred:")?;
    // `(Connect: 0, Receive: 45380, Length: 0, Exceptions: 22690)`; a failed request may be in several, and is complete, too.
    let kinds = line(text, "(Connect:").map(|rest| format!("Connect: {rest}"));
    let (failed, length) = match &kinds {
        None => (0, 0),
        Some(list) => {
            let failed = ["Connect", "Receive", "Exceptions"].map(|kind| count(list, kind));
            (failed.into_iter().sum::<anyhow::Result<u64>>()?, count(list, "Length")?)
        }
    };
    let mut failures =
        other_failures(failed, kinds.unwrap_or_default().trim_end_matches(')').to_owned());
    let mut responses = complete.saturating_sub(failed);
    // A connection that is closed without a response counts as complete.
    if bytes_received == 0 {
        failures.closed_early = std::mem::take(&mut responses);
    }
    let non_2xx: u64 = match line(text, "Non-2xx responses:") {
        None => 0,
        Some(count) => count.parse().context("no number of responses")?,
    };
    Ok(Printed {
        responses,
        // Lists of another length than the first one.
        unexpected: (non_2xx + length).min(responses),
        failures,
        per_s: number(text, "Requests per second:")?,
        bytes_received,
        latency: if responses > 0 { latency(percentiles)? } else { LatencyRecord::default() },
    })
}

/// Lines `PERCENT,MILLISECONDS` below a heading.
fn latency(percentiles: &str) -> anyhow::Result<LatencyRecord> {
    let ms = |percent: u32| -> anyhow::Result<f64> {
        let value = percentiles.lines().find_map(|line| line.strip_prefix(&format!("{percent},")));
        let value = value.and_then(|value| value.trim().parse().ok());
        value.with_context(|| format!("its file of percentiles has no line {percent}"))
    };
    Ok(LatencyRecord {
        min_ms: Some(ms(0)?),
        p50_ms: Some(ms(50)?),
        p90_ms: Some(ms(90)?),
        p95_ms: Some(ms(95)?),
        p99_ms: Some(ms(99)?),
        max_ms: Some(ms(100)?),
        ..LatencyRecord::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::output::tests::line_of;
    use tollgate_stats::Failures;
    use tollgate_traffic::load_shape::CaseProtocol;

    #[test]
    fn arguments_say_connections_end_and_headers() {
        let load = "connections = 50\nduration = '2s'\ntimeout = '4s'";
        assert_eq!(
            line_of(arguments, CaseProtocol::H1, load),
            "-q -r -e logs/1.csv -c50 -s4 -k -t2 -n1000000 -H Host: shop.example -H X-A: b c http://127.0.0.1:8080/a?b=c"
        );
        let load = "connections = 5\nrequests = 700\nkeepalive = false";
        assert_eq!(
            line_of(arguments, CaseProtocol::Https, load),
            "-q -r -e logs/1.csv -c5 -s10 -n700 -H Host: shop.example -H X-A: b c https://127.0.0.1:8080/a?b=c"
        );
    }

    // Output of ab 2.3 of Apache 2.4 (Debian's apache2-utils 2.4.71), the heading and the times cut.
    const ANSWERED: &str = "\
Server Software:        nginx/1.22.1
Server Hostname:        127.0.0.1
Server Port:            17801

Document Path:          /
Document Length:        6 bytes

Concurrency Level:      10
Time taken for tests:   1.000 seconds
Complete requests:      66961
Failed requests:        0
Keep-Alive requests:    66961
Total transferred:      10245033 bytes
HTML transferred:       401766 bytes
Requests per second:    66960.87 [#/sec] (mean)
Time per request:       0.149 [ms] (mean)
Time per request:       0.015 [ms] (mean, across all concurrent requests)
Transfer rate:          10004.90 [Kbytes/sec] received
";

    fn percentiles() -> String {
        let lines = (0..=100).map(|percent| format!("{percent},{}.25\n", percent / 10));
        "Percentage served,Time in ms\n".to_owned() + &lines.collect::<String>()
    }

    #[test]
    fn figures_are_read() {
        let latency = LatencyRecord {
            min_ms: Some(0.25),
            p50_ms: Some(5.25),
            p90_ms: Some(9.25),
            p95_ms: Some(9.25),
            p99_ms: Some(9.25),
            max_ms: Some(10.25),
            ..LatencyRecord::default()
        };
        let expected = Printed {
            responses: 66_961,
            unexpected: 0,
            failures: Failures::default(),
            per_s: 66_960.87,
            bytes_received: 10_245_033,
            latency,
        };
        assert_eq!(parse(ANSWERED, &percentiles()).unwrap(), expected);
    }

    #[test]
    fn other_statuses_and_lengths_are_unexpected() {
        let text = ANSWERED.replace(
            "Failed requests:        0\n",
            "Failed requests:        7\n   (Connect: 0, Receive: 0, Length: 7, Exceptions: 0)\n\
             Non-2xx responses:      12\n",
        );
        let printed = parse(&text, &percentiles()).unwrap();
        assert_eq!((printed.responses, printed.unexpected), (66_961, 19));
        assert_eq!(printed.failures, Failures::default());
    }

    #[test]
    fn failed_requests_are_no_responses() {
        // Nobody listened.
        let text = ANSWERED
            .replace(
                "Failed requests:        0\n",
                "Failed requests:        68070\n   (Connect: 0, Receive: 45380, Length: 0, Exceptions: 22690)\n",
            )
            .replace("66961\nFailed", "45380\nFailed")
            .replace("10245033 bytes", "0 bytes");
        let printed = parse(&text, "").unwrap();
        assert_eq!((printed.responses, printed.latency), (0, LatencyRecord::default()));
        assert_eq!(
            printed.failures.describe(),
            "other: 68070, Connect: 0, Receive: 45380, Length: 0, Exceptions: 22690"
        );
    }

    #[test]
    fn closed_connections_are_no_responses() {
        let text = ANSWERED.replace("10245033 bytes", "0 bytes");
        let printed = parse(&text, "").unwrap();
        assert_eq!((printed.responses, printed.failures.closed_early), (0, 66_961));
    }

    #[test]
    fn missing_percentile_is_an_error() {
        let error = parse(ANSWERED, "Percentage served,Time in ms\n0,0.04\n").unwrap_err();
        assert_eq!(error.to_string(), "its file of percentiles has no line 50");
    }
}
