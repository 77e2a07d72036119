//! Which of many revisions are measured first, and which others may stand in for one of them. Pure.

/// So many of them, as far apart as can be, with the first and the last.
pub(super) fn spread(count: usize, steps: usize) -> Vec<usize> {
    if steps >= count || steps < 2 {
        return (0..count).collect();
    }
    // Rounded to the nearest, which for steps below the count are all different.
    (0..steps).map(|step| (step * (count - 1) + (steps - 1) / 2) / (steps - 1)).collect()
}

/// How many others are tried where one cannot be built or run: each costs a build.
const STAND_INS_MAX: usize = 16;

/// Those that may stand in for one of the chosen, the nearest first, and of two that are as near the
/// earlier one. They lie between its neighbours.
pub(super) fn stand_ins(chosen: &[usize], which: usize, count: usize) -> Vec<usize> {
    let place = chosen[which];
    let first = which.checked_sub(1).map_or(0, |before| chosen[before] + 1);
    let behind = chosen.get(which + 1).copied().unwrap_or(count);
    let mut others: Vec<usize> = (first..behind).filter(|other| *other != place).collect();
    others.sort_by_key(|other| other.abs_diff(place));
    others.truncate(STAND_INS_MAX);
    others
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_as_far_apart_as_can_be() {
        assert_eq!(spread(12, 4), [0, 4, 7, 11]);
        assert_eq!(spread(3, 9), [0, 1, 2]);
        assert_eq!(spread(5, 2), [0, 4]);
        assert_eq!(spread(0, 4), [0_usize; 0]);
        for count in 2..60 {
            for steps in 2..count {
                let places = spread(count, steps);
                assert!(places.is_sorted_by(|a, b| a < b), "{count} {steps} {places:?}");
                assert_eq!((places[0], places[steps - 1]), (0, count - 1));
            }
        }
    }

    #[test]
    fn the_nearest_between_its_neighbours_stands_in() {
        let chosen = [0, 4, 7, 11];
        assert_eq!(stand_ins(&chosen, 0, 12), [1, 2, 3]);
        assert_eq!(stand_ins(&chosen, 1, 12), [3, 5, 2, 6, 1]);
        assert_eq!(stand_ins(&chosen, 3, 12), [10, 9, 8]);
        // Where all are measured anyway, nobody is left to stand in.
        assert_eq!(stand_ins(&[0, 1, 2], 1, 3), [0_usize; 0]);
        assert_eq!(stand_ins(&[0, 999], 0, 1000).len(), STAND_INS_MAX);
    }
}
