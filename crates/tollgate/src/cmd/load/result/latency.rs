//! A distribution of times as it is told.

use crate::cmd::load::millis::{ms, ms_of};
use schemars::JsonSchema;
use serde::Serialize;
use tollgate_stats::{EncodeError, LatencyHistogram};

/// A distribution of times, in milliseconds.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Latency {
    /// How many times it is made of.
    pub(crate) count: u64,
    /// The mean; null without any time, as all that follow.
    pub(crate) mean_ms: Option<f64>,
    /// The standard deviation.
    pub(crate) stddev_ms: Option<f64>,
    /// The shortest.
    pub(crate) min_ms: Option<f64>,
    /// The longest.
    pub(crate) max_ms: Option<f64>,
    /// What shares of all times did not exceed.
    pub(crate) quantiles: Quantiles,
    /// The whole distribution in nanoseconds: HdrHistogram's V2 format, uncompressed, in base64.
    pub(crate) histogram_v2_base64: String,
}

/// Quantiles in milliseconds; null where fewer than ten times lie beyond.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Quantiles {
    /// The median.
    pub(crate) p50_ms: Option<f64>,
    /// 75 %.
    pub(crate) p75_ms: Option<f64>,
    /// 90 %.
    pub(crate) p90_ms: Option<f64>,
    /// 95 %.
    pub(crate) p95_ms: Option<f64>,
    /// 99 %.
    pub(crate) p99_ms: Option<f64>,
    /// 99.9 %.
    #[serde(rename = "p99.9_ms")]
    pub(crate) p99_9_ms: Option<f64>,
    /// 99.99 %.
    #[serde(rename = "p99.99_ms")]
    pub(crate) p99_99_ms: Option<f64>,
}

impl Latency {
    /// Reads a histogram of nanoseconds.
    ///
    /// # Errors
    ///
    /// It cannot be encoded.
    pub(crate) fn of(histogram: &LatencyHistogram) -> Result<Self, EncodeError> {
        let quantile_ms = |q| histogram.quantile_ns(q).map(ms);
        Ok(Self {
            count: histogram.count(),
            mean_ms: histogram.mean_ns().map(ms_of),
            stddev_ms: histogram.stdev_ns().map(ms_of),
            min_ms: histogram.min_ns().map(ms),
            max_ms: histogram.max_ns().map(ms),
            quantiles: Quantiles {
                p50_ms: quantile_ms(0.5),
                p75_ms: quantile_ms(0.75),
                p90_ms: quantile_ms(0.9),
                p95_ms: quantile_ms(0.95),
                p99_ms: quantile_ms(0.99),
                p99_9_ms: quantile_ms(0.999),
                p99_99_ms: quantile_ms(0.9999),
            },
            histogram_v2_base64: histogram.to_v2_base64()?,
        })
    }

    /// The figures by their names, without the unit, in the order in which they are read.
    pub(crate) fn figures_ms(&self) -> [(&'static str, Option<f64>); 11] {
        let quantiles = &self.quantiles;
        [
            ("mean", self.mean_ms),
            ("stddev", self.stddev_ms),
            ("min", self.min_ms),
            ("p50", quantiles.p50_ms),
            ("p75", quantiles.p75_ms),
            ("p90", quantiles.p90_ms),
            ("p95", quantiles.p95_ms),
            ("p99", quantiles.p99_ms),
            ("p99.9", quantiles.p99_9_ms),
            ("p99.99", quantiles.p99_99_ms),
            ("max", self.max_ms),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::load::examples::latencies;

    #[test]
    fn quantiles_with_less_than_ten_times_beyond_are_null() {
        let latency = Latency::of(&latencies()).unwrap();
        assert_eq!(latency.count, 901);
        // Kept to three digits: 5,500 us are within 0.1 %.
        assert!((latency.quantiles.p50_ms.unwrap() - 5.5).abs() < 0.0055);
        assert!((latency.quantiles.p95_ms.unwrap() - 9.55).abs() < 0.00955);
        assert_eq!(latency.quantiles.p99_ms, None);
        assert!((latency.mean_ms.unwrap() - 5.5).abs() < 0.0055);
    }

    #[test]
    fn nothing_is_null_and_not_zero() {
        let latency = Latency::of(&LatencyHistogram::new()).unwrap();
        assert_eq!(latency.count, 0);
        assert!(latency.figures_ms().iter().all(|(_, value)| value.is_none()));
    }
}
