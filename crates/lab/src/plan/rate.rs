//! The rate of an open loop that follows from what the subjects of another case hold.

use tollgate_load::MAX_RATE;

/// What a trial that counts held.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Held {
    /// Its block, from 1.
    pub block: u32,
    /// Answers a second.
    pub throughput_per_s: f64,
}

/// This share of what the slowest trial held, in the first block in which one did: in requests a second,
/// and whole where it is not below one. None while there is no such trial.
///
/// That block is over when the first trial at this rate begins ([`super::Schedule::with_last`]), so the
/// rate is the same whenever it is asked for.
pub fn rate(share: f64, held: &[Held]) -> Option<f64> {
    let held: Vec<Held> = held.iter().copied().filter(|held| held.throughput_per_s > 0.0).collect();
    let first = held.iter().map(|held| held.block).min()?;
    let in_first = held.iter().filter(|held| held.block == first);
    let slowest = in_first.map(|held| held.throughput_per_s).reduce(f64::min)?;
    let rate = slowest * share;
    Some(if rate < 1.0 { rate } else { rate.floor().min(MAX_RATE) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(block: u32, throughput_per_s: f64) -> Held {
        Held { block, throughput_per_s }
    }

    #[test]
    fn the_rate_is_a_share_of_what_the_slowest_held() {
        assert_eq!(rate(0.5, &[held(1, 12_000.0), held(1, 193.0), held(1, 900.0)]), Some(96.0));
        assert_eq!(rate(1.0, &[held(1, 193.9)]), Some(193.0));
        assert_eq!(rate(0.5, &[held(1, 1.5)]), Some(0.75));
    }

    #[test]
    fn later_blocks_do_not_change_it() {
        assert_eq!(rate(0.5, &[held(2, 50.0), held(1, 200.0), held(3, 10.0)]), Some(100.0));
    }

    #[test]
    fn the_first_block_without_a_figure_is_passed_over() {
        assert_eq!(rate(0.5, &[held(2, 80.0), held(3, 10.0)]), Some(40.0));
        assert_eq!(rate(0.5, &[held(1, 0.0), held(2, 80.0)]), Some(40.0));
        assert_eq!(rate(0.5, &[]), None);
        assert_eq!(rate(0.5, &[held(1, 0.0)]), None);
    }
}
