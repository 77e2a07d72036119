//! wrk, as of version 4.1.0.

use super::output::{ClientLoad, Printed, count, line, milliseconds, needed, number};
use anyhow::{Context, ensure};
use tollgate_records::trial::LatencyRecord;
use tollgate_stats::Failures;
use tollgate_traffic::load_shape::Window;

pub(super) fn arguments(load: &ClientLoad<'_>) -> Vec<String> {
    let Window::For(time) = load.shape.window else { unreachable!("wrk sends for a time") };
    let mut arguments: Vec<String> = vec![
        "--latency".to_owned(),
        format!("-t{}", load.shape.clients.threads),
        format!("-c{}", load.shape.connections()),
        format!("-d{}s", time.as_secs()),
        "--timeout".to_owned(),
        format!("{}s", load.timeout_s()),
    ];
    arguments.extend(load.headers());
    if !load.shape.clients.protocol.keeps_connections() {
        arguments.extend(["-H", "Connection: close"].map(str::to_owned));
    }
    arguments.push(load.url());
    arguments
}

pub(super) fn parse(text: &str) -> anyhow::Result<Printed> {
    // `73532 requests in 1.00s, 10.73MB read`
    let totals = text.lines().find(|line| line.contains(" requests in "));
    let totals = totals.context("no line `requests in`")?.trim();
    let mut words = totals.split_whitespace();
    let responses: u64 = words.next().unwrap_or_default().parse().context("no requests")?;
    let read = words.nth(3).unwrap_or_default();
    let failures = match line(text, "Socket errors:") {
        None => Failures::default(),
        Some(list) => {
            let other = ["connect", "read", "write"].map(|kind| count(list, kind));
            let other: u64 = other.into_iter().sum::<anyhow::Result<_>>()?;
            Failures {
                response_timeout: count(list, "timeout")?,
                other,
                other_example: (other > 0).then(|| list.to_owned()),
                ..Failures::default()
            }
        }
    };
    let unexpected = match line(text, "Non-2xx or 3xx responses:") {
        None => 0,
        Some(count) => count.parse().context("no number of responses")?,
    };
    Ok(Printed {
        responses,
        unexpected,
        failures,
        per_s: number(text, "Requests/sec:")?,
        bytes_received: bytes(read).with_context(|| format!("no bytes in `{totals}`"))?,
        latency: if responses > 0 { latency(text)? } else { LatencyRecord::default() },
    })
}

/// `Latency   116.39us  196.16us   4.81ms   98.44%` has mean, deviation and maximum.
fn latency(text: &str) -> anyhow::Result<LatencyRecord> {
    let (_, percentiles) =
        text.split_once("Latency Distribution").context("no line `Latency Distribution`")?;
    let figures: Vec<&str> = needed(text, "Latency ")?.split_whitespace().collect();
    ensure!(figures.len() == 4, "the line `Latency` has {} figures", figures.len());
    let percentile = |label| milliseconds(needed(percentiles, label)?);
    Ok(LatencyRecord {
        mean_ms: Some(milliseconds(figures[0])?),
        max_ms: Some(milliseconds(figures[2])?),
        p50_ms: Some(percentile("50%")?),
        p90_ms: Some(percentile("90%")?),
        p99_ms: Some(percentile("99%")?),
        ..LatencyRecord::default()
    })
}

/// Parses a number of bytes such as `10.73MB`.
fn bytes(text: &str) -> Option<u64> {
    let units = [("KB", 10), ("MB", 20), ("GB", 30), ("TB", 40), ("B", 0)];
    let (number, shift) = units
        .iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?.parse::<f64>().ok()?, *shift)))?;
    Some((number * f64::from(2_u32).powi(shift)).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::output::tests::line_of;
    use tollgate_traffic::load_shape::CaseProtocol;

    #[test]
    fn arguments_say_connections_threads_seconds_and_headers() {
        let load = "connections = 50\nthreads = 2\nduration = '3s'\ntimeout = '4s'";
        assert_eq!(
            line_of(arguments, CaseProtocol::H1, load),
            "--latency -t2 -c50 -d3s --timeout 4s -H Host: shop.example -H X-A: b c http://127.0.0.1:8080/a?b=c"
        );
        let load = "connections = 1\nduration = '1s'\nkeepalive = false";
        assert_eq!(
            line_of(arguments, CaseProtocol::Https, load),
            "--latency -t1 -c1 -d1s --timeout 10s -H Host: shop.example -H X-A: b c -H Connection: close https://127.0.0.1:8080/a?b=c"
        );
    }

    // Output of wrk debian/4.1.0-3+b2.
    const ANSWERED: &str = "\
Running 1s test @ http://127.0.0.1:17801/
  1 threads and 10 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   116.39us  196.16us   4.81ms   98.44%
    Req/Sec    73.99k    19.29k  113.28k    70.00%
  Latency Distribution
     50%  103.00us
     75%  122.00us
     90%  149.00us
     99%  713.00us
  73532 requests in 1.00s, 10.73MB read
Requests/sec:  73241.82
Transfer/sec:     10.69MB
";

    #[test]
    fn figures_are_read() {
        let printed = parse(ANSWERED).unwrap();
        let latency = LatencyRecord {
            mean_ms: Some(116.39 / 1e3),
            max_ms: Some(4.81),
            p50_ms: Some(0.103),
            p90_ms: Some(0.149),
            p99_ms: Some(0.713),
            ..LatencyRecord::default()
        };
        let expected = Printed {
            responses: 73_532,
            unexpected: 0,
            failures: Failures::default(),
            per_s: 73_241.82,
            // 10.73 * 1024 * 1024
            bytes_received: 11_251_220,
            latency,
        };
        assert_eq!(printed, expected);
    }

    #[test]
    fn errors_of_the_server_are_unexpected() {
        let text = ANSWERED.replace(
            "Requests/sec",
            "  Socket errors: connect 1, read 20, write 3, timeout 4\n  Non-2xx or 3xx responses: 129\nRequests/sec",
        );
        let printed = parse(&text).unwrap();
        assert_eq!(printed.unexpected, 129);
        assert_eq!(
            printed.failures.describe(),
            "response_timeout: 4, other: 24, connect 1, read 20, write 3, timeout 4"
        );
    }

    #[test]
    fn load_without_a_response_has_no_latency() {
        let text = "\
Running 1s test @ http://127.0.0.1:17801/drop
  1 threads and 10 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     0.00us    0.00us   0.00us    -nan%
    Req/Sec     0.00      0.00     0.00      -nan%
  Latency Distribution
     50%    0.00us
     75%    0.00us
     90%    0.00us
     99%    0.00us
  0 requests in 1.10s, 0.00B read
  Socket errors: connect 0, read 19648, write 0, timeout 0
Requests/sec:      0.00
Transfer/sec:       0.00B
";
        let printed = parse(text).unwrap();
        assert_eq!((printed.responses, printed.failures.other), (0, 19_648));
        assert_eq!(printed.latency, LatencyRecord::default());
    }

    #[test]
    fn other_output_is_an_error() {
        let error = parse("unable to connect to 127.0.0.1:1 Connection refused\n").unwrap_err();
        assert_eq!(error.to_string(), "no line `requests in`");
        let error = parse(&ANSWERED.replace("10.73MB", "10.73")).unwrap_err();
        assert_eq!(error.to_string(), "no bytes in `73532 requests in 1.00s, 10.73 read`");
    }
}
