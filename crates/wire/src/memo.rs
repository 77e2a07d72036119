//! The head that a server sends again and again.

use crate::error::ParseError;
use crate::head::{ResponseHead, parse_response_head};

/// The longest head that is remembered, in bytes.
pub const MAX_MEMO_BYTES: usize = 1024;

/// Remembers the last head of a final answer with what it says.
///
/// Under load a server sends the same head until the second in its `Date` ends, and comparing it is
/// cheaper than parsing it. What a head says follows from its bytes alone, so that one memo
/// serves all connections of a thread, to whatever servers.
#[derive(Debug, Default)]
pub struct HeadMemo {
    /// The bytes of the head; as many as it is long.
    bytes: Vec<u8>,
    /// The same head has another meaning in the answer to a HEAD.
    to_head: bool,
    head: Option<ResponseHead>,
}

impl HeadMemo {
    /// A memo that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The last head that was remembered, with the empty line that ends it; empty before the first.
    ///
    /// Not remembered are the heads of interim answers (1xx), heads that came split, and those
    /// longer than [`MAX_MEMO_BYTES`].
    #[must_use]
    pub fn last(&self) -> &[u8] {
        &self.bytes
    }

    /// Parses the head at the start of `bytes`, or recalls it.
    #[inline]
    pub(crate) fn parse(
        &mut self,
        bytes: &[u8],
        to_head: bool,
    ) -> Result<Option<ResponseHead>, ParseError> {
        if self.to_head == to_head && self.head.is_some() && bytes.starts_with(&self.bytes) {
            return Ok(self.head);
        }
        let head = parse_response_head(bytes, to_head)?;
        if let Some(head) = head
            && head.status >= 200
            && head.len <= MAX_MEMO_BYTES
        {
            self.remember(&bytes[..head.len], to_head, head);
        }
        Ok(head)
    }

    fn remember(&mut self, bytes: &[u8], to_head: bool, head: ResponseHead) {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.to_head = to_head;
        self.head = Some(head);
    }
}
