//! The result for people, in lines of at most 80 characters.

use super::layout::{class_name, columns, cut, grouped, labelled};
use super::{books, plot};
use crate::cmd::load::result::{ArrivalsResult, Latency, Load, LoadResult, Loop, TemplateResult};
use crate::cmd::load::verdict::FigureOf;
use tollgate_lab::report::number::significant;
use tollgate_stats::LatencyHistogram;

/// Writes a result for people. `latency` is its distribution.
pub(crate) fn render(result: &LoadResult, latency: &LatencyHistogram) -> String {
    let mut text = format!("{}\n{}\n\n", result.url, load_line(result));
    text += &books::render(result);
    text += &latencies(result);
    text += &plot::render(latency);
    text += &templates(result);
    text.push('\n');
    text += &labelled("verdict", &verdict(result));
    text
}

/// The longest name of a template that is printed whole.
const NAME: usize = 28;

fn load_line(result: &LoadResult) -> String {
    let Load { connections, connections_max, threads, pipeline, .. } = result.load;
    let mut parts = vec![match (result.load.rate_per_s, result.load.arrivals) {
        (Some(rate), Some(ArrivalsResult::Poisson)) => {
            format!("open loop: {}/s, Poisson", significant(rate))
        }
        (Some(rate), _) => format!("open loop: {}/s", significant(rate)),
        (None, _) => "closed loop".to_owned(),
    }];
    parts.push(match connections_max > connections {
        true => format!("{connections} to {connections_max} connections"),
        false => plural(connections, "connection"),
    });
    if !result.load.keep_alive {
        parts.push("a new one for each request".to_owned());
    }
    if pipeline > 1 {
        parts.push(format!("{pipeline} requests each"));
    }
    parts.push(plural(threads, "thread"));
    parts.push(format!("{:.2} s", result.window_s));
    let line = parts.join(", ");
    match &result.load.mix {
        Some(mix) => format!("{line}\nmix {mix}, seed {}", result.load.seed),
        None => line,
    }
}

/// The distributions, side by side in an open loop.
fn latencies(result: &LoadResult) -> String {
    if result.latency.count == 0 {
        return String::new();
    }
    let (title, mut sides) = match result.load.kind {
        Loop::Closed => (
            "Latency in ms: that of a saturated server (closed loop)",
            vec![("", Some(&result.latency))],
        ),
        Loop::Open => (
            "Latency in ms, from the moment at which a request was due and from its send",
            vec![
                ("when due", Some(&result.latency)),
                ("from send", result.latency_from_send.as_ref()),
                ("sent late", result.lateness.as_ref()),
            ],
        ),
    };
    sides.retain(|(_, latency)| latency.is_some());
    let mut rows = Vec::new();
    if sides.len() > 1 {
        let heads = sides.iter().map(|(head, _)| (*head).to_owned());
        rows.push(std::iter::once(String::new()).chain(heads).collect());
    }
    for (index, (name, _)) in result.latency.figures_ms().into_iter().enumerate() {
        let values = sides.iter().flat_map(|(_, latency)| *latency);
        let cells = values.map(|latency| ms(latency.figures_ms()[index].1));
        rows.push(std::iter::once(format!("  {name}")).chain(cells).collect());
    }
    format!("\n{title}\n{}", columns(&rows))
}

/// The templates and classes of a mix.
fn templates(result: &LoadResult) -> String {
    if result.load.mix.is_none() {
        return String::new();
    }
    let head = ["", "class", "answers", "unexpected", "p50 ms", "p99 ms", "max ms"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let row = |name: String, class: &str, answered, unexpected, latency: &Latency| {
        let quantiles = &latency.quantiles;
        let mut row = vec![name, class.to_owned(), grouped(answered), grouped(unexpected)];
        row.extend([quantiles.p50_ms, quantiles.p99_ms, latency.max_ms].map(ms));
        row
    };
    for template in &result.templates {
        let class = template.class.map_or("", class_name);
        let TemplateResult { name, answered, unexpected, latency, .. } = template;
        rows.push(row(cut(name, NAME), class, *answered, *unexpected, latency));
    }
    for class in &result.classes {
        let name = format!("all {}", class_name(class.class));
        rows.push(row(name, "", class.answered, class.unexpected, &class.latency));
    }
    format!("\n{}", columns(&rows))
}

fn verdict(result: &LoadResult) -> String {
    let whose = match (result.verdict.figure_of, result.load.kind) {
        (FigureOf::Server, _) => "these are the server's figures",
        (FigureOf::Generator, Loop::Closed) => {
            "the load generator was the bottleneck, and the throughput is a lower bound"
        }
        (FigureOf::Generator, Loop::Open) => "the load generator was behind its schedule",
        (FigureOf::Connections, _) => "the connections were too few for this rate",
        (FigureOf::Nothing, _) => "nothing was measured",
    };
    format!("{whose}: {}", result.verdict.reason)
}

fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Milliseconds with three digits that count, down to a microsecond.
fn ms(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value > 0.0 && value < 0.001 => "<0.001".to_owned(),
        Some(value) => significant(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::load::examples;
    use crate::cmd::load::warm_up::WarmedUp;
    use std::time::Duration;
    use tollgate_load::Outcome;

    fn closed(outcome: &Outcome) -> String {
        let settings = examples::closed_loop();
        render(&LoadResult::of(&settings, examples::COLD, outcome).unwrap(), &outcome.latency)
    }

    fn open(outcome: &Outcome) -> String {
        let warm_up = WarmedUp { lasted: Duration::from_millis(1_400), steady: Some(true) };
        let result = LoadResult::of(&examples::open_loop(), warm_up, outcome).unwrap();
        render(&result, &outcome.latency)
    }

    #[test]
    fn a_closed_loop_says_that_its_server_is_saturated() {
        insta::assert_snapshot!(closed(&examples::outcome()));
    }

    #[test]
    fn an_open_loop_shows_both_latencies_and_each_template() {
        insta::assert_snapshot!(open(&examples::open_outcome()));
    }

    #[test]
    fn no_answer_is_told_without_figures() {
        let mut outcome = examples::outcome();
        outcome.answered = 0;
        outcome.latency = LatencyHistogram::new();
        outcome.templates.clear();
        outcome.unexpected = 0;
        insta::assert_snapshot!(closed(&outcome));
    }

    #[test]
    fn no_line_is_wider_than_a_terminal() {
        for text in [closed(&examples::outcome()), open(&examples::open_outcome())] {
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(80), "{text}");
        }
    }
}
