//! Review of a loaded rule set: what it lets pass although its rules look otherwise.

use std::fmt;
use std::path::Path;

use crate::error::{RulePlace, Skipped};
use crate::rule::{
    AllowScope, BodyProcessor, Control, Disruptive, EngineMode, Link, Phase, Rule, Target, Test,
    WrittenOperator,
};
use crate::ruleset::RuleSet;
use crate::settings::Settings;
use crate::transformation::Transformation;
use crate::variable::Variable;

impl RuleSet {
    /// Kinds of request bodies that pass uninspected although SecLang rules read their arguments. ModSecurity and Coraza ship
    /// the rules that are missing then in a recommended configuration; the Core Rule Set relies on them.
    pub fn uninspected_bodies(&self) -> Vec<BodyKind> {
        let mut bodies = BodyUse::default();
        for rule in self.running() {
            for link in &rule.links {
                let targets = link.test.as_ref().map_or(&[][..], |test| &test.targets);
                bodies.add(rule.phase, &rule.place, targets, &link.controls);
            }
        }
        bodies.uninspected(&self.settings)
    }

    /// Rules that end the inspection of requests (`allow`, `ctl:ruleEngine`) under conditions that every client can meet.
    pub fn broad_allows(&self) -> Vec<Skipped> {
        let broad = self.running().filter(|rule| ends_inspection(rule) && !is_narrow(rule));
        let note = |rule: &Rule| {
            let mut targets = rule
                .links
                .iter()
                .filter_map(|link| link.test.as_ref())
                .flat_map(|test| &test.targets);
            let condition = match targets.next() {
                Some(target) => format!("under a condition on {target} that every client can meet"),
                None => "of every request".to_owned(),
            };
            let message = format!("rule {} ends inspection {condition}", rule.id);
            Skipped { place: rule.place.clone(), message }
        };
        broad.map(note).collect()
    }
}

/// Kind of request bodies for which rules may be missing. `Display` adds the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyKind {
    /// No rule selects the parser of JSON.
    Json,
    /// No rule selects the parser of XML.
    Xml,
    /// No rule reads the errors of the parsers.
    Malformed,
}

impl fmt::Display for BodyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Json => "JSON bodies: no rule has ctl:requestBodyProcessor=JSON",
            Self::Xml => "XML bodies: no rule has ctl:requestBodyProcessor=XML",
            Self::Malformed => "malformed bodies: no rule reads REQBODY_ERROR",
        })
    }
}

/// Use of request bodies by a set of rules.
#[derive(Default)]
pub(crate) struct BodyUse {
    reads_arguments: bool,
    parses_json: bool,
    parses_xml: bool,
    reads_errors: bool,
}

impl BodyUse {
    /// Adds a condition of a rule, with its actions.
    pub(crate) fn add<'a, R: 'a>(
        &mut self,
        phase: Phase,
        place: &RulePlace,
        targets: &[Target],
        controls: impl IntoIterator<Item = &'a Control<R>>,
    ) {
        let is_foreign = || {
            let extension = Path::new(&*place.file).extension();
            extension.is_some_and(|name| name == "yaml" || name == "yml" || name == "rules")
        };
        let reads = |variables: [Variable; 2]| {
            targets.iter().any(|target| variables.contains(&target.variable))
        };
        self.reads_arguments |= phase == Phase::RequestBody
            && reads([Variable::Args, Variable::ArgsPost])
            && !is_foreign();
        self.reads_errors |= reads([Variable::ReqbodyError, Variable::ReqbodyProcessorError]);
        for control in controls {
            if let Control::RequestBodyProcessor(processor) = control {
                self.parses_json |= *processor == BodyProcessor::Json;
                self.parses_xml |= *processor == BodyProcessor::Xml;
            }
        }
    }

    /// Kinds of bodies that pass uninspected.
    pub(crate) fn uninspected(&self, settings: &Settings) -> Vec<BodyKind> {
        if !(settings.request_body_access && self.reads_arguments) {
            return Vec::new();
        }
        let kinds = [
            (self.parses_json, BodyKind::Json),
            (self.parses_xml, BodyKind::Xml),
            (self.reads_errors, BodyKind::Malformed),
        ];
        kinds.into_iter().filter(|(is_inspected, _)| !is_inspected).map(|(_, kind)| kind).collect()
    }
}

fn ends_inspection(rule: &Rule) -> bool {
    let allows =
        matches!(rule.disruptive, Disruptive::Allow(AllowScope::Transaction | AllowScope::Request));
    let mut controls = rule.links.iter().flat_map(|link| &link.controls);
    allows
        || controls
            .any(|control| matches!(control, Control::Engine(mode) if *mode != EngineMode::On))
}

/// True if some condition of the rule is one that a client cannot meet as it likes.
fn is_narrow(rule: &Rule) -> bool {
    let is_narrow = |link: &Link| link.test.as_ref().is_some_and(is_narrow_test);
    rule.links.iter().any(is_narrow)
}

fn is_narrow_test(test: &Test) -> bool {
    let WrittenOperator { name, argument } = &test.operator;
    let is_operator = |names: &[&str]| names.iter().any(|one| one.eq_ignore_ascii_case(name));
    // A macro may have a value of the client.
    let is_constant = !argument.windows(2).any(|pair| pair == b"%{");
    let is_narrow = |target: &Target| match target.variable {
        // Paths of which a later part is free may have `..` in it, if it is not resolved.
        Variable::RequestFilename => {
            let normalizes = test.transformations.iter().any(|one| {
                matches!(one, Transformation::NormalizePath | Transformation::NormalizePathWin)
            });
            let is_literal = |byte: &u8| byte.is_ascii_alphanumeric();
            let starts = match &**argument {
                [b'^', b'/', first, ..] => {
                    is_operator(&["rx"]) && is_literal(first) && !argument.contains(&b'|')
                }
                [b'/', first, ..] => is_operator(&["beginsWith"]) && is_literal(first),
                _ => false,
            };
            is_operator(&["streq"]) || (normalizes && starts)
        }
        Variable::RemoteAddr => {
            let is_all = argument
                .split(|byte| matches!(byte, b',' | b' '))
                .any(|range| range.ends_with(b"/0"));
            is_operator(&["ipMatch", "ipMatchF", "ipMatchFromFile", "streq"]) && !is_all
        }
        // Rules decide about these.
        Variable::Tx
        | Variable::Ip
        | Variable::Global
        | Variable::Resource
        | Variable::Session
        | Variable::User => !is_operator(&["unconditionalMatch"]),
        // Clients do, or they are the same for all requests.
        _ => false,
    };
    let may_be_negated = |target: &Target| {
        !matches!(target.variable, Variable::RequestFilename | Variable::RemoteAddr)
    };
    let of_rules = test.targets.iter().all(may_be_negated);
    (of_rules || is_constant && !test.negated) && test.targets.iter().all(is_narrow)
}
