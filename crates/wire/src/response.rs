//! Scanning the answers on one connection.

use crate::body::BodyDecoder;
use crate::error::ParseError;
use crate::head::{MAX_HEAD_BYTES, parse_response_head};
use crate::memo::HeadMemo;

/// Finds the end of each answer on one connection, whose bytes come split anywhere.
///
/// An answer that comes whole is not copied, save for a head that the memo has not seen. Interim
/// answers (1xx) are passed over. After an error, [`reset`](Self::reset) before the next connection.
#[derive(Debug, Default)]
pub struct ResponseScanner {
    /// The start of a head whose end has not come yet; never longer than [`MAX_HEAD_BYTES`].
    split_head: Vec<u8>,
    /// An interim answer has come, and its final one is due.
    after_interim: bool,
    body: Option<Body>,
}

/// What a feed has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// All bytes are consumed, and the answer has not ended.
    Partial,
    /// The answer has ended.
    Complete {
        /// What it was.
        answer: Answer,
        /// How many of the bytes fed last belong to it.
        consumed: usize,
    },
}

/// One final answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code, 100 to 999 but never 1xx.
    pub status: u16,
    /// The length of the body in bytes, without its transfer coding.
    pub body_bytes: u64,
    /// Whether the server keeps the connection open for another request.
    pub keep_alive: bool,
}

/// An answer whose head is known.
#[derive(Debug)]
struct Body {
    decoder: BodyDecoder,
    answer: Answer,
}

impl ResponseScanner {
    /// A scanner at the start of a connection.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets what was begun, for a new connection. Memory is kept.
    pub fn reset(&mut self) {
        self.split_head.clear();
        self.after_interim = false;
        self.body = None;
    }

    /// Takes the next bytes of the answer to one request; `to_head`: that request was a HEAD, whose
    /// answer has no body.
    ///
    /// `heads` spares the parsing of a head that it has seen, and may serve many scanners. `payload`
    /// is called with each piece of the final answer's payload, in order, never empty, without
    /// its transfer coding; also with what comes before a fault in the same bytes.
    ///
    /// # Errors
    ///
    /// The bytes are not an HTTP/1 answer, its framing is faulty, or it exceeds a limit.
    #[inline]
    pub fn feed(
        &mut self,
        bytes: &[u8],
        to_head: bool,
        heads: &mut HeadMemo,
        payload: impl FnMut(&[u8]),
    ) -> Result<Scan, ParseError> {
        let mut consumed = 0;
        // Each turn but the last takes the head of an interim answer out of the bytes.
        while self.body.is_none() {
            match self.feed_head(&bytes[consumed..], to_head, heads)? {
                Some(head_bytes) => consumed += head_bytes,
                None => return Ok(Scan::Partial),
            }
        }
        self.feed_body(bytes, consumed, payload)
    }

    /// The peer has closed the connection: the answer that this ends, if its body lasts until the
    /// close, or `None` when no answer had begun.
    ///
    /// # Errors
    ///
    /// The close cuts an answer short.
    pub fn close(&mut self) -> Result<Option<Answer>, ParseError> {
        match self.body.take() {
            Some(body) if body.decoder.ends_at_close() => Ok(Some(body.answer)),
            None if self.split_head.is_empty() && !self.after_interim => Ok(None),
            Some(_) | None => Err(ParseError::ClosedMidAnswer),
        }
    }

    /// Takes one head, and says how many of `bytes` belong to it; `None` when it has not ended.
    fn feed_head(
        &mut self,
        bytes: &[u8],
        to_head: bool,
        heads: &mut HeadMemo,
    ) -> Result<Option<usize>, ParseError> {
        let buffered = self.split_head.len();
        let head = if buffered == 0 {
            heads.parse(bytes, to_head)?
        } else {
            let room = MAX_HEAD_BYTES - buffered;
            self.split_head.extend_from_slice(&bytes[..bytes.len().min(room)]);
            // A head ends with a line, so that bytes within a line need no new attempt.
            let may_end = bytes.contains(&b'\n') || self.split_head.len() == MAX_HEAD_BYTES;
            if may_end { parse_response_head(&self.split_head, to_head)? } else { None }
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
                self.body = Some(Body {
                    decoder: BodyDecoder::new(head.body),
                    answer: Answer { status, body_bytes: 0, keep_alive: head.keep_alive },
                });
            }
        }
        Ok(Some(head.len - buffered))
    }

    fn feed_body(
        &mut self,
        bytes: &[u8],
        head_bytes: usize,
        payload: impl FnMut(&[u8]),
    ) -> Result<Scan, ParseError> {
        let Some(body) = &mut self.body else {
            return Ok(Scan::Partial);
        };
        let progress = body.decoder.feed(&bytes[head_bytes..], payload)?;
        body.answer.body_bytes += progress.body_bytes;
        if !progress.done {
            return Ok(Scan::Partial);
        }
        let answer = body.answer;
        self.body = None;
        Ok(Scan::Complete { answer, consumed: head_bytes + progress.consumed })
    }
}
