//! Mixes, and the scripts of requests drawn from them.

use std::sync::Arc;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::file::MixFile;
use crate::include::{MixTree, Parts, check_round, unknown_template};
use crate::list::{ListedRequest, RequestList};
use crate::template::{Message, Template, TemplateSource, Texts};
use crate::variable::Variable;
use crate::{MAX_CONTAINS_BYTES, MAX_RENDERED_BYTES, MAX_REQUESTS, MixError, fail};

/// A validated mix: some template has a weight above 0, names are unique, all variables are declared and used, and all
/// templates are valid requests with any values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mix {
    title: String,
    templates: Vec<Template>,
    variables: Vec<Variable>,
    lists: Vec<Arc<RequestList>>,
    rounds: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MixStep {
    /// Index of the template in the mix.
    pub template: usize,
    pub request: StepRequest,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepRequest {
    /// The template has no variables, so that its sample is sent.
    Sample,
    Message(Message),
    /// Position of a request in [`Mix::listed`].
    Listed(usize),
}

/// One request of a template.
#[derive(Debug)]
pub enum Sample<'a> {
    Message(Message),
    Listed(&'a ListedRequest),
}

impl Mix {
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Returns the templates, those of the file first, then those of each included mix.
    pub fn templates(&self) -> &[Template] {
        &self.templates
    }

    /// Returns one request of each template, with the first value of each variable (of a range, the smallest), or the
    /// first of a list.
    pub fn samples(&self) -> impl Iterator<Item = Sample<'_>> {
        let values = self.first_values();
        self.templates.iter().map(move |template| match &template.source {
            TemplateSource::Texts(texts) => Sample::Message(texts.message(&values)),
            TemplateSource::Listed { list, template, .. } => {
                let list = &self.lists[*list];
                Sample::Listed(&list.requests[list.first[*template as usize]])
            }
        })
    }

    /// Returns the samples of templates that are not of a list.
    pub fn messages(&self) -> impl Iterator<Item = Message> {
        self.samples().filter_map(|sample| match sample {
            Sample::Message(message) => Some(message),
            Sample::Listed(_) => None,
        })
    }

    /// Returns the requests of all lists, each with the index of its template.
    pub fn listed(&self) -> impl Iterator<Item = (usize, &ListedRequest)> {
        self.listed_with_weights().map(|(template, request, _)| (template, request))
    }

    /// Returns the requests of all lists, each with the index of its template and its weight in the mix.
    pub(crate) fn listed_with_weights(&self) -> impl Iterator<Item = (usize, &ListedRequest, u32)> {
        (0..).zip(&self.lists).flat_map(move |(number, list)| {
            // By template of the list: index in the mix, and factor.
            let mut places = vec![None; list.templates.len()];
            for (index, one) in self.templates.iter().enumerate() {
                if let TemplateSource::Listed { list, template, factor } = one.source
                    && list == number
                {
                    places[template as usize] = Some((index, factor));
                }
            }
            list.requests.iter().filter_map(move |request| {
                let (template, factor) = places[request.template as usize]?;
                Some((template, request, request.weight * factor))
            })
        })
    }

    /// Returns the list of the mix if it consists of a list alone, whose requests may be sent in their recorded order.
    pub fn list(&self) -> Option<&RequestList> {
        let [list] = &self.lists[..] else { return None };
        (self.templates.len() == list.templates.len()).then_some(list)
    }

    /// Returns a variable whose values come from responses, which only a replay has.
    pub fn response_variable(&self) -> Option<&str> {
        let mut variables = self.lists.iter().flat_map(|list| list.variables());
        variables.next().map(|variable| variable.name.as_str())
    }

    /// Draws the requests to send from a seed, in rounds. Each round contains every template as often as its weight and is
    /// shuffled by itself, so that scripts of different seeds differ in order and values but not in frequencies.
    ///
    /// A script has as many rounds as fit into 65,536 requests and, for requests with variables, 16 MiB. To send more,
    /// start again from its first request; counters then restart too.
    pub fn script(&self, seed: u64) -> impl Iterator<Item = MixStep> {
        let templates = (0..).zip(&self.templates).map(|(index, template)| {
            let weight = if template.texts().is_some() { template.weight } else { 0 };
            (index, weight)
        });
        let listed = (self.templates.len() as u32..).zip(self.listed_with_weights());
        let listed = listed.map(|(draw, (_, _, weight))| (draw, weight));
        let round: Vec<u32> = templates
            .chain(listed)
            .flat_map(|(draw, weight)| std::iter::repeat_n(draw, weight as usize))
            .collect();
        let listed = self.listed().map(|(template, _)| template as u32).collect();
        let mut value_rng = ChaCha8Rng::seed_from_u64(seed);
        // A different stream from the order's; otherwise the values would correlate with the shuffles.
        value_rng.set_stream(1);
        Script {
            mix: self,
            listed,
            position: round.len(),
            round,
            rounds_left: self.rounds,
            order_rng: ChaCha8Rng::seed_from_u64(seed),
            values: self.first_values(),
            used: vec![0; self.variables.len()],
            value_rng,
        }
    }

    /// Reduces the mix to the templates of these names. The script keeps its number of rounds.
    ///
    /// # Errors
    ///
    /// The mix has no template of a name, or all have weight 0.
    pub fn only(mut self, names: &[String]) -> Result<Self, MixError> {
        let is_known = |name: &&String| self.templates.iter().any(|known| known.name == **name);
        if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
            return Err(unknown_template(unknown, &self.templates));
        }
        self.templates.retain(|template| names.contains(&template.name));
        if self.templates.iter().any(|template| template.weight > 0) {
            Ok(self)
        } else {
            fail!("{WEIGHTS_ZERO}")
        }
    }

    fn first_values(&self) -> Vec<String> {
        self.variables.iter().map(Variable::first).collect()
    }
}

impl TryFrom<MixFile> for Mix {
    type Error = MixError;

    fn try_from(file: MixFile) -> Result<Self, MixError> {
        Self::try_from(&MixTree::File { file, included: Vec::new() })
    }
}

impl TryFrom<&MixTree> for Mix {
    type Error = MixError;

    fn try_from(tree: &MixTree) -> Result<Self, MixError> {
        let Parts { names, variables, templates, lists } = Parts::collect(tree)?;
        let round = check_round(&templates, &lists)?;
        let rounds = count_rounds(&templates, &names, &variables, round)?;
        Ok(Self { title: tree.title().to_owned(), templates, variables, lists, rounds })
    }
}

struct Script<'a> {
    mix: &'a Mix,
    /// Template of each request of a list.
    listed: Vec<u32>,
    /// Indices of templates, and behind them those of the requests of lists.
    round: Vec<u32>,
    rounds_left: usize,
    position: usize,
    order_rng: ChaCha8Rng,
    /// Latest values of the variables.
    values: Vec<String>,
    /// Number of requests so far with each variable.
    used: Vec<i64>,
    value_rng: ChaCha8Rng,
}

impl Iterator for Script<'_> {
    type Item = MixStep;

    fn next(&mut self) -> Option<MixStep> {
        if self.position == self.round.len() {
            self.rounds_left = self.rounds_left.checked_sub(1)?;
            self.round.shuffle(&mut self.order_rng);
            self.position = 0;
        }
        let index = self.round[self.position] as usize;
        self.position += 1;
        let Some(template) = self.mix.templates.get(index) else {
            let listed = index - self.mix.templates.len();
            let template = self.listed[listed] as usize;
            return Some(MixStep { template, request: StepRequest::Listed(listed) });
        };
        for &variable in &template.variables {
            let used = &mut self.used[variable];
            self.values[variable] = self.mix.variables[variable].draw(*used, &mut self.value_rng);
            *used += 1;
        }
        let request = match template.texts() {
            Some(texts) if !template.variables.is_empty() => {
                StepRequest::Message(texts.message(&self.values))
            }
            _ => StepRequest::Sample,
        };
        Some(MixStep { template: index, request })
    }
}

const WEIGHTS_ZERO: &str = "all templates have weight 0; give at least one a weight above 0";

/// Checks that all templates are valid requests. Returns the number of rounds in a script.
fn count_rounds(
    templates: &[Template],
    names: &[String],
    variables: &[Variable],
    round: u64,
) -> Result<usize, MixError> {
    if round == 0 {
        return fail!("{WEIGHTS_ZERO}");
    }
    let values = Candidates::new(names, variables);
    let mut round_bytes = 0;
    for template in templates {
        // The requests of a list are checked as they are read.
        let Some(texts) = template.texts() else { continue };
        let bytes = values.rendered_bytes_max(template, texts)?;
        if !template.variables.is_empty() {
            round_bytes += bytes * template.weight as usize;
        }
    }
    // Without variables only the number of requests is limited.
    match MAX_RENDERED_BYTES.checked_div(round_bytes).unwrap_or(MAX_REQUESTS) {
        0 => fail!(
            "templates with variables, each sent as often as its weight, take {round_bytes} bytes, but the limit is \
             {MAX_RENDERED_BYTES}; reduce weights or requests"
        ),
        rounds => Ok(rounds.min((MAX_REQUESTS / round as usize).max(1))),
    }
}

/// Values that decide the validity of a template. Variables are tried one at a time: a byte is allowed independently of
/// others, and lengths add up.
struct Candidates<'a> {
    names: &'a [String],
    values: Vec<Vec<String>>,
    shortest: Vec<String>,
    longest: Vec<String>,
}

impl<'a> Candidates<'a> {
    fn new(names: &'a [String], variables: &[Variable]) -> Self {
        let values: Vec<Vec<String>> = variables.iter().map(Variable::candidates).collect();
        let shortest = values.iter().flat_map(|texts| texts.iter().min_by_key(|t| t.len()));
        let longest = values.iter().flat_map(|texts| texts.iter().max_by_key(|t| t.len()));
        Self {
            names,
            shortest: shortest.cloned().collect(),
            longest: longest.cloned().collect(),
            values,
        }
    }

    /// Checks a template with all values. Returns the largest size of a request and of the text expected in its response.
    fn rendered_bytes_max(&self, template: &Template, texts: &Texts) -> Result<usize, MixError> {
        let mut bytes_max = self.rendered_bytes(template, texts, &self.longest)?;
        let mut values = self.longest.clone();
        for &variable in &template.variables {
            for value in &self.values[variable] {
                values[variable].clone_from(value);
                self.rendered_bytes(template, texts, &values)?;
            }
            values[variable].clone_from(&self.longest[variable]);
        }
        if let Some(text) = &texts.body_contains {
            for values in [&self.shortest, &self.longest] {
                let bytes = text.render(values).len();
                if !(1..=MAX_CONTAINS_BYTES).contains(&bytes) {
                    return fail!(
                        "template `{}`: `body_contains` can have {bytes} bytes; expected 1 to {MAX_CONTAINS_BYTES}",
                        template.name
                    );
                }
            }
            bytes_max += text.render(&self.longest).len();
        }
        Ok(bytes_max)
    }

    fn rendered_bytes(
        &self,
        template: &Template,
        texts: &Texts,
        values: &[String],
    ) -> Result<usize, MixError> {
        match texts.message(values).text().render() {
            Ok(message) => Ok(message.bytes().len()),
            Err(error) => {
                let values = self.describe(template, values);
                fail!("template `{}`{values}: {error}", template.name)
            }
        }
    }

    fn describe(&self, template: &Template, values: &[String]) -> String {
        let text = |index: &usize| {
            format!("`{}` = `{}`", self.names[*index], values[*index].escape_debug())
        };
        let texts: Vec<String> = template.variables.iter().map(text).collect();
        if texts.is_empty() { String::new() } else { format!(" with {}", texts.join(", ")) }
    }
}
