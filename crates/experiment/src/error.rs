//! Errors of experiments: `anyhow` errors. [`BadInput`] marks those that the user can correct.

use std::error::Error;
use std::io;
use std::path::Path;

/// Message about an option, a file or a name.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadInput(pub String);

/// Returns an error that the user can correct.
pub fn bad_input(message: impl Into<String>) -> anyhow::Error {
    BadInput(message.into()).into()
}

/// Adds "cannot `action` `path`" to an error; for `map_err`.
pub fn io_error(action: &'static str, path: &Path) -> impl Fn(io::Error) -> anyhow::Error + use<> {
    let message = format!("cannot {action} {}", path.display());
    move |error| anyhow::Error::from(error).context(message.clone())
}

/// Joins an error and all its sources into one line.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text = format!("{text}: {source}");
        cause = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt;

    #[derive(Debug)]
    struct Nested(u32, Option<Box<Self>>);

    impl fmt::Display for Nested {
        fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(formatter, "step {}", self.0)
        }
    }

    impl Error for Nested {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(self.1.as_deref()?)
        }
    }

    #[test]
    fn error_chain_lists_sources_from_the_outside_in() {
        let alone = Nested(3, None);
        assert_eq!(error_chain(&alone), "step 3");
        let nested = Nested(1, Some(Nested(2, Some(alone.into())).into()));
        assert_eq!(error_chain(&nested), "step 1: step 2: step 3");
    }
}
