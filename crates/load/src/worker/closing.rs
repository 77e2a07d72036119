//! Connections that wait for the server to close them, beside their successors.
//!
//! The side that closes first keeps the pair of ports for a minute (`TIME_WAIT`). On this side that would leave about 28,000
//! connects per minute towards one target, so the server goes first, as it has announced, and only one that does not is
//! closed by force.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::connection::Stream;

/// Time that a server may take to close a connection after its last response.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct ClosingConnections {
    /// Oldest first, which servers close first.
    waiting: VecDeque<Closing>,
    /// Above zero.
    max: usize,
}

#[derive(Debug)]
struct Closing {
    /// Under which the poller knows it.
    token: u64,
    deadline: Instant,
    stream: Stream,
}

impl ClosingConnections {
    pub(super) fn new(max: usize) -> Self {
        Self { waiting: VecDeque::new(), max }
    }

    /// Adds a connection. Returns the oldest one if there are too many.
    pub(super) fn add(&mut self, token: u64, stream: Stream, now: Instant) -> Option<Stream> {
        let oldest = if self.waiting.len() >= self.max { self.waiting.pop_front() } else { None };
        self.waiting.push_back(Closing { token, deadline: now + CLOSE_TIMEOUT, stream });
        oldest.map(|closing| closing.stream)
    }

    pub(super) fn get_mut(&mut self, token: u64) -> Option<&mut Stream> {
        let closing = self.waiting.iter_mut().find(|closing| closing.token == token);
        closing.map(|closing| &mut closing.stream)
    }

    pub(super) fn take(&mut self, token: u64) -> Option<Stream> {
        let place = self.waiting.iter().position(|closing| closing.token == token)?;
        self.waiting.remove(place).map(|closing| closing.stream)
    }

    /// Takes a connection that the server has not closed in time.
    pub(super) fn take_expired(&mut self, now: Instant) -> Option<Stream> {
        let is_expired = self.deadline().is_some_and(|deadline| deadline <= now);
        if is_expired { self.waiting.pop_front().map(|closing| closing.stream) } else { None }
    }

    /// End of the time of the oldest one.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.waiting.front().map(|closing| closing.deadline)
    }

    pub(super) fn streams(&self) -> impl Iterator<Item = &Stream> {
        self.waiting.iter().map(|closing| &closing.stream)
    }
}
