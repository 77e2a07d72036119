//! A gateway, a backend that says what it is told to, and a client that reads and writes literal bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use tollgate_gateway::config::{Address, Forwarded};
use tollgate_gateway::{Config, Gateway};

/// A test fails rather than hangs after so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A gateway that serves until dropped.
pub(crate) struct Served {
    pub(crate) addr: SocketAddr,
    gateway: Option<Gateway>,
}

impl Served {
    pub(crate) fn start(config: Config) -> Self {
        Self::of(Gateway::start(config).unwrap())
    }

    pub(crate) fn of(gateway: Gateway) -> Self {
        let addr = match gateway.addresses().next() {
            Some(Address::Tcp(addr)) => *addr,
            other => panic!("{other:?} is no port"),
        };
        Self { addr, gateway: Some(gateway) }
    }

    pub(crate) fn client(&self) -> Peer {
        Peer::new(TcpStream::connect(self.addr).unwrap())
    }

    pub(crate) fn gateway(&mut self) -> &mut Gateway {
        self.gateway.as_mut().unwrap()
    }

    /// Waits until it has ended, which it was told to.
    pub(crate) fn join(mut self) {
        self.gateway.take().unwrap().join().unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(gateway) = self.gateway.take() {
            gateway.drain().unwrap();
        }
    }
}

/// A backend that says what the test has it say.
pub(crate) struct Backend {
    listener: TcpListener,
}

impl Backend {
    pub(crate) fn start() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").unwrap() }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    pub(crate) fn address(&self) -> Address {
        Address::Tcp(self.addr())
    }

    /// The next connection of the gateway.
    pub(crate) fn accept(&self) -> Peer {
        let until = Instant::now() + PATIENCE;
        self.listener.set_nonblocking(true).unwrap();
        let stream = loop {
            match self.listener.accept() {
                Ok((stream, _)) => break stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    assert!(Instant::now() < until, "nobody has connected");
                    std::thread::sleep(Duration::from_micros(200));
                }
                Err(error) => panic!("{error}"),
            }
        };
        self.listener.set_nonblocking(false).unwrap();
        stream.set_nonblocking(false).unwrap();
        Peer::new(stream)
    }

    /// No connection is waiting.
    pub(crate) fn expect_nobody(&self) {
        self.listener.set_nonblocking(true).unwrap();
        let error = self.listener.accept().map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        self.listener.set_nonblocking(false).unwrap();
    }

    /// A gateway in front of it that adds nothing to heads.
    pub(crate) fn gateway(&self) -> Served {
        Served::start(self.config())
    }

    pub(crate) fn config(&self) -> Config {
        let listen = Address::Tcp("127.0.0.1:0".parse().unwrap());
        Config { forwarded: SILENT, ..Config::new(listen, self.address()) }
    }
}

pub(crate) const SILENT: Forwarded =
    Forwarded { via: None, x_forwarded: false, forwarded: false, trust_client: false };

/// One end of a connection that knows no HTTP.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
}

impl Peer {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Exactly as many bytes as `expected` has must come, and be those.
    #[track_caller]
    pub(crate) fn expect(&mut self, expected: impl AsRef<[u8]>) {
        let expected = expected.as_ref();
        let mut received = vec![0; expected.len()];
        let mut count = 0;
        while count < expected.len() {
            match self.stream.read(&mut received[count..]) {
                Ok(0) => break,
                Ok(more) => count += more,
                Err(error) => panic!(
                    "{error} after {:?} of {:?}",
                    String::from_utf8_lossy(&received[..count]),
                    String::from_utf8_lossy(expected)
                ),
            }
        }
        assert_eq!(String::from_utf8_lossy(&received[..count]), String::from_utf8_lossy(expected));
    }

    /// `expected`, with one `Date` more in its head, which is the gateway's, must come. Gives that date.
    #[track_caller]
    pub(crate) fn expect_dated(&mut self, expected: &str) -> String {
        let (dates, rest): (Vec<String>, Vec<String>) = self
            .head()
            .split_inclusive("\r\n")
            .map(str::to_owned)
            .partition(|line| line.starts_with("Date: "));
        // Such as `Sun, 06 Nov 1994 08:49:37 GMT`, which always has the same length.
        let is_date = |date: &str| date.len() == 6 + 29 + 2 && date.ends_with(" GMT\r\n");
        assert!(matches!(&dates[..], [date] if is_date(date)), "{dates:?}");
        let head_end = expected.find("\r\n\r\n").unwrap() + 4;
        assert_eq!(rest.concat(), expected[..head_end]);
        self.expect(&expected[head_end..]);
        dates[0]["Date: ".len()..].trim_end().to_owned()
    }

    /// `expected` and then the end must come.
    #[track_caller]
    pub(crate) fn expect_last(&mut self, expected: impl AsRef<[u8]>) {
        let mut received = Vec::new();
        self.stream.read_to_end(&mut received).unwrap();
        assert_eq!(String::from_utf8_lossy(&received), String::from_utf8_lossy(expected.as_ref()));
    }

    /// Nothing but the end must come, in whatever way.
    #[track_caller]
    pub(crate) fn expect_end(&mut self) {
        match self.stream.read(&mut [0; 64]) {
            Ok(0) => {}
            Ok(count) => panic!("{count} bytes came"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }

    /// Nothing comes for a moment.
    #[track_caller]
    pub(crate) fn expect_nothing(&mut self) {
        self.stream.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
        let error = self.stream.read(&mut [0; 64]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    }

    /// A reset must come.
    #[track_caller]
    pub(crate) fn expect_reset(&mut self) {
        let error = self.stream.read(&mut [0; 64]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
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

    /// So many bytes, whatever they are.
    pub(crate) fn read(&mut self, count: usize) -> Vec<u8> {
        let mut received = vec![0; count];
        self.stream.read_exact(&mut received).unwrap();
        received
    }

    /// Nothing more is sent.
    pub(crate) fn finish(&self) {
        self.stream.shutdown(std::net::Shutdown::Write).unwrap();
    }
}

/// A request that backends see as it is.
pub(crate) const GET: &str = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
/// An answer that clients see as it is.
pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\n\r\nhi";
