//! Errors of a configuration, with their place in the file.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use serde_saphyr::{Location, MessageFormatter as _, UserMessageFormatter};

use crate::located::Located;

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

/// An error with its causes.
pub fn chain(error: &dyn Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

/// A syntax error or an invalid value, without the name of the file.
#[derive(Debug)]
pub struct InvalidValue {
    location: Location,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl InvalidValue {
    pub fn at<T>(value: &Located<T>, message: impl Into<String>) -> Self {
        Self { location: value.0.referenced, message: message.into(), source: None }
    }

    pub fn with_source(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// True if this says the same about the same place.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.location, &self.message) == (other.location, &other.message)
    }

    pub fn in_file(self, file: &str) -> ConfigError {
        ConfigError::Invalid {
            file: file.to_owned(),
            line: self.location.line().max(1),
            column: self.location.column().max(1),
            message: self.message,
            source: self.source,
        }
    }

    /// `text` is the file.
    pub(crate) fn of_yaml(error: &serde_saphyr::Error, text: &str) -> Self {
        use serde_saphyr::Error as Yaml;

        let error = error.without_snippet();
        let location = error.location().unwrap_or(Location::UNKNOWN);
        let expected = |expected: &str| {
            let form = form_before(text, location)
                .map(|(key, form)| format!("; write it as in `{key}: {form}`"));
            format!("expected {expected}{}", form.unwrap_or_default())
        };
        let message = match error {
            Yaml::SerdeUnknownField { field, expected, .. } => {
                match REMOVED_KEYS.iter().find(|(key, _)| *key == field) {
                    Some((_, reason)) => format!("`{field}` is gone: {reason}; remove the key"),
                    None => format!("unknown key `{field}`{}", suggestion(field, expected)),
                }
            }
            Yaml::SerdeUnknownVariant { variant, expected, .. } => {
                format!("unknown value `{variant}`{}", suggestion(variant, expected))
            }
            Yaml::SerdeMissingField { field, .. } => format!("missing key `{field}`"),
            Yaml::DuplicateMappingKey { key: Some(key), .. } => {
                format!("duplicate key `{key}`; remove one of them")
            }
            Yaml::InvalidScalar { ty, .. } | Yaml::Unexpected { expected: ty, .. } => {
                expected(kind(ty))
            }
            Yaml::SerdeInvalidType { unexpected, expected: ty, .. }
            | Yaml::SerdeInvalidValue { unexpected, expected: ty, .. } => {
                format!("{}, found {unexpected}", expected(ty))
            }
            other => UserMessageFormatter.format_message(other).into_owned(),
        };
        Self { location, message: message.trim_end().replace('\n', " "), source: None }
    }
}

/// Keys of earlier versions.
const REMOVED_KEYS: [(&str, &str); 1] =
    [("ocsp", "stapling has been removed, as authorities end OCSP")];

/// Values of keys that are often written in the form of another key.
const FORMS: [(&str, &str); 15] = [
    ("access_log", "{ to: stdout }"),
    ("admin", "127.0.0.1:9900"),
    ("audit_log", "{ to: /var/log/tollgate/audit.json }"),
    ("backends", "[{ address: 127.0.0.1:8000 }]"),
    ("certificates", "[{ certificate: site.pem, key: site.key }]"),
    ("eject", "{ failures: 5 }"),
    ("health", "{ path: /status }"),
    ("listeners", "[{ address: 127.0.0.1:8080 }]"),
    ("pool", "site"),
    ("pools", "[{ name: site, backends: [{ address: 127.0.0.1:8000 }] }]"),
    ("remove", "[X-Powered-By]"),
    ("routes", "[{ path: /, pool: site }]"),
    ("rules", "[site.conf]"),
    ("upgrades", "[websocket]"),
    ("waf", "{ rules: [site.conf] }"),
];

/// The key before a place in the file, and the form of its value.
fn form_before(text: &str, location: Location) -> Option<(&'static str, &'static str)> {
    let line = usize::try_from(location.line()).ok()?.checked_sub(1)?;
    let column = usize::try_from(location.column()).ok()?.checked_sub(1)?;
    let mut lines: Vec<&str> = text.lines().take(line + 1).collect();
    let last = lines.pop()?;
    let last = &last[..last.char_indices().nth(column).map_or(last.len(), |(at, _)| at)];
    let mut before = lines.into_iter().chain([last]).rev();
    let before = before.find_map(|line| line.rsplit_once(':'))?.0;
    FORMS.iter().copied().find(|(key, _)| {
        before
            .strip_suffix(key)
            .is_some_and(|rest| !rest.ends_with(|c: char| c == '_' || c.is_alphanumeric()))
    })
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
pub fn suggestion<'a>(
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
