//! A thread driven by hand, with real clients and a backend that the test plays.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use tollgate_net::{Events, Socket};

use super::event_loop::SWEEP_MAX;
use super::link::Link;
use super::transaction::Transaction;
use super::*;
use crate::command::Command;
use crate::config::{Address, Config, Listener, Protocol};
use crate::generation::Logs;
use crate::transport::Transport;

/// Deadline that turns a hang into a failure.
const PATIENCE: Duration = Duration::from_secs(10);

struct Scene {
    worker: Worker,
    events: Events,
    backend: TcpListener,
    address: SocketAddr,
}

fn generation(config: Config, counters: &Counters) -> ConfigGeneration {
    let now = Instant::now();
    ConfigGeneration::new(config, Logs::default(), &counters.firewall, None, now)
}

impl Scene {
    fn new(change: impl FnOnce(&mut Config)) -> Self {
        let backend = TcpListener::bind("127.0.0.1:0").unwrap();
        let (listener, address) = listener();
        let backend_address = Address::Tcp(backend.local_addr().unwrap());
        let mut config = Config::new(listener.address.clone(), backend_address);
        change(&mut config);
        let counters = Arc::new(Counters::new(1));
        let generation = Arc::new(generation(config, &counters));
        counters.add_generation(Arc::clone(&generation.counters));
        let commands = Arc::new(CommandQueue::new().unwrap());
        let worker = Worker::new(vec![listener], generation, counters, commands, 0, None).unwrap();
        Self { worker, events: Events::with_capacity(64), backend, address }
    }

    /// Reloads with the listener on another address.
    fn move_listener(&mut self) -> Address {
        let (listener, address) = listener();
        let address = Address::Tcp(address);
        let listeners = vec![Listener::new(address.clone())];
        self.reload(vec![listener], |config| config.listeners = listeners);
        address
    }

    fn reload(&mut self, added: Vec<ThreadListener>, change: impl FnOnce(&mut Config)) {
        let mut config = self.worker.generations[self.worker.current].shared.config.clone();
        change(&mut config);
        let generation = Arc::new(generation(config, &self.worker.counters));
        self.worker.commands.send(Command::Reload { generation, added }).unwrap();
        self.worker.run_once(&mut self.events, Some(Duration::ZERO)).unwrap();
    }

    fn client(&self) -> TcpStream {
        let client = TcpStream::connect(self.address).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
    }

    #[track_caller]
    fn run_until(&mut self, condition: impl Fn(&Worker) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !condition(&self.worker) {
            assert!(Instant::now() < until, "the condition did not become true");
            let wait = Some(Duration::from_millis(5));
            self.worker.run_once(&mut self.events, wait).unwrap();
        }
    }

    /// A client that has received nothing of its complete response, since its socket buffers were full before. The end
    /// of the response is that of the connection.
    fn client_with_full_buffers(&mut self) -> (usize, TcpStream) {
        let mut client = self.client();
        client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let is_sent =
            |client: &Downstream| client.transaction.as_ref().is_some_and(Transaction::is_sent);
        self.run_until(|worker| worker.clients.iter().any(|(_, client)| is_sent(client)));
        let (key, _) = self.worker.clients.iter().next().unwrap();
        let mut full_sends = 0;
        while full_sends < 2 {
            let sent =
                self.worker.clients[key].transport().unwrap().send(&[b'f'; 1 << 16]).unwrap();
            full_sends = if sent == 0 { full_sends + 1 } else { 0 };
            std::thread::sleep(Duration::from_millis(u64::from(sent == 0)));
        }
        let (mut peer, _) = self.backend.accept().unwrap();
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        peer.write_all(&[&head[..], b"2\r\nhi\r\n0\r\n\r\n"].concat()).unwrap();
        self.run_until(|worker| worker.clients[key].transaction.is_none());
        assert!(matches!(self.worker.clients[key].stage, Stage::Finish { .. }));
        assert!(!self.worker.clients[key].unsent.is_empty());
        (key, client)
    }
}

/// A listener on a free port.
fn listener() -> (ThreadListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let socket = Arc::new(OwnedFd::from(listener));
    let configured = Listener::new(Address::Tcp(address));
    (ThreadListener::new(socket, &configured, address.to_string()), address)
}

#[track_caller]
fn expect_reset(mut client: TcpStream) {
    let error = client.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn unsent_end_of_response_is_reset_at_deadline() {
    let mut scene = Scene::new(|_| {});
    let (key, client) = scene.client_with_full_buffers();
    scene.worker.clients[key].deadline = scene.worker.now;
    scene.worker.sweep();
    assert!(scene.worker.clients.is_empty());
    expect_reset(client);
}

#[test]
fn unsent_end_of_response_is_reset_at_end_of_drain() {
    let mut scene = Scene::new(|_| {});
    let (_, client) = scene.client_with_full_buffers();
    scene.worker.stop_by = Some(scene.worker.now);
    scene.worker.run().unwrap();
    expect_reset(client);
}

#[test]
fn unsent_end_of_response_has_body_timeout() {
    let mut scene = Scene::new(|config| {
        config.timeouts.body = Duration::from_secs(20);
        config.timeouts.idle = Duration::from_secs(600);
    });
    let (key, _client) = scene.client_with_full_buffers();
    let worker = &scene.worker;
    assert!(worker.clients[key].deadline <= worker.now + worker.timeouts.body);
}

#[test]
fn connection_that_cannot_be_watched_is_closed() {
    let mut scene = Scene::new(|_| {});
    // epoll rejects regular files.
    let socket = Socket::from(OwnedFd::from(tempfile::tempfile().unwrap()));
    let worker = &mut scene.worker;
    let link = Link::Connection(Transport::new(socket));
    let client = Downstream::new(link, 1, None, 0, worker.now);
    let key = worker.clients.insert(client);
    worker.clients[key].stage = Stage::Finish { lingers: false, ends_at_close: false };
    worker.watch(key);
    assert!(worker.clients.is_empty());
    let _client = scene.client();
    scene.run_until(|worker| worker.clients.len() == 1);
}

#[test]
fn sweep_period_follows_shortest_timeout() {
    let scene = Scene::new(|config| config.pools[0].queue_timeout = Duration::from_millis(100));
    assert_eq!(scene.worker.sweep_period(), Duration::from_millis(25));
    let longer = Scene::new(|config| config.timeouts.abandoned = 4 * SWEEP_MAX);
    assert_eq!(longer.worker.sweep_period(), SWEEP_MAX);
    assert_eq!(Scene::new(|_| {}).worker.sweep_period(), Timeouts::default().abandoned / 4);
}

#[test]
fn closed_client_makes_room_at_once() {
    let mut scene = Scene::new(|config| config.limits.connections = 1);
    let mut first = scene.client();
    // An idle client would make room itself.
    first.write_all(b"GET").unwrap();
    scene.run_until(|worker| worker.accept_again_at.is_some());
    let second = scene.client();
    scene.worker.accept_again_at = Some(scene.worker.now + 10 * PATIENCE);
    let serial = scene.worker.clients.iter().next().unwrap().1.serial;
    drop(first);
    scene.run_until(|worker| worker.clients.iter().any(|(_, client)| client.serial != serial));
    drop(second);
}

#[test]
fn index_of_closed_listener_is_reused_after_its_last_client() {
    let mut scene = Scene::new(|_| {});
    let client = scene.client();
    scene.run_until(|worker| worker.clients.len() == 1);
    let first = scene.worker.listeners[0].address.clone();
    for _ in 0..5 {
        scene.move_listener();
    }
    // The client's, the current one, and the one before it.
    assert_eq!(scene.worker.listeners.len(), 3);
    assert_eq!(scene.worker.listeners[0].address, first);
    drop(client);
    scene.run_until(|worker| worker.clients.is_empty());
    let last = scene.move_listener();
    assert_eq!(scene.worker.listeners[0].address, last);
    assert_eq!(scene.worker.listeners.len(), 3);
}

#[test]
fn lingering_is_limited_in_silence_and_in_total() {
    let mut scene = Scene::new(|_| {});
    let mut client = scene.client();
    client.write_all(b"nonsense\r\n\r\n").unwrap();
    let lingers = |client: &Downstream| matches!(client.stage, Stage::Linger { .. });
    scene.run_until(|worker| worker.clients.iter().any(|(_, client)| lingers(client)));
    let (key, _) = scene.worker.clients.iter().next().unwrap();
    // Each piece extends the deadline.
    scene.worker.clients[key].deadline = scene.worker.now;
    client.write_all(b"more").unwrap();
    scene.run_until(|worker| worker.clients[key].deadline > worker.now);
    assert!(scene.worker.clients[key].deadline <= scene.worker.now + Duration::from_secs(5));
    // The total is limited.
    let until = scene.worker.now + Duration::from_secs(1);
    scene.worker.clients[key].stage = Stage::Linger { until };
    client.write_all(b"too much").unwrap();
    scene.run_until(|worker| worker.clients[key].deadline == until);
}

#[test]
fn reload_applies_to_requests_of_the_same_turn() {
    let mut scene = Scene::new(|_| {});
    let mut client = scene.client();
    scene.run_until(|worker| !worker.clients.is_empty());
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    scene.reload(Vec::new(), |_| {});
    let (_, client) = scene.worker.clients.iter().next().unwrap();
    assert_eq!(client.transaction.as_ref().unwrap().generation, scene.worker.current);
}

#[test]
fn reload_changes_defer_accept_of_listener() {
    let mut scene = Scene::new(|_| {});
    scene.reload(Vec::new(), |config| config.listeners[0].defer_accept = true);
    let _silent = scene.client();
    scene.worker.run_once(&mut scene.events, Some(Duration::from_millis(50))).unwrap();
    assert!(scene.worker.clients.is_empty());
    scene.reload(Vec::new(), |config| config.listeners[0].defer_accept = false);
    let _accepted = scene.client();
    scene.run_until(|worker| !worker.clients.is_empty());
}

#[test]
fn reload_changes_backlog_of_listener() {
    let mut scene = Scene::new(|_| {});
    // The kernel queues one more than configured.
    scene.reload(Vec::new(), |config| config.listeners[0].backlog = 1);
    let _waiting = [scene.client(), scene.client()];
    let connect = |address, ms| TcpStream::connect_timeout(&address, Duration::from_millis(ms));
    assert_eq!(connect(scene.address, 100).unwrap_err().kind(), ErrorKind::TimedOut);
    scene.reload(Vec::new(), |config| config.listeners[0].backlog = 128);
    connect(scene.address, 10_000).unwrap();
}

#[test]
fn requests_that_wait_for_settings_survive_a_sweep() {
    let mut scene =
        Scene::new(|config| config.pools[0].protocol = Protocol::Http2 { streams_max: 10 });
    let mut client = scene.client();
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let streams =
        |worker: &Worker| worker.upstreams.iter().filter(|(_, it)| it.link.is_stream()).count();
    scene.run_until(|worker| streams(worker) == 1 && !worker.http2.needs_flush());
    let (mut peer, _) = scene.backend.accept().unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    peer.read_exact(&mut [0; b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len()]).unwrap();
    scene.worker.sweep();
    // Empty SETTINGS.
    peer.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap();
    let is_open = |link: &Link| matches!(link, Link::Stream(stream) if stream.is_open());
    scene.run_until(|worker| worker.upstreams.iter().any(|(_, it)| is_open(&it.link)));
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream], payload].concat()
}

#[test]
fn responses_that_a_client_does_not_take_stay_in_the_sockets_of_backends() {
    const BODY_BYTES: usize = 16 << 20;
    let mut scene = Scene::new(|_| {});
    scene.worker.listeners[0].http2 = true;
    let backend = scene.backend.try_clone().unwrap();
    let backends = std::thread::spawn(move || {
        let peers = [backend.accept().unwrap().0, backend.accept().unwrap().0];
        let responses = peers.map(|mut peer| {
            std::thread::spawn(move || {
                // A socket that is closed with unread bytes loses what was sent.
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut bytes = [0; 1_000];
                    let count = peer.read(&mut bytes).unwrap();
                    request.extend_from_slice(&bytes[..count]);
                }
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
                peer.write_all(head.as_bytes()).unwrap();
                peer.write_all(&vec![b'x'; BODY_BYTES]).unwrap();
            })
        });
        responses.into_iter().for_each(|response| response.join().unwrap());
    });
    // The largest windows, and two requests for http://a/.
    let request = b"\x82\x86\x84\x41\x01a";
    let mut client = scene.client();
    let frames = [
        frame(4, 0, 0, b"\0\x04\x7f\xff\xff\xff"),
        frame(8, 0, 0, b"\x7f\xff\0\0"),
        frame(1, 5, 1, request),
        frame(1, 5, 3, request),
    ];
    client
        .write_all(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frames.concat()[..]].concat())
        .unwrap();
    let waits = |client: &Downstream| matches!(&client.link, Link::Stream(it) if it.is_waiting);
    scene.run_until(|worker| worker.clients.iter().filter(|(_, it)| waits(it)).count() == 2);
    for (_, stream) in scene.worker.clients.iter().filter(|(_, it)| it.link.is_stream()) {
        assert!(stream.unsent.unsent().len() <= STREAM_PIECE_BYTES + 1_000);
        assert!(!stream.waits_for_response_body(), "a backend is not to blame");
    }

    let reader = std::thread::spawn(move || {
        let mut body_bytes = [0; 2];
        while body_bytes != [BODY_BYTES; 2] {
            let mut header = [0; 9];
            client.read_exact(&mut header).unwrap();
            let [l0, l1, l2, kind, _, _, _, _, stream] = header;
            let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
            client.read_exact(&mut vec![0; length]).unwrap();
            if kind == 0 {
                body_bytes[usize::from(stream / 2)] += length;
            }
        }
    });
    let until = Instant::now() + 3 * PATIENCE;
    while !reader.is_finished() {
        assert!(Instant::now() < until, "the responses did not end");
        scene.worker.run_once(&mut scene.events, Some(Duration::from_millis(5))).unwrap();
    }
    reader.join().unwrap();
    backends.join().unwrap();
}
