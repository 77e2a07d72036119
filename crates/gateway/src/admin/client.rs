//! One client of the admin listener: a request, its answer, and the end.

use std::io::{self, ErrorKind};
use std::time::Instant;

use tollgate_eventloop::Socket;

const READ_BYTES: usize = 1024;

/// A client's connection.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) socket: Socket,
    /// When it has taken too long.
    pub(super) late_at: Instant,
    request: Vec<u8>,
    /// None: the request has not come to its end.
    answer: Option<Vec<u8>>,
    sent_bytes: usize,
}

/// What a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Something to read.
    Reads,
    /// Room to write.
    Writes,
    /// Nothing: it is over.
    Over,
}

impl Client {
    pub(super) fn new(socket: Socket, late_at: Instant) -> Self {
        Self { socket, late_at, request: Vec::new(), answer: None, sent_bytes: 0 }
    }

    /// Goes on as far as it can without waiting. `answer` is asked for the answer to what has come, and gives
    /// none as long as that is not all.
    pub(super) fn go_on(&mut self, answer: impl FnOnce(&[u8]) -> Option<String>) -> Step {
        match self.move_on(answer) {
            Ok(step) => step,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                if self.is_sending() { Step::Writes } else { Step::Reads }
            }
            // A client that goes away has itself to blame.
            Err(_) => Step::Over,
        }
    }

    /// Its time is over. One who has not said what it wants is told so.
    pub(super) fn is_late(&self, word: &str) {
        if self.answer.is_none() {
            // A new connection has room for it, and one that is gone has nobody to read it.
            self.socket.send(word.as_bytes()).ok();
        }
    }

    fn move_on(&mut self, answer: impl FnOnce(&[u8]) -> Option<String>) -> io::Result<Step> {
        if !self.is_sending() {
            let mut bytes = [0; READ_BYTES];
            let count = self.socket.receive(&mut bytes)?;
            if count == 0 {
                return Ok(Step::Over);
            }
            if self.answer.is_some() {
                // What comes behind the request is thrown away; closing over it would be a reset, which can
                // overtake the answer.
                return Ok(Step::Reads);
            }
            self.request.extend_from_slice(&bytes[..count]);
            match answer(&self.request) {
                Some(text) => self.answer = Some(text.into_bytes()),
                None => return Ok(Step::Reads),
            }
        }
        while let Some(rest) = self.rest() {
            self.sent_bytes += self.socket.send(rest)?;
        }
        self.socket.shutdown_write()?;
        Ok(Step::Reads)
    }

    /// What of the answer is not sent yet.
    fn rest(&self) -> Option<&[u8]> {
        self.answer
            .as_ref()
            .map(|answer| &answer[self.sent_bytes..])
            .filter(|rest| !rest.is_empty())
    }

    fn is_sending(&self) -> bool {
        self.rest().is_some()
    }
}
