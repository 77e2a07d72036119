//! What a subject answered to each template of the mix: what it blocked, what it let through, and what it
//! answered in neither way.

use crate::record::{Fates, Measurement};
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
    /// Those with the status code of a request that nothing blocks.
    pub let_through: u64,
    /// The others: an error of the system's, or a refusal that is not its block. They are no catch, no miss and
    /// no false alarm.
    pub other: u64,
    /// Answers other than the expected one, be they blocked or let through.
    pub unexpected: u64,
}

impl TemplateFigures {
    /// Requests of which the answer tells whether they were blocked.
    pub fn told(&self) -> u64 {
        self.blocked + self.let_through
    }
}

/// The templates in the order of the mix.
pub(super) fn figures(measured: &[&Measurement]) -> Vec<TemplateFigures> {
    let mut all: Vec<TemplateFigures> = Vec::new();
    for record in measured.iter().flat_map(|measurement| &measurement.templates) {
        let answered: u64 = record.statuses.values().sum();
        let Fates { blocked, let_through, other } = record.fates();
        let known = all.iter_mut().find(|one| one.name == record.name && one.class == record.class);
        match known {
            Some(one) => {
                one.answered += answered;
                one.blocked += blocked;
                one.let_through += let_through;
                one.other += other;
                one.unexpected += record.unexpected;
            }
            None => all.push(TemplateFigures {
                name: record.name.clone(),
                class: record.class,
                family: record.family.clone(),
                answered,
                blocked,
                let_through,
                other,
                unexpected: record.unexpected,
            }),
        }
    }
    all
}
