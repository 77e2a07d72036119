//! The gateway as the tests start it.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Mutex;

use tempfile::TempDir;
use tollgate_gateway::config::{Address, Backend, Forwarded};
use tollgate_gateway::{Config, Gateway};

use crate::client::Client;

/// A gateway that serves until dropped. It says nothing of itself in what it passes on, so that the tests
/// see what it makes of a message alone.
pub(crate) struct Served {
    gateway: Mutex<Option<Gateway>>,
    config: Config,
    address: Address,
    /// Holds its socket.
    _dir: TempDir,
}

impl Served {
    /// On one thread and a Unix socket, before one backend.
    pub(crate) fn before(backend: SocketAddr) -> Self {
        Self::with(backend, |_| {})
    }

    /// The same before several, which have the same share.
    pub(crate) fn before_all(backends: &[SocketAddr]) -> Self {
        Self::with(backends[0], |config| config.pools[0].backends = same_share(backends))
    }

    /// The same before one, with another configuration than the usual one.
    pub(crate) fn with(backend: SocketAddr, change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config =
            Config::new(Address::Unix(dir.path().join("gateway")), Address::Tcp(backend));
        config.forwarded =
            Forwarded { via: None, x_forwarded: false, forwarded: false, trust_client: false };
        change(&mut config);
        let gateway = Gateway::start(config.clone()).unwrap();
        let address = gateway.addresses().next().unwrap().clone();
        Self { gateway: Mutex::new(Some(gateway)), config, address, _dir: dir }
    }

    /// On any free port, with two threads.
    pub(crate) fn on_tcp(backends: &[SocketAddr]) -> Self {
        Self::on_tcp_with(backends, |_| {})
    }

    pub(crate) fn on_tcp_with(backends: &[SocketAddr], edit: impl FnOnce(&mut Config)) -> Self {
        Self::with(backends[0], |config| {
            config.listeners[0].address = Address::Tcp("127.0.0.1:0".parse().unwrap());
            config.pools[0].backends = same_share(backends);
            config.threads = NonZeroUsize::new(2).unwrap();
            edit(config);
        })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// What its admin listener says, which the configuration asked for.
    pub(crate) fn metrics(&self) -> String {
        let address = self.gateway.lock().unwrap().as_ref().unwrap().admin_address().unwrap();
        let mut client = Client::connect(&Address::Tcp(address)).unwrap();
        client.send(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        String::from_utf8(client.read_to_close()).unwrap()
    }

    /// Goes on with these backends.
    pub(crate) fn reload(&self, backends: &[SocketAddr]) {
        self.reload_with(|config| config.pools[0].backends = same_share(backends));
    }

    /// Goes on with the first configuration, changed in this way.
    pub(crate) fn reload_with(&self, change: impl FnOnce(&mut Config)) {
        let mut config = self.config.clone();
        change(&mut config);
        self.gateway.lock().unwrap().as_mut().unwrap().reload(config).unwrap();
    }

    /// Where `/metrics` is answered.
    pub(crate) fn admin_address(&self) -> SocketAddr {
        self.gateway.lock().unwrap().as_ref().unwrap().admin_address().unwrap()
    }

    /// Takes no new connections, and waits until what was in flight is over.
    pub(crate) fn drain(&self) {
        let gateway = self.gateway.lock().unwrap().take().unwrap();
        gateway.drain().unwrap();
        gateway.join().unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let gateway =
            self.gateway.get_mut().map_or_else(|held| held.into_inner().take(), Option::take);
        if let Some(gateway) = gateway {
            gateway.drain().unwrap();
            gateway.join().unwrap();
        }
    }
}

fn same_share(backends: &[SocketAddr]) -> Vec<Backend> {
    backends.iter().map(|address| Backend::new(Address::Tcp(*address))).collect()
}
