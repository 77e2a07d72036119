//! The rate of an open loop that follows from what the subjects of another case hold.

use std::collections::BTreeMap;
use tollgate_load::MAX_RATE;

/// What a trial that counts held.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Held<'a> {
    /// Its subject.
    pub subject: &'a str,
    /// Its block, from 1.
    pub block: u32,
    /// Answers a second.
    pub throughput_per_s: f64,
}

/// This share of what the slowest subject held, each by the first of its trials that counts: in requests a second,
/// and whole where it is not below one. None while there is no such trial.
///
/// In each block these trials come before those at this rate ([`super::Schedule::with_last`]), so the rate is the
/// same for every subject of a block, whenever it is asked for. From block to block it stays as it is, but for a
/// subject that is slower than all others and of which no trial counted before.
pub fn rate(share: f64, held: &[Held<'_>]) -> Option<f64> {
    let mut firsts: BTreeMap<&str, Held<'_>> = BTreeMap::new();
    for held in held.iter().filter(|held| held.throughput_per_s > 0.0) {
        let first = firsts.entry(held.subject).or_insert(*held);
        if held.block < first.block {
            *first = *held;
        }
    }
    let slowest = firsts.values().map(|held| held.throughput_per_s).reduce(f64::min)?;
    let rate = slowest * share;
    Some(if rate < 1.0 { rate } else { rate.floor().min(MAX_RATE) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(subject: &str, block: u32, throughput_per_s: f64) -> Held<'_> {
        Held { subject, block, throughput_per_s }
    }

    #[test]
    fn the_rate_is_a_share_of_what_the_slowest_held() {
        let of_three = [held("a", 1, 12_000.0), held("b", 1, 193.0), held("c", 1, 900.0)];
        assert_eq!(rate(0.5, &of_three), Some(96.0));
        assert_eq!(rate(1.0, &[held("a", 1, 193.9)]), Some(193.0));
        assert_eq!(rate(0.5, &[held("a", 1, 1.5)]), Some(0.75));
    }

    #[test]
    fn later_blocks_do_not_change_it() {
        let of_one = [held("a", 2, 50.0), held("a", 1, 200.0), held("a", 3, 10.0)];
        assert_eq!(rate(0.5, &of_one), Some(100.0));
    }

    #[test]
    fn a_subject_without_a_figure_in_the_first_block_counts_from_its_own_first_on() {
        // Half of what the others hold would be more than all that this one can.
        let of_two = [held("a", 1, 200.0), held("b", 2, 30.0), held("b", 3, 10.0)];
        assert_eq!(rate(0.5, &of_two[..1]), Some(100.0));
        assert_eq!(rate(0.5, &of_two), Some(15.0));
        assert_eq!(rate(0.5, &[held("a", 1, 0.0), held("a", 2, 80.0)]), Some(40.0));
        assert_eq!(rate(0.5, &[]), None);
        assert_eq!(rate(0.5, &[held("a", 1, 0.0)]), None);
    }
}
