//! Times and distributions of times as results write them, and how they are read back.

use std::time::Duration;

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tollgate_stats::{EncodeError, LatencyHistogram};

/// A distribution of times as reports print it, in milliseconds.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Distribution {
    /// Number of times.
    pub(crate) count: u64,
    /// Mean; null if the count is 0, as the next three.
    mean_ms: Option<f64>,
    /// Standard deviation of the whole population.
    stddev_ms: Option<f64>,
    /// Minimum.
    min_ms: Option<f64>,
    /// Maximum.
    max_ms: Option<f64>,
    /// Quantiles; null if fewer than ten times lie beyond.
    quantiles: Quantiles,
    /// The histogram in nanoseconds: HdrHistogram's V2 format, uncompressed, in base64.
    histogram_v2_base64: String,
}

/// Quantiles in milliseconds.
#[derive(Debug, Serialize, JsonSchema)]
struct Quantiles {
    /// Median.
    p50_ms: Option<f64>,
    /// 75th percentile.
    p75_ms: Option<f64>,
    /// 90th percentile.
    p90_ms: Option<f64>,
    /// 95th percentile.
    p95_ms: Option<f64>,
    /// 99th percentile.
    p99_ms: Option<f64>,
    /// 99.9th percentile.
    #[serde(rename = "p99.9_ms")]
    p99_9_ms: Option<f64>,
    /// 99.99th percentile.
    #[serde(rename = "p99.99_ms")]
    p99_99_ms: Option<f64>,
}

impl Distribution {
    pub(crate) fn new(histogram: &LatencyHistogram) -> Result<Self, EncodeError> {
        let quantile_ms = |q| histogram.quantile_ns(q).map(ns_to_ms);
        Ok(Self {
            count: histogram.count(),
            mean_ms: histogram.mean_ns().map(|ns| ns / NS_PER_MS),
            stddev_ms: histogram.stdev_ns().map(|ns| ns / NS_PER_MS),
            min_ms: histogram.min_ns().map(ns_to_ms),
            max_ms: histogram.max_ns().map(ns_to_ms),
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

    /// Names and values in the order of tables.
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

pub(crate) const NS_PER_MS: f64 = 1e6;

pub(crate) fn ns_to_ms(ns: u64) -> f64 {
    ns as f64 / NS_PER_MS
}

/// The part of a [`Distribution`] that the others are derived from.
#[derive(Deserialize)]
struct EncodedHistogram {
    histogram_v2_base64: String,
}

pub(crate) fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

pub(crate) fn micros<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(time.as_micros()).map_err(S::Error::custom)?)
}

pub(crate) fn optional_ms<S: Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64() * 1e3).serialize(serializer)
}

pub(crate) fn distribution<S: Serializer>(
    histogram: &LatencyHistogram,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    Distribution::new(histogram).map_err(S::Error::custom)?.serialize(serializer)
}

pub(crate) fn optional_distribution<S: Serializer>(
    histogram: &Option<LatencyHistogram>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let distribution = histogram.as_ref().map(Distribution::new).transpose();
    distribution.map_err(S::Error::custom)?.serialize(serializer)
}

pub(crate) fn from_seconds<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Duration, D::Error> {
    Duration::try_from_secs_f64(f64::deserialize(deserializer)?).map_err(D::Error::custom)
}

pub(crate) fn from_micros<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Duration, D::Error> {
    u64::deserialize(deserializer).map(Duration::from_micros)
}

pub(crate) fn from_optional_ms<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    let ms = Option::<f64>::deserialize(deserializer)?;
    let time = ms.map(|ms| Duration::try_from_secs_f64(ms / 1e3)).transpose();
    time.map_err(D::Error::custom)
}

pub(crate) fn from_distribution<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<LatencyHistogram, D::Error> {
    let encoded = EncodedHistogram::deserialize(deserializer)?;
    LatencyHistogram::from_v2_base64(&encoded.histogram_v2_base64).map_err(D::Error::custom)
}

pub(crate) fn from_optional_distribution<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<LatencyHistogram>, D::Error> {
    let encoded = Option::<EncodedHistogram>::deserialize(deserializer)?;
    let histogram =
        encoded.map(|encoded| LatencyHistogram::from_v2_base64(&encoded.histogram_v2_base64));
    histogram.transpose().map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_with_less_than_ten_times_beyond_are_null() {
        let mut histogram = LatencyHistogram::new();
        for us in (1_000..=10_000).step_by(10) {
            histogram.record(us * 1_000);
        }
        let latency = Distribution::new(&histogram).unwrap();
        assert_eq!(latency.count, 901);
        // Three digits: 5,500 us are within 0.1 %.
        assert!((latency.quantiles.p50_ms.unwrap() - 5.5).abs() < 0.0055);
        assert!((latency.quantiles.p95_ms.unwrap() - 9.55).abs() < 0.00955);
        assert_eq!(latency.quantiles.p99_ms, None);
        assert!((latency.mean_ms.unwrap() - 5.5).abs() < 0.0055);
        let empty = Distribution::new(&LatencyHistogram::new()).unwrap();
        assert!(empty.figures_ms().iter().all(|(_, value)| value.is_none()));
    }
}
