use proptest::prelude::*;
use tollgate_stats::{BLOCKS_MAX, Estimate, Interval, Pair, difference, ratio};

use crate::{assert_close, ends, is_close};

/// Computed by scipy; see `fixtures/prices.py`.
const BY_SCIPY: &str = include_str!("../fixtures/prices.tsv");

const SEED: u64 = 42;

fn pairs(subjects: &[f64], baselines: &[f64]) -> Vec<Pair> {
    assert_eq!(subjects.len(), baselines.len());
    subjects.iter().zip(baselines).map(|(&subject, &baseline)| Pair { subject, baseline }).collect()
}

#[test]
fn interval_of_six_blocks_is_their_range() {
    // Differences 1 2 3 4 5 16. Of the 21 means, the eleventh is the estimate:
    // 1 1.5 2 2 2.5 2.5 3 3 3 3.5 [3.5] 4 4 4.5 5 8.5 9 9.5 10 10.5 16.
    let blocks = pairs(&[11.0, 12.0, 13.0, 14.0, 15.0, 26.0], &[10.0; 6]);
    let expected =
        Estimate { point: 3.5, interval: Interval::Confidence { low: 1.0, high: 16.0 }, n: 6 };
    assert_eq!(difference(&blocks, SEED), Some(expected));
}

#[test]
fn five_blocks_have_no_interval() {
    // Differences 1 2 3 4 6, means 1 1.5 2 2 2.5 2.5 3 [3] 3.5 3.5 4 4 4.5 5 6.
    let blocks = pairs(&[11.0, 12.0, 13.0, 14.0, 16.0], &[10.0; 5]);
    let expected = Estimate { point: 3.0, interval: Interval::TooFew { min: 1.0, max: 6.0 }, n: 5 };
    assert_eq!(difference(&blocks, SEED), Some(expected));
}

#[test]
fn half_and_double_cancel_out() {
    let price = ratio(&pairs(&[5.0, 20.0], &[10.0, 10.0]), SEED).unwrap();
    assert!(is_close(price.point, 1.0), "{price:?}");
    let (min, max) = ends(&price);
    assert!(is_close(min, 0.5) && is_close(max, 2.0), "{price:?}");
}

#[test]
fn seed_matters_from_twelve_blocks_up() {
    let subjects: Vec<f64> = (1..=12).map(|i| f64::from(i * i * i)).collect();
    let twelve = pairs(&subjects, &[1.0; 12]);
    assert_eq!(difference(&twelve[..11], 1), difference(&twelve[..11], 2));
    assert_ne!(difference(&twelve, 1), difference(&twelve, 2));
}

#[test]
fn no_price_without_blocks() {
    assert_eq!(ratio(&[], SEED), None);
    assert_eq!(difference(&[], SEED), None);
}

#[test]
fn ratio_needs_positive_finite_values() {
    let undefined = [
        (0.0, 1.0),
        (1.0, 0.0),
        (-1.0, -1.0),
        (f64::NAN, 1.0),
        (f64::INFINITY, 1.0),
        (1.0, f64::INFINITY),
        (f64::INFINITY, f64::INFINITY),
        (1e300, 1e-300),
    ];
    for (subject, baseline) in undefined {
        let blocks = pairs(&[1.0, subject], &[1.0, baseline]);
        assert_eq!(ratio(&blocks, SEED), None, "{subject} / {baseline}");
    }
}

#[test]
fn difference_needs_finite_values() {
    assert_eq!(difference(&pairs(&[f64::NAN], &[1.0]), SEED), None);
    assert_eq!(difference(&pairs(&[1.0], &[f64::INFINITY]), SEED), None);
    let nothing = difference(&pairs(&[0.0], &[0.0]), SEED).unwrap();
    assert_eq!((nothing.point, nothing.n), (0.0, 1));
}

#[test]
#[should_panic(expected = "1001 blocks are more than 1000")]
fn rejects_more_blocks_than_the_limit() {
    let values = vec![1.0; BLOCKS_MAX + 1];
    difference(&pairs(&values, &values), SEED);
}

#[test]
fn prices_match_scipy() {
    let mut kinds_of_interval = [0, 0, 0];
    for line in BY_SCIPY.lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        let [kind, numbers @ .., subjects, baselines] = columns.as_slice() else {
            panic!("too few columns: {line}");
        };
        let values = |text: &str| -> Vec<f64> {
            text.split(' ').map(|value| value.parse().unwrap()).collect()
        };
        let [tolerance, point, low, high] = values(&numbers.join(" "))[..] else {
            panic!("not four numbers: {line}");
        };
        let blocks = pairs(&values(subjects), &values(baselines));
        let price = match *kind {
            "ratio" => ratio(&blocks, SEED).unwrap(),
            "difference" => difference(&blocks, SEED).unwrap(),
            other => panic!("unknown kind: {other}"),
        };

        assert_eq!(price.n, blocks.len());
        assert!(is_close(price.point, point), "{line}\n{price:?}");
        let slack = tolerance * (high - low) + 1e-9;
        let (our_low, our_high) = ends(&price);
        assert!((our_low - low).abs() <= slack, "{line}\n{price:?}");
        assert!((our_high - high).abs() <= slack, "{line}\n{price:?}");
        match (price.n, price.interval) {
            (..6, Interval::TooFew { .. }) => kinds_of_interval[0] += 1,
            (6..12, Interval::Confidence { .. }) => kinds_of_interval[1] += 1,
            (12.., Interval::Confidence { .. }) => kinds_of_interval[2] += 1,
            _ => panic!("wrong kind of interval: {line}\n{price:?}"),
        }
    }
    assert_eq!(kinds_of_interval, [6, 12, 6]);
}

/// From one block to well within the bootstrap.
fn blocks() -> impl Strategy<Value = Vec<Pair>> {
    let pair =
        (0.1..1e4_f64, 0.1..1e4_f64).prop_map(|(subject, baseline)| Pair { subject, baseline });
    prop::collection::vec(pair, 1..20)
}

/// Applies `change` to every subject.
fn with_subjects(blocks: &[Pair], change: impl Fn(f64) -> f64) -> Vec<Pair> {
    blocks.iter().map(|pair| Pair { subject: change(pair.subject), ..*pair }).collect()
}

/// The estimate with its point and both ends changed.
fn changed(price: &Estimate, change: impl Fn(f64) -> f64) -> Estimate {
    let (low, high) = ends(price);
    Estimate {
        point: change(price.point),
        interval: Interval::Confidence { low: change(low), high: change(high) },
        n: price.n,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn interval_contains_the_estimate(blocks in blocks(), seed: u64) {
        for price in [ratio(&blocks, seed).unwrap(), difference(&blocks, seed).unwrap()] {
            let (low, high) = ends(&price);
            prop_assert!(low <= price.point && price.point <= high, "{:?}", price);
        }
    }

    #[test]
    fn order_of_blocks_does_not_matter(
        (blocks, shuffled) in blocks().prop_flat_map(|b| (Just(b.clone()), Just(b).prop_shuffle())),
        seed: u64,
    ) {
        prop_assert_eq!(ratio(&blocks, seed), ratio(&shuffled, seed));
        prop_assert_eq!(difference(&blocks, seed), difference(&shuffled, seed));
    }

    #[test]
    fn unit_does_not_change_a_ratio(blocks in blocks(), scale in 0.01..100.0_f64) {
        let scaled: Vec<Pair> = blocks
            .iter()
            .map(|pair| Pair {
                subject: pair.subject * scale,
                baseline: pair.baseline * scale,
            })
            .collect();
        assert_close(&ratio(&scaled, SEED).unwrap(), &ratio(&blocks, SEED).unwrap());
    }

    #[test]
    fn ratio_is_proportional_to_the_subject(blocks in blocks(), k in 0.01..100.0_f64) {
        let dearer = with_subjects(&blocks, |subject| subject * k);
        let expected = changed(&ratio(&blocks, SEED).unwrap(), |value| value * k);
        assert_close(&ratio(&dearer, SEED).unwrap(), &expected);
    }

    #[test]
    fn difference_moves_with_the_subject(blocks in blocks(), d in -1e4..1e4_f64) {
        let dearer = with_subjects(&blocks, |subject| subject + d);
        let expected = changed(&difference(&blocks, SEED).unwrap(), |value| value + d);
        assert_close(&difference(&dearer, SEED).unwrap(), &expected);
    }

    #[test]
    fn swapping_the_sides_negates_the_difference(blocks in blocks()) {
        let swapped: Vec<Pair> = blocks
            .iter()
            .map(|pair| Pair { subject: pair.baseline, baseline: pair.subject })
            .collect();
        let (price, turned) = (
            difference(&blocks, SEED).unwrap(),
            difference(&swapped, SEED).unwrap(),
        );
        prop_assert!(is_close(price.point, -turned.point));
        if blocks.len() < 12 {
            let ((low, high), (turned_low, turned_high)) = (ends(&price), ends(&turned));
            prop_assert!(is_close(low, -turned_high) && is_close(high, -turned_low));
        }
    }
}
