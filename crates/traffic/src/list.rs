//! Lists of requests: the format of imported traffic, one JSON object a line.
//!
//! The first line describes the list and its templates, each further line is one request, complete. Lines with
//! their recorded order may follow. A list is read line by line, and each request is rendered once, so that a list
//! takes about as much memory as its file.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, BufRead, Read};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regex::bytes::Regex;
use serde::{Deserialize, Serialize};
use tollgate_http1::{RequestMessage, RequestText, is_token};

use crate::file::Class;
use crate::variable::is_identifier;
use crate::{MAX_EVENTS, MAX_LISTED, MAX_LISTED_ROUND, MAX_LISTED_TEMPLATES};

const VERSION: u32 = 1;

/// Limit of the time of an order: ten years.
pub(crate) const MAX_OFFSET_US: u64 = 10 * 366 * 24 * 3600 * 1_000_000;

const MAX_CONTENT_TYPE_BYTES: usize = 200;

/// Limit of a line in bytes: a body of 64 MiB in Base64, and its head.
const MAX_LINE_BYTES: u64 = 96 << 20;

/// Requests that were read from a list, rendered.
#[derive(Debug, PartialEq, Eq)]
pub struct RequestList {
    pub(crate) title: String,
    pub(crate) templates: Vec<ListTemplate>,
    pub(crate) requests: Vec<ListedRequest>,
    /// Position of the first request of each template.
    pub(crate) first: Vec<usize>,
    variables: Vec<ResponseVariable>,
    events: Vec<ListedEvent>,
}

/// A request as it was recorded, in the order of the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedEvent {
    /// Time since the first request, in microseconds.
    pub at_us: u64,
    /// Number of the client, from 0 and below the number of events.
    pub client: u32,
    /// Position of the request in the list.
    pub request: u32,
}

/// Variable `{{NAME}}` of the requests of a client, whose value is in an earlier response to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseVariable {
    pub name: String,
    /// Method and path without query of the requests whose responses have it.
    pub method: String,
    pub path: String,
    /// True for all paths that start with `path`.
    pub is_prefix: bool,
    pub source: ResponseSource,
}

/// Place of a value in a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResponseSource {
    /// Name of a header.
    Header(String),
    /// JSON pointer (RFC 6901) into the body.
    Json(String),
    /// Regex for the body: its first group, or all of it without a group.
    Regex(String),
}

#[derive(Debug, PartialEq, Eq)]
pub struct ListedRequest {
    /// Index of its template in the list.
    pub(crate) template: u32,
    /// Frequency relative to the other requests of the list.
    pub(crate) weight: u32,
    /// Expected length of the body of the response.
    pub body_bytes: Option<u64>,
    pub(crate) response: ListedResponse,
    pub message: RequestMessage,
}

/// Response to a request in its recording.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListedResponse {
    /// Status code that a client received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    /// Length of the body; of equal requests, the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<u64>,
    /// `Content-Type`.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub(crate) content_type: Option<Box<str>>,
}

/// First line of a list.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListHead {
    pub(crate) tollgate_mix: u32,
    pub(crate) title: String,
    pub(crate) requests: usize,
    pub(crate) templates: Vec<ListTemplate>,
    /// Number of requests in the recorded order, whose lines follow those of the requests.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) events: usize,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) variables: BTreeMap<String, VariableMember>,
}

/// A variable in the first line: `from`, and one of the others.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VariableMember {
    /// Method and path without query of the requests, such as `POST /login`; `*` at its end stands for any rest.
    from: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    json: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    regex: Option<String>,
}

/// Limit of the requests in one line of the order.
pub(crate) const EVENTS_PER_LINE: usize = 1_000;

/// Part of the recorded order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OrderLine {
    /// Three numbers for each request: microseconds since the one before, client, and position in the list.
    pub(crate) order: Vec<u64>,
}

/// Requests of a list that figures are reported for together.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListTemplate {
    /// Name, unique in the list.
    pub name: String,
    pub class: Class,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// True if both blocking the requests and letting them through are expected.
    #[serde(default, skip_serializing_if = "is_false")]
    pub open: bool,
    /// Expected status code if nothing blocks a request. `None`: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListLine<'a> {
    /// Name of a template in the first line.
    #[serde(borrow)]
    pub(crate) template: Cow<'a, str>,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub(crate) weight: u32,
    #[serde(borrow, default = "get", skip_serializing_if = "is_get")]
    pub(crate) method: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) path: Cow<'a, str>,
    /// `Name: value`.
    pub(crate) headers: Vec<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(crate) body: Option<Cow<'a, str>>,
    /// Instead of `body`, if that is not UTF-8.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(crate) body_base64: Option<Cow<'a, str>>,
    /// Expected length of the body of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) body_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "ListedResponse::is_unknown")]
    pub(crate) response: ListedResponse,
}

#[derive(Debug, thiserror::Error)]
pub enum ListError {
    #[error("cannot read the list")]
    Io(#[from] io::Error),
    /// Line and column count from 1, the column in bytes.
    #[error("{line}:{column}: {reason}")]
    Line { line: usize, column: usize, reason: String },
}

impl RequestList {
    /// Reads a list.
    ///
    /// # Errors
    ///
    /// A line is not valid, or a limit is exceeded: 1,000,000 requests, weights of 4,000,000 in all.
    pub fn read(reader: impl BufRead) -> Result<Self, ListError> {
        let mut lines = Lines { reader, buffer: Vec::new(), number: 0 };
        let head: ListHead = match lines.next()? {
            Some(line) => parse(line, 1)?,
            None => return Err(error(1, 1, "the list is empty")),
        };
        check_head(&head).map_err(|reason| error(1, 1, &reason))?;
        let variables = variables(&head).map_err(|reason| error(1, 1, &reason))?;
        let names = head.templates.iter().map(|template| template.name.clone()).zip(0..).collect();
        let mut requests = Vec::with_capacity(head.requests);
        let mut first = vec![None; head.templates.len()];
        let mut round = 0;
        while requests.len() < head.requests {
            let number = lines.number + 1;
            let Some(line) = lines.next()? else {
                let (expected, found) = (head.requests, requests.len());
                let reason = format!(
                    "the first line counts {expected} requests, but the list has {found}; it may be cut off"
                );
                return Err(error(lines.number.max(1), 1, &reason));
            };
            let line: ListLine<'_> = parse(line, number)?;
            let request = listed(&line, &names).map_err(|reason| error(number, 1, &reason))?;
            round += u64::from(request.weight);
            if round > MAX_LISTED_ROUND {
                let reason = format!(
                    "weights add up to more than {MAX_LISTED_ROUND}; divide them by a common factor"
                );
                return Err(error(number, 1, &reason));
            }
            first[request.template as usize].get_or_insert(requests.len());
            requests.push(request);
        }
        let events = read_order(&mut lines, &head)?;
        if lines.next()?.is_some() {
            let (requests, events) = (head.requests, head.events);
            let reason = format!(
                "the first line counts {requests} requests and an order of {events}, but the list has more"
            );
            return Err(error(lines.number, 1, &reason));
        }
        let unused = head.templates.iter().zip(&first).find(|(_, first)| first.is_none());
        if let Some((template, _)) = unused {
            let reason = format!("template `{}` has no request", template.name);
            return Err(error(1, 1, &reason));
        }
        let first = first.into_iter().flatten().collect();
        let ListHead { title, templates, .. } = head;
        Ok(Self { title, templates, requests, first, variables, events })
    }

    pub fn title(&self) -> &str {
        &self.title
    }

    /// Returns the requests in their recorded order; empty if it is not known.
    pub fn events(&self) -> &[ListedEvent] {
        &self.events
    }

    /// Returns the variables whose values come from responses.
    pub fn variables(&self) -> &[ResponseVariable] {
        &self.variables
    }
}

fn read_order(
    lines: &mut Lines<impl BufRead>,
    head: &ListHead,
) -> Result<Vec<ListedEvent>, ListError> {
    let mut events = Vec::with_capacity(head.events);
    let mut at_us = 0_u64;
    while events.len() < head.events {
        let number = lines.number + 1;
        let fail = |reason: &str| Err(error(number, 1, reason));
        let Some(line) = lines.next()? else {
            let (expected, found) = (head.events, events.len());
            let reason = format!(
                "the first line counts an order of {expected} requests, but it has {found}; it may be cut off"
            );
            return Err(error(lines.number, 1, &reason));
        };
        let OrderLine { order } = parse(line, number)?;
        let (triples, rest) = order.as_chunks::<3>();
        if !rest.is_empty() || triples.len() > head.events - events.len() {
            return fail(
                "expected three numbers for each request, and as many as the first line counts",
            );
        }
        for &[gap_us, client, request] in triples {
            at_us = at_us.saturating_add(gap_us);
            if at_us > MAX_OFFSET_US {
                return fail("the order is longer than ten years");
            }
            if request >= head.requests as u64 || client >= head.events as u64 {
                return fail("the order has a request or a client that is out of range");
            }
            events.push(ListedEvent { at_us, client: client as u32, request: request as u32 });
        }
    }
    Ok(events)
}

fn variables(head: &ListHead) -> Result<Vec<ResponseVariable>, String> {
    let variable = |(name, member): (&String, &VariableMember)| {
        variable(name, member).map_err(|reason| format!("variable `{name}`: {reason}"))
    };
    head.variables.iter().map(variable).collect()
}

fn variable(name: &str, member: &VariableMember) -> Result<ResponseVariable, String> {
    if !is_identifier(name) {
        return Err("use letters, digits and `_`, but no digit first".to_owned());
    }
    let (method, path) = member
        .from
        .split_once(' ')
        .filter(|(_, path)| path.starts_with('/') && !path.contains(['?', ' ']))
        .ok_or("expected a `from` such as `POST /login`, or `GET /items/*`")?;
    let source = match (&member.header, &member.json, &member.regex) {
        (Some(header), None, None) if is_token(header.as_bytes()) => {
            ResponseSource::Header(header.clone())
        }
        (Some(header), None, None) => {
            return Err(format!("`{}` is not the name of a header", header.escape_debug()));
        }
        (None, Some(pointer), None) if pointer.is_empty() || pointer.starts_with('/') => {
            ResponseSource::Json(pointer.clone())
        }
        (None, Some(_), None) => return Err("expected a JSON pointer such as `/token`".to_owned()),
        (None, None, Some(pattern)) => {
            Regex::new(pattern).map_err(|error| format!("invalid regex: {error}"))?;
            ResponseSource::Regex(pattern.clone())
        }
        _ => return Err("expected exactly one of `header`, `json` and `regex`".to_owned()),
    };
    let prefix = path.strip_suffix('*');
    Ok(ResponseVariable {
        name: name.to_owned(),
        method: method.to_owned(),
        path: prefix.unwrap_or(path).to_owned(),
        is_prefix: prefix.is_some(),
        source,
    })
}

fn check_head(head: &ListHead) -> Result<(), String> {
    let ListHead { tollgate_mix, requests, templates, .. } = head;
    if *tollgate_mix != VERSION {
        return Err(format!(
            "version {tollgate_mix} of the format is not known; expected {VERSION}"
        ));
    }
    if !(1..=MAX_LISTED).contains(requests) {
        return Err(format!("the list has {requests} requests; expected 1 to {MAX_LISTED}"));
    }
    if head.events > MAX_EVENTS {
        let events = head.events;
        return Err(format!(
            "the list has an order of {events} requests, but the limit is {MAX_EVENTS}"
        ));
    }
    if templates.len() > MAX_LISTED_TEMPLATES {
        let count = templates.len();
        return Err(format!(
            "the list has {count} templates, but the limit is {MAX_LISTED_TEMPLATES}"
        ));
    }
    let mut names = HashSet::new();
    match templates.iter().find(|template| !names.insert(&template.name)) {
        Some(twice) => Err(format!("two templates are named `{}`", twice.name)),
        None => Ok(()),
    }
}

fn listed(line: &ListLine<'_>, names: &HashMap<String, u32>) -> Result<ListedRequest, String> {
    let template = names.get(line.template.as_ref()).copied();
    let template =
        template.ok_or_else(|| format!("template `{}` is not in the first line", line.template))?;
    if line.method == "HEAD" && line.body_bytes.is_some_and(|bytes| bytes > 0) {
        return Err("cannot expect a body, because the response to HEAD has none".to_owned());
    }
    let body = match (&line.body, &line.body_base64) {
        (Some(_), Some(_)) => return Err("both `body` and `body_base64`; remove one".to_owned()),
        (Some(text), None) => Cow::Borrowed(text.as_bytes()),
        (None, Some(text)) => {
            let decoded = STANDARD.decode(text.as_ref());
            Cow::Owned(decoded.map_err(|error| format!("invalid `body_base64`: {error}"))?)
        }
        (None, None) => Cow::Borrowed(&b""[..]),
    };
    let headers = line.headers.iter().map(|header| {
        let (name, value) = header.split_once(':').ok_or_else(|| {
            format!("invalid header `{}`: expected `Name: value`", header.escape_debug())
        })?;
        Ok((name, value.trim()))
    });
    let headers = headers.collect::<Result<Vec<_>, String>>()?;
    if !line.path.starts_with('/') {
        return Err(format!("path `{}` does not start with `/`", line.path.escape_debug()));
    }
    let text =
        RequestText { method: &line.method, target: &line.path, headers: &headers, body: &body };
    let message = text.render().map_err(|error| error.to_string())?;
    let response = line.response.clone();
    if response.status.is_some_and(|status| !(200..=599).contains(&status)) {
        return Err("the status of a recorded response is not in 200 to 599".to_owned());
    }
    if !response.content_type.as_deref().is_none_or(is_content_type) {
        return Err("the type of a recorded response is not a value of a header".to_owned());
    }
    let ListLine { weight, body_bytes, .. } = *line;
    Ok(ListedRequest { template, weight, body_bytes, response, message })
}

/// Lines of a reader, in one buffer.
struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    /// Number of lines read.
    number: usize,
}

impl<R: BufRead> Lines<R> {
    fn next(&mut self) -> Result<Option<&[u8]>, ListError> {
        self.buffer.clear();
        let mut limited = (&mut self.reader).take(MAX_LINE_BYTES);
        if limited.read_until(b'\n', &mut self.buffer)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        if self.buffer.last() != Some(&b'\n') && self.buffer.len() as u64 == MAX_LINE_BYTES {
            let reason = format!("the line is longer than {MAX_LINE_BYTES} bytes");
            return Err(error(self.number, 1, &reason));
        }
        Ok(Some(&self.buffer))
    }
}

fn parse<'a, T: Deserialize<'a>>(line: &'a [u8], number: usize) -> Result<T, ListError> {
    serde_json::from_slice(line).map_err(|reason| {
        let text = reason.to_string();
        let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message);
        error(number, reason.column().max(1), text)
    })
}

fn error(line: usize, column: usize, reason: &str) -> ListError {
    ListError::Line { line, column, reason: reason.to_owned() }
}

/// True if the text may be the value of `Content-Type`.
pub(crate) fn is_content_type(text: &str) -> bool {
    (1..=MAX_CONTENT_TYPE_BYTES).contains(&text.len())
        && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
}

impl ListedResponse {
    fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

impl ListHead {
    pub(crate) fn new(title: String, requests: usize, templates: Vec<ListTemplate>) -> Self {
        let variables = BTreeMap::new();
        Self { tollgate_mix: VERSION, title, requests, templates, events: 0, variables }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_one(weight: &u32) -> bool {
    *weight == 1
}

fn get() -> Cow<'static, str> {
    Cow::Borrowed("GET")
}

fn is_get(method: &str) -> bool {
    method == "GET"
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#"{"tollgate_mix":1,"title":"a shop","requests":2,"templates":[{"name":"GET 200","class":"benign","status":200},{"name":"PUT","class":"malicious","family":"xss","open":true}]}"#;

    fn read(lines: &[&str]) -> Result<RequestList, String> {
        let text = [&[HEAD], lines].concat().join("\n");
        RequestList::read(text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn requests_are_rendered_with_their_expectations() {
        let list = read(&[
            r#"{"template":"GET 200","weight":6,"path":"/a?b=\u00e9","headers":["Host: a","X:y "],"body_bytes":7}"#,
            r#"{"template":"PUT","weight":4,"method":"PUT","path":"/","headers":["Host: a"],"body_base64":"/wA="}"#,
        ])
        .unwrap();
        let texts: Vec<&[u8]> =
            list.requests.iter().map(|request| request.message.bytes()).collect();
        assert_eq!(texts[0], "GET /a?b=é HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n".as_bytes());
        assert_eq!(texts[1], b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n\xff\0");
        assert_eq!(list.requests[0].body_bytes, Some(7));
        assert_eq!(list.requests[1].template, 1);
        assert_eq!((list.templates[0].status, list.templates[1].status), (Some(200), None));
    }

    #[test]
    fn variables_name_their_responses() {
        let line = r#"{"template":"PUT","path":"/{{a}}","headers":["Host: a"]}"#;
        let other = r#"{"template":"GET 200","path":"/","headers":["Host: a"]}"#;
        let read = |variables: &str| {
            let head = HEAD.replacen('{', &format!("{{\"variables\":{{{variables}}},"), 1);
            let text = [head.as_str(), line, other].join("\n");
            RequestList::read(text.as_bytes())
                .map(|list| list.variables)
                .map_err(|error| error.to_string())
        };
        let found = read(
            r#""a":{"from":"POST /login","json":"/a/0"},"b":{"from":"GET /f/*","regex":"v=(.)"},"c":{"from":"GET /","header":"X-C"}"#,
        );
        let variable = |name: &str, method: &str, path: &str, is_prefix, source| ResponseVariable {
            name: name.to_owned(),
            method: method.to_owned(),
            path: path.to_owned(),
            is_prefix,
            source,
        };
        assert_eq!(
            found.unwrap(),
            [
                variable("a", "POST", "/login", false, ResponseSource::Json("/a/0".to_owned())),
                variable("b", "GET", "/f/", true, ResponseSource::Regex("v=(.)".to_owned())),
                variable("c", "GET", "/", false, ResponseSource::Header("X-C".to_owned())),
            ]
        );
        for (text, expected) in [
            (r#""1":{"from":"GET /","json":""}"#, "1:1: variable `1`: use letters, digits"),
            (r#""a":{"from":"/login","json":""}"#, "1:1: variable `a`: expected a `from` such as"),
            (r#""a":{"from":"GET /?b","json":""}"#, "1:1: variable `a`: expected a `from`"),
            (r#""a":{"from":"GET /"}"#, "1:1: variable `a`: expected exactly one of"),
            (
                r#""a":{"from":"GET /","json":"","regex":"a"}"#,
                "1:1: variable `a`: expected exactly",
            ),
            (
                r#""a":{"from":"GET /","header":"X Y"}"#,
                "1:1: variable `a`: `X Y` is not the name of a header",
            ),
            (r#""a":{"from":"GET /","json":"b"}"#, "1:1: variable `a`: expected a JSON pointer"),
            (
                r#""a":{"from":"GET /","regex":"("}"#,
                "1:1: variable `a`: invalid regex: regex parse",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn errors_name_line_and_column() {
        let fine = r#"{"template":"PUT","path":"/","headers":["Host: a"]}"#;
        for (line, expected) in [
            (r#"{"template":"PUT","path":"/","heders":[]}"#, "3:37: unknown field `heders`"),
            (r#"{"template":"PUT","path":"/","headers":[}"#, "3:41: expected value"),
            (r#"{"template":"POST","path":"/","headers":[]}"#, "3:1: template `POST` is not in"),
            (r#"{"template":"PUT","path":"/","headers":[]}"#, "3:1: expected one Host header"),
            (r#"{"template":"PUT","path":"x","headers":["Host: a"]}"#, "3:1: path `x` does not"),
            (r#"{"template":"PUT","path":"/ ","headers":["Host: a"]}"#, "3:1: target contains"),
            (r#"{"template":"PUT","path":"/","headers":["Host"]}"#, "3:1: invalid header `Host`"),
            (
                r#"{"template":"PUT","path":"/","headers":["Host: a"],"body_base64":"*"}"#,
                "3:1: invalid `body_base64`",
            ),
            (
                r#"{"template":"PUT","path":"/","headers":["Host: a"],"method":"HEAD","body_bytes":1}"#,
                "3:1: cannot expect a body",
            ),
            (
                r#"{"template":"PUT","weight":4000000,"path":"/","headers":["Host: a"]}"#,
                "3:1: weights add up to more than 4000000",
            ),
        ] {
            let error = read(&[fine, line]).unwrap_err();
            assert!(error.starts_with(expected), "{line}: {error}");
        }
        let cut = "the first line counts 2 requests, but the list has 1; it may be cut off";
        assert_eq!(read(&[fine]).unwrap_err(), format!("2:1: {cut}"));
        let more = [fine, r#"{"template":"GET 200","path":"/","headers":["Host: a"]}"#, fine];
        assert!(read(&more).unwrap_err().ends_with("but the list has more"));
        let empty = RequestList::read(&b""[..]).unwrap_err();
        assert_eq!(empty.to_string(), "1:1: the list is empty");
        let order = |events: usize, lines: &[&str]| {
            let head = format!(r#""requests":1,"events":{events}"#);
            let head = HEAD
                .replace(r#""requests":2"#, &head)
                .replace(r#"{"name":"GET 200","class":"benign","status":200},"#, "");
            let text = [&[head.as_str(), fine], lines].concat().join("\n");
            RequestList::read(text.as_bytes())
                .map(|list| list.events)
                .map_err(|error| error.to_string())
        };
        let event = |at_us, client| ListedEvent { at_us, client, request: 0 };
        let three = [r#"{"order":[0,2,0,1500,0,0]}"#, r#"{"order":[7,2,0]}"#];
        assert_eq!(order(3, &three).unwrap(), [event(0, 2), event(1_500, 0), event(1_507, 2)]);
        for (events, lines, expected) in [
            (4, &three[..], "4:1: the first line counts an order of 4 requests, but it has 3; it"),
            (2, &three[..1], "3:1: the order has a request or a client that is out of range"),
            (2, &three[..], "3:1: the order has a request or a client"),
            (1, &three[..1], "3:1: expected three numbers for each request"),
            (3, &[r#"{"order":[0,0]}"#], "3:1: expected three numbers"),
            (3, &[r#"{"order":[0,0,1]}"#], "3:1: the order has a request or a client"),
            (3, &[r#"{"order":[400000000000000,0,0]}"#], "3:1: the order is longer than ten years"),
            (4_000_001, &[], "1:1: the list has an order of 4000001 requests"),
            (
                1,
                &[r#"{"order":[0,0,0]}"#, fine],
                "4:1: the first line counts 1 requests and an order of 1",
            ),
        ] {
            let error = order(events, lines).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
        let old = HEAD.replace("\"tollgate_mix\":1", "\"tollgate_mix\":9");
        let error = RequestList::read(old.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("1:1: version 9 of the format is not known"), "{error}");
    }
}
