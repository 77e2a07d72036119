//! The load of a trial and the window in it: for a time, or over a number of requests.

use super::edge::{Edge, Pids};
use super::{MeasureError, Subject, plan, warm_up};
use crate::inputs::experiment::{WarmUp, Window};
use crate::interrupt::{Interrupt, Interrupted};
use crate::process::idle_poll::IdlePoll;
use crate::record::WarmUpRecord;
use crate::trial::origin_counts;
use std::time::{Duration, Instant};
use tollgate_load::{Generator, Plan};

/// A window that has passed.
pub(super) struct Passed {
    /// What each of several origins had been asked when it began.
    pub(super) origins_before: Vec<u64>,
    pub(super) at_start: Edge,
    pub(super) at_end: Edge,
    /// It sends nothing more.
    pub(super) generator: Generator,
    pub(super) warm_up: WarmUpRecord,
    /// The longest time that the lab was late to wake up during the window.
    pub(super) lateness: Duration,
}

/// Warms up, and lets the window pass.
pub(super) fn run(subject: &Subject<'_>, awake: &IdlePoll) -> Result<Passed, MeasureError> {
    match subject.load.window() {
        Window::For(time) => over_time(subject, time, awake),
        Window::Requests { requests, within } => {
            over_requests(subject, requests.into(), within, awake)
        }
    }
}

/// The window is a part of a load that goes on before and after it.
fn over_time(
    subject: &Subject<'_>,
    time: Duration,
    awake: &IdlePoll,
) -> Result<Passed, MeasureError> {
    let generator = Generator::start(Plan { warm_up: true, ..plan(subject) })?;
    let warm_up = warm_up::run(subject, &generator)?;
    let origins_before = origin_counts::read(subject.origins)?;
    let pids = Pids::list(subject)?;
    let at_start = Edge::read(subject, &pids, awake)?;
    generator.open_window();
    let undisturbed = subject.interrupt.sleep(time);
    let at_end = Edge::read(subject, &pids, awake)?;
    generator.close_window();
    Ok(Passed { origins_before, at_start, at_end, generator, warm_up, lateness: undisturbed? })
}

/// The window holds all of a load that has so many requests and no others: it begins when the answers to
/// the warm-up are in, and ends with the answer to its last request. So what the servers use over it is
/// what these requests cost, to the first and the last of them.
fn over_requests(
    subject: &Subject<'_>,
    requests: u64,
    within: Duration,
    awake: &IdlePoll,
) -> Result<Passed, MeasureError> {
    let warm_up = warm_up_and_drain(subject)?;
    let origins_before = origin_counts::read(subject.origins)?;
    let pids = Pids::list(subject)?;
    let at_start = Edge::read(subject, &pids, awake)?;
    let generator =
        Generator::start(Plan { requests: Some(requests), warm_up: false, ..plan(subject) })?;
    let lateness = wait(&generator, within, subject.interrupt)?;
    let at_end = Edge::read(subject, &pids, awake)?;
    generator.close_window();
    Ok(Passed { origins_before, at_start, at_end, generator, warm_up, lateness })
}

/// Warms up and waits for the last answers, or the system would work on them in the window.
fn warm_up_and_drain(subject: &Subject<'_>) -> Result<WarmUpRecord, MeasureError> {
    if subject.load.warmup == WarmUp::For(Duration::ZERO) {
        return Ok(WarmUpRecord { lasted_s: 0.0, steady: None });
    }
    let generator = Generator::start(Plan { warm_up: true, ..plan(subject) })?;
    let warm_up = warm_up::run(subject, &generator)?;
    generator.drain();
    // What is not answered by then has timed out.
    wait(&generator, super::CONNECT_TIMEOUT + subject.load.timeout.0, subject.interrupt)?;
    generator.finish()?;
    Ok(warm_up)
}

/// Waits until a generator has ended by itself, but no longer than this. Tells the longest time that
/// this process was not let run when it should have been.
fn wait(
    generator: &Generator,
    longest: Duration,
    interrupt: &Interrupt,
) -> Result<Duration, Interrupted> {
    let begun = Instant::now();
    let mut latest = Duration::ZERO;
    let mut now = begun;
    loop {
        interrupt.check()?;
        let nap = LONGEST_NAP.min(longest.saturating_sub(now - begun));
        if nap.is_zero() || generator.wait(nap) {
            return Ok(latest);
        }
        let woken = Instant::now();
        latest = latest.max((woken - now).saturating_sub(nap));
        now = woken;
    }
}

/// How long a wish to stop may go unseen.
const LONGEST_NAP: Duration = Duration::from_millis(25);
