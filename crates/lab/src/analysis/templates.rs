//! What a subject answered to each template of the mix: what it blocked, and what it let through.

use crate::record::Measurement;
use schemars::JsonSchema;
use serde::Serialize;
use tollgate_traffic::Class;

/// The answers to one template, over all measured trials of a subject: what a trial that does not
/// count was answered counts here, as it does in the shares of attacks and harmless requests blocked. A trial
/// in which a process died is left out of all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TemplateFigures {
    /// The template.
    pub name: String,
    /// Whether it should be let through.
    pub class: Class,
    /// Which requests of its class it is one of, where the mix says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// Requests that were answered, whatever the answer was.
    pub answered: u64,
    /// Those of them with the status code that the subject blocks with.
    pub blocked: u64,
    /// The others.
    pub let_through: u64,
    /// Answers other than the expected one, be they blocked or let through.
    pub unexpected: u64,
}

/// The templates in the order of the mix.
pub(super) fn figures(measured: &[&Measurement]) -> Vec<TemplateFigures> {
    let mut all: Vec<TemplateFigures> = Vec::new();
    for record in measured.iter().flat_map(|measurement| &measurement.templates) {
        let answered: u64 = record.statuses.values().sum();
        let blocked = record.blocked.min(answered);
        let known = all.iter_mut().find(|one| one.name == record.name && one.class == record.class);
        match known {
            Some(one) => {
                one.answered += answered;
                one.blocked += blocked;
                one.let_through += answered - blocked;
                one.unexpected += record.unexpected;
            }
            None => all.push(TemplateFigures {
                name: record.name.clone(),
                class: record.class,
                family: record.family.clone(),
                answered,
                blocked,
                let_through: answered - blocked,
                unexpected: record.unexpected,
            }),
        }
    }
    all
}
