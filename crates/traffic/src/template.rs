//! One request template: what is sent, what kind of request it is, and what answer it deserves.

use crate::body::{self, BodyRepeat};
use crate::error::MixError;
use crate::message::Message;
use crate::mix::MixFile;
use crate::text::{Names, Text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
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

/// A template as a mix file writes it. Path, values of headers, body and the text expected in the
/// answer may use variables, as `{{NAME}}`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TemplateFile {
    /// A short name, unique in the mix; figures are reported under it.
    pub name: String,
    /// What kind of request this is.
    pub class: Class,
    /// Which requests of its class it is one of, in a word or two: `sql-injection`, `search`. Reports
    /// tell what was blocked by family, and a recipe may say which families it is sure to block.
    pub family: Option<String>,
    /// Whether a subject that blocks attacks may block it or let it through, and both are expected:
    /// what it did is a finding. Otherwise an attack has to be blocked and a harmless request let
    /// through. What the mix says, unless it is given here.
    pub open: Option<bool>,
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
    /// Names of shared headers that this template does not send.
    #[serde(default)]
    pub without: Vec<String>,
    /// The request body.
    #[serde(default)]
    pub body: String,
    /// In the place of `body`: so many bytes of filler, the letter `x`; up to 64 MiB.
    pub body_bytes: Option<u64>,
    /// In the place of `body`: one text again and again.
    pub body_repeat: Option<BodyRepeat>,
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
    /// Which requests of its class it is one of, where the mix says so.
    pub family: Option<String>,
    /// Whether a subject that blocks attacks may block it or let it through.
    pub open: bool,
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
    /// Checks what can be told without the values of the variables, of which the mix `of` knows those
    /// that it declares.
    pub(crate) fn check(
        file: TemplateFile,
        of: &MixFile,
        names: &Names<'_>,
    ) -> Result<Self, MixError> {
        if !file.path.starts_with('/') {
            return Err(MixError::NotAPath { template: file.name, path: file.path });
        }
        let Expect { status, body_bytes, body_contains } = file.expect.clone();
        let bodiless = body_bytes.is_none_or(|bytes| bytes == 0) && body_contains.is_none();
        if file.method == "HEAD" && !bodiless {
            return Err(MixError::BodyOfHead(file.name));
        }
        if file.family.as_deref().is_some_and(str::is_empty) {
            return Err(MixError::NoFamily(file.name));
        }
        let parse = |text: &str| {
            Text::parse(text, names)
                .map_err(|variable| MixError::undeclared(&file.name, variable, names.own))
        };
        let shared = shared(&file, of)?;
        let mut headers = Vec::new();
        for line in shared.into_iter().chain(&file.headers) {
            let (name, value) = named(line)?;
            headers.push((name.to_owned(), parse(value.trim())?));
        }
        let path = parse(&file.path)?;
        let body = parse(&body::text(&file, names.own)?)?;
        let body_contains = body_contains.as_deref().map(parse).transpose()?;
        let texts = headers.iter().map(|(_, value)| value).chain([&path, &body]);
        let variables = texts.chain(&body_contains).flat_map(Text::variables).collect();
        Ok(Self {
            name: file.name,
            class: file.class,
            family: file.family,
            open: file.open.unwrap_or(of.open),
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

/// The header lines of the mix that a template sends.
fn shared<'a>(file: &TemplateFile, of: &'a MixFile) -> Result<Vec<&'a String>, MixError> {
    let mut lines = Vec::new();
    for line in &of.headers {
        lines.push((named(line)?.0, line));
    }
    let is = |name: &str, left_out: &String| name.eq_ignore_ascii_case(left_out);
    for left_out in &file.without {
        if !lines.iter().any(|(name, _)| is(name, left_out)) {
            let (template, header) = (file.name.clone(), left_out.clone());
            return Err(MixError::WithoutWhat { template, header });
        }
    }
    lines.retain(|(name, _)| !file.without.iter().any(|left_out| is(name, left_out)));
    Ok(lines.into_iter().map(|(_, line)| line).collect())
}

/// The name and the value of a header line.
fn named(line: &str) -> Result<(&str, &str), MixError> {
    match line.split_once(':') {
        Some((name, value)) if !name.is_empty() => Ok((name, value)),
        _ => Err(MixError::BadHeader(line.to_owned())),
    }
}

fn ok_status() -> u16 {
    200
}

fn get_method() -> String {
    "GET".to_owned()
}
