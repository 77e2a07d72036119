//! A latency distribution as a bar chart.

use tollgate_stats::LatencyHistogram;
use tollgate_stats::number::{percent, significant};
use tollgate_stats::text::bar;

use crate::distribution::ns_to_ms;

pub(super) const COLUMN_GAP: usize = 2;

/// With fewer latencies, a chart would have more bars than distinct values.
const LATENCIES_MIN: u64 = 100;
const BINS: u64 = 10;
const BAR_COLUMNS: usize = 40;

/// Decimals of a millisecond with nanosecond precision.
const NS_DECIMALS: usize = 6;

/// Draws a distribution; empty with fewer than 100 latencies.
///
/// The bins have equal widths up to p99, so that outliers do not squeeze all others into one bar. The
/// last bin holds the outliers.
pub(super) fn render(latency: &LatencyHistogram) -> String {
    let (Some(min), Some(p99), Some(max)) =
        (latency.min_ns(), latency.value_at(0.99), latency.max_ns())
    else {
        return String::new();
    };
    if latency.count() < LATENCIES_MIN {
        return String::new();
    }
    let step = (p99 - min).div_ceil(BINS).max(1);
    let mut ends: Vec<u64> = (1..=BINS).map(|bin| min + bin * step).collect();
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
    let labels = bound_labels(&bounds);
    let width = labels.iter().map(String::len).max().unwrap_or(0);
    let rows: Vec<Vec<String>> = labels
        .windows(2)
        .zip(&shares)
        .map(|(bounds, share)| {
            let (from, to) = (&bounds[0], &bounds[1]);
            vec![format!("  {from:>width$} to {to:>width$}"), percent(*share)]
        })
        .collect();
    let largest = shares.iter().copied().fold(0.0, f64::max);
    let mut text = "\nDistribution of the latency in ms\n".to_owned();
    for (line, share) in columns(&rows).lines().zip(shares) {
        text += line;
        if share > 0.0 {
            text += "  ";
            text += &bar(share / largest, BAR_COLUMNS);
        }
        text.push('\n');
    }
    text
}

/// Formats bounds in milliseconds with enough decimals that a bin is at least ten steps of the last digit.
fn bound_labels(bounds_ns: &[u64]) -> Vec<String> {
    let bin_ns = bounds_ns[1] - bounds_ns[0];
    let is_enough = |decimals: &usize| {
        let last_digit_ns: u64 = (*decimals..NS_DECIMALS).map(|_| 10).product();
        bin_ns >= 10 * last_digit_ns
    };
    let decimals = (0..NS_DECIMALS).find(is_enough).unwrap_or(NS_DECIMALS);
    let label = |ns: &u64| match decimals {
        0 => significant(ns_to_ms(*ns).round()),
        _ => format!("{:.decimals$}", ns_to_ms(*ns)),
    };
    bounds_ns.iter().map(label).collect()
}

/// Formats rows in columns: the first aligned to the left, the others to the right.
pub(super) fn columns(rows: &[Vec<String>]) -> String {
    let width_of = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = width_of(column);
            match column {
                0 => line += &format!("{cell:<width$}"),
                _ => line += &format!("{:COLUMN_GAP$}{cell:>width$}", ""),
            }
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows =
            [["", "a", "bc"], ["name", "1000", "2"]].map(|row| row.map(str::to_owned).into());
        assert_eq!(columns(&rows), "         a  bc\nname  1000   2\n");
    }

    #[test]
    fn bars_cover_every_latency() {
        let mut latency = LatencyHistogram::new();
        // Values below 2048 ns are exact: 0.8 of all in the first bin of 100 ns, 0.19 in the last one
        // below p99, and one outlier.
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
    fn bound_labels_have_distinguishing_digits() {
        let labels = |bounds_ns: &[u64]| bound_labels(bounds_ns).join(" ");
        assert_eq!(labels(&[1_000_000, 1_890_000, 2_780_000]), "1.00 1.89 2.78");
        // 100.00 to 100.02 ms: three digits would give 100 twice.
        assert_eq!(labels(&[100_000_000, 100_010_000, 100_020_000]), "100.000 100.010 100.020");
        assert_eq!(labels(&[0, 20_000_000_000, 40_000_000_000]), "0 20,000 40,000");
        assert_eq!(labels(&[1_000_000, 1_000_001]), "1.000000 1.000001");
    }

    #[test]
    fn equal_latencies_are_one_bar_and_few_are_none() {
        let mut latency = LatencyHistogram::new();
        assert_eq!(render(&latency), "");
        latency.record_n(1_000, 99);
        assert_eq!(render(&latency), "");
        latency.record(1_000);
        let text = render(&latency);
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.contains("100 %"), "{text}");
    }
}
