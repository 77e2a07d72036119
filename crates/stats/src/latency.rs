//! Latency histograms.

use std::fmt::{self, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{
    DeserializeError, Deserializer, Serializer as _, V2SerializeError, V2Serializer,
};

/// Range and precision of a latency histogram: 1 ns to 1 h, longer than any trial, within 0.1 %.
const LOWEST_NS: u64 = 1;
const HIGHEST_NS: u64 = 3_600_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// Samples that must lie on either side of a quantile, or chance decides it: p99.9 needs 10,000 samples, p99
/// needs 1,000, p50 needs 20.
const SAMPLES_BEYOND_QUANTILE: f64 = 10.0;

/// Tolerance for `q * count`, in samples: 0.9 has no exact binary form, and (1 - 0.9) * 100 must count as 10.
const SAMPLE_ROUNDING: f64 = 1e-6;

/// First bytes of an uncompressed V2 histogram.
const V2_COOKIE: [u8; 4] = [0x1c, 0x84, 0x93, 0x13];

/// Length in bytes of cookie, length of the counters, index offset, digits, lowest, highest and ratio.
const V2_HEADER_LEN: usize = 40;

/// Counters that range and precision take.
const COUNTERS: usize = 33_792;

/// Limit in bytes for a histogram in base64: a counter takes at most nine bytes.
const ENCODED_LEN_MAX: usize = (V2_HEADER_LEN + COUNTERS * 9).div_ceil(3) * 4;

/// Buckets of the reference implementation for this range: each doubles the reach of the one before, and 32 reach an
/// hour.
const BUCKETS: u32 = 32;

/// Parts of each bucket: the power of two that keeps three digits.
const SUB_BUCKETS: u32 = 2048;

/// Steps per half that the reference implementation's examples use.
const HGRM_TICKS_PER_HALF: u32 = 5;

/// Histogram of latencies from 1 ns to 1 h with three significant digits.
///
/// Takes about 270 KB. Recording never fails and never allocates. Latencies outside the range count at its
/// nearest end.
#[derive(Clone, PartialEq)]
pub struct LatencyHistogram {
    counts: Histogram<u64>,
}

/// One line of a percentile distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PercentileStep {
    /// Quantile, within 0 and 1.
    pub quantile: f64,
    /// Latency in nanoseconds that this share did not exceed, rounded up to the precision.
    pub value_ns: u64,
    /// Number of latencies up to that value.
    pub count: u64,
}

impl LatencyHistogram {
    pub fn new() -> Self {
        let counts = Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_DIGITS)
            .expect("the crate accepts these constants");
        Self { counts }
    }

    #[inline]
    pub fn record(&mut self, ns: u64) {
        // The crate's own saturation does not suffice: its last bucket reaches beyond an hour.
        self.counts.saturating_record(ns.clamp(LOWEST_NS, HIGHEST_NS));
    }

    pub fn record_n(&mut self, ns: u64, count: u64) {
        self.counts.saturating_record_n(ns.clamp(LOWEST_NS, HIGHEST_NS), count);
    }

    pub fn merge(&mut self, other: &Self) {
        self.counts.add(&other.counts).expect("all latency histograms have the same range");
    }

    pub fn count(&self) -> u64 {
        self.counts.len()
    }

    /// Returns the shortest latency, rounded down to the precision; `None` when empty.
    pub fn min_ns(&self) -> Option<u64> {
        (!self.counts.is_empty()).then(|| self.counts.min())
    }

    /// Returns the longest latency, rounded up to the precision; `None` when empty.
    pub fn max_ns(&self) -> Option<u64> {
        (!self.counts.is_empty()).then(|| self.counts.max())
    }

    /// Returns the mean, within the precision; `None` when empty.
    pub fn mean_ns(&self) -> Option<f64> {
        (!self.counts.is_empty()).then(|| self.counts.mean())
    }

    /// Returns the standard deviation of the population, within the precision; `None` when empty.
    pub fn stdev_ns(&self) -> Option<f64> {
        (!self.counts.is_empty()).then(|| self.counts.stdev())
    }

    /// Returns the number of latencies of at most `ns`, within the precision.
    pub fn count_up_to(&self, ns: u64) -> u64 {
        self.counts.count_between(0, ns.min(HIGHEST_NS))
    }

    /// Returns the latency that a share `q` of all requests did not exceed, rounded up to the precision; 0.99 is
    /// p99. `None` when fewer than 10 samples lie beyond the quantile on its shorter side.
    ///
    /// # Panics
    ///
    /// If `q` is not within 0 and 1.
    pub fn quantile_ns(&self, q: f64) -> Option<u64> {
        let value_ns = self.value_at(q)?;
        let samples_beyond = q.min(1.0 - q) * self.count() as f64;
        (samples_beyond + SAMPLE_ROUNDING >= SAMPLES_BEYOND_QUANTILE).then_some(value_ns)
    }

    /// As [`quantile_ns`](Self::quantile_ns), but `None` only when empty. For formats that always print a figure, and
    /// for decisions that err on the side of caution.
    ///
    /// # Panics
    ///
    /// If `q` is not within 0 and 1.
    pub fn value_at(&self, q: f64) -> Option<u64> {
        assert!((0.0..=1.0).contains(&q), "{q} is not a quantile");
        (!self.counts.is_empty()).then(|| self.counts.value_at_quantile(q))
    }

    /// Iterates over quantiles from 0 to 1 as `PercentileIterator` of the reference implementation does
    /// (github.com/HdrHistogram/HdrHistogram): `ticks_per_half` steps up to one half, as many up to three quarters, and
    /// so on. Steps only at recorded values. The last step is at 1; an empty histogram has none.
    ///
    /// # Panics
    ///
    /// If `ticks_per_half` is 0.
    pub fn percentiles(&self, ticks_per_half: u32) -> impl Iterator<Item = PercentileStep> + '_ {
        let steps = self.counts.iter_quantiles(ticks_per_half);
        let steps = steps.take_while(|_| self.count() > 0);
        steps.scan(0, |count, step| {
            *count += step.count_since_last_iteration();
            Some(PercentileStep {
                quantile: step.quantile_iterated_to(),
                value_ns: step.value_iterated_to(),
                count: *count,
            })
        })
    }

    /// Formats the percentile distribution in milliseconds, byte for byte as `outputPercentileDistribution` of the
    /// reference implementation with five steps per half. An empty histogram has a heading, and zeros at the foot.
    pub fn to_hgrm(&self) -> String {
        let mut text = String::new();
        self.write_hgrm(&mut text).expect("writing to a string does not fail");
        text
    }

    fn write_hgrm(&self, text: &mut String) -> fmt::Result {
        let ms = |ns: f64| ns / 1e6;
        let [value, percentile, count, inverse] =
            ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"];
        writeln!(text, "{value:>12} {percentile:>14} {count:>10} {inverse:>14}\n")?;
        for PercentileStep { quantile, value_ns, count } in self.percentiles(HGRM_TICKS_PER_HALF) {
            write!(text, "{:12.3} {quantile:2.12} {count:10}", ms(value_ns as f64))?;
            // The reference leaves the column out at 1, where it would be infinite.
            if quantile < 1.0 {
                write!(text, " {:14.2}", 1.0 / (1.0 - quantile))?;
            }
            text.push('\n');
        }
        let mean = self.mean_ns().map_or(0.0, ms);
        let deviation = self.stdev_ns().map_or(0.0, ms);
        let max = self.max_ns().map_or(0.0, |ns| ms(ns as f64));
        writeln!(text, "#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]")?;
        writeln!(text, "#[Max     = {max:12.3}, Total count    = {:12}]", self.count())?;
        writeln!(text, "#[Buckets = {BUCKETS:12}, SubBuckets     = {SUB_BUCKETS:12}]")
    }

    /// Encodes the histogram in the V2 format of HdrHistogram, uncompressed, in standard base64.
    pub fn to_v2_base64(&self) -> Result<String, EncodeError> {
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(&self.counts, &mut bytes)?;
        Ok(STANDARD.encode(bytes))
    }

    /// Decodes the text of [`Self::to_v2_base64`], or of another HdrHistogram of the same range.
    ///
    /// # Errors
    ///
    /// The text is too long, not base64, not exactly one V2 histogram, or one of another range or precision.
    pub fn from_v2_base64(text: &str) -> Result<Self, DecodeError> {
        if text.len() > ENCODED_LEN_MAX {
            return Err(DecodeError::TooLong { len: text.len() });
        }
        let bytes = STANDARD.decode(text)?;
        if !is_one_v2_histogram(&bytes) {
            return Err(DecodeError::NotOneHistogram);
        }
        let counts: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice())?;
        let (low, high, digits) = (counts.low(), counts.high(), counts.sigfig());
        if (low, high, digits) != (LOWEST_NS, HIGHEST_NS, SIGNIFICANT_DIGITS) {
            return Err(DecodeError::OtherRange { low, high, digits });
        }
        Ok(Self { counts })
    }
}

impl fmt::Debug for LatencyHistogram {
    /// Leaves out the tens of thousands of counters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatencyHistogram")
            .field("count", &self.count())
            .field("min_ns", &self.min_ns())
            .field("max_ns", &self.max_ns())
            .finish_non_exhaustive()
    }
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cannot encode the latency histogram")]
pub struct EncodeError(#[from] V2SerializeError);

#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    #[error("latency histogram has {len} bytes of base64, but the limit is {ENCODED_LEN_MAX}")]
    TooLong { len: usize },
    #[error("cannot decode the base64 of the latency histogram")]
    Base64(#[from] base64::DecodeError),
    /// Not exactly one uncompressed V2 histogram.
    #[error("expected exactly one histogram in HdrHistogram's uncompressed V2 format")]
    NotOneHistogram,
    #[error("cannot decode the latency histogram")]
    Format(#[from] DeserializeError),
    #[error(
        "histogram covers {low} to {high} with {digits} digits; \
         a latency histogram covers {LOWEST_NS} to {HIGHEST_NS} with {SIGNIFICANT_DIGITS}"
    )]
    OtherRange { low: u64, high: u64, digits: u8 },
}

/// Returns true if `bytes` are exactly one uncompressed V2 histogram.
///
/// The deserializer reserves the memory that the header declares (up to 4 GB) before it reads on, so the header must
/// be checked first.
fn is_one_v2_histogram(bytes: &[u8]) -> bool {
    let Some((header, counters)) = bytes.split_first_chunk::<V2_HEADER_LEN>() else {
        return false;
    };
    let counters_len = (counters.len() as u64).to_be_bytes();
    header[..4] == V2_COOKIE && header[4..8] == counters_len[4..]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed by an independent HdrHistogram; see the script beside it.
    const FOREIGN: &str = include_str!("../tests/fixtures/percentiles.hgrm");

    #[test]
    fn constants_match_the_range() {
        assert_eq!(LatencyHistogram::new().counts.distinct_values(), COUNTERS);
        // The first bucket has all its parts, each further one only its upper half.
        let counters = u64::from(BUCKETS + 1) * u64::from(SUB_BUCKETS / 2);
        assert_eq!(counters, COUNTERS as u64);
        // 2048 doubled 31 times is the first power beyond an hour of nanoseconds.
        assert!(u64::from(SUB_BUCKETS) << (BUCKETS - 2) <= HIGHEST_NS);
        assert!(u64::from(SUB_BUCKETS) << (BUCKETS - 1) > HIGHEST_NS);
    }

    #[test]
    fn hgrm_matches_an_independent_implementation() {
        let mut latency = LatencyHistogram::new();
        for k in 1..=200 {
            latency.record_n(k * k * 1_000, k);
        }
        latency.record(2);
        latency.record(2_147_483_647);
        assert_eq!(latency.to_hgrm(), FOREIGN);
    }

    #[test]
    fn hgrm_of_an_empty_histogram_has_heading_and_zeros() {
        let text = LatencyHistogram::new().to_hgrm();
        assert_eq!(text.lines().count(), 5);
        let max = "#[Max     =        0.000, Total count    =            0]";
        assert!(text.contains(max), "{text}");
    }
}
