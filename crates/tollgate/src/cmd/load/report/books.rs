//! What became of the requests: a line for each thing that happened to any of them.

use super::layout::{grouped, labelled};
use crate::cmd::load::result::{LoadResult, Loop, WarmUpResult};
use crate::cmd::load::verdict::FigureOf;
use std::collections::BTreeMap;
use tollgate_lab::report::number::significant;

/// Says what became of the requests.
pub(super) fn render(result: &LoadResult) -> String {
    counts(result) + &errors(result) + &rest(result)
}

fn counts(result: &LoadResult) -> String {
    let throughput = result.throughput_per_s.map_or("-".to_owned(), significant);
    let at_least = match (result.load.kind, result.verdict.figure_of) {
        (Loop::Closed, FigureOf::Generator) => "at least ",
        _ => "",
    };
    let answers = format!("{} ({at_least}{throughput}/s)", grouped(result.answered));
    let mut text = labelled("answers", &answers);
    text += &labelled("status codes", &statuses(&result.statuses));
    let unexpected = grouped(result.unexpected) + &first(&result.examples.unexpected);
    text + &labelled("unexpected", &unexpected)
}

/// The errors that there are, each with what to do about it.
fn errors(result: &LoadResult) -> String {
    let errors = &result.errors;
    let examples = &result.examples;
    let malformed = format!("malformed{}", first(&examples.malformed));
    let other = format!("of another kind{}", first(&examples.other));
    let kinds = [
        (errors.refused, "refused: nobody listens there; is the server running, on that port?"),
        (errors.reset, "reset by the server: look at its log and its limits"),
        (errors.connect_timeout, "not connected in time: its backlog may be full"),
        (
            errors.answer_timeout,
            "not answered in time: they stay in the latency, with the time that they lasted",
        ),
        (errors.closed_early, "closed before the answer: look at the server's log"),
        (errors.malformed, malformed.as_str()),
        (errors.no_port, "no local port left: keep connections alive, or open fewer"),
        (errors.other, other.as_str()),
    ];
    let failed = errors.failed();
    let mut text = labelled("failed", &grouped(failed));
    for (count, what) in kinds.into_iter().filter(|(count, _)| *count > 0) {
        text += &labelled("", &format!("{} {what}", grouped(count)));
    }
    text
}

/// What is neither an answer nor an error.
fn rest(result: &LoadResult) -> String {
    let mut text = String::new();
    let oldest = |age_ms: Option<f64>| {
        age_ms.map_or(String::new(), |ms| format!(", the oldest for {} ms", significant(ms)))
    };
    if result.unanswered > 0 {
        let age = oldest(result.oldest_unanswered_ms);
        let count = grouped(result.unanswered);
        text += &labelled("unanswered", &format!("{count} under way at the end{age}"));
    }
    if result.overdue > 0 {
        let age = oldest(result.oldest_overdue_ms);
        let count = grouped(result.overdue);
        text += &labelled("never sent", &format!("{count} were due at the end{age}"));
    }
    if result.held > 0 {
        let count = grouped(result.held);
        text += &labelled("held", &format!("{count} were due while no connection was free"));
    }
    if result.resent > 0 {
        let count = grouped(result.resent);
        text += &labelled("resent", &format!("{count} were sent again on a new connection"));
    }
    let mib = result.bytes_received as f64 / f64::from(1 << 20);
    text += &labelled("received", &format!("{} MiB", significant(mib)));
    let connecting = result.connect_time.quantiles.p50_ms.or(result.connect_time.mean_ms);
    let took = connecting.map_or(String::new(), |ms| format!(", in {} ms each", significant(ms)));
    text += &labelled("connects", &format!("{}{took}", grouped(result.connects)));
    let WarmUpResult { seconds, steady, .. } = result.warm_up;
    if seconds > 0.0 {
        let how = match steady {
            Some(true) => ", until the figures stood still",
            Some(false) => ", and the figures did not stand still",
            None => "",
        };
        text += &labelled("warm-up", &format!("{seconds:.1} s{how}"));
    }
    text
}

fn statuses(statuses: &BTreeMap<u16, u64>) -> String {
    let statuses: Vec<String> =
        statuses.iter().map(|(code, count)| format!("{code}: {}", grouped(*count))).collect();
    if statuses.is_empty() { "none".to_owned() } else { statuses.join(", ") }
}

/// What the first of several was, where it is known.
fn first(example: &Option<String>) -> String {
    example.as_ref().map_or(String::new(), |example| format!(", the first: {example}"))
}
