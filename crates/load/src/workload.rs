//! Requests, the responses that they expect, and the order in which they are sent.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use tollgate_http1::{Pattern, RequestMessage, Response};

use crate::failures::Error;
use crate::http2_head::Http2Head;

/// Limit of [`Expectation::body_contains`] in bytes.
pub const MAX_PATTERN_BYTES: usize = 4096;

/// Limit of the templates of one workload. Each has a histogram of its own.
pub const MAX_TEMPLATES: usize = 1_000;

/// Requests, rendered before the run, and the order in which they are sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Script", into = "Script")]
pub struct Workload {
    pub(crate) requests: Vec<Request>,
    /// Indices into `requests`. Not empty, all valid.
    pub(crate) order: Vec<u32>,
    /// Compiled `body_contains` of each request.
    pub(crate) patterns: Vec<Option<Arc<Pattern>>>,
    pub(crate) templates: usize,
    /// Heads of the requests for HTTP/2, made before the first load that needs them.
    http2: OnceLock<Vec<Http2Head>>,
}

/// A [`Workload`] as written for another process.
#[derive(Serialize, Deserialize)]
struct Script {
    requests: Vec<Request>,
    order: Vec<u32>,
}

impl TryFrom<Script> for Workload {
    type Error = Error;

    fn try_from(Script { requests, order }: Script) -> Result<Self, Error> {
        Self::new(requests, order)
    }
}

impl From<Workload> for Script {
    fn from(Workload { requests, order, .. }: Workload) -> Self {
        Self { requests, order }
    }
}

/// One request and the response that it expects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    #[serde(with = "message")]
    pub message: RequestMessage,
    pub expect: Expectation,
    /// Index of the template that it was rendered from, from 0. Responses are counted per template.
    pub template: usize,
}

/// The expected response. `None` accepts any value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expectation {
    pub status: Option<u16>,
    /// Length of the body in bytes, without its transfer coding.
    pub body_bytes: Option<u64>,
    /// Bytes that occur in the body; 1 to [`MAX_PATTERN_BYTES`].
    #[serde(with = "optional_bytes")]
    pub body_contains: Option<Arc<[u8]>>,
    /// A second status code that is accepted with any body.
    pub or_status: Option<u16>,
}

impl Workload {
    /// Creates a workload that sends `requests` in `order`, a list of indices into them. Each thread
    /// repeats the order from its own start.
    ///
    /// # Errors
    ///
    /// A request with a pattern of invalid length, or with a template out of range; an empty order, or one with an index
    /// out of range.
    pub fn new(requests: Vec<Request>, order: Vec<u32>) -> Result<Self, Error> {
        for (index, request) in requests.iter().enumerate() {
            let error = |reason| Error::Workload(format!("invalid request {index}: {reason}"));
            if request.template >= MAX_TEMPLATES {
                let (template, max) = (request.template, MAX_TEMPLATES - 1);
                return Err(error(format!(
                    "template {template} is out of range, choose 0 to {max}"
                )));
            }
            let pattern = request.expect.body_contains.as_ref().map(|pattern| pattern.len());
            if let Some(bytes) = pattern.filter(|bytes| !(1..=MAX_PATTERN_BYTES).contains(bytes)) {
                return Err(error(format!(
                    "the body pattern has {bytes} bytes, choose 1 to {MAX_PATTERN_BYTES}"
                )));
            }
        }
        if order.is_empty() {
            return Err(Error::Workload("the workload sends no request".to_owned()));
        }
        if let Some(index) = order.iter().find(|index| **index as usize >= requests.len()) {
            let count = requests.len();
            return Err(Error::Workload(format!(
                "cannot send request {index} of {count}: indices start at 0"
            )));
        }
        let templates = requests.iter().map(|request| request.template + 1).max().unwrap_or(0);
        let patterns = compile_patterns(&requests);
        Ok(Self { requests, order, patterns, templates, http2: OnceLock::new() })
    }

    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Indices into the requests, in the order in which they are sent.
    pub fn order(&self) -> &[u32] {
        &self.order
    }

    /// Makes the heads for HTTP/2.
    pub(crate) fn render_http2(&self) {
        let head = |request: &Request| Http2Head::new(&request.message);
        self.http2.get_or_init(|| self.requests.iter().map(head).collect());
    }

    /// Returns the heads for HTTP/2; none before they are made.
    pub(crate) fn http2_heads(&self) -> &[Http2Head] {
        self.http2.get().map_or(&[], Vec::as_slice)
    }
}

/// Form of a request in JSON: its parts, with the body in Base64.
mod message {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
    use tollgate_http1::{RequestMessage, RequestText};

    #[derive(Serialize, Deserialize)]
    struct Parts<Text, Headers> {
        method: Text,
        target: Text,
        headers: Headers,
        body_base64: String,
    }

    pub(super) fn serialize<S: Serializer>(
        message: &RequestMessage,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let parts = Parts {
            method: message.method(),
            target: message.target(),
            headers: message.headers().collect::<Vec<_>>(),
            body_base64: STANDARD.encode(message.body()),
        };
        parts.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<RequestMessage, D::Error> {
        let parts = Parts::<String, Vec<(String, String)>>::deserialize(deserializer)?;
        let Parts { method, target, headers, body_base64 } = &parts;
        let body = STANDARD.decode(body_base64).map_err(de::Error::custom)?;
        let text = RequestText { method, target, headers, body: &body };
        text.render().map_err(de::Error::custom)
    }
}

/// Form of bytes in JSON: Base64.
mod optional_bytes {
    use std::sync::Arc;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    pub(super) fn serialize<S: Serializer>(
        bytes: &Option<Arc<[u8]>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        bytes.as_ref().map(|bytes| STANDARD.encode(bytes)).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Arc<[u8]>>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        let bytes = text.map(|text| STANDARD.decode(text)).transpose();
        Ok(bytes.map_err(de::Error::custom)?.map(Into::into))
    }
}

/// Compiles the body pattern of each request. Equal patterns are shared.
fn compile_patterns(requests: &[Request]) -> Vec<Option<Arc<Pattern>>> {
    let mut compiled: HashMap<&[u8], Arc<Pattern>> = HashMap::new();
    let mut compile = |bytes| {
        if let Some(pattern) = compiled.get(bytes) {
            return Some(Arc::clone(pattern));
        }
        let pattern = Arc::new(Pattern::new(bytes)?);
        compiled.insert(bytes, Arc::clone(&pattern));
        Some(pattern)
    };
    requests.iter().map(|request| compile(request.expect.body_contains.as_deref()?)).collect()
}

impl Expectation {
    /// Returns true if the response matches. `has_pattern`: the body contains `body_contains`, or none
    /// is set.
    pub fn accepts(&self, response: Response, has_pattern: bool) -> bool {
        let matches = has_pattern
            && self.status.is_none_or(|status| status == response.status)
            && self.body_bytes.is_none_or(|bytes| bytes == response.body_bytes);
        matches || self.or_status == Some(response.status)
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => write!(f, "{status}")?,
            None => write!(f, "any status")?,
        }
        if let Some(bytes) = self.body_bytes {
            write!(f, " with {bytes} bytes")?;
        }
        if let Some(pattern) = &self.body_contains {
            write!(f, " with `{}` in the body", pattern.escape_ascii())?;
        }
        if let Some(status) = self.or_status {
            write!(f, ", or {status}")?;
        }
        Ok(())
    }
}

/// The requests of one thread, in order.
#[derive(Debug)]
pub(crate) struct RequestSequence {
    workload: Arc<Workload>,
    /// Index into the order.
    position: usize,
}

impl RequestSequence {
    /// Creates the sequence of one of `threads`, which start at evenly spaced positions of the order.
    pub(crate) fn new(workload: &Arc<Workload>, thread: usize, threads: usize) -> Self {
        let position = workload.order.len() * thread / threads;
        Self { workload: Arc::clone(workload), position }
    }

    /// Takes the index of the next request.
    pub(crate) fn next(&mut self) -> usize {
        let order = &self.workload.order;
        let index = order[self.position];
        self.position = if self.position + 1 == order.len() { 0 } else { self.position + 1 };
        index as usize
    }
}

#[cfg(test)]
impl Request {
    /// GET of a target from host `a`, without expectation.
    pub(crate) fn get(target: &str) -> Self {
        Self::parse(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"))
    }

    /// Request whose text is as given, without expectation.
    pub(crate) fn parse(text: &str) -> Self {
        let head = tollgate_http1::parse_request_head(text.as_bytes()).unwrap().unwrap();
        let header = |(name, value)| (name, str::from_utf8(value).unwrap());
        let headers: Vec<(&str, &str)> = head.headers.iter().map(header).collect();
        let parts = tollgate_http1::RequestText {
            method: head.method,
            target: head.target,
            headers: &headers,
            body: &text.as_bytes()[head.len..],
        };
        let message = parts.render().unwrap();
        assert_eq!(message.bytes(), text.as_bytes());
        Self { message, expect: Expectation::default(), template: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(order: &[u32], thread: usize, count: usize) -> Vec<usize> {
        let workload = Workload::new(vec![Request::get("/"); 3], order.to_vec()).unwrap();
        let mut sequence = RequestSequence::new(&Arc::new(workload), thread, 2);
        std::iter::repeat_with(|| sequence.next()).take(count).collect()
    }

    #[test]
    fn sequence_repeats_the_order_from_the_position_of_its_thread() {
        let order = [0, 1, 2, 2];
        assert_eq!(take(&order, 0, 6), [0, 1, 2, 2, 0, 1]);
        assert_eq!(take(&order, 1, 6), [2, 2, 0, 1, 2, 2]);
        assert_eq!(take(&[1], 1, 3), [1, 1, 1]);
    }
}
