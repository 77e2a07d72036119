//! What a thread writes down about its work: counts that others read, and the access log.

use tollgate_ledger::{Entry, Line, UNANSWERED, Upstream as Origin, messages};
use tollgate_wire::parse_request_head;

use super::Worker;
use crate::answers::Refusal;
use crate::counters::{BackendTally, ClientTally, PoolTally};
use crate::exchange::Exchange;
use crate::pool::BackendId;
use crate::shortage::Shortage;
use crate::upstream::Place;

impl Worker {
    /// What this thread counts of its clients.
    pub(super) fn tally(&self) -> &ClientTally {
        self.counters.clients(self.index)
    }

    /// What this thread counts of a pool.
    pub(super) fn pool_tally(&self, site: usize, pool: usize) -> &PoolTally {
        self.sites[site].plan.tallies.of(self.index, pool)
    }

    /// What this thread counts of a backend.
    pub(super) fn backend_tally(&self, place: Place) -> &BackendTally {
        &self.pool_tally(place.site, place.pool).backends[place.backend]
    }

    /// A backend has failed a request.
    pub(super) fn note_failure(&mut self, place: Place) {
        self.backend_tally(place).failures.add(1);
        let state = &self.sites[place.site].pools[place.pool].state;
        if state.failed(BackendId(place.backend), self.now) {
            let pool = &self.sites[place.site].plan.config.pools[place.pool];
            messages::tell(&format!(
                "tollgate gateway: the backend {} of the pool {} is left alone for a time, as it failed \
                 requests",
                pool.backends[place.backend].address, pool.name
            ));
        }
    }

    /// A connection to a backend could not be begun, which is not its fault.
    pub(super) fn note_shortage(&mut self, place: Place, shortage: Shortage) {
        self.tally().ran_out(shortage);
        if self.shortages_told.is_due(self.now) {
            let pool = &self.sites[place.site].plan.config.pools[place.pool];
            messages::tell(&format!(
                "tollgate gateway: no connection to the backend {} of the pool {} can be begun ({}); {}; this is \
                 said once a minute, and /metrics counts it",
                pool.backends[place.backend].address,
                pool.name,
                shortage.name(),
                shortage.advice()
            ));
        }
    }

    /// Counts what a client's connection has moved since this was asked last.
    pub(super) fn note_bytes(&self, key: usize) {
        let (received_bytes, sent_bytes) = self.clients[key].link.take_moved();
        self.tally().received_bytes.add(received_bytes);
        self.tally().sent_bytes.add(sent_bytes);
    }

    /// Hands on the lines that were collected, and counts those that nobody takes.
    pub(super) fn flush_log(&mut self) {
        if let Some(log) = &mut self.log {
            log.flush();
            let lost = log.take_lost();
            if lost > 0 {
                self.tally().lost_lines.add(lost);
            }
        }
    }

    /// What the line of a request will tell, if one is written.
    pub(super) fn entry(&self, head: &[u8]) -> Option<Box<Entry>> {
        self.log.as_ref()?;
        // It was understood before, or is the same as one that was.
        let head = parse_request_head(head).ok().flatten()?;
        Some(Box::new(Entry::new(&head)))
    }

    /// Writes the line of an exchange that is over.
    pub(super) fn write_line(&mut self, key: usize, exchange: &Exchange) {
        if self.log.is_none() {
            return;
        }
        let pool = &self.sites[exchange.site].plan.config.pools[exchange.pool];
        let backend = exchange.backend.map(|at| pool.backends[at].address.to_string());
        let origin = Origin {
            pool: &pool.name,
            backend: backend.as_deref(),
            tries: exchange.tries,
            duration: self.now.saturating_duration_since(exchange.began),
        };
        let line = Line {
            peer: &self.peer(key),
            entry: exchange.entry.as_deref(),
            status: if exchange.status == 0 { UNANSWERED } else { exchange.status },
            body_bytes: exchange.answer_bytes,
            upstream: Some(origin),
        };
        if let Some(log) = &mut self.log {
            log.add(&line);
        }
    }

    /// Writes the line of a request that led to no pool, or could not be read.
    pub(super) fn write_refused(
        &mut self,
        key: usize,
        entry: Option<&Entry>,
        refusal: Refusal,
        is_head: bool,
    ) {
        let body_bytes = if is_head { 0 } else { refusal.body_bytes() };
        self.write_own(key, entry, refusal.status(), body_bytes);
    }

    /// Writes the line of a request that the gateway has answered itself, without an exchange.
    pub(super) fn write_own(
        &mut self,
        key: usize,
        entry: Option<&Entry>,
        status: u16,
        body_bytes: u64,
    ) {
        if self.log.is_none() {
            return;
        }
        let peer = self.peer(key);
        if let Some(log) = &mut self.log {
            log.add(&Line { peer: &peer, entry, status, body_bytes, upstream: None });
        }
    }

    fn peer(&self, key: usize) -> String {
        self.clients[key].ip.map_or_else(|| "unix:".to_owned(), |ip| ip.to_string())
    }
}
