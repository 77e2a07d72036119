//! Errors of loading rules, with their place.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Place in a rule file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RulePlace {
    /// File as it was named by the caller or by `Include`.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u32,
    /// Column in bytes, from 1.
    pub column: u32,
}

impl fmt::Display for RulePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// Error that prevents a rule set from being loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file cannot be read.
    #[error("cannot read rule file \"{}\": {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// A directive, operator, transformation, target or action is malformed.
    #[error("{place}: {message}")]
    Invalid {
        /// Place of the construct.
        place: RulePlace,
        /// Description of the error.
        message: String,
    },
    /// A construct that this engine does not implement.
    #[error("{place}: {message}")]
    Unsupported {
        /// Place of the construct.
        place: RulePlace,
        /// Name of the construct and the reason.
        message: String,
    },
}

impl LoadError {
    /// Place of the error, if it has one.
    pub fn place(&self) -> Option<&RulePlace> {
        match self {
            Self::Read { .. } => None,
            Self::Invalid { place, .. } | Self::Unsupported { place, .. } => Some(place),
        }
    }
}

/// Directive that was left out because it is not supported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Place of the directive.
    pub place: RulePlace,
    /// Name of the construct and the reason.
    pub message: String,
}

/// Error of one construct inside a directive, before its place is known. The offset counts bytes
/// from the start of the argument that contains it.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) offset: usize,
    pub(crate) unsupported: bool,
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn invalid(offset: usize, message: impl Into<String>) -> Self {
        Self { offset, unsupported: false, message: message.into() }
    }

    pub(crate) fn unsupported(offset: usize, message: impl Into<String>) -> Self {
        Self { offset, unsupported: true, message: message.into() }
    }

    pub(crate) fn shifted(mut self, by: usize) -> Self {
        self.offset += by;
        self
    }
}

/// Returns `; did you mean "NAME"?` with the nearest of the known names, or nothing.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let name = name.to_ascii_lowercase();
    known
        .into_iter()
        .map(|candidate| {
            (strsim::damerau_levenshtein(&name, &candidate.to_ascii_lowercase()), candidate)
        })
        .min()
        .filter(|&(distance, candidate)| distance <= 2.max(candidate.len() / 3))
        .map(|(_, candidate)| format!("; did you mean \"{candidate}\"?"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_name_ignores_case_and_distant_names() {
        assert_eq!(nearest("secrul", ["SecRule", "SecAction"]), "; did you mean \"SecRule\"?");
        assert_eq!(nearest("proxy_pass", ["SecRule", "SecAction"]), "");
    }
}
