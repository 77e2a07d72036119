//! Tests, corrections, scores and verdicts: against scipy and statsmodels, and by what must hold of
//! any.

use proptest::prelude::*;
use tollgate_stats::{
    Interval, Pair, Verdict, blocks_to_settle, difference, difference_p, half_width, holm,
    modified_z_scores, ratio, ratio_p, smallest_visible_difference, verdict, verdict_of_difference,
};

/// Made by programs that share no code with ours; see `fixtures/formulas.py`.
const BY_OTHERS: &str = include_str!("fixtures/formulas.tsv");

const SEED: u64 = 42;
const MARGIN: f64 = 0.02;

/// Values with a baseline of nothing, so that they are the differences.
fn differences(values: &[f64]) -> Vec<Pair> {
    values.iter().map(|&subject| Pair { subject, baseline: 0.0 }).collect()
}

fn ratios(values: &[f64]) -> Vec<Pair> {
    values.iter().map(|&subject| Pair { subject, baseline: 1.0 }).collect()
}

/// The expected and the given numbers of each line of a kind.
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
fn p_values_are_those_of_scipy() {
    let lines = lines_of("p");
    assert_eq!(lines.len(), 42);
    for (expected, values) in lines {
        // Beyond what is counted out, both take the normal distribution, ours within 0.000 000 1.
        let approximated = values.iter().filter(|&&value| value != 0.0).count() > 100;
        let slack = if approximated { 2e-7 } else { 1e-12 };
        let p = difference_p(&differences(&values)).unwrap();
        assert!((p - expected[0]).abs() <= slack, "{p} {} {values:?}", expected[0]);
    }
}

#[test]
fn adjusted_p_values_are_those_of_statsmodels() {
    let lines = lines_of("holm");
    assert_eq!(lines.len(), 7);
    for (expected, p) in lines {
        assert_all_close(&holm(&p), &expected, 1e-12);
    }
}

#[test]
fn modified_z_scores_are_those_of_scipy() {
    let lines = lines_of("z");
    assert_eq!(lines.len(), 6);
    for (expected, values) in lines {
        assert_all_close(&modified_z_scores(&values), &expected, 1e-9);
    }
}

#[test]
fn visible_differences_are_those_of_the_test_itself() {
    let lines = lines_of("visible");
    assert_eq!(lines.len(), 5);
    for (expected, given) in lines {
        let (blocks, aa) = given.split_first().unwrap();
        // Theirs are made up of 200,000 runs, ours of 4,000, whose 80 % are off by 0.6 % of the runs.
        let visible = smallest_visible_difference(&ratios(aa), *blocks as usize).unwrap();
        assert_all_close(&[visible], &expected, 0.04);
    }
}

#[test]
fn a_price_in_every_block_is_settled_as_soon_as_it_can_be() {
    for verdicts in [1, 2, 4, 8] {
        let settled = |blocks: usize| {
            let pairs = ratios(&(0..blocks).map(|i| 1.5 + i as f64 / 100.0).collect::<Vec<_>>());
            let adjusted = holm(&vec![ratio_p(&pairs).unwrap(); verdicts]);
            verdict(&ratio(&pairs, SEED).unwrap(), adjusted[0], MARGIN) == Verdict::CostsMore
        };
        let blocks = blocks_to_settle(verdicts);
        assert!(settled(blocks) && !settled(blocks - 1), "{verdicts} verdicts");
    }
}

#[test]
fn without_a_price_there_is_no_p_value() {
    assert_eq!((ratio_p(&[]), difference_p(&[])), (None, None));
    assert_eq!(ratio_p(&ratios(&[1.0, 0.0])), None);
    assert_eq!(ratio_p(&ratios(&[1.0, f64::INFINITY])), None);
    assert_eq!(difference_p(&differences(&[1.0, f64::NAN])), None);
}

/// From six blocks to well within the bootstrap, of subjects that are dearer, cheaper, the same or
/// hard to tell.
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

/// The ratio of the blocks and what it says, alone in its table.
fn verdict_of(blocks: &[Pair]) -> Verdict {
    let price = ratio(blocks, SEED).expect("figures are positive");
    verdict(&price, ratio_p(blocks).expect("figures are positive"), MARGIN)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn swapping_the_sides_inverts_the_ratio_and_reverses_the_verdict(blocks in blocks()) {
        let (price, turned) =
            (ratio(&blocks, SEED).unwrap(), ratio(&swapped(&blocks), SEED).unwrap());
        prop_assert!((price.point * turned.point - 1.0).abs() < 1e-9);
        let (p, turned_p) = (ratio_p(&blocks).unwrap(), ratio_p(&swapped(&blocks)).unwrap());
        prop_assert!((p - turned_p).abs() < 1e-12, "{} {}", p, turned_p);
        // Beyond, the bootstrap redraws the blocks in another order.
        if blocks.len() < 12 {
            prop_assert_eq!(verdict_of(&swapped(&blocks)), verdict_of(&blocks).reversed());
            let (half, turned_half) = (half_width(&price).unwrap(), half_width(&turned).unwrap());
            prop_assert!((half - turned_half).abs() < 1e-9);
        }
    }

    #[test]
    fn swapping_the_sides_reverses_the_verdict_on_a_difference(blocks in blocks()) {
        let told = |blocks: &[Pair]| {
            let p = difference_p(blocks).unwrap();
            verdict_of_difference(&difference(blocks, SEED).unwrap(), p)
        };
        if blocks.len() < 12 {
            prop_assert_eq!(told(&swapped(&blocks)), told(&blocks).reversed());
        }
    }

    #[test]
    fn the_exact_interval_and_the_test_agree(blocks in prop::collection::vec(0.5..2.0_f64, 6..12)) {
        let pairs = ratios(&blocks);
        let Interval::Confidence { low, high } = ratio(&pairs, SEED).unwrap().interval else {
            panic!("six blocks have an interval");
        };
        prop_assert_eq!(low > 1.0 || high < 1.0, ratio_p(&pairs).unwrap() <= 0.05);
    }

    #[test]
    fn neither_order_nor_unit_changes_a_p_value(
        (blocks, shuffled) in blocks().prop_flat_map(|b| (Just(b.clone()), Just(b).prop_shuffle())),
        exponent in -20..20_i32,
    ) {
        // By powers of two, which round nothing and so break no tie.
        let unit = 2.0_f64.powi(exponent);
        let scaled: Vec<Pair> = shuffled
            .iter()
            .map(|pair| Pair { subject: pair.subject * unit, baseline: pair.baseline * unit })
            .collect();
        prop_assert_eq!(ratio_p(&blocks), ratio_p(&scaled));
        prop_assert_eq!(difference_p(&blocks), difference_p(&scaled));
    }

    #[test]
    fn a_dearer_subject_is_not_less_likely_to_be_dearer(
        values in prop::collection::vec(-4..=4_i32, 6..14),
        raise in 1..4_i32,
    ) {
        // With ties and zeros: what is already to the right only gets clearer as all is raised.
        let told = |raise: i32| {
            let values: Vec<f64> = values.iter().map(|&value| f64::from(value + raise)).collect();
            (difference(&differences(&values), SEED).unwrap(), difference_p(&differences(&values)))
        };
        let ((before, p_before), (_, p_after)) = (told(0), told(raise));
        if before.point > 0.0 {
            prop_assert!(p_after <= p_before, "{:?} {:?}", p_before, p_after);
        }
    }

    #[test]
    fn holm_takes_each_as_often_as_those_not_below_it(
        p in prop::collection::vec(0.0..=1.0_f64, 0..12),
    ) {
        // As often as there are values not below it, and no less than any below it.
        let times = |value: f64| p.iter().filter(|&&other| other >= value).count() as f64;
        let up_to = |value: f64| p.iter().filter(move |&&other| other <= value);
        let expected: Vec<f64> = p
            .iter()
            .map(|&value| up_to(value).map(|&v| times(v) * v).fold(0.0, f64::max).min(1.0))
            .collect();
        prop_assert_eq!(holm(&p), expected);
    }

    #[test]
    fn neither_unit_nor_origin_changes_a_score(
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
