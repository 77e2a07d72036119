//! A connection to a backend.

use std::time::Instant;

use crate::link::Link;

/// A connection to a backend. It serves one exchange at a time, and goes back to those that wait for
/// the next one only after an answer that was read to its exact end.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) link: Link,
    /// Tells it from others that had its key before.
    pub(crate) serial: u32,
    pub(crate) at: Place,
    /// Whose request it carries. None: it waits for one.
    pub(crate) client: Option<usize>,
    /// It has carried a whole exchange before, so that its end may be that of an idle connection.
    pub(crate) is_reused: bool,
    /// It has neither taken nor given a byte.
    pub(crate) is_connecting: bool,
    /// The start of an answer's head whose end has not come yet.
    pub(crate) head: Vec<u8>,
    /// Until when it may wait for a request.
    pub(crate) idle_until: Instant,
}

/// One backend of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The configuration that it is of, which may not be the one in force any more.
    pub(crate) site: usize,
    pub(crate) pool: usize,
    pub(crate) backend: usize,
}
