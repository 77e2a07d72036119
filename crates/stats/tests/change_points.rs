//! Change points: by hand, against an independent implementation, and by what must hold of any series.

use proptest::prelude::*;
use tollgate_stats::{ChangePoint, Division, DivisionTest, SERIES_MAX, e_divisive};

/// Made by numpy, scipy and Apache Otava, which share no code with ours; see
/// `fixtures/change_points.py`.
const BY_OTHERS: &str = include_str!("fixtures/change_points.tsv");

/// How often the values are shuffled.
const PERMUTATIONS: f64 = 9_999.0;

fn by_shuffling(seed: u64) -> Division {
    Division { segment_min: 2, significance: 0.05, test: DivisionTest::Permutations { seed } }
}

const BY_STUDENT: Division =
    Division { segment_min: 2, significance: 0.05, test: DivisionTest::Student };

fn places(series: &[f64], division: &Division) -> Vec<usize> {
    e_divisive(series, division).unwrap().iter().map(|change| change.index).collect()
}

/// Six quiet values around 1, six around 1.05, and six around 20, as a repository would show that has
/// a small slow-down and then a large one.
const TWO_STEPS: [f64; 18] = [
    1.002, 0.998, 1.001, 0.999, 1.003, 0.997, // the first level
    1.051, 1.049, 1.052, 1.048, 1.050, 1.053, // 5 % more
    20.04, 19.96, 20.02, 19.98, 20.06, 19.94, // twenty times as much
];

#[test]
fn a_small_and_a_large_step_are_found_at_their_places() {
    let logs = TWO_STEPS.map(f64::ln);
    assert_eq!(places(&logs, &BY_STUDENT), [6, 12]);
    for seed in 0..5 {
        assert_eq!(places(&logs, &by_shuffling(seed)), [6, 12], "seed {seed}");
    }
}

#[test]
fn four_values_are_for_student_alone() {
    let series = [0.0, 0.01, 3.0, 3.01];
    assert_eq!(places(&series, &BY_STUDENT), [2]);
    assert!(places(&series, &by_shuffling(1)).is_empty());
    // And none for a segment of three.
    assert!(places(&series, &Division { segment_min: 3, ..BY_STUDENT }).is_empty());
}

#[test]
fn a_change_at_the_last_value_takes_segments_of_one() {
    let series = [0.0, 0.01, -0.01, 0.0, 0.01, -0.01, 1.0];
    assert_eq!(places(&series, &Division { segment_min: 1, ..BY_STUDENT }), [6]);
    assert!(places(&series, &BY_STUDENT).is_empty());
}

#[test]
fn a_level_that_comes_back_is_found_twice() {
    let noise = [0.01, -0.01, 0.02, 0.0, -0.02, 0.01, -0.01, 0.0];
    let series: Vec<f64> =
        [0.0, 1.0, 0.0].iter().flat_map(|level| noise.map(|noise| level + noise)).collect();
    assert_eq!(places(&series, &BY_STUDENT), [8, 16]);
    assert_eq!(places(&series, &by_shuffling(1)), [8, 16]);
}

#[test]
fn the_seed_decides_the_shuffles() {
    let logs = TWO_STEPS.map(f64::ln);
    let p = |seed| e_divisive(&logs[..10], &by_shuffling(seed)).unwrap()[0].p;
    assert_eq!(p(1), p(1));
    assert!((2..20).any(|seed| p(1) != p(seed)));
}

#[test]
fn what_is_not_finite_has_no_level() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(e_divisive(&[1.0, bad, 2.0], &BY_STUDENT), None, "{bad}");
    }
    assert_eq!(e_divisive(&[], &BY_STUDENT), Some(Vec::new()));
}

#[test]
#[should_panic(expected = "501 values are more than 500")]
fn a_longer_series_than_the_limit_is_refused() {
    e_divisive(&[1.0; SERIES_MAX + 1], &BY_STUDENT);
}

#[test]
#[should_panic(expected = "a segment has one value at the least")]
fn segments_without_a_value_are_refused() {
    e_divisive(&[1.0; 4], &Division { segment_min: 0, ..BY_STUDENT });
}

fn numbers(text: &str) -> Vec<f64> {
    text.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

/// The change points of a line of the fixture, each as index, q and p.
fn told(text: &str) -> Vec<(usize, f64, f64)> {
    let change = |text: &str| {
        let [index, q, p] =
            text.split(':').map(|part| part.parse::<f64>().unwrap()).collect::<Vec<_>>()[..]
        else {
            panic!("not three numbers: {text}");
        };
        (index as usize, q, p)
    };
    text.split_whitespace().map(change).collect()
}

#[test]
fn change_points_are_those_of_an_independent_implementation() {
    let mut found = 0;
    for line in BY_OTHERS.lines().filter(|line| line.starts_with("student")) {
        let [_, least, significance, changes, series] = line.split('\t').collect::<Vec<_>>()[..]
        else {
            panic!("not five columns: {line}");
        };
        let division = Division {
            segment_min: least.parse().unwrap(),
            significance: significance.parse().unwrap(),
            test: DivisionTest::Student,
        };
        let ours = e_divisive(&numbers(series), &division).unwrap();
        let theirs = told(changes);
        assert_eq!(ours.len(), theirs.len(), "{line}\n{ours:?}");
        for (ChangePoint { index, q, p }, (their_index, their_q, their_p)) in
            ours.iter().zip(theirs)
        {
            assert_eq!(*index, their_index, "{line}\n{ours:?}");
            assert!((q - their_q).abs() <= 1e-9, "{line}\n{ours:?}");
            assert!((p - their_p).abs() <= 1e-9, "{line}\n{ours:?}");
            found += 1;
        }
    }
    assert!(found > 100, "{found}");
}

#[test]
fn shuffles_tell_the_share_of_all_orders() {
    let mut compared = 0;
    for line in BY_OTHERS.lines().filter(|line| line.starts_with("orders")) {
        let [_, _, _, changes, series] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("not five columns: {line}");
        };
        let [(index, q, share)] = told(changes)[..] else { panic!("not one change: {line}") };
        // Whatever its p, the division is wanted; those that follow it have another index.
        let division = Division { significance: 1.0, ..by_shuffling(11) };
        let ours = e_divisive(&numbers(series), &division).unwrap();
        let first = ours.iter().find(|change| change.index == index).unwrap();
        assert!((first.q - q).abs() <= 1e-9, "{line}\n{first:?}");
        let slack = 4.0 * (share * (1.0 - share) / PERMUTATIONS).sqrt() + 1.0 / PERMUTATIONS;
        assert!((first.p - share).abs() <= slack, "{line}\n{first:?}");
        compared += 1;
    }
    assert_eq!(compared, 4);
}

/// Figures that differ by what can be told apart in their last digits.
fn series() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec((-500..500_i32).prop_map(|value| f64::from(value) / 8.0), 0..24)
}

fn all_divisions(segment_min: usize) -> Division {
    Division { segment_min, significance: 1.0, test: DivisionTest::Student }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn equal_values_have_no_change(value in -1e6..1e6_f64, n in 0..40_usize, seed: u64) {
        let series = vec![value; n];
        for division in [by_shuffling(seed), BY_STUDENT, all_divisions(1)] {
            prop_assert_eq!(e_divisive(&series, &division).unwrap(), []);
        }
    }

    #[test]
    fn segments_are_as_long_as_they_must_be(series in series(), least in 1..5_usize) {
        let changes = e_divisive(&series, &all_divisions(least)).unwrap();
        let mut edges = vec![0];
        edges.extend(changes.iter().map(|change| change.index));
        edges.push(series.len());
        if !changes.is_empty() {
            prop_assert!(edges.windows(2).all(|edge| edge[0] + least <= edge[1]), "{:?}", edges);
        }
        for change in &changes {
            prop_assert!(change.q > 0.0 && (0.0..=1.0).contains(&change.p), "{:?}", change);
        }
    }

    // Multiples of eighths, shifted by whole numbers and scaled by powers of two, stay exact.
    #[test]
    fn a_shift_changes_nothing(series in series(), shift in -1_000..1_000_i32, seed: u64) {
        let shifted: Vec<f64> = series.iter().map(|value| value + f64::from(shift)).collect();
        let division = by_shuffling(seed);
        prop_assert_eq!(e_divisive(&series, &division), e_divisive(&shifted, &division));
        let there = places(&series, &all_divisions(2));
        prop_assert_eq!(there, places(&shifted, &all_divisions(2)));
    }

    #[test]
    fn another_unit_changes_the_statistic_alone(series in series(), power in -8..8_i32, seed: u64) {
        let unit = 2_f64.powi(power);
        let scaled: Vec<f64> = series.iter().map(|value| value * unit).collect();
        for division in [by_shuffling(seed), BY_STUDENT] {
            let expected: Vec<ChangePoint> = e_divisive(&series, &division)
                .unwrap()
                .iter()
                .map(|change| ChangePoint { q: change.q * unit, ..*change })
                .collect();
            prop_assert_eq!(e_divisive(&scaled, &division).unwrap(), expected);
        }
    }

    #[test]
    fn a_step_far_beyond_the_noise_is_found_at_its_place(
        noise in prop::collection::vec(-1.0..1.0_f64, 10..30),
        place in 0.0..1.0_f64,
        up: bool,
        seed: u64,
    ) {
        // At least four values on either side, which eight can be divided in.
        let place = 4 + (place * (noise.len() - 8) as f64) as usize;
        let height = if up { 100.0 } else { -100.0 };
        let series: Vec<f64> = noise
            .iter()
            .enumerate()
            .map(|(i, noise)| if i < place { *noise } else { noise + height })
            .collect();
        for division in [by_shuffling(seed), BY_STUDENT] {
            prop_assert!(places(&series, &division).contains(&place), "{:?}", series);
        }
    }
}
