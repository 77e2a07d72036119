//! The TOML file of an experiment.

use crate::load_shape::{LoadFile, RateOfFile};
use crate::toml_file::Step;
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;
use tollgate_records::case::Protocol;
use tollgate_records::machine::CpuLayout;
use tollgate_records::stop::Stop;
use tollgate_records::subject::Options;
use tollgate_records::units::{Percent, Span};
use tollgate_records::validity::Limits;
use tollgate_stats::BLOCKS_MAX;

/// The TOML file of an experiment.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExperimentFile {
    /// The question that the experiment answers.
    pub(crate) title: String,
    /// Name of the subject that the others are compared with.
    pub(crate) baseline: String,
    /// Subject that replaces the baseline if its system is not installed.
    pub(crate) baseline_fallback: Option<String>,
    /// True if the terminal report summarizes the trials of each subject.
    #[serde(default)]
    pub(crate) summary: bool,
    /// True if the terminal report shows bytes per second, sent and received.
    #[serde(default)]
    pub(crate) bytes: bool,
    /// True if the terminal report shows the latency that each subject adds: mean, minimum, median, maximum and 90th
    /// percentile.
    #[serde(default)]
    pub(crate) latency: bool,
    /// True if the report compares the requests that subjects block: by family, as a score, and between each two subjects.
    #[serde(default)]
    pub(crate) catch: bool,
    /// Lists of requests (`.mix`), each of which is sent once by the probe of every trial and is not a part of the load. It
    /// may be blocked or pass. Implies `catch`.
    #[serde(default)]
    #[schemars(extend("examples" = [["crs-tests.mix"]]))]
    pub(crate) corpus: Vec<String>,
    /// Workloads.
    pub(crate) case: Vec<CaseFile>,
    /// Configured systems.
    pub(crate) subject: Vec<SubjectFile>,
    /// Number of repetitions.
    #[serde(default)]
    pub(crate) design: DesignFile,
    /// Disturbances that make a trial invalid.
    #[serde(default)]
    pub(crate) limits: Limits,
    /// CPUs of each role; by default generator and origin share the first CPU that tollgate may use, and the system has
    /// the second.
    pub(crate) cpus: Option<CpuLayout>,
}

/// A workload.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CaseFile {
    /// Unique in the experiment.
    pub(crate) name: String,
    /// A mix: a name, or a path that ends in `.toml` or, for imported requests, in `.mix`.
    pub(crate) mix: String,
    /// Names of its subjects; by default all. The baseline is always one of them.
    #[serde(default)]
    pub(crate) subjects: Vec<String>,
    /// Names of the templates of the mix to send; by default all.
    #[serde(default)]
    pub(crate) only: Vec<String>,
    /// Number of origins behind each system. A trial is invalid if the system does not balance the requests over them.
    #[serde(default = "one_origin")]
    pub(crate) origins: u16,
    /// Protocol between the clients and each system; by default HTTP/1.1 in the clear. Origins behind a system get HTTP/1.1
    /// in the clear.
    #[serde(default)]
    #[schemars(example = "https-h2")]
    pub(crate) protocol: Protocol,
    /// Load shape.
    pub(crate) load: LoadFile,
    /// Open loop: a rate relative to the throughput of another case.
    pub(crate) rate_of: Option<RateOfFile>,
    /// Index in the file.
    #[serde(skip)]
    pub(crate) index: usize,
}

/// A configured system, or a server that runs already.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubjectFile {
    /// Unique in the experiment.
    pub(crate) name: String,
    /// Name of the system; either this or `url`.
    pub(crate) system: Option<String>,
    /// URL of a server that runs already, without a path. It must be on this machine, or allowed by `--allow-host`. The
    /// origins of the run are not behind it.
    #[schemars(example = "https://staging.example.org")]
    pub(crate) url: Option<String>,
    /// With `url`: processes of the server on this machine.
    pub(crate) attach: Option<AttachFile>,
    /// With `url`: value of `Host`; by default that of the URL, or of the mix if the URL has an address.
    #[schemars(example = "shop.example.org")]
    pub(crate) host: Option<String>,
    /// With `url`: status code of blocked requests, 403 by default.
    #[schemars(example = 406)]
    pub(crate) blocked_status: Option<u16>,
    /// With `url` and https: PEM file of certificates to trust, as issuers too, instead of the authorities of the system.
    #[schemars(example = "staging-ca.pem")]
    pub(crate) cacert: Option<PathBuf>,
    /// With `url` and https: true to accept any certificate.
    #[serde(default)]
    #[schemars(example = true)]
    pub(crate) insecure: bool,
    /// Options that differ from the defaults of the system.
    #[serde(default)]
    pub(crate) with: Options,
    /// Prefix of every path of the mix.
    #[serde(default)]
    pub(crate) prefix: String,
    /// Description in a few words, for the report.
    #[serde(default)]
    pub(crate) about: String,
    /// Index in the file.
    #[serde(skip)]
    pub(crate) index: usize,
    /// Name of the subject in the file that the matrix made this from.
    #[serde(skip)]
    pub(crate) variant_of: Option<String>,
}

/// The processes of a server on this machine, whose CPU time and memory are measured; exactly one key. They are neither
/// moved to other CPUs nor stopped.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AttachFile {
    /// A process, with its descendants.
    #[schemars(example = 4711)]
    pub(crate) pid: Option<i32>,
    /// A unit of systemd, by the control group or the main process that `systemctl show` names.
    #[schemars(example = "nginx.service")]
    pub(crate) unit: Option<String>,
    /// A control group, with those below it: a folder, or a path below `/sys/fs/cgroup`.
    #[schemars(example = "/system.slice/nginx.service")]
    pub(crate) cgroup: Option<String>,
    /// A container, by the process that `docker inspect` or `podman inspect` names.
    #[schemars(example = "shop-proxy")]
    pub(crate) container: Option<String>,
}

/// Number of repetitions: 8 blocks by default. With a width or a budget, the first of these that is reached ends the
/// run.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DesignFile {
    /// Blocks, each with every subject of a case once, in balanced order. 8 by default; with a width or a budget, as many
    /// as it takes.
    pub(crate) blocks: Option<u32>,
    /// Blocks with `--quick`; by default `blocks`.
    pub(crate) quick_blocks: Option<u32>,
    /// Largest half-width of the intervals of CPU per request, such as `"2%"`, which is the default if there is a
    /// budget. If the baseline uses no CPU: of the throughput, or with a rate of the median latency.
    #[schemars(example = "1%")]
    pub(crate) width: Option<Percent>,
    /// Time limit of all trials; 10 minutes by default if there is a width.
    #[schemars(example = "15m")]
    pub(crate) budget: Option<Span>,
    /// Smallest relevant difference: a price within it counts as equal. 2% by default.
    #[schemars(example = "1%")]
    pub(crate) margin: Option<Percent>,
    /// True if the baseline runs twice in each block, which shows the effect of noise alone.
    pub(crate) aa: bool,
}

const BLOCKS: u32 = 8;
const MARGIN: f64 = 0.02;
/// Default width if there is a budget.
const WIDTH: f64 = 0.02;
/// Default budget if there is a width.
const BUDGET: Duration = Duration::from_secs(600);

impl ExperimentFile {
    /// Shortens all loads for `--quick`.
    pub(crate) fn quick(mut self) -> Self {
        for case in &mut self.case {
            case.load = case.load.quick();
        }
        self
    }
}

impl CaseFile {
    /// True if a subject of the file belongs to this case.
    pub(crate) fn is_for(&self, subject: &str, baseline: &str) -> bool {
        self.subjects.is_empty()
            || subject == baseline
            || self.subjects.iter().any(|name| name == subject)
    }

    /// True if the rate of this case depends on the other case.
    pub(crate) fn depends_on(&self, other: &Self) -> bool {
        self.rate_of.as_ref().is_some_and(|rate_of| rate_of.case == other.name)
    }

    pub(crate) fn key(&self, key: &str) -> Vec<Step> {
        vec!["case".into(), self.index.into(), key.into()]
    }
}

impl SubjectFile {
    /// Returns its name in the file, before the matrix.
    pub(crate) fn file_name(&self) -> &str {
        self.variant_of.as_ref().unwrap_or(&self.name)
    }

    /// Returns the name of its system, or its URL.
    pub(crate) fn system(&self) -> &str {
        self.system.as_ref().or(self.url.as_ref()).map_or("", String::as_str)
    }

    pub(crate) fn key(&self, key: &str) -> Vec<Step> {
        vec!["subject".into(), self.index.into(), key.into()]
    }
}

impl DesignFile {
    pub(crate) fn stop(&self) -> Stop {
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

    pub(crate) fn margin(&self) -> f64 {
        self.margin.map_or(MARGIN, |margin| margin.0)
    }
}

fn one_origin() -> u16 {
    1
}
