//! Rule files: includes, defaults, and updates of rules.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::appsec;
use crate::error::{Fault, LoadError, Place, Skipped};
use crate::naxsi::{self, Naxsi};
use crate::rule::{Rule, RuleFilter, Target};
use crate::seclang::action::{self, Actions, WrittenDisruptive};
use crate::seclang::lexer::{self, Argument, Directive};
use crate::seclang::operator::Shared;
use crate::seclang::target;
use crate::settings::Settings;

/// Depth of nested files.
pub(crate) const INCLUDE_DEPTH_MAX: usize = 16;

/// Rule set while its files are read.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) settings: Settings,
    pub(crate) entries: Vec<Entry>,
    pub(crate) updates: Vec<Update>,
    pub(crate) skipped: Vec<Skipped>,
    pub(crate) inert: Vec<Skipped>,
    pub(crate) never_matching: Vec<Skipped>,
    pub(crate) shared: Shared,
    pub(crate) tests: usize,
    pub(crate) skip_unsupported: bool,
    /// True if `SecRuleEngine` was read.
    pub(crate) engine_is_set: bool,
    /// True if `SecRequestBodyAccess` was read.
    pub(crate) body_access_is_set: bool,
    pub(super) defaults: [Option<Actions>; 5],
    pub(crate) ids: HashSet<u64>,
    pub(crate) naxsi: Naxsi,
    /// Files of AppSec rules that were read, and those that they name.
    read: HashSet<PathBuf>,
    /// Rule whose chain expects another link; `None` inside means that it was left out.
    pub(crate) open_chain: Option<(Option<usize>, Place)>,
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

impl Draft {
    pub(crate) fn new(skip_unsupported: bool) -> Self {
        Self { skip_unsupported, ..Self::default() }
    }

    /// Reads a file with everything that it includes.
    pub(crate) fn file(&mut self, path: &Path, depth: usize) -> Result<(), LoadError> {
        let text = std::fs::read(path)
            .map_err(|source| LoadError::Read { path: path.to_owned(), source })?;
        self.shared.files_read.push(path.to_owned());
        let folder = path.parent().unwrap_or(Path::new(""));
        let place = || Place { file: Arc::from(path.display().to_string()), line: 1, column: 1 };
        if depth == 0 && appsec::is_name(&path.to_string_lossy()) && !self.is_new(path, place) {
            return Ok(());
        }
        self.text(&Arc::from(path.display().to_string()), &text, folder, depth)
    }

    /// Notes that a file is read; false, with a note for the user, if it was before. CrowdSec reads a file once, however many
    /// of its patterns name it.
    pub(crate) fn is_new(&mut self, path: &Path, place: impl Fn() -> Place) -> bool {
        let is_new =
            self.read.insert(path.canonicalize().unwrap_or_else(|_missing| path.to_owned()));
        if !is_new {
            let message = format!("file \"{}\" has no effect: it was read before", path.display());
            self.inert.push(Skipped { place: place(), message });
        }
        is_new
    }

    /// Reads the text of a file, as AppSec rules if its name ends in `.yaml`, as rules of naxsi if it ends in
    /// `.rules`; other files are searched in `folder`.
    pub(crate) fn text(
        &mut self,
        name: &Arc<str>,
        text: &[u8],
        folder: &Path,
        depth: usize,
    ) -> Result<(), LoadError> {
        if appsec::is_name(name) {
            self.appsec(name, text, folder, depth)
        } else if naxsi::is_name(name) {
            self.naxsi(name, text)
        } else {
            self.seclang(name, text, folder, depth)
        }
    }

    pub(crate) fn seclang(
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

    /// Starts with another place. Returns the rules of the places around it.
    pub(crate) fn begin_place(&mut self) -> Vec<Entry> {
        self.defaults = Default::default();
        std::mem::take(&mut self.entries)
    }

    /// Ends a place; the rules of those around it run after its own.
    pub(crate) fn end_place(&mut self, around: Vec<Entry>) -> Result<(), LoadError> {
        if let Some((_, place)) = self.open_chain.take() {
            let message = "chain without a following rule".into();
            return Err(LoadError::Invalid { place, message });
        }
        self.entries.extend(around);
        Ok(())
    }

    /// Completes the draft.
    pub(crate) fn finish(&mut self) -> Result<(), LoadError> {
        self.finish_naxsi()
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
            "include" => self.include(directive, folder, depth, false),
            "includeoptional" => self.include(directive, folder, depth, true),
            "secunicodemapfile" => self.unicode_map(directive, folder),
            _ => match self.update(directive, &name)? {
                true => Ok(()),
                false => self.setting(directive, &name),
            },
        }
    }

    /// Reads the files that match a pattern. Unless it `is_optional`, at least one must.
    fn include(
        &mut self,
        directive: &Directive,
        folder: &Path,
        depth: usize,
        is_optional: bool,
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
        self.shared.files_read.extend(pattern.parent().map(Path::to_owned));
        let matches = glob::glob(&pattern.to_string_lossy())
            .map_err(|error| invalid(format!("invalid pattern: {error}")))?;
        let mut files: Vec<PathBuf> =
            matches.collect::<Result<_, _>>().map_err(|error| invalid(error.to_string()))?;
        files.sort();
        if files.is_empty() && !is_optional {
            return Err(invalid(format!("no file matches \"{}\"", pattern.display())));
        }
        files.iter().try_for_each(|file| self.file(file, depth + 1))
    }

    /// Parses a list of actions, and notes those without effect.
    pub(super) fn actions(
        &mut self,
        directive: &Directive,
        argument: &Argument,
    ) -> Result<Actions, LoadError> {
        let mut actions = parsed(directive, argument, action::parse(&argument.text))?;
        self.inert.extend(actions.inert.drain(..).map(|(offset, message)| Skipped {
            place: directive.place_in(argument, offset),
            message,
        }));
        Ok(actions)
    }

    fn default_action(&mut self, directive: &Directive) -> Result<(), LoadError> {
        let argument = one(directive)?;
        let invalid = |message: &str| LoadError::Invalid {
            place: directive.place_in(argument, 0),
            message: message.into(),
        };
        let actions = self.actions(directive, argument)?;
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
                let actions = self.actions(directive, actions)?;
                self.updates.push(Update::Actions(id, directive.place(), Box::new(actions)));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

pub(super) fn at_name(directive: &Directive, message: String, unsupported: bool) -> LoadError {
    let place = directive.place();
    if unsupported {
        LoadError::Unsupported { place, message }
    } else {
        LoadError::Invalid { place, message }
    }
}

/// Adds the place of the argument to a fault.
pub(crate) fn parsed<T>(
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

pub(super) fn one(directive: &Directive) -> Result<&Argument, LoadError> {
    exactly::<1>(directive).map(|[argument]| argument)
}
