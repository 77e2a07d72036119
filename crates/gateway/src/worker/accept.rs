//! Listeners of a thread: accepting connections, pausing, and closing.

use std::collections::hash_map::Entry;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use tollgate_net::{Interest, Socket, Source, accept, close_backlog, set_backlog};

use super::client::Client;
use super::event_loop::Worker;
use super::exchange::Exchange;
use super::keys::{ExchangeId, ExchangeKey, Key as _, ListenerKey};
use super::link::Link;
use crate::listener::ThreadListener;
use crate::{LOG_INTERVAL, log};
use tollgate_tls::Transport;

/// Connections accepted from a listener before others have their turns.
const ACCEPTS_PER_EVENT: usize = 64;
/// Likewise for a closing listener.
const ACCEPTS_BEFORE_CLOSE: usize = 65_536;

/// Pause after a failed accept or at the limit of connections.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Idle clients listed by one search.
const RECLAIMED_PER_SEARCH: usize = 256;

/// Result of an attempt to accept a connection.
enum Accepted {
    Client(ExchangeKey),
    /// Closed at once.
    Refused,
    /// None is queued, or accepting is paused.
    Nothing,
}

impl Worker {
    /// Listens on one more socket, at once or when accepting is no longer paused.
    pub(super) fn add_listener(&mut self, mut listener: ThreadListener) -> io::Result<()> {
        let Self { shared, exchanges, .. } = self;
        listener.count_handshakes(&shared.counters, shared.thread);
        // A socket that a reload has taken over was about to be closed and queued no connections.
        if let Some(socket) = &listener.socket {
            set_backlog(socket, listener.backlog)?;
        }
        // The index of a closed listener is reused once its last client has gone.
        let is_free = |(index, listener): (usize, &ThreadListener)| {
            listener.socket.is_none()
                && exchanges.values().all(|it| it.client.listener != ListenerKey::new(index))
        };
        let listeners = &mut shared.listeners;
        if let Some(same) = listeners.iter_mut().find(|other| other.is_same_socket(&listener)) {
            *same = ThreadListener { is_watched: same.is_watched, ..listener };
        } else if let Some(index) = listeners.iter().enumerate().position(is_free) {
            listeners[index] = listener;
        } else {
            listeners.push(listener);
        }
        if self.accept_again_at.is_none() { self.watch_listeners() } else { Ok(()) }
    }

    fn watch_listeners(&mut self) -> io::Result<()> {
        for (index, listener) in self.shared.listeners.iter_mut().enumerate() {
            if let Some(socket) = &listener.socket
                && !listener.is_watched
            {
                let token = Source::Listener(index).token();
                self.poller.add(socket, token, Interest::ReadableExclusive)?;
                listener.is_watched = true;
            }
        }
        Ok(())
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
                Accepted::Client(key) => {
                    accepted += 1;
                    self.turn(key);
                }
                Accepted::Refused => {}
                Accepted::Nothing => break,
            }
        }
        self.coalescing.record(accepted, self.shared.now);
        Ok(())
    }

    fn accept_one(&mut self, listener: ListenerKey) -> io::Result<Accepted> {
        let Some(ThreadListener { socket: Some(socket), .. }) =
            self.shared.listeners.get(listener.index())
        else {
            return Ok(Accepted::Nothing);
        };
        let limits = self.shared.upstreams.current_config().config.limits;
        let socket = Arc::clone(socket);
        let is_full = self.connections() >= limits.connections;
        let replaced = if is_full { self.longest_idle_client() } else { None };
        if is_full && replaced.is_none() {
            self.pause_accepting(&format!("{} connections are open", limits.connections))?;
            return Ok(Accepted::Nothing);
        }
        let (socket, peer) = match accept(&socket) {
            Ok(Some(accepted)) => accepted,
            Ok(None) => {
                drop(socket);
                self.finish_closing(listener)?;
                return Ok(Accepted::Nothing);
            }
            // Most likely out of descriptors until connections are closed.
            Err(error) => {
                self.pause_accepting(&error.to_string())?;
                return Ok(Accepted::Nothing);
            }
        };
        let ip = peer.map(|peer| peer.ip().to_canonical());
        let accepted = self.add_client(socket, ip, listener, limits.connections_per_client);
        if let (Accepted::Client(_), Some(idle)) = (&accepted, replaced) {
            self.shared.client_counters().reclaimed.add(1);
            self.remove(idle);
        }
        Ok(accepted)
    }

    fn add_client(
        &mut self,
        socket: Socket,
        ip: Option<IpAddr>,
        listener: ListenerKey,
        max_per_client: Option<usize>,
    ) -> Accepted {
        let counters = self.shared.client_counters();
        counters.accepted.add(1);
        if let (Some(max), Some(ip)) = (max_per_client, ip) {
            let count = self.connections_per_client.entry(network(ip)).or_default();
            if *count >= max {
                counters.refused.add(1);
                counters.closed.add(1);
                return Accepted::Refused;
            }
            *count += 1;
        }
        let ThreadListener { tls, http2, .. } = self.shared.listener(listener);
        let may_be_http2 = *http2;
        let Ok(transport) = Transport::client(socket, tls.as_ref()) else {
            counters.closed.add(1);
            self.discount_client(ip);
            return Accepted::Refused;
        };
        let serial = self.shared.next_serial();
        let deadline = self.shared.now + self.shared.timeouts.idle;
        let client = Client::new(Link::Connection(transport), ip, listener, deadline);
        let client = Client { may_be_http2, ..client };
        let exchange = |key| Exchange::new(ExchangeId { key, serial }, client);
        Accepted::Client(self.exchanges.insert_with(exchange))
    }

    /// Number of client connections.
    pub(super) fn connections(&self) -> usize {
        self.exchanges.len() - self.shared.http2.client_streams()
    }

    /// Removes a connection from the count of its address.
    pub(super) fn discount_client(&mut self, ip: Option<IpAddr>) {
        let entry = ip.map(|ip| self.connections_per_client.entry(network(ip)));
        if let Some(Entry::Occupied(mut count)) = entry {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// Recounts the connections per address after the limit may have changed.
    pub(super) fn recount_clients(&mut self) {
        self.connections_per_client.clear();
        let limits = &self.shared.upstreams.current_config().config.limits;
        if limits.connections_per_client.is_some() {
            let clients = self.exchanges.values().map(|exchange| &exchange.client);
            for ip in clients.filter(|it| !it.link.is_stream()).filter_map(|it| it.ip) {
                *self.connections_per_client.entry(network(ip)).or_default() += 1;
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
        let now = self.shared.now;
        let is_recent = |at| now.duration_since(at) < LOG_INTERVAL;
        if !self.last_accept_pause.is_some_and(is_recent) {
            let thread = self.shared.thread;
            log(format_args!("thread {thread} pauses accepting connections: {reason}"));
        }
        self.last_accept_pause = Some(now);
        for listener in self.shared.listeners.iter_mut().filter(|listener| listener.is_watched) {
            if let Some(socket) = &listener.socket {
                self.poller.remove(socket)?;
            }
            listener.is_watched = false;
        }
        self.accept_again_at = Some(now + ACCEPT_PAUSE);
        Ok(())
    }

    /// Ends a pause.
    pub(super) fn resume_accepting(&mut self) -> io::Result<()> {
        self.accept_again_at = None;
        for index in 0..self.shared.listeners.len() {
            if self.shared.listeners[index].is_closing {
                self.accept(ListenerKey::new(index), ACCEPTS_BEFORE_CLOSE)?;
            }
        }
        // These may have paused accepting again.
        if self.accept_again_at.is_none() { self.watch_listeners() } else { Ok(()) }
    }

    /// Closes a listener once all its queued connections are accepted. The kernel queues no more.
    pub(super) fn close_listener(&mut self, at: ListenerKey) -> io::Result<()> {
        let listener = &mut self.shared.listeners[at.index()];
        if let Some(socket) = &listener.socket
            && !listener.is_closing
        {
            close_backlog(socket)?;
            listener.is_closing = true;
        }
        if self.accept_again_at.is_none() {
            self.accept(at, ACCEPTS_BEFORE_CLOSE)?;
        }
        Ok(())
    }

    /// Closes a closing listener after its last queued connection.
    fn finish_closing(&mut self, at: ListenerKey) -> io::Result<()> {
        let listener = &mut self.shared.listeners[at.index()];
        if !listener.is_closing {
            return Ok(());
        }
        let is_watched = std::mem::take(&mut listener.is_watched);
        let Some(socket) = listener.socket.take() else {
            return Ok(());
        };
        // Threads may share the socket, so that closing alone does not remove it from the poller.
        let removed = if is_watched { self.poller.remove(&socket) } else { Ok(()) };
        listener.shared.close(socket);
        removed
    }
}

/// Returns the address that identifies a client: an IPv4 address, or the /64 network that an IPv6 client usually owns.
fn network(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_clients_of_one_network_count_as_one() {
        let network = |text: &str| network(text.parse().unwrap());
        assert_eq!(network("2001:db8:1:2::3"), network("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(network("2001:db8:1:2::3"), network("2001:db8:1:3::3"));
        assert_eq!(network("192.0.2.1"), IpAddr::from([192, 0, 2, 1]));
    }
}
