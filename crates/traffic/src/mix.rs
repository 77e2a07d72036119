//! A mix: weighted templates and the variables that they use.

mod check;
mod include;

pub use include::{IncludeFile, MixTree};

use crate::error::MixError;
use crate::message::Message;
use crate::script::{Script, Step};
use crate::template::{Template, TemplateFile};
use crate::variable::{Variable, VariableFile};
use include::Gathered;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A mix as its TOML file writes it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MixFile {
    /// One line that says what this traffic stands for.
    pub title: String,
    /// Headers as `Name: value` lines that every template sends first.
    #[serde(default)]
    pub headers: Vec<String>,
    /// What stands for `{{NAME}}` in the templates, by name.
    #[serde(default)]
    pub variable: BTreeMap<String, VariableFile>,
    /// Whether its templates are open, unless they say otherwise.
    #[serde(default)]
    pub open: bool,
    /// Other mixes whose templates are sent too.
    #[serde(default)]
    pub include: Vec<IncludeFile>,
    /// The request templates.
    #[serde(default)]
    pub template: Vec<TemplateFile>,
}

/// A mix whose parts have been checked: at least one template is sent, names are unique, every
/// variable that is used is there and every one that is there is used, and every template is a
/// request with whatever values its variables take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mix {
    title: String,
    templates: Vec<Template>,
    variables: Vec<Variable>,
    /// How many decks a script has.
    decks: usize,
}

impl Mix {
    /// One line that says what this traffic stands for.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The templates, those of the file itself first, then those of each that it includes;
    /// [`Step::template`] indexes them.
    pub fn templates(&self) -> &[Template] {
        &self.templates
    }

    /// One request of each template, in the order of the file: the same every time, with the first
    /// value of each variable (of a range, the smallest).
    pub fn samples(&self) -> impl Iterator<Item = Message> {
        let values = self.first_values();
        self.templates.iter().map(move |template| template.message(&values))
    }

    /// What is sent, request by request, drawn from a seed: whole decks, each with every template as
    /// often as its weight says, each shuffled apart. So two scripts differ in order and values, but
    /// never in how often a template is sent.
    ///
    /// A script has at most 65,536 requests, and of those that have to be rendered one by one at most
    /// 16 MiB; it has as many decks as fit. Who needs more starts again from its first request, and
    /// counters begin again with it.
    pub fn script(&self, seed: u64) -> impl Iterator<Item = Step> {
        let deck = (0..).zip(&self.templates);
        let deck = deck.flat_map(|(index, t)| std::iter::repeat_n(index, t.weight as usize));
        Script::new(self, deck.collect(), seed)
    }

    /// The mix with none but the templates of these names, in the order of the file. Its script has as
    /// many decks as before, and is shorter for that.
    ///
    /// # Errors
    ///
    /// It has no template of such a name, or none of them is sent.
    pub fn only(mut self, names: &[String]) -> Result<Self, MixError> {
        let known: Vec<String> = self.templates.iter().map(|t| t.name.clone()).collect();
        if let Some(wanted) = names.iter().find(|name| !known.contains(name)) {
            return Err(MixError::NoTemplate { template: wanted.clone(), known });
        }
        self.templates.retain(|template| names.contains(&template.name));
        match self.templates.iter().any(|template| template.weight > 0) {
            true => Ok(self),
            false => Err(MixError::NothingSent),
        }
    }

    pub(crate) fn variables(&self) -> &[Variable] {
        &self.variables
    }

    pub(crate) fn decks(&self) -> usize {
        self.decks
    }

    pub(crate) fn first_values(&self) -> Vec<String> {
        self.variables.iter().map(Variable::first).collect()
    }
}

/// The largest sum of weights: a deck is held in memory and shuffled whole.
pub(crate) const MAX_DECK: u64 = 10_000;

impl TryFrom<MixFile> for Mix {
    type Error = MixError;

    /// A mix that includes no other.
    fn try_from(file: MixFile) -> Result<Self, MixError> {
        Self::try_from(&MixTree { file, included: Vec::new() })
    }
}

impl TryFrom<&MixTree> for Mix {
    type Error = MixError;

    fn try_from(tree: &MixTree) -> Result<Self, MixError> {
        let gathered = include::gather(tree)?;
        let Gathered { names, variables, templates } = gathered;
        let decks = check::decks(&templates, &names, &variables)?;
        Ok(Self { title: tree.file.title.clone(), templates, variables, decks })
    }
}
