//! Rules and actions, with their chains.

use std::path::Path;

use crate::error::{LoadError, Place, Skipped};
use crate::rule::{Disruptive, Flow, Link, Phase, Rule, Test};
use crate::transformation::Transformation;

use super::action::{self, Actions, WrittenDisruptive};
use super::directive::{Draft, Entry, parsed};
use super::lexer::{Argument, Directive};
use super::{operator, target};

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
            Some(argument) => self.actions(directive, argument)?,
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
            let id = written.id.ok_or_else(|| invalid("rule without id"))?;
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
            Some((targets, argument)) => {
                let list = parsed(directive, targets, target::parse(&targets.as_str()))?;
                if list.targets.is_empty() {
                    return Err(LoadError::Invalid {
                        place: directive.place_in(targets, 0),
                        message: "no target that is not excluded".into(),
                    });
                }
                let operator = parsed(
                    directive,
                    argument,
                    operator::parse(&argument.text, folder, &mut self.shared),
                )?;
                if let Some((offset, reason)) = operator.unavailable {
                    let place = directive.place_in(argument, offset);
                    self.never_matching.push(Skipped { place, message: reason });
                }
                self.tests += 1;
                Some(Test {
                    targets: list.targets,
                    exclusions: list.exclusions,
                    transformations: transformations(written, defaults),
                    multi_match: written.multi_match,
                    negated: operator.negated,
                    condition: operator.condition,
                    operator: operator.written,
                    index: self.tests - 1,
                })
            }
        };
        Ok(Link {
            test,
            capture: written.capture,
            log_data: written.log_data.clone(),
            message: written.message.clone(),
            assignments: defaults.assignments.iter().chain(&written.assignments).cloned().collect(),
            per_occurrence: false,
            controls: defaults.controls.iter().chain(&written.controls).cloned().collect(),
        })
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
        maturity: written.maturity,
        accuracy: written.accuracy,
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
