//! A batch for a terminal.

use super::Stats;
use crate::analysis::Range;
use crate::batch::series::{Check, Point};
use crate::batch::states::State;
use crate::report::layout::Screen;
use crate::report::number::{relative, share, significant};
use crate::report::rows::{Rows, counted};
use crate::report::table;

/// Writes a batch for a terminal.
pub(super) fn render(stats: &Stats, screen: Screen) -> String {
    let anchor = stats.anchor.as_deref().unwrap_or("none yet");
    let mut text = screen.heading(&stats.title);
    text += &screen.wrapped(&summary(stats));
    text.push('\n');
    text += &table::draw(&rows(stats, anchor), screen);
    let explained = format!(
        "× {anchor}: {} over that of the anchor {anchor} in the same block, with the 95 % interval; a range \
         in ( ) is what was seen in fewer than six blocks.",
        stats.figure
    );
    text += &screen.wrapped(&explained);
    for point in stats.revisions.iter().filter(|point| !point.why.is_empty()) {
        text += &format!("\n{}: {}\n", point.name, point.state);
        text.extend(point.why.iter().map(|line| format!("    | {line}\n")));
    }
    for line in checks(stats) {
        text += &screen.wrapped(&line);
    }
    if let Some(findings) = &stats.findings {
        text.push('\n');
        for paragraph in findings.paragraphs() {
            text += &screen.wrapped(&paragraph);
        }
    }
    text
}

/// How many revisions there are in which state.
pub(super) fn summary(stats: &Stats) -> String {
    let states = [
        State::Done,
        State::Built,
        State::Queued,
        State::Invalid,
        State::RunFailed,
        State::BuildFailed,
        State::TimedOut,
    ];
    let count = |state: State| stats.revisions.iter().filter(|one| one.state == state).count();
    let told: Vec<String> = states
        .into_iter()
        .filter(|state| count(*state) > 0)
        .map(|state| format!("{} {state}", count(state)))
        .collect();
    format!("{}: {}", counted(stats.revisions.len(), "revision"), told.join(", "))
}

/// What products that stood twice say of the others.
pub(super) fn checks(stats: &Stats) -> Vec<String> {
    if stats.checks.is_empty() {
        return Vec::new();
    }
    let told = |wanted: &dyn Fn(&Check) -> bool| -> Vec<String> {
        let of = stats.checks.iter().filter(|check| wanted(check));
        of.map(|check| {
            let (round, subject, same) = (check.round, &check.subject, &check.same_as);
            format!("round {round}, {subject} over {same}: {}", interval(&check.ratio))
        })
        .collect()
    };
    let is_same = |check: &Check| is_within(&check.ratio, stats.margin);
    let same = stats.checks.iter().filter(|check| is_same(check)).count();
    let off = told(&|check| check.is_off);
    let open = told(&|check| !check.is_off && !is_same(check));
    let all = counted(stats.checks.len(), "time");
    let mut text = format!("Equal products stood beside each other {all}.");
    if same > 0 {
        text += &format!(" The same within {}: {}.", share(stats.margin), counted(same, "time"));
    }
    if !off.is_empty() {
        text +=
            &format!(" Off: {}. Differences as small between others say nothing.", off.join("; "));
    }
    if !open.is_empty() {
        text += &format!(" Not settled: {}.", open.join("; "));
    }
    vec![text]
}

/// Whether the interval says that the two are the same, up to the margin.
fn is_within(ratio: &Range, margin: f64) -> bool {
    ratio.interval && ratio.low >= 1.0 / (1.0 + margin) && ratio.high <= 1.0 + margin
}

/// A price with its interval, as a factor.
pub(super) fn interval(range: &Range) -> String {
    let [estimate, low, high] = [range.estimate, range.low, range.high].map(factor);
    match range.interval {
        true => format!("{estimate} [{low} {high}]"),
        false => format!("{estimate} ({low} {high})"),
    }
}

fn rows(stats: &Stats, anchor: &str) -> Rows {
    let header =
        ["revision", &format!("× {anchor} [95 %]"), "change", "CPU µs/request", "requests/s", "n"];
    let mut before: Option<f64> = None;
    let row = |point: &Point| {
        let change = point.price.zip(before).map(|(now, before)| relative(now.estimate / before));
        before = point.price.map(|price| price.estimate).or(before);
        let means = point.means;
        let figure = |value: Option<f64>| value.map_or("-".to_owned(), significant);
        vec![
            point.name.clone(),
            // Why there is none: how far it has come.
            point.price.as_ref().map_or(point.state.word().to_owned(), interval),
            change.unwrap_or("-".to_owned()),
            figure(means.and_then(|means| means.cpu_us_per_request)),
            figure(means.map(|means| means.throughput_per_s)),
            point.n.to_string(),
        ]
    };
    Rows {
        header: header.map(str::to_owned).to_vec(),
        rows: stats.revisions.iter().map(row).collect(),
    }
}

/// A factor near 1 with the digits in which it differs from it.
fn factor(value: f64) -> String {
    match (0.5..2.0).contains(&value) {
        true => format!("{value:.3}"),
        false => significant(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(checks: Vec<Check>) -> Stats {
        Stats {
            schema: 1,
            title: "t".to_owned(),
            tollgate: String::new(),
            started_at: String::new(),
            command: String::new(),
            figure: "CPU per request".to_owned(),
            margin: 0.02,
            anchor: None,
            revisions: Vec::new(),
            checks,
            findings: None,
        }
    }

    #[test]
    fn equal_products_are_the_same_or_off_or_not_settled() {
        let check = |low: f64, high: f64, interval: bool, is_off: bool| Check {
            round: 1,
            subject: "b".to_owned(),
            same_as: "a".to_owned(),
            ratio: Range { estimate: 1.01, low, high, interval },
            n: 12,
            is_off,
        };
        let told = |checks: Vec<Check>| super::checks(&stats(checks)).concat();
        assert_eq!(told(Vec::new()), "");
        assert_eq!(
            told(vec![check(0.99, 1.015, true, false)]),
            "Equal products stood beside each other 1 time. The same within 2 %: 1 time."
        );
        assert_eq!(
            told(vec![check(1.005, 1.2, true, true), check(0.8, 1.2, true, false)]),
            "Equal products stood beside each other 2 times. Off: round 1, b over a: 1.010 [1.005 1.200]. \
             Differences as small between others say nothing. Not settled: round 1, b over a: 1.010 \
             [0.800 1.200]."
        );
        // What was seen in a few blocks is no interval, however narrow.
        assert!(told(vec![check(0.999, 1.001, false, false)]).contains("Not settled: "));
    }
}
