//! Rate of an open loop over time, and its integral: the number of requests due until a time.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_stats::number::significant;

use tollgate_traffic::load_shape::MAX_RATE;

/// Limit of the stages of a rate.
pub const MAX_STAGES: usize = 1_000;

/// Requests per second over all threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rate {
    /// Above 0, at most [`MAX_RATE`].
    Constant(f64),
    /// One after the other, from the start of the schedule; 1 to [`MAX_STAGES`]. No request is due after the last.
    Stages(Vec<RateStage>),
    /// Times of single requests since the start, in nanoseconds, ascending; not empty.
    Recorded(Arc<[u64]>),
}

/// Part of a schedule in which the rate changes linearly.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateStage {
    /// 0 to [`MAX_RATE`].
    pub from_per_s: f64,
    /// 0 to [`MAX_RATE`].
    pub to_per_s: f64,
    /// Above zero.
    pub length: Duration,
}

const NS_PER_S: f64 = 1e9;

impl Rate {
    /// Highest rate; of recorded times, the mean.
    pub fn peak_per_s(&self) -> f64 {
        self.ends().1
    }

    /// Sum of the lengths of the stages; `None` for a constant rate, which has no end, and for recorded times, whose last
    /// request ends them.
    ///
    /// # Panics
    ///
    /// The sum is longer than a [`Duration`], which no valid plan has.
    pub fn length(&self) -> Option<Duration> {
        match self {
            Self::Constant(_) | Self::Recorded(_) => None,
            Self::Stages(stages) => Some(stages.iter().map(|stage| stage.length).sum()),
        }
    }

    /// Rate of each of several generators that send the same plan together. Recorded times are not divided.
    pub(crate) fn divided(&self, count: usize) -> Self {
        let part = |per_s: f64| per_s / count as f64;
        match self {
            Self::Constant(per_s) => Self::Constant(part(*per_s)),
            Self::Stages(stages) => {
                let divided = |stage: &RateStage| RateStage {
                    from_per_s: part(stage.from_per_s),
                    to_per_s: part(stage.to_per_s),
                    length: stage.length,
                };
                Self::Stages(stages.iter().map(divided).collect())
            }
            Self::Recorded(times) => Self::Recorded(Arc::clone(times)),
        }
    }

    /// Number of requests due before `at`, with a fraction: the integral of the rate.
    pub fn requests_until(&self, at: Duration) -> f64 {
        match self {
            Self::Constant(per_second) => per_second * at.as_secs_f64(),
            Self::Stages(stages) => {
                let (mut sum, mut left) = (0.0, at);
                for stage in stages {
                    sum += stage.requests_until(left.min(stage.length));
                    left = left.saturating_sub(stage.length);
                }
                sum
            }
            Self::Recorded(times) => {
                let at_ns = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
                times.partition_point(|time| *time < at_ns) as f64
            }
        }
    }

    /// The rate, or the lowest and the highest one, for people.
    pub fn describe(&self) -> String {
        match self.ends() {
            (low, high) if low == high => significant(high),
            (low, high) => format!("{} to {}", significant(low), significant(high)),
        }
    }

    /// Returns the reason why the rate is invalid.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let cannot = |rate: f64, least: &str| {
            format!("cannot send {rate} requests per second: choose {least} and at most {MAX_RATE}")
        };
        match self {
            Self::Constant(rate) if *rate > 0.0 && *rate <= MAX_RATE => Ok(()),
            Self::Constant(rate) => Err(cannot(*rate, "more than 0")),
            Self::Stages(stages) => {
                if !(1..=MAX_STAGES).contains(&stages.len()) {
                    let count = stages.len();
                    return Err(format!("cannot use {count} stages: choose 1 to {MAX_STAGES}"));
                }
                let mut rates = stages.iter().flat_map(|stage| [stage.from_per_s, stage.to_per_s]);
                if let Some(rate) = rates.find(|rate| !(0.0..=MAX_RATE).contains(rate)) {
                    return Err(cannot(rate, "0 or more"));
                }
                if stages.iter().any(|stage| stage.length.is_zero()) {
                    return Err("cannot use a stage without length".to_owned());
                }
                let mut lengths = stages.iter().map(|stage| stage.length);
                let length = lengths.try_fold(Duration::ZERO, Duration::checked_add);
                let Some(length) = length else {
                    return Err("cannot use stages of this length: choose shorter ones".to_owned());
                };
                // The first request is due at the start.
                if self.requests_until(length) > 0.0 {
                    Ok(())
                } else {
                    Err("cannot use stages without a request: choose a rate above 0".to_owned())
                }
            }
            Self::Recorded(times) if times.is_empty() || !times.is_sorted() => {
                Err("cannot use recorded times that are empty or not ascending".to_owned())
            }
            Self::Recorded(_) => Ok(()),
        }
    }

    /// Lowest and highest rate.
    fn ends(&self) -> (f64, f64) {
        match self {
            Self::Constant(rate) => (*rate, *rate),
            Self::Stages(stages) => {
                let rates = stages.iter().flat_map(|stage| [stage.from_per_s, stage.to_per_s]);
                rates
                    .fold((f64::INFINITY, 0.0), |(low, high), rate| (low.min(rate), high.max(rate)))
            }
            Self::Recorded(times) => {
                let length_s = times.last().map_or(0.0, |last| *last as f64 / NS_PER_S);
                let mean = if length_s > 0.0 { (times.len() - 1) as f64 / length_s } else { 0.0 };
                (mean, mean)
            }
        }
    }
}

impl RateStage {
    /// Number of requests due in the first `time` of the stage.
    fn requests_until(&self, time: Duration) -> f64 {
        let (seconds, length_s) = (time.as_secs_f64(), self.length.as_secs_f64());
        let at_per_s = self.from_per_s + (self.to_per_s - self.from_per_s) * seconds / length_s;
        f64::midpoint(self.from_per_s, at_per_s) * seconds
    }

    /// Time from the start of the stage until its integral is `requests`, in nanoseconds.
    fn time_ns(&self, requests: f64) -> f64 {
        if requests <= 0.0 {
            return 0.0;
        }
        let Self { from_per_s: from, to_per_s: to, length } = self;
        // Root of `from * t + slope / 2 * t * t = requests`, in the form without cancellation.
        let slope = (to - from) / length.as_secs_f64();
        let root = (from * from + 2.0 * slope * requests).max(0.0).sqrt();
        NS_PER_S * 2.0 * requests / (from + root)
    }
}

/// Times at which the integral of a rate reaches growing positions.
#[derive(Clone, Debug)]
pub(crate) enum DueTimes {
    Constant {
        gap_ns: f64,
    },
    Stages {
        stages: Vec<RateStage>,
        /// Index of the current one.
        current: usize,
        /// Requests and nanoseconds before it.
        requests_before: f64,
        before: Duration,
    },
    Recorded(Arc<[u64]>),
}

impl DueTimes {
    pub(crate) fn new(rate: &Rate) -> Self {
        match rate {
            Rate::Constant(per_second) => Self::Constant { gap_ns: NS_PER_S / per_second },
            Rate::Stages(stages) => Self::Stages {
                stages: stages.clone(),
                current: 0,
                requests_before: 0.0,
                before: Duration::ZERO,
            },
            Rate::Recorded(times) => Self::Recorded(Arc::clone(times)),
        }
    }

    /// Time of a position, in nanoseconds; infinite after the last stage. Positions must not decrease.
    pub(crate) fn at_ns(&mut self, position: f64) -> f64 {
        match self {
            // A product instead of a sum, so that rounding errors do not add up.
            Self::Constant { gap_ns } => position * *gap_ns,
            Self::Stages { stages, current, requests_before, before } => {
                while let Some(stage) = stages.get(*current) {
                    let requests = stage.requests_until(stage.length);
                    if position < *requests_before + requests {
                        let ns = stage.time_ns(position - *requests_before);
                        // Rounding must not carry a request into the next stage.
                        let ns = ns.min(stage.length.as_nanos() as f64);
                        return before.as_nanos() as f64 + ns;
                    }
                    *requests_before += requests;
                    *before += stage.length;
                    *current += 1;
                }
                f64::INFINITY
            }
            Self::Recorded(times) => {
                // Exact up to 2^53 ns: 104 days.
                times.get(position as usize).map_or(f64::INFINITY, |time| *time as f64)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(from_per_s: f64, to_per_s: f64, ms: u64) -> RateStage {
        RateStage { from_per_s, to_per_s, length: Duration::from_millis(ms) }
    }

    fn due_s(rate: &Rate, positions: &[f64]) -> Vec<f64> {
        let mut times = DueTimes::new(rate);
        positions.iter().map(|position| times.at_ns(*position) / NS_PER_S).collect()
    }

    #[test]
    fn ramp_is_due_as_the_root_of_its_integral() {
        // 0 to 100/s over 2 s: 25 t^2, so 100 requests, and the k-th is due at sqrt(k) / 5.
        let rate = Rate::Stages(vec![stage(0.0, 100.0, 2_000)]);
        assert_eq!(due_s(&rate, &[0.0, 1.0, 25.0, 64.0]), [0.0, 0.2, 1.0, 1.6]);
        assert_eq!(due_s(&rate, &[99.999, 100.0])[1], f64::INFINITY);
        let until =
            [500, 1_000, 2_000, 9_000].map(|ms| rate.requests_until(Duration::from_millis(ms)));
        assert_eq!(until, [6.25, 25.0, 100.0, 100.0]);
        // 100 to 0/s: 100 t - 25 t^2, which is 75 after a second and 99.75 after 1.9 s.
        let falling = Rate::Stages(vec![stage(100.0, 0.0, 2_000)]);
        for (position, seconds) in [(0.0, 0.0), (75.0, 1.0), (99.75, 1.9)] {
            assert!((due_s(&falling, &[position])[0] - seconds).abs() < 1e-9, "{position}");
        }
    }

    #[test]
    fn stages_follow_each_other() {
        // 10 requests in the first second, none in the next, 40 in the last two.
        let rate = Rate::Stages(vec![
            stage(10.0, 10.0, 1_000),
            stage(0.0, 0.0, 1_000),
            stage(20.0, 20.0, 2_000),
        ]);
        assert_eq!(due_s(&rate, &[0.0, 9.0, 10.0, 11.0, 30.0]), [0.0, 0.9, 2.0, 2.05, 3.0]);
        assert_eq!(due_s(&rate, &[50.0]), [f64::INFINITY]);
        assert_eq!((rate.length(), rate.peak_per_s()), (Some(Duration::from_secs(4)), 20.0));
        assert_eq!(rate.describe(), "0 to 20.0");
        assert_eq!(Rate::Constant(1_500.0).describe(), "1500");
    }

    #[test]
    fn recorded_times_are_due_as_they_are() {
        let rate = Rate::Recorded([0, 5, 5, 2_000_000_000].into());
        assert_eq!(due_s(&rate, &[0.0, 2.0, 3.0, 4.0]), [0.0, 5e-9, 2.0, f64::INFINITY]);
        let until =
            [0, 5, 6, 2_000_000_001].map(|ns| rate.requests_until(Duration::from_nanos(ns)));
        assert_eq!(until, [0.0, 1.0, 3.0, 4.0]);
        assert_eq!((rate.length(), rate.describe()), (None, "1.50".to_owned()));
        for times in [&[][..], &[2, 1]] {
            let error = Rate::Recorded(times.into()).validate().unwrap_err();
            assert!(error.starts_with("cannot use recorded times"), "{error}");
        }
    }

    #[test]
    fn invalid_rates_are_named() {
        let stages = |stages: &[RateStage]| Rate::Stages(stages.to_vec());
        for (rate, reason) in [
            (Rate::Constant(0.0), "cannot send 0 requests per second: choose more than 0"),
            (Rate::Constant(f64::NAN), "cannot send NaN requests"),
            (stages(&[]), "cannot use 0 stages: choose 1 to 1000"),
            (
                stages(&[stage(1.0, -1.0, 1)]),
                "cannot send -1 requests per second: choose 0 or more",
            ),
            (stages(&[stage(1.0, 2.0, 0)]), "cannot use a stage without length"),
            (stages(&[stage(0.0, 0.0, 5)]), "cannot use stages without a request"),
            (
                stages(&[RateStage { length: Duration::MAX, ..stage(1.0, 1.0, 1) }; 2]),
                "cannot use stages of this length",
            ),
        ] {
            let error = rate.validate().unwrap_err();
            assert!(error.starts_with(reason), "{error}");
        }
        assert_eq!(stages(&[stage(0.0, 1.0, 5)]).validate(), Ok(()));
    }
}
