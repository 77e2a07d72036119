//! One request and its answer on a connection of its own, for readiness and the probe.

use crate::interrupt::{Interrupt, Interrupted};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use thiserror::Error;
use tollgate_load::Request;
use tollgate_wire::{Answer, BodySearch, HeadMemo, Needle, ParseError, ResponseScanner, Scan};

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Its status and the length of its body.
    pub answer: Answer,
    /// Whether the text that the request expects in the body is there; so it is where none is.
    pub has_text: bool,
}

/// Why there was no answer.
#[derive(Debug, Error)]
pub enum ExchangeError {
    /// The connection failed.
    #[error("{doing} {address}")]
    Io {
        /// Connecting, sending or reading.
        doing: &'static str,
        /// The peer.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// What came is not HTTP.
    #[error("the answer of {address} is not HTTP")]
    Malformed {
        /// The peer.
        address: SocketAddr,
        /// Why not.
        source: ParseError,
    },
    /// The answer stopped before its end.
    #[error("{address} closed the connection without an answer")]
    Closed {
        /// The peer.
        address: SocketAddr,
    },
    /// The run was asked to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// The answer took too long.
    #[error("{address} did not answer within {} s", limit.as_secs())]
    TooSlow {
        /// The peer.
        address: SocketAddr,
        /// How long it had.
        limit: Duration,
    },
}

/// Sends a request and waits for the whole answer.
///
/// # Errors
///
/// There was no complete answer within the limit, or the run was asked to stop.
pub fn exchange(
    address: SocketAddr,
    request: &Request,
    limit: Duration,
    interrupt: &Interrupt,
) -> Result<Reply, ExchangeError> {
    exchange_with(address, request, limit, interrupt, &mut |_| {})
}

/// The same, and hands on each piece of the answer's body as it comes in.
///
/// # Errors
///
/// As for [`exchange`].
pub fn exchange_with(
    address: SocketAddr,
    request: &Request,
    limit: Duration,
    interrupt: &Interrupt,
    on_piece: &mut dyn FnMut(&[u8]),
) -> Result<Reply, ExchangeError> {
    let deadline = Instant::now() + limit;
    let failed = |doing| move |source| ExchangeError::Io { doing, address, source };
    let mut stream =
        TcpStream::connect_timeout(&address, limit).map_err(failed("connecting to"))?;
    stream.set_write_timeout(Some(limit)).map_err(failed("sending to"))?;
    let refused = match stream.write_all(&request.bytes) {
        Ok(()) => None,
        // It has closed before it had all of the request: what it said before that is its answer.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
            ) =>
        {
            Some(error)
        }
        Err(error) => return Err(failed("sending to")(error)),
    };
    let mut scanner = ResponseScanner::new();
    let mut heads = HeadMemo::new();
    let needle = request.expect.body_contains.as_deref().and_then(Needle::new);
    let mut search = BodySearch::new();
    let mut bytes = vec![0; READ_BYTES];
    let answer = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ExchangeError::TooSlow { address, limit });
        }
        interrupt.check()?;
        stream.set_read_timeout(Some(left.min(PATIENCE))).map_err(failed("reading from"))?;
        let read = match stream.read(&mut bytes) {
            Ok(0) => {
                let ended = scanner.close();
                let ended = ended.map_err(|source| ExchangeError::Malformed { address, source })?;
                break match (ended, refused) {
                    (Some(answer), _) => answer,
                    (None, Some(source)) => return Err(failed("sending to")(source)),
                    (None, None) => return Err(ExchangeError::Closed { address }),
                };
            }
            Ok(read) => read,
            // Nothing yet, or a signal: the loop's own deadline and the wish to stop decide.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                continue;
            }
            Err(source) => {
                // Where the request was refused half-way, that is what went wrong first.
                let (doing, source) = match refused {
                    Some(refused) => ("sending to", refused),
                    None => ("reading from", source),
                };
                return Err(failed(doing)(source));
            }
        };
        let scan = scanner.feed(&bytes[..read], request.is_head, &mut heads, |piece| {
            if let Some(needle) = &needle {
                search.feed(needle, piece);
            }
            on_piece(piece);
        });
        match scan.map_err(|source| ExchangeError::Malformed { address, source })? {
            Scan::Complete { answer, .. } => break answer,
            Scan::Partial => {}
        }
    };
    Ok(Reply { answer, has_text: needle.is_none() || search.found() })
}

const READ_BYTES: usize = 16 * 1024;
/// How long a wish to stop may go unseen.
const PATIENCE: Duration = Duration::from_millis(25);

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::sync::Arc;
    use tollgate_load::Expectation;

    /// What comes of asking a server, which answers with these bytes, for a text.
    fn reply(answer: &'static [u8], text: Option<&[u8]>) -> Reply {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 18];
            stream.read_exact(&mut request).unwrap();
            stream.write_all(answer).unwrap();
        });
        let request = Request {
            bytes: b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            is_head: false,
            expect: Expectation { body_contains: text.map(Arc::from), ..Expectation::default() },
            template: 0,
        };
        let reply = exchange(address, &request, Duration::from_secs(10), &Interrupt::default());
        server.join().unwrap();
        reply.unwrap()
    }

    /// What comes of sending a body that nobody reads, to a server that does this and then closes.
    fn refused(server: impl FnOnce(&mut TcpStream) + Send + 'static) -> Result<u16, String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // The head, and of the body what came with it.
            let mut request = [0; 1024];
            stream.read_exact(&mut request).unwrap();
            server(&mut stream);
        });
        let head = b"POST / HTTP/1.1\r\nContent-Length: 33554432\r\n\r\n";
        let mut bytes = head.to_vec();
        // More than the buffers of both sockets hold: closing comes before its end is written.
        bytes.resize(head.len() + (32 << 20), b'a');
        let request =
            Request { bytes, is_head: false, expect: Expectation::default(), template: 0 };
        let reply = exchange(address, &request, Duration::from_secs(30), &Interrupt::default());
        server.join().unwrap();
        reply.map(|reply| reply.answer.status).map_err(|error| error.to_string())
    }

    #[test]
    fn an_answer_that_comes_before_the_body_was_read_is_read() {
        let answer = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno";
        assert_eq!(refused(|stream| stream.write_all(answer).unwrap()), Ok(413));
        let error = refused(|_| {}).unwrap_err();
        assert!(error.starts_with("sending to 127.0.0.1:"), "{error}");
    }

    #[test]
    fn a_text_is_looked_for_in_the_body_without_its_coding() {
        let chunked =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nwel\r\n4\r\ncome\r\n0\r\n\r\n";
        let to_the_end = b"HTTP/1.1 404 Not Found\r\n\r\nwelcome";
        assert!(reply(chunked, Some(b"welcome")).has_text);
        assert!(!reply(chunked, Some(b"chunked")).has_text);
        assert!(reply(chunked, None).has_text);
        assert!(reply(to_the_end, Some(b"come")).has_text);
        let Reply { answer, has_text } = reply(to_the_end, Some(b"Found"));
        assert_eq!((answer.status, answer.body_bytes, has_text), (404, 7, false));
    }
}
