//! Import of recorded traffic: requests from logs, HAR files and commands become a list, in which equal requests are
//! one with a weight.

pub mod access_log;
pub mod curl;
pub mod har;
pub mod lines;
mod order;
mod recorded;
mod secrets;
mod time;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use indexmap::{IndexMap, IndexSet};
use serde::Serialize;
use tollgate_http1::{RenderError, RequestText};

use crate::MAX_LISTED_TEMPLATES;
use crate::list::{ListHead, ListLine, ListTemplate, ListedResponse, is_content_type};
use order::Order;

use recorded::{CONNECTION_HEADERS, Url};
pub use recorded::{Label, Recorded};
pub use secrets::{Secret, mask_body, mask_header, mask_url};
pub use time::LogTime;

/// Limit for the sum of the weights of an import. Larger ones are divided.
const MAX_WEIGHTS: u64 = 1_000_000;

/// Limit of the text of an example.
const MAX_EXAMPLE_CHARS: usize = 60;

/// Choices of an import.
#[derive(Debug, Clone)]
pub struct Options {
    /// Value of `Host` instead of the recorded one.
    pub host: Option<String>,
    /// Only requests for these hosts; empty: all.
    pub only_hosts: Vec<String>,
    /// Names of headers to leave out.
    pub without: Vec<String>,
    pub keep: Vec<Secret>,
    /// True to expect the recorded status code.
    pub expect_status: bool,
    /// True to expect the recorded length of the body, too.
    pub expect_size: bool,
    /// Limit of distinct requests; further ones are skipped.
    pub requests_max: usize,
}

/// Requests that were skipped for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    pub count: u64,
    /// Place and text of the first.
    pub first: String,
}

/// Collects requests.
#[derive(Debug)]
pub struct Importer {
    options: Options,
    templates: IndexSet<ListTemplate>,
    /// Methods and header lines.
    texts: IndexSet<Box<str>>,
    requests: IndexMap<Distinct, Counted>,
    skipped: BTreeMap<String, Skipped>,
    masked: u64,
    without_body: u64,
    without_response: u64,
    order: Order,
}

/// A distinct request, with indices into the texts.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Distinct {
    template: u32,
    method: u32,
    target: Box<str>,
    headers: Box<[u32]>,
    body: Box<[u8]>,
    body_bytes: Option<u64>,
    /// Status code that a client received.
    status: Option<u16>,
}

/// Equal requests, and their responses.
#[derive(Debug, Default)]
struct Counted {
    requests: u64,
    /// Responses with a known length.
    sized: u64,
    /// Their length in all.
    bytes: u64,
    /// Index into the texts.
    content_type: Option<u32>,
}

impl Importer {
    pub fn new(options: Options) -> Self {
        Self {
            options,
            templates: IndexSet::new(),
            texts: IndexSet::new(),
            requests: IndexMap::new(),
            skipped: BTreeMap::new(),
            masked: 0,
            without_body: 0,
            without_response: 0,
            order: Order::default(),
        }
    }

    /// Adds a request, or counts it as skipped.
    pub fn add(&mut self, recorded: Recorded, label: &Label, place: &dyn fmt::Display) {
        let text = format!("{} {}", recorded.method, recorded.target);
        if let Err(reason) = self.try_add(recorded, label) {
            self.skip(&reason, place, &text);
        }
    }

    /// Counts a part of a file that is not a request. The first text is shown, without its secrets.
    pub fn skip(&mut self, reason: &str, place: &dyn fmt::Display, text: &str) {
        let new = || {
            let text = secrets::mask_unknown(text);
            let text: String = text.escape_debug().take(MAX_EXAMPLE_CHARS).collect();
            Skipped { count: 0, first: format!("{place}: {text}") }
        };
        self.skipped.entry(reason.to_owned()).or_insert_with(new).count += 1;
    }

    fn try_add(&mut self, mut recorded: Recorded, label: &Label) -> Result<(), String> {
        self.choose_host(&mut recorded)?;
        let without = &self.options.without;
        recorded
            .headers
            .retain(|(name, _)| !without.iter().any(|one| one.eq_ignore_ascii_case(name)));
        let was_masked = !label.is_public && secrets::mask(&mut recorded, &self.options.keep);
        let lacks_body = recorded.lacks_body;
        let lacks_response = recorded.status.is_some_and(|status| !was_received(status));
        let (time, client) = (recorded.time, recorded.client.take());
        let (bytes, content_type) = (recorded.body_bytes, recorded.content_type.take());
        let distinct = self.distinct(recorded, label)?;
        let index = if let Some(index) = self.requests.get_index_of(&distinct) {
            index
        } else if self.requests.len() == self.options.requests_max {
            return Err(format!(
                "more than {} distinct requests; see --max-requests",
                self.options.requests_max
            ));
        } else {
            self.check(&distinct)?;
            self.requests.insert_full(distinct, Counted::default()).0
        };
        let content_type = content_type.filter(|text| is_content_type(text));
        let content_type = content_type.map(|text| self.intern(text));
        let counted = &mut self.requests[index];
        counted.requests += 1;
        counted.sized += u64::from(bytes.is_some());
        counted.bytes = counted.bytes.saturating_add(bytes.unwrap_or(0));
        counted.content_type = counted.content_type.or(content_type);
        self.order.add(time, client.as_deref(), index as u32);
        self.masked += u64::from(was_masked);
        self.without_response += u64::from(lacks_response);
        self.without_body += u64::from(lacks_body);
        Ok(())
    }

    fn choose_host(&self, recorded: &mut Recorded) -> Result<(), String> {
        let options = &self.options;
        let is_host = |(name, _): &&mut (String, String)| name.eq_ignore_ascii_case("host");
        let host = recorded.headers.iter_mut().find(is_host);
        if !options.only_hosts.is_empty() {
            let host = host.as_ref().map_or("", |(_, value)| value.as_str());
            let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
            let is_same =
                |one: &String| one.eq_ignore_ascii_case(host) || one.eq_ignore_ascii_case(name);
            if !options.only_hosts.iter().any(is_same) {
                return Err("another host than --only-host".to_owned());
            }
        }
        match (host, &options.host) {
            (Some((_, value)), Some(given)) => value.clone_from(given),
            (Some(_), None) => {}
            (None, given) => {
                let host = given.as_deref().unwrap_or("localhost");
                recorded.headers.insert(0, ("Host".to_owned(), host.to_owned()));
            }
        }
        Ok(())
    }

    fn distinct(&mut self, recorded: Recorded, label: &Label) -> Result<Distinct, String> {
        let status = recorded.status.filter(|_| self.options.expect_status);
        let name = match (&label.name, status) {
            (Some(name), _) => name.clone(),
            (None, Some(status)) => format!("{} {status:03}", recorded.method),
            (None, None) => recorded.method.clone(),
        };
        let status = status.filter(|status| was_received(*status));
        let received = recorded.status.filter(|status| was_received(*status));
        let template = ListTemplate {
            name,
            class: label.class,
            family: label.family.clone(),
            open: label.open,
            status,
        };
        let template = match self.templates.get_index_of(&template) {
            Some(index) => index,
            None if self.templates.len() == MAX_LISTED_TEMPLATES => {
                return Err(format!("more than {MAX_LISTED_TEMPLATES} templates"));
            }
            None => self.templates.insert_full(template).0,
        };
        let is_head = recorded.method == "HEAD";
        let method = self.intern(recorded.method);
        let headers = recorded.headers.iter();
        let headers =
            headers.map(|(name, value)| self.intern(format!("{name}: {value}"))).collect();
        Ok(Distinct {
            template: template as u32,
            method,
            target: recorded.target.into_boxed_str(),
            headers,
            body: recorded.body.into_boxed_slice(),
            body_bytes: recorded.body_bytes.filter(|_| self.options.expect_size && !is_head),
            status: received,
        })
    }

    /// Returns the index of a text.
    fn intern(&mut self, text: String) -> u32 {
        match self.texts.get_index_of(text.as_str()) {
            Some(index) => index as u32,
            None => self.texts.insert_full(text.into_boxed_str()).0 as u32,
        }
    }

    /// Checks that the request can be sent.
    fn check(&self, distinct: &Distinct) -> Result<(), String> {
        let header = |index: &u32| {
            let text = &self.texts[*index as usize];
            text.split_once(": ").unwrap_or((text, ""))
        };
        let headers: Vec<(&str, &str)> = distinct.headers.iter().map(header).collect();
        let method = &self.texts[distinct.method as usize];
        let target = &*distinct.target;
        if !target.starts_with('/') {
            return Err("the target is not a path".to_owned());
        }
        let text = RequestText { method, target, headers: &headers, body: &distinct.body };
        match text.render() {
            Ok(_) => Ok(()),
            // Without the position, so that equal reasons are counted together.
            Err(RenderError::Byte { part, byte, .. }) => Err(format!(
                "{part} contains the byte 0x{byte:02x}, which HTTP does not allow there"
            )),
            Err(error) => Err(error.to_string()),
        }
    }

    pub fn distinct_requests(&self) -> usize {
        self.requests.len()
    }

    pub fn requests(&self) -> u64 {
        self.requests.values().map(|counted| counted.requests).sum()
    }

    /// Number of requests with a secret that was masked.
    pub fn masked(&self) -> u64 {
        self.masked
    }

    /// Number of requests that had a body which the recording does not contain, or not to its end.
    pub fn without_body(&self) -> u64 {
        self.without_body
    }

    /// Number of requests whose status no client received, so that none is expected.
    pub fn without_response(&self) -> u64 {
        self.without_response
    }

    /// Number of requests whose order, times and clients are kept.
    pub fn ordered(&self) -> u64 {
        self.order.len() as u64
    }

    /// Number of requests whose times are not known, or beyond the limits of the order: its number of requests, and ten
    /// years, of which those with the most requests are kept.
    pub fn unordered(&self) -> u64 {
        self.order.left_out()
    }

    /// Number of requests whose client is not known. In a replay, they are one session.
    pub fn without_client(&self) -> u64 {
        self.order.without_client()
    }

    /// True if all times are in whole seconds, so that the requests of a second are spread over it.
    pub fn is_in_seconds(&self) -> bool {
        self.order.is_in_seconds()
    }

    /// Skipped requests by reason.
    pub fn skipped(&self) -> &BTreeMap<String, Skipped> {
        &self.skipped
    }

    /// Writes the list, and behind it the order of the requests, as far as their times are known. Weights that add up to
    /// more than a million are divided; none becomes 0.
    pub fn write(&self, title: &str, out: &mut impl Write) -> io::Result<()> {
        // Templates of which every request was skipped are left out.
        let mut used = vec![false; self.templates.len()];
        self.requests.keys().for_each(|request| used[request.template as usize] = true);
        let templates = self.templates.iter().zip(used).filter(|(_, is_used)| *is_used);
        let templates: Vec<_> = templates.map(|(template, _)| template.clone()).collect();
        let head = ListHead {
            events: self.order.len(),
            ..ListHead::new(title.to_owned(), self.requests.len(), templates)
        };
        write_line(out, &head)?;
        let sum = self.requests();
        for (request, counted) in &self.requests {
            let weight = counted.requests;
            let weight = match sum > MAX_WEIGHTS {
                // Below 2^64, as a weight counts lines.
                true => {
                    (u128::from(weight) * u128::from(MAX_WEIGHTS) / u128::from(sum)).max(1) as u32
                }
                false => weight as u32,
            };
            let (body, body_base64) = match std::str::from_utf8(&request.body) {
                Ok("") => (None, None),
                Ok(text) => (Some(Cow::Borrowed(text)), None),
                Err(_) => (None, Some(Cow::Owned(STANDARD.encode(&request.body)))),
            };
            let headers = request.headers.iter();
            let line = ListLine {
                template: Cow::Borrowed(&self.templates[request.template as usize].name),
                weight,
                method: Cow::Borrowed(&self.texts[request.method as usize]),
                path: Cow::Borrowed(&request.target),
                headers: headers
                    .map(|index| Cow::Borrowed(&*self.texts[*index as usize]))
                    .collect(),
                body,
                body_base64,
                body_bytes: request.body_bytes,
                response: ListedResponse {
                    status: request.status,
                    bytes: counted.bytes.checked_div(counted.sized),
                    content_type: counted
                        .content_type
                        .map(|index| self.texts[index as usize].clone()),
                },
            };
            write_line(out, &line)?;
        }
        self.order.write(|line| write_line(out, line))
    }
}

fn write_line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// False for a status that no client received: nginx logs 444 for a connection that it closed, 499 for one that the client
/// closed, and 000 without a response. An informational one has another response behind it, or a tunnel.
fn was_received(status: u16) -> bool {
    (200..=599).contains(&status) && !matches!(status, 444 | 499)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Class;
    use crate::list::RequestList;

    pub(super) fn benign() -> Label {
        Label { name: None, class: Class::Benign, family: None, open: false, is_public: false }
    }

    fn options() -> Options {
        Options {
            host: None,
            only_hosts: Vec::new(),
            without: Vec::new(),
            keep: Vec::new(),
            expect_status: true,
            expect_size: true,
            requests_max: 1000,
        }
    }

    pub(super) fn importer() -> Importer {
        Importer::new(options())
    }

    /// Returns the lines of the list, which must be valid.
    pub(super) fn lines(importer: &Importer) -> Vec<String> {
        let mut text = Vec::new();
        importer.write("test", &mut text).unwrap();
        RequestList::read(text.as_slice()).unwrap();
        String::from_utf8(text).unwrap().lines().map(str::to_owned).collect()
    }

    fn get(host: &str, target: &str) -> Recorded {
        Recorded {
            method: "GET".to_owned(),
            target: target.to_owned(),
            headers: vec![("Host".to_owned(), host.to_owned()), ("A".to_owned(), "b".to_owned())],
            ..Recorded::default()
        }
    }

    fn imported(options: Options, requests: &[Recorded]) -> Importer {
        let mut importer = Importer::new(options);
        for (request, line) in requests.iter().zip(1..) {
            importer.add(request.clone(), &benign(), &line);
        }
        importer
    }

    #[test]
    fn hosts_are_kept_replaced_or_selected() {
        let requests = [get("a:8080", "/1"), get("b", "/2")];
        let hosts = |options| -> Vec<String> {
            let lines = lines(&imported(options, &requests));
            let host =
                |line: &String| Some(line.split_once("Host: ")?.1.split('"').next()?.to_owned());
            lines.iter().filter_map(host).collect()
        };
        assert_eq!(hosts(options()), ["a:8080", "b"]);
        assert_eq!(hosts(Options { host: Some("c".to_owned()), ..options() }), ["c", "c"]);
        assert_eq!(hosts(Options { only_hosts: vec!["A".to_owned()], ..options() }), ["a:8080"]);
        assert_eq!(hosts(Options { without: vec!["a".to_owned()], ..options() }), ["a:8080", "b"]);
    }

    #[test]
    fn distinct_requests_have_a_limit_that_is_reported() {
        let requests = [get("a", "/1"), get("a", "/2"), get("a", "/3"), get("a", "/2")];
        let importer = imported(Options { requests_max: 2, ..options() }, &requests);
        assert_eq!((importer.distinct_requests(), importer.requests()), (2, 3));
        let skipped = &importer.skipped()["more than 2 distinct requests; see --max-requests"];
        assert_eq!((skipped.count, skipped.first.as_str()), (1, "3: GET /3"));
    }

    #[test]
    fn statuses_that_no_client_received_are_not_expected() {
        let logged = [0, 101, 199, 200, 444, 499, 599, 600];
        let requests = logged.map(|status| Recorded { status: Some(status), ..get("a", "/") });
        let importer = imported(options(), &requests);
        let expected: Vec<_> =
            importer.templates.iter().map(|one| (one.name.as_str(), one.status)).collect();
        assert_eq!(
            expected,
            [
                ("GET 000", None),
                ("GET 101", None),
                ("GET 199", None),
                ("GET 200", Some(200)),
                ("GET 444", None),
                ("GET 499", None),
                ("GET 599", Some(599)),
                ("GET 600", None)
            ]
        );
        assert_eq!(importer.without_response(), 6);
    }

    #[test]
    fn large_weights_are_divided_and_none_becomes_zero() {
        let mut importer = importer();
        for (target, weight) in [("/often", 29_999_999), ("/once", 1)] {
            importer.add(get("a", target), &benign(), &1);
            importer.requests.last_entry().unwrap().get_mut().requests = weight;
        }
        let lines = lines(&importer);
        assert!(lines[1].contains("\"weight\":999999,"), "{}", lines[1]);
        assert!(!lines[2].contains("weight"), "{}", lines[2]);
    }

    #[test]
    fn requests_that_cannot_be_sent_are_skipped_with_their_reason() {
        let mut twice = get("a", "/");
        twice.headers.push(("host".to_owned(), "b".to_owned()));
        let importer = imported(options(), &[get("a", "/a b"), get("a", "/ab c"), twice]);
        let reasons: Vec<&String> = importer.skipped().keys().collect();
        assert_eq!(
            reasons,
            [
                "expected one Host header, found 2",
                "target contains the byte 0x20, which HTTP does not allow there"
            ]
        );
        assert_eq!(importer.skipped()[reasons[1]].count, 2);
        assert_eq!(importer.distinct_requests(), 0);
    }

    #[test]
    fn urls_are_split_byte_for_byte() {
        let parts = |url| Url::parse(url).map(|url| (url.user, url.host, url.target.into_owned()));
        let target = |text: &str| text.to_owned();
        assert_eq!(
            parts("https://u:p@a:8/b/../c?d=%27#e"),
            Some((Some("u:p"), "a:8", target("/b/../c?d=%27")))
        );
        assert_eq!(parts("a?x=http://b/"), Some((None, "a", target("/?x=http://b/"))));
        assert_eq!(parts("HTTP://[::1]"), Some((None, "[::1]", target("/"))));
        for other in ["ws://a/", "data:text/html,a", "http:///a", ""] {
            assert_eq!(parts(other), None, "{other}");
        }
    }
}
