//! How often change points are found where none are, and how often where one is.
//!
//! The committed table is the proof, and takes minutes; see `examples/change_points.rs`. Here a part of
//! it is simulated anew and held against it.

#[path = "made_up/series.rs"]
mod series;

use series::{BY_SHUFFLES, BY_STUDENT, NOISE, NOISES, Step, false_alarms, steps_found};
use tollgate_stats::Division;

/// Made by `examples/change_points.rs`.
const TABLE: &str = include_str!("fixtures/made-up-series.txt");

/// Four standard errors of a share that was asked for so often.
fn four_errors(share: f64, runs: usize) -> f64 {
    4.0 * (share * (1.0 - share) / runs as f64).sqrt()
}

/// The columns of the lines of a part of the table, without their percent signs.
fn rows(part: usize) -> Vec<Vec<&'static str>> {
    let lines = TABLE.split("\n\n").nth(part).expect("the table has two parts").lines().skip(1);
    lines.map(|line| line.split_whitespace().filter(|column| *column != "%").collect()).collect()
}

fn number(text: &str) -> f64 {
    text.parse().expect("a number")
}

#[test]
fn the_table_promises_five_percent() {
    let rows = rows(0);
    assert_eq!(rows.len(), NOISES.len() * 5 * 2);
    for row in rows {
        let [noise, n, test, runs, alarms] = row[..] else { panic!("not five columns: {row:?}") };
        let (runs, alarms) = (number(runs) as usize, number(alarms) / 100.0);
        // Whatever the noise, an order is an accident: the shuffles keep their promise. Student's test
        // makes it for normal noise, and is told of where it is not kept.
        if test == "shuffles" || noise == "normal" {
            assert!(alarms <= 0.05 + four_errors(0.05, runs), "{row:?}");
        }
        // Five values are too few for shuffles to say anything.
        assert_eq!(alarms == 0.0, test == "shuffles" && n == "5", "{row:?}");
    }
}

#[test]
fn series_without_a_step_are_divided_as_the_table_says() {
    let (runs, n) = (150, 8);
    let [(_, normal), ..] = NOISES;
    for (test, division) in [("shuffles", BY_SHUFFLES), ("student", BY_STUDENT)] {
        let told = rows(0).into_iter().find(|row| row[..3] == ["normal", "8", test]);
        let told = number(told.expect("a line for it")[4]) / 100.0;
        let found = false_alarms(normal, n, &division, runs) as f64 / runs as f64;
        assert!((found - told).abs() <= four_errors(told, runs), "{test}: {found}, not {told}");
    }
}

#[test]
fn steps_are_found_as_the_table_says() {
    let found = |n: usize, place: usize, height: f64, division: &Division| {
        let [(_, normal), ..] = NOISES;
        let runs = 20;
        steps_found(normal, n, Step { place, height }, division, runs) as f64 / runs as f64
    };
    for (test, division) in [("shuffles", BY_SHUFFLES), ("student", BY_STUDENT)] {
        let told = rows(1).into_iter().find(|row| row[..4] == ["normal", "12", "middle", test]);
        let told = told.expect("a line for it");
        for (column, height) in [(4, 2.0 * NOISE), (5, 5.0 * NOISE), (6, 2.996)] {
            let told = number(told[column]) / 100.0;
            // The table was asked 200 times itself.
            let slack = four_errors(told, 20) + four_errors(told, 200) + 0.02;
            let found = found(12, 6, height, &division);
            assert!((found - told).abs() <= slack, "{test} {height}: {found}, not {told}");
        }
    }
}
