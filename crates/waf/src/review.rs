//! Review of a loaded rule set: what it lets pass although its rules look otherwise.

use std::path::Path;

use crate::error::Skipped;
use crate::rule::{
    AllowScope, BodyProcessor, Control, Disruptive, EngineMode, Link, Phase, Rule, Target, Test,
};
use crate::ruleset::RuleSet;
use crate::variable::Variable;

impl RuleSet {
    /// Kinds of request bodies that pass uninspected although SecLang rules read their arguments, each with the reason.
    /// ModSecurity and Coraza ship the rules that are missing then in a recommended configuration; the Core Rule Set
    /// relies on them.
    pub fn uninspected_bodies(&self) -> Vec<&'static str> {
        let reads_arguments = |rule: &Rule| {
            let extension = Path::new(&*rule.place.file).extension();
            let is_foreign =
                extension.is_some_and(|name| name == "yaml" || name == "yml" || name == "rules");
            let mut targets =
                rule.links.iter().flat_map(|link| &link.test).flat_map(|test| &test.targets);
            let is_argument =
                |target: &Target| matches!(target.variable, Variable::Args | Variable::ArgsPost);
            rule.phase == Phase::RequestBody && !is_foreign && targets.any(is_argument)
        };
        if !(self.settings.request_body_access && self.running().any(reads_arguments)) {
            return Vec::new();
        }
        let parses = |processor| {
            let links = self.running().flat_map(|rule| &rule.links);
            let mut controls = links.flat_map(|link| &link.controls);
            controls.any(|control| {
                matches!(control, Control::RequestBodyProcessor(one) if *one == processor)
            })
        };
        let mut found = Vec::new();
        if !parses(BodyProcessor::Json) {
            found.push("JSON bodies: no rule has ctl:requestBodyProcessor=JSON");
        }
        if !parses(BodyProcessor::Xml) {
            found.push("XML bodies: no rule has ctl:requestBodyProcessor=XML");
        }
        if !self.read.contains_any(&[Variable::ReqbodyError, Variable::ReqbodyProcessorError]) {
            found.push("malformed bodies: no rule reads REQBODY_ERROR");
        }
        found
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
    let is_operator =
        |names: &[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(&test.operator.name));
    // A prefix of the path; a later part is one that a client can add.
    let is_at_start = match &*test.operator.argument {
        [] | b"/" | b"^" | b"^/" => false,
        [b'^', ..] => is_operator(&["rx"]),
        _ => is_operator(&["streq", "beginsWith"]),
    };
    let is_narrow = |target: &Target| match origin(target.variable) {
        Origin::Client => false,
        Origin::Path => is_at_start && !test.negated,
        Origin::Connection => !test.negated && !is_operator(&["unconditionalMatch"]),
        Origin::Rules => !is_operator(&["unconditionalMatch"]),
    };
    test.targets.iter().all(is_narrow)
}

/// Who decides about a value.
enum Origin {
    /// The client, without an effect on what the server does with the request.
    Client,
    /// The client, by the resource that it requests.
    Path,
    /// The connection.
    Connection,
    /// The server, or other rules.
    Rules,
}

fn origin(variable: Variable) -> Origin {
    match variable {
        Variable::RequestFilename | Variable::RequestUri | Variable::RequestUriRaw => Origin::Path,
        Variable::Args
        | Variable::ArgsCombinedSize
        | Variable::ArgsGet
        | Variable::ArgsGetNames
        | Variable::ArgsNames
        | Variable::ArgsPost
        | Variable::ArgsPostNames
        | Variable::AuthType
        | Variable::Files
        | Variable::FilesCombinedSize
        | Variable::FilesNames
        | Variable::FilesSizes
        | Variable::FilesTmpContent
        | Variable::FullRequest
        | Variable::FullRequestLength
        | Variable::MultipartFilename
        | Variable::MultipartName
        | Variable::MultipartPartHeaders
        | Variable::PathInfo
        | Variable::QueryString
        | Variable::RemotePort
        | Variable::RemoteUser
        | Variable::ReqbodyProcessor
        | Variable::RequestBasename
        | Variable::RequestBody
        | Variable::RequestBodyLength
        | Variable::RequestCookies
        | Variable::RequestCookiesNames
        | Variable::RequestHeaders
        | Variable::RequestHeadersNames
        | Variable::RequestLine
        | Variable::RequestMethod
        | Variable::RequestProtocol
        | Variable::ServerName => Origin::Client,
        Variable::RemoteAddr
        | Variable::RemoteHost
        | Variable::ServerAddr
        | Variable::ServerPort => Origin::Connection,
        _ => Origin::Rules,
    }
}
