//! Rules that make a trial invalid, and their limits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tollgate_traffic::units::Percent;

/// Reason that the figures of a trial do not count.
#[derive(Debug, Clone, PartialEq, Error, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "kebab-case")]
pub enum Invalid {
    /// In percent of the capacity of the CPUs in use.
    #[error("the hypervisor took {percent:.1} % of the CPUs (limit `steal`: {limit_percent} %)")]
    Steal { percent: f64, limit_percent: f64 },
    /// In percent of the capacity of the CPUs in use.
    #[error(
        "other processes took {percent:.1} % of the CPUs{} (limit `background_cpu`: {limit_percent} %)",
        .heaviest.as_ref().map_or(String::new(), |heaviest| format!(", {heaviest}"))
    )]
    BackgroundCpu {
        percent: f64,
        limit_percent: f64,
        /// The process that used most of it, if it still ran at the end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        heaviest: Option<HeavyProcess>,
    },
    /// A process of the system ended or was restarted.
    #[error("{what} during the measurement")]
    ProcessDied { what: String },
    #[error(
        "{responses} responses were unexpected{}",
        .example.as_ref().map_or(String::new(), |example| format!(" ({example})"))
    )]
    Unexpected {
        responses: u64,
        /// Description of the first one.
        example: Option<String>,
    },
    /// Requests without a response.
    #[error("{requests} requests failed ({kinds})")]
    Failed { requests: u64, kinds: String },
    /// The system did not balance the requests over the origins.
    #[error(
        "origin {origin} got {percent:.1} % of the requests, expected {even_percent:.1} % (limit `imbalance`: {limit_percent} %)"
    )]
    Imbalance {
        /// Origin with the most uneven share, from 1.
        origin: usize,
        /// Its share of all requests.
        percent: f64,
        even_percent: f64,
        /// Largest difference of the two.
        limit_percent: f64,
    },
    #[error("no response was received")]
    NoResponse,
    /// A request was in flight so long that the latencies, which cover responses only, do not show it.
    #[error("a request was in flight for {age_s:.2} s at the end")]
    Stalled { age_s: f64 },
    #[error("{finished} of {requests} requests finished within {timeout_s} s")]
    Unfinished {
        /// With a response or not.
        finished: u64,
        requests: u32,
        timeout_s: f64,
    },
    /// The process of tollgate, and with it the generator, did not run, in percent of the window.
    #[error(
        "tollgate was stopped or starved for {percent:.0} % of the window (limit `pause`: {limit_percent} %)"
    )]
    Paused { percent: f64, limit_percent: f64 },
    /// In percent of the window of the servers.
    #[error(
        "the windows of generators and servers differed by {percent:.1} % (limit `window_skew`: {limit_percent} %)"
    )]
    WindowSkew { percent: f64, limit_percent: f64 },
    /// Several hosts: limit of the difference between their windows by the errors of their clocks, in percent of the window.
    #[error(
        "the clocks of the hosts allow windows that differ by {percent:.1} % (limit {limit_percent} %); a longer trial is needed"
    )]
    ClockSkew { percent: f64, limit_percent: f64 },
}

/// A process outside of a trial.
#[derive(Debug, Clone, PartialEq, Error, Serialize, Deserialize)]
#[error("`{name}` (pid {pid}) {percent:.0} %{}", .is_subject.then_some(IS_SUBJECT).unwrap_or_default())]
pub struct HeavyProcess {
    pub name: String,
    pub pid: i32,
    /// True for a process that listens at the `url` of the subject.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_subject: bool,
    /// Its CPU time during warm-up and window, in percent of the capacity of the CPUs in use.
    pub percent: f64,
}

/// Behind the figure of a process that is no disturbance.
const IS_SUBJECT: &str = ", the subject itself: measure it with `attach`, or move it to other CPUs";

impl HeavyProcess {
    /// Text behind its figure; empty for a disturbance.
    pub fn advice(&self) -> &'static str {
        if self.is_subject { IS_SUBJECT } else { "" }
    }
}

/// Limits of disturbances in a valid trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// CPU time that the hypervisor gave to others, as a share of the CPUs in use.
    pub steal: Percent,
    /// CPU time of other processes, as a share of the CPUs in use.
    pub background_cpu: Percent,
    /// Time in which tollgate did not run, as a share of the window.
    pub pause: Percent,
    /// Difference between the windows of the generator and of the servers.
    pub window_skew: Percent,
    /// Difference between the share of an origin and an even one. With two origins, 2% is 48% to 52%.
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
    /// True if the machine, not the subject, is the cause.
    pub fn is_disturbance(&self) -> bool {
        matches!(
            self,
            Self::Steal { .. }
                | Self::BackgroundCpu { .. }
                | Self::Paused { .. }
                | Self::WindowSkew { .. }
                | Self::ClockSkew { .. }
        )
    }

    /// Returns the key of the limit in [`Limits`] that the trial exceeds, and its value in percent. `None` for rules without
    /// a limit of this kind.
    pub fn exceeded(&self) -> Option<(&'static str, f64)> {
        match self {
            Self::Steal { percent, .. } => Some(("steal", *percent)),
            Self::BackgroundCpu { percent, .. } => Some(("background_cpu", *percent)),
            Self::Paused { percent, .. } => Some(("pause", *percent)),
            Self::WindowSkew { percent, .. } => Some(("window_skew", *percent)),
            Self::Imbalance { percent, even_percent, .. } => {
                Some(("imbalance", (percent - even_percent).abs()))
            }
            Self::ProcessDied { .. }
            | Self::Unexpected { .. }
            | Self::Failed { .. }
            | Self::NoResponse
            | Self::Stalled { .. }
            | Self::Unfinished { .. }
            | Self::ClockSkew { .. } => None,
        }
    }

    /// Describes the rule without the figures of one trial.
    pub fn rule(&self) -> String {
        match self {
            Self::Steal { limit_percent, .. } => {
                format!(
                    "the hypervisor took more than {limit_percent} % of the CPUs (limit `steal`)"
                )
            }
            Self::BackgroundCpu { limit_percent, .. } => {
                format!(
                    "other processes took more than {limit_percent} % of the CPUs (limit \
                     `background_cpu`)"
                )
            }
            Self::Stalled { .. } => {
                "a request was in flight for more than half of the window".to_owned()
            }
            Self::Unfinished { timeout_s, .. } => {
                format!("not all requests finished within {timeout_s} s")
            }
            Self::Paused { .. } => "tollgate itself was stopped or starved".to_owned(),
            Self::WindowSkew { .. } => {
                "the windows of generators and servers differed in length".to_owned()
            }
            Self::ClockSkew { .. } => {
                "the clocks of the hosts are not exact enough for so short a window".to_owned()
            }
            Self::Imbalance { .. } => "requests were not balanced over the origins".to_owned(),
            Self::Unexpected { .. } => "responses were unexpected".to_owned(),
            Self::Failed { .. } => "requests failed".to_owned(),
            Self::ProcessDied { .. } | Self::NoResponse => self.to_string(),
        }
    }
}
