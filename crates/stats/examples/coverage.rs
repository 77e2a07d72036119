//! Writes `tests/fixtures/simulated-runs.txt`: the coverage of intervals and the rate of false verdicts in simulated runs on
//! disturbed machines. Takes ten minutes:
//!
//!     cargo run --release -p tollgate-stats --example coverage \
//!         > crates/stats/tests/fixtures/simulated-runs.txt

#[path = "../tests/simulation/mod.rs"]
#[expect(dead_code, reason = "shared with the tests")]
mod simulation;

use simulation::runs::{Machine, count_covered, count_covered_at_stop, count_false_verdicts};

/// Blocks and number of runs. A bootstrap takes a few hundred times as long as an exact interval.
const SIZES: [(usize, usize); 3] = [(6, 100_000), (10, 100_000), (20, 2_000)];

/// Subjects in a table with several.
const SUBJECTS: usize = 4;

/// Runs that stop on precision.
const STOP_BLOCKS: (usize, usize) = (6, 20);
const STOP_WIDTH: f64 = 0.02;
const STOP_RUNS: usize = 1_000;

fn main() {
    println!("machine    n     runs           coverage  A/A differs  any of {SUBJECTS} differs");
    for machine in Machine::FAIR.iter().chain(&Machine::EVEN) {
        for (blocks, runs) in SIZES {
            let held = count_covered(machine, blocks, runs);
            let aa = count_false_verdicts(machine, blocks, 1, runs);
            let any = count_false_verdicts(machine, blocks, SUBJECTS, runs);
            let [held, aa, any] = [held, aa, any].map(|count| percent(count, runs));
            println!("{:<10} {blocks:<5} {runs:<7} {held:>15}  {aa:>11}  {any:>16}", machine.name);
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
