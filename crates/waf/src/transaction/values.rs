//! Values of targets and macros.

use crate::collections::Opened;
use crate::limits::LimitsReached;
use crate::plan::{Candidate, Gate};
use crate::rule::Rule;
use crate::rule::{BodyProcessor, Selector, Target};
use crate::template::{Macro, Part, Template};
use crate::variable::{ValueSource, Variable};

use super::evaluate::{Evaluation, Key, Running, is_excluded};
use super::store::append_number;

impl Evaluation<'_> {
    /// Compares all values of a target; true if one of them matched.
    pub(super) fn target(&mut self, running: &Running<'_>, target: &Target) -> bool {
        if target.count {
            let count = self.count(target);
            let mut value = std::mem::take(&mut self.buffers.value);
            value.clear();
            append_number(i64::try_from(count).unwrap_or(i64::MAX), &mut value);
            let name: &[u8] =
                if let Selector::Name(name, _) = &target.selector { name } else { b"" };
            let key = Key { variable: target.variable, name, count: true };
            let matched = !is_excluded(running, key) && self.value(running, key, &value);
            self.buffers.value = value;
            return matched;
        }
        if target.variable == Variable::RequestBody && self.has_read_xml(running) {
            return false;
        }
        let entries = self.entries;
        match target.variable.source() {
            ValueSource::Computed => self.computed(running, target),
            ValueSource::Never(_) => self.unset(running, target),
            ValueSource::Entries(variables) => {
                if variables.iter().all(|&variable| entries.list(variable).is_empty()) {
                    return self.unset(running, target);
                }
                let mut matched = false;
                let mut buffer = Vec::new();
                let test = running.test.index;
                let mut visit = |this: &mut Self, entry, first_match, is_unchanged| {
                    let name = entries.name(entry, &mut buffer);
                    let key = Key { variable: target.variable, name, count: false };
                    if target.selector.accepts(name) && !is_excluded(running, key) {
                        let value = entries.value(entry);
                        this.first_match = first_match;
                        matched |= if is_unchanged {
                            this.compare(running, key, value)
                        } else {
                            this.value(running, key, value)
                        };
                        this.first_match = Some(0);
                    }
                };
                for &variable in variables {
                    match self.gate.and_then(|gate| gate.candidates(test)) {
                        Some(candidates) => {
                            let own = candidates.iter().filter(|own| own.variable == variable);
                            for &Candidate { entry, from, is_unchanged, .. } in own {
                                visit(self, entry, Some(from as usize), is_unchanged);
                            }
                        }
                        None => {
                            for &entry in entries.list(variable) {
                                let first = |gate: &Gate| gate.first_match(test, entry);
                                visit(self, entry, self.gate.map_or(Some(0), first), false);
                            }
                        }
                    }
                }
                matched
            }
            ValueSource::Store => self.stored(running, target),
            ValueSource::Matched => self.matched_values(running, target),
            ValueSource::Rule => {
                let mut value = Vec::new();
                let Selector::Name(name, _) = &target.selector else { return false };
                let reference = Macro { variable: Variable::Rule, name: name.clone(), slot: None };
                self.append(Some(running.rule), &reference, &mut value);
                self.value(running, Key { variable: Variable::Rule, name, count: false }, &value)
            }
        }
    }

    /// True if the body is a well-formed document of XML and the rule reads its text and attributes. The rules of the Core Rule
    /// Set that do so take the names of elements for harmless.
    fn has_read_xml(&self, running: &Running<'_>) -> bool {
        self.state.is_xml
            && running.test.targets.iter().any(|target| target.variable == Variable::Xml)
    }

    /// A variable that is not set. A negated operator compares it as empty, as in ModSecurity, unless it is a collection.
    fn unset(&mut self, running: &Running<'_>, target: &Target) -> bool {
        let key = Key { variable: target.variable, name: b"", count: false };
        running.test.negated
            && !target.variable.is_collection()
            && !is_excluded(running, key)
            && self.value(running, key, b"")
    }

    fn count(&self, target: &Target) -> usize {
        match target.variable.source() {
            ValueSource::Computed if target.variable == Variable::Env => {
                let names = self.state.environment.iter().map(|(name, _)| name);
                names.filter(|name| target.selector.accepts(name)).count()
            }
            ValueSource::Computed => usize::from(self.is_set(target.variable)),
            ValueSource::Never(_) => 0,
            ValueSource::Entries(variables) => {
                let lists = variables.iter().flat_map(|&variable| self.entries.list(variable));
                let mut buffer = Vec::new();
                match target.selector {
                    Selector::All => lists.count(),
                    _ => lists
                        .filter(|&&index| {
                            target.selector.accepts(self.entries.name(index, &mut buffer))
                        })
                        .count(),
                }
            }
            ValueSource::Store => {
                if let (Variable::Tx, Selector::Name(_, Some(slot))) =
                    (target.variable, &target.selector)
                {
                    return usize::from(self.state.store.is_set(*slot));
                }
                let mut count = 0;
                let names = &self.rules.slots;
                self.state.store.visit(target.variable, &target.selector, names, |_, _| count += 1);
                count
            }
            ValueSource::Matched => self.state.matched.all().len(),
            ValueSource::Rule => 1,
        }
    }

    /// Values that the transaction computes.
    fn computed(&mut self, running: &Running<'_>, target: &Target) -> bool {
        if target.variable == Variable::Env {
            let environment = self.state.environment.clone();
            let mut matched = false;
            for (name, value) in
                environment.iter().filter(|(name, _)| target.selector.accepts(name))
            {
                let key = Key { variable: Variable::Env, name, count: false };
                matched |= !is_excluded(running, key) && self.value(running, key, value);
            }
            return matched;
        }
        if !self.is_set(target.variable) {
            return self.unset(running, target);
        }
        let mut value = Vec::new();
        self.append(
            None,
            &Macro { variable: target.variable, name: Vec::new(), slot: None },
            &mut value,
        );
        self.value(running, Key { variable: target.variable, name: b"", count: false }, &value)
    }

    /// True if a variable that the transaction computes has a value.
    fn is_set(&self, variable: Variable) -> bool {
        match variable {
            Variable::PcreLimitsExceeded => self.state.backtracking_exceeded,
            Variable::ReqbodyProcessor => self.state.body_processor.is_some(),
            Variable::LimitsReached => self.limits_reached() != LimitsReached::default(),
            Variable::SessionId => self.state.store.opened(Variable::Session).is_some(),
            Variable::UserId => self.state.store.opened(Variable::User).is_some(),
            _ => true,
        }
    }

    /// Values that rules wrote.
    fn stored(&mut self, running: &Running<'_>, target: &Target) -> bool {
        let variable = target.variable;
        if let (Variable::Tx, Selector::Name(name, Some(slot))) = (variable, &target.selector) {
            if !self.state.store.is_set(*slot) {
                return false;
            }
            let mut value = std::mem::take(&mut self.buffers.value);
            value.clear();
            self.state.store.append(*slot, &mut value);
            let key = Key { variable, name, count: false };
            let matched = !is_excluded(running, key) && self.value(running, key, &value);
            self.buffers.value = value;
            return matched;
        }
        let mut found = Vec::new();
        self.state.store.visit(variable, &target.selector, &self.rules.slots, |name, value| {
            found.push((name.to_vec(), value.to_vec()));
        });
        let mut matched = false;
        for (name, value) in &found {
            let key = Key { variable, name, count: false };
            matched |= !is_excluded(running, key) && self.value(running, key, value);
        }
        matched
    }

    /// Values that earlier links of the chain matched.
    fn matched_values(&mut self, running: &Running<'_>, target: &Target) -> bool {
        let all = self.state.matched.all();
        let chosen = match target.variable {
            Variable::MatchedVar | Variable::MatchedVarName => {
                all.last().map_or(&[][..], std::slice::from_ref)
            }
            _ => all,
        };
        let names =
            matches!(target.variable, Variable::MatchedVarName | Variable::MatchedVarsNames);
        let values: Vec<(Vec<u8>, Vec<u8>)> = chosen
            .iter()
            .filter(|matched| target.selector.accepts(&matched.key))
            .map(|matched| {
                (
                    matched.key.clone(),
                    if names { matched.key.clone() } else { matched.value.clone() },
                )
            })
            .collect();
        let mut matched = false;
        for (name, value) in &values {
            let key = Key { variable: target.variable, name, count: false };
            matched |= !is_excluded(running, key) && self.value(running, key, value);
        }
        matched
    }

    /// Appends the expanded text of a template.
    pub(super) fn expand(&self, rule: Option<&Rule>, template: &Template, output: &mut Vec<u8>) {
        for part in template.parts() {
            match part {
                Part::Text(text) => output.extend_from_slice(text),
                Part::Macro(reference) => self.append(rule, reference, output),
            }
        }
    }

    /// Appends the value of a macro; nothing if it has none.
    pub(super) fn append(&self, rule: Option<&Rule>, reference: &Macro, output: &mut Vec<u8>) {
        let Macro { variable, name, slot } = reference;
        match variable.source() {
            ValueSource::Store => match slot {
                Some(slot) => self.state.store.append(*slot, output),
                None => output.extend_from_slice(
                    &self.state.store.named(*variable, name).unwrap_or_default(),
                ),
            },
            ValueSource::Matched => {
                if let Some(matched) = self.state.matched.last() {
                    let names =
                        matches!(variable, Variable::MatchedVarName | Variable::MatchedVarsNames);
                    output.extend_from_slice(if names { &matched.key } else { &matched.value });
                }
            }
            ValueSource::Rule => {
                let Some(rule) = rule else { return };
                match name.as_slice() {
                    b"id" => output.extend_from_slice(rule.id.to_string().as_bytes()),
                    b"severity" => {
                        output.extend(rule.severity.map(|severity| b'0' + severity.value()));
                    }
                    b"ver" => output
                        .extend_from_slice(rule.version.as_deref().unwrap_or_default().as_bytes()),
                    b"rev" => output
                        .extend_from_slice(rule.revision.as_deref().unwrap_or_default().as_bytes()),
                    b"msg" => output.extend_from_slice(
                        rule.message.as_ref().and_then(Template::as_text).unwrap_or_default(),
                    ),
                    _ => {}
                }
            }
            ValueSource::Computed => self.append_computed(*variable, name, output),
            ValueSource::Never(_) => {}
            ValueSource::Entries(variables) => {
                let found =
                    variables.iter().find_map(|&variable| self.entries.first(variable, name));
                output.extend_from_slice(found.unwrap_or_default());
            }
        }
    }

    fn append_computed(&self, variable: Variable, name: &[u8], output: &mut Vec<u8>) {
        let state = &*self.state;
        match variable {
            Variable::HighestSeverity => {
                let severity =
                    state.highest_severity.map_or(255, |severity| i64::from(severity.value()));
                append_number(severity, output);
            }
            Variable::Env => {
                let found = state.environment.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
                output.extend(found.into_iter().flat_map(|(_, value)| value));
            }
            Variable::Duration => output.push(b'0'),
            Variable::PcreLimitsExceeded => {
                output.extend(state.backtracking_exceeded.then_some(b'1'));
            }
            Variable::ReqbodyProcessor => {
                let name = state.body_processor.map_or("", BodyProcessor::name);
                output.extend_from_slice(name.as_bytes());
            }
            Variable::LimitsReached => {
                output.extend_from_slice(self.limits_reached().to_string().as_bytes());
            }
            Variable::SessionId => output.extend_from_slice(self.key_of(Variable::Session)),
            Variable::UserId => output.extend_from_slice(self.key_of(Variable::User)),
            Variable::WebAppId => {
                output.extend_from_slice(self.rules.settings.web_app_id.as_bytes());
            }
            other => unreachable!("{} is not computed", other.name()),
        }
    }

    /// Key of a persistent collection; empty if it is not open.
    fn key_of(&self, variable: Variable) -> &[u8] {
        self.state.store.opened(variable).map_or(b"", Opened::key)
    }

    fn limits_reached(&self) -> LimitsReached {
        self.state.limits.summary()
    }
}
