//! Lists of requests: the format of imported traffic, one JSON object a line.
//!
//! The first line describes the list and its templates, each further line is one request, complete. A list is read line
//! by line, and each request is rendered once, so that a list takes about as much memory as its file.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead, Read};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use tollgate_http1::RequestText;

use crate::file::Class;
use crate::{MAX_LISTED, MAX_LISTED_ROUND, MAX_LISTED_TEMPLATES};

const VERSION: u32 = 1;

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
}

#[derive(Debug, PartialEq, Eq)]
pub struct ListedRequest {
    /// Index of its template in the list.
    pub(crate) template: u32,
    /// Frequency relative to the other requests of the list.
    pub(crate) weight: u32,
    /// True for a HEAD request, whose response has no body.
    pub is_head: bool,
    /// Expected length of the body of the response.
    pub body_bytes: Option<u64>,
    /// The whole request as sent.
    pub bytes: Arc<[u8]>,
}

/// First line of a list.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListHead {
    pub(crate) tollgate_mix: u32,
    pub(crate) title: String,
    pub(crate) requests: usize,
    pub(crate) templates: Vec<ListTemplate>,
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
        let names = head.templates.iter().map(|template| template.name.clone()).zip(0..).collect();
        let mut requests = Vec::with_capacity(head.requests);
        let mut first = vec![None; head.templates.len()];
        let mut round = 0;
        loop {
            let number = lines.number + 1;
            let Some(line) = lines.next()? else { break };
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
            if requests.len() > head.requests {
                break;
            }
        }
        if requests.len() != head.requests {
            let reason = format!(
                "the first line counts {} requests, but the list has {}; it may be cut off",
                head.requests,
                if requests.len() > head.requests {
                    "more".to_owned()
                } else {
                    requests.len().to_string()
                }
            );
            return Err(error(lines.number.max(1), 1, &reason));
        }
        let unused = head.templates.iter().zip(&first).find(|(_, first)| first.is_none());
        if let Some((template, _)) = unused {
            let reason = format!("template `{}` has no request", template.name);
            return Err(error(1, 1, &reason));
        }
        let first = first.into_iter().flatten().collect();
        Ok(Self { title: head.title, templates: head.templates, requests, first })
    }

    pub fn title(&self) -> &str {
        &self.title
    }
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
    let is_head = line.method == "HEAD";
    if is_head && line.body_bytes.is_some_and(|bytes| bytes > 0) {
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
        Ok((name.to_owned(), value.trim().to_owned()))
    });
    let headers = headers.collect::<Result<Vec<_>, String>>()?;
    if !line.path.starts_with('/') {
        return Err(format!("path `{}` does not start with `/`", line.path.escape_debug()));
    }
    let text =
        RequestText { method: &line.method, target: &line.path, headers: &headers, body: &body };
    let bytes = text.render().map_err(|error| error.to_string())?;
    let (weight, body_bytes) = (line.weight, line.body_bytes);
    Ok(ListedRequest { template, weight, is_head, body_bytes, bytes: bytes.into() })
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

impl ListHead {
    pub(crate) fn new(title: String, requests: usize, templates: Vec<ListTemplate>) -> Self {
        Self { tollgate_mix: VERSION, title, requests, templates }
    }
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
        let texts: Vec<&[u8]> = list.requests.iter().map(|request| &*request.bytes).collect();
        assert_eq!(texts[0], "GET /a?b=é HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n".as_bytes());
        assert_eq!(texts[1], b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n\xff\0");
        assert_eq!(list.requests[0].body_bytes, Some(7));
        assert_eq!(list.requests[1].template, 1);
        assert_eq!((list.templates[0].status, list.templates[1].status), (Some(200), None));
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
        assert!(read(&[fine; 3]).unwrap_err().contains("the list has more"));
        let empty = RequestList::read(&b""[..]).unwrap_err();
        assert_eq!(empty.to_string(), "1:1: the list is empty");
        let old = HEAD.replace("\"tollgate_mix\":1", "\"tollgate_mix\":9");
        let error = RequestList::read(old.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("1:1: version 9 of the format is not known"), "{error}");
    }
}
