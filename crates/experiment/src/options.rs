//! The options of a subject: what its recipe offers, what the experiment chose.

use super::toml_file::suggestion;
use schemars::JsonSchema;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use thiserror::Error;

/// A value that an option may take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum OptionValue {
    /// A whole number.
    Integer(i64),
    /// A word, or a path.
    Text(String),
}

/// One option as a recipe offers it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OptionSpec {
    /// What the option decides, in one line.
    pub about: String,
    /// The value of a subject that does not choose.
    pub default: OptionValue,
    /// The words it may be.
    pub values: Option<Vec<String>>,
    /// Whether any path is allowed besides the words.
    #[serde(default)]
    pub path: bool,
    /// The smallest number it may be.
    pub minimum: Option<i64>,
    /// The largest number it may be.
    pub maximum: Option<i64>,
    /// Other options, each with the value without which this one does nothing: then a subject that chooses it is
    /// refused.
    #[serde(default)]
    pub requires: Options,
}

/// Every option of a subject, chosen or by default.
pub type Options = BTreeMap<String, OptionValue>;

/// What is wrong with the options that a subject chose.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum OptionError {
    /// The recipe has no such option.
    #[error("system `{system}` has no option `{name}`{hint}")]
    Unknown {
        /// The system's name.
        system: String,
        /// The option that was asked for.
        name: String,
        /// The nearest that exists.
        hint: String,
    },
    /// The value is not one that the option may take.
    #[error("option `{name}` of system `{system}` cannot be `{value}`: {allowed}")]
    NotAllowed {
        /// The system's name.
        system: String,
        /// The option's name.
        name: String,
        /// The value that was asked for.
        value: OptionValue,
        /// What it may be, in words.
        allowed: String,
    },
    /// Under the other options it would be ignored.
    #[error(
        "option `{name}` of system `{system}` does nothing unless `{other}` is `{needed}`: leave it out, or set that too"
    )]
    Idle {
        /// The system's name.
        system: String,
        /// The option's name.
        name: String,
        /// The option that it depends on.
        other: String,
        /// What that would have to be.
        needed: OptionValue,
    },
}

/// The chosen values checked against what the recipe offers, and the defaults of the rest.
///
/// # Errors
///
/// A name that the recipe does not have, a value outside what it allows, or an option that would do nothing.
pub fn choose(
    system: &str,
    offered: &BTreeMap<String, OptionSpec>,
    chosen: &Options,
) -> Result<Options, OptionError> {
    if let Some(name) = chosen.keys().find(|name| !offered.contains_key(*name)) {
        return Err(OptionError::Unknown {
            system: system.to_owned(),
            name: name.clone(),
            hint: suggestion(name, offered.keys().map(String::as_str)),
        });
    }
    let mut options = Options::new();
    for (name, spec) in offered {
        let value = chosen.get(name).unwrap_or(&spec.default);
        if !spec.allows(value) {
            return Err(OptionError::NotAllowed {
                system: system.to_owned(),
                name: name.clone(),
                value: value.clone(),
                allowed: spec.allowed(),
            });
        }
        options.insert(name.clone(), value.clone());
    }
    for (name, spec) in offered.iter().filter(|(name, _)| chosen.contains_key(*name)) {
        if let Some((other, needed)) =
            spec.requires.iter().find(|(other, needed)| options.get(*other) != Some(*needed))
        {
            return Err(OptionError::Idle {
                system: system.to_owned(),
                name: name.clone(),
                other: other.clone(),
                needed: needed.clone(),
            });
        }
    }
    Ok(options)
}

impl OptionSpec {
    /// What the option may be, in words.
    pub fn allowed(&self) -> String {
        match (&self.values, self.path, self.minimum, self.maximum) {
            (Some(values), false, _, _) => format!("it is one of {}", values.join(", ")),
            (Some(values), true, _, _) => {
                format!("it is one of {}, or an absolute path", values.join(", "))
            }
            (None, true, _, _) => "it is an absolute path".to_owned(),
            (None, false, Some(low), Some(high)) => {
                format!("it is a whole number from {low} to {high}")
            }
            (None, false, Some(low), None) => format!("it is a whole number from {low} up"),
            (None, false, None, Some(high)) => format!("it is a whole number up to {high}"),
            (None, false, None, None) => "it is a value of the same kind as its default".to_owned(),
        }
    }

    fn allows(&self, value: &OptionValue) -> bool {
        match value {
            OptionValue::Text(text) => {
                let listed = match &self.values {
                    Some(values) => values.contains(text),
                    None => !self.path && matches!(self.default, OptionValue::Text(_)),
                };
                listed || (self.path && text.starts_with('/'))
            }
            OptionValue::Integer(number) => {
                matches!(self.default, OptionValue::Integer(_))
                    && self.minimum.is_none_or(|low| low <= *number)
                    && self.maximum.is_none_or(|high| *number <= high)
            }
        }
    }
}

impl OptionError {
    /// The option's name.
    pub fn option(&self) -> &str {
        match self {
            Self::Unknown { name, .. }
            | Self::NotAllowed { name, .. }
            | Self::Idle { name, .. } => name,
        }
    }
}

impl<'de> Deserialize<'de> for OptionValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OptionValueVisitor)
    }
}

/// Says in words what a value may be, where a derived untagged enum would not.
struct OptionValueVisitor;

impl Visitor<'_> for OptionValueVisitor {
    type Value = OptionValue;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a whole number, or a text in quotes")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<OptionValue, E> {
        Ok(OptionValue::Integer(number))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<OptionValue, E> {
        let number = i64::try_from(number).map_err(E::custom)?;
        Ok(OptionValue::Integer(number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<OptionValue, E> {
        Ok(OptionValue::Text(text.to_owned()))
    }
}

impl fmt::Display for OptionValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => number.fmt(formatter),
            Self::Text(text) => text.fmt(formatter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> OptionValue {
        OptionValue::Text(value.to_owned())
    }

    fn offered() -> BTreeMap<String, OptionSpec> {
        let rules = OptionSpec {
            about: String::new(),
            default: text("none"),
            values: Some(vec!["none".to_owned(), "crs".to_owned()]),
            path: true,
            minimum: None,
            maximum: None,
            requires: Options::new(),
        };
        let workers = OptionSpec {
            about: String::new(),
            default: OptionValue::Integer(1),
            values: None,
            path: false,
            minimum: Some(1),
            maximum: Some(8),
            requires: Options::new(),
        };
        let level = OptionSpec {
            requires: Options::from([("rules".to_owned(), text("crs"))]),
            ..workers.clone()
        };
        let named = [("rules", rules), ("workers", workers), ("level", level)];
        named.map(|(name, spec)| (name.to_owned(), spec)).into()
    }

    fn chosen(name: &str, value: OptionValue) -> Result<Options, String> {
        let chosen = Options::from([(name.to_owned(), value)]);
        choose("waf", &offered(), &chosen).map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_fill_what_was_not_chosen() {
        let options = chosen("rules", text("crs")).unwrap();
        assert_eq!(options["rules"], text("crs"));
        assert_eq!(options["workers"], OptionValue::Integer(1));
        assert!(chosen("rules", text("/etc/rules")).is_ok());
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_can() {
        assert_eq!(
            chosen("rule", text("crs")).unwrap_err(),
            "system `waf` has no option `rule`; did you mean `rules`?"
        );
        assert_eq!(
            chosen("rules", text("full")).unwrap_err(),
            "option `rules` of system `waf` cannot be `full`: it is one of none, crs, or an absolute path"
        );
        assert_eq!(
            chosen("workers", OptionValue::Integer(9)).unwrap_err(),
            "option `workers` of system `waf` cannot be `9`: it is a whole number from 1 to 8"
        );
        assert!(chosen("workers", text("two")).is_err());
    }

    #[test]
    fn an_option_that_would_do_nothing_is_refused_where_it_is_chosen() {
        let both = |rules: &str| {
            let chosen = [("rules", text(rules)), ("level", OptionValue::Integer(2))];
            let chosen = chosen.map(|(name, value)| (name.to_owned(), value)).into();
            choose("waf", &offered(), &chosen).map_err(|error| error.to_string())
        };
        assert_eq!(both("crs").unwrap()["level"], OptionValue::Integer(2));
        assert_eq!(
            both("none").unwrap_err(),
            "option `level` of system `waf` does nothing unless `rules` is `crs`: leave it out, or set that too"
        );
        // By default it is there all the same, for whatever asks for it.
        assert_eq!(chosen("rules", text("none")).unwrap()["level"], OptionValue::Integer(1));
    }
}
