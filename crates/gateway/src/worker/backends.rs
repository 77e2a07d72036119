//! Connections to backends: which one a request gets, and what becomes of it.

use std::io;

use tollgate_eventloop::Socket;

use super::{Step, Worker};
use crate::answers::Refusal;
use crate::config::Address;
use crate::exchange::Answer;
use crate::link::{Link, Received};
use crate::pool::{BackendId, Choice};
use crate::shortage::Shortage;
use crate::site::Waiter;
use crate::upstream::{Place, Upstream};

impl Worker {
    /// Finds a backend for a request that has none, and sends it there as far as that goes.
    pub(super) fn assign(&mut self, key: usize) -> Step {
        self.assign_or(key, None)
    }

    /// The same; when there is none, `none_left` is the answer to a request that was tried before.
    fn assign_or(&mut self, key: usize, none_left: Option<Refusal>) -> Step {
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
                self.refuse(key, none_left.unwrap_or(busy));
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
                Ok(at) => at,
                Err(error) => {
                    self.release(place);
                    return match Shortage::of(&error) {
                        Some(shortage) => {
                            self.note_shortage(place, shortage);
                            // One that waits for another backend may be of use.
                            self.try_another(key, backend, Refusal::Exhausted, Refusal::Exhausted)
                        }
                        None => self.backend_is_down(key, backend, Refusal::BadGateway),
                    };
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

    fn connect(&mut self, place: Place) -> io::Result<usize> {
        let config = &self.sites[place.site].plan.config;
        let socket = match &config.pools[place.pool].backends[place.backend].address {
            Address::Tcp(address) => Socket::connect(*address),
            Address::Unix(path) => Socket::connect_unix(path),
        };
        let link = Link::connecting(socket?);
        let serial = self.next_serial();
        self.backend_tally(place).connects.add(1);
        Ok(self.upstreams.insert(Upstream {
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

    /// The backend has failed a request that it has not seen, or that may be sent twice.
    fn backend_is_down(&mut self, key: usize, backend: BackendId, refusal: Refusal) -> Step {
        let Some(exchange) = &mut self.clients[key].exchange else { return Step::Over };
        let (site, pool) = (exchange.site, exchange.pool);
        self.note_failure(Place { site, pool, backend: backend.0 });
        self.try_another(key, backend, refusal, Refusal::BadGateway)
    }

    /// A request goes to another backend than this one, if it may have another try, and is refused if not;
    /// as `none_left` when there is no other.
    fn try_another(
        &mut self,
        key: usize,
        backend: BackendId,
        refusal: Refusal,
        none_left: Refusal,
    ) -> Step {
        let Some(exchange) = &mut self.clients[key].exchange else { return Step::Over };
        exchange.tried.add(backend);
        let (tries, site, pool) = (exchange.tried.count(), exchange.site, exchange.pool);
        let retries = self.sites[site].plan.config.pools[pool].retries as usize;
        if tries > retries {
            self.refuse(key, refusal);
            return Step::On;
        }
        self.pool_tally(site, pool).retries.add(1);
        self.assign_or(key, Some(none_left))
    }

    /// The backend has the request, or takes no more of it, and does not answer.
    pub(super) fn backend_is_silent(&mut self, key: usize) {
        self.blame_backend(key);
        self.refuse(key, Refusal::GatewayLate);
    }

    /// The backend that has this client's request has failed it.
    pub(super) fn blame_backend(&mut self, key: usize) {
        if let Some(exchange) = &self.clients[key].exchange
            && let Some(at) = exchange.upstream
        {
            let place = self.upstreams[at].at;
            self.note_failure(place);
        }
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
