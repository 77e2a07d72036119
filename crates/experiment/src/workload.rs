//! Rendering of a mix into requests with their expected responses.

use regex::bytes::Regex;
use std::sync::Arc;
use thiserror::Error;
use tollgate_http1::{RenderError, RequestMessage, RequestText};
use tollgate_load::{
    Expectation, MAX_PATTERN_BYTES, Pace, Rate, Replay, ReplayEvent, ReplayVariable, Request,
    ValueSource, Workload,
};
use tollgate_stats::text::escape_controls;
use tollgate_traffic::{
    Class, ListedRequest, MAX_CONTAINS_BYTES, Message, Mix, RecordedResponses, ResponseSource,
    ResponseVariable, Sample, StepRequest, Template,
};

/// Variations of a mix.
#[derive(Debug, Clone, Copy)]
pub struct Delivery<'a> {
    /// Prefix of every path; may be empty.
    pub prefix: &'a str,
    /// Value of `Host` instead of that of the mix.
    pub host: Option<&'a str>,
    /// False to send `Connection: close` in every request.
    pub keep_alive: bool,
    /// `None` if nothing is blocked.
    pub blocks: Option<Blocking<'a>>,
    /// Responses of the server to the requests of lists, if they are those of the recording.
    pub responses: Option<&'a RecordedResponses>,
}

/// Requests that a subject blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocking<'a> {
    /// Status code of blocked requests.
    pub status: u16,
    /// Families of attacks that are always blocked; others may be blocked. `None`: every attack that the mix does not
    /// mark as open.
    pub families: Option<&'a [String]>,
    /// True if benign requests may be blocked.
    pub benign: bool,
    /// False if bodies are not inspected: attacks that have one may be blocked.
    pub bodies: bool,
}

#[derive(Debug, Error)]
pub enum WorkloadError {
    #[error("cannot render template `{template}`")]
    Template { template: String, source: RenderError },
    #[error("the generator rejects the mix")]
    Load(#[from] tollgate_load::Error),
    #[error(
        "the list takes the variable `{name}` from responses, which only sessions have: use `tollgate load --pace`"
    )]
    ResponseVariable { name: String },
    #[error(
        "the mix has no recorded order: import a log or a HAR file with times by `tollgate mix import`, and name the list"
    )]
    NoOrder,
    #[error("invalid regex of the variable `{name}`")]
    Regex { name: String, source: regex::Error },
}

/// Renders one request of each template, with the first value of each variable.
///
/// # Errors
///
/// A request cannot be rendered, or a value comes from responses, which only a replay has.
pub fn samples(mix: &Mix, delivery: &Delivery<'_>) -> Result<Vec<Request>, WorkloadError> {
    if let Some(name) = mix.response_variable() {
        return Err(WorkloadError::ResponseVariable { name: name.to_owned() });
    }
    let render = |(template, sample): (usize, Sample<'_>)| match sample {
        Sample::Message(message) => request(mix, template, message, delivery),
        Sample::Listed(listed) => listed_request(mix, template, listed, delivery),
    };
    (0..).zip(mix.samples()).map(render).collect()
}

/// Renders the requests of all lists of a mix, in their order.
pub fn listed(mix: &Mix, delivery: &Delivery<'_>) -> Result<Vec<Request>, WorkloadError> {
    mix.listed().map(|(template, one)| listed_request(mix, template, one, delivery)).collect()
}

/// Headers that say little about a request.
const COMMON_HEADERS: [&str; 7] = [
    "host",
    "connection",
    "content-length",
    "accept",
    "accept-encoding",
    "accept-language",
    "keep-alive",
];

/// Describes a request in one line: method, target, headers that are not common, and body, up to 300 characters.
pub fn in_one_line(request: &RequestMessage) -> String {
    let mut text = format!("{} {}", request.method(), request.target());
    for (name, value) in request.headers() {
        if !COMMON_HEADERS.iter().any(|common| name.eq_ignore_ascii_case(common)) {
            text += &format!(" | {name}: {value}");
        }
    }
    let body = request.body();
    if !body.is_empty() {
        // The rest would be cut anyway.
        let start = &body[..body.len().min(4 * LINE_CHARS)];
        text += &format!(" | {}", String::from_utf8_lossy(start));
    }
    shortened(&text)
}

const LINE_CHARS: usize = 300;

/// Escapes control characters and cuts the end.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(LINE_CHARS) {
        Some((end, _)) => escape_controls(&text[..end]) + "...",
        None => escape_controls(text),
    }
}

/// Renders all requests of a load, in an order drawn from the seed.
pub fn workload(mix: &Mix, delivery: &Delivery<'_>, seed: u64) -> Result<Workload, WorkloadError> {
    let (requests, order) = script(mix, delivery, seed)?;
    Ok(Workload::new(requests, order)?)
}

/// A list in its recorded order.
#[derive(Debug)]
pub struct RecordedLoad {
    pub workload: Workload,
    pub replay: Replay,
    /// Recorded times at the pace; `None` if they are not used.
    pub times: Option<Rate>,
}

/// Renders the requests of a list for a replay.
///
/// # Errors
///
/// The mix is not a list, or a list without an order; a variable has no use.
pub fn replay(
    mix: &Mix,
    delivery: &Delivery<'_>,
    pace: Pace,
) -> Result<RecordedLoad, WorkloadError> {
    let list = mix.list().filter(|list| !list.events().is_empty());
    let list = list.ok_or(WorkloadError::NoOrder)?;
    let listed = mix.listed().map(|(template, one)| listed_request(mix, template, one, delivery));
    let workload = Workload::new(listed.collect::<Result<_, _>>()?, vec![0])?;
    let events = list.events().iter();
    let events = events.map(|event| ReplayEvent { session: event.client, request: event.request });
    let variables = list.variables().iter().map(variable).collect::<Result<_, _>>()?;
    let replay = Replay::new(&workload, events.collect(), variables, pace)?;
    let times = match pace {
        Pace::Rate => None,
        Pace::Recorded { factor } => {
            let scaled_ns = |us: u64| match factor {
                1.0 => us.saturating_mul(1_000),
                // Saturates.
                _ => (us as f64 * 1e3 / factor).round() as u64,
            };
            Some(Rate::Recorded(list.events().iter().map(|event| scaled_ns(event.at_us)).collect()))
        }
    };
    Ok(RecordedLoad { workload, replay, times })
}

fn variable(of: &ResponseVariable) -> Result<ReplayVariable, WorkloadError> {
    let source = match &of.source {
        ResponseSource::Header(name) => ValueSource::Header(name.clone()),
        ResponseSource::Json(pointer) => ValueSource::Json(pointer.clone()),
        ResponseSource::Regex(pattern) => {
            let invalid = |source| WorkloadError::Regex { name: of.name.clone(), source };
            ValueSource::Regex(Box::new(Regex::new(pattern).map_err(invalid)?))
        }
    };
    Ok(ReplayVariable {
        name: of.name.clone(),
        method: of.method.clone(),
        path: of.path.clone(),
        is_prefix: of.is_prefix,
        source,
    })
}

const _: () = assert!(MAX_CONTAINS_BYTES <= MAX_PATTERN_BYTES);

/// Returns the requests, the samples first, and their order.
fn script(
    mix: &Mix,
    delivery: &Delivery<'_>,
    seed: u64,
) -> Result<(Vec<Request>, Vec<u32>), WorkloadError> {
    let mut requests = samples(mix, delivery)?;
    let listed_start = requests.len();
    requests.reserve_exact(mix.listed().count());
    for (template, listed) in mix.listed() {
        requests.push(listed_request(mix, template, listed, delivery)?);
    }
    let script = mix.script(seed);
    let mut order = Vec::with_capacity(script.size_hint().0);
    for step in script {
        let index = match step.request {
            StepRequest::Sample => step.template,
            StepRequest::Listed(listed) => listed_start + listed,
            StepRequest::Message(message) => {
                requests.push(request(mix, step.template, message, delivery)?);
                requests.len() - 1
            }
        };
        order.push(index as u32);
    }
    Ok((requests, order))
}

/// Delivers a request of a list. One that does not change is not copied.
fn listed_request(
    mix: &Mix,
    template: usize,
    listed: &ListedRequest,
    delivery: &Delivery<'_>,
) -> Result<Request, WorkloadError> {
    let known = &mix.templates()[template];
    let message = match delivery {
        Delivery { prefix: "", host: None, keep_alive: true, .. } => listed.message.clone(),
        _ => redeliver(known, &listed.message, delivery)?,
    };
    let as_listed = || Expectation {
        status: known.status,
        body_bytes: listed.body_bytes,
        ..Expectation::default()
    };
    let passed = delivery
        .responses
        .map_or_else(as_listed, |responses| as_recorded(known, listed, responses));
    let expect = expectation(known, !message.body().is_empty(), passed, delivery.blocks);
    Ok(Request { message, expect, template })
}

/// Expects what a list expects, of a server with recorded responses: any of those to requests with this target.
fn as_recorded(
    of: &Template,
    listed: &ListedRequest,
    responses: &RecordedResponses,
) -> Expectation {
    let message = &listed.message;
    let responses = responses.to(message.method(), message.target());
    let mut statuses: Vec<u16> = responses.iter().map(|response| response.status).collect();
    statuses.dedup();
    let (status, or_status) = match statuses[..] {
        [only] => (Some(only), None),
        [one, other] => (Some(one), Some(other)),
        _ => (None, None),
    };
    let is_checked = of.status.is_some();
    let body_bytes = match responses {
        [only] if listed.body_bytes.is_some() => only.bytes,
        _ => None,
    };
    Expectation {
        status: status.filter(|_| is_checked),
        or_status: or_status.filter(|_| is_checked),
        body_bytes,
        ..Expectation::default()
    }
}

/// Renders a request of a list again, as delivered.
fn redeliver(
    of: &Template,
    listed: &RequestMessage,
    delivery: &Delivery<'_>,
) -> Result<RequestMessage, WorkloadError> {
    let header = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let mut headers = listed.headers().map(header).collect();
    deliver_headers(&mut headers, delivery);
    let target = format!("{}{}", delivery.prefix, listed.target());
    let text = RequestText {
        method: listed.method(),
        target: &target,
        headers: &headers,
        body: listed.body(),
    };
    let failed = |source| WorkloadError::Template { template: of.name.clone(), source };
    text.render().map_err(failed)
}

fn deliver_headers(headers: &mut Vec<(String, String)>, delivery: &Delivery<'_>) {
    for (name, value) in headers.iter_mut() {
        if let Some(host) = delivery.host
            && name.eq_ignore_ascii_case("host")
        {
            host.clone_into(value);
        }
    }
    if !delivery.keep_alive {
        headers.retain(|(name, _)| {
            !name.eq_ignore_ascii_case("connection") && !name.eq_ignore_ascii_case("keep-alive")
        });
        headers.push(("Connection".to_owned(), "close".to_owned()));
    }
}

fn request(
    mix: &Mix,
    template: usize,
    mut message: Message,
    delivery: &Delivery<'_>,
) -> Result<Request, WorkloadError> {
    message.path.insert_str(0, delivery.prefix);
    deliver_headers(&mut message.headers, delivery);
    let known = &mix.templates()[template];
    let failed = |source| WorkloadError::Template { template: known.name.clone(), source };
    let rendered = message.text().render().map_err(failed)?;
    let passed = Expectation {
        status: Some(message.expect.status),
        body_bytes: message.expect.body_bytes,
        body_contains: message.expect.body_contains.map(|text| Arc::from(text.into_bytes())),
        or_status: None,
    };
    let expect = expectation(known, !rendered.body().is_empty(), passed, delivery.blocks);
    Ok(Request { message: rendered, expect, template })
}

/// `passed` is the expected response if nothing blocks the request.
fn expectation(
    of: &Template,
    has_body: bool,
    passed: Expectation,
    blocks: Option<Blocking<'_>>,
) -> Expectation {
    match blocks {
        None => passed,
        Some(Blocking { status, families, benign, bodies }) => {
            let is_inspected = bodies || !has_body;
            let is_of =
                |families: &[String]| of.family.as_ref().is_some_and(|one| families.contains(one));
            let blocked = Expectation { status: Some(status), ..Expectation::default() };
            match (of.class, families) {
                (Class::Malicious, Some(families)) if is_inspected && is_of(families) => blocked,
                (Class::Malicious, None) if is_inspected && !of.open => blocked,
                (Class::Benign, _) if !of.open && !benign => passed,
                // One of three statuses.
                (Class::Malicious | Class::Benign, _) if passed.or_status.is_some() => {
                    Expectation { status: None, or_status: None, ..passed }
                }
                (Class::Malicious | Class::Benign, _) => {
                    Expectation { or_status: Some(status), ..passed }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toml_file::{self, NamedText};
    use tollgate_traffic::{MixFile, MixTree, RequestList};

    const SHOP: &str = "
        title = 'a shop'
        headers = ['host: shop.example', 'Connection: keep-alive']
        [variable.id]
        counter = 1
        [[template]]
        name = 'home'
        class = 'benign'
        weight = 1
        method = 'HEAD'
        path = '/'
        [[template]]
        name = 'order'
        class = 'malicious'
        weight = 2
        path = '/order/{{id}}'
        expect = { status = 201, body_bytes = 3, body_contains = 'n{{id}}' }
    ";

    const UNCHANGED: Delivery<'_> =
        Delivery { prefix: "", host: None, keep_alive: true, blocks: None, responses: None };

    fn shop() -> Mix {
        let source = NamedText { name: "shop.toml".to_owned(), text: SHOP.to_owned() };
        Mix::try_from(toml_file::parse::<MixFile>(&source).unwrap()).unwrap()
    }

    fn text(request: &Request) -> &str {
        str::from_utf8(request.message.bytes()).unwrap()
    }

    #[test]
    fn delivery_changes_prefix_host_and_connection() {
        let [home, order] =
            <[Request; 2]>::try_from(samples(&shop(), &UNCHANGED).unwrap()).unwrap();
        assert_eq!(
            text(&home),
            "HEAD / HTTP/1.1\r\nhost: shop.example\r\nConnection: keep-alive\r\n\r\n"
        );
        assert!(home.message.is_head() && !order.message.is_head());
        let delivery = Delivery {
            prefix: "/full",
            host: Some("localhost:8080"),
            keep_alive: false,
            blocks: None,
            responses: None,
        };
        assert_eq!(
            text(&samples(&shop(), &delivery).unwrap()[1]),
            "GET /full/order/1 HTTP/1.1\r\nhost: localhost:8080\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn invalid_request_is_an_error_with_the_template() {
        let delivery = Delivery { host: Some("a\nb"), ..UNCHANGED };
        let error = samples(&shop(), &delivery).unwrap_err();
        assert_eq!(error.to_string(), "cannot render template `home`");
    }

    #[test]
    fn attack_is_expected_to_be_blocked_or_to_get_the_response_of_the_mix() {
        let expect =
            |delivery: Delivery<'_>| samples(&shop(), &delivery).unwrap()[1].expect.clone();
        let needle: Arc<[u8]> = Arc::from(*b"n1");
        assert_eq!(
            expect(UNCHANGED),
            Expectation {
                status: Some(201),
                body_bytes: Some(3),
                body_contains: Some(needle),
                or_status: None
            }
        );
        assert_eq!(
            expect(Delivery { blocks: Some(EVERY_ATTACK), ..UNCHANGED }),
            Expectation { status: Some(403), ..Expectation::default() }
        );
    }

    const EVERY_ATTACK: Blocking<'_> =
        Blocking { status: 403, families: None, benign: false, bodies: true };

    #[test]
    fn open_request_may_be_blocked_and_a_listed_family_must_be() {
        let template = |class: &str, open: bool, family: &str| {
            let name = format!("{class}-{open}-{family}");
            format!(
                "[[template]]\nname = '{name}'\nclass = '{class}'\nopen = {open}\nfamily = '{family}'\nweight = 1\npath = '/'\n"
            )
        };
        let text = "title = 'a'\nheaders = ['Host: a']\n".to_owned()
            + &template("benign", false, "search")
            + &template("benign", true, "search")
            + &template("malicious", false, "xss")
            + &template("malicious", true, "xss")
            + &template("malicious", true, "virtual-patch");
        let source = NamedText { name: "a.toml".to_owned(), text };
        let mix = Mix::try_from(toml_file::parse::<MixFile>(&source).unwrap()).unwrap();
        let expected = |blocks: Option<Blocking<'_>>| -> Vec<String> {
            let delivery = Delivery { blocks, ..UNCHANGED };
            let samples = samples(&mix, &delivery).unwrap();
            samples.iter().map(|sample| sample.expect.to_string()).collect()
        };
        assert_eq!(expected(None), ["200"; 5]);
        assert_eq!(
            expected(Some(EVERY_ATTACK)),
            ["200", "200, or 403", "403", "200, or 403", "200, or 403"]
        );
        let families = ["virtual-patch".to_owned()];
        let patches = Blocking { families: Some(&families), ..EVERY_ATTACK };
        assert_eq!(
            expected(Some(patches)),
            ["200", "200, or 403", "200, or 403", "200, or 403", "403"]
        );
    }

    #[test]
    fn attack_in_a_body_may_pass_a_firewall_that_gets_none() {
        let text = "title = 'a'\nheaders = ['Host: a']\n\
                    [[template]]\nname = 'get'\nclass = 'malicious'\nweight = 1\npath = '/'\n\
                    [[template]]\nname = 'post'\nclass = 'malicious'\nweight = 1\nmethod = 'POST'\npath = '/'\nbody = 'x'\n";
        let source = NamedText { name: "a.toml".to_owned(), text: text.to_owned() };
        let mix = Mix::try_from(toml_file::parse::<MixFile>(&source).unwrap()).unwrap();
        let blocks = Some(Blocking { bodies: false, ..EVERY_ATTACK });
        let samples = samples(&mix, &Delivery { blocks, ..UNCHANGED }).unwrap();
        let expected: Vec<String> = samples.iter().map(|one| one.expect.to_string()).collect();
        assert_eq!(expected, ["403", "200, or 403"]);
    }

    #[test]
    fn list_is_sent_as_read_or_as_delivered() {
        let lines = r#"{"tollgate_mix":1,"title":"t","requests":2,"templates":[{"name":"a","class":"benign"},{"name":"b","class":"malicious","status":404}]}
{"template":"b","weight":2,"method":"PUT","path":"/1","headers":["Host: h","Connection: keep-alive"],"body_base64":"/w==","body_bytes":3}
{"template":"a","path":"/2","headers":["host: h"]}"#;
        let list = RequestList::read(lines.as_bytes()).unwrap();
        let mix = Mix::try_from(&MixTree::List(Arc::new(list))).unwrap();
        let (requests, order) = script(&mix, &UNCHANGED, 1).unwrap();
        // Two samples, then the list.
        assert_eq!((requests.len(), order.len()), (4, 65_535));
        assert_eq!(order.iter().filter(|index| **index == 2).count(), 2 * 21_845);
        assert_eq!(order.iter().filter(|index| **index == 3).count(), 21_845);
        let put = b"PUT /1 HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\n\xff";
        assert_eq!((requests[2].message.bytes(), requests[2].template), (&put[..], 1));
        // Not copied.
        assert!(std::ptr::eq(requests[1].message.bytes(), requests[2].message.bytes()));
        assert_eq!(requests[2].expect.to_string(), "404 with 3 bytes");
        assert_eq!(requests[3].expect, Expectation::default());
        let delivery = Delivery {
            prefix: "/full",
            host: Some("x"),
            keep_alive: false,
            blocks: Some(EVERY_ATTACK),
            responses: None,
        };
        let responses = RecordedResponses::of(&mix);
        let as_recorded = Delivery { responses: responses.as_ref(), ..UNCHANGED };
        let expect = |request: Request| request.expect.to_string();
        let expected = samples(&mix, &as_recorded).unwrap().into_iter().map(expect);
        assert_eq!(expected.collect::<Vec<_>>(), ["any status", "404 with 3 bytes"]);
        let requests = samples(&mix, &delivery).unwrap();
        assert_eq!(
            text(&requests[0]),
            "GET /full/2 HTTP/1.1\r\nhost: x\r\nConnection: close\r\n\r\n"
        );
        let put = b"PUT /full/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nConnection: close\r\n\r\n\xff";
        assert_eq!(requests[1].message.bytes(), &put[..]);
        assert_eq!(requests[1].expect.to_string(), "403");
    }

    fn list(head: &str, lines: &str) -> Mix {
        let text = format!(
            "{{\"tollgate_mix\":1,\"title\":\"t\",\"requests\":2,\"templates\":[{{\"name\":\"a\",\"class\":\"benign\",\"status\":200}}]{head}}}\n{}\n{}\n{lines}",
            r#"{"template":"a","method":"POST","path":"/login","headers":["Host: h"]}"#,
            r#"{"template":"a","path":"/{{id}}","headers":["Host: h"]}"#,
        );
        let list = RequestList::read(text.as_bytes()).unwrap();
        Mix::try_from(&MixTree::List(Arc::new(list))).unwrap()
    }

    #[test]
    fn recorded_order_is_replayed_at_its_pace() {
        let head = r#","events":3,"variables":{"id":{"from":"POST /login","json":"/id"}}"#;
        let mix = list(head, r#"{"order":[0,1,0,1500,0,1,500,1,1]}"#);
        let times = |pace| match replay(&mix, &UNCHANGED, pace).unwrap().times {
            Some(Rate::Recorded(times)) => Some(times.to_vec()),
            _ => None,
        };
        let original = Pace::Recorded { factor: 1.0 };
        assert_eq!(times(original), Some(vec![0, 1_500_000, 2_000_000]));
        assert_eq!(times(Pace::Recorded { factor: 2.5 }), Some(vec![0, 600_000, 800_000]));
        assert_eq!(times(Pace::Rate), None);
        let load = replay(&mix, &UNCHANGED, original).unwrap();
        assert_eq!(load.replay.len(), 3);
        // Sent without sessions, its variable would have no value.
        let error = workload(&mix, &UNCHANGED, 1).unwrap_err().to_string();
        assert!(error.contains("the variable `id` from responses"), "{error}");
    }

    #[test]
    fn replay_needs_a_list_with_an_order() {
        for mix in [list("", ""), shop()] {
            let error = replay(&mix, &UNCHANGED, Pace::Rate).unwrap_err().to_string();
            assert!(error.starts_with("the mix has no recorded order"), "{error}");
        }
    }

    #[test]
    fn script_has_one_request_per_send_with_variables_and_one_in_all_without() {
        let (requests, order) = script(&shop(), &UNCHANGED, 3).unwrap();
        // 21,845 decks of 3 fit in 65,536 sends. Two of each deck have a request of their own, after the two samples.
        assert_eq!((requests.len(), order.len()), (2 + 2 * 21_845, 3 * 21_845));
        let mut id = 0;
        for index in &order {
            let request = &requests[*index as usize];
            if request.template == 1 {
                id += 1;
                assert!(text(request).starts_with(&format!("GET /order/{id} ")));
                let needle = format!("n{id}");
                assert_eq!(request.expect.body_contains.as_deref(), Some(needle.as_bytes()));
            } else {
                assert_eq!(*index, 0);
            }
        }
        assert_eq!(id, 2 * 21_845);
    }
}
