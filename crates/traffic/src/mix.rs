//! Mixes, and the scripts of requests drawn from them.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::file::MixFile;
use crate::include::{MixTree, Parts, unknown_template, weights_too_large};
use crate::template::{Message, Template};
use crate::variable::Variable;
use crate::{MAX_CONTAINS_BYTES, MAX_RENDERED_BYTES, MAX_REQUESTS, MAX_ROUND};
use crate::{MixError, fail};

/// A validated mix: some template has a weight above 0, names are unique, all variables are declared and used, and all
/// templates are valid requests with any values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mix {
    title: String,
    templates: Vec<Template>,
    variables: Vec<Variable>,
    /// Rounds of a script.
    rounds: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Index of the template in the mix.
    pub template: usize,
    /// The request; `None` if the template has no variables, so that its sample is sent.
    pub message: Option<Message>,
}

impl Mix {
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Returns the templates, those of the file first, then those of each included mix.
    pub fn templates(&self) -> &[Template] {
        &self.templates
    }

    /// Returns one request of each template, with the first value of each variable (of a range, the smallest).
    pub fn samples(&self) -> impl Iterator<Item = Message> {
        let values = self.first_values();
        self.templates.iter().map(move |template| template.message(&values))
    }

    /// Draws the requests to send from a seed, in rounds. Each round contains every template as often as its weight and is
    /// shuffled by itself, so that scripts of different seeds differ in order and values but not in frequencies.
    ///
    /// A script has as many rounds as fit into 65,536 requests and, for requests with variables, 16 MiB. To send more,
    /// start again from its first request; counters then restart too.
    pub fn script(&self, seed: u64) -> impl Iterator<Item = Step> {
        let indices = (0..).zip(&self.templates);
        let round: Vec<usize> = indices
            .flat_map(|(index, template)| std::iter::repeat_n(index, template.weight as usize))
            .collect();
        let mut value_rng = ChaCha8Rng::seed_from_u64(seed);
        // A different stream from the order's; otherwise the values would correlate with the shuffles.
        value_rng.set_stream(1);
        Script {
            mix: self,
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
        match self.templates.iter().any(|template| template.weight > 0) {
            true => Ok(self),
            false => fail!("{WEIGHTS_ZERO}"),
        }
    }

    fn first_values(&self) -> Vec<String> {
        self.variables.iter().map(Variable::first).collect()
    }
}

impl TryFrom<MixFile> for Mix {
    type Error = MixError;

    fn try_from(file: MixFile) -> Result<Self, MixError> {
        Self::try_from(&MixTree { file, included: Vec::new() })
    }
}

impl TryFrom<&MixTree> for Mix {
    type Error = MixError;

    fn try_from(tree: &MixTree) -> Result<Self, MixError> {
        let Parts { names, variables, templates } = Parts::collect(tree)?;
        let rounds = count_rounds(&templates, &names, &variables)?;
        Ok(Self { title: tree.file.title.clone(), templates, variables, rounds })
    }
}

struct Script<'a> {
    mix: &'a Mix,
    /// Indices of templates.
    round: Vec<usize>,
    /// Rounds after this one.
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
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.position == self.round.len() {
            self.rounds_left = self.rounds_left.checked_sub(1)?;
            self.round.shuffle(&mut self.order_rng);
            self.position = 0;
        }
        let index = self.round[self.position];
        self.position += 1;
        let template = &self.mix.templates[index];
        for &variable in &template.variables {
            let used = &mut self.used[variable];
            self.values[variable] = self.mix.variables[variable].draw(*used, &mut self.value_rng);
            *used += 1;
        }
        let has_variables = !template.variables.is_empty();
        let message = has_variables.then(|| template.message(&self.values));
        Some(Step { template: index, message })
    }
}

const WEIGHTS_ZERO: &str = "all templates have weight 0; give at least one a weight above 0";

/// Checks that all templates are valid requests. Returns the number of rounds in a script.
fn count_rounds(
    templates: &[Template],
    names: &[String],
    variables: &[Variable],
) -> Result<usize, MixError> {
    let round: u64 = templates.iter().map(|template| u64::from(template.weight)).sum();
    if round == 0 {
        return fail!("{WEIGHTS_ZERO}");
    }
    if round > MAX_ROUND {
        return Err(weights_too_large(round));
    }
    let values = Candidates::new(names, variables);
    let mut round_bytes = 0;
    for template in templates {
        let bytes = values.rendered_bytes_max(template)?;
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
        rounds => Ok(rounds.min(MAX_REQUESTS / round as usize)),
    }
}

/// Values that decide the validity of a template. Variables are tried one at a time: a byte is allowed independently of
/// others, and lengths add up.
struct Candidates<'a> {
    names: &'a [String],
    /// Values of each variable.
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
    fn rendered_bytes_max(&self, template: &Template) -> Result<usize, MixError> {
        let mut bytes_max = self.rendered_bytes(template, &self.longest)?;
        let mut values = self.longest.clone();
        for &variable in &template.variables {
            for value in &self.values[variable] {
                values[variable].clone_from(value);
                self.rendered_bytes(template, &values)?;
            }
            values[variable].clone_from(&self.longest[variable]);
        }
        if let Some(text) = &template.body_contains {
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

    fn rendered_bytes(&self, template: &Template, values: &[String]) -> Result<usize, MixError> {
        match template.message(values).text().render() {
            Ok(bytes) => Ok(bytes.len()),
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
        match texts.is_empty() {
            true => String::new(),
            false => format!(" with {}", texts.join(", ")),
        }
    }
}
