//! Whether 95 % is 95 %: intervals and verdicts on made-up runs, whose truth is known.
//!
//! The committed table is the proof, and takes minutes; see `examples/coverage.rs`. Here a part of it
//! is simulated anew and held against it, and against what follows from the method alone.

mod made_up;

use made_up::{Machine, false_verdicts, truths_held, truths_held_at_stop};

/// Made by `examples/coverage.rs`.
const TABLE: &str = include_str!("fixtures/made-up-runs.txt");

const RUNS: usize = 2_000;

/// What an exact interval holds, by its construction: all but the two tails up to the critical
/// value of the rank sum, 0 of 6 blocks (1 way of 64) and 8 of 10 blocks (25 ways of 1,024).
const EXACT: [(usize, f64); 2] = [(6, 1.0 - 2.0 / 64.0), (10, 1.0 - 50.0 / 1_024.0)];

/// Four standard errors of a share that `runs` runs were asked for: a test of a hundred such
/// shares fails without a cause once in a hundred and fifty.
fn four_errors(share: f64, runs: usize) -> f64 {
    4.0 * (share * (1.0 - share) / runs as f64).sqrt()
}

fn share(count: usize, runs: usize) -> f64 {
    count as f64 / runs as f64
}

#[test]
fn exact_intervals_hold_the_truth_as_often_as_they_are_made_to() {
    for machine in &Machine::FAIR {
        for (blocks, expected) in EXACT {
            let held = share(truths_held(machine, blocks, RUNS), RUNS);
            let slack = four_errors(expected, RUNS);
            assert!((held - expected).abs() <= slack, "{}, {blocks} blocks: {held}", machine.name);
        }
    }
}

#[test]
fn equal_subjects_differ_as_seldom_as_the_test_allows() {
    for machine in &Machine::FAIR {
        for (blocks, held) in EXACT {
            let differs = share(false_verdicts(machine, blocks, 1, RUNS), RUNS);
            let slack = four_errors(held, RUNS);
            let expected = 1.0 - held;
            assert!(
                (differs - expected).abs() <= slack,
                "{}, {blocks} blocks: {differs}",
                machine.name
            );
        }
    }
}

#[test]
fn a_table_of_equal_subjects_is_no_more_often_wrong_than_a_single_one() {
    // Four subjects need eight blocks; with six none can ever differ.
    for machine in &Machine::FAIR {
        let any_of_ten = share(false_verdicts(machine, 10, 4, RUNS), RUNS);
        assert!(any_of_ten <= 0.05 + four_errors(0.05, RUNS), "{}: {any_of_ten}", machine.name);
        assert!(any_of_ten > 0.005, "{}: {any_of_ten}", machine.name);
        assert_eq!(false_verdicts(machine, 6, 4, 200), 0, "{}", machine.name);
    }
}

#[test]
fn bootstrap_intervals_hold_the_truth() {
    // A few runs, as each takes long without optimisation; the table has more.
    let runs = 80;
    let [.., all] = &Machine::FAIR;
    let held = share(truths_held(all, 20, runs), runs);
    assert!((held - 0.95).abs() <= four_errors(0.95, runs), "{held}");
}

#[test]
fn stopping_on_precision_keeps_the_interval_honest() {
    // Up to eleven blocks, where intervals are exact and quick. One that may stop at six, seven and
    // so on has no coverage by construction; it must not fall out of what the table promises.
    let [normal, ..] = &Machine::FAIR;
    let held = share(truths_held_at_stop(normal, (6, 11), 0.02, RUNS), RUNS);
    assert!(held >= 0.93, "{held}");
}

#[test]
fn balanced_orders_make_the_interval_hold_more() {
    let drawn = EXACT[1].1;
    for machine in &Machine::EVEN {
        let held = share(truths_held(machine, 10, RUNS), RUNS);
        assert!(held >= drawn - four_errors(drawn, RUNS), "{}: {held}", machine.name);
    }
}

#[test]
fn lopsided_ratios_are_where_the_promise_ends() {
    // METHODOLOGY.md says so; were it otherwise, it should not.
    let (lopsided, promised) = (&Machine::LOPSIDED, EXACT[1].1);
    let held = share(truths_held(lopsided, 10, RUNS), RUNS);
    assert!(held < promised - four_errors(promised, RUNS), "{held}");
}

/// A line of the table: the machine, the blocks, the runs, and the shares that were found.
struct Row {
    machine: &'static str,
    blocks: usize,
    runs: usize,
    shares: Vec<f64>,
}

/// The lines of the table for runs of a fixed number of blocks.
fn rows() -> Vec<Row> {
    let (fixed, _) = TABLE.split_once("\n\n").expect("the table has two parts");
    fixed
        .lines()
        .skip(1)
        .map(|line| {
            let mut columns = line.split_whitespace().filter(|column| *column != "%");
            let mut next = || columns.next().expect("a row has a machine, blocks and runs");
            let (machine, blocks, runs) = (next(), next(), next());
            Row {
                machine,
                blocks: blocks.parse().expect("blocks are whole"),
                runs: runs.parse().expect("runs are whole"),
                shares: columns
                    .map(|share| share.parse::<f64>().expect("shares are numbers") / 100.0)
                    .collect(),
            }
        })
        .collect()
}

#[test]
fn the_table_holds_what_is_promised() {
    let rows = rows();
    let fair: Vec<&Row> =
        rows.iter().filter(|row| Machine::FAIR.iter().any(|m| m.name == row.machine)).collect();
    assert_eq!(fair.len(), 3 * Machine::FAIR.len());
    for Row { machine, blocks, runs, shares } in fair {
        let [held, aa_differs, any_differs] = shares[..] else {
            panic!("{machine}, {blocks} blocks: not three shares");
        };
        let case = format!("{machine}, {blocks} blocks: {held} {aa_differs} {any_differs}");
        assert!(*runs >= 2_000, "{case}");
        assert!((0.93..=0.97).contains(&held), "{case}");
        // The exact test of ten blocks is wrong in 4.88 %, so close below 5 % that the runs of the
        // table decide on which side it is seen.
        let slack = if *blocks == 10 { four_errors(0.0488, *runs) } else { 0.0 };
        assert!(aa_differs <= 0.05 + slack, "{case}");
        assert!(any_differs <= 0.05, "{case}");
        // The table is that of this code.
        if let Some((_, expected)) = EXACT.iter().find(|(exact, _)| exact == blocks) {
            assert!((held - expected).abs() <= four_errors(*expected, *runs), "{case}");
        }
    }
}
