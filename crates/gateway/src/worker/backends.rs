//! Connections to backends: which one a request gets, and what becomes of it.

use tollgate_eventloop::Socket;

use super::{Step, Worker};
use crate::answers::Refusal;
use crate::config::Address;
use crate::exchange::Answer;
use crate::link::{Link, Received};
use crate::pool::{BackendId, Choice};
use crate::site::Waiter;
use crate::upstream::{Place, Upstream};

impl Worker {
    /// Finds a backend for a request that has none, and sends it there as far as that goes.
    pub(super) fn assign(&mut self, key: usize) -> Step {
        let client = &mut self.clients[key];
        let Some(exchange) = &mut client.exchange else { return Step::Over };
        let site = &mut self.sites[exchange.site];
        let patience = site.plan.config.pools[exchange.pool].queue_timeout;
        // A client for whom there is no room is to come back when another would have got some.
        let busy = Refusal::Busy { retry_after: patience };
        let pool = &mut site.pools[exchange.pool];
        match pool.state.choose(exchange.hash, &exchange.tried, self.now) {
            Choice::Go(backend) => self.go_to(key, backend),
            Choice::Wait(lane) => {
                let waiter = Waiter { client: key, serial: client.serial };
                pool.state.wait(lane, waiter, exchange.hash, exchange.tried);
                exchange.waits_in = Some(lane);
                client.deadline = self.now + patience;
                let (site, pool) = (exchange.site, exchange.pool);
                self.pool_tally(site, pool).queued.add(1);
                Step::Waits
            }
            Choice::Full => {
                self.refuse(key, busy);
                Step::On
            }
            Choice::Nobody => {
                let refusal = if exchange.tried.count() > 0 { Refusal::BadGateway } else { busy };
                self.refuse(key, refusal);
                Step::On
            }
        }
    }

    /// Sends a request to a backend of whose room it has taken its part, over a connection that waits, or
    /// over a new one.
    fn go_to(&mut self, key: usize, backend: BackendId) -> Step {
        let Some(exchange) = &mut self.clients[key].exchange else { return Step::Over };
        exchange.waits_in = None;
        let place = Place { site: exchange.site, pool: exchange.pool, backend: backend.0 };
        let at = match self.take_idle(key, place) {
            Some(at) => at,
            None => match self.connect(place) {
                Some(at) => at,
                None => {
                    self.release(place);
                    return self.backend_is_down(key, backend, Refusal::BadGateway);
                }
            },
        };
        let client = &mut self.clients[key];
        let Some(exchange) = &mut client.exchange else { return Step::Over };
        exchange.upstream = Some(at);
        exchange.backend = Some(backend.0);
        exchange.tries += 1;
        let upstream = &mut self.upstreams[at];
        upstream.client = Some(key);
        client.deadline = self.now
            + if upstream.is_connecting { self.timeouts.connect } else { self.timeouts.answer };
        self.backend_tally(place).requests.add(1);
        Step::On
    }

    /// The connection that has waited shortest: it is the most likely to be open still.
    fn take_idle(&mut self, key: usize, place: Place) -> Option<usize> {
        let exchange = self.clients[key].exchange.as_ref()?;
        if exchange.wants_fresh {
            return None;
        }
        let must_be_open = !exchange.asked.is_idempotent;
        loop {
            let at = self.sites[place.site].pools[place.pool].idle[place.backend].pop()?;
            // What cannot be sent twice is not sent to a connection that has ended already.
            if must_be_open && !self.is_quiet(at) {
                self.close_upstream(at);
                continue;
            }
            return Some(at);
        }
    }

    /// Whether a connection is open, and nothing has come that nobody asked for.
    fn is_quiet(&mut self, at: usize) -> bool {
        let upstream = &mut self.upstreams[at];
        !upstream.link.is_closed()
            && matches!(upstream.link.receive(&mut [0]), Ok(Received::Nothing))
    }

    fn connect(&mut self, place: Place) -> Option<usize> {
        let config = &self.sites[place.site].plan.config;
        let socket = match &config.pools[place.pool].backends[place.backend].address {
            Address::Tcp(address) => Socket::connect(*address),
            Address::Unix(path) => Socket::connect_unix(path),
        };
        // Why not is the backend's affair, or ours when descriptors have run out: another one is tried.
        let link = Link::connecting(socket.ok()?);
        let serial = self.next_serial();
        self.backend_tally(place).connects.add(1);
        Some(self.upstreams.insert(Upstream {
            link,
            serial,
            at: place,
            client: None,
            is_reused: false,
            is_connecting: true,
            head: Vec::new(),
            idle_until: self.now,
        }))
    }

    fn close_upstream(&mut self, at: usize) -> Place {
        let place = self.upstreams.remove(at).at;
        self.backend_tally(place).closed.add(1);
        place
    }

    /// The backend has failed the request: nothing of an answer has come. It is sent to another where that
    /// is safe, and refused otherwise.
    pub(super) fn backend_failed(&mut self, key: usize, refusal: Refusal) -> Step {
        let Some(exchange) = &mut self.clients[key].exchange else { return Step::Over };
        let Some(at) = exchange.upstream else { return Step::Over };
        let Upstream { at: place, is_reused, .. } = self.upstreams[at];
        let may_be_retried = exchange.may_be_retried();
        if is_reused && may_be_retried {
            // The backend had closed a connection that waited, as it may at any time. It has not failed,
            // and is asked again, over a new one, in the room that the request has already.
            exchange.upstream = None;
            exchange.wants_fresh = true;
            exchange.outgoing.rewind();
            exchange.is_cut_short = false;
            self.close_upstream(at);
            return self.go_to(key, BackendId(place.backend));
        }
        self.drop_upstream(key);
        let Some(exchange) = &mut self.clients[key].exchange else { return Step::Over };
        if !may_be_retried {
            self.note_failure(place);
            self.refuse(key, refusal);
            return Step::On;
        }
        exchange.outgoing.rewind();
        exchange.is_cut_short = false;
        self.backend_is_down(key, BackendId(place.backend), refusal)
    }

    /// A request that no backend has seen goes to the next one, if it may have another try.
    fn backend_is_down(&mut self, key: usize, backend: BackendId, refusal: Refusal) -> Step {
        let Some(exchange) = &mut self.clients[key].exchange else { return Step::Over };
        exchange.tried.add(backend);
        let (tries, site, pool) = (exchange.tried.count(), exchange.site, exchange.pool);
        self.note_failure(Place { site, pool, backend: backend.0 });
        let retries = self.sites[site].plan.config.pools[pool].retries as usize;
        if tries > retries {
            self.refuse(key, refusal);
            return Step::On;
        }
        self.pool_tally(site, pool).retries.add(1);
        self.assign(key)
    }

    /// The backend has the request, or takes no more of it, and does not answer.
    pub(super) fn backend_is_silent(&mut self, key: usize) {
        if let Some(exchange) = &self.clients[key].exchange
            && let Some(at) = exchange.upstream
        {
            let place = self.upstreams[at].at;
            self.note_failure(place);
        }
        self.refuse(key, Refusal::GatewayLate);
    }

    /// Closes the connection that carries a client's request, if there is one.
    pub(super) fn drop_upstream(&mut self, key: usize) {
        let Some(exchange) = &mut self.clients[key].exchange else { return };
        if let Some(at) = exchange.upstream.take() {
            let place = self.close_upstream(at);
            self.release(place);
        }
    }

    /// The answer was read to its end. The connection waits for the next request, if it is certain that
    /// nothing of this exchange is left on it or will come; if not, it is closed.
    pub(super) fn give_back_upstream(&mut self, key: usize, keep_alive: bool, has_surplus: bool) {
        let Some(exchange) = &mut self.clients[key].exchange else { return };
        let Some(at) = exchange.upstream.take() else { return };
        let is_over = exchange.is_sent()
            && matches!(exchange.answer, Answer::Done { .. })
            && keep_alive
            && !has_surplus
            && exchange.site == self.site
            && self.stop_by.is_none();
        let upstream = &mut self.upstreams[at];
        let place = upstream.at;
        upstream.client = None;
        upstream.is_reused = true;
        upstream.is_connecting = false;
        upstream.idle_until = self.now + self.timeouts.idle;
        let is_clean = is_over && (!upstream.link.is_readable() || self.is_quiet(at));
        let site = &mut self.sites[place.site];
        let keepalive_max = site.plan.config.pools[place.pool].keepalive_max;
        let pool = &mut site.pools[place.pool];
        pool.state.succeeded(BackendId(place.backend));
        let idle = &mut pool.idle[place.backend];
        // Only what the poller watches can be seen to end.
        if is_clean && idle.len() < keepalive_max && self.upstreams[at].link.is_watched() {
            idle.push(at);
        } else {
            self.close_upstream(at);
        }
        self.release(place);
    }

    /// A request is done with its backend: whoever may go there and has waited longest is next.
    pub(super) fn release(&mut self, place: Place) {
        let pool = &mut self.sites[place.site].pools[place.pool];
        pool.state.release(BackendId(place.backend));
        self.call_next(place.site, place.pool);
    }

    /// Gives room that there is to who has waited longest for it. Whether there was somebody.
    fn call_next(&mut self, site: usize, pool: usize) -> bool {
        // One who was next may have gone.
        loop {
            let state = &mut self.sites[site].pools[pool].state;
            let Some((waiter, backend)) = state.next(self.now) else {
                return false;
            };
            if self.is_there(waiter)
                && let Some(exchange) = &mut self.clients[waiter.client].exchange
                && exchange.waits_in.take().is_some()
            {
                exchange.is_next = Some(backend);
                // Its turn comes when the one whose room it takes is through with its own.
                self.ready.push_back(waiter);
                return true;
            }
            self.sites[site].pools[pool].state.release(backend);
        }
    }

    /// A backend that is well again may have room for those who wait.
    pub(super) fn sweep_queues(&mut self) {
        let pools: Vec<(usize, usize)> = self
            .sites
            .iter()
            .flat_map(|(site, of)| (0..of.pools.len()).map(move |pool| (site, pool)))
            .collect();
        for (site, pool) in pools {
            while self.call_next(site, pool) {}
        }
    }

    /// Who has waited for room goes to its backend now.
    pub(super) fn take_room(&mut self, key: usize) -> Step {
        let Some(exchange) = &mut self.clients[key].exchange else { return Step::Over };
        match exchange.is_next.take() {
            Some(backend) => self.go_to(key, backend),
            None => Step::Waits,
        }
    }

    /// A connection that waits has ended, or says what nobody asked for.
    pub(super) fn close_idle(&mut self, at: usize) {
        let place = self.upstreams[at].at;
        let idle = &mut self.sites[place.site].pools[place.pool].idle[place.backend];
        idle.retain(|&other| other != at);
        self.close_upstream(at);
    }

    /// Closes connections that nobody has asked for long.
    pub(super) fn sweep_idle_upstreams(&mut self) {
        let now = self.now;
        let old: Vec<usize> = self
            .upstreams
            .iter()
            .filter(|(_, upstream)| upstream.client.is_none() && upstream.idle_until <= now)
            .map(|(at, _)| at)
            .collect();
        old.into_iter().for_each(|at| self.close_idle(at));
    }
}
