//! Why a load cannot be planned or sent.

use std::io;
use std::time::Duration;

use thiserror::Error;

use crate::plan::{
    MAX_CONNECTIONS, MAX_PIPELINE, MAX_RATE, MAX_THREADS, MAX_TIMEOUT, MAX_TIMER_SLACK,
};
use crate::workload::{MAX_NEEDLE_BYTES, MAX_TEMPLATES};

/// Why a load cannot be planned or sent. What goes wrong with single requests is no error: it is
/// counted in [`Failures`](crate::Failures).
#[derive(Debug, Error)]
pub enum Error {
    /// A workload sends nothing.
    #[error("the workload's order is empty: name at least one request")]
    EmptyOrder,
    /// A workload's order names a request that is not there.
    #[error("the workload's order names request {index}, and there are {requests}, from 0")]
    Order {
        /// The index named.
        index: u32,
        /// How many requests there are.
        requests: usize,
    },
    /// A request has no bytes.
    #[error("request {index} of the workload is empty")]
    EmptyRequest {
        /// Its index.
        index: usize,
    },
    /// A request names a template beyond what a workload can have.
    #[error("request {index} is of template {template}: choose 0 to {}", MAX_TEMPLATES - 1)]
    Template {
        /// The request's index.
        index: usize,
        /// The template named.
        template: usize,
    },
    /// A request's answer is searched for nothing, or for too much.
    #[error("request {index} looks for {bytes} bytes in the body: choose 1 to {MAX_NEEDLE_BYTES}")]
    Needle {
        /// The request's index.
        index: usize,
        /// How many bytes are looked for.
        bytes: usize,
    },
    /// A plan with no thread or too many.
    #[error("{0} threads: choose 1 to {MAX_THREADS}")]
    Threads(usize),
    /// A plan with fewer connections than threads, or too many.
    #[error(
        "{connections} connections for {threads} threads: choose {threads} to {MAX_CONNECTIONS}"
    )]
    Connections {
        /// The connections planned.
        connections: usize,
        /// The threads planned.
        threads: usize,
    },
    /// A plan whose connections may grow to fewer than there are, or to too many.
    #[error(
        "{connections} connections that may grow to {connections_max}: choose {connections} to {MAX_CONNECTIONS}"
    )]
    ConnectionsMax {
        /// The connections planned.
        connections: usize,
        /// The connections that there may be.
        connections_max: usize,
    },
    /// A plan without a pipeline, or with too deep a one.
    #[error("a pipeline of {0} requests: choose 1 to {MAX_PIPELINE}")]
    Pipeline(usize),
    /// A pipeline on connections that carry one request each.
    #[error("a pipeline of {0} requests needs keep-alive: without it, choose 1")]
    PipelineWithoutKeepAlive(usize),
    /// A rate that is not above 0, or too high.
    #[error("{0} requests a second: choose more than 0 and at most {MAX_RATE}")]
    Rate(f64),
    /// A timer slack that is too long.
    #[error("a timer slack of {} ms: choose at most {} ms", ms(.0), ms(&MAX_TIMER_SLACK))]
    TimerSlack(Duration),
    /// A timer slack where it cannot be had.
    #[error("a timer slack needs {0}")]
    TimerSlackNeeds(&'static str),
    /// A timer slack for a thread that never sleeps.
    #[error("busy polling never sleeps, and a timer slack is a sleep: choose one of them")]
    TimerSlackBusy,
    /// A timer slack in which more falls due than the connections can carry.
    #[error(
        "{due:.0} requests fall due in a timer slack of {} ms, and {connections_max} connections carry one each: choose more connections, or less slack",
        ms(.slack)
    )]
    TimerSlackConnections {
        /// The timer slack planned.
        slack: Duration,
        /// How many requests fall due in it.
        due: f64,
        /// The connections that there may be.
        connections_max: usize,
    },
    /// A plan that ends before its first request.
    #[error("0 requests: choose at least one")]
    NoRequests,
    /// A timeout of zero, or too long.
    #[error("the {which} timeout is {} s: choose more than 0 and at most {} s", .timeout.as_secs_f64(), MAX_TIMEOUT.as_secs())]
    Timeout {
        /// `connect` or `answer`.
        which: &'static str,
        /// The timeout planned.
        timeout: Duration,
    },
    /// Threads cannot be pinned as planned.
    #[error("pinning threads to the CPUs {cpus:?}: choose others, or none")]
    Cpus {
        /// The CPUs planned.
        cpus: Vec<usize>,
        /// Why not.
        source: io::Error,
    },
    /// A thread cannot be started or cannot go on.
    #[error("load thread {thread}: {doing}")]
    Thread {
        /// The thread, from 0.
        thread: usize,
        /// What it was doing.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// In milliseconds.
fn ms(time: &Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
