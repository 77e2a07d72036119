//! Metrics of a running load for Prometheus.

use anyhow::{Context, Result};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use tollgate_admin::{AdminServer, DURATION_BOUNDS_US, Page, Pages, Reply};
use tollgate_load::Interval;

/// Serves `/metrics` until it is dropped. The figures are those of all intervals that are over.
pub(super) struct MetricsServer {
    total: Arc<Mutex<Interval>>,
    _server: AdminServer,
}

/// Parses an address to listen on: a port, or a loopback address with a port.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let expected = "expected a loopback address with a port, such as 127.0.0.1:9090";
    let text = if text.parse::<u16>().is_ok() { &format!("127.0.0.1:{text}") } else { text };
    let parsed = text.parse::<SocketAddr>();
    let address = parsed.map_err(|error| format!("{error}: {expected}"))?;
    match (address.ip().is_loopback(), address.port()) {
        (false, _) => Err(format!("{expected}: the page has no access control")),
        (true, 0) => Err(format!("{expected}: port 0 would be any free port")),
        (true, _) => Ok(address),
    }
}

impl MetricsServer {
    pub(super) fn start(address: SocketAddr) -> Result<Self> {
        let total = Arc::new(Mutex::new(Interval::default()));
        let started_at = SystemTime::now();
        let shown = Arc::clone(&total);
        let pages: Pages = Arc::new(move |path| match path {
            "/metrics" => {
                let total = shown.lock().unwrap_or_else(PoisonError::into_inner);
                Some(Reply::metrics(render(&total, started_at)))
            }
            "/healthz" => Some(Reply::health(true, "ok\n")),
            _ => None,
        });
        let server = AdminServer::start("tollgate load", address, pages)
            .with_context(|| format!("--metrics: cannot listen on {address}"))?;
        Ok(Self { total, _server: server })
    }

    pub(super) fn add(&self, interval: &Interval) {
        self.total.lock().unwrap_or_else(PoisonError::into_inner).append(interval);
    }
}

fn render(total: &Interval, started_at: SystemTime) -> String {
    let mut page = Page::new("tollgate_load_");
    for (name, help, value) in [
        ("requests_sent_total", "Requests sent in the measurement.", total.sent),
        ("responses_total", "Complete responses, expected or not.", total.responses),
        (
            "unexpected_responses_total",
            "Responses that were not the expected ones.",
            total.unexpected,
        ),
        (
            "queued_total",
            "Open loop: requests that became due while no connection was free.",
            total.queued,
        ),
        ("received_bytes_total", "Bytes received, without those of TLS.", total.bytes_received),
        ("in_flight", "Requests in flight at the end of the last interval.", total.in_flight),
    ] {
        page.family(name, help);
        page.sample(name, &[], value);
    }
    page.family("failures_total", "Requests without a complete response, by kind.");
    for (kind, count) in total.failures.by_kind() {
        page.sample("failures_total", &[("kind", kind)], count);
    }
    page.family("generator_cpu_seconds_total", "CPU time of the threads that send.");
    page.sample("generator_cpu_seconds_total", &[], total.cpu.as_secs_f64());
    page.family("measured_seconds_total", "Length of the measurement so far.");
    page.sample("measured_seconds_total", &[], total.end.as_secs_f64());
    page.histogram(
        "latency_seconds",
        "Latency of responses and, as a lower bound, of timeouts; open loop: from the scheduled time.",
    );
    let latency = &total.latency;
    let up_to = DURATION_BOUNDS_US.map(|us| latency.count_up_to(us * 1_000));
    let ends = up_to.into_iter().chain([latency.count()]);
    let counts: Vec<u64> =
        ends.scan(0, |before, end| Some(end - std::mem::replace(before, end))).collect();
    let bounds = DURATION_BOUNDS_US.map(|us| us as f64 / 1e6);
    let sum_s = latency.mean_ns().map_or(0.0, |ns| ns * latency.count() as f64 / 1e9);
    page.buckets("latency_seconds", &[], &bounds, &counts, sum_s);
    page.finish(started_at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tollgate_load::Failures;

    #[test]
    fn only_loopback_addresses_are_listened_on() {
        assert_eq!(address("9090"), Ok(([127, 0, 0, 1], 9090).into()));
        assert!(address("[::1]:80").is_ok());
        for text in ["0.0.0.0:9090", "192.0.2.1:80"] {
            assert!(address(text).unwrap_err().ends_with("no access control"), "{text}");
        }
        for text in ["0", "127.0.0.1:0"] {
            assert!(address(text).unwrap_err().contains("such as 127.0.0.1:9090: port 0"));
        }
        assert!(address("localhost").unwrap_err().contains("such as 127.0.0.1:9090"));
    }

    #[test]
    fn page_has_the_sum_of_the_intervals() {
        let mut interval = Interval {
            end: Duration::from_secs(1),
            sent: 5,
            responses: 3,
            failures: Failures { reset: 2, ..Failures::default() },
            cpu: Duration::from_millis(250),
            in_flight: 7,
            ..Interval::default()
        };
        interval.latency.record_n(200_000, 2);
        interval.latency.record(3_000_000_000);
        let mut total = Interval::default();
        total.append(&interval);
        total.append(&Interval { end: Duration::from_secs(2), in_flight: 1, ..interval });
        let page = render(&total, SystemTime::now());
        for line in [
            "# TYPE tollgate_load_responses_total counter",
            "tollgate_load_requests_sent_total 10",
            "tollgate_load_responses_total 6",
            "tollgate_load_failures_total{kind=\"reset\"} 4",
            "tollgate_load_in_flight 1",
            "tollgate_load_generator_cpu_seconds_total 0.5",
            "tollgate_load_measured_seconds_total 2",
            "tollgate_load_latency_seconds_bucket{le=\"0.0001\"} 0",
            "tollgate_load_latency_seconds_bucket{le=\"0.00025\"} 4",
            "tollgate_load_latency_seconds_bucket{le=\"2.5\"} 4",
            "tollgate_load_latency_seconds_bucket{le=\"5\"} 6",
            "tollgate_load_latency_seconds_bucket{le=\"+Inf\"} 6",
            "tollgate_load_latency_seconds_count 6",
        ] {
            assert!(page.lines().any(|one| one == line), "no `{line}` in\n{page}");
        }
        assert!(page.contains("\ntollgate_build_info{version="), "{page}");
    }
}
