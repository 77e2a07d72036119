//! Written rules become those that run: updates and defaults are applied, names become positions.

use std::collections::HashMap;
use std::sync::Arc;

use crate::caches::CAPTURES;
use crate::condition::Condition;
use crate::error::{LoadError, RulePlace, Skipped, nearest};
use crate::plan::Plan;
use crate::regex::{Matcher, SelectorRegex};
use crate::rule::{
    Assignment, Capture, Change, Control, Disruptive, Flow, Link, Phase, PhaseStep, Rule, Selector,
    Target, Test,
};
use crate::ruleset::{Exclusions, Notes, RuleSet};
use crate::settings::Settings;
use crate::template::{Macro, Template};
use crate::variable::{ValueSource, Variable, Variables};

use super::draft::Draft;
use super::written::{
    Actions, Entry, RuleFilter, Update, WrittenDisruptive, WrittenFlow, WrittenLink, WrittenRule,
};

/// Variables that the engine itself reads.
const ALWAYS_READ: [Variable; 2] = [Variable::RequestHeaders, Variable::ResponseContentType];

pub(super) fn resolve(mut draft: Draft) -> Result<RuleSet, LoadError> {
    let before = draft.entries.len();
    let mut idle = Vec::new();
    for update in draft.updates {
        idle.extend(apply(&mut draft.entries, update)?);
    }
    let removed = before - draft.entries.len();
    let mut rules = Rules::default();
    for entry in draft.entries {
        match entry {
            Entry::Marker(name) => rules.marker(name),
            Entry::Rule(rule) => rules.rule(*rule),
        }
    }
    let Rules { mut rules, steps, tests, controls, .. } = rules.with_skips()?;
    let controls: Vec<_> = controls
        .into_iter()
        .map(|(rule, link, written)| {
            let place = rules[rule].place.clone();
            (rule, link, resolved(written, &rules, &place, &mut idle))
        })
        .collect();
    for (rule, link, controls) in controls {
        rules[rule].links[link].controls = controls;
    }
    let unwritten = unwritten_variables(&rules);
    draft.never_matching.extend(unwritten);
    draft.inert.extend(unopened_collections(&rules));
    let keeps_state = |rule: &Rule| {
        rule.phase == Phase::Logging
            && assignments(rule).any(|assignment| assignment.variable != Variable::Tx)
    };
    let keeps_state_when_logging = rules.iter().any(keeps_state);
    let names = Names::of(&mut rules);
    let of_body =
        [Variable::ResponseBody, Variable::ResponseContentLength, Variable::OutboundDataError];
    let phase = &steps[Phase::ResponseBody.index()];
    let uses_response_body = phase.iter().any(|step| matches!(step, PhaseStep::Rule(_)))
        || names.read.contains_any(&of_body);
    Ok(RuleSet {
        plan: Arc::new(Plan::new(&rules, &steps, tests, &draft.shared.requirements)),
        rules: Arc::new(rules),
        steps: Arc::new(steps),
        keeps_state_when_logging,
        relevant_status: relevant_status(&draft.settings),
        settings: draft.settings,
        exclusions: Exclusions::default(),
        slots: Arc::new(names.slots),
        slot_by_name: Arc::new(names.by_name),
        patterns: draft.shared.patterns,
        read: names.read,
        uses_response_body,
        notes: Notes {
            skipped: draft.skipped,
            inert: draft.inert,
            idle,
            never_matching: draft.never_matching,
            removed,
            files: draft.shared.files_read,
        },
    })
}

/// Sources on top of a set that is ready to run: it with their settings and exclusions. `None` if they have rules of their own, or
/// change those of the set.
pub(super) fn overlaid(draft: Draft, around: &RuleSet) -> Option<RuleSet> {
    // Regexes of the engine's texts are compiled for its map of Unicode; a count of rules to skip counts those that are left.
    let is_same_unicode = Arc::ptr_eq(&draft.settings.unicode, &around.settings.unicode);
    let skips = around.rules.iter().any(|rule| matches!(rule.flow, Flow::Skip(_)));
    if !draft.entries.is_empty() || !is_same_unicode || skips {
        return None;
    }
    let mut set = RuleSet {
        relevant_status: relevant_status(&draft.settings),
        settings: draft.settings,
        ..around.clone()
    };
    let count = set.rules.len();
    for update in draft.updates {
        match update {
            Update::Remove(place, filter) => {
                let rules = selected(&filter, &set.rules);
                if rules.is_empty() {
                    set.notes.idle.push(selects_nothing(&place, &filter));
                }
                for rule in rules {
                    let is_new = !set.exclusions.has_rule(rule as usize);
                    set.notes.removed += usize::from(is_new);
                    set.exclusions.exclude(rule, count);
                }
            }
            Update::Targets(place, filter, added, excluded) if added.is_empty() => {
                let rules = selected(&filter, &set.rules);
                let tests = rules
                    .iter()
                    .filter_map(|rule| set.rules[*rule as usize].links[0].test.as_ref());
                let inspected: Vec<Variable> =
                    tests.flat_map(|test| &test.targets).map(|target| target.variable).collect();
                set.notes.idle.extend(if rules.is_empty() {
                    vec![selects_nothing(&place, &filter)]
                } else {
                    ineffective(&place, &filter, &excluded, &inspected)
                });
                excluded.iter().for_each(|target| set.exclusions.exclude_target(&rules, target));
            }
            Update::Targets(..) | Update::Actions(..) => return None,
        }
    }
    set.notes.skipped.extend(draft.skipped);
    set.notes.inert.extend(draft.inert);
    set.notes.never_matching.extend(draft.never_matching);
    set.notes.files.extend(draft.shared.files_read);
    Some(set)
}

fn relevant_status(settings: &Settings) -> Option<Arc<Matcher>> {
    let text = settings.audit_log_relevant_status.as_deref()?;
    let matcher = Matcher::new(text).ok()?;
    matcher.compile_whole();
    Some(Arc::new(matcher))
}

/// Positions of the rules that a filter selects.
fn selected(filter: &RuleFilter, rules: &[Rule]) -> Vec<u32> {
    let is_selected =
        |rule: &Rule| filter.selects(rule.id, rule.tags.iter(), rule.message.as_ref());
    (0..).zip(rules).filter(|(_, rule)| is_selected(rule)).map(|(position, _)| position).collect()
}

/// Conditions on variables that nothing writes.
fn unwritten_variables(rules: &[Rule]) -> Vec<Skipped> {
    let mut found = Vec::new();
    for rule in rules {
        let tests = rule.links.iter().filter_map(|link| link.test.as_ref());
        for target in tests.flat_map(|test| &test.targets) {
            if let ValueSource::Never(reason) = target.variable.source() {
                let message = format!("{target} is never set: {reason}");
                found.push(Skipped { place: rule.place.clone(), message });
            }
        }
    }
    found
}

fn assignments(rule: &Rule) -> impl Iterator<Item = &Assignment> {
    rule.links.iter().flat_map(|link| &link.assignments)
}

/// Changes of persistent collections that no rule opens.
fn unopened_collections(rules: &[Rule]) -> Vec<Skipped> {
    let opens = |assignment: &&Assignment| matches!(assignment.change, Change::Open);
    let mut known: Variables =
        rules.iter().flat_map(assignments).filter(opens).map(|opened| opened.variable).collect();
    known.insert(Variable::Tx);
    let mut found = Vec::new();
    for rule in rules {
        for Assignment { variable, .. } in assignments(rule) {
            if !known.contains(*variable) {
                known.insert(*variable);
                let name = variable.name();
                let message =
                    format!("{name} lasts for one transaction: no rule opens it with initcol");
                found.push(Skipped { place: rule.place.clone(), message });
            }
        }
    }
    found
}

/// A note that no rule is selected.
fn selects_nothing(place: &RulePlace, filter: &RuleFilter) -> Skipped {
    Skipped { place: place.clone(), message: format!("selects no rule: none has {filter}") }
}

/// Excluded targets that the selected rules do not inspect.
fn ineffective(
    place: &RulePlace,
    filter: &RuleFilter,
    excluded: &[Target],
    inspected: &[Variable],
) -> Vec<Skipped> {
    let includes = |whole: Variable, part: Variable| {
        whole == part
            || matches!(whole.source(), ValueSource::Entries(parts) if parts.contains(&part))
    };
    let is_inspected = |target: &&Target| {
        let variable = target.variable;
        inspected.iter().any(|&one| includes(one, variable) || includes(variable, one))
    };
    let idle = excluded.iter().filter(|target| !is_inspected(target));
    idle.map(|target| {
        let message = format!("no rule with {filter} inspects {target}");
        Skipped { place: place.clone(), message }
    })
    .collect()
}

/// Changes written rules, and returns what has no effect.
fn apply(entries: &mut Vec<Entry>, update: Update) -> Result<Vec<Skipped>, LoadError> {
    match update {
        Update::Remove(place, filter) => {
            let before = entries.len();
            entries
                .retain(|entry| !matches!(entry, Entry::Rule(rule) if rule.is_selected(&filter)));
            if entries.len() == before {
                return Ok(vec![selects_nothing(&place, &filter)]);
            }
        }
        Update::Targets(place, filter, targets, exclusions) => {
            let (mut selects_any, mut inspected) = (false, Vec::new());
            for entry in entries {
                let Entry::Rule(rule) = entry else { continue };
                if !rule.is_selected(&filter) {
                    continue;
                }
                selects_any = true;
                if let Some(test) = rule.links[0].test.as_mut() {
                    inspected.extend(test.targets.iter().map(|target| target.variable));
                    test.targets.extend(targets.iter().cloned());
                    test.exclusions.extend(exclusions.iter().cloned());
                }
            }
            return Ok(if selects_any {
                ineffective(&place, &filter, &exclusions, &inspected)
            } else {
                vec![selects_nothing(&place, &filter)]
            });
        }
        Update::Actions(id, place, actions) => {
            let found = entries.iter_mut().find_map(|entry| match entry {
                Entry::Rule(rule) if rule.id == id => Some(rule),
                _ => None,
            });
            let Some(rule) = found else {
                return Err(LoadError::Invalid { place, message: format!("no rule has id {id}") });
            };
            if actions.id.is_some() || actions.phase.is_some() || actions.chain {
                let message = "SecRuleUpdateActionById cannot change id, phase or chain".into();
                return Err(LoadError::Invalid { place, message });
            }
            rule.head().update(*actions);
        }
    }
    Ok(Vec::new())
}

/// Controls that name rules by their positions. Notes filters that select none.
fn resolved(
    controls: Vec<Control<RuleFilter>>,
    rules: &[Rule],
    place: &RulePlace,
    idle: &mut Vec<Skipped>,
) -> Vec<Control> {
    let mut select = |filter: RuleFilter| {
        let found = selected(&filter, rules);
        if found.is_empty() {
            idle.push(selects_nothing(place, &filter));
        }
        found
    };
    controls.into_iter().map(|control| control.map_rules(&mut select)).collect()
}

/// Rules and the steps of their phases, before names are resolved.
#[derive(Default)]
struct Rules {
    rules: Vec<Rule>,
    steps: [Vec<PhaseStep>; 5],
    tests: usize,
    markers: Vec<String>,
    skips: Vec<Skip>,
    /// Controls of rules and links that have any.
    controls: Vec<(usize, usize, Vec<Control<RuleFilter>>)>,
}

/// A rule with `skipAfter`.
struct Skip {
    rule: usize,
    /// Step of the rule in its phase.
    step: usize,
    /// Name of the marker.
    marker: String,
    place: RulePlace,
}

impl Rules {
    fn marker(&mut self, name: String) {
        self.steps.iter_mut().for_each(|phase| phase.push(PhaseStep::Marker));
        self.markers.push(name);
    }

    fn rule(&mut self, written: WrittenRule) {
        let tags = written.tags().cloned().collect();
        let severity = written.links.iter().find_map(|link| link.actions.severity);
        let WrittenRule { id, phase, defaults, links: written } = written;
        let place = written[0].place.clone();
        let head = &written[0].actions;
        let log = head.log.or(defaults.log).unwrap_or(true);
        let flow = match &head.flow {
            None => Flow::Continue,
            Some(WrittenFlow::Skip(count)) => Flow::Skip(*count),
            Some(WrittenFlow::SkipAfter(name)) => {
                self.skips.push(Skip {
                    rule: self.rules.len(),
                    step: self.steps[phase.index()].len(),
                    marker: name.clone(),
                    place: written[0].actions_place.clone(),
                });
                Flow::Continue
            }
        };
        let rule = Rule {
            id,
            place,
            phase,
            message: head.message.clone(),
            tags,
            severity,
            version: head.version.clone(),
            revision: head.revision.clone(),
            maturity: head.maturity.unwrap_or_default(),
            accuracy: head.accuracy.unwrap_or_default(),
            log,
            audit_log: head.audit_log.or(defaults.audit_log).unwrap_or(log),
            disruptive: disruptive(head.disruptive.as_ref(), defaults.disruptive.as_ref()),
            status: head.status.or(defaults.status),
            flow,
            links: Vec::new(),
        };
        let links = (0..).zip(written).map(|(number, link)| self.link(number, link, &defaults));
        let links = links.collect();
        self.steps[phase.index()].push(PhaseStep::Rule(self.rules.len()));
        self.rules.push(Rule { links, ..rule });
    }

    fn link(&mut self, number: usize, written: WrittenLink, defaults: &Actions) -> Link {
        let WrittenLink { test, actions, per_occurrence, .. } = written;
        let inherited =
            if actions.resets_transformations { &[] } else { defaults.transformations.as_slice() };
        let test = test.map(|written| Test {
            targets: written.targets,
            exclusions: written.exclusions,
            transformations: inherited.iter().chain(&actions.transformations).copied().collect(),
            multi_match: actions.multi_match,
            negated: written.negated,
            condition: written.condition,
            operator: written.operator,
            index: self.tests,
        });
        self.tests += usize::from(test.is_some());
        let controls: Vec<_> = defaults.controls.iter().cloned().chain(actions.controls).collect();
        if !controls.is_empty() {
            self.controls.push((self.rules.len(), number, controls));
        }
        Link {
            test,
            capture: if actions.capture { Capture::All } else { Capture::None },
            log_data: actions.log_data,
            message: actions.message,
            assignments: defaults.assignments.iter().cloned().chain(actions.assignments).collect(),
            per_occurrence,
            controls: Vec::new(),
        }
    }

    /// Finds the markers of `skipAfter`. A marker before its rule ends the phase.
    fn with_skips(mut self) -> Result<Self, LoadError> {
        let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
        for (number, name) in self.markers.iter().enumerate() {
            by_name.entry(name).or_default().push(number);
        }
        // Positions of the markers, in ascending order, by phase and marker.
        let positions = |phase: &Vec<PhaseStep>| {
            let markers = (0..).zip(phase);
            let markers = markers.filter(|(_, step)| matches!(step, PhaseStep::Marker));
            markers.map(|(at, _)| at).collect::<Vec<usize>>()
        };
        let positions: Vec<Vec<usize>> = self.steps.iter().map(positions).collect();
        for Skip { rule, step, marker, place } in std::mem::take(&mut self.skips) {
            let Some(numbers) = by_name.get(marker.as_str()) else {
                let hint = nearest(&marker, self.markers.iter().map(String::as_str));
                let message = format!("skipAfter names an unknown marker \"{marker}\"{hint}");
                return Err(LoadError::Invalid { place, message });
            };
            let phase = self.rules[rule].phase.index();
            let behind = numbers.partition_point(|&number| positions[phase][number] < step);
            let found = numbers.get(behind).map(|&number| positions[phase][number]);
            self.rules[rule].flow = Flow::SkipAfter(found.unwrap_or(self.steps[phase].len()));
        }
        Ok(self)
    }
}

/// Replaces `block`, and a missing action, by the one of the defaults.
fn disruptive(
    written: Option<&WrittenDisruptive>,
    default: Option<&WrittenDisruptive>,
) -> Disruptive {
    match written {
        None | Some(WrittenDisruptive::Block) => match default {
            None | Some(WrittenDisruptive::Block) => Disruptive::Pass,
            default => disruptive(default, None),
        },
        Some(WrittenDisruptive::Pass) => Disruptive::Pass,
        Some(WrittenDisruptive::Deny) => Disruptive::Deny,
        Some(WrittenDisruptive::Drop) => Disruptive::Drop,
        Some(WrittenDisruptive::Redirect(to)) => Disruptive::Redirect(to.clone()),
        Some(WrittenDisruptive::Allow(scope)) => Disruptive::Allow(*scope),
    }
}

/// Names of TX variables with their slots, and the variables that rules read.
struct Names {
    slots: Vec<Vec<u8>>,
    by_name: HashMap<Vec<u8>, u32>,
    /// Equal regexes are compiled once.
    selectors: HashMap<(String, bool), Arc<SelectorRegex>>,
    read: Variables,
}

impl Names {
    /// Gives each constant TX name a slot, and each reference to it the number.
    fn of(rules: &mut [Rule]) -> Self {
        let mut names = Self {
            slots: Vec::new(),
            by_name: HashMap::new(),
            selectors: HashMap::new(),
            read: ALWAYS_READ.into_iter().collect(),
        };
        for digit in 0..10 {
            names.slot(digit.to_string().as_bytes());
        }
        rules.iter_mut().for_each(|rule| names.rule(rule));
        names
    }

    fn rule(&mut self, rule: &mut Rule) {
        rule.message.iter_mut().for_each(|text| self.template(text));
        if let Disruptive::Redirect(to) = &mut rule.disruptive {
            self.template(to);
        }
        for link in &mut rule.links {
            link.message.iter_mut().chain(&mut link.log_data).for_each(|text| self.template(text));
            link.assignments.iter_mut().for_each(|assignment| self.assignment(assignment));
            for control in &mut link.controls {
                if let Control::SetEnv(name, value) = control {
                    self.template(name);
                    self.template(value);
                }
            }
            if link.capture == Capture::All && !captures_each_match(link) {
                link.capture = Capture::Last;
            }
            let Some(test) = link.test.as_mut() else { continue };
            let targets = test.targets.iter_mut().chain(&mut test.exclusions);
            targets.for_each(|target| self.target(target));
            if let Condition::Text(_, argument)
            | Condition::Number(_, argument)
            | Condition::RegexTemplate(argument) = &mut test.condition
            {
                self.template(argument);
            }
        }
    }

    fn slot(&mut self, name: &[u8]) -> u32 {
        if let Some(&slot) = self.by_name.get(name) {
            return slot;
        }
        let slot = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        self.slots.push(name.to_vec());
        self.by_name.insert(name.to_vec(), slot);
        slot
    }

    fn mark_read(&mut self, variable: Variable) {
        if let ValueSource::Entries(variables) = variable.source() {
            variables.iter().for_each(|&variable| self.read.insert(variable));
        }
    }

    fn template(&mut self, template: &mut Template) {
        for Macro { variable, name, slot } in template.macros_mut() {
            self.mark_read(*variable);
            if *variable == Variable::Tx {
                *slot = Some(self.slot(name));
            }
        }
    }

    fn target(&mut self, target: &mut Target) {
        self.mark_read(target.variable);
        if let (Variable::Tx, Selector::Name(name, slot)) = (target.variable, &mut target.selector)
        {
            *slot = Some(self.slot(name));
        }
        if let Selector::Pattern(regex) = &mut target.selector {
            let (text, is_of_json_key) = regex.key();
            let known = self.selectors.entry((text.to_owned(), is_of_json_key));
            *regex = Arc::clone(known.or_insert_with(|| Arc::clone(regex)));
        }
    }

    fn assignment(&mut self, assignment: &mut Assignment) {
        self.template(&mut assignment.name);
        if assignment.variable == Variable::Tx
            && let Some(name) = assignment.name.as_text().map(<[u8]>::to_vec)
        {
            assignment.slot = Some(self.slot(&name));
        }
        match &mut assignment.change {
            Change::Set(value)
            | Change::Add(value)
            | Change::Subtract(value)
            | Change::Expire(value) => self.template(value),
            Change::Deprecate { amount, period } => {
                self.template(amount);
                self.template(period);
            }
            Change::Unset | Change::Open => {}
        }
    }
}

/// True if captured text must be stored for each value that matches: the link may read or write TX.0 to TX.9, or its operator is
/// not a regex without macros.
fn captures_each_match(link: &Link) -> bool {
    let is_search = |test: &Test| matches!(test.condition, Condition::Regex(_)) && !test.negated;
    if !link.test.as_ref().is_some_and(is_search) {
        return true;
    }
    let is_captured = |slot: Option<u32>| slot.is_none_or(|slot| slot < CAPTURES);
    let reads = |template: &Template| {
        let mut macros = template.macros();
        macros.any(|read| read.variable == Variable::Tx && is_captured(read.slot))
    };
    let targets = link.test.iter().flat_map(|test| &test.targets);
    targets.into_iter().any(|target| target.variable == Variable::Tx)
        || link.assignments.iter().any(|assignment| {
            let writes = assignment.variable == Variable::Tx && is_captured(assignment.slot);
            writes || reads(&assignment.name) || assignment.change.templates().any(reads)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::BodyKind;

    fn load(text: &str) -> Result<RuleSet, LoadError> {
        RuleSet::builder().text("t.conf", text).build()
    }

    fn error(text: &str) -> String {
        load(text).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn defaults_replace_block() {
        let set = load("SecDefaultAction \"phase:2,log,deny,status:406,t:lowercase\"\nSecRule ARGS x \"id:1,block\"\nSecRule ARGS x \"id:2,pass,t:none\"")
            .unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((&set.rules[0].disruptive, set.rules[0].status), (&Disruptive::Deny, Some(406)));
        assert_eq!(set.rules[1].disruptive, Disruptive::Pass);
        let lengths = set
            .rules
            .iter()
            .map(|r| r.links[0].test.as_ref().map_or(0, |t| t.transformations.len()));
        assert_eq!(lengths.collect::<Vec<_>>(), [1, 0]);
    }

    #[test]
    fn updated_actions_replace_those_of_the_rule_and_keep_its_defaults() {
        let set = load(
            "SecDefaultAction \"phase:2,log,deny,status:406,t:lowercase\"\n\
             SecRule ARGS x \"id:1,pass,nolog\"\nSecRule ARGS x \"id:2,t:trim\"\n\
             SecRuleUpdateActionById 1 \"block,t:trim,msg:'new'\"\n\
             SecRuleUpdateActionById 2 \"t:none,t:length,status:407,skipAfter:END\"\nSecMarker END",
        )
        .unwrap_or_else(|e| panic!("{e}"));
        let rule = |index: usize| {
            let rule = &set.rules[index];
            let names = rule.links[0].test.iter().flat_map(|test| &test.transformations);
            let names: Vec<_> = names.map(|transformation| transformation.name()).collect();
            (rule.disruptive.clone(), rule.status, names)
        };
        assert_eq!(rule(0), (Disruptive::Deny, Some(406), vec!["lowercase", "trim"]));
        assert_eq!(rule(1), (Disruptive::Deny, Some(407), vec!["length"]));
        assert_eq!((set.rules[0].log, &set.rules[1].flow), (false, &Flow::SkipAfter(2)));
        assert_eq!(set.rules[0].message.as_ref().and_then(Template::as_text), Some(&b"new"[..]));
    }

    #[test]
    fn updates_and_removals_apply_to_all_files() {
        let set = load(
            "SecRuleRemoveById 10-19 30\nSecRuleRemoveByTag old\nSecRuleUpdateTargetById 1 \"!ARGS:pw|REQUEST_URI\"\n\
             SecRule ARGS x \"id:1\"\nSecRule ARGS x \"id:15\"\nSecRule ARGS x \"id:30\"\nSecRule ARGS x \"id:2,tag:old\"",
        )
        .unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((set.rules.len(), set.removed()), (1, 3));
        let test = set.rules[0].links[0].test.as_ref();
        assert_eq!(test.map(|t| (t.targets.len(), t.exclusions.len())), Some((2, 1)));
    }

    #[test]
    fn includes_are_relative_and_only_optional_ones_may_match_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text);
        write("a.conf", "SecAction \"id:1\"").unwrap();
        write("b.conf", "SecAction \"id:2\"").unwrap();
        write("bad.conf", "SecRul ARGS x").unwrap();
        let load = |text: &str| {
            write("t.load", text).unwrap();
            let set = RuleSet::builder().file(folder.path().join("t.load")).build();
            set.map(|set| set.rules.len()).map_err(|error| error.to_string())
        };
        assert_eq!(load("Include [ab].conf"), Ok(2));
        assert_eq!(
            load("IncludeOptional none.conf\nIncludeOptional n*.conf\nInclude a.conf"),
            Ok(1)
        );
        assert_eq!(load("IncludeOptional [ab].conf"), Ok(2));
        assert!(load("Include n*.conf").unwrap_err().contains("no file matches"));
        // Files that exist must be valid.
        assert!(load("IncludeOptional bad.conf").unwrap_err().contains("\"SecRul\""));
    }

    #[test]
    fn chains_and_markers() {
        let set = load(
            "SecRule ARGS x \"id:1,phase:1,chain,skipAfter:END\"\n SecRule ARGS y \"setvar:tx.a=1\"\nSecAction \"id:2,phase:1\"\nSecMarker END\nSecAction \"id:3,phase:1\"",
        )
        .unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((set.rules.len(), set.rules[0].links.len()), (3, 2));
        assert_eq!(set.rules[0].flow, Flow::SkipAfter(2));
    }

    #[test]
    fn errors_name_their_place() {
        assert_eq!(
            error("SecRule ARGS x \"id:1\"\nSecRul ARGS x"),
            "t.conf:2:1: unknown directive \"SecRul\"; did you mean \"SecRule\"?"
        );
        assert_eq!(
            error("SecRule ARGS|ARG x \"id:1\""),
            "t.conf:1:14: unknown variable \"ARG\"; did you mean \"ARGS\"?"
        );
        assert_eq!(
            error("SecRule ARGS x \"id:1,skipAfter:EN\"\nSecMarker END"),
            "t.conf:1:17: skipAfter names an unknown marker \"EN\"; did you mean \"END\"?"
        );
        assert_eq!(
            error("SecRule ARGS x \"id:1,chain\""),
            "t.conf:1:1: chain without a following rule"
        );
        assert_eq!(
            error("SecRule ARGS x \"id:7\"\nSecRule ARGS x \"id:7\""),
            "t.conf:2:17: rule id 7 is used twice"
        );
    }

    #[test]
    fn uninspected_bodies_are_listed() {
        let rules = "SecRule ARGS x \"id:1,phase:2\"";
        let json = "SecAction \"id:2,phase:1,pass,ctl:requestBodyProcessor=JSON\"";
        let xml = "SecAction \"id:3,phase:1,pass,ctl:requestBodyProcessor=XML\"";
        let errors = "SecRule REQBODY_ERROR \"!@eq 0\" \"id:4,phase:2,deny\"";
        let kinds = |parts: &[&str]| {
            let text = format!("SecRequestBodyAccess On\n{}", parts.join("\n"));
            load(&text).unwrap_or_else(|e| panic!("{e}")).uninspected_bodies()
        };
        assert_eq!(kinds(&[rules]), [BodyKind::Json, BodyKind::Xml, BodyKind::Malformed]);
        assert_eq!(kinds(&[rules, json]), [BodyKind::Xml, BodyKind::Malformed]);
        assert_eq!(kinds(&[rules, json, xml, errors]), []);
        assert_eq!(kinds(&["SecRule REQUEST_URI x \"id:1\""]), []);
        assert_eq!(kinds(&["SecRule ARGS x \"id:1,phase:1\""]), []);
        assert_eq!(kinds(&["SecRequestBodyAccess Off", rules]), []);
    }

    #[test]
    fn supplement_precedes_rules_and_knows_what_they_lack() {
        let read = "SecRequestBodyAccess On\nSecRule ARGS x \"id:1,phase:2\"\n";
        let json = "SecAction \"id:2,phase:1,pass,ctl:requestBodyProcessor=JSON\"\n";
        let ids = |text: &str| {
            let rules = |bodies: &[BodyKind]| {
                let ids = bodies.iter().map(|kind| 11 + *kind as usize);
                ids.map(|id| format!("SecAction id:{id}\n")).collect()
            };
            let set = RuleSet::builder().text("t.conf", text).supplement("more", rules).build();
            let set = set.unwrap_or_else(|error| panic!("{error}"));
            assert!(set.rules().all(|rule| rule.id < 10 || !rule.blocks), "no default action");
            set.rules().map(|rule| rule.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(read), [11, 12, 13, 1]);
        assert_eq!(ids(&[read, json].concat()), [12, 13, 1, 2]);
        // A removal may follow the rule, and an update may add the arguments.
        let cookies = "SecRequestBodyAccess On\nSecRule REQUEST_COOKIES x \"id:1,phase:2\"\n";
        assert_eq!(ids(cookies), [1]);
        let update = "SecRuleUpdateTargetById 1 ARGS\n";
        assert_eq!(ids(&[cookies, update].concat()), [11, 12, 13, 1]);
        assert_eq!(ids(&[read, json, "SecRuleRemoveById 2\n"].concat()), [11, 12, 13, 1]);
        assert_eq!(ids(&[read, "SecRuleRemoveById 12\n"].concat()), [11, 13, 1]);
        assert_eq!(ids("SecRequestBodyAccess Off\nSecRule ARGS x \"id:1,phase:2\""), [1]);
        let deny = "SecDefaultAction \"phase:2,deny,log\"\n";
        assert_eq!(ids(&[deny, read].concat()), [11, 12, 13, 1]);
    }

    #[test]
    fn supplement_leaves_to_naxsi_what_its_rules_do() {
        let seclang = "SecRequestBodyAccess On\nSecRule ARGS x \"id:1,phase:2\"\n";
        let naxsi = "SecRulesEnabled;\nMainRule \"str:evil\" \"mz:BODY\" \"s:$X:8\" id:1000;\n\
                     CheckRule \"$X >= 8\" BLOCK;\n";
        let rules = |bodies: &[BodyKind]| {
            let ids = bodies.iter().map(|kind| 100 + *kind as usize);
            ids.map(|id| format!("SecAction id:{id}\n")).collect()
        };
        let added = |builder: crate::Builder| {
            let set = builder.supplement("more", rules).build();
            let set = set.unwrap_or_else(|error| panic!("{error}"));
            set.rules().filter(|rule| &*rule.place.file == "more").count()
        };
        let alone = RuleSet::builder().text("t.conf", seclang);
        assert_eq!(added(alone), 3);
        let beside = RuleSet::builder().text("t.conf", seclang).text("n.rules", naxsi);
        // naxsi parses JSON and blocks malformed bodies.
        assert_eq!(added(beside), 1);
    }

    #[test]
    fn actions_without_effect_are_listed() {
        let listed = |text: &str| {
            let set = load(text).unwrap_or_else(|e| panic!("{e}"));
            set.inert().iter().map(|found| format!("{}: {}", found.place, found.message)).collect()
        };
        let of_tx: Vec<String> =
            listed("SecAction \"id:1,pass,setvar:tx.a=1,expirevar:'tx.a=60'\"");
        let reason = "has no effect: TX lasts for one transaction";
        assert_eq!(of_tx, [format!("t.conf:1:36: action \"expirevar\" {reason}")]);
        let opened = "SecAction \"id:1,initcol:ip=a\"\n";
        let changes = "SecAction \"id:2,setvar:ip.a=1,expirevar:ip.a=60,deprecatevar:ip.a=1/2\"";
        assert_eq!(listed(&format!("{opened}{changes}")), [""; 0]);
        let reason = "IP lasts for one transaction: no rule opens it with initcol";
        assert_eq!(listed(changes), [format!("t.conf:1:1: {reason}")]);
    }

    #[test]
    fn unsupported_rules_are_left_out_with_their_chain() {
        let text = "SecRule ARGS x \"id:1,chain\"\nSecRule ARGS \"@inspectFile x\" \"chain\"\nSecRule ARGS y\nSecRule ARGS z \"id:2\"";
        assert!(matches!(load(text), Err(LoadError::Unsupported { .. })));
        let set = RuleSet::builder()
            .text("t.conf", text)
            .skip_unsupported(true)
            .build()
            .unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(set.rules().map(|r| r.id).collect::<Vec<_>>(), [2]);
        assert_eq!(set.skipped().len(), 1);
        assert_eq!(set.skipped()[0].place.to_string(), "t.conf:2:16");
    }
}
