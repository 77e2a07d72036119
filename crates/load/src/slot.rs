//! One of the connections that a thread keeps busy, through all its sockets.

use std::time::{Duration, Instant};

use crate::connection::Connection;

/// A place for one connection, which is replaced when it ends.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) state: State,
    /// The request under way, as an index into the workload; the last one when there is none.
    pub(crate) request: usize,
    /// Where the latency of that request counts from.
    pub(crate) begun: Instant,
    /// When the state has lasted too long.
    pub(crate) deadline: Option<Instant>,
}

/// What a slot does.
#[derive(Debug)]
pub(crate) enum State {
    /// Nothing: it has not begun, or its thread has no request left.
    Idle,
    /// Waiting, after a connect that failed.
    Pausing,
    /// Connecting, to send the request under way.
    Connecting(Connection),
    /// Sending the request under way, and receiving its answer.
    Exchanging(Connection),
    /// Waiting for the server to close, after the last answer that it wanted to give.
    Closing(#[expect(dead_code, reason = "held open until the server closes")] Connection),
}

impl Slot {
    pub(crate) fn new(now: Instant) -> Self {
        Self { state: State::Idle, request: 0, begun: now, deadline: None }
    }

    /// Ends what the slot did, and closes its socket.
    pub(crate) fn rest(&mut self) {
        self.state = State::Idle;
        self.deadline = None;
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// The age of the request under way; `None` if there is none.
    pub(crate) fn age(&self, now: Instant) -> Option<Duration> {
        match self.state {
            State::Connecting(_) | State::Exchanging(_) => Some(now - self.begun),
            State::Idle | State::Pausing | State::Closing(_) => None,
        }
    }
}
