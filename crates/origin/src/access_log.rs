//! The lines of the access log of one connection, each written once its answer is over.

use std::collections::VecDeque;

use tollgate_ledger::{Entry, Line, ThreadLog, UNANSWERED};

/// The lines of one connection whose answers are on their way: each is written once its answer is over,
/// with what was sent of it.
#[derive(Default)]
pub(crate) struct Unwritten {
    /// All that the connection has sent.
    sent_bytes: u64,
    answers: VecDeque<Unfinished>,
}

struct Unfinished {
    entry: Option<Box<Entry>>,
    status: u16,
    /// How much the connection has sent when the body begins.
    begins_at: u64,
    /// The same when the answer is over.
    ends_at: u64,
}

impl Unwritten {
    /// An answer with a body of so many bytes follows what is left to send, of which it is the end.
    pub(crate) fn add(
        &mut self,
        entry: Option<Box<Entry>>,
        status: u16,
        body_bytes: u64,
        left_bytes: u64,
    ) {
        let ends_at = self.sent_bytes + left_bytes;
        let begins_at = ends_at - body_bytes;
        self.answers.push_back(Unfinished { entry, status, begins_at, ends_at });
    }

    /// So many more bytes were sent. Writes the lines of the answers that are over now.
    pub(crate) fn sent(&mut self, bytes: u64, log: &mut Option<ThreadLog>, peer: &str) {
        self.sent_bytes += bytes;
        while self.answers.front().is_some_and(|answer| answer.ends_at <= self.sent_bytes) {
            self.write_first(log, peer);
        }
    }

    /// No more will be sent. Writes the lines of the answers that were cut off, and that of `entry`, if
    /// there is one, which has no answer yet.
    pub(crate) fn cut_off(
        &mut self,
        entry: Option<&Entry>,
        log: &mut Option<ThreadLog>,
        peer: &str,
    ) {
        while !self.answers.is_empty() {
            self.write_first(log, peer);
        }
        if let (Some(log), Some(entry)) = (log, entry) {
            let entry = Some(entry);
            log.add(&Line { peer, entry, status: UNANSWERED, body_bytes: 0, upstream: None });
        }
    }

    fn write_first(&mut self, log: &mut Option<ThreadLog>, peer: &str) {
        if let (Some(answer), Some(log)) = (self.answers.pop_front(), log) {
            let body_bytes = answer.ends_at.min(self.sent_bytes).saturating_sub(answer.begins_at);
            let entry = answer.entry.as_deref();
            log.add(&Line { peer, entry, status: answer.status, body_bytes, upstream: None });
        }
    }
}
