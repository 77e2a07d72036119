//! One request and its answer.

use tollgate_wire::{BodyFraming, RequestHead, Version};

use super::{Ending, State};
use tollgate_ledger::Entry;

use crate::access_log::Unwritten;
use crate::answer::Answer;
use crate::output::Output;
use crate::response::{Persistence, render};
use crate::site::Site;

/// What of a request is needed once its answer is known.
pub(super) struct Exchange {
    pub(super) to_head: bool,
    pub(super) persistence: Persistence,
    /// How the connection ends if this is its last request. A client that sends a body may have made
    /// it longer than it said.
    pub(super) ending: Ending,
    /// For the access log, if there is one.
    pub(super) entry: Option<Box<Entry>>,
}

impl Exchange {
    pub(super) fn of(head: &RequestHead<'_>, stopping: bool, is_logged: bool) -> Self {
        Self {
            to_head: head.method == "HEAD",
            ending: match head.body {
                BodyFraming::Empty => Ending::Clean,
                _ => Ending::Linger,
            },
            persistence: match (head.keep_alive && !stopping, head.version) {
                (false, _) => Persistence::Close,
                (true, Version::Http10) => Persistence::Stated,
                (true, Version::Http11) => Persistence::Implied,
            },
            entry: is_logged.then(|| Box::new(Entry::new(head))),
        }
    }

    /// That of a request that could not be read.
    pub(super) fn unknown() -> Self {
        Self { to_head: false, persistence: Persistence::Close, ending: Ending::Clean, entry: None }
    }

    /// Writes and counts the answer, sees to its line in the log, and says how the conversation goes on.
    pub(super) fn finish(
        &mut self,
        answer: &Answer<'_>,
        output: &mut Output,
        site: &mut Site,
        unwritten: &mut Unwritten,
    ) -> State {
        render(answer, self.to_head, self.persistence, output);
        let tally = site.counters.tally();
        tally.answered(answer.status);
        if answer.is_refusal {
            tally.refused.add(1);
        }
        if site.log.is_some() {
            let body_bytes = if self.to_head { 0 } else { answer.body.bytes() };
            let left_bytes = output.left_bytes();
            unwritten.add(self.entry.take(), answer.status, body_bytes, left_bytes);
        }
        match self.persistence {
            Persistence::Close => State::Ended(self.ending),
            Persistence::Implied | Persistence::Stated => State::Head,
        }
    }
}
