//! AppSec rules of CrowdSec: conditions in YAML, read into the same rules as SecLang.
//!
//! A rule of the engine is a chain of conditions. `and` is such a chain; a rule with `or` becomes one
//! rule for each combination of its alternatives. As in CrowdSec, rules run in phase 2 and block.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_saphyr::{Location, MessageFormatter as _, Spanned, UserMessageFormatter};

use crate::condition::{Condition, NumberOperator, TextOperator};
use crate::error::{Fault, LoadError, RulePlace, nearest};
use crate::load::draft::Draft;
use crate::load::written::{WrittenDisruptive, WrittenLink, WrittenRule};
use crate::rule::{BodyProcessor, Control, Phase, Severity, Target};
use crate::template::Template;
use crate::transformation::Transformation;
use crate::variable::Variable as V;

use super::seclang::target;

/// Limit of rules that one rule with `or` expands to.
const ALTERNATIVES_MAX: usize = 1000;

const ZONES: [(&str, V); 17] = [
    ("ARGS", V::ArgsGet),
    ("ARGS_NAMES", V::ArgsGetNames),
    ("BODY_ARGS", V::ArgsPost),
    ("BODY_ARGS_NAMES", V::ArgsPostNames),
    ("COOKIES", V::RequestCookies),
    ("COOKIES_NAMES", V::RequestCookiesNames),
    ("FILENAMES", V::Files),
    ("FILES", V::Files),
    ("FILES_NAMES", V::FilesNames),
    ("FILES_TOTAL_SIZE", V::FilesCombinedSize),
    ("HEADERS", V::RequestHeaders),
    ("HEADERS_NAMES", V::RequestHeadersNames),
    ("METHOD", V::RequestMethod),
    ("PROTOCOL", V::RequestProtocol),
    ("RAW_BODY", V::RequestBody),
    ("URI", V::RequestFilename),
    // As in Coraza, where REQUEST_URI is not decoded.
    ("URI_FULL", V::RequestUriRaw),
];

#[derive(Clone, Copy)]
enum MatchType {
    Regex,
    /// `fromFile`: one of the phrases of a file.
    Phrases,
    Text(TextOperator),
    Number(NumberOperator),
    SqlInjection,
    CrossSiteScripting,
}

const MATCH_TYPES: [(&str, MatchType); 13] = [
    ("contains", MatchType::Text(TextOperator::Contains)),
    ("endsWith", MatchType::Text(TextOperator::EndsWith)),
    ("eq", MatchType::Number(NumberOperator::Equal)),
    ("equals", MatchType::Text(TextOperator::Equals)),
    ("fromFile", MatchType::Phrases),
    ("gt", MatchType::Number(NumberOperator::Greater)),
    ("gte", MatchType::Number(NumberOperator::GreaterOrEqual)),
    ("libinjectionSQL", MatchType::SqlInjection),
    ("libinjectionXSS", MatchType::CrossSiteScripting),
    ("lt", MatchType::Number(NumberOperator::Less)),
    ("lte", MatchType::Number(NumberOperator::LessOrEqual)),
    ("regex", MatchType::Regex),
    ("startsWith", MatchType::Text(TextOperator::BeginsWith)),
];

const BODY_TYPES: [(&str, BodyProcessor); 4] = [
    ("json", BodyProcessor::Json),
    ("multipart", BodyProcessor::Multipart),
    ("urlencoded", BodyProcessor::Urlencoded),
    ("xml", BodyProcessor::Xml),
];

/// Fields that begin with `_` describe the rules and have no effect.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Spanned<String>,
    description: Option<String>,
    severity: Option<Spanned<String>>,
    #[serde(default)]
    rules: Vec<Spanned<Node>>,
    #[serde(default)]
    seclang_rules: Vec<Spanned<String>>,
    #[serde(default)]
    seclang_files_rules: Vec<Spanned<String>>,
    /// Files that CrowdSec downloads.
    data: Option<Spanned<IgnoredAny>>,
    debug: Option<Spanned<IgnoredAny>>,
    #[serde(rename = "type")]
    _type: Option<IgnoredAny>,
    #[serde(rename = "author")]
    _author: Option<IgnoredAny>,
    #[serde(rename = "references")]
    _references: Option<IgnoredAny>,
    #[serde(rename = "labels")]
    _labels: Option<IgnoredAny>,
}

/// Either a list of nodes or a condition.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Node {
    #[serde(rename = "name")]
    _name: Option<IgnoredAny>,
    severity: Option<Spanned<String>>,
    and: Option<Vec<Spanned<Node>>>,
    or: Option<Vec<Spanned<Node>>>,
    zones: Option<Vec<Spanned<String>>>,
    #[serde(default)]
    variables: Vec<Spanned<String>>,
    #[serde(default)]
    transform: Vec<Spanned<String>>,
    #[serde(rename = "match")]
    comparison: Option<Spanned<Match>>,
    body_type: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Match {
    #[serde(rename = "type")]
    kind: Spanned<String>,
    value: Option<Spanned<String>>,
    #[serde(default)]
    not: bool,
}

/// Condition of a chain, with its number in CrowdSec's count, which is a part of the rule's id.
type Numbered<'a> = (u32, &'a Spanned<Node>);

/// True for the name of a file with AppSec rules.
pub(crate) fn is_name(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// File of AppSec rules.
pub(crate) struct AppsecFile<'a> {
    name: &'a Arc<str>,
    text: &'a str,
    folder: &'a Path,
    file: File,
}

impl<'a> AppsecFile<'a> {
    pub(crate) fn parse(
        name: &'a Arc<str>,
        text: &'a [u8],
        folder: &'a Path,
    ) -> Result<Self, LoadError> {
        let text = std::str::from_utf8(text).map_err(|error| LoadError::Invalid {
            place: place(name, Location::UNKNOWN),
            message: format!("the file is not UTF-8: {error}"),
        })?;
        let file = serde_saphyr::from_str(text).map_err(|error| yaml_error(name, &error))?;
        Ok(Self { name, text, folder, file })
    }

    /// Checks that the file has rules. The engine is then on, and bodies are inspected, unless directives say otherwise.
    pub(crate) fn settings(&self, draft: &mut Draft) -> Result<(), LoadError> {
        let file = &self.file;
        let fail = |message| Err(invalid(self.name, &file.name, message));
        if draft.open_chain.is_some() {
            return fail("a chain must continue with SecRule or SecAction");
        }
        if file.rules.is_empty()
            && file.seclang_rules.is_empty()
            && file.seclang_files_rules.is_empty()
        {
            // A file may only list what CrowdSec downloads for others.
            return if file.data.is_some() { Ok(()) } else { fail("the file contains no `rules`") };
        }
        draft.turn_on();
        for (key, value) in [("data", &file.data), ("debug", &file.debug)] {
            if let Some(value) = value {
                let message =
                    format!("`{key}` has no effect: the engine downloads and logs nothing");
                draft.note_inert(&place(self.name, value.referenced), message);
            }
        }
        Ok(())
    }

    /// SecLang files, and the places that name them.
    pub(crate) fn seclang_files(&self) -> impl Iterator<Item = (PathBuf, RulePlace)> {
        let files = self.file.seclang_files_rules.iter();
        files.map(|path| (self.folder.join(&path.value), place(self.name, path.referenced)))
    }

    /// SecLang directives, each at its line in the file.
    pub(crate) fn seclang_texts(&self) -> impl Iterator<Item = Vec<u8>> {
        self.file.seclang_rules.iter().map(|rule| at_its_line(self.text, rule))
    }

    /// Adds the rules.
    pub(crate) fn rules(&self, draft: &mut Draft) -> Result<(), LoadError> {
        for rule in &self.file.rules {
            let rules = self.rule(draft, rule);
            draft.skip(rules)?.into_iter().flatten().for_each(|rule| draft.push(rule));
        }
        Ok(())
    }
}

impl AppsecFile<'_> {
    fn rule(&self, draft: &mut Draft, root: &Spanned<Node>) -> Result<Vec<WrittenRule>, LoadError> {
        let severity = match root.value.severity.as_ref().or(self.file.severity.as_ref()) {
            // CrowdSec's default.
            None => Severity::parse("EMERGENCY"),
            Some(written) => Some(Severity::parse(&written.value).ok_or_else(|| {
                invalid(self.name, written, format!("unknown severity \"{}\"", written.value))
            })?),
        };
        let mut rules = Vec::new();
        for conditions in self.alternatives(root, 0)? {
            let id = id(&self.file.name.value, conditions[0]);
            if let Some(processor) = self.body_type(&conditions)? {
                rules.push(self.processor(draft, root, id, &conditions, processor)?);
            }
            let tests =
                conditions.iter().map(|(_, node)| self.test(draft, root, &node.value, node));
            let tests = tests.collect::<Result<_, _>>()?;
            let mut rule = self.blocking(draft, id, tests);
            rule.head().severity = severity;
            rules.push(rule);
        }
        Ok(rules)
    }

    /// The rule that selects the parser of a body.
    fn processor(
        &self,
        draft: &mut Draft,
        root: &Spanned<Node>,
        id: u32,
        conditions: &[Numbered<'_>],
        processor: BodyProcessor,
    ) -> Result<WrittenRule, LoadError> {
        let mut head = Vec::new();
        for (_, node) in conditions {
            let link = self.test(draft, root, &node.value, node)?;
            let mut targets = link.test.iter().flat_map(|test| &test.targets);
            if targets.all(|target| is_of_head(target.variable)) {
                head.push(link);
            }
        }
        // Another processor parses this body itself: overriding it would lose its values.
        let no_processor = target(self.name, root, "&REQBODY_PROCESSOR")?;
        let zero = Condition::Number(NumberOperator::Equal, Template::literal(b"0"));
        let root = place(self.name, root.referenced);
        head.push(WrittenLink::new(&root, vec![no_processor], zero));
        // The id itself is that of the rule.
        let mut rule = self.blocking(draft, id.wrapping_add(1), head);
        rule.phase = Phase::RequestHeaders;
        let head = rule.head();
        (head.log, head.audit_log) = (Some(false), Some(false));
        head.disruptive = Some(WrittenDisruptive::Pass);
        head.controls = vec![Control::RequestBodyProcessor(processor)];
        Ok(rule)
    }

    fn blocking(&self, draft: &mut Draft, id: u32, tests: Vec<WrittenLink>) -> WrittenRule {
        let name = &self.file.name.value;
        let message = self.file.description.as_ref().unwrap_or(name);
        let mut rule = WrittenRule::blocking(draft.take_id(id), message.as_bytes(), tests);
        rule.head().tags = vec![format!("crowdsec-{name}"), "cs-custom-rule".into()];
        rule
    }

    /// Returns alternative chains of conditions: at least one has to match.
    fn alternatives<'a>(
        &self,
        node: &'a Spanned<Node>,
        number: u32,
    ) -> Result<Vec<Vec<Numbered<'a>>>, LoadError> {
        let fail = |message: &str| Err(invalid(self.name, node, message));
        let condition = &node.value;
        let (list, all) = match (&condition.and, &condition.or, &condition.zones) {
            (None, None, Some(_)) => return Ok(vec![vec![(number, node)]]),
            (Some(list), None, None) => (list, true),
            (None, Some(list), None) => (list, false),
            (None, None, None) => return fail("a condition needs `zones`, `and` or `or`"),
            _ => return fail("a condition has one of `zones`, `and` and `or`"),
        };
        if list.is_empty() {
            return fail("the list of conditions is empty");
        }
        if !condition.variables.is_empty()
            || !condition.transform.is_empty()
            || condition.comparison.is_some()
            || condition.body_type.is_some()
        {
            return fail("`variables`, `transform`, `match` and `body_type` belong to `zones`");
        }
        let mut found: Vec<Vec<Numbered<'a>>> = if all { vec![Vec::new()] } else { Vec::new() };
        for (child, number) in list.iter().zip(number + 1..) {
            if let Some(severity) = &child.value.severity {
                return Err(invalid(self.name, severity, "`severity` belongs to the whole rule"));
            }
            let child = self.alternatives(child, number)?;
            let count = if all { found.len() * child.len() } else { found.len() + child.len() };
            if count > ALTERNATIVES_MAX {
                return fail(&format!("the rule has more than {ALTERNATIVES_MAX} alternatives"));
            }
            if all {
                let joined = |start: &Vec<_>| {
                    let start = start.clone();
                    child
                        .iter()
                        .map(move |end| [start.as_slice(), end].concat())
                        .collect::<Vec<_>>()
                };
                found = found.iter().flat_map(joined).collect();
            } else {
                found.extend(child);
            }
        }
        Ok(found)
    }

    fn test<T>(
        &self,
        draft: &mut Draft,
        root: &Spanned<Node>,
        node: &Node,
        written: &Spanned<T>,
    ) -> Result<WrittenLink, LoadError> {
        let Some(comparison) = &node.comparison else {
            return Err(invalid(self.name, written, "a condition with `zones` needs `match`"));
        };
        let mut transformations = Vec::new();
        let mut count = "";
        for written in &node.transform {
            match transform(&written.value) {
                Some(transformation) => transformations.push(transformation),
                None if written.value.eq_ignore_ascii_case(COUNT) => count = "&",
                None => {
                    let known = Transformation::ALL.iter().map(|known| known.name());
                    let hint = nearest(&written.value, known.chain([COUNT]));
                    let message = format!("unknown transform \"{}\"{hint}", written.value);
                    return Err(invalid(self.name, written, message));
                }
            }
        }
        let mut targets = Vec::new();
        for zone in node.zones.iter().flatten() {
            let variable = self.lookup("zone", zone, &ZONES, |a, b| a == b)?;
            if node.variables.is_empty() {
                targets.push(target(self.name, zone, &format!("{count}{}", variable.name()))?);
            } else if !variable.is_collection() {
                let message = format!("zone {} has no variables", zone.value);
                return Err(invalid(self.name, zone, message));
            }
            for name in &node.variables {
                let mut add = |selector: &str| {
                    let text = format!("{count}{}:{selector}", variable.name());
                    target(self.name, name, &text).map(|target| targets.push(target))
                };
                add(&name.value)?;
                if let Some(selector) = with_array_indices(variable, &name.value) {
                    add(&selector)?;
                }
            }
        }
        if targets.is_empty() {
            return Err(invalid(self.name, written, "the list of zones is empty"));
        }
        let condition = self.condition(draft, &comparison.value)?;
        let link = WrittenLink::new(&place(self.name, root.referenced), targets, condition);
        let link = link.negated(comparison.value.not);
        Ok(transformations.into_iter().fold(link, WrittenLink::transformed))
    }

    fn condition(&self, draft: &mut Draft, comparison: &Match) -> Result<Condition, LoadError> {
        let kind = self.lookup("match type", &comparison.kind, &MATCH_TYPES, |a, b| a == b)?;
        match kind {
            MatchType::SqlInjection => return Ok(Condition::SqlInjection),
            MatchType::CrossSiteScripting => return Ok(Condition::CrossSiteScripting),
            _ => {}
        }
        let Some(value) = &comparison.value else {
            let message = format!("match type `{}` needs a `value`", comparison.kind.value);
            return Err(invalid(self.name, &comparison.kind, message));
        };
        // CrowdSec puts the value between quotes in SecLang, so that quotes are escaped.
        let text = value.value.replace("\\\"", "\"");
        Ok(match kind {
            MatchType::Text(operator) => {
                Condition::Text(operator, Template::literal(text.as_bytes()))
            }
            MatchType::Number(operator) => {
                text.parse::<i64>().map_err(|error| {
                    invalid(self.name, value, format!("\"{text}\" is not a number: {error}"))
                })?;
                Condition::Number(operator, Template::literal(text.as_bytes()))
            }
            MatchType::Phrases => {
                let set = draft.shared.phrase_file(text.as_bytes(), self.folder);
                Condition::Phrases(set.map_err(|fault| faulty(self.name, value, fault))?)
            }
            _ => {
                let pattern = draft.shared.linear_regex(&text);
                Condition::Regex(pattern.map_err(|fault| faulty(self.name, value, fault))?)
            }
        })
    }

    /// Returns the parser that a chain requires.
    fn body_type(&self, conditions: &[Numbered<'_>]) -> Result<Option<BodyProcessor>, LoadError> {
        let mut found = None;
        for written in conditions.iter().filter_map(|(_, node)| node.value.body_type.as_ref()) {
            let processor = self.lookup("body type", written, &BODY_TYPES, |a, b| a == b)?;
            if found.is_some_and(|found| found != processor) {
                let message = "a body cannot have two types at once";
                return Err(invalid(self.name, written, message));
            }
            found = Some(processor);
        }
        Ok(found)
    }

    fn lookup<T: Copy>(
        &self,
        what: &str,
        written: &Spanned<String>,
        known: &[(&'static str, T)],
        equal: impl Fn(&str, &str) -> bool,
    ) -> Result<T, LoadError> {
        let found = known.iter().find(|(name, _)| equal(name, &written.value));
        found.map(|&(_, value)| value).ok_or_else(|| {
            let hint = nearest(&written.value, known.iter().map(|&(name, _)| name));
            invalid(self.name, written, format!("unknown {what} \"{}\"{hint}", written.value))
        })
    }
}

/// Compares the number of values in place of the values.
const COUNT: &str = "count";

/// The transformation with a name of CrowdSec, such as `trim_left`, `js_decode`, `b64decode` or `removenulls`.
fn transform(name: &str) -> Option<Transformation> {
    let name = name.replace('_', "").to_ascii_lowercase();
    let name =
        name.strip_prefix("b64").map_or_else(|| name.clone(), |rest| format!("base64{rest}"));
    Transformation::parse(&name)
}

fn is_of_head(variable: V) -> bool {
    !matches!(
        variable,
        V::ArgsPost
            | V::ArgsPostNames
            | V::Files
            | V::FilesNames
            | V::FilesCombinedSize
            | V::RequestBody
    )
}

/// CrowdSec names the elements of a JSON array `json.list.0`, this engine `json.list.array_0`. Both are tested, because
/// the number may also be the name of an object member.
fn with_array_indices(variable: V, name: &str) -> Option<String> {
    let is_index = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let of_json = matches!(variable, V::ArgsPost | V::ArgsPostNames) && name.starts_with("json.");
    (of_json && name.split('.').any(is_index)).then(|| {
        let part = |part: &str| {
            if is_index(part) { format!("array_{part}") } else { part.to_owned() }
        };
        name.split('.').map(part).collect::<Vec<_>>().join(".")
    })
}

/// The id that CrowdSec gives to the rule of a condition: 32-bit FNV-1a of its parts.
fn id(name: &str, (number, condition): Numbered<'_>) -> u32 {
    let number = number.to_string();
    let node = &condition.value;
    let comparison = node.comparison.as_ref().map(|comparison| &comparison.value);
    let kind = comparison.map_or("", |comparison| &comparison.kind.value);
    let value = comparison.and_then(|comparison| comparison.value.as_ref());
    let transforms = node.transform.iter().map(|transform| transform.value.as_str());
    let parts = [name, kind, value.map_or("", |value| &value.value), &number].into_iter();
    parts
        .chain(node.zones.iter().flatten().map(|zone| zone.value.as_str()))
        .chain(transforms.filter(|transform| *transform != COUNT))
        .flat_map(str::bytes)
        .fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Moves a directive to its line in the YAML file, so that errors name that line.
fn at_its_line(yaml: &str, rule: &Spanned<String>) -> Vec<u8> {
    let line = usize::try_from(rule.referenced.line().max(1)).unwrap_or(1);
    let is_block = yaml.lines().nth(line - 1).is_some_and(|line| {
        let item = line.trim_start().trim_start_matches('-').trim_start();
        item.starts_with(['|', '>'])
    });
    format!("{}{}", "\n".repeat(line - usize::from(!is_block)), rule.value).into_bytes()
}

fn target<T>(file: &Arc<str>, at: &Spanned<T>, text: &str) -> Result<Target, LoadError> {
    target::target(text).map_err(|fault| faulty(file, at, fault))
}

fn faulty<T>(file: &Arc<str>, at: &Spanned<T>, fault: Fault) -> LoadError {
    let (place, message) = (place(file, at.referenced), fault.message);
    if fault.unsupported {
        LoadError::Unsupported { place, message }
    } else {
        LoadError::Invalid { place, message }
    }
}

fn invalid<T>(file: &Arc<str>, at: &Spanned<T>, message: impl Into<String>) -> LoadError {
    faulty(file, at, Fault::invalid(0, message))
}

fn place(file: &Arc<str>, location: Location) -> RulePlace {
    let number = |number: u64| u32::try_from(number.max(1)).unwrap_or(u32::MAX);
    RulePlace {
        file: Arc::clone(file),
        line: number(location.line()),
        column: number(location.column()),
    }
}

fn yaml_error(file: &Arc<str>, error: &serde_saphyr::Error) -> LoadError {
    let error = error.without_snippet();
    let message = match error {
        serde_saphyr::Error::SerdeUnknownField { field, expected, .. } => {
            format!("unknown key \"{field}\"{}", nearest(field, expected.iter().copied()))
        }
        serde_saphyr::Error::Unexpected { expected: "sequence start", .. } => {
            "expected a list".into()
        }
        serde_saphyr::Error::Unexpected { expected: "mapping start", .. } => {
            "expected keys with values".into()
        }
        other => UserMessageFormatter.format_message(other).trim_end().replace('\n', " "),
    };
    let location = error.location().unwrap_or(Location::UNKNOWN);
    LoadError::Invalid { place: place(file, location), message }
}
