//! A distribution as bars: how many latencies lie in each stretch of time.

use super::layout::columns;
use crate::cmd::load::millis::ms;
use tollgate_lab::report::layout::bar;
use tollgate_lab::report::number::{percent, significant};
use tollgate_stats::LatencyHistogram;

/// Draws a distribution; empty with too few latencies to have a shape.
///
/// The stretches are equally long up to p99, so that a few stragglers do not squeeze all others into
/// one bar; the last one holds those.
pub(super) fn render(latency: &LatencyHistogram) -> String {
    let (Some(min), Some(p99), Some(max)) =
        (latency.min_ns(), latency.value_at(0.99), latency.max_ns())
    else {
        return String::new();
    };
    if latency.count() < LATENCIES_MIN {
        return String::new();
    }
    let mut ends: Vec<u64> = {
        let step = (p99 - min).div_ceil(STRETCHES).max(1);
        (1..=STRETCHES).map(|stretch| min + stretch * step).collect()
    };
    ends.retain(|end| *end < max);
    ends.push(max);
    let mut shares = Vec::new();
    let mut below = 0;
    for end in &ends {
        let up_to = latency.count_up_to(*end);
        shares.push((up_to - below) as f64 / latency.count() as f64);
        below = up_to;
    }
    let bounds: Vec<u64> = std::iter::once(min).chain(ends).collect();
    let labels = labels(&bounds);
    let width = labels.iter().map(String::len).max().unwrap_or(0);
    let cells = labels.windows(2).zip(&shares).map(|(bounds, share)| {
        let (from, to) = (&bounds[0], &bounds[1]);
        vec![format!("  {from:>width$} to {to:>width$}"), percent(*share)]
    });
    let stretches = columns(&cells.collect::<Vec<_>>());
    let largest = shares.iter().copied().fold(0.0, f64::max);
    let mut text = "\nHow many took how many ms\n".to_owned();
    for (line, share) in stretches.lines().zip(shares) {
        text += line;
        if share > 0.0 {
            text += "  ";
            text += &bar(share / largest, BAR_COLUMNS);
        }
        text.push('\n');
    }
    text
}

/// Bounds in milliseconds, in so many digits that a stretch is ten steps of the last one: with three
/// digits alone, neighbours far from zero would look alike.
fn labels(bounds_ns: &[u64]) -> Vec<String> {
    let stretch_ns = bounds_ns[1] - bounds_ns[0];
    let is_enough = |decimals: &usize| {
        let last_digit_ns: u64 = (*decimals..NS_DECIMALS).map(|_| 10).product();
        stretch_ns >= 10 * last_digit_ns
    };
    let decimals = (0..NS_DECIMALS).find(is_enough).unwrap_or(NS_DECIMALS);
    let label = |ns: &u64| match decimals {
        0 => significant(ms(*ns).round()),
        _ => format!("{:.decimals$}", ms(*ns)),
    };
    bounds_ns.iter().map(label).collect()
}

/// The digits behind the point of a millisecond that has them all.
const NS_DECIMALS: usize = 6;

/// Below this there are more bars than latencies to tell them apart.
const LATENCIES_MIN: u64 = 100;
const STRETCHES: u64 = 10;
const BAR_COLUMNS: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bars_hold_every_latency() {
        let mut latency = LatencyHistogram::new();
        // Values below 2048 ns are kept exactly: 0.8 of all in the first stretch of 100 ns, 0.19 in
        // the last one below p99, and a straggler far beyond.
        latency.record_n(1_000, 160);
        latency.record_n(2_000, 39);
        latency.record(1_000_000);
        let text = render(&latency);
        let lines: Vec<Vec<&str>> =
            text.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines.len(), 11, "{text}");
        let full = "█".repeat(40);
        assert_eq!(lines[0], ["0.00100", "to", "0.00110", "80.0", "%", full.as_str()]);
        assert_eq!(lines[1][3..], ["0", "%"]);
        assert_eq!(lines[9][..5], ["0.00190", "to", "0.00200", "19.5", "%"]);
        assert_eq!(lines[10], ["0.00200", "to", "1.00045", "0.5", "%", "▏"]);
    }

    #[test]
    fn bounds_have_as_many_digits_as_tell_them_apart() {
        let labels = |bounds_ns: &[u64]| labels(bounds_ns).join(" ");
        assert_eq!(labels(&[1_000_000, 1_890_000, 2_780_000]), "1.00 1.89 2.78");
        // 100.00 to 100.02 ms: three digits would say 100 twice.
        assert_eq!(labels(&[100_000_000, 100_010_000, 100_020_000]), "100.000 100.010 100.020");
        assert_eq!(labels(&[0, 20_000_000_000, 40_000_000_000]), "0 20,000 40,000");
        // Nothing is finer than a nanosecond.
        assert_eq!(labels(&[1_000_000, 1_000_001]), "1.000000 1.000001");
    }

    #[test]
    fn latencies_that_are_all_the_same_are_one_bar() {
        let mut latency = LatencyHistogram::new();
        latency.record_n(1_000, 100);
        let text = render(&latency);
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.contains("100 %"), "{text}");
    }

    #[test]
    fn a_handful_has_no_shape() {
        let mut latency = LatencyHistogram::new();
        latency.record_n(1_000, 99);
        assert_eq!(render(&latency), "");
        assert_eq!(render(&LatencyHistogram::new()), "");
    }
}
