//! One request under way.

use std::time::Instant;

/// A request that has been taken from the workload, and has no complete answer yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    /// Its index in the workload.
    pub(crate) request: usize,
    /// When it was due; in a closed loop, when it was sent.
    pub(crate) scheduled: Instant,
    /// From just before its first write or, where each request has a connection of its own, from
    /// the start of the connect.
    pub(crate) sent: Instant,
    /// Whether anything of it was sent on a connection that has ended since.
    pub(crate) was_sent: bool,
    /// When the first byte of its answer came, if that is to be known.
    pub(crate) first_byte: Option<Instant>,
}
