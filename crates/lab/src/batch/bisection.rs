//! Which commit to try next, and when it is known which one it was. Pure.

use std::collections::BTreeMap;

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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
    }
}
