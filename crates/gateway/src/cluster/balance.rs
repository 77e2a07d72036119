//! Load balancing: round robin, least connections, random of two, and consistent hashing.

use std::cmp::Reverse;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::config::{Backend, Balance, Pool};

/// Index of a backend in its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BackendId(pub(crate) usize);

/// Balancer of one thread and pool. A choice looks at every backend once or twice.
#[derive(Debug)]
pub(super) struct Balancer {
    weights: Box<[u32]>,
    method: Method,
}

#[derive(Debug)]
enum Method {
    RoundRobin {
        /// Current weights of nginx's smooth weighted round robin.
        current: Box<[i64]>,
    },
    LeastConnections {
        /// Backend to look at first, so that equally loaded backends take turns.
        first: usize,
    },
    ConsistentHash(Rendezvous),
    RandomOfTwo(Box<ChaCha8Rng>),
}

impl Balancer {
    pub(super) fn new(pool: &Pool, seed: u64) -> Self {
        let weights: Box<[u32]> = pool.backends.iter().map(|backend| backend.weight).collect();
        let method = match &pool.balance {
            Balance::RoundRobin => {
                Method::RoundRobin { current: weights.iter().map(|_| 0).collect() }
            }
            Balance::LeastConnections => Method::LeastConnections { first: 0 },
            Balance::ConsistentHash { .. } => {
                Method::ConsistentHash(Rendezvous::new(&pool.backends))
            }
            Balance::RandomOfTwo => Method::RandomOfTwo(Box::new(ChaCha8Rng::seed_from_u64(seed))),
        };
        Self { weights, method }
    }

    /// True if requests with the same key go to the same backend.
    pub(super) fn is_sticky(&self) -> bool {
        matches!(self.method, Method::ConsistentHash(_))
    }

    pub(super) fn has_weight(&self, at: usize) -> bool {
        self.weights[at] > 0
    }

    /// Chooses among the available backends that have a weight. `active` counts the active requests of each, `share` is the
    /// share of its weight that each has.
    pub(super) fn next(
        &mut self,
        key: HashKey,
        active: &[u32],
        share: impl Fn(usize) -> u32,
        is_available: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let weights = &self.weights;
        let weight = |at: usize| u64::from(weights[at]) * u64::from(share(at));
        let available = (0..weights.len()).filter(|&at| weights[at] > 0 && is_available(at));
        match &mut self.method {
            Method::RoundRobin { current } => next_in_turn(weight, current, available),
            Method::LeastConnections { first } => {
                let count = weights.len();
                let from_first = |at: &usize| (at + count - *first) % count;
                let load = |at: usize| Load::new(active[at], weight(at));
                let next = available.min_by(|one, other| {
                    let by_load = load(*one).cmp(&load(*other));
                    by_load.then(from_first(one).cmp(&from_first(other)))
                })?;
                *first = (next + 1) % count;
                Some(next)
            }
            Method::ConsistentHash(rendezvous) => rendezvous.first(key, weight, available),
            Method::RandomOfTwo(random) => {
                let one = draw(weight, random, available.clone())?;
                let other = draw(weight, random, available.filter(|at| *at != one));
                let load = |at: usize| Load::new(active[at], weight(at));
                Some(other.filter(|other| load(*other) < load(one)).unwrap_or(one))
            }
        }
    }
}

/// Smooth weighted round robin as in nginx: adds each available backend's weight to its current weight, takes the
/// backend with the highest, and subtracts the sum of the weights from it. In each run of choices as long as the sum of
/// the weights, each backend is chosen as often as its weight, evenly spread.
fn next_in_turn(
    weight: impl Fn(usize) -> u64,
    current: &mut [i64],
    available: impl Iterator<Item = usize>,
) -> Option<usize> {
    let mut sum = 0;
    let mut next: Option<usize> = None;
    for at in available {
        let weight = weight(at).cast_signed();
        current[at] += weight;
        sum += weight;
        if next.is_none_or(|next| current[at] > current[next]) {
            next = Some(at);
        }
    }
    let next = next?;
    current[next] -= sum;
    Some(next)
}

/// Load of a backend with one more request.
#[derive(PartialEq, Eq)]
struct Load {
    requests: u64,
    weight: u64,
}

impl Load {
    fn new(active: u32, weight: u64) -> Self {
        Self { requests: u64::from(active) + 1, weight }
    }
}

impl Ord for Load {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // Compares requests/weight without division. With equal loads, the heavier backend is less loaded.
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

/// Draws a backend with a probability proportional to its weight.
fn draw(
    weight: impl Fn(usize) -> u64,
    random: &mut ChaCha8Rng,
    mut available: impl Iterator<Item = usize> + Clone,
) -> Option<usize> {
    let sum: u64 = available.clone().map(&weight).sum();
    if sum == 0 {
        return None;
    }
    let mut remaining = random.random_range(0..sum);
    available.find(|&at| {
        let weight = weight(at);
        let is_drawn = remaining < weight;
        remaining = remaining.saturating_sub(weight);
        is_drawn
    })
}

/// Hash of the request property that selects a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashKey(u64);

/// Weighted rendezvous hashing (Thaler and Ravishankar 1998; weights by Schindelhauer and Schomaker 2005): each backend
/// has a score for each key, and the highest wins. Removing a backend moves only its own keys, adding one moves keys
/// only to it, and shares match the weights exactly.
#[derive(Debug)]
struct Rendezvous {
    /// Of the addresses, so that the order of the backends does not matter.
    hashes: Box<[u64]>,
}

impl HashKey {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(hash(bytes))
    }

    /// A random key, for a cookie.
    pub(crate) fn drawn() -> Self {
        Self(rand::rng().random())
    }

    /// The key of a cookie: that of [`cookie`](Self::cookie), or of the value that the application has chosen.
    pub(crate) fn of_cookie(value: &[u8]) -> Self {
        let is_own =
            value.len() == 16 && value.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let own = str::from_utf8(value).ok().filter(|_| is_own);
        let own = own.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        own.map_or_else(|| Self::new(value), Self)
    }

    /// The value of a cookie with this key.
    pub(crate) fn cookie(self) -> String {
        format!("{:016x}", self.0)
    }
}

impl Rendezvous {
    fn new(backends: &[Backend]) -> Self {
        let hash = |backend: &Backend| hash(backend.address.to_string().as_bytes());
        Self { hashes: backends.iter().map(hash).collect() }
    }

    fn first(
        &self,
        key: HashKey,
        weight: impl Fn(usize) -> u64,
        available: impl Iterator<Item = usize>,
    ) -> Option<usize> {
        available
            .map(|at| (score(self.hashes[at], key, weight(at)), at))
            .max_by(|(one, _), (other, _)| one.total_cmp(other))
            .map(|(_, at)| at)
    }
}

/// `-weight / ln(u)` with u uniform between 0 and 1.
fn score(backend: u64, key: HashKey, weight: u64) -> f64 {
    let mixed = mix(backend ^ key.0);
    // 53 bits, the precision of a float; never 0 or 1.
    let uniform = ((mixed >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -(weight as f64) / uniform.ln()
}

/// FNV-1a with 64 bits, mixed, since its high bits differ little for short inputs.
fn hash(bytes: &[u8]) -> u64 {
    mix(bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    }))
}

/// Finalizer of `SplitMix64` (Steele, Lea and Flood 2014).
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
