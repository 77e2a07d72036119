//! The load before the window.

use super::{MeasureError, Subject};
use crate::inputs::experiment::WarmUp;
use crate::process::tree::ProcessTable;
use crate::process::usage::{CpuTime, Reading};
use crate::record::{WarmUpRecord, as_f64};
use std::time::Instant;
use tollgate_load::{Generator, Progress, SLICE, Slice, Slices};

/// Lets the load go on for as long as the case says: for a time, or until it is steady.
pub(super) fn run(
    subject: &Subject<'_>,
    generator: &Generator,
) -> Result<WarmUpRecord, MeasureError> {
    // A schedule begins a little after the generator, which opens its connections first.
    let begin = generator.begins_at();
    let lead = begin.saturating_duration_since(Instant::now());
    let steady = match subject.load.warmup {
        WarmUp::For(time) => {
            subject.interrupt.sleep(lead + time)?;
            None
        }
        WarmUp::Steady => {
            subject.interrupt.sleep(lead)?;
            Some(is_steady_in_time(subject, generator)?)
        }
    };
    Ok(WarmUpRecord { lasted_s: begin.elapsed().as_secs_f64(), steady })
}

/// Waits until the figures stand still, or the time for that is over.
fn is_steady_in_time(subject: &Subject<'_>, generator: &Generator) -> Result<bool, MeasureError> {
    let longest = subject.load.warmup_longest();
    let mut slices = Slices::default();
    let start = Instant::now();
    let mut before = Look::take(subject, generator)?;
    while start.elapsed() < longest && !slices.are_steady() && !slices.are_silent() {
        subject.interrupt.sleep(SLICE)?;
        let now = Look::take(subject, generator)?;
        let slice = Slice::between(now.at - before.at, &before.progress, &now.progress);
        slices.add(&slice, &judged(&slice, before.cpu_us_until(&now), subject.load.rate.is_some()));
        before = now;
    }
    Ok(slices.are_steady())
}

/// What there is to see at one moment.
struct Look {
    at: Instant,
    progress: Progress,
    /// None for a subject without processes.
    system: Option<Reading>,
}

impl Look {
    fn take(subject: &Subject<'_>, generator: &Generator) -> Result<Self, MeasureError> {
        // This takes a while where the CPUs are spent, so it comes before the clock is read.
        let pids = subject.system.pids(&ProcessTable::read()?);
        let system = (!pids.is_empty()).then(|| Reading::take(&pids));
        Ok(Self { system, at: Instant::now(), progress: generator.progress() })
    }

    /// What the system used from this look to a later one; none where one of its processes ended.
    fn cpu_us_until(&self, later: &Self) -> Option<u64> {
        let spent = self.system.as_ref()?.until(later.system.as_ref()?);
        spent.ok().map(CpuTime::total_us)
    }
}

/// What has to stand still: throughput, where it is not given, and the system's CPU per request.
/// Where there is neither, it is the mean latency.
fn judged(slice: &Slice, cpu_us: Option<u64>, is_open_loop: bool) -> Vec<f64> {
    let throughput_per_s = (!is_open_loop).then(|| slice.throughput_per_s());
    let cpu_us_per_request = cpu_us.map(|us| as_f64(us) / as_f64(slice.answered.max(1)));
    let figures: Vec<f64> = throughput_per_s.into_iter().chain(cpu_us_per_request).collect();
    match figures.is_empty() {
        true => slice.latency_ns_mean().into_iter().collect(),
        false => figures,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throughput_and_cpu_are_judged_where_they_say_something() {
        // 100 answers in 200 ms, of 7 ns each.
        let slice = Slice { lasted: SLICE, answered: 100, latency_ns_sum: 700 };
        assert_eq!(judged(&slice, Some(1_200), false), [500.0, 12.0]);
        assert_eq!(judged(&slice, None, false), [500.0]);
        assert_eq!(judged(&slice, Some(1_200), true), [12.0]);
        assert_eq!(judged(&slice, None, true), [7.0]);
    }
}
