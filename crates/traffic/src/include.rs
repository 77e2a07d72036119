//! Mixes that include others: all variables and templates, and their weights.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::file::{IncludeFile, MixFile};
use crate::list::RequestList;
use crate::template::{Template, TemplateSource};
use crate::variable::{Names, Variable};
use crate::{MAX_LISTED_ROUND, MAX_REQUESTS, MAX_ROUND, MixError, fail};

#[derive(Debug, Clone)]
pub enum MixTree {
    File {
        file: MixFile,
        /// The included mixes, in the order of the file.
        included: Vec<MixTree>,
    },
    List(Arc<RequestList>),
}

impl MixTree {
    pub(crate) fn title(&self) -> &str {
        match self {
            Self::File { file, .. } => &file.title,
            Self::List(list) => list.title(),
        }
    }
}

/// All variables and templates of a tree.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) names: Vec<String>,
    pub(crate) variables: Vec<Variable>,
    /// Templates of the file first, then those of each included one.
    pub(crate) templates: Vec<Template>,
    pub(crate) lists: Vec<Arc<RequestList>>,
}

pub(crate) fn unknown_template(name: &str, known: &[Template]) -> MixError {
    let known: Vec<&str> = known.iter().map(|template| template.name.as_str()).collect();
    MixError(format!("unknown template `{name}`; the mix has {}", known.join(", ")))
}

pub(crate) fn check_round(
    templates: &[Template],
    lists: &[Arc<RequestList>],
) -> Result<u64, MixError> {
    let sum = |is_counted: fn(&Template) -> bool| -> u64 {
        templates.iter().filter(|one| is_counted(one)).map(|one| u64::from(one.weight)).sum()
    };
    let all = sum(|_| true);
    let texts = sum(|template| template.texts().is_some());
    let (found, limit) = match lists.is_empty() {
        true => (all, MAX_ROUND),
        false if texts > MAX_REQUESTS as u64 => (texts, MAX_REQUESTS as u64),
        false => (all, MAX_LISTED_ROUND),
    };
    if found > limit { Err(weights_too_large(found, limit)) } else { Ok(all) }
}

fn weights_too_large(sum: u64, limit: u64) -> MixError {
    MixError(format!(
        "weights add up to {sum}, but the limit is {limit}; divide them by a common factor"
    ))
}

impl Parts {
    /// Validates all variables and templates of a tree, and computes the weights.
    pub(crate) fn collect(tree: &MixTree) -> Result<Self, MixError> {
        let mut parts = Self::default();
        parts.add(tree)?;
        // Checked last, because a mix may be included twice with different templates.
        let mut names = BTreeSet::new();
        match parts.templates.iter().find(|template| !names.insert(&template.name)) {
            Some(Template { name, .. }) => {
                fail!(
                    "two templates are named `{name}`; figures are reported by name, so rename one"
                )
            }
            None => Ok(parts),
        }
    }

    fn add(&mut self, tree: &MixTree) -> Result<(), MixError> {
        let (file, included) = match tree {
            MixTree::File { file, included } => (file, included),
            MixTree::List(list) => {
                self.add_list(list);
                return Ok(());
            }
        };
        let start = self.templates.len();
        self.add_own(file)?;
        let own = start..self.templates.len();
        let mut groups = vec![Group { templates: own, share: None }];
        let mut included = included.iter();
        for include in &file.include {
            let Some(tree) = included.next() else {
                return fail!("included mix `{}` is missing", include.mix);
            };
            groups.push(self.add_included(tree, include)?);
        }
        self.scale_weights(&groups)
    }

    fn add_own(&mut self, file: &MixFile) -> Result<(), MixError> {
        let first = self.variables.len();
        for (name, raw) in &file.variable {
            let variable = Variable::new(name, raw.clone());
            let named = |error| MixError(format!("variable `{name}`: {error}"));
            self.variables.push(variable.map_err(named)?);
            self.names.push(name.clone());
        }
        let own: Vec<String> = file.variable.keys().cloned().collect();
        let names = Names { own: &own, first };
        let start = self.templates.len();
        for raw in &file.template {
            self.templates.push(Template::new(raw.clone(), file, &names)?);
        }
        let is_unused = |(index, _): &(usize, &String)| {
            let uses = |template: &Template| template.variables.contains(&(first + index));
            !self.templates[start..].iter().any(uses)
        };
        match own.iter().enumerate().find(is_unused) {
            Some((_, name)) => {
                fail!("unused variable `{name}`; write {{{{{name}}}}} in a template, or remove it")
            }
            None => Ok(()),
        }
    }

    fn add_list(&mut self, list: &Arc<RequestList>) {
        let mut weights = vec![0; list.templates.len()];
        for request in &list.requests {
            weights[request.template as usize] += request.weight;
        }
        let number = self.lists.len();
        for ((template, weight), index) in list.templates.iter().zip(weights).zip(0..) {
            self.templates.push(Template {
                name: template.name.clone(),
                class: template.class,
                family: template.family.clone(),
                open: template.open,
                status: template.status,
                weight,
                variables: BTreeSet::new(),
                source: TemplateSource::Listed { list: number, template: index, factor: 1 },
            });
        }
        self.lists.push(Arc::clone(list));
    }

    fn add_included(&mut self, tree: &MixTree, include: &IncludeFile) -> Result<Group, MixError> {
        let start = self.templates.len();
        self.add(tree)?;
        let known = &self.templates[start..];
        let is_known = |name: &&String| known.iter().any(|template| template.name == **name);
        if let Some(unknown) = include.only.iter().find(|name| !is_known(name)) {
            return Err(unknown_template(unknown, known));
        }
        if !include.only.is_empty() {
            let mut kept = self.templates.split_off(start);
            kept.retain(|template| include.only.contains(&template.name));
            self.templates.append(&mut kept);
        }
        let templates = start..self.templates.len();
        let sum: u64 = self.templates[start..].iter().map(|one| u64::from(one.weight)).sum();
        match include.weight {
            Some(weight) if weight > 0 && sum == 0 => {
                fail!(
                    "included mix `{}` has weight {weight}, but all its templates have weight 0",
                    include.mix
                )
            }
            weight => {
                let share = weight.map(|weight| Share::reduced(u64::from(weight), sum));
                Ok(Group { templates, share })
            }
        }
    }

    /// Converts the weights of all groups to the smallest integers in the proportions of their shares. Without shares,
    /// keeps them as written.
    fn scale_weights(&mut self, groups: &[Group]) -> Result<(), MixError> {
        let shares: Vec<Share> = groups.iter().filter_map(|group| group.share).collect();
        if shares.is_empty() {
            return Ok(());
        }
        // Saturates on overflow; the sum of the weights then exceeds the limit in any case.
        let common = shares.iter().fold(1_u64, |common, share| lcm(common, share.of));
        let mut factors = Vec::new();
        for group in groups {
            let factor = match group.share {
                Some(Share { parts, of }) => parts.saturating_mul(common / of),
                None => common,
            };
            factors.extend(group.templates.clone().map(|_| factor));
        }
        let start = groups[0].templates.start;
        let scaled = || self.templates[start..].iter().zip(&factors);
        // The weights of a list have a common factor, which is divided; they are not.
        let units = scaled().map(|(template, factor)| match template.source {
            TemplateSource::Listed { factor: own, .. } => u64::from(own).saturating_mul(*factor),
            TemplateSource::Texts(_) => u64::from(template.weight).saturating_mul(*factor),
        });
        let divisor = units.fold(0, gcd).max(1);
        let sum = scaled().fold(0_u64, |sum, (template, factor)| {
            sum.saturating_add(u64::from(template.weight).saturating_mul(*factor) / divisor)
        });
        let limit = if self.lists.is_empty() { MAX_ROUND } else { MAX_LISTED_ROUND };
        if sum > limit {
            return Err(weights_too_large(sum, limit));
        }
        for (template, factor) in self.templates[start..].iter_mut().zip(factors) {
            // At most the limit of a round.
            template.weight = (u64::from(template.weight) * factor / divisor) as u32;
            if let TemplateSource::Listed { factor: own, .. } = &mut template.source {
                *own = (u64::from(*own) * factor / divisor) as u32;
            }
        }
        Ok(())
    }
}

/// Consecutive templates of one file.
struct Group {
    templates: Range<usize>,
    /// Factor for their weights; 1 by default.
    share: Option<Share>,
}

/// A fraction in lowest terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Share {
    parts: u64,
    of: u64,
}

impl Share {
    fn reduced(parts: u64, of: u64) -> Self {
        match gcd(parts, of) {
            0 => Self { parts: 0, of: 1 },
            common if of > 0 => Self { parts: parts / common, of: of / common },
            _ => Self { parts: 0, of: 1 },
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    match b {
        0 => a,
        _ => gcd(b, a % b),
    }
}

/// Returns the least common multiple of positive numbers, saturated on overflow.
fn lcm(a: u64, b: u64) -> u64 {
    (a / gcd(a, b)).saturating_mul(b)
}
