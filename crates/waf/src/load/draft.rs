//! Rule set while its files are read.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use crate::condition::Pattern;
use crate::error::{Fault, LoadError, RulePlace, Skipped};
use crate::operator::phrase::PhraseSet;
use crate::plan::Requirements;
use crate::review::{BodyKind, BodyUse};
use crate::rule::{Control, EngineMode};
use crate::settings::Settings;

use super::written::{Actions, Entry, Update, WrittenRule};

/// Everything that was read.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) settings: Settings,
    pub(crate) entries: Vec<Entry>,
    pub(crate) updates: Vec<Update>,
    pub(crate) skipped: Vec<Skipped>,
    pub(crate) inert: Vec<Skipped>,
    pub(crate) never_matching: Vec<Skipped>,
    pub(crate) shared: Shared,
    pub(crate) skip_unsupported: bool,
    /// True if `SecRuleEngine` was read.
    pub(crate) engine_is_set: bool,
    /// True if `SecRequestBodyAccess` was read.
    pub(crate) body_access_is_set: bool,
    /// `SecDefaultAction` by phase.
    pub(crate) defaults: [Rc<Actions>; 5],
    pub(crate) ids: HashSet<u64>,
    pub(crate) open_chain: Option<OpenChain>,
    /// Files of AppSec rules that were read, and those that they name.
    read: HashSet<PathBuf>,
}

/// Rule whose chain expects another link.
#[derive(Debug)]
pub(crate) struct OpenChain {
    /// Place of the last link.
    pub(crate) place: RulePlace,
    /// Position of the rule; `None` if it was left out.
    pub(crate) entry: Option<usize>,
}

impl Draft {
    pub(crate) fn new(settings: Settings, skip_unsupported: bool) -> Self {
        Self { settings, skip_unsupported, ..Self::default() }
    }

    /// Starts with another place. Returns the rules of the places around it.
    pub(crate) fn begin_place(&mut self) -> Vec<Entry> {
        self.defaults = Default::default();
        std::mem::take(&mut self.entries)
    }

    /// Ends a place; the rules of those around it run after its own.
    pub(crate) fn end_place(&mut self, around: Vec<Entry>) -> Result<(), LoadError> {
        if let Some(OpenChain { place, .. }) = self.open_chain.take() {
            let message = "chain without a following rule".into();
            return Err(LoadError::Invalid { place, message });
        }
        self.entries.extend(around);
        Ok(())
    }

    /// Notes that a file is read; false, with a note for the user, if it was before. CrowdSec reads a file once, however many
    /// of its patterns name it.
    pub(crate) fn is_new(&mut self, path: &Path, place: impl Fn() -> RulePlace) -> bool {
        let is_new =
            self.read.insert(path.canonicalize().unwrap_or_else(|_missing| path.to_owned()));
        if !is_new {
            let message = format!("file \"{}\" has no effect: it was read before", path.display());
            self.inert.push(Skipped { place: place(), message });
        }
        is_new
    }

    /// Like [`RuleSet::uninspected_bodies`](crate::RuleSet::uninspected_bodies), for the rules that were read so far.
    pub(crate) fn uninspected_bodies(&self) -> Vec<BodyKind> {
        let is_removed = |rule: &WrittenRule| {
            let removes = |update: &Update| matches!(update, Update::Remove(_, filter) if rule.is_selected(filter));
            self.updates.iter().any(removes)
        };
        let mut bodies = BodyUse::default();
        for entry in &self.entries {
            let Entry::Rule(rule) = entry else { continue };
            if is_removed(rule) {
                continue;
            }
            for link in &rule.links {
                let targets = link.test.as_ref().map_or(&[][..], |test| &test.targets);
                let controls = rule.defaults.controls.iter().chain(&link.actions.controls);
                bodies.add(rule.phase, &link.place, targets, controls);
            }
            for update in &self.updates {
                if let Update::Targets(_, filter, added, _) = update
                    && rule.is_selected(filter)
                {
                    let no_controls: [&Control; 0] = [];
                    bodies.add(rule.phase, &rule.links[0].place, added, no_controls);
                }
            }
        }
        bodies.uninspected(&self.settings)
    }

    /// Turns the engine on and has bodies inspected, unless directives have set that.
    pub(crate) fn turn_on(&mut self) {
        if !self.engine_is_set {
            self.settings.engine = EngineMode::On;
        }
        if !self.body_access_is_set {
            self.settings.request_body_access = true;
        }
    }

    /// Adds a construct to those without effect.
    pub(crate) fn note_inert(&mut self, place: &RulePlace, message: impl Into<String>) {
        self.inert.push(Skipped { place: place.clone(), message: message.into() });
    }

    /// Leaves out what is not supported, if the caller wants that.
    pub(crate) fn skip<T>(&mut self, result: Result<T, LoadError>) -> Result<Option<T>, LoadError> {
        match result {
            Err(LoadError::Unsupported { place, message }) if self.skip_unsupported => {
                self.skipped.push(Skipped { place, message });
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    pub(crate) fn push(&mut self, rule: WrittenRule) {
        self.entries.push(Entry::Rule(Box::new(rule)));
    }

    /// Takes an id; if it is used, the next free one.
    pub(crate) fn take_id(&mut self, wanted: u32) -> u64 {
        let id = (u64::from(wanted.max(1))..).find(|id| !self.ids.contains(id));
        let id = id.expect("a set of ids cannot contain all numbers");
        self.ids.insert(id);
        id
    }
}

/// State shared by all operators of a rule set: regexes are numbered, phrase files are read once.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) patterns: usize,
    /// Necessary conditions of the regexes.
    pub(crate) requirements: Requirements,
    phrases: HashMap<PathBuf, Arc<PhraseSet>>,
    /// Files and folders on which the rules depend.
    pub(crate) files_read: Vec<PathBuf>,
}

impl Shared {
    /// Checks and numbers a regex.
    pub(crate) fn regex(&mut self, text: &str) -> Result<Pattern, Fault> {
        self.requirements.add(text).map_err(|message| Fault::invalid(0, message))?;
        self.patterns += 1;
        Ok(Pattern::new(text, self.patterns - 1))
    }

    /// Checks and numbers a regex in the syntax of RE2.
    pub(crate) fn linear_regex(&mut self, text: &str) -> Result<Pattern, Fault> {
        crate::regex::check_linear(text).map_err(|message| Fault::unsupported(0, message))?;
        self.regex(text)
    }

    /// The phrases of files whose names are separated by whitespace. Files are read once.
    pub(crate) fn phrase_file(
        &mut self,
        names: &[u8],
        folder: &Path,
    ) -> Result<Arc<PhraseSet>, Fault> {
        let names = names.trim_ascii();
        if names.is_empty() {
            return Err(Fault::invalid(0, "missing file name"));
        }
        let path = folder.join(&*String::from_utf8_lossy(names));
        if let Some(set) = self.phrases.get(&path) {
            return Ok(Arc::clone(set));
        }
        let mut lines = Vec::new();
        for name in names.split(u8::is_ascii_whitespace).filter(|name| !name.is_empty()) {
            lines.extend(self.data_file(name, folder)?);
            lines.push(b'\n');
        }
        let set = PhraseSet::from_file(&lines).map_err(|message| Fault::invalid(0, message))?;
        let set = Arc::new(set);
        self.phrases.insert(path, Arc::clone(&set));
        Ok(set)
    }

    /// Contents of a file that an operator names.
    pub(crate) fn data_file(&mut self, name: &[u8], folder: &Path) -> Result<Vec<u8>, Fault> {
        let path = folder.join(&*String::from_utf8_lossy(name.trim_ascii()));
        let bytes = std::fs::read(&path).map_err(|error| {
            Fault::invalid(0, format!("cannot read data file \"{}\": {error}", path.display()))
        })?;
        self.files_read.push(path);
        Ok(bytes)
    }
}
