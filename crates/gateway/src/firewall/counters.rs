//! Counters of the firewall: by route, and by rule.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tollgate_accesslog::Counter;
use tollgate_admin::Page;
use tollgate_waf::{Collections, LimitsReached, Match};

use crate::local_api::LocalApiCounters;

/// An inspection that has ended.
pub(super) struct Inspected<'a> {
    pub(super) is_blocked: bool,
    /// A rule matched that is to be logged.
    pub(super) has_matched: bool,
    pub(super) is_partial: bool,
    pub(super) is_over_limit: bool,
    pub(super) limits: LimitsReached,
    pub(super) engine_time: Duration,
    pub(super) score: Option<i64>,
    pub(super) matches: &'a [Match],
}

/// Upper bounds of the score histogram; a last bucket has no bound.
const SCORE_BOUNDS: [i64; 6] = [0, 4, 9, 19, 49, 99];

/// Counters of all routes and of the local API, and the persistent collections of the rules, since the start of the gateway.
#[derive(Debug, Default)]
pub(crate) struct FirewallCounters {
    /// Locked by readers and on reload, never on the data path.
    routes: Mutex<BTreeMap<String, Arc<RouteCounters>>>,
    pub(super) collections: Arc<Collections>,
    pub(crate) local_api: Arc<LocalApiCounters>,
}

/// Counters of one route.
#[derive(Debug)]
pub(super) struct RouteCounters {
    pub(super) label: String,
    threads: Box<[ThreadCounters]>,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct ThreadCounters {
    inspected: Counter,
    blocked: Counter,
    detected: Counter,
    partial: Counter,
    over_limit: Counter,
    engine_us: Counter,
    score_sum: Counter,
    scores: [Counter; SCORE_BOUNDS.len() + 1],
    /// Inspections that took longer than their budget: of requests that were blocked, and of others.
    late: [Counter; 2],
    /// By limit: what was dropped. Locked by readers and when a limit is reached.
    limits: Mutex<BTreeMap<&'static str, u64>>,
    /// By rule: matches in transactions that were blocked, and in others. Locked by readers and after a match.
    rules: Mutex<BTreeMap<u64, [u64; 2]>>,
}

impl FirewallCounters {
    /// The counters of a route, which continue across reloads.
    pub(super) fn route(&self, label: &str, threads: usize) -> Arc<RouteCounters> {
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let route = routes.entry(label.to_owned()).or_insert_with(|| {
            let threads = (0..threads).map(|_| ThreadCounters::default()).collect();
            Arc::new(RouteCounters { label: label.to_owned(), threads })
        });
        Arc::clone(route)
    }

    /// Writes nothing without a firewall.
    pub(crate) fn render(&self, page: &mut Page) {
        let routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        if routes.is_empty() {
            return;
        }
        type Value = fn(&ThreadCounters) -> u64;
        let families: [(&str, &str, Value); 6] = [
            ("waf_inspected_total", "Requests that were inspected.", |counters| {
                counters.inspected.get()
            }),
            ("waf_blocked_total", "Transactions that were blocked.", |counters| {
                counters.blocked.get()
            }),
            ("waf_detected_total", "Transactions with a match that passed.", |counters| {
                counters.detected.get()
            }),
            (
                "waf_partial_total",
                "Transactions with a body, or a part of one, that passed without inspection, or with rules that did not run.",
                |counters| counters.partial.get(),
            ),
            (
                "waf_over_limit_total",
                "Transactions that exceeded a limit of the inspection, blocked or passed as configured.",
                |counters| counters.over_limit.get(),
            ),
            ("waf_engine_microseconds_total", "Time in the engine.", |counters| {
                counters.engine_us.get()
            }),
        ];
        for (name, help, value) in families {
            page.family(name, help);
            for route in routes.values() {
                let sum: u64 = route.threads.iter().map(value).sum();
                page.sample(name, &[("route", &route.label)], sum);
            }
        }
        let usage = self.collections.usage();
        for (name, help, value) in [
            ("waf_collections", "Persistent collections of rules.", usage.entries as u64),
            ("waf_collection_bytes", "Memory of persistent collections.", usage.bytes as u64),
            (
                "waf_collections_evicted_total",
                "Persistent collections that went before their timeout because of a limit.",
                usage.evicted,
            ),
        ] {
            page.family(name, help);
            page.sample(name, &[], value);
        }
        page.family(
            "waf_late_total",
            "Requests whose inspection took longer than its budget, by answer.",
        );
        for route in routes.values() {
            for (at, action) in ["blocked", "passed"].into_iter().enumerate() {
                let sum: u64 = route.threads.iter().map(|counters| counters.late[at].get()).sum();
                let labels = [("route", &*route.label), ("action", action)];
                page.sample("waf_late_total", &labels, sum);
            }
        }
        page.family("waf_dropped_total", "What limits of the engine dropped, by limit.");
        for route in routes.values() {
            for (limit, count) in route.limits() {
                let labels = [("route", &*route.label), ("limit", limit)];
                page.sample("waf_dropped_total", &labels, count);
            }
        }
        page.family(
            "waf_rule_matches_total",
            "Matches of a rule, by what became of the transaction.",
        );
        for route in routes.values() {
            for (rule, counts) in route.rules() {
                for (action, count) in ["blocked", "detected"].into_iter().zip(counts) {
                    let labels =
                        [("route", &*route.label), ("rule", &rule.to_string()), ("action", action)];
                    page.sample("waf_rule_matches_total", &labels, count);
                }
            }
        }
        self.local_api.render(page);
        page.histogram("waf_score", "Anomaly scores of requests.");
        for route in routes.values() {
            route.render_scores(page);
        }
    }
}

impl RouteCounters {
    pub(super) fn count(&self, thread: usize, inspected: &Inspected<'_>) {
        let Some(counters) = self.threads.get(thread) else { return };
        let is_blocked = inspected.is_blocked;
        counters.inspected.add(1);
        if is_blocked {
            counters.blocked.add(1);
        } else if inspected.has_matched {
            counters.detected.add(1);
        }
        counters.partial.add(u64::from(inspected.is_partial));
        counters.over_limit.add(u64::from(inspected.is_over_limit));
        if inspected.limits != LimitsReached::default() {
            let mut dropped = counters.limits.lock().unwrap_or_else(PoisonError::into_inner);
            for (limit, count) in inspected.limits.counts() {
                *dropped.entry(limit).or_default() += count as u64;
            }
        }
        counters.engine_us.add(inspected.engine_time.as_nanos().div_ceil(1000) as u64);
        if let Some(score) = inspected.score {
            let bucket = SCORE_BOUNDS.partition_point(|bound| *bound < score);
            counters.scores[bucket].add(1);
            counters.score_sum.add(score.max(0).unsigned_abs());
        }
        if inspected.matches.is_empty() {
            return;
        }
        let mut rules = counters.rules.lock().unwrap_or_else(PoisonError::into_inner);
        for found in inspected.matches.iter().filter(|found| found.logged) {
            rules.entry(found.id).or_default()[usize::from(!is_blocked)] += 1;
        }
    }

    pub(super) fn count_late(&self, thread: usize, passes: bool) {
        if let Some(counters) = self.threads.get(thread) {
            counters.late[usize::from(passes)].add(1);
        }
    }

    /// Counts what a limit dropped.
    pub(super) fn count_dropped(&self, thread: usize, limit: &'static str) {
        if let Some(counters) = self.threads.get(thread) {
            let mut dropped = counters.limits.lock().unwrap_or_else(PoisonError::into_inner);
            *dropped.entry(limit).or_default() += 1;
        }
    }

    fn limits(&self) -> BTreeMap<&'static str, u64> {
        let mut sums = BTreeMap::new();
        for counters in &self.threads {
            let limits = counters.limits.lock().unwrap_or_else(PoisonError::into_inner);
            for (&limit, count) in limits.iter() {
                *sums.entry(limit).or_default() += count;
            }
        }
        sums
    }

    fn rules(&self) -> BTreeMap<u64, [u64; 2]> {
        let mut sums: BTreeMap<u64, [u64; 2]> = BTreeMap::new();
        for counters in &self.threads {
            let rules = counters.rules.lock().unwrap_or_else(PoisonError::into_inner);
            for (rule, [blocked, detected]) in rules.iter() {
                let sum = sums.entry(*rule).or_default();
                sum[0] += blocked;
                sum[1] += detected;
            }
        }
        sums
    }

    fn render_scores(&self, page: &mut Page) {
        let sum = |value: &dyn Fn(&ThreadCounters) -> u64| self.threads.iter().map(value).sum();
        let counts: Vec<u64> = (0..=SCORE_BOUNDS.len())
            .map(|bucket| sum(&|counters| counters.scores[bucket].get()))
            .collect();
        let score_sum: u64 = sum(&|counters| counters.score_sum.get());
        page.buckets("waf_score", &[("route", &self.label)], &SCORE_BOUNDS, &counts, score_sum);
    }
}
