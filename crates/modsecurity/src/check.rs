//! Check of an nginx configuration before a server is switched over: the rules that the library loads for each place, the
//! directives that it refuses, and what it does otherwise than libmodsecurity.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

pub use tollgate_nginx_conf::ConfigError;
use tollgate_nginx_conf::{Directive, Place};
use tollgate_waf::{LimitAction, RuleSet, Skipped};

use crate::rules::{NO_REMOTE_RULES, RuleSource, builder, with_source};

/// Directives of the connector, with the number of their arguments.
const DIRECTIVES: [(&str, usize); 5] = [
    ("modsecurity", 1),
    ("modsecurity_rules", 1),
    ("modsecurity_rules_file", 1),
    ("modsecurity_rules_remote", 2),
    ("modsecurity_transaction_id", 1),
];

/// Findings of a check.
#[derive(Debug, Default)]
pub struct Check {
    /// `http`, servers and locations, each before the places in it.
    pub places: Vec<CheckedPlace>,
    /// The different sets of rules, in the order of `places`.
    pub sets: Vec<CheckedSet>,
    /// Reasons why nginx does not start with the library, each with its place.
    pub refused: BTreeSet<String>,
    /// True if a new master process, after an upgrade of the running program, gets `LD_LIBRARY_PATH`.
    pub keeps_library_path: bool,
}

/// `http`, a server or a location.
#[derive(Debug)]
pub struct CheckedPlace {
    /// 0 for `http`.
    pub depth: usize,
    /// The directive that opens it; servers have their names.
    pub title: String,
    /// True with `modsecurity on`, also of a place around.
    pub is_on: bool,
    /// Position of the rules in [`Check::sets`].
    pub set: usize,
}

/// Rules of one or more places.
#[derive(Debug)]
pub struct CheckedSet {
    /// Directives that name the rules, each with its place; those of inner places first.
    pub sources: Vec<String>,
    /// `None` if they cannot be loaded.
    pub rules: Option<RuleSet>,
}

/// Checks a configuration. Relative paths of rule files begin in the current folder, as in nginx.
///
/// # Errors
///
/// The configuration cannot be read, or is one that nginx refuses.
pub fn check(path: &Path) -> Result<Check, ConfigError> {
    let directives = tollgate_nginx_conf::read(path)?.directives;
    let mut checker = Checker::default();
    for directive in &directives {
        if directive.name == "http" {
            checker.visit(directive, &Around::default(), 0)?;
        } else if directive.name == "env" {
            let name = directive.argument(0).split('=').next();
            checker.check.keeps_library_path |= name == Some("LD_LIBRARY_PATH");
        } else {
            refuse_directives(directive)?;
        }
    }
    Ok(checker.check)
}

/// Settings that a place inherits from the places around it.
#[derive(Clone, Default)]
struct Around<'a> {
    is_on: bool,
    /// As in [`RuleSources`](crate::rules::RuleSources): directives of the innermost place first.
    rules: Vec<Vec<&'a Directive>>,
    /// Position of the set that they make.
    set: Option<usize>,
}

#[derive(Default)]
struct Checker {
    check: Check,
    /// Position of each set by the directives that name its rules.
    known: HashMap<Vec<Vec<(String, String)>>, usize>,
}

impl Checker {
    /// Checks `http`, a server or a location, with the places in it.
    fn visit<'a>(
        &mut self,
        place: &'a Directive,
        around: &Around<'a>,
        depth: usize,
    ) -> Result<(), ConfigError> {
        let mut here = around.clone();
        let (mut own, mut places, mut switch) = (Vec::new(), Vec::new(), None);
        for directive in place.directives() {
            if directive.name.starts_with("modsecurity") {
                check_arguments(directive)?;
            }
            match &*directive.name {
                "modsecurity" => {
                    let is_on = match directive.argument(0).to_ascii_lowercase().as_str() {
                        "on" => true,
                        "off" => false,
                        other => {
                            return Err(fault(
                                directive,
                                format!("\"modsecurity\" is on or off, not \"{other}\""),
                            ));
                        }
                    };
                    if switch.replace(is_on).is_some() {
                        return Err(fault(directive, "\"modsecurity\" is given twice"));
                    }
                }
                "modsecurity_rules" | "modsecurity_rules_file" => own.push(directive),
                "modsecurity_rules_remote" => {
                    self.refuse(&directive.place, NO_REMOTE_RULES);
                }
                "server" | "location" => places.push(directive),
                _ => refuse_directives_in(directive)?,
            }
        }
        here.is_on = switch.unwrap_or(around.is_on);
        if !own.is_empty() {
            here.rules.insert(0, own);
        }
        let set = self.set(place, &here);
        here.set = Some(set);
        let title = title(place);
        self.check.places.push(CheckedPlace { depth, title, is_on: here.is_on, set });
        places.into_iter().try_for_each(|inner| self.visit(inner, &here, depth + 1))
    }

    fn refuse(&mut self, place: &Place, reason: &str) {
        self.check.refused.insert(format!("{place}: {reason}"));
    }

    /// Returns the position of a set, which is loaded when it is new.
    fn set(&mut self, place: &Directive, here: &Around<'_>) -> usize {
        let rules = &here.rules;
        let named =
            |directive: &&Directive| (directive.name.clone(), directive.argument(0).to_owned());
        let key = rules.iter().map(|own| own.iter().map(named).collect()).collect();
        if let Some(&known) = self.known.get(&key) {
            return known;
        }
        let position = self.check.sets.len();
        self.known.insert(key, position);
        let sources = rules.iter().flatten().map(|directive| match &*directive.name {
            "modsecurity_rules" => format!("modsecurity_rules at {}", directive.place),
            _ => format!("{} at {}", directive.argument(0), directive.place),
        });
        let sources = sources.collect();
        let rules = self.load(place, here);
        self.check.sets.push(CheckedSet { sources, rules });
        position
    }

    /// Loads the rules of a place as the library does: those of its own one by one, which must be valid, and then with those around.
    fn load(&mut self, place: &Directive, here: &Around<'_>) -> Option<RuleSet> {
        let around = here.set.map(|set| self.check.sets[set].rules.as_ref());
        let own = if around.is_some() { &here.rules[..1] } else { &here.rules };
        let mut is_valid = true;
        for directive in own.iter().flatten() {
            let source = with_source(RuleSet::builder().skip_unsupported(true), &source(directive));
            if let Err(error) = source.check() {
                is_valid = false;
                self.check
                    .refused
                    .insert(format!("{}: {}: {error}", directive.place, directive.name));
            }
        }
        // Rules around that cannot be loaded have been reported.
        if !is_valid || matches!(around, Some(None)) {
            return None;
        }
        let places: Vec<Vec<RuleSource>> = here
            .rules
            .iter()
            .map(|own| own.iter().map(|directive| source(directive)).collect())
            .collect();
        let overlaid = around.flatten().map(|around| {
            let own = places[0].iter().fold(RuleSet::builder(), with_source);
            own.skip_unsupported(true).build_on(around)
        });
        let rules = match overlaid.transpose() {
            Ok(Some(Some(rules))) => Ok(rules),
            Ok(Some(None) | None) => builder(&places).skip_unsupported(true).build(),
            Err(error) => Err(error),
        };
        match rules {
            Ok(rules) => {
                let refused = rules.skipped().iter();
                let refused =
                    refused.map(|Skipped { place, message }| format!("{place}: {message}"));
                self.check.refused.extend(refused);
                Some(rules)
            }
            Err(error) => {
                self.refuse(&place.place, &format!("{}: {error}", title(place)));
                None
            }
        }
    }
}

/// Source of the rules that a directive names. Those in a text keep the lines that they have in the configuration.
fn source(directive: &Directive) -> RuleSource {
    let argument = directive.argument(0);
    if directive.name == "modsecurity_rules_file" {
        return RuleSource::File(argument.into());
    }
    let line = directive.arguments.first().map_or(1, |argument| argument.line);
    let text = "\n".repeat(line.saturating_sub(1) as usize) + argument;
    RuleSource::Text(directive.place.file.clone(), text.into())
}

fn title(place: &Directive) -> String {
    let names = |name: &str| {
        let found = place.directives().iter().filter(|directive| directive.name == name);
        found.map(|directive| directive.title().split_off(name.len())).collect::<String>()
    };
    match &*place.name {
        "server" => match names("server_name") {
            name if !name.is_empty() => format!("server{name}"),
            _ => format!("server{}", names("listen")),
        },
        _ => place.title(),
    }
}

fn fault(directive: &Directive, message: impl Into<String>) -> ConfigError {
    ConfigError::new(&directive.place, message)
}

fn check_arguments(directive: &Directive) -> Result<(), ConfigError> {
    let Some((_, count)) = DIRECTIVES.iter().find(|(name, _)| *name == directive.name) else {
        return Ok(());
    };
    if directive.arguments.len() != *count {
        let count =
            if *count == 1 { "one argument".to_owned() } else { format!("{count} arguments") };
        return Err(fault(directive, format!("\"{}\" takes {count}", directive.name)));
    }
    Ok(())
}

/// Refuses a directive of the connector outside of `http`, servers and locations, as in `if`.
fn refuse_directives(directive: &Directive) -> Result<(), ConfigError> {
    if DIRECTIVES.iter().any(|(name, _)| *name == directive.name) {
        return Err(fault(directive, format!("\"{}\" is not allowed here", directive.name)));
    }
    refuse_directives_in(directive)
}

fn refuse_directives_in(directive: &Directive) -> Result<(), ConfigError> {
    directive.directives().iter().try_for_each(refuse_directives)
}

impl CheckedSet {
    /// Differences from libmodsecurity that these rules meet. docs/modsecurity.md has those that do not depend on rules.
    pub fn differences(&self) -> Vec<String> {
        let Some(rules) = &self.rules else { return Vec::new() };
        let settings = rules.settings();
        let mut found = Vec::new();
        let mut note = |is_so: bool, text: String| found.extend(is_so.then_some(text));
        let rejects = settings.request_body_access
            && settings.request_body_limit_action == LimitAction::Reject;
        note(
            rejects,
            "a request body above the limit is rejected, also if SecRequestBodyLimitAction is not set".into(),
        );
        let multi_match = rules.rules().filter(|rule| rule.multi_match).count();
        note(
            multi_match > 0,
            format!(
                "rules with multiMatch write one log line, with their tags, not one for each value: {multi_match}"
            ),
        );
        let audit_only = rules.rules().filter(|rule| rule.audit_log && !rule.log).count();
        note(audit_only > 0, format!("rules with nolog,auditlog write log lines: {audit_only}"));
        note(
            rules.rules().any(|rule| rule.opens_collection),
            "persistent collections end SecCollectionTimeout after their last change, and the oldest of more than 100,000 or 64 MiB".into(),
        );
        note(
            settings.audit_log_concurrent,
            "the index of the audit log has SHA-256 in place of MD5".into(),
        );
        found
    }
}
