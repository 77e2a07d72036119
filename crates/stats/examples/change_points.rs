//! Writes `tests/fixtures/made-up-series.txt`: how often change points are found where none are, and
//! how often a step is found at its very place. It takes some minutes:
//!
//!     cargo run --release -p tollgate-stats --example change_points \
//!         > crates/stats/tests/fixtures/made-up-series.txt

#[path = "../tests/made_up/series.rs"]
mod series;

use series::{BY_SHUFFLES, BY_STUDENT, NOISE, NOISES, Step, false_alarms, steps_found};
use tollgate_stats::Division;

/// How many values a series has, and how many series are made up without a step.
const SIZES: [(usize, usize); 5] =
    [(5, 20_000), (8, 10_000), (12, 10_000), (20, 10_000), (50, 2_000)];

/// How many series are made up with each step.
const RUNS: usize = 200;

/// The heights of the steps on the scale of logarithms: twice and five times the noise,
/// and what is twenty times as slow.
const HEIGHTS: [f64; 3] = [2.0 * NOISE, 5.0 * NOISE, 2.996];

fn main() {
    let tests = [("shuffles", BY_SHUFFLES), ("student", BY_STUDENT)];
    println!("noise      n    test      runs   false alarms");
    for (noise_name, noise) in NOISES {
        for (n, runs) in SIZES {
            for (test_name, division) in &tests {
                let alarms = percent(false_alarms(noise, n, division, runs), runs);
                println!("{noise_name:<10} {n:<4} {test_name:<9} {runs:<6} {alarms:>12}");
            }
        }
    }
    println!("\nnoise      n    place     test      {:>9} {:>9} {:>9}", "2 %", "5 %", "20 times");
    for (noise_name, noise) in NOISES {
        for (n, _) in SIZES {
            for (place_name, place) in [("middle", n / 2), ("last two", n - 2)] {
                for (test_name, division) in &tests {
                    let found = |height: f64, division: &Division| {
                        let step = Step { place, height };
                        percent(steps_found(noise, n, step, division, RUNS), RUNS)
                    };
                    let [low, mid, high] = HEIGHTS.map(|height| found(height, division));
                    println!(
                        "{noise_name:<10} {n:<4} {place_name:<9} {test_name:<9} {low:>9} {mid:>9} {high:>9}"
                    );
                }
            }
        }
    }
}

fn percent(count: usize, of: usize) -> String {
    format!("{:.1} %", 100.0 * count as f64 / of as f64)
}
