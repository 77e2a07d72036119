//! Order of the trials: blocks with every subject of a case once, in balanced order. Invalid trials are repeated at the
//! end of their block; extra blocks at the end of the run replace those that are still missing.
//!
//! The same seed and the same outcomes give the same plan on any machine, so that a run can be resumed from its
//! records.

use crate::trial::{TrialOutcome, TrialStep};
use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A trial to run. Cases and subjects are indices into those of the experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrialPlan {
    pub case: usize,
    /// From 1.
    pub block: u32,
    /// Position in the block, from 1.
    pub position: u32,
    pub subject: usize,
    /// More than 1 for a repetition of an invalid trial.
    pub attempt: u32,
    /// Seed of the order of requests; the same for all subjects of a block.
    pub order_seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialStatus {
    Counts,
    /// Measured, but its figures do not count.
    Invalid,
    /// The subject failed or was refused.
    Unmeasured,
}

/// The trials of a run in their order.
#[derive(Debug)]
pub struct Schedule {
    random: ChaCha8Rng,
    orders: Vec<Sequence>,
    /// Cases at the end of each block, because they depend on the results of others.
    last: BTreeSet<usize>,
    block: u32,
    /// Remaining trials of the block, by case.
    left: VecDeque<VecDeque<TrialPlan>>,
    /// Consecutive unmeasured trials of a case and subject.
    failures: BTreeMap<(usize, usize), u32>,
    /// Trials so far, without repetitions.
    planned: u32,
    repeated: u32,
    /// Blocks with a valid trial of a case and subject.
    valid: BTreeMap<(usize, usize), BTreeSet<u32>>,
    extra: ExtraBlocks,
}

/// Blocks that follow the planned ones, with those subjects only that have fewer valid blocks than planned.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExtraBlocks {
    /// Subject that a block needs besides another one for a price.
    pub baseline: usize,
    pub planned: u32,
    /// Limit for the number of extra blocks.
    pub max: u32,
}

/// Consecutive unmeasured trials after which a subject is skipped in the rest of a case.
const FAILURES_MAX: u32 = 2;

/// Attempts at a trial in one block.
const ATTEMPTS_MAX: u32 = 2;

/// At most one in this many trials may be repeated, so that a run on a busy machine ends.
const REPEAT_DIVISOR: u32 = 4;

impl Schedule {
    /// `cases` lists the subjects of each case.
    pub fn new(cases: &[Vec<usize>], seed: u64) -> Self {
        Self {
            random: ChaCha8Rng::seed_from_u64(seed),
            orders: cases.iter().map(|subjects| Sequence::new(subjects)).collect(),
            last: BTreeSet::new(),
            block: 0,
            left: VecDeque::new(),
            failures: BTreeMap::new(),
            planned: 0,
            repeated: 0,
            valid: BTreeMap::new(),
            extra: ExtraBlocks::default(),
        }
    }

    #[must_use]
    pub fn with_extra_blocks(self, extra: ExtraBlocks) -> Self {
        Self { extra, ..self }
    }

    /// Moves cases to the end of each block.
    #[must_use]
    pub fn with_last(self, last: impl IntoIterator<Item = usize>) -> Self {
        Self { last: last.into_iter().collect(), ..self }
    }

    /// Returns the current block, from 1.
    pub fn block(&self) -> u32 {
        self.block
    }

    /// True if the planned blocks are over and an extra one is needed and allowed.
    pub fn needs_extra_block(&self) -> bool {
        let ExtraBlocks { planned, max, .. } = self.extra;
        (planned..planned + max).contains(&self.block) && !self.incomplete().is_empty()
    }

    /// Returns the cases and subjects that have fewer valid blocks than planned, with the baseline of each such case.
    fn incomplete(&self) -> BTreeSet<(usize, usize)> {
        let ExtraBlocks { baseline, planned, .. } = self.extra;
        let mut incomplete = BTreeSet::new();
        for (case, order) in self.orders.iter().enumerate() {
            let valid = |subject: usize| self.valid.get(&(case, subject));
            let has_baseline =
                order.subjects.contains(&baseline) && !self.is_given_up(case, baseline);
            for &subject in &order.subjects {
                let blocks = valid(subject).into_iter().flatten();
                // A price needs both in the same block.
                let counted = blocks.filter(|block| {
                    !has_baseline || valid(baseline).is_some_and(|valid| valid.contains(block))
                });
                if !self.is_given_up(case, subject) && counted.count() < planned as usize {
                    incomplete.insert((case, subject));
                    incomplete.extend(has_baseline.then_some((case, baseline)));
                }
            }
        }
        incomplete
    }

    pub fn begin_block(&mut self) {
        let is_extra = self.extra.max > 0 && self.block >= self.extra.planned;
        let wanted = is_extra.then(|| self.incomplete());
        self.block += 1;
        let mut cases: Vec<usize> = (0..self.orders.len()).collect();
        cases.shuffle(&mut self.random);
        cases.sort_by_key(|case| self.last.contains(case));
        for case in cases {
            let mut order = self.orders[case].draw(&mut self.random);
            order.retain(|&subject| {
                wanted.as_ref().is_none_or(|wanted| wanted.contains(&(case, subject)))
            });
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

    /// Returns the next trial of the block, or `None` at its end. Skips subjects that were given up.
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

    /// Records the status of the last trial of [`Schedule::next_trial`]. Schedules the repetition of an invalid trial.
    /// Returns true if the subject is now given up.
    pub fn note(&mut self, trial: &TrialPlan, status: TrialStatus) -> bool {
        let count = self.failures.entry((trial.case, trial.subject)).or_default();
        match status {
            TrialStatus::Counts | TrialStatus::Invalid => *count = 0,
            TrialStatus::Unmeasured => *count += 1,
        }
        let is_given_up = *count == FAILURES_MAX;
        if status == TrialStatus::Counts {
            self.valid.entry((trial.case, trial.subject)).or_default().insert(trial.block);
        }
        let may_repeat = trial.attempt < ATTEMPTS_MAX
            && self.repeated * REPEAT_DIVISOR < self.planned.max(REPEAT_DIVISOR);
        if let (TrialStatus::Invalid, true, Some(rest)) =
            (status, may_repeat, self.left.front_mut())
        {
            let last = rest.back().map_or(trial.position, |last| last.position);
            rest.push_back(TrialPlan { position: last + 1, attempt: trial.attempt + 1, ..*trial });
            self.repeated += 1;
        }
        is_given_up
    }

    /// True if all subjects of all cases were given up.
    pub fn is_exhausted(&self) -> bool {
        let given_up = self.failures.values().filter(|count| **count >= FAILURES_MAX).count();
        let all: usize = self.orders.iter().map(|order| order.subjects.len()).sum();
        given_up == all
    }

    /// True if a subject is skipped in the rest of a case.
    pub fn is_given_up(&self, case: usize, subject: usize) -> bool {
        self.failures.get(&(case, subject)).is_some_and(|count| *count >= FAILURES_MAX)
    }
}

impl TrialStatus {
    pub fn of(outcome: &TrialOutcome) -> Self {
        match outcome {
            TrialOutcome::Measured(_) if outcome.is_valid() => Self::Counts,
            TrialOutcome::Measured(_) => Self::Invalid,
            TrialOutcome::Failed(failure) if failure.step == TrialStep::Host => Self::Invalid,
            TrialOutcome::Refused(_) | TrialOutcome::Failed(_) => Self::Unmeasured,
        }
    }
}

/// Endless orders of the same subjects. Each subject follows each other one equally often, because a server leaves warm
/// caches, closed connections and a hot CPU to the next one. Every set of as many orders as subjects (twice as many for
/// an odd number) is balanced; each set is random.
///
/// Source: E. J. Williams, "Experimental designs balanced for the estimation of residual effects of treatments",
/// Australian Journal of Scientific Research A 2 (1949), 149-168.
#[derive(Debug)]
struct Sequence {
    subjects: Vec<usize>,
    /// Remaining orders of the balanced set.
    left: Vec<Vec<usize>>,
}

impl Sequence {
    fn new(subjects: &[usize]) -> Self {
        Self { subjects: subjects.to_vec(), left: Vec::new() }
    }

    fn draw(&mut self, random: &mut impl Rng) -> Vec<usize> {
        if self.left.is_empty() {
            // The assignment of subjects and the order of the rows are random.
            self.subjects.shuffle(random);
            let named =
                |row: Vec<usize>| row.into_iter().map(|place| self.subjects[place]).collect();
            self.left = square(self.subjects.len()).into_iter().map(named).collect();
            self.left.shuffle(random);
        }
        self.left.pop().unwrap_or_default()
    }
}

/// Williams' square: each row has each treatment once, each column has each equally often, and each follows each other
/// one equally often.
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

    /// Runs blocks in which `status` decides the status of each trial. Returns all trials.
    fn run(
        schedule: &mut Schedule,
        blocks: u32,
        status: impl Fn(&TrialPlan) -> TrialStatus,
    ) -> Vec<TrialPlan> {
        let mut trials = Vec::new();
        for _ in 0..blocks {
            schedule.begin_block();
            while let Some(trial) = schedule.next_trial() {
                schedule.note(&trial, status(&trial));
                trials.push(trial);
            }
        }
        trials
    }

    proptest! {
        #[test]
        fn every_block_has_every_subject_of_every_case_once(cases in 1usize..4, subjects in 1usize..6, blocks in 1u32..12, seed: u64) {
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
        fn invalid_trials_are_repeated_in_their_block_within_limits(subjects in 1usize..6, blocks in 1u32..20, seed: u64, counts: [bool; 7]) {
            let chosen: Vec<usize> = (0..subjects).collect();
            let status = |trial: &TrialPlan| {
                let counts = counts[(trial.block as usize + 3 * trial.subject) % 7];
                if counts { TrialStatus::Counts } else { TrialStatus::Invalid }
            };
            let trials = run(&mut Schedule::new(&[chosen], seed), blocks, status);
            let repeats = trials.iter().filter(|t| t.attempt > 1).count();
            prop_assert!(repeats <= 1 + subjects * blocks as usize / 4);
            let places: BTreeSet<(u32, u32)> = trials.iter().map(|t| (t.block, t.position)).collect();
            prop_assert_eq!(places.len(), trials.len());
            for repeat in trials.iter().filter(|t| t.attempt > 1) {
                prop_assert!(!counts[(repeat.block as usize + 3 * repeat.subject) % 7]);
                let first = trials.iter().find(|t| t.attempt == 1 && (t.block, t.subject) == (repeat.block, repeat.subject));
                prop_assert_eq!(first.map(|t| t.order_seed), Some(repeat.order_seed));
            }
        }
    }

    #[test]
    fn dependent_case_comes_last_in_each_block() {
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
    fn seed_determines_the_order() {
        let orders =
            |seed| run(&mut Schedule::new(&[vec![0, 1, 2, 3]], seed), 6, |_| TrialStatus::Counts);
        assert_eq!(orders(1), orders(1));
        assert_ne!(orders(1), orders(2));
    }

    #[test]
    fn invalid_trial_is_repeated_once_at_the_end_of_its_case() {
        let mut schedule = Schedule::new(&[vec![0, 1]], 3);
        let trials = run(&mut schedule, 1, |trial| match (trial.subject, trial.attempt) {
            (0, _) => TrialStatus::Invalid,
            _ => TrialStatus::Counts,
        });
        let attempts: Vec<(usize, u32)> = trials.iter().map(|t| (t.subject, t.attempt)).collect();
        assert_eq!(attempts.last(), Some(&(0, 2)));
        assert_eq!((attempts.len(), trials[2].position), (3, 3));
    }

    /// The baseline is subject 0.
    fn with_extra(cases: &[Vec<usize>], planned: u32, max: u32) -> Schedule {
        Schedule::new(cases, 3).with_extra_blocks(ExtraBlocks { baseline: 0, planned, max })
    }

    /// Runs the planned blocks and the extra ones. Returns the case and subject of each trial in an extra block.
    fn extra_trials(
        schedule: &mut Schedule,
        planned: u32,
        status: impl Fn(&TrialPlan) -> TrialStatus,
    ) -> Vec<BTreeSet<(usize, usize)>> {
        run(schedule, planned, &status);
        let mut extra = Vec::new();
        while schedule.needs_extra_block() {
            let trials = run(schedule, 1, &status);
            extra.push(trials.iter().map(|trial| (trial.case, trial.subject)).collect());
        }
        extra
    }

    #[test]
    fn extra_block_has_the_incomplete_subjects_and_the_baseline() {
        let invalid_at = |block, subject| {
            move |trial: &TrialPlan| {
                if (trial.case, trial.block, trial.subject) == (1, block, subject) {
                    TrialStatus::Invalid
                } else {
                    TrialStatus::Counts
                }
            }
        };
        let cases = vec![vec![0, 1, 2]; 2];
        let extra = extra_trials(&mut with_extra(&cases, 4, 2), 4, invalid_at(2, 1));
        assert_eq!(extra, [[(1, 0), (1, 1)].into()]);
        // Without the baseline, a block has no price.
        let extra = extra_trials(&mut with_extra(&cases, 4, 2), 4, invalid_at(2, 0));
        assert_eq!(extra, [[(1, 0), (1, 1), (1, 2)].into()]);
        let complete = extra_trials(&mut with_extra(&cases, 4, 2), 4, invalid_at(9, 0));
        assert!(complete.is_empty());
    }

    #[test]
    fn number_of_extra_blocks_is_limited() {
        let always = |trial: &TrialPlan| match trial.subject {
            1 => TrialStatus::Invalid,
            _ => TrialStatus::Counts,
        };
        let cases = [vec![0, 1, 2]];
        assert_eq!(extra_trials(&mut with_extra(&cases, 4, 2), 4, always).len(), 2);
        assert!(extra_trials(&mut with_extra(&cases, 4, 0), 4, always).is_empty());
    }

    #[test]
    fn subject_that_was_given_up_is_not_replaced() {
        let fails = |trial: &TrialPlan| match trial.subject {
            1 => TrialStatus::Unmeasured,
            _ => TrialStatus::Counts,
        };
        assert!(extra_trials(&mut with_extra(&[vec![0, 1, 2]], 4, 2), 4, fails).is_empty());
        // Nor does the run end early if it is the baseline.
        let baseline = |trial: &TrialPlan| match (trial.subject, trial.block) {
            (0, _) => TrialStatus::Unmeasured,
            (1, 3) => TrialStatus::Invalid,
            _ => TrialStatus::Counts,
        };
        let extra = extra_trials(&mut with_extra(&[vec![0, 1, 2]], 4, 2), 4, baseline);
        assert_eq!(extra, [[(0, 1)].into()]);
    }

    #[test]
    fn block_has_the_subjects_of_each_case() {
        let schedule = &mut Schedule::new(&[vec![0, 2], vec![0], vec![0, 1, 2]], 7);
        let trials = run(schedule, 3, |_| TrialStatus::Counts);
        for block in 1..=3 {
            let of_block = trials.iter().filter(|t| t.block == block);
            let held: BTreeSet<(usize, usize)> = of_block.map(|t| (t.case, t.subject)).collect();
            assert_eq!(held, [(0, 0), (0, 2), (1, 0), (2, 0), (2, 1), (2, 2)].into());
        }
        assert_eq!(trials.len(), 3 * 6);
        // Exhausted only when all subjects of all cases are given up.
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
    fn subject_that_fails_twice_in_a_row_is_given_up() {
        let mut schedule = Schedule::new(&[vec![3], vec![3]], 0);
        let trials = run(&mut schedule, 5, |trial| match trial.case {
            0 => TrialStatus::Unmeasured,
            _ => TrialStatus::Counts,
        });
        let of_case = |case| trials.iter().filter(|t| t.case == case).count();
        assert_eq!((of_case(0), of_case(1)), (2, 5));
    }

    #[test]
    fn square_of_four_by_hand() {
        let rows = [[0, 1, 3, 2], [1, 2, 0, 3], [2, 3, 1, 0], [3, 0, 2, 1]];
        assert_eq!(square(4), rows.map(|row| row.to_vec()));
        assert_eq!(square(1), [[0], [0]]);
        assert_eq!(square(2), [[0, 1], [1, 0]]);
        assert!(square(0).is_empty());
    }

    type Counts = BTreeMap<(usize, usize), usize>;

    /// Counts each pair of neighbours, and each subject in each place.
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
            prop_assert_eq!(follows.len(), size * (size - 1), "every pair occurs");
            prop_assert!(follows.values().all(|count| *count == sets * of_a_set / size));
            prop_assert_eq!(places.len(), size * size);
            prop_assert!(places.values().all(|count| *count == sets * of_a_set / size));
        }
    }

    #[test]
    fn sequence_of_none_or_one_subject() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        assert!(Sequence::new(&[]).draw(&mut random).is_empty());
        assert_eq!(Sequence::new(&[7]).draw(&mut random), [7]);
    }
}
