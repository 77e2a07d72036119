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

/// Returns the known word that is closest to `word`, if it is close enough for a typing error.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, candidate)| *distance <= candidate.len().max(3) / 2)
        .map(|(_, candidate)| candidate)
}

/// Returns "; did you mean `x`?" or, if no known word is close, a list of all.
pub fn suggestion<'a>(word: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    if let Some(near) = nearest(word, known.clone()) {
        return format!("; did you mean `{near}`?");
    }
    let list: Vec<String> = known.into_iter().map(|key| format!("`{key}`")).collect();
    if list.is_empty() {
        return "; none is known".to_owned();
    }
    format!("; known: {}", list.join(", "))
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
