//! Opening, keeping and closing connections to backends, and their failures.

use std::io;
use std::time::Instant;

use tollgate_tls::{Transport, certificate_rejection, describe_failure};

use super::keys::UpstreamKey;
use super::link::Link;
use super::shared::Shared;
use super::upstreams::{BackendPlace, Upstream, Work};
use crate::connect_error::{LocalResource, is_connect_error};
use crate::local_response::Reason;
use crate::log;

impl Shared {
    /// Takes an idle connection that can be used.
    pub(super) fn take_idle(
        &mut self,
        place: BackendPlace,
        must_be_open: bool,
    ) -> Option<UpstreamKey> {
        loop {
            match self.upstreams.pop_idle(place, must_be_open, self.now)? {
                (at, true) => return Some(at),
                (at, false) => {
                    self.close_upstream(at);
                }
            }
        }
    }

    pub(super) fn connect(&mut self, place: BackendPlace) -> io::Result<UpstreamKey> {
        let pool = self.upstreams[place.generation].pool(place.pool);
        let backend = &pool.backends[place.backend.0];
        let transport = Transport::connect(&backend.address, backend.tls.as_ref())?;
        let serial = self.next_serial();
        self.backend_counters(place).connects.add(1);
        let upstream = Upstream::new(Link::Connection(transport), serial, place, self.now);
        Ok(self.upstreams.connections_mut().insert(upstream))
    }

    /// Sends the header of the PROXY protocol and continues the TLS handshake of a connection. Returns true if neither is in
    /// progress.
    pub(super) fn advance_handshake(&mut self, at: UpstreamKey) -> Result<bool, Reason> {
        let upstream = &mut self.upstreams[at];
        let Link::Connection(transport) = &mut upstream.link else { return Ok(true) };
        if !transport.is_handshaking() {
            return Ok(true);
        }
        let place = upstream.place;
        match transport.handshake() {
            Ok(false) => Ok(false),
            Ok(true) if !transport.is_tls() => Ok(true),
            Ok(true) => {
                let is_resumed = transport.is_resumed();
                self.backend_counters(place).handshakes.count(is_resumed);
                Ok(true)
            }
            Err(error) if !transport.is_tls() => {
                upstream.failure =
                    Some(format!("cannot send the header of the PROXY protocol: {error}"));
                Err(Reason::ConnectFailed)
            }
            Err(error) => {
                let reason = match certificate_rejection(&error) {
                    Some(_) => Reason::TlsCertificate,
                    None if is_connect_error(&error) => Reason::ConnectFailed,
                    None => Reason::TlsHandshake,
                };
                if reason != Reason::ConnectFailed {
                    upstream.failure =
                        Some(format!("the TLS handshake failed: {}", describe_failure(&error)));
                    self.backend_counters(place).handshakes.failed.add(1);
                }
                Err(reason)
            }
        }
    }

    /// Closes a connection, or ends a stream, which is reset unless it has ended.
    pub(super) fn close_upstream(&mut self, at: UpstreamKey) -> BackendPlace {
        let Upstream { link, place, .. } = self.upstreams.connections_mut().remove(at);
        match link {
            Link::Connection(_) => self.backend_counters(place).closed.add(1),
            Link::Stream(stream) => self.release_request(&stream),
        }
        place
    }

    pub(super) fn close_idle(&mut self, at: UpstreamKey) {
        if let Work::Carries(connection) = self.upstreams[at].work {
            return self.close_backend(at, connection);
        }
        self.upstreams.forget_idle(at);
        self.close_upstream(at);
    }

    /// Closes the idle connections that `is_over` selects.
    pub(super) fn close_idle_if(&mut self, is_over: impl Fn(&Upstream) -> bool) {
        let is_idle = |upstream: &Upstream| match upstream.work {
            Work::Carries(connection) => self.http2[connection].requests == 0,
            Work::Idle => true,
            Work::Serves(_) => false,
        };
        let is_over = |upstream: &Upstream| is_idle(upstream) && is_over(upstream);
        let over = self.upstreams.connections().keys(is_over);
        over.into_iter().for_each(|at| self.close_idle(at));
    }

    /// Frees the place of a transaction on its backend for the next waiting one.
    pub(super) fn release(&mut self, place: BackendPlace) {
        self.upstreams.release(place, self.now);
    }

    pub(super) fn record_failure(&mut self, place: BackendPlace, cause: &str) {
        self.backend_counters(place).failures.add(1);
        let generation = &self.upstreams[place.generation];
        let pool = generation.pool(place.pool);
        let (backend, name) = (&pool.backends[place.backend.0].address, &pool.name);
        let health = &generation.shared.health[place.pool.0];
        let failure = health.record_failure(place.backend.0, self.now);
        if failure.is_new {
            log(format_args!("backend {backend} of pool {name} fails requests: {cause}"));
        }
        if failure.ejects {
            log(format_args!("backend {backend} of pool {name} ejected after repeated failures"));
        }
    }

    /// Records a complete response to a request that began at this time.
    pub(super) fn record_success(&self, place: BackendPlace, started_at: Instant) {
        let generation = &self.upstreams[place.generation];
        let health = &generation.shared.health[place.pool.0];
        if health.record_success(place.backend.0, started_at) {
            let pool = generation.pool(place.pool);
            let address = &pool.backends[place.backend.0].address;
            log(format_args!("backend {address} of pool {} serves requests again", pool.name));
        }
    }

    pub(super) fn record_exhaustion(&mut self, place: BackendPlace, resource: &LocalResource) {
        self.client_counters().count_exhaustion(resource);
        if self.exhaustion_log.allow(self.now) {
            let pool = self.upstreams[place.generation].pool(place.pool);
            log(format_args!(
                "cannot connect to backend {} of pool {}: {}; {} (logged once a minute, counted in /metrics)",
                pool.backends[place.backend.0].address, pool.name, resource.error, resource.advice
            ));
        }
    }
}
