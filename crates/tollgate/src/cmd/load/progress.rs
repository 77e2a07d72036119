//! Phases of a load, and the line on standard error that shows them.

use super::Load;
use super::args::WarmUp;
use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tollgate_load::{Generator, Phases, Plan, Progress, Slice, WarmUpResult, becomes_steady};
use tollgate_runner::process::{Interrupt, Interrupted};
use tollgate_stats::LatencyHistogram;
use tollgate_stats::number::{count, significant};

/// Limit of the wait for steady figures.
const STEADY_WAIT_MAX: Duration = Duration::from_secs(30);

/// Time between two looks at a start, and at a signal.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const DRAW_INTERVAL: Duration = Duration::from_millis(100);
const LATENCY_INTERVAL: Duration = Duration::from_millis(500);
const RATE_INTERVAL: Duration = Duration::from_secs(1);

/// One line, cut to the width of the terminal: a wrapped one could not be removed. The cursor returns
/// to its start, because at its end the `^C` that a terminal echoes would wrap it; the two blanks leave
/// room for that.
const LINE_TEMPLATE: &str = "  {wide_msg}\r";

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct RunEnd {
    pub(super) warm_up: WarmUpResult,
    /// True if it was stopped before its end.
    pub(super) is_interrupted: bool,
}

/// A load that has started: by a generator of this process, or by agents on several hosts.
pub(super) trait Running {
    /// Time at which the first request is due.
    fn starts_at(&self) -> Instant;

    /// Start of the window; `None` while the first requests of this process wait for connections.
    fn window_start(&self) -> Option<Instant>;

    /// Counts so far, and true if the load has ended.
    fn progress(&mut self) -> Result<(Progress, bool)>;

    /// Waits, at most until the load ends.
    fn wait(&mut self, time: Duration, interrupt: &Interrupt) -> Result<()>;

    /// Latencies so far; `None` if they are not known before the end.
    fn latency(&mut self) -> Option<LatencyHistogram>;

    fn open_window(&mut self) -> Result<()>;

    /// Closes the window at a time, or now.
    fn close_window(&mut self, at: Option<Instant>) -> Result<()>;

    /// Time that closing takes.
    fn close_lead(&self) -> Duration;
}

impl Running for Generator {
    fn starts_at(&self) -> Instant {
        Self::starts_at(self)
    }

    fn window_start(&self) -> Option<Instant> {
        Self::window_start(self)
    }

    fn progress(&mut self) -> Result<(Progress, bool)> {
        Ok((Self::progress(self), self.is_done()))
    }

    fn wait(&mut self, time: Duration, interrupt: &Interrupt) -> Result<()> {
        Self::wait(self, time);
        Ok(interrupt.check()?)
    }

    fn latency(&mut self) -> Option<LatencyHistogram> {
        Some(self.live_latency())
    }

    fn open_window(&mut self) -> Result<()> {
        Self::open_window(self);
        Ok(())
    }

    fn close_window(&mut self, _: Option<Instant>) -> Result<()> {
        Self::close_window(self);
        Ok(())
    }

    fn close_lead(&self) -> Duration {
        Duration::ZERO
    }
}

/// Waits for the end of a load and closes its window.
pub(super) fn run(
    load: &Load,
    running: &mut impl Running,
    line: &mut ProgressLine,
    interrupt: &Interrupt,
) -> Result<RunEnd> {
    let mut warm_up = WarmUpResult::default();
    let ended = run_phases(load, running, line, interrupt, &mut warm_up);
    let is_interrupted = ended.as_ref().is_err_and(anyhow::Error::is::<Interrupted>);
    let at = match ended {
        Ok(at) => at,
        Err(_) if is_interrupted => None,
        Err(error) => return Err(error),
    };
    running.close_window(at)?;
    Ok(RunEnd { warm_up, is_interrupted })
}

/// Returns the time at which the window is to be closed; `None` if the load has ended by itself.
fn run_phases(
    load: &Load,
    running: &mut impl Running,
    line: &mut ProgressLine,
    interrupt: &Interrupt,
    result: &mut WarmUpResult,
) -> Result<Option<Instant>> {
    line.watch(running, Some(running.starts_at()), interrupt)?;
    if load.warm_up != WarmUp::None {
        // An interrupted warm-up has a result too.
        let begin = Instant::now();
        let ended = warm_up(load, running, line, interrupt, &mut result.steady);
        result.duration = begin.elapsed();
        ended?;
        running.open_window()?;
    }
    let start = line.watch_opening(running, interrupt)?;
    let until = load.duration.map(|duration| start + duration);
    line.enter(Phase::Measure { until, requests: load.plan.requests() });
    let lead = running.close_lead();
    let closing = until.map(|until| until.checked_sub(lead).unwrap_or(until));
    // Such a load ends by itself, at this time.
    let ends = matches!(load.plan.phases, Phases::For(_));
    line.watch(running, closing.filter(|_| !ends), interrupt)?;
    Ok(until)
}

fn warm_up(
    load: &Load,
    running: &mut impl Running,
    line: &mut ProgressLine,
    interrupt: &Interrupt,
    is_steady: &mut Option<bool>,
) -> Result<()> {
    let start = Instant::now();
    if let WarmUp::For(duration) = load.warm_up {
        let until = Some(start + duration);
        line.enter(Phase::WarmUp { until });
        return line.watch(running, until, interrupt);
    }
    line.enter(Phase::WarmUp { until: None });
    *is_steady = Some(false);
    let sample = |due| {
        line.watch(running, Some(due), interrupt)?;
        let (progress, _) = running.progress()?;
        anyhow::Ok((Instant::now(), progress, ()))
    };
    let figures = |slice: &Slice, (): &(), (): &()| steady_figures(slice, &load.plan);
    *is_steady = Some(becomes_steady(STEADY_WAIT_MAX, sample, figures)?);
    Ok(())
}

/// Figures that must be steady: the mean latency, and in a closed loop the throughput, which a schedule
/// would fix.
fn steady_figures(slice: &Slice, plan: &Plan) -> Vec<f64> {
    let is_closed_loop = plan.rate().is_none();
    let throughput_per_s = is_closed_loop.then(|| slice.throughput_per_s());
    throughput_per_s.into_iter().chain(slice.latency_ns_mean()).collect()
}

/// The line on standard error. Hidden if that is not a terminal.
#[derive(Debug)]
pub(super) struct ProgressLine {
    bar: ProgressBar,
    phase: Phase,
    /// Readings of the last [`RATE_INTERVAL`], and one before it.
    readings: VecDeque<(Instant, Progress)>,
    /// p50 and p99 in nanoseconds, and the time of their reading.
    latency: Option<(Instant, [Option<u64>; 2])>,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    Start,
    WarmUp { until: Option<Instant> },
    Measure { until: Option<Instant>, requests: Option<u64> },
}

impl ProgressLine {
    pub(super) fn new() -> Self {
        // No colors, so `NO_COLOR` needs no support.
        let style = ProgressStyle::with_template(LINE_TEMPLATE).expect("the template is valid");
        let bar = ProgressBar::new_spinner().with_style(style);
        Self { bar, phase: Phase::Start, readings: VecDeque::new(), latency: None }
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// Shows the progress until the load is done or the time has come.
    fn watch(
        &mut self,
        running: &mut impl Running,
        until: Option<Instant>,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let mut drawn_at: Option<Instant> = None;
        loop {
            let now = Instant::now();
            let left = until.map(|until| until.saturating_duration_since(now));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(());
            }
            let (progress, is_done) = running.progress()?;
            if is_done {
                return Ok(());
            }
            let is_due = drawn_at.is_none_or(|drawn_at| now - drawn_at >= DRAW_INTERVAL);
            if !self.bar.is_hidden() && is_due {
                self.draw(running, now, progress);
                drawn_at = Some(now);
            }
            interrupt.check()?;
            running.wait(left.unwrap_or(DRAW_INTERVAL).min(DRAW_INTERVAL), interrupt)?;
        }
    }

    /// Shows the progress until the window is open, or the load is done. Returns the start of the window.
    fn watch_opening(
        &mut self,
        running: &mut impl Running,
        interrupt: &Interrupt,
    ) -> Result<Instant> {
        loop {
            if let Some(start) = running.window_start() {
                return Ok(start);
            }
            let now = Instant::now();
            if running.progress()?.1 {
                return Ok(now);
            }
            self.watch(running, Some(now + POLL_INTERVAL), interrupt)?;
        }
    }

    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    fn draw(&mut self, running: &mut impl Running, now: Instant, progress: Progress) {
        self.readings.push_back((now, progress));
        while self.readings.get(1).is_some_and(|(at, _)| now - *at >= RATE_INTERVAL) {
            self.readings.pop_front();
        }
        // Each reading costs the threads some CPU, so they are rare once there is a value.
        let is_due = |(at, [p50_ns, _]): (Instant, [Option<u64>; 2])| {
            p50_ns.is_none() || now - at >= LATENCY_INTERVAL
        };
        if self.latency.is_none_or(is_due)
            && let Some(latency) = running.latency()
        {
            self.latency = Some((now, [0.5, 0.99].map(|q| latency.quantile_ns(q))));
        }
        let quantiles_ns = self.latency.map_or([None; 2], |(_, quantiles_ns)| quantiles_ns);
        let phase = self.phase.describe(now, &progress);
        self.bar.set_message(phase + &describe(self.rate_per_s(), quantiles_ns, &progress));
        self.bar.tick();
    }

    /// Responses per second over the last second; `None` before two readings.
    fn rate_per_s(&self) -> Option<f64> {
        let ((from, before), (to, after)) = (self.readings.front()?, self.readings.back()?);
        let seconds = (*to - *from).as_secs_f64();
        (seconds > 0.0).then(|| (after.responses - before.responses) as f64 / seconds)
    }
}

impl Phase {
    /// The phase and its remaining part, as a prefix.
    fn describe(self, now: Instant, progress: &Progress) -> String {
        let seconds = |until: Instant| until.saturating_duration_since(now).as_secs_f64().ceil();
        match self {
            Self::Start | Self::Measure { until: None, requests: None } => String::new(),
            Self::WarmUp { until: None } => "warming up: ".to_owned(),
            Self::WarmUp { until: Some(until) } => {
                format!("warming up, {:.0} s left: ", seconds(until))
            }
            Self::Measure { until: Some(until), .. } => format!("{:.0} s left: ", seconds(until)),
            Self::Measure { until: None, requests: Some(requests) } => {
                let finished = progress.responses + progress.failed;
                format!("{} requests left: ", count(requests.saturating_sub(finished)))
            }
        }
    }
}

/// Figures of the line. Failures come before the latency, because a narrow terminal cuts the line.
fn describe(
    rate_per_s: Option<f64>,
    quantiles_ns: [Option<u64>; 2],
    progress: &Progress,
) -> String {
    let or_dash = |value: Option<f64>| value.map_or("-".to_owned(), significant);
    let [p50_ms, p99_ms] = quantiles_ns.map(|ns| or_dash(ns.map(|ns| ns as f64 / 1e6)));
    format!(
        "{}/s, {} failed, {} unexpected, p50 {p50_ms} ms, p99 {p99_ms} ms",
        or_dash(rate_per_s),
        count(progress.failed),
        count(progress.unexpected),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_rate_failures_and_latency() {
        let progress = Progress { failed: 3, unexpected: 12_345, ..Progress::default() };
        assert_eq!(
            describe(None, [None; 2], &Progress::default()),
            "-/s, 0 failed, 0 unexpected, p50 - ms, p99 - ms"
        );
        assert_eq!(
            describe(Some(52_310.4), [Some(951_000), Some(12_340_000)], &progress),
            "52,310/s, 3 failed, 12,345 unexpected, p50 0.951 ms, p99 12.3 ms"
        );
    }

    #[test]
    fn line_starts_with_the_phase_and_what_is_left() {
        let now = Instant::now();
        let until = Some(now + Duration::from_millis(2_300));
        let progress = Progress { responses: 20_000, failed: 500, ..Progress::default() };
        let measure = |until, requests| Phase::Measure { until, requests };
        for (phase, text) in [
            (Phase::Start, ""),
            (Phase::WarmUp { until: None }, "warming up: "),
            (Phase::WarmUp { until }, "warming up, 3 s left: "),
            (measure(until, None), "3 s left: "),
            (measure(None, Some(1_020_500)), "1,000,000 requests left: "),
        ] {
            assert_eq!(phase.describe(now, &progress), text);
        }
    }

    #[test]
    fn rate_is_the_difference_of_the_readings() {
        let mut line = ProgressLine::new();
        assert_eq!(line.rate_per_s(), None);
        let start = Instant::now();
        for (ms, responses) in [(0, 100), (400, 160), (1_000, 350)] {
            let progress = Progress { responses, ..Progress::default() };
            line.readings.push_back((start + Duration::from_millis(ms), progress));
        }
        assert_eq!(line.rate_per_s(), Some(250.0));
    }

    #[test]
    fn open_loop_is_steady_by_latency_alone() {
        use crate::cmd::load::tests::load;
        let slice =
            Slice { length: Duration::from_millis(200), responses: 100, latency_ns_sum: 50_000 };
        let figures = |options: &str| {
            let line = format!("http://127.0.0.1/ -d 1s {options}");
            steady_figures(&slice, &load(&line).unwrap().plan)
        };
        assert_eq!(figures(""), [500.0, 500.0]);
        assert_eq!(figures("--rate 5"), [500.0]);
    }
}
