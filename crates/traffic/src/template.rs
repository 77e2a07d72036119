//! One request template: what is sent, what kind of request it is, and what answer it deserves.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// The status code.
    #[serde(default = "ok_status")]
    pub status: u16,
    /// The length of the body in bytes, when it is known beforehand.
    pub body_bytes: Option<u64>,
}

/// A template as a mix file writes it.
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
    /// Its share of the mix; 0 is sent by the probe alone.
    pub weight: u32,
    /// The request method.
    pub method: String,
    /// The request target, which starts with `/`.
    pub path: String,
    /// Every header that is sent, those of the mix first.
    pub headers: Vec<(String, String)>,
    /// The request body.
    pub body: String,
    /// The answer that this request gets when nothing blocks it.
    pub expect: Expect,
}

impl Default for Expect {
    fn default() -> Self {
        Self { status: ok_status(), body_bytes: None }
    }
}

fn ok_status() -> u16 {
    200
}

fn get_method() -> String {
    "GET".to_owned()
}
