//! Listeners of a thread: accepting connections, pausing, and closing.

use std::collections::hash_map::Entry;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use tollgate_net::{Interest, Socket, accept, close_backlog, set_backlog};

use super::downstream::Downstream;
use super::link::Link;
use super::{ClientId, Worker, listener_token};
use crate::listener::ThreadListener;
use crate::transport::Transport;
use crate::{LOG_INTERVAL, log};

/// Pause after a failed accept or at the limit of connections.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Idle clients listed by one search.
const RECLAIMED_PER_SEARCH: usize = 256;

/// Result of an attempt to accept a connection.
pub(super) enum Accepted {
    Client(usize),
    /// Closed at once.
    Refused,
    /// None is queued, or accepting is paused.
    Nothing,
}

impl Worker {
    /// Listens on one more socket, at once or when accepting is no longer paused.
    pub(super) fn add_listener(&mut self, mut listener: ThreadListener) -> io::Result<()> {
        listener.count_handshakes(&self.counters, self.thread);
        // A socket that a reload has taken over was about to be closed and queued no connections.
        if let Some(socket) = &listener.socket {
            set_backlog(socket, listener.backlog)?;
        }
        // The index of a closed listener is reused once its last client has gone.
        let is_free = |(index, listener): (usize, &ThreadListener)| {
            listener.socket.is_none()
                && self.clients.iter().all(|(_, client)| client.listener != index)
        };
        if let Some(same) = self.listeners.iter_mut().find(|it| it.is_same_socket(&listener)) {
            *same = ThreadListener { is_watched: same.is_watched, ..listener };
        } else if let Some(index) = self.listeners.iter().enumerate().position(is_free) {
            self.listeners[index] = listener;
        } else {
            self.listeners.push(listener);
        }
        if self.accept_again_at.is_none() { self.watch_listeners() } else { Ok(()) }
    }

    pub(super) fn watch_listeners(&mut self) -> io::Result<()> {
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            if let Some(socket) = &listener.socket
                && !listener.is_watched
            {
                self.poller.add(socket, listener_token(index), Interest::ReadableExclusive)?;
                listener.is_watched = true;
            }
        }
        Ok(())
    }

    pub(super) fn accept_one(&mut self, index: usize) -> io::Result<Accepted> {
        if self.listeners.get(index).is_none_or(|listener| listener.socket.is_none()) {
            return Ok(Accepted::Nothing);
        }
        let limits = self.generations[self.current].shared.config.limits;
        let is_full = self.connections() >= limits.connections;
        let replaced = if is_full { self.longest_idle_client() } else { None };
        if is_full && replaced.is_none() {
            self.pause_accepting(&format!("{} connections are open", limits.connections))?;
            return Ok(Accepted::Nothing);
        }
        let Some(listener) = self.listeners.get(index) else { return Ok(Accepted::Nothing) };
        let Some(socket) = &listener.socket else { return Ok(Accepted::Nothing) };
        let (socket, peer) = match accept(socket) {
            Ok(Some(accepted)) => accepted,
            Ok(None) => {
                self.finish_closing(index)?;
                return Ok(Accepted::Nothing);
            }
            // Most likely out of descriptors until connections are closed.
            Err(error) => {
                self.pause_accepting(&error.to_string())?;
                return Ok(Accepted::Nothing);
            }
        };
        let ip = peer.map(|peer| peer.ip().to_canonical());
        let accepted = self.add_client(socket, ip, index, limits.connections_per_client);
        if let (Accepted::Client(_), Some(idle)) = (&accepted, replaced) {
            self.client_counters().reclaimed.add(1);
            self.remove_client(idle);
        }
        Ok(accepted)
    }

    fn add_client(
        &mut self,
        socket: Socket,
        ip: Option<IpAddr>,
        listener: usize,
        max_per_client: Option<usize>,
    ) -> Accepted {
        self.client_counters().accepted.add(1);
        if let (Some(max), Some(ip)) = (max_per_client, ip) {
            let count = self.connections_per_client.entry(network(ip)).or_default();
            if *count >= max {
                self.client_counters().refused.add(1);
                self.client_counters().closed.add(1);
                return Accepted::Refused;
            }
            *count += 1;
        }
        let Ok(transport) = Transport::client(socket, self.listeners[listener].tls.as_ref()) else {
            self.client_counters().closed.add(1);
            self.discount_client(ip);
            return Accepted::Refused;
        };
        let serial = self.next_serial();
        let deadline = self.now + self.timeouts.idle;
        let link = Link::Connection(transport);
        let mut client = Downstream::new(link, serial, ip, listener, deadline);
        client.may_be_http2 = self.listeners[listener].http2;
        Accepted::Client(self.clients.insert(client))
    }

    /// Number of client connections.
    pub(super) fn connections(&self) -> usize {
        self.clients.len() - self.http2.client_streams()
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
        let limits = &self.generations[self.current].shared.config.limits;
        if limits.connections_per_client.is_some() {
            let connections = self.clients.iter().filter(|(_, client)| !client.link.is_stream());
            for ip in connections.filter_map(|(_, client)| client.ip) {
                *self.connections_per_client.entry(network(ip)).or_default() += 1;
            }
        }
    }

    /// Finds the client that has been idle for longest. Looks through all clients once per [`RECLAIMED_PER_SEARCH`].
    fn longest_idle_client(&mut self) -> Option<usize> {
        for search in [false, true] {
            if search {
                self.list_idle_clients();
            }
            while let Some(&(deadline, id)) = self.reclaimable.front() {
                if self.is_connected(id)
                    && let client = &self.clients[id.key]
                    && client.is_idle(&self.http2)
                    && client.deadline == deadline
                {
                    return Some(id.key);
                }
                self.reclaimable.pop_front();
            }
        }
        None
    }

    fn list_idle_clients(&mut self) {
        let idle = self.clients.iter().filter(|(_, client)| client.is_idle(&self.http2));
        let mut idle: Vec<_> = idle
            .map(|(key, client)| (client.deadline, ClientId { key, serial: client.serial }))
            .collect();
        // All have the same timeout.
        idle.sort_unstable_by_key(|(deadline, _)| *deadline);
        idle.truncate(RECLAIMED_PER_SEARCH);
        self.reclaimable = idle.into();
    }

    fn pause_accepting(&mut self, reason: &str) -> io::Result<()> {
        let is_recent = |at| self.now.duration_since(at) < LOG_INTERVAL;
        if !self.last_accept_pause.is_some_and(is_recent) {
            log(format_args!("thread {} pauses accepting connections: {reason}", self.thread));
        }
        self.last_accept_pause = Some(self.now);
        for listener in self.listeners.iter_mut().filter(|it| it.is_watched) {
            if let Some(socket) = &listener.socket {
                self.poller.remove(socket)?;
            }
            listener.is_watched = false;
        }
        self.accept_again_at = Some(self.now + ACCEPT_PAUSE);
        Ok(())
    }

    /// Stops the kernel from queueing connections on a listener that is to be closed.
    pub(super) fn start_closing(&mut self, index: usize) -> io::Result<()> {
        let listener = &mut self.listeners[index];
        if let Some(socket) = &listener.socket
            && !listener.is_closing
        {
            close_backlog(socket)?;
            listener.is_closing = true;
        }
        Ok(())
    }

    /// Closes a closing listener once its last queued connection is accepted.
    fn finish_closing(&mut self, index: usize) -> io::Result<()> {
        let listener = &mut self.listeners[index];
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
