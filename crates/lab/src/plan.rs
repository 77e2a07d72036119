//! In which order the trials run: blocks, each with every subject of a case once, shuffled.

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// One trial to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrialPlan {
    /// The case: an index.
    pub case: usize,
    /// The block, from 1.
    pub block: u32,
    /// The place in the block, from 1.
    pub position: u32,
    /// The subject: an index.
    pub subject: usize,
    /// The seed of the order in which requests are sent, the same for every subject of the block.
    pub order_seed: u64,
}

/// The trials of a run in their order. The same arguments give the same plan, on any machine.
pub fn plan(cases: usize, subjects: &[usize], blocks: u32, seed: u64) -> Vec<TrialPlan> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut trials = Vec::new();
    for block in 1..=blocks {
        let mut order_of_cases: Vec<usize> = (0..cases).collect();
        order_of_cases.shuffle(&mut rng);
        for case in order_of_cases {
            let mut order = subjects.to_vec();
            order.shuffle(&mut rng);
            // Blocks differ in the order of requests; subjects of one block do not.
            let order_seed = rng.random();
            trials.extend((1..).zip(order).map(|(position, subject)| TrialPlan {
                case,
                block,
                position,
                subject,
                order_seed,
            }));
        }
    }
    trials
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn every_block_holds_every_subject_of_every_case_once(cases in 1usize..4, subjects in 1usize..6, blocks in 1u32..12, seed: u64) {
            let chosen: Vec<usize> = (0..subjects).collect();
            let trials = plan(cases, &chosen, blocks, seed);
            prop_assert_eq!(trials.len(), cases * subjects * blocks as usize);
            let distinct: BTreeSet<(usize, u32, usize)> = trials.iter().map(|t| (t.case, t.block, t.subject)).collect();
            prop_assert_eq!(distinct.len(), trials.len());
            let places: BTreeSet<(usize, u32, u32)> = trials.iter().map(|t| (t.case, t.block, t.position)).collect();
            prop_assert_eq!(places.len(), trials.len());
            prop_assert!(trials.is_sorted_by_key(|t| t.block));
        }
    }

    #[test]
    fn another_seed_gives_another_order_and_the_same_seed_the_same() {
        let subjects = [0, 1, 2, 3];
        assert_eq!(plan(1, &subjects, 6, 1), plan(1, &subjects, 6, 1));
        assert_ne!(plan(1, &subjects, 6, 1), plan(1, &subjects, 6, 2));
    }

    #[test]
    fn every_subject_comes_first_about_equally_often() {
        let trials = plan(1, &[0, 1, 2, 3], 1_000, 7);
        for subject in 0..4 {
            let first = trials.iter().filter(|t| t.position == 1 && t.subject == subject).count();
            // Binomial(1000, 1/4): mean 250, standard deviation 13.7; five of them on either side.
            assert!((181..=319).contains(&first), "subject {subject}: {first}");
        }
    }
}
