//! Configuration of an origin, and the errors that it can fail with.

use std::io;
use std::time::Duration;

use tollgate_accesslog::LogTarget;
use tollgate_net::Address;
use tollgate_tls::{Certificate, ServerError};

use crate::recordings::RecordedAnswer;

#[derive(Clone, Debug)]
pub struct Config {
    /// Port 0 selects a free port.
    pub listen: Address,
    /// Certificate and key; with them, TLS is expected on every connection.
    pub tls: Option<Certificate>,
    /// From 1 to 256.
    pub threads: usize,
    /// CPUs to run on, numbered from 0; threads are pinned to them in turn. Empty: not pinned.
    pub cpus: Vec<usize>,
    /// Polls instead of sleeping.
    pub busy_poll: bool,
    pub timeouts: Timeouts,
    pub access_log: Option<LogTarget>,
    /// Responses that replace the site, by method and target.
    pub recorded: Option<Vec<RecordedAnswer>>,
}

impl Config {
    /// One unpinned thread with the default timeouts, without TLS and access log.
    pub fn new(listen: Address) -> Self {
        Self {
            listen,
            tls: None,
            threads: 1,
            cpus: Vec::new(),
            busy_poll: false,
            timeouts: Timeouts::default(),
            access_log: None,
            recorded: None,
        }
    }
}

/// Time limits for clients. Connections are checked four times within the shortest timeout, at
/// least once a second, so a connection may be closed that much later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the first byte of a request head to its last, and for a TLS handshake.
    pub head: Duration,
    /// Between two reads of a request body; also the time allowed before the minimum rate applies.
    pub body: Duration,
    /// Minimum rate of a request body.
    pub body_bytes_per_second: u64,
    /// Between two writes of a response.
    pub response: Duration,
    /// Between two requests.
    pub idle: Duration,
    /// For reading from a client that still sends after the last response.
    pub linger: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            body: Duration::from_secs(10),
            body_bytes_per_second: 1024,
            response: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            linger: Duration::from_secs(1),
        }
    }
}

impl Timeouts {
    /// Timeouts that a sweep enforces.
    pub(crate) fn of_connections(&self) -> [Duration; 5] {
        [self.head, self.body, self.response, self.idle, self.linger]
    }
}

/// Error that keeps an origin from starting or ends it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot run {threads} threads: must be 1 to {max}")]
    Threads { threads: usize, max: usize },
    #[error("cannot listen on {listen}; {}", .listen.listen_advice(.source))]
    Listen { listen: Address, source: io::Error },
    #[error("cannot use TLS")]
    Tls(#[source] ServerError),
    #[error("cannot open access log `{target}`; choose a file in a writable directory")]
    AccessLog { target: LogTarget, source: io::Error },
    #[error("cannot pin a thread to CPU {cpu}; choose a CPU that this process may use")]
    Pin { cpu: usize, source: io::Error },
    #[error("cannot start a thread; raise the limits on open files and processes")]
    Start(#[source] io::Error),
    #[error("cannot wait for events; restart the origin")]
    Wait(#[source] io::Error),
    #[error("cannot stop a thread; kill the process")]
    Stop(#[source] io::Error),
    #[error("a thread panicked; see its message above")]
    Panicked,
}
