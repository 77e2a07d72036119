//! The line on standard error while load is under way; there is none where that is no terminal.

use super::millis::ms;
use super::report::grouped;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tollgate_lab::interrupt::{Interrupt, Interrupted};
use tollgate_lab::report::number::significant;
use tollgate_load::{Generator, Progress};

/// What is shown while load is under way.
#[derive(Debug)]
pub(crate) struct Live {
    bar: ProgressBar,
    phase: Phase,
    /// What had finished, at moments that are at most [`RATE_OVER`] old, and one that is older.
    readings: VecDeque<(Instant, Progress)>,
    /// p50 and p99 in nanoseconds, and when they were asked for.
    latency: Option<(Instant, [Option<u64>; 2])>,
}

/// What is under way.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Phase {
    /// Connections are opened.
    Start,
    /// The warm-up, until then where that is known.
    WarmUp(Option<Instant>),
    /// The measurement, until this many requests have finished.
    Requests(u64),
    /// The measurement, until then.
    Until(Instant),
}

impl Live {
    /// Nothing is shown before the first look.
    pub(crate) fn new() -> Self {
        // No colors, so that `NO_COLOR` has nothing to take away.
        let style = ProgressStyle::with_template(TEMPLATE).expect("the template is well-formed");
        let bar = ProgressBar::new_spinner().with_style(style);
        Self { bar, phase: Phase::Start, readings: VecDeque::new(), latency: None }
    }

    /// Says from now on that this is under way.
    pub(crate) fn enter(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// Waits until the load is delivered or the time has come, and shows what has finished so far.
    ///
    /// # Errors
    ///
    /// It was asked to stop.
    pub(crate) fn watch(
        &mut self,
        generator: &Generator,
        until: Option<Instant>,
        interrupt: &Interrupt,
    ) -> Result<(), Interrupted> {
        let mut drawn: Option<Instant> = None;
        loop {
            let now = Instant::now();
            let left = until.map(|until| until.saturating_duration_since(now));
            if left.is_some_and(|left| left.is_zero()) || generator.is_done() {
                return Ok(());
            }
            if !self.bar.is_hidden() && drawn.is_none_or(|drawn| now - drawn >= DRAW_EVERY) {
                self.draw(generator, now);
                drawn = Some(now);
            }
            interrupt.sleep(left.unwrap_or(POLL).min(POLL))?;
        }
    }

    /// Takes the line away.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn draw(&mut self, generator: &Generator, now: Instant) {
        let progress = generator.progress();
        self.readings.push_back((now, progress));
        while self.readings.get(1).is_some_and(|(at, _)| now - *at >= RATE_OVER) {
            self.readings.pop_front();
        }
        // A copy of the counters takes the threads some microseconds, so it is not for every look
        // once there is something to show.
        if self.latency.is_none_or(|(at, [p50, _])| p50.is_none() || now - at >= LATENCY_EVERY) {
            let latency = generator.latency_so_far();
            self.latency = Some((now, [0.5, 0.99].map(|q| latency.quantile_ns(q))));
        }
        let [p50_ns, p99_ns] = self.latency.map_or([None; 2], |(_, quantiles)| quantiles);
        let line = Line { rate_per_s: self.rate_per_s(), p50_ns, p99_ns, progress };
        self.bar.set_message(format!("{}{}", self.phase.in_words(now, &progress), line.in_words()));
        self.bar.tick();
    }

    /// Answers a second over about the last second; none before there are two readings.
    fn rate_per_s(&self) -> Option<f64> {
        let ((from, before), (to, after)) = (self.readings.front()?, self.readings.back()?);
        let seconds = (*to - *from).as_secs_f64();
        (seconds > 0.0).then(|| (after.answered - before.answered) as f64 / seconds)
    }
}

impl Phase {
    /// What is under way and how much of it is left, to be followed by how it goes.
    fn in_words(self, now: Instant, progress: &Progress) -> String {
        let left = |until: Instant| {
            let left = until.saturating_duration_since(now);
            format!("{:.0} s left", left.as_secs_f64().ceil())
        };
        match self {
            Self::Start => String::new(),
            Self::WarmUp(None) => "warming up: ".to_owned(),
            Self::WarmUp(Some(until)) => format!("warming up, {}: ", left(until)),
            Self::Until(until) => format!("{}: ", left(until)),
            Self::Requests(requests) => {
                let finished = progress.answered + progress.failed;
                format!("{} requests left: ", grouped(requests.saturating_sub(finished)))
            }
        }
    }
}

/// One line, cut to the width of the terminal: one that is broken in two would not be taken away. The
/// cursor goes back to its start, since at its end the `^C` that a terminal echoes would break it;
/// what fills the line up then falls on the two blanks.
const TEMPLATE: &str = "  {wide_msg}\r";

/// How long an end that came may go unseen.
const POLL: Duration = Duration::from_millis(20);
const DRAW_EVERY: Duration = Duration::from_millis(100);
const LATENCY_EVERY: Duration = Duration::from_millis(500);
const RATE_OVER: Duration = Duration::from_secs(1);

/// The figures of the line.
struct Line {
    rate_per_s: Option<f64>,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    progress: Progress,
}

impl Line {
    /// What went wrong stands before the latency, since a narrow terminal cuts the line.
    fn in_words(&self) -> String {
        let or_dash = |value: Option<f64>| value.map_or("-".to_owned(), significant);
        format!(
            "{}/s, {} failed, {} unexpected, p50 {} ms, p99 {} ms",
            or_dash(self.rate_per_s),
            grouped(self.progress.failed),
            grouped(self.progress.unexpected),
            or_dash(self.p50_ns.map(ms)),
            or_dash(self.p99_ns.map(ms)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_rate_latency_and_failures() {
        let progress = Progress::default();
        let mut line = Line { rate_per_s: None, p50_ns: None, p99_ns: None, progress };
        assert_eq!(line.in_words(), "-/s, 0 failed, 0 unexpected, p50 - ms, p99 - ms");
        line.rate_per_s = Some(52_310.4);
        line.p50_ns = Some(951_000);
        line.p99_ns = Some(12_340_000);
        line.progress = Progress { failed: 3, unexpected: 12_345, ..progress };
        assert_eq!(
            line.in_words(),
            "52,310/s, 3 failed, 12,345 unexpected, p50 0.951 ms, p99 12.3 ms"
        );
    }

    #[test]
    fn the_line_begins_with_what_is_under_way_and_what_is_left() {
        let now = Instant::now();
        let then = now + Duration::from_millis(2_300);
        let progress = Progress { answered: 20_000, failed: 500, ..Progress::default() };
        let words = |phase: Phase| phase.in_words(now, &progress);
        assert_eq!(words(Phase::Start), "");
        assert_eq!(words(Phase::WarmUp(None)), "warming up: ");
        assert_eq!(words(Phase::WarmUp(Some(then))), "warming up, 3 s left: ");
        assert_eq!(words(Phase::Until(then)), "3 s left: ");
        assert_eq!(words(Phase::Requests(1_020_500)), "1,000,000 requests left: ");
    }

    #[test]
    fn the_rate_is_that_between_the_readings() {
        let mut live = Live::new();
        assert_eq!(live.rate_per_s(), None);
        let start = Instant::now();
        for (ms, answered) in [(0, 100), (400, 160), (1_000, 350)] {
            let progress = Progress { answered, ..Progress::default() };
            live.readings.push_back((start + Duration::from_millis(ms), progress));
        }
        assert_eq!(live.rate_per_s(), Some(250.0));
    }
}
