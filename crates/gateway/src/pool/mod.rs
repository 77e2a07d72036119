//! The backends of a pool as one thread sees them: which is next, how much each has to do, and who
//! waits for one. Without I/O, and on a clock that is given.

mod balance;
mod hash;
mod health;
mod queue;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use balance::Balancer;
pub(crate) use hash::Key;
pub(crate) use health::{Checked, PoolHealth, Standing};
pub(crate) use queue::Lane;
use queue::{Queues, Waiting};

use crate::config::Pool;

/// A backend, by its place in its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BackendId(pub(crate) usize);

/// One thread's state of a pool. `W` is what waits for a backend that has no room: whatever the thread
/// knows its requests by.
#[derive(Debug)]
pub(crate) struct PoolState<W> {
    balancer: Balancer,
    /// The requests under way, per backend. Each has a connection, so that this limits connections too.
    busy: Box<[u32]>,
    busy_max: u32,
    queues: Queues<W>,
    health: Arc<PoolHealth>,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// It goes to this backend, of whose room it has taken its part until [`PoolState::release`].
    Go(BackendId),
    /// It waits there, once it is given to [`PoolState::wait`].
    Wait(Lane),
    /// Every backend is busy, and nobody else may wait.
    Full,
    /// There is no backend, or none that was not tried yet.
    Nobody,
}

/// The backends that a request was tried on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tried {
    backends: [Option<BackendId>; TRIES_MAX],
    count: usize,
}

/// The only queue of a pool where a request may go to any backend.
const SHARED: Lane = Lane(0);

/// The first try and the most retries that a pool can have.
const TRIES_MAX: usize = 11;

impl Tried {
    /// One more was tried.
    pub(crate) fn add(&mut self, backend: BackendId) {
        self.backends[self.count] = Some(backend);
        self.count += 1;
    }

    /// Whether this one was.
    #[must_use]
    pub(crate) fn contains(&self, backend: BackendId) -> bool {
        self.backends[..self.count].contains(&Some(backend))
    }

    /// How many were.
    #[must_use]
    pub(crate) fn count(&self) -> usize {
        self.count
    }
}

impl<W: PartialEq> PoolState<W> {
    /// A pool with nothing to do. What `seed` is decides over draws alone.
    #[must_use]
    pub(crate) fn new(pool: &Pool, health: Arc<PoolHealth>, seed: u64) -> Self {
        let backends = pool.backends.len();
        let balancer = Balancer::new(pool, seed);
        Self {
            busy: (0..backends).map(|_| 0).collect(),
            busy_max: pool.connections_max.map_or(u32::MAX, std::num::NonZeroU32::get),
            queues: Queues::new(if balancer.is_sticky() { backends } else { 1 }, pool.queue_max),
            balancer,
            health,
        }
    }

    /// The backend of a request: one that is well, has room, and was not tried yet. If none has room, the
    /// request waits for the first that has; if none is well, those are asked that are only left alone, as a
    /// try is better than a refusal. Where requests have to stay together, one waits for its own backend
    /// though others have room, and goes to the next only when that one's queue is full.
    pub(crate) fn choose(&mut self, key: Key, tried: &Tried, now: Instant) -> Choice {
        if let Some(choice) = self.choose_among(Standing::Well, key, tried, now) {
            return choice;
        }
        self.choose_among(Standing::Ejected, key, tried, now).unwrap_or(Choice::Nobody)
    }

    /// None: there is no backend of this standing that was not tried.
    fn choose_among(
        &mut self,
        standing: Standing,
        key: Key,
        tried: &Tried,
        now: Instant,
    ) -> Option<Choice> {
        let Self { balancer, busy, busy_max, queues, health } = self;
        let is_candidate =
            |at: usize| health.standing(at, now) == standing && !tried.contains(BackendId(at));
        let has_room = |at: usize| busy[at] < *busy_max;
        if balancer.is_sticky() {
            let takes_it =
                |at: usize| is_candidate(at) && (has_room(at) || queues.have_room(Lane(at), 1));
            if let Some(at) = balancer.next(key, busy, takes_it) {
                if !has_room(at) {
                    return Some(Choice::Wait(Lane(at)));
                }
                busy[at] += 1;
                return Some(Choice::Go(BackendId(at)));
            }
        } else if let Some(at) = balancer.next(key, busy, |at| has_room(at) && is_candidate(at)) {
            busy[at] += 1;
            return Some(Choice::Go(BackendId(at)));
        }
        let candidates =
            (0..busy.len()).filter(|&at| balancer.has_weight(at) && is_candidate(at)).count();
        match candidates {
            0 => None,
            _ if !balancer.is_sticky() && queues.have_room(SHARED, candidates) => {
                Some(Choice::Wait(SHARED))
            }
            _ => Some(Choice::Full),
        }
    }

    /// A request that was told to wait there does so from now on.
    pub(crate) fn wait(&mut self, lane: Lane, waiter: W, key: Key, tried: Tried) {
        self.queues.push(lane, Waiting { waiter, key, tried });
    }

    /// A request is done with this backend, whose room is for [`next`](Self::next).
    pub(crate) fn release(&mut self, backend: BackendId) {
        debug_assert!(self.busy[backend.0] > 0, "each release belongs to a choice");
        self.busy[backend.0] = self.busy[backend.0].saturating_sub(1);
    }

    /// Who has waited longest of those who may go to a backend that has room, whose turn it is now: its part
    /// of the room is taken. Who has waited for a backend that is well no more goes where a new request would.
    pub(crate) fn next(&mut self, now: Instant) -> Option<(W, BackendId)> {
        let Self { balancer, busy, busy_max, queues, health } = self;
        let has_room = |at: usize| busy[at] < *busy_max;
        if queues.are_empty() || !(0..busy.len()).any(has_room) {
            return None;
        }
        let stands = |at: usize| health.standing(at, now);
        let lanes = if balancer.is_sticky() { busy.len() } else { 1 };
        for lane in (0..lanes).map(Lane) {
            let is_own_well = balancer.is_sticky() && stands(lane.0) == Standing::Well;
            if is_own_well && !has_room(lane.0) {
                continue;
            }
            let found = queues.pop_first(lane, |Waiting { key, tried, .. }| {
                if is_own_well && !tried.contains(BackendId(lane.0)) {
                    return Some(lane.0);
                }
                [Standing::Well, Standing::Ejected].into_iter().find_map(|standing| {
                    let is_candidate =
                        |at: usize| stands(at) == standing && !tried.contains(BackendId(at));
                    let are_there =
                        (0..busy.len()).any(|at| balancer.has_weight(at) && is_candidate(at));
                    are_there
                        .then(|| balancer.next(*key, busy, |at| has_room(at) && is_candidate(at)))
                })?
            });
            if let Some((waiter, at)) = found {
                busy[at] += 1;
                return Some((waiter, BackendId(at)));
            }
        }
        None
    }

    /// Somebody waits no more there. Whether they did.
    pub(crate) fn leave(&mut self, lane: Lane, waiter: &W) -> bool {
        self.queues.leave(lane, waiter)
    }

    /// This backend has answered a request.
    pub(crate) fn succeeded(&self, backend: BackendId) {
        self.health.succeeded(backend.0);
    }

    /// This backend has failed a request: did not take the connection, did not answer as HTTP has it, or broke its
    /// answer off. Tells whether it is left alone from now on.
    pub(crate) fn failed(&self, backend: BackendId, now: Instant) -> bool {
        self.health.failed(backend.0, now)
    }
}
