//! The TOML format of a mix.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A mix file.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MixFile {
    /// Title in one line.
    pub title: String,
    /// Headers that every template sends first, as `Name: value` lines.
    #[serde(default)]
    pub headers: Vec<String>,
    /// Variables by name, used in templates as `{{NAME}}`.
    #[serde(default)]
    pub variable: BTreeMap<String, VariableFile>,
    /// Default of `open` for the templates.
    #[serde(default)]
    pub open: bool,
    /// Other mixes whose templates are sent too.
    #[serde(default)]
    pub include: Vec<IncludeFile>,
    /// Request templates.
    #[serde(default)]
    pub template: Vec<TemplateFile>,
}

/// A mix included by another.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IncludeFile {
    /// Name of a mix, or path of a file relative to the including one.
    pub mix: String,
    /// Weight of all its templates together, relative to the other weights of the file. By default each keeps its own
    /// weight.
    pub weight: Option<u32>,
    /// Names of the templates to include; all by default.
    #[serde(default)]
    pub only: Vec<String>,
}

/// A variable: exactly one of `list`, `counter` and `range`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VariableFile {
    /// Texts, one of which is drawn for each request with equal probability.
    pub list: Option<Vec<String>>,
    /// First of numbers that increase with each request, in the order of sending.
    pub counter: Option<i64>,
    /// Increment of a counter; 1 by default.
    pub step: Option<i64>,
    /// Smallest and largest of integers, one of which is drawn for each request with equal probability.
    pub range: Option<[i64; 2]>,
}

/// Class of a request.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Harmless: a subject that blocks it has a false positive.
    Benign,
    /// An attack: a subject that claims to block attacks must block it.
    Malicious,
}

/// A request template. Path, header values, body and expected text may use variables as `{{NAME}}`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TemplateFile {
    /// Name, unique in the mix, under which figures are reported.
    pub name: String,
    /// Class of the request.
    pub class: Class,
    /// Kind of request within its class, such as `sql-injection` or `search`. Reports group by family, and a recipe may
    /// list the families that it is certain to block.
    pub family: Option<String>,
    /// If true, both blocking the request and letting it through are expected, and reported as a finding. Otherwise an
    /// attack must be blocked and a benign request let through. Defaults to the mix's `open`.
    pub open: Option<bool>,
    /// Frequency relative to the other templates; 0 for the probe only.
    pub weight: u32,
    /// Request method.
    #[serde(default = "get_method")]
    pub method: String,
    /// Request target: a path that starts with `/`, with an optional query.
    pub path: String,
    /// Headers as `Name: value` lines, sent after those of the mix.
    #[serde(default)]
    pub headers: Vec<String>,
    /// Names of headers of the mix that this template does not send.
    #[serde(default)]
    pub without: Vec<String>,
    /// Request body.
    #[serde(default)]
    pub body: String,
    /// Instead of `body`: this many bytes of the letter `x`, at most 64 MiB.
    pub body_bytes: Option<u64>,
    /// Instead of `body`: a repeated text, at most 64 MiB.
    pub body_repeat: Option<BodyRepeat>,
    /// Expected response if nothing blocks the request.
    #[serde(default)]
    pub expect: Expect,
}

/// A body of one text repeated, such as that of a long form or list.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BodyRepeat {
    /// Text before the first repetition.
    #[serde(default)]
    pub begin: String,
    /// Text to repeat; `{{index}}` stands for the number of the repetition, from 1.
    pub each: String,
    /// Number of repetitions.
    pub times: u32,
    /// Text between repetitions.
    #[serde(default)]
    pub between: String,
    /// Text after the last repetition.
    #[serde(default)]
    pub end: String,
}

/// Expected response if nothing blocks the request.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// Status code.
    #[serde(default = "ok_status")]
    pub status: u16,
    /// Length of the body in bytes, if known.
    pub body_bytes: Option<u64>,
    /// Text that the body contains, if known; 1 to 4096 bytes.
    pub body_contains: Option<String>,
}

impl Default for Expect {
    fn default() -> Self {
        Self { status: ok_status(), body_bytes: None, body_contains: None }
    }
}

fn ok_status() -> u16 {
    200
}

fn get_method() -> String {
    "GET".to_owned()
}
