//! Errors in mixes.

use thiserror::Error;
use tollgate_http1::RenderError;

use crate::{
    MAX_BODY_BYTES, MAX_CONTAINS_BYTES, MAX_LIST, MAX_RENDERED_BYTES, MAX_REQUESTS, MAX_ROUND,
};

/// Error in a mix.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum MixError {
    #[error("all templates have weight 0; give at least one a weight above 0")]
    WeightsZero,
    #[error("weights add up to {0}, but the limit is {MAX_ROUND}; divide them by a common factor")]
    WeightsTooLarge(u64),
    #[error(
        "invalid template name `{}`: expected one line of plain text, under which figures are reported",
        .0.escape_debug()
    )]
    InvalidName(String),
    #[error("two templates are named `{0}`; figures are reported by name, so rename one")]
    DuplicateName(String),
    #[error("template `{template}`: path `{path}` does not start with `/`")]
    InvalidPath { template: String, path: String },
    #[error("invalid header `{0}`: expected `Name: value`")]
    InvalidHeader(String),
    #[error("template `{template}`: `without` names `{header}`, which is not a header of the mix")]
    UnknownHeader { template: String, header: String },
    #[error("template `{0}`: cannot expect a body, because the response to HEAD has none")]
    BodyOfHead(String),
    #[error("template `{template}`: both `{first}` and `{second}`; remove one")]
    TwoBodies { template: String, first: &'static str, second: &'static str },
    #[error(
        "template `{template}`: `{key}` makes {bytes} bytes, but the limit is {MAX_BODY_BYTES}"
    )]
    BodyTooLarge { template: String, key: &'static str, bytes: u64 },
    #[error(
        "template `{0}`: variable `index` conflicts with {{{{index}}}} in `body_repeat`; rename it"
    )]
    IndexVariable(String),
    #[error("template `{0}`: `family` is empty; give it a name, or remove the key")]
    EmptyFamily(String),
    #[error("included mix `{0}` is missing")]
    MissingInclude(String),
    #[error("included mix `{0}` has weight {1}, but all its templates have weight 0")]
    IncludedWeightsZero(String, u32),
    #[error("unknown template `{template}`; the mix has {}", .known.join(", "))]
    UnknownTemplate { template: String, known: Vec<String> },
    #[error("variable `{variable}`")]
    Variable { variable: String, source: VariableError },
    #[error("template `{template}`: unknown variable `{variable}`; {}", hint(.nearest.as_deref()))]
    UnknownVariable { template: String, variable: String, nearest: Option<String> },
    #[error("unused variable `{0}`; write {{{{{0}}}}} in a template, or remove it")]
    UnusedVariable(String),
    /// A template does not render to a request, at least with some values.
    #[error("template `{template}`{values}")]
    InvalidRequest {
        template: String,
        /// Values of its variables, as text; empty without variables.
        values: String,
        source: RenderError,
    },
    #[error(
        "template `{template}`: `body_contains` can have {bytes} bytes; expected 1 to {MAX_CONTAINS_BYTES}"
    )]
    ContainsLength {
        /// Name of the template.
        template: String,
        bytes: usize,
    },
    #[error(
        "templates with variables, each sent as often as its weight, take {0} bytes, but the limit is \
         {MAX_RENDERED_BYTES}; reduce weights or requests"
    )]
    RenderedTooLarge(usize),
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum VariableError {
    #[error("invalid name: use letters, digits and `_`, but no digit first")]
    Name,
    #[error("expected exactly one of `list`, `counter` and `range`")]
    Kind,
    #[error("`step` requires `counter`")]
    StepWithoutCounter,
    #[error("a `step` of 0 repeats one number; use a `list` of one text")]
    StepZero,
    #[error(
        "a counter from {from} in steps of {step} exceeds 64 bits within {MAX_REQUESTS} requests"
    )]
    CounterOverflow { from: i64, step: i64 },
    #[error("`list` is empty; give it at least one text")]
    EmptyList,
    #[error("`list` has {0} texts, but the limit is {MAX_LIST}")]
    LongList(usize),
    #[error("`range` [{0}, {1}] is empty; put the smaller number first")]
    EmptyRange(i64, i64),
}

impl MixError {
    pub(crate) fn unknown_variable(template: &str, variable: String, names: &[String]) -> Self {
        let distance = |name: &&String| strsim::damerau_levenshtein(&variable, name);
        let nearest = names.iter().min_by_key(distance).cloned();
        Self::UnknownVariable { template: template.to_owned(), variable, nearest }
    }
}

fn hint(nearest: Option<&str>) -> String {
    match nearest {
        Some(name) => format!("the nearest one is `{name}`"),
        None => "the mix declares none".to_owned(),
    }
}
