//! What a run of the generator is to do.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::workload::Workload;

/// The most connections of one plan. One client address has about 28,000 ports towards one target
/// (`net.ipv4.ip_local_port_range`).
pub const MAX_CONNECTIONS: usize = 20_000;

/// The most threads of one plan.
pub const MAX_THREADS: usize = 256;

/// The longest timeout: a latency histogram reaches no further.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(3600);

/// What a run of the generator is to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the requests go.
    pub target: SocketAddr,
    /// What is sent.
    pub workload: Arc<Workload>,
    /// How many connections are kept busy, over all threads; 1 to [`MAX_CONNECTIONS`].
    pub connections: usize,
    /// How many threads send; 1 to [`MAX_THREADS`], and no more than connections.
    pub threads: usize,
    /// Whether a connection carries one request after another. If not, each request opens a
    /// connection of its own, its latency runs from the start of the connect, and the request's
    /// text should say `Connection: close`.
    pub keep_alive: bool,
    /// How long connecting may take; up to [`MAX_TIMEOUT`], kept to the millisecond.
    pub connect_timeout: Duration,
    /// How long an answer may take from the start of sending; as `connect_timeout`.
    pub answer_timeout: Duration,
    /// Stop after this many requests over all threads. Such a plan is measured whole, from its
    /// first request to the end of its last; its window needs no opening.
    pub requests: Option<u64>,
    /// The CPUs that the threads may run on; empty for all.
    pub cpus: Vec<usize>,
}

impl Plan {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let &Self { connections, threads, .. } = self;
        if !(1..=MAX_THREADS).contains(&threads) {
            return Err(Error::Threads(threads));
        }
        if !(threads..=MAX_CONNECTIONS).contains(&connections) {
            return Err(Error::Connections { connections, threads });
        }
        if self.requests == Some(0) {
            return Err(Error::NoRequests);
        }
        for (which, timeout) in [("connect", self.connect_timeout), ("answer", self.answer_timeout)]
        {
            if timeout.is_zero() || timeout > MAX_TIMEOUT {
                return Err(Error::Timeout { which, timeout });
            }
        }
        Ok(())
    }
}
