//! The load before the measurement.

use super::args::WarmUp;
use super::live::{Live, Phase};
use std::time::{Duration, Instant};
use tollgate_lab::interrupt::{Interrupt, Interrupted};
use tollgate_load::{Generator, Progress};
use tollgate_stats::is_steady;

/// What came of a warm-up; the default is that of none.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct WarmedUp {
    /// How long it was.
    pub(crate) lasted: Duration,
    /// Whether the figures stood still at its end; none where nobody waited for that.
    pub(crate) steady: Option<bool>,
}

/// Sends load as long as the warm-up lasts, or until it is asked to stop, which the caller has to
/// look at. `is_open_loop` says that throughput is given, so that only the latency can show whether
/// the server has warmed up.
pub(super) fn run(
    warm_up: WarmUp,
    is_open_loop: bool,
    generator: &Generator,
    live: &mut Live,
    interrupt: &Interrupt,
) -> WarmedUp {
    let start = Instant::now();
    let steady = match warm_up {
        WarmUp::None => return WarmedUp::default(),
        WarmUp::For(time) => {
            let until = Some(start + time);
            live.enter(Phase::WarmUp(until));
            // One that was stopped has a length too.
            live.watch(generator, until, interrupt).err();
            None
        }
        WarmUp::Steady => {
            live.enter(Phase::WarmUp(None));
            let mut slices = Slices::new(is_open_loop);
            // One that was stopped is as steady as it was by then.
            until_steady(start, &mut slices, generator, live, interrupt).err();
            Some(slices.are_steady())
        }
    };
    WarmedUp { lasted: start.elapsed(), steady }
}

fn until_steady(
    start: Instant,
    slices: &mut Slices,
    generator: &Generator,
    live: &mut Live,
    interrupt: &Interrupt,
) -> Result<(), Interrupted> {
    let mut since = (start, generator.progress());
    while start.elapsed() < STEADY_LONGEST && !slices.are_steady() && !slices.are_silent() {
        live.watch(generator, Some(since.0 + SLICE), interrupt)?;
        let now = (Instant::now(), generator.progress());
        slices.add(now.0 - since.0, &since.1, &now.1);
        since = now;
    }
    Ok(())
}

/// How long figures are added up before they are compared.
const SLICE: Duration = Duration::from_millis(200);

/// How long to wait for figures that stand still.
const STEADY_LONGEST: Duration = Duration::from_secs(30);

/// How long to go on where nothing is answered: what has not answered by then is not warming up.
const SILENT_LONGEST: Duration = Duration::from_secs(5);

/// Throughput and mean latency, slice by slice; there are at most [`STEADY_LONGEST`] / [`SLICE`].
#[derive(Debug)]
struct Slices {
    is_open_loop: bool,
    throughputs_per_s: Vec<f64>,
    latencies_ns: Vec<f64>,
    /// How long nothing has been answered.
    silent: Duration,
}

impl Slices {
    fn new(is_open_loop: bool) -> Self {
        let (throughputs_per_s, latencies_ns) = (Vec::new(), Vec::new());
        Self { is_open_loop, throughputs_per_s, latencies_ns, silent: Duration::ZERO }
    }

    /// Adds the slice between two readings. A slice without an answer has no latency, and nothing
    /// before it is compared with what comes after it.
    fn add(&mut self, lasted: Duration, before: &Progress, after: &Progress) {
        let answered = (after.answered - before.answered) as f64;
        if answered == 0.0 {
            self.throughputs_per_s.clear();
            self.latencies_ns.clear();
            self.silent += lasted;
            return;
        }
        self.silent = Duration::ZERO;
        self.throughputs_per_s.push(answered / lasted.as_secs_f64());
        let latency_ns = after.latency_ns_sum - before.latency_ns_sum;
        self.latencies_ns.push(latency_ns as f64 / answered);
    }

    fn are_silent(&self) -> bool {
        self.silent >= SILENT_LONGEST
    }

    fn are_steady(&self) -> bool {
        is_steady(&self.latencies_ns) && (self.is_open_loop || is_steady(&self.throughputs_per_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slices of 200 ms, each with so many answers of so many nanoseconds.
    fn slices(is_open_loop: bool, each: &[(u64, u64)]) -> Slices {
        let mut slices = Slices::new(is_open_loop);
        let mut before = Progress::default();
        for (answers, latency_ns) in each {
            let mut after = before;
            after.answered += answers;
            after.latency_ns_sum += answers * latency_ns;
            slices.add(SLICE, &before, &after);
            before = after;
        }
        slices
    }

    #[test]
    fn a_closed_loop_is_steady_when_both_figures_stand_still() {
        assert!(slices(false, &[(100, 500); 5]).are_steady());
        assert!(!slices(false, &[(100, 500); 4]).are_steady());
        let slower = [(100, 500), (100, 500), (100, 500), (100, 500), (100, 700)];
        assert!(!slices(false, &slower).are_steady());
        let fewer = [(100, 500), (100, 500), (100, 500), (100, 500), (60, 500)];
        assert!(!slices(false, &fewer).are_steady());
    }

    #[test]
    fn in_an_open_loop_only_the_latency_counts() {
        let fewer = [(100, 500), (100, 500), (100, 500), (100, 500), (60, 500)];
        assert!(slices(true, &fewer).are_steady());
    }

    #[test]
    fn five_seconds_without_an_answer_are_silence() {
        // 25 slices of 200 ms are five seconds.
        assert!(slices(false, &[(0, 0); 25]).are_silent());
        assert!(!slices(false, &[(0, 0); 24]).are_silent());
        let mut interrupted = [(0, 0); 26];
        interrupted[13] = (1, 500);
        assert!(!slices(false, &interrupted).are_silent());
    }

    #[test]
    fn a_slice_without_answers_starts_anew() {
        let gap = [(100, 500), (100, 500), (100, 500), (0, 0), (100, 500), (100, 500)];
        assert!(!slices(false, &gap).are_steady());
    }
}
