//! The probe: one request of each template, and every answer has to be the one that is owed.
//!
//! A WAF that is not really on is much faster than one that is, and says nothing about it. So a
//! subject is measured only after it has blocked what it says that it blocks and let the rest
//! through.

use super::exchange::{ExchangeError, Reply, exchange};
use crate::interrupt::{Interrupt, Interrupted};
use crate::record::ProbeAnswer;
use std::net::SocketAddr;
use std::time::Duration;
use thiserror::Error;
use tollgate_load::{Expectation, Request};
use tollgate_traffic::{Class, Template};
use tollgate_wire::Answer;

/// A request of the probe that got no answer.
#[derive(Debug, Error)]
#[error("template `{template}`")]
pub struct ProbeError {
    template: String,
    source: ExchangeError,
}

impl ProbeError {
    /// The wish to stop, when that is what ended the probe.
    pub fn interrupted(&self) -> Option<Interrupted> {
        match self.source {
            ExchangeError::Interrupted(interrupted) => Some(interrupted),
            _ => None,
        }
    }
}

/// Sends one request of each template, and compares each answer with the one owed.
///
/// # Errors
///
/// A request got no answer.
pub fn probe(
    address: SocketAddr,
    templates: &[Template],
    requests: &[Request],
    interrupt: &Interrupt,
) -> Result<Vec<ProbeAnswer>, ProbeError> {
    let mut answers = Vec::new();
    for (template, request) in templates.iter().zip(requests) {
        let reply = exchange(address, request, LIMIT, interrupt)
            .map_err(|source| ProbeError { template: template.name.clone(), source })?;
        answers.push(compare(template, &request.expect, &reply));
    }
    Ok(answers)
}

/// How long a system may take for one request of the probe.
const LIMIT: Duration = Duration::from_secs(10);

fn compare(template: &Template, owed: &Expectation, reply: &Reply) -> ProbeAnswer {
    let Answer { status, body_bytes, .. } = reply.answer;
    let lack = if reply.has_text { "" } else { " without that text" };
    ProbeAnswer {
        template: template.name.clone(),
        class: template.class,
        expected: owed.to_string(),
        got: format!("{status} with {body_bytes} bytes{lack}"),
        as_expected: owed.accepts(reply.answer, reply.has_text),
        let_through: status == template.status,
    }
}

/// Why the subject is refused, in one line; none when every answer was the one owed.
pub fn reason(answers: &[ProbeAnswer]) -> Option<String> {
    let of_class = |class| answers.iter().filter(move |answer| answer.class == class);
    let attacks = of_class(Class::Malicious).count();
    let (passed, odd): (Vec<&ProbeAnswer>, Vec<&ProbeAnswer>) = of_class(Class::Malicious)
        .filter(|answer| !answer.as_expected)
        .partition(|answer| answer.let_through);
    let mut reasons = Vec::new();
    if !passed.is_empty() {
        reasons.push(format!("{} of {attacks} attacks were let through", passed.len()));
    }
    for answer in odd {
        reasons.push(format!(
            "the attack `{}` was answered {}, not {}",
            answer.template, answer.got, answer.expected
        ));
    }
    for answer in of_class(Class::Benign).filter(|answer| !answer.as_expected) {
        reasons.push(format!(
            "the harmless request `{}` was answered {}, not {}",
            answer.template, answer.got, answer.expected
        ));
    }
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tollgate_traffic::{Mix, MixFile};

    fn answer(template: &str, class: Class, got: &str, as_expected: bool) -> ProbeAnswer {
        ProbeAnswer {
            template: template.to_owned(),
            class,
            expected: "403".to_owned(),
            got: got.to_owned(),
            as_expected,
            let_through: got.starts_with("200"),
        }
    }

    #[test]
    fn attacks_that_pass_are_counted() {
        let answers = [
            answer("browse", Class::Benign, "200 with 100 bytes", true),
            answer("xss", Class::Malicious, "200 with 100 bytes", false),
            answer("shell", Class::Malicious, "403 with 146 bytes", true),
        ];
        assert_eq!(reason(&answers).unwrap(), "1 of 2 attacks were let through");
        assert_eq!(reason(&answers[..1]), None);
        let odd =
            [answers[1].clone(), answer("shell", Class::Malicious, "500 with 9 bytes", false)];
        assert_eq!(
            reason(&odd).unwrap(),
            "1 of 2 attacks were let through; the attack `shell` was answered 500 with 9 bytes, not 403"
        );
    }

    #[test]
    fn an_answer_without_the_text_is_not_the_one_owed() {
        let file: MixFile = toml::from_str(
            "title = 'a'\nheaders = ['Host: a']\n
            [[template]]\nname = 'page'\nclass = 'benign'\nweight = 1\npath = '/'",
        )
        .unwrap();
        let mix = Mix::try_from(file).unwrap();
        let owed = Expectation {
            status: Some(200),
            body_bytes: None,
            body_contains: Some(Arc::from(*b"welcome")),
            or_status: None,
        };
        let answer = Answer { status: 200, body_bytes: 5, keep_alive: true };
        let compare = |has_text| compare(&mix.templates()[0], &owed, &Reply { answer, has_text });
        assert!(compare(true).as_expected);
        assert_eq!(
            reason(&[compare(false)]).unwrap(),
            "the harmless request `page` was answered 200 with 5 bytes without that text, not 200 with `welcome` in the body"
        );
    }

    #[test]
    fn a_false_alarm_names_the_request() {
        let answers = [answer("browse", Class::Benign, "500 with 9 bytes", false)];
        assert_eq!(
            reason(&answers).unwrap(),
            "the harmless request `browse` was answered 500 with 9 bytes, not 403"
        );
    }
}
