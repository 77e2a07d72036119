//! A mix: weighted templates, and the seeded order in which they are sent.

use crate::template::{Template, TemplateFile};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use schemars::JsonSchema;
use serde::Deserialize;
use thiserror::Error;

/// A mix as its TOML file writes it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MixFile {
    /// One line that says what this traffic stands for.
    pub title: String,
    /// Headers as `Name: value` lines that every template sends first.
    #[serde(default)]
    pub headers: Vec<String>,
    /// The request templates.
    pub template: Vec<TemplateFile>,
}

/// A mix whose parts have been checked: at least one template is sent, names are unique, every
/// header has a name, every target is a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mix {
    title: String,
    templates: Vec<Template>,
}

/// What is wrong with a mix.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum MixError {
    /// Nothing would be sent.
    #[error("every template has weight 0, so nothing would be sent; give one a weight above 0")]
    NothingSent,
    /// The weights are too large to shuffle as one deck.
    #[error("the weights add up to {0}, the limit is {MAX_DECK}; divide them by a common factor")]
    DeckTooLarge(u64),
    /// Two templates share a name.
    #[error("two templates are named `{0}`; figures are reported by name, so rename one")]
    DuplicateName(String),
    /// A target is not a path.
    #[error("template `{template}`: the path `{path}` does not start with `/`")]
    NotAPath {
        /// The template's name.
        template: String,
        /// The path as written.
        path: String,
    },
    /// A header line has no colon or no name.
    #[error("the header line `{0}` is not of the form `Name: value`")]
    BadHeader(String),
}

impl Mix {
    /// One line that says what this traffic stands for.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The templates in the order of the file; the order returned by [`Mix::order`] indexes them.
    pub fn templates(&self) -> &[Template] {
        &self.templates
    }

    /// The indices of the templates in the order in which they are sent: `decks` decks, each with
    /// every template as often as its weight says, each shuffled apart. Any whole number of decks
    /// holds the exact proportions, so two trials differ in order but never in what they sent.
    pub fn order(&self, seed: u64, decks: usize) -> Vec<u32> {
        let mut deck: Vec<u32> = Vec::new();
        for (index, template) in (0..).zip(&self.templates) {
            deck.extend(std::iter::repeat_n(index, template.weight as usize));
        }
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut order = Vec::with_capacity(deck.len() * decks);
        for _ in 0..decks {
            deck.shuffle(&mut rng);
            order.extend_from_slice(&deck);
        }
        order
    }
}

impl TryFrom<MixFile> for Mix {
    type Error = MixError;

    fn try_from(file: MixFile) -> Result<Self, MixError> {
        let shared = parse_headers(&file.headers)?;
        let mut templates: Vec<Template> = Vec::with_capacity(file.template.len());
        for raw in file.template {
            if templates.iter().any(|known| known.name == raw.name) {
                return Err(MixError::DuplicateName(raw.name));
            }
            if !raw.path.starts_with('/') {
                return Err(MixError::NotAPath { template: raw.name, path: raw.path });
            }
            let mut headers = shared.clone();
            headers.extend(parse_headers(&raw.headers)?);
            templates.push(Template {
                name: raw.name,
                class: raw.class,
                weight: raw.weight,
                method: raw.method,
                path: raw.path,
                headers,
                body: raw.body,
                expect: raw.expect,
            });
        }
        let deck: u64 = templates.iter().map(|t| u64::from(t.weight)).sum();
        if deck == 0 {
            return Err(MixError::NothingSent);
        }
        if deck > MAX_DECK {
            return Err(MixError::DeckTooLarge(deck));
        }
        Ok(Self { title: file.title, templates })
    }
}

/// The largest sum of weights: a deck is held in memory and shuffled whole.
const MAX_DECK: u64 = 10_000;

fn parse_headers(lines: &[String]) -> Result<Vec<(String, String)>, MixError> {
    lines
        .iter()
        .map(|line| match line.split_once(':') {
            Some((name, value)) if !name.is_empty() => {
                Ok((name.to_owned(), value.trim().to_owned()))
            }
            _ => Err(MixError::BadHeader(line.clone())),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::{Class, Expect};
    use proptest::prelude::*;

    fn template(name: &str, weight: u32) -> TemplateFile {
        TemplateFile {
            name: name.to_owned(),
            class: Class::Benign,
            weight,
            method: "GET".to_owned(),
            path: "/".to_owned(),
            headers: vec![],
            body: String::new(),
            expect: Expect::default(),
        }
    }

    fn file(templates: Vec<TemplateFile>) -> MixFile {
        MixFile {
            title: "test".to_owned(),
            headers: vec!["Host: shop.example".to_owned()],
            template: templates,
        }
    }

    #[test]
    fn headers_of_the_mix_come_before_those_of_the_template() {
        let mut one = template("one", 1);
        one.headers = vec!["X-Token:  a:b ".to_owned()];
        let mix = Mix::try_from(file(vec![one])).unwrap();
        assert_eq!(
            mix.templates()[0].headers,
            [
                ("Host".to_owned(), "shop.example".to_owned()),
                ("X-Token".to_owned(), "a:b".to_owned())
            ]
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(Mix::try_from(file(vec![template("a", 0)])), Err(MixError::NothingSent));
        assert_eq!(
            Mix::try_from(file(vec![template("a", 1), template("a", 1)])),
            Err(MixError::DuplicateName("a".to_owned()))
        );
        assert_eq!(
            Mix::try_from(file(vec![template("a", 10_001)])),
            Err(MixError::DeckTooLarge(10_001))
        );
        let mut relative = template("a", 1);
        relative.path = "index.html".to_owned();
        assert!(matches!(Mix::try_from(file(vec![relative])), Err(MixError::NotAPath { .. })));
        let mut headless = template("a", 1);
        headless.headers = vec![": value".to_owned()];
        assert_eq!(
            Mix::try_from(file(vec![headless])),
            Err(MixError::BadHeader(": value".to_owned()))
        );
    }

    #[test]
    fn another_seed_gives_another_order() {
        let mix = Mix::try_from(file(vec![template("a", 30), template("b", 10)])).unwrap();
        assert_eq!(mix.order(7, 4), mix.order(7, 4));
        assert_ne!(mix.order(7, 4), mix.order(8, 4));
    }

    proptest! {
        #[test]
        fn every_deck_holds_the_exact_proportions(weights in prop::collection::vec(0u32..20, 1..6), seed: u64, decks in 1usize..5) {
            prop_assume!(weights.iter().sum::<u32>() > 0);
            let templates = weights.iter().enumerate().map(|(i, w)| template(&format!("t{i}"), *w)).collect();
            let order = Mix::try_from(file(templates)).unwrap().order(seed, decks);
            let deck: usize = weights.iter().sum::<u32>() as usize;
            prop_assert_eq!(order.len(), deck * decks);
            for cards in order.chunks(deck) {
                for (index, weight) in weights.iter().enumerate() {
                    let dealt = cards.iter().filter(|card| **card as usize == index).count();
                    prop_assert_eq!(dealt, *weight as usize);
                }
            }
        }
    }
}
