//! Options of a subject: those that its recipe offers, and the values that the experiment chooses.

use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::path::{self, Path};
use thiserror::Error;
use tollgate_records::error::suggestion;
use tollgate_records::subject::{OptionValue, Options};

/// An option of a recipe.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OptionSpec {
    /// Description in one line.
    pub about: String,
    /// Value for subjects that do not set the option.
    pub default: OptionValue,
    /// Allowed words; by default any text if `default` is text.
    pub values: Option<Vec<String>>,
    /// True if absolute paths are allowed too.
    #[serde(default)]
    pub path: bool,
    /// Smallest allowed integer.
    pub minimum: Option<i64>,
    /// Largest allowed integer.
    pub maximum: Option<i64>,
    /// Values of other options without which this one has no effect; choosing it is then an error.
    #[serde(default)]
    pub requires: Options,
}

/// Error in the value of an option.
#[derive(Debug, Error)]
#[error("{message}")]
pub struct OptionError {
    pub option: String,
    message: String,
}

/// Parses the value of an option on the command line.
pub(crate) fn option_value(text: &str) -> OptionValue {
    text.parse().map_or_else(|_| OptionValue::Text(text.to_owned()), OptionValue::Integer)
}

/// Makes the paths of existing files and folders absolute; relative ones are relative to `folder`.
pub fn make_absolute(
    offered: &BTreeMap<String, OptionSpec>,
    chosen: &mut Options,
    folder: &Path,
) -> io::Result<()> {
    for (name, value) in chosen {
        let OptionValue::Text(text) = value else { continue };
        let is_listed = |spec: &OptionSpec| spec.values.iter().flatten().any(|word| word == text);
        let takes_it = |spec: &&OptionSpec| spec.path && !is_listed(spec);
        if offered.get(name).filter(takes_it).is_some() && folder.join(&*text).exists() {
            *text = path::absolute(folder.join(&*text))?.display().to_string();
        }
    }
    Ok(())
}

/// Checks the chosen values and adds the defaults of the other options.
pub fn choose(
    system: &str,
    offered: &BTreeMap<String, OptionSpec>,
    chosen: &Options,
) -> Result<Options, OptionError> {
    let error = |name: &str, message| OptionError { option: name.to_owned(), message };
    if let Some(name) = chosen.keys().find(|name| !offered.contains_key(*name)) {
        let hint = suggestion(name, offered.keys().map(String::as_str));
        return Err(error(name, format!("system `{system}` has no option `{name}`{hint}")));
    }
    let mut options = Options::new();
    for (name, spec) in offered {
        let value = chosen.get(name).unwrap_or(&spec.default);
        if !spec.allows(value) {
            let expected = spec.expected();
            return Err(error(
                name,
                format!(
                    "option `{name}` of system `{system}` cannot be `{value}`; expected {expected}"
                ),
            ));
        }
        options.insert(name.clone(), value.clone());
    }
    for (name, spec) in offered.iter().filter(|(name, _)| chosen.contains_key(*name)) {
        if let Some((other, needed)) =
            spec.requires.iter().find(|(other, needed)| options.get(*other) != Some(*needed))
        {
            let message = format!(
                "option `{name}` of system `{system}` has no effect unless `{other}` is `{needed}`; remove it, or \
                 set `{other}` too"
            );
            return Err(error(name, message));
        }
    }
    Ok(options)
}

const PATH: &str = "a path (absolute, or of an existing file or folder)";

impl OptionSpec {
    /// Describes the allowed values.
    pub fn expected(&self) -> String {
        match (&self.values, self.path, self.minimum, self.maximum) {
            (Some(values), false, _, _) => format!("one of {}", values.join(", ")),
            (Some(values), true, _, _) => {
                format!("one of {}, or {PATH}", values.join(", "))
            }
            (None, true, _, _) => PATH.to_owned(),
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
            "option `rules` of system `waf` cannot be `full`; expected one of none, crs, or a path \
             (absolute, or of an existing file or folder)"
        );
        assert_eq!(
            chosen("workers", OptionValue::Integer(9)).unwrap_err(),
            "option `workers` of system `waf` cannot be `9`; expected a whole number from 1 to 8"
        );
        assert!(chosen("workers", text("two")).is_err());
    }

    #[test]
    fn paths_of_existing_files_become_absolute() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["my.conf", "crs", "2"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let absolute = |name: &str, value: &str| {
            let mut chosen = Options::from([(name.to_owned(), text(value))]);
            make_absolute(&offered(), &mut chosen, dir.path()).unwrap();
            chosen[name].to_string()
        };
        let here = dir.path().display();
        assert_eq!(absolute("rules", "my.conf"), format!("{here}/my.conf"));
        for value in ["missing.conf", "/etc/rules", "crs"] {
            assert_eq!(absolute("rules", value), value);
        }
        assert_eq!(absolute("workers", "2"), "2", "takes no path");
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
