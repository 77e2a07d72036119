//! Mixes that are made of others: the templates of all, and how often each is sent.

use super::{MAX_DECK, MixFile, check};
use crate::error::MixError;
use crate::template::Template;
use crate::text::Names;
use crate::variable::Variable;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::ops::Range;

/// A mix that is included, as a mix file names it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IncludeFile {
    /// Which: the name of a mix, or the path of a file from the one that includes it.
    pub mix: String,
    /// How often its templates are sent together, in proportion to the other weights of the file;
    /// where it is left out, their own weights stand beside those.
    pub weight: Option<u32>,
    /// None but the templates of these names; all where it is left out.
    #[serde(default)]
    pub only: Vec<String>,
}

/// A mix file with those that it includes.
#[derive(Debug, Clone)]
pub struct MixTree {
    /// What the file says.
    pub file: MixFile,
    /// Those that its `include` names, in that order.
    pub included: Vec<MixTree>,
}

/// What is in a mix and in those that it includes.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// The names of the variables; two files may use one name for two variables.
    pub(super) names: Vec<String>,
    pub(super) variables: Vec<Variable>,
    /// Those of the file itself first, then those of each included one.
    pub(super) templates: Vec<Template>,
}

/// Checks all templates and variables, and works out the weights.
pub(super) fn gather(tree: &MixTree) -> Result<Gathered, MixError> {
    let mut gathered = Gathered::default();
    gathered.add(tree)?;
    // Told apart at the end: of a mix that is included twice, each time other templates may be taken.
    let mut names = BTreeSet::new();
    match gathered.templates.iter().find(|template| !names.insert(&template.name)) {
        Some(again) => Err(MixError::DuplicateName(again.name.clone())),
        None => Ok(gathered),
    }
}

impl Gathered {
    fn add(&mut self, tree: &MixTree) -> Result<(), MixError> {
        let start = self.templates.len();
        self.add_own(&tree.file)?;
        let own = start..self.templates.len();
        let mut groups = vec![Group { templates: own, share: None }];
        let mut included = tree.included.iter();
        for include in &tree.file.include {
            let part = included.next().ok_or(MixError::NotIncluded(include.mix.clone()))?;
            groups.push(self.add_included(part, include)?);
        }
        self.weigh(&groups)
    }

    fn add_own(&mut self, file: &MixFile) -> Result<(), MixError> {
        let first = self.variables.len();
        for (name, raw) in &file.variable {
            let variable = Variable::check(name, raw.clone());
            self.variables.push(
                variable.map_err(|source| MixError::Variable { variable: name.clone(), source })?,
            );
            self.names.push(name.clone());
        }
        let own: Vec<String> = file.variable.keys().cloned().collect();
        let names = Names { own: &own, first };
        let start = self.templates.len();
        for raw in &file.template {
            if raw.name.trim().is_empty() || raw.name.contains(char::is_control) {
                return Err(MixError::OddName(raw.name.clone()));
            }
            self.templates.push(Template::check(raw.clone(), file, &names)?);
        }
        check::all_used(&self.templates[start..], &names)
    }

    fn add_included(&mut self, part: &MixTree, include: &IncludeFile) -> Result<Group, MixError> {
        let start = self.templates.len();
        self.add(part)?;
        let known = &self.templates[start..];
        let is_known = |name: &&String| known.iter().any(|template| template.name == **name);
        if let Some(wanted) = include.only.iter().find(|name| !is_known(name)) {
            let known = known.iter().map(|template| template.name.clone()).collect();
            return Err(MixError::NoTemplate { template: wanted.clone(), known });
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
                Err(MixError::IncludesNothing(include.mix.clone(), weight))
            }
            weight => {
                let share = weight.map(|weight| Share::reduced(u64::from(weight), sum));
                Ok(Group { templates, share })
            }
        }
    }

    /// Makes the weights of all groups whole numbers in the proportions that their shares say, as
    /// small as they can be. Without shares, they stay as they are written.
    fn weigh(&mut self, groups: &[Group]) -> Result<(), MixError> {
        let shares: Vec<Share> = groups.iter().filter_map(|group| group.share).collect();
        if shares.is_empty() {
            return Ok(());
        }
        // A common multiple of so few numbers that are at most a deck each; what is too large for the
        // weights to be a deck is told below, whatever its exact size.
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
        if sum > MAX_DECK {
            return Err(MixError::DeckTooLarge(sum));
        }
        let start = groups[0].templates.start;
        for (template, weight) in self.templates[start..].iter_mut().zip(weights) {
            // At most the sum, which is far below what 32 bits hold.
            template.weight = (weight / divisor) as u32;
        }
        Ok(())
    }
}

/// Templates of one file, own or included, in a row.
struct Group {
    templates: Range<usize>,
    /// How much of each of their weights counts; all of it where they have no share.
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

/// The least common multiple of numbers above 0; the largest number there is where it is beyond that.
fn lcm(a: u64, b: u64) -> u64 {
    (a / gcd(a, b)).saturating_mul(b)
}
