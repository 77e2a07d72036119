//! A connection that speaks HTTP/1.1 in literal bytes, with nothing of the code under test.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// A connection, and what came on it and was not read yet.
pub(super) struct Wire {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// An answer as it came.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Wire {
    pub(super) fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("no delay");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        Self { stream, unread: Vec::new() }
    }

    /// Sends bytes; a server that has refused already may have closed its side.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        if let Err(error) = self.stream.write_all(bytes) {
            eprintln!("the server takes no more: {error}");
        }
    }

    /// Says that nothing more will be sent.
    pub(super) fn send_no_more(&mut self) {
        self.stream.shutdown(Shutdown::Write).expect("an open connection");
    }

    /// The next answer; `to_head`: it has no body, whatever length it tells.
    pub(super) fn answer(&mut self, to_head: bool) -> Result<Answer, String> {
        let end = loop {
            if let Some(at) = find(&self.unread, b"\r\n\r\n") {
                break at + 4;
            }
            self.more()?;
        };
        let head = String::from_utf8_lossy(&self.unread[..end]).into_owned();
        self.unread.drain(..end);
        let mut lines = head.trim_end().split("\r\n");
        let status_line = lines.next().unwrap_or_default();
        let status = status_line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status: u16 = status.ok_or_else(|| format!("no status line: {head}"))?;
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect();
        let mut answer = Answer { status, headers, body: Vec::new() };
        let has_body = !to_head && status >= 200 && !matches!(status, 204 | 304);
        if has_body {
            let length = answer.header("Content-Length").and_then(|length| length.parse().ok());
            let length: usize = length.ok_or_else(|| format!("no length: {head}"))?;
            while self.unread.len() < length {
                self.more()?;
            }
            answer.body = self.unread.drain(..length).collect();
        }
        Ok(answer)
    }

    /// Whether the server closes the connection without a further byte.
    pub(super) fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        // A server that had not read everything may reset the connection.
        let ended =
            self.stream.read_to_end(&mut rest).map_or_else(|error| !is_late(&error), |_| true);
        ended && rest.is_empty() && self.unread.is_empty()
    }

    fn more(&mut self) -> Result<(), String> {
        let mut bytes = [0; 64 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(format!("closed after {:?}", String::from_utf8_lossy(&self.unread))),
            Ok(count) => {
                self.unread.extend_from_slice(&bytes[..count]);
                Ok(())
            }
            Err(error) => Err(format!("{error} after {:?}", String::from_utf8_lossy(&self.unread))),
        }
    }
}

impl Answer {
    /// The value of the first header of this name.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// How long a busy machine may take; a server that lingers after a refusal closes within this too.
const PATIENCE: Duration = Duration::from_secs(20);

fn is_late(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
