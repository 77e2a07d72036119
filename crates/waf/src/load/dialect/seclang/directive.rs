//! Directives: rules, defaults, includes, and updates of rules.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::error::{LoadError, RulePlace, Skipped};
use crate::load::draft::Draft;
use crate::load::written::{Actions, Entry, RuleFilter, Update, WrittenDisruptive};

use super::lexer::{Argument, Directive};
use super::{action, at_argument, at_name, exactly, one, target};

/// Files that `Include` names, in the order in which they are read.
#[derive(Debug)]
pub(crate) struct Include {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) place: RulePlace,
}

impl Draft {
    /// Reads a directive. Returns the files to read next, if it is an `Include`.
    pub(crate) fn directive(
        &mut self,
        directive: &Directive,
        folder: &Path,
    ) -> Result<Option<Include>, LoadError> {
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
            "include" => return self.include(directive, folder, false).map(Some),
            "includeoptional" => return self.include(directive, folder, true).map(Some),
            "secunicodemapfile" => self.unicode_map(directive, folder),
            _ if self.update(directive, &name)? => Ok(()),
            _ => self.setting(directive, &name),
        }?;
        Ok(None)
    }

    /// Finds the files that match a pattern. Unless it `is_optional`, at least one must.
    fn include(
        &mut self,
        directive: &Directive,
        folder: &Path,
        is_optional: bool,
    ) -> Result<Include, LoadError> {
        let argument = one(directive)?;
        let invalid = |message: String| LoadError::Invalid {
            place: directive.place_in(argument, 0),
            message,
        };
        let pattern = folder.join(&*argument.as_str());
        self.shared.files_read.extend(searched_folders(&pattern));
        let matches = glob::glob(&pattern.to_string_lossy())
            .map_err(|error| invalid(format!("invalid pattern: {error}")))?;
        let mut files: Vec<PathBuf> =
            matches.collect::<Result<_, _>>().map_err(|error| invalid(error.to_string()))?;
        files.sort();
        if files.is_empty() && !is_optional {
            return Err(invalid(format!("no file matches \"{}\"", pattern.display())));
        }
        Ok(Include { files, place: directive.place_in(argument, 0) })
    }

    /// Parses a list of actions, and notes those without effect.
    pub(super) fn actions(
        &mut self,
        directive: &Directive,
        argument: &Argument,
    ) -> Result<Actions, LoadError> {
        let mut actions = at_argument(directive, argument, action::parse(&argument.text))?;
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
        if actions.id.is_some() || actions.chain || actions.flow.is_some() {
            return Err(invalid("SecDefaultAction must not contain id, chain, skip or skipAfter"));
        }
        self.defaults[phase.index()] = Rc::new(actions);
        Ok(())
    }

    /// Handles directives that change rules; returns false for others.
    fn update(&mut self, directive: &Directive, name: &str) -> Result<bool, LoadError> {
        let filter = |argument: &Argument| match name {
            "secruleremovebyid" | "secruleupdatetargetbyid" => {
                at_argument(directive, argument, action::ids(&argument.as_str()))
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
                    self.updates
                        .push(Update::Remove(directive.place_in(argument, 0), filter(argument)?));
                }
            }
            "secruleupdatetargetbyid" | "secruleupdatetargetbytag" | "secruleupdatetargetbymsg" => {
                let [rules, targets] = exactly::<2>(directive)?;
                let list = at_argument(directive, targets, target::parse(&targets.as_str()))?;
                let place = directive.place();
                self.updates.push(Update::Targets(
                    place,
                    filter(rules)?,
                    list.targets,
                    list.exclusions,
                ));
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

/// Folders in which a new file or folder could add a match of the pattern.
fn searched_folders(pattern: &Path) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for folder in pattern.ancestors().skip(1) {
        let text = folder.to_string_lossy();
        if !text.contains(['*', '?', '[']) {
            // An empty path is the working directory.
            folders.push(if text.is_empty() { PathBuf::from(".") } else { folder.to_owned() });
            break;
        }
        let found = glob::glob(&text).into_iter().flatten().flatten();
        folders.extend(found.filter(|path| path.is_dir()));
    }
    folders
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_those_in_which_a_further_file_may_appear() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for folder in ["a", "b/c"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        std::fs::write(root.join("file"), "").unwrap();
        let searched = |pattern: &str| {
            let mut folders = searched_folders(&root.join(pattern));
            folders.sort();
            folders
        };
        assert_eq!(searched("*.conf"), [root]);
        assert_eq!(searched("*/*.conf"), [root.to_owned(), root.join("a"), root.join("b")]);
        // `a` could get a folder `c`.
        assert_eq!(
            searched("*/c/x.conf"),
            [root.to_owned(), root.join("a"), root.join("b"), root.join("b/c")]
        );
        assert_eq!(searched_folders(Path::new("*.conf")), [Path::new(".")]);
    }
}
