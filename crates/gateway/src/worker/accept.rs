//! Listeners of a thread: accepting connections, pausing, and closing.

use std::io;
use std::net::SocketAddr;

use tollgate_net::{self as net, Socket, set_backlog};

use super::client::Client;
use super::event_loop::Worker;
use super::exchange::{Exchange, Stage};
use super::keys::{ExchangeId, ExchangeKey, Key as _, ListenerKey};
use super::link::Link;
use super::spoe::Agent;
use crate::config::Service;
use crate::limiter::network;
use crate::listener::ThreadListener;
use crate::log;
use tollgate_tls::Transport;

/// Connections accepted from a listener before others have their turns.
const ACCEPTS_PER_EVENT: usize = 64;
/// Likewise for a closing listener.
const ACCEPTS_BEFORE_CLOSE: usize = 65_536;

/// Idle clients listed by one search.
const RECLAIMED_PER_SEARCH: usize = 256;

/// Result of an attempt to accept a connection.
enum AcceptedClient {
    Client(ExchangeKey),
    /// Closed at once.
    Refused,
    /// None is queued, or accepting is paused.
    Nothing,
}

impl Worker {
    /// Listens on one more socket, at once or when accepting is no longer paused.
    pub(super) fn add_listener(&mut self, mut listener: ThreadListener) -> io::Result<()> {
        let Self { shared, exchanges, acceptor, poller, .. } = self;
        listener.count_handshakes(&shared.counters, shared.thread);
        let Some(socket) = listener.socket.take() else { return Ok(()) };
        // A socket that a reload has taken over was about to be closed and queued no connections.
        set_backlog(&socket, listener.backlog)?;
        let listeners = &mut shared.listeners;
        if let Some(index) = acceptor.find(&socket) {
            acceptor.reopen(index);
            listeners[index] = listener;
            return Ok(());
        }
        // The index of a closed listener is reused once its last client has gone.
        let is_free = |index: &usize| {
            let key = ListenerKey::new(*index);
            !acceptor.is_open(*index)
                && exchanges.values().all(|exchange| exchange.client.listener != key)
        };
        let index = (0..listeners.len()).find(is_free).unwrap_or(listeners.len());
        if index < listeners.len() {
            listeners[index] = listener;
        } else {
            listeners.push(listener);
        }
        acceptor.listen(index, socket, poller)
    }

    /// Accepts connections of a listener that has some.
    pub(super) fn accept_ready(&mut self, listener: ListenerKey) -> io::Result<()> {
        self.accept(listener, ACCEPTS_PER_EVENT)
    }

    /// Accepts connections and gives each its first turn at once: most have sent their request.
    fn accept(&mut self, listener: ListenerKey, max: usize) -> io::Result<()> {
        let mut accepted = 0;
        for _ in 0..max {
            match self.accept_one(listener)? {
                AcceptedClient::Client(key) => {
                    accepted += 1;
                    self.turn(key);
                }
                AcceptedClient::Refused => {}
                AcceptedClient::Nothing => break,
            }
        }
        self.coalescing.record(accepted, self.shared.now);
        Ok(())
    }

    fn accept_one(&mut self, listener: ListenerKey) -> io::Result<AcceptedClient> {
        if self.acceptor.is_paused() || !self.acceptor.is_open(listener.index()) {
            return Ok(AcceptedClient::Nothing);
        }
        let limits = self.shared.upstreams.current_config().config.limits;
        let is_full = self.connections() >= limits.connections;
        let replaced = if is_full { self.longest_idle_client() } else { None };
        if is_full && replaced.is_none() {
            self.pause_accepting(&format!("{} connections are open", limits.connections))?;
            return Ok(AcceptedClient::Nothing);
        }
        let (socket, peer) = match self.acceptor.accept(listener.index(), &self.poller)? {
            net::Accepted::Connection(socket, peer) => (socket, peer),
            net::Accepted::Nothing => return Ok(AcceptedClient::Nothing),
            net::Accepted::Closed(socket) => {
                self.shared.listener(listener).shared.close(socket);
                return Ok(AcceptedClient::Nothing);
            }
            net::Accepted::Exhausted(error) => {
                self.pause_accepting(&error.to_string())?;
                return Ok(AcceptedClient::Nothing);
            }
        };
        let peer = peer.map(|peer| SocketAddr::new(peer.ip().to_canonical(), peer.port()));
        let accepted = self.add_client(socket, peer, listener);
        if let (AcceptedClient::Client(_), Some(idle)) = (&accepted, replaced) {
            self.shared.client_counters().reclaimed.add(1);
            self.remove(idle);
        }
        Ok(accepted)
    }

    fn add_client(
        &mut self,
        socket: Socket,
        peer: Option<SocketAddr>,
        listener: ListenerKey,
    ) -> AcceptedClient {
        let shared = &mut self.shared;
        shared.client_counters().accepted.add(1);
        let proxies = &shared.listener(listener).proxy_protocol;
        let is_proxied = proxies.is_some();
        let is_trusted = proxies
            .as_ref()
            .is_none_or(|proxies| peer.is_none_or(|peer| proxies.contain(peer.ip())));
        if !is_trusted {
            shared.refuse_proxy(listener, peer, "it is not in `proxy_protocol` of the listener");
        }
        // The client of a proxied connection is not known yet.
        if !is_trusted || !is_proxied && !shared.admit(peer) {
            shared.client_counters().closed.add(1);
            return AcceptedClient::Refused;
        }
        let peer_of_client = peer.filter(|_| !is_proxied);
        let ThreadListener { tls, http2, .. } = shared.listener(listener);
        let may_be_http2 = *http2;
        let Ok(transport) = Transport::client(socket, tls.as_ref()) else {
            shared.client_counters().closed.add(1);
            shared.discount(peer_of_client);
            return AcceptedClient::Refused;
        };
        let serial = shared.next_serial();
        let wait = if is_proxied { shared.timeouts.header } else { shared.timeouts.idle };
        let deadline = shared.now + wait;
        let client = Client::new(Link::Connection(transport), peer_of_client, listener, deadline);
        let client = Client { may_be_http2, ..client };
        let stage = match &shared.listener(listener).service {
            _ if is_proxied => Stage::ProxyHeader { proxy: peer },
            Some(Service::Spoe(_)) => {
                shared.client_counters().spoe_connections.add(1);
                Stage::Spoe(Box::new(Agent::new(shared.now + shared.timeouts.header)))
            }
            _ => Stage::ReadHead,
        };
        let exchange = |key| Exchange::new(ExchangeId { key, serial }, client, stage);
        AcceptedClient::Client(self.exchanges.insert_with(exchange))
    }

    /// Number of client connections.
    pub(super) fn connections(&self) -> usize {
        self.exchanges.len() - self.shared.http2.client_streams()
    }

    /// Recounts the connections per address after the limit may have changed.
    pub(super) fn recount_clients(&mut self) {
        let Self { shared, exchanges, .. } = self;
        shared.connections_per_client.clear();
        let limits = &shared.upstreams.current_config().config.limits;
        if limits.connections_per_client.is_some() {
            let clients = exchanges.values().map(|exchange| &exchange.client);
            let connections = clients.filter(|client| !client.link.is_stream());
            for peer in connections.filter_map(|client| client.peer) {
                shared.connections_per_client.enter(network(peer.ip()), usize::MAX);
            }
        }
    }

    /// Finds the client that has been idle for longest. Looks through all clients once per [`RECLAIMED_PER_SEARCH`].
    fn longest_idle_client(&mut self) -> Option<ExchangeKey> {
        for search in [false, true] {
            if search {
                self.list_idle_clients();
            }
            while let Some(&(deadline, id)) = self.reclaimable.front() {
                if self.is_connected(id)
                    && let exchange = &self.exchanges[id.key]
                    && exchange.is_idle(&self.shared)
                    && exchange.client.deadline == deadline
                {
                    return Some(id.key);
                }
                self.reclaimable.pop_front();
            }
        }
        None
    }

    fn list_idle_clients(&mut self) {
        let idle = self.exchanges.values().filter(|exchange| exchange.is_idle(&self.shared));
        let mut idle: Vec<_> =
            idle.map(|exchange| (exchange.client.deadline, exchange.id)).collect();
        // All have the same timeout.
        idle.sort_unstable_by_key(|(deadline, _)| *deadline);
        idle.truncate(RECLAIMED_PER_SEARCH);
        self.reclaimable = idle.into();
    }

    fn pause_accepting(&mut self, reason: &str) -> io::Result<()> {
        if self.acceptor.pause(self.shared.now, &self.poller)? {
            let thread = self.shared.thread;
            log(format_args!("thread {thread} pauses accepting connections: {reason}"));
        }
        Ok(())
    }

    /// Ends a pause that is over.
    pub(super) fn resume_accepting(&mut self) -> io::Result<()> {
        if self.acceptor.resume(self.shared.now, &self.poller)? {
            let is_closing = |index: &usize| self.acceptor.socket(*index).is_none();
            let closing: Vec<usize> = self.acceptor.open().filter(is_closing).collect();
            for index in closing {
                self.accept(ListenerKey::new(index), ACCEPTS_BEFORE_CLOSE)?;
            }
        }
        Ok(())
    }

    /// Closes a listener once all its queued connections are accepted. The kernel queues no more.
    pub(super) fn close_listener(&mut self, at: ListenerKey) -> io::Result<()> {
        self.acceptor.close(at.index())?;
        self.accept(at, ACCEPTS_BEFORE_CLOSE)
    }
}
