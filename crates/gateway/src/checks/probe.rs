//! One check of one backend: a connection, a request, and the head of its answer.

use std::io;

use tollgate_eventloop::Socket;
use tollgate_wire::{MAX_HEAD_BYTES, ParseError, parse_answer_head};

use crate::config::Address;
use crate::shortage::Shortage;

/// A check that is under way.
#[derive(Debug)]
pub(super) struct Probe {
    socket: Socket,
    sent_bytes: usize,
    answer: Vec<u8>,
}

/// Why a backend is not well.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("it cannot be connected to: {0}")]
    Connect(#[source] io::Error),
    #[error("the connection has failed: {0}")]
    Connection(#[source] io::Error),
    #[error("it closed the connection without an answer")]
    Closed,
    #[error("its answer is no HTTP/1: {0}")]
    Answer(#[source] ParseError),
    #[error("it answered with {0}")]
    Status(u16),
    #[error("it did not answer in time")]
    Late,
}

impl Failure {
    /// What has run out here, if that is why.
    pub(super) fn shortage(&self) -> Option<Shortage> {
        match self {
            Self::Connect(error) => Shortage::of(error),
            _ => None,
        }
    }
}

const READ_BYTES: usize = 4096;

impl Probe {
    /// Starts to connect. Whoever waits for [`socket`](Self::socket) to be ready goes on.
    pub(super) fn start(address: &Address) -> Result<Self, Failure> {
        let socket = match address {
            Address::Tcp(address) => Socket::connect(*address),
            Address::Unix(path) => Socket::connect_unix(path),
        };
        let socket = socket.map_err(Failure::Connect)?;
        Ok(Self { socket, sent_bytes: 0, answer: Vec::new() })
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Goes on as far as it can without waiting. Whether the answer was a good one, once it is there.
    pub(super) fn go_on(&mut self, request: &[u8]) -> Option<Result<(), Failure>> {
        match self.socket.error() {
            Ok(None) => {}
            Ok(Some(error)) if self.sent_bytes == 0 => return Some(Err(Failure::Connect(error))),
            Ok(Some(error)) | Err(error) => return Some(Err(Failure::Connection(error))),
        }
        while self.sent_bytes < request.len() {
            match self.socket.send(&request[self.sent_bytes..]) {
                Ok(bytes) => self.sent_bytes += bytes,
                Err(error) if would_block(&error) => return None,
                Err(error) => return Some(Err(Failure::Connection(error))),
            }
        }
        loop {
            let old_bytes = self.answer.len();
            self.answer.resize(old_bytes + READ_BYTES, 0);
            let received = self.socket.receive(&mut self.answer[old_bytes..]);
            self.answer.truncate(old_bytes + received.as_ref().copied().unwrap_or(0));
            match received {
                Ok(0) => return Some(Err(Failure::Closed)),
                Ok(_) => {
                    if let Some(judged) = judge(&mut self.answer) {
                        return Some(judged);
                    }
                }
                Err(error) if would_block(&error) => return None,
                Err(error) => return Some(Err(Failure::Connection(error))),
            }
        }
    }
}

fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Judges the first final answer, once its head is whole. Its body does not matter.
fn judge(answer: &mut Vec<u8>) -> Option<Result<(), Failure>> {
    loop {
        let (status, len) = match parse_answer_head(answer, false) {
            Ok(Some(head)) => (head.status, head.len),
            // The parser refuses a head that is longer than one may be.
            Ok(None) => return None,
            Err(error) => return Some(Err(Failure::Answer(error))),
        };
        match status {
            100..=199 => drop(answer.drain(..len)),
            200..=399 => return Some(Ok(())),
            _ => return Some(Err(Failure::Status(status))),
        }
    }
}

const _: () = assert!(MAX_HEAD_BYTES > READ_BYTES, "a head may come in several reads");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_of_200_to_399_is_good_whatever_comes_before_or_after_it() {
        let judged =
            |answer: &[u8]| judge(&mut answer.to_vec()).map(|it| it.map_err(|e| e.to_string()));
        for good in [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"[..],
            b"HTTP/1.0 399 Odd\r\n\r\nbody",
            b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
        ] {
            assert_eq!(judged(good), Some(Ok(())), "{}", good.escape_ascii());
        }
        for part in [&b""[..], b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"] {
            assert_eq!(judged(part), None, "{}", part.escape_ascii());
        }
        assert_eq!(
            judged(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
            Some(Err("it answered with 400".to_owned()))
        );
        let odd = judged(b"220 mail.example.org ESMTP\r\n").unwrap().unwrap_err();
        assert!(odd.starts_with("its answer is no HTTP/1: "), "{odd}");
    }
}
