//! Latencies of one trial, in constant memory however long it runs.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{
    DeserializeError, Deserializer, Serializer as _, V2SerializeError, V2Serializer,
};

/// The shortest latency that is told apart from others, in nanoseconds.
const LOWEST_NS: u64 = 1;

/// The longest latency that is told apart from others, in nanoseconds: one hour, longer than any
/// trial may last.
const HIGHEST_NS: u64 = 3_600_000_000_000;

/// Every value is kept to within 0.1 % of itself.
const SIGNIFICANT_DIGITS: u8 = 3;

/// A quantile is only told when this many samples lie on either side of it. With fewer, it is
/// decided by a handful of requests: p99.9 needs 10,000 samples, p99 needs 1,000, p50 needs 20.
const SAMPLES_BEYOND_QUANTILE: f64 = 10.0;

/// How far `q * count` may stray from the decimal number that was meant, in samples. 0.9 has no
/// exact binary form, and (1 - 0.9) * 100 must still count as 10.
const SAMPLE_ROUNDING: f64 = 1e-6;

/// What an uncompressed V2 histogram begins with.
const V2_COOKIE: [u8; 4] = [0x1c, 0x84, 0x93, 0x13];

/// Cookie, length of the counters, index offset, digits, lowest, highest and ratio, in bytes.
const V2_HEADER_LEN: usize = 40;

/// How many counters our range and precision take.
const COUNTERS: usize = 33_792;

/// The longest text that [`LatencyHistogram::from_v2_base64`] reads, in bytes: a counter takes at
/// most nine bytes, and base64 makes four bytes of three.
const ENCODED_LEN_MAX: usize = (V2_HEADER_LEN + COUNTERS * 9).div_ceil(3) * 4;

/// How often each latency was seen, from 1 ns to 1 h with three significant digits.
///
/// The memory is fixed (about 270 KB), recording never fails and never allocates. Latencies
/// outside the range are counted at its nearest end, so that no request goes missing.
#[derive(Clone, PartialEq)]
pub struct LatencyHistogram {
    pub(crate) counts: Histogram<u64>,
}

impl LatencyHistogram {
    /// Makes an empty histogram.
    pub fn new() -> Self {
        let counts = Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_DIGITS)
            .expect("the range and the precision are constants that the crate accepts");
        Self { counts }
    }

    /// Counts one latency of `ns` nanoseconds.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        // The crate's own saturation is not enough: its last bucket reaches beyond an hour.
        self.counts.saturating_record(ns.clamp(LOWEST_NS, HIGHEST_NS));
    }

    /// Counts a latency of `ns` nanoseconds `count` times.
    pub fn record_n(&mut self, ns: u64, count: u64) {
        self.counts.saturating_record_n(ns.clamp(LOWEST_NS, HIGHEST_NS), count);
    }

    /// Adds all latencies of `other` to these.
    pub fn merge(&mut self, other: &Self) {
        self.counts.add(&other.counts).expect("all latency histograms cover the same range");
    }

    /// How many latencies were recorded.
    pub fn count(&self) -> u64 {
        self.counts.len()
    }

    /// The shortest latency in nanoseconds, rounded down to the precision; `None` when empty.
    pub fn min_ns(&self) -> Option<u64> {
        (!self.counts.is_empty()).then(|| self.counts.min())
    }

    /// The longest latency in nanoseconds, rounded up to the precision; `None` when empty.
    pub fn max_ns(&self) -> Option<u64> {
        (!self.counts.is_empty()).then(|| self.counts.max())
    }

    /// The mean latency in nanoseconds, within the precision; `None` when empty.
    pub fn mean_ns(&self) -> Option<f64> {
        (!self.counts.is_empty()).then(|| self.counts.mean())
    }

    /// The standard deviation in nanoseconds of the latencies as the whole population, within the
    /// precision; `None` when empty.
    pub fn stdev_ns(&self) -> Option<f64> {
        (!self.counts.is_empty()).then(|| self.counts.stdev())
    }

    /// How many latencies were at most `ns` nanoseconds, or cannot be told apart from it.
    pub fn count_up_to(&self, ns: u64) -> u64 {
        self.counts.count_between(0, ns.min(HIGHEST_NS))
    }

    /// The latency in nanoseconds that a share `q` of all requests did not exceed, rounded up to
    /// the precision; 0.99 for p99.
    ///
    /// `None` when fewer than 10 samples lie beyond the quantile, on whichever side is the
    /// shorter: such a figure would be decided by chance.
    ///
    /// # Panics
    ///
    /// When `q` is not within 0 and 1.
    pub fn quantile_ns(&self, q: f64) -> Option<u64> {
        let value_ns = self.value_at(q)?;
        let samples_beyond = q.min(1.0 - q) * self.count() as f64;
        (samples_beyond + SAMPLE_ROUNDING >= SAMPLES_BEYOND_QUANTILE).then_some(value_ns)
    }

    /// The same however few samples lie beyond the quantile; `None` when empty. It is for formats
    /// that always print a figure, and for judgements that err on the side of caution.
    ///
    /// # Panics
    ///
    /// When `q` is not within 0 and 1.
    pub fn value_at(&self, q: f64) -> Option<u64> {
        assert!((0.0..=1.0).contains(&q), "{q} is not a quantile");
        (!self.counts.is_empty()).then(|| self.counts.value_at_quantile(q))
    }

    /// Writes the histogram in the V2 format of HdrHistogram, uncompressed, in standard base64.
    ///
    /// # Errors
    ///
    /// When a single counter exceeds 2^63 - 1, which the format cannot hold.
    pub fn to_v2_base64(&self) -> Result<String, EncodeError> {
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(&self.counts, &mut bytes)?;
        Ok(STANDARD.encode(bytes))
    }

    /// Reads what [`Self::to_v2_base64`], or another HdrHistogram of the same range, has written.
    ///
    /// # Errors
    ///
    /// When the text is longer than any such histogram, is not base64, is not exactly one V2
    /// histogram, or holds one with another range or precision.
    pub fn from_v2_base64(text: &str) -> Result<Self, DecodeError> {
        if text.len() > ENCODED_LEN_MAX {
            return Err(DecodeError::TooLong { len: text.len() });
        }
        let bytes = STANDARD.decode(text)?;
        if !is_one_v2_histogram(&bytes) {
            return Err(DecodeError::NotOneHistogram);
        }
        let counts: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice())?;
        let bounds = (counts.low(), counts.high(), counts.sigfig());
        if bounds != (LOWEST_NS, HIGHEST_NS, SIGNIFICANT_DIGITS) {
            return Err(DecodeError::OtherRange {
                low: bounds.0,
                high: bounds.1,
                digits: bounds.2,
            });
        }
        Ok(Self { counts })
    }
}

impl fmt::Debug for LatencyHistogram {
    /// A line, and not its tens of thousands of counters.
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

/// Why a histogram could not be written as text.
#[derive(Debug, thiserror::Error)]
#[error("encoding a latency histogram")]
pub struct EncodeError(#[from] V2SerializeError);

/// Why a text could not be read as a histogram.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The text is longer than any latency histogram.
    #[error("a latency histogram takes at most {ENCODED_LEN_MAX} bytes of base64, not {len}")]
    TooLong {
        /// The length of the text in bytes.
        len: usize,
    },
    /// The text is not base64.
    #[error("decoding the base64 of a latency histogram")]
    Base64(#[from] base64::DecodeError),
    /// The bytes are not one uncompressed V2 histogram from the first to the last.
    #[error("the bytes are not exactly one histogram in HdrHistogram's uncompressed V2 format")]
    NotOneHistogram,
    /// The header or the counters of the V2 histogram are broken.
    #[error("decoding a latency histogram from HdrHistogram's V2 format")]
    Format(#[from] DeserializeError),
    /// The histogram is sound, but not one of latencies as we keep them.
    #[error(
        "the histogram covers {low} to {high} with {digits} digits; \
         a latency histogram covers {LOWEST_NS} to {HIGHEST_NS} with {SIGNIFICANT_DIGITS}"
    )]
    OtherRange {
        /// Its lowest discernible value.
        low: u64,
        /// Its highest trackable value.
        high: u64,
        /// Its number of significant decimal digits.
        digits: u8,
    },
}

/// Whether `bytes` begin as an uncompressed V2 histogram that ends where they end.
///
/// The deserializer reserves as much memory as the header declares (up to 4 GB) before it reads
/// on, so the header is held against the bytes first.
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

    #[test]
    fn the_length_limit_is_that_of_our_range() {
        assert_eq!(LatencyHistogram::new().counts.distinct_values(), COUNTERS);
    }
}
