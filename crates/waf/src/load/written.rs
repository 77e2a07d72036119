//! Rules as written: defaults and updates are not applied, and other rules are named by id, tag, message and marker.

use std::rc::Rc;

use crate::condition::Condition;
use crate::error::RulePlace;
use crate::rule::{AllowScope, Assignment, Control, Phase, Severity, Target, WrittenOperator};
use crate::template::Template;
use crate::transformation::Transformation;

/// Rule with its chain.
#[derive(Debug)]
pub(crate) struct WrittenRule {
    /// 0 for a rule without id.
    pub(crate) id: u64,
    pub(crate) phase: Phase,
    /// `SecDefaultAction` of the phase where the rule was written.
    pub(crate) defaults: Rc<Actions>,
    /// The rule's condition and those of its chain; never empty.
    pub(crate) links: Vec<WrittenLink>,
}

/// One condition of a rule with its actions.
#[derive(Debug)]
pub(crate) struct WrittenLink {
    pub(crate) place: RulePlace,
    /// `None` for an action, which always matches.
    pub(crate) test: Option<WrittenTest>,
    pub(crate) actions: Actions,
    /// Place of the actions.
    pub(crate) actions_place: RulePlace,
    /// Runs the assignments for each occurrence in a matching value.
    pub(crate) per_occurrence: bool,
}

/// Targets and operator.
#[derive(Debug)]
pub(crate) struct WrittenTest {
    pub(crate) targets: Vec<Target>,
    pub(crate) exclusions: Vec<Target>,
    pub(crate) negated: bool,
    pub(crate) condition: Condition,
    pub(crate) operator: WrittenOperator,
}

/// Actions of one directive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Actions {
    pub(crate) id: Option<u64>,
    pub(crate) phase: Option<Phase>,
    pub(crate) message: Option<Template>,
    pub(crate) log_data: Option<Template>,
    pub(crate) tags: Vec<String>,
    pub(crate) severity: Option<Severity>,
    pub(crate) version: Option<String>,
    pub(crate) revision: Option<String>,
    pub(crate) maturity: Option<u8>,
    pub(crate) accuracy: Option<u8>,
    pub(crate) log: Option<bool>,
    pub(crate) audit_log: Option<bool>,
    pub(crate) disruptive: Option<WrittenDisruptive>,
    pub(crate) status: Option<u16>,
    pub(crate) flow: Option<WrittenFlow>,
    pub(crate) chain: bool,
    pub(crate) capture: bool,
    pub(crate) multi_match: bool,
    /// True if `t:none` was given: transformations of the defaults do not apply.
    pub(crate) resets_transformations: bool,
    pub(crate) transformations: Vec<Transformation>,
    pub(crate) assignments: Vec<Assignment>,
    pub(crate) controls: Vec<Control<RuleFilter>>,
    /// Actions that are accepted and have no effect: their offsets and the reasons.
    pub(crate) inert: Vec<(usize, String)>,
}

/// Disruptive action; `block` stands for the default action.
#[derive(Clone, Debug)]
pub(crate) enum WrittenDisruptive {
    Pass,
    Block,
    Deny,
    Drop,
    Redirect(Template),
    Allow(AllowScope),
}

/// `skip` or `skipAfter`.
#[derive(Clone, Debug)]
pub(crate) enum WrittenFlow {
    Skip(u32),
    /// Name of a marker.
    SkipAfter(String),
}

/// Selection of rules by one of their properties.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RuleFilter {
    Ids(Vec<(u64, u64)>),
    Tag(String),
    Message(String),
}

impl std::fmt::Display for RuleFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ids(ranges) => {
                f.write_str("id")?;
                ranges.iter().try_for_each(|(first, last)| {
                    if first == last { write!(f, " {first}") } else { write!(f, " {first}-{last}") }
                })
            }
            Self::Tag(tag) => write!(f, "tag {tag}"),
            Self::Message(message) => write!(f, "message {message}"),
        }
    }
}

impl WrittenRule {
    /// A rule of phase 2 that blocks if all links match. The first link has its message.
    pub(crate) fn blocking(id: u64, message: &[u8], mut links: Vec<WrittenLink>) -> Self {
        let head = &mut links[0].actions;
        head.message = Some(Template::literal(message));
        head.disruptive = Some(WrittenDisruptive::Deny);
        Self { id, phase: Phase::RequestBody, defaults: Rc::default(), links }
    }

    /// Actions of the first link, which hold for the whole rule.
    pub(crate) fn head(&mut self) -> &mut Actions {
        &mut self.links[0].actions
    }

    /// Actions of the last link.
    pub(crate) fn last(&mut self) -> &mut Actions {
        let last = self.links.len() - 1;
        &mut self.links[last].actions
    }

    /// True if a filter selects it.
    pub(crate) fn is_selected(&self, filter: &RuleFilter) -> bool {
        filter.selects(self.id, self.tags(), self.links[0].actions.message.as_ref())
    }

    /// Tags of the defaults and of all links.
    pub(crate) fn tags(&self) -> impl Iterator<Item = &String> {
        let links = self.links.iter().map(|link| &link.actions);
        [&*self.defaults].into_iter().chain(links).flat_map(|actions| &actions.tags)
    }
}

impl WrittenLink {
    /// A link with an operator and without actions.
    pub(crate) fn new(place: &RulePlace, targets: Vec<Target>, condition: Condition) -> Self {
        Self {
            place: place.clone(),
            test: Some(WrittenTest {
                targets,
                exclusions: Vec::new(),
                negated: false,
                condition,
                operator: WrittenOperator::default(),
            }),
            actions: Actions::default(),
            actions_place: place.clone(),
            per_occurrence: false,
        }
    }

    /// The same with an operator that is negated, if it is to be.
    pub(crate) fn negated(mut self, negated: bool) -> Self {
        self.test.iter_mut().for_each(|test| test.negated = negated);
        self
    }

    /// The same with one more transformation.
    pub(crate) fn transformed(mut self, transformation: Transformation) -> Self {
        self.actions.transformations.push(transformation);
        self
    }
}

impl Actions {
    /// Adds the actions of `SecRuleUpdateActionById`.
    pub(crate) fn update(&mut self, new: Self) {
        fn replace<T>(old: &mut Option<T>, new: Option<T>) {
            if new.is_some() {
                *old = new;
            }
        }
        replace(&mut self.message, new.message);
        replace(&mut self.log_data, new.log_data);
        replace(&mut self.severity, new.severity);
        replace(&mut self.version, new.version);
        replace(&mut self.revision, new.revision);
        replace(&mut self.maturity, new.maturity);
        replace(&mut self.accuracy, new.accuracy);
        replace(&mut self.log, new.log);
        replace(&mut self.audit_log, new.audit_log);
        replace(&mut self.disruptive, new.disruptive);
        replace(&mut self.status, new.status);
        replace(&mut self.flow, new.flow);
        self.capture |= new.capture;
        self.multi_match |= new.multi_match;
        if new.resets_transformations {
            self.resets_transformations = true;
            self.transformations.clear();
        }
        self.tags.extend(new.tags);
        self.transformations.extend(new.transformations);
        self.assignments.extend(new.assignments);
        self.controls.extend(new.controls);
    }
}

impl RuleFilter {
    /// True if it selects the rule with these properties.
    pub(crate) fn selects<'a>(
        &self,
        id: u64,
        mut tags: impl Iterator<Item = &'a String>,
        message: Option<&Template>,
    ) -> bool {
        match self {
            Self::Ids(ranges) => ranges.iter().any(|&(low, high)| (low..=high).contains(&id)),
            Self::Tag(wanted) => tags.any(|tag| tag == wanted),
            Self::Message(wanted) => message.and_then(Template::as_text) == Some(wanted.as_bytes()),
        }
    }
}

/// Rule or marker in the order of the files.
#[derive(Debug)]
pub(crate) enum Entry {
    Rule(Box<WrittenRule>),
    Marker(String),
}

/// Change of rules that applies once all files are read.
#[derive(Debug)]
pub(crate) enum Update {
    Remove(RulePlace, RuleFilter),
    /// Adds targets, and excludes others.
    Targets(RulePlace, RuleFilter, Vec<Target>, Vec<Target>),
    Actions(u64, RulePlace, Box<Actions>),
}
