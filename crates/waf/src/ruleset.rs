//! Rule sets: loaded once, immutable, shared by threads.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::condition::Condition;
use crate::error::{LoadError, Place, Skipped, nearest};
use crate::regex::{Matcher, SelectorRegex};
use crate::rule::{
    Assignment, BodyProcessor, Change, Control, Disruptive, Flow, Phase, Rule, RuleFilter,
    Selector, Severity, Step, Target,
};
use crate::seclang::action::Actions;
use crate::seclang::directive::{Draft, Entry, Update};
use crate::seclang::rule::resolve;
use crate::settings::Settings;
use crate::template::{Macro, Template};
use crate::variable::{Source, Variable, Variables};

/// Variables that the engine itself reads.
const ALWAYS_READ: [Variable; 2] = [Variable::RequestHeaders, Variable::ResponseContentType];

/// Rules with their settings, ready to run.
#[derive(Debug)]
pub struct RuleSet {
    pub(crate) rules: Vec<Rule>,
    pub(crate) steps: [Vec<Step>; 5],
    pub(crate) settings: Settings,
    /// Names of TX variables by slot, in lower case.
    pub(crate) slots: Vec<Vec<u8>>,
    pub(crate) slot_by_name: HashMap<Vec<u8>, u32>,
    pub(crate) patterns: usize,
    pub(crate) tests: usize,
    pub(crate) plan: crate::plan::Plan,
    /// Variables of the request and the response that rules or the engine read. Others are not stored.
    pub(crate) read: Variables,
    /// True if a rule may depend on the body of the response.
    pub(crate) uses_response_body: bool,
    relevant_status: Option<Matcher>,
    skipped: Vec<Skipped>,
    inert: Vec<Skipped>,
    never_matching: Vec<Skipped>,
    removed: usize,
    files: Vec<PathBuf>,
}

/// Reads rules from files and texts.
#[derive(Debug, Default)]
pub struct Builder {
    /// Sources of the place that the rules are for, then those of the places around it.
    places: Vec<Vec<SourceText>>,
    skip_unsupported: bool,
}

#[derive(Debug)]
enum SourceText {
    File(PathBuf),
    Text(String, Vec<u8>),
}

/// Description of a rule.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RuleInfo<'a> {
    /// Id.
    pub id: u64,
    /// Place of the rule.
    pub place: &'a Place,
    /// Phase in which it runs.
    pub phase: Phase,
    /// Tags.
    pub tags: &'a [String],
    /// Severity.
    pub severity: Option<Severity>,
    /// `ver`
    pub version: &'a str,
    /// `rev`
    pub revision: &'a str,
    /// `maturity`, or 0
    pub maturity: u8,
    /// `accuracy`, or 0
    pub accuracy: u8,
    /// True if matches belong in the audit log.
    pub audit_log: bool,
    /// Operator of the last condition of the chain as libmodsecurity names it, such as `Rx`; empty for rules without one, and
    /// for those of other dialects.
    pub operator: &'a str,
    /// Argument of the operator, as written.
    pub argument: &'a [u8],
    /// Number of conditions, chained ones included.
    pub conditions: usize,
    /// Paranoia level according to its tag `paranoia-level/N`.
    pub paranoia_level: Option<u8>,
}

impl<'a> RuleInfo<'a> {
    fn of(rule: &'a Rule) -> Self {
        let last = rule.links.last().and_then(|link| link.test.as_ref());
        let operator = last.map(|test| &test.operator);
        Self {
            id: rule.id,
            place: &rule.place,
            phase: rule.phase,
            tags: &rule.tags,
            severity: rule.severity,
            version: rule.version.as_deref().unwrap_or_default(),
            revision: rule.revision.as_deref().unwrap_or_default(),
            maturity: rule.maturity,
            accuracy: rule.accuracy,
            audit_log: rule.audit_log,
            operator: operator.map_or("", |operator| &operator.name),
            argument: operator.map_or(&[], |operator| &operator.argument),
            conditions: rule.links.len(),
            paranoia_level: rule
                .tags
                .iter()
                .find_map(|tag| tag.strip_prefix("paranoia-level/")?.parse().ok()),
        }
    }
}

impl Builder {
    /// Adds a file with everything that it includes.
    pub fn file(self, path: impl AsRef<Path>) -> Self {
        self.add(SourceText::File(path.as_ref().to_owned()))
    }

    /// Adds a text; files that it names are searched in the current folder.
    pub fn text(self, name: &str, text: impl Into<Vec<u8>>) -> Self {
        self.add(SourceText::Text(name.to_owned(), text.into()))
    }

    fn add(mut self, source: SourceText) -> Self {
        match self.places.last_mut() {
            Some(place) => place.push(source),
            None => self.places.push(vec![source]),
        }
        self
    }

    /// Continues with the sources of the place around, as a server around a location. Their rules run after those that were
    /// added before, whose settings win. `SecDefaultAction` has effect in its own place only.
    pub fn around(mut self) -> Self {
        self.places.push(Vec::new());
        self
    }

    /// Leaves out unsupported directives in place of failing; see [`RuleSet::skipped`].
    pub fn skip_unsupported(mut self, skip: bool) -> Self {
        self.skip_unsupported = skip;
        self
    }

    /// Reads everything and compiles the rules.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or a directive is invalid or not supported.
    pub fn build(self) -> Result<RuleSet, LoadError> {
        let mut draft = Draft::new(self.skip_unsupported);
        // From the outermost place on, so that the last setting is that of the innermost.
        for sources in self.places.into_iter().rev() {
            let around = draft.begin_place();
            for source in sources {
                match source {
                    SourceText::File(path) => draft.file(&path, 0)?,
                    SourceText::Text(name, text) => {
                        draft.text(&Arc::from(name), &text, Path::new(""), 0)?;
                    }
                }
            }
            draft.end_place(around)?;
        }
        draft.finish()?;
        complete(draft)
    }
}

impl RuleSet {
    /// Starts an empty builder.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Rules in the order in which they were read.
    pub fn rules(&self) -> impl Iterator<Item = RuleInfo<'_>> {
        self.rules.iter().map(RuleInfo::of)
    }

    /// The rule at a position, as of [`Match::rule`](crate::Match::rule).
    pub fn rule(&self, position: usize) -> Option<RuleInfo<'_>> {
        self.rules.get(position).map(RuleInfo::of)
    }

    /// Settings of the engine.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Unsupported directives that were left out.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// Operators that never match, because they need a service. [`LimitsReached`](crate::LimitsReached) counts their uses.
    pub fn never_matching(&self) -> &[Skipped] {
        &self.never_matching
    }

    /// Directives and actions that are accepted and have no effect.
    pub fn inert(&self) -> &[Skipped] {
        &self.inert
    }

    /// Kinds of request bodies that pass uninspected although SecLang rules read their arguments, each with the reason.
    /// ModSecurity and Coraza ship the rules that are missing then in a recommended configuration; the Core Rule Set
    /// relies on them.
    pub fn uninspected_bodies(&self) -> Vec<&'static str> {
        let reads_arguments = |rule: &Rule| {
            let extension = Path::new(&*rule.place.file).extension();
            let is_foreign =
                extension.is_some_and(|it| it == "yaml" || it == "yml" || it == "rules");
            let mut targets =
                rule.links.iter().flat_map(|link| &link.test).flat_map(|test| &test.targets);
            let is_argument =
                |target: &Target| matches!(target.variable, Variable::Args | Variable::ArgsPost);
            rule.phase == Phase::RequestBody && !is_foreign && targets.any(is_argument)
        };
        if !(self.settings.request_body_access && self.rules.iter().any(reads_arguments)) {
            return Vec::new();
        }
        let parses = |processor| {
            let links = self.rules.iter().flat_map(|rule| &rule.links);
            let mut controls = links.flat_map(|link| &link.controls);
            controls.any(|it| matches!(it, Control::RequestBodyProcessor(one) if *one == processor))
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

    /// True if `SecAuditLogRelevantStatus` matches a status.
    pub(crate) fn is_relevant_status(&self, status: u16) -> bool {
        self.relevant_status
            .as_ref()
            .is_some_and(|regex| regex.is_match(status.to_string().as_bytes()))
    }

    /// Plants an error in the gates: `length` or `decoding`.
    #[cfg(any(test, fuzzing))]
    pub fn plant(&mut self, error: &str) {
        self.plan.plant(error);
    }

    /// Files and folders on which the rules depend: rule files, data files, and folders in which `Include` searched.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Number of rules that `SecRuleRemove...` removed.
    pub fn removed(&self) -> usize {
        self.removed
    }
}

fn complete(draft: Draft) -> Result<RuleSet, LoadError> {
    let mut entries = draft.entries;
    let before = entries.len();
    for update in draft.updates {
        apply(&mut entries, update)?;
    }
    let removed = before - entries.len();
    let mut rules = Vec::new();
    let mut steps: [Vec<Step>; 5] = std::array::from_fn(|_| Vec::new());
    let mut markers: Vec<String> = Vec::new();
    let mut skips: Vec<(usize, String, Place)> = Vec::new();
    for entry in entries {
        match entry {
            Entry::Marker(name) => {
                steps.iter_mut().for_each(|phase| phase.push(Step::Marker(markers.len())));
                markers.push(name);
            }
            Entry::Rule(rule, skip_after) => {
                if let Some((name, place)) = skip_after {
                    skips.push((rules.len(), name, place));
                }
                steps[rule.phase.index()].push(Step::Rule(rules.len()));
                rules.push(*rule);
            }
        }
    }
    for (index, name, place) in skips {
        let list = &steps[rules[index].phase.index()];
        rules[index].flow = Flow::SkipAfter(end_of_skip(list, &markers, index, &name, place)?);
    }
    let relevant_status = draft
        .settings
        .audit_log_relevant_status
        .as_deref()
        .and_then(|text| Matcher::new(text).ok());
    let mut set = RuleSet {
        rules,
        read: ALWAYS_READ.into_iter().collect(),
        uses_response_body: false,
        relevant_status,
        steps,
        settings: draft.settings,
        slots: Vec::new(),
        slot_by_name: HashMap::new(),
        patterns: draft.shared.patterns,
        tests: draft.tests,
        plan: crate::plan::Plan::default(),
        skipped: draft.skipped,
        inert: draft.inert,
        never_matching: draft.never_matching,
        removed,
        files: draft.shared.files_read,
    };
    resolve_names(&mut set);
    let of_body =
        [Variable::ResponseBody, Variable::ResponseContentLength, Variable::OutboundDataError];
    let phase = &set.steps[Phase::ResponseBody.index()];
    set.uses_response_body =
        phase.iter().any(|step| matches!(step, Step::Rule(_))) || set.read.contains_any(&of_body);
    set.plan =
        crate::plan::Plan::new(&set.rules, &set.steps, set.tests, &draft.shared.requirements);
    Ok(set)
}

/// Position of the marker after a rule. A marker before the rule ends the phase.
fn end_of_skip(
    steps: &[Step],
    markers: &[String],
    rule: usize,
    name: &str,
    place: Place,
) -> Result<usize, LoadError> {
    if !markers.iter().any(|marker| marker == name) {
        let hint = nearest(name, markers.iter().map(String::as_str));
        return Err(LoadError::Invalid {
            place,
            message: format!("skipAfter names an unknown marker \"{name}\"{hint}"),
        });
    }
    let from = steps
        .iter()
        .position(|step| matches!(step, Step::Rule(index) if *index == rule))
        .unwrap_or(0);
    let behind = steps.iter().enumerate().skip(from);
    let found = behind.filter_map(|(at, step)| match step {
        Step::Marker(marker) if markers[*marker] == name => Some(at),
        _ => None,
    });
    Ok(found.min().unwrap_or(steps.len()))
}

fn apply(entries: &mut Vec<Entry>, update: Update) -> Result<(), LoadError> {
    match update {
        Update::Remove(filter) => {
            entries.retain(|entry| !matches!(entry, Entry::Rule(rule, _) if filter.selects(rule)));
        }
        Update::Targets(filter, targets, exclusions) => {
            for entry in entries {
                if let Entry::Rule(rule, _) = entry
                    && filter.selects(rule)
                    && let Some(test) = rule.links[0].test.as_mut()
                {
                    test.targets.extend(targets.iter().cloned());
                    test.exclusions.extend(exclusions.iter().cloned());
                }
            }
        }
        Update::Actions(id, place, actions) => {
            let found = entries.iter_mut().find_map(|entry| match entry {
                Entry::Rule(rule, skip) if rule.id == id => Some((rule, skip)),
                _ => None,
            });
            let Some((rule, skip)) = found else {
                return Err(LoadError::Invalid { place, message: format!("no rule has id {id}") });
            };
            if let Some(name) = actions.skip_after.clone() {
                *skip = Some((name, place.clone()));
            }
            update_actions(rule, *actions, place)?;
        }
    }
    Ok(())
}

fn update_actions(rule: &mut Rule, actions: Actions, place: Place) -> Result<(), LoadError> {
    if actions.id.is_some() || actions.phase.is_some() || actions.chain {
        return Err(LoadError::Invalid {
            place,
            message: "SecRuleUpdateActionById cannot change id, phase or chain".into(),
        });
    }
    if actions.disruptive.is_some() {
        rule.disruptive = resolve(actions.disruptive.as_ref(), None);
    }
    rule.status = actions.status.or(rule.status);
    rule.severity = actions.severity.or(rule.severity);
    rule.version = actions.version.or(rule.version.take());
    rule.revision = actions.revision.or(rule.revision.take());
    rule.log = actions.log.unwrap_or(rule.log);
    rule.audit_log = actions.audit_log.unwrap_or(rule.audit_log);
    rule.message = actions.message.clone().or(rule.message.take());
    rule.tags.extend(actions.tags);
    if let Some(skip) = actions.skip {
        rule.flow = Flow::Skip(skip);
    }
    let link = &mut rule.links[0];
    link.message = actions.message.or(link.message.take());
    link.log_data = actions.log_data.or(link.log_data.take());
    link.capture |= actions.capture;
    link.assignments.extend(actions.assignments);
    link.controls.extend(actions.controls);
    if let Some(test) = link.test.as_mut() {
        test.multi_match |= actions.multi_match;
        if actions.resets_transformations {
            test.transformations.clear();
        }
        test.transformations.extend(actions.transformations);
    }
    Ok(())
}

/// Gives each constant TX name a slot, and replaces filters of run-time removals by the rules that
/// they select.
fn resolve_names(set: &mut RuleSet) {
    let RuleSet { rules, slots, slot_by_name, read, .. } = set;
    let mut names = Slots { slots, by_name: slot_by_name, selectors: HashMap::new(), read };
    for digit in 0..10 {
        names.slot(digit.to_string().as_bytes());
    }
    for rule in rules.iter_mut() {
        if let Some(message) = rule.message.as_mut() {
            names.template(message);
        }
        if let Disruptive::Redirect(to) = &mut rule.disruptive {
            names.template(to);
        }
        for link in &mut rule.links {
            link.message.iter_mut().chain(&mut link.log_data).for_each(|text| names.template(text));
            link.assignments.iter_mut().for_each(|assignment| names.assignment(assignment));
            for control in &mut link.controls {
                match control {
                    Control::InitCollection(_, key) => names.template(key),
                    Control::SetEnv(name, value) => {
                        names.template(name);
                        names.template(value);
                    }
                    _ => {}
                }
            }
            if let Some(test) = link.test.as_mut() {
                test.targets
                    .iter_mut()
                    .chain(&mut test.exclusions)
                    .for_each(|target| names.target(target));
                if let Condition::Text(_, argument)
                | Condition::Number(_, argument)
                | Condition::RegexTemplate(argument) = &mut test.condition
                {
                    names.template(argument);
                }
            }
        }
    }
    let resolve = |filter: &RuleFilter, rules: &[Rule]| {
        let selected = rules.iter().enumerate().filter(|(_, rule)| filter.selects(rule));
        RuleFilter::Resolved(selected.filter_map(|(index, _)| u32::try_from(index).ok()).collect())
    };
    let mut resolved = Vec::new();
    for (r, rule) in rules.iter().enumerate() {
        for (l, link) in rule.links.iter().enumerate() {
            for (c, control) in link.controls.iter().enumerate() {
                if let Control::RemoveRules(filter) | Control::RemoveTargets(filter, _) = control {
                    resolved.push((r, l, c, resolve(filter, rules)));
                }
            }
        }
    }
    for (r, l, c, rules_selected) in resolved {
        if let Control::RemoveRules(filter) | Control::RemoveTargets(filter, _) =
            &mut rules[r].links[l].controls[c]
        {
            *filter = rules_selected;
        }
    }
}

struct Slots<'a> {
    slots: &'a mut Vec<Vec<u8>>,
    by_name: &'a mut HashMap<Vec<u8>, u32>,
    /// Equal regexes are compiled once.
    selectors: HashMap<(String, bool), Arc<SelectorRegex>>,
    read: &'a mut Variables,
}

impl Slots<'_> {
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
        if let Source::Entries(variables) = variable.source() {
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
            Change::Set(value) | Change::Add(value) | Change::Subtract(value) => {
                self.template(value);
            }
            Change::Unset => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let found = load(&text).unwrap_or_else(|e| panic!("{e}")).uninspected_bodies();
            found.into_iter().filter_map(|it| it.split(' ').next()).collect::<Vec<_>>()
        };
        assert_eq!(kinds(&[rules]), ["JSON", "XML", "malformed"]);
        assert_eq!(kinds(&[rules, json]), ["XML", "malformed"]);
        assert_eq!(kinds(&[rules, json, xml, errors]), [""; 0]);
        assert_eq!(kinds(&["SecRule REQUEST_URI x \"id:1\""]), [""; 0]);
        assert_eq!(kinds(&["SecRule ARGS x \"id:1,phase:1\""]), [""; 0]);
        assert_eq!(kinds(&["SecRequestBodyAccess Off", rules]), [""; 0]);
    }

    #[test]
    fn actions_without_effect_are_listed() {
        let text = "SecAction \"id:1,pass,setvar:ip.a=1,expirevar:'ip.a=60'\"";
        let set = load(text).unwrap_or_else(|e| panic!("{e}"));
        let [found] = set.inert() else { panic!("{:?}", set.inert()) };
        assert_eq!(found.place.to_string(), "t.conf:1:36");
        assert!(found.message.starts_with("action \"expirevar\" has no effect"), "{found:?}");
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
