//! Request for a batch, and the events that it reports.

use crate::nodes::Nodes;
use crate::repository::Revision;
use crate::store::{BuildRecord, ProductFailure, Round};
use std::path::Path;
use tollgate_experiment::experiment::Experiment;
use tollgate_runner::process::Interrupt;
use tollgate_runner::run;

/// The state of the process that a batch needs.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub out: &'a Path,
    /// The `tollgate` binary, to start origins.
    pub tollgate: &'a Path,
    pub interrupt: &'a Interrupt,
    /// Number of revisions to measure, evenly spread. `None`: all for `run`, for `find` as many as in the last run.
    pub steps: Option<usize>,
    /// Repeats failed builds and products that did not run.
    pub retries: bool,
    /// Where rounds run. `None`: on this machine.
    pub nodes: Option<&'a Nodes>,
}

#[derive(Debug)]
pub enum BatchEvent<'a> {
    Revisions {
        count: usize,
        /// Number of revisions to measure now.
        tried: usize,
    },
    Building {
        revision: &'a Revision,
    },
    Built {
        revision: &'a Revision,
        record: &'a BuildRecord,
    },
    ProbeFailed {
        revision: &'a Revision,
        failure: &'a ProductFailure,
    },
    Round {
        round: &'a Round,
        experiment: &'a Experiment,
    },
    Run(&'a run::RunEvent<'a>),
    RoundEnded,
    /// A step of a search, in words.
    Search(&'a str),
    /// A change on the nodes of a cluster, in words.
    Nodes(&'a str),
}
