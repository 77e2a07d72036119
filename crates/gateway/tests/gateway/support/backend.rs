//! Backends: one whose connections a test scripts, and one that serves each connection on a thread.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::TestGateway;
use super::peer::{DEADLINE, Peer, Response};

/// A backend whose connections the test accepts and scripts.
pub(crate) struct Backend {
    listener: TcpListener,
}

impl Backend {
    pub(crate) fn start() -> Self {
        Self::on("127.0.0.1:0".parse().unwrap())
    }

    pub(crate) fn on(addr: SocketAddr) -> Self {
        let listener = TcpListener::bind(addr).unwrap();
        // It bounds `accept` as well.
        set_socket_timeout(&listener, Timeout::Recv, Some(DEADLINE)).unwrap();
        Self { listener }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// Accepts the next connection of the gateway.
    #[track_caller]
    pub(crate) fn accept(&self) -> Peer {
        let (stream, _) = self.listener.accept().expect("a connection of the gateway");
        stream.set_nodelay(true).unwrap();
        Peer::new(stream)
    }

    /// Expects that the gateway has opened no further connection because of anything sent to it so far.
    #[track_caller]
    pub(crate) fn expect_no_connection(&self, gateway: &TestGateway) {
        gateway.turn();
        self.listener.set_nonblocking(true).unwrap();
        let error = self.listener.accept().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        self.listener.set_nonblocking(false).unwrap();
    }
}

/// An address that nothing listens on. No other test uses its IP address, so that nothing takes the port later.
pub(crate) fn closed_port() -> SocketAddr {
    static COUNT: AtomicU8 = AtomicU8::new(1);
    let ip = [127, 77, 0, COUNT.fetch_add(1, Ordering::Relaxed)];
    TcpListener::bind((IpAddr::from(ip), 0)).unwrap().local_addr().unwrap()
}

/// A backend that serves each connection on a thread of its own, until it is killed or dropped.
pub(crate) struct ThreadedBackend {
    addr: SocketAddr,
    is_over: Arc<AtomicBool>,
    connections: Arc<Mutex<Connections>>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Connections {
    accepted: usize,
    open: Vec<Connection>,
}

struct Connection {
    stream: TcpStream,
    thread: JoinHandle<()>,
}

impl ThreadedBackend {
    pub(crate) fn start(serve: impl Fn(Peer) + Send + Sync + 'static) -> Self {
        Self::on("127.0.0.1:0".parse().unwrap(), serve)
    }

    /// Listens on this address, which a killed backend may have used before.
    pub(crate) fn on(addr: SocketAddr, serve: impl Fn(Peer) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(addr).unwrap();
        let addr = listener.local_addr().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let connections = Arc::new(Mutex::new(Connections::default()));
        let serve = Arc::new(serve);
        let accepting = std::thread::spawn({
            let (is_over, connections) = (Arc::clone(&is_over), Arc::clone(&connections));
            move || {
                for stream in listener.incoming() {
                    if is_over.load(Ordering::Acquire) {
                        return;
                    }
                    let stream = stream.unwrap();
                    stream.set_nodelay(true).unwrap();
                    let kept = stream.try_clone().unwrap();
                    let (handle, serve) = (stream.try_clone().unwrap(), Arc::clone(&serve));
                    // Held until it is counted, which is before its first response.
                    let mut connections = connections.lock().unwrap();
                    let thread = std::thread::spawn(move || {
                        serve(Peer::new(stream));
                        // The other handles would keep the connection open.
                        shut_down(&handle);
                    });
                    connections.accepted += 1;
                    connections.open.retain(|connection| !connection.thread.is_finished());
                    connections.open.push(Connection { stream: kept, thread });
                }
            }
        });
        Self { addr, is_over, connections, accepting: Some(accepting) }
    }

    /// Serves [`echo_response`]s.
    pub(crate) fn echo() -> Self {
        Self::start(serve_echo)
    }

    /// Serves [`echo_response`]s that `edit` may change by path and response.
    pub(crate) fn responding(respond: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::start(move |mut peer| {
            while let Ok(head) = peer.head() {
                if peer.try_send(respond(path(&head))).is_err() {
                    return;
                }
            }
        })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The number of connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.lock().unwrap().accepted
    }

    /// Ends it like a killed process: its connections end and its port is closed.
    pub(crate) fn kill(self) {}
}

impl Drop for ThreadedBackend {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // Wakes the accepting thread, unless a connection of the gateway has.
        drop(TcpStream::connect(self.addr));
        self.accepting.take().unwrap().join().unwrap();
        for connection in self.connections.lock().unwrap().open.drain(..) {
            shut_down(&connection.stream);
            // A thread that panicked has failed the test by what the gateway did not receive.
            let _panicked = connection.thread.join();
        }
    }
}

fn shut_down(stream: &TcpStream) {
    // The peer may have closed the connection already.
    let _already_closed: io::Result<()> = stream.shutdown(Shutdown::Both);
}

pub(crate) fn serve_echo(mut peer: Peer) {
    while let Ok(head) = peer.head() {
        if peer.try_send(echo_response(path(&head))).is_err() {
            return;
        }
    }
}

/// A response that repeats the path of its request in its header and all over its body. Its length depends on the
/// path, so that a byte too many or too few shifts the next response.
pub(crate) fn echo_response(path: &str) -> Vec<u8> {
    let body = echo_body(path);
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nX-Path: {path}\r\nContent-Length: {length}\r\n\r\n{body}").into()
}

pub(crate) fn echo_body(path: &str) -> String {
    path.repeat(1 + path.len() % 7 * 20)
}

/// True if this is the [`echo_response`] of `path`.
pub(crate) fn is_echo(response: &Response, path: &str) -> bool {
    response.status == 200
        && response.header("X-Path") == Some(path)
        && response.body == echo_body(path).as_bytes()
}

/// The path that a request's header section names.
pub(crate) fn path(head: &str) -> &str {
    head.split(' ').nth(1).unwrap()
}
