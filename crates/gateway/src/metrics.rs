//! `/metrics` in Prometheus's text format 0.0.4.

use std::fmt::{Arguments, Display, Write as _};
use std::time::Instant;

use crate::cluster::{HealthStatus, PoolHealth};
use crate::config::Pool;
use crate::counters::{BackendTotals, LOCAL_STATUSES, PoolTotals, Totals};
use crate::transport::LOCAL_RESOURCES;

/// Reloads by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reloads {
    pub(crate) applied: u64,
    pub(crate) rejected: u64,
}

pub(crate) fn render<'a>(
    totals: &Totals,
    pools: &(impl Iterator<Item = (&'a Pool, &'a PoolHealth)> + Clone),
    reloads: Reloads,
    now: Instant,
) -> String {
    let mut page = Page(String::new());
    client_metrics(&mut page, totals);
    response_metrics(&mut page, totals);
    backend_metrics(&mut page, totals);
    health_metrics(&mut page, pools, now);
    page.family("reloads_total", "Configurations after the first, by result.");
    page.sample("reloads_total", &[("result", "applied")], reloads.applied);
    page.sample("reloads_total", &[("result", "rejected")], reloads.rejected);
    page.0
}

fn client_metrics(page: &mut Page, totals: &Totals) {
    for (name, help, value) in [
        ("client_connections_total", "Accepted client connections.", totals.accepted),
        ("client_connections", "Open client connections.", totals.accepted - totals.closed),
        (
            "client_connections_refused_total",
            "Client connections closed at once by the limit per client address.",
            totals.refused,
        ),
        ("client_received_bytes_total", "Bytes received from clients.", totals.received_bytes),
        ("client_sent_bytes_total", "Bytes sent to clients.", totals.sent_bytes),
        (
            "access_log_dropped_lines_total",
            "Access log lines dropped because the reader was too slow or gone.",
            totals.dropped_lines,
        ),
    ] {
        page.family(name, help);
        page.sample(name, &[], value);
    }
}

/// Name, help, and value of a metric.
type Family<T> = (&'static str, &'static str, fn(&T) -> u64);

fn response_metrics(page: &mut Page, totals: &Totals) {
    page.family("responses_total", "Responses of backends, by pool and class of the status.");
    for (pool, pool_totals) in &totals.pools {
        for (class, count) in (1..).zip(pool_totals.classes) {
            let labels = [("pool", &**pool), ("class", &format!("{class}xx"))];
            page.sample("responses_total", &labels, count);
        }
    }
    page.family("local_responses_total", "Requests answered by the gateway itself, by status.");
    for (status, count) in LOCAL_STATUSES.iter().zip(totals.local_responses) {
        page.sample("local_responses_total", &[("status", &status.to_string())], count);
    }
    let name = "resource_exhaustion_total";
    page.family(name, "Connections to backends not started for lack of a local resource.");
    for (resource, count) in LOCAL_RESOURCES.iter().zip(totals.resource_exhaustion) {
        page.sample(name, &[("error", resource.error)], count);
    }
    let families: [Family<PoolTotals>; 2] = [
        ("retries_total", "Retries of requests on another backend.", |pool| pool.retries),
        ("queued_total", "Requests that waited for a backend with room.", |pool| pool.queued),
    ];
    for (name, help, value) in families {
        page.family(name, help);
        for (pool, totals) in &totals.pools {
            page.sample(name, &[("pool", pool)], value(totals));
        }
    }
}

fn backend_metrics(page: &mut Page, totals: &Totals) {
    let families: [Family<BackendTotals>; 4] = [
        ("backend_requests_total", "Requests sent to a backend, retries included.", |backend| {
            backend.requests
        }),
        (
            "backend_failures_total",
            "Requests failed by a backend: connection refused, no valid response, or a response that broke off.",
            |backend| backend.failures,
        ),
        ("backend_connections_total", "Connections started to a backend.", |backend| {
            backend.connects
        }),
        ("backend_connections", "Open connections to a backend.", |backend| {
            backend.connects - backend.closed
        }),
    ];
    for (name, help, value) in families {
        page.family(name, help);
        for (pool, totals) in &totals.pools {
            for (address, totals) in &totals.backends {
                page.sample(name, &[("pool", pool), ("backend", address)], value(totals));
            }
        }
    }
}

fn health_metrics<'a>(
    page: &mut Page,
    pools: &(impl Iterator<Item = (&'a Pool, &'a PoolHealth)> + Clone),
    now: Instant,
) {
    type Value = fn(&PoolHealth, usize, Instant) -> u64;
    let families: [(&str, &str, Value); 3] = [
        (
            "backend_up",
            "1 unless the health checks of the backend have failed.",
            |health, at, now| u64::from(health.status(at, now) != HealthStatus::Down),
        ),
        (
            "backend_ejected",
            "1 while the backend is ejected after failed requests.",
            |health, at, now| u64::from(health.status(at, now) == HealthStatus::Ejected),
        ),
        ("backend_ejections_total", "Ejections of the backend.", |health, at, _| {
            health.ejections(at)
        }),
    ];
    for (name, help, value) in families {
        page.family(name, help);
        for (pool, health) in pools.clone() {
            for (at, backend) in pool.backends.iter().enumerate() {
                let labels = [("pool", &*pool.name), ("backend", &backend.address.to_string())];
                page.sample(name, &labels, value(health, at, now));
            }
        }
    }
}

/// A page of metrics. Their names begin with `tollgate_gateway_`; those of counters end in `_total`.
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, help: &str) {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        self.push(format_args!(
            "# HELP tollgate_gateway_{name} {help}\n# TYPE tollgate_gateway_{name} {kind}\n"
        ));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.push(format_args!("tollgate_gateway_{name}"));
        for (at, (label, text)) in labels.iter().enumerate() {
            let separator = if at == 0 { '{' } else { ',' };
            self.push(format_args!("{separator}{label}=\"{}\"", escape(text)));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        self.push(format_args!("{end} {value}\n"));
    }

    fn push(&mut self, text: Arguments<'_>) {
        self.0.write_fmt(text).expect("writing to a string cannot fail");
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests;
