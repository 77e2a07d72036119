//! Cases of a run, as the manifest has them.

use crate::subject::{SubjectManifest, SubjectState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_traffic::load_shape::LoadShape;

/// A case of an experiment.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CaseManifest {
    /// Name of the case.
    pub name: String,
    /// Title of the mix.
    pub mix: String,
    /// File of the mix.
    pub mix_file: String,
    /// Origins behind each system.
    #[serde(default = "one_origin", skip_serializing_if = "is_one")]
    pub origins: u16,
    /// Responses of the origins; absent for the benchmark site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub responses: Option<ResponsesManifest>,
    /// Load of each trial.
    pub load: LoadShape,
    /// Its subjects, including the baseline; absent if it has all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only_subjects: Vec<String>,
}

/// Recorded responses by which the origins of a case answer the requests of its lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResponsesManifest {
    /// Methods and targets.
    pub requests: usize,
    /// Methods and targets with responses of several statuses or types, which take turns.
    pub in_turn: usize,
    /// Responses of unknown length, which are a line of text.
    pub without_length: usize,
}

impl CaseManifest {
    /// True if a subject belongs to this case.
    pub fn is_for(&self, subject: &str) -> bool {
        self.only_subjects.is_empty() || self.only_subjects.iter().any(|name| name == subject)
    }

    /// True if the case has the baseline alone, whose figures it is for: it has no price.
    pub fn is_baseline_alone(&self) -> bool {
        self.only_subjects.len() == 1
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
