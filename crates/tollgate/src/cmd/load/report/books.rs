//! What became of the requests: a line for each thing that happened to any of them.

use super::layout::{bytes, grouped, labelled};
use crate::cmd::load::result::{LoadResult, Loop, WarmUpResult};
use crate::cmd::load::verdict::FigureOf;
use std::collections::BTreeMap;
use tollgate_lab::report::number::significant;

/// Says what became of the requests.
pub(super) fn render(result: &LoadResult) -> String {
    counts(result) + &errors(result) + &books(result) + &rest(result) + &connections(result)
}

fn counts(result: &LoadResult) -> String {
    let at_least = match (result.load.kind, result.verdict.figure_of) {
        (Loop::Closed, FigureOf::Generator) => "at least ",
        _ => "",
    };
    let answers = |count: u64| {
        let rate = result.throughput_per_s.map_or(String::new(), |_| {
            format!(" ({at_least}{}/s)", significant(count as f64 / result.window_s))
        });
        grouped(count) + &rate
    };
    let mut text = labelled("answers", &answers(result.answered));
    if result.unexpected > 0 {
        let expected = answers(result.answered - result.unexpected);
        text += &labelled("", &format!("of these as expected: {expected}"));
    }
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
    let refused = match result.load.unix_socket {
        true => "refused: nobody listens on that socket; is the server running?",
        false => "refused: nobody listens there; is the server running, on that port?",
    };
    let kinds = [
        (errors.refused, refused),
        (errors.reset, "reset by the server: look at its log and its limits"),
        (errors.connect_timeout, "not connected in time: the server's backlog may be full"),
        (errors.answer_timeout, "not answered in time (--timeout)"),
        (errors.closed_early, "closed before the answer: look at the server's log"),
        (errors.malformed, malformed.as_str()),
        (errors.no_port, "no local port left: keep connections alive, or open fewer"),
        (errors.other, other.as_str()),
    ];
    let mut text = labelled("failed", &grouped(result.failed));
    for (count, what) in kinds.into_iter().filter(|(count, _)| *count > 0) {
        text += &labelled("", &format!("{} {what}", grouped(count)));
    }
    text
}

/// What was sent, and where each of it is counted.
fn books(result: &LoadResult) -> String {
    let WarmUpResult { answered, failed, .. } = result.warm_up;
    let mut parts = vec![
        format!("{} answered", grouped(result.answered)),
        format!("{} failed", grouped(result.failed)),
        format!("{} unanswered", grouped(result.unanswered)),
    ];
    if answered + failed > 0 {
        parts.push(format!("{} finished in the warm-up", grouped(answered + failed)));
    }
    labelled("sent", &format!("{} = {}", grouped(result.sent), parts.join(" + ")))
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
    if result.missed_stamps > 0 {
        let count = grouped(result.missed_stamps);
        let what = format!("{count} answers: their latency is up to the slack too long");
        text += &labelled("no time stamp", &what);
    }
    if result.resent > 0 {
        let count = grouped(result.resent);
        text += &labelled("resent", &format!("{count} were sent again on a new connection"));
    }
    text + &labelled("received", &bytes(result.bytes_received))
}

/// What became of the connections, and what came before them.
fn connections(result: &LoadResult) -> String {
    let quantiles = &result.connect_time.quantiles;
    let took = match (quantiles.p50_ms, result.connect_time.mean_ms) {
        (Some(ms), _) => format!(", half of them within {} ms", significant(ms)),
        (None, Some(ms)) => format!(", in {} ms on average", significant(ms)),
        (None, None) => String::new(),
    };
    let mut text = labelled("connects", &format!("{}{took}", grouped(result.connects)));
    if result.cut_off > 0 {
        let count = grouped(result.cut_off);
        text += &labelled(
            "cut off",
            &format!(
                "{count} connections that the server left open after `Connection: close`, each after 200 ms: that is what limits the rate"
            ),
        );
    }
    let WarmUpResult { seconds, steady, .. } = result.warm_up;
    if seconds > 0.0 {
        let how = match steady {
            Some(true) => ", until the figures stood still",
            Some(false) => ", and the figures did not stand still",
            None => "",
        };
        text += &labelled("warm-up", &format!("{seconds:.1} s{how}"));
    }
    if result.interrupted {
        text += &labelled("interrupted", "stopped before its end: these are the figures so far");
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
