//! What a gateway has done and what it knows, as Prometheus reads it (text format 0.0.4).

use std::fmt::{Display, Write as _};
use std::time::Instant;

use crate::config::Pool;
use crate::counters::{OWN_STATUSES, Totals};
use crate::pool::{PoolHealth, Standing};
use crate::shortage::Shortage;

/// What became of the configurations that came after the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reloads {
    /// Those that are or were in force.
    pub(crate) done: u64,
    /// Those that were not taken, as something in them could not be.
    pub(crate) refused: u64,
}

/// The text of `/metrics`.
pub(crate) fn render<'a>(
    totals: &Totals,
    pools: &(impl Iterator<Item = (&'a Pool, &'a PoolHealth)> + Clone),
    reloads: Reloads,
    now: Instant,
) -> String {
    let mut page = Page(String::new());
    clients(&mut page, totals);
    answers(&mut page, totals);
    backends(&mut page, totals);
    standing(&mut page, pools, now);
    let name = "tollgate_gateway_reloads_total";
    page.family(name, "counter", "Configurations after the first, by what became of them.");
    page.sample(name, &[("result", "done")], reloads.done);
    page.sample(name, &[("result", "refused")], reloads.refused);
    page.0
}

fn clients(page: &mut Page, totals: &Totals) {
    for (name, kind, help, value) in [
        (
            "tollgate_gateway_client_connections_total",
            "counter",
            "Connections of clients that were accepted.",
            totals.accepted,
        ),
        (
            "tollgate_gateway_client_connections",
            "gauge",
            "Connections of clients that are open.",
            totals.accepted - totals.closed,
        ),
        (
            "tollgate_gateway_client_connections_refused_total",
            "counter",
            "Connections of clients that were closed at once, for the client had enough.",
            totals.refused,
        ),
        (
            "tollgate_gateway_client_received_bytes_total",
            "counter",
            "Bytes that clients sent.",
            totals.received_bytes,
        ),
        (
            "tollgate_gateway_client_sent_bytes_total",
            "counter",
            "Bytes that were sent to clients.",
            totals.sent_bytes,
        ),
        (
            "tollgate_gateway_access_log_lost_lines_total",
            "counter",
            "Lines of the access log that were left out, as its reader was too slow or is gone.",
            totals.lost_lines,
        ),
    ] {
        page.family(name, kind, help);
        page.sample(name, &[], value);
    }
}

fn answers(page: &mut Page, totals: &Totals) {
    let name = "tollgate_gateway_answers_total";
    page.family(name, "counter", "Answers of backends, by pool and by the class of their status.");
    for (pool, pool_totals) in &totals.pools {
        for (class, count) in (1..).zip(pool_totals.classes) {
            page.sample(name, &[("pool", pool), ("class", &format!("{class}xx"))], count);
        }
    }
    let name = "tollgate_gateway_own_answers_total";
    page.family(name, "counter", "Requests that the gateway answered itself, by status.");
    for (status, count) in OWN_STATUSES.iter().zip(totals.own_answers) {
        page.sample(name, &[("status", &status.to_string())], count);
    }
    let name = "tollgate_gateway_shortages_total";
    page.family(
        name,
        "counter",
        "Connections to backends that could not be begun, as something had run out on this machine.",
    );
    for (shortage, count) in Shortage::ALL.iter().zip(totals.shortages) {
        page.sample(name, &[("error", shortage.name())], count);
    }
    let name = "tollgate_gateway_retries_total";
    page.family(name, "counter", "Tries of requests on another backend.");
    for (pool, totals) in &totals.pools {
        page.sample(name, &[("pool", pool)], totals.retries);
    }
    let name = "tollgate_gateway_queued_total";
    page.family(name, "counter", "Requests that waited for a backend that had no room.");
    for (pool, totals) in &totals.pools {
        page.sample(name, &[("pool", pool)], totals.queued);
    }
}

fn backends(page: &mut Page, totals: &Totals) {
    let backends = || {
        totals.pools.iter().flat_map(|(pool, totals)| {
            totals.backends.iter().map(move |(address, totals)| (pool, address, totals))
        })
    };
    let mut family = |name: &str, kind, help, value: fn(&crate::counters::BackendTotals) -> u64| {
        page.family(name, kind, help);
        for (pool, address, totals) in backends() {
            page.sample(name, &[("pool", pool), ("backend", address)], value(totals));
        }
    };
    family(
        "tollgate_gateway_backend_requests_total",
        "counter",
        "Requests that were sent to a backend, tries included.",
        |totals| totals.requests,
    );
    family(
        "tollgate_gateway_backend_failures_total",
        "counter",
        "Requests that a backend failed: it took no connection, gave no answer as HTTP has it, or broke one off.",
        |totals| totals.failures,
    );
    family(
        "tollgate_gateway_backend_connections_total",
        "counter",
        "Connections to a backend that were begun.",
        |totals| totals.connects,
    );
    family(
        "tollgate_gateway_backend_connections",
        "gauge",
        "Connections to a backend that are open.",
        |totals| totals.connects - totals.closed,
    );
}

fn standing<'a>(
    page: &mut Page,
    pools: &(impl Iterator<Item = (&'a Pool, &'a PoolHealth)> + Clone),
    now: Instant,
) {
    let each = |page: &mut Page, name: &str, value: &dyn Fn(&PoolHealth, usize) -> u64| {
        for (pool, health) in pools.clone() {
            for (at, backend) in pool.backends.iter().enumerate() {
                let labels = [("pool", &*pool.name), ("backend", &backend.address.to_string())];
                page.sample(name, &labels, value(health, at));
            }
        }
    };
    let name = "tollgate_gateway_backend_up";
    page.family(name, "gauge", "1 for a backend that has not failed the checks, else 0.");
    each(page, name, &|health, at| u64::from(health.standing(at, now) != Standing::Down));
    let name = "tollgate_gateway_backend_ejected";
    page.family(
        name,
        "gauge",
        "1 for a backend that is left alone, as it failed requests, else 0.",
    );
    each(page, name, &|health, at| u64::from(health.standing(at, now) == Standing::Ejected));
    let name = "tollgate_gateway_backend_ejections_total";
    page.family(name, "counter", "How often a backend was left alone, as it failed requests.");
    each(page, name, &|health, at| health.ejections(at));
}

/// A page of metrics.
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.put(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            let begin = if at == 0 { '{' } else { ',' };
            self.put(format_args!("{begin}{label}=\"{}\"", escaped(text)));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        self.put(format_args!("{end} {value}\n"));
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        // A text takes all that is written.
        self.0.write_fmt(text).ok();
    }
}

/// A label's value, whose quotes, backslashes and line ends are escaped.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests;
