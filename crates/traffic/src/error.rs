//! Errors in mixes.

use thiserror::Error;
use tollgate_http1::RenderError;

use crate::{
    MAX_BODY_BYTES, MAX_CONTAINS_BYTES, MAX_LIST, MAX_RENDERED_BYTES, MAX_REQUESTS, MAX_ROUND,
};

/// Error in a mix.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum MixError {
    /// Nothing would be sent.
    #[error("all templates have weight 0; give at least one a weight above 0")]
    WeightsZero,
    /// The sum of weights exceeds the limit.
    #[error("weights add up to {0}, but the limit is {MAX_ROUND}; divide them by a common factor")]
    WeightsTooLarge(u64),
    /// A name is empty or contains control characters.
    #[error(
        "invalid template name `{}`: expected one line of plain text, under which figures are reported",
        .0.escape_debug()
    )]
    InvalidName(String),
    /// Two templates have the same name.
    #[error("two templates are named `{0}`; figures are reported by name, so rename one")]
    DuplicateName(String),
    /// A path does not start with `/`.
    #[error("template `{template}`: path `{path}` does not start with `/`")]
    InvalidPath {
        /// Name of the template.
        template: String,
        /// Path as written.
        path: String,
    },
    /// A header line has no colon or no name.
    #[error("invalid header `{0}`: expected `Name: value`")]
    InvalidHeader(String),
    /// `without` names a header that the mix does not have.
    #[error("template `{template}`: `without` names `{header}`, which is not a header of the mix")]
    UnknownHeader {
        /// Name of the template.
        template: String,
        /// Name of the header.
        header: String,
    },
    /// A HEAD expects a body.
    #[error("template `{0}`: cannot expect a body, because the response to HEAD has none")]
    BodyOfHead(String),
    /// A template has two bodies.
    #[error("template `{template}`: both `{first}` and `{second}`; remove one")]
    TwoBodies {
        /// Name of the template.
        template: String,
        /// One key.
        first: &'static str,
        /// The other key.
        second: &'static str,
    },
    /// A generated body exceeds the limit.
    #[error(
        "template `{template}`: `{key}` makes {bytes} bytes, but the limit is {MAX_BODY_BYTES}"
    )]
    BodyTooLarge {
        /// Name of the template.
        template: String,
        /// Key that describes the body.
        key: &'static str,
        /// Length of the body.
        bytes: u64,
    },
    /// `{{index}}` in a `body_repeat` could be the number or a variable.
    #[error(
        "template `{0}`: variable `index` conflicts with {{{{index}}}} in `body_repeat`; rename it"
    )]
    IndexVariable(String),
    /// A family is empty.
    #[error("template `{0}`: `family` is empty; give it a name, or remove the key")]
    EmptyFamily(String),
    /// A [`MixTree`](crate::MixTree) lacks an included mix.
    #[error("included mix `{0}` is missing")]
    MissingInclude(String),
    /// All templates of an included mix have weight 0.
    #[error("included mix `{0}` has weight {1}, but all its templates have weight 0")]
    IncludedWeightsZero(String, u32),
    /// A mix has no template of this name.
    #[error("unknown template `{template}`; the mix has {}", .known.join(", "))]
    UnknownTemplate {
        /// Name requested.
        template: String,
        /// Names of the mix.
        known: Vec<String>,
    },
    /// A variable is invalid.
    #[error("variable `{variable}`")]
    Variable {
        /// Name of the variable.
        variable: String,
        /// Reason.
        source: VariableError,
    },
    /// A template uses an undeclared variable.
    #[error("template `{template}`: unknown variable `{variable}`; {}", hint(.nearest.as_deref()))]
    UnknownVariable {
        /// Name of the template.
        template: String,
        /// Name of the variable.
        variable: String,
        /// Most similar declared name.
        nearest: Option<String>,
    },
    /// No template uses a variable.
    #[error("unused variable `{0}`; write {{{{{0}}}}} in a template, or remove it")]
    UnusedVariable(String),
    /// A template does not render to a request, at least with some values.
    #[error("template `{template}`{values}")]
    InvalidRequest {
        /// Name of the template.
        template: String,
        /// Values of its variables, as text; empty without variables.
        values: String,
        /// Reason.
        source: RenderError,
    },
    /// `body_contains` is empty or too long.
    #[error(
        "template `{template}`: `body_contains` can have {bytes} bytes; expected 1 to {MAX_CONTAINS_BYTES}"
    )]
    ContainsLength {
        /// Name of the template.
        template: String,
        /// Length with the shortest or longest values.
        bytes: usize,
    },
    /// One round of requests with variables exceeds the limit.
    #[error(
        "templates with variables, each sent as often as its weight, take {0} bytes, but the limit is \
         {MAX_RENDERED_BYTES}; reduce weights or requests"
    )]
    RenderedTooLarge(usize),
}

/// Error in a variable.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum VariableError {
    /// The name is not an identifier.
    #[error("invalid name: use letters, digits and `_`, but no digit first")]
    Name,
    /// None or several of the keys that define values.
    #[error("expected exactly one of `list`, `counter` and `range`")]
    Kind,
    /// A step without a counter.
    #[error("`step` requires `counter`")]
    StepWithoutCounter,
    /// A step of 0.
    #[error("a `step` of 0 repeats one number; use a `list` of one text")]
    StepZero,
    /// A counter overflows.
    #[error(
        "a counter from {from} in steps of {step} exceeds 64 bits within {MAX_REQUESTS} requests"
    )]
    CounterOverflow {
        /// First number.
        from: i64,
        /// Step.
        step: i64,
    },
    /// A list without texts.
    #[error("`list` is empty; give it at least one text")]
    EmptyList,
    /// A list exceeds the limit.
    #[error("`list` has {0} texts, but the limit is {MAX_LIST}")]
    LongList(usize),
    /// A range without numbers.
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
