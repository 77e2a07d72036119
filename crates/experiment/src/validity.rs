//! Rules that decide whether the figures of a trial count, and their limits.

use crate::percent::Percent;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why the figures of a trial do not count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "kebab-case")]
pub enum Invalid {
    /// The hypervisor took the CPUs away.
    Steal {
        /// In percent of the time of the CPUs in use.
        percent: f64,
        /// What it may be at the most.
        limit_percent: f64,
    },
    /// Other processes took the CPUs away, so the generator starved.
    BackgroundCpu {
        /// In percent of the time of the CPUs in use.
        percent: f64,
        /// What it may be at the most.
        limit_percent: f64,
    },
    /// A process of the system ended or was restarted during the window.
    ProcessDied {
        /// Which, in words.
        what: String,
    },
    /// Answers were not the expected ones.
    Unexpected {
        /// How many.
        responses: u64,
        /// The first of them, in words.
        example: Option<String>,
    },
    /// Requests got no answer.
    Failed {
        /// How many.
        requests: u64,
        /// Of which kinds.
        kinds: String,
    },
    /// The system did not spread the requests evenly over the origins.
    Imbalance {
        /// The origin whose part was furthest from an even one, from 1.
        origin: usize,
        /// Its part, in percent of the requests that all origins got.
        percent: f64,
        /// An even one.
        even_percent: f64,
        /// How far apart the two may be.
        limit_percent: f64,
    },
    /// Nothing was answered at all.
    NoResponse,
    /// A request had been under way for so long when the window closed that the latencies, which are
    /// those of answers, do not show it.
    Stalled {
        /// How long, in seconds.
        age_s: f64,
    },
    /// The case's requests were not all answered in the time that they may take.
    Unfinished {
        /// How many were, whether with an answer or without.
        finished: u64,
        /// Of how many.
        requests: u32,
        /// How long they may take, in seconds.
        timeout_s: f64,
    },
    /// Tollgate itself, with its load generator, was stopped or starved.
    Paused {
        /// For how long, in percent of the window: the planned one, where it is a time.
        percent: f64,
        /// What it may be at the most.
        limit_percent: f64,
    },
    /// The generator was measured over another time than the servers: it was too busy to notice
    /// when the window opened or closed.
    WindowSkew {
        /// The difference, in percent of the servers' window.
        percent: f64,
        /// What it may be at the most.
        limit_percent: f64,
    },
}

/// How much the machine may disturb a trial that counts; fixed before the run, as everything is that
/// decides whether a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Time that the hypervisor gave to others, of the CPUs in use. 5% by default.
    pub steal: Percent,
    /// CPU time of processes that are not part of the trial, of the CPUs in use. 10% by default.
    pub background_cpu: Percent,
    /// Share of the window in which tollgate itself did not run. 10% by default.
    pub pause: Percent,
    /// How far the generator's window may differ from that of the servers. 5% by default.
    pub window_skew: Percent,
    /// How far the part of the requests that one of several origins got may be from an even one, of all
    /// requests. 2% by default, which of two is 48% to 52%.
    pub imbalance: Percent,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            steal: Percent(0.05),
            background_cpu: Percent(0.1),
            pause: Percent(0.1),
            window_skew: Percent(0.05),
            imbalance: Percent(0.02),
        }
    }
}

impl Invalid {
    /// The rule that was broken, without the figures of one trial.
    pub fn rule(&self) -> String {
        match self {
            Self::Steal { limit_percent, .. } => {
                format!("the hypervisor took more than {limit_percent} % of the CPUs")
            }
            Self::BackgroundCpu { limit_percent, .. } => {
                format!("other processes took more than {limit_percent} % of the CPUs")
            }
            Self::Stalled { .. } => {
                "a request was under way for more than half of the window".to_owned()
            }
            Self::Unfinished { timeout_s, .. } => {
                format!("the requests were not all answered within {timeout_s} s")
            }
            Self::Paused { .. } => "tollgate itself was stopped or starved".to_owned(),
            Self::WindowSkew { .. } => {
                "the generator noticed the measurement's begin or end too late".to_owned()
            }
            Self::Imbalance { .. } => "requests were not spread evenly over the origins".to_owned(),
            Self::Unexpected { .. } => "answers were not the expected ones".to_owned(),
            Self::Failed { .. } => "requests got no answer".to_owned(),
            Self::ProcessDied { .. } | Self::NoResponse => self.to_string(),
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steal { percent, limit_percent } => write!(
                formatter,
                "the hypervisor took {percent:.1} % of the CPUs (limit {limit_percent} %)"
            ),
            Self::BackgroundCpu { percent, limit_percent } => write!(
                formatter,
                "other processes took {percent:.1} % of the CPUs (limit {limit_percent} %)"
            ),
            Self::ProcessDied { what } => write!(formatter, "{what} during the measurement"),
            Self::Unexpected { responses, example } => {
                write!(formatter, "{responses} responses were not the expected ones")?;
                match example {
                    Some(example) => write!(formatter, " ({example})"),
                    None => Ok(()),
                }
            }
            Self::Failed { requests, kinds } => {
                write!(formatter, "{requests} requests got no answer ({kinds})")
            }
            Self::Stalled { age_s } => {
                write!(formatter, "a request had been under way for {age_s:.2} s at the end")
            }
            Self::Unfinished { finished, requests, timeout_s } => {
                write!(
                    formatter,
                    "{finished} of {requests} requests had finished after {timeout_s} s"
                )
            }
            Self::Paused { percent, limit_percent } => write!(
                formatter,
                "tollgate was stopped or starved for {percent:.0} % of the window (limit {limit_percent} %)"
            ),
            Self::Imbalance { origin, percent, even_percent, limit_percent } => write!(
                formatter,
                "origin {origin} got {percent:.1} % of the requests, and not {even_percent:.1} % (limit {limit_percent} % more or less)"
            ),
            Self::NoResponse => write!(formatter, "nothing was answered"),
            Self::WindowSkew { percent, limit_percent } => write!(
                formatter,
                "the generator was measured over {percent:.1} % more or less time than the servers (limit {limit_percent} %)"
            ),
        }
    }
}
