//! Connections that wait for the server to close them, beside their successors.
//!
//! The side that closes first keeps the pair of ports for a minute (`TIME_WAIT`). On this side that would leave about 28,000
//! connects per minute towards one target, so the server goes first, as it has announced, and only one that does not is
//! closed by force.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::connection::Stream;

/// Limit of such connections of a thread.
pub const MAX_CLOSING: usize = 256;

/// Time that a server may take to close a connection after its last response.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub(super) struct ClosingConnections {
    /// By the token under which the poller knows them.
    streams: HashMap<u64, Stream>,
    /// Tokens with the end of their time, oldest first. Those of connections that have ended are skipped.
    deadlines: VecDeque<(Instant, u64)>,
}

impl ClosingConnections {
    /// Adds a connection. Returns the oldest one if there are too many.
    pub(super) fn add(&mut self, token: u64, stream: Stream, now: Instant) -> Option<Stream> {
        let oldest = if self.streams.len() == MAX_CLOSING { self.take_first() } else { None };
        self.streams.insert(token, stream);
        self.deadlines.push_back((now + CLOSE_TIMEOUT, token));
        oldest
    }

    pub(super) fn get_mut(&mut self, token: u64) -> Option<&mut Stream> {
        self.streams.get_mut(&token)
    }

    pub(super) fn take(&mut self, token: u64) -> Option<Stream> {
        let stream = self.streams.remove(&token);
        self.skip_ended();
        stream
    }

    /// Takes a connection that the server has not closed in time.
    pub(super) fn take_expired(&mut self, now: Instant) -> Option<Stream> {
        if self.deadline()? > now { None } else { self.take_first() }
    }

    /// End of the time of the oldest one.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadlines.front().map(|(deadline, _)| *deadline)
    }

    pub(super) fn streams(&self) -> impl Iterator<Item = &Stream> {
        self.streams.values()
    }

    fn take_first(&mut self) -> Option<Stream> {
        let (_, token) = *self.deadlines.front()?;
        self.take(token)
    }

    fn skip_ended(&mut self) {
        while let Some((_, token)) = self.deadlines.front()
            && !self.streams.contains_key(token)
        {
            self.deadlines.pop_front();
        }
    }
}
