//! Directives: rules, updates of rules, settings and includes.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Fault, LoadError, Place, Skipped, nearest};
use crate::rule::{Disruptive, Flow, Link, Phase, Rule, RuleFilter, Target, Test};
use crate::seclang::action::{self, Actions, WrittenDisruptive};
use crate::seclang::lexer::{self, Argument, Directive};
use crate::seclang::operator::{self, Shared};
use crate::seclang::target;
use crate::settings::{LimitAction, Settings};
use crate::transformation::Transformation;

/// Depth of nested `Include` directives.
const INCLUDE_DEPTH_MAX: usize = 16;

/// Rule set while its files are read.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) settings: Settings,
    pub(crate) entries: Vec<Entry>,
    pub(crate) updates: Vec<Update>,
    pub(crate) skipped: Vec<Skipped>,
    pub(crate) inert: Vec<Skipped>,
    pub(crate) shared: Shared,
    pub(crate) tests: usize,
    skip_unsupported: bool,
    defaults: [Option<Actions>; 5],
    ids: HashSet<u64>,
    /// Rule whose chain expects another link; `None` inside means that it was left out.
    open_chain: Option<(Option<usize>, Place)>,
}

/// Rule or marker in the order of the files.
#[derive(Debug)]
pub(crate) enum Entry {
    Rule(Box<Rule>, Option<(String, Place)>),
    Marker(String),
}

/// Change of rules that applies once all files are read.
#[derive(Debug)]
pub(crate) enum Update {
    Remove(RuleFilter),
    Targets(RuleFilter, Vec<Target>, Vec<Target>),
    Actions(u64, Place, Box<Actions>),
}

/// Directives without an effect on this engine, with the reason.
const INERT: [(&str, &str); 27] = [
    ("SecRequestBodyInMemoryLimit", "bodies are always kept in memory, within SecRequestBodyLimit"),
    ("SecPcreMatchLimit", "regexes run in time linear in the value"),
    ("SecPcreMatchLimitRecursion", "regexes run in time linear in the value"),
    ("SecDataDir", "persistent collections last for one transaction"),
    ("SecTmpDir", "no temporary file is written"),
    ("SecTmpSaveUploadedFiles", "no temporary file is written"),
    ("SecUploadDir", "no uploaded file is written"),
    ("SecUploadFileMode", "no uploaded file is written"),
    ("SecUploadKeepFiles", "no uploaded file is written"),
    ("SecDebugLog", "there is no debug log"),
    ("SecDebugLogLevel", "there is no debug log"),
    (
        "SecUnicodeMapFile",
        "%uHHHH is decoded by its low byte, fullwidth forms by their ASCII character",
    ),
    (
        "SecUnicodeCodePage",
        "%uHHHH is decoded by its low byte, fullwidth forms by their ASCII character",
    ),
    ("SecStatusEngine", "nothing is sent home"),
    ("SecCookieFormat", "cookies are of version 0"),
    ("SecCollectionTimeout", "persistent collections last for one transaction"),
    ("SecAuditLogStorageDir", "audit entries are written by the program that runs the engine"),
    ("SecAuditLogDirMode", "audit entries are written by the program that runs the engine"),
    ("SecAuditLogFileMode", "audit entries are written by the program that runs the engine"),
    ("SecAuditLogType", "audit entries are written by the program that runs the engine"),
    ("SecAuditLog2", "audit entries are written by the program that runs the engine"),
    ("SecResponseBodyMimeTypesClear", "use SecResponseBodyMimeType, which replaces the list"),
    ("SecXmlExternalEntity", "external entities are never loaded"),
    ("SecSensorId", "it only labels the audit log"),
    ("SecRulePerfTime", "there is no debug log"),
    ("SecConnEngine", "connections are limited by the proxy"),
    ("SecGuardianLog", "there is no guardian log"),
];

const EXTERNAL: [(&str, &str); 12] = [
    ("SecRuleScript", "it runs Lua"),
    ("SecRemoteRules", "it fetches a URL"),
    ("SecRemoteRulesFailAction", "it fetches a URL"),
    ("SecGeoLookupDb", "geographic lookups are not supported"),
    ("SecGsbLookupDb", "Safe Browsing lookups are not supported"),
    ("SecHttpBlKey", "DNS lookups are not supported"),
    ("SecChrootDir", "it changes the process"),
    ("SecHashEngine", "signed links are not supported"),
    ("SecHashKey", "signed links are not supported"),
    ("SecContentInjection", "responses are not changed"),
    ("SecStreamInBodyInspection", "streams are not changed"),
    ("SecStreamOutBodyInspection", "streams are not changed"),
];

const NAMES: [&str; 37] = [
    "Include",
    "SecAction",
    "SecArgumentSeparator",
    "SecArgumentsLimit",
    "SecAuditEngine",
    "SecAuditLog",
    "SecAuditLogFormat",
    "SecAuditLogParts",
    "SecAuditLogRelevantStatus",
    "SecComponentSignature",
    "SecDefaultAction",
    "SecMarker",
    "SecRequestBodyAccess",
    "SecRequestBodyJsonDepthLimit",
    "SecRequestBodyLimit",
    "SecRequestBodyLimitAction",
    "SecRequestBodyNoFilesLimit",
    "SecResponseBodyAccess",
    "SecResponseBodyLimit",
    "SecResponseBodyLimitAction",
    "SecResponseBodyMimeType",
    "SecRule",
    "SecRuleEngine",
    "SecRuleRemoveById",
    "SecRuleRemoveByMsg",
    "SecRuleRemoveByTag",
    "SecRuleUpdateActionById",
    "SecRuleUpdateTargetById",
    "SecRuleUpdateTargetByMsg",
    "SecRuleUpdateTargetByTag",
    "SecServerSignature",
    "SecUploadFileLimit",
    "SecWebAppId",
    "SecDataDir",
    "SecDebugLog",
    "SecPcreMatchLimit",
    "SecTmpDir",
];

impl Draft {
    pub(crate) fn new(skip_unsupported: bool) -> Self {
        Self { skip_unsupported, ..Self::default() }
    }

    /// Reads a file with everything that it includes.
    pub(crate) fn file(&mut self, path: &Path, depth: usize) -> Result<(), LoadError> {
        let text = std::fs::read(path)
            .map_err(|source| LoadError::Read { path: path.to_owned(), source })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        self.text(&Arc::from(path.display().to_string()), &text, folder, depth)
    }

    /// Reads the text of a file; other files are searched in `folder`.
    pub(crate) fn text(
        &mut self,
        name: &Arc<str>,
        text: &[u8],
        folder: &Path,
        depth: usize,
    ) -> Result<(), LoadError> {
        for directive in lexer::directives(name, text)? {
            match self.directive(&directive, folder, depth) {
                Err(LoadError::Unsupported { place, message }) if self.skip_unsupported => {
                    self.skipped.push(Skipped { place, message });
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// Completes the draft.
    pub(crate) fn finish(&mut self) -> Result<(), LoadError> {
        match self.open_chain.take() {
            None => Ok(()),
            Some((_, place)) => {
                Err(LoadError::Invalid { place, message: "chain without a following rule".into() })
            }
        }
    }

    fn directive(
        &mut self,
        directive: &Directive,
        folder: &Path,
        depth: usize,
    ) -> Result<(), LoadError> {
        let name = directive.name.as_str().to_ascii_lowercase();
        if self.open_chain.is_some() && !matches!(name.as_str(), "secrule" | "secaction") {
            return Err(at_name(
                directive,
                "a chain must continue with SecRule or SecAction".into(),
                false,
            ));
        }
        match name.as_str() {
            "secrule" => {
                let [targets, operator] = directive
                    .arguments
                    .get(..2)
                    .and_then(|a| <&[Argument; 2]>::try_from(a).ok())
                    .ok_or_else(|| {
                        at_name(
                            directive,
                            "SecRule needs targets, an operator and, unless in a chain, actions"
                                .into(),
                            false,
                        )
                    })?;
                self.rule(
                    directive,
                    Some((targets, operator)),
                    arguments_at_most(directive, 3)?.get(2),
                    folder,
                )
            }
            "secaction" => {
                let actions = arguments_at_most(directive, 1)?.first();
                self.rule(directive, None, actions, folder)
            }
            "secmarker" => {
                let name = one(directive)?.as_str().into_owned();
                self.entries.push(Entry::Marker(name));
                Ok(())
            }
            "secdefaultaction" => self.default_action(directive),
            "include" => self.include(directive, folder, depth),
            _ => match self.update(directive, &name)? {
                true => Ok(()),
                false => self.setting(directive, &name),
            },
        }
    }

    fn include(
        &mut self,
        directive: &Directive,
        folder: &Path,
        depth: usize,
    ) -> Result<(), LoadError> {
        let argument = one(directive)?;
        let invalid = |message: String| LoadError::Invalid {
            place: directive.place_in(argument, 0),
            message,
        };
        if depth >= INCLUDE_DEPTH_MAX {
            return Err(invalid(format!("Include is nested more than {INCLUDE_DEPTH_MAX} times")));
        }
        let pattern = folder.join(&*argument.as_str());
        let matches = glob::glob(&pattern.to_string_lossy())
            .map_err(|error| invalid(format!("invalid pattern: {error}")))?;
        let mut files: Vec<PathBuf> =
            matches.collect::<Result<_, _>>().map_err(|error| invalid(error.to_string()))?;
        files.sort();
        if files.is_empty() {
            return Err(invalid(format!("no file matches \"{}\"", pattern.display())));
        }
        files.iter().try_for_each(|file| self.file(file, depth + 1))
    }

    fn default_action(&mut self, directive: &Directive) -> Result<(), LoadError> {
        let argument = one(directive)?;
        let invalid = |message: &str| LoadError::Invalid {
            place: directive.place_in(argument, 0),
            message: message.into(),
        };
        let actions = parsed(directive, argument, action::parse(&argument.text))?;
        let phase = actions.phase.ok_or_else(|| invalid("SecDefaultAction needs a phase"))?;
        if matches!(actions.disruptive, None | Some(WrittenDisruptive::Block)) {
            return Err(invalid("SecDefaultAction needs a disruptive action other than block"));
        }
        if actions.id.is_some()
            || actions.chain
            || actions.skip.is_some()
            || actions.skip_after.is_some()
        {
            return Err(invalid("SecDefaultAction must not contain id, chain, skip or skipAfter"));
        }
        self.defaults[phase.index()] = Some(actions);
        Ok(())
    }

    /// Adds a rule, or a link to the chain that is open.
    fn rule(
        &mut self,
        directive: &Directive,
        test: Option<(&Argument, &Argument)>,
        actions: Option<&Argument>,
        folder: &Path,
    ) -> Result<(), LoadError> {
        let chain = self.open_chain.take();
        let result = self.parse_rule(directive, test, actions, folder, chain.as_ref());
        if let Err(LoadError::Unsupported { .. }) = result
            && self.skip_unsupported
        {
            // The whole chain is left out: a rule with fewer conditions would match more.
            if let Some((Some(index), _)) = chain {
                self.entries.truncate(index);
            }
            let chained =
                actions.and_then(|a| action::parse(&a.text).ok()).is_some_and(|a| a.chain);
            if chained {
                self.open_chain = Some((None, directive.place()));
            }
        }
        result
    }

    fn parse_rule(
        &mut self,
        directive: &Directive,
        test: Option<(&Argument, &Argument)>,
        actions: Option<&Argument>,
        folder: &Path,
        chain: Option<&(Option<usize>, Place)>,
    ) -> Result<(), LoadError> {
        let written = match actions {
            Some(argument) => parsed(directive, argument, action::parse(&argument.text))?,
            None => Actions::default(),
        };
        let fault_place =
            actions.map_or_else(|| directive.place(), |argument| directive.place_in(argument, 0));
        let invalid = |message: &str| LoadError::Invalid {
            place: fault_place.clone(),
            message: message.into(),
        };
        let chained = written.chain;
        let (phase, in_chain) = match chain {
            Some((Some(index), _)) => match &self.entries[*index] {
                Entry::Rule(rule, _) => (rule.phase, true),
                Entry::Marker(_) => (Phase::RequestBody, true),
            },
            Some((None, _)) => (Phase::RequestBody, true),
            None => (written.phase.unwrap_or(Phase::RequestBody), false),
        };
        let defaults = self.defaults[phase.index()].clone().unwrap_or_default();
        let link = self.link(directive, test, &written, &defaults, folder)?;
        let index = if in_chain {
            if written.id.is_some()
                || written.phase.is_some()
                || written.skip.is_some()
                || written.skip_after.is_some()
            {
                return Err(invalid(
                    "id, phase, skip and skipAfter belong to the first rule of a chain",
                ));
            }
            if matches!(written.disruptive, Some(ref d) if !matches!(d, WrittenDisruptive::Pass | WrittenDisruptive::Block))
            {
                return Err(invalid("disruptive actions belong to the first rule of a chain"));
            }
            let index = chain.and_then(|(index, _)| *index);
            if let Some(Entry::Rule(rule, _)) = index.and_then(|index| self.entries.get_mut(index))
            {
                rule.links.push(link);
                rule.tags.extend(written.tags);
                rule.severity = rule.severity.or(written.severity);
            }
            index
        } else {
            let id = match (written.id, test) {
                (Some(id), _) => id,
                (None, _) => return Err(invalid("rule without id")),
            };
            if !self.ids.insert(id) {
                return Err(invalid(&format!("rule id {id} is used twice")));
            }
            let skip_after = written.skip_after.clone().map(|name| (name, fault_place.clone()));
            let rule = new_rule(directive.place(), id, phase, written, &defaults, link);
            self.entries.push(Entry::Rule(Box::new(rule), skip_after));
            Some(self.entries.len() - 1)
        };
        if chained {
            self.open_chain = Some((index, directive.place()));
        }
        Ok(())
    }

    fn link(
        &mut self,
        directive: &Directive,
        test: Option<(&Argument, &Argument)>,
        written: &Actions,
        defaults: &Actions,
        folder: &Path,
    ) -> Result<Link, LoadError> {
        let test = match test {
            None => None,
            Some((targets, operator)) => {
                let list = parsed(directive, targets, target::parse(&targets.as_str()))?;
                if list.targets.is_empty() {
                    return Err(LoadError::Invalid {
                        place: directive.place_in(targets, 0),
                        message: "no target that is not excluded".into(),
                    });
                }
                let operator = parsed(
                    directive,
                    operator,
                    operator::parse(&operator.text, folder, &mut self.shared),
                )?;
                self.tests += 1;
                Some(Test {
                    targets: list.targets,
                    exclusions: list.exclusions,
                    transformations: transformations(written, defaults),
                    multi_match: written.multi_match,
                    negated: operator.negated,
                    condition: operator.condition,
                    index: self.tests - 1,
                })
            }
        };
        Ok(Link {
            place: directive.place(),
            test,
            capture: written.capture,
            log_data: written.log_data.clone(),
            message: written.message.clone(),
            assignments: defaults.assignments.iter().chain(&written.assignments).cloned().collect(),
            controls: defaults.controls.iter().chain(&written.controls).cloned().collect(),
        })
    }

    /// Handles directives that change rules; returns false for others.
    fn update(&mut self, directive: &Directive, name: &str) -> Result<bool, LoadError> {
        let filter = |argument: &Argument| match name {
            "secruleremovebyid" | "secruleupdatetargetbyid" => {
                parsed(directive, argument, action::ids(&argument.as_str()))
            }
            "secruleremovebytag" | "secruleupdatetargetbytag" => {
                Ok(RuleFilter::Tag(argument.as_str().into_owned()))
            }
            _ => Ok(RuleFilter::Message(argument.as_str().into_owned())),
        };
        match name {
            "secruleremovebyid" | "secruleremovebytag" | "secruleremovebymsg" => {
                if directive.arguments.is_empty() {
                    return Err(at_name(
                        directive,
                        format!("{} needs an argument", directive.name.as_str()),
                        false,
                    ));
                }
                for argument in &directive.arguments {
                    self.updates.push(Update::Remove(filter(argument)?));
                }
            }
            "secruleupdatetargetbyid" | "secruleupdatetargetbytag" | "secruleupdatetargetbymsg" => {
                let [rules, targets] = exactly::<2>(directive)?;
                let list = parsed(directive, targets, target::parse(&targets.as_str()))?;
                self.updates.push(Update::Targets(filter(rules)?, list.targets, list.exclusions));
            }
            "secruleupdateactionbyid" => {
                let [rule, actions] = exactly::<2>(directive)?;
                let text = rule.as_str();
                let id = text.trim().parse().map_err(|error| LoadError::Invalid {
                    place: directive.place_in(rule, 0),
                    message: format!("rule id \"{text}\": {error}"),
                })?;
                let actions = parsed(directive, actions, action::parse(&actions.text))?;
                self.updates.push(Update::Actions(id, directive.place(), Box::new(actions)));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn setting(&mut self, directive: &Directive, name: &str) -> Result<(), LoadError> {
        let written = directive.name.as_str();
        if let Some((_, reason)) = INERT.iter().find(|(inert, _)| inert.eq_ignore_ascii_case(name))
        {
            self.inert.push(Skipped {
                place: directive.place(),
                message: format!("{written} has no effect: {reason}"),
            });
            return Ok(());
        }
        if let Some((_, reason)) =
            EXTERNAL.iter().find(|(external, _)| external.eq_ignore_ascii_case(name))
        {
            return Err(at_name(directive, format!("{written} is not supported: {reason}"), true));
        }
        let settings = &mut self.settings;
        match name {
            "secruleengine" => settings.engine = value(directive, action::engine)?,
            "secrequestbodyaccess" => settings.request_body_access = value(directive, switch)?,
            "secrequestbodylimit" => settings.request_body_limit = value(directive, number)?,
            "secrequestbodynofileslimit" => {
                settings.request_body_no_files_limit = value(directive, number)?
            }
            "secrequestbodylimitaction" => {
                settings.request_body_limit_action = value(directive, limit_action)?
            }
            "secrequestbodyjsondepthlimit" => settings.json_depth_limit = value(directive, number)?,
            "secargumentslimit" => settings.arguments_limit = value(directive, number)?,
            "secargumentseparator" => settings.argument_separator = value(directive, separator)?,
            "secuploadfilelimit" => settings.upload_file_limit = value(directive, number)?,
            "secresponsebodyaccess" => settings.response_body_access = value(directive, switch)?,
            "secresponsebodylimit" => settings.response_body_limit = value(directive, number)?,
            "secresponsebodylimitaction" => {
                settings.response_body_limit_action = value(directive, limit_action)?
            }
            "secresponsebodymimetype" => {
                settings.response_body_mime_types =
                    directive.arguments.iter().map(|a| a.as_str().to_ascii_lowercase()).collect();
            }
            "secauditengine" => settings.audit_engine = value(directive, action::audit_engine)?,
            "secauditlogrelevantstatus" => {
                settings.audit_log_relevant_status = Some(value(directive, pattern)?)
            }
            "secauditlogparts" => settings.audit_log_parts = value(directive, text)?,
            "secauditlog" => settings.audit_log = Some(value(directive, text)?),
            "secauditlogformat" => {
                settings.audit_log_json = value(directive, |t| Ok(t.eq_ignore_ascii_case("json")))?
            }
            "seccomponentsignature" => settings.component_signatures.push(value(directive, text)?),
            "secwebappid" => settings.web_application = Some(value(directive, text)?),
            "secserversignature" => settings.server_signature = Some(value(directive, text)?),
            _ => {
                let hint = nearest(name, NAMES);
                return Err(at_name(
                    directive,
                    format!("unknown directive \"{written}\"{hint}"),
                    true,
                ));
            }
        }
        Ok(())
    }
}

fn new_rule(
    place: Place,
    id: u64,
    phase: Phase,
    written: Actions,
    defaults: &Actions,
    link: Link,
) -> Rule {
    let disruptive = resolve(written.disruptive.as_ref(), defaults.disruptive.as_ref());
    let mut tags = defaults.tags.clone();
    tags.extend(written.tags);
    let log = written.log.or(defaults.log).unwrap_or(true);
    Rule {
        id,
        place,
        phase,
        message: written.message,
        tags,
        severity: written.severity,
        version: written.version,
        revision: written.revision,
        log,
        audit_log: written.audit_log.or(defaults.audit_log).unwrap_or(log),
        disruptive,
        status: written.status.or(defaults.status),
        flow: written.skip.map_or(Flow::Continue, Flow::Skip),
        links: vec![link],
    }
}

/// Replaces `block`, and a missing action, by the one of the defaults.
pub(crate) fn resolve(
    written: Option<&WrittenDisruptive>,
    default: Option<&WrittenDisruptive>,
) -> Disruptive {
    match written {
        None | Some(WrittenDisruptive::Block) => match default {
            None | Some(WrittenDisruptive::Block) => Disruptive::Pass,
            default => resolve(default, None),
        },
        Some(WrittenDisruptive::Pass) => Disruptive::Pass,
        Some(WrittenDisruptive::Deny) => Disruptive::Deny,
        Some(WrittenDisruptive::Drop) => Disruptive::Drop,
        Some(WrittenDisruptive::Redirect(to)) => Disruptive::Redirect(to.clone()),
        Some(WrittenDisruptive::Allow(scope)) => Disruptive::Allow(*scope),
    }
}

fn transformations(written: &Actions, defaults: &Actions) -> Vec<Transformation> {
    let inherited =
        if written.resets_transformations { &[] } else { defaults.transformations.as_slice() };
    inherited.iter().chain(&written.transformations).copied().collect()
}

fn at_name(directive: &Directive, message: String, unsupported: bool) -> LoadError {
    let place = directive.place();
    if unsupported {
        LoadError::Unsupported { place, message }
    } else {
        LoadError::Invalid { place, message }
    }
}

/// Adds the place of the argument to a fault.
fn parsed<T>(
    directive: &Directive,
    argument: &Argument,
    result: Result<T, Fault>,
) -> Result<T, LoadError> {
    result.map_err(|fault| {
        let place = directive.place_in(argument, fault.offset);
        if fault.unsupported {
            LoadError::Unsupported { place, message: fault.message }
        } else {
            LoadError::Invalid { place, message: fault.message }
        }
    })
}

fn arguments_at_most(directive: &Directive, count: usize) -> Result<&[Argument], LoadError> {
    match directive.arguments.get(count) {
        None => Ok(&directive.arguments),
        Some(extra) => Err(LoadError::Invalid {
            place: directive.place_in(extra, 0),
            message: format!("{} takes at most {count} arguments", directive.name.as_str()),
        }),
    }
}

fn exactly<const N: usize>(directive: &Directive) -> Result<&[Argument; N], LoadError> {
    let arguments: &[Argument] = &directive.arguments;
    <&[Argument; N]>::try_from(arguments).map_err(|_error| {
        at_name(
            directive,
            format!(
                "{} needs {N} argument{}",
                directive.name.as_str(),
                if N == 1 { "" } else { "s" }
            ),
            false,
        )
    })
}

fn one(directive: &Directive) -> Result<&Argument, LoadError> {
    exactly::<1>(directive).map(|[argument]| argument)
}

fn value<T>(
    directive: &Directive,
    parse: impl FnOnce(&str) -> Result<T, Fault>,
) -> Result<T, LoadError> {
    let argument = one(directive)?;
    parsed(directive, argument, parse(&argument.as_str()))
}

fn switch(text: &str) -> Result<bool, Fault> {
    match text.to_ascii_lowercase().as_str() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(Fault::invalid(0, format!("\"{text}\" is neither On nor Off"))),
    }
}

fn number(text: &str) -> Result<usize, Fault> {
    text.parse().map_err(|error| Fault::invalid(0, format!("\"{text}\": {error}")))
}

fn separator(text: &str) -> Result<u8, Fault> {
    match text.as_bytes() {
        [byte] => Ok(*byte),
        _ => Err(Fault::invalid(0, format!("separator \"{text}\" is not one byte"))),
    }
}

fn limit_action(text: &str) -> Result<LimitAction, Fault> {
    match text.to_ascii_lowercase().as_str() {
        "reject" => Ok(LimitAction::Reject),
        "processpartial" => Ok(LimitAction::ProcessPartial),
        _ => Err(Fault::invalid(0, format!("\"{text}\" is neither Reject nor ProcessPartial"))),
    }
}

fn pattern(text: &str) -> Result<String, Fault> {
    crate::regex::compile(text).map_err(|message| Fault::invalid(0, message))?;
    Ok(text.to_owned())
}

fn text(text: &str) -> Result<String, Fault> {
    Ok(text.to_owned())
}
