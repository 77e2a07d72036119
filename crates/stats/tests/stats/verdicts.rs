use proptest::prelude::*;
use tollgate_stats::{
    Pair, Verdict, difference, difference_p, half_width, holm, modified_z_scores, ratio, ratio_p,
    smallest_visible_difference, verdict, verdict_of_difference,
};

/// Computed by scipy and statsmodels; see `fixtures/formulas.py`.
const BY_OTHERS: &str = include_str!("../fixtures/formulas.tsv");

const SEED: u64 = 42;
const MARGIN: f64 = 0.02;

/// Makes pairs with these differences.
fn differences(values: &[f64]) -> Vec<Pair> {
    values.iter().map(|&subject| Pair { subject, baseline: 0.0 }).collect()
}

/// Makes pairs with these ratios.
fn ratios(values: &[f64]) -> Vec<Pair> {
    values.iter().map(|&subject| Pair { subject, baseline: 1.0 }).collect()
}

/// Parses the lines of a kind: expected and given numbers.
fn lines_of(kind: &str) -> Vec<(Vec<f64>, Vec<f64>)> {
    let numbers = |text: &str| -> Vec<f64> {
        text.split(' ').map(|number| number.parse().expect("a number")).collect()
    };
    BY_OTHERS
        .lines()
        .map(|line| line.split('\t').collect::<Vec<_>>())
        .filter(|columns| columns[0] == kind)
        .map(|columns| (numbers(columns[1]), numbers(columns[2])))
        .collect()
}

fn assert_all_close(ours: &[f64], theirs: &[f64], tolerance: f64) {
    assert_eq!(ours.len(), theirs.len());
    for (our, their) in ours.iter().zip(theirs) {
        let slack = tolerance * our.abs().max(their.abs());
        assert!((our - their).abs() <= slack, "{ours:?}\n{theirs:?}");
    }
}

#[test]
fn p_values_match_scipy() {
    let lines = lines_of("p");
    assert_eq!(lines.len(), 33);
    for (expected, values) in lines {
        let p = difference_p(&differences(&values)).unwrap();
        assert!((p - expected[0]).abs() <= 1e-12, "{p} {} {values:?}", expected[0]);
    }
}

#[test]
fn adjusted_p_values_match_statsmodels() {
    let lines = lines_of("holm");
    assert_eq!(lines.len(), 7);
    for (expected, p) in lines {
        assert_all_close(&holm(&p), &expected, 1e-12);
    }
}

#[test]
fn modified_z_scores_match_scipy() {
    let lines = lines_of("z");
    assert_eq!(lines.len(), 6);
    for (expected, values) in lines {
        assert_all_close(&modified_z_scores(&values), &expected, 1e-9);
    }
}

#[test]
fn visible_differences_match_simulated_tests() {
    let lines = lines_of("visible");
    assert_eq!(lines.len(), 5);
    for (expected, given) in lines {
        let (blocks, aa) = given.split_first().unwrap();
        // The expected values come from 200,000 simulated runs, ours from 4,000.
        let visible = smallest_visible_difference(&ratios(aa), *blocks as usize).unwrap();
        assert_all_close(&[visible], &expected, 0.04);
    }
}

/// The price of ModSecurity with the Core Rule Set over nginx, in a run of seven blocks and four subjects.
#[test]
fn large_price_is_settled_beside_other_prices() {
    let pairs = ratios(&[58.1, 60.2, 61.0, 61.3, 61.9, 63.4, 65.3]);
    let adjusted = holm(&[ratio_p(&pairs).unwrap(), 0.5, 0.6, 0.7]);
    assert_eq!(verdict(&ratio(&pairs, SEED).unwrap(), adjusted[0], MARGIN), Verdict::CostsMore);
}

#[test]
fn p_values_without_variation() {
    assert_eq!(difference_p(&differences(&[3.0])), Some(1.0));
    assert_eq!(difference_p(&differences(&[0.0; 6])), Some(1.0));
    assert!(difference_p(&differences(&[3.0; 6])).unwrap() < 1e-12);
}

#[test]
fn no_p_value_without_a_price() {
    assert_eq!((ratio_p(&[]), difference_p(&[])), (None, None));
    assert_eq!(ratio_p(&ratios(&[1.0, 0.0])), None);
    assert_eq!(ratio_p(&ratios(&[1.0, f64::INFINITY])), None);
    assert_eq!(difference_p(&differences(&[1.0, f64::NAN])), None);
}

/// From six blocks to well within the bootstrap, with various prices and noise.
fn blocks() -> impl Strategy<Value = Vec<Pair>> {
    (prop::sample::select(vec![0.5, 0.97, 1.0, 1.03, 2.0]), 0.001..0.1_f64, 6..16_usize)
        .prop_flat_map(|(price, noise, blocks)| {
            let figure = move || 100.0 * (1.0 - noise)..100.0 * (1.0 + noise);
            let pair = (figure(), figure())
                .prop_map(move |(subject, baseline)| Pair { subject: subject * price, baseline });
            prop::collection::vec(pair, blocks)
        })
}

fn swapped(blocks: &[Pair]) -> Vec<Pair> {
    blocks.iter().map(|pair| Pair { subject: pair.baseline, baseline: pair.subject }).collect()
}

/// Returns the verdict on the ratio without correction.
fn verdict_of(blocks: &[Pair]) -> Verdict {
    let price = ratio(blocks, SEED).expect("figures are positive");
    verdict(&price, ratio_p(blocks).expect("figures are positive"), MARGIN)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn swapping_the_sides_inverts_ratio_and_verdict(blocks in blocks()) {
        let (price, turned) =
            (ratio(&blocks, SEED).unwrap(), ratio(&swapped(&blocks), SEED).unwrap());
        prop_assert!((price.point * turned.point - 1.0).abs() < 1e-9);
        let (p, turned_p) = (ratio_p(&blocks).unwrap(), ratio_p(&swapped(&blocks)).unwrap());
        prop_assert!((p - turned_p).abs() < 1e-12, "{} {}", p, turned_p);
        // Beyond that the bootstrap draws from the blocks in another order.
        if blocks.len() < 12 {
            prop_assert_eq!(verdict_of(&swapped(&blocks)), verdict_of(&blocks).reversed());
            let (half, turned_half) = (half_width(&price).unwrap(), half_width(&turned).unwrap());
            prop_assert!((half - turned_half).abs() < 1e-9);
        }
    }

    #[test]
    fn swapping_the_sides_inverts_the_verdict_on_a_difference(blocks in blocks()) {
        let verdict = |blocks: &[Pair]| {
            let p = difference_p(blocks).unwrap();
            verdict_of_difference(&difference(blocks, SEED).unwrap(), p)
        };
        if blocks.len() < 12 {
            prop_assert_eq!(verdict(&swapped(&blocks)), verdict(&blocks).reversed());
        }
    }

    #[test]
    fn order_and_unit_do_not_change_a_p_value(
        (blocks, shuffled) in blocks().prop_flat_map(|b| (Just(b.clone()), Just(b).prop_shuffle())),
        exponent in -20..20_i32,
    ) {
        // Powers of two, which round nothing and break no ties.
        let unit = 2.0_f64.powi(exponent);
        let scaled: Vec<Pair> = shuffled
            .iter()
            .map(|pair| Pair { subject: pair.subject * unit, baseline: pair.baseline * unit })
            .collect();
        prop_assert_eq!(ratio_p(&blocks), ratio_p(&scaled));
        prop_assert_eq!(difference_p(&blocks), difference_p(&scaled));
    }

    #[test]
    fn raising_all_values_does_not_raise_the_p_value(
        values in prop::collection::vec(-4..=4_i32, 6..14),
        raise in 1..4_i32,
    ) {
        let p = |raise: i32| {
            let values: Vec<f64> = values.iter().map(|&value| f64::from(value + raise)).collect();
            difference_p(&differences(&values)).unwrap()
        };
        if values.iter().sum::<i32>() > 0 {
            prop_assert!(p(raise) <= p(0) + 1e-12, "{} {}", p(0), p(raise));
        }
    }

    #[test]
    fn holm_multiplies_by_the_number_of_values_not_below(
        p in prop::collection::vec(0.0..=1.0_f64, 0..12),
    ) {
        // Times the number of values not below it, and at least any smaller one.
        let times = |value: f64| p.iter().filter(|&&other| other >= value).count() as f64;
        let up_to = |value: f64| p.iter().filter(move |&&other| other <= value);
        let expected: Vec<f64> = p
            .iter()
            .map(|&value| up_to(value).map(|&v| times(v) * v).fold(0.0, f64::max).min(1.0))
            .collect();
        prop_assert_eq!(holm(&p), expected);
    }

    #[test]
    fn unit_and_origin_do_not_change_a_score(
        values in prop::collection::vec(-100..100_i32, 1..20),
        shift in -1000..1000_i32,
    ) {
        let of = |unit: f64, shift: i32| {
            let values: Vec<f64> =
                values.iter().map(|&value| f64::from(value + shift) * unit).collect();
            modified_z_scores(&values)
        };
        prop_assert_eq!(of(1.0, 0), of(1.0, shift));
        prop_assert_eq!(of(1.0, 0), of(0.25, shift));
        let turned: Vec<f64> = of(-1.0, 0).iter().map(|score| -score).collect();
        prop_assert_eq!(of(1.0, 0), turned);
    }
}
