//! Goals: what a subject has to keep, as `p99<5ms,errors<0.1%`. Pure.

mod goal;
mod parse;
mod sample;

pub use parse::SloError;
pub use sample::{Sample, Waiting};

use goal::{Figure, Goal};
use std::fmt;

/// Everything that a subject has to keep at the same time.
#[derive(Debug, Clone, PartialEq)]
pub struct Slo {
    goals: Vec<Goal>,
}

/// A quantile is decided by at least this many requests beyond it, as everywhere in our figures.
const REQUESTS_BEYOND: f64 = 10.0;

impl Slo {
    /// How many requests a trial needs, so that every quantile is decided by more than a few.
    pub fn requests_min(&self) -> u64 {
        let needs = self.goals.iter().map(|goal| match goal.figure {
            Figure::Quantile { share, .. } => (REQUESTS_BEYOND / (1.0 - share)).round(),
            Figure::Errors | Figure::Unexpected => (1.0 / goal.limit.value).ceil(),
            Figure::Mean | Figure::Max => 0.0,
        });
        // Shares below a millionth are refused, so this is a number of at most eight digits.
        needs.fold(1.0, f64::max) as u64
    }

    /// Why the goals are broken, a line each; empty when they are kept.
    pub fn broken_by(&self, sample: &Sample<'_>) -> Vec<String> {
        self.goals.iter().filter_map(|goal| goal.broken_by(sample)).collect()
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, goal) in self.goals.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let Goal { figure, relation, limit } = goal;
            write!(formatter, "{comma}{}{}{}", figure.name(), relation.sign(), limit.text)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tollgate_stats::LatencyHistogram;

    fn slo(text: &str) -> Slo {
        text.parse().unwrap()
    }

    #[test]
    fn a_trial_needs_ten_requests_beyond_each_quantile() {
        assert_eq!(slo("p99<5ms").requests_min(), 1_000);
        assert_eq!(slo("p99.9<5ms,p50<1ms").requests_min(), 10_000);
        assert_eq!(slo("mean<5ms,errors<0.1%").requests_min(), 1_000);
    }

    /// So many requests of a millisecond, and so many of ten.
    fn latencies(fast: u64, slow: u64) -> LatencyHistogram {
        let mut latency = LatencyHistogram::new();
        latency.record_n(1_000_000, fast);
        latency.record_n(10_000_000, slow);
        latency
    }

    fn sample(latency: &LatencyHistogram) -> Sample<'_> {
        let answered = latency.count();
        Sample { latency, waiting: vec![], answered, unexpected: 0, failed: 0 }
    }

    fn broken(goals: &str, sample: &Sample<'_>) -> Vec<String> {
        slo(goals).broken_by(sample)
    }

    #[test]
    fn one_in_a_hundred_may_lie_beyond_p99() {
        assert_eq!(broken("p99<5ms", &sample(&latencies(9_900, 100))), [""; 0]);
        assert_eq!(
            broken("p99<5ms", &sample(&latencies(9_890, 110))),
            ["1.1 % took longer than 5ms"]
        );
        assert_eq!(broken("p99.9<5ms", &sample(&latencies(9_990, 10))), [""; 0]);
        assert_eq!(
            broken("p99.9<5ms", &sample(&latencies(9_989, 11))),
            ["0.1 % took longer than 5ms"]
        );
    }

    #[test]
    fn mean_and_max_look_at_all_latencies() {
        // 9 of 1 ms and 1 of 10 ms: 1.9 ms.
        let latency = latencies(9, 1);
        assert_eq!(broken("mean<2ms", &sample(&latency)), [""; 0]);
        assert_eq!(broken("mean<1.8ms", &sample(&latency)), ["the mean was 1.90 ms"]);
        // One value is its own mean, to a thousandth.
        let mean_ms = latencies(1, 0).mean_ns().unwrap() / 1e6;
        let at = |relation: &str| format!("mean{relation}{mean_ms}ms");
        assert_eq!(broken(&at("<="), &sample(&latencies(1, 0))), [""; 0]);
        assert_eq!(broken(&at("<"), &sample(&latencies(1, 0))), ["the mean was 1.00 ms"]);
        assert_eq!(broken("max<11ms", &sample(&latency)), [""; 0]);
        assert_eq!(broken("max<5ms", &sample(&latency)), ["1 request took longer than 5ms"]);
    }

    #[test]
    fn requests_that_still_wait_count_as_old_as_the_oldest() {
        let latency = latencies(989, 0);
        let with = |requests, oldest_ms: f64| Sample {
            waiting: vec![Waiting { requests, oldest_ns: oldest_ms * 1e6 }],
            ..sample(&latency)
        };
        assert_eq!(broken("p99<5ms", &with(11, 4.9)), [""; 0]);
        assert_eq!(broken("p99<5ms", &with(11, 5.1)), ["1.1 % took longer than 5ms"]);
        // 989 of 1 ms and 11 of 91 ms are 1.99 ms.
        assert_eq!(broken("mean<1.9ms", &with(11, 91.0)), ["the mean was 1.99 ms"]);
        assert_eq!(broken("max<5ms", &with(2, 6.0)), ["2 requests took longer than 5ms"]);
    }

    #[test]
    fn errors_are_failures_and_unexpected_answers() {
        let latency = latencies(1_000, 0);
        let with = |unexpected, failed| Sample { unexpected, failed, ..sample(&latency) };
        // 1 of 1,000 is 0.1 %, which is not below it.
        assert_eq!(broken("errors<0.1%", &with(1, 0)), ["0.1 % got no expected answer"]);
        assert_eq!(broken("errors<=0.1%", &with(1, 0)), [""; 0]);
        assert_eq!(broken("errors<=0.1%", &with(2, 0)), ["0.2 % got no expected answer"]);
        assert_eq!(broken("errors<0.2%", &with(1, 0)), [""; 0]);
        assert_eq!(broken("errors<0.2%", &with(1, 2)), ["0.3 % got no expected answer"]);
        assert_eq!(broken("unexpected<0.2%,errors<50%", &with(1, 500)), [""; 0]);
        assert_eq!(
            broken("unexpected<0.2%", &with(2, 0)),
            ["0.2 % of the answers were unexpected"]
        );
        // A system that refuses everything at once keeps no goal.
        assert_eq!(broken("p99<5ms", &with(1_000, 0)), ["100 % got no expected answer"]);
    }

    #[test]
    fn nothing_answered_keeps_nothing() {
        let none = LatencyHistogram::new();
        for goal in ["p99<5ms", "mean<5ms", "max<5ms", "errors<1%", "unexpected<=100%"] {
            assert!(!broken(goal, &sample(&none)).is_empty(), "{goal}");
        }
    }

    proptest! {
        #[test]
        fn a_goal_that_is_kept_is_kept_with_a_higher_limit(fast in 0u64..5_000, slow in 0u64..200, waiting in 0u64..50, low in 1u32..50, more in 0u32..50) {
            let latency = latencies(fast, slow);
            let waiting = vec![Waiting { requests: waiting, oldest_ns: 20e6 }];
            let sample = Sample { waiting, ..sample(&latency) };
            for figure in ["p50", "p90", "p99", "p99.9", "mean", "max"] {
                let at = |limit: u32| broken(&format!("{figure}<{limit}ms,errors<100%"), &sample);
                prop_assert!(!at(low).is_empty() || at(low + more).is_empty());
            }
        }
    }
}
