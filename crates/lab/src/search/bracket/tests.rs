use super::*;
use proptest::prelude::*;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const AIM: Aim = Aim { from: 1_000.0, min: 1.0, max: 10_000_000.0, width: 0.05, confirmations: 3 };
const BROKEN: Answer = Answer::Broken { by_system: true };

/// Tries the lowest candidate until the search is over; tells the rates in their order.
fn search(bracket: &mut Bracket, mut answer: impl FnMut(f64) -> Answer) -> Vec<f64> {
    let mut rates = Vec::new();
    while let Some(rate) = bracket.candidates().first().copied() {
        bracket.note(rate, answer(rate));
        rates.push(rate);
    }
    rates
}

/// A rate, and how many trials there are at it.
type Short = Option<(f64, u32)>;

fn ends(bracket: &Bracket) -> (Short, Short) {
    let short = |end: End| (end.rate_per_s, end.trials);
    (bracket.kept().map(short), bracket.broken().map(short))
}

fn holds(capacity: f64) -> impl FnMut(f64) -> Answer {
    move |rate| if rate <= capacity { Answer::Kept } else { BROKEN }
}

#[test]
fn a_search_doubles_bisects_and_confirms() {
    let mut bracket = Bracket::new(AIM);
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
fn a_search_halves_where_it_begins_too_high() {
    let mut bracket = Bracket::new(AIM);
    let rates = search(&mut bracket, holds(300.0));
    // The mean of 250 and 500 is 353.6, and so on.
    assert_eq!(rates[..4], [1_000.0, 500.0, 250.0, 353.6]);
    let (kept, broken) = (bracket.kept().unwrap(), bracket.broken().unwrap());
    assert!(kept.rate_per_s <= 300.0 && 300.0 < broken.rate_per_s);
}

#[test]
fn where_nothing_is_kept_the_lowest_rate_is_confirmed() {
    let mut bracket = Bracket::new(Aim { min: 300.0, ..AIM });
    let rates = search(&mut bracket, |_| BROKEN);
    assert_eq!(rates, [1_000.0, 500.0, 300.0, 300.0, 300.0, 300.0]);
    assert_eq!(bracket.progress(), Progress::NeverKept);
    assert_eq!(ends(&bracket), (None, Some((300.0, 4))));
}

#[test]
fn where_everything_is_kept_the_highest_rate_is_confirmed() {
    let mut bracket = Bracket::new(Aim { max: 3_000.0, confirmations: 1, ..AIM });
    let rates = search(&mut bracket, |_| Answer::Kept);
    assert_eq!(rates, [1_000.0, 2_000.0, 3_000.0, 3_000.0]);
    assert_eq!(bracket.progress(), Progress::AlwaysKept);
    assert_eq!(ends(&bracket), (Some((3_000.0, 2)), None));
}

#[test]
fn an_end_that_is_contradicted_moves_out_by_steps_that_double() {
    let mut bracket = Bracket::new(Aim { from: 4_968.0, confirmations: 1, ..AIM });
    let mut note = |rates: &[(f64, Answer)]| {
        for (rate, answer) in rates {
            assert!(bracket.candidates().contains(rate), "{rate}: {:?}", bracket.candidates());
            bracket.note(*rate, *answer);
        }
        bracket.candidates()
    };
    let kept = Answer::Kept;
    note(&[(4_968.0, kept), (9_936.0, BROKEN), (7_026.0, BROKEN), (5_908.0, BROKEN)]);
    let left = note(&[(5_418.0, BROKEN), (5_188.0, BROKEN)]);
    assert_eq!(left, [4_968.0, 5_188.0]);
    // 5 % down from 4968 there is nothing known; 5 % up from 5188 comes after 5418, which was broken.
    let left = note(&[(4_968.0, BROKEN)]);
    assert_eq!(left, [4_731.0, 4_731.0, 5_188.0]);
    let left = note(&[(5_188.0, kept)]);
    assert_eq!(left, [4_731.0, 4_731.0, 5_418.0]);
    // 10 % down from 4731, and then 20 %.
    let left = note(&[(4_731.0, kept), (4_731.0, BROKEN)]);
    assert_eq!(left, [4_301.0, 4_301.0, 5_418.0]);
    let left = note(&[(4_301.0, BROKEN)]);
    assert_eq!(left, [3_584.0, 3_584.0, 5_418.0]);
    assert!(note(&[(3_584.0, kept), (5_418.0, BROKEN), (3_584.0, kept)]).is_empty());
    assert_eq!(ends(&bracket), (Some((3_584.0, 2)), Some((5_418.0, 2))));
    assert_eq!((bracket.progress(), bracket.contradictions()), (Progress::Settled, 4));
}

#[test]
fn trials_that_say_nothing_are_repeated_so_many_times_at_most() {
    for (nothing, times) in [(Answer::Lost, 10), (Answer::Failed, 2)] {
        let mut bracket = Bracket::new(AIM);
        for _ in 1..times {
            bracket.note(1_000.0, nothing);
        }
        assert_eq!(bracket.candidates(), [1_000.0]);
        bracket.note(1_000.0, Answer::Kept);
        for _ in 1..times {
            bracket.note(2_000.0, nothing);
        }
        assert_eq!(bracket.candidates(), [2_000.0]);
        bracket.note(2_000.0, nothing);
        assert_eq!((bracket.progress(), bracket.candidates()), (Progress::GivenUp, vec![]));
        assert_eq!(ends(&bracket), (Some((1_000.0, 1)), None));
    }
}

#[test]
fn a_search_that_takes_too_many_trials_says_so_unless_the_last_one_settled_it() {
    // 8 rates, and then each end so many times more.
    let search = |confirmations, disturbed: usize| {
        let mut bracket = Bracket::new(Aim { confirmations, ..AIM });
        let mut answer = holds(5_000.0);
        let mut trials = 0;
        while let Some(rate) = bracket.candidates().first().copied() {
            trials += 1;
            let is_lost = trials <= 2 * disturbed && trials % 2 == 0;
            bracket.note(rate, if is_lost { Answer::Lost } else { answer(rate) });
        }
        (trials, bracket.progress())
    };
    assert_eq!(search(46, 0), (100, Progress::Settled));
    assert_eq!(search(46, 1), (100, Progress::MostTrials));
    assert_eq!(search(20, 40), (88, Progress::Settled));
}

#[test]
fn an_upper_end_is_the_systems_when_it_broke_the_goals_in_most_of_its_trials() {
    for (unclear, by_system) in [(0, true), (1, true), (2, false), (4, false)] {
        let mut bracket = Bracket::new(Aim { from: 100.0, width: 1.0, ..AIM });
        let mut left = unclear;
        search(&mut bracket, |rate| {
            if rate < 400.0 {
                return Answer::Kept;
            }
            left -= 1;
            Answer::Broken { by_system: left < 0 }
        });
        assert_eq!(bracket.progress(), Progress::Settled);
        assert_eq!(ends(&bracket), (Some((200.0, 4)), Some((400.0, 4))));
        assert_eq!(bracket.broken().unwrap().by_system, by_system, "{unclear} of 4");
        assert!(bracket.kept().unwrap().by_system);
    }
}

/// A made-up system: the rate that it holds is another in each trial, by some percent around its
/// capacity.
fn noisy(capacity: f64, percent: f64, seed: u64) -> impl FnMut(f64) -> Answer {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    move |rate| {
        // The sum of twelve uniform numbers is close to normal, with a deviation of 1.
        let z: f64 = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
        if rate <= capacity * (percent / 100.0 * z).exp() { Answer::Kept } else { BROKEN }
    }
}

/// Searches a noisy system, with candidates in shuffled order; tells whether its capacity lies in the
/// interval, how wide that is, and how many trials it took.
fn simulate(percent: f64, seed: u64) -> (bool, f64, usize) {
    let mut rng = ChaCha8Rng::seed_from_u64(!seed);
    let capacity = 10_f64.powf(rng.random_range(1.0..5.0));
    let mut answer = noisy(capacity, percent, seed);
    let mut bracket = Bracket::new(AIM);
    let mut trials = 0;
    while let Some(rate) = bracket.candidates().choose(&mut rng).copied() {
        bracket.note(rate, answer(rate));
        trials += 1;
    }
    assert_eq!(bracket.progress(), Progress::Settled, "{percent} % of noise, seed {seed}");
    let (kept, broken) = (bracket.kept().unwrap().rate_per_s, bracket.broken().unwrap().rate_per_s);
    for (rate, answer) in bracket.tried {
        let is_outside = if answer == Answer::Kept { rate < broken } else { rate > kept };
        assert!(is_outside, "{rate}: {answer:?}, seed {seed}: one answer the other way is enough");
    }
    (kept <= capacity && capacity <= broken, broken / kept, trials)
}

/// In how many of 1,000 searches the capacity lies in the interval, the median width of the interval,
/// and the most trials.
fn thousand(percent: f64) -> (usize, f64, usize) {
    let searches: Vec<_> = (0..1_000).map(|seed| simulate(percent, seed)).collect();
    let right = searches.iter().filter(|(holds, ..)| *holds).count();
    let mut widths: Vec<f64> = searches.iter().map(|(_, width, _)| *width).collect();
    widths.sort_by(f64::total_cmp);
    (right, widths[500], searches.iter().map(|(.., trials)| *trials).max().unwrap())
}

#[test]
fn the_capacity_of_a_noisy_system_lies_in_the_interval_in_nearly_all_searches() {
    let found = [0.0, 1.0, 2.0, 5.0].map(thousand);
    let [quiet, ..] = found;
    assert_eq!(quiet.0, 1_000);
    assert!(quiet.1 <= 1.05, "{quiet:?}");
    for (right, width, trials) in found {
        assert!(right >= 950, "{found:?}");
        // Even with noise as large as the width, the interval says something.
        assert!(width < 1.5 && trials <= 60, "{found:?}");
    }
}

proptest! {
    #[test]
    fn a_capacity_without_noise_always_lies_in_an_interval_that_is_narrow_enough(capacity in 1.0f64..9e6, width in 0.01f64..0.5, from in 1.0f64..1e6, seed: u64) {
        let mut bracket = Bracket::new(Aim { from, width, ..AIM });
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut answer = holds(capacity);
        let mut trials = 0;
        while let Some(rate) = bracket.candidates().choose(&mut rng).copied() {
            bracket.note(rate, answer(rate));
            trials += 1;
        }
        prop_assert_eq!(bracket.progress(), Progress::Settled);
        let (kept, broken) = (bracket.kept().unwrap(), bracket.broken().unwrap());
        prop_assert!(kept.rate_per_s <= capacity && capacity <= broken.rate_per_s);
        prop_assert!(broken.rate_per_s <= kept.rate_per_s * (1.0 + width));
        prop_assert_eq!((kept.trials, broken.trials), (4, 4));
        prop_assert!(trials <= 24 + 8 + 6, "{}", trials);
    }
}
