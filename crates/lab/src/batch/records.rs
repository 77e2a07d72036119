//! What is kept of builds and rounds: one JSON object a line.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of these shapes.
pub const SCHEMA: u32 = 2;

/// One build, in `builds.ndjson`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BuildRecord {
    /// The version of this shape.
    pub schema: u32,
    /// What was built: sources, command and tools, as one hash.
    pub key: String,
    /// The revision that it was built for.
    pub revision: String,
    /// When it ended, RFC 3339, UTC.
    pub ended_at: String,
    /// How long it took, in seconds.
    pub took_s: f64,
    /// What came of it.
    pub outcome: BuildOutcome,
}

/// What came of a build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BuildOutcome {
    /// A product.
    Built {
        /// SHA-256 over its files, their names, and which of them are programs: the same for products that
        /// are identical.
        product: String,
        /// The folder that it lies in, below that of all products.
        folder: String,
    },
    /// None.
    Failed(BuildFailure),
    /// None in the time that it had.
    TimedOut(BuildFailure),
}

/// Why there is no product.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildFailure {
    /// In one line.
    pub reason: String,
    /// The last lines that the build printed.
    pub log: Vec<String>,
}

/// What `rounds.ndjson` tells of a round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoundRecord {
    /// It begins.
    Begun(Round),
    /// Nothing will be added to it.
    Ended {
        /// Its number.
        round: u32,
        /// Why, in words.
        because: String,
    },
}

/// A round: a run with the anchor and some products.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// The version of this shape.
    pub schema: u32,
    /// Its number, from 1, which its folder is named after.
    pub round: u32,
    /// What it is for.
    pub purpose: Purpose,
    /// The product of each subject, the anchor's included.
    pub products: BTreeMap<String, String>,
    /// Of each subject that is a product a second time, the subject that is the first.
    #[serde(default)]
    pub again: BTreeMap<String, String>,
    /// Its blocks.
    pub blocks: u32,
}

/// What a round is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// The series of all revisions.
    Series,
    /// A commit on the way to a culprit.
    Bisection,
    /// A culprit against its parent.
    Confirmation {
        /// The parent's product.
        parent: String,
        /// The culprit's product.
        culprit: String,
    },
}
