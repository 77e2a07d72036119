//! The percentiles of the latency, byte for byte as `outputPercentileDistribution` of the reference
//! implementation of HdrHistogram writes them, in milliseconds.

use crate::latency::LatencyHistogram;
use crate::percentiles::{BUCKETS, SUB_BUCKETS};
use std::fmt::Write as _;

impl LatencyHistogram {
    /// The percentiles in milliseconds, with five steps to each half of what is left, byte for byte
    /// as `outputPercentileDistribution` of the reference implementation of HdrHistogram writes
    /// them. An empty histogram has a heading, and zeros at the foot.
    pub fn to_hgrm(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        write(&mut text, self).ok();
        text
    }
}

/// What the reference implementation's examples ask for.
const TICKS_PER_HALF: u32 = 5;

fn write(text: &mut String, latency: &LatencyHistogram) -> std::fmt::Result {
    let [value, percentile, count, inverse] =
        ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"];
    writeln!(text, "{value:>12} {percentile:>14} {count:>10} {inverse:>14}\n")?;
    for step in latency.percentiles(TICKS_PER_HALF) {
        write!(text, "{:12.3} {:2.12} {:10}", ms(step.value_ns), step.quantile, step.count)?;
        // 1 has no such figure: nothing lies beyond it.
        if step.quantile < 1.0 {
            write!(text, " {:14.2}", 1.0 / (1.0 - step.quantile))?;
        }
        text.push('\n');
    }
    let mean = latency.mean_ns().map_or(0.0, ms_of);
    let deviation = latency.stdev_ns().map_or(0.0, ms_of);
    let max = latency.max_ns().map_or(0.0, ms);
    writeln!(text, "#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]")?;
    writeln!(text, "#[Max     = {max:12.3}, Total count    = {:12}]", latency.count())?;
    writeln!(text, "#[Buckets = {BUCKETS:12}, SubBuckets     = {SUB_BUCKETS:12}]")
}

fn ms(ns: u64) -> f64 {
    ms_of(ns as f64)
}

fn ms_of(ns: f64) -> f64 {
    ns / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed by an independent HdrHistogram; the script beside it says which, and of what.
    const FOREIGN: &str = include_str!("../tests/fixtures/percentiles.hgrm");

    #[test]
    fn the_bytes_are_those_of_an_independent_implementation() {
        let mut latency = LatencyHistogram::new();
        for k in 1..=200 {
            latency.record_n(k * k * 1_000, k);
        }
        latency.record(2);
        latency.record(2_147_483_647);
        assert_eq!(latency.to_hgrm(), FOREIGN);
    }

    #[test]
    fn nothing_has_a_heading_and_zeros() {
        let text = LatencyHistogram::new().to_hgrm();
        assert_eq!(text.lines().count(), 5);
        assert!(
            text.contains("#[Max     =        0.000, Total count    =            0]"),
            "{text}"
        );
    }
}
