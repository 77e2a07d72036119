//! Rules and actions, with their chains.

use std::path::Path;
use std::rc::Rc;

use crate::error::{LoadError, RulePlace, Skipped};
use crate::load::draft::{Draft, OpenChain};
use crate::load::written::{
    Actions, Entry, WrittenDisruptive, WrittenLink, WrittenRule, WrittenTest,
};
use crate::rule::Phase;

use super::lexer::{Argument, Directive};
use super::{action, at_argument, operator, target};

impl Draft {
    /// Adds a rule, or a link to the chain that is open.
    pub(super) fn rule(
        &mut self,
        directive: &Directive,
        test: Option<(&Argument, &Argument)>,
        actions: Option<&Argument>,
        folder: &Path,
    ) -> Result<(), LoadError> {
        let chain = self.open_chain.take();
        let entry = chain.as_ref().map(|chain| chain.entry);
        let result = self.read_rule(directive, test, actions, folder, entry);
        if let Err(LoadError::Unsupported { .. }) = result
            && self.skip_unsupported
        {
            // The whole chain is left out: a rule with fewer conditions would match more.
            if let Some(OpenChain { entry: Some(entry), .. }) = chain {
                self.entries.truncate(entry);
            }
            let chained =
                actions.and_then(|a| action::parse(&a.text).ok()).is_some_and(|a| a.chain);
            if chained {
                self.open_chain = Some(OpenChain { place: directive.place(), entry: None });
            }
        }
        result
    }

    /// Reads a rule. `chain` has the position of the rule to whose chain it belongs; `None` inside if that was left out.
    fn read_rule(
        &mut self,
        directive: &Directive,
        test: Option<(&Argument, &Argument)>,
        actions: Option<&Argument>,
        folder: &Path,
        chain: Option<Option<usize>>,
    ) -> Result<(), LoadError> {
        let written = match actions {
            Some(argument) => self.actions(directive, argument)?,
            None => Actions::default(),
        };
        let place =
            actions.map_or_else(|| directive.place(), |argument| directive.place_in(argument, 0));
        let test = test.map(|(targets, argument)| self.test(directive, targets, argument, folder));
        let link = WrittenLink {
            place: directive.place(),
            test: test.transpose()?,
            actions: written,
            actions_place: place,
            per_occurrence: false,
        };
        let chained = link.actions.chain;
        let entry = match chain {
            Some(entry) => {
                check_chained(&link.actions, &link.actions_place)?;
                if let Some(Entry::Rule(rule)) = entry.and_then(|at| self.entries.get_mut(at)) {
                    rule.links.push(link);
                }
                entry
            }
            None => Some(self.add_rule(link)?),
        };
        if chained {
            self.open_chain = Some(OpenChain { place: directive.place(), entry });
        }
        Ok(())
    }

    /// Adds a rule with its first link, and returns its position.
    fn add_rule(&mut self, head: WrittenLink) -> Result<usize, LoadError> {
        let id = head.actions.id;
        let id = id.ok_or_else(|| invalid(&head.actions_place, "rule without id"))?;
        if !self.ids.insert(id) {
            let message = format!("rule id {id} is used twice");
            return Err(invalid(&head.actions_place, message));
        }
        let phase = head.actions.phase.unwrap_or(Phase::RequestBody);
        let defaults = Rc::clone(&self.defaults[phase.index()]);
        self.push(WrittenRule { id, phase, defaults, links: vec![head] });
        Ok(self.entries.len() - 1)
    }

    fn test(
        &mut self,
        directive: &Directive,
        targets: &Argument,
        argument: &Argument,
        folder: &Path,
    ) -> Result<WrittenTest, LoadError> {
        let list = at_argument(directive, targets, target::parse(&targets.as_str()))?;
        if list.targets.is_empty() {
            let place = directive.place_in(targets, 0);
            return Err(invalid(&place, "no target that is not excluded"));
        }
        let operator = operator::parse(&argument.text, folder, &mut self.shared);
        let mut operator = at_argument(directive, argument, operator)?;
        // It is the end of the text. Logs have it as it was written, like those of ModSecurity.
        let offset = argument.text.len() - operator.written.argument.len();
        operator.written.argument = argument.as_written(offset);
        if let Some((offset, message)) = operator.unavailable {
            let place = directive.place_in(argument, offset);
            self.never_matching.push(Skipped { place, message });
        }
        Ok(WrittenTest {
            targets: list.targets,
            exclusions: list.exclusions,
            negated: operator.negated,
            condition: operator.condition,
            operator: operator.written,
        })
    }
}

fn check_chained(actions: &Actions, place: &RulePlace) -> Result<(), LoadError> {
    if actions.id.is_some() || actions.phase.is_some() || actions.flow.is_some() {
        let message = "id, phase, skip and skipAfter belong to the first rule of a chain";
        return Err(invalid(place, message));
    }
    match actions.disruptive {
        None | Some(WrittenDisruptive::Pass | WrittenDisruptive::Block) => Ok(()),
        Some(_) => Err(invalid(place, "disruptive actions belong to the first rule of a chain")),
    }
}

fn invalid(place: &RulePlace, message: impl Into<String>) -> LoadError {
    LoadError::Invalid { place: place.clone(), message: message.into() }
}
