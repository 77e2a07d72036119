//! An experiment as its TOML file writes it.

use super::check::SHORTEST_WINDOW;
use super::warm_up::{STEADY_LONGEST, STEADY_SHORTEST, WarmUp};
use super::window::{REQUESTS_LONGEST, Window};
use crate::duration::Span;
use crate::options::Options;
use crate::percent::Percent;
use crate::validity::Limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tollgate_load::STEADY_AFTER;

/// An experiment as its TOML file writes it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExperimentFile {
    /// The question that the experiment answers.
    pub title: String,
    /// The name of the subject that the others are priced against.
    pub baseline: String,
    /// The subject that takes its place where the baseline's system is not on the machine.
    pub baseline_fallback: Option<String>,
    /// Whether the terminal report also sums up the trials of each subject.
    #[serde(default)]
    pub summary: bool,
    /// Whether the terminal report also tells how many bytes a second went to and fro.
    #[serde(default)]
    pub bytes: bool,
    /// Whether the terminal report also tells what each subject adds to the latency: the average, the shortest, the median,
    /// the longest and the 90th percentile.
    #[serde(default)]
    pub latency: bool,
    /// The workloads.
    pub case: Vec<CaseFile>,
    /// The configured systems.
    pub subject: Vec<SubjectFile>,
    /// How often everything is repeated.
    #[serde(default)]
    pub design: DesignFile,
    /// How much the machine may disturb a trial that counts.
    #[serde(default)]
    pub limits: Limits,
    /// Which CPUs each role runs on; by default generator and origin share the first CPU and the
    /// system has the second.
    pub cpus: Option<CpusFile>,
}

/// One workload.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CaseFile {
    /// A short name, unique in the experiment.
    pub name: String,
    /// The mix that is sent: a name, or a path that ends in `.toml`.
    pub mix: String,
    /// Which subjects it is for, by their names; all of them where this is left out. The baseline, which
    /// every price needs, is there in any case.
    #[serde(default)]
    pub subjects: Vec<String>,
    /// Of the mix, only the templates of these names; all of them where this is left out.
    #[serde(default)]
    pub only: Vec<String>,
    /// Origins behind each system, which is to spread the requests evenly over them: a trial in which it
    /// does not is invalid.
    #[serde(default = "one_origin")]
    pub origins: u16,
    /// The shape of the load.
    pub load: LoadFile,
    /// Open loop, at a rate that follows from what the subjects of another case hold.
    pub rate_of: Option<RateOfFile>,
}

/// A rate that is a share of what the slowest subject of another case, a closed loop, holds: the lowest
/// throughput, each subject's first trial that counts taken, the same for every subject of a block.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateOfFile {
    /// The other case's name.
    pub case: String,
    /// The share, such as `"50%"`.
    pub share: Percent,
}

/// The shape of a load. Closed loop: each connection sends when its answer is in. With a `rate`, open
/// loop: requests leave on a schedule, whatever comes back.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadFile {
    /// Connections that are open at the same time.
    pub connections: u32,
    /// How many with `--quick`, where a system that is slow with so many could not be measured in a short time.
    pub quick_connections: Option<u32>,
    /// Open loop: how far the connections may grow when a request is due and none is free; by default
    /// they do not.
    pub connections_max: Option<u32>,
    /// Open loop: requests a second, the same for every subject. Without it the loop is closed.
    pub rate: Option<f64>,
    /// Open loop: how the schedule spaces requests, `constant` by default.
    pub spacing: Option<SpacingFile>,
    /// How long each trial is measured; either this or `requests`.
    pub duration: Option<Span>,
    /// How long with `--quick`; a fifth of that, where this is left out.
    pub quick_duration: Option<Span>,
    /// Closed loop: how many requests each trial is measured over, from the first one's begin to the last
    /// one's answer.
    pub requests: Option<u32>,
    /// How many with `--quick`; a fifth of that, but one for each connection, where this is left out.
    pub quick_requests: Option<u32>,
    /// With `requests`: how long they may take, a minute by default. A trial that needs longer does not
    /// count.
    pub duration_max: Option<Span>,
    /// How long each trial is loaded before it is measured: a time, or `"steady"`, which is until
    /// throughput and CPU per request stand still.
    #[serde(default = "one_second")]
    #[schemars(with = "String")]
    pub warmup: WarmUp,
    /// With `warmup = "steady"`: how long to wait for that, 10 seconds by default.
    pub warmup_max: Option<Span>,
    /// Whether connections are kept for the next request.
    #[serde(default = "yes")]
    pub keepalive: bool,
    /// Whether the generator asks for events over and over instead of sleeping. Then the system pays
    /// nothing for waking it, and a slow one no more than a fast one; it needs a CPU of its own.
    #[serde(default)]
    pub busy_poll: bool,
    /// Whether the CPUs are kept from halting while a trial runs, as by the kernel's `idle=poll`. Then
    /// waking somebody costs the same after a long sleep as after a short one.
    #[serde(default)]
    pub idle_poll: bool,
    /// Threads of the generator.
    #[serde(default = "one")]
    pub threads: u32,
    /// How long an answer may take.
    #[serde(default = "ten_seconds")]
    pub timeout: Span,
}

/// How a schedule spaces requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SpacingFile {
    /// All the same.
    Constant,
    /// Exponential gaps, as of many independent clients.
    Poisson,
}

/// One configured system.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubjectFile {
    /// A short name, unique in the experiment.
    pub name: String,
    /// The system's name.
    pub system: String,
    /// The options that differ from the system's defaults.
    #[serde(default)]
    pub with: Options,
    /// A path that is put before every path of the mix.
    #[serde(default)]
    pub prefix: String,
    /// What this subject is, in a few words, for the report.
    #[serde(default)]
    pub about: String,
}

/// How often everything is repeated. By default 8 blocks; with a width or a budget, until the first of
/// these ends the run.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DesignFile {
    /// Blocks: each runs every subject of a case once, in balanced order.
    pub blocks: Option<u32>,
    /// Blocks of a run with `--quick`, where it should have fewer.
    pub quick_blocks: Option<u32>,
    /// How narrow the intervals of CPU per request have to be: their half-width, such as `"2%"`, which
    /// is also the default where there is a budget. Where the baseline has no CPU of its own, those of
    /// throughput have to be, or where the rate is given too, those of the p50 latency.
    pub width: Option<Percent>,
    /// How long all trials may take together; 10 minutes by default where there is a width.
    pub budget: Option<Span>,
    /// What is too small to matter: a price within it is called the same. 2% by default.
    pub margin: Option<Percent>,
    /// Whether the baseline runs a second time in each block, which tells what this machine's noise
    /// alone looks like.
    pub aa: bool,
}

/// Which CPUs each role runs on, by number.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CpusFile {
    /// The load generator's.
    pub generator: Vec<usize>,
    /// The origin's.
    pub origin: Vec<usize>,
    /// The system's.
    pub system: Vec<usize>,
}

impl CaseFile {
    /// Whether a subject is one of this case's.
    pub(super) fn is_for(&self, subject: &str, baseline: &str) -> bool {
        self.subjects.is_empty()
            || subject == baseline
            || self.subjects.iter().any(|name| name == subject)
    }
}

impl LoadFile {
    /// The same load with its durations cut, and its connections where the file says so, for `--quick`.
    pub(super) fn quick(mut self) -> Self {
        let fifth = |time: Span| Span((time.0 / QUICK_DIVISOR).max(SHORTEST_WINDOW));
        self.duration = self.quick_duration.or(self.duration.map(fifth));
        self.connections = self.quick_connections.unwrap_or(self.connections);
        let fifth = |requests: u32| (requests / QUICK_DIVISOR).max(self.connections);
        self.requests = self.quick_requests.or(self.requests.map(fifth));
        match self.warmup {
            WarmUp::For(time) => self.warmup = WarmUp::For(time / QUICK_DIVISOR),
            WarmUp::Steady => {
                let most = (self.warmup_longest() / QUICK_DIVISOR).max(STEADY_SHORTEST);
                self.warmup_max = Some(Span(most));
            }
        }
        self
    }

    /// What is measured. That it says one and not the other was checked when it was read.
    pub fn window(&self) -> Window {
        match (self.requests, self.duration) {
            (Some(requests), _) => Window::Requests {
                requests,
                within: self.duration_max.unwrap_or(REQUESTS_LONGEST).0,
            },
            (None, Some(time)) => Window::For(time.0),
            (None, None) => unreachable!("a load without `duration` and `requests` is refused"),
        }
    }

    /// The same load, measured for a time.
    pub fn lasting(self, time: Duration) -> Self {
        Self {
            duration: Some(Span(time)),
            requests: None,
            quick_requests: None,
            duration_max: None,
            ..self
        }
    }

    /// How long the warm-up lasts at the most.
    pub fn warmup_longest(&self) -> Duration {
        match self.warmup {
            WarmUp::For(time) => time,
            WarmUp::Steady => self.warmup_max.unwrap_or(STEADY_LONGEST).0,
        }
    }

    /// How long it lasts at the least.
    pub fn warmup_shortest(&self) -> Duration {
        match self.warmup {
            WarmUp::For(time) => time,
            WarmUp::Steady => STEADY_AFTER,
        }
    }

    /// How far the connections may grow; the same in a closed loop.
    pub fn connections_most(&self) -> u32 {
        self.connections_max.unwrap_or(self.connections)
    }

    /// How the requests of an open loop are spaced; none for a closed one.
    pub fn spacing(&self) -> Option<SpacingFile> {
        self.rate.map(|_| self.spacing.unwrap_or(SpacingFile::Constant))
    }
}

/// How `--quick` cuts the durations of a trial. Starting and stopping a system take as long as ever,
/// which is little beside them.
pub(super) const QUICK_DIVISOR: u32 = 5;

fn one_second() -> WarmUp {
    WarmUp::For(Duration::from_secs(1))
}

fn ten_seconds() -> Span {
    Span(Duration::from_secs(10))
}

fn yes() -> bool {
    true
}

fn one() -> u32 {
    1
}

fn one_origin() -> u16 {
    1
}
