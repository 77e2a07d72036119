//! The probe: one request of each template, each with its expected response.
//!
//! A WAF that is not active is much faster and reports no error. A subject is measured only if it blocks the attacks
//! that its recipe says it blocks, and passes harmless requests.

use super::exchange::{ExchangeError, Reply, exchange};
use crate::interrupt::{Interrupt, Interrupted};
use std::net::SocketAddr;
use std::time::Duration;
use thiserror::Error;
use tollgate_experiment::record::ProbeResponse;
use tollgate_http1::Response;
use tollgate_load::{Expectation, Request};
use tollgate_traffic::{Class, Template};

#[derive(Debug, Error)]
#[error("request of template `{template}` failed")]
pub struct ProbeError {
    template: String,
    source: ExchangeError,
}

impl ProbeError {
    pub fn interrupted(&self) -> Option<Interrupted> {
        match self.source {
            ExchangeError::Interrupted(interrupted) => Some(interrupted),
            _ => None,
        }
    }
}

/// Sends one request of each template and compares the responses with the expected ones.
pub fn probe(
    address: SocketAddr,
    templates: &[Template],
    requests: &[Request],
    interrupt: &Interrupt,
) -> Result<Vec<ProbeResponse>, ProbeError> {
    let mut responses = Vec::new();
    for (template, request) in templates.iter().zip(requests) {
        let reply = exchange(address, request, TIMEOUT, interrupt)
            .map_err(|source| ProbeError { template: template.name.clone(), source })?;
        responses.push(compare(template, &request.expect, &reply));
    }
    Ok(responses)
}

const TIMEOUT: Duration = Duration::from_secs(10);

fn compare(template: &Template, expected: &Expectation, reply: &Reply) -> ProbeResponse {
    let Response { status, body_bytes, .. } = reply.response;
    let missing_text = if reply.has_text { "" } else { " without that text" };
    ProbeResponse {
        template: template.name.clone(),
        class: template.class,
        expected: expected.to_string(),
        actual: format!("{status} with {body_bytes} bytes{missing_text}"),
        as_expected: expected.accepts(reply.response, reply.has_text),
        passed: status == template.status,
    }
}

/// Returns why the subject is refused, or `None` if all responses are as expected.
pub fn refusal_reason(responses: &[ProbeResponse]) -> Option<String> {
    let of_class = |class| responses.iter().filter(move |answer| answer.class == class);
    let attacks = of_class(Class::Malicious).count();
    let (passed, unexpected): (Vec<&ProbeResponse>, Vec<&ProbeResponse>) =
        of_class(Class::Malicious)
            .filter(|answer| !answer.as_expected)
            .partition(|answer| answer.passed);
    let mut reasons = Vec::new();
    if !passed.is_empty() {
        reasons.push(format!("{} of {attacks} attacks passed", passed.len()));
    }
    for answer in unexpected {
        reasons.push(format!(
            "attack `{}`: got {}, expected {}",
            answer.template, answer.actual, answer.expected
        ));
    }
    for answer in of_class(Class::Benign).filter(|answer| !answer.as_expected) {
        reasons.push(format!(
            "harmless request `{}`: got {}, expected {}",
            answer.template, answer.actual, answer.expected
        ));
    }
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tollgate_traffic::{Mix, MixFile};

    fn answer(template: &str, class: Class, got: &str, as_expected: bool) -> ProbeResponse {
        ProbeResponse {
            template: template.to_owned(),
            class,
            expected: "403".to_owned(),
            actual: got.to_owned(),
            as_expected,
            passed: got.starts_with("200"),
        }
    }

    #[test]
    fn counts_attacks_that_pass() {
        let answers = [
            answer("browse", Class::Benign, "200 with 100 bytes", true),
            answer("xss", Class::Malicious, "200 with 100 bytes", false),
            answer("shell", Class::Malicious, "403 with 146 bytes", true),
        ];
        assert_eq!(refusal_reason(&answers).unwrap(), "1 of 2 attacks passed");
        assert_eq!(refusal_reason(&answers[..1]), None);
        let both =
            [answers[1].clone(), answer("shell", Class::Malicious, "500 with 9 bytes", false)];
        assert_eq!(
            refusal_reason(&both).unwrap(),
            "1 of 2 attacks passed; attack `shell`: got 500 with 9 bytes, expected 403"
        );
    }

    #[test]
    fn missing_text_is_unexpected() {
        let file: MixFile = toml::from_str(
            "title = 'a'\nheaders = ['Host: a']\n
            [[template]]\nname = 'page'\nclass = 'benign'\nweight = 1\npath = '/'",
        )
        .unwrap();
        let mix = Mix::try_from(file).unwrap();
        let expected = Expectation {
            status: Some(200),
            body_bytes: None,
            body_contains: Some(Arc::from(*b"welcome")),
            or_status: None,
        };
        let response = Response { status: 200, body_bytes: 5, keep_alive: true };
        let compare =
            |has_text| compare(&mix.templates()[0], &expected, &Reply { response, has_text });
        assert!(compare(true).as_expected);
        assert_eq!(
            refusal_reason(&[compare(false)]).unwrap(),
            "harmless request `page`: got 200 with 5 bytes without that text, expected 200 with `welcome` in the body"
        );
    }

    #[test]
    fn unexpected_response_names_the_harmless_request() {
        let answers = [answer("browse", Class::Benign, "500 with 9 bytes", false)];
        assert_eq!(
            refusal_reason(&answers).unwrap(),
            "harmless request `browse`: got 500 with 9 bytes, expected 403"
        );
    }
}
