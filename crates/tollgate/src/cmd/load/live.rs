//! The line on standard error while load is under way; there is none where that is no terminal.

use super::settings::End;
use indicatif::ProgressBar;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tollgate_lab::interrupt::{Interrupt, Interrupted};
use tollgate_lab::report::number::significant;
use tollgate_load::{Generator, Progress};

/// What is shown while load is under way.
#[derive(Debug)]
pub(crate) struct Live {
    bar: ProgressBar,
    end: End,
    /// What had finished, at moments that are at most [`RATE_OVER`] old, and one that is older.
    readings: VecDeque<(Instant, Progress)>,
    /// p50 and p99 in nanoseconds, and when they were asked for.
    latency: Option<(Instant, [Option<u64>; 2])>,
}

impl Live {
    /// Nothing is shown before the first look.
    pub(crate) fn new(end: End) -> Self {
        let (readings, latency) = (VecDeque::new(), None);
        // The default style has no colors, so that `NO_COLOR` has nothing to take away.
        Self { bar: ProgressBar::new_spinner(), end, readings, latency }
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
                self.draw(generator, now, left);
                drawn = Some(now);
            }
            interrupt.sleep(left.unwrap_or(POLL).min(POLL))?;
        }
    }

    /// Takes the line away.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn draw(&mut self, generator: &Generator, now: Instant, left: Option<Duration>) {
        let progress = generator.progress();
        self.readings.push_back((now, progress));
        while self.readings.get(1).is_some_and(|(at, _)| now - *at >= RATE_OVER) {
            self.readings.pop_front();
        }
        // A copy of the counters takes the threads some microseconds, so it is not for every look.
        if self.latency.is_none_or(|(at, _)| now - at >= LATENCY_EVERY) {
            let latency = generator.latency_so_far();
            self.latency = Some((now, [0.5, 0.99].map(|q| latency.quantile_ns(q))));
        }
        let [p50_ns, p99_ns] = self.latency.map_or([None; 2], |(_, quantiles)| quantiles);
        let line = Line { rate_per_s: self.rate_per_s(), p50_ns, p99_ns, failed: progress.failed };
        let finished = progress.answered + progress.failed;
        let rest = match (self.end, left) {
            (End::Requests(requests), _) => {
                format!("{} requests left", requests.saturating_sub(finished))
            }
            (End::After(_), Some(left)) => format!("{:.0} s left", left.as_secs_f64().ceil()),
            (End::After(_), None) => String::new(),
        };
        self.bar.set_message(format!("{}, {rest}", line.in_words()));
        self.bar.tick();
    }

    /// Answers a second over about the last second; none before there are two readings.
    fn rate_per_s(&self) -> Option<f64> {
        let ((from, before), (to, after)) = (self.readings.front()?, self.readings.back()?);
        let seconds = (*to - *from).as_secs_f64();
        (seconds > 0.0).then(|| (after.answered - before.answered) as f64 / seconds)
    }
}

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
    failed: u64,
}

impl Line {
    fn in_words(&self) -> String {
        let or_dash = |value: Option<f64>| value.map_or("-".to_owned(), significant);
        let ms = |ns: Option<u64>| or_dash(ns.map(|ns| ns as f64 / 1e6));
        format!(
            "{} answers/s, p50 {} ms, p99 {} ms, {} failed",
            or_dash(self.rate_per_s),
            ms(self.p50_ns),
            ms(self.p99_ns),
            self.failed
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_rate_latency_and_failures() {
        let mut line = Line { rate_per_s: None, p50_ns: None, p99_ns: None, failed: 0 };
        assert_eq!(line.in_words(), "- answers/s, p50 - ms, p99 - ms, 0 failed");
        line.rate_per_s = Some(52_310.4);
        line.p50_ns = Some(951_000);
        line.p99_ns = Some(12_340_000);
        line.failed = 3;
        assert_eq!(line.in_words(), "52,310 answers/s, p50 0.951 ms, p99 12.3 ms, 3 failed");
    }

    #[test]
    fn the_rate_is_that_between_the_readings() {
        let mut live = Live::new(End::Requests(1));
        assert_eq!(live.rate_per_s(), None);
        let start = Instant::now();
        for (ms, answered) in [(0, 100), (400, 160), (1_000, 350)] {
            let progress = Progress { answered, ..Progress::default() };
            live.readings.push_back((start + Duration::from_millis(ms), progress));
        }
        assert_eq!(live.rate_per_s(), Some(250.0));
    }
}
