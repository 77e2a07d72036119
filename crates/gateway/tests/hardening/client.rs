//! A client that knows no HTTP, and may speak over either kind of socket.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use tollgate_gateway::config::Address;

/// A test fails rather than hangs after so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to a proxy.
#[derive(Debug)]
pub(crate) enum Client {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Client {
    pub(crate) fn connect(address: &Address) -> io::Result<Self> {
        let client = match address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Self::Tcp(stream)
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Self::Unix(stream)
            }
        };
        client.wait_at_most(PATIENCE)?;
        Ok(client)
    }

    /// For how long a read waits.
    pub(crate) fn wait_at_most(&self, time: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(Some(time)),
            Self::Unix(stream) => stream.set_read_timeout(Some(time)),
        }
    }

    /// Says that nothing more will be sent.
    pub(crate) fn finish(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.write_all(bytes).unwrap();
    }

    /// What comes up to the end of the connection, which a reset is as well.
    pub(crate) fn read_to_close(&mut self) -> Vec<u8> {
        let mut received = Vec::new();
        match self.read_to_end(&mut received) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("{error} after {}", received.escape_ascii()),
        }
        received
    }

    /// Exactly as many bytes as `expected` has must come, and be those.
    pub(crate) fn expect(&mut self, expected: &str) {
        let mut received = vec![0; expected.len()];
        self.read_exact(&mut received).unwrap();
        assert_eq!(
            received.escape_ascii().to_string(),
            expected.as_bytes().escape_ascii().to_string()
        );
    }

    /// The bytes up to the empty line that ends a head.
    pub(crate) fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        String::from_utf8(head).unwrap()
    }
}

impl Read for Client {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Client {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
