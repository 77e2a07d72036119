//! The TOML file of an experiment.

use super::external::AttachFile;
use super::part;
use super::validate::{self, SHORTEST_WINDOW};
use crate::error::BadInput;
use crate::machine::CpuLayout;
use crate::options::Options;
use crate::stop::Stop;
use crate::toml_file::{self, Source, Step};
use crate::units::{Percent, Span};
use crate::validity::Limits;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};
use std::path::PathBuf;
use std::time::Duration;
use strum::Display;
use tollgate_load::STEADY_AFTER;
use tollgate_stats::BLOCKS_MAX;

/// The TOML file of an experiment.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExperimentFile {
    /// The question that the experiment answers.
    pub(super) title: String,
    /// Name of the subject that the others are compared with.
    pub(super) baseline: String,
    /// Subject that replaces the baseline if its system is not installed.
    pub(super) baseline_fallback: Option<String>,
    /// True if the terminal report summarizes the trials of each subject.
    #[serde(default)]
    pub(super) summary: bool,
    /// True if the terminal report shows bytes per second, sent and received.
    #[serde(default)]
    pub(super) bytes: bool,
    /// True if the terminal report shows the latency that each subject adds: mean, minimum, median, maximum and 90th
    /// percentile.
    #[serde(default)]
    pub(super) latency: bool,
    /// True if the report compares the requests that subjects block: by family, as a score, and between each two subjects.
    #[serde(default)]
    pub(super) catch: bool,
    /// Lists of requests (`.mix`), each of which is sent once by the probe of every trial and is not a part of the load. It
    /// may be blocked or pass. Implies `catch`.
    #[serde(default)]
    #[schemars(extend("examples" = [["crs-tests.mix"]]))]
    pub(super) corpus: Vec<String>,
    /// Workloads.
    pub(super) case: Vec<CaseFile>,
    /// Configured systems.
    pub(super) subject: Vec<SubjectFile>,
    /// Number of repetitions.
    #[serde(default)]
    pub(super) design: DesignFile,
    /// Disturbances that make a trial invalid.
    #[serde(default)]
    pub(super) limits: Limits,
    /// CPUs of each role; by default generator and origin share the first CPU that tollgate may use, and the system has
    /// the second.
    pub(super) cpus: Option<CpuLayout>,
}

/// A workload.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseFile {
    /// Unique in the experiment.
    pub(super) name: String,
    /// A mix: a name, or a path that ends in `.toml` or, for imported requests, in `.mix`.
    pub(super) mix: String,
    /// Names of its subjects; by default all. The baseline is always one of them.
    #[serde(default)]
    pub(super) subjects: Vec<String>,
    /// Names of the templates of the mix to send; by default all.
    #[serde(default)]
    pub(super) only: Vec<String>,
    /// Number of origins behind each system. A trial is invalid if the system does not balance the requests over them.
    #[serde(default = "one_origin")]
    pub(super) origins: u16,
    /// Protocol between the clients and each system; by default HTTP/1.1 in the clear. Origins behind a system get HTTP/1.1
    /// in the clear.
    #[serde(default)]
    #[schemars(example = "https-h2")]
    pub(super) protocol: Protocol,
    /// Load shape.
    pub(super) load: LoadFile,
    /// Open loop: a rate relative to the throughput of another case.
    pub(super) rate_of: Option<RateOfFile>,
    /// Index in the file.
    #[serde(skip)]
    pub(super) index: usize,
}

/// Protocol between clients and a system.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Display,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Protocol {
    /// HTTP/1.1 in the clear.
    #[default]
    H1,
    /// HTTP/2 in the clear, with prior knowledge.
    H2,
    /// HTTP/1.1 over TLS.
    Https,
    /// HTTP/2 over TLS.
    HttpsH2,
}

impl Protocol {
    pub fn is_tls(self) -> bool {
        matches!(self, Self::Https | Self::HttpsH2)
    }

    pub fn is_http2(self) -> bool {
        matches!(self, Self::H2 | Self::HttpsH2)
    }

    pub fn is_plain_http1(&self) -> bool {
        *self == Self::H1
    }
}

/// A rate relative to the throughput of the slowest subject in another case, a closed loop. The first valid trial of
/// each subject counts; the rate is the same for all subjects of a block.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateOfFile {
    /// Name of the other case.
    pub case: String,
    /// Share of its throughput, such as `"50%"`.
    pub share: Percent,
}

/// Load of a case. In a closed loop each connection sends when its last response is complete. With a `rate`, in an open
/// loop, requests are sent on a schedule, independent of responses.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadFile {
    /// Concurrent connections.
    pub connections: u32,
    /// Open loop: limit of the connections if a request is due and none is free; by default `connections`.
    pub connections_max: Option<u32>,
    /// Open loop: requests per second. Without it the loop is closed.
    pub rate: Option<f64>,
    /// Open loop: gaps between requests, `constant` by default.
    pub spacing: Option<SpacingFile>,
    /// Length of the measurement; either this or `requests`.
    pub duration: Option<Span>,
    /// Length with `--quick`; by default a fifth of `duration`.
    pub quick_duration: Option<Span>,
    /// Closed loop: number of requests of the measurement, which ends with the last response; either this or `duration`.
    pub requests: Option<u32>,
    /// Number with `--quick`; by default a fifth of `requests`, at least one per connection.
    pub quick_requests: Option<u32>,
    /// Time limit for `requests`, one minute by default. A trial that takes longer is invalid.
    #[schemars(example = "2m")]
    pub duration_max: Option<Span>,
    /// Load before the measurement: a duration, one second by default, or `"steady"` to wait until throughput and CPU per
    /// request are steady.
    #[serde(default = "one_second")]
    #[schemars(with = "String")]
    pub warmup: WarmUp,
    /// Time limit for `warmup = "steady"`, 10 seconds by default.
    #[schemars(example = "20s")]
    pub warmup_max: Option<Span>,
    /// True if connections carry one request after another.
    #[serde(default = "yes")]
    pub keepalive: bool,
    /// HTTP/2: concurrent requests on each connection. A system may allow fewer.
    #[serde(default = "one")]
    pub streams: u32,
    /// TLS: true if connections resume sessions by tickets, as of clients that return.
    #[serde(default)]
    #[schemars(example = true)]
    pub tls_resume: bool,
    /// True if generator and origin poll for events instead of sleeping, so that the system does not pay for waking
    /// them.
    #[schemars(example = false)]
    #[serde(default = "yes")]
    pub busy_poll: bool,
    /// True if the CPUs of the system are kept from halting, as by the kernel's `idle=poll`, so that a wake-up costs the same
    /// after a long sleep as after a short one. Without `busy_poll`, those of generator and origin, too.
    #[serde(default)]
    #[schemars(example = true)]
    pub idle_poll: bool,
    /// Threads of the generator.
    #[serde(default = "one")]
    pub threads: u32,
    /// Limit of the time to a complete response.
    #[serde(default = "ten_seconds")]
    pub timeout: Span,
}

/// Gaps between the requests of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SpacingFile {
    /// Constant gaps.
    Constant,
    /// Exponential gaps, as of many independent clients.
    Poisson,
}

/// End of the warm-up of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarmUp {
    For(Duration),
    /// Steady throughput and CPU per request.
    Steady,
}

/// End of the measurement of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    For(Duration),
    /// The response to the last request; the trial is invalid if that takes longer than `within`.
    Requests {
        requests: u32,
        within: Duration,
    },
}

/// A configured system, or a server that runs already.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SubjectFile {
    /// Unique in the experiment.
    pub(super) name: String,
    /// Name of the system; either this or `url`.
    pub(super) system: Option<String>,
    /// URL of a server that runs already, without a path. It must be on this machine, or allowed by `--allow-host`. The
    /// origins of the run are not behind it.
    #[schemars(example = "https://staging.example.org")]
    pub(super) url: Option<String>,
    /// With `url`: processes of the server on this machine.
    pub(super) attach: Option<AttachFile>,
    /// With `url`: value of `Host`; by default that of the URL, or of the mix if the URL has an address.
    #[schemars(example = "shop.example.org")]
    pub(super) host: Option<String>,
    /// With `url`: status code of blocked requests, 403 by default.
    #[schemars(example = 406)]
    pub(super) blocked_status: Option<u16>,
    /// With `url` and https: PEM file of certificates to trust, as issuers too, instead of the authorities of the system.
    #[schemars(example = "staging-ca.pem")]
    pub(super) cacert: Option<PathBuf>,
    /// With `url` and https: true to accept any certificate.
    #[serde(default)]
    #[schemars(example = true)]
    pub(super) insecure: bool,
    /// Options that differ from the defaults of the system.
    #[serde(default)]
    pub(super) with: Options,
    /// Prefix of every path of the mix.
    #[serde(default)]
    pub(super) prefix: String,
    /// Description in a few words, for the report.
    #[serde(default)]
    pub(super) about: String,
    /// Index in the file.
    #[serde(skip)]
    pub(super) index: usize,
    /// Name of the subject in the file that the matrix made this from.
    #[serde(skip)]
    pub(super) variant_of: Option<String>,
}

/// Number of repetitions: 8 blocks by default. With a width or a budget, the first of these that is reached ends the
/// run.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DesignFile {
    /// Blocks, each with every subject of a case once, in balanced order. 8 by default; with a width or a budget, as many
    /// as it takes.
    pub(super) blocks: Option<u32>,
    /// Blocks with `--quick`; by default `blocks`.
    pub(super) quick_blocks: Option<u32>,
    /// Largest half-width of the intervals of CPU per request, such as `"2%"`, which is the default if there is a
    /// budget. If the baseline uses no CPU: of the throughput, or with a rate of the median latency.
    #[schemars(example = "1%")]
    pub(super) width: Option<Percent>,
    /// Time limit of all trials; 10 minutes by default if there is a width.
    #[schemars(example = "15m")]
    pub(super) budget: Option<Span>,
    /// Smallest relevant difference: a price within it counts as equal. 2% by default.
    #[schemars(example = "1%")]
    pub(super) margin: Option<Percent>,
    /// True if the baseline runs twice in each block, which shows the effect of noise alone.
    pub(super) aa: bool,
}

/// `--quick` divides durations by this.
pub(super) const QUICK_DIVISOR: u32 = 5;
const STEADY: &str = "steady";
/// Default time limit of a steady warm-up.
const STEADY_LONGEST: Duration = Duration::from_secs(10);
/// Figures need half of this time to become steady.
pub(super) const STEADY_SHORTEST: Duration = Duration::from_secs(2);
/// Default time limit of a number of requests.
const REQUESTS_LONGEST: Duration = Duration::from_secs(60);

const BLOCKS: u32 = 8;
const MARGIN: f64 = 0.02;
/// Default width if there is a budget.
const WIDTH: f64 = 0.02;
/// Default budget if there is a width.
const BUDGET: Duration = Duration::from_secs(600);

impl ExperimentFile {
    /// Parses a file and checks all its values. Names are resolved later.
    pub(super) fn parse(source: &Source) -> anyhow::Result<Self> {
        let mut file: Self = toml_file::parse(source)?;
        for (index, case) in file.case.iter_mut().enumerate() {
            case.index = index;
        }
        for (index, subject) in file.subject.iter_mut().enumerate() {
            subject.index = index;
        }
        validate::check(&file).map_err(|flaw| part(source, &flaw.path, BadInput(flaw.message)))?;
        Ok(file)
    }

    /// Shortens all loads for `--quick`.
    pub(super) fn quick(mut self) -> Self {
        for case in &mut self.case {
            case.load = case.load.quick();
        }
        self
    }
}

impl CaseFile {
    /// True if a subject of the file belongs to this case.
    pub(super) fn is_for(&self, subject: &str, baseline: &str) -> bool {
        self.subjects.is_empty()
            || subject == baseline
            || self.subjects.iter().any(|name| name == subject)
    }

    /// True if the rate of this case depends on the other case.
    pub(super) fn depends_on(&self, other: &Self) -> bool {
        self.rate_of.as_ref().is_some_and(|rate_of| rate_of.case == other.name)
    }

    pub(super) fn key(&self, key: &str) -> Vec<Step> {
        vec!["case".into(), self.index.into(), key.into()]
    }
}

impl SubjectFile {
    /// Returns its name in the file, before the matrix.
    pub(super) fn file_name(&self) -> &str {
        self.variant_of.as_ref().unwrap_or(&self.name)
    }

    /// Returns the name of its system, or its URL.
    pub(super) fn system(&self) -> &str {
        self.system.as_ref().or(self.url.as_ref()).map_or("", String::as_str)
    }

    pub(super) fn key(&self, key: &str) -> Vec<Step> {
        vec!["subject".into(), self.index.into(), key.into()]
    }
}

impl LoadFile {
    /// Shortens the load for `--quick`.
    pub(super) fn quick(mut self) -> Self {
        let fifth = |time: Span| Span((time.0 / QUICK_DIVISOR).max(SHORTEST_WINDOW));
        self.duration = self.quick_duration.or(self.duration.map(fifth));
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

    pub fn window(&self) -> Window {
        match (self.requests, self.duration) {
            (Some(requests), _) => Window::Requests {
                requests,
                within: self.duration_max.map_or(REQUESTS_LONGEST, |limit| limit.0),
            },
            (None, Some(time)) => Window::For(time.0),
            (None, None) => unreachable!("a load without `duration` and `requests` is invalid"),
        }
    }

    /// Returns the same load, measured for a fixed time.
    pub fn lasting(self, time: Duration) -> Self {
        Self {
            duration: Some(Span(time)),
            requests: None,
            quick_requests: None,
            duration_max: None,
            ..self
        }
    }

    pub fn warmup_longest(&self) -> Duration {
        match self.warmup {
            WarmUp::For(time) => time,
            WarmUp::Steady => self.warmup_max.map_or(STEADY_LONGEST, |limit| limit.0),
        }
    }

    pub fn warmup_shortest(&self) -> Duration {
        match self.warmup {
            WarmUp::For(time) => time,
            WarmUp::Steady => STEADY_AFTER,
        }
    }

    pub fn connections_most(&self) -> u32 {
        self.connections_max.unwrap_or(self.connections)
    }

    /// Returns the gaps of an open loop, or `None` for a closed one.
    pub fn spacing(&self) -> Option<SpacingFile> {
        self.rate.map(|_| self.spacing.unwrap_or(SpacingFile::Constant))
    }
}

impl Window {
    /// Returns the minimum length, as far as it is known before the trial.
    pub fn shortest(self) -> Duration {
        match self {
            Self::For(time) => time,
            Self::Requests { .. } => Duration::ZERO,
        }
    }

    pub fn longest(self) -> Duration {
        match self {
            Self::For(time) | Self::Requests { within: time, .. } => time,
        }
    }

    pub fn requests(self) -> Option<u32> {
        match self {
            Self::For(_) => None,
            Self::Requests { requests, .. } => Some(requests),
        }
    }
}

impl DesignFile {
    pub(super) fn stop(&self) -> Stop {
        if self.width.is_none() && self.budget.is_none() {
            return Stop::after(self.blocks.unwrap_or(BLOCKS));
        }
        let most = u32::try_from(BLOCKS_MAX).unwrap_or(u32::MAX);
        Stop {
            blocks: self.blocks.unwrap_or(most),
            width: Some(self.width.map_or(WIDTH, |width| width.0)),
            budget_s: Some(self.budget.map_or(BUDGET, |budget| budget.0).as_secs_f64()),
            extra_blocks: 0,
        }
    }

    pub(super) fn margin(&self) -> f64 {
        self.margin.map_or(MARGIN, |margin| margin.0)
    }
}

impl<'de> Deserialize<'de> for WarmUp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == STEADY {
            return Ok(Self::Steady);
        }
        humantime::parse_duration(&text).map(Self::For).map_err(|error| {
            de::Error::custom(format!(
                "`{text}` is neither \"{STEADY}\" nor a duration such as \"1s\" or \"400ms\": {error}"
            ))
        })
    }
}

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
