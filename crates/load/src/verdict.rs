//! Verdict on a load: whether its figures describe the server or a bottleneck of the measurement.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use tollgate_stats::number::{count, percent, significant};
use tollgate_stats::{LATENESS_MAX, LatencyHistogram, UNSENT_SHARE_MAX};

use crate::distribution::ns_to_ms;
use crate::plan::Plan;
use crate::rate::Rate;
use crate::shard::GeneratorResult;
use crate::summary::{Summary, ThreadUsage};

/// Part whose performance the figures of a load describe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LoadVerdict {
    /// Part whose performance the figures describe.
    pub measured: Measured,
    /// Problem to check before the figures; null if almost all responses were the expected ones or, without an
    /// expectation, 2xx or 3xx, and few requests were in flight at the end for longer than the 99th percentile.
    pub warning: Option<String>,
    /// One sentence with the figures behind the verdict.
    pub reason: String,
}

/// Part whose performance figures describe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Measured {
    /// The server and the way to it.
    Server,
    /// The load generator: it had no CPU left, or it sent late.
    Generator,
    /// The connections: requests that were due waited for a free one.
    Connections,
    /// Nothing: no response, too few, or too short a measurement.
    Nothing,
}

/// Share of its window in which a saturated thread has run or waited for a CPU.
pub const SATURATED_SHARE: f64 = 0.9;

/// Limits of the shares of requests that wait for a connection, or that get no expected response.
const QUEUED_SHARE_MAX: f64 = 0.01;
const WRONG_SHARE_MAX: f64 = 0.01;

/// A shorter measurement is not judged, because its start dominates it.
const WINDOW_MIN: Duration = Duration::from_millis(100);

/// With fewer responses, one in a hundred cannot be seen.
const RESPONSES_MIN: u64 = 100;

impl LoadVerdict {
    /// Judges the result of a plan.
    pub fn new(plan: &Plan, summary: &Summary) -> Self {
        Self::of_part(plan, 1, summary)
    }

    /// Judges the result of one of `count` generators that send a plan together.
    pub(crate) fn of_part(plan: &Plan, count: usize, summary: &Summary) -> Self {
        let (measured, reason) = match (too_little(summary), plan.rate()) {
            (Some(reason), _) => (Measured::Nothing, reason),
            (None, None) => judge_closed_loop(summary),
            (None, Some(rate)) => judge_open_loop(&rate.divided(count), summary),
        };
        let warnings = [warning(plan, summary), stalled(summary)];
        let warning = warnings.into_iter().flatten().collect::<Vec<_>>().join("; ");
        let warning = Some(warning).filter(|text| !text.is_empty() && summary.responses > 0);
        Self { measured, warning, reason }
    }

    /// Judges the sum of several generators. The bottleneck of one of them is that of the load: the others do not send
    /// its share.
    pub(crate) fn of_generators(
        plan: &Plan,
        sum: &Summary,
        generators: &[GeneratorResult],
    ) -> Self {
        let whole = Self::new(plan, sum);
        if whole.measured == Measured::Nothing {
            return whole;
        }
        let limited = generators.iter().find_map(|GeneratorResult { name, summary, .. }| {
            let own = Self::of_part(plan, generators.len(), summary);
            let reason = format!("{name}: {}", own.reason);
            (own.measured == Measured::Generator).then_some(reason)
        });
        match limited {
            Some(reason) => Self { measured: Measured::Generator, reason, ..whole },
            None => whole,
        }
    }
}

/// Limit of the share of requests in flight at the end for longer than the 99th percentile. By chance it is about as large as
/// the share of all waiting that lies beyond that percentile: a few per cent.
const STALLED_SHARE_MAX: f64 = 0.1;

fn stalled(summary: &Summary) -> Option<String> {
    let (stalled, in_flight) = (summary.stalled(), summary.in_flight);
    if stalled as f64 <= STALLED_SHARE_MAX * in_flight as f64 {
        return None;
    }
    let ms = |time: Duration| significant(time.as_secs_f64() * 1e3);
    let oldest = summary.oldest_in_flight.map_or(String::new(), |age| format!("{} ms", ms(age)));
    Some(format!(
        "{} of {} requests in flight at the end had waited for longer than the p99, the oldest for {oldest}: \
         the tail of the latency is a lower bound",
        count(stalled),
        count(in_flight)
    ))
}

fn warning(plan: &Plan, summary: &Summary) -> Option<String> {
    let statuses = summary.unjudged_statuses(&plan.workload);
    if !statuses.is_empty() && statuses.range(200..400).next().is_none() {
        return Some(
            "no response was 2xx or 3xx: check the URL, or name the expected status (--expect)"
                .to_owned(),
        );
    }
    let wrong = summary.wrong_share();
    if wrong > WRONG_SHARE_MAX {
        let wrong = percent(wrong);
        return Some(format!(
            "{wrong} of the requests got no expected response: check the failures first"
        ));
    }
    let errors = summary.error_responses(&plan.workload).iter().sum::<u64>();
    let errors = errors as f64 / summary.responses as f64;
    (errors > WRONG_SHARE_MAX)
        .then(|| format!("{} of the responses were 4xx or 5xx: check the URL", percent(errors)))
}

/// Returns the reason if the summary is too small to be judged.
fn too_little(summary: &Summary) -> Option<String> {
    let &Summary { responses, window, warm_up, .. } = summary;
    if responses == 0 && window.is_zero() && warm_up.responses > 0 {
        return Some(format!(
            "stopped during the warm-up, after {}",
            responses_text(warm_up.responses)
        ));
    }
    if responses == 0 {
        let hint = if summary.failures.total() > 0 { ": check the failures" } else { "" };
        return Some(format!("no response received{hint}"));
    }
    (window < WINDOW_MIN || responses < RESPONSES_MIN).then(|| {
        format!(
            "too short to judge: {} in {} ms, of {RESPONSES_MIN} responses and {} ms needed",
            responses_text(responses),
            significant(window.as_secs_f64() * 1e3),
            WINDOW_MIN.as_millis()
        )
    })
}

fn responses_text(responses: u64) -> String {
    format!("{} response{}", count(responses), if responses == 1 { "" } else { "s" })
}

fn judge_closed_loop(summary: &Summary) -> (Measured, String) {
    let busiest = busiest_thread(summary);
    if busiest >= SATURATED_SHARE {
        let reason = saturated(busiest, "the server may have capacity left");
        return (Measured::Generator, reason);
    }
    let busiest = percent(busiest);
    let reason =
        format!("the busiest generator thread used or waited for a CPU {busiest} of the time");
    (Measured::Server, reason)
}

fn judge_open_loop(rate: &Rate, summary: &Summary) -> (Measured, String) {
    let late_ns = summary.lateness.as_ref().and_then(|lateness| lateness.value_at(0.99));
    if late_ns.map(Duration::from_nanos) > Some(LATENESS_MAX) {
        let reason = format!(
            "its lateness was {}: try a lower rate, or more threads (-t) on CPUs of their own (--cpus)",
            lateness_text(summary)
        );
        return (Measured::Generator, reason);
    }
    let queued = summary.queued_share();
    if queued > QUEUED_SHARE_MAX {
        let queued =
            format!("{} of the requests were due while no connection was free", percent(queued));
        let busiest = busiest_thread(summary);
        // A thread without time to read responses keeps its connections from being free.
        if busiest >= SATURATED_SHARE {
            return (Measured::Generator, saturated(busiest, &queued));
        }
        let reason = format!(
            "{queued}, and the latency includes their wait: try more connections (-c, --max-connections), or a lower rate"
        );
        return (Measured::Connections, reason);
    }
    let unsent = summary.unsent_share();
    if unsent > UNSENT_SHARE_MAX {
        let free = if summary.queued == 0 { ", though connections were free" } else { "" };
        let reason = format!(
            "{} of the requests were due, but not sent{free}: try a lower rate, or more threads (-t)",
            percent(unsent)
        );
        return (Measured::Generator, reason);
    }
    let sent = match rate {
        Rate::Recorded(_) => "the recorded requests".to_owned(),
        Rate::Constant(_) | Rate::Stages(_) => format!("{} requests/s", rate.describe()),
    };
    let lateness = lateness_text(summary);
    let mut reason = format!("{sent} were sent on schedule (lateness {lateness})");
    if let Some(replay) = &summary.replay {
        // The result of a replay that ended early describes only its start.
        if summary.sent < replay.planned {
            let (sent, planned) = (count(summary.sent), count(replay.planned));
            reason = format!(
                "{sent} of {planned} recorded requests were sent, on schedule (lateness {lateness})"
            );
        }
        if replay.awaited > 0 {
            reason += &format!(", but {} waited for a variable", count(replay.awaited));
        }
    }
    (Measured::Server, reason)
}

fn busiest_thread(summary: &Summary) -> f64 {
    summary.threads.iter().map(ThreadUsage::busy).fold(0.0, f64::max)
}

fn saturated(busiest: f64, effect: &str) -> String {
    let busiest = percent(busiest);
    format!(
        "a generator thread used or waited for a CPU {busiest} of the time, and {effect}: try more threads (-t) on CPUs of their own (--cpus)"
    )
}

/// The lateness as the table shows it: p99, or the maximum if too few requests decide p99.
fn lateness_text(summary: &Summary) -> String {
    let lateness = summary.lateness.as_ref();
    match lateness.and_then(|lateness| lateness.quantile_ns(0.99)) {
        Some(p99_ns) => format!("p99 {} ms", significant(ns_to_ms(p99_ns))),
        None => {
            let max_ns = lateness.and_then(LatencyHistogram::max_ns);
            format!("max {} ms", max_ns.map_or("-".to_owned(), |ns| significant(ns_to_ms(ns))))
        }
    }
}
