//! A server whose every connection runs a script, and plans against it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tollgate_load::{
    Arrivals, Expectation, Generator, MAX_CONNECTIONS, Outcome, Plan, Request, Spacing, Target,
    Workload,
};

pub(crate) const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
pub(crate) const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// How long a test waits for anything before it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Runs a script on a thread for each connection; dropping it stops and joins them all.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) log: Arc<Log>,
    acceptor: Option<JoinHandle<()>>,
}

/// What a server saw.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) requests: AtomicU64,
    pub(crate) connections: AtomicU64,
    is_stopped: AtomicBool,
}

/// The server's end of one connection.
pub(crate) struct Peer {
    stream: TcpStream,
    unread: Vec<u8>,
    log: Arc<Log>,
}

impl Server {
    pub(crate) fn start(script: impl Fn(&mut Peer) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let log = Arc::<Log>::default();
        let acceptor = thread::spawn({
            let log = Arc::clone(&log);
            move || accept(&listener, &log, &Arc::new(script))
        });
        Self { address, log, acceptor: Some(acceptor) }
    }

    /// A server that gives every request the same answer.
    pub(crate) fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::start(move |peer| {
            while peer.request().is_some() {
                peer.send(&answer);
            }
        })
    }

    pub(crate) fn requests(&self) -> u64 {
        self.log.requests.load(Ordering::SeqCst)
    }

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
        let mut peer = Peer { stream, unread: Vec::new(), log: Arc::clone(log) };
        let script = Arc::clone(script);
        peers.push(thread::spawn(move || script(&mut peer)));
    }
    for peer in peers {
        peer.join().unwrap();
    }
}

impl Peer {
    /// The next request, head and body; `None` when the client has closed or the test is over.
    pub(crate) fn request(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(len) = whole_request(&self.unread) {
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

    /// Reads half of a plain GET and leaves the rest, if there is one.
    pub(crate) fn half_a_request(&mut self) -> bool {
        let mut half = [0; GET.len() / 2];
        self.stream.read_exact(&mut half).is_ok()
    }

    /// Sends bytes; a client that is gone is no concern of the server's.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        drop(self.stream.write_all(bytes));
    }

    /// Whether the client has closed.
    pub(crate) fn is_deserted(&mut self) -> bool {
        matches!(self.stream.read(&mut [0]), Ok(0))
    }

    /// Sleeps; `false` when the test ends before.
    pub(crate) fn sleep(&self, duration: Duration) -> bool {
        let end = Instant::now() + duration;
        while Instant::now() < end && !self.is_stopped() {
            let left = end.saturating_duration_since(Instant::now());
            thread::sleep(left.min(Duration::from_millis(5)));
        }
        !self.is_stopped()
    }

    /// Never answers again.
    pub(crate) fn hang(&self) {
        self.sleep(Duration::from_secs(3600));
    }

    fn is_stopped(&self) -> bool {
        self.log.is_stopped.load(Ordering::SeqCst)
    }
}

/// The length of the request at the start of `bytes`, if it is all there.
fn whole_request(bytes: &[u8]) -> Option<usize> {
    let text = String::from_utf8_lossy(bytes);
    let head = text.find("\r\n\r\n")? + 4;
    let length = text[..head].split("Content-Length: ").nth(1);
    let body = length.map_or(0, |rest| rest.split("\r\n").next().unwrap().parse().unwrap());
    (bytes.len() >= head + body).then_some(head + body)
}

/// A port on which nobody listens.
pub(crate) fn closed_port() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

pub(crate) fn request(bytes: &[u8]) -> Request {
    Request { bytes: bytes.to_vec(), is_head: false, expect: Expectation::default(), template: 0 }
}

/// Each request is its own template.
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
        arrivals: Arrivals::Closed,
        connections: 1,
        connections_max: MAX_CONNECTIONS,
        timer_slack: Duration::ZERO,
        threads: 1,
        pipeline: 1,
        first_byte: false,
        busy_poll: false,
        keep_alive: true,
        connect_timeout: PATIENCE,
        answer_timeout: PATIENCE,
        requests: Some(requests),
        warm_up: false,
        cpus: vec![],
    }
}

/// The same on a schedule of so many requests a second.
pub(crate) fn scheduled(target: SocketAddr, requests: u64, per_second: f64) -> Plan {
    let arrivals = Arrivals::Open { per_second, spacing: Spacing::Constant };
    Plan { arrivals, connections_max: 1, ..plan(target, requests) }
}

/// Runs a plan that ends by itself, and checks that its books balance.
pub(crate) fn run(plan: Plan) -> Outcome {
    let generator = Generator::start(plan).unwrap();
    wait_until(|| generator.is_done());
    let outcome = generator.finish().unwrap();
    assert_balance(&outcome);
    outcome
}

pub(crate) fn wait_until(is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "nothing happened for {PATIENCE:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn assert_balance(outcome: &Outcome) {
    let warm_up = outcome.warm_up.answered + outcome.warm_up.failed;
    let measured = outcome.answered + outcome.failures.total();
    assert_eq!(outcome.sent, warm_up + measured + outcome.unanswered, "{outcome:?}");
    let statuses = outcome.templates.iter().flat_map(|tally| tally.statuses.values());
    assert_eq!(statuses.sum::<u64>(), outcome.answered);
    let timeouts = outcome.failures.connect_timeout + outcome.failures.answer_timeout;
    assert_eq!(outcome.latency.count(), outcome.answered + timeouts);
}
