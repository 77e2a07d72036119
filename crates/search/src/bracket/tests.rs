use super::*;
use proptest::prelude::*;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const OPTIONS: BracketOptions =
    BracketOptions { start: 1_000.0, min: 1.0, max: 10_000_000.0, width: 0.05, confirmations: 3 };
const FAIL: RateVerdict = RateVerdict::Fail { by_system: true };

/// Tries the lowest candidate until the search is finished; returns the rates in order.
fn search(bracket: &mut Bracket, mut verdict: impl FnMut(f64) -> RateVerdict) -> Vec<f64> {
    let mut rates = Vec::new();
    while let Some(rate) = bracket.candidates().first().copied() {
        bracket.record(rate, verdict(rate));
        rates.push(rate);
    }
    rates
}

/// A rate and its number of trials.
type Short = Option<(f64, u32)>;

fn ends(bracket: &Bracket) -> (Short, Short) {
    let short = |end: End| (end.rate_per_s, end.trials);
    (bracket.passed().map(short), bracket.failed().map(short))
}

fn holds(capacity: f64) -> impl FnMut(f64) -> RateVerdict {
    move |rate| if rate <= capacity { RateVerdict::Pass } else { FAIL }
}

#[test]
fn doubles_bisects_and_confirms() {
    let mut bracket = Bracket::new(OPTIONS);
    let rates = search(&mut bracket, holds(5_000.0));
    // Geometric means to four digits: of 4000 and 8000, of 4000 and 5657, and so on, until 5188 is
    // less than 5 % above 4968.
    let found = [1_000.0, 2_000.0, 4_000.0, 8_000.0, 5_657.0, 4_757.0, 5_188.0, 4_968.0];
    assert_eq!(rates[..8], found);
    assert_eq!(rates[8..], [[4_968.0; 3], [5_188.0; 3]].concat());
    assert_eq!(bracket.progress(), Progress::Settled);
    assert_eq!(ends(&bracket), (Some((4_968.0, 4)), Some((5_188.0, 4))));
    assert_eq!(bracket.contradictions(), 0);
}

#[test]
fn halves_if_the_start_is_too_high() {
    let mut bracket = Bracket::new(OPTIONS);
    let rates = search(&mut bracket, holds(300.0));
    // The mean of 250 and 500 is 353.6, and so on.
    assert_eq!(rates[..4], [1_000.0, 500.0, 250.0, 353.6]);
    let (passed, failed) = (bracket.passed().unwrap(), bracket.failed().unwrap());
    assert!(passed.rate_per_s <= 300.0 && 300.0 < failed.rate_per_s);
}

#[test]
fn confirms_the_lowest_rate_if_nothing_passes() {
    let mut bracket = Bracket::new(BracketOptions { min: 300.0, ..OPTIONS });
    let rates = search(&mut bracket, |_| FAIL);
    assert_eq!(rates, [1_000.0, 500.0, 300.0, 300.0, 300.0, 300.0]);
    assert_eq!(bracket.progress(), Progress::NeverPassed);
    assert_eq!(ends(&bracket), (None, Some((300.0, 4))));
}

#[test]
fn confirms_the_highest_rate_if_everything_passes() {
    let mut bracket = Bracket::new(BracketOptions { max: 3_000.0, confirmations: 1, ..OPTIONS });
    let rates = search(&mut bracket, |_| RateVerdict::Pass);
    assert_eq!(rates, [1_000.0, 2_000.0, 3_000.0, 3_000.0]);
    assert_eq!(bracket.progress(), Progress::AlwaysPassed);
    assert_eq!(ends(&bracket), (Some((3_000.0, 2)), None));
}

#[test]
fn contradicted_ends_move_out_in_doubling_steps() {
    let mut bracket = Bracket::new(BracketOptions { start: 4_968.0, confirmations: 1, ..OPTIONS });
    let mut note = |rates: &[(f64, RateVerdict)]| {
        for (rate, verdict) in rates {
            assert!(bracket.candidates().contains(rate), "{rate}: {:?}", bracket.candidates());
            bracket.record(*rate, *verdict);
        }
        bracket.candidates()
    };
    let passed = RateVerdict::Pass;
    note(&[(4_968.0, passed), (9_936.0, FAIL), (7_026.0, FAIL), (5_908.0, FAIL)]);
    let left = note(&[(5_418.0, FAIL), (5_188.0, FAIL)]);
    assert_eq!(left, [4_968.0, 5_188.0]);
    // 5 % below 4968 nothing is known; the next failed rate above 5188 is 5418.
    let left = note(&[(4_968.0, FAIL)]);
    assert_eq!(left, [4_731.0, 4_731.0, 5_188.0]);
    let left = note(&[(5_188.0, passed)]);
    assert_eq!(left, [4_731.0, 4_731.0, 5_418.0]);
    // 10 % down from 4731, and then 20 %.
    let left = note(&[(4_731.0, passed), (4_731.0, FAIL)]);
    assert_eq!(left, [4_301.0, 4_301.0, 5_418.0]);
    let left = note(&[(4_301.0, FAIL)]);
    assert_eq!(left, [3_584.0, 3_584.0, 5_418.0]);
    assert!(note(&[(3_584.0, passed), (5_418.0, FAIL), (3_584.0, passed)]).is_empty());
    assert_eq!(ends(&bracket), (Some((3_584.0, 2)), Some((5_418.0, 2))));
    assert_eq!((bracket.progress(), bracket.contradictions()), (Progress::Settled, 4));
}

#[test]
fn gives_up_after_too_many_indecisive_trials_in_a_row() {
    for (nothing, times) in [(RateVerdict::Invalid, 10), (RateVerdict::NotMeasured, 2)] {
        let mut bracket = Bracket::new(OPTIONS);
        for _ in 1..times {
            bracket.record(1_000.0, nothing);
        }
        assert_eq!(bracket.candidates(), [1_000.0]);
        bracket.record(1_000.0, RateVerdict::Pass);
        for _ in 1..times {
            bracket.record(2_000.0, nothing);
        }
        assert_eq!(bracket.candidates(), [2_000.0]);
        bracket.record(2_000.0, nothing);
        assert_eq!((bracket.progress(), bracket.candidates()), (Progress::NotMeasurable, vec![]));
        assert_eq!(ends(&bracket), (Some((1_000.0, 1)), None));
    }
}

#[test]
fn stops_at_the_trial_limit_unless_the_last_trial_settles_it() {
    // 8 rates, then each end `confirmations` times.
    let search = |confirmations, disturbed: usize| {
        let mut bracket = Bracket::new(BracketOptions { confirmations, ..OPTIONS });
        let mut verdict = holds(5_000.0);
        let mut trials = 0;
        while let Some(rate) = bracket.candidates().first().copied() {
            trials += 1;
            let is_invalid = trials <= 2 * disturbed && trials % 2 == 0;
            bracket.record(rate, if is_invalid { RateVerdict::Invalid } else { verdict(rate) });
        }
        (trials, bracket.progress())
    };
    assert_eq!(search(46, 0), (100, Progress::Settled));
    assert_eq!(search(46, 1), (100, Progress::TrialLimit));
    assert_eq!(search(20, 40), (88, Progress::Settled));
}

#[test]
fn upper_end_is_attributed_to_the_majority_of_its_trials() {
    for (unclear, by_system) in [(0, true), (1, true), (2, false), (4, false)] {
        let mut bracket = Bracket::new(BracketOptions { start: 100.0, width: 1.0, ..OPTIONS });
        let mut left = unclear;
        search(&mut bracket, |rate| {
            if rate < 400.0 {
                return RateVerdict::Pass;
            }
            left -= 1;
            RateVerdict::Fail { by_system: left < 0 }
        });
        assert_eq!(bracket.progress(), Progress::Settled);
        assert_eq!(ends(&bracket), (Some((200.0, 4)), Some((400.0, 4))));
        assert_eq!(bracket.failed().unwrap().by_system, by_system, "{unclear} of 4");
        assert!(bracket.passed().unwrap().by_system);
    }
}

/// A simulated system whose capacity varies from trial to trial by `percent`.
fn noisy(capacity: f64, percent: f64, seed: u64) -> impl FnMut(f64) -> RateVerdict {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    move |rate| {
        // The sum of twelve uniform numbers is nearly normal with a standard deviation of 1.
        let z: f64 = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
        if rate <= capacity * (percent / 100.0 * z).exp() { RateVerdict::Pass } else { FAIL }
    }
}

/// Searches a noisy system with candidates in random order. Returns whether the interval contains the capacity, its
/// width and the number of trials.
fn simulate(percent: f64, seed: u64) -> (bool, f64, usize) {
    let mut rng = ChaCha8Rng::seed_from_u64(!seed);
    let capacity = 10_f64.powf(rng.random_range(1.0..5.0));
    let mut verdict = noisy(capacity, percent, seed);
    let mut bracket = Bracket::new(OPTIONS);
    let mut trials = 0;
    while let Some(rate) = bracket.candidates().choose(&mut rng).copied() {
        bracket.record(rate, verdict(rate));
        trials += 1;
    }
    assert_eq!(bracket.progress(), Progress::Settled, "{percent} % of noise, seed {seed}");
    let (passed, failed) =
        (bracket.passed().unwrap().rate_per_s, bracket.failed().unwrap().rate_per_s);
    for (rate, verdict) in bracket.trials {
        let is_outside = if verdict == RateVerdict::Pass { rate < failed } else { rate > passed };
        assert!(is_outside, "{rate}: {verdict:?}, seed {seed}: contradicts the interval");
    }
    (passed <= capacity && capacity <= failed, failed / passed, trials)
}

/// Returns in how many of 1,000 searches the interval contains the capacity, the median width and the maximum number
/// of trials.
fn thousand(percent: f64) -> (usize, f64, usize) {
    let searches: Vec<_> = (0..1_000).map(|seed| simulate(percent, seed)).collect();
    let right = searches.iter().filter(|(holds, ..)| *holds).count();
    let mut widths: Vec<f64> = searches.iter().map(|(_, width, _)| *width).collect();
    widths.sort_by(f64::total_cmp);
    (right, widths[500], searches.iter().map(|(.., trials)| *trials).max().unwrap())
}

#[test]
fn interval_contains_the_capacity_of_a_noisy_system_in_95_percent_of_searches() {
    let found = [0.0, 1.0, 2.0, 5.0].map(thousand);
    let [quiet, ..] = found;
    assert_eq!(quiet.0, 1_000);
    assert!(quiet.1 <= 1.05, "{quiet:?}");
    for (right, width, trials) in found {
        assert!(right >= 950, "{found:?}");
        // Holds even with noise as large as the width.
        assert!(width < 1.5 && trials <= 60, "{found:?}");
    }
}

proptest! {
    #[test]
    fn interval_without_noise_contains_the_capacity_and_is_narrow(capacity in 1.0f64..9e6, width in 0.01f64..0.5, start in 1.0f64..1e6, seed: u64) {
        let mut bracket = Bracket::new(BracketOptions { start, width, ..OPTIONS });
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut verdict = holds(capacity);
        let mut trials = 0;
        while let Some(rate) = bracket.candidates().choose(&mut rng).copied() {
            bracket.record(rate, verdict(rate));
            trials += 1;
        }
        prop_assert_eq!(bracket.progress(), Progress::Settled);
        let (passed, failed) = (bracket.passed().unwrap(), bracket.failed().unwrap());
        prop_assert!(passed.rate_per_s <= capacity && capacity <= failed.rate_per_s);
        prop_assert!(failed.rate_per_s <= passed.rate_per_s * (1.0 + width));
        prop_assert_eq!((passed.trials, failed.trials), (4, 4));
        prop_assert!(trials <= 24 + 8 + 6, "{}", trials);
    }
}
