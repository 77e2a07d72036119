//! Options of a subject: those that its recipe offers, and the values that the experiment chooses.

use crate::toml_file::suggestion;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use thiserror::Error;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a whole number, or text in quotes")]
pub enum OptionValue {
    Integer(i64),
    /// A word or a path.
    Text(String),
}

/// An option of a recipe.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OptionSpec {
    /// Description in one line.
    pub about: String,
    pub default: OptionValue,
    /// Allowed words.
    pub values: Option<Vec<String>>,
    /// True if absolute paths are allowed too.
    #[serde(default)]
    pub path: bool,
    pub minimum: Option<i64>,
    pub maximum: Option<i64>,
    /// Values of other options without which this one has no effect; choosing it is then an error.
    #[serde(default)]
    pub requires: Options,
}

pub type Options = BTreeMap<String, OptionValue>;

#[derive(Debug, Error, PartialEq, Eq)]
pub enum OptionError {
    #[error("system `{system}` has no option `{name}`{hint}")]
    Unknown { system: String, name: String, hint: String },
    #[error("option `{name}` of system `{system}` cannot be `{value}`; expected {expected}")]
    NotAllowed { system: String, name: String, value: OptionValue, expected: String },
    #[error(
        "option `{name}` of system `{system}` has no effect unless `{other}` is `{needed}`; remove it, or set `{other}` \
         too"
    )]
    NoEffect { system: String, name: String, other: String, needed: OptionValue },
}

/// Checks the chosen values and adds the defaults of the other options.
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
                expected: spec.expected(),
            });
        }
        options.insert(name.clone(), value.clone());
    }
    for (name, spec) in offered.iter().filter(|(name, _)| chosen.contains_key(*name)) {
        if let Some((other, needed)) =
            spec.requires.iter().find(|(other, needed)| options.get(*other) != Some(*needed))
        {
            return Err(OptionError::NoEffect {
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
    /// Describes the allowed values.
    pub fn expected(&self) -> String {
        match (&self.values, self.path, self.minimum, self.maximum) {
            (Some(values), false, _, _) => format!("one of {}", values.join(", ")),
            (Some(values), true, _, _) => {
                format!("one of {}, or an absolute path", values.join(", "))
            }
            (None, true, _, _) => "an absolute path".to_owned(),
            (None, false, Some(low), Some(high)) => format!("a whole number from {low} to {high}"),
            (None, false, Some(low), None) => format!("a whole number of at least {low}"),
            (None, false, None, Some(high)) => format!("a whole number of at most {high}"),
            (None, false, None, None) => "a value of the same kind as its default".to_owned(),
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
    /// Returns the name of the option.
    pub fn option(&self) -> &str {
        match self {
            Self::Unknown { name, .. }
            | Self::NotAllowed { name, .. }
            | Self::NoEffect { name, .. } => name,
        }
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
    fn options_not_chosen_get_their_default() {
        let options = chosen("rules", text("crs")).unwrap();
        assert_eq!(options["rules"], text("crs"));
        assert_eq!(options["workers"], OptionValue::Integer(1));
        assert!(chosen("rules", text("/etc/rules")).is_ok());
    }

    #[test]
    fn invalid_option_is_an_error_with_the_allowed_values() {
        assert_eq!(
            chosen("rule", text("crs")).unwrap_err(),
            "system `waf` has no option `rule`; did you mean `rules`?"
        );
        assert_eq!(
            chosen("rules", text("full")).unwrap_err(),
            "option `rules` of system `waf` cannot be `full`; expected one of none, crs, or an absolute path"
        );
        assert_eq!(
            chosen("workers", OptionValue::Integer(9)).unwrap_err(),
            "option `workers` of system `waf` cannot be `9`; expected a whole number from 1 to 8"
        );
        assert!(chosen("workers", text("two")).is_err());
    }

    #[test]
    fn chosen_option_without_effect_is_an_error() {
        let both = |rules: &str| {
            let chosen = [("rules", text(rules)), ("level", OptionValue::Integer(2))];
            let chosen = chosen.map(|(name, value)| (name.to_owned(), value)).into();
            choose("waf", &offered(), &chosen).map_err(|error| error.to_string())
        };
        assert_eq!(both("crs").unwrap()["level"], OptionValue::Integer(2));
        assert_eq!(
            both("none").unwrap_err(),
            "option `level` of system `waf` has no effect unless `rules` is `crs`; remove it, or set `rules` too"
        );
        // A default is no error.
        assert_eq!(chosen("rules", text("none")).unwrap()["level"], OptionValue::Integer(1));
    }
}
