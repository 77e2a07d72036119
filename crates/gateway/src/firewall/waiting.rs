//! Requests that passed, and wait for the messages with their responses, which may arrive on another thread.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::inspection::Inspection;
use super::verdict::Outcome;

/// Inspections by the identifiers of their transactions.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Mutex<Store>);

/// Limits on the requests that wait, of which the oldest are given up first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitingLimits {
    pub(crate) requests: usize,
    pub(crate) bytes: usize,
}

/// Numbers of requests since the start, but for the present ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaitingUsage {
    /// Requests that wait now.
    pub(crate) requests: usize,
    /// Requests whose responses did not arrive in time.
    pub(crate) expired: u64,
    /// Requests given up because of a limit.
    pub(crate) evicted: u64,
}

#[derive(Debug, Default)]
struct Store {
    inspections: HashMap<Box<[u8]>, Kept>,
    /// The oldest first. A request that was taken remains listed until its time or the next clean-up.
    order: VecDeque<(Instant, u64, Box<[u8]>)>,
    held_bytes: usize,
    last_number: u64,
    usage: WaitingUsage,
}

#[derive(Debug)]
struct Kept {
    /// Distinguishes it from others of the same identifier.
    number: u64,
    request: WaitingRequest,
}

/// A request that passed.
#[derive(Debug)]
pub(super) struct WaitingRequest {
    pub(super) inspection: Box<Inspection>,
    /// Without a response.
    pub(super) outcome: Outcome,
}

impl Waiting {
    /// Keeps a request until its response, or the time. Returns those that are given up, to be ended.
    pub(super) fn keep(
        &self,
        id: &[u8],
        request: WaitingRequest,
        until: Instant,
        limits: WaitingLimits,
    ) -> Vec<WaitingRequest> {
        let mut store = self.lock();
        let mut ended = Vec::new();
        // A second request of the same identifier: the response is that of one of them, and which is unknown.
        if let Some(earlier) = store.take(id) {
            store.usage.evicted += 1;
            ended.push(earlier);
        }
        store.last_number += 1;
        let number = store.last_number;
        store.held_bytes += request.inspection.held_bytes();
        store.inspections.insert(id.into(), Kept { number, request });
        store.order.push_back((until, number, id.into()));
        while store.inspections.len() > limits.requests || store.held_bytes > limits.bytes {
            let Some(oldest) = store.pop_oldest() else { break };
            store.usage.evicted += 1;
            ended.push(oldest);
        }
        store.clean_up();
        ended
    }

    /// Takes the request of a response.
    pub(super) fn take(&self, id: &[u8]) -> Option<WaitingRequest> {
        self.lock().take(id)
    }

    /// Takes the requests whose time is over.
    pub(super) fn take_expired(&self, now: Instant) -> Vec<WaitingRequest> {
        let mut store = self.lock();
        let mut expired = Vec::new();
        while store.order.front().is_some_and(|(until, ..)| *until <= now) {
            let Some(oldest) = store.pop_oldest() else { break };
            store.usage.expired += 1;
            expired.push(oldest);
        }
        expired
    }

    pub(crate) fn usage(&self) -> WaitingUsage {
        let store = self.lock();
        WaitingUsage { requests: store.inspections.len(), ..store.usage }
    }

    fn lock(&self) -> MutexGuard<'_, Store> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
    fn take(&mut self, id: &[u8]) -> Option<WaitingRequest> {
        let kept = self.inspections.remove(id)?;
        self.held_bytes -= kept.request.inspection.held_bytes();
        Some(kept.request)
    }

    /// Takes the first of the list that still waits.
    fn pop_oldest(&mut self) -> Option<WaitingRequest> {
        while let Some((_, number, id)) = self.order.pop_front() {
            if self.inspections.get(&id).is_some_and(|kept| kept.number == number) {
                return self.take(&id);
            }
        }
        None
    }

    /// Bounds the list where most requests were taken.
    fn clean_up(&mut self) {
        let Self { inspections, order, .. } = self;
        if order.len() > 2 * inspections.len() + 64 {
            order.retain(|(_, number, id)| {
                inspections.get(id).is_some_and(|kept| kept.number == *number)
            });
        }
    }
}
