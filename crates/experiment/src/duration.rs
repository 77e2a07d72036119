//! A span of time as people write it in a file: `10s`, `400ms`, `1m 30s`.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// A [`Duration`] that is read and written as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
#[schemars(transparent)]
pub struct Span(#[schemars(with = "String")] pub Duration);

/// A text that is no [`Span`].
#[derive(Debug, Error)]
#[error("`{text}` is not a duration such as \"10s\" or \"400ms\": {why}")]
pub struct SpanError {
    text: String,
    why: humantime::DurationError,
}

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, SpanError> {
        humantime::parse_duration(text)
            .map(Span)
            .map_err(|why| SpanError { text: text.to_owned(), why })
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(self.0))
    }
}
