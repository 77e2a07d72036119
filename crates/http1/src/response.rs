//! Finding the end of each response on a connection.

use crate::body::BodyDecoder;
use crate::error::{MAX_HEAD_BYTES, ParseError};
use crate::head::{HeadFaults, ResponseSummary, parse_response_summary};
use crate::head_cache::HeadCache;

/// Last head of a final response. The key is true for responses to HEAD, whose heads mean something else. Heads of
/// interim responses (1xx) and heads that arrived in pieces are not cached.
pub type ResponseHeadCache = HeadCache<bool, ResponseSummary, 1>;

/// Scans the responses of one connection, which may arrive in any pieces.
///
/// Copies nothing of a response that arrives as a whole, except a head that the cache does not have. Skips
/// interim responses (1xx). After an error, call [`reset`](Self::reset) before the next connection.
#[derive(Debug, Default)]
pub struct ResponseScanner {
    /// Start of an incomplete head, at most [`MAX_HEAD_BYTES`].
    split_head: Vec<u8>,
    /// True between an interim response and its final one.
    after_interim: bool,
    current: Option<CurrentResponse>,
}

/// Result of one [`ResponseScanner::feed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// All bytes are consumed, and the response has not ended.
    Partial,
    Complete {
        response: Response,
        /// Bytes of the last feed that belong to it.
        consumed: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// Status code, 200 to 999.
    pub status: u16,
    /// Length of the body in bytes, without its transfer coding.
    pub body_bytes: u64,
    /// True if the server keeps the connection open for another request.
    pub keep_alive: bool,
    pub faults: HeadFaults,
}

#[derive(Debug)]
struct CurrentResponse {
    body: BodyDecoder,
    response: Response,
}

impl ResponseScanner {
    /// Starts over, for a new connection. Keeps its memory.
    pub fn reset(&mut self) {
        self.split_head.clear();
        self.after_interim = false;
        self.current = None;
    }

    /// Consumes the next bytes of the response to one request. `to_head` is true if that was a HEAD, whose
    /// response has no body. One cache may serve many scanners.
    ///
    /// Calls `payload` with each piece of the final response's payload, in order, never empty, without
    /// transfer coding; also with the payload that precedes an error in the same bytes.
    ///
    /// # Errors
    ///
    /// The bytes are not an HTTP/1 response, its framing is invalid, or a limit is exceeded.
    #[inline]
    pub fn feed(
        &mut self,
        bytes: &[u8],
        to_head: bool,
        heads: &mut ResponseHeadCache,
        payload: impl FnMut(&[u8]),
    ) -> Result<Scan, ParseError> {
        let mut head_bytes = 0;
        // Each iteration but the last consumes an interim response.
        let current = loop {
            if let Some(current) = &mut self.current {
                break current;
            }
            match self.feed_head(&bytes[head_bytes..], to_head, heads)? {
                Some(consumed) => head_bytes += consumed,
                None => return Ok(Scan::Partial),
            }
        };
        let progress = current.body.feed(&bytes[head_bytes..], payload)?;
        current.response.body_bytes += progress.body_bytes;
        if !progress.done {
            return Ok(Scan::Partial);
        }
        let response = current.response;
        self.current = None;
        Ok(Scan::Complete { response, consumed: head_bytes + progress.consumed })
    }

    /// Handles the end of the connection. Returns the response that it completes, if its body lasts until the
    /// close, or `None` if no response had started.
    pub fn close(&mut self) -> Result<Option<Response>, ParseError> {
        match self.current.take() {
            Some(current) if current.body.ends_at_close() => Ok(Some(current.response)),
            None if self.split_head.is_empty() && !self.after_interim => Ok(None),
            Some(_) | None => Err(ParseError::ClosedMidResponse),
        }
    }

    /// Consumes one head, and returns how many of `bytes` belong to it; `None` if it is incomplete.
    fn feed_head(
        &mut self,
        bytes: &[u8],
        to_head: bool,
        heads: &mut ResponseHeadCache,
    ) -> Result<Option<usize>, ParseError> {
        let buffered = self.split_head.len();
        let head = if buffered == 0 {
            find_or_parse(bytes, to_head, heads)?
        } else {
            let room = MAX_HEAD_BYTES - buffered;
            self.split_head.extend_from_slice(&bytes[..bytes.len().min(room)]);
            // A head ends with a line: bytes within a line need no new attempt.
            let may_end = bytes.contains(&b'\n') || self.split_head.len() == MAX_HEAD_BYTES;
            if may_end { parse_response_summary(&self.split_head, to_head)? } else { None }
        };
        let Some(head) = head else {
            if buffered == 0 {
                self.split_head.extend_from_slice(bytes);
            }
            return Ok(None);
        };
        self.split_head.clear();
        match head.status {
            101 => return Err(ParseError::SwitchesProtocols),
            100..=199 => self.after_interim = true,
            status => {
                self.after_interim = false;
                self.current = Some(CurrentResponse {
                    body: BodyDecoder::new(head.body),
                    response: Response {
                        status,
                        body_bytes: 0,
                        keep_alive: head.keep_alive,
                        faults: head.faults,
                    },
                });
            }
        }
        Ok(Some(head.len - buffered))
    }
}

#[inline]
fn find_or_parse(
    bytes: &[u8],
    to_head: bool,
    heads: &mut ResponseHeadCache,
) -> Result<Option<ResponseSummary>, ParseError> {
    if let Some(cached) = heads.find(bytes, &to_head) {
        return Ok(Some(cached.value));
    }
    let head = parse_response_summary(bytes, to_head)?;
    if let Some(head) = head
        && head.status >= 200
    {
        heads.insert(&bytes[..head.len], to_head, head, b"");
    }
    Ok(head)
}
