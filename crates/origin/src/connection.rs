//! One client's connection: bytes in, answers out, closing.

use std::io::{self, ErrorKind, Read};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use tollgate_eventloop::Interest;
use tollgate_wire::MAX_HEAD_BYTES;

use crate::conversation::{Conversation, Ending, Need};
use crate::output::Output;

/// A connection on which nothing moves for so long is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// A client that is sending still after the last answer is listened to for so long.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);

/// A client that is sending still after the last answer is listened to for so many bytes.
const LINGER_MAX_BYTES: usize = 1 << 20;

/// A connection sends at most so much before the others of its thread have their turn.
const TURN_BUDGET_BYTES: usize = 1 << 20;

/// An incomplete head, and as much again to read behind it.
const INPUT_BYTES: usize = 2 * MAX_HEAD_BYTES;

/// What the connections of a thread use in turns, so that an idle one holds no memory.
pub(crate) struct Scratch {
    input: Box<[u8]>,
    output: Output,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self { input: vec![0; INPUT_BYTES].into_boxed_slice(), output: Output::default() }
    }
}

/// One client's connection. Between turns it keeps only what could not be dealt with.
pub(crate) struct Connection {
    stream: TcpStream,
    conversation: Conversation,
    phase: Phase,
    unread: Vec<u8>,
    unsent: Output,
    deadline: Instant,
}

#[derive(Clone, Copy)]
enum Phase {
    /// Waits for requests.
    Reading,
    /// Waits for room to send answers, and reads nothing until they are gone.
    Writing,
    /// Everything is sent. Reads to the client's end and throws it away.
    Lingering { left_bytes: usize },
}

/// Whether a connection goes on after its turn.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It does.
    Goes,
    /// It is over and can be dropped.
    Over,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, now: Instant) -> Self {
        Self {
            stream,
            conversation: Conversation::default(),
            phase: Phase::Reading,
            unread: Vec::new(),
            unsent: Output::default(),
            deadline: now + IDLE_TIMEOUT,
        }
    }

    /// What it waits for.
    pub(crate) fn interest(&self) -> Interest {
        match self.phase {
            Phase::Reading | Phase::Lingering { .. } => Interest::Readable,
            Phase::Writing => Interest::Writable,
        }
    }

    /// No request is under way, not even half a head.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Reading)
            && self.unread.is_empty()
            && self.conversation.is_between_requests()
    }

    /// When it is to be closed, unless it has a turn before.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Reads, answers and sends as far as it goes without waiting, and within bounds.
    ///
    /// # Errors
    ///
    /// The stream's own; the connection is over then.
    pub(crate) fn turn(
        &mut self,
        scratch: &mut Scratch,
        now: Instant,
        stopping: bool,
    ) -> io::Result<Turn> {
        // A connection that failed in its turn may have left answers here that are not ours.
        scratch.output.clear();
        let mut budget_bytes = TURN_BUDGET_BYTES;
        let input_bytes = match self.phase {
            Phase::Lingering { left_bytes } => return self.linger(left_bytes, &mut scratch.input),
            Phase::Reading => match self.read(&mut scratch.input)? {
                Received::Bytes(count) => count,
                Received::Nothing => return Ok(Turn::Goes),
                Received::End => return Ok(Turn::Over),
            },
            Phase::Writing => {
                self.deadline = now + IDLE_TIMEOUT;
                if !self.unsent.send(&mut self.stream, &mut budget_bytes)? {
                    return Ok(Turn::Goes);
                }
                self.unsent = Output::default();
                // Requests that were received already are answered before more are read.
                scratch.input[..self.unread.len()].copy_from_slice(&self.unread);
                self.unread.len()
            }
        };
        self.deadline = now + IDLE_TIMEOUT;

        let mut consumed = 0;
        loop {
            let input = &scratch.input[consumed..input_bytes];
            let (count, need) = self.conversation.advance(input, &mut scratch.output, stopping);
            consumed += count;
            let all_sent = scratch.output.send(&mut self.stream, &mut budget_bytes)?;
            match need {
                _ if !all_sent => {
                    std::mem::swap(&mut self.unsent, &mut scratch.output);
                    self.phase = Phase::Writing;
                }
                Need::Room => continue,
                Need::Input => self.phase = Phase::Reading,
                Need::Close(Ending::Clean) => return Ok(Turn::Over),
                Need::Close(Ending::Linger) => {
                    self.stream.shutdown(Shutdown::Write)?;
                    self.deadline = now + LINGER_TIMEOUT;
                    self.phase = Phase::Lingering { left_bytes: LINGER_MAX_BYTES };
                    consumed = input_bytes;
                }
            }
            self.unread = scratch.input[consumed..input_bytes].to_vec();
            return Ok(Turn::Goes);
        }
    }

    /// Fills `input` with what is unread and what has arrived.
    fn read(&mut self, input: &mut [u8]) -> io::Result<Received> {
        let kept = self.unread.len();
        assert!(kept < input.len(), "an incomplete head leaves room to read");
        input[..kept].copy_from_slice(&self.unread);
        Ok(match receive(&mut self.stream, &mut input[kept..])? {
            Received::Bytes(count) => Received::Bytes(kept + count),
            other => other,
        })
    }

    fn linger(&mut self, left_bytes: usize, input: &mut [u8]) -> io::Result<Turn> {
        Ok(match receive(&mut self.stream, input)? {
            Received::Nothing => Turn::Goes,
            Received::Bytes(count) if count < left_bytes => {
                self.phase = Phase::Lingering { left_bytes: left_bytes - count };
                Turn::Goes
            }
            Received::Bytes(_) | Received::End => Turn::Over,
        })
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

enum Received {
    Bytes(usize),
    Nothing,
    End,
}

/// One read. What it leaves is reported again by the poller, so there is no second one to find out.
fn receive(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<Received> {
    match stream.read(buffer) {
        Ok(0) => Ok(Received::End),
        Ok(count) => Ok(Received::Bytes(count)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(Received::Nothing)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use rustix::net::sockopt::set_socket_linger;

    use super::*;

    #[test]
    fn an_answer_that_could_not_be_sent_is_not_given_to_the_next_client() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (stream, _) = listener.accept().unwrap();
            (client, Connection::new(stream, Instant::now()))
        };
        let mut scratch = Scratch::new();

        let (mut gone, mut connection) = connect();
        gone.write_all(b"GET /gone HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        // The close is a reset then.
        set_socket_linger(&gone, Some(Duration::ZERO)).unwrap();
        drop(gone);
        connection.turn(&mut scratch, Instant::now(), false).unwrap_err();

        let (mut client, mut connection) = connect();
        client.write_all(b"GET /?payload=1 HTTP/1.0\r\n\r\n").unwrap();
        let turn = connection.turn(&mut scratch, Instant::now(), false).unwrap();
        assert_eq!(turn, Turn::Over);
        drop(connection);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(
            answer,
            "HTTP/1.1 200 OK\r\nServer: tollgate-origin\r\nContent-Type: text/plain\r\n\
             Connection: close\r\nContent-Length: 1\r\n\r\nx"
        );
    }
}
