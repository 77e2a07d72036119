//! A server that runs a script per connection, and plans against it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tollgate_http1::{RequestText, parse_request_head};
use tollgate_load::{
    Arrivals, Expectation, Generator, Phases, Plan, Rate, Request, Shard, Summary, Target, Workload,
};
use tollgate_traffic::load_shape::{Clients, OpenLoop, Protocol, Spacing};

pub(crate) const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
pub(crate) const LAST: &[u8] =
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
pub(crate) const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Nanoseconds in a millisecond.
pub(crate) const MS: u64 = 1_000_000;

/// Time after which a test fails.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// Runs a script on a thread per connection. Dropping it stops and joins all of them.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    log: Arc<Log>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Log {
    requests: AtomicU64,
    connections: AtomicU64,
    is_stopped: AtomicBool,
}

/// The server's end of a connection.
pub(crate) struct Peer {
    stream: Box<dyn ReadWrite>,
    unread: Vec<u8>,
    log: Arc<Log>,
}

trait ReadWrite: Read + Write + Send {}

impl<T: Read + Write + Send> ReadWrite for T {}

impl Server {
    pub(crate) fn start(script: impl Fn(&mut Peer) + Send + Sync + 'static) -> Self {
        Self::start_on(None, script)
    }

    /// As `start`, over TLS.
    pub(crate) fn start_tls(
        tls: ServerConfig,
        script: impl Fn(&mut Peer) + Send + Sync + 'static,
    ) -> Self {
        Self::start_on(Some(Arc::new(tls)), script)
    }

    fn start_on(
        tls: Option<Arc<ServerConfig>>,
        script: impl Fn(&mut Peer) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let log = Arc::<Log>::default();
        let acceptor = thread::spawn({
            let log = Arc::clone(&log);
            move || accept(&listener, tls.as_ref(), &log, &Arc::new(script))
        });
        Self { address, log, acceptor: Some(acceptor) }
    }

    /// Sends the same response to every request.
    pub(crate) fn responding(response: impl Into<Vec<u8>>) -> Self {
        let response = response.into();
        Self::start(move |peer| {
            while peer.request().is_some() {
                peer.send(&response);
            }
        })
    }

    /// Sends `OK` after a delay.
    pub(crate) fn delaying(delay: Duration) -> Self {
        Self::start(move |peer| {
            while peer.request().is_some() {
                thread::sleep(delay);
                peer.send(OK);
            }
        })
    }

    /// Reads a request and never responds.
    pub(crate) fn stalled() -> Self {
        Self::start(|peer| {
            peer.request();
            peer.hang();
        })
    }

    /// Requests read so far.
    pub(crate) fn requests(&self) -> u64 {
        self.log.requests.load(Ordering::SeqCst)
    }

    /// Connections accepted so far.
    pub(crate) fn connections(&self) -> u64 {
        self.log.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.log.is_stopped.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        self.acceptor.take().unwrap().join().unwrap();
    }
}

fn accept<S: Fn(&mut Peer) + Send + Sync + 'static>(
    listener: &TcpListener,
    tls: Option<&Arc<ServerConfig>>,
    log: &Arc<Log>,
    script: &Arc<S>,
) {
    let mut peers = Vec::new();
    loop {
        let (stream, _) = listener.accept().unwrap();
        if log.is_stopped.load(Ordering::SeqCst) {
            break;
        }
        log.connections.fetch_add(1, Ordering::SeqCst);
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let stream: Box<dyn ReadWrite> = match tls {
            None => Box::new(stream),
            Some(config) => {
                let connection = ServerConnection::new(Arc::clone(config)).unwrap();
                Box::new(StreamOwned::new(connection, stream))
            }
        };
        let mut peer = Peer { stream, unread: Vec::new(), log: Arc::clone(log) };
        let script = Arc::clone(script);
        peers.push(thread::spawn(move || script(&mut peer)));
    }
    for peer in peers {
        peer.join().unwrap();
    }
}

impl Peer {
    /// Reads the next request, head and body; `None` when the client has closed or the test is over.
    pub(crate) fn request(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(len) = request_length(&self.unread) {
                self.log.requests.fetch_add(1, Ordering::SeqCst);
                return Some(self.unread.drain(..len).collect());
            }
            let mut buffer = [0; 64 * 1024];
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(bytes) => self.unread.extend_from_slice(&buffer[..bytes]),
                Err(error) if error.kind() == ErrorKind::WouldBlock && !self.is_stopped() => {}
                Err(_) => return None,
            }
        }
    }

    /// Reads what has arrived; `None` when the client has closed or the test is over.
    pub(crate) fn receive(&mut self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(bytes) => {
                    buffer.truncate(bytes);
                    return Some(buffer);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock && !self.is_stopped() => {}
                Err(_) => return None,
            }
        }
    }

    /// Reads half of a plain GET. Returns false if the client has closed.
    pub(crate) fn half_request(&mut self) -> bool {
        let mut half = [0; GET.len() / 2];
        self.stream.read_exact(&mut half).is_ok()
    }

    /// Sends bytes. Ignores a client that has closed.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        drop(self.stream.write_all(bytes).and_then(|()| self.stream.flush()));
    }

    /// True if the client has closed.
    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0]), Ok(0))
    }

    /// Sleeps. Returns false if the test ends before.
    pub(crate) fn sleep(&self, duration: Duration) -> bool {
        let end = Instant::now() + duration;
        while Instant::now() < end && !self.is_stopped() {
            let left = end.saturating_duration_since(Instant::now());
            thread::sleep(left.min(Duration::from_millis(5)));
        }
        !self.is_stopped()
    }

    /// Sleeps until the test ends.
    pub(crate) fn hang(&self) {
        self.sleep(Duration::from_secs(3600));
    }

    fn is_stopped(&self) -> bool {
        self.log.is_stopped.load(Ordering::SeqCst)
    }
}

/// Length of the request at the start of `bytes`, if it is complete.
fn request_length(bytes: &[u8]) -> Option<usize> {
    const HEAD_BYTES_MAX: usize = 1024;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(HEAD_BYTES_MAX)]);
    let head = text.find("\r\n\r\n")? + 4;
    let length = text[..head].split("Content-Length: ").nth(1);
    let body = length.map_or(0, |rest| rest.split("\r\n").next().unwrap().parse().unwrap());
    (bytes.len() >= head + body).then_some(head + body)
}

/// An address on which nothing listens.
pub(crate) fn closed_port() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

/// A request that is sent as this text.
pub(crate) fn request(text: &[u8]) -> Request {
    let head = parse_request_head(text).unwrap().unwrap();
    let header = |(name, value)| (name, str::from_utf8(value).unwrap());
    let headers: Vec<(&str, &str)> = head.headers.iter().map(header).collect();
    let body = &text[head.len..];
    let parts = RequestText { method: head.method, target: head.target, headers: &headers, body };
    let message = parts.render().unwrap();
    assert_eq!(message.bytes(), text);
    Request { message, expect: Expectation::default(), template: 0 }
}

/// A POST with a body of `x`.
pub(crate) fn post(body_bytes: usize) -> Request {
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {body_bytes}\r\n\r\n");
    request(&[head.as_bytes(), &vec![b'x'; body_bytes]].concat())
}

/// A workload in which each request is a template of its own.
pub(crate) fn workload(mut requests: Vec<Request>) -> Arc<Workload> {
    for (index, request) in requests.iter_mut().enumerate() {
        request.template = index;
    }
    let order = (0..u32::try_from(requests.len()).unwrap()).collect();
    Arc::new(Workload::new(requests, order).unwrap())
}

/// One connection on one thread that sends `requests` plain GETs.
pub(crate) fn plan(target: SocketAddr, requests: u64) -> Plan {
    Plan {
        target: Target::Tcp(target),
        workload: workload(vec![request(GET)]),
        arrivals: Arrivals::Closed { connections: 1 },
        clients: Clients {
            protocol: Protocol::Http1 { pipeline: 1 },
            threads: 1,
            busy_poll: false,
            connect_timeout: DEADLINE,
            response_timeout: DEADLINE,
        },
        phases: Phases::Requests(requests),
        tls: None,
        series: None,
        first_byte: false,
        cpus: vec![],
        shard: Shard::WHOLE,
    }
}

/// The same without an end, starting with a warm-up.
pub(crate) fn endless(target: SocketAddr) -> Plan {
    Plan { phases: Phases::WarmUp, ..plan(target, 1) }
}

/// The same on a schedule.
pub(crate) fn scheduled(target: SocketAddr, requests: u64, per_second: f64) -> Plan {
    let arrivals = open_loop(Rate::Constant(per_second), Spacing::Constant);
    Plan { arrivals, ..plan(target, requests) }
}

/// A schedule over one connection.
pub(crate) fn open_loop(rate: Rate, spacing: Spacing) -> Arrivals {
    let schedule = OpenLoop { rate, spacing, connections: 1, connections_max: 1 };
    Arrivals::Open { schedule, seed: 7 }
}

/// A plan after a change.
pub(crate) fn with(mut plan: Plan, change: impl FnOnce(&mut Plan)) -> Plan {
    change(&mut plan);
    plan
}

/// Sets the connections at the start, and those of a schedule at most.
pub(crate) fn set_connections(plan: &mut Plan, count: usize) {
    match &mut plan.arrivals {
        Arrivals::Closed { connections } => *connections = count,
        Arrivals::Open { schedule, .. } => {
            schedule.connections = count;
            schedule.connections_max = schedule.connections_max.max(count);
        }
        Arrivals::Replay(_) => panic!("a replay opens no connection at the start"),
    }
}

pub(crate) fn set_connections_max(plan: &mut Plan, count: usize) {
    match &mut plan.arrivals {
        Arrivals::Closed { .. } => panic!("a closed loop does not grow"),
        Arrivals::Open { schedule, .. } => schedule.connections_max = count,
        Arrivals::Replay(plan) => plan.connections_max = count,
    }
}

/// Runs a plan to its end and checks the balance of its counts.
pub(crate) fn run(plan: Plan) -> Summary {
    let generator = Generator::start(plan).unwrap();
    assert!(generator.wait(DEADLINE), "the load does not end");
    finish(generator)
}

/// Runs a plan until its summary is as expected, at most ten times: other processes can delay a thread at any time.
#[track_caller]
pub(crate) fn run_until(plan: &Plan, is_expected: impl Fn(&Summary) -> bool) {
    let mut summary = Summary::default();
    for _ in 0..10 {
        summary = run(plan.clone());
        if is_expected(&summary) {
            return;
        }
    }
    panic!("ten runs, the last of which: {summary:?}");
}

/// Ends a load and checks the balance of its counts.
pub(crate) fn finish(generator: Generator) -> Summary {
    let summary = generator.finish().unwrap();
    let warm_up = summary.warm_up.responses + summary.warm_up.failed;
    let measured = summary.responses + summary.failures.total();
    assert_eq!(summary.sent, warm_up + measured + summary.in_flight, "{summary:?}");
    assert_eq!(summary.statuses().values().sum::<u64>(), summary.responses);
    assert_eq!(summary.latency.count(), summary.responses + summary.failures.timeouts());
    summary
}

/// Compares a time of a histogram, which has three digits.
pub(crate) fn is_at_least(recorded_ns: u64, ns: u64) -> bool {
    recorded_ns + ns / 1000 >= ns
}

pub(crate) fn wait_until(is_true: impl Fn() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !is_true() {
        assert!(Instant::now() < end, "not true within {DEADLINE:?}");
        thread::sleep(Duration::from_millis(1));
    }
}
