//! What load was asked for, and what came before the measurement.

use crate::cmd::load::settings::{End, Settings};
use schemars::JsonSchema;
use serde::Serialize;
use tollgate_load::{Arrivals, Spacing, Target as Address};

/// What load was asked for.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Load {
    /// What decides when a request is sent.
    #[serde(rename = "loop")]
    pub(crate) kind: Loop,
    /// Open loop: requests a second.
    pub(crate) rate_per_s: Option<f64>,
    /// Open loop: how the schedule spaces them.
    pub(crate) arrivals: Option<ArrivalsResult>,
    /// What random choices were drawn from.
    pub(crate) seed: u64,
    /// Connections from the start.
    pub(crate) connections: usize,
    /// How far they might grow.
    pub(crate) connections_max: usize,
    /// Open loop: how late what was due might be sent, in milliseconds; 0 for on time.
    pub(crate) timer_slack_ms: Option<f64>,
    /// Threads that sent.
    pub(crate) threads: usize,
    /// Requests under way on one connection.
    pub(crate) pipeline: usize,
    /// Whether a connection carried one request after another.
    pub(crate) keep_alive: bool,
    /// Whether the threads asked for events over and over instead of sleeping.
    pub(crate) busy_poll: bool,
    /// How many requests it was to end after; null where a time ends it.
    pub(crate) requests: Option<u64>,
    /// How long the measurement was to be, in seconds; null where a number of requests ends it.
    pub(crate) duration_s: Option<f64>,
    /// How long an answer might take, in milliseconds.
    pub(crate) timeout_ms: f64,
    /// How long connecting might take, in milliseconds.
    pub(crate) connect_timeout_ms: f64,
    /// Whether `target` is the path of a unix-domain socket.
    pub(crate) unix_socket: bool,
    /// The mix as it was named; null for a single request.
    pub(crate) mix: Option<String>,
}

/// What decides when a request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Loop {
    /// The answer to the one before.
    Closed,
    /// A schedule.
    Open,
}

/// How a schedule spaces requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ArrivalsResult {
    /// All the same.
    Constant,
    /// Exponential gaps.
    Poisson,
}

/// What came before the measurement.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WarmUpResult {
    /// How long it was, in seconds.
    pub(crate) seconds: f64,
    /// Whether the figures stood still at its end; null where nobody waited for that.
    pub(crate) steady: Option<bool>,
    /// Complete answers in it.
    pub(crate) answered: u64,
    /// Requests in it that got none.
    pub(crate) failed: u64,
}

impl Load {
    pub(super) fn of(settings: &Settings) -> Self {
        let (kind, arrivals) = match settings.arrivals {
            Arrivals::Closed => (Loop::Closed, None),
            Arrivals::Open { spacing: Spacing::Constant, .. } => {
                (Loop::Open, Some(ArrivalsResult::Constant))
            }
            Arrivals::Open { spacing: Spacing::Poisson { .. }, .. } => {
                (Loop::Open, Some(ArrivalsResult::Poisson))
            }
        };
        let (requests, duration_s) = match settings.end {
            End::Requests(requests) => (Some(requests), None),
            End::After(duration) => (None, Some(duration.as_secs_f64())),
        };
        Self {
            kind,
            rate_per_s: settings.rate_per_s(),
            arrivals,
            seed: settings.seed,
            connections: settings.connections,
            connections_max: settings.connections_max,
            timer_slack_ms: (settings.rate_per_s())
                .map(|_| settings.timer_slack.as_secs_f64() * 1e3),
            threads: settings.threads,
            pipeline: settings.pipeline,
            keep_alive: settings.keep_alive,
            busy_poll: settings.busy_poll,
            requests,
            duration_s,
            timeout_ms: settings.answer_timeout.as_secs_f64() * 1e3,
            connect_timeout_ms: settings.connect_timeout.as_secs_f64() * 1e3,
            unix_socket: matches!(settings.target.address, Address::Unix(_)),
            mix: settings.content.mix.clone(),
        }
    }
}
