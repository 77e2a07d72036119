//! One connection: sending requests, and receiving their answers.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use thiserror::Error;
use tollgate_eventloop::{Interest, Poller, connect, connect_error};
use tollgate_wire::{Answer, ResponseScanner, Scan};

use crate::failure::Failure;

/// A nonblocking connection that the poller knows by its token.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    token: u64,
    scanner: ResponseScanner,
    /// How much of the request under way is sent.
    sent_bytes: usize,
    /// Whether the poller also watches for room to write.
    awaits_room: bool,
    is_reused: bool,
}

/// What a look at the socket brought.
#[derive(Debug)]
pub(crate) enum Received {
    /// The answer is not complete.
    Part,
    /// The answer is complete.
    Answer(Answer),
    /// There will be no answer.
    Failure(Failure),
}

/// How often a large answer is read before other connections have their turn.
const READS_PER_TURN_MAX: usize = 16;

impl Connection {
    /// Starts to connect; the poller reports the token when the attempt has ended.
    pub(crate) fn start(poller: &Poller, token: u64, target: SocketAddr) -> io::Result<Self> {
        let stream = connect(target)?;
        poller.add(&stream, token, Interest::Writable)?;
        Ok(Self {
            stream,
            token,
            scanner: ResponseScanner::new(),
            sent_bytes: 0,
            awaits_room: true,
            is_reused: false,
        })
    }

    /// The attempt to connect has ended: well, or with the error.
    pub(crate) fn establish(&mut self, poller: &Poller) -> io::Result<()> {
        if let Some(error) = connect_error(&self.stream)? {
            return Err(error);
        }
        self.watch_room(poller, false)
    }

    /// Another request follows on this connection.
    pub(crate) fn reuse(&mut self) {
        self.is_reused = true;
        self.sent_bytes = 0;
    }

    /// Sends what is left of a request, as far as there is room; the poller reports when there is
    /// more.
    pub(crate) fn send(&mut self, poller: &Poller, request: &[u8]) -> io::Result<()> {
        while self.sent_bytes < request.len() {
            match self.stream.write(&request[self.sent_bytes..]) {
                Ok(bytes) => self.sent_bytes += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return self.watch_room(poller, true);
                }
                Err(error) => return Err(error),
            }
        }
        self.watch_room(poller, false)
    }

    /// Whether a failed send means that the server had closed the connection between two requests,
    /// and saw nothing of the second one.
    pub(crate) fn was_closed_between(&self, error: &io::Error) -> bool {
        let is_gone = matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset);
        self.is_reused && self.sent_bytes == 0 && is_gone
    }

    pub(crate) fn has_sent(&self, request: &[u8]) -> bool {
        self.sent_bytes == request.len()
    }

    /// Receives what there is, by way of a scratch buffer, and says how many bytes there were. A
    /// read that leaves room in the buffer has emptied the socket, so that no second one is made to
    /// learn that.
    pub(crate) fn receive(&mut self, buffer: &mut [u8], to_head: bool) -> (Received, usize) {
        let mut received_bytes = 0;
        for _ in 0..READS_PER_TURN_MAX {
            let bytes = match self.stream.read(buffer) {
                Ok(0) => return (self.closed(), received_bytes),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    return (Received::Failure(Failure::io("receiving", &error)), received_bytes);
                }
            };
            received_bytes += bytes;
            match self.scanner.feed(&buffer[..bytes], to_head) {
                Ok(Scan::Partial) if bytes < buffer.len() => break,
                Ok(Scan::Partial) => {}
                Ok(Scan::Complete { answer, consumed }) if consumed == bytes => {
                    return (Received::Answer(answer), received_bytes);
                }
                Ok(Scan::Complete { consumed, .. }) => {
                    let surplus = Surplus { bytes: bytes - consumed };
                    return (Received::Failure(Failure::malformed(&surplus)), received_bytes);
                }
                Err(error) => {
                    return (Received::Failure(Failure::malformed(&error)), received_bytes);
                }
            }
        }
        (Received::Part, received_bytes)
    }

    fn closed(&mut self) -> Received {
        match self.scanner.close() {
            Ok(Some(answer)) => Received::Answer(answer),
            Ok(None) => Received::Failure(Failure::ClosedEarly),
            Err(error) => Received::Failure(Failure::malformed(&error)),
        }
    }

    fn watch_room(&mut self, poller: &Poller, awaits_room: bool) -> io::Result<()> {
        if self.awaits_room != awaits_room {
            let interest = if awaits_room { Interest::Both } else { Interest::Readable };
            poller.modify(&self.stream, self.token, interest)?;
            self.awaits_room = awaits_room;
        }
        Ok(())
    }
}

/// The server sent more than its answer's framing says.
#[derive(Debug, Error)]
#[error("{bytes} bytes follow the answer's end, and no request asks for them")]
struct Surplus {
    bytes: usize,
}
