//! Tests by mixes in TOML and requests derived by hand.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

// Errors and their messages.
mod errors;
// Mixes that include others.
mod includes;
// Lists of requests, alone and included.
mod lists;
// Requests of a mix: headers, bodies, variables, samples, scripts.
mod requests;

use tollgate_traffic::{Message, Mix, MixError, MixFile, StepRequest};

fn file(text: &str) -> MixFile {
    toml::from_str(&format!("title = 'test'\n{text}")).unwrap()
}

/// Parses a mix from TOML without its title and `Host`.
fn parse(text: &str) -> Result<Mix, MixError> {
    let text = format!("title = 'test'\nheaders = ['Host: shop.example']\n{text}");
    Mix::try_from(toml::from_str::<MixFile>(&text).unwrap())
}

fn message(request: StepRequest) -> Message {
    match request {
        StepRequest::Message(message) => message,
        StepRequest::Sample | StepRequest::Listed(_) => panic!("{request:?}"),
    }
}

/// Returns the first `count` requests of a mix whose templates have variables.
fn sent(mix: &Mix, seed: u64, count: usize) -> Vec<Message> {
    mix.script(seed).take(count).map(|step| message(step.request)).collect()
}
