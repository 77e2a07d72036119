//! Whose figures these are: the server's, or those of what measured it.

use schemars::JsonSchema;
use serde::Serialize;
use tollgate_lab::report::number::{percent, significant};
use tollgate_load::{Arrivals, Outcome, ThreadUsage};

/// Whose figures these are, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Verdict {
    /// What the figures tell something about.
    pub(crate) figure_of: FigureOf,
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
    /// Nothing: no answer came.
    Nothing,
}

/// From here on a thread is taken to be spent: the share of its window in which it ran, or could
/// have run and waited for a CPU.
const BUSY: f64 = 0.9;

/// A generator that is later than this for one request in a hundred is not on schedule: it is well
/// above what waking up a thread takes (some tens of microseconds).
const LATE_NS: u64 = 1_000_000;

/// A share of an open loop's requests that is too large to be passed over.
pub(crate) const TOO_MANY: f64 = 0.01;

/// Judges an outcome.
pub(crate) fn judge(arrivals: Arrivals, outcome: &Outcome) -> Verdict {
    if outcome.answered == 0 {
        let reason = "no answer came".to_owned();
        return Verdict { figure_of: FigureOf::Nothing, reason };
    }
    match arrivals {
        Arrivals::Closed => closed_loop(outcome),
        Arrivals::Open { per_second, .. } => open_loop(per_second, outcome),
    }
}

/// The share of a thread's window in which it ran or waited for a CPU; 0 for a window without length.
pub(crate) fn busy(thread: &ThreadUsage) -> f64 {
    let window = thread.window.as_secs_f64();
    let wanted = (thread.user + thread.system + thread.waited).as_secs_f64();
    if window > 0.0 { wanted / window } else { 0.0 }
}

/// How much of what was due in an open loop `part` is: of all that was sent, and all that was due
/// and was not.
pub(crate) fn share_of_due(part: u64, outcome: &Outcome) -> f64 {
    match outcome.sent + outcome.overdue {
        0 => 0.0,
        due => part as f64 / due as f64,
    }
}

fn closed_loop(outcome: &Outcome) -> Verdict {
    let busiest = outcome.threads.iter().map(busy).fold(0.0, f64::max);
    if busiest >= BUSY {
        let reason = format!(
            "a thread of the generator used or waited for a CPU {} of the time: the server may hold more; try more threads (-t) on CPUs of their own (--cpus)",
            percent(busiest)
        );
        return Verdict { figure_of: FigureOf::Generator, reason };
    }
    let reason = format!(
        "the busiest thread of the generator used or waited for a CPU {} of the time, so it had time left",
        percent(busiest)
    );
    Verdict { figure_of: FigureOf::Server, reason }
}

fn open_loop(per_second: f64, outcome: &Outcome) -> Verdict {
    let late_ns = outcome.lateness.as_ref().and_then(|lateness| lateness.value_at(0.99));
    let late_ns = late_ns.unwrap_or(0);
    let late_ms = significant(late_ns as f64 / 1e6);
    if late_ns > LATE_NS {
        let reason = format!(
            "the generator was itself {late_ms} ms late or more for 1 % of the requests: try a lower rate, or more threads (-t) on CPUs of their own (--cpus)"
        );
        return Verdict { figure_of: FigureOf::Generator, reason };
    }
    let held = share_of_due(outcome.held, outcome);
    if held > TOO_MANY {
        let reason = format!(
            "{} of the requests were due while no connection was free, and waited: the latency counts the wait; to send them on time, try more connections (-c, --max-connections), or a lower rate",
            percent(held)
        );
        return Verdict { figure_of: FigureOf::Connections, reason };
    }
    let overdue = share_of_due(outcome.overdue, outcome);
    if overdue > TOO_MANY {
        let reason = format!(
            "{} of the requests were due and never sent, though connections were free: try a lower rate, or more threads (-t)",
            percent(overdue)
        );
        return Verdict { figure_of: FigureOf::Generator, reason };
    }
    let reason = format!(
        "{} requests/s were sent on schedule: 99 % of them less than {late_ms} ms late",
        significant(per_second)
    );
    Verdict { figure_of: FigureOf::Server, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::load::examples::outcome;
    use std::time::Duration;
    use tollgate_load::Spacing;
    use tollgate_stats::LatencyHistogram;

    const OPEN: Arrivals = Arrivals::Open { per_second: 1_000.0, spacing: Spacing::Constant };

    fn thread(user_ms: u64, system_ms: u64, waited_ms: u64) -> ThreadUsage {
        ThreadUsage {
            user: Duration::from_millis(user_ms),
            system: Duration::from_millis(system_ms),
            waited: Duration::from_millis(waited_ms),
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
    fn more_than_one_percent_held_is_the_connections() {
        let held = |held, overdue| Outcome { held, overdue, ..on_schedule(0, 1) };
        assert_eq!(figure_of(OPEN, &held(100, 0)), FigureOf::Server);
        assert_eq!(figure_of(OPEN, &held(101, 0)), FigureOf::Connections);
        assert_eq!(figure_of(OPEN, &held(5_000, 9_000)), FigureOf::Connections);
    }

    #[test]
    fn more_than_one_percent_overdue_with_free_connections_is_the_generators() {
        let overdue = |overdue| Outcome { overdue, ..on_schedule(0, 1) };
        // 101 of 10,101 are just below one in a hundred, 102 of 10,102 just above.
        assert_eq!(figure_of(OPEN, &overdue(101)), FigureOf::Server);
        assert_eq!(figure_of(OPEN, &overdue(102)), FigureOf::Generator);
        assert!(judge(OPEN, &overdue(102)).reason.starts_with("1.0 % of the requests"));
    }
}
