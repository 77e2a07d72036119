//! Changes of the level in a series of prices, and bisection between two revisions.

use crate::series::Point;
use std::collections::BTreeMap;
use tollgate_stats::{
    Division, DivisionTest, Interval, SERIES_MAX, e_divisive, ratio_of_samples, summarize,
};

/// A revision with a price, or neighbours with the same product.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    /// Index of the point.
    pub(crate) place: usize,
    /// Log price of each block.
    pub(crate) logs: Vec<f64>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    /// Index of the first entry of the new level.
    pub(crate) at: usize,
    pub(crate) from: usize,
    /// Index after the last entry of the new level.
    pub(crate) to: usize,
    /// Median price of the old level.
    pub(crate) before: f64,
    /// Median price of the new level.
    pub(crate) after: f64,
    /// Probability of an equally clear division without a change.
    pub(crate) p: f64,
}

/// Returns the points with a price, joining neighbours with the same product.
pub(crate) fn entries<'a>(points: impl IntoIterator<Item = (usize, &'a Point)>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut last = None;
    for (place, point) in points {
        if point.logs.is_empty() || (last.is_some() && last == point.product) {
            continue;
        }
        last.clone_from(&point.product);
        entries.push(Entry { place, logs: point.logs.clone() });
    }
    entries
}

/// Finds the changes of the level. The values are the blocks of each revision or, if these are too many, medians of
/// groups of them; a change lies between revisions, even if another block is the first of the new level.
pub(crate) fn changes(entries: &[Entry], seed: u64) -> Vec<Change> {
    changes_among(entries, &values(entries), seed)
}

fn changes_among(entries: &[Entry], values: &[Vec<f64>], seed: u64) -> Vec<Change> {
    let Some(segment_min) = values.iter().map(Vec::len).min() else { return Vec::new() };
    // Permutations cannot be significant with so few values; Student's test assumes normal noise.
    let is_short = values.iter().map(Vec::len).sum::<usize>() < SHUFFLED_MIN;
    let test = if is_short { DivisionTest::Student } else { DivisionTest::Permutations { seed } };
    let division = Division { segment_min, significance: SIGNIFICANCE, test };
    // Start of each entry in the series.
    let mut starts = vec![0];
    for of_entry in values {
        starts.push(starts[starts.len() - 1] + of_entry.len());
    }
    let found = e_divisive(&values.concat(), &division).unwrap_or_default();
    let mut cuts: Vec<(usize, f64)> = Vec::new();
    for change in found {
        let nearest = (1..entries.len()).min_by_key(|entry| starts[*entry].abs_diff(change.index));
        if let Some(cut) = nearest.filter(|cut| cuts.last().is_none_or(|(last, _)| last < cut)) {
            cuts.push((cut, change.p));
        }
    }
    let bounds: Vec<usize> =
        std::iter::once(0).chain(cuts.iter().map(|(at, _)| *at)).chain([entries.len()]).collect();
    let level = |from: usize, to: usize| {
        let logs: Vec<f64> = entries[from..to].iter().flat_map(|one| one.logs.clone()).collect();
        median(&logs).exp()
    };
    let change = |(index, (at, p)): (usize, &(usize, f64))| {
        let (from, to) = (bounds[index], bounds[index + 2]);
        Change { at: *at, from, to, before: level(from, *at), after: level(*at, to), p: *p }
    };
    cuts.iter().enumerate().map(change).collect()
}

/// Probability of a false change; changes are confirmed afterwards.
const SIGNIFICANCE: f64 = 0.05;

/// From this number of values on, permutations can be significant at any position.
const SHUFFLED_MIN: usize = 10;

/// The time of the permutation test is quadratic in this length: one or two seconds.
const VALUES_MAX: usize = 240;

/// Values per revision, unless the series gets too long. With one value, a permutation test cannot find a change at the
/// end of a series.
const ENTRY_VALUES_MIN: usize = 2;

fn values(entries: &[Entry]) -> Vec<Vec<f64>> {
    let blocks: usize = entries.iter().map(|entry| entry.logs.len()).sum();
    let most = if blocks <= VALUES_MAX { usize::MAX } else { values_each(entries.len()) };
    entries.iter().map(|entry| thinned(&entry.logs, most)).collect()
}

/// Returns the number of values per revision if there are too many blocks.
fn values_each(revisions: usize) -> usize {
    (VALUES_MAX / revisions).max(ENTRY_VALUES_MIN).min((SERIES_MAX / revisions).max(1))
}

/// Returns at most `count` values: medians of consecutive groups.
fn thinned(logs: &[f64], most: usize) -> Vec<f64> {
    if logs.len() <= most {
        return logs.to_vec();
    }
    let ends = |part: usize| part * logs.len() / most;
    (0..most).map(|part| median(&logs[ends(part)..ends(part + 1)])).collect()
}

/// Returns 0 for an empty slice.
pub(crate) fn median(values: &[f64]) -> f64 {
    summarize(values).map_or(0.0, |summary| summary.median)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Good,
    Bad,
    /// Not measurable, or not settled with more blocks.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    Try(usize),
    Found {
        good: usize,
        /// All commits between the two are unknown.
        bad: usize,
    },
}

/// Returns the next step of a bisection over commits `0..=last`, of which the first is good and the last is bad.
///
/// If sides contradict each other, the first bad commit and the last good one before it count.
pub(crate) fn next(last: usize, known: &BTreeMap<usize, Side>) -> Next {
    let is = |place: &usize, side| known.get(place) == Some(&side);
    let bad = (1..last).find(|place| is(place, Side::Bad)).unwrap_or(last);
    let good = (1..bad).rev().find(|place| is(place, Side::Good)).unwrap_or(0);
    let middle = good + (bad - good) / 2;
    let open = (good + 1..bad).filter(|place| !known.contains_key(place));
    match open.min_by_key(|place| place.abs_diff(middle)) {
        Some(place) => Next::Try(place),
        None => Next::Found { good, bad },
    }
}

/// A range of commits whose ends lie on different levels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stretch {
    pub from: usize,
    pub to: usize,
    pub before: f64,
    pub after: f64,
    /// Probability of an equally large step by chance.
    pub p: f64,
}

/// Returns the ranges within a searched one that contain another change: their ends differ significantly and by more than
/// `share`. `settled`: the tried commits on one side, in order; `logs`: log prices of a commit, one per block.
pub(crate) fn stretches_left<'a>(
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

/// Splits a step at a commit on a separate level in the middle: two changes of equal size.
pub(crate) fn split<'a>(
    (good, bad): (usize, usize),
    logs: impl Fn(usize) -> &'a [f64],
    share: f64,
) -> Option<[Stretch; 2]> {
    (good + 1..bad).find_map(|between| {
        let first = step(good, between, logs(good), logs(between), share)?;
        Some([first, step(between, bad, logs(between), logs(bad), share)?])
    })
}

/// Returns the range between two commits if their prices differ significantly and by more than `share`.
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

    /// A revision with a noise of 0.6 % in its own order.
    fn entry(place: usize, price: f64) -> Entry {
        let off = [0.004, -0.006, 0.001, -0.002, 0.006, -0.003];
        let logs = (0..6).map(|block| price.ln() + off[(block * 5 + place) % 6]);
        Entry { place, logs: logs.collect() }
    }

    #[test]
    fn finds_small_and_large_steps() {
        let prices = [1.0, 1.0, 1.0, 1.05, 1.05, 1.05, 1.05, 21.0, 21.0, 21.0];
        let entries: Vec<Entry> =
            prices.iter().enumerate().map(|(place, price)| entry(place, *price)).collect();
        let changes = changes(&entries, 1);
        let spans: Vec<(usize, usize, usize)> =
            changes.iter().map(|change| (change.from, change.at, change.to)).collect();
        assert_eq!(spans, [(0, 3, 7), (3, 7, 10)]);
        assert!((changes[0].after / changes[0].before - 1.05).abs() < 0.005, "{changes:?}");
        assert!((changes[1].after / changes[1].before - 20.0).abs() < 0.2, "{changes:?}");
    }

    #[test]
    fn constant_series_has_no_change() {
        let entries: Vec<Entry> = (0..10).map(|place| entry(place, 1.3)).collect();
        assert_eq!(changes(&entries, 1), []);
        assert_eq!(changes(&[], 1), []);
        assert_eq!(changes(&[entry(0, 2.0)], 1), []);
    }

    #[test]
    fn finds_the_last_revision_of_a_long_series() {
        let entries: Vec<Entry> =
            (0..21).map(|place| entry(place, if place < 20 { 1.0 } else { 20.0 })).collect();
        let found = |most: usize| -> Vec<usize> {
            let values: Vec<Vec<f64>> =
                entries.iter().map(|entry| thinned(&entry.logs, most)).collect();
            changes_among(&entries, &values, 1).iter().map(|change| change.at).collect()
        };
        assert_eq!(found(ENTRY_VALUES_MIN), [20]);
        // One value is at an end of the series in one of eleven permutations.
        assert!(found(1).is_empty());
        let long: Vec<Entry> = (0..30).map(|place| Entry { place, logs: vec![0.0; 12] }).collect();
        assert!(values(&long).iter().all(|values| values.len() == 8));
    }

    #[test]
    fn values_per_revision_are_limited() {
        assert_eq!([30, 240, 250, 251, SERIES_MAX].map(values_each), [8, 2, 2, 1, 1]);
        assert!((1..=SERIES_MAX).all(|revisions| revisions * values_each(revisions) <= SERIES_MAX));
    }

    #[test]
    fn many_blocks_become_medians() {
        assert_eq!(thinned(&[1.0, 2.0, 9.0, 4.0, 6.0], 2), [1.5, 6.0]);
        assert_eq!(thinned(&[1.0, 2.0], 2), [1.0, 2.0]);
    }

    #[test]
    fn median_of_an_even_number() {
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
    }
}

#[cfg(test)]
mod bisection_tests {
    use super::*;
    use proptest::prelude::*;

    /// Six blocks of a commit, with a noise of 0.6 %.
    fn blocks(price: f64, place: usize) -> Vec<f64> {
        let off = [0.004, -0.006, 0.001, -0.002, 0.006, -0.003];
        (0..6).map(|block| price.ln() + off[(block * 5 + place) % 6]).collect()
    }

    /// Finds all changes in a history with these prices, of which some may be missing, as `find` does.
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
                        // Position relative to the levels; near the middle is not settled.
                        let middle = (before * after).sqrt();
                        let beyond =
                            |price: f64| (price / middle).ln() * (after / before).ln().signum();
                        let side = match prices[from + place].map(beyond) {
                            Some(beyond) if beyond > 0.01 => Side::Bad,
                            Some(beyond) if beyond < -0.01 => Side::Good,
                            Some(_) | None => Side::Unknown,
                        };
                        known.insert(place, side);
                    }
                }
            };
            match split((good, bad), |place| &logs[place], 0.02) {
                Some(halves) => open.extend(halves),
                None => found.push((good, bad)),
            }
            let settled = known.iter().filter(|(_, side)| **side != Side::Unknown);
            let settled = settled.map(|(place, _)| from + place);
            open.extend(stretches_left(&stretch, (good, bad), settled, |place| &logs[place], 0.02));
        }
        found.sort_unstable();
        found
    }

    #[test]
    fn finds_every_change_between_two_revisions() {
        let all = |prices: &[f64]| changes(&prices.iter().copied().map(Some).collect::<Vec<_>>());
        assert_eq!(all(&[1.0, 1.0, 1.05, 1.05, 1.05, 20.0, 20.0]), [(1, 2), (4, 5)]);
        assert_eq!(all(&[20.0, 20.0, 1.05, 1.0]), [(1, 2), (2, 3)]);
        // It becomes three times as slow, and later recovers a part.
        assert_eq!(all(&[1.0, 1.0, 3.0, 3.0, 3.0, 2.0, 2.0, 2.0]), [(1, 2), (4, 5)]);
        assert_eq!(all(&[1.0, 1.0, 1.5, 1.5, 1.5]), [(1, 2)]);
        // Changes within the margin are ignored.
        assert_eq!(all(&[1.0, 1.01, 1.01, 1.5, 1.5]), [(2, 3)]);
        // A commit between the two changes cannot be built.
        let prices = [Some(1.0), Some(1.0), None, Some(1.3), Some(1.3), Some(5.0)];
        assert_eq!(changes(&prices), [(1, 3), (4, 5)]);
        // Two changes of one size.
        assert_eq!(all(&[1.0, 1.5, 2.25]), [(0, 1), (1, 2)]);
    }

    /// Bisects a history that is bad from `first_bad` on. Returns the ends and the number of tried commits.
    fn bisect(
        last: usize,
        first_bad: usize,
        is_lost: impl Fn(usize) -> bool,
    ) -> (usize, usize, usize) {
        let mut known = BTreeMap::new();
        for tries in 0..=last {
            match next(last, &known) {
                Next::Found { good, bad } => return (good, bad, tries),
                Next::Try(place) => {
                    let verdict = match (is_lost(place), place >= first_bad) {
                        (true, _) => Side::Unknown,
                        (false, true) => Side::Bad,
                        (false, false) => Side::Good,
                    };
                    assert_eq!(known.insert(place, verdict), None, "{place} was tried twice");
                }
            }
        }
        panic!("no end");
    }

    #[test]
    fn neighbours_need_no_step() {
        assert_eq!(next(1, &BTreeMap::new()), Next::Found { good: 0, bad: 1 });
    }

    #[test]
    fn tries_the_middle_and_then_its_neighbours() {
        assert_eq!(next(8, &BTreeMap::new()), Next::Try(4));
        let lost = BTreeMap::from([(4, Side::Unknown)]);
        assert_eq!(next(8, &lost), Next::Try(3));
    }

    #[test]
    fn unbuildable_neighbours_remain_candidates() {
        let (good, bad, _) = bisect(9, 5, |place| place == 4 || place == 5);
        assert_eq!((good, bad), (3, 6));
    }

    proptest! {
        #[test]
        fn the_culprit_is_found_in_as_many_steps_as_halving_takes(last in 1usize..500, place in 0usize..500) {
            let first_bad = 1 + place % last;
            let (good, bad, tries) = bisect(last, first_bad, |_| false);
            prop_assert_eq!((good, bad), (first_bad - 1, first_bad));
            prop_assert!(tries <= last.ilog2() as usize + 1, "{} tries for {}", tries, last);
        }

        #[test]
        fn the_culprit_is_never_left_out(last in 1usize..60, place in 0usize..60, lost: u64) {
            let first_bad = 1 + place % last;
            let is_lost = |place: usize| place > 0 && place < last && lost >> place & 1 == 1;
            let (good, bad, _) = bisect(last, first_bad, is_lost);
            prop_assert!(good < first_bad && first_bad <= bad);
            prop_assert!((good + 1..bad).all(is_lost), "every commit between is lost");
        }

        #[test]
        fn a_history_that_only_rises_hides_no_change(steps in proptest::collection::vec(0usize..4, 1..40)) {
            // Each commit costs the same as its parent, or 10, 40 or 700 % more.
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
