//! The TOML file of an experiment.

use crate::load_file::{LoadFile, LoadFlaw, RateOfFile};
use crate::toml_file::PathStep;
use anyhow::Context;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use tollgate_records::machine::CpuLayout;
use tollgate_records::stop::Stop;
use tollgate_records::subject::Options;
use tollgate_records::validity::Limits;
use tollgate_stats::BLOCKS_MAX;
use tollgate_traffic::load_shape::{CaseProtocol, LoadProgram, LoadShape};
use tollgate_traffic::units::{Percent, Span};

/// The TOML file of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExperimentFile {
    /// The question that the experiment answers.
    pub title: String,
    /// Name of the subject that the others are compared with.
    pub baseline: String,
    /// Subject that replaces the baseline if its system is not installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline_fallback: Option<String>,
    /// True if the terminal report summarizes the trials of each subject.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(skip_serializing_if = "is_shown")]
    pub summary: bool,
    /// True if the terminal report shows bytes per second, sent and received.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(skip_serializing_if = "is_shown")]
    pub bytes: bool,
    /// True if the terminal report shows the latency that each subject adds: mean, minimum, median, maximum and 90th
    /// percentile.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(skip_serializing_if = "is_shown")]
    pub latency: bool,
    /// True if the report compares the requests that subjects block: by family, as a score, and between each two subjects.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(skip_serializing_if = "is_shown")]
    pub catch: bool,
    /// Lists of requests (`.mix`), each of which is sent once by the probe of every trial and is not a part of the load. It
    /// may be blocked or pass. Implies `catch`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip_serializing_if = "is_shown")]
    #[schemars(extend("examples" = [["crs-tests.mix"]]))]
    pub corpus: Vec<String>,
    /// Workloads.
    pub case: Vec<CaseFile>,
    /// Configured systems.
    pub subject: Vec<SubjectFile>,
    /// Number of repetitions.
    #[serde(default, skip_serializing_if = "is_default")]
    pub design: DesignFile,
    /// Disturbances that make a trial invalid.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(skip_serializing_if = "is_shown")]
    pub limits: Limits,
    /// CPUs of each role; by default generator and origin share the first CPU that tollgate may use, and the system has
    /// the next one of another core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuLayout>,
}

/// A workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CaseFile {
    /// Unique in the experiment.
    pub name: String,
    /// A mix: a name, or a path that ends in `.toml` or, for imported requests, in `.mix`.
    pub mix: String,
    /// Names of its subjects; by default all. The baseline is always one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip_serializing_if = "is_shown")]
    pub subjects: Vec<String>,
    /// Names of the templates of the mix to send; by default all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip_serializing_if = "is_shown")]
    pub only: Vec<String>,
    /// Number of origins behind each system. A trial is invalid if the system does not balance the requests over them.
    #[serde(default = "one_origin", skip_serializing_if = "is_one")]
    #[schemars(skip_serializing_if = "is_shown")]
    pub origins: u16,
    /// Protocol between the clients and each system; by default HTTP/1.1 in the clear. Origins behind a system get HTTP/1.1
    /// in the clear.
    #[serde(default, skip_serializing_if = "CaseProtocol::is_plain_http1")]
    #[schemars(skip_serializing_if = "is_shown")]
    #[schemars(example = "https-h2")]
    pub protocol: CaseProtocol,
    /// Load shape.
    pub load: LoadFile,
    /// Open loop: a rate relative to the throughput of another case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_of: Option<RateOfFile>,
    /// Index in the file.
    #[serde(skip)]
    pub index: usize,
}

/// A configured system, or a server that runs already.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubjectFile {
    /// Unique in the experiment.
    pub name: String,
    /// Name of the system; either this or `url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// URL of a server that runs already, without a path. It must be on this machine, or allowed by `--allow-host`. The
    /// origins of the run are not behind it.
    #[schemars(example = "https://staging.example.org")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// With `url`: processes of the server on this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attach: Option<AttachFile>,
    /// With `url`: value of `Host`; by default that of the URL, or of the mix if the URL has an address.
    #[schemars(example = "shop.example.org")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// With `url`: status code of blocked requests, 403 by default.
    #[schemars(example = 406)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_status: Option<u16>,
    /// With `url` and https: PEM file of certificates to trust, as issuers too, instead of the authorities of the system.
    #[schemars(example = "staging-ca.pem")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cacert: Option<PathBuf>,
    /// With `url` and https: true to accept any certificate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(skip_serializing_if = "is_shown")]
    #[schemars(example = true)]
    pub insecure: bool,
    /// Program that sends the load to this subject, in place of the `client` of each case: to price clients against each
    /// other.
    #[schemars(extend("examples" = ["wrk"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<LoadProgram>,
    /// Options that differ from the defaults of the system.
    #[serde(default, skip_serializing_if = "Options::is_empty")]
    #[schemars(skip_serializing_if = "is_shown")]
    pub with: Options,
    /// Prefix of every path of the mix.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(skip_serializing_if = "is_shown")]
    pub prefix: String,
    /// Description in a few words, for the report.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(skip_serializing_if = "is_shown")]
    pub about: String,
    /// Index in the file.
    #[serde(skip)]
    pub index: usize,
    /// Name of the subject in the file that the matrix made this from.
    #[serde(skip)]
    pub variant_of: Option<String>,
}

/// The processes of a server on this machine, whose CPU time and memory are measured; exactly one key. They are neither
/// moved to other CPUs nor stopped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AttachFile {
    /// A process, with its descendants.
    #[schemars(example = 4711)]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip_serializing_if = "is_shown")]
    pub pid: Option<i32>,
    /// A unit of systemd, by the control group or the main process that `systemctl show` names.
    #[schemars(example = "nginx.service")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip_serializing_if = "is_shown")]
    pub unit: Option<String>,
    /// A control group, with those below it: a folder, or a path below `/sys/fs/cgroup`.
    #[schemars(example = "/system.slice/nginx.service")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip_serializing_if = "is_shown")]
    pub cgroup: Option<String>,
    /// A container, by the process that `docker inspect` or `podman inspect` names.
    #[schemars(example = "shop-proxy")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip_serializing_if = "is_shown")]
    pub container: Option<String>,
}

/// Number of repetitions: 8 blocks by default. With a width or a budget, the first of these that is reached ends the
/// run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DesignFile {
    /// Blocks, each with every subject of a case once, in balanced order. 8 by default; with a width or a budget, as many
    /// as it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip_serializing_if = "is_shown")]
    pub blocks: Option<u32>,
    /// Blocks with `--quick`; by default `blocks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip_serializing_if = "is_shown")]
    pub quick_blocks: Option<u32>,
    /// Largest half-width of the intervals of CPU per request, such as `"2%"`, which is the default if there is a
    /// budget. If the baseline uses no CPU: of the throughput, or with a rate of the median latency.
    #[schemars(example = "1%")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip_serializing_if = "is_shown")]
    pub width: Option<Percent>,
    /// Time limit of all trials; 10 minutes by default if there is a width.
    #[schemars(example = "15m")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip_serializing_if = "is_shown")]
    pub budget: Option<Span>,
    /// Smallest relevant difference: a price within it counts as equal. 2% by default.
    #[schemars(example = "1%")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip_serializing_if = "is_shown")]
    pub margin: Option<Percent>,
    /// True if the baseline runs twice in each block, which shows the effect of noise alone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(skip_serializing_if = "is_shown")]
    pub aa: bool,
}

const BLOCKS: u32 = 8;
const MARGIN: f64 = 0.02;
/// Default width if there is a budget.
const WIDTH: f64 = 0.02;
/// Default budget if there is a width.
const BUDGET: Duration = Duration::from_secs(600);

impl ExperimentFile {
    pub fn to_toml(&self) -> anyhow::Result<String> {
        toml::to_string(self).context("cannot write the experiment as TOML")
    }

    pub(crate) fn new(
        title: String,
        baseline: String,
        case: Vec<CaseFile>,
        subject: Vec<SubjectFile>,
    ) -> Self {
        Self {
            title,
            baseline,
            baseline_fallback: None,
            summary: false,
            bytes: false,
            latency: false,
            catch: false,
            corpus: Vec::new(),
            case,
            subject,
            design: DesignFile::default(),
            limits: Limits::default(),
            cpus: None,
        }
    }

    /// Shortens all loads for `--quick`.
    pub(crate) fn quick(mut self) -> Self {
        let Self { case, subject, baseline, .. } = &mut self;
        for case in case {
            let is_own = case.clients(subject, baseline).iter().all(LoadProgram::is_own);
            case.load = case.load.quick(is_own);
        }
        self
    }
}

impl CaseFile {
    pub(crate) fn new(name: &str, mix: &str, load: LoadFile) -> Self {
        Self {
            name: name.to_owned(),
            mix: mix.to_owned(),
            subjects: Vec::new(),
            only: Vec::new(),
            origins: one_origin(),
            protocol: CaseProtocol::default(),
            load,
            rate_of: None,
            index: 0,
        }
    }

    /// Checks the load and returns it.
    pub(crate) fn shape(&self) -> Result<LoadShape, LoadFlaw> {
        self.load.shape(self.protocol, self.rate_of.as_ref())
    }

    /// True if a subject of the file belongs to this case.
    pub(crate) fn is_for(&self, subject: &str, baseline: &str) -> bool {
        self.subjects.is_empty()
            || subject == baseline
            || self.subjects.iter().any(|name| name == subject)
    }

    /// Returns the programs that send the load of this case to its subjects.
    pub(crate) fn clients(
        &self,
        subjects: &[SubjectFile],
        baseline: &str,
    ) -> BTreeSet<LoadProgram> {
        let of_case = subjects.iter().filter(|subject| self.is_for(subject.file_name(), baseline));
        of_case.map(|subject| subject.client.unwrap_or(self.load.client)).collect()
    }

    /// True if the rate of this case depends on the other case.
    pub(crate) fn depends_on(&self, other: &Self) -> bool {
        self.rate_of.as_ref().is_some_and(|rate_of| rate_of.case == other.name)
    }

    pub(crate) fn key(&self, key: &str) -> Vec<PathStep> {
        vec!["case".into(), self.index.into(), key.into()]
    }
}

impl SubjectFile {
    pub(crate) fn new(name: &str, system: &str) -> Self {
        Self {
            name: name.to_owned(),
            system: Some(system.to_owned()),
            url: None,
            attach: None,
            host: None,
            blocked_status: None,
            cacert: None,
            insecure: false,
            client: None,
            with: Options::new(),
            prefix: String::new(),
            about: String::new(),
            index: 0,
            variant_of: None,
        }
    }

    /// Returns its name in the file, before the matrix.
    pub(crate) fn file_name(&self) -> &str {
        self.variant_of.as_ref().unwrap_or(&self.name)
    }

    /// Returns the name of its system, or its URL.
    pub(crate) fn system(&self) -> &str {
        self.system.as_ref().or(self.url.as_ref()).map_or("", String::as_str)
    }

    pub(crate) fn key(&self, key: &str) -> Vec<PathStep> {
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_one(origins: &u16) -> bool {
    *origins == one_origin()
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Overrides `skip_serializing_if` in the JSON Schema, which shows the default of a field that is not skipped.
fn is_shown<T>(_: &T) -> bool {
    false
}
