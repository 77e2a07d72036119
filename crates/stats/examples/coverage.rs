//! Writes `tests/fixtures/made-up-runs.txt`: how often intervals hold the truth, and how often
//! verdicts are wrong, in runs that are made up on machines which misbehave. It takes ten minutes:
//!
//!     cargo run --release -p tollgate-stats --example coverage \
//!         > crates/stats/tests/fixtures/made-up-runs.txt

#[path = "../tests/made_up/mod.rs"]
mod made_up;

use made_up::{Machine, false_verdicts, truths_held, truths_held_at_stop};

/// Blocks, and how many runs of them are made up. A bootstrap takes a few hundred times as long as
/// an exact interval.
const SIZES: [(usize, usize); 3] = [(6, 100_000), (10, 100_000), (20, 2_000)];

/// How many subjects a table with several has.
const SUBJECTS: usize = 4;

/// The runs that stop by themselves.
const STOP_BLOCKS: (usize, usize) = (6, 20);
const STOP_WIDTH: f64 = 0.02;
const STOP_RUNS: usize = 1_000;

fn main() {
    println!("machine    n     runs    holds the truth  A/A differs  any of {SUBJECTS} differs");
    for machine in Machine::FAIR.iter().chain(&Machine::EVEN) {
        for (blocks, runs) in SIZES {
            let held = truths_held(machine, blocks, runs);
            let aa = false_verdicts(machine, blocks, 1, runs);
            let any = false_verdicts(machine, blocks, SUBJECTS, runs);
            let [held, aa, any] = [held, aa, any].map(|count| percent(count, runs));
            println!("{:<10} {blocks:<5} {runs:<7} {held:>15}  {aa:>11}  {any:>16}", machine.name);
        }
    }
    for (blocks, runs) in SIZES {
        let held = percent(truths_held(&Machine::LOPSIDED, blocks, runs), runs);
        println!("{:<10} {blocks:<5} {runs:<7} {held:>15}", Machine::LOPSIDED.name);
    }
    println!("\nstopped at a half-width of {STOP_WIDTH}");
    for machine in Machine::FAIR {
        let held = truths_held_at_stop(&machine, STOP_BLOCKS, STOP_WIDTH, STOP_RUNS);
        let (held, (min, max)) = (percent(held, STOP_RUNS), STOP_BLOCKS);
        let blocks = format!("{min}-{max}");
        println!("{:<10} {blocks:<5} {STOP_RUNS:<7} {held:>15}", machine.name);
    }
}

fn percent(count: usize, of: usize) -> String {
    format!("{:.2} %", 100.0 * count as f64 / of as f64)
}
