//! Timeouts, and the deadlines of bodies.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// `file.rs` describes each. Timeouts are checked at intervals of a quarter of the shortest, so that each may take a
/// little longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    pub connect: Duration,
    pub header: Duration,
    pub body: Duration,
    /// Bytes per second. `None`: any.
    pub body_rate: Option<NonZeroU32>,
    pub body_slow: Duration,
    pub response: Duration,
    /// In place of `body` and `response`, for streams of events and gRPC.
    pub stream: Duration,
    pub abandoned: Duration,
    pub idle: Duration,
    pub tunnel: Duration,
    pub drain: Duration,
    /// Zero: listeners are closed at once.
    pub drain_delay: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            header: Duration::from_secs(10),
            body: Duration::from_secs(30),
            body_rate: NonZeroU32::new(240),
            body_slow: Duration::from_secs(30 * 60),
            response: Duration::from_secs(60),
            stream: Duration::from_secs(60 * 60),
            abandoned: Duration::from_secs(1),
            idle: Duration::from_secs(60),
            tunnel: Duration::from_secs(60),
            drain: Duration::from_secs(30),
            drain_delay: Duration::ZERO,
        }
    }
}

/// The part of a body that a client has moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) since: Instant,
    pub(crate) bytes: u64,
    pub(crate) is_streaming: bool,
}

impl Timeouts {
    /// Time between two pieces of a body.
    pub(crate) fn between_pieces(&self, is_streaming: bool) -> Duration {
        if is_streaming { self.stream } else { self.body }
    }

    /// Time to the start of a response.
    pub(crate) fn until_response(&self, is_streaming: bool) -> Duration {
        if is_streaming { self.stream } else { self.response }
    }

    /// A client whose bodies take longer than `body_slow` must be as fast as this many times the lowest rate.
    const LASTING_RATE: u64 = 64;

    /// The deadline of a body after its client has moved `bytes`. It approaches `deadline` unless the client is as fast as
    /// the lowest rate, and stays after `body_slow` unless it is much faster.
    pub(crate) fn next_body_deadline(
        &self,
        deadline: Instant,
        bytes: usize,
        transfer: Transfer,
        now: Instant,
    ) -> Instant {
        let latest = now + self.between_pieces(transfer.is_streaming);
        let Some(rate) = self.body_rate.filter(|_| !transfer.is_streaming) else { return latest };
        let age = now.saturating_duration_since(transfer.since);
        let lasting_bytes =
            age.as_secs().saturating_mul(u64::from(rate.get()) * Self::LASTING_RATE);
        if age >= self.body_slow && transfer.bytes < lasting_bytes {
            return latest.min(deadline);
        }
        let earned =
            Duration::from_secs(1).saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX));
        latest.min(deadline + earned / rate.get())
    }
}
