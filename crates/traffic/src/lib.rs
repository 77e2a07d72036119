//! Traffic: weighted request templates, each of a class, and the requests drawn from them by a seed.
//!
//! Opens no file or socket. A [`Mix`] is checked when it is made, by the code of `tollgate-http1` that renders its
//! requests later, so that no request of a run is invalid.

mod file;
mod include;
mod mix;
mod template;
mod variable;

pub use file::{BodyRepeat, Class, Expect, IncludeFile, MixFile, TemplateFile, VariableFile};
pub use include::MixTree;
pub use mix::{Mix, Step};
pub use template::{Message, Template};

pub const MAX_CONTAINS_BYTES: usize = 4096;

/// Limit for the sum of weights: a round is shuffled in memory.
const MAX_ROUND: u64 = 10_000;

const MAX_REQUESTS: usize = 65_536;

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
