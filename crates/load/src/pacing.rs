//! Due times of requests: the schedule of an open loop, and which of its requests are due, queued or unsent.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::rate::{DueTimes, Rate};
use crate::replay::Replay;
use tollgate_traffic::load_shape::{OpenLoop, Spacing};

/// Due times of one thread's requests, counted from the start of the schedule. Endless. Clones repeat
/// the same times.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    positions: Positions,
    due_times: DueTimes,
}

/// Positions of one thread's requests among those of all threads, in units of requests: the integral of the rate until
/// they are due.
#[derive(Clone, Debug)]
enum Positions {
    Constant {
        next: u64,
        threads: u64,
    },
    Poisson {
        at: f64,
        mean_gap: f64,
        random: Box<ChaCha8Rng>,
    },
    /// Those of the sessions of a thread.
    Replay {
        next: usize,
        replay: Arc<Replay>,
        thread: usize,
        threads: usize,
    },
}

impl Schedule {
    /// Creates the schedule of one thread of an open loop. `seed`: that of Poisson gaps.
    ///
    /// At constant gaps the threads take turns. The sum of Poisson processes is a Poisson process, so
    /// each thread draws its own. A rate that changes stretches the gaps of a constant one.
    pub(crate) fn new(plan: &OpenLoop<Rate>, seed: u64, thread: usize, threads: usize) -> Self {
        let (thread, threads) = (thread as u64, threads as u64);
        let positions = match plan.spacing {
            Spacing::Constant => Positions::Constant { next: thread, threads },
            Spacing::Poisson => {
                let mut random = Box::new(ChaCha8Rng::seed_from_u64(seed));
                random.set_stream(thread);
                Positions::Poisson { at: 0.0, mean_gap: threads as f64, random }
            }
        };
        Self { positions, due_times: DueTimes::new(&plan.rate) }
    }

    /// Creates the schedule of the sessions of one thread: the n-th request of the replay is the n-th of the rate.
    pub(crate) fn of_replay(
        rate: &Rate,
        replay: &Arc<Replay>,
        thread: usize,
        threads: usize,
    ) -> Self {
        let positions = Positions::Replay { next: 0, replay: Arc::clone(replay), thread, threads };
        Self { positions, due_times: DueTimes::new(rate) }
    }

    /// Returns the next due time, rounded to the nanosecond. Times beyond 584 years saturate, which is never: so are
    /// those after the last stage of a rate.
    pub(crate) fn advance(&mut self) -> Duration {
        let position = match &mut self.positions {
            Positions::Constant { next, threads } => {
                let position = *next as f64;
                *next += *threads;
                position
            }
            Positions::Poisson { at, mean_gap, random } => {
                // Inverse of the exponential distribution. The draw is below 1, so its complement is
                // above 0.
                let draw: f64 = random.random();
                *at -= (1.0 - draw).ln() * *mean_gap;
                *at
            }
            Positions::Replay { next, replay, thread, threads } => {
                // After the last one, which the limit of the cursor excludes.
                let position = replay.next_of(*thread, *threads, *next).unwrap_or(replay.len());
                *next = position + 1;
                position as f64
            }
        };
        Duration::from_nanos(self.due_times.at_ns(position).round() as u64)
    }
}

/// Position of one thread in its schedule.
///
/// A request that is due while no connection is free is *queued*. Queued requests are not stored: one cursor of the
/// schedule marks the sent requests, a second one ahead of it the queued ones, so that memory is constant regardless of
/// how long a server stalls. Those of a replay wait in the queues of their sessions instead.
#[derive(Debug)]
pub(crate) struct Pacer {
    to_send: Cursor,
    to_queue: Cursor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) scheduled: Instant,
    pub(crate) was_queued: bool,
}

#[derive(Clone, Debug)]
struct Cursor {
    schedule: Schedule,
    start: Instant,
    /// Number of requests before this position.
    passed: u64,
    limit: Option<u64>,
    /// Requests from this time on are not due.
    until: Option<Instant>,
    /// Due time of the request at this position; `None` after the last one.
    next: Option<Instant>,
}

impl Pacer {
    /// `limit`: number of requests. `length`: time after which no request is due.
    pub(crate) fn new(
        schedule: Schedule,
        start: Instant,
        limit: Option<u64>,
        length: Option<Duration>,
    ) -> Self {
        let until = length.map(|length| start + length);
        let mut to_send = Cursor { schedule, start, passed: 0, limit, until, next: None };
        to_send.load_next();
        Self { to_queue: to_send.clone(), to_send }
    }

    /// Number of requests in all; `None` without a limit.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.to_send.limit
    }

    /// Due time of the next request that is not sent; `None` when all are.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.to_send.next
    }

    /// Due time of the next request that is neither sent nor queued.
    pub(crate) fn next_unqueued(&self) -> Option<Instant> {
        self.to_queue.next
    }

    /// Number of queued requests.
    pub(crate) fn queued(&self) -> u64 {
        self.to_queue.passed - self.to_send.passed
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.to_send.next.is_some_and(|next| next <= now)
    }

    /// Takes the next request if it is due.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Due> {
        let scheduled = self.to_send.next.filter(|next| *next <= now)?;
        let was_queued = self.queued() > 0;
        if !was_queued {
            self.to_queue.step();
        }
        self.to_send.step();
        Some(Due { scheduled, was_queued })
    }

    /// Queues all requests that are due. Calls `on_queued` for each with the time since it was due.
    pub(crate) fn queue(&mut self, now: Instant, mut on_queued: impl FnMut(Duration)) {
        while let Some(scheduled) = self.to_queue.next.filter(|next| *next <= now) {
            on_queued(now - scheduled);
            self.to_queue.step();
        }
    }

    pub(crate) fn end(&mut self) {
        self.to_send.next = None;
        self.to_queue = self.to_send.clone();
    }

    /// Returns the number of requests that are due and not sent, and the age of the oldest. One that is
    /// due for at most `grace` and was not queued is not counted: the end came before it was late.
    pub(crate) fn unsent(mut self, now: Instant, grace: Duration) -> (u64, Option<Duration>) {
        let oldest = self.to_send.next;
        self.queue(now.checked_sub(grace).unwrap_or(now), |_| {});
        let unsent = self.queued();
        (unsent, oldest.filter(|_| unsent > 0).map(|oldest| now - oldest))
    }
}

impl Cursor {
    fn step(&mut self) {
        self.passed += 1;
        self.load_next();
    }

    fn load_next(&mut self) {
        let is_over = self.limit.is_some_and(|limit| self.passed >= limit);
        self.next = if is_over { None } else { Some(self.start + self.schedule.advance()) };
        self.next = self.next.filter(|next| self.until.is_none_or(|until| *next < until));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rate::RateStage;

    const MS: Duration = Duration::from_millis(1);

    fn open_loop(rate: Rate, spacing: Spacing) -> OpenLoop<Rate> {
        OpenLoop { rate, spacing, connections: 1, connections_max: 1 }
    }

    fn constant(per_second: f64, thread: usize, threads: usize) -> Schedule {
        let plan = open_loop(Rate::Constant(per_second), Spacing::Constant);
        Schedule::new(&plan, 0, thread, threads)
    }

    fn poisson(per_second: f64, seed: u64, thread: usize, threads: usize) -> Schedule {
        let plan = open_loop(Rate::Constant(per_second), Spacing::Poisson);
        Schedule::new(&plan, seed, thread, threads)
    }

    fn due_times_ns(schedule: &mut Schedule, count: usize) -> Vec<u128> {
        (0..count).map(|_| schedule.advance().as_nanos()).collect()
    }

    #[test]
    fn constant_gaps_do_not_drift() {
        let mut schedule = constant(3.0, 0, 1);
        let times = due_times_ns(&mut schedule, 3_000_001);
        assert_eq!(times[..4], [0, 333_333_333, 666_666_667, 1_000_000_000]);
        assert_eq!(times[3_000_000], 1_000_000_000_000_000);
    }

    #[test]
    fn threads_of_a_constant_schedule_take_turns() {
        let due = |thread| due_times_ns(&mut constant(1000.0, thread, 2), 3);
        assert_eq!(due(0), [0, 2_000_000, 4_000_000]);
        assert_eq!(due(1), [1_000_000, 3_000_000, 5_000_000]);
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let n = 200_000_u32;
        let times = due_times_ns(&mut poisson(1000.0, 1, 1, 2), n as usize);
        let mut gaps: Vec<f64> =
            times.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 2e6).collect();
        gaps.sort_by(f64::total_cmp);
        // Kolmogorov-Smirnov: the largest distance from 1 - exp(-x) stays below 1.63 / sqrt(n) in 99 %
        // of all draws. The seed is fixed, so this is one draw.
        let distance = distance_from_exponential(&gaps);
        assert!(distance < 1.63 / (gaps.len() as f64).sqrt(), "{distance}");
    }

    /// Largest distance of sorted gaps from the exponential distribution with a mean of 1.
    fn distance_from_exponential(gaps: &[f64]) -> f64 {
        let share = |rank: usize| (rank as f64 + 0.5) / gaps.len() as f64;
        let distances =
            gaps.iter().enumerate().map(|(rank, gap)| share(rank) - (1.0 - (-gap).exp()));
        distances.map(f64::abs).fold(0.0, f64::max)
    }

    #[test]
    fn seeds_and_threads_draw_different_gaps_and_clones_equal_ones() {
        let due = |seed, thread| poisson(10.0, seed, thread, 2);
        let first = due_times_ns(&mut due(1, 0), 5);
        assert_eq!(first, due_times_ns(&mut due(1, 0).clone(), 5));
        assert_ne!(first, due_times_ns(&mut due(2, 0), 5));
        assert_ne!(first, due_times_ns(&mut due(1, 1), 5));
    }

    /// Due times of generators of two threads each, together, until a time.
    fn shards(
        rate: f64,
        spacing: Spacing,
        seed: u64,
        count: usize,
        until: Duration,
    ) -> Vec<Duration> {
        let plan = open_loop(Rate::Constant(rate), spacing);
        let threads = (0..count).flat_map(|index| {
            let shard = crate::Shard { index, count };
            [0, 1].map(|thread| shard.thread(thread, 2))
        });
        let mut all: Vec<Duration> = threads
            .flat_map(|(thread, threads)| {
                let mut schedule = Schedule::new(&plan, seed, thread, threads);
                std::iter::from_fn(move || Some(schedule.advance()).filter(|at| *at < until))
            })
            .collect();
        all.sort();
        all
    }

    #[test]
    fn constant_gaps_of_generators_are_those_of_one() {
        let until = Duration::from_secs(3);
        let one: Vec<Duration> = shards(777.0, Spacing::Constant, 0, 1, until);
        assert_eq!(one.len(), 2_331);
        for count in [2, 3, 7] {
            assert_eq!(shards(777.0, Spacing::Constant, 0, count, until), one);
        }
    }

    #[test]
    fn rate_of_poisson_generators_adds_up_and_gaps_are_exponential() {
        let until = Duration::from_secs(100);
        for (count, seed) in [(2, 1), (4, 2), (16, 3)] {
            let times = shards(10_000.0, Spacing::Poisson, seed, count, until);
            // A million are expected, with a standard deviation of 1,000: 0.1 %.
            assert!((997_000..1_003_000).contains(&times.len()), "{}", times.len());
            let gap = |pair: &[Duration]| (pair[1] - pair[0]).as_secs_f64() * 10_000.0;
            let mut gaps: Vec<f64> = times.windows(2).map(gap).collect();
            // Independent gaps: the product of neighbours has the mean 1, with a standard deviation of 0.0017.
            let products: f64 = gaps.windows(2).map(|pair| pair[0] * pair[1]).sum();
            let correlation = products / (gaps.len() - 1) as f64;
            assert!((correlation - 1.0).abs() < 0.01, "{correlation}");
            gaps.sort_by(f64::total_cmp);
            // Kolmogorov's bound at 1 %.
            assert!(distance_from_exponential(&gaps) < 1.63 / (gaps.len() as f64).sqrt());
        }
    }

    fn stages() -> impl Strategy<Value = Vec<RateStage>> {
        let stage =
            (0..5_000_u32, 0..5_000_u32, 1..3_000_u64).prop_map(|(from, to, ms)| RateStage {
                from_per_s: f64::from(from),
                to_per_s: f64::from(to),
                length: Duration::from_millis(ms),
            });
        prop::collection::vec(stage, 1..5)
    }

    proptest! {
        #[test]
        fn requests_due_until_any_time_are_the_integral_of_the_rate(
            stages in stages(), threads in 1..4_usize, share in 0.0..1.0_f64,
        ) {
            let rate = Rate::Stages(stages);
            let plan = open_loop(rate.clone(), Spacing::Constant);
            let length = rate.length().unwrap();
            let mut all: Vec<Duration> = (0..threads)
                .flat_map(|thread| {
                    let mut schedule = Schedule::new(&plan, 0, thread, threads);
                    std::iter::from_fn(move || Some(schedule.advance()).filter(|at| *at <= length))
                })
                .collect();
            all.sort();
            let until = length.mul_f64(share);
            let due = all.iter().filter(|at| **at < until).count() as f64;
            let planned = rate.requests_until(until);
            // Due times are rounded to a nanosecond, which at 5,000/s is far below a request.
            prop_assert!((planned - 1e-3..planned + 1.001).contains(&due), "{due} of {planned}");
            prop_assert_eq!(all.len() as f64, rate.requests_until(length).ceil());
        }
    }

    #[test]
    fn poisson_gaps_of_a_ramp_are_exponential_in_its_integral() {
        let length = Duration::from_secs(100);
        let rate = Rate::Stages(vec![RateStage { from_per_s: 0.0, to_per_s: 2_000.0, length }]);
        let mut schedule = Schedule::new(&open_loop(rate.clone(), Spacing::Poisson), 3, 0, 1);
        let times: Vec<Duration> =
            std::iter::from_fn(|| Some(schedule.advance()).filter(|at| *at < length)).collect();
        // 100,000 are expected, with a standard deviation of 316.
        assert!((99_000..101_000).contains(&times.len()), "{}", times.len());
        let positions: Vec<f64> = times.iter().map(|at| rate.requests_until(*at)).collect();
        let mut gaps: Vec<f64> = positions.windows(2).map(|pair| pair[1] - pair[0]).collect();
        gaps.sort_by(f64::total_cmp);
        assert!(distance_from_exponential(&gaps) < 1.63 / (gaps.len() as f64).sqrt());
    }

    /// One request per millisecond.
    fn pacer(start: Instant, limit: Option<u64>) -> Pacer {
        Pacer::new(constant(1000.0, 0, 1), start, limit, None)
    }

    fn due(scheduled: Instant, was_queued: bool) -> Option<Due> {
        Some(Due { scheduled, was_queued })
    }

    #[test]
    fn requests_are_taken_only_when_due() {
        let start = Instant::now();
        let mut pacer = pacer(start, None);
        assert_eq!(pacer.take(start), due(start, false));
        assert_eq!(pacer.take(start + MS / 2), None);
        assert_eq!(pacer.next(), Some(start + MS));
        assert_eq!(pacer.take(start + 2 * MS), due(start + MS, false));
        assert_eq!(pacer.take(start + 2 * MS), due(start + 2 * MS, false));
        assert_eq!(pacer.take(start + 2 * MS), None);
    }

    #[test]
    fn queued_requests_keep_their_due_time_and_are_reported_once() {
        let start = Instant::now();
        let mut pacer = pacer(start, None);
        let mut queued = Vec::new();
        pacer.queue(start + MS, |late| queued.push(late));
        pacer.queue(start + MS, |late| queued.push(late));
        pacer.queue(start + 2 * MS, |late| queued.push(late));
        assert_eq!(queued, [MS, Duration::ZERO, Duration::ZERO]);
        assert_eq!(pacer.next_unqueued(), Some(start + 3 * MS));
        let now = start + 5 * MS;
        for (index, was_queued) in [(0, true), (1, true), (2, true), (3, false)] {
            assert_eq!(pacer.take(now), due(start + index * MS, was_queued));
        }
        assert_eq!(pacer.next_unqueued(), Some(start + 4 * MS));
    }

    #[test]
    fn schedule_ends_at_its_limit_and_counts_unsent_requests() {
        let start = Instant::now();
        let mut short = pacer(start, Some(2));
        assert!(short.take(start).is_some());
        assert!(short.take(start + 9 * MS).is_some());
        assert_eq!((short.take(start + 9 * MS), short.next()), (None, None));
        let none = Duration::ZERO;
        assert_eq!(short.unsent(start + 9 * MS, none), (0, None));

        assert_eq!(pacer(start, Some(5)).unsent(start + 2 * MS, none), (3, Some(2 * MS)));
        assert_eq!(pacer(start, Some(2)).unsent(start + 9 * MS, none), (2, Some(9 * MS)));
        let mut started = pacer(start, None);
        started.take(start);
        started.queue(start + 3 * MS, |_| {});
        assert_eq!(started.unsent(start + 3 * MS, none), (3, Some(2 * MS)));
    }

    #[test]
    fn requests_of_a_time_are_its_product_with_the_rate_rounded_up() {
        let start = Instant::now();
        for (per_second, ms, count) in [(1000.0, 1, 1), (1000.0, 30, 30), (999.0, 10, 10)] {
            let schedule = constant(per_second, 0, 1);
            let length = Some(Duration::from_millis(ms));
            let pacer = Pacer::new(schedule, start, None, length);
            assert_eq!(pacer.unsent(start + 99 * MS, Duration::ZERO).0, count, "{per_second}");
        }
    }

    #[test]
    fn request_due_at_the_end_is_not_unsent() {
        let start = Instant::now();
        // Due at 0, 1, 2 and 3 ms.
        assert_eq!(pacer(start, Some(1)).unsent(start, MS), (0, None));
        assert_eq!(pacer(start, Some(1)).unsent(start + MS / 2, MS), (0, None));
        assert_eq!(pacer(start, Some(1)).unsent(start + 2 * MS, MS), (1, Some(2 * MS)));
        assert_eq!(pacer(start, None).unsent(start + 3 * MS, MS), (3, Some(3 * MS)));
        // All connections were in use when they became due.
        let mut queued = pacer(start, None);
        queued.queue(start + 3 * MS, |_| {});
        assert_eq!(queued.unsent(start + 3 * MS, MS), (4, Some(3 * MS)));
    }
}
