//! Operators: the conditions that values are compared with.

use std::sync::{Arc, OnceLock};

use crate::operator::encoding::ByteRange;
use crate::operator::ip::IpSet;
use crate::operator::phrase::PhraseSet;
use crate::regex::Matcher;
use crate::template::Template;

/// Operator with its parsed argument.
#[derive(Debug)]
pub(crate) enum Condition {
    /// `@unconditionalMatch`
    Always,
    /// `@noMatch`
    Never,
    /// Operator that needs a service, such as `@rbl`. It never matches; uses are counted.
    Unavailable,
    /// `@rx`
    Regex(Pattern),
    /// `@rx` with macros: a regex that is known when the rule runs.
    RegexTemplate(Template),
    /// `@pm`, `@pmFromFile`
    Phrases(Arc<PhraseSet>),
    Text(TextOperator, Template),
    Number(NumberOperator, Template),
    /// `@ipMatch`, `@ipMatchFromFile`
    Ip(IpSet),
    /// `@validateByteRange`: matches a byte outside of the range.
    ByteRange(ByteRange),
    /// `@validateUrlEncoding`
    UrlEncoding,
    /// `@validateUtf8Encoding`
    Utf8Encoding,
    /// `@verifyCC`, `@verifySSN`, ...: a match of the regex with a correct check digit.
    CheckDigits(Checksum, Pattern),
    /// `@detectSQLi`
    SqlInjection,
    /// `@detectXSS`
    CrossSiteScripting,
}

impl Condition {
    /// Compiles what is otherwise compiled at its first use.
    pub(crate) fn compile(&self) {
        match self {
            Self::Regex(pattern) => _ = pattern.matcher(),
            Self::CheckDigits(_, pattern) => pattern.matcher().compile_whole(),
            Self::Phrases(set) => _ = set.automaton(),
            _ => {}
        }
    }
}

/// Regex with its number in the rule set, which selects its cache.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) text: String,
    pub(crate) index: usize,
    compiled: OnceLock<Matcher>,
}

impl Pattern {
    /// A regex that was checked. It is compiled at its first use: most regexes of a rule set are hardly used.
    pub(crate) fn new(text: &str, index: usize) -> Self {
        Self { text: text.to_owned(), index, compiled: OnceLock::new() }
    }

    /// Wraps a regex that is compiled already.
    pub(crate) fn of(matcher: Matcher, index: usize) -> Self {
        Self { text: String::new(), index, compiled: OnceLock::from(matcher) }
    }

    pub(crate) fn matcher(&self) -> &Matcher {
        // The check has compiled every regex that might exceed the limit of size. Should one of the
        // others fail, it matches everything rather than nothing.
        self.compiled
            .get_or_init(|| Matcher::new(&self.text).unwrap_or_else(|_reason| Matcher::all()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextOperator {
    BeginsWith,
    Contains,
    ContainsWord,
    EndsWith,
    Equals,
    Within,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumberOperator {
    Equal,
    GreaterOrEqual,
    Greater,
    LessOrEqual,
    Less,
}

impl NumberOperator {
    /// The number as the operator reads it: `@eq` reads 0 for one that does not fit 32 bits, as
    /// `std::stoi` of C++ does, so that `"@eq 0"` matches `99999999999`.
    pub(crate) fn narrow(self, number: i64) -> i64 {
        if self == Self::Equal && i32::try_from(number).is_err() { 0 } else { number }
    }

    pub(crate) fn holds(self, value: i64, argument: i64) -> bool {
        match self {
            Self::Equal => value == argument,
            Self::GreaterOrEqual => value >= argument,
            Self::Greater => value > argument,
            Self::LessOrEqual => value <= argument,
            Self::Less => value < argument,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checksum {
    CreditCard,
    SocialSecurity,
    Cpf,
    Svnr,
}
