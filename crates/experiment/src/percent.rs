//! A share as people write it: `2%`, `0.5 %`.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// A share of one that is read and written in percent.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, JsonSchema)]
#[schemars(transparent)]
pub struct Percent(#[schemars(with = "String")] pub f64);

/// A text that is no share.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not a share such as \"2%\", above 0 and up to 100")]
pub struct NotPercent(String);

impl Percent {
    /// The share in percent.
    pub fn in_percent(self) -> f64 {
        // 0.07 * 100 is not 7.
        (self.0 * 1e8).round() / 1e6
    }
}

impl FromStr for Percent {
    type Err = NotPercent;

    fn from_str(text: &str) -> Result<Self, NotPercent> {
        let number =
            text.trim().strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
        match number {
            Some(percent) if percent > 0.0 && percent <= 100.0 => Ok(Self(percent / 100.0)),
            Some(_) | None => Err(NotPercent(text.to_owned())),
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
    fn shares_are_read_and_written_in_percent() {
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
