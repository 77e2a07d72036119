//! What is sent, rendered before the run.

use std::fmt;

use tollgate_wire::Answer;

use crate::error::Error;

/// Requests and the order in which they are sent.
#[derive(Clone, Debug)]
pub struct Workload {
    pub(crate) requests: Vec<Request>,
    /// Indices into `requests`; never empty, all within.
    pub(crate) order: Vec<u32>,
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
}

/// What an answer should be; `None` accepts anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expectation {
    /// The status code.
    pub status: Option<u16>,
    /// The length of the body in bytes, without its transfer coding.
    pub body_bytes: Option<u64>,
}

impl Workload {
    /// A workload that sends `requests` in `order`, which holds indices into them and is walked in a
    /// circle by every thread, each from a place of its own.
    ///
    /// # Errors
    ///
    /// A request without bytes, an empty order, or one that names a request that is not there.
    pub fn new(requests: Vec<Request>, order: Vec<u32>) -> Result<Self, Error> {
        if let Some(index) = requests.iter().position(|request| request.bytes.is_empty()) {
            return Err(Error::EmptyRequest { index });
        }
        if order.is_empty() {
            return Err(Error::EmptyOrder);
        }
        let is_outside = |index: &&u32| **index as usize >= requests.len();
        if let Some(&index) = order.iter().find(is_outside) {
            return Err(Error::Order { index, requests: requests.len() });
        }
        Ok(Self { requests, order })
    }
}

impl Expectation {
    pub(crate) fn accepts(self, answer: Answer) -> bool {
        self.status.is_none_or(|status| status == answer.status)
            && self.body_bytes.is_none_or(|bytes| bytes == answer.body_bytes)
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.status, self.body_bytes) {
            (None, None) => write!(f, "any answer"),
            (Some(status), None) => write!(f, "{status}"),
            (None, Some(bytes)) => write!(f, "any status with {bytes} bytes"),
            (Some(status), Some(bytes)) => write!(f, "{status} with {bytes} bytes"),
        }
    }
}
