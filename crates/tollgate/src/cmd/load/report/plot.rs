//! A distribution as bars: how many latencies lie in each stretch of time.

use super::layout::{bar, columns};
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
    let step = (p99 - min).div_ceil(STRETCHES).max(1);
    let mut ends: Vec<u64> = (1..=STRETCHES).map(|stretch| min + stretch * step).collect();
    ends.retain(|end| *end < max);
    ends.push(max);
    let mut rows = Vec::new();
    let (mut start, mut below) = (min, 0);
    let mut shares = Vec::new();
    for end in ends {
        let up_to = latency.count_up_to(end);
        shares.push((start, end, (up_to - below) as f64 / latency.count() as f64));
        (start, below) = (end, up_to);
    }
    let largest = shares.iter().map(|(_, _, share)| *share).fold(0.0, f64::max);
    for (start, end, share) in shares {
        let stretch = vec![format!("  {}", ms(start)), format!("to {}", ms(end)), percent(share)];
        rows.push((stretch, bar(share / largest, BAR_COLUMNS)));
    }
    let stretches = columns(&rows.iter().map(|(cells, _)| cells.clone()).collect::<Vec<_>>());
    let lines = stretches.lines().zip(&rows);
    let lines: String = lines
        .map(|(line, (_, bar))| format!("{}\n", format!("{line}  {bar}").trim_end()))
        .collect();
    format!("\nHow many took how many ms\n{lines}")
}

/// Below this there are more bars than latencies to tell them apart.
const LATENCIES_MIN: u64 = 100;
const STRETCHES: u64 = 10;
const BAR_COLUMNS: usize = 40;

fn ms(ns: u64) -> String {
    significant(ns as f64 / 1e6)
}

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
        assert_eq!(lines[10], ["0.00200", "to", "1.00", "0.5", "%", "▎"]);
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
