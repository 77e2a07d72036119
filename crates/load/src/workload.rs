//! What is sent, rendered before the run.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use tollgate_wire::{Answer, Needle};

use crate::error::Error;

/// Requests and the order in which they are sent.
#[derive(Clone, Debug)]
pub struct Workload {
    pub(crate) requests: Vec<Request>,
    /// Indices into `requests`; never empty, all within.
    pub(crate) order: Vec<u32>,
    /// What is looked for in the body of the answer to each request.
    pub(crate) needles: Vec<Option<Arc<Needle>>>,
    /// How many templates the requests name.
    pub(crate) templates: usize,
}

/// One request and the answer that it should get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The whole request as it goes over the wire.
    pub bytes: Vec<u8>,
    /// Whether it is a HEAD, whose answer has no body.
    pub is_head: bool,
    /// The answer that counts as the expected one.
    pub expect: Expectation,
    /// The template that it was rendered from, numbered from 0; figures are kept for each template.
    pub template: usize,
}

/// What an answer should be; `None` accepts anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expectation {
    /// The status code.
    pub status: Option<u16>,
    /// The length of the body in bytes, without its transfer coding.
    pub body_bytes: Option<u64>,
    /// Bytes that occur somewhere in the body; of at most [`MAX_NEEDLE_BYTES`].
    pub body_contains: Option<Arc<[u8]>>,
    /// Another status code that is as it should be, whatever comes with it.
    pub or_status: Option<u16>,
}

/// The longest text that is looked for in a body.
pub const MAX_NEEDLE_BYTES: usize = 4096;

/// The most templates of one workload: each has a histogram of its own.
pub const MAX_TEMPLATES: usize = 1_000;

impl Workload {
    /// A workload that sends `requests` in `order`, which holds indices into them and is walked in a
    /// circle by every thread, each from a place of its own.
    ///
    /// # Errors
    ///
    /// A request without bytes, with a needle that is empty or too long, or of a template that is out
    /// of range; an empty order, or one that names a request that is not there.
    pub fn new(requests: Vec<Request>, order: Vec<u32>) -> Result<Self, Error> {
        for (index, request) in requests.iter().enumerate() {
            if request.bytes.is_empty() {
                return Err(Error::EmptyRequest { index });
            }
            if request.template >= MAX_TEMPLATES {
                return Err(Error::Template { index, template: request.template });
            }
            if let Some(needle) = &request.expect.body_contains
                && !(1..=MAX_NEEDLE_BYTES).contains(&needle.len())
            {
                return Err(Error::Needle { index, bytes: needle.len() });
            }
        }
        if order.is_empty() {
            return Err(Error::EmptyOrder);
        }
        let is_outside = |index: &&u32| **index as usize >= requests.len();
        if let Some(&index) = order.iter().find(is_outside) {
            return Err(Error::Order { index, requests: requests.len() });
        }
        let templates = requests.iter().map(|request| request.template + 1).max().unwrap_or(0);
        let needles = needles(&requests);
        Ok(Self { requests, order, needles, templates })
    }
}

impl Expectation {
    /// Whether an answer is as it should be, of which is known whether its body contains the text that
    /// is looked for; so it does where none is.
    pub fn accepts(&self, answer: Answer, contains: bool) -> bool {
        let as_it_should = contains
            && self.status.is_none_or(|status| status == answer.status)
            && self.body_bytes.is_none_or(|bytes| bytes == answer.body_bytes);
        as_it_should || self.or_status == Some(answer.status)
    }
}

/// Prepares what is looked for, once for all requests that look for the same.
fn needles(requests: &[Request]) -> Vec<Option<Arc<Needle>>> {
    let mut known: HashMap<&[u8], Arc<Needle>> = HashMap::new();
    let mut prepare = |bytes| {
        if let Some(needle) = known.get(bytes) {
            return Some(Arc::clone(needle));
        }
        let needle = Arc::new(Needle::new(bytes)?);
        known.insert(bytes, Arc::clone(&needle));
        Some(needle)
    };
    requests.iter().map(|request| prepare(request.expect.body_contains.as_deref()?)).collect()
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
        if let Some(needle) = &self.body_contains {
            write!(f, " with `{}` in the body", needle.escape_ascii())?;
        }
        if let Some(status) = self.or_status {
            write!(f, ", or {status}")?;
        }
        Ok(())
    }
}
