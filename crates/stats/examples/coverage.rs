//! Writes `tests/fixtures/simulated-runs.txt`: the coverage of intervals, the rate of false verdicts, and the rate of runs
//! in which eight subjects that each cost more by four times the noise are settled, on disturbed machines. Takes ten minutes:
//!
//!     cargo run --release -p tollgate-stats --example coverage \
//!         > crates/stats/tests/fixtures/simulated-runs.txt

#[path = "../tests/simulation/mod.rs"]
#[expect(dead_code, reason = "shared with the tests")]
mod simulation;

use simulation::runs::{
    Machine, count_covered, count_covered_at_stop, count_false_verdicts, count_settled,
};

/// Blocks and number of runs. A bootstrap takes a few hundred times as long as an exact interval.
const SIZES: [(usize, usize); 5] =
    [(6, 100_000), (7, 100_000), (8, 100_000), (10, 100_000), (20, 2_000)];

/// Subjects in a table with several equal ones, and in one with large differences.
const EQUAL_SUBJECTS: usize = 4;
const DEARER_SUBJECTS: usize = 8;

/// Runs with large differences.
const DEARER_RUNS: usize = 2_000;

/// Runs that stop on precision.
const STOP_BLOCKS: (usize, usize) = (6, 20);
const STOP_WIDTH: f64 = 0.02;
const STOP_RUNS: usize = 1_000;

fn main() {
    println!(
        "machine    n     runs           coverage  A/A differs  any of {EQUAL_SUBJECTS} differs  {DEARER_SUBJECTS} settled"
    );
    for machine in Machine::FAIR.iter().chain(&Machine::EVEN) {
        for (blocks, runs) in SIZES {
            let held = count_covered(machine, blocks, runs);
            let aa = count_false_verdicts(machine, blocks, 1, runs);
            let any = count_false_verdicts(machine, blocks, EQUAL_SUBJECTS, runs);
            let settled = count_settled(machine, blocks, DEARER_SUBJECTS, DEARER_RUNS.min(runs));
            let [held, aa, any] = [held, aa, any].map(|count| percent(count, runs));
            let settled = percent(settled, DEARER_RUNS.min(runs));
            println!(
                "{:<10} {blocks:<5} {runs:<7} {held:>15}  {aa:>11}  {any:>16}  {settled:>9}",
                machine.name
            );
        }
    }
    for (blocks, runs) in SIZES {
        let held = percent(count_covered(&Machine::SKEWED, blocks, runs), runs);
        println!("{:<10} {blocks:<5} {runs:<7} {held:>15}", Machine::SKEWED.name);
    }
    println!("\ncoverage of runs stopped at a half-width of {STOP_WIDTH}");
    for machine in Machine::FAIR {
        let held = count_covered_at_stop(&machine, STOP_BLOCKS, STOP_WIDTH, STOP_RUNS);
        let (held, (min, max)) = (percent(held, STOP_RUNS), STOP_BLOCKS);
        let blocks = format!("{min}-{max}");
        println!("{:<10} {blocks:<5} {STOP_RUNS:<7} {held:>15}", machine.name);
    }
}

fn percent(count: usize, of: usize) -> String {
    format!("{:.2} %", 100.0 * count as f64 / of as f64)
}
