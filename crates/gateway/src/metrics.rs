//! `/metrics` in Prometheus's text format 0.0.4.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tollgate_accesslog::Counter;
use tollgate_admin::{DURATION_BOUNDS_US, Page};
use tollgate_tls::ManagedCertificate;

use crate::cluster::{HealthStatus, PoolHealth};
use crate::config::Pool;
use crate::connect_error::LOCAL_RESOURCES;
use crate::counters::{
    BackendCounters, ClientCounters, Counters, DurationCounters, HandshakeCounters, Interruption,
    LOCAL_STATUSES, PoolTotals, SpoeAnswer,
};

/// Reloads by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reloads {
    pub(crate) applied: u64,
    pub(crate) rejected: u64,
}

/// Orders of certificates by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Orders {
    pub(crate) issued: u64,
    pub(crate) failed: u64,
}

/// State beside that of requests and backends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Process<'a> {
    pub(crate) reloads: Reloads,
    pub(crate) orders: Orders,
    /// Those that an authority issues.
    pub(crate) certificates: &'a [Arc<ManagedCertificate>],
}

pub(crate) fn render<'a>(
    counters: &Counters,
    pools: &(impl Iterator<Item = (&'a Pool, &'a PoolHealth)> + Clone),
    process: Process<'_>,
    now: Instant,
    started_at: SystemTime,
) -> String {
    let mut page = Page::new("tollgate_gateway_");
    let totals = counters.pool_totals();
    client_metrics(&mut page, counters);
    handshake_metrics(&mut page, counters, &totals, pools);
    response_metrics(&mut page, counters, &totals);
    duration_metrics(&mut page, &totals);
    page.family("limited_clients", "Clients with recent requests on routes with `per_client`.");
    page.sample("limited_clients", &[], counters.limiter.len() as u64);
    let (name, help) = ("limited_clients_evicted_total", "Clients forgotten by `limits.clients`.");
    page.family(name, help);
    page.sample(name, &[], counters.limiter.evictions());
    page.family("password_checks_total", "Checks of passwords, by result.");
    for (result, count) in counters.passwords.all() {
        page.sample("password_checks_total", &[("result", result)], count);
    }
    backend_metrics(&mut page, &totals);
    health_metrics(&mut page, pools, now);
    spoe_metrics(&mut page, counters);
    counters.firewall.render(&mut page);
    certificate_metrics(&mut page, &process);
    let reloads = process.reloads;
    page.family("reloads_total", "Configurations after the first, by result.");
    page.sample("reloads_total", &[("result", "applied")], reloads.applied);
    page.sample("reloads_total", &[("result", "rejected")], reloads.rejected);
    page.finish(started_at)
}

fn client_metrics(page: &mut Page, counters: &Counters) {
    let (name, help) = ("client_connections", "Open client connections.");
    page.family(name, help);
    // Closed before accepted, so that the difference is never negative.
    let closed = counters.client_total(|client| &client.closed);
    page.sample(name, &[], counters.client_total(|client| &client.accepted) - closed);
    type Value = fn(&ClientCounters) -> &Counter;
    let families: [(&str, &str, Value); 17] = [
        (
            "bugs_total",
            "Clients closed in a state that should be impossible; report them.",
            |client| &client.bugs,
        ),
        ("client_connections_total", "Accepted client connections.", |client| &client.accepted),
        (
            "client_connections_refused_total",
            "Client connections closed at once by the limit per client address.",
            |client| &client.refused,
        ),
        (
            "client_proxy_connections_refused_total",
            "Connections closed as they did not begin with a header of the PROXY protocol, or not from a trusted proxy.",
            |client| &client.proxy_refused,
        ),
        (
            "client_connections_reclaimed_total",
            "Idle client connections closed for others at the limit of connections.",
            |client| &client.reclaimed,
        ),
        (
            "client_http2_streams_total",
            "Streams that HTTP/2 clients have opened for requests.",
            |client| &client.http2_streams,
        ),
        (
            "client_http2_streams_refused_total",
            "Streams of HTTP/2 clients rejected for a malformed request or the limit of streams.",
            |client| &client.http2_refused,
        ),
        (
            "client_http2_streams_reset_total",
            "Streams of HTTP/2 clients that ended early, by the client or by its error.",
            |client| &client.http2_resets,
        ),
        (
            "client_http2_connection_errors_total",
            "HTTP/2 connections ended by an error of the client or by a limit against floods.",
            |client| &client.http2_errors,
        ),
        ("client_received_bytes_total", "Bytes received from clients.", |client| {
            &client.received_bytes
        }),
        ("client_sent_bytes_total", "Bytes sent to clients.", |client| &client.sent_bytes),
        ("compressed_responses_total", "Responses compressed by the gateway.", |client| {
            &client.compressed_responses
        }),
        (
            "compression_received_bytes_total",
            "Bytes of bodies before their compression.",
            |client| &client.compression_received_bytes,
        ),
        ("compression_sent_bytes_total", "Bytes of bodies after their compression.", |client| {
            &client.compression_sent_bytes
        }),
        (
            "compression_refused_total",
            "Responses not compressed because of `limits.compressed_responses`.",
            |client| &client.compression_refused,
        ),
        (
            "access_log_dropped_lines_total",
            "Access log lines dropped because the reader was too slow or gone.",
            |client| &client.dropped_lines,
        ),
        (
            "audit_log_dropped_lines_total",
            "Audit log lines dropped because the reader was too slow or gone.",
            |client| &client.dropped_audit_lines,
        ),
    ];
    for (name, help, counter) in families {
        page.family(name, help);
        page.sample(name, &[], counters.client_total(counter));
    }
}

fn handshake_metrics<'a>(
    page: &mut Page,
    counters: &Counters,
    totals: &BTreeMap<String, PoolTotals>,
    pools: &(impl Iterator<Item = (&'a Pool, &'a PoolHealth)> + Clone),
) {
    let results = |totals: &HandshakeCounters| {
        [("full", &totals.full), ("resumed", &totals.resumed), ("failed", &totals.failed)]
            .map(|(result, counter)| (result, counter.get()))
    };
    let name = "tls_handshakes_total";
    page.family(name, "TLS handshakes with clients, by listener and result.");
    for (listener, totals) in &counters.handshake_totals() {
        for (result, count) in results(totals) {
            page.sample(name, &[("listener", listener), ("result", result)], count);
        }
    }
    let name = "backend_tls_handshakes_total";
    page.family(name, "TLS handshakes with a backend, by result.");
    let none = HandshakeCounters::default();
    for (pool, _) in pools.clone() {
        for backend in pool.backends.iter().filter(|backend| backend.tls.is_some()) {
            let address = backend.address.to_string();
            let totals = totals.get(&pool.name).and_then(|pool| pool.backends.get(&address));
            for (result, count) in results(totals.map_or(&none, |totals| &totals.handshakes)) {
                let labels = [("pool", &*pool.name), ("backend", &address), ("result", result)];
                page.sample(name, &labels, count);
            }
        }
    }
}

/// Name, help, and value of a metric.
type Family<T> = (&'static str, &'static str, fn(&T) -> u64);

fn response_metrics(page: &mut Page, counters: &Counters, totals: &BTreeMap<String, PoolTotals>) {
    page.family("responses_total", "Responses of backends, by pool and class of the status.");
    for (pool, totals) in totals {
        for (class, count) in (1..).zip(&totals.classes) {
            let labels = [("pool", &**pool), ("class", &format!("{class}xx"))];
            page.sample("responses_total", &labels, count.get());
        }
    }
    let name = "responses_interrupted_total";
    page.family(name, "Requests without a complete response, by pool and cause.");
    for (pool, totals) in totals {
        for (interruption, count) in Interruption::ALL.iter().zip(&totals.interruptions) {
            page.sample(name, &[("pool", pool), ("end", interruption.word())], count.get());
        }
    }
    page.family("local_responses_total", "Requests answered by the gateway itself, by status.");
    for (at, status) in LOCAL_STATUSES.iter().enumerate() {
        let count = counters.client_total(|client| &client.local_responses[at]);
        page.sample("local_responses_total", &[("status", &status.to_string())], count);
    }
    let name = "resource_exhaustion_total";
    page.family(name, "Connections to backends not started for lack of a local resource.");
    for (at, resource) in LOCAL_RESOURCES.iter().enumerate() {
        let count = counters.client_total(|client| &client.resource_exhaustion[at]);
        page.sample(name, &[("error", resource.error)], count);
    }
    let families: [Family<PoolTotals>; 4] = [
        ("retries_total", "Retries of requests on another backend.", |pool| pool.retries.get()),
        ("queued_total", "Requests that waited for a backend with room.", |pool| pool.queued.get()),
        (
            "buffered_total",
            "Requests whose bodies were awaited before a backend was chosen.",
            |pool| pool.buffered.get(),
        ),
        (
            "buffered_responses_total",
            "Responses that were received while their clients were behind.",
            |pool| pool.buffered_responses.get(),
        ),
    ];
    for (name, help, value) in families {
        page.family(name, help);
        for (pool, totals) in totals {
            page.sample(name, &[("pool", pool)], value(totals));
        }
    }
}

/// Writes nothing without connections of HAProxy's SPOE.
fn spoe_metrics(page: &mut Page, counters: &Counters) {
    if counters.client_total(|client| &client.spoe_connections) == 0 {
        return;
    }
    page.family("spoe_messages_total", "Messages of HAProxy's SPOE, by their answers.");
    for answer in SpoeAnswer::ALL {
        let count = counters.client_total(|client| &client.spoe_answers[answer as usize]);
        page.sample("spoe_messages_total", &[("answer", answer.word())], count);
    }
    page.family(
        "spoe_incomplete_bodies_total",
        "Messages of SPOE whose bodies are not known to be whole.",
    );
    type Value = fn(&ClientCounters) -> &Counter;
    let extents: [(&str, Value); 2] = [
        ("truncated", |client| &client.spoe_truncated),
        ("unknown", |client| &client.spoe_unknown_extents),
    ];
    for (extent, value) in extents {
        let labels = [("extent", extent)];
        page.sample("spoe_incomplete_bodies_total", &labels, counters.client_total(value));
    }
    let usage = counters.waiting.usage();
    for (name, help, value) in [
        (
            "spoe_connections_total",
            "Connections of SPOE, with those of health checks.",
            counters.client_total(|client| &client.spoe_connections),
        ),
        (
            "spoe_connection_errors_total",
            "Connections of SPOE ended by an error of HAProxy or by a limit.",
            counters.client_total(|client| &client.spoe_errors),
        ),
        (
            "spoe_waiting_requests",
            "Requests that wait for the messages with their responses.",
            usage.requests as u64,
        ),
        (
            "spoe_expired_requests_total",
            "Requests whose responses did not arrive in time.",
            usage.expired,
        ),
        (
            "spoe_evicted_requests_total",
            "Requests that stopped waiting for their responses because of a limit.",
            usage.evicted,
        ),
    ] {
        page.family(name, help);
        page.sample(name, &[], value);
    }
}

fn duration_metrics(page: &mut Page, totals: &BTreeMap<String, PoolTotals>) {
    type Value = fn(&PoolTotals) -> &DurationCounters;
    let families: [(&str, &str, Value); 2] = [
        (
            "request_duration_seconds",
            "From the head of a request to the end of its response, of requests with a route, without tunnels.",
            |pool| &pool.request_durations,
        ),
        (
            "upstream_duration_seconds",
            "From the choice of a backend to the head of its response, without failed attempts.",
            |pool| &pool.upstream_durations,
        ),
    ];
    let bounds = DURATION_BOUNDS_US.map(|us| us as f64 / 1e6);
    for (name, help, durations) in families {
        page.histogram(name, help);
        for (pool, totals) in totals {
            let DurationCounters { buckets, sum_us } = durations(totals);
            let counts: Vec<u64> = buckets.iter().map(Counter::get).collect();
            page.buckets(name, &[("pool", pool)], &bounds, &counts, sum_us.get() as f64 / 1e6);
        }
    }
}

fn backend_metrics(page: &mut Page, totals: &BTreeMap<String, PoolTotals>) {
    let families: [Family<BackendCounters>; 4] = [
        ("backend_requests_total", "Requests sent to a backend, retries included.", |backend| {
            backend.requests.get()
        }),
        (
            "backend_failures_total",
            "Requests failed by a backend: connection refused, no valid response, or a response that broke off.",
            |backend| backend.failures.get(),
        ),
        ("backend_connections_total", "Connections started to a backend.", |backend| {
            backend.connects.get()
        }),
        ("backend_connections", "Open connections to a backend.", |backend| {
            backend.connects.get() - backend.closed.get()
        }),
    ];
    for (name, help, value) in families {
        page.family(name, help);
        for (pool, totals) in totals {
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

fn certificate_metrics(page: &mut Page, process: &Process<'_>) {
    page.family("certificate_orders_total", "Certificates ordered by ACME, by result.");
    let orders = process.orders;
    for (result, count) in [("issued", orders.issued), ("failed", orders.failed)] {
        page.sample("certificate_orders_total", &[("result", result)], count);
    }
    let (name, help) = (
        "certificate_expiry_timestamp_seconds",
        "When a certificate ordered by ACME expires, in seconds since 1970; 0: it has not been issued yet.",
    );
    page.family(name, help);
    for certificate in process.certificates {
        let end =
            certificate.facts().and_then(|facts| facts.not_after().duration_since(UNIX_EPOCH).ok());
        let end = end.map_or(0, |end| end.as_secs());
        page.sample(name, &[("names", &certificate.names().join(","))], end);
    }
}

#[cfg(test)]
mod tests;
