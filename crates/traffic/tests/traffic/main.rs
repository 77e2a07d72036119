//! The crate from outside: mixes as people write them in, hand-derived requests out.

#![expect(clippy::unwrap_used, reason = "helpers of tests are as free to panic as tests")]

// What the requests of a mix say: headers, variables, samples.
mod messages;
// Mixes that are made of others.
mod includes;
// The order and the bounds of a script.
mod script;
// What is refused, and in which words.
mod refusals;

use tollgate_traffic::{Message, Mix, MixError, MixFile};

/// A mix from the TOML after its title and its `Host`.
fn parse(text: &str) -> Result<Mix, MixError> {
    let text = format!("title = 'test'\nheaders = ['Host: shop.example']\n{text}");
    Mix::try_from(toml::from_str::<MixFile>(&text).unwrap())
}

/// What the first `count` requests of a mix of templates with variables say.
fn sent(mix: &Mix, seed: u64, count: usize) -> Vec<Message> {
    mix.script(seed).take(count).map(|step| step.message.unwrap()).collect()
}
