//! Which commit to try next, when it is known which one it was, and where there was another one. Pure.

use super::changes::median;
use std::collections::BTreeMap;
use tollgate_stats::{Interval, ratio_of_samples};

/// What a commit on the way from the good end to the bad one turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// On the side of the good end.
    Good,
    /// On the side of the bad end.
    Bad,
    /// It cannot be measured, or more blocks did not settle on which side it is.
    Unknown,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Try this commit.
    Try(usize),
    /// There is nothing left to try.
    Found {
        /// The last commit that is good.
        good: usize,
        /// The first commit that is bad; every one between the two is unknown.
        bad: usize,
    },
}

/// The next step of a bisection over the commits `0..=last`, of which the first is good and the last one
/// bad, by what is known of those between.
///
/// Where verdicts contradict each other, the first bad commit counts, and the last good one before it.
pub fn next(last: usize, known: &BTreeMap<usize, Verdict>) -> Next {
    let is = |place: &usize, verdict| known.get(place) == Some(&verdict);
    let bad = (1..last).find(|place| is(place, Verdict::Bad)).unwrap_or(last);
    let good = (1..bad).rev().find(|place| is(place, Verdict::Good)).unwrap_or(0);
    let middle = good + (bad - good) / 2;
    let open = (good + 1..bad).filter(|place| !known.contains_key(place));
    match open.min_by_key(|place| place.abs_diff(middle)) {
        Some(place) => Next::Try(place),
        None => Next::Found { good, bad },
    }
}

/// A stretch of commits whose ends lie on different levels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stretch {
    /// Its first commit.
    pub from: usize,
    /// Its last one.
    pub to: usize,
    /// The level of the first.
    pub before: f64,
    /// The level of the last.
    pub after: f64,
    /// The chance of a step at least as large where there is none.
    pub p: f64,
}

/// The stretches of one that was searched in which there is another change, as the commits at their ends
/// differ for certain, and by more than a share. `settled` are those that were tried and are on one side, in
/// their order, and `logs` are the logarithms of the prices of a commit, a value a block.
pub fn stretches_left<'a>(
    searched: &Stretch,
    (good, bad): (usize, usize),
    settled: impl IntoIterator<Item = usize>,
    logs: impl Fn(usize) -> &'a [f64],
    share: f64,
) -> Vec<Stretch> {
    let stops: Vec<usize> =
        std::iter::once(searched.from).chain(settled).chain([searched.to]).collect();
    let pairs = stops.iter().zip(&stops[1..]).map(|(from, to)| (*from, *to));
    pairs
        .filter(|pair| *pair != (good, bad))
        .filter_map(|(from, to)| step(from, to, logs(from), logs(to), share))
        .collect()
}

/// A step in two, where a commit between its ends lies on a level of its own: it is on neither side of the
/// middle, as there are two changes of one size.
pub fn split<'a>(
    (good, bad): (usize, usize),
    logs: impl Fn(usize) -> &'a [f64],
    share: f64,
) -> Option<[Stretch; 2]> {
    (good + 1..bad).find_map(|between| {
        let first = step(good, between, logs(good), logs(between), share)?;
        Some([first, step(between, bad, logs(between), logs(bad), share)?])
    })
}

/// The stretch between two commits, where their prices differ for certain and by more than a share.
fn step(from: usize, to: usize, before: &[f64], after: &[f64], share: f64) -> Option<Stretch> {
    let [before, after] =
        [before, after].map(|logs| logs.iter().map(|log| log.exp()).collect::<Vec<f64>>());
    let shift = ratio_of_samples(&before, &after)?;
    let widest = 1.0 + share;
    match shift.ratio.interval {
        Interval::Confidence { low, high } if low > widest || high < 1.0 / widest => {
            let [before, after] = [&before, &after].map(|prices| median(prices));
            Some(Stretch { from, to, before, after, p: shift.p })
        }
        Interval::Confidence { .. } | Interval::TooFew { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The logarithms of six blocks of a commit, up to 0.6 % off its price.
    fn blocks(price: f64, place: usize) -> Vec<f64> {
        let off = [0.004, -0.006, 0.001, -0.002, 0.006, -0.003];
        (0..6).map(|block| price.ln() + off[(block * 5 + place) % 6]).collect()
    }

    /// All changes between the first and the last commit of a history with these prices, some of which may
    /// be none: as `find` searches it.
    fn changes(prices: &[Option<f64>]) -> Vec<(usize, usize)> {
        let logs: Vec<Vec<f64>> = (0..)
            .zip(prices)
            .map(|(place, price)| price.map_or(Vec::new(), |price| blocks(price, place)))
            .collect();
        let last = prices.len() - 1;
        let mut open = Vec::from_iter(step(0, last, &logs[0], &logs[last], 0.02));
        let mut found = Vec::new();
        while let Some(stretch) = open.pop() {
            let Stretch { from, to, before, after, .. } = stretch;
            let mut known = BTreeMap::new();
            let (good, bad) = loop {
                match next(to - from, &known) {
                    Next::Found { good, bad } => break (from + good, from + bad),
                    Next::Try(place) => {
                        // How far it is on the side of the new level; too near to the middle settles nothing.
                        let middle = (before * after).sqrt();
                        let beyond =
                            |price: f64| (price / middle).ln() * (after / before).ln().signum();
                        let side = match prices[from + place].map(beyond) {
                            Some(beyond) if beyond > 0.01 => Verdict::Bad,
                            Some(beyond) if beyond < -0.01 => Verdict::Good,
                            Some(_) | None => Verdict::Unknown,
                        };
                        known.insert(place, side);
                    }
                }
            };
            match split((good, bad), |place| &logs[place], 0.02) {
                Some(halves) => open.extend(halves),
                None => found.push((good, bad)),
            }
            let settled = known.iter().filter(|(_, side)| **side != Verdict::Unknown);
            let settled = settled.map(|(place, _)| from + place);
            open.extend(stretches_left(&stretch, (good, bad), settled, |place| &logs[place], 0.02));
        }
        found.sort_unstable();
        found
    }

    #[test]
    fn every_change_between_two_revisions_is_found_and_not_the_largest_alone() {
        let all = |prices: &[f64]| changes(&prices.iter().copied().map(Some).collect::<Vec<_>>());
        assert_eq!(all(&[1.0, 1.0, 1.05, 1.05, 1.05, 20.0, 20.0]), [(1, 2), (4, 5)]);
        assert_eq!(all(&[20.0, 20.0, 1.05, 1.0]), [(1, 2), (2, 3)]);
        // It becomes three times as slow, and a part of that is mended later.
        assert_eq!(all(&[1.0, 1.0, 3.0, 3.0, 3.0, 2.0, 2.0, 2.0]), [(1, 2), (4, 5)]);
        assert_eq!(all(&[1.0, 1.0, 1.5, 1.5, 1.5]), [(1, 2)]);
        // What is within the margin is nothing to look for.
        assert_eq!(all(&[1.0, 1.01, 1.01, 1.5, 1.5]), [(2, 3)]);
        // Between the two is a commit that cannot be built, and one of the two is beside it.
        let prices = [Some(1.0), Some(1.0), None, Some(1.3), Some(1.3), Some(5.0)];
        assert_eq!(changes(&prices), [(1, 3), (4, 5)]);
        // Two changes of one size: the commit between is on neither side of the middle.
        assert_eq!(all(&[1.0, 1.5, 2.25]), [(0, 1), (1, 2)]);
    }

    /// Bisects a history whose commits from `culprit` on are bad and of which some cannot be measured;
    /// tells the ends that were found, and how many commits were tried.
    fn bisect(
        last: usize,
        culprit: usize,
        is_lost: impl Fn(usize) -> bool,
    ) -> (usize, usize, usize) {
        let mut known = BTreeMap::new();
        for tries in 0..=last {
            match next(last, &known) {
                Next::Found { good, bad } => return (good, bad, tries),
                Next::Try(place) => {
                    let verdict = match (is_lost(place), place >= culprit) {
                        (true, _) => Verdict::Unknown,
                        (false, true) => Verdict::Bad,
                        (false, false) => Verdict::Good,
                    };
                    assert_eq!(known.insert(place, verdict), None, "{place} was tried twice");
                }
            }
        }
        panic!("it does not end");
    }

    #[test]
    fn neighbours_need_no_step() {
        assert_eq!(next(1, &BTreeMap::new()), Next::Found { good: 0, bad: 1 });
    }

    #[test]
    fn the_middle_is_tried_first_and_its_neighbour_where_that_cannot_be_built() {
        assert_eq!(next(8, &BTreeMap::new()), Next::Try(4));
        let lost = BTreeMap::from([(4, Verdict::Unknown)]);
        assert_eq!(next(8, &lost), Next::Try(3));
    }

    #[test]
    fn commits_that_cannot_be_built_beside_the_culprit_are_left_in_doubt() {
        let (good, bad, _) = bisect(9, 5, |place| place == 4 || place == 5);
        assert_eq!((good, bad), (3, 6));
    }

    proptest! {
        #[test]
        fn the_culprit_is_found_in_as_many_steps_as_halving_takes(last in 1usize..500, place in 0usize..500) {
            let culprit = 1 + place % last;
            let (good, bad, tries) = bisect(last, culprit, |_| false);
            prop_assert_eq!((good, bad), (culprit - 1, culprit));
            prop_assert!(tries <= last.ilog2() as usize + 1, "{} tries for {}", tries, last);
        }

        #[test]
        fn the_culprit_is_never_left_out(last in 1usize..60, place in 0usize..60, lost: u64) {
            let culprit = 1 + place % last;
            let is_lost = |place: usize| place > 0 && place < last && lost >> place & 1 == 1;
            let (good, bad, _) = bisect(last, culprit, is_lost);
            prop_assert!(good < culprit && culprit <= bad);
            prop_assert!((good + 1..bad).all(is_lost), "every commit between is lost");
        }

        #[test]
        fn a_history_that_only_rises_hides_no_change(steps in proptest::collection::vec(0usize..4, 1..40)) {
            // Each commit costs as much as the one before it, or 10, 40 or 700 % more.
            let factors = [1.0, 1.1, 1.4, 8.0];
            let mut price = 1.0;
            let mut prices = vec![Some(price)];
            for step in &steps {
                price *= factors[*step];
                prices.push(Some(price));
            }
            let planted: Vec<(usize, usize)> =
                (0..).zip(&steps).filter(|(_, step)| **step > 0).map(|(at, _)| (at, at + 1)).collect();
            prop_assert_eq!(changes(&prices), planted);
        }
    }
}
