//! A client without sockets, for unit tests and for the programs of `fuzz/` (`--cfg fuzzing`, which
//! cargo-fuzz sets).

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_http1::HeadCache;
use tollgate_http2::Fields;

use crate::endpoints;
use crate::endpoints::multipart::Multipart;
use crate::http1_connection::Http1Connection;
use crate::output::{OutputBuffer, Sent, Sink};
use crate::protocol::{Context, Need, ServerState};
use crate::state::{PageCache, Shared, ThreadCounters};

thread_local! {
    static START: Instant = Instant::now();
    static ELAPSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// A clock that each test advances on its own thread.
pub(crate) fn test_clock() -> Instant {
    START.with(|start| *start) + ELAPSED.get()
}

pub(crate) fn advance_test_clock(time: Duration) {
    ELAPSED.set(ELAPSED.get() + time);
}

/// State of a thread that uses the test clock and has no access log.
pub(crate) fn test_state() -> Shared {
    Shared {
        clock: test_clock,
        counters: ThreadCounters::for_threads(1, endpoints::names(), test_clock()).remove(0),
        default_host: "127.0.0.1:8000".into(),
        pages: PageCache::default(),
        responses: HeadCache::default(),
        delays: Arc::default(),
        recorded: None,
        log: None,
        fields: Fields::default(),
    }
}

/// The statistics of a thread, as `/counters` shows them.
#[cfg(test)]
pub(crate) fn counters(shared: &Shared) -> String {
    let counts = shared.counters.read(shared.now(), false);
    String::from_utf8(tollgate_accesslog::to_json(6, &counts)).unwrap()
}

/// Limit for bytes fetched at once.
const FETCH_BYTES_MAX: u64 = 60_000;

/// A client of one connection to a site of its own.
pub struct TestClient {
    pub(crate) shared: Shared,
    pub(crate) connection: Http1Connection,
    pub(crate) server: ServerState,
    /// Sent but not consumed.
    pub(crate) unread: Vec<u8>,
    pub received: Received,
    pub is_closed: bool,
}

impl Default for TestClient {
    fn default() -> Self {
        Self {
            shared: test_state(),
            connection: Http1Connection::default(),
            server: ServerState::Running,
            unread: Vec::new(),
            received: Received::default(),
            is_closed: false,
        }
    }
}

impl TestClient {
    /// Sends bytes and receives the responses; waits take no time. Bytes are ignored once the
    /// connection is closed.
    pub fn send(&mut self, piece: &[u8]) {
        let mut piece = piece;
        while !self.is_closed {
            match self.advance(piece) {
                Need::Until(time) => {
                    advance_test_clock(time.saturating_duration_since(test_clock()));
                }
                Need::Close(_) => self.is_closed = true,
                _ => return,
            }
            piece = &[];
        }
    }

    /// Sends bytes and receives the responses, until the connection needs more than that.
    pub(crate) fn advance(&mut self, piece: &[u8]) -> Need {
        self.unread.extend_from_slice(piece);
        loop {
            match self.step() {
                Need::Flush => {}
                Need::Fetch(_, bytes) => self.connection.fetched(bytes.min(FETCH_BYTES_MAX)),
                need => return need,
            }
        }
    }

    /// Advances the connection once and receives its output.
    pub(crate) fn step(&mut self) -> Need {
        self.with_context(|connection, unread, context| {
            let (consumed, need) = connection.advance(unread, context);
            unread.drain(..consumed);
            need
        })
    }

    /// Calls `act` with the connection and the unread bytes, and receives the output.
    pub(crate) fn with_context<T>(
        &mut self,
        act: impl FnOnce(&mut Http1Connection, &mut Vec<u8>, &mut Context<'_>) -> T,
    ) -> T {
        let mut output = OutputBuffer::default();
        let shared = &mut self.shared;
        let mut context = Context { output: &mut output, shared, server: self.server };
        let result = act(&mut self.connection, &mut self.unread, &mut context);
        let sent = output.send(&mut self.received, &mut usize::MAX.clone(), false);
        assert_eq!(sent.ok(), Some(Sent::All), "the sink takes everything");
        result
    }
}

/// Responses as received.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// All bytes except counted filler.
    pub bytes: Vec<u8>,
    /// Counted filler: its position in `bytes`, and its length.
    pub filler: Vec<(usize, u64)>,
}

impl Sink for Received {
    fn send(&mut self, bytes: &[u8], _last: bool) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// All slices but the first are filler.
    fn send_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let (first, filler) = slices.split_first().expect("at least one slice");
        self.bytes.extend_from_slice(first);
        let filler_bytes: usize = filler.iter().map(|slice| slice.len()).sum();
        let at = self.bytes.len();
        match self.filler.last_mut() {
            Some((before, bytes)) if *before == at => *bytes += filler_bytes as u64,
            _ => self.filler.push((at, filler_bytes as u64)),
        }
        Ok(first.len() + filler_bytes)
    }
}

/// A part of a multipart/form-data body: name, filename and size.
pub type Part = (Vec<u8>, Option<Vec<u8>>, u64);

/// Parses a body that arrives in pieces. Returns `None` for types other than multipart/form-data.
///
/// # Errors
///
/// The name of the error.
pub fn parts<'a>(
    content_type: &[u8],
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Option<Result<Vec<Part>, String>> {
    let parse = |mut multipart: Multipart| {
        for piece in pieces {
            multipart.feed(piece)?;
        }
        multipart.finish()
    };
    let parts = Multipart::new(content_type).transpose()?.and_then(parse);
    Some(match parts {
        Ok(parts) => {
            Ok(parts.into_iter().map(|part| (part.name, part.filename, part.bytes)).collect())
        }
        Err(error) => Err(format!("{error:?}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_skips_waits_and_counts_filler() {
        let mut client = TestClient::default();
        client
            .send(b"GET /sleep?time=60 HTTP/1.1\r\nHost: a\r\n\r\nGET /download?size=1073741824 ");
        client.send(b"HTTP/1.0\r\n\r\nGET / HTTP/1.1\r\n");
        assert!(client.is_closed);
        let received = client.received;
        let text = String::from_utf8(received.bytes.clone()).unwrap();
        assert!(text.contains("\r\n\r\n{\"time\":60.000000}HTTP/1.1 200 OK\r\n"), "{text}");
        assert_eq!(received.filler, [(text.len(), 1 << 30)]);
    }
}
