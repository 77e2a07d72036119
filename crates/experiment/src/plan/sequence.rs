//! Orders in which every subject follows every other one equally often.
//!
//! A server leaves something behind for the next one: warm caches, closed connections, a CPU that is
//! hot. Where each subject has each other one before it equally often, that falls on all alike.
//!
//! Source: E. J. Williams, "Experimental designs balanced for the estimation of residual effects of
//! treatments", Australian Journal of Scientific Research A 2 (1949), 149-168.

use rand::Rng;
use rand::seq::SliceRandom;

/// Orders of the same subjects, without end. Each run of as many orders as there are subjects, or of
/// twice as many where their number is odd, is balanced; every such run is drawn anew.
#[derive(Debug)]
pub(super) struct Sequence {
    subjects: Vec<usize>,
    /// What is left of the balanced set.
    left: Vec<Vec<usize>>,
}

impl Sequence {
    pub(super) fn new(subjects: &[usize]) -> Self {
        Self { subjects: subjects.to_vec(), left: Vec::new() }
    }

    /// How many subjects there are.
    pub(super) fn len(&self) -> usize {
        self.subjects.len()
    }

    /// The next order.
    pub(super) fn draw(&mut self, random: &mut impl Rng) -> Vec<usize> {
        if self.left.is_empty() {
            // Whose place in the square is whose, and which row comes when, is left to chance.
            self.subjects.shuffle(random);
            let named =
                |row: Vec<usize>| row.into_iter().map(|place| self.subjects[place]).collect();
            self.left = square(self.subjects.len()).into_iter().map(named).collect();
            self.left.shuffle(random);
        }
        self.left.pop().unwrap_or_default()
    }
}

/// Williams' square of so many treatments: each row holds each of them once, each column holds each of
/// them equally often, and each follows each other one equally often.
fn square(size: usize) -> Vec<Vec<usize>> {
    // 0, 1, n - 1, 2, n - 2, ...: the steps between neighbours are all different.
    let first = |place: usize| match place % 2 {
        1 => place.div_ceil(2),
        _ => (size - place / 2) % size,
    };
    let row = |shift: usize| (0..size).map(move |place| (first(place) + shift) % size).collect();
    let mut rows: Vec<Vec<usize>> = (0..size).map(row).collect();
    if size % 2 == 1 {
        let mirrored = rows.iter().map(|row| row.iter().rev().copied().collect());
        rows.extend(mirrored.collect::<Vec<_>>());
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use std::collections::BTreeMap;

    #[test]
    fn the_square_of_four_by_hand() {
        let rows = [[0, 1, 3, 2], [1, 2, 0, 3], [2, 3, 1, 0], [3, 0, 2, 1]];
        assert_eq!(square(4), rows.map(|row| row.to_vec()));
        assert_eq!(square(1), [[0], [0]]);
        assert_eq!(square(2), [[0, 1], [1, 0]]);
        assert!(square(0).is_empty());
    }

    type Counts = BTreeMap<(usize, usize), usize>;

    /// How often each pair of neighbours occurs, and each subject in each place.
    fn counts(rows: &[Vec<usize>]) -> (Counts, Counts) {
        let (mut follows, mut places) = (Counts::new(), Counts::new());
        for row in rows {
            for pair in row.windows(2) {
                *follows.entry((pair[0], pair[1])).or_default() += 1;
            }
            for (place, subject) in row.iter().enumerate() {
                *places.entry((place, *subject)).or_default() += 1;
            }
        }
        (follows, places)
    }

    proptest! {
        #[test]
        fn every_subject_follows_every_other_equally_often(size in 2usize..9, sets in 1usize..4, seed: u64) {
            let subjects: Vec<usize> = (10..10 + size).collect();
            let mut orders = Sequence::new(&subjects);
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let of_a_set = size * (1 + size % 2);
            let rows: Vec<_> = (0..sets * of_a_set).map(|_| orders.draw(&mut random)).collect();
            let (follows, places) = counts(&rows);
            prop_assert_eq!(follows.len(), size * (size - 1), "no pair is left out");
            prop_assert!(follows.values().all(|count| *count == sets * of_a_set / size));
            prop_assert_eq!(places.len(), size * size);
            prop_assert!(places.values().all(|count| *count == sets * of_a_set / size));
        }
    }

    #[test]
    fn nobody_has_an_empty_order_and_one_is_always_first() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        assert!(Sequence::new(&[]).draw(&mut random).is_empty());
        assert_eq!(Sequence::new(&[7]).draw(&mut random), [7]);
    }
}
