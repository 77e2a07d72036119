//! Errors in mixes.

/// Error in a mix, as one line.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct MixError(pub(crate) String);

/// Returns `Err` with a formatted message.
macro_rules! fail {
    ($($format:tt)+) => {
        Err($crate::error::MixError(format!($($format)+)))
    };
}
pub(crate) use fail;
