//! Sending the frames of HTTP/2 connections after all events, and turns of streams that wait for room.

use super::connections::Carrier;
use crate::local_response::Reason;
use crate::worker::event_loop::Worker;
use crate::worker::keys::{ExchangeKey, Http2Key, Key as _, UpstreamKey};
use crate::worker::link::Link;
use crate::worker::upstreams::{Upstream, upstream_token};

/// Turns of streams that wait for room, between two looks at the sockets.
const FLUSH_ROUNDS: usize = 4;

impl Worker {
    /// Sends the frames of all connections, and gives streams that wait for room their turns.
    pub(in crate::worker) fn flush_http2(&mut self) {
        for _ in 0..FLUSH_ROUNDS {
            for _ in 0..self.shared.http2.unflushed() {
                let Some(connection) = self.shared.http2.next_unflushed() else { return };
                match self.shared.http2[connection].carrier {
                    Carrier::Client(key) => self.flush_client(key, connection),
                    Carrier::Upstream(at) => self.flush_backend(at, connection),
                    Carrier::Closed => {}
                }
            }
        }
    }

    fn flush_client(&mut self, key: ExchangeKey, connection: Http2Key) {
        let http2 = &mut self.shared.http2;
        let Some(transport) = self.exchanges[key].client.transport() else { return };
        let Ok(is_flushed) = http2.flush(connection, transport) else {
            return self.remove(key);
        };
        http2.end_turn(connection);
        if is_flushed && http2.is_idle(connection) && http2[connection].framing.is_spent() {
            self.end_http2(key, connection);
            return self.turn(key);
        }
        self.resume_waiting(connection);
        let http2 = &mut self.shared.http2;
        if !http2.is_congested(connection) && std::mem::take(&mut http2[connection].is_paused) {
            self.shared.ready.push_back(self.exchanges[key].id);
        }
        if !is_flushed {
            self.watch(key);
        }
    }

    /// Sends the frames of a connection, gives streams that wait for room their turns, and continues to read.
    fn flush_backend(&mut self, at: UpstreamKey, connection: Http2Key) {
        let upstream = &mut self.shared.upstreams[at];
        if upstream.transport().is_some_and(|transport| !transport.is_watched())
            && !self.watch_backend(at, connection)
        {
            return;
        }
        match self.shared.advance_http2_handshake(at, connection) {
            Some(true) => {}
            Some(false) => {
                self.watch_backend(at, connection);
                return;
            }
            None => return,
        }
        let Upstream { serial, link: Link::Connection(transport), .. } =
            &mut self.shared.upstreams[at]
        else {
            return;
        };
        let serial = *serial;
        match self.shared.http2.flush(connection, transport) {
            Ok(true) => {}
            Ok(false) => {
                self.watch_backend(at, connection);
            }
            Err(_) => {
                // Reading shows why, after what the backend has sent before, unless it has ended only its receiving side.
                transport.assume_readable();
                self.shared.read_backend(at, connection);
                let is_open =
                    |other: &Upstream| other.serial == serial && !other.link.is_readable();
                if self.shared.upstreams.connections().get(at).is_some_and(is_open) {
                    let reason = Reason::BackendClosed;
                    self.shared.fail_backend(at, connection, reason, "cannot send");
                }
                return;
            }
        }
        self.resume_waiting(connection);
        let is_readable = |other: &Upstream| other.serial == serial && other.link.is_readable();
        if self.shared.upstreams.connections().get(at).is_some_and(is_readable) {
            self.shared.read_backend(at, connection);
        }
    }

    /// Registers a connection to a backend with the poller, also for room in its socket. Returns false if it failed.
    fn watch_backend(&mut self, at: UpstreamKey, connection: Http2Key) -> bool {
        let upstream = &mut self.shared.upstreams[at];
        let token = upstream_token(at, upstream.serial);
        if let Some(transport) = upstream.transport()
            && let Err(error) = transport.watch(&self.poller, token, true)
        {
            let cause = format!("cannot watch a connection: {error}");
            self.shared.fail_backend(at, connection, Reason::Exhausted, &cause);
            return false;
        }
        true
    }

    /// Gives streams that wait for room their turns, as long as there is room. The turn of one may close a connection to
    /// a backend.
    fn resume_waiting(&mut self, connection: Http2Key) {
        // An event announces room in the socket. Until then, turns would send nothing and follow each other without a pause.
        if self.shared.http2.is_blocked(connection) {
            return;
        }
        for _ in 0..self.shared.http2.waiting(connection) {
            let Some(token) = self.shared.http2.next_waiting(connection) else { return };
            let (link, client) = match self.shared.http2[connection].carrier {
                Carrier::Client(_) => {
                    let key = ExchangeKey::new(token);
                    (&mut self.exchanges[key].client.link, Some(key))
                }
                Carrier::Upstream(_) | Carrier::Closed => {
                    let upstream = &mut self.shared.upstreams[UpstreamKey::new(token)];
                    let client = upstream.client().map(|client| client.key);
                    (&mut upstream.link, client)
                }
            };
            if let Link::Stream(stream) = link {
                (stream.is_waiting, stream.turn_bytes) = (false, 0);
            }
            if let Some(key) = client {
                self.turn(key);
            }
        }
    }

    /// Sends the frames of a stream's connection if there are many.
    pub(in crate::worker) fn flush_if_full(&mut self, key: ExchangeKey) {
        let Some(exchange) = self.exchanges.get(key) else { return };
        let Link::Stream(stream) = &exchange.client.link else { return };
        let connection = stream.connection;
        if let Carrier::Client(key) = self.shared.http2[connection].carrier
            && let Some(transport) = self.exchanges[key].client.transport()
        {
            // The flush after all events handles an error.
            self.shared.http2.flush_early(connection, transport).ok();
        }
    }
}
