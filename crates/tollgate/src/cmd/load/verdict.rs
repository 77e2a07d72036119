//! Whose figures these are: the server's, or those of what measured it.

use super::millis::ms;
use super::report::grouped;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;
use tollgate_lab::report::number::{percent, significant};
use tollgate_load::{Arrivals, Outcome, ThreadUsage};
use tollgate_stats::LatencyHistogram;

/// Whose figures these are, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Verdict {
    /// What the figures tell something about.
    pub(crate) figure_of: FigureOf,
    /// What has to be looked at before the figures; null where nearly all answers were the expected
    /// ones.
    pub(crate) warning: Option<String>,
    /// One sentence, with the figures that decided it.
    pub(crate) reason: String,
}

/// What figures tell something about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FigureOf {
    /// The server and the way to it.
    Server,
    /// The load generator: it had no CPU left, or it sent late.
    Generator,
    /// The connections: requests were due while none was free, so that they waited.
    Connections,
    /// Nothing: no answer came, or too few, or the measurement was too short.
    Nothing,
}

/// From here on a thread is taken to be spent: the share of its window in which it ran, or could
/// have run and waited for a CPU.
const BUSY: f64 = 0.9;

/// A generator that is later than this for one request in a hundred is not on schedule: it is well
/// above what waking up a thread takes (some tens of microseconds).
const LATE: Duration = Duration::from_millis(1);

/// A share of an open loop's requests, or of what finished, that is too large to be passed over.
pub(crate) const TOO_MANY: f64 = 0.01;

/// A measurement that is shorter than this is not judged: much of it is its own start, in which
/// connections are opened.
const WINDOW_MIN: Duration = Duration::from_millis(100);

/// With fewer answers than these one in a hundred is not seen.
const ANSWERS_MIN: u64 = 100;

/// Judges an outcome. What an open loop has sent within its `slack` is on schedule.
pub(crate) fn judge(arrivals: Arrivals, slack: Duration, outcome: &Outcome) -> Verdict {
    let (figure_of, reason) = match (nothing(outcome), arrivals) {
        (Some(reason), _) => (FigureOf::Nothing, reason),
        (None, Arrivals::Closed) => closed_loop(outcome),
        (None, Arrivals::Open { per_second, .. }) => open_loop(per_second, slack, outcome),
    };
    Verdict { figure_of, warning: warning(outcome), reason }
}

/// The share of a thread's window in which it had something to do, and ran or waited for a CPU; 0 for a
/// window without length.
pub(crate) fn busy(thread: &ThreadUsage) -> f64 {
    let window = thread.window.as_secs_f64();
    let wanted = thread.user + thread.system + thread.waited;
    let needed = wanted.saturating_sub(thread.polled).as_secs_f64();
    if window > 0.0 { needed / window } else { 0.0 }
}

/// How much of what was due in an open loop, warm-up included, was never sent.
pub(crate) fn share_overdue(outcome: &Outcome) -> f64 {
    share(outcome.overdue, outcome.sent + outcome.overdue)
}

/// How many of the requests that were due in the window waited for a connection. The lateness has a
/// value for each of them.
fn share_held(outcome: &Outcome) -> f64 {
    share(outcome.held, outcome.lateness.as_ref().map_or(0, LatencyHistogram::count))
}

/// A share that is 0 of nothing.
fn share(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        whole => part as f64 / whole as f64,
    }
}

/// Why there is nothing to judge, if so.
fn nothing(outcome: &Outcome) -> Option<String> {
    let answered = outcome.answered;
    if answered == 0 && outcome.window.is_zero() && outcome.warm_up.answered > 0 {
        let before = grouped(outcome.warm_up.answered);
        return Some(format!("stopped during the warm-up: {before} answers before it ended"));
    }
    if answered == 0 {
        let why = if outcome.failures.total() > 0 { ": look at the errors" } else { "" };
        return Some(format!("no answer came{why}"));
    }
    (outcome.window < WINDOW_MIN || answered < ANSWERS_MIN).then(|| {
        format!(
            "too short to judge: {} in {} ms; it takes {ANSWERS_MIN} answers and {} ms",
            match answered {
                1 => "1 answer".to_owned(),
                _ => format!("{} answers", grouped(answered)),
            },
            significant(outcome.window.as_secs_f64() * 1e3),
            WINDOW_MIN.as_millis()
        )
    })
}

/// What has to be looked at before the figures.
fn warning(outcome: &Outcome) -> Option<String> {
    let failed = outcome.failures.total();
    let wrong = share(failed + outcome.unexpected, failed + outcome.answered);
    // Where no answer came, that says more.
    (wrong > TOO_MANY && outcome.answered > 0).then(|| {
        format!(
            "{} of the requests got no expected answer: look at the errors first",
            percent(wrong)
        )
    })
}

fn closed_loop(outcome: &Outcome) -> (FigureOf, String) {
    let busiest = busiest(outcome);
    if busiest >= BUSY {
        return (FigureOf::Generator, spent(busiest, "the server may hold more"));
    }
    let reason = format!(
        "the busiest thread of the generator used or waited for a CPU {} of the time, so it had time left",
        percent(busiest)
    );
    (FigureOf::Server, reason)
}

fn open_loop(per_second: f64, slack: Duration, outcome: &Outcome) -> (FigureOf, String) {
    let late_ns = outcome.lateness.as_ref().and_then(|lateness| lateness.value_at(0.99));
    let lateness = lateness(outcome);
    let late_max = LATE + slack;
    if late_ns.map(Duration::from_nanos) > Some(late_max) {
        let reason = format!(
            "the generator was itself late ({lateness}): try a lower rate, or more threads (-t) on CPUs of their own (--cpus)"
        );
        return (FigureOf::Generator, reason);
    }
    let held = share_held(outcome);
    if held > TOO_MANY {
        let waited = format!(
            "{} of the requests were due while no connection was free, and waited",
            percent(held)
        );
        let busiest = busiest(outcome);
        // A thread without time for its answers keeps its connections from being free.
        if busiest >= BUSY {
            return (FigureOf::Generator, spent(busiest, &waited));
        }
        let reason = format!(
            "{waited}: the latency counts the wait; to send them on time, try more connections (-c, --max-connections), or a lower rate"
        );
        return (FigureOf::Connections, reason);
    }
    let overdue = share_overdue(outcome);
    if overdue > TOO_MANY {
        let reason = format!(
            "{} of the requests were due and never sent{}: try a lower rate, or more threads (-t)",
            percent(overdue),
            if outcome.held == 0 { ", though connections were free" } else { "" }
        );
        return (FigureOf::Generator, reason);
    }
    let reason = format!(
        "{} requests/s were sent on schedule (lateness: {lateness})",
        significant(per_second)
    );
    (FigureOf::Server, reason)
}

fn busiest(outcome: &Outcome) -> f64 {
    outcome.threads.iter().map(busy).fold(0.0, f64::max)
}

/// That a thread of the generator had no time left, and what that led to.
fn spent(busiest: f64, so: &str) -> String {
    format!(
        "a thread of the generator used or waited for a CPU {} of the time: {so}; try more threads (-t) on CPUs of their own (--cpus)",
        percent(busiest)
    )
}

/// How late the generator was, by a figure that the table shows too: p99, or the maximum where p99
/// would be decided by chance.
fn lateness(outcome: &Outcome) -> String {
    let lateness = outcome.lateness.as_ref();
    let in_ms = |ns| significant(ms(ns));
    match lateness.and_then(|lateness| lateness.quantile_ns(0.99)) {
        Some(p99_ns) => format!("p99 {} ms", in_ms(p99_ns)),
        None => {
            let max_ns = lateness.and_then(LatencyHistogram::max_ns);
            format!("max {} ms", max_ns.map_or("-".to_owned(), in_ms))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::load::examples::outcome;
    use tollgate_load::{Failures, Progress, Spacing};

    const OPEN: Arrivals = Arrivals::Open { per_second: 1_000.0, spacing: Spacing::Constant };

    fn judge(arrivals: Arrivals, outcome: &Outcome) -> Verdict {
        super::judge(arrivals, Duration::ZERO, outcome)
    }

    fn thread(user_ms: u64, system_ms: u64, waited_ms: u64) -> ThreadUsage {
        ThreadUsage {
            user: Duration::from_millis(user_ms),
            system: Duration::from_millis(system_ms),
            waited: Duration::from_millis(waited_ms),
            polled: Duration::ZERO,
            window: Duration::from_secs(1),
        }
    }

    /// 10,000 requests of an open loop, `late` of them late by `late_ns` and the others not at all.
    fn on_schedule(late: u64, late_ns: u64) -> Outcome {
        let mut lateness = LatencyHistogram::new();
        lateness.record_n(1_000, 10_000 - late);
        lateness.record_n(late_ns, late);
        Outcome { sent: 10_000, overdue: 0, held: 0, lateness: Some(lateness), ..outcome() }
    }

    fn figure_of(arrivals: Arrivals, outcome: &Outcome) -> FigureOf {
        judge(arrivals, outcome).figure_of
    }

    #[test]
    fn without_an_answer_the_figures_are_of_nothing() {
        let silent = Outcome { answered: 0, ..outcome() };
        assert_eq!(figure_of(Arrivals::Closed, &silent), FigureOf::Nothing);
        assert_eq!(figure_of(OPEN, &silent), FigureOf::Nothing);
        let verdict = judge(OPEN, &silent);
        assert_eq!(verdict.reason, "no answer came: look at the errors");
        assert_eq!(verdict.warning, None);
        let hanging = Outcome { failures: Failures::default(), ..silent };
        assert_eq!(judge(OPEN, &hanging).reason, "no answer came");
    }

    #[test]
    fn a_load_that_was_stopped_in_its_warm_up_says_what_came_before() {
        let warm_up = Progress { answered: 12_345, ..Progress::default() };
        let stopped = Outcome { answered: 0, window: Duration::ZERO, warm_up, ..outcome() };
        let verdict = judge(Arrivals::Closed, &stopped);
        assert_eq!(verdict.figure_of, FigureOf::Nothing);
        assert_eq!(verdict.reason, "stopped during the warm-up: 12,345 answers before it ended");
    }

    #[test]
    fn too_few_answers_or_too_short_a_time_are_not_judged() {
        let with = |answered, window_ms| Outcome {
            answered,
            window: Duration::from_millis(window_ms),
            ..outcome()
        };
        for (answered, window_ms, judged) in [
            (100, 100, FigureOf::Server),
            (99, 100, FigureOf::Nothing),
            (100, 99, FigureOf::Nothing),
        ] {
            assert_eq!(figure_of(Arrivals::Closed, &with(answered, window_ms)), judged);
        }
        assert_eq!(
            judge(Arrivals::Closed, &with(1, 20)).reason,
            "too short to judge: 1 answer in 20.0 ms; it takes 100 answers and 100 ms"
        );
    }

    #[test]
    fn more_than_one_percent_of_wrong_answers_are_told_first() {
        let with = |answered, unexpected, refused| Outcome {
            answered,
            unexpected,
            failures: Failures { refused, ..Failures::default() },
            ..outcome()
        };
        let warning = |outcome| judge(Arrivals::Closed, &outcome).warning;
        // 10 of 1,000 are one in a hundred, 11 of 1,000 more.
        assert_eq!(warning(with(995, 5, 5)), None);
        assert_eq!(
            warning(with(995, 6, 5)).as_deref(),
            Some("1.1 % of the requests got no expected answer: look at the errors first")
        );
        assert!(warning(with(1_000, 0, 50_000)).unwrap().starts_with("98.0 % of"));
    }

    #[test]
    fn nine_tenths_of_a_cpu_wanted_by_one_thread_are_the_generators() {
        let with = |threads| Outcome { threads, ..outcome() };
        let closed = |threads| figure_of(Arrivals::Closed, &with(threads));
        assert_eq!(closed(vec![thread(400, 400, 100)]), FigureOf::Generator);
        assert_eq!(closed(vec![thread(400, 400, 99)]), FigureOf::Server);
        assert_eq!(closed(vec![thread(0, 10, 0), thread(500, 0, 400)]), FigureOf::Generator);
        // An open loop is judged by its schedule.
        let busy = Outcome { threads: vec![thread(500, 500, 0)], ..on_schedule(0, 1) };
        assert_eq!(figure_of(OPEN, &busy), FigureOf::Server);
    }

    #[test]
    fn a_window_without_length_is_not_busy() {
        let none = Outcome {
            threads: vec![ThreadUsage { window: Duration::ZERO, ..thread(1, 1, 1) }],
            ..outcome()
        };
        assert_eq!(figure_of(Arrivals::Closed, &none), FigureOf::Server);
    }

    #[test]
    fn more_than_a_millisecond_late_in_the_last_hundredth_is_the_generators() {
        assert_eq!(figure_of(OPEN, &on_schedule(100, 5_000_000)), FigureOf::Server);
        assert_eq!(figure_of(OPEN, &on_schedule(101, 5_000_000)), FigureOf::Generator);
        // Kept to three digits and rounded up: a millisecond is 1,000,447 ns, which is above it.
        assert_eq!(figure_of(OPEN, &on_schedule(101, 999_000)), FigureOf::Server);
        assert_eq!(figure_of(OPEN, &on_schedule(101, 1_001_000)), FigureOf::Generator);
    }

    #[test]
    fn what_is_sent_within_the_slack_is_not_late() {
        let slack = Duration::from_millis(2);
        let figure_of = |late_ns| super::judge(OPEN, slack, &on_schedule(101, late_ns)).figure_of;
        // A millisecond late after two of slack.
        assert_eq!(figure_of(2_990_000), FigureOf::Server);
        assert_eq!(figure_of(3_010_000), FigureOf::Generator);
    }

    #[test]
    fn the_lateness_that_is_told_is_one_that_the_table_shows() {
        let reason = |outcome: &Outcome| judge(OPEN, outcome).reason;
        let sent = "1000 requests/s were sent on schedule";
        assert_eq!(reason(&on_schedule(0, 1)), format!("{sent} (lateness: p99 0.00100 ms)"));
        // Five late ones of 901 are the last half percent: there is no p99 of so few.
        let mut lateness = LatencyHistogram::new();
        lateness.record_n(1_000, 896);
        lateness.record_n(2_000, 5);
        let few = Outcome { lateness: Some(lateness), ..on_schedule(0, 1) };
        assert_eq!(reason(&few), format!("{sent} (lateness: max 0.00200 ms)"));
    }

    #[test]
    fn what_is_held_is_a_share_of_what_was_due_in_the_measurement() {
        // 90,000 requests were sent in a warm-up, of which nothing is known but that.
        let warmed_up = |held| Outcome { sent: 100_000, held, ..on_schedule(0, 1) };
        assert_eq!(figure_of(OPEN, &warmed_up(100)), FigureOf::Server);
        assert_eq!(figure_of(OPEN, &warmed_up(101)), FigureOf::Connections);
        assert!(judge(OPEN, &warmed_up(5_000)).reason.starts_with("50.0 % of the requests"));
    }

    #[test]
    fn connections_that_a_spent_thread_did_not_free_are_the_generators() {
        let with = |threads| Outcome { held: 5_000, threads, ..on_schedule(0, 1) };
        let verdict = judge(OPEN, &with(vec![thread(500, 400, 0)]));
        assert_eq!(verdict.figure_of, FigureOf::Generator);
        assert!(verdict.reason.contains("90.0 % of the time: 50.0 % of the requests were due"));
        assert_eq!(figure_of(OPEN, &with(vec![thread(500, 399, 0)])), FigureOf::Connections);
    }

    #[test]
    fn more_than_one_percent_held_is_the_connections() {
        let held = |held, overdue| Outcome { held, overdue, ..on_schedule(0, 1) };
        assert_eq!(figure_of(OPEN, &held(100, 0)), FigureOf::Server);
        assert_eq!(figure_of(OPEN, &held(101, 0)), FigureOf::Connections);
        assert_eq!(figure_of(OPEN, &held(5_000, 9_000)), FigureOf::Connections);
    }

    #[test]
    fn more_than_one_percent_overdue_is_the_generators() {
        let overdue = |overdue| Outcome { overdue, ..on_schedule(0, 1) };
        // 101 of 10,101 are just below one in a hundred, 102 of 10,102 just above.
        assert_eq!(figure_of(OPEN, &overdue(101)), FigureOf::Server);
        assert_eq!(figure_of(OPEN, &overdue(102)), FigureOf::Generator);
        let free = "1.0 % of the requests were due and never sent, though connections were free:";
        assert!(judge(OPEN, &overdue(102)).reason.starts_with(free));
        let some_held = Outcome { held: 1, ..overdue(102) };
        let reason = judge(OPEN, &some_held).reason;
        assert!(
            reason.starts_with("1.0 % of the requests were due and never sent: try"),
            "{reason}"
        );
    }
}
