//! Plan of a load: target, connections, schedule and limits.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_tls::TlsClient;
use tollgate_traffic::load_shape::{
    Clients, MAX_CONNECTIONS, MAX_PIPELINE, MAX_STREAMS, MAX_THREADS, MAX_TIMEOUT, OpenLoop,
    Protocol,
};

use crate::failures::Error;
use crate::rate::Rate;
use crate::replay::Replay;
use crate::workload::Workload;

/// Limit of the connections of a thread that wait for the server to close them, beside their successors.
pub const MAX_CLOSING: usize = 256;

/// Descriptors besides those of connections: standard streams, pipes, and files that libraries open.
const FILES: usize = 32;

/// Descriptors of a thread: poller, timer, waker, CPU statistics, and one connection that the server is to close.
const FILES_PER_THREAD: usize = 5;

/// Number of open files that a generator with these connections and threads needs at least.
pub fn open_files(connections: usize, threads: usize) -> usize {
    connections + FILES + FILES_PER_THREAD * threads
}

/// Limit of [`Shard::count`].
pub const MAX_SHARDS: usize = 1_000;

/// Bytes of bodies that the streams of a connection can send at first (RFC 9113, section 6.9.2).
const INITIAL_WINDOW: usize = 65_535;

/// Lower limit of the intervals of a series.
pub const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// One load: requests, target, timing and connections. Its form for another process lacks TLS, a replay and a series.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    pub target: Target,
    /// `None` without TLS.
    #[serde(skip)]
    pub tls: Option<TlsClient>,
    pub workload: Arc<Workload>,
    pub arrivals: Arrivals,
    pub clients: Clients,
    pub phases: Phases,
    /// Length of the intervals of a [`Series`](crate::Series); at least [`MIN_INTERVAL`]. `None`: no series, which saves
    /// a few nanoseconds per response.
    #[serde(skip)]
    pub series: Option<Duration>,
    /// True to record the time to first byte, which costs some CPU per response.
    pub first_byte: bool,
    /// CPUs to run on, one per thread, round robin. Empty: threads are not pinned.
    pub cpus: Vec<usize>,
    /// Part of the plan that this generator sends. Rate, requests and connections of the plan are those of all parts.
    pub shard: Shard,
}

/// Decision which request is sent when.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Closed loop: each connection sends when its last response is complete. Finds the capacity of a server.
    Closed {
        /// 1 to [`MAX_CONNECTIONS`] per generator.
        connections: usize,
    },
    /// Open loop: requests leave on a schedule, independent of responses. Finds the latency at a known load.
    Open {
        schedule: OpenLoop<Rate>,
        /// Seed of Poisson gaps.
        seed: u64,
    },
    /// Open loop of recorded sessions: their requests are sent at the times of a rate, in the recorded order.
    #[serde(skip)]
    Replay(ReplayPlan),
}

/// Sessions of recorded clients. Each has connections of its own, none of which is opened at the start.
#[derive(Clone, Debug)]
pub struct ReplayPlan {
    pub replay: Arc<Replay>,
    /// The n-th request of the replay is the n-th of the rate.
    pub rate: Rate,
    /// Limit over all sessions and threads; at least one per thread.
    pub connections_max: usize,
}

/// Requests that are measured, and the end of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phases {
    /// After a warm-up, the caller opens the window and later closes it.
    WarmUp,
    /// The window opens with the first request, and the caller closes it. A replay ends with its last response.
    Endless,
    /// The window opens with the first request and lasts this long, whatever is left then. A schedule has exactly the requests
    /// that are due in it: at a constant rate, the product of both, rounded up.
    For(Duration),
    /// All of a number of requests over all threads, the last response to which ends the load.
    Requests(u64),
}

/// One of several generators that send one plan together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// From 0.
    pub index: usize,
    /// Number of generators; 1 to [`MAX_SHARDS`].
    pub count: usize,
}

impl Shard {
    /// The only generator of a plan.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    /// Number of a thread among those of all generators, and their number. The generators take turns, so that each has
    /// every `count`-th request of a schedule.
    pub(crate) fn thread(self, thread: usize, threads: usize) -> (usize, usize) {
        (thread * self.count + self.index, threads * self.count)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Plan {
    /// Rate of an open loop.
    pub fn rate(&self) -> Option<&Rate> {
        match &self.arrivals {
            Arrivals::Closed { .. } => None,
            Arrivals::Open { schedule, .. } => Some(&schedule.rate),
            Arrivals::Replay(plan) => Some(&plan.rate),
        }
    }

    pub fn replay(&self) -> Option<&Replay> {
        match &self.arrivals {
            Arrivals::Closed { .. } | Arrivals::Open { .. } => None,
            Arrivals::Replay(plan) => Some(&plan.replay),
        }
    }

    /// Connections opened at the start, over all threads.
    pub fn connections(&self) -> usize {
        match &self.arrivals {
            Arrivals::Closed { connections } => *connections,
            Arrivals::Open { schedule, .. } => schedule.connections,
            Arrivals::Replay(_) => 0,
        }
    }

    /// Limit of the connections over all threads.
    pub fn connections_max(&self) -> usize {
        match &self.arrivals {
            Arrivals::Closed { connections } => *connections,
            Arrivals::Open { schedule, .. } => schedule.connections_max,
            Arrivals::Replay(plan) => plan.connections_max,
        }
    }

    /// Number of requests over all threads, the last of which ends the load.
    pub fn requests(&self) -> Option<u64> {
        match (&self.arrivals, self.phases) {
            (Arrivals::Replay(plan), _) => Some(plan.replay.len() as u64),
            (_, Phases::Requests(requests)) => Some(requests),
            (_, Phases::WarmUp | Phases::Endless | Phases::For(_)) => None,
        }
    }

    /// Length of the load from its first request on, if that ends it.
    pub(crate) fn length(&self) -> Option<Duration> {
        match self.phases {
            Phases::For(length) => Some(length),
            Phases::WarmUp | Phases::Endless | Phases::Requests(_) => None,
        }
    }

    /// Number of open files that this generator needs at least. With more, connections that the server is to close wait
    /// longer for that, up to [`MAX_CLOSING`] of each thread.
    pub fn open_files(&self) -> usize {
        open_files(self.connections_max().div_ceil(self.shard.count), self.clients.threads)
    }

    /// Limit of the connections of a thread that wait for the server to close them.
    pub(crate) fn closing_max(&self, files_max: u64) -> usize {
        let files_max = usize::try_from(files_max).unwrap_or(usize::MAX);
        let spare = files_max.saturating_sub(self.open_files()) / self.clients.threads;
        spare.saturating_add(1).min(MAX_CLOSING)
    }

    /// Checks all limits. [`Generator::start`](crate::Generator::start) does, too.
    pub fn validate(&self) -> Result<(), Error> {
        let threads = self.clients.threads;
        check((1..=MAX_THREADS).contains(&threads), || {
            format!("cannot use {threads} threads: choose 1 to {MAX_THREADS}")
        })?;
        let Shard { index, count } = self.shard;
        check((1..=MAX_SHARDS).contains(&count) && index < count, || {
            format!("cannot send part {index} of {count}: choose 1 to {MAX_SHARDS} generators")
        })?;
        self.validate_connections()?;
        self.validate_protocol()?;
        if let Some(rate) = self.rate() {
            rate.validate().map_err(Error::Plan)?;
        }
        if let Arrivals::Replay(plan) = &self.arrivals {
            self.validate_replay(plan)?;
        }
        check(self.series.is_none_or(|length| length >= MIN_INTERVAL), || {
            let min = MIN_INTERVAL.as_millis();
            format!("cannot divide the load into shorter intervals than {min} ms")
        })?;
        check(self.phases != Phases::Requests(0), || {
            "cannot send 0 requests: choose at least 1".to_owned()
        })?;
        for (name, timeout) in
            [("connect", self.clients.connect_timeout), ("response", self.clients.response_timeout)]
        {
            check(!timeout.is_zero() && timeout <= MAX_TIMEOUT, || {
                let seconds = timeout.as_secs_f64();
                let max = MAX_TIMEOUT.as_secs();
                format!(
                    "cannot use a {name} timeout of {seconds} s: choose more than 0 and at most {max} s"
                )
            })?;
        }
        Ok(())
    }

    fn validate_connections(&self) -> Result<(), Error> {
        // Each generator has ports of its own.
        let least = self.clients.threads * self.shard.count;
        let limit = MAX_CONNECTIONS * self.shard.count;
        let most = self.connections_max();
        let connections = match self.arrivals {
            Arrivals::Closed { .. } | Arrivals::Open { .. } => self.connections(),
            Arrivals::Replay(_) => most,
        };
        check((least..=limit).contains(&connections), || {
            format!(
                "cannot use {connections} connections for {least} threads: choose {least} to {limit}"
            )
        })?;
        check((connections..=limit).contains(&most), || {
            format!(
                "cannot grow {connections} connections to {most}: choose {connections} to {limit}"
            )
        })
    }

    fn validate_protocol(&self) -> Result<(), Error> {
        match self.clients.protocol {
            Protocol::Http1 { pipeline } => {
                check((1..=MAX_PIPELINE).contains(&pipeline), || {
                    format!("cannot pipeline {pipeline} requests: choose 1 to {MAX_PIPELINE}")
                })?;
                let mut requests = self.workload.requests().iter();
                check(pipeline == 1 || !requests.any(|request| request.message.closes()), || {
                    format!(
                        "cannot pipeline {pipeline} requests with `Connection: close`: choose 1"
                    )
                })
            }
            Protocol::Http2 { streams } => check((1..=MAX_STREAMS).contains(&streams), || {
                format!("cannot use {streams} streams: choose 1 to {MAX_STREAMS}")
            }),
            Protocol::Http1Close | Protocol::Handshakes => Ok(()),
        }
    }

    fn validate_replay(&self, plan: &ReplayPlan) -> Result<(), Error> {
        let has_all_times = match &plan.rate {
            Rate::Recorded(times) => times.len() == plan.replay.len(),
            Rate::Constant(_) | Rate::Stages(_) => true,
        };
        let protocol = self.clients.protocol;
        let conflicts = [
            (!has_all_times, "with another number of recorded times"),
            (!protocol.keeps_connections(), "without keep-alive: sessions keep their connections"),
            (
                matches!(protocol, Protocol::Http1 { pipeline } if pipeline > 1),
                "with several requests on a connection: a session opens another one",
            ),
            (
                matches!(self.phases, Phases::WarmUp | Phases::Requests(_)),
                "in part: all requests are sent and measured",
            ),
            (self.shard != Shard::WHOLE, "with several generators: a session has one"),
        ];
        match conflicts.into_iter().find(|(is_used, _)| *is_used) {
            Some((_, reason)) => Err(Error::Plan(format!("cannot replay a recording {reason}"))),
            None => Ok(()),
        }
    }

    /// True if threads let responses arrive before they read them: in a closed loop over several streams, unless they
    /// poll. Bodies that wait for room in a window would wait for a pause with each of its updates.
    pub(crate) fn coalesces(&self) -> bool {
        let Protocol::Http2 { streams } = self.clients.protocol else { return false };
        let requests = self.workload.requests().iter();
        let body_max = requests.map(|request| request.message.body().len()).max().unwrap_or(0);
        let is_closed = matches!(self.arrivals, Arrivals::Closed { .. });
        is_closed && !self.clients.busy_poll && streams > 1 && streams * body_max <= INITIAL_WINDOW
    }
}

/// Share of one thread in `total`. The first threads get the remainder.
pub(crate) fn share(total: u64, thread: usize, threads: usize) -> u64 {
    let (thread, threads) = (thread as u64, threads as u64);
    total / threads + u64::from(thread < total % threads)
}

fn check(is_valid: bool, message: impl FnOnce() -> String) -> Result<(), Error> {
    if is_valid { Ok(()) } else { Err(Error::Plan(message())) }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_threads_add_up() {
        let shares = |total| [0, 1, 2].map(|thread| share(total, thread, 3));
        assert_eq!(shares(7), [3, 2, 2]);
        assert_eq!(shares(2), [1, 1, 0]);
        assert_eq!(shares(9), [3, 3, 3]);
    }

    #[test]
    fn threads_of_generators_take_turns() {
        let numbers = |index| {
            let shard = Shard { index, count: 3 };
            [0, 1].map(|thread| shard.thread(thread, 2))
        };
        assert_eq!(numbers(0), [(0, 6), (3, 6)]);
        assert_eq!(numbers(2), [(2, 6), (5, 6)]);
        assert_eq!(Shard::WHOLE.thread(1, 2), (1, 2));
    }
}
