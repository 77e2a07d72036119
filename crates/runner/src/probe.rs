//! The probe: one request of each template, each with its expected response; and attacks that must be detected.
//!
//! A WAF that is not active is much faster and reports no error. A subject is measured only if it blocks the attacks
//! that its recipe says it blocks, and passes benign requests. If it detects attacks without blocking them, its own
//! counter of detections must increase with each attack.

pub mod exchange;
pub mod requests;

use crate::process::{Interrupt, Interrupted};
use crate::system::render;
use anyhow::{Context, bail};
use exchange::{Reply, Site, exchange, exchange_with_body, get};
use requests::Requests;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tollgate_experiment::experiment::Subject;
use tollgate_experiment::recipe::DetectionLog;
use tollgate_http1::Response;
use tollgate_load::{Expectation, Request};
use tollgate_records::trial::{ProbeOutcome, ProbeResponse};
use tollgate_traffic::{Class, Template};

/// Sends one request of each template and compares the responses with the expected ones. The error may be
/// [`Interrupted`](crate::process::Interrupted).
pub(crate) fn probe(
    site: &Site,
    templates: &[Template],
    requests: &Requests<'_>,
    interrupt: &Interrupt,
) -> anyhow::Result<Vec<ProbeResponse>> {
    let mut responses = Vec::new();
    for (template, request) in templates.iter().zip(&requests.samples) {
        let reply = exchange(site, request, TIMEOUT, interrupt)
            .with_context(|| format!("request of template `{}` failed", template.name))?;
        responses.push(compare(template, &request.expect, requests.blocked_status, &reply));
    }
    Ok(responses)
}

/// Sends the requests of a corpus, each with the status code of its response if nothing blocks it, and returns the verdict on
/// each. A request without a response has none: servers close the connection on some malformed ones. The error may be
/// [`Interrupted`].
///
/// # Errors
///
/// Too many requests in a row got no response.
pub(crate) fn verdicts(
    site: &Site,
    requests: &[(Request, Option<u16>)],
    blocked_status: u16,
    interrupt: &Interrupt,
) -> anyhow::Result<String> {
    let mut unanswered = 0;
    let mut verdict = |(request, passed): &(Request, Option<u16>)| match exchange(
        site,
        request,
        CORPUS_TIMEOUT,
        interrupt,
    ) {
        Ok(reply) => {
            unanswered = 0;
            let status = reply.response.status;
            Ok(ProbeOutcome::of(status, blocked_status, *passed).letter())
        }
        Err(error) if error.is::<Interrupted>() => Err(error),
        Err(error) => {
            unanswered += 1;
            if unanswered == UNANSWERED_MAX {
                let what =
                    format!("{UNANSWERED_MAX} requests of the corpus in a row got no response");
                return Err(error.context(what));
            }
            Ok(ProbeOutcome::Other.letter())
        }
    };
    requests.iter().map(&mut verdict).collect()
}

/// Limit of requests without a response in a row, which bounds the time on a server that does not respond to five minutes.
const UNANSWERED_MAX: usize = 100;

/// Timeout of a request of a corpus: short, because a server may ignore many of them.
const CORPUS_TIMEOUT: Duration = Duration::from_secs(3);

fn compare(
    template: &Template,
    expected: &Expectation,
    blocked_status: u16,
    reply: &Reply,
) -> ProbeResponse {
    let Response { status, body_bytes, .. } = reply.response;
    let missing_text = if reply.has_text { "" } else { " without that text" };
    ProbeResponse {
        template: template.name.clone(),
        class: template.class,
        expected: expected.to_string(),
        actual: format!("{status} with {body_bytes} bytes{missing_text}"),
        as_expected: expected.accepts(reply.response, reply.has_text),
        outcome: ProbeOutcome::of(status, blocked_status, template.status),
    }
}

/// Returns why a subject with the user's own configuration is refused: none of its responses shows that it forwards.
pub(crate) fn blocks_everything(
    responses: &[ProbeResponse],
    blocked_status: u16,
) -> Option<String> {
    let mut benign = responses.iter().filter(|response| response.class == Class::Benign).peekable();
    let is_any = benign.peek().is_some();
    (is_any && benign.all(|response| response.outcome == ProbeOutcome::Blocked))
        .then(|| format!("its configuration responds {blocked_status} to every benign request"))
}

/// Returns why the subject is refused, or `None` if all responses are as expected. `samples` are the requests of the
/// responses.
pub(crate) fn refusal_reason(
    responses: &[ProbeResponse],
    samples: &[Request],
    blocked_status: u16,
) -> Option<String> {
    let is_attack = |response: &ProbeResponse| response.class == Class::Malicious;
    let must_block = |(response, sample): &(&ProbeResponse, &Request)| {
        is_attack(response) && sample.expect.status == Some(blocked_status)
    };
    let all = || responses.iter().zip(samples);
    let attacks = all().filter(must_block).count();
    let (passed, mut others): (Vec<_>, Vec<_>) = all()
        .filter(|(response, _)| !response.as_expected)
        .partition(|both| must_block(both) && both.0.outcome == ProbeOutcome::Passed);
    others.sort_by_key(|(response, _)| !is_attack(response));
    let mut reasons = Vec::new();
    if !passed.is_empty() {
        reasons.push(format!("{} of {attacks} attacks passed", passed.len()));
    }
    for (response, _) in others.iter().take(NAMED_MAX) {
        let kind = if is_attack(response) { "attack" } else { "benign request" };
        let ProbeResponse { template, actual, expected, .. } = response;
        reasons.push(format!("{kind} `{template}`: got {actual}, expected {expected}"));
    }
    if others.len() > NAMED_MAX {
        reasons.push(format!("{} more unexpected responses", others.len() - NAMED_MAX));
    }
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// Maximum number of responses that a refusal names.
const NAMED_MAX: usize = 10;

/// Returns a hint if a template expects the status with which firewalls block, and a subject let its attack pass.
pub(crate) fn expectation_hint(
    templates: &[Template],
    responses: &[ProbeResponse],
    blocked_status: u16,
) -> Option<String> {
    let is_wrong = |(template, response): &(&Template, &ProbeResponse)| {
        template.class == Class::Malicious
            && template.status == Some(blocked_status)
            && !response.as_expected
    };
    let (template, _) = templates.iter().zip(responses).find(is_wrong)?;
    Some(format!(
        "`expect` of an attack is the response if nothing blocks it, so remove `status = {blocked_status}` from \
         template `{}`; what a system blocks is in `[blocks]` of its recipe",
        template.name
    ))
}

/// Returns a hint if a benign template expects another status than that of the origin of a run, as recorded requests may.
pub(crate) fn origin_hint(templates: &[Template], responses: &[ProbeResponse]) -> Option<String> {
    let is_wrong = |(template, response): &(&Template, &ProbeResponse)| {
        template.class == Class::Benign
            && template.status.is_some_and(|status| status != 200)
            && response.actual.starts_with("200 ")
            && !response.as_expected
    };
    let (template, _) = templates.iter().zip(responses).find(is_wrong)?;
    Some(format!(
        "the origin of a run responds with 200 to the path of template `{}`: expect no other status, and import a log \
         with `--expect any`",
        template.name
    ))
}

/// A started subject.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) site: &'a Site,
    /// Further ports, by name.
    pub(crate) ports: &'a BTreeMap<String, SocketAddr>,
    pub(crate) interrupt: &'a Interrupt,
}

/// Sends the attacks that a subject must detect. Returns why it is refused, or `None` if all were counted. The error may
/// be [`Interrupted`](crate::process::Interrupted).
pub(crate) fn undetected_attacks(
    subject: &Subject,
    target: &Target<'_>,
) -> anyhow::Result<Option<String>> {
    // Attacks that the removed rules would detect are unknown.
    if subject.lacks_rules {
        return Ok(None);
    }
    let mut reasons = Vec::new();
    for log in &subject.recipe.file.detection_log {
        if render::holds(subject, &log.when)? {
            reasons.extend(check_log(subject, log, target)?);
        }
    }
    Ok((!reasons.is_empty()).then(|| reasons.join("; ")))
}

fn check_log(
    subject: &Subject,
    log: &DetectionLog,
    target: &Target<'_>,
) -> anyhow::Result<Option<String>> {
    let at = *target.ports.get(&log.port).with_context(|| {
        let (system, port) = (&subject.recipe.name, &log.port);
        format!(
            "`detection_log` of system `{system}` uses unknown port `{port}`; add it to `ports`"
        )
    })?;
    let before = settled_count(log, at, target.interrupt)?;
    for path in &log.attacks {
        let request = get(&format!("{}{path}", subject.prefix), target.site.address)?;
        exchange(target.site, &request, TIMEOUT, target.interrupt)
            .with_context(|| format!("attack `{path}` failed"))?;
    }
    let expected = log.attacks.len() as u64;
    let deadline = Instant::now() + TIMEOUT;
    // The system may count after its response.
    loop {
        let found = count(log, &page(at, log, target.interrupt)?)?.saturating_sub(before);
        if found >= expected {
            return Ok(None);
        }
        if Instant::now() >= deadline {
            let DetectionLog { detector, counter, path, .. } = log;
            return Ok(Some(format!(
                "{detector} detected {found} of {expected} attacks (counter {counter} on {path})"
            )));
        }
        target.interrupt.sleep(POLL)?;
    }
}

/// Returns the count once it stops changing: the readiness check may have been an attack.
fn settled_count(log: &DetectionLog, at: SocketAddr, interrupt: &Interrupt) -> anyhow::Result<u64> {
    let deadline = Instant::now() + TIMEOUT;
    let mut last = None;
    loop {
        let is_over = Instant::now() >= deadline;
        match page(at, log, interrupt) {
            Ok(page) => {
                let now = count(log, &page)?;
                if last == Some(now) || is_over {
                    return Ok(now);
                }
                last = Some(now);
            }
            // The page may become available last.
            Err(error) if !is_over && error.is::<io::Error>() => {}
            Err(error) => return Err(error),
        }
        interrupt.sleep(SETTLE_TIME)?;
    }
}

/// Timeout of a request, and of the count after the last attack.
const TIMEOUT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);
/// A count that is unchanged for this time is settled.
const SETTLE_TIME: Duration = Duration::from_millis(250);
/// Pages have some hundred kilobytes.
const MAX_PAGE_BYTES: usize = 16 << 20;

fn page(at: SocketAddr, log: &DetectionLog, interrupt: &Interrupt) -> anyhow::Result<String> {
    let cannot = || format!("cannot get {} from the system", log.path);
    let (request, site) = (get(&log.path, at)?, Site::plain(at));
    let (reply, body) = exchange_with_body(&site, &request, TIMEOUT, interrupt, MAX_PAGE_BYTES + 1)
        .with_context(cannot)?;
    match reply.response.status {
        _ if body.len() > MAX_PAGE_BYTES => bail!("{}: more than {MAX_PAGE_BYTES} bytes", cannot()),
        200 => Ok(String::from_utf8_lossy(&body).into_owned()),
        status => bail!("{}: status {status}, expected 200", cannot()),
    }
}

/// Sums the samples of the counter that have the labels, in Prometheus' text format: name, labels in braces, and value
/// on one line. A counter of zero may be missing.
fn count(log: &DetectionLog, page: &str) -> anyhow::Result<u64> {
    let mut sum = 0.0;
    for line in page.lines() {
        let Some((labels, value)) = line
            .strip_prefix(log.counter.as_str())
            .and_then(|rest| rest.strip_prefix('{'))
            .and_then(|rest| rest.rsplit_once("} "))
        else {
            continue;
        };
        // Labels are separated by commas; quotes in values are escaped.
        let labels = format!(",{labels},");
        let has =
            |(name, value): (&String, &String)| labels.contains(&format!(",{name}=\"{value}\","));
        if log.labels.iter().all(has) {
            let no_number =
                || format!("cannot read {}: no number at the end of `{line}`", log.path);
            sum += value.parse::<f64>().with_context(no_number)?;
        }
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    Ok(sum as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::sync::Arc;
    use tollgate_http1::HeadFaults;
    use tollgate_traffic::{Mix, MixFile};

    fn response(template: &str, class: Class, got: &str, as_expected: bool) -> ProbeResponse {
        ProbeResponse {
            template: template.to_owned(),
            class,
            expected: "403".to_owned(),
            actual: got.to_owned(),
            as_expected,
            outcome: match &got[..3] {
                "403" => ProbeOutcome::Blocked,
                "200" => ProbeOutcome::Passed,
                _ => ProbeOutcome::Other,
            },
        }
    }

    /// A response with a body of five bytes.
    fn response_of(status: u16) -> Response {
        Response { status, body_bytes: 5, keep_alive: true, faults: HeadFaults::default() }
    }

    /// Returns the reason for responses to requests that expect a status.
    fn reason<const N: usize>(responses: [(ProbeResponse, u16); N]) -> Option<String> {
        let (responses, samples): (Vec<ProbeResponse>, Vec<Request>) = responses
            .map(|(response, status)| {
                let expect = Expectation { status: Some(status), ..Expectation::default() };
                (
                    response,
                    Request { expect, ..get("/", SocketAddr::from(([127, 0, 0, 1], 80))).unwrap() },
                )
            })
            .into_iter()
            .unzip();
        refusal_reason(&responses, &samples, 403)
    }

    #[test]
    fn counts_attacks_that_pass() {
        let browse = (response("browse", Class::Benign, "200 with 100 bytes", true), 200);
        let xss = (response("xss", Class::Malicious, "200 with 100 bytes", false), 403);
        let shell = |got, as_expected| (response("shell", Class::Malicious, got, as_expected), 403);
        let one = [browse.clone(), xss.clone(), shell("403 with 146 bytes", true)];
        assert_eq!(reason(one).unwrap(), "1 of 2 attacks passed");
        assert_eq!(reason([browse]), None);
        assert_eq!(
            reason([xss, shell("500 with 9 bytes", false)]).unwrap(),
            "1 of 2 attacks passed; attack `shell`: got 500 with 9 bytes, expected 403"
        );
    }

    #[test]
    fn attack_that_nothing_should_block_is_named_with_its_response() {
        let got = "200 with 21 bytes";
        let attack = ProbeResponse {
            expected: "200 with 100 bytes".to_owned(),
            ..response("xss", Class::Malicious, got, false)
        };
        let named = "attack `xss`: got 200 with 21 bytes, expected 200 with 100 bytes";
        assert_eq!(reason([(attack.clone(), 200)]).unwrap(), named);
        let many = reason([(); NAMED_MAX + 2].map(|()| (attack.clone(), 200))).unwrap();
        assert!(many.ends_with(&format!("{named}; 2 more unexpected responses")), "{many}");
    }

    #[test]
    fn corpus_ends_after_many_requests_without_a_response() {
        // Closes the connection after each request, and responds to every hundredth.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let site = Site::plain(listener.local_addr().unwrap());
        let request = get("/", site.address).unwrap();
        let request_len = request.message.bytes().len();
        let server = std::thread::spawn(move || {
            for number in 1..=200 {
                let (mut stream, _) = listener.accept().unwrap();
                stream.read_exact(&mut vec![0; request_len]).unwrap();
                if number % UNANSWERED_MAX == 0 {
                    stream
                        .write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
                        .unwrap();
                }
            }
        });
        let requests = vec![(request, None); 2 * UNANSWERED_MAX];
        let verdicts = || verdicts(&site, &requests, 403, &Interrupt::default());
        let hundred = "o".repeat(UNANSWERED_MAX - 1) + "b";
        assert_eq!(verdicts().unwrap(), hundred.repeat(2));
        server.join().unwrap();
        // The server has stopped.
        let error = format!("{:#}", verdicts().unwrap_err());
        assert!(
            error
                .starts_with("100 requests of the corpus in a row got no response: cannot connect"),
            "{error}"
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
        let response = response_of(200);
        let compare =
            |has_text| compare(&mix.templates()[0], &expected, 403, &Reply { response, has_text });
        assert!(compare(true).as_expected);
        assert_eq!(
            reason([(compare(false), 200)]).unwrap(),
            "benign request `page`: got 200 with 5 bytes without that text, expected 200 with `welcome` in the body"
        );
    }

    #[test]
    fn outcome_is_by_status_and_not_by_expectation() {
        let file: MixFile = toml::from_str(
            "title = 'a'\nheaders = ['Host: a']\n
            [[template]]\nname = 'page'\nclass = 'benign'\nweight = 1\npath = '/'\nexpect = { status = 404 }",
        )
        .unwrap();
        let mix = Mix::try_from(file).unwrap();
        let outcome = |status| {
            let response = response_of(status);
            let reply = Reply { response, has_text: true };
            compare(&mix.templates()[0], &Expectation::default(), 406, &reply).outcome
        };
        use ProbeOutcome::{Blocked, Other, Passed};
        assert_eq!([406, 404, 200, 502].map(outcome), [Blocked, Passed, Other, Other]);
    }

    #[test]
    fn attack_that_expects_to_be_blocked_gets_a_hint() {
        let file = |status: u16| -> MixFile {
            toml::from_str(&format!(
                "title = 'a'\nheaders = ['Host: a']\n
                [[template]]\nname = 'xss'\nclass = 'malicious'\nweight = 1\npath = '/'\nexpect = {{ status = {status} }}",
            ))
            .unwrap()
        };
        let hint = |status, as_expected| {
            let mix = Mix::try_from(file(status)).unwrap();
            let response = response("xss", Class::Malicious, "200 with 100 bytes", as_expected);
            expectation_hint(mix.templates(), &[response], 403)
        };
        let found = hint(403, false).unwrap();
        assert!(found.contains("remove `status = 403` from template `xss`"), "{found}");
        assert_eq!([hint(403, true), hint(404, false)], [None, None]);
    }

    #[test]
    fn recorded_status_that_the_origin_does_not_send_gets_a_hint() {
        let file = "title = 'a'\nheaders = ['Host: a']\n
            [[template]]\nname = 'GET 404'\nclass = 'benign'\nweight = 1\npath = '/'\nexpect = { status = 404 }";
        let mix = Mix::try_from(toml::from_str::<MixFile>(file).unwrap()).unwrap();
        let hint = |got, as_expected| {
            let response = response("GET 404", Class::Benign, got, as_expected);
            origin_hint(mix.templates(), &[response])
        };
        let found = hint("200 with 100 bytes", false).unwrap();
        assert!(found.ends_with("import a log with `--expect any`"), "{found}");
        assert_eq!([hint("502 with 9 bytes", false), hint("404 with 9 bytes", true)], [None, None]);
    }

    #[test]
    fn unexpected_response_names_the_benign_request() {
        let browse = response("browse", Class::Benign, "500 with 9 bytes", false);
        assert_eq!(
            reason([(browse, 200)]).unwrap(),
            "benign request `browse`: got 500 with 9 bytes, expected 403"
        );
    }

    const PAGE: &str = r#"# HELP hits Count of triggered rules
# TYPE hits counter
hits{rule="949110",source="127.0.0.1",type="inband"} 40
hits{rule="949110",source="127.0.0.1",type="outofband"} 3
hits{rule="949110",source="10.0.0.1",type="outofband"} 1e+01
hits{rule="9491101",source="127.0.0.1",type="outofband"} 100
hits_total{rule="949110",type="outofband"} 1000
hits 5
"#;

    fn log(labels: &[(&str, &str)]) -> DetectionLog {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        DetectionLog {
            detector: "the rules".to_owned(),
            when: "true".to_owned(),
            attacks: Vec::new(),
            port: "metrics".to_owned(),
            path: "/metrics".to_owned(),
            counter: "hits".to_owned(),
            labels: labels.collect(),
        }
    }

    #[test]
    fn sums_samples_with_all_labels() {
        let counted = |labels: &[(&str, &str)]| count(&log(labels), PAGE).unwrap();
        assert_eq!(counted(&[("rule", "949110"), ("type", "outofband")]), 13);
        assert_eq!(counted(&[("type", "outofband")]), 113);
        assert_eq!(counted(&[("type", "nowhere")]), 0);
        assert_eq!(counted(&[]), 153);
        assert_eq!(count(&log(&[]), "").unwrap(), 0);
    }

    #[test]
    fn sample_without_number_is_an_error() {
        let error = count(&log(&[]), "hits{rule=\"1\"} many").unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot read /metrics: no number at the end of `hits{rule=\"1\"} many`"
        );
    }
}
