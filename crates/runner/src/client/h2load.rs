//! h2load of nghttp2, as of version 1.52.0.

use super::output::{ClientLoad, Printed, count, milliseconds, needed, other_failures};
use anyhow::{Context, ensure};
use tollgate_records::trial::LatencyRecord;
use tollgate_traffic::load_shape::Window;

pub(super) fn arguments(load: &ClientLoad<'_>) -> Vec<String> {
    let mut arguments = vec![
        format!("-t{}", load.shape.clients.threads),
        format!("-c{}", load.shape.connections()),
        format!("-m{}", load.shape.clients.protocol.concurrency()),
        format!("-N{}s", load.timeout_s()),
        match load.shape.window {
            Window::For(time) => format!("-D{}", time.as_secs()),
            Window::Requests { requests, .. } => format!("-n{requests}"),
        },
    ];
    if !load.site.protocol.is_http2() {
        arguments.push("--h1".to_owned());
    }
    // A `Host` would be sent beside its own.
    arguments.extend(load.headers().map(|header| match header.split_once(": ") {
        Some((name, host)) if name.eq_ignore_ascii_case("host") => format!(":authority: {host}"),
        _ => header,
    }));
    arguments.push(load.url());
    arguments
}

pub(super) fn parse(text: &str) -> anyhow::Result<Printed> {
    // `finished in 1.00s, 37723.00 req/s, 8.10MB/s`
    let finished = needed(text, "finished in")?;
    let per_s = finished.split(", ").find_map(|part| part.strip_suffix(" req/s")?.parse().ok());
    let requests = needed(text, "requests:")?;
    let statuses = needed(text, "status codes:")?;
    let failed = ["errored", "timeout"].map(|kind| count(requests, kind));
    let unexpected = ["3xx", "4xx", "5xx"].map(|class| count(statuses, class));
    let responses = count(requests, "done")?;
    Ok(Printed {
        responses,
        // The last responses may be among the statuses, but not among those that are done.
        unexpected: unexpected.into_iter().sum::<anyhow::Result<u64>>()?.min(responses),
        failures: other_failures(
            failed.into_iter().sum::<anyhow::Result<u64>>()?,
            requests.to_owned(),
        ),
        per_s: per_s.with_context(|| format!("no `req/s` in `{finished}`"))?,
        bytes_received: count(needed(text, "traffic:")?, "total")?,
        latency: if responses > 0 { latency(text)? } else { LatencyRecord::default() },
    })
}

/// `time for request:   67us   11.99ms   2.47ms   1.55ms   77.01%` has minimum, maximum, mean and deviation.
fn latency(text: &str) -> anyhow::Result<LatencyRecord> {
    let figures: Vec<&str> = needed(text, "time for request:")?.split_whitespace().collect();
    ensure!(figures.len() == 5, "the line `time for request:` has {} figures", figures.len());
    Ok(LatencyRecord {
        min_ms: Some(milliseconds(figures[0])?),
        max_ms: Some(milliseconds(figures[1])?),
        mean_ms: Some(milliseconds(figures[2])?),
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
    fn arguments_say_connections_streams_end_and_protocol() {
        let load = "connections = 50\nthreads = 2\nstreams = 10\nduration = '2s'\ntimeout = '4s'";
        assert_eq!(
            line_of(arguments, CaseProtocol::H2, load),
            "-t2 -c50 -m10 -N4s -D2 -H :authority: shop.example -H X-A: b c http://127.0.0.1:8080/a?b=c"
        );
        let load = "connections = 5\nrequests = 700";
        assert_eq!(
            line_of(arguments, CaseProtocol::Https, load),
            "-t1 -c5 -m1 -N10s -n700 --h1 -H :authority: shop.example -H X-A: b c https://127.0.0.1:8080/a?b=c"
        );
    }

    // Output of h2load nghttp2/1.52.0, the progress cut.
    const ANSWERED: &str = "\
starting benchmark...
Application protocol: h2c
Main benchmark duration is over for thread #0. Stopping all clients.
Stopped all clients for thread #0

finished in 1.00s, 45036.00 req/s, 3.09MB/s
requests: 45036 total, 45136 started, 45036 done, 45036 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 45036 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 3.09MB (3243082) total, 2.06MB (2161728) headers (space savings 51.02%), 263.88KB (270216) data
                     min         max         mean         sd        +/- sd
time for request:      105us     11.82ms      2.08ms      1.38ms    79.73%
time for connect:       87us       254us       175us        54us    60.00%
time to 1st byte:     1.26ms      3.71ms      2.72ms       998us    70.00%
req/s           :    3584.24     4014.32     3768.14      132.84    80.00%
";

    #[test]
    fn figures_are_read() {
        let latency = LatencyRecord {
            min_ms: Some(0.105),
            max_ms: Some(11.82),
            mean_ms: Some(2.08),
            ..LatencyRecord::default()
        };
        let expected = Printed {
            responses: 45_036,
            unexpected: 0,
            failures: Failures::default(),
            per_s: 45_036.0,
            bytes_received: 3_243_082,
            latency,
        };
        assert_eq!(parse(ANSWERED).unwrap(), expected);
    }

    #[test]
    fn other_statuses_are_unexpected() {
        let statuses = "status codes: 0 2xx, 1 3xx, 37724 4xx, 2 5xx";
        let text = ANSWERED.replace("status codes: 45036 2xx, 0 3xx, 0 4xx, 0 5xx", statuses);
        let printed = parse(&text).unwrap();
        assert_eq!((printed.unexpected, printed.failures), (37_727, Failures::default()));
    }

    #[test]
    fn failed_requests_are_no_responses() {
        let text = "\
finished in 1.02ms, 0.00 req/s, 0B/s
requests: 200 total, 10 started, 0 done, 0 succeeded, 200 failed, 200 errored, 0 timeout
status codes: 0 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 0B (0) total, 0B (0) headers (space savings 0.00%), 0B (0) data
                     min         max         mean         sd        +/- sd
time for request:        0us         0us         0us         0us     0.00%
";
        let printed = parse(text).unwrap();
        assert_eq!((printed.responses, printed.failures.other), (0, 200));
        assert_eq!(printed.latency, LatencyRecord::default());
    }

    #[test]
    fn output_without_figures_is_an_error() {
        let error = parse("starting benchmark...\n").unwrap_err();
        assert_eq!(error.to_string(), "no line `finished in`");
    }
}
