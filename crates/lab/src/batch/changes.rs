//! Where the price of a series of revisions changes its level: which two neighbours lie on different
//! levels, and what the levels are. Pure.

use super::series::Point;
use tollgate_stats::{Division, DivisionTest, SERIES_MAX, e_divisive};

/// A revision with a price, beside its neighbours.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    /// Its place among the points.
    pub(super) place: usize,
    /// The logarithms of its price, one a block.
    pub(super) logs: Vec<f64>,
}

/// A change of the level, between two entries.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Change {
    /// The first entry of the new level: a place among the entries.
    pub(super) at: usize,
    /// The first entry of the old level.
    pub(super) from: usize,
    /// The first entry behind the new level.
    pub(super) to: usize,
    /// The median price of the old level.
    pub(super) before: f64,
    /// The median price of the new one.
    pub(super) after: f64,
    /// How likely a series without another change is divided as clearly.
    pub(super) p: f64,
}

/// The priced ones of these points, neighbours with the same product as one.
pub(super) fn entries<'a>(points: impl IntoIterator<Item = (usize, &'a Point)>) -> Vec<Entry> {
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

/// The changes of the level, in their order. Each block of a revision is a value, as long as there are
/// not too many, and otherwise the medians of some of its blocks are; a change is between revisions,
/// whichever block is the first of the new level.
pub(super) fn changes(entries: &[Entry], seed: u64) -> Vec<Change> {
    changes_among(entries, &values(entries), seed)
}

/// The changes of entries for which these values stand.
fn changes_among(entries: &[Entry], values: &[Vec<f64>], seed: u64) -> Vec<Change> {
    let Some(segment_min) = values.iter().map(Vec::len).min() else { return Vec::new() };
    // Of so few values, no order stands out from all others; Student's test takes their noise for normal.
    let is_short = values.iter().map(Vec::len).sum::<usize>() < SHUFFLED_MIN;
    let test = if is_short { DivisionTest::Student } else { DivisionTest::Permutations { seed } };
    let division = Division { segment_min, significance: SIGNIFICANCE, test };
    // Where each entry begins in the series.
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

/// The chance of finding a change in a series without one. What is found is confirmed afterwards.
const SIGNIFICANCE: f64 = 0.05;

/// From so many values on, shuffling them can tell a change from an accident wherever it is.
const SHUFFLED_MIN: usize = 10;

/// The test shuffles the series ten thousand times, and each shuffle takes time with the square of its
/// length: so many take a second or two.
const VALUES_MAX: usize = 240;

/// So many values at least stand for a revision, unless the series would be too long with them: of one alone at the end of a series, shuffling cannot
/// tell that it is no accident, however far off it is.
const ENTRY_VALUES_MIN: usize = 2;

/// The values that stand for each entry.
fn values(entries: &[Entry]) -> Vec<Vec<f64>> {
    let blocks: usize = entries.iter().map(|entry| entry.logs.len()).sum();
    let most = match blocks <= VALUES_MAX {
        true => usize::MAX,
        false => values_each(entries.len()),
    };
    entries.iter().map(|entry| thinned(&entry.logs, most)).collect()
}

/// How many values stand for each of so many revisions, where not all blocks can.
fn values_each(revisions: usize) -> usize {
    (VALUES_MAX / revisions).max(ENTRY_VALUES_MIN).min((SERIES_MAX / revisions).max(1))
}

/// These values, or where they are more than that, the medians of as many parts of them.
fn thinned(logs: &[f64], most: usize) -> Vec<f64> {
    if logs.len() <= most {
        return logs.to_vec();
    }
    let ends = |part: usize| part * logs.len() / most;
    (0..most).map(|part| median(&logs[ends(part)..ends(part + 1)])).collect()
}

/// The value in the middle; 0 of none.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => sorted[middle],
        _ if sorted.is_empty() => 0.0,
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A revision whose blocks lie about a price by up to 0.6 %, in an order of their own.
    fn entry(place: usize, price: f64) -> Entry {
        let off = [0.004, -0.006, 0.001, -0.002, 0.006, -0.003];
        let logs = (0..6).map(|block| price.ln() + off[(block * 5 + place) % 6]);
        Entry { place, logs: logs.collect() }
    }

    #[test]
    fn a_small_and_a_large_step_are_found_between_the_revisions_that_made_them() {
        let prices = [1.0, 1.0, 1.0, 1.05, 1.05, 1.05, 1.05, 21.0, 21.0, 21.0];
        let entries: Vec<Entry> =
            prices.iter().enumerate().map(|(place, price)| entry(place, *price)).collect();
        let changes = changes(&entries, 1);
        let told: Vec<(usize, usize, usize)> =
            changes.iter().map(|change| (change.from, change.at, change.to)).collect();
        assert_eq!(told, [(0, 3, 7), (3, 7, 10)]);
        assert!((changes[0].after / changes[0].before - 1.05).abs() < 0.005, "{changes:?}");
        assert!((changes[1].after / changes[1].before - 20.0).abs() < 0.2, "{changes:?}");
    }

    #[test]
    fn a_series_that_stays_where_it_is_has_no_change() {
        let entries: Vec<Entry> = (0..10).map(|place| entry(place, 1.3)).collect();
        assert_eq!(changes(&entries, 1), []);
        assert_eq!(changes(&[], 1), []);
        assert_eq!(changes(&[entry(0, 2.0)], 1), []);
    }

    #[test]
    fn the_last_revision_of_a_series_too_long_for_each_block_is_found() {
        let entries: Vec<Entry> =
            (0..21).map(|place| entry(place, if place < 20 { 1.0 } else { 20.0 })).collect();
        let found = |most: usize| -> Vec<usize> {
            let values: Vec<Vec<f64>> =
                entries.iter().map(|entry| thinned(&entry.logs, most)).collect();
            changes_among(&entries, &values, 1).iter().map(|change| change.at).collect()
        };
        assert_eq!(found(ENTRY_VALUES_MIN), [20]);
        // One alone is at an end of the series in one shuffle of eleven.
        assert!(found(1).is_empty());
        let long: Vec<Entry> = (0..30).map(|place| Entry { place, logs: vec![0.0; 12] }).collect();
        assert!(values(&long).iter().all(|values| values.len() == 8));
    }

    #[test]
    fn a_revision_has_as_many_values_as_the_search_can_take() {
        assert_eq!([30, 240, 250, 251, SERIES_MAX].map(values_each), [8, 2, 2, 1, 1]);
        assert!((1..=SERIES_MAX).all(|revisions| revisions * values_each(revisions) <= SERIES_MAX));
    }

    #[test]
    fn too_many_blocks_become_the_medians_of_their_parts() {
        assert_eq!(thinned(&[1.0, 2.0, 9.0, 4.0, 6.0], 2), [1.5, 6.0]);
        assert_eq!(thinned(&[1.0, 2.0], 2), [1.0, 2.0]);
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_two() {
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
    }
}
