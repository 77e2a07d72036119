//! One end of a connection: literal bytes, or whole responses.

use std::io::{self, BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use tollgate_gateway::config::Address;

/// Longest wait in a test. A test that waits longer fails.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// A send without progress for this long is blocked. A slow machine may stop sooner than the buffers are full.
const BLOCKED_AFTER: Duration = Duration::from_millis(300);

/// Opens a connection with [`DEADLINE`] as its timeouts. A Unix socket is returned as a [`TcpStream`] as well: reads,
/// writes, timeouts and shutdowns are the same system calls.
pub(crate) fn connect(address: &Address) -> io::Result<TcpStream> {
    let stream = match address {
        Address::Tcp(address) => {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream
        }
        Address::Unix(path) => TcpStream::from(OwnedFd::from(UnixStream::connect(path)?)),
    };
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.set_write_timeout(Some(DEADLINE))?;
    Ok(stream)
}

/// One end of a connection. It shares no code with the gateway.
#[derive(Debug)]
pub(crate) struct Peer {
    stream: BufReader<TcpStream>,
}

impl Peer {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    pub(crate) fn connect(address: &Address) -> Self {
        Self::new(connect(address).unwrap())
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        self.stream.get_ref()
    }

    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream.into_inner()
    }

    #[track_caller]
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).unwrap();
    }

    /// Sends to a peer that may have closed the connection.
    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream().write_all(bytes.as_ref())
    }

    /// Sends until all buffers on the way are full, or all bytes are sent. Returns the number of bytes sent.
    pub(crate) fn send_until_blocked(&mut self, bytes: &[u8]) -> usize {
        self.stream().set_write_timeout(Some(BLOCKED_AFTER)).unwrap();
        let mut sent = 0;
        while sent < bytes.len() {
            match self.stream().write(&bytes[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error} after {sent} bytes"),
            }
        }
        self.stream().set_write_timeout(Some(DEADLINE)).unwrap();
        sent
    }

    /// Ends the sending direction.
    pub(crate) fn finish(&self) {
        // The peer may have closed the connection already, which the next read reports.
        let _already_closed = self.stream().shutdown(Shutdown::Write);
    }

    /// Closes the connection by a reset.
    pub(crate) fn reset(self) {
        set_socket_linger(self.stream(), Some(Duration::ZERO)).unwrap();
    }

    /// Expects exactly these bytes next.
    #[track_caller]
    pub(crate) fn expect(&mut self, expected: impl AsRef<[u8]>) {
        let expected = expected.as_ref();
        let mut received = Vec::new();
        let outcome = self.stream.by_ref().take(expected.len() as u64).read_to_end(&mut received);
        assert_eq!(
            String::from_utf8_lossy(&received),
            String::from_utf8_lossy(expected),
            "{outcome:?}"
        );
    }

    /// Expects these bytes and then the end of the connection.
    #[track_caller]
    pub(crate) fn expect_to_end(&mut self, expected: impl AsRef<[u8]>) {
        let mut received = Vec::new();
        let outcome = self.stream.read_to_end(&mut received);
        assert_eq!(
            String::from_utf8_lossy(&received),
            String::from_utf8_lossy(expected.as_ref()),
            "{outcome:?}"
        );
        outcome.unwrap();
    }

    /// Expects the response `expected`, with a `Date` that the gateway added to its header. Returns that date.
    #[track_caller]
    pub(crate) fn expect_dated(&mut self, expected: &str) -> String {
        let head = self.head().unwrap();
        let (dates, rest): (Vec<&str>, Vec<&str>) =
            head.split_inclusive("\r\n").partition(|line| line.starts_with("Date: "));
        // Such as `Sun, 06 Nov 1994 08:49:37 GMT`, which always has the same length.
        let is_date = |date: &str| date.len() == 6 + 29 + 2 && date.ends_with(" GMT\r\n");
        assert!(matches!(dates[..], [date] if is_date(date)), "{dates:?}");
        let head_end = expected.find("\r\n\r\n").unwrap() + 4;
        assert_eq!(rest.concat(), expected[..head_end]);
        self.expect(&expected[head_end..]);
        dates[0]["Date: ".len()..].trim_end().to_owned()
    }

    /// Expects a response that the gateway generated, with this status.
    #[track_caller]
    pub(crate) fn expect_local_response(&mut self, status: u16) -> Response {
        let response = self.response().unwrap();
        assert_eq!(response.status, status, "{response:?}");
        assert_eq!(response.header("Content-Type"), Some("text/plain; charset=utf-8"));
        assert!(
            response.header("Date").is_some() && response.body.ends_with(b"\n"),
            "{response:?}"
        );
        response
    }

    /// Expects the end of the connection or a reset, and no byte before it.
    #[track_caller]
    pub(crate) fn expect_closed(&mut self) {
        let received = self.read_to_close();
        assert!(received.is_empty(), "{}", received.escape_ascii());
    }

    /// Expects a reset, and no byte before it.
    #[track_caller]
    pub(crate) fn expect_reset(&mut self) {
        let error = self.stream.read(&mut [0; 64]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }

    /// Expects that nothing has arrived. What must not have been sent has to be due before this call, see
    /// [`turn`](super::TestGateway::turn).
    #[track_caller]
    pub(crate) fn expect_nothing_yet(&mut self) {
        self.stream().set_nonblocking(true).unwrap();
        let received = self.stream.fill_buf().map(<[u8]>::to_vec);
        assert_eq!(received.unwrap_err().kind(), ErrorKind::WouldBlock);
        self.stream().set_nonblocking(false).unwrap();
    }

    /// Reads to the end of the connection, which may be a reset.
    #[track_caller]
    pub(crate) fn read_to_close(&mut self) -> Vec<u8> {
        let mut received = Vec::new();
        match self.stream.read_to_end(&mut received) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => {
                panic!("{error} after {}", received.escape_ascii())
            }
            _end => received,
        }
    }

    pub(crate) fn read(&mut self, count: usize) -> Vec<u8> {
        let mut received = vec![0; count];
        self.stream.read_exact(&mut received).unwrap();
        received
    }

    /// Reads a header section, with its empty line.
    pub(crate) fn head(&mut self) -> io::Result<String> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            head += &self.line()?;
            head += "\r\n";
        }
        Ok(head)
    }

    /// Sends a request and reads its response.
    pub(crate) fn request(&mut self, request: impl AsRef<[u8]>) -> io::Result<Response> {
        self.try_send(request)?;
        self.response()
    }

    pub(crate) fn get(&mut self, path: &str) -> io::Result<Response> {
        self.request(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"))
    }

    /// Reads a response with a body that has a length or is chunked; other responses are read without a body.
    pub(crate) fn response(&mut self) -> io::Result<Response> {
        let head = self.head()?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| invalid(format!("no status in {head:?}")))?;
        let mut response = Response { status, head, body: Vec::new() };
        if let Some(length) = response.header("Content-Length") {
            let length = length.parse().map_err(|error| invalid(format!("{error}: {length}")))?;
            response.body.resize(length, 0);
            self.stream.read_exact(&mut response.body)?;
        } else if response.header("Transfer-Encoding") == Some("chunked") {
            response.body = self.chunked_body()?;
        }
        Ok(response)
    }

    /// Reads chunks up to the last one; a trailer section is an error.
    pub(crate) fn chunked_body(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let size = u64::from_str_radix(&line, 16)
                .map_err(|error| invalid(format!("chunk size {line:?}: {error}")))?;
            if self.stream.by_ref().take(size).read_to_end(&mut body)? as u64 != size {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let line = self.line()?;
            if !line.is_empty() {
                return Err(invalid(format!("{line:?} after a chunk")));
            }
            if size == 0 {
                return Ok(body);
            }
        }
    }

    /// Reads a line that ends in CR LF, without that.
    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        match line.strip_suffix(b"\r\n") {
            Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
            None if line.ends_with(b"\n") => Err(invalid(line.escape_ascii().to_string())),
            None => Err(ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// The value of the first header of this name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// True if the connection closes after it.
    pub(crate) fn is_last(&self) -> bool {
        self.header("Connection") == Some("close")
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// True if a connection ended or was reset, in contrast to a timeout or an invalid response.
pub(crate) fn is_disconnect(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}

fn invalid(reason: String) -> Error {
    Error::new(ErrorKind::InvalidData, reason)
}
