//! One request and its answer on a connection of its own, for readiness and the probe.

use crate::interrupt::{Interrupt, Interrupted};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use thiserror::Error;
use tollgate_load::Request;
use tollgate_wire::{Answer, ParseError, ResponseScanner, Scan};

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
) -> Result<Answer, ExchangeError> {
    let deadline = Instant::now() + limit;
    let failed = |doing| move |source| ExchangeError::Io { doing, address, source };
    let mut stream =
        TcpStream::connect_timeout(&address, limit).map_err(failed("connecting to"))?;
    stream.set_write_timeout(Some(limit)).map_err(failed("sending to"))?;
    stream.write_all(&request.bytes).map_err(failed("sending to"))?;
    let mut scanner = ResponseScanner::new();
    let mut bytes = vec![0; READ_BYTES];
    loop {
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
                return ended.ok_or(ExchangeError::Closed { address });
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
            Err(source) => return Err(failed("reading from")(source)),
        };
        let scan = scanner.feed(&bytes[..read], request.is_head);
        match scan.map_err(|source| ExchangeError::Malformed { address, source })? {
            Scan::Complete { answer, .. } => return Ok(answer),
            Scan::Partial => {}
        }
    }
}

const READ_BYTES: usize = 16 * 1024;
/// How long a wish to stop may go unseen.
const PATIENCE: Duration = Duration::from_millis(25);
