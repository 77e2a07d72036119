use proptest::prelude::*;
use tollgate_stats::{ChangePoint, Division, DivisionTest, SERIES_MAX, e_divisive};

/// Computed by numpy, scipy and Apache Otava; see `fixtures/change_points.py`.
const BY_OTHERS: &str = include_str!("../fixtures/change_points.tsv");

/// Permutations of one test.
const PERMUTATIONS: f64 = 9_999.0;

fn by_permutations(seed: u64) -> Division {
    Division { segment_min: 2, significance: 0.05, test: DivisionTest::Permutations { seed } }
}

const BY_STUDENT: Division =
    Division { segment_min: 2, significance: 0.05, test: DivisionTest::Student };

fn places(series: &[f64], division: &Division) -> Vec<usize> {
    let changes = e_divisive(series, division).expect("the values are finite");
    changes.iter().map(|change| change.index).collect()
}

/// A slow-down of 5 %, then one to twenty times as much.
const TWO_STEPS: [f64; 18] = [
    1.002, 0.998, 1.001, 0.999, 1.003, 0.997, // the first level
    1.051, 1.049, 1.052, 1.048, 1.050, 1.053, // 5 % more
    20.04, 19.96, 20.02, 19.98, 20.06, 19.94, // twenty times as much
];

#[test]
fn finds_a_small_and_a_large_step() {
    let logs = TWO_STEPS.map(f64::ln);
    assert_eq!(places(&logs, &BY_STUDENT), [6, 12]);
    for seed in 0..5 {
        assert_eq!(places(&logs, &by_permutations(seed)), [6, 12], "seed {seed}");
    }
}

#[test]
fn only_student_divides_four_values() {
    let series = [0.0, 0.01, 3.0, 3.01];
    assert_eq!(places(&series, &BY_STUDENT), [2]);
    assert!(places(&series, &by_permutations(1)).is_empty());
    assert!(places(&series, &Division { segment_min: 3, ..BY_STUDENT }).is_empty());
}

#[test]
fn change_at_the_last_value_needs_segments_of_one() {
    let series = [0.0, 0.01, -0.01, 0.0, 0.01, -0.01, 1.0];
    assert_eq!(places(&series, &Division { segment_min: 1, ..BY_STUDENT }), [6]);
    assert!(places(&series, &BY_STUDENT).is_empty());
}

#[test]
fn finds_both_ends_of_a_temporary_level() {
    let noise = [0.01, -0.01, 0.02, 0.0, -0.02, 0.01, -0.01, 0.0];
    let series: Vec<f64> =
        [0.0, 1.0, 0.0].iter().flat_map(|level| noise.map(|noise| level + noise)).collect();
    assert_eq!(places(&series, &BY_STUDENT), [8, 16]);
    assert_eq!(places(&series, &by_permutations(1)), [8, 16]);
}

#[test]
fn seed_determines_the_permutations() {
    let logs = TWO_STEPS.map(f64::ln);
    let p = |seed| e_divisive(&logs[..10], &by_permutations(seed)).unwrap()[0].p;
    assert_eq!(p(1), p(1));
    assert!((2..20).any(|seed| p(1) != p(seed)));
}

#[test]
fn series_must_be_finite() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(e_divisive(&[1.0, bad, 2.0], &BY_STUDENT), None, "{bad}");
    }
    assert_eq!(e_divisive(&[], &BY_STUDENT), Some(Vec::new()));
}

#[test]
#[should_panic(expected = "501 values are more than 500")]
fn rejects_longer_series_than_the_limit() {
    e_divisive(&[1.0; SERIES_MAX + 1], &BY_STUDENT);
}

#[test]
#[should_panic(expected = "a segment has at least one value")]
fn rejects_empty_segments() {
    e_divisive(&[1.0; 4], &Division { segment_min: 0, ..BY_STUDENT });
}

fn numbers(text: &str) -> Vec<f64> {
    text.split_whitespace().map(|number| number.parse().expect("a number")).collect()
}

/// Parses the change points of a line of the fixture: index, q and p.
fn parse_changes(text: &str) -> Vec<(usize, f64, f64)> {
    let change = |text: &str| {
        let [index, q, p] =
            text.split(':').map(|part| part.parse::<f64>().expect("a number")).collect::<Vec<_>>()
                [..]
        else {
            panic!("not three numbers: {text}");
        };
        (index as usize, q, p)
    };
    text.split_whitespace().map(change).collect()
}

#[test]
fn change_points_match_an_independent_implementation() {
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
        let theirs = parse_changes(changes);
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
fn permutation_p_matches_the_share_of_all_orders() {
    let mut compared = 0;
    for line in BY_OTHERS.lines().filter(|line| line.starts_with("orders")) {
        let [_, _, _, changes, series] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("not five columns: {line}");
        };
        let [(index, q, share)] = parse_changes(changes)[..] else {
            panic!("not one change: {line}")
        };
        // Accepts any p-value; later divisions have another index.
        let division = Division { significance: 1.0, ..by_permutations(11) };
        let ours = e_divisive(&numbers(series), &division).unwrap();
        let first = ours.iter().find(|change| change.index == index).unwrap();
        assert!((first.q - q).abs() <= 1e-9, "{line}\n{first:?}");
        let slack = 4.0 * (share * (1.0 - share) / PERMUTATIONS).sqrt() + 1.0 / PERMUTATIONS;
        assert!((first.p - share).abs() <= slack, "{line}\n{first:?}");
        compared += 1;
    }
    assert_eq!(compared, 4);
}

/// Multiples of eighths, which stay exact if shifted by integers and scaled by powers of two.
fn series() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec((-500..500_i32).prop_map(|value| f64::from(value) / 8.0), 0..24)
}

fn all_divisions(segment_min: usize) -> Division {
    Division { segment_min, significance: 1.0, test: DivisionTest::Student }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn equal_values_have_no_change_point(value in -1e6..1e6_f64, n in 0..40_usize, seed: u64) {
        let series = vec![value; n];
        for division in [by_permutations(seed), BY_STUDENT, all_divisions(1)] {
            prop_assert_eq!(e_divisive(&series, &division).unwrap(), []);
        }
    }

    #[test]
    fn segments_have_the_minimum_length(series in series(), least in 1..5_usize) {
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

    #[test]
    fn shift_does_not_matter(series in series(), shift in -1_000..1_000_i32, seed: u64) {
        let shifted: Vec<f64> = series.iter().map(|value| value + f64::from(shift)).collect();
        let division = by_permutations(seed);
        prop_assert_eq!(e_divisive(&series, &division), e_divisive(&shifted, &division));
        let there = places(&series, &all_divisions(2));
        prop_assert_eq!(there, places(&shifted, &all_divisions(2)));
    }

    #[test]
    fn unit_changes_the_statistic_only(series in series(), power in -8..8_i32, seed: u64) {
        let unit = 2_f64.powi(power);
        let scaled: Vec<f64> = series.iter().map(|value| value * unit).collect();
        for division in [by_permutations(seed), BY_STUDENT] {
            let expected: Vec<ChangePoint> = e_divisive(&series, &division)
                .unwrap()
                .iter()
                .map(|change| ChangePoint { q: change.q * unit, ..*change })
                .collect();
            prop_assert_eq!(e_divisive(&scaled, &division).unwrap(), expected);
        }
    }
}

proptest! {
    // Fewer cases, because permutations are slow without optimization.
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn finds_a_step_far_beyond_the_noise(
        noise in prop::collection::vec(-1.0..1.0_f64, 8..16),
        place in 0.0..1.0_f64,
        up: bool,
        seed: u64,
    ) {
        // At least four values on either side.
        let place = 4 + (place * (noise.len() - 8) as f64) as usize;
        let height = if up { 100.0 } else { -100.0 };
        let series: Vec<f64> = noise
            .iter()
            .enumerate()
            .map(|(i, noise)| if i < place { *noise } else { noise + height })
            .collect();
        for division in [by_permutations(seed), BY_STUDENT] {
            prop_assert!(places(&series, &division).contains(&place), "{:?}", series);
        }
    }
}
