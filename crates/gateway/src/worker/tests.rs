//! A thread driven by hand, with real clients and a backend that the test plays.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_net::{Events, Serial, Socket};
use tollgate_tls::Transport;

use super::client::Client;
use super::event_loop::Worker;
use super::exchange::{Exchange, Next, Stage};
use super::keys::{ExchangeId, ExchangeKey, Key as _, ListenerKey};
use super::link::Link;
use super::scratch::STREAM_PIECE_BYTES;
use super::transaction::{HeldResponse, Hold, Transaction};
use super::turn::{Flow, Turn};
use super::upstreams::Upstream;
use crate::command::{Command, CommandQueue};
use crate::config::{Address, Config, Listener, Protocol, Timeouts};
use crate::counters::Counters;
use crate::firewall::FirewallVerdict;
use crate::generation::{ConfigGeneration, Logs};
use crate::listener::ThreadListener;
use crate::local_response::LocalResponse;

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
    ConfigGeneration::new(config, Logs::default(), counters, None, now)
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
        let worker = Worker::new(vec![listener], generation, counters, commands, 0).unwrap();
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
        let mut config = self.worker.shared.upstreams.current_config().config.clone();
        change(&mut config);
        let generation = Arc::new(generation(config, &self.worker.shared.counters));
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

    /// Sends to a client until its socket buffers are full.
    fn fill_buffers(&mut self, key: ExchangeKey) {
        let mut full_sends = 0;
        while full_sends < 20 {
            let transport = self.worker.exchanges[key].client.transport().unwrap();
            let sent = transport.send(&[b'f'; 1 << 16]).unwrap();
            full_sends = if sent == 0 { full_sends + 1 } else { 0 };
            std::thread::sleep(Duration::from_millis(u64::from(sent == 0)));
        }
    }

    /// A client whose socket buffers are full before it has anything of its response, and its backend.
    fn client_without_room(&mut self) -> (ExchangeKey, TcpStream, TcpStream) {
        let mut client = self.client();
        client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let is_sent =
            |exchange: &Exchange| exchange.transaction().is_some_and(Transaction::is_sent);
        self.run_until(|worker| worker.exchanges.values().any(is_sent));
        let (key, _) = self.worker.exchanges.iter().next().unwrap();
        self.fill_buffers(key);
        let (peer, _) = self.backend.accept().unwrap();
        (key, client, peer)
    }

    /// A client that has received nothing of its complete response, since its socket buffers were full before. The end
    /// of the response is that of the connection.
    fn client_with_full_buffers(&mut self) -> (ExchangeKey, TcpStream) {
        let (key, client, mut peer) = self.client_without_room();
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        peer.write_all(&[&head[..], b"2\r\nhi\r\n0\r\n\r\n"].concat()).unwrap();
        self.run_until(|worker| worker.exchanges[key].transaction().is_none());
        assert!(matches!(self.worker.exchanges[key].stage, Stage::Finish { .. }));
        assert!(!self.worker.exchanges[key].client.unsent.is_empty());
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
    scene.worker.exchanges[key].client.deadline = scene.worker.shared.now;
    scene.worker.sweep();
    assert!(scene.worker.exchanges.is_empty());
    expect_reset(client);
}

#[test]
fn unsent_end_of_response_is_reset_at_end_of_drain() {
    let mut scene = Scene::new(|_| {});
    let (_, client) = scene.client_with_full_buffers();
    scene.worker.shared.stop_by = Some(scene.worker.shared.now);
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
    assert!(
        worker.exchanges[key].client.deadline <= worker.shared.now + worker.shared.timeouts.body
    );
}

#[test]
fn response_is_received_while_its_client_takes_nothing() {
    let mut scene = Scene::new(|config| config.pools[0].buffer_response = 5_000);
    let (key, client, mut peer) = scene.client_without_room();
    let mut send = |bytes: &[u8]| peer.write_all(bytes).unwrap();
    let chunk = [b"7d0\r\n", &[b'x'; 2_000][..], b"\r\n"].concat();
    send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    send(&chunk);
    let waiting = |worker: &Worker| worker.exchanges[key].client.unsent.unsent().len();
    scene.run_until(|worker| waiting(worker) > 2_000);
    let deadline = scene.worker.exchanges[key].client.deadline;
    send(&chunk);
    scene.run_until(|worker| waiting(worker) > 4_000);
    assert_eq!(scene.worker.exchanges[key].client.deadline, deadline, "it has taken nothing");
    assert_eq!(scene.worker.shared.buffered_bytes, 5_000);
    send(b"0\r\n\r\n");
    scene.run_until(|worker| worker.exchanges[key].transaction().is_none());
    assert_eq!(scene.worker.shared.buffered_bytes, 5_000);
    drop(client);
    scene.run_until(|worker| worker.exchanges.is_empty());
    assert_eq!(scene.worker.shared.buffered_bytes, 0);
}

#[test]
fn connection_that_cannot_be_watched_is_closed() {
    let mut scene = Scene::new(|_| {});
    // epoll rejects regular files.
    let socket = Socket::from(OwnedFd::from(tempfile::tempfile().unwrap()));
    let worker = &mut scene.worker;
    let link = Link::Connection(Transport::new(socket));
    let client = Client::new(link, None, ListenerKey::new(0), worker.shared.now);
    let serial = Serial::default();
    let stage = Stage::Finish { lingers: false, ends_at_close: false };
    let exchange = |key| Exchange::new(ExchangeId { key, serial }, client, stage);
    let key = worker.exchanges.insert_with(exchange);
    worker.watch(key);
    assert!(worker.exchanges.is_empty());
    let _client = scene.client();
    scene.run_until(|worker| worker.exchanges.len() == 1);
}

#[test]
fn sweep_period_follows_shortest_timeout() {
    let period = |scene: &Scene| scene.worker.next_sweep.at() - scene.worker.shared.now;
    let scene = Scene::new(|config| config.pools[0].queue_timeout = Duration::from_millis(100));
    assert_eq!(period(&scene), Duration::from_millis(25));
    let pause = Duration::from_millis(200);
    let scene = Scene::new(|config| config.pools[0].retry_pause = Some(pause));
    assert_eq!(period(&scene), pause / 4);
    let longer = Scene::new(|config| config.timeouts.abandoned = Duration::from_secs(4));
    assert_eq!(period(&longer), Duration::from_secs(1));
    assert_eq!(period(&Scene::new(|_| {})), Timeouts::default().abandoned / 4);
}

#[test]
fn closed_client_makes_room_at_once() {
    let mut scene = Scene::new(|config| config.limits.connections = 1);
    let mut first = scene.client();
    // An idle client would make room itself.
    first.write_all(b"GET").unwrap();
    scene.run_until(|worker| worker.acceptor.is_paused());
    let second = scene.client();
    let Worker { acceptor, poller, shared, .. } = &mut scene.worker;
    acceptor.pause(shared.now + 10 * PATIENCE, poller).unwrap();
    let id = scene.worker.exchanges.values().next().unwrap().id;
    drop(first);
    scene.run_until(|worker| worker.exchanges.values().any(|client| client.id != id));
    drop(second);
}

#[test]
fn index_of_closed_listener_is_reused_after_its_last_client() {
    let mut scene = Scene::new(|_| {});
    let client = scene.client();
    scene.run_until(|worker| worker.exchanges.len() == 1);
    let first = scene.worker.shared.listeners[0].address.clone();
    for _ in 0..5 {
        scene.move_listener();
    }
    // The client's, the current one, and the one before it.
    assert_eq!(scene.worker.shared.listeners.len(), 3);
    assert_eq!(scene.worker.shared.listeners[0].address, first);
    drop(client);
    scene.run_until(|worker| worker.exchanges.is_empty());
    let last = scene.move_listener();
    assert_eq!(scene.worker.shared.listeners[0].address, last);
    assert_eq!(scene.worker.shared.listeners.len(), 3);
}

#[test]
fn lingering_is_limited_in_silence_and_in_total() {
    let mut scene = Scene::new(|_| {});
    let mut client = scene.client();
    client.write_all(b"nonsense\r\n\r\n").unwrap();
    let lingers = |client: &Exchange| matches!(client.stage, Stage::Linger { .. });
    scene.run_until(|worker| worker.exchanges.values().any(lingers));
    let (key, _) = scene.worker.exchanges.iter().next().unwrap();
    // Each piece extends the deadline.
    scene.worker.exchanges[key].client.deadline = scene.worker.shared.now;
    client.write_all(b"more").unwrap();
    scene.run_until(|worker| worker.exchanges[key].client.deadline > worker.shared.now);
    assert!(
        scene.worker.exchanges[key].client.deadline
            <= scene.worker.shared.now + Duration::from_secs(5)
    );
    // The total is limited.
    let until = scene.worker.shared.now + Duration::from_secs(1);
    scene.worker.exchanges[key].stage = Stage::Linger { until };
    client.write_all(b"too much").unwrap();
    scene.run_until(|worker| worker.exchanges[key].client.deadline == until);
}

#[test]
fn reload_applies_to_requests_of_the_same_turn() {
    let mut scene = Scene::new(|_| {});
    let mut client = scene.client();
    scene.run_until(|worker| !worker.exchanges.is_empty());
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    scene.reload(Vec::new(), |_| {});
    let exchange = scene.worker.exchanges.values().next().unwrap();
    let generation = exchange.transaction().unwrap().generation;
    assert_eq!(generation, scene.worker.shared.upstreams.current());
}

#[test]
fn reload_changes_defer_accept_of_listener() {
    let mut scene = Scene::new(|_| {});
    scene.reload(Vec::new(), |config| config.listeners[0].defer_accept = true);
    let _silent = scene.client();
    scene.worker.run_once(&mut scene.events, Some(Duration::from_millis(50))).unwrap();
    assert!(scene.worker.exchanges.is_empty());
    scene.reload(Vec::new(), |config| config.listeners[0].defer_accept = false);
    let _accepted = scene.client();
    scene.run_until(|worker| !worker.exchanges.is_empty());
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
    let streams = |worker: &Worker| {
        worker
            .shared
            .upstreams
            .connections()
            .values()
            .filter(|upstream| upstream.link.is_stream())
            .count()
    };
    scene.run_until(|worker| streams(worker) == 1 && !worker.shared.http2.needs_flush());
    let (mut peer, _) = scene.backend.accept().unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    peer.read_exact(&mut [0; b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len()]).unwrap();
    scene.worker.sweep();
    // Empty SETTINGS.
    peer.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap();
    let is_open = |link: &Link| matches!(link, Link::Stream(stream) if stream.is_open());
    scene.run_until(|worker| {
        worker.shared.upstreams.connections().values().any(|upstream| is_open(&upstream.link))
    });
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream], payload].concat()
}

#[test]
fn streams_without_window_on_a_full_socket_do_not_keep_the_thread_busy() {
    const BODY_BYTES: usize = 45_000;
    let mut scene = Scene::new(|_| {});
    scene.worker.shared.listeners[0].http2 = true;
    // The largest windows of streams; that of the connection takes one response and half of the next one.
    let request = b"\x82\x86\x84\x41\x01a";
    let frames = [frame(4, 0, 0, b"\0\x04\x7f\xff\xff\xff"), frame(1, 5, 1, request)].concat();
    let mut client = scene.client();
    client.write_all(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frames[..]].concat()).unwrap();
    let is_sent = |worker: &Worker| {
        let mut transactions = worker.exchanges.values().filter_map(Exchange::transaction);
        transactions.any(Transaction::is_sent)
    };
    scene.run_until(is_sent);
    let (mut peer, _) = scene.backend.accept().unwrap();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
    let response = [head.as_bytes(), &[b'x'; BODY_BYTES]].concat();
    peer.write_all(&response).unwrap();
    scene.run_until(|worker| worker.exchanges.values().count() == 1);
    let (key, _) = scene.worker.exchanges.iter().next().unwrap();
    client.write_all(&frame(1, 5, 3, request)).unwrap();
    scene.run_until(is_sent);
    scene.fill_buffers(key);
    peer.write_all(&response).unwrap();
    scene.run_until(|worker| {
        let streams = worker.exchanges.values().filter(|exchange| exchange.client.link.is_stream());
        streams.filter(|stream| !stream.client.unsent.is_empty()).count() == 1
    });
    for _ in 0..3 {
        let http2 = &scene.worker.shared.http2;
        let Stage::Http2(connection) = scene.worker.exchanges[key].stage else { panic!("closed") };
        assert!(!(http2.is_blocked(connection) && http2.needs_flush()), "another turn at once");
        scene.worker.run_once(&mut scene.events, Some(Duration::ZERO)).unwrap();
    }
}

#[test]
fn responses_that_a_client_does_not_take_stay_in_the_sockets_of_backends() {
    const BODY_BYTES: usize = 16 << 20;
    let mut scene = Scene::new(|_| {});
    scene.worker.shared.listeners[0].http2 = true;
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
    let waits = |exchange: &&Exchange| exchange.client.link.is_waiting();
    scene.run_until(|worker| worker.exchanges.values().filter(waits).count() == 2);
    let Worker { exchanges, shared, .. } = &mut scene.worker;
    for stream in exchanges.values_mut().filter(|exchange| exchange.client.link.is_stream()) {
        let Exchange { id, client, stage: Stage::Transaction(transaction), .. } = stream else {
            panic!("{stream:?}")
        };
        assert!(client.unsent.unsent().len() <= STREAM_PIECE_BYTES + 1_000);
        let turn = Turn { id: *id, client, transaction, shared };
        assert!(!turn.waits_for_response_body(), "a backend is not to blame");
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

/// The firewall of a route with a rule against `attack` in a body.
fn firewall(config: &mut Config) {
    let folder = tempfile::tempdir().unwrap();
    let rule = "SecRule REQUEST_BODY \"@contains attack\" \"id:1,phase:2,deny,status:403\"";
    std::fs::write(folder.path().join("rules.conf"), rule).unwrap();
    let text = "listeners: [{ address: '127.0.0.1:0' }]\nwaf: { rules: [rules.conf] }\n\
                pools: [{ name: site, backends: [{ address: '127.0.0.1:1' }] }]\n";
    let parsed = Config::parse(text, &folder.path().join("gateway.yaml")).unwrap();
    config.routes[0].waf.clone_from(&parsed.routes[0].waf);
}

/// A request that is inspected on the helper thread.
fn long_request(word: &str) -> String {
    let body = format!("{}{word}", "word ".repeat(2_000));
    format!(
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn is_parked(exchange: &Exchange) -> bool {
    exchange.transaction().is_some_and(Transaction::is_parked)
}

impl Scene {
    /// Reads the head and the announced body of a response, or of a request.
    fn read_message(&mut self, stream: &mut TcpStream) -> String {
        stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        let (mut text, until) = (Vec::new(), Instant::now() + PATIENCE);
        loop {
            assert!(Instant::now() < until, "{}", String::from_utf8_lossy(&text));
            self.worker.run_once(&mut self.events, Some(Duration::ZERO)).unwrap();
            let mut bytes = [0; 1 << 14];
            match stream.read(&mut bytes) {
                Ok(0) => panic!("it ended: {}", String::from_utf8_lossy(&text)),
                Ok(count) => text.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("{error}"),
            }
            let message = String::from_utf8_lossy(&text);
            let Some((head, body)) = message.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return message.into_owned();
            }
        }
    }

    /// Sends a request that the helper inspects, and returns once it does.
    fn park(&mut self, client: &mut TcpStream, word: &str) -> ExchangeKey {
        client.write_all(long_request(word).as_bytes()).unwrap();
        self.run_until(|worker| worker.exchanges.values().any(is_parked));
        self.worker.exchanges.keys(is_parked)[0]
    }
}

#[test]
fn parked_transaction_has_the_timeout_of_a_response() {
    let mut scene = Scene::new(firewall);
    let mut client = scene.client();
    let key = scene.park(&mut client, "");
    scene.worker.exchanges[key].client.deadline = scene.worker.shared.now;
    scene.worker.sweep();
    let response = scene.read_message(&mut client);
    assert!(response.starts_with("HTTP/1.1 504 "), "{response}");
    // The verdict comes too late for it, and not for the next one.
    scene.park(&mut client, "attack");
    let response = scene.read_message(&mut client);
    assert!(response.starts_with("HTTP/1.1 403 "), "{response}");
    let harmless = long_request("");
    scene.park(&mut client, "");
    scene.run_until(|worker| !worker.shared.upstreams.connections().is_empty());
    let (mut peer, _) = scene.backend.accept().unwrap();
    let received = scene.read_message(&mut peer);
    assert!(received.ends_with(&harmless[harmless.len() - 2_000..]), "{received}");
}

#[test]
fn verdict_about_an_ended_transaction_has_no_effect() {
    let mut scene = Scene::new(firewall);
    let mut client = scene.client();
    let key = scene.park(&mut client, "attack");
    let id = scene.worker.exchanges[key].transaction().unwrap().id;
    let response = scene.read_message(&mut client);
    assert!(response.starts_with("HTTP/1.1 403 "), "{response}");
    let Worker { exchanges, shared, .. } = &mut scene.worker;
    assert_eq!(exchanges[key].resume(shared, id, FirewallVerdict::Pass), None);
    // A transaction that waits for another verdict.
    scene.park(&mut client, "");
    let Worker { exchanges, shared, .. } = &mut scene.worker;
    assert_eq!(exchanges[key].resume(shared, id, FirewallVerdict::Pass), None);
    assert!(is_parked(&scene.worker.exchanges[key]));
}

/// A backend that sends more than its response, after the gateway has kept the connection.
#[test]
fn late_bytes_of_a_backend_are_no_response_to_the_next_request() {
    for method in ["GET", "POST"] {
        let mut scene = Scene::new(|_| {});
        let request = format!("{method} / HTTP/1.1\r\nHost: x\r\n\r\n");
        let response = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
        let mut client = scene.client();
        client.write_all(request.as_bytes()).unwrap();
        scene.run_until(|worker| !worker.shared.upstreams.connections().is_empty());
        let (mut peer, _) = scene.backend.accept().unwrap();
        scene.read_message(&mut peer);
        peer.write_all(format!("{response}hi").as_bytes()).unwrap();
        assert!(scene.read_message(&mut client).ends_with("hi"));
        assert_eq!(scene.worker.shared.upstreams.connections().len(), 1, "the connection is kept");
        // The next request is handled before the event of the backend, as among many events.
        scene.events = Events::with_capacity(1);
        client.write_all(request.as_bytes()).unwrap();
        peer.write_all(format!("{response}no").as_bytes()).unwrap();
        let is_new = |upstream: &Upstream| !upstream.is_reused && upstream.client().is_some();
        scene.run_until(|worker| worker.shared.upstreams.connections().values().any(is_new));
        let (mut next, _) = scene.backend.accept().unwrap();
        scene.read_message(&mut next);
        next.write_all(format!("{response}ok").as_bytes()).unwrap();
        assert!(scene.read_message(&mut client).ends_with("ok"), "{method}");
    }
}

#[test]
fn verdict_to_respond_replaces_a_response_of_which_nothing_is_sent_and_closes_otherwise() {
    let response = || LocalResponse::new(403, "No", Vec::new(), b"no"[..].into());
    let held = |has_head| Some(Box::new(HeldResponse { bytes: b"part".to_vec(), has_head }));
    for (has_begun, held, expected) in [
        (false, None, Next::Continue),
        (true, held(true), Next::Continue),
        (true, held(false), Next::Close),
        (true, None, Next::Close),
    ] {
        let mut scene = Scene::new(|_| {});
        let mut client = scene.client();
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        scene.run_until(|worker| !worker.shared.upstreams.connections().is_empty());
        let (mut peer, _) = scene.backend.accept().unwrap();
        scene.read_message(&mut peer);
        if has_begun {
            peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi").unwrap();
            let head = |exchange: &Exchange| exchange.transaction().unwrap().is_head_missing();
            scene.run_until(|worker| !worker.exchanges.values().any(head));
        }
        let key = scene.worker.exchanges.keys(|_| true)[0];
        let Worker { exchanges, shared, .. } = &mut scene.worker;
        let next = exchanges[key].in_transaction(shared, |turn| {
            turn.transaction.hold = held.map_or(Hold::Nothing, Hold::Parked);
            turn.resume(FirewallVerdict::Respond(Box::new(response())))
        });
        assert_eq!(next, expected);
        let is_over = scene.worker.exchanges[key].transaction().is_none();
        assert_eq!(is_over, expected == Next::Continue, "an aborted one ends with its client");
    }
}

#[test]
fn room_that_is_granted_to_a_client_that_leaves_goes_to_the_next() {
    let mut scene =
        Scene::new(|config| config.pools[0].connections_max = std::num::NonZeroU32::new(1));
    let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut clients = [scene.client(), scene.client(), scene.client()];
    for (at, client) in clients.iter_mut().enumerate() {
        client.write_all(request).unwrap();
        scene.run_until(|worker| {
            worker.exchanges.values().filter(|other| other.transaction().is_some()).count() > at
        });
    }
    let (mut peer, _) = scene.backend.accept().unwrap();
    scene.read_message(&mut peer);
    // The first one leaves, and so does the second one before it continues.
    let keys = scene.worker.exchanges.keys(|_| true);
    scene.worker.remove(keys[0]);
    scene.worker.remove(keys[1]);
    let (mut next, _) = loop {
        scene.worker.run_once(&mut scene.events, Some(Duration::ZERO)).unwrap();
        scene.backend.set_nonblocking(true).unwrap();
        match scene.backend.accept() {
            Ok(accepted) => break accepted,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    };
    next.set_nonblocking(false).unwrap();
    scene.read_message(&mut next);
    next.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").unwrap();
    assert!(scene.read_message(&mut clients[2]).ends_with("hi"));
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "a release build goes on after the report")]
#[should_panic(expected = "a client has no transaction when it is to act")]
fn impossible_state_is_reported() {
    let mut scene = Scene::new(|_| {});
    let _client = scene.client();
    scene.run_until(|worker| !worker.exchanges.is_empty());
    let key = scene.worker.exchanges.keys(|_| true)[0];
    let Worker { exchanges, shared, .. } = &mut scene.worker;
    exchanges[key].in_transaction(shared, |_| Flow::Wait);
}
