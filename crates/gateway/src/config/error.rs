//! What is wrong with a configuration, and where.

use std::io;
use std::path::PathBuf;

use serde_saphyr::{Location, MessageFormatter as _, Spanned, UserMessageFormatter};

/// Why there is no configuration. Each says what to do next; the cause, if there is one, is in
/// `source()`.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("the configuration {} cannot be read; name a file that can be", .path.display())]
    Read {
        /// The file that was named.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Something in it cannot be.
    #[error("{file}:{line}:{column}: {message}")]
    Wrong {
        /// The file, as it was named.
        file: String,
        /// The line, from 1.
        line: u64,
        /// The column in characters, from 1.
        column: u64,
        /// What is wrong, and what to write instead.
        message: String,
        /// What made it wrong, where that is not in the file.
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

/// Something that is wrong at a place of the file, whose name is not known here.
#[derive(Debug)]
pub(super) struct Fault {
    at: Location,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Fault {
    /// Something is wrong there.
    pub(super) fn at<T>(place: &Spanned<T>, message: impl Into<String>) -> Self {
        Self { at: place.referenced, message: message.into(), source: None }
    }

    /// What made it wrong.
    pub(super) fn because(
        self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// The same, in this file.
    pub(super) fn in_file(self, file: &str) -> ConfigError {
        ConfigError::Wrong {
            file: file.to_owned(),
            line: self.at.line().max(1),
            column: self.at.column().max(1),
            message: self.message,
            source: self.source,
        }
    }
}

/// What the reader of YAML found, in the words of this project.
impl From<serde_saphyr::Error> for Fault {
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
            Yaml::SerdeMissingField { field, .. } => format!("the key `{field}` is missing"),
            Yaml::DuplicateMappingKey { key: Some(key), .. } => {
                format!("the key `{key}` is here for the second time; leave one of them")
            }
            Yaml::InvalidScalar { ty: expected, .. } | Yaml::Unexpected { expected, .. } => {
                format!("it has to be {}", kind(expected))
            }
            Yaml::SerdeInvalidType { unexpected, expected, .. }
            | Yaml::SerdeInvalidValue { unexpected, expected, .. } => {
                format!("it has to be {expected}, and not {unexpected}")
            }
            other => UserMessageFormatter.format_message(other).into_owned(),
        };
        Self {
            at: error.location().unwrap_or(Location::UNKNOWN),
            message: message.trim_end().replace('\n', " "),
            source: None,
        }
    }
}

/// What the reader calls a kind of value, in words.
fn kind(of_yaml: &'static str) -> &'static str {
    match of_yaml {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number from 0 on",
        "boolean" => "true or false",
        "string scalar" => "a text",
        "mapping start" => "keys with values",
        "sequence start" => "a list",
        other => other,
    }
}

/// "; did you mean `x`?" or, where nothing is near, the list of what there is.
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
    if known.is_empty() {
        return "; there is none to choose from".to_owned();
    }
    let list: Vec<String> = known.iter().map(|key| format!("`{key}`")).collect();
    format!("; there is {}", list.join(", "))
}
