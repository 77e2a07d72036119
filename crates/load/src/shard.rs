//! Results of several generators that send one plan together: their form between machines, and their sum.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tollgate_stats::LatencyHistogram;

use crate::distribution::{from_optional_distribution, optional_distribution};
use crate::summary::{Progress, Summary, TemplateSummary, ThreadUsage};

/// The complete summary of one generator. Histograms keep each count, and times in seconds their nanoseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShardSummary {
    summary: Summary,
    // Parts of a summary that a report prints in another form.
    warm_up: Progress,
    bytes_sent: u64,
    templates: Vec<TemplateSummary>,
    threads: Vec<ThreadUsage>,
    first_headers: Option<Vec<(String, String)>>,
    #[serde(
        serialize_with = "optional_distribution",
        deserialize_with = "from_optional_distribution"
    )]
    in_flight_ages: Option<LatencyHistogram>,
}

impl From<Summary> for ShardSummary {
    fn from(mut summary: Summary) -> Self {
        Self {
            warm_up: summary.warm_up,
            bytes_sent: summary.bytes_sent,
            templates: std::mem::take(&mut summary.templates),
            threads: std::mem::take(&mut summary.threads),
            first_headers: summary.first_headers.take(),
            in_flight_ages: summary.in_flight_ages.take(),
            summary,
        }
    }
}

impl From<ShardSummary> for Summary {
    fn from(shard: ShardSummary) -> Self {
        let ShardSummary {
            summary,
            warm_up,
            bytes_sent,
            templates,
            threads,
            first_headers,
            in_flight_ages,
        } = shard;
        let parts = Self { warm_up, bytes_sent, templates, threads, ..summary };
        Self { first_headers, in_flight_ages, ..parts }
    }
}

impl Summary {
    /// Adds the results of generators that measured at the same time. Counts and histograms are exact; the window is the
    /// longest one.
    pub fn sum(shards: impl IntoIterator<Item = Self>) -> Self {
        let mut sum = Self::default();
        for shard in shards {
            let window = sum.window.max(shard.window);
            sum.merge(shard);
            sum.window = window;
        }
        sum
    }
}

/// Result of one of several generators.
#[derive(Debug, Clone)]
pub struct GeneratorResult {
    /// Host of the generator.
    pub name: String,
    /// Its times are by the clock that all generators are compared by.
    pub summary: Summary,
    /// Limit of the error of these times.
    pub clock_error: Duration,
}

/// Limit of the difference between the windows of several generators: the largest difference of their starts or of their
/// ends, and what the clocks allow. `None` if a window has no start, or without generators.
pub fn window_skew(generators: &[GeneratorResult]) -> Option<Duration> {
    let opened_at = generators.iter().map(|one| one.summary.opened_at);
    let opened_at: Vec<Instant> = opened_at.collect::<Option<_>>()?;
    let lengths = generators.iter().map(|one| one.summary.window);
    let closed_at = opened_at.iter().zip(lengths).map(|(opened_at, length)| *opened_at + length);
    let spread = largest_difference(opened_at.iter().copied())?.max(largest_difference(closed_at)?);
    Some(spread + clock_skew(generators.iter().map(|one| one.clock_error)))
}

fn largest_difference(times: impl Iterator<Item = Instant> + Clone) -> Option<Duration> {
    Some(times.clone().max()? - times.min()?)
}

/// Limit of the difference between two hosts of times that are equal by their clocks: the two largest errors.
pub fn clock_skew(errors: impl IntoIterator<Item = Duration>) -> Duration {
    let (mut largest, mut second) = (Duration::ZERO, Duration::ZERO);
    for error in errors {
        second = second.max(error.min(largest));
        largest = largest.max(error);
    }
    largest + second
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;

    fn template(status: u16, latency: LatencyHistogram) -> TemplateSummary {
        TemplateSummary {
            statuses: [(status, latency.count())].into(),
            latency,
            ..TemplateSummary::default()
        }
    }

    fn summary(latency: &LatencyHistogram, status: u16) -> Summary {
        Summary {
            window: Duration::from_nanos(1_234_567_891),
            sent: latency.count() + 3,
            responses: latency.count(),
            warm_up: Progress { responses: 3, latency_ns_sum: 99, ..Progress::default() },
            oldest_in_flight: Some(Duration::from_micros(1_500)),
            in_flight_ages: Some(latency.clone()),
            latency: latency.clone(),
            lateness: Some(latency.clone()),
            templates: vec![template(status, latency.clone())],
            threads: vec![ThreadUsage {
                user: Duration::from_micros(7),
                system: Duration::from_micros(8),
                waited: Duration::from_micros(9),
                polled: Duration::ZERO,
                window: Duration::from_micros(1_234_567),
            }],
            first_headers: Some(vec![("Server".to_owned(), "a".to_owned())]),
            bytes_sent: 41,
            ..Summary::default()
        }
    }

    fn travelled(summary: Summary) -> Summary {
        let text = serde_json::to_string(&ShardSummary::from(summary)).unwrap();
        serde_json::from_str::<ShardSummary>(&text).unwrap().into()
    }

    #[test]
    fn merged_histogram_is_that_of_the_union_to_the_count() {
        let mut random = ChaCha8Rng::seed_from_u64(5);
        let mut union = LatencyHistogram::new();
        let mut shards = vec![LatencyHistogram::new(); 4];
        for number in 0..100_000 {
            // From nanoseconds to minutes, evenly over the logarithms.
            let exponent: f64 = random.random::<f64>() * 11.0;
            let ns = 10_f64.powf(exponent) as u64;
            union.record(ns);
            shards[number % 3].record(ns);
        }
        let sum = Summary::sum(shards.iter().map(|latency| travelled(summary(latency, 200))));
        assert!(sum.latency == union, "{:?} instead of {union:?}", sum.latency);
        assert!(sum.lateness == Some(union.clone()) && sum.templates[0].latency == union);
        assert_eq!(sum.latency.mean_ns(), union.mean_ns());
        assert_eq!(sum.latency.stdev_ns(), union.stdev_ns());
        assert_eq!((sum.responses, sum.sent), (100_000, 100_012));
        assert_eq!(sum.templates[0].statuses, [(200, 100_000)].into());
        assert_eq!((sum.warm_up.responses, sum.bytes_sent, sum.threads.len()), (12, 164, 4));
    }

    #[test]
    fn summary_is_the_same_on_the_other_side() {
        let mut latency = LatencyHistogram::new();
        latency.record_n(1_000, 5);
        let (there, here) = (summary(&latency, 403), travelled(summary(&latency, 403)));
        assert_eq!(format!("{there:?}"), format!("{here:?}"));
    }

    /// Generators with windows of these starts and lengths in milliseconds, and clock errors in microseconds.
    fn generators(windows: &[(u64, u64, u64)]) -> Vec<GeneratorResult> {
        let start = Instant::now();
        let generator = |&(opened_ms, length_ms, error_us): &(u64, u64, u64)| GeneratorResult {
            name: String::new(),
            summary: Summary {
                opened_at: Some(start + Duration::from_millis(opened_ms)),
                window: Duration::from_millis(length_ms),
                ..Summary::default()
            },
            clock_error: Duration::from_micros(error_us),
        };
        windows.iter().map(generator).collect()
    }

    #[test]
    fn skew_is_between_positions_of_windows_not_lengths() {
        let skew_us = |windows: &[(u64, u64, u64)]| {
            window_skew(&generators(windows)).map(|skew| skew.as_micros())
        };
        assert_eq!(skew_us(&[(0, 1_000, 0), (0, 1_000, 0)]), Some(0));
        // Equal lengths: the second window is 300 ms later.
        assert_eq!(skew_us(&[(0, 1_000, 0), (300, 1_000, 0), (100, 1_000, 0)]), Some(300_000));
        // The starts differ by 10 ms, the ends by 40 ms.
        assert_eq!(skew_us(&[(10, 1_030, 0), (0, 1_000, 0)]), Some(40_000));
        // The starts differ by 20 ms, the ends by 10 ms.
        assert_eq!(skew_us(&[(0, 1_000, 0), (20, 990, 0)]), Some(20_000));
        // Two clocks may be wrong in different directions.
        assert_eq!(skew_us(&[(0, 9, 20), (0, 9, 50), (0, 9, 30)]), Some(80));
        assert_eq!(skew_us(&[(0, 9, 50), (1, 9, 20)]), Some(1_070));
        assert_eq!(skew_us(&[]), None);
    }

    #[test]
    fn skew_of_a_load_without_a_window_is_unknown() {
        let mut generators = generators(&[(0, 9, 1), (0, 9, 1)]);
        generators[1].summary.opened_at = None;
        assert_eq!(window_skew(&generators), None);
    }

    #[test]
    fn window_of_a_sum_is_the_longest() {
        let window = |ms| Summary { window: Duration::from_millis(ms), ..Summary::default() };
        let sum = Summary::sum([window(5), window(9), window(7)]);
        assert_eq!(sum.window, Duration::from_millis(9));
    }
}
