//! The backends of a pool as one thread sees them: choice, load, health and waiting requests. No I/O; the clock is
//! a parameter.

mod balance;
mod health;
pub(crate) mod health_check;
mod queue;
#[cfg(test)]
mod tests;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;

use balance::Balancer;
pub(crate) use balance::{BackendId, HashKey};
pub(crate) use health::{HealthStatus, PoolHealth};
pub(crate) use queue::{Attempts, QueueId};
use queue::{Pending, WaitQueues};

use crate::config::Pool;

/// One thread's state of a pool. `W` identifies a request that waits for a backend.
#[derive(Debug)]
pub(crate) struct PoolState<W> {
    balancer: Balancer,
    /// Active requests per backend. Each uses one connection, so this limits connections, too.
    active: Box<[u32]>,
    active_max: u32,
    queues: WaitQueues<W>,
    health: Arc<PoolHealth>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The request goes to this backend and counts as active until [`PoolState::release`].
    Backend(BackendId),
    /// All backends are busy; the request may wait in this queue, by [`PoolState::enqueue`].
    Queue(QueueId),
    /// All backends are busy and the queue is full.
    QueueFull,
    /// No backend is left: all are down or were tried.
    NoBackend,
}

/// The queue of a pool whose requests may go to any backend.
const SHARED: QueueId = QueueId(0);

impl<W: PartialEq> PoolState<W> {
    /// `seed` determines the random draws.
    pub(crate) fn new(pool: &Pool, health: Arc<PoolHealth>, seed: u64) -> Self {
        let backends = pool.backends.len();
        let balancer = Balancer::new(pool, seed);
        let queues = if balancer.is_sticky() { backends } else { 1 };
        Self {
            active: (0..backends).map(|_| 0).collect(),
            active_max: pool.connections_max.map_or(u32::MAX, NonZeroU32::get),
            queues: WaitQueues::new(queues, pool.queue_max),
            balancer,
            health,
        }
    }

    /// Chooses a backend that is up, has room and was not tried. If no backend is up, ejected ones are used, since an
    /// attempt is better than an error. With a consistent hash, a request waits for its own backend even if others
    /// have room, and goes to the next one only if that queue is full.
    pub(crate) fn choose(&mut self, key: HashKey, attempts: &Attempts, now: Instant) -> Choice {
        [HealthStatus::Up, HealthStatus::Ejected]
            .into_iter()
            .find_map(|status| self.choose_among(status, key, attempts, now))
            .unwrap_or(Choice::NoBackend)
    }

    /// Returns `None` if no untried backend has this status.
    fn choose_among(
        &mut self,
        status: HealthStatus,
        key: HashKey,
        attempts: &Attempts,
        now: Instant,
    ) -> Option<Choice> {
        let Self { balancer, active, active_max, queues, health } = self;
        let is_candidate =
            |at: usize| health.status(at, now) == status && !attempts.contains(BackendId(at));
        let has_room = |at: usize| active[at] < *active_max;
        let share = |at: usize| health.share(at, now);
        if balancer.is_sticky() {
            let is_available =
                |at: usize| is_candidate(at) && (has_room(at) || queues.have_room(QueueId(at), 1));
            if let Some(at) = balancer.next(key, active, share, is_available) {
                if !has_room(at) {
                    return Some(Choice::Queue(QueueId(at)));
                }
                active[at] += 1;
                return Some(Choice::Backend(BackendId(at)));
            }
        } else if let Some(at) =
            balancer.next(key, active, share, |at| has_room(at) && is_candidate(at))
        {
            active[at] += 1;
            return Some(Choice::Backend(BackendId(at)));
        }
        let candidates =
            (0..active.len()).filter(|&at| balancer.has_weight(at) && is_candidate(at)).count();
        match candidates {
            0 => None,
            _ if !balancer.is_sticky() && queues.have_room(SHARED, candidates) => {
                Some(Choice::Queue(SHARED))
            }
            _ => Some(Choice::QueueFull),
        }
    }

    /// Adds a request to the queue that [`choose`](Self::choose) returned.
    pub(crate) fn enqueue(&mut self, queue: QueueId, waiter: W, key: HashKey, attempts: &Attempts) {
        let attempts = attempts.clone();
        self.queues.push(queue, Pending { waiter, key, attempts });
    }

    /// Frees the room of a finished request; [`next`](Self::next) assigns it.
    pub(crate) fn release(&mut self, backend: BackendId) {
        debug_assert!(self.active[backend.0] > 0, "each release belongs to a choice");
        self.active[backend.0] = self.active[backend.0].saturating_sub(1);
    }

    /// Removes the oldest waiting request that a backend with room may serve, and counts it as active there. If a
    /// request waits for a backend that is no longer up, it is treated as a new one.
    pub(crate) fn next(&mut self, now: Instant) -> Option<(W, BackendId)> {
        let Self { balancer, active, active_max, queues, health } = self;
        let has_room = |at: usize| active[at] < *active_max;
        if queues.are_empty() || !(0..active.len()).any(has_room) {
            return None;
        }
        let status = |at: usize| health.status(at, now);
        let share = |at: usize| health.share(at, now);
        let queue_count = if balancer.is_sticky() { active.len() } else { 1 };
        for queue in (0..queue_count).map(QueueId) {
            let is_own_up = balancer.is_sticky() && status(queue.0) == HealthStatus::Up;
            if is_own_up && !has_room(queue.0) {
                continue;
            }
            let found = queues.pop_first(queue, |Pending { key, attempts, .. }| {
                if is_own_up && !attempts.contains(BackendId(queue.0)) {
                    return Some(queue.0);
                }
                [HealthStatus::Up, HealthStatus::Ejected].into_iter().find_map(|wanted| {
                    let is_candidate =
                        |at: usize| status(at) == wanted && !attempts.contains(BackendId(at));
                    let any =
                        (0..active.len()).any(|at| balancer.has_weight(at) && is_candidate(at));
                    let is_available = |at: usize| has_room(at) && is_candidate(at);
                    any.then(|| balancer.next(*key, active, share, is_available))
                })?
            });
            if let Some((waiter, at)) = found {
                active[at] += 1;
                return Some((waiter, BackendId(at)));
            }
        }
        None
    }

    /// Removes a request from a queue. Returns true if it was there.
    pub(crate) fn dequeue(&mut self, queue: QueueId, waiter: &W) -> bool {
        self.queues.remove(queue, waiter)
    }
}
