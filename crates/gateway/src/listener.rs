//! Listening sockets: one per address and thread.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tollgate_accesslog::stderr_log;
use tollgate_net::{UnixSocket, defer_accept, listen, listen_per_thread, set_backlog};

use crate::config::{Address, Listener, Networks, Service};
use crate::counters::{Counters, HandshakeCounters};
use tollgate_tls::TlsServer;

/// A listener of the configuration, with the sockets of all threads.
#[derive(Debug)]
pub(crate) struct BoundListener {
    /// As configured.
    pub(crate) configured: Address,
    /// With the actual port.
    pub(crate) actual: Address,
    /// One per thread.
    sockets: Vec<Arc<SharedSocket>>,
    /// Removes the socket file when the gateway stops listening.
    _file: Option<UnixSocket>,
}

/// The listening socket of one thread.
#[derive(Debug)]
pub(crate) struct ThreadListener {
    /// `None` once the thread listens.
    pub(crate) socket: Option<Arc<OwnedFd>>,
    pub(crate) shared: Arc<SharedSocket>,
    /// As configured.
    pub(crate) address: Address,
    pub(crate) backlog: i32,
    pub(crate) tls: Option<TlsServer>,
    /// `None` without TLS.
    pub(crate) handshakes: Option<Arc<HandshakeCounters>>,
    pub(crate) http2: bool,
    pub(crate) proxy_protocol: Option<Networks>,
    /// `Host` of requests without one.
    pub(crate) default_host: String,
    /// `None` once a listener that gives verdicts was removed from the configuration.
    pub(crate) service: Option<Service>,
}

/// A reference to a thread's listening socket. The thread closes the socket unless a reload has taken it over: the port
/// is free only afterwards.
#[derive(Debug)]
pub(crate) struct SharedSocket(Mutex<Weak<OwnedFd>>);

impl BoundListener {
    /// Opens one socket per thread. `closing` is the listener of an earlier configuration on the same address, whose
    /// threads may not have closed their sockets yet: open ones are taken over, with their queued connections.
    pub(crate) fn open(
        listener: &Listener,
        threads: usize,
        closing: Option<&Self>,
    ) -> io::Result<(Self, Vec<ThreadListener>)> {
        let backlog = listener.backlog();
        let (actual, sockets, file) = match &listener.address {
            Address::Tcp(address) => {
                let (address, sockets) = match closing.and_then(Self::open_sockets) {
                    Some((address, open)) => (address, reopen_tcp(address, open, backlog)?),
                    None => {
                        let (address, sockets) = listen_per_thread(*address, threads, backlog)?;
                        (address, sockets.into_iter().map(Arc::new).collect())
                    }
                };
                for socket in &sockets {
                    defer_accept(socket, listener.defer_accept)?;
                }
                (Address::Tcp(address), sockets, None)
            }
            Address::Unix(path) => {
                let (sockets, file) =
                    UnixSocket::listen(path, threads, backlog, stderr_log::program())?;
                let sockets = sockets.into_iter().map(Arc::new).collect();
                (Address::Unix(path.clone()), sockets, Some(file))
            }
        };
        let default_host = match &actual {
            Address::Tcp(address) => address.to_string(),
            Address::Unix(_) => "localhost".to_owned(),
        };
        let listeners: Vec<_> = sockets
            .into_iter()
            .map(|socket| ThreadListener::new(socket, listener, default_host.clone()))
            .collect();
        let sockets = listeners.iter().map(|listener| Arc::clone(&listener.shared)).collect();
        let configured = listener.address.clone();
        Ok((Self { configured, actual, sockets, _file: file }, listeners))
    }

    /// True while a thread still occupies the port.
    pub(crate) fn holds_port(&self) -> bool {
        matches!(self.actual, Address::Tcp(_)) && self.sockets.iter().any(|socket| socket.is_open())
    }

    /// The sockets that are still open, by thread. `None` if all are closed.
    fn open_sockets(&self) -> Option<(SocketAddr, Vec<Option<Arc<OwnedFd>>>)> {
        let Address::Tcp(address) = self.actual else { return None };
        let open: Vec<_> = self.sockets.iter().map(|socket| socket.take_over()).collect();
        open.iter().any(Option::is_some).then_some((address, open))
    }
}

impl ThreadListener {
    pub(crate) fn new(socket: Arc<OwnedFd>, listener: &Listener, default_host: String) -> Self {
        Self {
            shared: Arc::new(SharedSocket(Mutex::new(Arc::downgrade(&socket)))),
            socket: Some(socket),
            address: listener.address.clone(),
            backlog: listener.backlog(),
            tls: listener.tls.clone(),
            handshakes: None,
            http2: listener.http2,
            proxy_protocol: listener.proxy_protocol.clone(),
            default_host,
            service: Some(listener.service.clone()),
        }
    }

    /// Applies the settings of the same listener in a new configuration. `socket`: unless it is closing or closed.
    pub(crate) fn reconfigure(
        &mut self,
        listener: &Listener,
        socket: Option<&Arc<OwnedFd>>,
    ) -> io::Result<()> {
        self.tls.clone_from(&listener.tls);
        self.http2 = listener.http2;
        self.proxy_protocol.clone_from(&listener.proxy_protocol);
        self.service = Some(listener.service.clone());
        self.backlog = listener.backlog();
        let Some(socket) = socket else { return Ok(()) };
        set_backlog(socket, self.backlog)?;
        match self.address {
            Address::Tcp(_) => defer_accept(socket, listener.defer_accept),
            Address::Unix(_) => Ok(()),
        }
    }

    /// Ends a service that depends on a listener of the configuration, which was removed from it.
    pub(crate) fn remove(&mut self) {
        self.service.take_if(|service| service.route().is_some());
    }

    /// Sets the counters of handshakes on this thread.
    pub(crate) fn count_handshakes(&mut self, counters: &Counters, thread: usize) {
        let counters = || counters.handshakes(&self.address, thread);
        self.handshakes = self.tls.is_some().then(counters);
    }
}

impl SharedSocket {
    fn is_open(&self) -> bool {
        self.lock().strong_count() > 0
    }

    /// Keeps the socket open. `None`: it is closed and its port is free.
    fn take_over(&self) -> Option<Arc<OwnedFd>> {
        self.lock().upgrade()
    }

    /// Closes the socket, unless it was taken over.
    pub(crate) fn close(&self, socket: Arc<OwnedFd>) {
        // Others see the socket as open until the kernel has closed it.
        let _guard = self.lock();
        drop(socket);
    }

    fn lock(&self) -> MutexGuard<'_, Weak<OwnedFd>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the open sockets and replaces the closed ones.
fn reopen_tcp(
    address: SocketAddr,
    open: Vec<Option<Arc<OwnedFd>>>,
    backlog: i32,
) -> io::Result<Vec<Arc<OwnedFd>>> {
    open.into_iter().map(|socket| socket.map_or_else(|| share_port(address, backlog), Ok)).collect()
}

fn share_port(address: SocketAddr, backlog: i32) -> io::Result<Arc<OwnedFd>> {
    Ok(Arc::new(OwnedFd::from(listen(address, true, backlog)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_over_socket_stays_open_and_closed_one_cannot_be_taken_over() {
        let socket = Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
        let shared = SharedSocket(Mutex::new(Arc::downgrade(&socket)));
        let taken_over = shared.take_over().unwrap();
        shared.close(socket);
        assert!(shared.is_open());
        shared.close(taken_over);
        assert!(!shared.is_open() && shared.take_over().is_none());
    }
}
