//! Which backend is next: the four ways, among those that may be taken.

use std::cmp::Reverse;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::hash::{Key, Places};
use crate::config::{Balance, Pool};

/// One thread's choice among the backends of a pool. Each choice looks at every backend once or twice.
#[derive(Debug)]
pub(super) struct Balancer {
    weights: Box<[u32]>,
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// What each backend is owed, beside the others: nginx's smooth turns.
    RoundRobin {
        owed: Box<[i64]>,
    },
    /// Which backend is the first that is looked at, so that equals take turns.
    LeastConnections {
        first: usize,
    },
    ConsistentHash(Places),
    RandomOfTwo(Box<ChaCha8Rng>),
}

impl Balancer {
    /// What `seed` is decides over draws alone.
    pub(super) fn new(pool: &Pool, seed: u64) -> Self {
        let weights: Box<[u32]> = pool.backends.iter().map(|backend| backend.weight).collect();
        let way = match &pool.balance {
            Balance::RoundRobin => Way::RoundRobin { owed: weights.iter().map(|_| 0).collect() },
            Balance::LeastConnections => Way::LeastConnections { first: 0 },
            Balance::ConsistentHash { .. } => Way::ConsistentHash(Places::new(&pool.backends)),
            Balance::RandomOfTwo => Way::RandomOfTwo(Box::new(ChaCha8Rng::seed_from_u64(seed))),
        };
        Self { weights, way }
    }

    /// Whether requests that are alike have to go to the same backend.
    pub(super) fn is_sticky(&self) -> bool {
        matches!(self.way, Way::ConsistentHash(_))
    }

    /// Whether it gets requests at all.
    pub(super) fn has_weight(&self, at: usize) -> bool {
        self.weights[at] > 0
    }

    /// The next of those that may be taken and have a weight. `busy` tells how many requests each has under
    /// way.
    pub(super) fn next(
        &mut self,
        key: Key,
        busy: &[u32],
        may_be_taken: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let weights = &self.weights;
        let open = (0..weights.len()).filter(|&at| weights[at] > 0 && may_be_taken(at));
        match &mut self.way {
            Way::RoundRobin { owed } => next_in_turn(weights, owed, open),
            Way::LeastConnections { first } => {
                let count = weights.len();
                let from_first = |at: &usize| (at + count - *first) % count;
                let next = open.min_by(|one, other| {
                    let by_load = load(weights, busy, *one).cmp(&load(weights, busy, *other));
                    by_load.then(from_first(one).cmp(&from_first(other)))
                })?;
                *first = (next + 1) % count;
                Some(next)
            }
            Way::ConsistentHash(places) => places.first(key, open),
            Way::RandomOfTwo(random) => {
                let one = draw(weights, random, open.clone())?;
                let other = draw(weights, random, open.filter(|at| *at != one));
                Some(other.map_or(one, |other| {
                    if load(weights, busy, other) < load(weights, busy, one) { other } else { one }
                }))
            }
        }
    }
}

/// Smooth weighted round robin, as nginx has it: who may be taken is owed its weight more, who is owed
/// most is taken, and has been paid the sum of these weights. Of any so many turns in a row as the sum
/// of the weights is, each backend gets as many as its weight is, and not all at once.
fn next_in_turn(
    weights: &[u32],
    owed: &mut [i64],
    open: impl Iterator<Item = usize>,
) -> Option<usize> {
    let mut sum = 0;
    let mut next: Option<usize> = None;
    for at in open {
        let weight = i64::from(weights[at]);
        owed[at] += weight;
        sum += weight;
        if next.is_none_or(|next| owed[at] > owed[next]) {
            next = Some(at);
        }
    }
    let next = next?;
    owed[next] -= sum;
    Some(next)
}

/// What a backend would have to do with one request more, for its weight; to be compared.
fn load(weights: &[u32], busy: &[u32], at: usize) -> Load {
    Load { requests: u64::from(busy[at]) + 1, weight: u64::from(weights[at]) }
}

#[derive(PartialEq, Eq)]
struct Load {
    requests: u64,
    weight: u64,
}

impl Ord for Load {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // Two quotients, compared without dividing. Of equals the heavier has more room left.
        (self.requests * other.weight)
            .cmp(&(other.requests * self.weight))
            .then(Reverse(self.weight).cmp(&Reverse(other.weight)))
    }
}

impl PartialOrd for Load {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// One of these, each as likely as its weight is.
fn draw(
    weights: &[u32],
    random: &mut ChaCha8Rng,
    open: impl Iterator<Item = usize> + Clone,
) -> Option<usize> {
    let sum: u64 = open.clone().map(|at| u64::from(weights[at])).sum();
    if sum == 0 {
        return None;
    }
    let mut left = random.random_range(0..sum);
    let mut open = open;
    open.find(|&at| {
        let weight = u64::from(weights[at]);
        let is_it = left < weight;
        left = left.saturating_sub(weight);
        is_it
    })
}
