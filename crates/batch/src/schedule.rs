//! Assigns rounds to nodes.
//!
//! Longest rounds first, and near the end each to the node that is expected to finish it first, so that no slow node
//! starts a round that a faster one would finish earlier. A round that fails on a node is repeated on another one, after
//! the rounds that have not failed. The round of a lost node keeps its place. Both count as an attempt. All times come from
//! the caller.

use std::collections::BTreeSet;

/// The state of all rounds and nodes. Rounds and nodes are indices.
#[derive(Debug)]
pub(crate) struct Schedule {
    rounds: Vec<RoundState>,
    nodes: Vec<NodeState>,
    /// Rounds to start: fewest failures first, and the longest of them first.
    waiting: Vec<usize>,
    attempts_max: u32,
}

#[derive(Debug)]
struct RoundState {
    /// Expected duration on a node of average speed, in any unit.
    work: f64,
    attempts: u32,
    /// Attempts that failed on a node that was not lost.
    failures: u32,
    failed_on: BTreeSet<usize>,
    outcome: Option<RoundOutcome>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoundOutcome {
    Finished,
    /// All attempts failed.
    GivenUp,
}

#[derive(Debug, Default)]
struct NodeState {
    is_up: bool,
    /// Round, and its start.
    running: Option<(usize, f64)>,
    /// Sums over finished rounds.
    work: f64,
    time_s: f64,
    /// Rounds that have failed since the last one that finished.
    failed: BTreeSet<usize>,
}

impl Schedule {
    /// `work`: expected duration of each round. `attempts_max`: of one round. All nodes are up.
    pub(crate) fn new(work: &[f64], nodes: usize, attempts_max: u32) -> Self {
        let round = |work: &f64| RoundState {
            work: *work,
            attempts: 0,
            failures: 0,
            failed_on: BTreeSet::new(),
            outcome: None,
        };
        let mut schedule = Self {
            rounds: work.iter().map(round).collect(),
            nodes: (0..nodes).map(|_| NodeState { is_up: true, ..NodeState::default() }).collect(),
            waiting: (0..work.len()).collect(),
            attempts_max,
        };
        schedule.sort();
        schedule
    }

    /// Starts a round on an idle node. `None` if there is none for it now; ask again after each change.
    pub(crate) fn start(&mut self, node: usize, now_s: f64) -> Option<usize> {
        if !self.nodes[node].is_up || self.nodes[node].running.is_some() {
            return None;
        }
        let is_near_the_end = self.waiting.len() <= NEAR_THE_END * self.nodes.len();
        let round = if is_near_the_end {
            self.first_to_finish_on(node, now_s)
        } else {
            self.waiting.iter().copied().find(|round| self.may_run(*round, node))
        }?;
        self.waiting.retain(|waiting| *waiting != round);
        self.nodes[node].running = Some((round, now_s));
        Some(round)
    }

    /// Records the result of the round that runs on a node.
    pub(crate) fn finish(&mut self, node: usize, now_s: f64) -> Option<usize> {
        let state = &mut self.nodes[node];
        let (round, started_s) = state.running.take()?;
        state.work += self.rounds[round].work;
        state.time_s += now_s - started_s;
        state.failed.clear();
        self.rounds[round].outcome = Some(RoundOutcome::Finished);
        Some(round)
    }

    /// Puts the round that runs on a node back, or gives it up after its last attempt.
    pub(crate) fn fail(&mut self, node: usize) -> Option<usize> {
        let (round, _) = self.nodes[node].running?;
        self.rounds[round].failures += 1;
        self.end_attempt(node)
    }

    /// As [`Self::fail`], because the node was lost. It gets no rounds until it is up.
    pub(crate) fn lose(&mut self, node: usize) -> Option<usize> {
        self.nodes[node].is_up = false;
        self.end_attempt(node)
    }

    fn end_attempt(&mut self, node: usize) -> Option<usize> {
        let (round, _) = self.nodes[node].running.take()?;
        let state = &mut self.rounds[round];
        state.attempts += 1;
        state.failed_on.insert(node);
        self.nodes[node].failed.insert(round);
        if state.attempts < self.attempts_max {
            self.waiting.push(round);
            self.sort();
        } else {
            state.outcome = Some(RoundOutcome::GivenUp);
        }
        Some(round)
    }

    /// A node that is not up gets no rounds.
    pub(crate) fn set_up(&mut self, node: usize, is_up: bool) {
        self.nodes[node].is_up = is_up;
    }

    /// True if several rounds in a row failed on this node and on no other one. A round that fails everywhere says nothing
    /// about a node, nor do its repetitions.
    pub(crate) fn is_faulty(&self, node: usize) -> bool {
        let failed = self.nodes[node].failed.iter();
        failed.filter(|round| self.rounds[**round].failed_on.len() == 1).count() >= FAULTY_ROUNDS
    }

    pub(crate) fn outcome(&self, round: usize) -> Option<RoundOutcome> {
        self.rounds[round].outcome
    }

    /// True if a round has neither ended nor failed.
    pub(crate) fn has_fresh(&self) -> bool {
        self.rounds.iter().any(|round| round.outcome.is_none() && round.failures == 0)
    }

    /// True if each round was finished or given up.
    pub(crate) fn is_complete(&self) -> bool {
        self.rounds.iter().all(|round| round.outcome.is_some())
    }

    fn sort(&mut self) {
        let rounds = &self.rounds;
        self.waiting.sort_by(|one, other| {
            let [a, b] = [one, other].map(|round| &rounds[*round]);
            a.failures.cmp(&b.failures).then(b.work.total_cmp(&a.work)).then(one.cmp(other))
        });
    }

    /// False if the round failed there, and another node is up on which it did not.
    fn may_run(&self, round: usize, node: usize) -> bool {
        let failed_on = &self.rounds[round].failed_on;
        let is_better =
            |(other, state): (usize, &NodeState)| state.is_up && !failed_on.contains(&other);
        !failed_on.contains(&node) || !self.nodes.iter().enumerate().any(is_better)
    }

    /// Plans all waiting rounds, each on the node that finishes it first, and returns the first one of a node.
    fn first_to_finish_on(&self, node: usize, now_s: f64) -> Option<usize> {
        let speeds = self.speeds();
        let mut free_s: Vec<f64> =
            (0..self.nodes.len()).map(|other| self.free_at(other, now_s, &speeds)).collect();
        for round in &self.waiting {
            let end_s = |other: usize| free_s[other] + self.rounds[*round].work / speeds[other];
            let usable = |other: &usize| self.nodes[*other].is_up && self.may_run(*round, *other);
            let all = (0..self.nodes.len()).filter(usable);
            let best = all.min_by(|one, other| end_s(*one).total_cmp(&end_s(*other)))?;
            if best == node {
                return Some(*round);
            }
            free_s[best] = end_s(best);
        }
        None
    }

    /// Expected time at which a node becomes idle. A round that is late by some time is expected to take as long again.
    fn free_at(&self, node: usize, now_s: f64, speeds: &[f64]) -> f64 {
        let Some((round, started_s)) = self.nodes[node].running else { return now_s };
        let end_s = started_s + self.rounds[round].work / speeds[node];
        if end_s >= now_s { end_s } else { now_s + (now_s - end_s) }
    }

    /// Work per second of each node, as if each had also done an average round at the average speed.
    fn speeds(&self) -> Vec<f64> {
        let work: f64 = self.nodes.iter().map(|node| node.work).sum();
        let time_s: f64 = self.nodes.iter().map(|node| node.time_s).sum();
        let average = if time_s > 0.0 { work / time_s } else { 1.0 };
        let rounds: f64 = self.rounds.iter().map(|round| round.work).sum();
        let typical = rounds / self.rounds.len().max(1) as f64;
        let speed = |node: &NodeState| {
            let time_s = node.time_s + typical / average;
            if time_s > 0.0 { (node.work + typical) / time_s } else { average }
        };
        self.nodes.iter().map(speed).collect()
    }
}

/// Waiting rounds per node below which nodes are compared.
const NEAR_THE_END: usize = 2;

/// Rounds that fail in a row on a faulty node. With a single node, as many bad rounds look the same.
pub(crate) const FAULTY_ROUNDS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn longest_round_starts_first() {
        let mut schedule = Schedule::new(&[1.0, 3.0, 2.0], 2, 3);
        assert_eq!(schedule.start(0, 0.0), Some(1));
        assert_eq!(schedule.start(1, 0.0), Some(2));
        assert_eq!((schedule.start(1, 0.0), schedule.finish(1, 2.0)), (None, Some(2)));
        assert_eq!(schedule.start(1, 2.0), Some(0));
        assert_eq!((schedule.finish(0, 3.0), schedule.finish(1, 3.0)), (Some(1), Some(0)));
        assert!(schedule.is_complete());
    }

    #[test]
    fn slow_node_leaves_last_round_to_a_faster_one() {
        let mut schedule = Schedule::new(&[1.0; 9], 2, 3);
        // Node 0 takes 1 s per round, node 1 takes 4 s.
        for second in 0..4 {
            let now_s = f64::from(second);
            assert!(schedule.start(0, now_s).is_some());
            assert_eq!(schedule.start(1, now_s).is_some(), second == 0);
            schedule.finish(0, now_s + 1.0);
        }
        schedule.finish(1, 4.0);
        // Four rounds are left: node 0 would have finished them at 8 s, as node 1 one of them, if it starts it now.
        assert!(schedule.start(0, 4.0).is_some() && schedule.start(1, 4.0).is_some());
        for now_s in [5.0, 6.0] {
            schedule.finish(0, now_s);
            assert!(schedule.start(0, now_s).is_some());
        }
        assert_eq!(schedule.start(0, 7.0), None, "the last round runs");
        schedule.lose(1);
        schedule.set_up(1, true);
        schedule.finish(0, 7.0);
        assert_eq!(schedule.start(1, 7.0), None, "it failed there, and is shorter on the other");
        assert!(schedule.start(0, 7.0).is_some());
        schedule.finish(0, 8.0);
        assert!(schedule.is_complete());
    }

    #[test]
    fn failed_round_is_repeated_elsewhere_and_given_up_at_the_limit() {
        let mut schedule = Schedule::new(&[1.0], 2, 3);
        assert_eq!(schedule.start(0, 0.0), Some(0));
        assert_eq!(schedule.fail(0), Some(0));
        assert_eq!(schedule.start(0, 1.0), None);
        assert_eq!(schedule.start(1, 1.0), Some(0));
        assert_eq!(schedule.lose(1), Some(0));
        // There is no other node left.
        assert_eq!(schedule.start(0, 2.0), Some(0));
        assert_eq!(schedule.fail(0), Some(0));
        assert_eq!(schedule.outcome(0), Some(RoundOutcome::GivenUp));
        assert_eq!(schedule.start(0, 3.0), None);
        assert!(schedule.is_complete());
    }

    #[test]
    fn failed_round_is_repeated_after_fresh_ones() {
        let mut schedule = Schedule::new(&[9.0, 5.0, 1.0], 1, 3);
        let mut order = Vec::new();
        while let Some(round) = schedule.start(0, 0.0) {
            order.push(round);
            match round {
                // The longest and the shortest fail.
                0 | 2 => schedule.fail(0),
                _ => schedule.finish(0, 1.0),
            };
        }
        assert_eq!(order, [0, 1, 2, 0, 2, 0, 2]);
        assert!(schedule.is_complete());
        // The round of a lost node keeps its place.
        let mut schedule = Schedule::new(&[9.0, 5.0], 1, 3);
        assert_eq!(schedule.start(0, 0.0), Some(0));
        schedule.lose(0);
        assert_eq!(schedule.start(0, 1.0), None);
        schedule.set_up(0, true);
        assert_eq!(schedule.start(0, 2.0), Some(0));
    }

    #[test]
    fn node_is_faulty_after_distinct_rounds_that_failed_there_alone() {
        let mut schedule = Schedule::new(&[1.0; FAULTY_ROUNDS + 1], 2, 9);
        let fail = |schedule: &mut Schedule, node| {
            let round = schedule.start(node, 0.0).unwrap();
            schedule.fail(node);
            round
        };
        for _ in 1..FAULTY_ROUNDS {
            fail(&mut schedule, 0);
        }
        assert!(!schedule.is_faulty(0));
        fail(&mut schedule, 0);
        assert!(schedule.is_faulty(0) && !schedule.is_faulty(1));
        // One of the rounds fails on the other node too, after a fresh one.
        assert_eq!(schedule.start(1, 0.0), Some(FAULTY_ROUNDS));
        schedule.finish(1, 1.0);
        assert!(fail(&mut schedule, 1) < FAULTY_ROUNDS);
        assert!(!schedule.is_faulty(0) && !schedule.is_faulty(1));
    }

    #[test]
    fn repetitions_of_bad_rounds_do_not_make_a_node_faulty() {
        let mut schedule = Schedule::new(&[1.0; 2], 1, 9);
        while schedule.start(0, 0.0).is_some() {
            schedule.fail(0);
            assert!(!schedule.is_faulty(0));
        }
        assert!(schedule.is_complete());
    }

    /// Nodes in virtual time.
    struct Simulation {
        /// Work of each round, as the schedule expects it and as it is.
        work: Vec<(f64, f64)>,
        /// Work per second of each node.
        speeds: Vec<f64>,
        /// Mean time between failures of a node, and the time until it is up again.
        failures_s: f64,
        repair_s: f64,
        attempts_max: u32,
        seed: u64,
    }

    #[derive(Debug, PartialEq)]
    struct Simulated {
        /// Time of the last result.
        end_s: f64,
        /// Shortest time in which the nodes, while they are up, can do all work.
        ideal_s: f64,
        /// Results of each round.
        results: Vec<u32>,
        given_up: usize,
        failures: u32,
    }

    impl Simulation {
        fn run(&self) -> Simulated {
            let nodes = self.speeds.len();
            let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
            // Exponential distribution.
            let mut lifetime = || -self.failures_s * (1.0 - rng.random::<f64>()).ln();
            let expected: Vec<f64> = self.work.iter().map(|work| work.0).collect();
            let mut schedule = Schedule::new(&expected, nodes, self.attempts_max);
            let mut results = vec![0; self.work.len()];
            let mut is_up = vec![true; nodes];
            // Of each node: the next failure or the end of the repair, and the end of its round.
            let mut change_s: Vec<f64> = (0..nodes).map(|_| lifetime()).collect();
            let mut end_s: Vec<Option<f64>> = vec![None; nodes];
            let (mut now_s, mut capacity, mut ideal_s, mut failures) = (0.0, 0.0, None, 0);
            let total: f64 = self.work.iter().map(|work| work.1).sum();
            while !schedule.is_complete() {
                for (node, end_s) in end_s.iter_mut().enumerate() {
                    if let Some(round) = schedule.start(node, now_s) {
                        *end_s = Some(now_s + self.work[round].1 / self.speeds[node]);
                    }
                }
                let next = |node: &usize| change_s[*node].min(end_s[*node].unwrap_or(f64::MAX));
                let node = (0..nodes)
                    .min_by(|one, other| next(one).total_cmp(&next(other)))
                    .expect("nodes");
                let then_s = next(&node);
                let speed: f64 = (0..nodes).filter(|n| is_up[*n]).map(|n| self.speeds[n]).sum();
                let added = speed * (then_s - now_s);
                if ideal_s.is_none() && capacity + added >= total {
                    ideal_s = Some(now_s + (total - capacity) / speed);
                }
                capacity += added;
                now_s = then_s;
                if end_s[node] == Some(now_s) {
                    end_s[node] = None;
                    let round = schedule.finish(node, now_s).expect("a round");
                    results[round] += 1;
                    continue;
                }
                is_up[node] = !is_up[node];
                if is_up[node] {
                    schedule.set_up(node, true);
                } else {
                    schedule.lose(node);
                }
                change_s[node] = now_s + if is_up[node] { lifetime() } else { self.repair_s };
                if !is_up[node] {
                    failures += 1;
                    end_s[node] = None;
                }
            }
            let given_up = |round: &usize| schedule.outcome(*round) == Some(RoundOutcome::GivenUp);
            Simulated {
                end_s: now_s,
                ideal_s: ideal_s.unwrap_or(now_s),
                given_up: (0..results.len()).filter(given_up).count(),
                results,
                failures,
            }
        }
    }

    /// 2,000 rounds on 100 nodes. A round takes 150 s on average, differs by up to a tenth from what is expected, and a
    /// tenth of the nodes needs two to four times as long. Each node fails every 50 rounds on average.
    fn hundred_nodes(seed: u64, equal: bool) -> Simulation {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut work = || {
            let expected = if equal { 150.0 } else { 60.0 * f64::from(rng.random_range(1..5_u8)) };
            (expected, expected * rng.random_range(0.9..1.1))
        };
        let work = (0..2_000).map(|_| work()).collect();
        let speed = |node: usize| match node % 10 {
            0 => 1.0 / rng.random_range(2.0..4.0),
            _ => rng.random_range(0.9..1.1),
        };
        let speeds = (0..100).map(speed).collect();
        let (failures_s, repair_s) = (50.0 * 150.0, 600.0);
        Simulation { work, speeds, failures_s, repair_s, attempts_max: 10, seed }
    }

    #[test]
    fn hundred_nodes_finish_two_thousand_rounds_near_the_ideal() {
        for seed in 0..10 {
            for equal in [false, true] {
                let simulated = hundred_nodes(seed, equal).run();
                let ratio = simulated.end_s / simulated.ideal_s;
                assert!((1.0..1.1).contains(&ratio), "seed {seed}, equal {equal}: {ratio}");
                assert!(simulated.failures > 20, "{}", simulated.failures);
                assert!(simulated.results.iter().all(|results| *results == 1));
            }
        }
    }

    #[test]
    fn same_seed_gives_the_same_schedule() {
        let run = |seed| hundred_nodes(seed, false).run();
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }

    proptest! {
        /// Each round has one result, or was given up, whatever fails.
        #[test]
        fn no_round_is_lost_or_counted_twice(
            rounds in 0_usize..40,
            nodes in 1_usize..8,
            failures_s in 1.0..100.0,
            attempts_max in 1_u32..5,
            seed in any::<u64>(),
        ) {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let work = (0..rounds).map(|_| (rng.random_range(1.0..20.0), rng.random_range(1.0..20.0)));
            let work = work.collect();
            let speeds = (0..nodes).map(|_| rng.random_range(0.2..2.0)).collect();
            let simulation = Simulation { work, speeds, failures_s, repair_s: 5.0, attempts_max, seed };
            let simulated = simulation.run();
            let finished = simulated.results.iter().filter(|results| **results == 1).count();
            prop_assert!(simulated.results.iter().all(|results| *results <= 1));
            prop_assert_eq!(finished + simulated.given_up, rounds);
        }
    }
}
