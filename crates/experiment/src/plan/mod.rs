//! In which order the trials run: blocks, each with every subject of a case once, in balanced orders,
//! and what the machine disturbed once more at the end of the same block.
//!
//! The same seed and the same outcomes give the same plan on any machine, so that a run that was cut
//! off is taken up by going through its records.

pub mod rate;
mod sequence;
pub mod stop;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sequence::Sequence;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

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
    /// 1, and more where the same was tried in this block before and does not count.
    pub attempt: u32,
    /// The seed of the order in which requests are sent, the same for every subject of the block.
    pub order_seed: u64,
}

/// What became of a trial, as far as the plan is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialStatus {
    /// Its figures count.
    Counts,
    /// It was measured, and its figures do not count.
    Invalid,
    /// The subject failed or was refused.
    Unmeasured,
}

/// The trials of a run, one after another.
#[derive(Debug)]
pub struct Schedule {
    random: ChaCha8Rng,
    orders: Vec<Sequence>,
    /// Cases that wait for all others of a block, because they follow from what those told.
    last: BTreeSet<usize>,
    block: u32,
    /// What is left of the block: its cases, each with its trials.
    left: VecDeque<VecDeque<TrialPlan>>,
    /// How often in a row a case and subject could not be measured.
    in_vain: BTreeMap<(usize, usize), u32>,
    /// Trials of the plan that were handed out, without repeats.
    planned: u32,
    repeated: u32,
}

/// How often in a row a subject may fail or be refused before it is left out of the run.
const PATIENCE: u32 = 2;

/// How often a trial is tried in one block.
const ATTEMPTS_MAX: u32 = 2;

/// One trial in so many may be repeated, so that a run on a busy machine ends all the same.
const REPEAT_DIVISOR: u32 = 4;

impl Schedule {
    /// The schedule of cases that have these subjects each, before its first block.
    pub fn new(cases: &[Vec<usize>], seed: u64) -> Self {
        Self {
            random: ChaCha8Rng::seed_from_u64(seed),
            orders: cases.iter().map(|subjects| Sequence::new(subjects)).collect(),
            last: BTreeSet::new(),
            block: 0,
            left: VecDeque::new(),
            in_vain: BTreeMap::new(),
            planned: 0,
            repeated: 0,
        }
    }

    /// The same with some cases after all others in every block.
    #[must_use]
    pub fn with_last(self, last: impl IntoIterator<Item = usize>) -> Self {
        Self { last: last.into_iter().collect(), ..self }
    }

    /// The block that is under way, from 1.
    pub fn block(&self) -> u32 {
        self.block
    }

    /// Begins the next block.
    pub fn begin_block(&mut self) {
        self.block += 1;
        let mut cases: Vec<usize> = (0..self.orders.len()).collect();
        cases.shuffle(&mut self.random);
        cases.sort_by_key(|case| self.last.contains(case));
        for case in cases {
            let order = self.orders[case].draw(&mut self.random);
            // Blocks differ in the order of requests; subjects of one block do not.
            let order_seed = self.random.random();
            let block = self.block;
            let trials = (1..).zip(order).map(|(position, subject)| TrialPlan {
                case,
                block,
                position,
                subject,
                attempt: 1,
                order_seed,
            });
            self.left.push_back(trials.collect());
        }
    }

    /// The next trial of the block; none when the block is over. Subjects that were given up are
    /// passed over.
    pub fn next_trial(&mut self) -> Option<TrialPlan> {
        loop {
            let Some(trial) = self.left.front_mut()?.pop_front() else {
                self.left.pop_front();
                continue;
            };
            if !self.is_given_up(trial.case, trial.subject) {
                self.planned += u32::from(trial.attempt == 1);
                return Some(trial);
            }
        }
    }

    /// Takes note of what became of the trial that [`Schedule::next_trial`] told last. One whose figures do
    /// not count is tried again, after the others of its case and block. Tells whether the subject is
    /// given up now.
    pub fn note(&mut self, trial: &TrialPlan, fate: TrialStatus) -> bool {
        let count = self.in_vain.entry((trial.case, trial.subject)).or_default();
        match fate {
            TrialStatus::Counts | TrialStatus::Invalid => *count = 0,
            TrialStatus::Unmeasured => *count += 1,
        }
        let is_given_up = *count == PATIENCE;
        let may_repeat = trial.attempt < ATTEMPTS_MAX
            && self.repeated * REPEAT_DIVISOR < self.planned.max(REPEAT_DIVISOR);
        if let (TrialStatus::Invalid, true, Some(rest)) = (fate, may_repeat, self.left.front_mut())
        {
            let last = rest.back().map_or(trial.position, |last| last.position);
            rest.push_back(TrialPlan { position: last + 1, attempt: trial.attempt + 1, ..*trial });
            self.repeated += 1;
        }
        is_given_up
    }

    /// Whether every subject of every case was given up, so that nothing can follow.
    pub fn is_exhausted(&self) -> bool {
        let given_up = self.in_vain.values().filter(|count| **count >= PATIENCE).count();
        let all: usize = self.orders.iter().map(Sequence::len).sum();
        given_up == all
    }

    /// Whether a subject was left out of the rest of a case: both by their places.
    pub fn is_given_up(&self, case: usize, subject: usize) -> bool {
        self.in_vain.get(&(case, subject)).is_some_and(|count| *count >= PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The trials of so many blocks, each with the fate that `fate` gives it.
    fn run(
        schedule: &mut Schedule,
        blocks: u32,
        fate: impl Fn(&TrialPlan) -> TrialStatus,
    ) -> Vec<TrialPlan> {
        let mut trials = Vec::new();
        for _ in 0..blocks {
            schedule.begin_block();
            while let Some(trial) = schedule.next_trial() {
                schedule.note(&trial, fate(&trial));
                trials.push(trial);
            }
        }
        trials
    }

    proptest! {
        #[test]
        fn every_block_holds_every_subject_of_every_case_once(cases in 1usize..4, subjects in 1usize..6, blocks in 1u32..12, seed: u64) {
            let chosen: Vec<usize> = (0..subjects).collect();
            let trials = run(&mut Schedule::new(&vec![chosen; cases], seed), blocks, |_| TrialStatus::Counts);
            prop_assert_eq!(trials.len(), cases * subjects * blocks as usize);
            let distinct: BTreeSet<(usize, u32, usize)> = trials.iter().map(|t| (t.case, t.block, t.subject)).collect();
            prop_assert_eq!(distinct.len(), trials.len());
            let places: BTreeSet<(usize, u32, u32)> = trials.iter().map(|t| (t.case, t.block, t.position)).collect();
            prop_assert_eq!(places.len(), trials.len());
            prop_assert!(trials.is_sorted_by_key(|t| t.block));
        }

        #[test]
        fn what_does_not_count_is_repeated_in_its_block_within_bounds(subjects in 1usize..6, blocks in 1u32..20, seed: u64, fates: [bool; 7]) {
            let chosen: Vec<usize> = (0..subjects).collect();
            let fate = |trial: &TrialPlan| match fates[(trial.block as usize + 3 * trial.subject) % 7] {
                true => TrialStatus::Counts,
                false => TrialStatus::Invalid,
            };
            let trials = run(&mut Schedule::new(&[chosen], seed), blocks, fate);
            let repeats = trials.iter().filter(|t| t.attempt > 1).count();
            prop_assert!(repeats <= 1 + subjects * blocks as usize / 4);
            let places: BTreeSet<(u32, u32)> = trials.iter().map(|t| (t.block, t.position)).collect();
            prop_assert_eq!(places.len(), trials.len());
            for repeat in trials.iter().filter(|t| t.attempt > 1) {
                prop_assert!(!fates[(repeat.block as usize + 3 * repeat.subject) % 7]);
                let first = trials.iter().find(|t| t.attempt == 1 && (t.block, t.subject) == (repeat.block, repeat.subject));
                prop_assert_eq!(first.map(|t| t.order_seed), Some(repeat.order_seed));
            }
        }
    }

    #[test]
    fn a_case_that_follows_from_others_comes_last_in_each_block() {
        let trials = run(&mut Schedule::new(&vec![vec![0, 1]; 3], 5).with_last([1]), 20, |_| {
            TrialStatus::Counts
        });
        for block in trials.chunks(6) {
            let cases: Vec<usize> = block.iter().map(|trial| trial.case).collect();
            assert_eq!(cases[4..], [1, 1]);
            assert!(!cases[..4].contains(&1));
        }
    }

    #[test]
    fn another_seed_gives_another_order_and_the_same_seed_the_same() {
        let orders =
            |seed| run(&mut Schedule::new(&[vec![0, 1, 2, 3]], seed), 6, |_| TrialStatus::Counts);
        assert_eq!(orders(1), orders(1));
        assert_ne!(orders(1), orders(2));
    }

    #[test]
    fn one_trial_that_does_not_count_is_tried_once_more_at_the_end_of_its_case() {
        let mut schedule = Schedule::new(&[vec![0, 1]], 3);
        let trials = run(&mut schedule, 1, |trial| match (trial.subject, trial.attempt) {
            (0, _) => TrialStatus::Invalid,
            _ => TrialStatus::Counts,
        });
        let told: Vec<(usize, u32)> = trials.iter().map(|t| (t.subject, t.attempt)).collect();
        assert_eq!(told.last(), Some(&(0, 2)));
        assert_eq!((told.len(), trials[2].position), (3, 3));
    }

    #[test]
    fn a_block_holds_of_each_case_the_subjects_that_it_is_for() {
        let schedule = &mut Schedule::new(&[vec![0, 2], vec![0], vec![0, 1, 2]], 7);
        let trials = run(schedule, 3, |_| TrialStatus::Counts);
        for block in 1..=3 {
            let of_block = trials.iter().filter(|t| t.block == block);
            let held: BTreeSet<(usize, usize)> = of_block.map(|t| (t.case, t.subject)).collect();
            assert_eq!(held, [(0, 0), (0, 2), (1, 0), (2, 0), (2, 1), (2, 2)].into());
        }
        assert_eq!(trials.len(), 3 * 6);
        // All are given up when each of these six is, and not before.
        let schedule = &mut Schedule::new(&[vec![0], vec![0, 1]], 7);
        run(schedule, 2, |trial| match (trial.case, trial.subject) {
            (1, 1) => TrialStatus::Counts,
            _ => TrialStatus::Unmeasured,
        });
        assert!(!schedule.is_exhausted());
        run(schedule, 2, |_| TrialStatus::Unmeasured);
        assert!(schedule.is_exhausted());
    }

    #[test]
    fn a_subject_that_fails_twice_in_a_row_is_given_up() {
        let mut schedule = Schedule::new(&[vec![3], vec![3]], 0);
        let trials = run(&mut schedule, 5, |trial| match trial.case {
            0 => TrialStatus::Unmeasured,
            _ => TrialStatus::Counts,
        });
        let of_case = |case| trials.iter().filter(|t| t.case == case).count();
        assert_eq!((of_case(0), of_case(1)), (2, 5));
    }
}
