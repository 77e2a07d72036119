//! Whether a mix can be sent, with whatever values its variables take.

use super::MAX_DECK;
use crate::error::MixError;
use crate::script::{MAX_RENDERED_BYTES, MAX_SENDS};
use crate::template::{MAX_CONTAINS_BYTES, Template};
use crate::text::Names;
use crate::variable::Variable;

/// Checks that every variable of a file is used by one of its templates.
pub(super) fn all_used(templates: &[Template], names: &Names<'_>) -> Result<(), MixError> {
    let is_unused = |(index, _): &(usize, &String)| {
        !templates.iter().any(|template| template.variables.contains(&(names.first + index)))
    };
    match names.own.iter().enumerate().find(is_unused) {
        Some((_, name)) => Err(MixError::Unused(name.clone())),
        None => Ok(()),
    }
}

/// Checks that every template is a request, and says how many decks a script can have.
pub(super) fn decks(
    templates: &[Template],
    names: &[String],
    variables: &[Variable],
) -> Result<usize, MixError> {
    let deck: u64 = templates.iter().map(|template| u64::from(template.weight)).sum();
    if deck == 0 {
        return Err(MixError::NothingSent);
    }
    if deck > MAX_DECK {
        return Err(MixError::DeckTooLarge(deck));
    }
    let values = Values::of(names, variables);
    let mut deck_bytes = 0;
    for template in templates {
        let bytes = values.rendered_bytes_max(template)?;
        if !template.variables.is_empty() {
            deck_bytes += bytes * template.weight as usize;
        }
    }
    // Without variables there is nothing to render one by one, and the sends alone are the limit.
    match MAX_RENDERED_BYTES.checked_div(deck_bytes).unwrap_or(MAX_SENDS) {
        0 => Err(MixError::RenderedTooLarge(deck_bytes)),
        decks => Ok(decks.min(MAX_SENDS / deck as usize)),
    }
}

/// The values that decide whether a template is a request. Variables are looked at one at a time:
/// whether a byte may stand in a place depends on no other, and lengths add up.
struct Values<'a> {
    names: &'a [String],
    /// Those of each variable.
    candidates: Vec<Vec<String>>,
    shortest: Vec<String>,
    longest: Vec<String>,
}

impl<'a> Values<'a> {
    fn of(names: &'a [String], variables: &[Variable]) -> Self {
        let candidates: Vec<Vec<String>> = variables.iter().map(Variable::candidates).collect();
        let shortest = candidates.iter().flat_map(|texts| texts.iter().min_by_key(|t| t.len()));
        let longest = candidates.iter().flat_map(|texts| texts.iter().max_by_key(|t| t.len()));
        Self {
            names,
            shortest: shortest.cloned().collect(),
            longest: longest.cloned().collect(),
            candidates,
        }
    }

    /// Checks a template with all values, and says how many bytes a request of it and the text that
    /// is looked for in its answer can have.
    fn rendered_bytes_max(&self, template: &Template) -> Result<usize, MixError> {
        let mut bytes_max = self.rendered_bytes(template, &self.longest)?;
        let mut values = self.longest.clone();
        for &variable in &template.variables {
            for candidate in &self.candidates[variable] {
                values[variable].clone_from(candidate);
                self.rendered_bytes(template, &values)?;
            }
            values[variable].clone_from(&self.longest[variable]);
        }
        if let Some(text) = &template.body_contains {
            for values in [&self.shortest, &self.longest] {
                let bytes = text.render(values).len();
                if !(1..=MAX_CONTAINS_BYTES).contains(&bytes) {
                    return Err(MixError::Contains { template: template.name.clone(), bytes });
                }
            }
            bytes_max += text.render(&self.longest).len();
        }
        Ok(bytes_max)
    }

    fn rendered_bytes(&self, template: &Template, values: &[String]) -> Result<usize, MixError> {
        match template.message(values).text().render() {
            Ok(bytes) => Ok(bytes.len()),
            Err(source) => Err(MixError::NoRequest {
                template: template.name.clone(),
                values: self.in_words(template, values),
                source,
            }),
        }
    }

    fn in_words(&self, template: &Template, values: &[String]) -> String {
        let word = |index: &usize| {
            format!("`{}` = `{}`", self.names[*index], values[*index].escape_debug())
        };
        let words: Vec<String> = template.variables.iter().map(word).collect();
        match words.is_empty() {
            true => String::new(),
            false => format!(" with {}", words.join(", ")),
        }
    }
}
