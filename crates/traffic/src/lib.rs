//! Traffic: weighted request templates, each of a class, and the requests drawn from them by a seed; lists of recorded
//! requests, and their import from logs and other recordings.
//!
//! Opens no file or socket. A [`Mix`] is checked when it is made, by the code of `tollgate-http1` that renders its
//! requests later, so that no request of a run is invalid.

mod file;
pub mod import;
mod include;
mod list;
pub mod load_shape;
mod mix;
mod responses;
mod template;
pub mod units;
mod variable;

pub use file::{BodyRepeat, Class, Expect, IncludeFile, MixFile, TemplateFile, VariableFile};
pub use include::MixTree;
pub use list::{
    ListError, ListTemplate, ListedEvent, ListedRequest, RequestList, ResponseSource,
    ResponseVariable,
};
pub use mix::{Mix, MixStep, Sample, StepRequest};
pub use responses::{RecordedResponse, RecordedResponses};
pub use template::{Message, Template};

pub const MAX_CONTAINS_BYTES: usize = 4096;

/// Limit for the sum of weights: a round is shuffled in memory.
const MAX_ROUND: u64 = 10_000;

const MAX_REQUESTS: usize = 65_536;

/// Limit for the requests of a list.
pub const MAX_LISTED: usize = 1_000_000;

/// Limit for the sum of weights if a mix has a list.
const MAX_LISTED_ROUND: u64 = 4_000_000;

/// Limit for the order of a list: its requests with times and clients.
pub const MAX_EVENTS: usize = 4_000_000;

/// Limit for the templates of a list: each has counters of its own in a load.
const MAX_LISTED_TEMPLATES: usize = 1_000;

/// Limit in bytes for all requests of a script that are rendered one by one, and the texts expected in their responses,
/// if every variable has its longest value.
const MAX_RENDERED_BYTES: usize = 16 << 20;

/// Limit in bytes for a body given by `body_bytes` or `body_repeat`: the largest that the origin accepts.
const MAX_BODY_BYTES: u64 = 64 << 20;

/// Limit for the texts of a list: each is tried in every template that uses it when a mix is read.
const MAX_LIST: usize = 10_000;

/// Error in a mix, as one line.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct MixError(String);

/// Returns `Err` with a formatted message.
macro_rules! fail {
    ($($format:tt)+) => {
        Err($crate::MixError(format!($($format)+)))
    };
}
pub(crate) use fail;
