//! One request in words, before it is bytes.

use crate::template::Expect;
use tollgate_wire::RequestText;

/// A request with a value in the place of every variable, and the answer that it deserves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The request method.
    pub method: String,
    /// The request target, which starts with `/`.
    pub path: String,
    /// Every header that is sent, those of the mix first.
    pub headers: Vec<(String, String)>,
    /// The request body.
    pub body: String,
    /// The answer that this request gets when nothing blocks it.
    pub expect: Expect,
}

impl Message {
    /// The request as what renders it to bytes takes it.
    pub fn text(&self) -> RequestText<'_> {
        RequestText {
            method: &self.method,
            target: &self.path,
            headers: &self.headers,
            body: self.body.as_bytes(),
        }
    }
}
