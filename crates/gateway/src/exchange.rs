//! One request and its answer.

use std::time::Instant;

use tollgate_ledger::Entry;

use crate::forward::Asked;
use crate::phase::ExchangeId;
use crate::pool::{BackendId, Key, Lane, Tried};
use crate::relay::Body;

/// The longest request that is kept to be sent once more, in bytes.
const RETAINED_MAX_BYTES: usize = 16 << 10;

/// A request that keeps more memory than this gives it back when it is over.
const KEPT_CAPACITY_MAX_BYTES: usize = 2 << 10;

/// One request and its answer, on their way.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) id: ExchangeId,
    /// It is there while an inspector has the exchange wait.
    pub(crate) hold: Option<Box<Hold>>,
    pub(crate) asked: Asked,
    /// The configuration that it began under.
    pub(crate) site: usize,
    pub(crate) route: usize,
    pub(crate) pool: usize,
    /// What a consistent hash is taken of.
    pub(crate) hash: Key,
    /// The connection that carries it. None: it waits for one.
    pub(crate) upstream: Option<usize>,
    /// The queue that it is in.
    pub(crate) waits_in: Option<Lane>,
    /// The backend of whose room it has taken its part, after it had waited for that.
    pub(crate) is_next: Option<BackendId>,
    pub(crate) outgoing: Outgoing,
    /// The request's body.
    pub(crate) body: Body,
    /// How much of its payload has come.
    pub(crate) body_bytes: u64,
    /// Nothing more of the request is sent, for the backend takes no more.
    pub(crate) is_cut_short: bool,
    pub(crate) answer: Answer,
    /// A byte of an answer has come.
    pub(crate) is_answered: bool,
    /// Interim answers so far.
    pub(crate) interims: u32,
    /// The final answer's status; 0 before.
    pub(crate) status: u16,
    /// How much of the answer's payload has come.
    pub(crate) answer_bytes: u64,
    /// The client's connection ends with this answer.
    pub(crate) closes: bool,
    /// Backends that it has failed on.
    pub(crate) tried: Tried,
    /// A connection that had waited turned out closed, as others may be.
    pub(crate) wants_fresh: bool,
    pub(crate) began: Instant,
    /// The backend that it was sent to last.
    pub(crate) backend: Option<usize>,
    /// How often it was sent.
    pub(crate) tries: usize,
    /// What its line in the access log will tell.
    pub(crate) entry: Option<Box<Entry>>,
}

/// What an exchange keeps while an inspector has it wait.
#[derive(Debug)]
pub(crate) struct Hold {
    /// What its client gets once it goes on.
    pub(crate) bytes: Vec<u8>,
    /// The head of the answer is among them.
    pub(crate) has_head: bool,
}

/// How far the answer has come.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Its head is waited for.
    Head,
    Body {
        body: Body,
        /// The backend keeps its connection open.
        keep_alive: bool,
        /// The client learns of the end by the end of its connection.
        ends_at_close: bool,
    },
    /// It has come to its end.
    Done {
        /// The client learns of that by the end of its connection.
        ends_at_close: bool,
    },
    /// It was a switch to another protocol; which sides have sent their last byte.
    Tunnel { client_ended: bool, backend_ended: bool },
}

impl Answer {
    /// Whether the client learns of its end by the end of its connection.
    pub(crate) fn ends_at_close(&self) -> bool {
        matches!(self, Self::Body { ends_at_close: true, .. } | Self::Done { ends_at_close: true })
    }
}

/// The bytes of a request that a backend gets. They are kept after they were sent, as long as they are
/// few, so that they can be sent to another.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
    /// Bytes that were sent are kept no more.
    is_lost: bool,
}

impl Outgoing {
    /// Of a request's head, in the memory of a request before.
    pub(crate) fn begin(&mut self, head: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(head);
        self.sent = 0;
        self.is_lost = false;
    }

    /// Adds bytes, of which `sent` were sent already, which is nothing unless all before them was.
    pub(crate) fn add(&mut self, bytes: &[u8], sent: usize) {
        debug_assert!(sent == 0 || self.is_sent(), "bytes are sent in order");
        if self.is_lost || self.bytes.len() + bytes.len() > RETAINED_MAX_BYTES {
            self.bytes.drain(..self.sent);
            self.is_lost |= self.sent > 0 || sent > 0;
            self.sent = 0;
            self.bytes.extend_from_slice(&bytes[sent..]);
        } else {
            self.bytes.extend_from_slice(bytes);
            self.sent += sent;
        }
    }

    /// What is still to be sent.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    pub(crate) fn is_sent(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// So many more were sent.
    pub(crate) fn take(&mut self, count: usize) {
        self.sent += count;
        if self.is_sent() && self.bytes.len() > RETAINED_MAX_BYTES {
            self.bytes = Vec::new();
            self.sent = 0;
            self.is_lost = true;
        }
    }

    /// Whether a backend may have seen any of it.
    pub(crate) fn was_touched(&self) -> bool {
        self.sent > 0 || self.is_lost
    }

    /// Begins anew, for another backend; only when nothing was lost.
    pub(crate) fn rewind(&mut self) {
        self.sent = 0;
    }

    pub(crate) fn is_whole(&self) -> bool {
        !self.is_lost
    }

    /// It is over. A little memory is kept for the next one.
    pub(crate) fn clear(&mut self) {
        if self.bytes.capacity() > KEPT_CAPACITY_MAX_BYTES {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.sent = 0;
        self.is_lost = false;
    }
}

impl Exchange {
    /// Whether it may be sent to another backend: nothing of it was sent, or sending it twice does no
    /// harm, all that was sent is still there, and nothing was answered.
    pub(crate) fn may_be_retried(&self) -> bool {
        !self.is_answered
            && self.outgoing.is_whole()
            && (self.asked.is_idempotent || !self.outgoing.was_touched())
    }

    /// The whole request was passed on.
    pub(crate) fn is_sent(&self) -> bool {
        !self.is_cut_short && self.body.is_done() && self.outgoing.is_sent()
    }
}
