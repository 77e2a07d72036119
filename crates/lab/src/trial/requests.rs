//! The bytes of a subject's requests, and the answers that it owes them.

use crate::inputs::experiment::{Case, Experiment, Subject};
use crate::system::render::{self, RenderError};
use thiserror::Error;
use tollgate_load::{Expectation, Request};
use tollgate_traffic::{Class, Template};
use tollgate_wire::{RenderError as WireError, RequestText};

/// A mix as one subject gets it: one request a template, in the mix's order.
#[derive(Debug, Clone)]
pub struct Requests {
    /// The requests, with the answers that they are owed.
    pub requests: Vec<Request>,
    /// The status code that tells a blocked request.
    pub blocked_status: u16,
}

/// A mix that cannot be rendered for a subject.
#[derive(Debug, Error)]
pub enum RequestsError {
    /// The recipe's `blocks.when` is wrong.
    #[error(transparent)]
    Recipe(#[from] RenderError),
    /// A template is not a request.
    #[error("template `{template}` of mix {mix}")]
    Template {
        /// The template's name.
        template: String,
        /// The mix's file.
        mix: String,
        /// Why not.
        source: WireError,
    },
}

impl Requests {
    /// Renders a case's mix for a subject.
    ///
    /// # Errors
    ///
    /// A template that is not a valid request, or an expression of the recipe that is wrong.
    pub fn render(case: &Case, subject: &Subject) -> Result<Self, RequestsError> {
        let blocks = match &subject.recipe.file.blocks {
            Some(blocks) if render::holds(subject, &blocks.when)? => Some(blocks.status),
            Some(_) | None => None,
        };
        let mut requests = Vec::new();
        for (index, template) in case.mix.templates().iter().enumerate() {
            let bytes = bytes(template, &subject.prefix, case.load.keepalive);
            requests.push(Request {
                bytes: bytes.map_err(|source| RequestsError::Template {
                    template: template.name.clone(),
                    mix: case.mix_source.name.clone(),
                    source,
                })?,
                is_head: template.method == "HEAD",
                expect: expectation(template, blocks),
                template: index,
            });
        }
        let status = subject.recipe.file.blocks.as_ref().map(|blocks| blocks.status);
        Ok(Self { requests, blocked_status: status.unwrap_or(FORBIDDEN) })
    }
}

/// Renders every request of an experiment once, so that one that cannot be sent is told before
/// anything is started.
///
/// # Errors
///
/// A template is not a valid request.
pub fn check(experiment: &Experiment) -> Result<(), RequestsError> {
    for case in &experiment.cases {
        for subject in &experiment.subjects {
            match Requests::render(case, subject) {
                // A recipe that is wrong spoils its own subjects only, and is told of there.
                Ok(_) | Err(RequestsError::Recipe(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// What a WAF answers a blocked request with, as a rule.
const FORBIDDEN: u16 = 403;

fn bytes(template: &Template, prefix: &str, keepalive: bool) -> Result<Vec<u8>, WireError> {
    let mut headers = template.headers.clone();
    if !keepalive {
        headers.retain(|(name, _)| {
            !name.eq_ignore_ascii_case("connection") && !name.eq_ignore_ascii_case("keep-alive")
        });
        headers.push(("Connection".to_owned(), "close".to_owned()));
    }
    RequestText {
        method: &template.method,
        target: &format!("{prefix}{}", template.path),
        headers: &headers,
        body: template.body.as_bytes(),
    }
    .render()
}

fn expectation(template: &Template, blocks: Option<u16>) -> Expectation {
    match (template.class, blocks) {
        (Class::Malicious, Some(status)) => {
            Expectation { status: Some(status), body_bytes: None, body_contains: None }
        }
        (Class::Malicious | Class::Benign, _) => Expectation {
            status: Some(template.expect.status),
            body_bytes: template.expect.body_bytes,
            body_contains: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::catalog::Catalog;
    use crate::inputs::experiment::Adjustments;

    fn experiment(name: &str) -> Experiment {
        Experiment::load(&Catalog::new(vec![]), name, &Adjustments::default()).unwrap()
    }

    fn owed(experiment: &Experiment, subject: &str) -> Vec<Option<u16>> {
        let subject = experiment.subjects.iter().find(|s| s.name == subject).unwrap();
        let requests = Requests::render(&experiment.cases[0], subject).unwrap();
        requests.requests.iter().map(|request| request.expect.status).collect()
    }

    #[test]
    fn only_a_subject_that_blocks_owes_a_block() {
        let experiment = experiment("first-look");
        let through = [Some(200); 5];
        assert_eq!(owed(&experiment, "nginx"), through);
        assert_eq!(owed(&experiment, "direct"), through);
        assert_eq!(owed(&experiment, "light"), through);
        assert_eq!(
            owed(&experiment, "full"),
            [Some(200), Some(403), Some(403), Some(403), Some(403)]
        );
    }

    #[test]
    fn a_location_owes_what_it_says() {
        let experiment = experiment("modsecurity");
        assert_eq!(owed(&experiment, "off"), [Some(200); 2]);
        assert_eq!(owed(&experiment, "light"), [Some(200); 2]);
        assert_eq!(owed(&experiment, "full"), [Some(200), Some(403)]);
    }

    #[test]
    fn the_prefix_comes_before_the_path_and_close_replaces_keep_alive() {
        let experiment = experiment("modsecurity");
        let mut case = experiment.cases[0].clone();
        let text = |case: &Case| {
            let requests = Requests::render(case, &experiment.subjects[2]).unwrap();
            String::from_utf8(requests.requests[0].bytes.clone()).unwrap()
        };
        let kept = text(&case);
        assert!(
            kept.starts_with("GET /modsec-full/test.pl?param1=test&para2=test2 HTTP/1.1\r\nHost: "),
            "{kept}"
        );
        assert!(kept.contains("\r\nConnection: keep-alive\r\n"), "{kept}");
        case.load.keepalive = false;
        let closed = text(&case);
        assert!(
            closed.contains("\r\nConnection: close\r\n") && !closed.contains("eep-"),
            "{closed}"
        );
    }
}
