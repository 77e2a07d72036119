//! Cases of a run: their load, as the manifest has it.

use crate::subject::{SubjectManifest, SubjectState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::Display;

/// A case of an experiment.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CaseManifest {
    /// Name of the case.
    pub name: String,
    /// Title of the mix.
    pub mix: String,
    /// File of the mix.
    pub mix_file: String,
    /// Concurrent connections.
    pub connections: u32,
    /// Schedule of an open loop; absent in a closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_loop: Option<OpenLoopManifest>,
    /// Case that the rate depends on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_of: Option<RateOfManifest>,
    /// Threads of the generator.
    pub threads: u32,
    /// Origins behind each system.
    #[serde(default = "one_origin", skip_serializing_if = "is_one")]
    pub origins: u16,
    /// True if connections carry one request after another.
    pub keep_alive: bool,
    /// True if the generator polls for events instead of sleeping.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub busy_poll: bool,
    /// True if the CPUs are kept from halting.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idle_poll: bool,
    /// Protocol between the clients and each system; absent for HTTP/1.1 in the clear.
    #[serde(default, skip_serializing_if = "Protocol::is_plain_http1")]
    pub protocol: Protocol,
    /// HTTP/2: concurrent requests on each connection, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
    /// True if connections resume TLS sessions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tls_resume: bool,
    /// Length of the warm-up in seconds; the limit if it ends with steady figures.
    pub warmup_s: f64,
    /// True if the warm-up ends with steady figures.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warmup_steady: bool,
    /// Requests of each measurement; absent if it has a fixed length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u32>,
    /// Length of each measurement in seconds; with `requests`, their time limit.
    pub duration_s: f64,
    /// Its subjects, including the baseline; absent if it has all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only_subjects: Vec<String>,
}

/// Schedule of an open loop.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OpenLoopManifest {
    /// Requests per second; null if the rate depends on a case that was not run.
    pub rate_per_s: Option<f64>,
    /// Gaps between requests.
    pub spacing: SpacingFile,
    /// Limit of the connections.
    pub connections_max: u32,
}

/// A rate relative to the throughput of the slowest subject in another case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RateOfManifest {
    /// Name of the other case.
    pub case: String,
    /// Share of its throughput, from 0 to 1.
    pub share: f64,
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

/// Gaps between the requests of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SpacingFile {
    /// Constant gaps.
    Constant,
    /// Exponential gaps, as of many independent clients.
    Poisson,
}

impl CaseManifest {
    /// True if a subject belongs to this case.
    pub fn is_for(&self, subject: &str) -> bool {
        self.only_subjects.is_empty() || self.only_subjects.iter().any(|name| name == subject)
    }

    /// True if a subject belongs to this case and could be run.
    pub fn runs(&self, subject: &SubjectManifest) -> bool {
        matches!(subject.state, SubjectState::Present { .. }) && self.is_for(&subject.name)
    }
}

fn one_origin() -> u16 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_one(origins: &u16) -> bool {
    *origins == one_origin()
}
