use proptest::prelude::*;
use tollgate_stats::{BLOCKS_MAX, Estimate, Interval, ratio_of_samples};

use crate::{assert_close, ends, is_close};

/// Computed by scipy; see `fixtures/two_samples.py`.
const BY_SCIPY: &str = include_str!("../fixtures/two_samples.tsv");

#[test]
fn interval_of_four_and_four_values_is_their_range() {
    // The sixteen new / old, from the smallest up:
    // 2 4 4 8 8 8 16 16 | 16 16 32 32 32 64 64 128.
    let shift = ratio_of_samples(&[1.0, 2.0, 4.0, 8.0], &[16.0, 32.0, 64.0, 128.0]).unwrap();
    assert!(is_close(shift.ratio.point, 16.0), "{shift:?}");
    assert!(matches!(shift.ratio.interval, Interval::Confidence { .. }), "{shift:?}");
    let (low, high) = ends(&shift.ratio);
    assert!(is_close(low, 2.0) && is_close(high, 128.0), "{shift:?}");
    assert_eq!(shift.ratio.n, 4);
    // Two of the 70 orders are as extreme.
    assert!(is_close(shift.p, 2.0 / 70.0), "{shift:?}");
}

#[test]
fn interval_of_five_and_five_values_omits_two_ratios_at_each_end() {
    // Old all 1, so the ratios are the new values, each five times; the third is still the first.
    let shift = ratio_of_samples(&[1.0; 5], &[2.0, 3.0, 5.0, 7.0, 11.0]).unwrap();
    assert!(is_close(shift.ratio.point, 5.0), "{shift:?}");
    let (low, high) = ends(&shift.ratio);
    assert!(is_close(low, 2.0) && is_close(high, 11.0), "{shift:?}");
    // Old 1 to 16 by doubling: 1/16 1/8 1/8 | 1/4 ... 4 | 8 8 16.
    let powers = [1.0, 2.0, 4.0, 8.0, 16.0];
    let shift = ratio_of_samples(&powers, &powers).unwrap();
    let (low, high) = ends(&shift.ratio);
    assert!(is_close(low, 0.125) && is_close(high, 8.0), "{shift:?}");
    assert!(is_close(shift.ratio.point, 1.0) && is_close(shift.p, 1.0), "{shift:?}");
}

#[test]
fn three_and_four_values_have_no_interval() {
    let shift = ratio_of_samples(&[1.0, 2.0, 4.0], &[8.0, 8.0, 16.0, 32.0]).unwrap();
    assert!(matches!(shift.ratio.interval, Interval::TooFew { .. }), "{shift:?}");
    let (min, max) = ends(&shift.ratio);
    assert!(is_close(min, 2.0) && is_close(max, 32.0), "{shift:?}");
    // Two of the 35 orders.
    assert!(is_close(shift.p, 2.0 / 35.0), "{shift:?}");
}

#[test]
fn needs_positive_finite_values_on_both_sides() {
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(ratio_of_samples(&[1.0, bad], &[1.0]), None, "{bad}");
        assert_eq!(ratio_of_samples(&[1.0], &[bad, 1.0]), None, "{bad}");
    }
    assert_eq!(ratio_of_samples(&[], &[1.0]), None);
    assert_eq!(ratio_of_samples(&[1.0], &[]), None);
}

#[test]
#[should_panic(expected = "1001 values are more than 1000")]
fn more_values_than_the_limit_are_refused() {
    ratio_of_samples(&[1.0], &vec![1.0; BLOCKS_MAX + 1]);
}

#[test]
fn ratios_are_those_of_scipy() {
    let mut with_interval = 0;
    for line in BY_SCIPY.lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        let [numbers @ .., old, new] = columns.as_slice() else {
            panic!("too few columns: {line}");
        };
        let values = |text: &str| -> Vec<f64> {
            text.split(' ').map(|value| value.parse().unwrap()).collect()
        };
        let [tolerance, point, low, high, p] = values(&numbers.join(" "))[..] else {
            panic!("not five numbers: {line}");
        };
        let (old, new) = (values(old), values(new));
        let shift = ratio_of_samples(&old, &new).unwrap();
        assert!(is_close(shift.ratio.point, point), "{line}\n{shift:?}");
        let slack = tolerance * (high - low) + 1e-9;
        let (our_low, our_high) = ends(&shift.ratio);
        assert!((our_low - low).abs() <= slack, "{line}\n{shift:?}");
        assert!((our_high - high).abs() <= slack, "{line}\n{shift:?}");
        // The normal tail is approximated within 1e-7.
        assert!((shift.p - p).abs() <= 1e-6, "{line}\n{shift:?}");
        with_interval += u32::from(matches!(shift.ratio.interval, Interval::Confidence { .. }));
    }
    assert_eq!((BY_SCIPY.lines().count(), with_interval), (10, 8));
}

fn sample() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(0.1..1e3_f64, 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn interval_contains_the_estimate(old in sample(), new in sample()) {
        let shift = ratio_of_samples(&old, &new).unwrap();
        let (low, high) = ends(&shift.ratio);
        prop_assert!(low <= shift.ratio.point && shift.ratio.point <= high, "{:?}", shift);
        prop_assert!(shift.p > 0.0 && shift.p <= 1.0, "{:?}", shift);
    }

    #[test]
    fn interval_excludes_one_exactly_if_the_test_rejects(old in sample(), new in sample()) {
        let shift = ratio_of_samples(&old, &new).unwrap();
        if let Interval::Confidence { low, high } = shift.ratio.interval {
            prop_assert_eq!(low > 1.0 || high < 1.0, shift.p <= 0.05, "{:?}", shift);
        }
    }

    #[test]
    fn order_of_values_does_not_matter(
        old in sample(),
        (new, shuffled) in sample().prop_flat_map(|s| (Just(s.clone()), Just(s).prop_shuffle())),
    ) {
        prop_assert_eq!(ratio_of_samples(&old, &new), ratio_of_samples(&old, &shuffled));
        prop_assert_eq!(ratio_of_samples(&new, &old), ratio_of_samples(&shuffled, &old));
    }

    #[test]
    fn swapping_the_samples_inverts_the_ratio(old in sample(), new in sample()) {
        let (there, back) =
            (ratio_of_samples(&old, &new).unwrap(), ratio_of_samples(&new, &old).unwrap());
        let ((low, high), (back_low, back_high)) = (ends(&there.ratio), ends(&back.ratio));
        prop_assert!(is_close(there.ratio.point * back.ratio.point, 1.0));
        prop_assert!(is_close(low * back_high, 1.0) && is_close(high * back_low, 1.0));
        prop_assert!(is_close(there.p, back.p));
    }

    #[test]
    fn ratio_is_proportional_to_the_new_sample(
        old in sample(), new in sample(), k in 0.01..100.0_f64,
    ) {
        let dearer: Vec<f64> = new.iter().map(|value| value * k).collect();
        let (before, after) =
            (ratio_of_samples(&old, &new).unwrap(), ratio_of_samples(&old, &dearer).unwrap());
        let (low, high) = ends(&before.ratio);
        let interval = Interval::Confidence { low: low * k, high: high * k };
        let expected = Estimate { point: before.ratio.point * k, interval, n: before.ratio.n };
        assert_close(&after.ratio, &expected);
    }
}
