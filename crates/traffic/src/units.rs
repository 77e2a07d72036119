//! Values with a unit in files and on the command line: durations such as `10s`, and shares such as `2%`.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// A [`Duration`] in text form: `10s`, `400ms`, `1m 30s`. Exact to the nanosecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
#[schemars(transparent)]
pub struct Span(#[schemars(with = "String")] pub Duration);

/// Error of a text that is not a duration.
#[derive(Debug, Error)]
#[error("`{text}` is not a duration such as \"10s\" or \"400ms\": {reason}")]
pub struct InvalidSpan {
    text: String,
    reason: humantime::DurationError,
}

impl FromStr for Span {
    type Err = InvalidSpan;

    fn from_str(text: &str) -> Result<Self, InvalidSpan> {
        humantime::parse_duration(text)
            .map(Span)
            .map_err(|reason| InvalidSpan { text: text.to_owned(), reason })
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(formatter)
    }
}

/// Duration that serde reads and writes as a [`Span`]: `#[serde(with = "span")]`.
pub mod span {
    use super::{Deserialize, Deserializer, Duration, Serialize, Serializer, Span};

    pub fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        Span(*time).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        Span::deserialize(deserializer).map(|span| span.0)
    }
}

/// A share from 0 to 1, in percent in text form: `2%`, `0.5 %`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, JsonSchema)]
#[schemars(transparent)]
pub struct Percent(#[schemars(with = "String")] pub f64);

/// Error of a text that is not a share.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not a share such as \"2%\", above 0 and up to 100")]
pub struct InvalidPercent(String);

impl Percent {
    /// The share times 100.
    pub fn in_percent(self) -> f64 {
        // 0.07 * 100 is not 7.
        (self.0 * 1e8).round() / 1e6
    }
}

impl FromStr for Percent {
    type Err = InvalidPercent;

    fn from_str(text: &str) -> Result<Self, InvalidPercent> {
        let number =
            text.trim().strip_suffix('%').and_then(|text| text.trim_end().parse::<f64>().ok());
        match number {
            Some(percent) if percent > 0.0 && percent <= 100.0 => Ok(Self(percent / 100.0)),
            _ => Err(InvalidPercent(text.to_owned())),
        }
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}%", self.in_percent())
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl Serialize for Percent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_round_trips() {
        for (text, share) in [("2%", 0.02), ("0.5 %", 0.005), (" 100%", 1.0), ("7%", 0.07)] {
            let percent: Percent = text.parse().unwrap();
            assert!((percent.0 - share).abs() < 1e-12, "{text}");
            assert_eq!(percent.to_string(), text.replace(' ', ""));
        }
        for text in ["", "2", "%", "0%", "-1%", "101%", "NaN%", "inf%", "two%"] {
            assert!(text.parse::<Percent>().is_err(), "{text}");
        }
    }
}
