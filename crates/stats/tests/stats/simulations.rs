//! The committed tables take minutes to simulate; see `examples/`. These tests check the tables, and repeat a part of
//! them.

use tollgate_stats::Division;

use crate::simulation::noise::{NOISE, NOISES};
use crate::simulation::runs::{
    Machine, count_covered, count_covered_at_stop, count_false_verdicts, count_settled,
};
use crate::simulation::series::{
    BY_PERMUTATIONS, BY_STUDENT, Step, count_false_alarms, count_found_steps,
};

/// Written by `examples/coverage.rs`.
const RUNS_TABLE: &str = include_str!("../fixtures/simulated-runs.txt");

/// Written by `examples/change_points.rs`.
const SERIES_TABLE: &str = include_str!("../fixtures/simulated-series.txt");

const RUNS: usize = 2_000;

/// Exact coverage by number of blocks: all but the two tails up to the critical rank sum, 0 for 6 blocks (1 of 64
/// combinations) and 8 for 10 blocks (25 of 1,024).
const EXACT: [(usize, f64); 2] = [(6, 1.0 - 2.0 / 64.0), (10, 1.0 - 50.0 / 1_024.0)];

/// Four standard errors of a share of `runs`: a hundred such comparisons fail by chance once in a hundred and fifty
/// times.
fn four_errors(share: f64, runs: usize) -> f64 {
    4.0 * (share * (1.0 - share) / runs as f64).sqrt()
}

fn share(count: usize, runs: usize) -> f64 {
    count as f64 / runs as f64
}

#[test]
fn exact_intervals_have_their_exact_coverage() {
    for machine in &Machine::FAIR {
        for (blocks, expected) in EXACT {
            let held = share(count_covered(machine, blocks, RUNS), RUNS);
            let slack = four_errors(expected, RUNS);
            assert!((held - expected).abs() <= slack, "{}, {blocks} blocks: {held}", machine.name);
        }
    }
}

/// Counts as a false alarm in a table, at any number of blocks.
#[test]
fn false_verdicts_are_rare() {
    let limit = 0.05 + four_errors(0.05, RUNS);
    for machine in &Machine::FAIR {
        for blocks in [6, 7, 8, 10] {
            for subjects in [1, 4] {
                let differs = share(count_false_verdicts(machine, blocks, subjects, RUNS), RUNS);
                let case = format!("{}, {blocks} blocks, {subjects} subjects", machine.name);
                assert!(differs <= limit, "{case}: {differs}");
            }
        }
    }
    // Normal noise has them at nearly the nominal rate; otherwise nothing could ever differ.
    let differs = share(count_false_verdicts(&Machine::FAIR[0], 10, 4, RUNS), RUNS);
    assert!(differs > 0.02, "{differs}");
}

#[test]
fn large_differences_of_eight_subjects_are_settled_by_six_blocks() {
    let settled = share(count_settled(&Machine::FAIR[0], 6, 8, RUNS), RUNS);
    assert!(settled >= 0.99, "{settled}");
}

#[test]
fn bootstrap_intervals_have_nominal_coverage() {
    // Few runs, because each is slow; the table has more.
    let runs = 80;
    let [.., all] = &Machine::FAIR;
    let held = share(count_covered(all, 20, runs), runs);
    assert!((held - 0.95).abs() <= four_errors(0.95, runs), "{held}");
}

#[test]
fn stopping_on_precision_keeps_the_coverage() {
    // Up to eleven blocks, where intervals are exact and fast to compute.
    let [normal, ..] = &Machine::FAIR;
    let held = share(count_covered_at_stop(normal, (6, 11), 0.02, RUNS), RUNS);
    assert!(held >= 0.93, "{held}");
}

#[test]
fn balanced_orders_increase_the_coverage() {
    let random_order = EXACT[1].1;
    for machine in &Machine::EVEN {
        let held = share(count_covered(machine, 10, RUNS), RUNS);
        assert!(held >= random_order - four_errors(random_order, RUNS), "{}: {held}", machine.name);
    }
}

#[test]
fn skewed_ratios_have_less_coverage() {
    // A documented limit of the method.
    let (skewed, nominal) = (&Machine::SKEWED, EXACT[1].1);
    let held = share(count_covered(skewed, 10, RUNS), RUNS);
    assert!(held < nominal - four_errors(nominal, RUNS), "{held}");
}

/// A line of the table of runs.
struct Row {
    machine: &'static str,
    blocks: usize,
    runs: usize,
    shares: Vec<f64>,
}

/// Parses the part of the table with fixed numbers of blocks.
fn run_rows() -> Vec<Row> {
    let (fixed, _) = RUNS_TABLE.split_once("\n\n").expect("the table has two parts");
    fixed
        .lines()
        .skip(1)
        .map(|line| {
            let mut columns = line.split_whitespace().filter(|column| *column != "%");
            let mut next = || columns.next().expect("a row has machine, blocks and runs");
            let (machine, blocks, runs) = (next(), next(), next());
            Row {
                machine,
                blocks: blocks.parse().expect("integer blocks"),
                runs: runs.parse().expect("integer runs"),
                shares: columns
                    .map(|share| share.parse::<f64>().expect("a share") / 100.0)
                    .collect(),
            }
        })
        .collect()
}

#[test]
fn table_of_runs_has_nominal_coverage_and_error_rates() {
    let rows = run_rows();
    let fair: Vec<&Row> =
        rows.iter().filter(|row| Machine::FAIR.iter().any(|m| m.name == row.machine)).collect();
    assert_eq!(fair.len(), 5 * Machine::FAIR.len());
    for Row { machine, blocks, runs, shares } in fair {
        let [held, aa_differs, any_differs, settled] = shares[..] else {
            panic!("{machine}, {blocks} blocks: not four shares");
        };
        let case =
            format!("{machine}, {blocks} blocks: {held} {aa_differs} {any_differs} {settled}");
        assert!(*runs >= 2_000, "{case}");
        assert!((0.93..=0.97).contains(&held), "{case}");
        assert!(aa_differs <= 0.05, "{case}");
        assert!(any_differs <= 0.05, "{case}");
        // Outliers cost power, not certainty.
        let has_outliers = ["student-3", "lognormal"].contains(machine);
        assert!(settled >= if has_outliers { 0.92 } else { 0.99 }, "{case}");
        // The table belongs to this code.
        if let Some((_, expected)) = EXACT.iter().find(|(exact, _)| exact == blocks) {
            assert!((held - expected).abs() <= four_errors(*expected, *runs), "{case}");
        }
    }
}

/// Parses a part of the table of series into columns, without percent signs.
fn series_rows(part: usize) -> Vec<Vec<&'static str>> {
    let lines =
        SERIES_TABLE.split("\n\n").nth(part).expect("the table has two parts").lines().skip(1);
    lines.map(|line| line.split_whitespace().filter(|column| *column != "%").collect()).collect()
}

fn number(text: &str) -> f64 {
    text.parse().expect("a number")
}

#[test]
fn table_of_series_has_nominal_error_rate() {
    let rows = series_rows(0);
    assert_eq!(rows.len(), NOISES.len() * 5 * 2);
    for row in rows {
        let [noise, n, test, runs, alarms] = row[..] else { panic!("not five columns: {row:?}") };
        let (runs, alarms) = (number(runs) as usize, number(alarms) / 100.0);
        // Student's test has the nominal error rate for normal noise only.
        if test == "permutations" || noise == "normal" {
            assert!(alarms <= 0.05 + four_errors(0.05, runs), "{row:?}");
        }
        // Five values are too few for permutations.
        assert_eq!(alarms == 0.0, test == "permutations" && n == "5", "{row:?}");
    }
}

#[test]
fn false_alarms_match_the_table() {
    let (runs, n) = (150, 8);
    let [(_, normal), ..] = NOISES;
    for (test, division) in [("permutations", BY_PERMUTATIONS), ("student", BY_STUDENT)] {
        let row = series_rows(0).into_iter().find(|row| row[..3] == ["normal", "8", test]);
        let expected = number(row.expect("a row")[4]) / 100.0;
        let found = count_false_alarms(normal, n, &division, runs) as f64 / runs as f64;
        assert!(
            (found - expected).abs() <= four_errors(expected, runs),
            "{test}: {found}, not {expected}"
        );
    }
}

#[test]
fn found_steps_match_the_table() {
    let found = |n: usize, place: usize, height: f64, division: &Division| {
        let [(_, normal), ..] = NOISES;
        let runs = 20;
        count_found_steps(normal, n, Step { place, height }, division, runs) as f64 / runs as f64
    };
    for (test, division) in [("permutations", BY_PERMUTATIONS), ("student", BY_STUDENT)] {
        let row =
            series_rows(1).into_iter().find(|row| row[..4] == ["normal", "12", "middle", test]);
        let row = row.expect("a row");
        for (column, height) in [(4, 2.0 * NOISE), (5, 5.0 * NOISE), (6, 2.996)] {
            let expected = number(row[column]) / 100.0;
            // The table itself is based on 200 series.
            let slack = four_errors(expected, 20) + four_errors(expected, 200) + 0.02;
            let found = found(12, 6, height, &division);
            assert!((found - expected).abs() <= slack, "{test} {height}: {found}, not {expected}");
        }
    }
}
