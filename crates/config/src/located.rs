//! Values with their place in the file, and durations.

use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_saphyr::Spanned;

/// A value with its place in the file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent, bound(deserialize = "T: Deserialize<'de>"))]
#[schemars(inline)]
pub struct Located<T>(#[schemars(with = "T")] pub Spanned<T>);

impl<T> Located<T> {
    pub fn line(&self) -> u64 {
        self.0.referenced.line()
    }
}

impl<T> std::ops::Deref for Located<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T: Serialize> Serialize for Located<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.value.serialize(serializer)
    }
}

/// A duration such as `10s` or `1m 30s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(inline, transparent)]
pub struct HumanDuration(#[schemars(with = "String")] pub Duration);

impl fmt::Display for HumanDuration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(out)
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_duration(&text).map(Self).map_err(|error| {
            de::Error::custom(format!("`{text}` is not a duration such as 10s or 400ms: {error}"))
        })
    }
}
