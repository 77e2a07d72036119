//! `/echo`: the body of the request.

use std::borrow::Cow;

use crate::answer::{Answer, Body, NO_SNIFF};
use crate::plan::Plan;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::site::Site;

/// The largest body that is kept and sent back.
pub(crate) const MAX_ECHO_BYTES: u64 = 1 << 20;

/// A body on its way back, with its type.
#[derive(Debug)]
pub(crate) struct Echo {
    content_type: Cow<'static, [u8]>,
    body: Vec<u8>,
}

/// Answers with the body of the request and its type.
pub(crate) fn echo<'a>(request: &Request<'a>, _site: &mut Site) -> Result<Plan<'a>, Refusal<'a>> {
    let content_type = match request.headers.first("Content-Type") {
        Some(content_type) => Cow::Owned(content_type.to_vec()),
        None => Cow::Borrowed(&b"application/octet-stream"[..]),
    };
    Ok(Plan::Echo(Box::new(Echo { content_type, body: Vec::new() })))
}

impl Echo {
    /// Keeps the next piece of the body, whose length was looked at before.
    pub(crate) fn take(&mut self, piece: &[u8]) {
        self.body.extend_from_slice(piece);
    }

    pub(crate) fn answer(self) -> Answer<'static> {
        Answer::ok(self.content_type, NO_SNIFF, Body::Bytes(self.body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoints::tests::ask;
    use crate::site::made_up::site;

    #[test]
    fn the_body_comes_back_with_its_type() {
        let mut site = site();
        let answer = ask(&mut site, "PUT /echo", "content-type: text/x\r\n", b"a\r\n\0\xff");
        assert_eq!(&answer.content_type[..], b"text/x");
        assert_eq!(answer.body, Body::Bytes(b"a\r\n\0\xff".to_vec()));
        let answer = ask(&mut site, "GET /echo", "", b"");
        assert_eq!(&answer.content_type[..], b"application/octet-stream");
        assert_eq!(answer.body, Body::Bytes(Vec::new()));
    }
}
