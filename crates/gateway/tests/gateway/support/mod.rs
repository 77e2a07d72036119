//! Gateways, backends and clients over real sockets, shared by all suites.

mod backend;
mod child_process;
pub(crate) mod http2;
mod peer;

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tollgate_gateway::config::{Address, Backend as ConfigBackend, Forwarded, Trust};
use tollgate_gateway::{Config, Gateway};

pub(crate) use backend::{
    Backend, ThreadedBackend, closed_port, echo_body, echo_response, is_echo, path, serve_echo,
};
pub(crate) use child_process::{ChildProcess, child_arguments, test_path};
pub(crate) use peer::{DEADLINE, Peer, Response, connect, is_disconnect};

/// A request that the gateway forwards unchanged.
pub(crate) const GET: &str = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
/// A response that the gateway forwards unchanged.
pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\n\r\nhi";
/// [`OK`] as the last response of a connection.
pub(crate) const OK_LAST: &str =
    "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi";

pub(crate) fn any_port() -> Address {
    Address::Tcp(([127, 0, 0, 1], 0).into())
}

/// A configuration of one thread and one pool, with an admin listener, that adds nothing to forwarded messages.
pub(crate) fn config(backends: &[SocketAddr]) -> Config {
    let mut config = Config::new(any_port(), Address::Tcp(backends[0]));
    config.pools[0].backends = config_backends(backends);
    // Requests are forwarded as they arrive.
    config.pools[0].buffer_request = 0;
    config.admin = Some(([127, 0, 0, 1], 0).into());
    // A busy machine must not end requests of clients that have ended their sending side.
    config.timeouts.abandoned = DEADLINE;
    config.forwarded =
        Forwarded { via: None, x_forwarded: false, forwarded: false, trust: Trust::Nobody };
    config
}

pub(crate) fn config_backends(backends: &[SocketAddr]) -> Vec<ConfigBackend> {
    backends.iter().map(|addr| ConfigBackend::new(Address::Tcp(*addr))).collect()
}

/// A gateway that serves until dropped, which drains it.
pub(crate) struct TestGateway {
    gateway: Mutex<Option<Gateway>>,
    address: Address,
    threads: NonZeroUsize,
    /// The folder of a Unix socket.
    _folder: Option<TempDir>,
}

impl TestGateway {
    pub(crate) fn start(config: &Config) -> Self {
        Self::new(Gateway::start(config.clone()).unwrap(), config)
    }

    pub(crate) fn new(gateway: Gateway, config: &Config) -> Self {
        let address = gateway.addresses().next().unwrap().clone();
        let gateway = Mutex::new(Some(gateway));
        Self { gateway, address, threads: config.threads, _folder: None }
    }

    /// Starts a gateway that listens on a Unix socket.
    pub(crate) fn on_unix_socket(mut config: Config) -> Self {
        let folder = tempfile::tempdir().unwrap();
        config.listeners[0].address = Address::Unix(folder.path().join("gateway"));
        Self { _folder: Some(folder), ..Self::start(&config) }
    }

    /// The address of its first listener.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// The address of its first listener, which is a port.
    pub(crate) fn addr(&self) -> SocketAddr {
        tcp(&self.address)
    }

    /// The addresses of all its listeners.
    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.with(|gateway| gateway.addresses().cloned().collect())
    }

    pub(crate) fn scheme(&self, address: &Address) -> &'static str {
        self.with(|gateway| gateway.scheme(address))
    }

    /// Opens a connection to its first listener.
    pub(crate) fn client(&self) -> Peer {
        Peer::connect(&self.address)
    }

    pub(crate) fn reload(&self, config: Config) {
        self.with(|gateway| gateway.reload(config).unwrap());
    }

    pub(crate) fn update_addresses(&self) {
        self.with(|gateway| gateway.update_addresses().unwrap());
    }

    /// Starts to drain it.
    pub(crate) fn drain(&self) {
        self.with(|gateway| gateway.drain().unwrap());
    }

    /// Waits for the end of a gateway that drains.
    pub(crate) fn join(&self) {
        let gateway = self.lock().take().unwrap();
        gateway.join().unwrap();
    }

    /// Returns once the event loop of its only thread has handled everything that was sent to it before this call, or
    /// has become available to it: it accepts connections last.
    pub(crate) fn turn(&self) {
        assert_eq!(self.threads, NonZeroUsize::MIN);
        let mut probe = self.client();
        probe.finish();
        probe.expect_closed();
    }

    /// The response of the admin listener.
    pub(crate) fn admin(&self, path: &str) -> Response {
        let addr = self.with(|gateway| gateway.admin_address().unwrap());
        Peer::connect(&Address::Tcp(addr)).get(path).unwrap()
    }

    /// The value of one sample of `/metrics`, without the common prefix of their names.
    pub(crate) fn metric(&self, sample: &str) -> u64 {
        let page = self.admin("/metrics");
        let name = format!("tollgate_gateway_{sample} ");
        let value = page.text().lines().find_map(|line| line.strip_prefix(&name));
        value.unwrap_or_else(|| panic!("{sample} is not in {}", page.text())).parse().unwrap()
    }

    /// Waits until a sample of `/metrics` has this value.
    #[track_caller]
    pub(crate) fn expect_metric(&self, sample: &str, expected: u64) {
        poll(|| {
            let value = self.metric(sample);
            if value == expected { Ok(()) } else { Err(format!("{sample} is {value}")) }
        });
    }

    fn with<T>(&self, access: impl FnOnce(&mut Gateway) -> T) -> T {
        access(self.lock().as_mut().unwrap())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Gateway>> {
        self.gateway.lock().unwrap()
    }
}

pub(crate) fn tcp(address: &Address) -> SocketAddr {
    match address {
        Address::Tcp(addr) => *addr,
        Address::Unix(path) => panic!("{} is not a port", path.display()),
    }
}

/// Fills a gateway whose limit is one connection. Returns the client that it serves, whose second request is in flight,
/// the upstream connection, and two clients that the kernel has queued, which have sent `queued_request`.
pub(crate) fn fill(
    gateway: &TestGateway,
    backend: &Backend,
    queued_request: &str,
) -> (Peer, Peer, [Peer; 2]) {
    let mut client = gateway.client();
    // It is never idle, so it makes no room for others.
    client.send(GET.repeat(2));
    let mut upstream = backend.accept();
    upstream.expect(GET);
    let queued = [(); 2].map(|()| {
        let mut queued = gateway.client();
        queued.send(queued_request);
        queued
    });
    // The event loop handles events in their order, hence it has found the queued connections when it forwards this.
    upstream.send(OK);
    client.expect(OK);
    upstream.expect(GET);
    (client, upstream, queued)
}

/// Waits until new connections to a listener fail, and returns how.
pub(crate) fn expect_closed_to_new(address: &Address) -> ErrorKind {
    let attempt = {
        let address = address.clone();
        move || match &address {
            Address::Tcp(addr) => TcpStream::connect_timeout(addr, Duration::from_millis(50)),
            Address::Unix(_) => connect(&address),
        }
    };
    let (sender, failed) = channel();
    // A connection to a full queue of a Unix socket has no timeout.
    std::thread::spawn(move || {
        let error = loop {
            match attempt() {
                Ok(_) => std::thread::sleep(Duration::from_millis(2)),
                Err(error) => break error,
            }
        };
        sender.send(error.kind()).unwrap();
    });
    failed.recv_timeout(DEADLINE).expect("new connections succeed still")
}

/// Repeats `attempt` until it succeeds.
#[track_caller]
pub(crate) fn poll<T>(mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(reason) if Instant::now() >= deadline => panic!("{reason}"),
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// The memory of this process (`VmRSS` in `proc_pid_status(5)`).
pub(crate) fn resident_bytes() -> u64 {
    let mut status = String::new();
    std::fs::File::open("/proc/self/status").unwrap().read_to_string(&mut status).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    kib << 10
}
