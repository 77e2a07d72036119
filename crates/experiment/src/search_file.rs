//! `search.json`: the terms of a search, and how it ended.

use serde::{Deserialize, Serialize};

/// The version of the shape of `search.json`; a reader refuses what it does not know.
pub const SCHEMA: u32 = 2;

/// The same as it stands in `search.json`, and how the search ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchRecord {
    /// The version of this shape.
    pub schema: u32,
    /// What has to be kept.
    pub goals: String,
    /// The rate that the search began with, in requests a second.
    pub start_rate_per_s: f64,
    /// How narrow each interval was to be, as a share of its lower end.
    pub width: f64,
    /// How often each end was to be tried again.
    pub confirmations: u32,
    /// The time after which no trial was begun, in seconds.
    pub budget_s: f64,
    /// The subjects that were searched; a baseline may be there without.
    pub subjects: Vec<String>,
    /// What ended it; none while it runs, or when it was killed.
    pub ended_by: Option<EndedBy>,
}

/// What ended a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndedBy {
    /// Every subject's search was over.
    Complete,
    /// The time was spent.
    Budget,
    /// It was asked to stop.
    Interrupted,
}
