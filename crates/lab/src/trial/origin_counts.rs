//! How many requests each of several origins was asked, as it counts them itself: a system that is to
//! spread them evenly could also send them all to one.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use thiserror::Error;

/// Why what an origin counted is not known.
#[derive(Debug, Error)]
pub enum CountError {
    /// It could not be asked.
    #[error("asking the origin at {address} for /counters")]
    Io {
        /// Where it listens.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// It answered something else.
    #[error("reading what the origin at {address} answered to /counters")]
    Answer {
        /// Where it listens.
        address: SocketAddr,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// Asks each origin how many requests it has got so far, those for its counters left out. Of a single
/// one there is nothing to find out, and it is not asked.
///
/// # Errors
///
/// One does not answer, or not as the origin does.
pub fn read(origins: &[SocketAddr]) -> Result<Vec<u64>, CountError> {
    let several = if origins.len() > 1 { origins } else { &[] };
    several.iter().map(|address| requests_at(*address)).collect()
}

/// What each was asked between two readings.
pub fn between(before: &[u64], after: &[u64]) -> Vec<u64> {
    before.iter().zip(after).map(|(before, after)| after.saturating_sub(*before)).collect()
}

/// How long an origin may take for it, which shares its CPUs with others that are busy.
const LIMIT: Duration = Duration::from_secs(5);
/// What the counters come to is a kilobyte.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;
const PATH: &str = "/counters";

fn requests_at(address: SocketAddr) -> Result<u64, CountError> {
    let answer = ask(address).map_err(|source| CountError::Io { address, source })?;
    requests_in(&answer).map_err(|source| CountError::Answer { address, source })
}

fn ask(address: SocketAddr) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    write!(stream, "GET {PATH} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(answer)
}

/// The part of the counters that is of interest.
#[derive(Deserialize)]
struct Counters {
    requests: u64,
    paths: BTreeMap<String, u64>,
}

fn requests_in(answer: &[u8]) -> Result<u64, serde_json::Error> {
    const END: &[u8] = b"\r\n\r\n";
    let head = answer.windows(END.len()).position(|window| window == END);
    let body = head.map_or(&[][..], |head| &answer[head + END.len()..]);
    let counters: Counters = serde_json::from_slice(body)?;
    let own = counters.paths.get(PATH).copied().unwrap_or(0);
    Ok(counters.requests.saturating_sub(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_for_the_counters_are_not_counted() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 58\r\n\r\n\
            {\"requests\":12,\"refused\":1,\"paths\":{\"/\":9,\"/counters\":2}}";
        assert_eq!(requests_in(answer).unwrap(), 10);
        assert!(requests_in(b"HTTP/1.1 404 Not Found\r\n\r\nno such path").is_err());
        assert!(requests_in(b"").is_err());
    }

    #[test]
    fn a_window_holds_what_was_asked_since_its_begin() {
        assert_eq!(between(&[10, 20], &[15, 24]), [5, 4]);
    }

    #[test]
    fn a_single_origin_is_not_asked() {
        // Nothing listens there.
        let nowhere: SocketAddr = "127.0.0.1:1".parse().unwrap();
        assert!(read(&[nowhere]).unwrap().is_empty());
        assert!(matches!(read(&[nowhere, nowhere]), Err(CountError::Io { .. })));
    }
}
