//! Resolved rules: defaults and updates applied, names replaced by positions.

use std::sync::Arc;

use crate::condition::Condition;
use crate::error::RulePlace;
use crate::regex::SelectorRegex;
use crate::template::Template;
use crate::transformation::Transformation;
use crate::variable::Variable;

/// Phase of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// After the request's headers were received.
    RequestHeaders = 1,
    /// After the request's body was received.
    RequestBody = 2,
    /// After the response's headers were received.
    ResponseHeaders = 3,
    /// After the response's body was received.
    ResponseBody = 4,
    /// Before the transaction is logged.
    Logging = 5,
}

impl Phase {
    /// All phases in order.
    pub const ALL: [Self; 5] = [
        Self::RequestHeaders,
        Self::RequestBody,
        Self::ResponseHeaders,
        Self::ResponseBody,
        Self::Logging,
    ];

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Some(match text.to_ascii_lowercase().as_str() {
            "1" => Self::RequestHeaders,
            "2" | "request" => Self::RequestBody,
            "3" => Self::ResponseHeaders,
            "4" | "response" => Self::ResponseBody,
            "5" | "logging" => Self::Logging,
            _ => return None,
        })
    }

    pub(crate) fn index(self) -> usize {
        self as usize - 1
    }
}

/// Severity of a rule, from 0 (emergency) to 7 (debug).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Severity(pub(crate) u8);

impl Severity {
    const NAMES: [&'static str; 8] =
        ["EMERGENCY", "ALERT", "CRITICAL", "ERROR", "WARNING", "NOTICE", "INFO", "DEBUG"];

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let by_name = Self::NAMES.iter().position(|name| name.eq_ignore_ascii_case(text));
        let value = by_name.or_else(|| text.parse().ok()).filter(|&value| value < 8)?;
        u8::try_from(value).ok().map(Self)
    }

    /// Numeric value, 0 to 7.
    pub fn value(self) -> u8 {
        self.0
    }

    /// Name in upper case.
    pub fn name(self) -> &'static str {
        Self::NAMES[usize::from(self.0)]
    }
}

/// Entry of a phase's list.
#[derive(Debug)]
pub(crate) enum PhaseStep {
    /// Index of a rule.
    Rule(usize),
    Marker,
}

/// Rule with all links of its chain.
#[derive(Debug)]
pub(crate) struct Rule {
    /// 0 for an action without id.
    pub(crate) id: u64,
    pub(crate) place: RulePlace,
    pub(crate) phase: Phase,
    pub(crate) message: Option<Template>,
    pub(crate) tags: Vec<String>,
    pub(crate) severity: Option<Severity>,
    pub(crate) version: Option<String>,
    pub(crate) revision: Option<String>,
    pub(crate) maturity: u8,
    pub(crate) accuracy: u8,
    pub(crate) log: bool,
    pub(crate) audit_log: bool,
    pub(crate) disruptive: Disruptive,
    pub(crate) status: Option<u16>,
    pub(crate) flow: Flow,
    /// The rule's condition and those of its chain; never empty.
    pub(crate) links: Vec<Link>,
}

/// Effect on the transaction when the engine is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Disruptive {
    Pass,
    Deny,
    Drop,
    Redirect(Template),
    Allow(AllowScope),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllowScope {
    Transaction,
    Request,
    Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Continue,
    /// Continues after the marker with this index.
    SkipAfter(usize),
    /// Skips this many rules.
    Skip(u32),
}

/// One condition of a rule with the actions that run when it matches.
#[derive(Debug)]
pub(crate) struct Link {
    /// `None` for an action, which always matches.
    pub(crate) test: Option<Test>,
    pub(crate) capture: Capture,
    pub(crate) log_data: Option<Template>,
    pub(crate) message: Option<Template>,
    /// Run for each matching value.
    pub(crate) assignments: Vec<Assignment>,
    /// Runs the assignments for each occurrence in a matching value.
    pub(crate) per_occurrence: bool,
    /// Run once when all links matched.
    pub(crate) controls: Vec<Control>,
}

/// Matching values whose captured text is written to TX.0 to TX.9.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    None,
    All,
    /// Nothing reads the text before the last value has matched.
    Last,
}

/// Operator for logs: the name as libmodsecurity prints it, such as `Rx`, and the argument.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WrittenOperator {
    pub(crate) name: Box<str>,
    pub(crate) argument: Box<[u8]>,
}

/// Targets, transformations and operator.
#[derive(Debug)]
pub(crate) struct Test {
    pub(crate) targets: Vec<Target>,
    pub(crate) exclusions: Vec<Target>,
    pub(crate) transformations: Vec<Transformation>,
    pub(crate) multi_match: bool,
    pub(crate) negated: bool,
    pub(crate) condition: Condition,
    /// Name and argument of the operator, as written.
    pub(crate) operator: WrittenOperator,
    /// Number of the test in its rule set.
    pub(crate) index: usize,
}

/// Variable with an optional selection of its names.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    pub(crate) variable: Variable,
    pub(crate) selector: Selector,
    /// `&ARGS`: the number of values in place of the values.
    pub(crate) count: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Selector {
    All,
    /// Name in lower case, compared without regard to case, and its TX slot.
    Name(Vec<u8>, Option<u32>),
    Pattern(Arc<SelectorRegex>),
}

impl PartialEq for Selector {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, Self::All) => true,
            (Self::Name(a, _), Self::Name(b, _)) => a == b,
            (Self::Pattern(a), Self::Pattern(b)) => a == b,
            _ => false,
        }
    }
}

impl Selector {
    pub(crate) fn accepts(&self, name: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::Name(wanted, _) => wanted.eq_ignore_ascii_case(name),
            Self::Pattern(regex) => regex.is_match(name),
        }
    }
}

impl Target {
    /// True if this exclusion removes the value of that name from the variable.
    pub(crate) fn excludes(&self, variable: Variable, name: &[u8]) -> bool {
        self.variable == variable && self.selector.accepts(name)
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = if self.count { "&" } else { "" };
        match &self.selector {
            Selector::All => write!(f, "{count}{}", self.variable.name()),
            Selector::Name(name, _) => {
                write!(f, "{count}{}:{}", self.variable.name(), String::from_utf8_lossy(name))
            }
            Selector::Pattern(regex) => {
                write!(f, "{count}{}:/{}/", self.variable.name(), regex.text)
            }
        }
    }
}

/// `setvar`, and the other actions on values that rules write.
#[derive(Clone, Debug)]
pub(crate) struct Assignment {
    pub(crate) variable: Variable,
    /// Name of the value; for `initcol`, the key of the collection.
    pub(crate) name: Template,
    /// Slot of the name if the variable is TX and the name contains no macro.
    pub(crate) slot: Option<u32>,
    pub(crate) change: Change,
}

#[derive(Clone, Debug)]
pub(crate) enum Change {
    Set(Template),
    Add(Template),
    Subtract(Template),
    Unset,
    /// `initcol`
    Open,
    /// `expirevar`: seconds
    Expire(Template),
    /// `deprecatevar`
    Deprecate {
        amount: Template,
        period: Template,
    },
}

impl Change {
    pub(crate) fn templates(&self) -> impl Iterator<Item = &Template> {
        let (first, second) = match self {
            Self::Set(value) | Self::Add(value) | Self::Subtract(value) | Self::Expire(value) => {
                (Some(value), None)
            }
            Self::Deprecate { amount, period } => (Some(amount), Some(period)),
            Self::Unset | Self::Open => (None, None),
        };
        first.into_iter().chain(second)
    }
}

/// Action that runs when a rule matched completely. It names other rules by `R`: by a filter while rules are read, then by
/// their positions in ascending order.
#[derive(Clone, Debug)]
pub(crate) enum Control<R = Vec<u32>> {
    AuditEngine(AuditEngine),
    AuditLogParts(String),
    /// Without effect: `REQUEST_BODY` is set for every body.
    ForceRequestBodyVariable,
    RequestBodyAccess(bool),
    RequestBodyProcessor(BodyProcessor),
    ResponseBodyAccess(bool),
    RequestBodyLimit(usize),
    ResponseBodyLimit(usize),
    Engine(EngineMode),
    RemoveRules(R),
    RemoveTargets(R, Target),
    SetEnv(Template, Template),
}

impl<R> Control<R> {
    /// Names the rules in another way.
    pub(crate) fn map_rules<S>(self, map: impl FnOnce(R) -> S) -> Control<S> {
        match self {
            Self::RemoveRules(rules) => Control::RemoveRules(map(rules)),
            Self::RemoveTargets(rules, target) => Control::RemoveTargets(map(rules), target),
            Self::AuditEngine(mode) => Control::AuditEngine(mode),
            Self::AuditLogParts(parts) => Control::AuditLogParts(parts),
            Self::ForceRequestBodyVariable => Control::ForceRequestBodyVariable,
            Self::RequestBodyAccess(access) => Control::RequestBodyAccess(access),
            Self::RequestBodyProcessor(processor) => Control::RequestBodyProcessor(processor),
            Self::ResponseBodyAccess(access) => Control::ResponseBodyAccess(access),
            Self::RequestBodyLimit(limit) => Control::RequestBodyLimit(limit),
            Self::ResponseBodyLimit(limit) => Control::ResponseBodyLimit(limit),
            Self::Engine(mode) => Control::Engine(mode),
            Self::SetEnv(name, value) => Control::SetEnv(name, value),
        }
    }
}

/// `SecRuleEngine`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineMode {
    /// Rules run and can block.
    On,
    /// Rules run and only log.
    DetectionOnly,
    /// No rule runs.
    Off,
}

/// `SecAuditEngine`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditEngine {
    /// Every transaction.
    On,
    /// No transaction.
    Off,
    /// Transactions with a match that is logged, or with a relevant status.
    RelevantOnly,
}

/// Parser of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyProcessor {
    Urlencoded,
    Multipart,
    Json,
    Xml,
    /// Parses nothing; the body is in `REQUEST_BODY`.
    Raw,
}

impl BodyProcessor {
    pub(crate) const ALL: [Self; 5] =
        [Self::Urlencoded, Self::Multipart, Self::Json, Self::Xml, Self::Raw];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Urlencoded => "URLENCODED",
            Self::Multipart => "MULTIPART",
            Self::Json => "JSON",
            Self::Xml => "XML",
            Self::Raw => "RAW",
        }
    }
}
