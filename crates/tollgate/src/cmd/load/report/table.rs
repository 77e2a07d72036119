//! The result for people, in lines of at most 80 characters.

use super::layout::{columns, grouped, labelled, ms};
use super::{books, plot, templates, threads};
use crate::cmd::load::result::{ArrivalsResult, Load, LoadResult, Loop};
use crate::cmd::load::verdict::FigureOf;
use tollgate_lab::report::layout::paragraph;
use tollgate_lab::report::number::significant;
use tollgate_stats::LatencyHistogram;

/// Writes a result for people. `latency` is its distribution.
pub(crate) fn render(result: &LoadResult, latency: &LatencyHistogram) -> String {
    let mut text = format!("{}\n", result.url);
    if result.load.unix_socket {
        text += &paragraph("", &format!("through the socket {}", result.target));
    }
    text += &paragraph("", &load_line(result));
    if let Some(mix) = &result.load.mix {
        text += &paragraph("", &format!("mix {mix}, seed {}", result.load.seed));
    }
    text.push('\n');
    text += &books::render(result);
    text += &latencies(result);
    text += &plot::render(latency);
    text += &templates::render(result);
    text.push('\n');
    text += &threads::render(&result.threads);
    text += &labelled("verdict", &verdict(result));
    text
}

fn load_line(result: &LoadResult) -> String {
    let Load { connections, connections_max, threads, pipeline, .. } = result.load;
    let mut parts = vec![match (result.load.rate_per_s, result.load.arrivals) {
        (Some(rate), Some(ArrivalsResult::Poisson)) => {
            format!("open loop: {}/s, Poisson", significant(rate))
        }
        (Some(rate), _) => format!("open loop: {}/s", significant(rate)),
        (None, _) => "closed loop".to_owned(),
    }];
    if let Some(slack_ms) = result.load.timer_slack_ms.filter(|slack_ms| *slack_ms > 0.0) {
        parts.push(format!("up to {} ms late", significant(slack_ms)));
    }
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
    if result.load.busy_poll {
        parts.push("busy polling".to_owned());
    }
    parts.push(format!("{:.2} s", result.window_s));
    parts.join(", ")
}

/// The distributions, side by side in an open loop.
fn latencies(result: &LoadResult) -> String {
    if result.latency.count == 0 {
        return String::new();
    }
    let mut sides = match result.load.kind {
        Loop::Closed => vec![("", Some(&result.latency))],
        Loop::Open => vec![
            ("when due", Some(&result.latency)),
            ("from send", result.latency_from_send.as_ref()),
            ("lateness", result.lateness.as_ref()),
        ],
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
    format!("\n{}{}", paragraph("", &latency_title(result)), columns(&rows))
}

fn latency_title(result: &LoadResult) -> String {
    let title = match result.load.kind {
        Loop::Closed => {
            let most = result.load.connections * result.load.pipeline;
            format!("Latency in ms, with no more than {} under way", plural(most, "request"))
        }
        Loop::Open => {
            "Latency in ms, from the moment at which a request was due and from its send; lateness is the generator's own delay".to_owned()
        }
    };
    match result.errors.timeouts() {
        0 => title,
        1 => format!("{title} (1 timeout among them, which took at least that)"),
        timeouts => {
            format!("{title} ({} timeouts among them, which took at least that)", grouped(timeouts))
        }
    }
}

fn verdict(result: &LoadResult) -> String {
    let verdict = &result.verdict;
    let reason = &verdict.reason;
    let whose = match (verdict.figure_of, result.load.kind) {
        (FigureOf::Server, _) => format!("these are the server's figures: {reason}"),
        (FigureOf::Generator, Loop::Closed) => format!(
            "the load generator was the bottleneck, and the throughput is a lower bound: {reason}"
        ),
        (FigureOf::Generator, Loop::Open) => {
            format!("the load generator was behind its schedule: {reason}")
        }
        (FigureOf::Connections, _) => {
            format!("the connections were too few for this rate: {reason}")
        }
        (FigureOf::Nothing, _) => reason.clone(),
    };
    match &verdict.warning {
        Some(warning) => format!("{warning}. Apart from that, {whose}"),
        None => whose,
    }
}

fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::load::course::Course;
    use crate::cmd::load::examples;
    use crate::cmd::load::settings::Settings;
    use crate::cmd::load::warm_up::WarmedUp;
    use std::time::Duration;
    use tollgate_lab::report::layout::COLUMNS;
    use tollgate_load::{Failures, Outcome, Progress, TemplateTally};

    fn table(settings: &Settings, course: Course, outcome: &Outcome) -> String {
        render(&LoadResult::of(settings, course, outcome).unwrap(), &outcome.latency)
    }

    fn closed(outcome: &Outcome) -> String {
        table(&examples::closed_loop(), examples::COLD, outcome)
    }

    fn open(outcome: &Outcome) -> String {
        let warm_up = WarmedUp { lasted: Duration::from_millis(1_400), steady: Some(true) };
        table(&examples::open_loop(), Course { warm_up, ..examples::COLD }, outcome)
    }

    #[test]
    fn a_closed_loop_says_how_much_was_under_way_at_most() {
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
    fn what_limits_or_ends_a_load_has_a_line() {
        let text = closed(&Outcome { cut_off: 1_800, ..examples::outcome() });
        assert!(text.contains("\ncut off         1800 connections that the server left"), "{text}");
        let stopped = Course { is_interrupted: true, ..examples::COLD };
        let text = table(&examples::closed_loop(), stopped, &examples::outcome());
        assert!(text.contains("\ninterrupted     stopped before its end"), "{text}");
    }

    #[test]
    fn a_timer_slack_is_told_and_what_it_may_have_added() {
        let line = "http://127.0.0.1:8080/ --rate 5000 --timer-slack 2500us -d 2s";
        let outcome = Outcome { missed_stamps: 3, ..examples::outcome() };
        let text = table(&examples::settings(line), examples::COLD, &outcome);
        let load = "\nopen loop: 5000/s, up to 2.50 ms late, 50 connections, 1 thread, 2.00 s\n";
        assert!(text.contains(load), "{text}");
        let stamps = "\nno time stamp   3 answers: their latency is up to the slack too long\n";
        assert!(text.contains(stamps), "{text}");
    }

    #[test]
    fn a_load_that_was_stopped_in_its_warm_up_says_so_without_a_rate() {
        let warm_up = Progress { answered: 700, ..Progress::default() };
        let nothing = Outcome {
            window: Duration::ZERO,
            sent: 707,
            warm_up,
            answered: 0,
            unexpected: 0,
            failures: Failures::default(),
            latency: LatencyHistogram::new(),
            templates: vec![],
            ..examples::outcome()
        };
        let text = closed(&nothing);
        assert!(text.contains("\nanswers         0\n"), "{text}");
        let books = "0 answered + 0 failed + 7 unanswered + 700 finished in the";
        assert!(text.contains(&format!("\nsent            707 = {books}\n")), "{text}");
        assert!(text.contains("verdict         stopped during the warm-up: 700 answers"), "{text}");
    }

    #[test]
    fn behind_a_unix_socket_the_table_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shop.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let line = format!("http://shop.example/ -d 2s --unix-socket {}", path.display());
        let text = table(&examples::settings(&line), examples::COLD, &examples::outcome());
        let head = format!("http://shop.example/\nthrough the socket {}\n", path.display());
        assert!(text.starts_with(&head), "{text}");
        assert!(text.contains("2 refused: nobody listens on that socket"), "{text}");
    }

    /// The largest figures that a day on a large machine may have.
    fn wide() -> Outcome {
        let many = 1_234_567_890;
        let mut latency = LatencyHistogram::new();
        latency.record_n(3_500_000_000_001, 100_000);
        latency.record_n(3_599_000_000_000, many);
        let outcome = examples::open_outcome();
        let templates = outcome.templates.iter().map(|template| TemplateTally {
            statuses: (200..=211).map(|status| (status, many)).collect(),
            unexpected: many,
            latency: latency.clone(),
            ..template.clone()
        });
        Outcome {
            sent: many,
            answered: many,
            unexpected: many / 2,
            held: many,
            overdue: many,
            cut_off: many,
            templates: templates.collect(),
            lateness: Some(latency.clone()),
            latency_from_send: Some(latency.clone()),
            latency,
            failures: Failures {
                connect_timeout: many,
                no_port: many,
                other: many,
                other_example: Some("a word that ends here ".repeat(10)),
                ..outcome.failures
            },
            ..outcome
        }
    }

    #[test]
    fn no_line_is_wider_than_a_terminal() {
        let widest = "http://127.0.0.1:8080/ --rate 9999999.5 --poisson -d 24h -c 256 -t 256 \
            --max-connections 20000 --no-keepalive --mix browser-headers --seed 18446744073709551615";
        let closed_widest =
            "http://127.0.0.1:8080/ -d 24h -c 20000 -t 256 --pipeline 1000 --mix browser-headers";
        let mut long_names = examples::settings(widest);
        for template in &mut long_names.content.templates {
            template.name = "a product's page".repeat(10);
        }
        for text in [
            table(&long_names, examples::COLD, &wide()),
            table(&long_names, examples::COLD, &examples::open_outcome()),
            closed(&examples::outcome()),
            open(&examples::open_outcome()),
            table(&examples::settings(widest), examples::COLD, &wide()),
            table(&examples::settings(closed_widest), examples::COLD, &wide()),
        ] {
            let widest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
            assert!(widest.chars().count() <= COLUMNS, "{widest:?} in\n{text}");
        }
    }
}
