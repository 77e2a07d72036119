//! One request template: what is sent, what kind of request it is, and what answer it deserves.

use crate::error::MixError;
use crate::message::Message;
use crate::text::Text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Whether a request is one that a WAF should let through.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Harmless: a subject that blocks it raises a false alarm.
    Benign,
    /// An attack: a subject that says it blocks attacks must block it.
    Malicious,
}

/// The answer that a request gets when nothing blocks it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// The status code.
    #[serde(default = "ok_status")]
    pub status: u16,
    /// The length of the body in bytes, when it is known beforehand.
    pub body_bytes: Option<u64>,
    /// A text that occurs in the body, when one is known beforehand; 1 to 4096 bytes.
    pub body_contains: Option<String>,
}

/// The longest text that can be expected in a body.
pub const MAX_CONTAINS_BYTES: usize = 4096;

/// The longest body of filler: what the benchmark site takes.
pub(crate) const MAX_BODY_BYTES: u64 = 64 << 20;

/// A template as a mix file writes it. Path, values of headers, body and the text expected in the
/// answer may use variables, as `{{NAME}}`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TemplateFile {
    /// A short name, unique in the mix; figures are reported under it.
    pub name: String,
    /// What kind of request this is.
    pub class: Class,
    /// How often it is sent in proportion to the others; 0 leaves it to the probe alone.
    pub weight: u32,
    /// The request method.
    #[serde(default = "get_method")]
    pub method: String,
    /// The request target: a path that starts with `/`, and a query if any.
    pub path: String,
    /// Headers as `Name: value` lines, after those that the whole mix shares.
    #[serde(default)]
    pub headers: Vec<String>,
    /// The request body.
    #[serde(default)]
    pub body: String,
    /// In the place of `body`: so many bytes of filler, the letter `x`; up to 64 MiB.
    pub body_bytes: Option<u64>,
    /// The answer that this request gets when nothing blocks it.
    #[serde(default)]
    pub expect: Expect,
}

/// A template whose parts have been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// The name that figures are reported under.
    pub name: String,
    /// What kind of request this is.
    pub class: Class,
    /// The status code that this request is answered with when nothing blocks it.
    pub status: u16,
    pub(crate) weight: u32,
    /// The variables that it uses, by index.
    pub(crate) variables: BTreeSet<usize>,
    pub(crate) body_contains: Option<Text>,
    method: String,
    path: Text,
    headers: Vec<(String, Text)>,
    body: Text,
    body_bytes: Option<u64>,
}

impl Template {
    /// Checks what can be told without the values of the variables, whose `names` are given.
    /// `shared` are the header lines of the mix.
    pub(crate) fn check(
        file: TemplateFile,
        shared: &[String],
        names: &[String],
    ) -> Result<Self, MixError> {
        if !file.path.starts_with('/') {
            return Err(MixError::NotAPath { template: file.name, path: file.path });
        }
        let Expect { status, body_bytes, body_contains } = file.expect.clone();
        let bodiless = body_bytes.is_none_or(|bytes| bytes == 0) && body_contains.is_none();
        if file.method == "HEAD" && !bodiless {
            return Err(MixError::BodyOfHead(file.name));
        }
        let parse = |text: &str| {
            Text::parse(text, names)
                .map_err(|variable| MixError::undeclared(&file.name, variable, names))
        };
        let mut headers = Vec::new();
        for line in shared.iter().chain(&file.headers) {
            match line.split_once(':') {
                Some((name, value)) if !name.is_empty() => {
                    headers.push((name.to_owned(), parse(value.trim())?));
                }
                _ => return Err(MixError::BadHeader(line.clone())),
            }
        }
        let path = parse(&file.path)?;
        let body = parse(&body(&file)?)?;
        let body_contains = body_contains.as_deref().map(parse).transpose()?;
        let texts = headers.iter().map(|(_, value)| value).chain([&path, &body]);
        let variables = texts.chain(&body_contains).flat_map(Text::variables).collect();
        Ok(Self {
            name: file.name,
            class: file.class,
            status,
            weight: file.weight,
            variables,
            body_contains,
            method: file.method,
            path,
            headers,
            body,
            body_bytes,
        })
    }

    /// The request with `values[i]` in the place of variable `i`.
    pub(crate) fn message(&self, values: &[String]) -> Message {
        let header = |(name, value): &(String, Text)| (name.clone(), value.render(values));
        Message {
            method: self.method.clone(),
            path: self.path.render(values),
            headers: self.headers.iter().map(header).collect(),
            body: self.body.render(values),
            expect: Expect {
                status: self.status,
                body_bytes: self.body_bytes,
                body_contains: self.body_contains.as_ref().map(|text| text.render(values)),
            },
        }
    }
}

impl Default for Expect {
    fn default() -> Self {
        Self { status: ok_status(), body_bytes: None, body_contains: None }
    }
}

/// The body as it is written, or as long as it says.
fn body(file: &TemplateFile) -> Result<Cow<'_, str>, MixError> {
    match file.body_bytes {
        None => Ok(Cow::Borrowed(&file.body)),
        Some(_) if !file.body.is_empty() => Err(MixError::TwoBodies(file.name.clone())),
        Some(bytes) if bytes > MAX_BODY_BYTES => {
            Err(MixError::BodyTooLarge { template: file.name.clone(), bytes })
        }
        Some(bytes) => Ok(Cow::Owned("x".repeat(bytes as usize))),
    }
}

fn ok_status() -> u16 {
    200
}

fn get_method() -> String {
    "GET".to_owned()
}
