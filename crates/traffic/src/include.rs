//! Mixes that include others: all variables and templates, and their weights.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::MAX_ROUND;
use crate::file::{IncludeFile, MixFile};
use crate::template::Template;
use crate::variable::{Names, Variable};
use crate::{MixError, fail};

/// A mix file with the mixes that it includes.
#[derive(Debug, Clone)]
pub struct MixTree {
    pub file: MixFile,
    /// The included mixes, in the order of the file.
    pub included: Vec<MixTree>,
}

/// All variables and templates of a tree.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) names: Vec<String>,
    pub(crate) variables: Vec<Variable>,
    /// Templates of the file first, then those of each included one.
    pub(crate) templates: Vec<Template>,
}

pub(crate) fn unknown_template(name: &str, known: &[Template]) -> MixError {
    let known: Vec<&str> = known.iter().map(|template| template.name.as_str()).collect();
    MixError(format!("unknown template `{name}`; the mix has {}", known.join(", ")))
}

pub(crate) fn weights_too_large(sum: u64) -> MixError {
    MixError(format!(
        "weights add up to {sum}, but the limit is {MAX_ROUND}; divide them by a common factor"
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
        let start = self.templates.len();
        self.add_own(&tree.file)?;
        let own = start..self.templates.len();
        let mut groups = vec![Group { templates: own, share: None }];
        let mut included = tree.included.iter();
        for include in &tree.file.include {
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
        let mut weights = Vec::new();
        for group in groups {
            let factor = match group.share {
                Some(Share { parts, of }) => parts.saturating_mul(common / of),
                None => common,
            };
            let scaled = self.templates[group.templates.clone()]
                .iter()
                .map(|template| u64::from(template.weight).saturating_mul(factor));
            weights.extend(scaled);
        }
        let divisor = weights.iter().copied().fold(0, gcd).max(1);
        let sum = weights.iter().fold(0_u64, |sum, weight| sum.saturating_add(weight / divisor));
        if sum > MAX_ROUND {
            return Err(weights_too_large(sum));
        }
        let start = groups[0].templates.start;
        for (template, weight) in self.templates[start..].iter_mut().zip(weights) {
            // At most MAX_ROUND.
            template.weight = (weight / divisor) as u32;
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
