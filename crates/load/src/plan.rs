//! What a run of the generator is to do.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::workload::Workload;

/// The most connections of one plan. One client address has about 28,000 ports towards one target
/// (`net.ipv4.ip_local_port_range`).
pub const MAX_CONNECTIONS: usize = 20_000;

/// The most threads of one plan.
pub const MAX_THREADS: usize = 256;

/// The deepest pipeline: requests under way on one connection.
pub const MAX_PIPELINE: usize = 1_000;

/// The highest rate of one plan, in requests a second.
pub const MAX_RATE: f64 = 10_000_000.0;

/// The longest timeout: a latency histogram reaches no further.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(3600);

/// The longest timer slack.
pub const MAX_TIMER_SLACK: Duration = Duration::from_millis(10);

/// What a run of the generator is to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the requests go.
    pub target: Target,
    /// What is sent.
    pub workload: Arc<Workload>,
    /// When it is sent.
    pub arrivals: Arrivals,
    /// How many connections are kept open, over all threads; 1 to [`MAX_CONNECTIONS`].
    pub connections: usize,
    /// How far the connections may grow when requests are due and none is free, over all threads;
    /// from `connections` to [`MAX_CONNECTIONS`]. A closed loop does not grow.
    pub connections_max: usize,
    /// How late a request of a schedule may be sent, so that one waking serves many: up to
    /// [`MAX_TIMER_SLACK`], zero for on time. Answers are read up to that late too, and their arrival
    /// is what the kernel has noted; so it needs TCP, kept connections, no pipeline and no
    /// `first_byte`.
    pub timer_slack: Duration,
    /// How many threads send; 1 to [`MAX_THREADS`], and no more than connections.
    pub threads: usize,
    /// How many requests may be under way on one connection; 1 to [`MAX_PIPELINE`], and 1 without
    /// keep-alive.
    pub pipeline: usize,
    /// Whether a connection carries one request after another. If not, each request opens a
    /// connection of its own, its latency runs from the start of the connect, and the request's
    /// text should say `Connection: close`.
    pub keep_alive: bool,
    /// How long connecting may take; up to [`MAX_TIMEOUT`], kept to the millisecond.
    pub connect_timeout: Duration,
    /// How long an answer may take from the start of sending; as `connect_timeout`.
    pub answer_timeout: Duration,
    /// Stop after this many requests over all threads.
    pub requests: Option<u64>,
    /// Whether what is sent first is a warm-up. Then the window opens when the caller says so, else
    /// with the first request.
    pub warm_up: bool,
    /// Whether the time to an answer's first byte is recorded too. It costs a little for each
    /// answer.
    pub first_byte: bool,
    /// Whether the threads ask for events over and over instead of sleeping until there are some.
    /// Nobody then has to wake them, which costs a server CPU, and they are never late for having
    /// slept; each takes a whole CPU.
    pub busy_poll: bool,
    /// The CPUs that the threads run on, one each, in a circle; empty for wherever the kernel likes.
    pub cpus: Vec<usize>,
}

/// Where requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An address and a port.
    Tcp(SocketAddr),
    /// The path of a unix-domain socket.
    Unix(PathBuf),
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// Closed loop: as soon as the answer to the one before is in. Finds what a server can hold.
    Closed,
    /// Open loop: on a schedule, whatever comes back. Finds the latency under a known load.
    Open {
        /// Requests a second over all threads; above 0, at most [`MAX_RATE`].
        per_second: f64,
        /// How the schedule spaces them.
        spacing: Spacing,
    },
}

/// How a schedule spaces requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// All the same.
    Constant,
    /// Exponential gaps, as of many independent clients: a Poisson process.
    Poisson {
        /// What the gaps are drawn from.
        seed: u64,
    },
}

impl Plan {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let &Self { connections, connections_max, threads, .. } = self;
        if !(1..=MAX_THREADS).contains(&threads) {
            return Err(Error::Threads(threads));
        }
        if !(threads..=MAX_CONNECTIONS).contains(&connections) {
            return Err(Error::Connections { connections, threads });
        }
        if !(connections..=MAX_CONNECTIONS).contains(&connections_max) {
            return Err(Error::ConnectionsMax { connections, connections_max });
        }
        self.check_pipeline()?;
        if let Arrivals::Open { per_second, .. } = self.arrivals
            && !(per_second > 0.0 && per_second <= MAX_RATE)
        {
            return Err(Error::Rate(per_second));
        }
        self.check_timer_slack()?;
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

    fn check_timer_slack(&self) -> Result<(), Error> {
        let slack = self.timer_slack;
        if slack.is_zero() {
            return Ok(());
        }
        if slack > MAX_TIMER_SLACK {
            return Err(Error::TimerSlack(slack));
        }
        let Arrivals::Open { per_second, .. } = self.arrivals else {
            return Err(Error::TimerSlackNeeds("a schedule: a closed loop has none"));
        };
        if self.busy_poll {
            return Err(Error::TimerSlackBusy);
        }
        if matches!(self.target, Target::Unix(_)) {
            let needs = "TCP: the kernel does not note when a unix-domain socket receives";
            return Err(Error::TimerSlackNeeds(needs));
        }
        if !self.keep_alive {
            return Err(Error::TimerSlackNeeds("keep-alive: a connect would be seen that late"));
        }
        if self.pipeline > 1 {
            let needs = "a pipeline of 1: of several answers, the arrival of the last is known";
            return Err(Error::TimerSlackNeeds(needs));
        }
        if self.first_byte {
            let needs = "no first_byte: the arrival of the last byte is known";
            return Err(Error::TimerSlackNeeds(needs));
        }
        // A connection is free again when its answer is read, so it carries one request in a slack.
        let due = per_second * slack.as_secs_f64();
        if due > self.connections_max as f64 {
            let connections_max = self.connections_max;
            return Err(Error::TimerSlackConnections { slack, due, connections_max });
        }
        Ok(())
    }

    fn check_pipeline(&self) -> Result<(), Error> {
        let pipeline = self.pipeline;
        if !(1..=MAX_PIPELINE).contains(&pipeline) {
            return Err(Error::Pipeline(pipeline));
        }
        if pipeline > 1 && !self.keep_alive {
            return Err(Error::PipelineWithoutKeepAlive(pipeline));
        }
        Ok(())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}
