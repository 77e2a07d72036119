//! The load before the measurement.

use super::args::WarmUp;
use super::live::{Live, Phase};
use std::time::{Duration, Instant};
use tollgate_lab::interrupt::{Interrupt, Interrupted};
use tollgate_load::{Generator, SLICE, Slice, Slices};

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
            let mut slices = Slices::default();
            let judged = |slice: &Slice| judged(slice, is_open_loop);
            // One that was stopped is as steady as it was by then.
            until_steady(start, &mut slices, judged, generator, live, interrupt).err();
            Some(slices.are_steady())
        }
    };
    WarmedUp { lasted: start.elapsed(), steady }
}

fn until_steady(
    start: Instant,
    slices: &mut Slices,
    judged: impl Fn(&Slice) -> Vec<f64>,
    generator: &Generator,
    live: &mut Live,
    interrupt: &Interrupt,
) -> Result<(), Interrupted> {
    let mut since = (start, generator.progress());
    while start.elapsed() < STEADY_LONGEST && !slices.are_steady() && !slices.are_silent() {
        live.watch(generator, Some(since.0 + SLICE), interrupt)?;
        let now = (Instant::now(), generator.progress());
        let slice = Slice::between(now.0 - since.0, &since.1, &now.1);
        slices.add(&slice, &judged(&slice));
        since = now;
    }
    Ok(())
}

/// What has to stand still: the throughput, where it is not given, and the mean latency.
fn judged(slice: &Slice, is_open_loop: bool) -> Vec<f64> {
    let throughput_per_s = (!is_open_loop).then(|| slice.throughput_per_s());
    throughput_per_s.into_iter().chain(slice.latency_ns_mean()).collect()
}

/// How long to wait for figures that stand still.
const STEADY_LONGEST: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_an_open_loop_only_the_latency_counts() {
        let slice = Slice { lasted: SLICE, answered: 100, latency_ns_sum: 50_000 };
        assert_eq!(judged(&slice, false), [500.0, 500.0]);
        assert_eq!(judged(&slice, true), [500.0]);
    }
}
