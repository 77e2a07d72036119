//! An origin on a thread of the test, and a client that reads and writes literal bytes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use tollgate_origin::{Config, Error, Listen, Origin, Stopper, Timeouts};

/// A test fails rather than hangs after so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// An origin that serves until dropped.
pub(crate) struct Served {
    pub(crate) addr: SocketAddr,
    pub(crate) stopper: Stopper,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl Served {
    /// On any free port, unpinned.
    pub(crate) fn start(threads: usize) -> Self {
        Self::serve(Origin::bind(&on_any_port(threads)).unwrap())
    }

    /// The same, and as patient as that.
    pub(crate) fn with_timeouts(timeouts: Timeouts) -> Self {
        Self::serve(Origin::bind(&Config { timeouts, ..on_any_port(1) }).unwrap())
    }

    pub(crate) fn serve(origin: Origin) -> Self {
        Self {
            addr: addr(&origin),
            stopper: origin.stopper(),
            thread: Some(std::thread::spawn(move || origin.serve())),
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.addr)
    }

    /// What `serve` returned, once stopped by someone.
    pub(crate) fn outcome(mut self) -> Result<(), Error> {
        self.thread.take().unwrap().join().unwrap()
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

/// A client that knows no HTTP.
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

    /// Exactly as many bytes as `expected` has must come, and be those.
    pub(crate) fn expect(&mut self, expected: &str) {
        let mut received = vec![0; expected.len()];
        self.stream.read_exact(&mut received).unwrap();
        assert_eq!(String::from_utf8_lossy(&received), expected);
    }

    /// `expected` and then the end must come.
    pub(crate) fn expect_last(&mut self, expected: &str) {
        assert_eq!(self.read_to_end(), expected);
    }

    pub(crate) fn read_to_end(&mut self) -> String {
        let mut received = Vec::new();
        self.stream.read_to_end(&mut received).unwrap();
        String::from_utf8(received).unwrap()
    }

    /// So many bytes, as text.
    pub(crate) fn read(&mut self, count: usize) -> String {
        let mut received = vec![0; count];
        self.stream.read_exact(&mut received).unwrap();
        String::from_utf8(received).unwrap()
    }

    /// So many bytes, whatever they are.
    pub(crate) fn skip(&mut self, mut count: u64) {
        let mut piece = vec![0; 1 << 20];
        while count > 0 {
            let most = piece.len().min(usize::try_from(count).unwrap_or(usize::MAX));
            let read = self.stream.read(&mut piece[..most]).unwrap();
            assert!(read > 0, "the end came {count} bytes early");
            count -= read as u64;
        }
    }

    /// The bytes up to the empty line that ends a head.
    pub(crate) fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        String::from_utf8(head).unwrap()
    }
}

/// The port that an origin listens on.
pub(crate) fn addr(origin: &Origin) -> SocketAddr {
    match origin.listens_on() {
        Listen::Tcp(addr) => *addr,
        Listen::Unix(path) => panic!("{} is no port", path.display()),
    }
}

pub(crate) fn on_any_port(threads: usize) -> Config {
    Config { threads, ..Config::new("127.0.0.1:0".parse().unwrap()) }
}
