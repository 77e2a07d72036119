//! Writes `tests/fixtures/simulated-series.txt`: how often change points are found in simulated series without a step, and
//! how often a step is found at its exact place. Takes some minutes:
//!
//!     cargo run --release -p tollgate-stats --example change_points \
//!         > crates/stats/tests/fixtures/simulated-series.txt

#[path = "../tests/simulation/mod.rs"]
#[expect(dead_code, reason = "shared with the tests")]
mod simulation;

use simulation::noise::{NOISE, NOISES};
use simulation::series::{
    BY_PERMUTATIONS, BY_STUDENT, Step, count_false_alarms, count_found_steps,
};
use tollgate_stats::Division;

/// Values and number of series without a step.
const SIZES: [(usize, usize); 5] =
    [(5, 20_000), (8, 10_000), (12, 10_000), (20, 10_000), (50, 2_000)];

/// Number of series with each step.
const RUNS: usize = 200;

/// Heights of the steps on the scale of logarithms: twice and five times the noise, and twenty times as slow.
const HEIGHTS: [f64; 3] = [2.0 * NOISE, 5.0 * NOISE, 2.996];

fn main() {
    let tests = [("permutations", BY_PERMUTATIONS), ("student", BY_STUDENT)];
    println!("noise      n    test          runs   false alarms");
    for (noise_name, noise) in NOISES {
        for (n, runs) in SIZES {
            for (test_name, division) in &tests {
                let alarms = percent(count_false_alarms(noise, n, division, runs), runs);
                println!("{noise_name:<10} {n:<4} {test_name:<13} {runs:<6} {alarms:>12}");
            }
        }
    }
    println!(
        "\nnoise      n    place     test          {:>9} {:>9} {:>9}",
        "2 %", "5 %", "20 times"
    );
    for (noise_name, noise) in NOISES {
        for (n, _) in SIZES {
            for (place_name, place) in [("middle", n / 2), ("last two", n - 2)] {
                for (test_name, division) in &tests {
                    let found = |height: f64, division: &Division| {
                        let step = Step { place, height };
                        percent(count_found_steps(noise, n, step, division, RUNS), RUNS)
                    };
                    let [low, mid, high] = HEIGHTS.map(|height| found(height, division));
                    println!(
                        "{noise_name:<10} {n:<4} {place_name:<9} {test_name:<13} {low:>9} {mid:>9} {high:>9}"
                    );
                }
            }
        }
    }
}

fn percent(count: usize, of: usize) -> String {
    format!("{:.1} %", 100.0 * count as f64 / of as f64)
}
