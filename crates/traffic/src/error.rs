//! What is wrong with a mix.

use crate::body::MAX_BODY_BYTES;
use crate::mix::MAX_DECK;
use crate::script::MAX_RENDERED_BYTES;
use crate::template::MAX_CONTAINS_BYTES;
use crate::variable::VariableError;
use thiserror::Error;
use tollgate_wire::RenderError;

/// What is wrong with a mix.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum MixError {
    /// Nothing would be sent.
    #[error("every template has weight 0, so nothing would be sent; give one a weight above 0")]
    NothingSent,
    /// The weights are too large to shuffle as one deck.
    #[error("the weights add up to {0}, the limit is {MAX_DECK}; divide them by a common factor")]
    DeckTooLarge(u64),
    /// A template has a name that cannot stand in a report.
    #[error(
        "the name of a template is `{}`: it has to be one line of plain text, as figures are reported by it",
        .0.escape_debug()
    )]
    OddName(String),
    /// Two templates share a name.
    #[error("two templates are named `{0}`; figures are reported by name, so rename one")]
    DuplicateName(String),
    /// A target is not a path.
    #[error("template `{template}`: the path `{path}` does not start with `/`")]
    NotAPath {
        /// The template's name.
        template: String,
        /// The path as written.
        path: String,
    },
    /// A header line has no colon or no name.
    #[error("the header line `{0}` is not of the form `Name: value`")]
    BadHeader(String),
    /// A header is left out that is not there.
    #[error("template `{template}` leaves out the header `{header}`, which the mix does not share")]
    WithoutWhat {
        /// The template's name.
        template: String,
        /// The header's name.
        header: String,
    },
    /// A body is expected where there is none.
    #[error("template `{0}`: the answer to a HEAD has no body, so none can be expected")]
    BodyOfHead(String),
    /// A template says in two ways what its body is.
    #[error("template `{template}` has a `{first}` and `{second}`; leave one of them out")]
    TwoBodies {
        /// The template's name.
        template: String,
        /// One key.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// A body that is described is longer than a mix may have.
    #[error("template `{template}`: `{key}` is {bytes}; it may be at most {MAX_BODY_BYTES}")]
    BodyTooLarge {
        /// The template's name.
        template: String,
        /// The key that describes it.
        key: &'static str,
        /// How long it would be.
        bytes: u64,
    },
    /// A body repeats a text in which `{{index}}` could mean two things.
    #[error(
        "template `{0}`: in a `body_repeat` {{{{index}}}} counts, so no variable may be named `index`"
    )]
    IndexTaken(String),
    /// A family has no name.
    #[error("template `{0}`: its `family` is empty; name it, or leave the key out")]
    NoFamily(String),
    /// An included mix was not read with the one that includes it.
    #[error("it includes the mix `{0}`, which was not read with it")]
    NotIncluded(String),
    /// Of an included mix, nothing would be sent.
    #[error("the included mix `{0}` has weight {1}, and each of its templates has weight 0")]
    IncludesNothing(String, u32),
    /// Of a mix, a template is wanted that it does not have.
    #[error("there is no template `{template}`; the mix has {}", .known.join(", "))]
    NoTemplate {
        /// The name that is wanted.
        template: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// A variable cannot be.
    #[error("variable `{variable}`")]
    Variable {
        /// The variable's name.
        variable: String,
        /// Why not.
        source: VariableError,
    },
    /// A template uses a variable that is not there.
    #[error("template `{template}`: there is no variable `{variable}`; {}", hint(.nearest.as_deref()))]
    Undeclared {
        /// The template's name.
        template: String,
        /// The name that it uses.
        variable: String,
        /// The name most like it of those that are there.
        nearest: Option<String>,
    },
    /// A variable is not used.
    #[error("no template uses the variable `{0}`; write {{{{{0}}}}} in one, or remove it")]
    Unused(String),
    /// A template is not a request, at least with some values of its variables.
    #[error("template `{template}`{values}")]
    NoRequest {
        /// The template's name.
        template: String,
        /// The values, in words; empty where there are no variables.
        values: String,
        /// Why not.
        source: RenderError,
    },
    /// The text expected in a body is empty, or too long to be looked for.
    #[error(
        "template `{template}`: `body_contains` can have {bytes} bytes; it has to have 1 to {MAX_CONTAINS_BYTES}"
    )]
    Contains {
        /// The template's name.
        template: String,
        /// How many bytes it has with the values that are shortest or longest.
        bytes: usize,
    },
    /// What is rendered before a run would not fit.
    #[error(
        "to send every template with variables as often as its weight says takes {0} bytes, the limit is {MAX_RENDERED_BYTES}; make weights or requests smaller"
    )]
    RenderedTooLarge(usize),
}

impl MixError {
    /// The error of a template that uses a variable which is none of `names`.
    pub(crate) fn undeclared(template: &str, variable: String, names: &[String]) -> Self {
        let distance = |name: &&String| strsim::damerau_levenshtein(&variable, name);
        let nearest = names.iter().min_by_key(distance).cloned();
        Self::Undeclared { template: template.to_owned(), variable, nearest }
    }
}

fn hint(nearest: Option<&str>) -> String {
    match nearest {
        Some(name) => format!("the nearest that there is is `{name}`"),
        None => "the mix declares none".to_owned(),
    }
}
