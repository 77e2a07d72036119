//! A served origin and a client of literal bytes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tollgate_origin::{Address, Config, Error, Origin, Stopper, Timeouts};

/// Deadline for everything that a busy machine may delay.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const GET_ONE: &[u8] = b"GET /?payload=1 HTTP/1.1\r\nHost: a\r\n\r\n";
pub(crate) const ONE: &str = "HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\n\
    Content-Type: text/plain\r\nContent-Length: 1\r\n\r\nx";

/// An origin that serves until dropped.
pub(crate) struct Served {
    pub(crate) addr: SocketAddr,
    pub(crate) stopper: Stopper,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl Served {
    pub(crate) fn start(threads: usize) -> Self {
        Self::with_config(&on_any_port(threads))
    }

    pub(crate) fn with_timeouts(timeouts: Timeouts) -> Self {
        Self::with_config(&Config { timeouts, ..on_any_port(1) })
    }

    pub(crate) fn with_config(config: &Config) -> Self {
        let origin = Origin::bind(config).unwrap();
        Self {
            addr: tcp_addr(&origin),
            stopper: origin.stopper(),
            thread: Some(std::thread::spawn(move || origin.serve())),
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.addr)
    }

    /// Completes a request on a new connection.
    pub(crate) fn assert_responds(&self) {
        let mut client = self.client();
        client.send(GET_ONE);
        client.expect(ONE);
    }

    /// Returns the number of this name in `/counters`.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let (_, json) = self.client().request(&get("/counters"));
        number(&json, name) as u64
    }

    /// Stops the origin. Returns its result, and how long it took.
    pub(crate) fn stop(mut self) -> (Result<(), Error>, Duration) {
        let start = Instant::now();
        self.stopper.stop().unwrap();
        let result = self.thread.take().unwrap().join().unwrap();
        (result, start.elapsed())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stopper.stop().unwrap();
            thread.join().unwrap().unwrap();
        }
    }
}

/// A client of literal bytes.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
}

impl Client {
    pub(crate) fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Reads as many bytes as `expected` has and compares them.
    pub(crate) fn expect(&mut self, expected: &str) {
        assert_eq!(self.read(expected.len()), expected);
    }

    /// Reads to the end of the stream and compares.
    pub(crate) fn expect_last(&mut self, expected: &str) {
        assert_eq!(self.read_to_end(), expected);
    }

    pub(crate) fn read_to_end(&mut self) -> String {
        let mut received = Vec::new();
        self.stream.read_to_end(&mut received).unwrap();
        String::from_utf8(received).unwrap()
    }

    pub(crate) fn read(&mut self, count: usize) -> String {
        let mut received = vec![0; count];
        self.stream.read_exact(&mut received).unwrap();
        String::from_utf8_lossy(&received).into_owned()
    }

    /// Reads and discards `count` bytes.
    pub(crate) fn skip(&mut self, mut count: u64) {
        let mut buffer = vec![0; 1 << 20];
        while count > 0 {
            let most = buffer.len().min(usize::try_from(count).unwrap_or(usize::MAX));
            let read = self.stream.read(&mut buffer[..most]).unwrap();
            assert!(read > 0, "end of stream with {count} bytes missing");
            count -= read as u64;
        }
    }

    /// Reads a head, with the empty line at its end.
    pub(crate) fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        String::from_utf8(head).unwrap()
    }

    /// Reads a response. Returns its head and its body.
    pub(crate) fn response(&mut self) -> (String, String) {
        let head = self.head();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let body = self.read(length.map_or(0, |length| length.parse().unwrap()));
        (head, body)
    }

    pub(crate) fn request(&mut self, request: &str) -> (String, String) {
        self.send(request.as_bytes());
        self.response()
    }
}

pub(crate) fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\n")
}

/// Returns the number of this name in JSON.
pub(crate) fn number(json: &str, name: &str) -> f64 {
    let (_, rest) = json.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{json}"));
    let end = rest.find([',', '}']).unwrap();
    rest[..end].parse().unwrap()
}

/// Polls until `condition` holds.
pub(crate) fn wait_until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "condition not met within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn tcp_addr(origin: &Origin) -> SocketAddr {
    match origin.listens_on() {
        Address::Tcp(addr) => *addr,
        Address::Unix(path) => panic!("listens on {}", path.display()),
    }
}

pub(crate) fn on_any_port(threads: usize) -> Config {
    Config { threads, ..Config::new("127.0.0.1:0".parse().unwrap()) }
}
