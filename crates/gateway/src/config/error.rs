//! Errors of a configuration, with their place in the file.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use serde_saphyr::{Location, MessageFormatter as _, UserMessageFormatter};

use super::file::Located;

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration `{}`", .path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A syntax error or an invalid value. Line and column count from 1.
    #[error("{file}:{line}:{column}: {message}")]
    Invalid {
        file: String,
        line: u64,
        column: u64,
        message: String,
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// Several values that each name something that cannot be read or resolved.
    #[error("{}", lines(.0))]
    Several(Vec<Self>),
}

/// The errors with their causes, one per line.
fn lines(errors: &[ConfigError]) -> String {
    errors.iter().map(|error| chain(error)).collect::<Vec<_>>().join("\n")
}

fn chain(error: &dyn Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

/// A syntax error or an invalid value, without the name of the file.
#[derive(Debug)]
pub(super) struct InvalidValue {
    location: Location,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl InvalidValue {
    pub(super) fn at<T>(value: &Located<T>, message: impl Into<String>) -> Self {
        Self { location: value.0.referenced, message: message.into(), source: None }
    }

    pub(super) fn with_source(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// True if this says the same about the same place.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (self.location, &self.message) == (other.location, &other.message)
    }

    pub(super) fn in_file(self, file: &str) -> ConfigError {
        ConfigError::Invalid {
            file: file.to_owned(),
            line: self.location.line().max(1),
            column: self.location.column().max(1),
            message: self.message,
            source: self.source,
        }
    }
}

impl From<serde_saphyr::Error> for InvalidValue {
    fn from(error: serde_saphyr::Error) -> Self {
        use serde_saphyr::Error as Yaml;

        let error = error.without_snippet();
        let message = match error {
            Yaml::SerdeUnknownField { field, expected, .. } => {
                format!("unknown key `{field}`{}", suggestion(field, expected))
            }
            Yaml::SerdeUnknownVariant { variant, expected, .. } => {
                format!("unknown value `{variant}`{}", suggestion(variant, expected))
            }
            Yaml::SerdeMissingField { field, .. } => format!("missing key `{field}`"),
            Yaml::DuplicateMappingKey { key: Some(key), .. } => {
                format!("duplicate key `{key}`; remove one of them")
            }
            Yaml::InvalidScalar { ty: expected, .. } | Yaml::Unexpected { expected, .. } => {
                format!("expected {}", kind(expected))
            }
            Yaml::SerdeInvalidType { unexpected, expected, .. }
            | Yaml::SerdeInvalidValue { unexpected, expected, .. } => {
                format!("expected {expected}, found {unexpected}")
            }
            other => UserMessageFormatter.format_message(other).into_owned(),
        };
        Self {
            location: error.location().unwrap_or(Location::UNKNOWN),
            message: message.trim_end().replace('\n', " "),
            source: None,
        }
    }
}

/// Returns the user-facing name of a type that the YAML parser expects.
fn kind(of_yaml: &'static str) -> &'static str {
    match of_yaml {
        "u8" | "u16" | "u32" | "u64" | "usize" => "an integer of 0 or more",
        "boolean" => "true or false",
        "string scalar" => "a string",
        "mapping start" => "keys with values",
        "sequence start" => "a list",
        other => other,
    }
}

/// "; did you mean `x`?" or, if nothing is near, the list of known words.
pub(super) fn suggestion<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a (impl AsRef<str> + ?Sized + 'a)>,
) -> String {
    let known: Vec<&str> = known.into_iter().map(AsRef::as_ref).collect();
    let nearest = known
        .iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= candidate.len().max(3) / 2);
    if let Some((_, nearest)) = nearest {
        return format!("; did you mean `{nearest}`?");
    }
    let list: Vec<String> = known.iter().map(|key| format!("`{key}`")).collect();
    format!("; expected one of {}", list.join(", "))
}
