//! The body of a request, as a template writes it or describes it.

use crate::error::MixError;
use crate::template::TemplateFile;
use schemars::JsonSchema;
use serde::Deserialize;
use std::borrow::Cow;

/// A body of one text again and again, as that of a long form or list has.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BodyRepeat {
    /// What comes before.
    #[serde(default)]
    pub begin: String,
    /// What is repeated; in it `{{index}}` stands for 1 the first time, for 2 the second.
    pub each: String,
    /// How often.
    pub times: u32,
    /// What stands between one and the next.
    #[serde(default)]
    pub between: String,
    /// What comes after.
    #[serde(default)]
    pub end: String,
}

/// The longest body that is described and not written: what the benchmark site takes.
pub(crate) const MAX_BODY_BYTES: u64 = 64 << 20;

/// What counts the repetitions.
const INDEX: &str = "index";

/// The body of a template, whose file declares these variables.
pub(crate) fn text<'a>(file: &'a TemplateFile, names: &[String]) -> Result<Cow<'a, str>, MixError> {
    let written = !file.body.is_empty();
    match (written, file.body_bytes, &file.body_repeat) {
        (_, None, None) => Ok(Cow::Borrowed(&file.body)),
        (false, Some(bytes), None) => {
            within_limit(file, "body_bytes", bytes)?;
            Ok(Cow::Owned("x".repeat(bytes as usize)))
        }
        (false, None, Some(_)) if names.iter().any(|name| name == INDEX) => {
            Err(MixError::IndexTaken(file.name.clone()))
        }
        (false, None, Some(repeat)) => {
            within_limit(file, "body_repeat", repeat.bytes_max())?;
            Ok(Cow::Owned(repeat.text()))
        }
        (written, bytes, _) => {
            let first = if written { "body" } else { "body_bytes" };
            let second = if written && bytes.is_some() { "body_bytes" } else { "body_repeat" };
            Err(MixError::TwoBodies { template: file.name.clone(), first, second })
        }
    }
}

fn within_limit(file: &TemplateFile, key: &'static str, bytes: u64) -> Result<(), MixError> {
    match bytes > MAX_BODY_BYTES {
        true => Err(MixError::BodyTooLarge { template: file.name.clone(), key, bytes }),
        false => Ok(()),
    }
}

impl BodyRepeat {
    /// How long the text is at the most: an index may be longer than its placeholder, which has nine
    /// characters, by one.
    fn bytes_max(&self) -> u64 {
        let one = self.each.len() + self.between.len();
        let longer = self.each.matches(PLACEHOLDER).count();
        u64::from(self.times) * (one + longer) as u64 + (self.begin.len() + self.end.len()) as u64
    }

    fn text(&self) -> String {
        let each = |index: u32| self.each.replace(PLACEHOLDER, &index.to_string());
        let all: Vec<String> = (1..=self.times).map(each).collect();
        format!("{}{}{}", self.begin, all.join(&self.between), self.end)
    }
}

const PLACEHOLDER: &str = "{{index}}";
